"""Clocks keep to their definition step by step; Metropolis weights stay doubly stochastic whatever is cut."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import colme
from colme import consensus
from colme._core.edges import Intervals
from colme.consensus import CLOCKS, START, clock_rate
from colme.graphs import Graph, complete_graph, gnp_random_graph, random_regular_graph
from colme.methods import CColME, CLColME, World
from colme.methods.c_colme import CState
from colme.methods.consensus import ConsensusMethod
from colme.metrics import OF_METHOD
from colme.testing import Case

modest = settings(deadline=None, max_examples=25)
ALPHA = 0.7


class BruteClock:
    """L_a of every agent from the whole history of adjacency matrices, as the table of clocks defines it."""

    def __init__(self, name: str, graph: Graph):
        self.name, self.alive = name, graph.adjacency()
        self.restart = [2] * graph.n_agents

    def tick(self, t: int, alive: NDArray[np.bool_], present: NDArray[np.bool_]) -> None:
        before, self.alive = self.alive, alive
        lost_one = (before & ~alive).any(axis=1)
        now, old = max(t, 2), list(self.restart)
        for a in range(len(old)):
            if self.name in ("own", "global") and (lost_one[a] if self.name == "own" else lost_one.any()):
                self.restart[a] = now
            elif self.name == "gossip":
                heard = [old[b] for b in np.flatnonzero(alive[a])]
                self.restart[a] = max([old[a], *heard, *([now] if lost_one[a] else [])]) if present[a] else 2

    def alpha(self, t: int, agent: int) -> float:
        if self.name == "constant":
            return ALPHA
        k = t - self.restart[agent] + 1
        return k / (k + 1)


class Radius:
    """In place of a state's radii: always one, and infinite for who has no sample."""

    numbers = 1.0
    test = None

    def intervals(self, world: World, mean: NDArray[np.float64], ahead: int = 0) -> list[Intervals]:
        return [(mean, 1.0 if world.count is None else np.where(world.count > 0, 1.0, np.inf))]

    def over(self, world: World, n_steps: int) -> NDArray[np.float64] | None:
        return np.ones(n_steps) if world.count is None else None


class Driven:
    """CL-colME with a clock, given its local means step by step."""

    def __init__(self, name: str, graph: Graph, *, gaps: bool = False):
        n = graph.n_agents
        self.world = World(
            class_=np.zeros(n, np.uint16), sigma=1.0, width=None, mean=np.full(n, np.nan),
            count=np.zeros(n, np.int32) if gaps else None, exchange=np.float64, truth=np.zeros(n),
        )  # fmt: skip
        alpha = ALPHA if name == "constant" else None
        self.state = CLColME(clock=name, alpha=alpha).start(self.world, graph)
        self.state.radii = Radius()  # type: ignore[assignment]
        self.clock, self.n = self.state.restarts.clock, n

    def step(self, t: int, mean: NDArray[np.float64]) -> None:
        self.world.t, self.world.mean = t, mean
        if self.world.count is not None:
            self.world.count += ~np.isnan(mean)
        self.state.step(self.world)

    @property
    def restarts(self) -> list[int]:
        """Every agent's last restart."""
        known = self.state.restarts
        return [known.common] * self.n if known.known is None else known.known[known.turn, : self.n].tolist()


@st.composite
def histories(draw: st.DrawFn, late: bool = True) -> tuple[Graph, NDArray[np.float64], NDArray[np.float64]]:
    """A graph, means (steps, agents) that part a few edges now and then, and when each agent arrives."""
    n, seed = draw(st.one_of(st.integers(2, 30), st.sampled_from([64, 65, 100]))), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    graph = gnp_random_graph(n, min(1.0, draw(st.sampled_from([2, 4])) / n), rng=seed)
    steps = draw(st.integers(1, 25))
    means = np.zeros((steps, n))
    for t in range(steps):
        means[t] = means[t - 1] if t else 0.0
        if rng.random() < 0.3:
            means[t, rng.integers(n)] += 10.0  # this agent leaves its neighbors
    arrives = rng.integers(0, steps + 3, n) if late and draw(st.booleans()) else np.zeros(n)
    means[np.arange(steps)[:, None] < arrives[None, :]] = np.nan
    return graph, means, arrives


# clocks


@pytest.mark.parametrize("name", CLOCKS)
@modest
@given(history=histories())
def test_clock_equals_its_definition_at_every_step(
    name: str, history: tuple[Graph, NDArray[np.float64], NDArray[np.float64]]
) -> None:
    graph, means, arrives = history
    n = graph.n_agents
    driven, brute = Driven(name, graph, gaps=bool(arrives.any())), BruteClock(name, graph)
    assert driven.restarts == [START] * n == [2] * n
    for t, mean in enumerate(means, start=1):
        before = driven.state.estimate.copy()
        driven.step(t, mean)
        left = driven.state.edges.graph().adjacency()
        brute.tick(t, left, ~np.isnan(mean))
        assert driven.restarts == brute.restart
        for a in range(n):
            assert clock_rate(driven.clock, t, driven.restarts[a]) == brute.alpha(t, a)
        alpha = np.array([brute.alpha(t, a) for a in range(n)])
        heard = np.where(left, np.nan_to_num(before[None, :] - before[:, None]), 0.0)
        mixed = (1.0 - alpha) * mean + alpha * (before + driven.state.step_size * heard.sum(axis=1))
        expected = np.where(np.isnan(before) | ~left.any(axis=1), mean, mixed)
        np.testing.assert_allclose(driven.state.estimate, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", CLOCKS)
@modest
@given(history=histories(late=False))
def test_clock_of_many_steps_in_one_go_is_that_of_each_step(
    name: str, history: tuple[Graph, NDArray[np.float64], NDArray[np.float64]]
) -> None:
    graph, means, _ = history
    one_by_one, at_once = Driven(name, graph), Driven(name, graph)
    for t, mean in enumerate(means, start=1):
        one_by_one.step(t, mean)
    at_once.world.t, at_once.world.mean = 1, means[0]
    at_once.state.advance(at_once.world, means, np.ones(len(means), bool), np.empty((len(means), len(OF_METHOD))))
    assert at_once.restarts == one_by_one.restarts
    assert at_once.state.estimate.tobytes() == one_by_one.state.estimate.tobytes()
    assert at_once.state.edges.graph() == one_by_one.state.edges.graph()


@pytest.mark.parametrize("name", CLOCKS)
def test_clock_equals_its_definition_long_after_the_last_restart(name: str) -> None:
    """One cut at step 5, or none; then three hundred quiet steps."""
    for cut_at in (5, None):
        graph = complete_graph(5)
        driven, brute = Driven(name, graph), BruteClock(name, graph)
        for t in range(1, 301):
            driven.step(t, np.array([0.0, 0.0, 0.0, 0.0, 10.0 * (t == cut_at)]))
            brute.tick(t, driven.state.edges.graph().adjacency(), np.ones(5, bool))
            rates = [clock_rate(driven.clock, t, restart) for restart in driven.restarts]
            assert rates == [brute.alpha(t, a) for a in range(5)]


def test_every_clock_has_words_where_one_looks_for_them() -> None:
    """In the help of the flag, in the table of the code, in that of the documentation."""
    page = (Path(__file__).parent.parent / "docs" / "methods.md").read_text(encoding="utf-8")
    code = inspect.getsource(consensus)
    for name in CLOCKS:
        assert f'"{name}"' in (ConsensusMethod.__doc__ or ""), name
        assert f'| `"{name}"`' in page and re.search(rf"^{name} +[a-z]", code, re.MULTILINE), name


@pytest.mark.parametrize("method", [colme.CLColME, colme.CColME])
def test_pure_descent_tends_to_the_average_of_the_first_samples(method: Any) -> None:
    """alpha = 1: nothing pulls to the own mean, so later samples do not matter and y'Ly only falls."""
    samples = np.random.default_rng(3).normal(size=(200, 30))
    graph = random_regular_graph(30, 4, rng=1)
    run = Case(method(clock="constant", alpha=1.0, gamma=1e-9)).run
    estimates = run(samples, graph=graph, classes=np.zeros(30), precision="double")
    np.testing.assert_allclose(estimates[-1], samples[0].mean(), atol=1e-12)
    own, other = (estimates[:, ends] for ends in graph.edges().T)
    energy = ((own - other) ** 2).sum(axis=1)
    assert (np.diff(energy) <= 0).all() and energy[0] > 10.0


# Metropolis weights


def at_zero(n: int, exchange: Any = np.float32) -> World:
    """All agents of one class, their true means and first means zero."""
    return World(
        class_=np.zeros(n, np.uint16), sigma=1.0, width=None, mean=np.zeros(n), count=None, exchange=exchange,
        truth=np.zeros(n),
    )  # fmt: skip


def weight_matrix(state: CState) -> NDArray[np.float64]:
    """W as the state keeps it: the weight of every living slot, and what is left on the diagonal."""
    edges = state.edges
    n = len(edges.degree)
    matrix = np.zeros((n, n))
    for a in range(n):
        block, lane = divmod(a // 1024 * 1024 + int(edges.row_of[a]), 64)
        for k in range(edges.offsets[block] + lane, edges.offsets[block + 1], 64):
            if edges.slots[k] != a:
                matrix[a, edges.slots[k]] = state.weights[k]
    return matrix + np.diag(1.0 - matrix.sum(axis=1))


def metropolis_matrix(graph: Graph, exchange: Any) -> NDArray[np.float64]:
    """W_ab = 1 / (max(D_a, D_b) + 1) on the edges, from scratch."""
    degrees, adjacency = graph.degrees, graph.adjacency()
    weights = (1.0 / (np.maximum.outer(degrees, degrees) + 1.0)).astype(exchange).astype(float)
    matrix = np.where(adjacency, weights, 0.0)
    return matrix + np.diag(1.0 - matrix.sum(axis=1))


@pytest.mark.parametrize("exchange", [np.float32, np.float64])
@modest
@given(n=st.one_of(st.integers(2, 30), st.sampled_from([64, 65, 130])), seed=st.integers(0, 2**32 - 1))
def test_mended_weights_are_those_computed_from_scratch_and_doubly_stochastic(exchange: Any, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = gnp_random_graph(n, min(1.0, 6 / n), rng=seed)
    world = at_zero(n, exchange)
    state = CColME(gamma=0.2).start(world, graph)
    cuts = 0
    for t in range(1, 16):
        world.t = t
        world.mean += (rng.standard_normal(n) * 3.0 - world.mean) / t
        state.step(world)
        cuts += state.edges.any_cut
        matrix, left = weight_matrix(state), state.edges.graph()
        assert np.array_equal(matrix, metropolis_matrix(left, exchange))
        assert np.array_equal(matrix, matrix.T)
        np.testing.assert_allclose(matrix.sum(axis=0), 1.0, atol=1e-14)
        assert (np.diag(matrix) >= 1.0 / (left.degrees + 1.0) - 1e-6).all()  # so no entry is negative
    if graph.n_edges > 20:
        assert cuts >= 2
