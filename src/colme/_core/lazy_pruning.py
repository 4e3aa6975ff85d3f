"""Exact lazy pruning: look only at the edges that could have parted since the last full look.

A milestone remembers where everybody stood: the means X0. At a full look, with threshold T0 = 2 R(t0), an edge has
slack s = T0 - |X0_a - X0_b|. Later no mean is further than D = max |X - X0| from there, so an edge can only be parted
at t if

    s < 2 D + (T0 - T(t)).

Edges with little slack are kept in a list, in buckets by slack; a step looks at the buckets below that number, and the
next full look comes when the number outgrows the list, or when looking at the list has cost as much. Which edges are
cut is the same, to the bit, as when all are looked at (a Verlet list, as in molecular dynamics). It does not matter
when the milestone was set, so the methods of a run share one, and how far everybody went is measured once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import LANES, equation, helper, kernel, lanes_like
from colme._core.neighbor_table import agent_at, block_of, cut
from colme.confidence import too_far

f32, u32, u64 = np.float32, np.uint32, np.uint64

BUCKETS = 256
FULL_LOOK = 30.0
"""Cost of a full look, in looks at listed edges per agent."""
NEAR_ENOUGH = 1.0 / 16.0
"""A full look takes the milestone as it is if nobody went further than this share of the slack it lists."""
MARGIN = 1e-6
"""Relative: more than float32 rounds off a difference."""


@kernel
def _measure(means, reference, out):
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


class Milestone:
    """Where everybody stood when it was last set, and how far from there anybody is."""

    def __init__(self, n_agents: int):
        self.reference = np.empty(n_agents, np.float32)
        self.number = 0  # how often it was set
        self._measured: tuple[int, int, int] | None = None
        self._drifts = np.empty(0)

    def set(self, mean: NDArray[np.float64]) -> None:
        self.reference[:] = mean
        self.number += 1

    def drifts(self, means: NDArray[np.float64], t: int | None) -> NDArray[np.float64]:
        """max |X - X0| of the means of steps t, t + 1, ..; infinite as long as no milestone is set. Measured once for
        everybody who asks, for the means of a step are the same for all; always, where t is None."""
        what = None if t is None else (self.number, t, len(means))
        if what is None or self._measured != what:
            self._measured, self._drifts = what, np.full(len(means), np.inf)
            if self.number:
                _measure(means, self.reference, self._drifts)
        return self._drifts


@kernel
def _look_at_all(
    slots, offsets, order, places, degree, cut_now, tally, mean, radius, class_, near, far, reference, found
):  # fmt: skip
    """Cut what is parted, and find the edges whose ends stood further apart than `near`.

    The float32 milestone is small enough for the fastest cache; it finds all that may matter, and what it calls far is
    looked at again exactly. Returns how many edges it found, and whether there was room for all of them."""
    n, n_found, room = u64(degree.size), u64(0), u64(found.shape[0])
    near, far = f32(near), f32(far)
    complete = True
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for j in range(width):
            if n_found + u64(LANES) > room:
                n_found, complete = u64(0), False
            any_far = False
            for lane in range(size):
                a = agent_at(order, start + u64(lane))
                b = u64(slots[first + (u64(j) << u64(6)) + u64(lane)])
                apart = abs(reference[a] - reference[b])
                any_far |= apart > far
                # write always, count if it matters: no branch for the processor to guess
                found[n_found, 0], found[n_found, 1] = u32(a), u32(b)
                n_found += u64(apart > near) & u64(b > a)
            if any_far:
                for lane in range(size):
                    a = agent_at(order, start + u64(lane))
                    b = u64(slots[first + (u64(j) << u64(6)) + u64(lane)])
                    if too_far(mean[a], mean[b], radius, radius):
                        cut(slots, offsets, places, degree, cut_now, tally, class_, a, b)
    return n_found, complete


@kernel
def _sort_into_buckets(reference, threshold, skin, mean, radius, found, n_found, listed, ends):
    """List the edges found by slack: bucket i, of ends.size equal ones, ends at ends[i]. Edges that are parted (and cut
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
    """Where a slack below the skin is listed."""
    return min(int(max(slack, 0.0) * (BUCKETS / skin)), BUCKETS - 1)


@equation
def slack_needed(drift: Any, threshold: Any, radius: Any) -> Any:
    """Edges with as much slack cannot have parted; something is added for rounding."""
    return (2.0 * drift + (threshold - 2.0 * radius)) * (1.0 + 1e-9) + 1e-15 * threshold


@helper
def cut_listed(slots, offsets, places, degree, cut_now, tally, mean, radius, class_, listed, n_listed):
    """Cut what is parted of the first listed edges."""
    for i in range(u64(n_listed)):
        a, b = u64(listed[i, 0]), u64(listed[i, 1])
        if too_far(mean[a], mean[b], radius, radius):
            cut(slots, offsets, places, degree, cut_now, tally, class_, a, b)
            listed[i, 0] = listed[i, 1]  # nobody is far from itself


@kernel
def _look_at_listed(
    slots, offsets, order, places, degree, cut_now, tally, mean, radius, class_, listed, n_listed
):  # fmt: skip
    cut_listed(slots, offsets, places, degree, cut_now, tally, mean, radius, class_, listed, n_listed)


class WatchList:
    """The edges that could part soon, for agents with one common radius."""

    def __init__(self, n_agents: int):
        room = n_agents // 3 + 8 * 1024  # a third of the agents is enough for many, and for few some more cost nothing
        self.found, self.listed = np.empty((room, 2), np.uint32), np.empty((room, 2), np.uint32)
        self.ends = np.zeros(BUCKETS, np.int64)
        self.share = 1.0  # of the threshold: slack below it makes an edge worth listing
        self.skin = 0.0  # slack below which the list is complete; 0: there is no list
        self.threshold = 0.0
        self.milestone = 0  # number of the one that slacks refer to
        self.looks_left = 0.0

    def look(
        self, table: tuple[NDArray[Any], ...], mean: NDArray[np.float64], radius: float, class_: NDArray[Any],
        milestone: Milestone, t: int | None,
    ) -> None:  # fmt: skip
        """Cut what the intervals part at step t."""
        needed = slack_needed(milestone.drifts(mean[None, :], t).item(0), self.threshold, radius)
        if self.milestone != milestone.number or not 0.0 <= needed < self.skin or self.looks_left <= 0.0:
            self.look_at_all(table, mean[None, :], 0, radius, class_, milestone, t)
            return
        n_listed = self.ends[bucket(needed, self.skin)]
        self.looks_left -= n_listed
        _look_at_listed(*table, mean, radius, class_, self.listed, n_listed)

    def look_at_all(
        self, table: tuple[NDArray[Any], ...], means: NDArray[np.float64], row: int, radius: float,
        class_: NDArray[Any], milestone: Milestone, t: int | None,
    ) -> None:  # fmt: skip
        """Cut what the intervals part by the means of this row, and make the list anew. Rows are those of steps t,
        t + 1, .."""
        mean, threshold = means[row], 2.0 * radius
        skin = self.share * threshold
        if not milestone.drifts(means, t)[row] < NEAR_ENOUGH * skin:
            milestone.set(mean)
        far = (threshold - 2.0 * milestone.drifts(means, t).item(row)) * (1.0 - MARGIN)
        near = min((threshold - skin) * (1.0 - MARGIN), far)
        n_found, complete = _look_at_all(*table, mean, radius, class_, near, far, milestone.reference, self.found)
        self.threshold, self.skin, self.milestone = threshold, skin if complete else 0.0, milestone.number
        if not complete:
            self.share *= 0.8
            return
        _sort_into_buckets(
            milestone.reference, threshold, skin, mean, radius, self.found, n_found, self.listed, self.ends
        )  # fmt: skip
        if 2 * n_found < len(self.found):
            self.share = min(1.0, 1.1 * self.share)
        self.looks_left = FULL_LOOK * len(mean)
