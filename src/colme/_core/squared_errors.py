"""The loop that sums squared errors, for every kernel that measures them.

Within a chunk of agents sums run in 64 lanes that are then added pairwise: the compiler may use vector registers, yet
the result has the same bits on every machine. Chunks are added to their page (`colme._core.team`) in order, and pages
in order. Agents without an estimate (NaN) are left out.
"""

from __future__ import annotations

import numpy as np

from colme._core.jit import CHUNK, LANES, helper, kernel, lanes_like

u64 = np.uint64

NOT_KNOWN = np.empty(0)
"""For kernels, a truth that is not known. An array like any other truth, so that nothing is compiled twice."""
SQUARES, BEYOND, PRESENT = range(3)
"""What is summed by page, (pages, 3): squared errors, agents beyond the tolerance, agents with an estimate."""


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
    """The sum of the lanes, which are used up: the second half is added to the first, and so on."""
    half = u64(LANES // 2)
    while half > u64(0):
        for lane in range(half):
            squares[lane] += squares[lane + half]
        half >>= u64(1)
    return squares[0]


@helper
def add_to_page(pages, page, base, squares, beyond, present):
    """Add the lanes of the chunk that begins at agent `base`, and its counts, to its page of `page` agents."""
    k = base // u64(page)
    pages[k, SQUARES] += total(squares)
    pages[k, BEYOND] += beyond
    pages[k, PRESENT] += present


@helper
def error_of(pages):
    """(mean squared error, share of agents beyond the tolerance) over the agents with an estimate; NaN if none has."""
    squares = beyond = present = 0.0
    for k in range(pages.shape[0]):
        squares += pages[k, SQUARES]
        beyond += pages[k, BEYOND]
        present += pages[k, PRESENT]
    if present == 0.0:
        return np.nan, np.nan
    return squares / present, beyond / present


@kernel
def mean_error(pages):
    """`error_of`, from Python."""
    return error_of(pages)


@kernel
def sum_errors(estimate, truth, tolerance, page, pages):
    """pages = the sums of these estimates, by page."""
    n = u64(estimate.size)
    squares = lanes_like(estimate)
    pages[:] = 0.0
    for chunk in range((n + u64(CHUNK - 1)) >> u64(10)):
        base = u64(chunk) << u64(10)
        clear(squares)
        beyond = present = 0
        for block in range((min(u64(CHUNK), n - base) + u64(63)) >> u64(6)):
            start = base + (u64(block) << u64(6))
            more_beyond, more = add_squared_errors(
                squares, estimate, start, truth, start, min(u64(64), n - start), tolerance
            )  # fmt: skip
            beyond, present = beyond + more_beyond, present + more
        add_to_page(pages, page, base, squares, beyond, present)
