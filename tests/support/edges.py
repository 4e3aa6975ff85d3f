"""Graphs, walks of the means over them, and edges kept in the plainest way, for tests of pruning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from colme._core.edges import KeptEdges, ReferenceMeans
from colme._core.team import Neighborhood
from colme.graphs import (
    Graph,
    complete_graph,
    from_edges,
    gnp_random_graph,
    random_regular_graph,
    ring_lattice_graph,
)

Floats = NDArray[np.float64]
Walk = tuple[Graph, NDArray[Any], list[Floats], list[float]]
BLOCK = 64
"""Agents side by side in the neighbor table, also the smallest room of a list of candidates."""
CHUNK = 1024
"""Agents whose rows may change places."""
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
    """The row of an agent by the formula of the layout: slots[offsets[B] + 64 j + l] at row 64 B + l."""
    block, lane = divmod(agent // CHUNK * CHUNK + int(edges.row_of[agent]), BLOCK)
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


def shrink_list(edges: KeptEdges, room: int) -> None:
    """Candidates of so few edges that their list often overflows."""
    edges.found = np.empty((room, 2), np.uint32)
    edges.candidates = edges.candidates._replace(edges=np.empty_like(edges.found))


class LazyEdges(KeptEdges):
    """Edges with a reference of their own, so that a step looks only where it must."""

    def __init__(self, graph: Graph, class_: NDArray[Any], room: int | None = None):
        super().__init__(graph, class_)
        self.reference, self.t = ReferenceMeans(Neighborhood(graph.n_agents)), 0
        if room is not None:
            shrink_list(self, room)

    def prune(self, mean: Floats, radius: float | Floats) -> None:  # type: ignore[override]
        self.t += 1
        super().prune(mean, radius, self.reference, self.t)


def assert_same_bits(lazy: KeptEdges, plain: KeptEdges) -> None:
    assert np.array_equal(lazy.slots, plain.slots)
    assert np.array_equal(lazy.degree, plain.degree)
    assert np.array_equal(lazy.cut_now, plain.cut_now)
    for counter in ("any_cut", "wrong", "lost", "isolated"):
        assert getattr(lazy, counter) == getattr(plain, counter), counter


def count_full_looks(*all_edges: KeptEdges) -> list[int]:
    """A list that grows by one at every look at all edges."""
    looks: list[int] = []

    def counting(full: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: (looks.append(1), full(*arguments))[1]

    for edges in all_edges:
        edges._check_every_edge = counting(edges._check_every_edge)  # type: ignore[method-assign]
    return looks


@st.composite
def walks(draw: st.DrawFn) -> Walk:
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
