"""The metrics that a run records at each step: errors against the true means, edges, groups, coverage.

Agents without an estimate (NaN) are left out of the errors. The sums are those of `colme._core.squared_errors`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import kernel
from colme._core.squared_errors import mean_error, page_sums, sum_errors
from colme._core.team import Neighborhood
from colme.errors import ColmeError

OF_METHOD = ("mse", "error_rate", "wrong_edges", "lost_edges", "isolated", "n_groups", "coverage", "numbers", "trust")
OF_RUN = ("local_mse", "local_error_rate", "oracle_mse")
WRONG_EDGES, LOST_EDGES, NUMBERS = (OF_METHOD.index(name) for name in ("wrong_edges", "lost_edges", "numbers"))
LEVEL = 0.9
"""Of the intervals whose coverage is recorded."""
METRICS = OF_METHOD + OF_RUN
"""What a trace records at a step.

mse, error_rate              mean squared error of the estimates; share of agents with |estimate - mean| > tolerance
local_mse, local_error_rate  the same for every agent's own mean
oracle_mse                   the same for the mean of the true class
wrong_edges, lost_edges      share of edges between classes still alive; share of edges within a class that were cut
isolated                     agents without an edge
n_groups                     groups that agents know of, on average (methods with groups of their own: census)
coverage                     share of agents whose 90 % interval holds their true mean (methods with intervals: census)
numbers                      numbers that an agent sent to each neighbor per step so far (where a method says so)
trust                        weight of the collaborative estimates, on average over agents (where there is a guard)

Errors are NaN where the true means are not known, shares of edges where the classes are not.
"""


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
        self._pages = page_sums(self.hood.n_pages)

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
