"""The neighbor table, tightened as edges are cut: everybody keeps its living neighbors in their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from colme._core import edges as neighbor_table
from colme._core import jit
from colme._core.edges import KeptEdges
from colme._core.jit import kernel
from colme.graphs import Graph, complete_graph, gnp_random_graph, random_regular_graph
from tests.support.edges import BLOCK, CHUNK, GRAPHS, LazyEdges

SIZES = [1, 63, 64, 65, 1023, 1024, 1025, 3000]
KINDS = GRAPHS | {"complete": lambda n, seed: complete_graph(min(n, 130))}


class Lists:
    """The same edges as lists: every agent's neighbors, in the order of the graph."""

    def __init__(self, graph: Graph):
        self.owner, self.neighbor = np.repeat(np.arange(graph.n_agents), graph.degrees), graph.indices.astype(np.int64)
        self.alive = np.ones(len(self.owner), bool)
        self.n = graph.n_agents

    def prune(self, mean: NDArray[np.float64], radius: float) -> None:
        self.alive &= np.abs(mean[self.owner] - mean[self.neighbor]) <= 2.0 * radius

    @property
    def degrees(self) -> NDArray[np.int64]:
        return np.bincount(self.owner[self.alive], minlength=self.n)

    def rows(self) -> list[list[int]]:
        parts = np.split(self.neighbor[self.alive], np.cumsum(self.degrees)[:-1])
        return [part.tolist() for part in parts]


def arrays_of(edges: KeptEdges) -> list[NDArray[Any]]:
    """The table's arrays; the first one are the slots."""
    names = ("slots", "offsets", "order", "row_of", "degree", "cut_now", "tally")
    return [getattr(edges, name) for name in names]


def copy_of(edges: KeptEdges) -> list[NDArray[Any]]:
    return [array.copy() for array in arrays_of(edges)]


def row_of(edges: KeptEdges, row: int) -> list[int]:
    block, lane = divmod(row, BLOCK)
    return edges.slots[edges.offsets[block] + lane : edges.offsets[block + 1] : BLOCK].tolist()


def places_of(edges: KeptEdges) -> NDArray[np.int64]:
    """Every agent's row; checks that order and places are inverse permutations of each chunk."""
    n_rows = len(edges.order)
    base = np.arange(n_rows) // CHUNK * CHUNK
    rows, agents = base + edges.row_of, base + edges.order
    assert np.array_equal(agents[rows], np.arange(n_rows)) and np.array_equal(rows[agents], np.arange(n_rows))
    assert (rows // CHUNK * CHUNK == base).all()
    return rows


def assert_holds(edges: KeptEdges, lists: Lists) -> None:
    """Everybody's row holds its living neighbors in their first order, and itself everywhere else."""
    rows = places_of(edges)
    for a, neighbors in enumerate(lists.rows()):
        assert [b for b in row_of(edges, rows[a]) if b != a] == neighbors
    for a in range(lists.n, len(edges.order)):  # behind the last agent
        assert rows[a] == a and set(row_of(edges, a)) <= {a}
    assert np.array_equal(edges.degree, lists.degrees)


def assert_tight(edges: KeptEdges, lists: Lists) -> None:
    """Rows without holes, the largest degree of a chunk first, and blocks as wide as the largest degree in them."""
    rows = places_of(edges)
    degrees = np.zeros(len(edges.order), np.int64)
    degrees[rows[: lists.n]] = lists.degrees
    assert edges.offsets[0] == 0
    assert np.array_equal(np.diff(edges.offsets), BLOCK * degrees.reshape(-1, BLOCK).max(axis=1))
    for base in range(0, lists.n, CHUNK):
        order = edges.order[base : base + min(CHUNK, lists.n - base)].astype(int)
        assert order.tolist() == sorted(order.tolist(), key=lambda i: (-lists.degrees[base + i], i))
    for a, neighbors in enumerate(lists.rows()):
        assert row_of(edges, rows[a]) == neighbors + [a] * (len(row_of(edges, rows[a])) - len(neighbors))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_tightened_table_holds_the_living_edges_and_can_be_cut_further(kind: str, n: int) -> None:
    """Five times: means anew, so that any edges are cut, and the table tightened once, then twice."""
    graph = KINDS[kind](n, 7 * n)
    n = graph.n_agents
    rng = np.random.default_rng(n)
    edges, lists = KeptEdges(graph, np.arange(n) % 2), Lists(graph)
    for radius in (np.inf, 1.5, 1.0, 0.7, 0.0):  # nothing is cut, some is, all is
        mean = rng.normal(size=n)
        edges.prune(mean, radius)
        lists.prune(mean, radius)
        assert_holds(edges, lists)
        before, offsets = edges.graph(), edges.offsets.copy()
        neighbor_table.tighten(0, edges.slots, edges.offsets, edges.order, edges.row_of, edges.degree, None)
        assert_holds(edges, lists)
        assert_tight(edges, lists)
        chunks = [*range(0, len(offsets) - 1, CHUNK // BLOCK), -1]  # no chunk needs the room of the next
        assert (edges.offsets <= offsets)[chunks].all() and edges.graph() == before
        once = copy_of(edges)
        neighbor_table.tighten(0, edges.slots, edges.offsets, edges.order, edges.row_of, edges.degree, None)
        used = edges.offsets[-1]
        assert np.array_equal(edges.slots[:used], once[0][:used])
        assert all(np.array_equal(now, then) for now, then in zip(arrays_of(edges)[1:], once[1:], strict=True))
    assert edges.graph().n_edges == 0 and edges.isolated == n


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("n", [65, 1025, 3000])
def test_a_table_that_tightens_when_it_pays_cuts_what_a_loose_one_cuts(n: int, lazy: bool) -> None:
    """Running means of two classes; the counters and the order of neighbors are those of a table never tightened."""
    rng = np.random.default_rng(n)
    graph, class_ = gnp_random_graph(n, 8 / n, rng=n), np.arange(n) % 2
    tight, loose = (LazyEdges if lazy else KeptEdges)(graph, class_), KeptEdges(graph, class_)
    mean, tightened = np.zeros(n), 0
    for t in range(1, 121):
        mean += (2.0 * class_ + rng.normal(size=n) - mean) / t
        radius = 2.0 / np.sqrt(t)
        tight.prune(mean, radius)
        loose.prune(mean, radius)
        tightened += tight.tighten()
        assert np.array_equal(tight.tally, loose.tally) and np.array_equal(tight.cut_now, loose.cut_now)
        assert np.array_equal(tight.degree, loose.degree)
        if t % 10 == 0:
            assert tight.graph() == loose.graph()
            assert np.array_equal(tight.graph().indices, loose.graph().indices)
    assert tightened >= 2 and tight.wrong_share < 0.5 and 0 < tight.lost_share < 1
    places_of(tight)


def test_a_table_is_tightened_only_where_it_pays() -> None:
    n = 500
    edges = KeptEdges(random_regular_graph(n, 10, rng=1), np.zeros(n, int))
    before = copy_of(edges)
    assert not edges.tighten(), "all degrees are equal"
    assert all(np.array_equal(now, then) for now, then in zip(arrays_of(edges), before, strict=True))
    for gone, pays in ((10, False), (n // 2, True), (n // 2 + 5, False), (n, True)):
        edges.prune(np.where(np.arange(n) < gone, 10.0 * np.arange(n), -10.0), 1.0)  # the first ones leave everybody
        assert edges.isolated >= gone
        assert edges.tighten() == pays
        assert not edges.tighten(), "nothing was cut since"
    assert edges.offsets[-1] == 0 == edges.graph().n_edges


@pytest.mark.parametrize("n", SIZES)
def test_the_last_graph_takes_the_memory_of_the_table_and_has_the_same_rows(n: int) -> None:
    rng, graph = np.random.default_rng(n), gnp_random_graph(n, min(1.0, 12 / n), rng=n)
    for radius in (10.0, 0.6, 0.1):  # nothing is cut, some edges are, most are
        edges = KeptEdges(graph, np.zeros(n, np.uint16))
        edges.prune(rng.standard_normal(n), radius)
        edges.tighten()
        rows, slots = edges.graph(), edges.slots
        last = edges.last_graph()
        assert last == rows and edges.graph() is last, "it can still be asked for"
        np.testing.assert_array_equal(last.indices, rows.indices)
        assert np.shares_memory(last.indices, slots) or len(last.indices) < len(slots) or not len(slots)
        assert edges.neighbors.tolist() == rows.indices.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_eight_values_at_a_time_have_the_bits_of_one_at_a_time(dtype: type) -> None:
    rng = np.random.default_rng(0)
    values, own = rng.standard_normal(500).astype(dtype), rng.standard_normal(BLOCK).astype(dtype)
    slots = rng.integers(500, size=3 * BLOCK).astype(np.uint32)
    places = rng.integers(400, size=BLOCK).astype(np.uint16)
    values[slots[7]] = np.nan
    sums, read = read_by_eights(values, own, slots, slots.view(np.uint64), places)
    expected = np.zeros(BLOCK, dtype)
    for row in slots.reshape(3, BLOCK):
        expected += values[row] - own
    np.testing.assert_array_equal(sums, expected)
    np.testing.assert_array_equal(read, values[100 + places.astype(int)])


@kernel
def read_by_eights(values, own, slots, pairs, places):  # type: ignore[no-untyped-def]
    u64, sums, read = np.uint64, np.zeros_like(own), np.empty_like(own)
    for k in range(u64(0), u64(slots.size), u64(8)):
        jit.add_eight(sums, own, u64(k) & u64(63), values, pairs, u64(k) >> u64(1))
    for k in range(u64(0), u64(places.size), u64(8)):
        jit.read_eight(read, u64(k), values, u64(100), places, u64(k))
    return sums, read
