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
    error: bool = False
    """Of the estimates, from the sums over their errors (`errors_of`)."""
    of_run: bool = False
    """It does not depend on the method."""
    shown: int = 0
    """In the short table of a notebook: 1 among the first columns, 2 after them, 0 not at all."""
    spare: int = 0
    """Tables leave it out where the terminal is narrow: 1 at first, 2 later, 0 never."""


METRICS = {
    metric.name: metric
    for metric in (
        Metric("mse", "mean squared error of the estimates over all agents", "mean squared error", error=True, shown=1),
        Metric("error_rate", "share of agents whose error exceeds the tolerance",
               "share of agents beyond the tolerance", error=True, shown=2, spare=2),
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
ERRORS = tuple(name for name, metric in METRICS.items() if metric.error)
"""The first columns of what a method records, in the order of `errors_of`."""
N_ERRORS = len(ERRORS)
WRONG_EDGES, LOST_EDGES, ISOLATED_AGENTS, NUMBERS = (
    OF_METHOD.index(name) for name in ("wrong_edges", "lost_edges", "isolated", "numbers")
)
"""Columns that kernels write beside the errors."""


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
        values |= zip(ERRORS, world.errors.estimates(state.estimate, truth), strict=True)
        if state.posterior is not None:
            n_held, n_known = world.team.total([np.count_nonzero(each) for each in state.posterior.held(truth, LEVEL)])
            values["coverage"] = n_held / n_known if n_known else math.nan
    if world.classes_known:
        values |= {"wrong_edges": edges.wrong_share, "lost_edges": edges.lost_share}
    return list(values.values())


NOT_KNOWN = np.empty(0)
"""For kernels, a truth that is not known. An array like any other truth, so that nothing is compiled twice."""
SQUARES, BEYOND, PRESENT, N_SUMS = range(4)
"""What is summed by page, (pages, N_SUMS): squared errors, agents beyond the tolerance, agents with an estimate."""


@helper
def clear(lanes):
    """Begin a sum: all lanes are zero."""
    for lane in range(u64(LANES)):
        lanes[lane] = 0.0


@helper
def total(lanes):
    """The sum of the lanes, which are used up: the second half is added to the first, and so on."""
    half = u64(LANES // 2)
    while half > u64(0):
        for lane in range(half):
            lanes[lane] += lanes[lane + half]
        half >>= u64(1)
    return lanes[0]


@helper
def add_errors(sums, values, truth, first, size, tolerance):
    """Add the errors of a chunk of agents, values[:size] against truth[first:], to the sums of its page; nothing where
    the truth is not known."""
    if truth.size == 0:
        return
    squares, beyond, present = lanes_like(values), 0, 0
    clear(squares)
    for block in range((size + u64(63)) >> u64(6)):
        start = u64(block) << u64(6)
        for lane in range(min(u64(64), size - start)):
            error = values[start + u64(lane)] - truth[first + start + u64(lane)]
            there = error == error
            squares[lane] += error * error if there else 0.0
            beyond += 1 if abs(error) > tolerance else 0
            present += 1 if there else 0
    sums[SQUARES] += total(squares)
    sums[BEYOND] += beyond
    sums[PRESENT] += present


@helper
def errors_of(pages):
    """The metrics in `ERRORS`, over the agents with an estimate; NaN if none has one."""
    squares = beyond = present = 0.0
    for k in range(pages.shape[0]):
        squares += pages[k, SQUARES]
        beyond += pages[k, BEYOND]
        present += pages[k, PRESENT]
    present = present if present > 0.0 else np.nan
    return squares / present, beyond / present


@kernel
def all_errors_of(pages):
    """`errors_of`, from Python."""
    return errors_of(pages)


@kernel
def sum_errors(estimate, truth, tolerance, page, pages):
    """pages = the sums of these estimates, by page."""
    n = u64(estimate.size)
    pages[:] = 0.0
    for chunk in range((n + u64(CHUNK - 1)) >> u64(10)):
        base = u64(chunk) << u64(10)
        size = min(u64(CHUNK), n - base)
        add_errors(pages[base // u64(page)], estimate[base : base + size], truth, base, size, tolerance)
