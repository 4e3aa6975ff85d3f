"""Time of C-colME relative to CL-colME's, in turns: python -m benchmarks.side_by_side --agents 100000 --degree 30.

Both methods run on the same samples and graph and advance by a few steps in turn. What slows the machine down slows
both, so the ratio within a turn is free of it; the quartiles of the ratios of all turns say how sure it is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import click

import colme
from benchmarks import workloads as w
from benchmarks.measuring import Measured, Times, order, ratio
from colme.graphs import random_regular_graph
from colme.methods import Method
from colme.sim.run import Run
from colme.sim.spec import RunSpec

METHODS: dict[str, Method] = {
    "CL-colME": colme.CLColME(delta=w.DELTA, level="agent", clock="global"),
    "C-colME": colme.CColME(delta=w.DELTA, level="agent", clock="global"),
}
TURN = 40
"""Steps of a turn: at its start a method finds its data evicted from the caches, which a short turn would measure."""


def measure(methods: Mapping[str, Method], n_agents: int, degree: int, steps: int, seed: int = 0) -> dict[str, Times]:
    """CPU seconds of every turn of each method: samples, means, pruning, averaging and metrics at every step."""
    graph = random_regular_graph(n_agents, degree, rng=seed)
    runs = {
        label: Run([RunSpec(method=method, source=w.scenario(n_agents), graph=graph, steps=steps, seed=seed)])
        for label, method in methods.items()
    }
    for run in runs.values():
        w.advance(run, w.WARM_UP)
    seconds: dict[str, list[float]] = {label: [] for label in runs}
    for number, last in enumerate(range(w.WARM_UP + TURN, steps + 1, TURN), 1):
        for label in order(list(runs), number):
            started = time.process_time()
            w.advance(runs[label], last)
            seconds[label].append(time.process_time() - started)
    return {label: Times(tuple(each)) for label, each in seconds.items()}


def whole_ratio(slow: Times, fast: Times) -> Measured:
    """The ratio of whole runs, with the quartiles of single turns."""
    turns = ratio(slow, fast)
    return Measured(sum(slow.rounds) / sum(fast.rounds), turns.low, turns.high)


@click.command()
@click.option("--agents", default=w.N, show_default=True)
@click.option("--degree", default=w.DEGREE, show_default=True)
@click.option("--steps", default=2000, show_default=True)
def command(agents: int, degree: int, steps: int) -> None:
    """Print the time of each method relative to the first, over whole runs and the quartiles of single turns."""
    times = measure(METHODS, agents, degree, steps)
    first = next(iter(times.values()))
    for label, each in times.items():
        found = whole_ratio(each, first)
        pace = 1e9 * sum(each.rounds) / (agents * TURN * len(each.rounds))
        click.echo(
            f"{label:9} {found.value:.2f} ({found.low:.2f} .. {found.high:.2f})  {pace:.1f} ns per agent and step"
        )


if __name__ == "__main__":
    command()
