"""The metrics that a run records at each step: errors against the true means, edges, groups, coverage.

Every kernel that measures errors sums their squares by the loop below. Within a chunk of agents sums run in 64 lanes
that are then added pairwise: the compiler may use vector registers, yet the result has the same bits on every machine.
Chunks are added to their page (`colme._core.team`) in order, and pages in order. Agents without an estimate (NaN) are
left out.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from colme._core.jit import CHUNK, LANES, helper, kernel, lanes_like
from colme.errors import ColmeError

u64 = np.uint64

LEVEL = 0.9
"""Of the intervals whose coverage is recorded."""


class Metric(NamedTuple):
    """All that traces, tables, figures and pages need to know about a metric."""

    name: str
    words: str
    """What it is, for whoever reads a table."""
    axis: str
    """The label of its axis."""
    of_run: bool = False
    """It does not depend on the method."""
    shown: int = 0
    """In the short table of a notebook: 1 among the first columns, 2 after them, 0 not at all."""
    spare: int = 0
    """Tables leave it out where the terminal is narrow: 1 at first, 2 later, 0 never."""


METRICS = {
    metric.name: metric
    for metric in (
        Metric("mse", "mean squared error of the estimates over all agents", "mean squared error", shown=1),
        Metric("error_rate", "share of agents whose error exceeds the tolerance",
               "share of agents beyond the tolerance", shown=2, spare=2),
        Metric("wrong_edges",
               "share of the edges between classes that remain (census: whose agents are in one group)",
               "share of edges between classes that remain", shown=2, spare=2),
        Metric("lost_edges",
               "share of the edges within a class that were cut (census: whose agents are in two groups)",
               "share of edges within a class that were cut", shown=2, spare=1),
        Metric("isolated", "agents without a neighbor", "agents without an edge", spare=1),
        Metric("n_groups", "groups that the method finds", "groups that agents know of", spare=1),
        Metric("coverage", f"share of agents whose {LEVEL:.0%} interval holds their true mean".replace("%", " %"),
               "share of intervals that hold the true mean", shown=2, spare=1),
        Metric("numbers", "numbers sent to each neighbor per step", "numbers per neighbor and step", spare=1),
        Metric("trust", "weight of the collaborative estimates, on average over agents, where a guard sets it",
               "weight of the collaborative estimate", shown=2),
        Metric("local_mse", "mean squared error of the agents' own means", "mean squared error of local means",
               of_run=True, shown=1),
        Metric("local_error_rate", "share of agents whose own mean is off by more than the tolerance",
               "share of local means beyond the tolerance", of_run=True, spare=1),
        Metric("oracle_mse", "mean squared error of the means of the true classes",
               "mean squared error of the oracle", of_run=True, shown=1, spare=1),
    )
}  # fmt: skip
"""What a trace records at a step, by name. Errors are NaN where the true means are not known, shares of edges where the
classes are not, and what a method does not have (groups, intervals, a guard)."""

OF_METHOD = tuple(name for name, metric in METRICS.items() if not metric.of_run)
"""The columns of what a method records."""
OF_RUN = tuple(name for name, metric in METRICS.items() if metric.of_run)
"""The columns of what all methods of a run share."""
MSE, ERROR_RATE, WRONG_EDGES, LOST_EDGES, ISOLATED_AGENTS, NUMBERS = (
    OF_METHOD.index(name) for name in ("mse", "error_rate", "wrong_edges", "lost_edges", "isolated", "numbers")
)
"""Columns that kernels write."""


def spare_metrics(rank: int) -> tuple[str, ...]:
    """Those of this `Metric.spare`."""
    return tuple(name for name, metric in METRICS.items() if metric.spare == rank)


def oracle_variance(sigma: float, t: int, class_size: int) -> float:
    """The oracle's exact mean squared error: sigma^2 / (t |class|) for t samples from each agent of the class.

    sigma       standard deviation of a sample
    t           samples of each agent
    class_size  agents of the class

    >>> oracle_variance(sigma=2.0, t=1000, class_size=2500)
    1.6e-06

    See also: Oracle, Trace
    """
    if not sigma > 0 or t < 1 or class_size < 1:
        raise ColmeError(f"sigma={sigma}, t={t}, class_size={class_size}: all must be positive. Try t=1000.")
    return sigma * sigma / (t * class_size)


def measured(state: Any, world: Any) -> list[float]:
    """The metrics of a method after a step: those in `OF_METHOD`, of a `State` in its `World`."""
    edges, truth = state.edges, world.truth
    values = dict.fromkeys(OF_METHOD, math.nan) | {"isolated": edges.isolated, "n_groups": edges.n_groups,
                                                   "numbers": state.numbers, "trust": state.trust}  # fmt: skip
    if truth is not None:
        values["mse"], values["error_rate"] = world.errors.estimates(state.estimate, truth)
        values["coverage"] = state.coverage(truth, LEVEL)
    if world.classes_known:
        values |= {"wrong_edges": edges.wrong_share, "lost_edges": edges.lost_share}
    return list(values.values())


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
