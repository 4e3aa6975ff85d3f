"""`measure`: the times of methods run side by side, in turns, as ratios within one run.

Seconds measured at different hours, or on different machines, do not compare: other processes and clock rates change
them by half. Here every method has a run of its own on the same samples and the same graph, and the runs advance in
turns of some steps each. What slows one method down also slows down the methods measured just before and after it, so
the ratio within a turn is free of it; the scatter of the ratios of many turns is their uncertainty.

    table = measure({"CL-colME": CLColME(...), "C-colME": CColME(...)}, scenario, degree=10, steps=2000)
    ratio_summary(table, to="CL-colME")

Tables are columns by name. Parts of a turn ("chunk"):

kernel       averaging: weights, consensus, errors, and the check of the edges that may part; for methods without an
             averaging of their own, the whole step of the method
end to end   everything: samples, means, pruning, clock, averaging, metrics at every step
set-up       once, as chunk 0 with no steps: graph, tables, first weights

Nothing runs in parallel, and all kernels are compiled before the first measurement.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.errors import RunError, one_of, shorten, whole
from colme.graphs import Graph
from colme.lab.runs.warm_up import warm_up
from colme.method import State, World
from colme.methods import CLColME, Method
from colme.samples import ScenarioStream
from colme.scenario import Scenario, check_seed
from colme.sim.engine import Run
from colme.sim.prepare import EXCHANGE, GraphSource, first_graph
from colme.sim.recorder import recorded_steps

Columns = dict[str, NDArray[Any]]
"""A table: columns of equal length by name."""

KERNEL, END_TO_END, SET_UP = PARTS = ("kernel", "end to end", "set-up")

TURN = 0.005
"""Least duration, in seconds, of a turn of the first method: long compared with reading the clock (0.3 us), short
compared with the seconds over which the speed of a machine changes."""
REFILL, LONG_TURN = 40, 0.5
"""Least number of steps of a turn, unless they take this many seconds. At the start of its turn a method finds its data
evicted from the caches, and its first step is slower: at N = 10^5, turns of one step made the kernel of CL-colME 40 %
slower and that of C-colME with rebuilt weights 20 %, a ratio that no user sees. Runs with slower steps do not fit into
a cache anyway."""
PILOT_STEPS, PILOT_SECONDS = 20, 0.5

# CPU time of this thread. A wall clock also counts other processes and the thread that draws a progress bar; kernels
# run in this thread and wait for nothing, so on an idle machine both agree. On Windows CPU time advances in ticks of
# 16 ms, longer than a chunk; the wall clock is the lesser evil there.
clock: Callable[[], float] = time.perf_counter if os.name == "nt" else time.thread_time


def measure(
    methods: Mapping[str, Method],
    scenario: Scenario,
    *,
    steps: int,
    degree: int | None = None,
    graph: GraphSource | None = None,
    seed: int = 0,
    chunk: int | None = None,
    precision: str = "mixed",
    tell: Callable[[int, int], None] | None = None,
) -> Columns:
    """Run every method for all steps, in turns, and return the columns method, part, chunk, steps, seconds.

    methods   by label
    chunk     steps that a turn takes at least (default: 40, more if they take less than 5 ms, fewer if more than 0.5 s)
    tell      is called after each turn of all methods with (steps done, steps)
    """
    if len(methods) < 2 or not all(isinstance(method, Method) for method in methods.values()):
        raise RunError(
            f"methods={shorten(methods)}: there must be at least two methods, by label, to compare. "
            "Try {'CL-colME': colme.CLColME(), 'C-colME': colme.CColME()}."
        )
    steps, seed = whole(steps, "steps", "steps=2000", RunError), check_seed(seed)
    one_of(precision, EXCHANGE, "precision", RunError)
    if chunk is not None:
        chunk = whole(chunk, "chunk", "chunk=50", RunError)

    for method in methods.values():
        warm_up(method, scenario, precision)
    started = clock()
    made = first_graph(graph, degree, scenario.n_agents, seed)
    graph_seconds = clock() - started
    for method in methods.values():
        method.check(scenario.n_agents, made)
    if chunk is None:
        chunk = _pilot(_run(next(iter(methods.values())), scenario, made, steps, seed, precision), steps)

    runners: dict[str, _Runner] = {}
    rows: list[tuple[str, str, int, int, float]] = []
    for label, method in methods.items():
        started = clock()
        run = _run(method, scenario, made, steps, seed, precision)
        rows.append((label, SET_UP, 0, 0, graph_seconds + clock() - started))
        runners[label] = _Runner(run)
    for number, first, last in _chunks(steps, chunk):
        for label in order(list(runners), number):
            kernel, whole_step = runners[label].advance(first, last)
            rows.append((label, KERNEL, number, last - first, kernel))
            rows.append((label, END_TO_END, number, last - first, whole_step))
        if tell is not None:
            tell(last, steps)
    return _columns(("method", "part", "chunk", "steps", "seconds"), rows)


def _run(method: Method, scenario: Scenario, graph: Graph, steps: int, seed: int, precision: str) -> Run:
    stream = ScenarioStream(scenario, seed)  # not shared: a stream remembers where it is
    return Run(
        [method], stream, graph, recorded_steps("all", steps), seed=seed, tolerance=0.1,
        exchange=EXCHANGE[precision], configuration={},
    )  # fmt: skip


def _pilot(run: Run, steps: int) -> int:
    """The number of steps in a turn, from the first steps of a run that is thrown away."""
    read = [clock()]
    while len(read) <= min(steps, PILOT_STEPS) and read[-1] - read[0] < PILOT_SECONDS:
        run.step(len(read))
        read.append(clock())
    step = float(np.median(np.diff(read)))  # not the mean: the first step touches all memory anew
    return max(math.ceil(TURN / step), min(REFILL, math.ceil(LONG_TURN / step)))


def _chunks(steps: int, chunk: int) -> Iterator[tuple[int, int, int]]:
    """(number, steps done before, steps done after), numbered from 1: as equal as can be, none shorter than asked."""
    n_chunks = max(1, steps // chunk)
    for number in range(1, n_chunks + 1):
        yield number, steps * (number - 1) // n_chunks, steps * number // n_chunks


def order(labels: list[str], number: int) -> list[str]:
    """The order of the methods in this chunk. It rotates, so that no method always profits from a warm cache or a fast
    phase of the machine, and is reversed in every other round, so that no method always has the same predecessor."""
    rounds, shift = divmod(number - 1, len(labels))
    turned = labels[shift:] + labels[:shift]
    return turned if rounds % 2 == 0 else turned[::-1]


class _Stopwatch:
    """A context manager that adds up the time spent inside it."""

    def __init__(self) -> None:
        self.seconds = self._entered = 0.0

    def __enter__(self) -> None:
        self._entered = clock()

    def __exit__(self, *_: object) -> None:
        self.seconds += clock() - self._entered


class _TimedState:
    """A state of a method without an averaging of its own: the same state, with a stopwatch around every step."""

    def __init__(self, state: State, stopwatch: _Stopwatch):
        self._state, self._stopwatch = state, stopwatch

    def step(self, world: World) -> None:
        with self._stopwatch:
            self._state.step(world)

    def advance(self, *stretch: Any) -> None:
        State.advance(self, *stretch)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)


class _Runner:
    """A run whose averaging, and whose whole steps, are timed."""

    def __init__(self, run: Run):
        self.run, self.stopwatch = run, _Stopwatch()
        state: Any = run.states[0]
        if hasattr(state, "stopwatch"):  # around the averaging alone
            state.stopwatch = self.stopwatch
        else:
            run.states[0] = _TimedState(state, self.stopwatch)  # type: ignore[call-overload]

    def advance(self, first: int, last: int) -> tuple[float, float]:
        """Run the steps after `first` up to `last`; return the seconds spent in the kernel, and in all."""
        self.stopwatch.seconds = 0.0
        started = clock()
        while self.run.world.t < last:
            self.run.advance(self.run.world.t + 1, last)
        return self.stopwatch.seconds, clock() - started


def ratios(table: Columns, to: str = CLColME.label) -> Columns:
    """The columns method, part, chunk, ratio: seconds per step, relative to those of method `to` in the same chunk."""
    one_of(to, dict.fromkeys(table["method"].tolist()), "method of the table", RunError)
    pace = table["seconds"] / np.maximum(table["steps"], 1)
    keys = list(zip(table["part"].tolist(), table["chunk"].tolist(), strict=True))
    theirs = {keys[row]: pace[row] for row in np.flatnonzero(table["method"] == to)}
    for part, chunk in keys:
        if (part, chunk) not in theirs:
            raise RunError(f"{to!r} has no {part!r} in chunk {chunk}: every chunk needs it. Measure all methods anew.")
    ratio = pace / np.array([theirs[key] for key in keys])
    return {"method": table["method"], "part": table["part"], "chunk": table["chunk"], "ratio": ratio}


def ratio_summary(table: Columns, to: str = CLColME.label) -> Columns:
    """A row for each method and part.

    ratio             all seconds relative to all seconds of method `to`: what a whole run costs more
    median, lower_quartile, upper_quartile   of the ratios of the chunks: what a chunk costs more, and how sure that is
    seconds, steps    in all
    """
    each = ratios(table, to)
    total: dict[tuple[str, str], float] = {}
    rows = []
    labels = list(dict.fromkeys(table["method"].tolist()))
    parts = [part for part in PARTS if part in table["part"]]
    for label in (to, *(label for label in labels if label != to)):
        for part in parts:
            mine = (table["method"] == label) & (table["part"] == part)
            seconds = total[label, part] = float(table["seconds"][mine].sum())
            lower, median, upper = np.quantile(each["ratio"][mine], (0.25, 0.5, 0.75)).tolist()
            share = seconds / total[to, part]
            rows.append((label, part, share, median, lower, upper, seconds, int(table["steps"][mine].sum())))
    names = ("method", "part", "ratio", "median", "lower_quartile", "upper_quartile", "seconds", "steps")
    return _columns(names, rows)


def _columns(names: tuple[str, ...], rows: list[Any]) -> Columns:
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
