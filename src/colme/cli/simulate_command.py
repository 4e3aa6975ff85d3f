"""`colme simulate`: simulate methods from flags alone."""

from __future__ import annotations

from typing import Any

import click

from colme.cli.fields import SectionedCommand, field_flags
from colme.cli.output import emit, format_option, say, wide_option
from colme.cli.parameters import METHOD, MOST_JOBS, absolute_graphs, parse_seeds
from colme.lab.quick import DEFAULTS, last_rows, simulate_flags, trace_rows

SPARE = ("n_groups", "coverage", "numbers", "local_error_rate", "isolated", "lost_edges", "oracle_mse", "seeds",
         "error_rate", "wrong_edges")  # fmt: skip
"""Columns that a narrow terminal leaves out first."""


@click.command("simulate", cls=SectionedCommand)
@click.option("-m", "--method", "methods", type=METHOD, multiple=True, metavar="NAME",
              help="A method; repeat for more (default: cl-colme and local; see colme list methods).")  # fmt: skip
@click.option(
    "--seeds", default="1", show_default=True, metavar="N|A,B,...", help="Number of seeds, or a list of seeds."
)
@click.option("-j", "--jobs", type=click.IntRange(1, MOST_JOBS), metavar="N",
              help="Seeds at once (default: number of cores).")  # fmt: skip
@click.option("--threads", type=click.IntRange(1, MOST_JOBS), metavar="N",
              help="Threads that share each seed, for 100,000 agents and more (default: 1).")  # fmt: skip
@click.option("--trace", is_flag=True, help="Print every recorded step, not only the last one.")
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
@wide_option
@format_option
@field_flags
def command(
    methods: tuple[str, ...], seeds: str, jobs: int | None, threads: int | None, trace: bool, quiet: bool, wide: bool,
    form: str, changes: dict[str, Any],
) -> None:  # fmt: skip
    """Simulate methods from flags alone and print their errors.

    All methods see the same samples and start on the same graphs. Every field of a scenario, of the set-up and of a
    method is a flag; several values (--level agent,edge) make a sweep. A combination that cannot run is skipped.
    Nothing is stored: for that, write an experiment file and use `colme run`.

    \b
    Examples:
      colme simulate --method cl-colme --method c-colme --n-agents 5000 --means 1.2,2 --sigma 2 --seeds 10
      colme simulate --steps 500 --delta 0.01,0.1 --format csv
      colme simulate --n-agents 100 --graph sensors.edges --steps 500
      colme simulate --n-agents 1000000 --steps 100 --record 10 --threads 2
      colme simulate --method cl-colme --clock gossip,global,harmonic --record 100 --trace --format csv
    """
    traces = simulate_flags(methods or DEFAULTS["methods"], parse_seeds(seeds), absolute_graphs(changes), jobs=jobs,
                            threads=threads, progress=not quiet, say=say)  # fmt: skip
    emit(trace_rows(traces) if trace else last_rows(traces), form, spare=SPARE, wide=wide)
