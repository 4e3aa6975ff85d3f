"""The edges of a graph that can only lose them: their layout for kernels, pruning, and lazy pruning.

`KeptEdges` is a graph as kernels read it: an edge is kept as long as the confidence intervals of its two agents touch,
or their means do not differ. `Neighbors` is the same for methods written in NumPy.

# The layout

A slot is one entry of the table: the index of one neighbor of one agent among the visible agents, which in a plain run
is its number (`colme._core.team.Neighborhood`). A table has rows for the own agents of one worker. Rows are stored in
blocks of 64; a block holds the first neighbors of its 64 rows, then their second ones, and so on, and is as wide as the
largest degree in it:

    neighbor number j of row 64 B + l   ->   slots[offsets[B] + 64 j + l]

A slot that is empty or cut points to its own agent, whose difference to itself is zero: no kernel asks whether an edge
is alive, and cutting writes two numbers. The neighbors of an agent never change their order, so neither does a sum's
rounding.

Row a is agent a at first. When many edges are cut, `tighten` drops their slots and sorts the rows of each chunk of 1024
agents by degree, so that blocks become as narrow as their agents' degrees: row i then belongs to agent order[i] of its
chunk, and row_of is the inverse.

# Exact lazy pruning

At each step only the edges that could have been parted since the last full check are checked.
The means X0 of some earlier step are kept as a reference. At a full check, with threshold T0 = 2 R(t0), an edge has
slack s = T0 - |X0_a - X0_b|. Later no mean is further than D = max |X - X0| from the reference, so an edge can only be
parted at t if

    s < 2 D + (T0 - T(t)).

Edges with little slack, the candidates, are kept in a list, in buckets by slack; a step checks the buckets below that
number. The next full check comes when the number outgrows the list, or when checking candidates has cost as much. The
edges that are cut are the same, to the bit, as when all are checked (a Verlet list, as in molecular dynamics; `skin` is
its word for the slack below which the list is complete). The inequality holds whichever step the reference is from, so
the methods of a run share one, and the largest displacement D is measured once for all of them.

The workers of a team (`colme._core.team`) each have a list of the edges of their own agents, and an edge between two
workers is in both lists. All of them make full checks at the same steps, because the reference is a common one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colme._core.jit import CHUNK, LANES, at, equation, helper, kernel, lanes_like
from colme._core.team import Neighborhood
from colme.confidence import DifferenceTest, apart, too_far
from colme.graphs import Graph, row_ends
from colme.support.arrays import Array, Floats, Integers, Mask

f32, u16, u32, u64 = np.float32, np.uint16, np.uint32, np.uint64

WRONG, LOST, ISOLATED, CUT = range(4)
"""The tally of the own agents: ends of living edges between classes, ends of cut edges within a class, agents without
an edge, and edges cut at this step."""


class NeighborTable(NamedTuple):
    """The arrays of one graph, as kernels take them; kernels change them in place."""

    own_start: Any
    """The index of the first own agent among the visible ones; that of own agent a is own_start + a."""
    slots: NDArray[np.uint32]
    """Indices of neighbors; an agent's own index where an edge is cut or missing."""
    pairs: NDArray[np.uint64]
    """The same memory, two slots per number."""
    offsets: Integers
    """Where each block begins in `slots`; one more for the end of the last."""
    order: NDArray[np.uint16]
    """The agent of each row, counted within its chunk."""
    row_of: NDArray[np.uint16]
    """The row of each agent, counted within its chunk."""
    degree: Array
    """Living neighbors of each visible agent."""
    cut_now: NDArray[np.uint8]
    """1 for own agents that lost an edge at this step."""
    tally: Integers
    """Counts of edges, see WRONG, LOST, ISOLATED, CUT."""
    class_: Array
    """The true class of each visible agent, for the tally."""


@equation
def block_of(offsets: Any, block: Any, n: Any) -> Any:
    """(first row, rows, first slot, width) of a block."""
    start = u64(block) << u64(6)
    first = u64(offsets[block])
    return start, min(u64(64), n - start), first, (u64(offsets[block + u64(1)]) - first) >> u64(6)


@equation
def agent_at(order: Any, row: Any) -> Any:
    """The agent of a row."""
    return (row >> u64(10) << u64(10)) + u64(order[row])


@kernel
def _lay_out(indptr, indices, own_start, offsets, slots, class_):
    """Fill the slots; returns how many neighbors are of another class."""
    n, wrong = u64(indptr.size - 1), 0
    for block in range(u64(offsets.size - 1)):
        start, _, first, width = block_of(offsets, block, n)
        for lane in range(u64(64)):
            a, degree, k = start + u64(lane), u64(0), u64(0)
            if a < n:
                k = u64(indptr[a])
                degree = u64(indptr[a + u64(1)]) - k
            for j in range(degree):
                b = indices[k + u64(j)]
                wrong += int(class_[u64(own_start) + a] != class_[b])
                slots[first + (u64(j) << u64(6)) + u64(lane)] = b
            for j in range(degree, width):
                slots[first + (u64(j) << u64(6)) + u64(lane)] = u32(u64(own_start) + a)
    return wrong


@kernel
def tighten(own_start, slots, offsets, order, row_of, degree, flows):
    """Drop the slots of cut edges, in place: rows sorted by degree, the largest first, within each chunk. Flows, where
    there are any, stay with their slots. Degrees are those of the own agents, from `own_start` on."""
    n, n_rows = u64(degree.size), u64(order.size)
    old_first = u64(0)
    for chunk in range((n_rows + u64(CHUNK - 1)) >> u64(10)):
        base = u64(chunk) << u64(10)
        end = min(n_rows, base + u64(CHUNK))
        first_block, last_block = base >> u64(6), end >> u64(6)
        old = slots[old_first : u64(offsets[last_block])].copy()
        if flows is not None:
            old_flows = flows[old_first : u64(offsets[last_block])].copy()
        old_offsets = offsets[first_block : last_block + u64(1)].copy()
        old_offsets[0] = old_first
        old_row_of = row_of[base:end].copy()
        _sort_rows(order, row_of, degree, base, end, n)
        for block in range(first_block, last_block):
            first, width = u64(offsets[block]), u64(0)
            for lane in range(u64(64)):
                a = agent_at(order, (block << u64(6)) + u64(lane))
                if a < n:
                    width = max(width, u64(degree[a]))
            for lane in range(u64(64)):
                a = agent_at(order, (block << u64(6)) + u64(lane))
                row = u64(old_row_of[a - base])
                _, _, old_start, old_width = block_of(old_offsets, row >> u64(6), n)
                k = u64(0)
                for j in range(old_width):
                    slot = old_start - old_first + (u64(j) << u64(6)) + (row & u64(63))
                    b = old[slot]
                    if b != u32(u64(own_start) + a):
                        slots[first + (k << u64(6)) + u64(lane)] = b
                        if flows is not None:
                            flows[first + (k << u64(6)) + u64(lane)] = old_flows[slot]
                        k += u64(1)
                for j in range(k, width):
                    slots[first + (u64(j) << u64(6)) + u64(lane)] = u32(u64(own_start) + a)
                    if flows is not None:
                        flows[first + (u64(j) << u64(6)) + u64(lane)] = 0.0
            if block + u64(1) == last_block:
                old_first = u64(offsets[last_block])
            offsets[block + u64(1)] = first + (width << u64(6))


@helper
def _sort_rows(order, row_of, degree, base, end, n):
    """Largest degree first, agents of equal degree by number; rows beyond the last agent stay at the end."""
    most = u64(0)
    for a in range(base, min(end, n)):
        most = max(most, u64(degree[a]))
    starts = np.zeros(most + u64(2), np.int64)
    for a in range(base, min(end, n)):
        starts[most - u64(degree[a]) + u64(1)] += 1
    for d in range(most + u64(1)):
        starts[d + u64(1)] += starts[d]
    for a in range(base, end):
        row = a - base
        if a < n:
            d = most - u64(degree[a])
            row = u64(starts[d])
            starts[d] += 1
        order[base + row] = u16(a - base)
        row_of[a] = u16(row)


@helper
def cut(table, a, b):
    """Cut the edge between the agents of indices a and b at those of its ends that are own agents, and keep the tally.

    Where only one is, another worker cuts the other end: it compares the same two means."""
    slots, degree, tally, class_ = table.slots, table.degree, table.tally, table.class_
    own_start, n = u64(table.own_start), u64(table.cut_now.size)
    for end, other in ((a, b), (b, a)):
        own = end - own_start
        if own >= n:  # also where end < at: these numbers have no sign
            continue
        row = agent_at(table.row_of, own)
        _, _, first, width = block_of(table.offsets, row >> u64(6), n)
        for j in range(width):
            k = first + (u64(j) << u64(6)) + (row & u64(63))
            if slots[k] == u32(other):
                slots[k] = u32(end)
        degree[end] -= 1
        table.cut_now[own] = 1
        tally[ISOLATED] += int(degree[end] == 0)
        if class_[a] != class_[b]:
            tally[WRONG] -= 1
        else:
            tally[LOST] += 1
    tally[CUT] += 1


@kernel
def _compress(own_start, slots, offsets, row_of, indptr, values, out):
    """out = the values at the slots of living edges, agent by agent. It may be the beginning of the values, and these
    may be the slots: a chunk of rows is never longer than its slots."""
    n = u64(indptr.size - 1)
    for chunk in range((n + u64(CHUNK - 1)) >> u64(10)):
        base = u64(chunk) << u64(10)
        end = min(n, base + u64(CHUNK))
        begin, stop = u64(offsets[base >> u64(6)]), u64(offsets[(end + u64(63)) >> u64(6)])
        old, old_values = slots[begin:stop].copy(), values[begin:stop].copy()
        for a in range(base, end):
            row = agent_at(row_of, u64(a))
            _, _, first, width = block_of(offsets, row >> u64(6), n)
            k = u64(indptr[a])
            for j in range(width):
                slot = first + (u64(j) << u64(6)) + (row & u64(63)) - begin
                if old[slot] != u32(u64(own_start) + u64(a)):
                    out[k] = old_values[slot]
                    k += u64(1)


def lay_out(
    graph: Graph, own_start: int, class_: Array
) -> tuple[NDArray[np.uint32], Integers, NDArray[np.uint16], int]:
    """(slots, offsets, order) of a table whose row a is own agent a, and how many neighbors are of another class."""
    n_blocks = -(-graph.n_agents // LANES)
    width = np.maximum.reduceat(graph.degrees, np.arange(n_blocks) * LANES) if n_blocks else np.empty(0, np.int64)
    offsets = row_ends(width * LANES)
    slots = np.empty(offsets[-1], np.uint32)
    wrong = _lay_out(graph.indptr, graph.indices, own_start, offsets, slots, class_)
    return slots, offsets, np.resize(np.arange(CHUNK, dtype=np.uint16), n_blocks * LANES), wrong


BUCKETS = 256
FULL_CHECK = 30.0
"""Cost of a full check, in checks of candidates per agent."""
NEAR_ENOUGH = 1.0 / 16.0
"""A full check keeps the reference if no mean is further from it than this share of the slack that it lists."""
MARGIN = 1e-6
"""Relative: more than float32 rounds off a difference."""


@kernel
def _measure_displacements(means, reference, out):
    """out[i] = max |means[i] - reference|."""
    n = u64(reference.size)
    most = lanes_like(means)
    for i in range(means.shape[0]):
        for lane in range(u64(LANES)):
            most[lane] = 0.0
        for block in range((n + u64(63)) >> u64(6)):
            start = u64(block) << u64(6)
            for lane in range(min(u64(64), n - start)):
                moved = abs(means[i, start + u64(lane)] - reference[start + u64(lane)])
                most[lane] = moved if moved > most[lane] else most[lane]
        out[i] = 0.0
        for lane in range(u64(LANES)):
            out[i] = max(out[i], most[lane])


class ReferenceMeans:
    """The means X0 of an earlier step, and the largest distance of later means from them."""

    def __init__(self, hood: Neighborhood):
        self.hood, self.means = hood, hood.array(np.float32)
        self.version = 0  # how often they were set; 0: not yet
        self._measured: tuple[int, int, int] | None = None
        self._displacements = np.empty(0)

    def set(self, mean: Floats) -> None:
        """To the means of all visible agents, or in a plain run of all agents."""
        self.hood.mine(self.means)[:] = self.hood.mine(mean)
        self.hood.refresh(self.means)
        self.version += 1

    def displacements(self, means: Floats, t: int | None) -> Floats:
        """D = max |X - X0| for the own agents' means of steps t, t + 1, ..; infinite as long as no reference is set.

        The means of a step are the same for all methods of a run, so the answer is kept for the next one that asks;
        with t=None it is always measured."""
        what = None if t is None else (self.version, t, len(means))
        if what is None or self._measured != what:
            self._measured, self._displacements = what, np.full(len(means), np.inf)
            if self.version:
                _measure_displacements(means, self.hood.mine(self.means), self._displacements)
                self._displacements = self.hood.team.greatest(self._displacements)
        return self._displacements


@kernel
def _check_all(table, mean, radius, near, far, reference, found):
    """Cut what is parted, and find the edges whose ends are further apart in the reference than `near`.

    The float32 reference is small enough for the fastest cache; it finds all edges that may matter, and those further
    apart than `far` are checked again exactly. Returns how many edges it found, and whether there was room for all."""
    n, at_own, n_found, room = u64(table.cut_now.size), u64(table.own_start), u64(0), u64(found.shape[0])
    near, far = f32(near), f32(far)
    slots, offsets, order = table.slots, table.offsets, table.order
    complete = True
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for j in range(width):
            if n_found + u64(LANES) > room:
                n_found, complete = u64(0), False
            any_far = False
            for lane in range(size):
                a = at_own + agent_at(order, start + u64(lane))
                b = u64(slots[first + (u64(j) << u64(6)) + u64(lane)])
                distance = abs(reference[a] - reference[b])
                any_far |= distance > far
                # write always, count if it matters: no branch for the processor to guess
                found[n_found, 0], found[n_found, 1] = u32(a), u32(b)
                n_found += u64(distance > near) & u64(b - at_own > a - at_own)  # once, or at each end if workers differ
            if any_far:
                for lane in range(size):
                    a = at_own + agent_at(order, start + u64(lane))
                    b = u64(slots[first + (u64(j) << u64(6)) + u64(lane)])
                    if too_far(mean[a], mean[b], radius, radius):
                        cut(table, a, b)
    return n_found, complete


@kernel
def _sort_into_buckets(reference, threshold, skin, mean, radius, found, n_found, listed, ends):
    """Sort the edges found by slack: bucket i, of ends.size equal ones, ends at ends[i]. Edges that are parted (and cut
    by now) or have slack beyond the skin are left out."""
    ends[:] = 0
    kept = 0
    for q in range(n_found):
        a, b = found[q, 0], found[q, 1]
        slack = threshold - abs(float(reference[a]) - float(reference[b]))
        if slack < skin and not too_far(mean[a], mean[b], radius, radius):
            found[kept, 0], found[kept, 1] = a, b
            kept += 1
            ends[bucket(slack, skin)] += 1
    total = 0
    for i in range(ends.size):
        size, ends[i] = ends[i], total
        total += size
    for q in range(kept):
        i = bucket(threshold - abs(float(reference[found[q, 0]]) - float(reference[found[q, 1]])), skin)
        listed[ends[i], 0], listed[ends[i], 1] = found[q, 0], found[q, 1]
        ends[i] += 1


@equation
def bucket(slack: Any, skin: Any) -> Any:
    """The bucket of a slack below the skin."""
    return min(int(max(slack, 0.0) * (BUCKETS / skin)), BUCKETS - 1)


@equation
def slack_needed(displacement: Any, threshold: Any, radius: Any) -> Any:
    """Edges with at least this slack cannot be parted; a little is added for rounding."""
    return (2.0 * displacement + (threshold - 2.0 * radius)) * (1.0 + 1e-9) + 1e-15 * threshold


class Candidates(NamedTuple):
    """The list of candidates, as kernels take it."""

    edges: NDArray[np.uint32]
    """Both ends of each, sorted by slack."""
    ends: Integers
    """Where each bucket ends."""
    threshold: float
    """T0 of the full check that made the list."""
    skin: float
    """Slack below which the list is complete; 0: there is no list."""


@helper
def check_candidates(table, mean, radius, edges, n_edges):
    """Cut what is parted of the first candidates."""
    for i in range(u64(n_edges)):
        a, b = u64(edges[i, 0]), u64(edges[i, 1])
        if too_far(mean[a], mean[b], radius, radius):
            cut(table, a, b)
            edges[i, 0] = edges[i, 1]  # an agent is never too far from itself


@kernel
def _check_some(table, mean, radius, edges, n_edges):
    check_candidates(table, mean, radius, edges, n_edges)


Intervals = tuple[Floats, float | Floats]
"""Centers and radii of all agents, one number where all radii are equal; or means and standard errors, for a test."""

LOOSE, SHRUNK = 1.2, 0.85
"""The table is tightened at so many slots per living neighbor, and again when only this share of the edges is left."""


@kernel
def _prune(table, mean, spread, test):
    """Cut every edge whose agents are apart: the plain form, which also serves unequal radii and difference tests."""
    n, at_own, slots, offsets = u64(table.cut_now.size), u64(table.own_start), table.slots, table.offsets
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for j in range(width):
            for lane in range(size):
                a = at_own + agent_at(table.order, start + u64(lane))
                b = u64(slots[first + (u64(j) << u64(6)) + u64(lane)])
                if apart(mean[a], mean[b], at(spread, a), at(spread, b), test):
                    cut(table, a, b)


class Edges:
    """The edges that the agents of a state still use, their metrics, and the groups that they make. This parent of the
    others has none: its agents use no neighbors."""

    def __init__(self, hood: Neighborhood):
        self.hood = hood

    @property
    def wrong_share(self) -> float:
        """Share of the edges between classes that are still used (0 where there were none)."""
        return 0.0

    @property
    def lost_share(self) -> float:
        """Share of the edges within a class that are not used any more (0 where there were none)."""
        return 1.0

    @property
    def isolated(self) -> int:
        """Agents without a neighbor."""
        return self.hood.n_agents

    @property
    def n_groups(self) -> float:
        """Groups that agents know of, on average; NaN where a method does not count them."""
        return math.nan

    def graph(self) -> Graph:
        """The edges that are still used."""
        return Graph(np.zeros(self.hood.n_own + 1, np.int64), np.empty(0, np.uint32), check=False)

    def last_graph(self) -> Graph:
        """`graph` after the last step: what only further steps would need can be given up for it."""
        return self.graph()

    def groups(self, graph: Graph) -> Integers:
        """The group that each agent finds itself in, numbered from 0; `graph` is what `graph` returned."""
        return graph.components()


class KeptEdges(Edges):
    """A graph that can only lose edges, and knows how many of its cuts were right.

    graph   the rows of the own agents of a worker, with the indices of their neighbors; in a plain run, a graph
    class_  the true classes of the own agents
    """

    saved = ("degree", "cut_now", "neighbors")
    split: ClassVar[dict[str, str]] = {"neighbors": "degree"}

    def __init__(self, graph: Graph, class_: Array, hood: Neighborhood | None = None):
        hood = Neighborhood(graph.n_agents) if hood is None else hood
        super().__init__(hood)
        own_start, classes, team = hood.own_start, hood.seen("class", class_), hood.team
        self.slots, self.offsets, self.order, wrong = lay_out(graph, own_start, classes)
        self.row_of = self.order.copy()
        degrees = graph.degrees
        most = int(team.greatest(degrees.max(initial=0)))
        self._seen_degree = hood.array(np.uint16 if most < 2**16 else np.uint32)
        self.degree = hood.mine(self._seen_degree)
        self.degree[:] = degrees
        hood.refresh(self._seen_degree)
        self.cut_now = np.zeros(graph.n_agents, np.uint8)  # agents that lost an edge at this step
        self._ends, self._wrong_ends = len(graph.indices), wrong  # of edges, at own agents
        self.n_edges, self.n_wrong = (int(each) // 2 for each in team.total([self._ends, wrong]))
        self.n_right = self.n_edges - self.n_wrong
        """Edges within a class, as they were at first."""
        self.tally = np.array([wrong, 0, (degrees == 0).sum(), 0], np.int64)
        room = graph.n_agents // 3 + 8 * 1024  # a third is enough for many agents; for few, some more cost nothing
        self.found = np.empty((room, 2), np.uint32)
        self.candidates = Candidates(np.empty_like(self.found), np.zeros(BUCKETS, np.int64), 0.0, 0.0)
        self.share = 1.0  # of the threshold: slack below it makes an edge worth listing
        self.version = 0  # of the reference that slacks refer to
        self.checks_left = 0.0  # until a full check costs less
        self._worn_out = True  # that is so for some worker
        self.table = NeighborTable(
            np.uint64(own_start), self.slots, self.slots.view(np.uint64), self.offsets, self.order, self.row_of,
            self._seen_degree, self.cut_now, self.tally, classes,
        )  # fmt: skip
        self._tightened_at = math.inf  # ends of living edges
        self._last: Graph | None = None  # once the table is given up
        self._plan: Any = None  # brings the numbers of living neighbors from other machines; None: of all
        self._means_plan: Any = None  # brings the means of candidates
        self._planned_at = 2 * self.n_edges

    def prune(
        self,
        mean: Floats,
        radius: float | Floats,
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
        if reference is None or len(intervals) > 1 or isinstance(radius, np.ndarray):
            self._forget_candidates()  # they do not know of cuts made here
            self.hood.fetch(*(center for center, _ in intervals))
            for center, radius in intervals:
                _prune(self.table, center, radius, test)
        else:
            own, listed = self.hood.mine(center)[None, :], self.candidates
            needed = slack_needed(reference.displacements(own, t).item(0), listed.threshold, radius)
            if self.version == reference.version and 0.0 <= needed < listed.skin and not self._worn_out:
                n_edges = listed.ends[bucket(needed, listed.skin)]
                self.checks_left -= n_edges
                self.hood.fetch(center, plan=self._means_plan)
                self._worn_out = self.checks_left <= 0.0
                _check_some(self.table, center, radius, listed.edges, n_edges)
            else:
                self._check_every_edge(center, own, 0, radius, reference, t)
        self._end_step()

    def check_all(
        self, mean: Floats, means: Floats, row: int, radius: float,
        reference: ReferenceMeans, t: int,
    ) -> None:  # fmt: skip
        """Cut what the intervals part by these means of all visible agents, and list the edges that may be parted next.
        They are those of this row of `means`, the own agents' at steps t, t + 1, .."""
        self._begin_step()
        self._check_every_edge(mean, means, row, radius, reference, t)
        self._end_step()

    def _check_every_edge(
        self, mean: Floats, means: Floats, row: int, radius: float,
        reference: ReferenceMeans, t: int | None,
    ) -> None:  # fmt: skip
        hood, found, (edges, ends, _, _) = self.hood, self.found, self.candidates
        hood.fetch(mean)
        threshold = 2.0 * radius
        skin = self.share * threshold
        if not reference.displacements(means, t)[row] < NEAR_ENOUGH * skin:
            reference.set(mean)
        far = (threshold - 2.0 * reference.displacements(means, t).item(row)) * (1.0 - MARGIN)
        near = min((threshold - skin) * (1.0 - MARGIN), far)
        n_found, complete = _check_all(self.table, mean, radius, near, far, reference.means, found)
        filled, incomplete = hood.team.greatest([n_found / len(found), float(not complete)])
        self.version, self._worn_out = reference.version, False
        self.candidates = Candidates(edges, ends, threshold, 0.0 if incomplete else skin)
        if incomplete:
            self.share *= 0.8
            return
        _sort_into_buckets(reference.means, threshold, skin, mean, radius, found, n_found, edges, ends)
        if not hood.one_machine:  # until the next full check, only means of candidates are needed
            self._means_plan = hood.plan(edges[: ends[-1]].ravel())
        if 2.0 * filled < 1.0:
            self.share = min(1.0, 1.1 * self.share)
        self.checks_left = FULL_CHECK * means.shape[1]

    def _forget_candidates(self) -> None:
        self.candidates = self.candidates._replace(skin=0.0)

    def _begin_step(self) -> None:
        """Forget the cuts of the step before."""
        if self.any_cut:
            self.cut_now[:] = 0
            self.tally[CUT] = 0

    def _end_step(self) -> None:
        """Learn of the cuts of other workers, and whether the list of one is worn out."""
        if self.hood.team.size > 1:
            known = [self.tally[CUT], self._worn_out, self._alive_ends]
            self.tally[CUT], worn_out, alive = self.hood.team.total(known)
            self._worn_out = worn_out > 0
            if self.any_cut:
                self.refresh(self._seen_degree)
                if not self.hood.one_machine and alive < SHRUNK * self._planned_at:
                    self._plan, self._planned_at = self.hood.plan(self.slots[: self.offsets[-1]]), alive

    def refresh(self, *arrays: Array) -> None:
        """Let all workers see what each wrote for its own agents, as far as edges live."""
        self.hood.team.wait()
        self.hood.fetch(*arrays, plan=self._plan)

    def tighten(self, flows: Floats | None = None) -> bool:
        """Drop the slots of cut edges when they are many; flows of the slots move along. True if so: rows are no longer
        in the order of agents."""
        alive = self._alive_ends
        if alive >= SHRUNK * self._tightened_at or int(self.offsets[-1]) <= LOOSE * alive:
            return False
        self._tightened_at = alive
        tighten(self.hood.own_start, self.slots, self.offsets, self.order, self.row_of, self.degree, flows)
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
        return self.counts()[2]

    @property
    def wrong_share(self) -> float:
        return self.wrong / self.n_wrong if self.n_wrong else 0.0

    @property
    def lost_share(self) -> float:
        return self.lost / self.n_right if self.n_right else 0.0

    @property
    def neighbors(self) -> NDArray[np.uint32]:
        """The numbers of the living neighbors, agent by agent: what a checkpoint keeps."""
        return self.hood.numbers(self.graph().indices)

    @neighbors.setter
    def neighbors(self, numbers: NDArray[np.uint32]) -> None:
        """Make the table anew, from degrees that were put back before."""
        rows = Graph(row_ends(self.degree), self.hood.indices(numbers), check=False)
        slots, self.offsets[:], self.order[:], wrong = lay_out(rows, self.hood.own_start, self.table.class_)
        self.slots[: len(slots)] = slots
        self.row_of[:] = self.order
        lost = (self._ends - self._wrong_ends) - (len(numbers) - wrong)
        self.tally[:] = wrong, lost, (self.degree == 0).sum(), self.cut_now.sum()
        self._tightened_at = math.inf
        self._forget_candidates()
        self.hood.refresh(self._seen_degree)

    def _compressed(self, values: Array, out: Array | None = None) -> tuple[Array, Array]:
        """The living edges as compressed rows, by own agent: indptr, and the values of their slots."""
        indptr = row_ends(self.degree)
        out = np.empty(indptr[-1], values.dtype) if out is None else out[: indptr[-1]]
        _compress(self.hood.own_start, self.slots, self.offsets, self.row_of, indptr, values, out)
        return indptr, out

    def flows_of_edges(self, flows: Floats) -> Floats:
        """The flows of the living edges, in the order of `neighbors`."""
        return self._compressed(flows)[1]

    def put_flows(self, of_edges: Floats, flows: Floats) -> None:
        """The flows of slots from those of edges, right after `neighbors` were put back: row a is that of agent a."""
        agent = np.repeat(np.arange(len(self.degree)), self.degree)
        number = np.arange(len(agent)) - row_ends(self.degree)[agent]  # of the neighbor in its row
        flows[:] = 0.0
        flows[self.offsets[agent // LANES] + LANES * number + agent % LANES] = of_edges

    def graph(self) -> Graph:
        return Graph(*self._compressed(self.slots), check=False) if self._last is None else self._last

    def last_graph(self) -> Graph:
        """The same when no edge will be cut or used any more: written over the table, whose memory may be most of a
        run's."""
        if self._last is None:
            del self.found, self.candidates
            self._last = Graph(*self._compressed(self.slots, self.slots), check=False)
            if len(self._last.indices) < SHRUNK * len(self.slots):  # do not keep the rest
                self._last.indices = self._last.indices.copy()
            self.slots = self.slots[:0].copy()
            self.order = self.row_of = self.order[:0].copy()
            del self.table
        return self._last


class Neighbors(Edges):
    """The neighbors that agents still have. Edges can only be lost."""

    saved = ("kept",)

    def __init__(self, graph: Graph, class_: Array):
        super().__init__(Neighborhood(graph.n_agents))
        self._graph = graph
        self._own = graph.owners
        self._other = graph.indices.astype(np.int64)
        self._within = class_[self._own] == class_[self._other]
        self.kept = np.ones(len(self._own), np.bool_)

    def sum(self, values: ArrayLike, start: ArrayLike = 0.0) -> Floats:
        """start + the sum of the neighbors' values, for each agent."""
        out = np.array(np.broadcast_to(np.asarray(start, np.float64), self._graph.n_agents))
        np.add.at(out, *self.values(values))
        return out

    def values(self, values: ArrayLike) -> tuple[Integers, Array]:
        """(agent, value) of every kept neighbor that has a value, agent by agent in the order of summation: for
        medians, extremes and other functions that are no sums."""
        heard = np.broadcast_to(values, self._graph.n_agents)[self._other]
        use = self.kept & ~np.isnan(heard)
        return self._own[use], heard[use]

    @property
    def degree(self) -> Integers:
        """Neighbors that each agent still has."""
        return np.bincount(self._own[self.kept], minlength=self._graph.n_agents)

    def ends(self, values: ArrayLike) -> tuple[Array, Array]:
        """The values at the two ends of every edge of the given graph: (own, the neighbor's), each edge in both
        directions."""
        values = np.broadcast_to(values, self._graph.n_agents)
        return values[self._own], values[self._other]

    def cut(self, mask: Mask) -> None:
        """Give up the edges where the mask is True; it has the order of `ends` and treats both directions alike."""
        self.kept &= ~mask

    @property
    def wrong_share(self) -> float:
        return _share(self.kept[~self._within])

    @property
    def lost_share(self) -> float:
        return _share(~self.kept[self._within])

    @property
    def isolated(self) -> int:
        return int((self.degree == 0).sum())

    def graph(self) -> Graph:
        return Graph(row_ends(self.degree), self._graph.indices[self.kept], check=False)


def _share(mask: Mask) -> float:
    return float(mask.mean()) if len(mask) else 0.0
