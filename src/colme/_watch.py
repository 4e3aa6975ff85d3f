"""Exact lazy pruning: look only at the edges that could have parted since the last full look.

At a full look at step t0, with means X0 and threshold T0 = 2 R(t0), an edge has slack s = T0 - |X0_a - X0_b|. Later no
mean has moved by more than D = max |X - X0|, so an edge can only be parted at t if

    s < 2 D + (T0 - T(t)).

Edges with little slack are kept in a list, in buckets by slack; a step looks at the buckets below that number, and the
next full look comes when the number outgrows the list, or when looking at the list has cost as much. Which edges are
cut is the same, to the bit, as when all are looked at (a Verlet list, as in molecular dynamics).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._jit import LANES, helper, kernel, lanes_like
from colme._slots import block_of, cut
from colme.confidence import too_far

f32, u32, u64 = np.float32, np.uint32, np.uint64

BUCKETS = 256
FULL_LOOK = 5.0
"""Cost of a full look, in looks at listed edges per agent."""
ROUNDING = 2.0**-22
"""Relative to the largest mean: what the float32 copy of X0 may be off, and then some."""


@helper
def drift(mean, reference):
    """max |mean - reference|."""
    n = u64(mean.size)
    most = lanes_like(mean)
    for lane in range(u64(LANES)):
        most[lane] = 0.0
    for block in range((n + u64(63)) >> u64(6)):
        start = u64(block) << u64(6)
        for lane in range(min(u64(64), n - start)):
            moved = abs(mean[start + u64(lane)] - reference[start + u64(lane)])
            most[lane] = moved if moved > most[lane] else most[lane]
    result = 0.0
    for lane in range(u64(LANES)):
        result = max(result, most[lane])
    return result


@kernel
def remember(mean, reference):
    """reference = mean in float32; returns how far off that is at most, with something to spare."""
    largest = 0.0
    for a in range(mean.size):
        reference[a] = mean[a]
        largest = max(largest, abs(mean[a]))
    return ROUNDING * largest


@kernel
def look_at_all(slots, offsets, degree, cut_now, mean, radius, class_, skin, reference, rounding, found):
    """Cut what is parted, and find the edges with slack below `skin`.

    The float32 copy of the means is small enough for the fastest cache; it finds all that may matter, and what it
    calls far is looked at again exactly. Returns (cut between classes, cut within, agents now alone, edges found,
    whether all of them are)."""
    wrong = lost = alone = 0
    n, n_found, room = u64(degree.size), u64(0), u64(found.shape[0])
    near = f32(radius + radius - skin - 4.0 * rounding)
    far = f32(radius + radius - 4.0 * rounding)
    complete = True
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for j in range(width):
            if n_found + u64(LANES) > room:
                n_found, complete = u64(0), False
            any_far = False
            for lane in range(size):
                a = start + u64(lane)
                b = u64(slots[first + (u64(j) << u64(6)) + u64(lane)])
                apart = abs(reference[a] - reference[b])
                any_far |= apart > far
                # write always, count if it matters: no branch for the processor to guess
                found[n_found, 0], found[n_found, 1] = u32(a), u32(b)
                n_found += u64(apart > near) & u64(b > a)
            if any_far:
                for lane in range(size):
                    a = start + u64(lane)
                    b = u64(slots[first + (u64(j) << u64(6)) + u64(lane)])
                    if too_far(mean[a], mean[b], radius, radius):
                        between, within, left = cut(slots, offsets, degree, cut_now, class_, a, b)
                        wrong, lost, alone = wrong + between, lost + within, alone + left
    return wrong, lost, alone, n_found, complete


@kernel
def sort_into_buckets(mean, threshold, skin, found, n_found, listed, ends):
    """List the edges found by slack: bucket i, of ends.size equal ones, ends at ends[i]. Edges that were parted (and
    are cut by now) or have slack beyond the skin are left out."""
    scale = ends.size / skin
    ends[:] = 0
    kept = 0
    for q in range(n_found):
        slack = threshold - abs(mean[found[q, 0]] - mean[found[q, 1]])
        if 0.0 <= slack < skin:
            found[kept, 0], found[kept, 1] = found[q, 0], found[q, 1]
            kept += 1
            ends[min(int(slack * scale), ends.size - 1)] += 1
    total = 0
    for i in range(ends.size):
        size, ends[i] = ends[i], total
        total += size
    for q in range(kept):
        slack = threshold - abs(mean[found[q, 0]] - mean[found[q, 1]])
        i = min(int(slack * scale), ends.size - 1)
        listed[ends[i], 0], listed[ends[i], 1] = found[q, 0], found[q, 1]
        ends[i] += 1


@kernel
def look_at_listed(
    slots, offsets, degree, cut_now, mean, radius, class_, reference, threshold, skin, rounding, ends, listed
):
    """Cut what is parted, if the list still covers all that can be.

    Returns (cut between classes, cut within, agents now alone, edges looked at, or -1 if the list is too old)."""
    wrong = lost = alone = 0
    moved = 2.0 * (drift(mean, reference) + rounding)
    needed = (moved + (threshold - 2.0 * radius)) * (1.0 + 1e-9)
    if not 0.0 <= needed < skin:  # also if something is NaN, or the radius grew
        return wrong, lost, alone, -1
    n_listed = ends[min(int(needed * (ends.size / skin)), ends.size - 1)]
    for i in range(n_listed):
        a, b = u64(listed[i, 0]), u64(listed[i, 1])
        if too_far(mean[a], mean[b], radius, radius):
            between, within, left = cut(slots, offsets, degree, cut_now, class_, a, b)
            wrong, lost, alone = wrong + between, lost + within, alone + left
            listed[i, 0] = listed[i, 1]  # nobody is far from itself
    return wrong, lost, alone, n_listed


class WatchList:
    """The edges that could part soon, for agents with one common radius."""

    def __init__(self, n_agents: int):
        room = n_agents // 3 + 8 * 1024  # a third of the agents is enough for many, and for few it costs nothing
        self.reference = np.empty(n_agents, np.float32)
        self.found, self.listed = np.empty((room, 2), np.uint32), np.empty((room, 2), np.uint32)
        self.ends = np.empty(BUCKETS, np.int64)
        self.share = 1.0  # of the threshold: slack below it makes an edge worth listing
        self.skin = 0.0  # slack below which the list is complete; 0: there is no list
        self.threshold = self.rounding = 0.0
        self.looks_left = 0.0

    def prune(
        self, table: tuple[NDArray[Any], ...], mean: NDArray[np.float64], radius: float, class_: NDArray[Any]
    ) -> tuple[int, int, int]:
        """Cut what the intervals part. Returns (cut between classes, cut within, agents now alone)."""
        if self.skin > 0.0 and self.looks_left > 0.0:
            wrong, lost, alone, looks = look_at_listed(
                *table, mean, radius, class_, self.reference, self.threshold, self.skin, self.rounding, self.ends,
                self.listed,
            )  # fmt: skip
            if looks >= 0:
                self.looks_left -= looks
                return wrong, lost, alone
        return self._look_at_all(table, mean, radius, class_)

    def _look_at_all(
        self, table: tuple[NDArray[Any], ...], mean: NDArray[np.float64], radius: float, class_: NDArray[Any]
    ) -> tuple[int, int, int]:
        threshold = 2.0 * radius
        skin = self.share * threshold
        self.rounding = remember(mean, self.reference)
        wrong, lost, alone, n_found, complete = look_at_all(
            *table, mean, radius, class_, skin, self.reference, self.rounding, self.found
        )
        self.threshold, self.skin = threshold, skin if complete else 0.0
        if not complete:
            self.share *= 0.8
            return wrong, lost, alone
        sort_into_buckets(mean, threshold, skin, self.found, n_found, self.listed, self.ends)
        if 2 * n_found < len(self.found):
            self.share = min(1.0, 1.1 * self.share)
        self.looks_left = FULL_LOOK * len(mean)
        return wrong, lost, alone
