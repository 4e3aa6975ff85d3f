"""Whom they still believe: an edge lives as long as the two intervals touch.

`KeptEdges` is the graph as the array engine holds it. Agents stand in blocks of 64; the block's neighbors are stored
slot by slot, 64 agents side by side, and a block is as wide as the largest degree in it:

    neighbor number j of agent a = 64 B + l   ->   slots[offsets[B] + 64 j + l]

A slot that is empty or cut points to its own agent, whose difference to itself is zero: no kernel asks whether an edge
is alive, and pruning writes one number. The order of the slots never changes, so neither does a sum's rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._jit import LANES, at, kernel
from colme._watch import WatchList, block_of, cut, too_far
from colme.graphs import Graph

u32, u64 = np.uint32, np.uint64


@kernel
def _lay_out(indptr, indices, offsets, slots):  # type: ignore[no-untyped-def]
    n = u64(indptr.size - 1)
    for block in range(u64(offsets.size - 1)):
        start, _, first, width = block_of(offsets, block, n)
        for lane in range(u64(64)):
            a = start + u64(lane)
            degree = u64(0)
            if a < n:
                degree = u64(indptr[a + u64(1)] - indptr[a])
            for j in range(width):
                b = u32(a)
                if u64(j) < degree:
                    b = indices[u64(indptr[a]) + u64(j)]
                slots[first + (u64(j) << u64(6)) + u64(lane)] = b


@kernel
def _prune(slots, offsets, degree, cut_now, mean, radius, class_):  # type: ignore[no-untyped-def]
    """Cut every edge whose intervals part: the plain form, which also serves unequal radii.

    Returns (cut between classes, cut within, agents now alone)."""
    wrong = lost = alone = 0
    n = u64(degree.size)
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for j in range(width):
            for lane in range(size):
                a = start + u64(lane)
                b = u64(slots[first + (u64(j) << u64(6)) + u64(lane)])
                if too_far(mean[a], mean[b], at(radius, a), at(radius, b)):
                    alone += cut(slots, offsets, degree, cut_now, a, b)
                    if class_[a] != class_[b]:
                        wrong += 1
                    else:
                        lost += 1
    return wrong, lost, alone


@kernel
def _compress(slots, offsets, degree):  # type: ignore[no-untyped-def]
    """The living edges as compressed rows."""
    n = u64(degree.size)
    indptr = np.zeros(degree.size + 1, np.int64)
    for a in range(n):
        indptr[a + u64(1)] = indptr[a] + degree[a]
    indices = np.empty(indptr[-1], np.uint32)
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for lane in range(size):
            a = start + u64(lane)
            k = u64(indptr[a])
            for j in range(width):
                b = slots[first + (u64(j) << u64(6)) + u64(lane)]
                if b != u32(a):
                    indices[k] = b
                    k += u64(1)
    return indptr, indices


@kernel
def _count_wrong(slots, offsets, class_):  # type: ignore[no-untyped-def]
    """Directed edges between classes."""
    wrong = 0
    n = u64(class_.size)
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for j in range(width):
            for lane in range(size):
                if class_[slots[first + (u64(j) << u64(6)) + u64(lane)]] != class_[start + u64(lane)]:
                    wrong += 1
    return wrong


class KeptEdges:
    """A graph that can only lose edges, and knows how many of its cuts were right."""

    saved = ("slots", "degree", "cut_now", "any_cut", "wrong", "lost", "isolated")

    def __init__(self, graph: Graph, class_: NDArray[Any]):
        n_blocks = -(-graph.n_agents // LANES)
        degrees = graph.degrees
        width = np.maximum.reduceat(degrees, np.arange(n_blocks) * LANES)
        self.offsets = np.concatenate([[0], np.cumsum(width * LANES)]).astype(np.int64)
        self.slots = np.empty(self.offsets[-1], np.uint32)
        _lay_out(graph.indptr, graph.indices, self.offsets, self.slots)
        self.degree = degrees.astype(np.uint32)
        self.cut_now = np.zeros(graph.n_agents, np.uint8)  # who lost an edge at this step
        self.any_cut = False
        self.class_ = class_
        self.n_edges = graph.n_edges
        self.n_wrong = _count_wrong(self.slots, self.offsets, class_) // 2
        self.wrong = self.n_wrong  # edges between classes that live
        self.lost = 0  # edges within a class that were cut
        self.isolated = int((self.degree == 0).sum())
        self._watch = WatchList(graph.n_agents)

    def prune(self, mean: NDArray[np.float64], radius: float | NDArray[np.float64], *, lazy: bool = True) -> None:
        """Cut what the intervals part. With one radius for all only edges that can have parted are looked at."""
        if self.any_cut:
            self.cut_now[:] = 0
        table = self.slots, self.offsets, self.degree, self.cut_now
        if lazy and not isinstance(radius, np.ndarray):
            wrong, lost, alone = self._watch.prune(table, mean, radius, self.class_)
        else:
            wrong, lost, alone = _prune(*table, mean, radius, self.class_)
        self.wrong -= wrong
        self.lost += lost
        self.isolated += alone
        self.any_cut = wrong + lost > 0

    @property
    def wrong_share(self) -> float:
        """Share of the edges between classes that live (0 where there were none)."""
        return self.wrong / self.n_wrong if self.n_wrong else 0.0

    @property
    def lost_share(self) -> float:
        """Share of the edges within a class that were cut (0 where there were none)."""
        n_right = self.n_edges - self.n_wrong
        return self.lost / n_right if n_right else 0.0

    def graph(self) -> Graph:
        """The living edges."""
        return Graph(*_compress(self.slots, self.offsets, self.degree))
