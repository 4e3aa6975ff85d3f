"""Many steps in one go are the same steps: however long the stretches, whoever else runs, in parts or at once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import colme
from colme._core.edges import KeptEdges
from colme.consensus import CLOCKS
from colme.graphs import gnp_random_graph
from colme.methods import Method
from colme.samples import draw
from colme.sim.run import Run
from colme.sim.sampling import BLOCK, FEW_CLASSES, STRETCH
from tests.support.recordings import recording_like_a_scenario
from tests.support.runs import run_of
from tests.support.same_bits import assert_same_bits

N, STEPS = 150, 90


def clocked(kind: type[Method], **options: Any) -> list[Method]:
    """A method with every clock, each with intervals of its own."""
    return [
        kind(delta=0.1 + 0.1 * i, clock=clock, alpha=0.7 if clock == "constant" else None, **options)
        for i, clock in enumerate(CLOCKS)
    ]


METHODS: list[Method] = [
    *clocked(colme.CLColME), colme.Local(), *clocked(colme.CColME), colme.CColME(delta=0.3),
    colme.CLColME(delta=0.2, consensus="flow"),
    colme.BColME(delta=0.2), colme.ColME(delta=0.1), colme.Oracle(), colme.BColME(delta=0.1, depth=2),
]  # fmt: skip
CONSENSUS: list[Method] = [colme.CLColME(delta=0.1), colme.CColME(delta=0.4, clock="global"), colme.BColME(delta=0.2)]
TWO: dict[str, Any] = {"n_agents": N, "means": (0.0, 1.25), "sigma": 0.5}
SIX = tuple(1.5 * c for c in range(FEW_CLASSES + 2))
GRAPH = gnp_random_graph(N, 8 / N, rng=3)
"""Of all degrees, so that the table is tightened from the start."""
SOURCES: dict[str, colme.Scenario | colme.Recording] = {
    "two classes": colme.Scenario(**TWO),
    "six classes": colme.Scenario(**TWO | {"means": SIX}),
    "shift": colme.Scenario(**TWO, shift_step=41, shift_means=(2.0, -1.0)),
    "shift at once": colme.Scenario(**TWO, shift_step=2, shift_means=(2.0, -1.0)),
    "a scale each": colme.Scenario(**TWO | {"sigma": tuple(np.linspace(0.3, 0.7, N).tolist())}),
    "gaps": colme.Scenario(**TWO, skip_rate=0.2, late_share=0.2, late_step=30),
}


def recording() -> colme.Recording:
    """With true means and a scale for each agent."""
    scenario = colme.Scenario(**TWO)
    class_ = scenario.populate(5).class_
    return recording_like_a_scenario(draw(scenario, 5, STEPS), class_, sigma=np.linspace(0.4, 0.6, N))


def finished(run: Run) -> list[colme.Trace]:
    return run.go(None, threading.Event())


def stepped(run: Run) -> list[colme.Trace]:
    """Step by step."""
    for t in range(1, run.n_steps + 1):
        run.step(t)
        assert run.world.t == t
    return finished(run)


def strolled(run: Run, seed: int) -> list[colme.Trace]:
    """In stretches of any length, asked for by chance."""
    rng = np.random.default_rng(seed)
    while (t := run.world.t) < run.n_steps:
        asked = int(rng.integers(t + 1, min(run.n_steps, t + 2 * STRETCH) + 1))
        run.advance(t + 1, asked)
        assert t < run.world.t <= asked and run.world.t - t <= STRETCH
    return finished(run)


def assert_all_the_same(ours: list[colme.Trace], theirs: list[colme.Trace]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert_same_bits(one, other)


def check(methods: list[Method], source: colme.Scenario | colme.Recording, precision: str = "mixed") -> None:
    """In stretches, in single steps, in stretches of any length; all methods at once, and each alone."""
    options: dict[str, Any] = {"steps": STEPS, "graph": GRAPH, "precision": precision}
    run = run_of(methods, source, **options)
    together = finished(run)
    for trace in together:
        if isinstance(trace.method, colme.CLColME | colme.CColME | colme.BColME):
            assert trace.wrong_edges[0] > trace.wrong_edges[-1], "something must happen"
    assert_all_the_same(stepped(run_of(methods, source, **options)), together)
    assert_all_the_same(strolled(run_of(methods, source, **options), seed=1), together)
    for method, trace in zip(methods, together, strict=True):
        assert_all_the_same(finished(run_of([method], source, **options)), [trace])


@pytest.mark.parametrize("kind", [*SOURCES, "recording"])
def test_steps_in_stretches_and_in_company_are_single_steps_alone(kind: str) -> None:
    check(CONSENSUS if kind in ("gaps", "recording") else METHODS, SOURCES.get(kind) or recording())


@pytest.mark.parametrize("kind", ["two classes", "a scale each"])
def test_steps_in_stretches_are_single_steps_in_double_precision(kind: str) -> None:
    check([*CONSENSUS, colme.CLColME(delta=0.3, clock="own")], SOURCES[kind], "double")


def test_the_stretches_are_long_and_the_table_is_tightened_on_the_way() -> None:
    """What is compared above is not the same thing twice."""
    run = run_of(METHODS, SOURCES["two classes"], steps=STEPS, graph=GRAPH)
    widths = []
    for expected in (STRETCH, 2 * STRETCH, STEPS):
        run.advance(run.world.t + 1, STEPS)
        assert run.world.t == expected
        widths.append([int(state.edges.offsets[-1]) for state in run.states if isinstance(state.edges, KeptEdges)])
    assert run.states[0].edges.order.tolist() != sorted(run.states[0].edges.order.tolist())  # type: ignore[attr-defined]
    assert any(last < first for first, last in zip(widths[0], widths[-1], strict=True))
    shifted = run_of(METHODS[:1], SOURCES["shift"], steps=STEPS, graph=GRAPH)
    ends = []
    while shifted.world.t < STEPS:
        shifted.advance(shifted.world.t + 1, STEPS)
        ends.append(shifted.world.t)
    assert ends == [STRETCH, 40, 40 + STRETCH, STEPS], "no stretch goes across a shift"


# Blocks of samples


@pytest.mark.parametrize("record", ["all", "log"])
@pytest.mark.parametrize("kind", ["two classes", "six classes", "shift", "a scale each", "gaps"])
def test_the_size_of_a_block_does_not_matter(kind: str, record: str) -> None:
    """Agents in parts of 64, of 128; one step at a time, seven, as many as there may be."""
    options: dict[str, Any] = {"steps": STEPS, "graph": GRAPH, "record": record}
    wanted = finished(run_of(CONSENSUS, SOURCES[kind], **options))
    for block in (64, 128, N, 7 * N, 7 * N + 64):
        run = run_of(CONSENSUS, SOURCES[kind], **options, block=block)
        assert run.sampler.most == (1 if kind == "gaps" else max(1, block // N))
        assert_all_the_same(finished(run), wanted)


@pytest.mark.parametrize("means", [(0.0, 1.25), SIX], ids=["two classes", "six classes"])
def test_the_size_of_a_block_does_not_matter_for_more_agents_than_a_chunk(means: tuple[float, ...]) -> None:
    scenario = colme.Scenario(n_agents=2500, means=means, sigma=0.5)
    wanted = finished(run_of(CONSENSUS[:2], scenario, steps=50))
    assert wanted[0].wrong_edges[-1] < 0.5
    for block in (64, 1088, 2048, 2 * 2500):
        assert block < BLOCK
        assert_all_the_same(finished(run_of(CONSENSUS[:2], scenario, steps=50, block=block)), wanted)


@pytest.mark.parametrize("record", [1, 7, "log", [3, 33, 64, 65]])
def test_what_is_recorded_does_not_depend_on_what_else_is(record: Any) -> None:
    options: dict[str, Any] = {"steps": STEPS, "graph": GRAPH}
    every = finished(run_of(CONSENSUS, SOURCES["six classes"], **options))
    for run_through in (finished, stepped, lambda run: strolled(run, seed=2)):
        some = run_through(run_of(CONSENSUS, SOURCES["six classes"], **options, record=record))
        for few, all_ in zip(some, every, strict=True):
            assert np.array_equal(few.final.estimate, all_.final.estimate)
            for name in ("mse", "error_rate", "wrong_edges", "isolated", "local_mse", "local_error_rate", "oracle_mse"):
                assert np.array_equal(getattr(few, name), getattr(all_, name)[few.t - 1]), name
