"""Pruning is irrevocable, symmetric and exactly the overlap of intervals; being lazy about it changes no bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colme._core.edges import KeptEdges
from colme.graphs import complete_graph, from_edges, gnp_random_graph, random_regular_graph
from tests.support.edges import (
    BLOCK,
    GRAPHS,
    Dense,
    LazyEdges,
    Walk,
    assert_same_bits,
    count_full_looks,
    slots_of,
    walks,
)
from tests.support.examples import examples

modest = examples(30)


# lazy equals plain


@examples(60)
@given(walks(), st.sampled_from([None, None, BLOCK, BLOCK + 3]))
def test_lazy_pruning_equals_the_full_check_to_the_bit(walk: Walk, room: int | None) -> None:
    graph, class_, means, radii = walk
    lazy, plain, dense = LazyEdges(graph, class_, room), KeptEdges(graph, class_), Dense(graph, class_)
    for mean, radius in zip(means, radii, strict=True):
        lazy.prune(mean, radius)
        plain.prune(mean, radius)
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
    lazy, plain = LazyEdges(graph, class_, room), KeptEdges(graph, class_)
    mean, cuts = np.zeros(n), 0
    for t in range(1, 401):
        mean += (0.8 * class_ + rng.standard_normal(n) - mean) / t
        radius = float(np.sqrt(2 / t * (1 + 1 / t) * np.log(np.sqrt(t + 1) / 0.5)))
        lazy.prune(mean + offset, radius)
        plain.prune(mean + offset, radius)
        assert_same_bits(lazy, plain)
        cuts += lazy.any_cut
    assert cuts > 20 and lazy.wrong < 0.05 * lazy.n_wrong and lazy.lost > 0


def test_lazy_pruning_does_not_look_at_everything_every_step() -> None:
    """The equality above is between two different computations."""
    n = 2000
    rng = np.random.default_rng(0)
    edges = LazyEdges(random_regular_graph(n, 10, rng=2), np.zeros(n, int))
    looks = count_full_looks(edges)
    mean = rng.standard_normal(n)
    for t in range(1, 201):
        edges.prune(mean + 0.01 * rng.standard_normal(n), 3.0 - 0.002 * t)
    assert edges.lost > 0
    assert 1 <= len(looks) < 50


def test_lazy_pruning_allows_for_the_rounding_of_the_means_it_remembers() -> None:
    """At 1e6 a float32 is up to 0.03 off. Both ends move by 0.05 but seem, from the rounded means, to move by 0.02."""
    graph, class_ = from_edges([(0, 1)]), np.zeros(2, int)
    edges = LazyEdges(graph, class_)
    first = 1e6 + np.array([0.03, 0.97])
    assert np.array_equal(first.astype(np.float32), 1e6 + np.array([0.0, 1.0]))
    edges.prune(first, 0.5)
    assert edges.lost == 0
    edges.prune(1e6 + np.array([-0.02, 1.02]), 0.5)
    assert edges.lost == 1


@pytest.mark.parametrize("n", [3, 64, 65, 300])
def test_all_edges_can_go_in_one_step(n: int) -> None:
    for graph in (random_regular_graph(n, 2, rng=0), gnp_random_graph(n, 3 / n, rng=1)):
        edges = LazyEdges(graph, np.zeros(n, int))
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
def test_unequal_radii_and_absent_agents_equal_a_dense_check(walk: Walk, gaps: bool) -> None:
    graph, class_, means, radii = walk
    rng = np.random.default_rng(len(means))
    edges, dense = LazyEdges(graph, class_), Dense(graph, class_)
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
    for radii, kind in ((np.full(n, radius), LazyEdges), (radius, KeptEdges)):
        edges = kind(graph, np.zeros(n, int))
        edges.prune(mean, radii)
        before, after = graph.adjacency(), edges.graph().adjacency()
        assert np.array_equal(before[absent], after[absent])
        present = ~absent
        assert after[np.ix_(present, present)].any() == (radius == np.inf)
        assert not edges.cut_now[absent & (before[:, present].sum(axis=1) == 0)].any()


def test_intervals_that_touch_in_one_point_stay_together() -> None:
    graph = from_edges([(0, 1), (1, 2)])
    mean = np.array([0.0, 1.0, np.nextafter(2.0, 3.0)])
    for radius, kind in ((0.5, LazyEdges), (0.5, KeptEdges), (np.full(3, 0.5), LazyEdges)):
        edges = kind(graph, np.zeros(3, int))
        edges.prune(mean, radius)  # type: ignore[arg-type]
        assert edges.graph().edges().tolist() == [[0, 1]]


# irrevocable; what is told about it


def test_a_cut_edge_stays_cut_when_the_means_meet_again() -> None:
    edges = LazyEdges(complete_graph(4), np.zeros(4, int))
    edges.prune(np.array([0.0, 0.0, 5.0, 5.0]), np.ones(4))
    assert edges.graph().edges().tolist() == [[0, 1], [2, 3]]
    edges.prune(np.zeros(4), np.full(4, 100.0))
    assert edges.graph().edges().tolist() == [[0, 1], [2, 3]] and not edges.any_cut


@modest
@given(walks())
def test_graph_is_the_survivors_in_their_first_order(
    walk: Walk,
) -> None:
    graph, class_, means, radii = walk
    edges, dense = LazyEdges(graph, class_), Dense(graph, class_)
    assert np.array_equal(edges.graph().indices, graph.indices)
    for mean, radius in zip(means, radii, strict=True):
        edges.prune(mean, radius)
        dense.prune(mean, radius)
    left = edges.graph()
    assert np.array_equal(left.adjacency(), dense.alive)
    for agent in range(graph.n_agents):
        assert left.neighbors(agent).tolist() == [b for b in graph.neighbors(agent) if dense.alive[agent, b]]


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
