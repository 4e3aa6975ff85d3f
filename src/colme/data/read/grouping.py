"""Rows in any order become samples agent by agent: a counting sort, then a stable sort by time within each agent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import kernel
from colme.data.read.spool import Spool, disk_array

TOGETHER = 1 << 15
"""Rows that are sorted together: what the caches hold."""


class Grouped(NamedTuple):
    """Columns in the order of agents; `disordered` agents had to be sorted, `tied` samples have the time of the one
    before."""

    start: NDArray[np.int64]
    columns: list[NDArray[np.float64]]
    disordered: int
    tied: int


def group_rows(spool: Spool, count: NDArray[np.int64], *, by_time: bool) -> Grouped:
    """Spooled (code, columns...) as columns by agent; by the first of them within an agent if `by_time`.

    What did not fit into memory is grouped a range of agents at a time, each reading all rows once, in order: writing
    them straight to their places all over a file would take a seek per row."""
    start = np.zeros(len(count) + 1, np.int64)
    np.cumsum(count, out=start[1:])
    n_rows, n_columns = int(start[-1]), len(next(iter(spool))) - 1 if spool.n_rows else 1
    make = disk_array if spool.on_disk else lambda dtype, n: np.empty(n, dtype)
    columns = [make(np.float64, n_rows) for _ in range(n_columns)]
    most = max(spool.limit // (8 * n_columns), 1) if spool.on_disk else n_rows
    disordered = tied = first = 0
    while first < len(count):
        last = max(int(np.searchsorted(start, start[first] + most, side="right")) - 1, first + 1)
        low, high = int(start[first]), int(start[last])
        parts: Any = columns if high - low == n_rows and not spool.on_disk else [np.empty(high - low) for _ in columns]
        following = start[first:last] - low
        for code, *values in spool:
            place = np.empty(len(code), np.int64)
            _find_places(code, first, last, following, place)
            for part, column in zip(parts, values, strict=True):
                _put(place, column, part)
        if by_time:
            found, same = _sort_by_time(start[first : last + 1] - low, parts)
            disordered, tied = disordered + found, tied + same
        if parts is not columns:
            for part, column in zip(parts, columns, strict=True):
                column[low:high] = part
        first = last
    return Grouped(start, columns, disordered, tied)


def _sort_by_time(start: NDArray[np.int64], columns: list[NDArray[np.float64]]) -> tuple[int, int]:
    """Sort each agent's samples by the first column, stably; what `_look` saw, ties after the sort."""
    disordered, tied = _look(start, columns[0])
    if disordered:
        first = 0
        while first < len(start) - 1:
            last = max(int(np.searchsorted(start, start[first] + TOGETHER, side="right")) - 1, first + 1)
            rows = slice(int(start[first]), int(start[last]))
            agent = np.repeat(np.arange(first, last), np.diff(start[first : last + 1]))
            order = np.lexsort((columns[0][rows], agent))
            for column in columns:
                column[rows] = column[rows][order]
            first = last
        _, tied = _look(start, columns[0])
    return int(disordered), int(tied)


@kernel
def _find_places(code, first, last, following, place):
    """place[i] = where row i goes, -1 if its agent is not in first..last-1; following[a] moves on."""
    for i in range(code.size):
        c = code[i]
        if first <= c < last:
            place[i] = following[c - first]
            following[c - first] += 1
        else:
            place[i] = -1


@kernel
def _put(place, column, out):
    for i in range(place.size):
        if place[i] >= 0:
            out[place[i]] = column[i]


@kernel
def _look(start, time):
    """How many agents' samples are not in order of time, and how many samples have the time of the one before."""
    disordered, tied = 0, 0
    for a in range(start.size - 1):
        ordered = True
        for k in range(start[a] + 1, start[a + 1]):
            ordered &= time[k] >= time[k - 1]
            tied += time[k] == time[k - 1]
        disordered += not ordered
    return disordered, tied
