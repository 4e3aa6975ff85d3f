"""Whom they still believe: an edge lives as long as the two intervals touch.

`KeptEdges` is the graph as the array engine holds it, in the layout of `_slots`. It can only lose edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._jit import at, kernel
from colme._slots import block_of, compress, count_wrong, cut, lay_out
from colme._watch import WatchList
from colme.confidence import too_far
from colme.graphs import Graph

u64 = np.uint64


@kernel
def _prune(slots, offsets, degree, cut_now, mean, radius, class_):
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
                    between, within, left = cut(slots, offsets, degree, cut_now, class_, a, b)
                    wrong, lost, alone = wrong + between, lost + within, alone + left
    return wrong, lost, alone


class KeptEdges:
    """A graph that can only lose edges, and knows how many of its cuts were right."""

    saved = ("slots", "degree", "cut_now", "any_cut", "wrong", "lost", "isolated")

    def __init__(self, graph: Graph, class_: NDArray[Any]):
        self.slots, self.offsets = lay_out(graph)
        self.degree = graph.degrees.astype(np.uint32)
        self.cut_now = np.zeros(graph.n_agents, np.uint8)  # who lost an edge at this step
        self.any_cut = False
        self.class_ = class_
        self.n_edges = graph.n_edges
        self.n_wrong = count_wrong(self.slots, self.offsets, class_) // 2
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
            self._watch.skin = 0.0  # its list knows nothing of cuts made here
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
        return Graph(*compress(self.slots, self.offsets, self.degree), check=False)
