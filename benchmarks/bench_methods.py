"""Every method end to end, and the baselines beside them."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import naive_loops, scipy_loop
from benchmarks import workloads as w
from benchmarks.methods import LABELS

STEPS = 200


@pytest.mark.parametrize("n", [1000, 5000], ids=lambda n: f"{n} agents")
@pytest.mark.parametrize("label", LABELS)
def bench_method(benchmark: Any, label: str, n: int) -> None:
    """A whole call of `simulate`."""
    method, most = LABELS[label]
    if n > most:
        pytest.skip(f"{label} is measured with at most {most} agents")
    benchmark.pedantic(w.simulate(method, n, STEPS), rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("run", [scipy_loop.run, naive_loops.run], ids=["SciPy", "naive"])
def bench_baseline(benchmark: Any, run: Any) -> None:
    """CL-colME as others write it."""
    benchmark.pedantic(w.baseline(run, w.graph_of(w.N), STEPS, step=w.STEP), rounds=5, warmup_rounds=1)


def bench_b_colme_table(benchmark: Any) -> None:
    """B-colME as a table per edge."""
    table = w.b_colme_table()
    if table is None:
        pytest.skip("benchmarks/b_colme_table.py is not there")
    benchmark.pedantic(w.baseline(table, w.graph_of(1000), STEPS, depth=w.DEPTH), rounds=3, warmup_rounds=1)
