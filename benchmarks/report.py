"""What was measured, for the eye: a table in the terminal, and docs/speed.md."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from benchmarks.goals import GOALS
from benchmarks.results import Results
from benchmarks.table import B_STEPS, ROOT
from colme._core.files import write_whole

DOCS = ROOT / "docs"
COLUMNS = ("against", "floor", "aim", "measured", "half of the rounds", "met")
MARK = {"aim": "[green]aim[/]", "floor": "[yellow]floor[/]", "below": "[red]below[/]", "": ""}

HEAD = """# How fast

Written by `make bench`, which measures all of it on your machine in about a quarter of an hour. These numbers are from:

{machine}

## How to read it

- Only ratios compare. The same work takes half as long again from one minute to the next on a shared machine, and
  twice as long on another; so all programs are measured in turns, in the same minutes, and given as ratios.
- A number is the best round of one against the best round of the other. In brackets are the quartiles of the ratios
  within single rounds: how much noise there was. Noise can only make a round slower, so the best rounds may lie
  outside of them.
- Time is CPU time of one core, compilation not counted, everything else counted: graph, set-up, samples, metrics at
  every step, the final groups. Only the two threads are measured by the clock on the wall.
- "met" says whether the number reaches what we aim for, the floor that we never want to fall below, or neither.
{load}"""
TABLE = """
## Against others

CL-colME with delta = .1 per edge, b = .1 and the global clock, N = 5000 agents, r = 10 neighbors, T = 2000 steps,
unless the row says otherwise; B-colME runs {b_steps} steps. SciPy is the loop of `benchmarks/scipy_loop.py`: NumPy, a
CSR matrix that is rebuilt only at steps that cut an edge, NumPy's fastest generator. Naive loops are those of
`benchmarks/naive_loops.py`. On our samples both give our curves, which is checked before anything is timed.

"""
SIZES = """
## Over the number of agents

![Nanoseconds per agent and step over the number of agents: roofline, colme, naive loops, SciPy](figures/speed_size.svg)

CPU nanoseconds per agent and step, the first {warm} steps and the set-up not counted, best of a few rounds:

"""
SIZES_END = """
The roofline is what memory alone would take: ten random float32 numbers read and summed for each agent, their indices
read in order, in whichever plain form is fastest at that size. A step does more than that: it draws a sample, moves the
mean, looks for edges to cut, averages, and measures the errors of three estimators. Many agents are followed for few
steps only, the first ones, when means still move fast and full checks of all edges are most frequent.
"""
METHODS = """
## Over the work

![CPU time of a run over agents times degree times steps, a line for each method](figures/speed_methods.svg)

CPU time of a whole `simulate` call, per agent and step, in nanoseconds:

"""
METHODS_END = """
Few agents pay for the set-up of a run; many leave the caches. In colME every agent asks and remembers all others, so
its cost per agent grows with their number.

## Measure it yourself

| command | does |
|---|---|
| `make bench` | measures everything, writes this page, then compares with the accepted ratios |
| `python -m benchmarks --quick` | a first impression in less than a minute; writes nothing |
| `make bench-check` | measures the ratios and fails if one is a quarter below `benchmarks/baseline.json` |
| `python -m benchmarks --accept` | takes the ratios of the last `make bench` as the ones to compare with |
| `make bench-suite` | every kernel and method by itself, under pytest-benchmark |

Close other programs first: two threads cannot be twice as fast on a core that another program uses. Ratios of different
processors differ; on another one than the baseline's, the check warns instead of failing.
"""


def terminal_table(results: Results) -> Table:
    """The goals and what is reached, in color."""
    table = Table(*COLUMNS, title="colme, as ratios in one run")
    for row in rows(results):
        table.add_row(*row[:-1], MARK[row[-1]])
    return table


def rows(results: Results) -> list[tuple[str, ...]]:
    """against, floor, aim, measured, quartiles, met."""
    found: list[tuple[str, ...]] = []
    for key, goal in GOALS.items():
        if key in results.table:
            seen = results.table[key]
            found.append((goal.against, goal.goal_words(goal.floor), goal.goal_words(goal.aim), goal.words(seen.value),
                          goal.range_words(seen), goal.met(seen.value)))  # fmt: skip
    return found


def size_rows(results: Results) -> list[tuple[str, ...]]:
    """agents, steps, roofline, one run, naive, SciPy, fastest form."""
    return [
        (f"{cost.n_agents:,}", str(cost.n_steps), *map(_short, (cost.roofline, cost.alone, cost.naive, cost.scipy)),
         cost.form)
        for cost in results.sizes
    ]  # fmt: skip


def method_rows(results: Results) -> list[tuple[str, ...]]:
    """A row for each size, a column for each method."""
    labels = list(dict.fromkeys(run.label for run in results.methods))
    found = []
    for size in dict.fromkeys((run.n_agents, run.n_steps) for run in results.methods):
        costs = {run.label: run.per_agent_step for run in results.methods if (run.n_agents, run.n_steps) == size}
        found.append((f"{size[0]:,}", str(size[1]), *(_short(costs.get(label)) for label in labels)))
    return [("agents", "steps", *labels), *found]


def size_table(results: Results) -> Table:
    table = Table("agents", "steps", "roofline", "one run", "naive", "SciPy", "fastest reads",
                  title="CPU nanoseconds per agent and step")  # fmt: skip
    for row in size_rows(results):
        table.add_row(*row)
    return table


def method_table(results: Results) -> Table:
    head, *body = method_rows(results)
    table = Table(*head, title="CPU nanoseconds per agent and step of whole runs")
    for row in body:
        table.add_row(*row)
    return table


def page(results: Results) -> str:
    """docs/speed.md."""
    busy = (
        textwrap.fill(f"- {load_words(results)}", 118, subsequent_indent="  ") + "\n"
        if results.load is not None
        else ""
    )
    facts = "\n".join(f"- {name}: {words}" for name, words in results.machine.items())
    bold = [(*row[:3], f"**{row[3]}**", f"({row[4]})" if row[4] else "", row[5]) for row in rows(results)]
    head, *body = method_rows(results)
    return "".join([
        HEAD.format(machine=facts, load=busy),
        TABLE.format(b_steps=B_STEPS),
        markdown(COLUMNS, bold),
        SIZES.format(warm="two to thirteen"),
        markdown(
            ("agents", "steps", "roofline", "one run", "naive loops", "SciPy", "fastest reads"), size_rows(results)
        ),
        SIZES_END, METHODS, markdown(head, body), METHODS_END,
    ])  # fmt: skip


def load_words(results: Results) -> str:
    """How busy the machine was, and a warning if others were at work."""
    if results.load is None:
        return ""
    low, high = results.load
    words = f"Load of the machine meanwhile, with our own share of about one: {low:.1f} to {high:.1f}."
    if results.remark:
        words = f"{words} {results.remark}"
    if results.quiet:
        return words
    return f"{words} It was not quiet: do not trust these numbers, measure again when nobody else is at work."


def write_page(results: Results) -> list[Path]:
    """The page and its figures."""
    from benchmarks.figures import write_figures

    write_whole(DOCS / "speed.md", page(results).encode())
    return [DOCS / "speed.md", *write_figures(results.sizes, results.methods, DOCS / "figures")]


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _short(value: float | None) -> str:
    """Nanoseconds, with as many digits as are known."""
    if value is None:
        return ""
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"
