"""Exact lazy pruning: at each step, check only the edges that could have been parted since the last full check.

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

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import LANES, equation, helper, kernel, lanes_like
from colme._core.neighbor_table import NeighborTable, agent_at, block_of, cut
from colme._core.team import Neighborhood
from colme.confidence import too_far

f32, u32, u64 = np.float32, np.uint32, np.uint64

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

    def set(self, mean: NDArray[np.float64]) -> None:
        """To the means of all visible agents, or in a plain run of all agents."""
        self.hood.mine(self.means)[:] = self.hood.mine(mean)
        self.hood.refresh(self.means)
        self.version += 1

    def displacements(self, means: NDArray[np.float64], t: int | None) -> NDArray[np.float64]:
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
    n, at, n_found, room = u64(table.cut_now.size), u64(table.at), u64(0), u64(found.shape[0])
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
                a = at + agent_at(order, start + u64(lane))
                b = u64(slots[first + (u64(j) << u64(6)) + u64(lane)])
                apart = abs(reference[a] - reference[b])
                any_far |= apart > far
                # write always, count if it matters: no branch for the processor to guess
                found[n_found, 0], found[n_found, 1] = u32(a), u32(b)
                n_found += u64(apart > near) & u64(b - at > a - at)  # once, or at each end if workers differ
            if any_far:
                for lane in range(size):
                    a = at + agent_at(order, start + u64(lane))
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
    ends: NDArray[np.int64]
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


class LazyPruning:
    """The edges that could be parted soon, for agents with one common radius."""

    def __init__(self, n_agents: int):
        room = n_agents // 3 + 8 * 1024  # a third of the agents is enough for many, and for few some more cost nothing
        self.found, self.edges = np.empty((room, 2), np.uint32), np.empty((room, 2), np.uint32)
        self.ends = np.zeros(BUCKETS, np.int64)
        self.share = 1.0  # of the threshold: slack below it makes an edge worth listing
        self.skin = 0.0  # slack below which the list is complete; 0: there is no list
        self.threshold = 0.0
        self.version = 0  # of the reference that slacks refer to
        self.checks_left = 0.0  # until a full check costs less
        self.worn_out = True  # that is so for some worker
        self._plan: Any = None  # for the means of candidates at other machines

    @property
    def candidates(self) -> Candidates:
        return Candidates(self.edges, self.ends, self.threshold, self.skin)

    def check(
        self, table: NeighborTable, mean: NDArray[np.float64], radius: float, reference: ReferenceMeans, t: int | None
    ) -> None:  # fmt: skip
        """Cut what the intervals part at step t, from the means of all visible agents."""
        own = reference.hood.mine(mean)[None, :]
        needed = slack_needed(reference.displacements(own, t).item(0), self.threshold, radius)
        if self.version != reference.version or not 0.0 <= needed < self.skin or self.worn_out:
            self.check_all(table, mean, own, 0, radius, reference, t)
            return
        n_edges = self.ends[bucket(needed, self.skin)]
        self.checks_left -= n_edges
        reference.hood.fetch(mean, plan=self._plan)
        self.worn_out = self.checks_left <= 0.0
        _check_some(table, mean, radius, self.edges, n_edges)

    def check_all(
        self, table: NeighborTable, mean: NDArray[np.float64], means: NDArray[np.float64], row: int, radius: float,
        reference: ReferenceMeans, t: int | None,
    ) -> None:  # fmt: skip
        """Cut what the intervals part by these means of all visible agents, and make the list anew. They are those of
        the given row; rows are the own agents' means of steps t, t + 1, .."""
        reference.hood.fetch(mean)
        threshold = 2.0 * radius
        skin = self.share * threshold
        if not reference.displacements(means, t)[row] < NEAR_ENOUGH * skin:
            reference.set(mean)
        far = (threshold - 2.0 * reference.displacements(means, t).item(row)) * (1.0 - MARGIN)
        near = min((threshold - skin) * (1.0 - MARGIN), far)
        n_found, complete = _check_all(table, mean, radius, near, far, reference.means, self.found)
        filled, incomplete = reference.hood.team.greatest([n_found / len(self.found), float(not complete)])
        complete = not incomplete
        self.threshold, self.skin, self.version = threshold, skin if complete else 0.0, reference.version
        self.worn_out = False
        if not complete:
            self.share *= 0.8
            return
        _sort_into_buckets(reference.means, threshold, skin, mean, radius, self.found, n_found, self.edges, self.ends)
        if not reference.hood.one_machine:  # until the next full check, only means of candidates are needed
            self._plan = reference.hood.plan(self.edges[: self.ends[-1]].ravel())
        if 2.0 * filled < 1.0:
            self.share = min(1.0, 1.1 * self.share)
        self.checks_left = FULL_CHECK * means.shape[1]
