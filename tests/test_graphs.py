"""Every generator makes simple undirected graphs of the right law, and every refusal says the rule and the remedy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from colme.errors import GraphError
from colme.graphs import (
    Graph,
    complete_graph,
    from_edges,
    from_networkx,
    gnp_random_graph,
    has_bipartite_component,
    random_regular_graph,
    ring_lattice_graph,
    watts_strogatz_graph,
)
from colme.sim.threads import run_threads
from tests.support.examples import examples

modest = examples(30)


def as_networkx(graph: Graph) -> Any:
    found = nx.empty_graph(graph.n_agents)
    found.add_edges_from(graph.edges().tolist())
    return found


SEEDS = st.integers(0, 2**64 - 1)
SDS = 5.0
"""Standard deviations that a statistic may be off, with its seed fixed: 6e-7 for a normal one under a fresh seed."""


def assert_simple(graph: Graph) -> None:
    """No loops, no edge twice, every edge at both ends; says nothing about how `edges` or `adjacency` see it."""
    n = graph.n_agents
    assert graph.indptr[0] == 0 and graph.indptr[-1] == len(graph.indices)
    a = np.repeat(np.arange(n, dtype=np.int64), np.diff(graph.indptr))
    b = graph.indices.astype(np.int64)
    assert (b < n).all(), "a neighbor that does not exist"
    assert (a != b).all(), "a loop"
    there, back = np.sort(a * n + b), np.sort(b * n + a)
    assert (there[1:] != there[:-1]).all(), "an edge twice"
    assert (there == back).all(), "an edge at one end only"


def pair_counts(graphs: list[Graph]) -> NDArray[np.float64]:
    """How often each pair low < high is an edge."""
    total = sum(graph.adjacency().astype(float) for graph in graphs)
    return np.asarray(total)[np.triu_indices(graphs[0].n_agents, 1)]


def n_triangles(graph: Graph, degree: int) -> int:
    """Triangles of a regular graph: each is seen from three edges as a common neighbor."""
    rows = graph.indices.reshape(-1, degree)
    low, high = graph.edges().T
    return int((rows[low][:, :, None] == rows[high][:, None, :]).sum()) // 3


@st.composite
def any_graph(draw: st.DrawFn) -> Graph:
    """A simple graph on 1..30 agents, its edges in any order and direction."""
    n = draw(st.integers(1, 30))
    pairs = [(a, b) for b in range(n) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=60)) if pairs else []
    flips = draw(st.lists(st.booleans(), min_size=len(edges), max_size=len(edges)))
    return from_edges([(b, a) if flip else (a, b) for (a, b), flip in zip(edges, flips, strict=True)], n)


@st.composite
def regular_sizes(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 90))
    return n, draw(st.integers(0, n - 1).filter(lambda d: n * d % 2 == 0))


# what a Graph tells about itself


@modest
@given(any_graph())
def test_edges_list_each_edge_once_as_low_high_sorted(graph: Graph) -> None:
    assert_simple(graph)
    edges = graph.edges()
    expected = sorted({tuple(sorted((a, int(b)))) for a in range(graph.n_agents) for b in graph.neighbors(a)})
    assert edges.shape == (graph.n_edges, 2)
    assert list(map(tuple, edges.tolist())) == expected


@modest
@given(any_graph())
def test_components_are_the_connected_ones_numbered_by_their_first_agent(graph: Graph) -> None:
    expected = np.full(graph.n_agents, -1)
    for number, members in enumerate(sorted(nx.connected_components(as_networkx(graph)), key=min)):
        expected[list(members)] = number
    assert np.array_equal(graph.components(), expected)


def assert_bipartite_component_is_found(graph: Graph) -> bool:
    """One worker and teams say what networkx says; returns what they say."""
    nx_graph, degree = as_networkx(graph), graph.max_degree
    expected = degree > 0 and any(
        nx.is_bipartite(nx_graph.subgraph(members)) and all(nx_graph.degree(a) == degree for a in members)
        for members in nx.connected_components(nx_graph)
    )
    assert graph.bipartite == expected
    for size in (2, 3):
        assert expected == run_threads(
            size, lambda team: has_bipartite_component(graph.indptr, graph.indices, team)
        )  # fmt: skip
    return expected


@modest
@given(any_graph())
def test_bipartite_components_of_the_maximal_degree_are_found(graph: Graph) -> None:
    assert_bipartite_component_is_found(graph)


def test_bipartite_components_are_found_on_graphs_of_all_kinds() -> None:
    found = Counter[bool]()
    for seed in range(25):
        rng = np.random.default_rng(seed)
        n, degree = int(rng.integers(4, 200)), int(rng.integers(0, 4))
        for graph in (
            random_regular_graph(2 * n, degree, rng=rng),  # of degree 2: rings, even and odd
            gnp_random_graph(n, float(rng.uniform(0.0, 2.5)) / n, rng=rng),
            ring_lattice_graph(n, 2),
            watts_strogatz_graph(n, 2, 0.1, rng=rng),
        ):
            found[assert_bipartite_component_is_found(graph.relabel(rng.permutation(graph.n_agents)))] += 1
    assert min(found[True], found[False]) > 20


@modest
@given(any_graph(), st.randoms(use_true_random=False))
def test_relabel_renames_agents_and_keeps_the_order_of_neighbors(graph: Graph, random: Any) -> None:
    names = list(range(graph.n_agents))
    random.shuffle(names)
    renamed = graph.relabel(names)
    assert_simple(renamed)
    for a in range(graph.n_agents):
        assert renamed.neighbors(names[a]).tolist() == [names[b] for b in graph.neighbors(a)]
    back = renamed.relabel(np.argsort(names))
    assert np.array_equal(back.indptr, graph.indptr) and np.array_equal(back.indices, graph.indices)


@modest
@given(any_graph())
def test_from_edges_and_networkx_give_the_graph_back(graph: Graph) -> None:
    assert from_edges(graph.edges(), graph.n_agents) == graph
    assert from_edges(map(tuple, graph.edges()[::-1, ::-1].tolist()), graph.n_agents) == graph
    assert from_networkx(as_networkx(graph)) == graph


def test_from_edges_keeps_the_order_of_the_list() -> None:
    graph = from_edges([(3, 1), (0, 3), (2, 3), (1, 0)])
    assert graph.neighbors(3).tolist() == [1, 0, 2]
    assert graph.neighbors(0).tolist() == [3, 1]
    assert graph.neighbors(1).tolist() == [3, 0]


def test_from_edges_takes_the_largest_name_plus_one_unless_told() -> None:
    assert from_edges([(0, 4)]).n_agents == 5
    assert from_edges([(0, 4)], 9).n_agents == 9
    assert from_edges([], 3).degrees.tolist() == [0, 0, 0]
    assert from_edges(np.array([[0, 1]], np.uint8)).n_edges == 1


def test_graphs_are_equal_by_their_edges_not_by_the_order_of_neighbors() -> None:
    one, other = from_edges([(0, 1), (0, 2)]), from_edges([(2, 0), (1, 0)])
    assert one.neighbors(0).tolist() != other.neighbors(0).tolist()
    assert one == other
    assert one != from_edges([(0, 1), (0, 2)], 4)
    assert one != from_edges([(0, 1), (1, 2)])
    assert one != "a graph"
    with pytest.raises(TypeError):
        hash(one)


# generators: the graph is what its name says


@examples(60)
@given(regular_sizes(), SEEDS)
def test_random_regular_graph_is_simple_and_regular(sizes: tuple[int, int], seed: int) -> None:
    n, degree = sizes
    graph = random_regular_graph(n, degree, rng=seed)
    assert_simple(graph)
    assert graph.degrees.tolist() == [degree] * n


def test_random_regular_graph_of_a_million_agents_is_simple_and_regular() -> None:
    n, degree = 10**6, 10
    graph = random_regular_graph(n, degree, rng=1)
    assert len(graph.indices) == n * degree and (graph.degrees == degree).all()
    a, b = np.repeat(np.arange(n, dtype=np.int64), degree), graph.indices.astype(np.int64)
    up, down = a < b, a > b
    assert up.sum() + down.sum() == n * degree, "a loop"
    there, back = np.sort(a[up] * n + b[up]), np.sort(b[down] * n + a[down])
    assert (there[1:] > there[:-1]).all(), "an edge twice"
    assert np.array_equal(there, back), "an edge at one end only"


@modest
@given(st.integers(1, 80), st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-6, 1.0)), SEEDS)
def test_gnp_random_graph_is_simple(n: int, p: float, seed: int) -> None:
    graph = gnp_random_graph(n, p, rng=seed)
    assert_simple(graph)
    assert graph.n_agents == n
    if p == 0.0:
        assert graph.n_edges == 0
    if p == 1.0:
        assert graph == complete_graph(n)


@modest
@given(st.integers(1, 80), st.data())
def test_ring_lattice_joins_each_agent_to_its_nearest(n: int, data: st.DataObject) -> None:
    degree = 2 * data.draw(st.integers(0, (n - 1) // 2))
    graph = ring_lattice_graph(n, degree)
    assert_simple(graph)
    for a in range(n):
        nearest = {(a + side * k) % n for k in range(1, degree // 2 + 1) for side in (-1, 1)}
        assert set(graph.neighbors(a).tolist()) == nearest


@modest
@given(st.one_of(st.integers(1, 40), st.integers(41, 120)), st.data(), st.floats(0.0, 1.0), SEEDS)
def test_watts_strogatz_is_simple_and_moves_one_end_only(n: int, data: st.DataObject, p: float, seed: int) -> None:
    degree = 2 * data.draw(st.integers(0, (n - 1) // 2))
    graph = watts_strogatz_graph(n, degree, p, rng=seed)
    assert_simple(graph)
    assert graph.n_edges == n * degree // 2
    assert graph.degrees.min() >= degree // 2  # the end that stays is each agent's own


def test_a_place_that_an_edge_leaves_in_a_dense_small_world_can_be_taken_again() -> None:
    """The edges to the next agent on the ring leave first; with 41 agents and 82 free places others take theirs."""
    n, degree = 41, 36
    a = np.arange(n)
    for seed in range(10):
        graph = watts_strogatz_graph(n, degree, 1.0, rng=seed)
        assert graph.n_edges == n * degree // 2
        assert graph.adjacency()[a, (a + 1) % n].sum() > n / 2


@pytest.mark.parametrize(
    ("n", "degree", "p"), [(2, 0, 0.0), (5, 2, 0.0), (30, 6, 0.0), (1, 0, 1.0), (7, 0, 1.0), (3, 2, 1.0), (9, 8, 1.0)]
)
def test_watts_strogatz_that_moves_nothing_or_has_no_room_to_is_the_ring(n: int, degree: int, p: float) -> None:
    assert watts_strogatz_graph(n, degree, p, rng=0) == ring_lattice_graph(n, degree)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 65])
def test_complete_graph_has_every_pair(n: int) -> None:
    graph = complete_graph(n)
    assert_simple(graph)
    assert graph.degrees.tolist() == [n - 1] * n


# generators: the law


@pytest.mark.parametrize("degree", [3, 4, 6])
def test_triangles_of_random_regular_graphs_are_poisson(degree: int) -> None:
    """Their number tends to a Poisson one of mean (d-1)^3 / 6 (Bollobas 1980); the correction is of order 1/n."""
    n, m = 1000, 400
    mean = (degree - 1) ** 3 / 6
    counts = np.array([n_triangles(random_regular_graph(n, degree, rng=seed), degree) for seed in range(m)])
    correction = mean * degree**2 / n
    assert abs(counts.mean() - mean) < SDS * np.sqrt(mean / m) + correction
    # the sample variance of a Poisson number has variance mean / m + 2 mean^2 / (m - 1)
    assert abs(counts.var(ddof=1) - mean) < SDS * np.sqrt(mean / m + 2 * mean**2 / (m - 1)) + correction


@pytest.mark.parametrize(("n", "n_matchings"), [(4, 3), (6, 15)])
def test_random_matchings_are_uniform(n: int, n_matchings: int) -> None:
    """Degree 1 needs no repair, so every perfect matching has the same chance, exactly."""
    m = 200 * n_matchings
    seen = Counter(random_regular_graph(n, 1, rng=seed).edges().tobytes() for seed in range(m))
    assert len(seen) == n_matchings
    chi2, df = sum((count - 200) ** 2 / 200 for count in seen.values()), n_matchings - 1
    assert chi2 < df + SDS * np.sqrt(2 * df)


@pytest.mark.parametrize(("n", "degree"), [(40, 3), (40, 36)], ids=["sparse", "dense"])
def test_every_pair_is_equally_often_an_edge_of_a_random_regular_graph(n: int, degree: int) -> None:
    m, p = 1000, degree / (n - 1)
    counts = pair_counts([random_regular_graph(n, degree, rng=seed) for seed in range(m)])
    assert counts.sum() == m * n * degree / 2
    assert np.abs(counts - m * p).max() < 6 * np.sqrt(m * p * (1 - p))  # 780 pairs: a union bound of 2e-6


@pytest.mark.parametrize(("n", "p"), [(2000, 0.01), (300, 0.5), (300, 0.97), (100_000, 1e-5)])
def test_gnp_edge_count_is_binomial(n: int, p: float) -> None:
    n_pairs = n * (n - 1) / 2
    graph = gnp_random_graph(n, p, rng=7)
    assert_simple(graph)
    assert abs(graph.n_edges - n_pairs * p) < SDS * np.sqrt(n_pairs * p * (1 - p))


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_gnp_pairs_are_independent_with_probability_p(p: float) -> None:
    n, m = 8, 1500
    graphs = [gnp_random_graph(n, p, rng=seed) for seed in range(m)]
    z = (pair_counts(graphs) - m * p) / np.sqrt(m * p * (1 - p))
    assert (z**2).sum() < len(z) + SDS * np.sqrt(2 * len(z))
    # independent pairs: the number of edges has the binomial variance, here within 5 sd of a sample variance
    sizes = np.array([graph.n_edges for graph in graphs])
    variance = len(z) * p * (1 - p)
    assert abs(sizes.var(ddof=1) / variance - 1) < SDS * np.sqrt((2 + 1 / variance) / m)


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_watts_strogatz_moves_a_share_p_of_the_edges(p: float) -> None:
    n, degree = 4000, 6
    graph, ring = watts_strogatz_graph(n, degree, p, rng=3), ring_lattice_graph(n, degree)
    m = n * degree // 2
    assert graph.n_edges == m
    kept = int((graph.adjacency() & ring.adjacency()).sum()) // 2
    by_chance = m * p * degree / (n - 1)  # moved edges that land on the ring again: at most, in the mean
    excess = kept - m * (1 - p)
    assert -SDS * np.sqrt(m * p * (1 - p)) <= excess <= SDS * np.sqrt(m * p * (1 - p) + by_chance) + by_chance


RANDOM: list[Callable[[Any], Graph]] = [
    lambda rng: random_regular_graph(200, 4, rng=rng),
    lambda rng: random_regular_graph(40, 35, rng=rng),
    lambda rng: gnp_random_graph(100, 0.1, rng=rng),
    lambda rng: watts_strogatz_graph(100, 4, 0.5, rng=rng),
]


@pytest.mark.parametrize("make", RANDOM, ids=["regular", "dense-regular", "gnp", "watts-strogatz"])
def test_the_key_decides_the_graph(make: Callable[[Any], Graph]) -> None:
    first, again = make(5), make(5)
    assert np.array_equal(first.indptr, again.indptr) and np.array_equal(first.indices, again.indices)
    graphs = [make(seed) for seed in range(20)]
    assert all(a != b for i, a in enumerate(graphs) for b in graphs[:i])
    assert make(np.random.default_rng(8)) == make(np.random.default_rng(8))
    generator = np.random.default_rng(8)
    assert make(generator) != make(generator), "a generator moves on"


def test_neighboring_keys_share_no_more_edges_than_chance() -> None:
    n, degree = 2000, 10
    graphs = [random_regular_graph(n, degree, rng=seed) for seed in range(6)]
    keys = [set(map(tuple, graph.edges().tolist())) for graph in graphs]
    expected = n * degree / 2 * degree / (n - 1)
    shared = [len(a & b) for i, a in enumerate(keys) for b in keys[:i]]
    assert max(abs(count - expected) for count in shared) < SDS * np.sqrt(expected) + 1


@modest
@given(st.integers(1, 30), st.integers(-5, 40))
def test_the_remedy_of_a_refused_degree_works(n: int, degree: int) -> None:
    for make in (lambda n, d: random_regular_graph(n, d, rng=0), ring_lattice_graph):
        try:
            make(n, degree)
        except GraphError as error:
            remedies = re.findall(r"(n|d|degree)=(\d+)", str(error).split("Try ")[1])
            assert remedies
            for name, value in remedies:
                retry = make(int(value), degree) if name == "n" else make(n, int(value))
                assert retry.n_agents in (n, n + 1)


@pytest.mark.parametrize(("n", "degree", "seed"), [(6, 4, 16), (5, 2, 9), (9, 4, 585), (6, 4, 95), (64, 40, 1)])
def test_small_worlds_end_even_where_agents_run_out_of_strangers(n: int, degree: int, seed: int) -> None:
    graph = watts_strogatz_graph(n, degree, 1.0, rng=seed)
    assert graph.n_edges == n * degree // 2 and (graph.adjacency() == graph.adjacency().T).all()


def test_an_almost_impossible_edge_makes_an_empty_graph() -> None:
    assert gnp_random_graph(100, 1e-18, rng=0).n_edges == 0
