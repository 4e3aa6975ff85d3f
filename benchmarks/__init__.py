"""How fast, as ratios measured side by side: `make bench`, or `python -m benchmarks` from the root of the repository.

measuring       clocks, turns, ratios                     scipy_loop, naive_loops, b_colme_table   what we compare with
workloads       what is run                               roofline     how fast memory lets any averaging be
fresh           first calls and memory of fresh processes cpp_program  the AAAI-25 C++ program, where it is at hand
table           the goals and what is reached             sizes, methods   cost over agents, and over work
estimates, streaming   tables in memory, and passes over many rows, beside pandas, Polars and DuckDB
results, report, figures   what is written down           regression   has a ratio dropped?
side_by_side    C-colME relative to CL-colME, in turns: `python -m benchmarks.side_by_side`
peers/          accuracy and cost of estimates beside mixed models and encoders: `python -m benchmarks.peers`
bench_*.py      every kernel and method under pytest-benchmark: `make bench-suite`
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core for the baselines, too
