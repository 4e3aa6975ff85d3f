"""Graph operations for methods that are written in NumPy: sums over neighbors, both ends of every edge, cuts.

Sums are added neighbor by neighbor in the order of the graph's rows, starting from `start`: the same bits as an agent
that adds up what its neighbors said. An agent without a value (NaN) adds nothing.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colme.graphs import Graph


class Neighbors:
    """The neighbors that agents still have. Edges can only be lost."""

    saved: ClassVar[tuple[str, ...]] = ("kept",)

    def __init__(self, graph: Graph, class_: NDArray[Any]):
        self._graph = graph
        self._own = np.repeat(np.arange(graph.n_agents), graph.degrees)
        self._other = graph.indices.astype(np.int64)
        self._within = class_[self._own] == class_[self._other]
        self.kept = np.ones(len(self._own), np.bool_)

    def sum(self, values: ArrayLike, start: ArrayLike = 0.0) -> NDArray[np.float64]:
        """start + the sum of the neighbors' values, for each agent."""
        out = np.array(np.broadcast_to(np.asarray(start, np.float64), self._graph.n_agents))
        np.add.at(out, *self.values(values))
        return out

    def values(self, values: ArrayLike) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """(agent, value) of every kept neighbor that has a value, agent by agent in the order of summation: for
        medians, extremes and other functions that are no sums."""
        heard = np.broadcast_to(values, self._graph.n_agents)[self._other]
        use = self.kept & ~np.isnan(heard)
        return self._own[use], heard[use]

    @property
    def degree(self) -> NDArray[np.int64]:
        """Neighbors that each agent still has."""
        return np.bincount(self._own[self.kept], minlength=self._graph.n_agents)

    def ends(self, values: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
        """The values at the two ends of every edge of the given graph: (own, the neighbor's), each edge in both
        directions."""
        values = np.broadcast_to(values, self._graph.n_agents)
        return values[self._own], values[self._other]

    def cut(self, mask: NDArray[np.bool_]) -> None:
        """Give up the edges where the mask is True; it has the order of `ends` and treats both directions alike."""
        self.kept &= ~mask

    @property
    def wrong_share(self) -> float:
        """Share of the edges between classes that are kept (0 where there were none)."""
        return _share(self.kept[~self._within])

    @property
    def lost_share(self) -> float:
        """Share of the edges within a class that were cut (0 where there were none)."""
        return _share(~self.kept[self._within])

    @property
    def isolated(self) -> int:
        """Agents without a neighbor."""
        return int((self.degree == 0).sum())

    def graph(self) -> Graph:
        """The edges that are kept."""
        indptr = np.concatenate([[0], np.cumsum(self.degree)])
        return Graph(indptr, self._graph.indices[self.kept], check=False)


def _share(mask: NDArray[np.bool_]) -> float:
    return float(mask.mean()) if len(mask) else 0.0
