"""Pruning is irrevocable, symmetric and exactly the overlap of intervals; being lazy about it changes no bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from colme.graphs import (
    Graph,
    complete_graph,
    from_edges,
    gnp_random_graph,
    random_regular_graph,
    ring_lattice_graph,
)
from colme.pruning import KeptEdges

Floats = NDArray[np.float64]
modest = settings(deadline=None, max_examples=60)
BLOCK = 64
"""Agents side by side in the neighbor table, also the smallest room of a watch list."""
SIZES = st.one_of(st.integers(2, 40), st.sampled_from([63, 64, 65, 100, 127, 128, 129, 200]))

GRAPHS: dict[str, Callable[[int, int], Graph]] = {
    "regular": lambda n, seed: random_regular_graph(n, min(6, (n - 1) // 2 * 2), rng=seed),
    "irregular": lambda n, seed: gnp_random_graph(n, min(1.0, 5 / n), rng=seed),
    "star": lambda n, seed: from_edges([(seed % n, b) for b in range(n) if b != seed % n], n),
    "complete": lambda n, seed: complete_graph(min(n, 70)),
    "ring": lambda n, seed: ring_lattice_graph(n, 2 if n > 2 else 0),
    "no edges": lambda n, seed: from_edges([], n),
}


def slots_of(edges: KeptEdges, agent: int) -> list[int]:
    """The row of an agent by the formula of the layout: slots[offsets[B] + 64 j + l], agent = 64 B + l."""
    block, lane = divmod(agent, BLOCK)
    return edges.slots[edges.offsets[block] + lane : edges.offsets[block + 1] : BLOCK].tolist()


class Dense:
    """The same edges as a matrix: cut where |X_a - X_b| > R_a + R_b, once and for all."""

    def __init__(self, graph: Graph, class_: NDArray[Any]):
        self.first, self.alive = graph, graph.adjacency()
        self.same = class_[:, None] == class_[None, :]
        self.cut = np.zeros_like(self.alive)

    def prune(self, mean: Floats, radius: float | Floats) -> None:
        reach = np.broadcast_to(radius, mean.shape)
        with np.errstate(invalid="ignore"):
            far = np.abs(mean[:, None] - mean[None, :]) > reach[:, None] + reach[None, :]
        self.cut = self.alive & far
        self.alive = self.alive & ~far

    def assert_same(self, edges: KeptEdges) -> None:
        """Every table and counter of `edges`, counted by hand."""
        first = self.first.adjacency()
        assert edges.degree.tolist() == self.alive.sum(axis=1).tolist()
        assert edges.cut_now.astype(bool).tolist() == self.cut.any(axis=1).tolist()
        assert edges.any_cut == self.cut.any()
        assert edges.n_wrong == (first & ~self.same).sum() // 2
        assert edges.wrong == (self.alive & ~self.same).sum() // 2
        assert edges.lost == (first & ~self.alive & self.same).sum() // 2
        assert edges.isolated == (self.alive.sum(axis=1) == 0).sum()
        for agent in range(self.first.n_agents):
            row, neighbors = slots_of(edges, agent), self.first.neighbors(agent).tolist()
            kept = [b if self.alive[agent, b] else agent for b in neighbors]
            assert row == kept + [agent] * (len(row) - len(kept))


def assert_same_bits(lazy: KeptEdges, plain: KeptEdges) -> None:
    assert np.array_equal(lazy.slots, plain.slots)
    assert np.array_equal(lazy.degree, plain.degree)
    assert np.array_equal(lazy.cut_now, plain.cut_now)
    for counter in ("any_cut", "wrong", "lost", "isolated"):
        assert getattr(lazy, counter) == getattr(plain, counter), counter


def with_room(edges: KeptEdges, room: int | None) -> KeptEdges:
    """The edges with a watch list that holds so few that it often overflows."""
    if room is not None:
        edges._watch.found = np.empty((room, 2), np.uint32)
        edges._watch.listed = np.empty((room, 2), np.uint32)
    return edges


def count_full_looks(edges: KeptEdges) -> list[int]:
    """A list that grows by one at every look at all edges."""
    looks: list[int] = []
    full = edges._watch._look_at_all

    def counted(*args: Any) -> Any:
        looks.append(1)
        return full(*args)

    edges._watch._look_at_all = counted  # type: ignore[method-assign]
    return looks


@st.composite
def walks(draw: st.DrawFn) -> tuple[Graph, NDArray[Any], list[Floats], list[float]]:
    """A graph, classes, and means that wander while one common radius shrinks."""
    n, seed = draw(SIZES), draw(st.integers(0, 2**32 - 1))
    graph = GRAPHS[draw(st.sampled_from(sorted(GRAPHS)))](n, seed)
    n = graph.n_agents
    rng = np.random.default_rng(seed)
    class_ = rng.integers(draw(st.integers(1, 4)), size=n)
    offset = draw(st.sampled_from([0.0, 0.0, 1.0, -1e6, 1e6]))
    mean = offset + draw(st.sampled_from([0.0, 0.5, 2.0])) * class_ + rng.standard_normal(n) * 0.3
    pace = draw(st.sampled_from([0.0, 1e-3, 0.02, 0.2]))
    grid = draw(st.sampled_from([0.0, 0.125]))  # on a grid, intervals often touch in exactly one point
    radius, shrink = draw(st.floats(0.3, 3.0)), draw(st.floats(0.7, 1.0))
    means, radii = [], []
    for t in range(draw(st.integers(2, 25))):
        step = pace * rng.standard_normal(n)
        if rng.random() < 0.1:
            step[rng.integers(n)] += rng.standard_normal()  # a leap
        mean = mean + step
        means.append(np.round(mean / grid) * grid if grid else mean.copy())
        exact = radius * shrink**t
        radii.append(np.ceil(exact / grid) * grid / 2 if grid else exact)
    return graph, class_, means, radii


# lazy equals plain


@settings(deadline=None, max_examples=120)
@given(walks(), st.sampled_from([None, None, BLOCK, BLOCK + 3]))
def test_lazy_pruning_equals_the_full_check_to_the_bit(
    walk: tuple[Graph, NDArray[Any], list[Floats], list[float]], room: int | None
) -> None:
    graph, class_, means, radii = walk
    lazy, plain, dense = with_room(KeptEdges(graph, class_), room), KeptEdges(graph, class_), Dense(graph, class_)
    for mean, radius in zip(means, radii, strict=True):
        lazy.prune(mean, radius)
        plain.prune(mean, radius, lazy=False)
        assert_same_bits(lazy, plain)
        dense.prune(mean, radius)
    dense.assert_same(lazy)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("room", [None, BLOCK], ids=["roomy", "tiny list"])
@pytest.mark.parametrize("n", [1000, 1024])
def test_lazy_pruning_equals_the_full_check_over_a_long_run(n: int, room: int | None, offset: float) -> None:
    """Running means of real samples: classes part, a few true edges are lost, most steps change nothing."""
    rng = np.random.default_rng(n)
    graph = random_regular_graph(n, 10, rng=2)
    class_ = rng.integers(2, size=n)
    lazy, plain = with_room(KeptEdges(graph, class_), room), KeptEdges(graph, class_)
    mean, cuts = np.zeros(n), 0
    for t in range(1, 401):
        mean += (0.8 * class_ + rng.standard_normal(n) - mean) / t
        radius = float(np.sqrt(2 / t * (1 + 1 / t) * np.log(np.sqrt(t + 1) / 0.5)))
        lazy.prune(mean + offset, radius)
        plain.prune(mean + offset, radius, lazy=False)
        assert_same_bits(lazy, plain)
        cuts += lazy.any_cut
    assert cuts > 20 and lazy.wrong < 0.05 * lazy.n_wrong and lazy.lost > 0


def test_lazy_pruning_does_not_look_at_everything_every_step() -> None:
    """The equality above is between two different computations."""
    n = 2000
    rng = np.random.default_rng(0)
    edges = KeptEdges(random_regular_graph(n, 10, rng=2), np.zeros(n, int))
    looks = count_full_looks(edges)
    mean = rng.standard_normal(n)
    for t in range(1, 201):
        edges.prune(mean + 0.01 * rng.standard_normal(n), 3.0 - 0.002 * t)
    assert edges.lost > 0
    assert 1 <= len(looks) < 50


def test_a_list_that_overflows_falls_back_to_looking_at_everything() -> None:
    n = 500
    rng = np.random.default_rng(1)
    graph, class_ = random_regular_graph(n, 10, rng=2), np.arange(n) % 2
    lazy, plain = with_room(KeptEdges(graph, class_), BLOCK), KeptEdges(graph, class_)
    looks = count_full_looks(lazy)
    mean = rng.standard_normal(n)
    for t in range(1, 31):
        mean = mean + 0.05 * rng.standard_normal(n)
        lazy.prune(mean, 2.5 / np.sqrt(t))
        plain.prune(mean, 2.5 / np.sqrt(t), lazy=False)
        assert_same_bits(lazy, plain)
    assert len(looks) > 10 and lazy.lost > 100


def test_lazy_pruning_allows_for_the_rounding_of_the_means_it_remembers() -> None:
    """At 1e6 a float32 is up to 0.03 off. Both ends move by 0.05 but seem, from the rounded means, to move by 0.02."""
    graph, class_ = from_edges([(0, 1)]), np.zeros(2, int)
    edges = KeptEdges(graph, class_)
    first = 1e6 + np.array([0.03, 0.97])
    assert np.array_equal(first.astype(np.float32), 1e6 + np.array([0.0, 1.0]))
    edges.prune(first, 0.5)
    assert edges.lost == 0
    edges.prune(1e6 + np.array([-0.02, 1.02]), 0.5)
    assert edges.lost == 1


@pytest.mark.parametrize("n", [3, 64, 65, 300])
def test_all_edges_can_go_in_one_step(n: int) -> None:
    for graph in (random_regular_graph(n, 2, rng=0), gnp_random_graph(n, 3 / n, rng=1)):
        edges = KeptEdges(graph, np.zeros(n, int))
        edges.prune(np.zeros(n), 1.0)
        assert edges.lost == 0
        edges.prune(np.arange(n, dtype=float), 0.25)
        assert edges.lost == graph.n_edges and edges.isolated == n
        assert edges.graph().n_edges == 0 and not edges.degree.any()
        edges.prune(np.arange(n, dtype=float), 0.25)
        assert not edges.any_cut and not edges.cut_now.any()


# unequal radii, absent agents


@modest
@given(walks(), st.booleans())
def test_unequal_radii_and_absent_agents_equal_a_dense_check(
    walk: tuple[Graph, NDArray[Any], list[Floats], list[float]], gaps: bool
) -> None:
    graph, class_, means, radii = walk
    rng = np.random.default_rng(len(means))
    edges, dense = KeptEdges(graph, class_), Dense(graph, class_)
    arrives = rng.integers(0, len(means) + 2, size=graph.n_agents) if gaps else np.zeros(graph.n_agents, int)
    for t, (mean, radius) in enumerate(zip(means, radii, strict=True)):
        seen = np.where(t >= arrives, mean, np.nan)
        reach = np.where(t >= arrives, radius * rng.uniform(0.2, 2.0, graph.n_agents), np.inf)
        edges.prune(seen, reach)
        dense.prune(seen, reach)
        dense.assert_same(edges)


@pytest.mark.parametrize("radius", [0.0, 0.5, np.inf])
def test_an_agent_without_a_mean_is_never_cut(radius: float) -> None:
    n = 100
    graph = random_regular_graph(n, 6, rng=4)
    absent = np.arange(n) % 3 == 0
    mean = np.where(absent, np.nan, 10.0 * np.arange(n))
    for radii, lazy in ((np.full(n, radius), True), (radius, False)):
        edges = KeptEdges(graph, np.zeros(n, int))
        edges.prune(mean, radii, lazy=lazy)
        before, after = graph.adjacency(), edges.graph().adjacency()
        assert np.array_equal(before[absent], after[absent])
        present = ~absent
        assert after[np.ix_(present, present)].any() == (radius == np.inf)
        assert not edges.cut_now[absent & (before[:, present].sum(axis=1) == 0)].any()


def test_intervals_that_touch_in_one_point_stay_together() -> None:
    graph = from_edges([(0, 1), (1, 2)])
    mean = np.array([0.0, 1.0, np.nextafter(2.0, 3.0)])
    for radius, lazy in ((0.5, True), (0.5, False), (np.full(3, 0.5), True)):
        edges = KeptEdges(graph, np.zeros(3, int))
        edges.prune(mean, radius, lazy=lazy)  # type: ignore[arg-type]
        assert edges.graph().edges().tolist() == [[0, 1]]


# irrevocable; what is told about it


@modest
@given(walks())
def test_edges_are_only_ever_lost(walk: tuple[Graph, NDArray[Any], list[Floats], list[float]]) -> None:
    graph, class_, means, radii = walk
    edges = KeptEdges(graph, class_)
    before, lost, wrong = graph.adjacency(), 0, edges.n_wrong
    for mean, radius in zip(means, radii, strict=True):
        edges.prune(mean, radius)
        after = edges.graph().adjacency()
        assert not (after & ~before).any() and np.array_equal(after, after.T)
        assert np.array_equal((before & ~after).any(axis=1), edges.cut_now.astype(bool))
        assert edges.lost >= lost and edges.wrong <= wrong
        before, lost, wrong = after, edges.lost, edges.wrong


def test_a_cut_edge_stays_cut_when_the_means_meet_again() -> None:
    edges = KeptEdges(complete_graph(4), np.zeros(4, int))
    edges.prune(np.array([0.0, 0.0, 5.0, 5.0]), np.ones(4))
    assert edges.graph().edges().tolist() == [[0, 1], [2, 3]]
    edges.prune(np.zeros(4), np.full(4, 100.0))
    assert edges.graph().edges().tolist() == [[0, 1], [2, 3]] and not edges.any_cut


@modest
@given(walks())
def test_graph_is_the_survivors_in_their_first_order(
    walk: tuple[Graph, NDArray[Any], list[Floats], list[float]],
) -> None:
    graph, class_, means, radii = walk
    edges, dense = KeptEdges(graph, class_), Dense(graph, class_)
    assert np.array_equal(edges.graph().indices, graph.indices)
    for mean, radius in zip(means, radii, strict=True):
        edges.prune(mean, radius)
        dense.prune(mean, radius)
    left = edges.graph()
    assert np.array_equal(left.adjacency(), dense.alive)
    for agent in range(graph.n_agents):
        assert left.neighbors(agent).tolist() == [b for b in graph.neighbors(agent) if dense.alive[agent, b]]


@modest
@given(walks())
def test_shares_are_counts_over_what_there_was(walk: tuple[Graph, NDArray[Any], list[Floats], list[float]]) -> None:
    graph, class_, means, radii = walk
    edges, dense = KeptEdges(graph, class_), Dense(graph, class_)
    for mean, radius in zip(means, radii, strict=True):
        edges.prune(mean, radius)
        dense.prune(mean, radius)
    first = graph.adjacency()
    n_wrong, n_right = (first & ~dense.same).sum(), (first & dense.same).sum()
    wrong, lost = (dense.alive & ~dense.same).sum(), (first & ~dense.alive & dense.same).sum()
    assert edges.wrong_share == (wrong / n_wrong if n_wrong else 0.0)
    assert edges.lost_share == (lost / n_right if n_right else 0.0)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 130])
@pytest.mark.parametrize("kind", sorted(GRAPHS))
def test_the_fresh_table_holds_the_graph_and_empty_slots_point_home(kind: str, n: int) -> None:
    graph = GRAPHS[kind](n, 3)
    n = graph.n_agents
    edges = KeptEdges(graph, np.arange(n) % 2)
    Dense(graph, np.arange(n) % 2).assert_same(edges)
    n_blocks = -(-n // BLOCK)
    assert len(edges.offsets) == n_blocks + 1 and len(edges.slots) == edges.offsets[-1]
    for block in range(n_blocks):
        widest = graph.degrees[block * BLOCK : (block + 1) * BLOCK].max()
        assert edges.offsets[block + 1] - edges.offsets[block] == widest * BLOCK
    for agent in range(n, n_blocks * BLOCK):  # lanes behind the last agent
        assert set(slots_of(edges, agent)) <= {agent}
