"""Where the arrays of B-colME and colME work unlike their agents: nothing per edge, sums kept while they last.

Estimates of every step are the same bits, in worlds larger and stranger than those of the promises.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import colme
from benchmarks import b_colme_table as table
from colme.graphs import Graph, from_edges, random_regular_graph
from colme.methods import Method
from colme.methods.b_colme import BState
from colme.sim.run import Run
from colme.testing import lockstep
from tests.support.runs import run_of

SIGMA = 0.5


def draw(n_agents: int, n_steps: int, *, late: bool = False) -> NDArray[np.float64]:
    """Two classes 1 apart; late: some agents come late or never, and samples are missing."""
    rng = np.random.default_rng(1)
    samples = np.where(np.arange(n_agents) % 2, 0.0, 1.0) + SIGMA * rng.standard_normal((n_steps, n_agents))
    if late:
        begins = rng.integers(0, 12, n_agents)
        begins[::9] = n_steps
        samples[np.arange(n_steps)[:, None] < begins] = np.nan
        samples[rng.random(samples.shape) < 0.1] = np.nan
    return samples


def start(method: Method, samples: NDArray[np.float64], graph: Graph) -> tuple[Run, float]:
    recording = colme.Recording(samples, sigma=SIGMA, classes=np.arange(samples.shape[1]) % 2)
    run = run_of([method], recording, graph=graph)
    return run, recording.origin


def assert_agents_agree(method: Method, samples: NDArray[np.float64], graph: Graph) -> Any:
    run, origin = start(method, samples, graph)
    alone = lockstep(method, samples - origin, graph, sigma=SIGMA)
    for t in range(1, len(samples) + 1):
        run.step(t)
        np.testing.assert_array_equal(run.states[0].estimate, alone[t - 1], f"step {t}")
    state = run.states[0]
    assert state.edges.wrong_share < 1.0, "nothing happened"
    return state


def wheel(n_agents: int) -> Graph:
    """A hub and a ring: degrees 3 and n - 1; the hub names its neighbors from the last to the first."""
    ring = np.arange(1, n_agents)
    graph = from_edges([*zip(ring, np.roll(ring, 1), strict=True), *((0, int(b)) for b in ring)], n_agents)
    indices = graph.indices.copy()
    indices[: n_agents - 1] = indices[: n_agents - 1][::-1]
    return Graph(graph.indptr, indices)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("depth", [4, *(pytest.param(depth, marks=pytest.mark.slow) for depth in (1, 2, 3, 5, 8, 10))])
def test_b_colme_without_messages_per_edge(depth: int, late: bool) -> None:
    state = assert_agents_agree(
        colme.BColME(delta=0.1, level="agent", depth=depth), draw(40, 60, late=late), random_regular_graph(40, 6, rng=0)
    )
    assert isinstance(state, BState) and state.by_agents == (not late and depth < 10)


@pytest.mark.slow
def test_b_colme_counts_samples_where_agents_are_too_many_to_be_counted_exactly() -> None:
    method = colme.BColME(delta=0.1, level="agent", depth=40)
    state = assert_agents_agree(method, draw(30, 60), random_regular_graph(30, 10, rng=0))
    assert not state.by_agents and state.reached.total.max() > 2.0**53


@pytest.mark.parametrize("late", [False, True])
def test_b_colme_on_unequal_degrees_in_any_order(late: bool) -> None:
    assert_agents_agree(colme.BColME(delta=0.1, level="agent"), draw(30, 60, late=late), wheel(30))


def test_b_colme_counts_agents_only_after_cuts() -> None:
    """Once nothing was cut for depth steps, the agents reached stand still; the next cut wakes them."""
    method, samples, graph = colme.BColME(delta=0.1, depth=3), draw(12, 120), random_regular_graph(12, 4, rng=0)
    assert_agents_agree(method, samples, graph)
    run, _ = start(method, samples, graph)
    state: Any = run.states[0]
    last, advances = 1, []
    for t in range(1, 121):
        before = state.reached.step
        run.step(t)
        last = t if state.edges.any_cut else last
        advances.append(state.reached.step - before)
        assert advances[-1] == (t - last <= 3)
    turns = np.count_nonzero(np.diff(advances))
    assert turns >= 5, "it should have fallen asleep, woken, and so on"


@pytest.mark.parametrize(
    ("weights", "restricted", "late"),
    [("simple", True, True), ("soft", False, True), ("aggressive", False, False),
     *(pytest.param(*each, marks=pytest.mark.slow) for each in (
         ("simple", False, False), ("soft", True, False), ("aggressive", True, True)))],
)  # fmt: skip
def test_colme_sums_by_blocks(weights: str, restricted: bool, late: bool) -> None:
    """130 agents are two blocks and a part of a third."""
    method = colme.ColME(delta=0.1, weights=weights, restricted=restricted, queries=10)
    assert_agents_agree(method, draw(130, 25, late=late), random_regular_graph(130, 4, rng=0))


def test_colme_looks_only_at_blocks_that_may_have_changed() -> None:
    """Looking at all blocks at every step gives the same bits of everything."""
    method, samples, graph = colme.ColME(delta=0.1), draw(150, 400), random_regular_graph(150, 4, rng=0)
    (lazy, _), (eager, _) = start(method, samples, graph), start(method, samples, graph)
    one, other = lazy.states[0], eager.states[0]
    kept = 0
    for t in range(1, len(samples) + 1):
        looked = one.sums[:, :, 3].copy()
        other.sums[:, :, 2] = 0.0
        lazy.step(t)
        eager.step(t)
        kept += np.count_nonzero(looked == one.sums[:, :, 3])
        assert one.estimate.tobytes() == other.estimate.tobytes()
        for name in ("wrong", "lost", "isolated"):
            assert getattr(one.edges, name) == getattr(other.edges, name)
    assert one.edges.graph() == other.edges.graph()
    assert kept > 0.4 * one.sums[:, :, 3].size * len(samples)


@pytest.mark.parametrize("subtract", [False, True])
@pytest.mark.parametrize("depth", [1, 4, *(pytest.param(depth, marks=pytest.mark.slow) for depth in (2, 5))])
def test_the_baseline_of_b_colme_computes_the_same(depth: int, subtract: bool) -> None:
    samples, truth, graph = draw(200, 150), np.where(np.arange(200) % 2, 0.0, 1.0), random_regular_graph(200, 6, rng=0)
    ours = colme.simulate(
        colme.BColME(gamma=0.05, depth=depth), colme.Recording(samples, sigma=SIGMA, means=truth), graph=graph
    )
    theirs = table.run(
        graph.edges(), truth, n_steps=150, sigma=SIGMA, gamma=0.05, depth=depth, subtract=subtract, samples=samples
    )
    np.testing.assert_allclose(theirs["estimate"], ours.final.estimate, rtol=0, atol=1e-12)
    for name in table.NAMES:
        np.testing.assert_allclose(theirs[name], getattr(ours, name), rtol=0, atol=1e-12, err_msg=name)
