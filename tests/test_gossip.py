"""Averages by gossip: rounds against matrices, and how many agents are heard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from colme._core.team import Neighborhood
from colme.consensus import stable_step
from colme.gossip import Gossip, agents_heard, consensus_round, line_room
from colme.graphs import Graph, from_edges, gnp_random_graph, random_regular_graph


def rounds(graph: Graph, weights: NDArray[Any], masses: NDArray[Any], momentum: float, heard: Any, n: int) -> Any:
    """n rounds as matrices."""
    W = np.zeros((graph.n_agents,) * 2)
    a = np.repeat(np.arange(graph.n_agents), graph.degrees)
    W[a, graph.indices] = weights if heard is None else weights * heard
    W += np.diag(1.0 - W.sum(axis=1))
    now, before = W @ masses, masses
    for _ in range(n - 1):
        now, before = momentum * (W @ now - before) + before, now
    return now


@pytest.mark.parametrize("number", [np.float32, np.float64])
@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("n_columns", [5, 8, 33])
def test_rounds_are_those_of_the_matrix(n_columns: int, regular: bool, lossy: bool, number: Any) -> None:
    """With one weight for all neighbors, or one for each; rows of any length are some whole lines of the cache."""
    graph = random_regular_graph(30, 4, rng=0) if regular else gnp_random_graph(30, 0.2, rng=0)
    rng = np.random.default_rng(1)
    masses = rng.random((30, n_columns))
    weights = np.full(len(graph.indices), 0.25 if regular else 1 / (graph.max_degree + 1))
    heard = rng.random(len(graph.indices)) < 0.7 if lossy else None
    momentum = 1 + 1 / 3
    now, before = (line_room(Neighborhood(30), n_columns, number) for _ in range(2))
    now[:30, :n_columns] = masses
    given = number(weights[0]) if regular else weights.astype(number)
    for k in range(4):
        sent = consensus_round(
            graph.indptr, graph.indices, given, 0, now, before, number(momentum), k == 0, heard, 0.0
        )  # fmt: skip
        now, before = before, now
    assert not now[:, n_columns:].any()
    now = now[:30, :n_columns]
    wanted = rounds(graph, weights, masses, momentum, heard, 4)
    np.testing.assert_allclose(now, wanted, rtol=0, atol=1e-14 if number is np.float64 else 3e-6)
    assert sent == n_columns * len(graph.indices)
    if not lossy:
        np.testing.assert_allclose(now.mean(axis=0), masses.mean(axis=0), atol=1e-6)


def test_momentum_speeds_up_consensus() -> None:
    """On a random regular graph it comes closer to the average than plain rounds, and than half or twice as much."""
    graph = random_regular_graph(500, 6, rng=0)
    masses = np.eye(500)
    weights = np.full(len(graph.indices), 1 / 6)
    off = [np.square(rounds(graph, weights, masses, c, None, 8) - 1 / 500).sum() for c in (1.0, 1.1, 1.2, 1.4)]
    assert min(off) == off[2] < 0.3 * off[0]


def gossip_on(graph: Graph) -> Gossip:
    return Gossip.of(graph.n_agents, graph.n_edges, stable_step(graph))


def weights_in(graph: Graph, gossip: Gossip) -> NDArray[np.float64]:
    """1 / the sum of squared weights after every round, from the matrix of all weights."""
    everyone, own = np.eye(graph.n_agents), gossip.weights(graph, Neighborhood(graph.n_agents))
    after = [rounds(graph, own, everyone, gossip.momentum, None, k + 1) for k in range(gossip.rounds)]
    return 1.0 / np.square(np.array(after)).sum(axis=2)


STAR = from_edges([(0, k) for k in range(1, 100)])
HUBS = from_edges([(hub, k) for hub in range(3) for k in range(3, 600)])


def test_agents_heard_on_a_star_are_exact() -> None:
    gossip = gossip_on(STAR)
    np.testing.assert_allclose(agents_heard(STAR, gossip), np.maximum(weights_in(STAR, gossip), 1.0), rtol=1e-9)
    assert agents_heard(STAR, gossip)[-1, 1:].max() < 5.0  # a leaf hears next to none, however many rounds


def test_agents_heard_on_a_larger_graph_are_estimated() -> None:
    """64 squared signs have a relative standard error of at most sqrt(2 / 64) = .18; 600 agents, 5 of them."""
    gossip = gossip_on(HUBS)
    ratio = agents_heard(HUBS, gossip) / np.clip(weights_in(HUBS, gossip), 1.0, 600.0)
    assert np.abs(np.log(ratio)).max() < 5 * 0.18 * 1.4
    assert np.median(ratio) == pytest.approx(1.0, abs=0.1)


def test_random_regular_graphs_are_heard_as_the_formula_says() -> None:
    graph = random_regular_graph(1000, 10, rng=0)
    gossip = gossip_on(graph)
    np.testing.assert_array_equal(
        agents_heard(graph, gossip)[:, 0], [gossip.agents_reached(k + 1) for k in range(gossip.rounds)]
    )


def test_a_ring_of_degree_four_hears_fewer() -> None:
    n = 200
    ring = from_edges([(a, (a + d) % n) for a in range(n) for d in (1, 2)])
    gossip = gossip_on(ring)
    heard, exact = agents_heard(ring, gossip)[:, 0], weights_in(ring, gossip)[:, 0]
    assert heard[-1] < 0.5 * gossip.agents_reached(gossip.rounds)
    np.testing.assert_allclose(heard, exact, rtol=0.15)  # 4200 correlated signs
