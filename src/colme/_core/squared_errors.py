"""The loop that sums squared errors, for every kernel that measures them.

Sums run in 64 lanes that are added in order at the end: the compiler may use vector registers, yet the result has the
same bits on every machine. Agents without an estimate (NaN) are left out.
"""

from __future__ import annotations

import numpy as np

from colme._core.jit import LANES, helper, lanes_like

u64 = np.uint64

NOT_KNOWN = np.empty(0)
"""For kernels, a truth that is not known. An array like any other truth, so that nothing is compiled twice."""


@helper
def clear(squares):
    """Begin a sum: all lanes are zero."""
    for lane in range(u64(LANES)):
        squares[lane] = 0.0


@helper
def add_squared_errors(squares, values, first, truth, first_truth, size, tolerance):
    """Add the squared errors of a block of at most 64 agents, values[first:] against truth[first_truth:], to the lanes.

    Returns how many errors are beyond the tolerance, and how many agents have a value; both 0 where the truth is
    not known."""
    beyond = present = 0
    if truth.size > 0:
        for lane in range(size):
            error = values[first + u64(lane)] - truth[first_truth + u64(lane)]
            there = error == error
            squares[lane] += error * error if there else 0.0
            beyond += 1 if abs(error) > tolerance else 0
            present += 1 if there else 0
    return beyond, present


@helper
def total(squares):
    """The sum of the lanes, in order."""
    result = 0.0
    for lane in range(u64(LANES)):
        result += squares[lane]
    return result


@helper
def mean_squared_error(estimate, truth, tolerance):
    """(mean squared error, share of agents beyond the tolerance) over the agents with an estimate; NaN if none has."""
    n = u64(estimate.size)
    squares = lanes_like(estimate)
    clear(squares)
    beyond = present = 0
    for block in range((n + u64(63)) >> u64(6)):
        start = u64(block) << u64(6)
        more_beyond, more = add_squared_errors(
            squares, estimate, start, truth, start, min(u64(64), n - start), tolerance
        )  # fmt: skip
        beyond, present = beyond + more_beyond, present + more
    if present == 0:
        return np.nan, np.nan
    return total(squares) / present, beyond / present
