"""The metrics that a run records at each step: errors against the true means, edges, groups, coverage.

Agents without an estimate (NaN) are left out of the errors. The sums are those of `colme._core.squared_errors`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import kernel
from colme._core.squared_errors import mean_error, sum_errors
from colme._core.team import Neighborhood
from colme.errors import ColmeError

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


@kernel
def _sum_by_class(mean, count, class_, page, totals):
    """totals[k, :, c] = sum of all samples of class c among the agents of page k, how many they are, and of how many
    agents."""
    totals[:] = 0.0
    for a in range(mean.size):
        if count[a] > 0:
            k, c = a // page, class_[a]
            totals[k, 0, c] += count[a] * mean[a]
            totals[k, 1, c] += count[a]
            totals[k, 2, c] += 1.0


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


class Errors:
    """What errors are measured against: the classes, their true means, the tolerance."""

    def __init__(self, class_: NDArray[Any], tolerance: float, hood: Neighborhood | None = None):
        self.hood = Neighborhood(len(class_)) if hood is None else hood
        self.class_, self.tolerance, team = class_, tolerance, self.hood.team
        n_classes = int(team.greatest(class_.max(initial=0))) + 1
        self._member = np.full(n_classes, -1)  # some own agent of each class
        self._member[class_] = np.arange(len(class_))
        self.class_size = team.total(np.bincount(class_, minlength=n_classes)).astype(float)
        self._truth: NDArray[np.float64] | None = None
        self._class_truth = np.empty(n_classes)
        self._pages = np.zeros((self.hood.n_pages, 3))

    def class_truth(self, truth: NDArray[np.float64]) -> NDArray[np.float64]:
        """The true mean of each class, -inf where it has no agent."""
        if truth is not self._truth:
            own = np.full(len(self._member), -np.inf)
            own[self._member >= 0] = truth[self._member[self._member >= 0]]
            self._truth, self._class_truth = truth, self.hood.team.greatest(own)
        return self._class_truth

    def estimates(self, estimate: NDArray[np.float64], truth: NDArray[np.float64]) -> tuple[float, float]:
        """(mean squared error, error rate)."""
        sum_errors(estimate, truth, self.tolerance, self.hood.page, self._pages)
        return mean_error(self.hood.team.gather(self._pages))

    def means(
        self, mean: NDArray[np.float64], count: NDArray[np.int32], truth: NDArray[np.float64], out: NDArray[np.float64]
    ) -> None:  # fmt: skip
        """out[0:3] = the metrics of the run, for agents with different counts: local mean squared error and error rate,
        and the oracle's mean squared error."""
        out[:2] = self.estimates(mean, truth)
        totals = np.empty((self.hood.n_pages, 3, len(self.class_size)))
        _sum_by_class(mean, count, self.class_, self.hood.page, totals)
        total, samples, agents = self.hood.team.gather(totals).sum(axis=0)
        there = agents > 0.0
        error = total[there] / samples[there] - self.class_truth(truth)[there]
        out[2] = (agents[there] * error**2).sum() / agents.sum() if there.any() else np.nan
