"""The metrics that a run records at each step: errors against the true means, edges, groups, coverage.

Agents without an estimate (NaN) are left out of the errors. The sums are those of `colme._core.squared_errors`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import kernel
from colme._core.squared_errors import mean_squared_error
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
def judge_estimates(estimate, truth, tolerance):
    """(mean squared error, error rate)."""
    return mean_squared_error(estimate, truth, tolerance)


@kernel
def judge_means(mean, count, truth, tolerance, class_, class_truth, out):
    """out = local mean squared error and error rate, and the oracle's mean squared error, of agents with different
    counts of samples."""
    out[0], out[1] = mean_squared_error(mean, truth, tolerance)
    totals, samples, agents = np.zeros(class_truth.size), np.zeros(class_truth.size), np.zeros(class_truth.size)
    for a in range(mean.size):
        if count[a] > 0:
            totals[class_[a]] += count[a] * mean[a]
            samples[class_[a]] += count[a]
            agents[class_[a]] += 1.0
    square = present = 0.0
    for c in range(class_truth.size):
        if agents[c] > 0.0:
            square += agents[c] * (totals[c] / samples[c] - class_truth[c]) ** 2
            present += agents[c]
    out[2] = square / present if present > 0.0 else np.nan


def oracle_variance(sigma: float, t: int, class_size: int) -> float:
    """The oracle's exact mean squared error: sigma^2 / (t |class|) for t samples from each agent of the class.

    >>> oracle_variance(sigma=2.0, t=1000, class_size=2500)
    1.6e-06
    """
    if not sigma > 0 or t < 1 or class_size < 1:
        raise ColmeError(f"sigma={sigma}, t={t}, class_size={class_size}: all must be positive. Try t=1000.")
    return sigma * sigma / (t * class_size)


class Judge:
    """What errors are measured against: the classes, their true means, the tolerance."""

    def __init__(self, class_: NDArray[Any], tolerance: float):
        self.class_, self.tolerance = class_, tolerance
        n_classes = int(class_.max()) + 1
        self._member = np.zeros(n_classes, np.int64)  # some agent of each class
        self._member[class_] = np.arange(len(class_))
        self.class_size = np.bincount(class_, minlength=n_classes).astype(float)
        self._truth: NDArray[np.float64] | None = None
        self._class_truth = np.empty(n_classes)

    def class_truth(self, truth: NDArray[np.float64]) -> NDArray[np.float64]:
        """The true mean of each class."""
        if truth is not self._truth:
            self._truth, self._class_truth = truth, truth[self._member]
        return self._class_truth

    def estimates(self, estimate: NDArray[np.float64], truth: NDArray[np.float64]) -> tuple[float, float]:
        """(mean squared error, error rate)."""
        return judge_estimates(estimate, truth, self.tolerance)

    def means(
        self, mean: NDArray[np.float64], count: NDArray[np.int32], truth: NDArray[np.float64], out: NDArray[np.float64]
    ) -> None:  # fmt: skip
        """out[0:3] = the metrics of the run, for agents with different counts."""
        judge_means(mean, count, truth, self.tolerance, self.class_, self.class_truth(truth), out)
