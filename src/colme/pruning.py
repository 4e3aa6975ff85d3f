"""Pruning: an edge is kept as long as the confidence intervals of its two agents touch, or their means do not differ.

`KeptEdges` is a graph as the array engine holds it, in the layout of `colme._core.neighbor_table`. It can only lose
edges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import at, kernel
from colme._core.lazy_pruning import LazyPruning, ReferenceMeans
from colme._core.neighbor_table import (
    CUT,
    LOST,
    WRONG,
    NeighborTable,
    agent_at,
    block_of,
    compress,
    compress_values,
    cut,
    first_order,
    lay_out,
    lay_out_values,
    tighten,
)  # fmt: skip
from colme._core.team import Neighborhood
from colme.confidence import DifferenceTest, apart
from colme.graphs import Graph

u64 = np.uint64

Intervals = tuple[NDArray[np.float64], float | NDArray[np.float64]]
"""Centers and radii of all agents, one number where all radii are equal; or means and standard errors, for a test."""

LOOSE, SHRUNK = 1.2, 0.85
"""The table is tightened at so many slots per living neighbor, and again when only this share of the edges is left."""


@kernel
def _prune(table, mean, spread, test):
    """Cut every edge whose agents are apart: the plain form, which also serves unequal radii and difference tests."""
    n, at_own, slots, offsets = u64(table.cut_now.size), u64(table.at), table.slots, table.offsets
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for j in range(width):
            for lane in range(size):
                a = at_own + agent_at(table.order, start + u64(lane))
                b = u64(slots[first + (u64(j) << u64(6)) + u64(lane)])
                if apart(mean[a], mean[b], at(spread, a), at(spread, b), test):
                    cut(table, a, b)


class KeptEdges:
    """A graph that can only lose edges, and knows how many of its cuts were right.

    graph   the rows of the own agents of a worker, with the places of their neighbors; in a plain run, a graph
    class_  the true classes of the own agents
    """

    saved: ClassVar[tuple[str, ...]] = ("degree", "cut_now", "neighbors")
    split: ClassVar[dict[str, str]] = {"neighbors": "degree"}

    def __init__(self, graph: Graph, class_: NDArray[Any], hood: Neighborhood | None = None):
        self.hood = hood = Neighborhood(graph.n_agents) if hood is None else hood
        at, classes, team = hood.at, hood.seen("class", class_), hood.team
        self.slots, self.offsets, wrong = lay_out(graph, at, classes)
        self.order, self.places = first_order(graph.n_agents)
        degrees = graph.degrees
        most = int(team.greatest(degrees.max(initial=0)))
        self._seen_degree = hood.array(np.uint16 if most < 2**16 else np.uint32)
        self.degree = hood.mine(self._seen_degree)
        self.degree[:] = degrees
        hood.refresh(self._seen_degree)
        self.cut_now = np.zeros(graph.n_agents, np.uint8)  # agents that lost an edge at this step
        self._ends, self._wrong_ends = len(graph.indices), wrong  # of edges, at own agents
        self.n_edges, self.n_wrong = (int(each) // 2 for each in team.total([self._ends, wrong]))
        self.tally = np.array([wrong, 0, (degrees == 0).sum(), 0], np.int64)
        self.lazy = LazyPruning(graph.n_agents)
        self.table = NeighborTable(
            np.uint64(at), self.slots, self.slots.view(np.uint64), self.offsets, self.order, self.places,
            self._seen_degree, self.cut_now, self.tally, classes,
        )  # fmt: skip
        self._tightened_at = math.inf  # ends of living edges
        self._last: Graph | None = None  # once the table is given up
        self._plan: Any = None  # brings the numbers of living neighbors from other machines; None: of all
        self._planned_at = 2 * self.n_edges

    def prune(
        self,
        mean: NDArray[np.float64],
        radius: float | NDArray[np.float64],
        reference: ReferenceMeans | None = None,
        t: int | None = None,
    ) -> None:
        """Cut what the intervals part at step t. With a reference, and one radius for all, only edges that can have
        been parted since the last full check are checked."""
        self.prune_by([(mean, radius)], reference, t)

    def prune_by(
        self, intervals: Sequence[Intervals], reference: ReferenceMeans | None = None, t: int | None = None,
        test: DifferenceTest | None = None,
    ) -> None:  # fmt: skip
        """The same where agents compare several intervals: cut what any of them parts. With a test, cut the edges whose
        means differ. Centers and radii are those of all visible agents."""
        self._begin_step()
        center, radius = intervals[0]
        if reference is not None and len(intervals) == 1 and not isinstance(radius, np.ndarray):
            self.lazy.check(self.table, center, radius, reference, t)
        else:
            self.lazy.skin = 0.0  # its list does not know of cuts made here
            self.hood.fetch(*(center for center, _ in intervals))
            for center, radius in intervals:
                _prune(self.table, center, radius, test)
        self._end_step()

    def check_all(
        self, mean: NDArray[np.float64], means: NDArray[np.float64], row: int, radius: float,
        reference: ReferenceMeans, t: int,
    ) -> None:  # fmt: skip
        """Cut what the intervals part by these means, and list the edges that may be parted next. They are those of
        this row of `means`, the own agents' at steps t, t + 1, .., but of all visible agents."""
        self._begin_step()
        self.lazy.check_all(self.table, mean, means, row, radius, reference, t)
        self._end_step()

    def _begin_step(self) -> None:
        """Forget the cuts of the step before."""
        if self.any_cut:
            self.cut_now[:] = 0
            self.tally[CUT] = 0

    def _end_step(self) -> None:
        """Learn of the cuts of other workers, and whether the list of one is worn out."""
        if self.hood.team.size > 1:
            known = [self.tally[CUT], self.lazy.worn_out, self._alive_ends]
            self.tally[CUT], worn_out, alive = self.hood.team.total(known)
            self.lazy.worn_out = worn_out > 0
            if self.any_cut:
                self.refresh(self._seen_degree)
                if not self.hood.one_machine and alive < SHRUNK * self._planned_at:
                    self._plan, self._planned_at = self.hood.plan(self.slots[: self.offsets[-1]]), alive

    def refresh(self, *arrays: NDArray[Any]) -> None:
        """Let all workers see what each wrote for its own agents, as far as edges live."""
        self.hood.team.wait()
        self.hood.fetch(*arrays, plan=self._plan)

    def tighten(self, flows: NDArray[np.float64] | None = None) -> bool:
        """Drop the slots of cut edges when they are many; flows of the slots move along. True if so: rows are no longer
        in the order of agents."""
        alive = self._alive_ends
        if alive >= SHRUNK * self._tightened_at or int(self.offsets[-1]) <= LOOSE * alive:
            return False
        self._tightened_at = alive
        tighten(self.hood.at, self.slots, self.offsets, self.order, self.places, self.degree, flows)
        return True

    @property
    def _alive_ends(self) -> int:
        """Ends of living edges at own agents."""
        return self._ends - (self._wrong_ends - self.tally.item(WRONG)) - self.tally.item(LOST)

    @property
    def any_cut(self) -> bool:
        """An edge was cut at this step."""
        return self.tally.item(CUT) > 0

    def counts(self) -> tuple[int, int, int]:
        """Living edges between classes, cut edges within a class, agents without an edge, of all workers."""
        wrong, lost, isolated, _ = self.hood.team.total(self.tally).tolist()
        return wrong // 2, lost // 2, isolated

    @property
    def wrong(self) -> int:
        """Edges between classes that live."""
        return self.counts()[0]

    @property
    def lost(self) -> int:
        """Edges within a class that were cut."""
        return self.counts()[1]

    @property
    def isolated(self) -> int:
        """Agents without an edge."""
        return self.counts()[2]

    @property
    def wrong_share(self) -> float:
        """Share of the edges between classes that live (0 where there were none)."""
        return self.wrong / self.n_wrong if self.n_wrong else 0.0

    @property
    def lost_share(self) -> float:
        """Share of the edges within a class that were cut (0 where there were none)."""
        return self.lost / self.n_right if self.n_right else 0.0

    @property
    def n_right(self) -> int:
        """Edges within a class, as they were at first."""
        return self.n_edges - self.n_wrong

    @property
    def neighbors(self) -> NDArray[np.uint32]:
        """The numbers of the living neighbors, agent by agent: what a checkpoint keeps."""
        return self.hood.numbers(self.graph().indices)

    @neighbors.setter
    def neighbors(self, numbers: NDArray[np.uint32]) -> None:
        """Make the table anew, from degrees that were put back before."""
        rows = Graph(np.concatenate([[0], np.cumsum(self.degree)]), self.hood.places(numbers), check=False)
        slots, self.offsets[:], wrong = lay_out(rows, self.hood.at, self.table.class_)
        self.slots[: len(slots)] = slots
        self.order[:], self.places[:] = first_order(rows.n_agents)
        lost = (self._ends - self._wrong_ends) - (len(numbers) - wrong)
        self.tally[:] = wrong, lost, (self.degree == 0).sum(), self.cut_now.sum()
        self.lazy.skin, self._tightened_at = 0.0, math.inf
        self.hood.refresh(self._seen_degree)

    def flows_of_edges(self, flows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The flows of the living edges, in the order of `neighbors`."""
        return compress_values(self.hood.at, self.slots, self.offsets, self.places, self.degree, flows)

    def put_flows(self, of_edges: NDArray[np.float64], flows: NDArray[np.float64]) -> None:
        """The flows of slots from those of edges, right after `neighbors` were put back."""
        lay_out_values(np.concatenate([[0], np.cumsum(self.degree)]), of_edges, self.offsets, flows)

    def graph(self) -> Graph:
        """The living edges of the own agents."""
        if self._last is not None:
            return self._last
        rows = compress(self.hood.at, self.slots, self.offsets, self.places, self.degree)
        return Graph(*rows, check=False)

    def last_graph(self) -> Graph:
        """The same when no edge will be cut or used any more: written over the table, whose memory may be most of a
        run's."""
        if self._last is None:
            del self.lazy
            rows = compress(self.hood.at, self.slots, self.offsets, self.places, self.degree, in_place=True)
            self._last = Graph(*rows, check=False)
            if len(self._last.indices) < SHRUNK * len(self.slots):  # do not keep the rest
                self._last.indices = self._last.indices.copy()
            self.slots = self.slots[:0].copy()
            self.order = self.places = self.order[:0].copy()
            del self.table
        return self._last
