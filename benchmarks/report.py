"""What was measured, for the eye: a table in the terminal, and docs/speed.md."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from benchmarks.fresh import FEW, ROOT
from benchmarks.goals import GOALS
from benchmarks.results import Results
from benchmarks.table import B_STEPS
from colme.support.files import write_whole

DOCS = ROOT / "docs"
COLUMNS = ("what", "floor", "aim", "measured", "half of the rounds", "met")
SIZE_COLUMNS = ("agents", "steps", "roofline", "one run", "naive loops", "SciPy", "fastest reads")
MARK = {"aim": "[green]aim[/]", "floor": "[yellow]floor[/]", "below": "[red]below[/]", "": ""}

HEAD = """# How fast

Written by `make bench`, which measures all of it on your machine in about a quarter of an hour and replaces the column
of your family of processors (AMD, Intel, ...). These numbers are from:

{machines}{warnings}
## How to read it

- Only ratios compare. The same work takes half as long again from one minute to the next on a shared machine, and
  twice as long on another; so programs are measured in turns, in the same minutes. "SciPy CSR loop, by CL-colME: 15x"
  means that the loop takes 15 times as long as CL-colME.
- A number is the best round of one against the best round of the other. In brackets are the quartiles of the ratios
  within single rounds: how much noise there was. Noise can only make a round slower, so the best rounds may lie
  outside of them.
- Time is CPU time of one core, compilation not counted except where a row says so, everything else counted: graph,
  set-up, samples, metrics at every step, the final groups. Rows that say "wall clock" are measured by that.
- First calls are those of a fresh process on a machine where Python has compiled its modules, as an ordinary
  installation does; "ever" means that no kernel is compiled yet.
- Peak memory is that of a fresh process which makes one call of `simulate` and keeps its result (VmHWM of Linux), less
  what the process had needed at most by the end of a call with {few} agents. Memory "while running" is counted: all
  arrays of a run.
- After the number stands whether it reaches our aim, the floor that we never want to fall below, or neither.
"""
TABLE = """
## Goals, and what is reached

CL-colME with delta = .1 per edge, b = .1 and the global clock, the census with its defaults (so with a guard), N = 5000
agents, r = 10 neighbors, T = 2000 steps, unless the row says otherwise; B-colME runs {b_steps} steps. SciPy is the loop
of `benchmarks/scipy_loop.py`: NumPy, a CSR matrix that is rebuilt only at steps that cut an edge, NumPy's fastest
generator. Naive loops are those of `benchmarks/naive_loops.py`. On our samples both give our curves, which is checked
before anything is timed.

"""
CPP = """
The AAAI-25 C++ program is that of [its authors](https://github.com/Franco-Galante/scalable-decentralized-algorithms-AAAI25).
Its rows are measured only by `PEER=path make bench`, where `path` is a checkout in which its simulator is built as its
README says, with "Experiment 1b - C-ColME" chosen in main.cpp: N = 10^4, r = 10, T = 2000, sigma = 2, means 0 and 1. Of
its CPU time only the share counts that its own clock gives to the algorithm, without its graph, which takes it half as
long; ours is a whole call, graph included. To be fair to it: besides C-ColME it runs, in the same loop, an oracle that
averages over the true neighbors, where ours takes the mean of each class, which costs less. Both record their errors at
every step.
"""
SIZES = """
## Over the number of agents

![Nanoseconds per agent and step over the number of agents: roofline, colme, naive loops, SciPy](figures/speed_size.svg)

CPU nanoseconds per agent and step, the first {warm} steps and the set-up not counted, best of a few rounds. The figure
is of {newest}.
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

CPU time of a whole `simulate` call, per agent and step, in nanoseconds. The figure is of {newest}.
"""
METHODS_END = """
Few agents pay for the set-up of a run; many leave the caches. In colME every agent asks and remembers all others, so
its cost per agent grows with their number.

## Measure it yourself

| command | does |
|---|---|
| `make bench` | measures everything, writes this page, then compares with the accepted ratios |
| `PEER=path make bench` | the same, with the AAAI-25 C++ program in that folder (two minutes more) |
| `python -m benchmarks --quick` | a first impression in less than a minute; writes nothing |
| `make bench-check` | measures the ratios and fails if one is a quarter below `benchmarks/baseline.json` |
| `python -m benchmarks --draw` | writes this page again from `benchmarks/results_*.json`, a file for each family |
| `python -m benchmarks --accept` | takes the ratios of the last `make bench` as the ones to compare with |
| `make bench-suite` | every kernel and method by itself, under pytest-benchmark |

Close other programs first: two threads cannot be twice as fast on a core that another program uses. Ratios of different
processors differ; on another one than the baseline's, the check warns instead of failing.
"""


def terminal_table(results: Results) -> Table:
    """The goals and what is reached, in color."""
    table = Table(*COLUMNS, title="Goals, and what is reached here")
    for row in rows(results):
        table.add_row(*row[:-1], MARK[row[-1]])
    return table


def rows(results: Results) -> list[tuple[str, ...]]:
    """what, floor, aim, measured, quartiles, met."""
    found: list[tuple[str, ...]] = []
    for key, goal in GOALS.items():
        if key in results.table:
            seen = results.table[key]
            found.append((goal.what, *goal.goal_words(results.family), goal.words(seen.value), goal.range_words(seen),
                          goal.met(seen.value, results.family)))  # fmt: skip
    return found


def goal_table(machines: Sequence[Results]) -> str:
    """The goals, and a column of what is reached for each machine."""
    body = [
        (goal.what, *goal.goal_words(), *(_cell(results, key) for results in machines))
        for key, goal in GOALS.items()
        if any(key in results.table for results in machines)
    ]
    return markdown(("what", "floor", "aim", *map(name, machines)), body)


def _cell(results: Results, key: str) -> str:
    if key not in results.table:
        return ""
    goal, seen = GOALS[key], results.table[key]
    quartiles, met = goal.range_words(seen), goal.met(seen.value, results.family)
    return f"**{goal.words(seen.value)}**" + (f" ({quartiles})" if quartiles else "") + (f", {met}" if met else "")


def name(results: Results) -> str:
    """Processor and version."""
    return f"{results.processor}, colme {results.machine['colme']}"


def machine_table(machines: Sequence[Results]) -> str:
    """Facts of the machines, a column for each."""
    facts = dict.fromkeys(fact for results in machines for fact in results.machine)
    body = [(fact, *(results.machine.get(fact, "") for results in machines)) for fact in facts if fact != "processor"]
    loads = ["" if results.load is None else "{:.1f} to {:.1f}".format(*results.load) for results in machines]
    body.append(("load, of which about 1 is ours", *loads))
    return markdown(("processor", *(results.processor for results in machines)), body)


def size_rows(results: Results) -> list[tuple[str, ...]]:
    """Nanoseconds, in the order of SIZE_COLUMNS."""
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
    table = Table(*SIZE_COLUMNS, title="CPU nanoseconds per agent and step")
    for row in size_rows(results):
        table.add_row(*row)
    return table


def method_table(results: Results) -> Table:
    head, *body = method_rows(results)
    table = Table(*head, title="CPU nanoseconds per agent and step of whole runs")
    for row in body:
        table.add_row(*row)
    return table


def page(machines: Sequence[Results]) -> str:
    """docs/speed.md, of machines with the newest results first."""
    newest = name(machines[0])
    said = [f"{name(results)}: {words}" for results in machines if (words := warning(results))]
    warnings = "".join("\n" + textwrap.fill(words, 118) + "\n" for words in said)
    parts = [
        HEAD.format(machines=machine_table(machines), warnings=warnings, few=FEW), TABLE.format(b_steps=B_STEPS),
        goal_table(machines), CPP, SIZES.format(warm="two to thirteen", newest=newest),
    ]  # fmt: skip
    for results in machines:
        parts += [f"\n{name(results)}:\n\n", markdown(SIZE_COLUMNS, size_rows(results))]
    parts += [SIZES_END, METHODS.format(newest=newest)]
    for results in machines:
        head, *body = method_rows(results)
        parts += [f"\n{name(results)}:\n\n", markdown(head, body)]
    return "".join([*parts, METHODS_END])


def warning(results: Results) -> str:
    """What a reader must know of how this was measured."""
    busy = "The machine was not quiet: do not trust these numbers, measure again when nothing else runs."
    return " ".join(filter(None, (results.remark, "" if results.quiet else busy)))


def write_page(machines: Sequence[Results]) -> list[Path]:
    """The page, and the figures of the newest results."""
    from benchmarks.figures import write_figures

    newest = machines[0]
    write_whole(DOCS / "speed.md", page(machines).encode())
    return [DOCS / "speed.md", *write_figures(newest.sizes, newest.methods, DOCS / "figures")]


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _short(value: float | None) -> str:
    """Nanoseconds, with as many digits as are known."""
    if value is None:
        return ""
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"
