"""`group_rows`: sort rows by agent (a counting sort), then by time within each agent (a stable sort)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from colme._core.jit import kernel
from colme.data.read.row_buffer import RowBuffer, disk_array
from colme.support.arrays import Floats, Integers

TOGETHER = 1 << 15
"""Rows that are sorted together: as many as fit into the CPU caches."""


class Grouped(NamedTuple):
    """Columns sorted by agent. `disordered`: agents whose samples had to be sorted; `tied`: samples with the same time
    as the one before."""

    start: Integers
    columns: list[Floats]
    disordered: int
    tied: int


def group_rows(rows: RowBuffer, count: Integers, *, by_time: bool) -> Grouped:
    """Rows of (code, columns...) as columns sorted by code; within an agent by the first column if `by_time`.

    Rows that did not fit into memory are grouped one range of agents at a time. Each range reads all rows once, in
    order: writing every row straight to its place in a file would take a seek per row."""
    start = np.zeros(len(count) + 1, np.int64)
    np.cumsum(count, out=start[1:])
    n_rows, n_columns = int(start[-1]), len(next(iter(rows))) - 1 if rows.n_rows else 1
    make = disk_array if rows.on_disk else lambda dtype, n: np.empty(n, dtype)
    columns = [make(np.float64, n_rows) for _ in range(n_columns)]
    most = max(rows.limit // (8 * n_columns), 1) if rows.on_disk else n_rows
    disordered = tied = first = 0
    while first < len(count):
        last = max(int(np.searchsorted(start, start[first] + most, side="right")) - 1, first + 1)
        low, high = int(start[first]), int(start[last])
        parts: Any = columns if high - low == n_rows and not rows.on_disk else [np.empty(high - low) for _ in columns]
        following = start[first:last] - low
        for code, *values in rows:
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


def _sort_by_time(start: Integers, columns: list[Floats]) -> tuple[int, int]:
    """Sort each agent's samples by the first column, stably; returns (agents that were not in order, ties)."""
    disordered, tied = _count_unordered(start, columns[0])
    if disordered:
        first = 0
        while first < len(start) - 1:
            last = max(int(np.searchsorted(start, start[first] + TOGETHER, side="right")) - 1, first + 1)
            part = slice(int(start[first]), int(start[last]))
            agent = np.repeat(np.arange(first, last), np.diff(start[first : last + 1]))
            order = np.lexsort((columns[0][part], agent))
            for column in columns:
                column[part] = column[part][order]
            first = last
        _, tied = _count_unordered(start, columns[0])
    return int(disordered), int(tied)


@kernel
def _find_places(code, first, last, following, place):
    """place[i] = the position of row i, -1 if its agent is not in first..last-1; following[a] advances."""
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
def _count_unordered(start, time):
    """(agents whose samples are not in order of time, samples with the same time as the one before)."""
    disordered, tied = 0, 0
    for a in range(start.size - 1):
        ordered = True
        for k in range(start[a] + 1, start[a + 1]):
            ordered &= time[k] >= time[k - 1]
            tied += time[k] == time[k - 1]
        disordered += not ordered
    return disordered, tied
