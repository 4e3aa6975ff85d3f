"""How good was it: errors against the true means, every step, without slowing the loop.

Sums run in 64 lanes that are added in order at the end: the compiler may use vector registers, yet the result has the
same bits on every machine. Agents without an estimate (NaN) are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._jit import LANES, helper, kernel, lanes_like
from colme.errors import ColmeError

u64 = np.uint64

FEW_CLASSES = 4
"""Up to here the oracle's sums take one vector pass per class."""

OF_METHOD = ("mse", "error_rate", "wrong_edges", "lost_edges", "isolated")
OF_RUN = ("local_mse", "local_error_rate", "oracle_mse")
METRICS = OF_METHOD + OF_RUN
"""What a trace records at a step.

mse, error_rate              mean squared error of the estimates; share of agents with |estimate - mean| > tolerance
local_mse, local_error_rate  the same for every agent's own mean
oracle_mse                   the same for the mean of the true class
wrong_edges, lost_edges      share of edges between classes still alive; share of edges within a class that were cut
isolated                     agents without an edge

Errors are NaN where the true means are not known, shares of edges where the classes are not.
"""


@helper
def squared_errors(estimate, truth, tolerance):
    """(mean squared error, share of agents beyond the tolerance) over the agents with an estimate; NaN if none has."""
    n = u64(estimate.size)
    square = lanes_like(estimate)
    for lane in range(u64(LANES)):
        square[lane] = 0.0
    beyond = present = 0
    for block in range((n + u64(63)) >> u64(6)):
        start = u64(block) << u64(6)
        for lane in range(min(u64(64), n - start)):
            error = estimate[start + u64(lane)] - truth[start + u64(lane)]
            there = error == error
            square[lane] += error * error if there else 0.0
            beyond += 1 if abs(error) > tolerance else 0
            present += 1 if there else 0
    total = 0.0
    for lane in range(u64(LANES)):
        total += square[lane]
    if present == 0:
        return np.nan, np.nan
    return total / present, beyond / present


@helper
def class_sum(mean, class_, c):
    """Sum over the agents of class c: while classes are few, a vector pass for each beats adding one by one."""
    n = u64(mean.size)
    total = lanes_like(mean)
    for lane in range(u64(LANES)):
        total[lane] = 0.0
    for block in range((n + u64(63)) >> u64(6)):
        start = u64(block) << u64(6)
        for lane in range(min(u64(64), n - start)):
            total[lane] += mean[start + u64(lane)] if class_[start + u64(lane)] == c else 0.0
    result = 0.0
    for lane in range(u64(LANES)):
        result += total[lane]
    return result


@kernel
def judge_estimates(estimate, truth, tolerance, out, k):
    """out[0:2, k] = mean squared error and error rate."""
    out[0, k], out[1, k] = squared_errors(estimate, truth, tolerance)


@kernel
def judge_means(mean, count, truth, tolerance, class_, class_truth, class_size, scratch, out, k):
    """out[:, k] = local mean squared error and error rate, and the oracle's mean squared error.

    scratch[i, row, class]: sums of samples, samples, agents; four rows taken in turn, so that an addition need not
    wait for the one before. `count` is None where all agents have equally many samples."""
    out[0, k], out[1, k] = squared_errors(mean, truth, tolerance)
    scratch[:] = 0.0
    few = count is None and class_truth.size <= FEW_CLASSES
    if few:
        for c in range(class_truth.size):
            scratch[0, 0, c] = class_sum(mean, class_, c)
    for a in range(0 if few else mean.size):
        row, c = a & 3, class_[a]
        if count is None:
            scratch[0, row, c] += mean[a]
        elif count[a] > 0:
            scratch[0, row, c] += count[a] * mean[a]
            scratch[1, row, c] += count[a]
            scratch[2, row, c] += 1.0
    square = present = 0.0
    for c in range(class_truth.size):
        agents = scratch[2, 0, c] + scratch[2, 1, c] + scratch[2, 2, c] + scratch[2, 3, c]
        samples = scratch[1, 0, c] + scratch[1, 1, c] + scratch[1, 2, c] + scratch[1, 3, c]
        if count is None:
            samples = agents = class_size[c]
        if agents > 0.0:
            pooled = (scratch[0, 0, c] + scratch[0, 1, c] + scratch[0, 2, c] + scratch[0, 3, c]) / samples
            square += agents * (pooled - class_truth[c]) ** 2
            present += agents
    out[2, k] = square / present if present > 0.0 else np.nan


def oracle_variance(sigma: float, t: int, class_size: int) -> float:
    """The oracle's exact mean squared error: sigma^2 / (t |class|) for t samples from each agent of the class.

    >>> oracle_variance(sigma=2.0, t=1000, class_size=2500)
    1.6e-06
    """
    if not sigma > 0 or t < 1 or class_size < 1:
        raise ColmeError(f"sigma={sigma}, t={t}, class_size={class_size}: all must be positive. Try t=1000.")
    return sigma * sigma / (t * class_size)


class Judge:
    """Writes the errors of a step into column k of a table."""

    def __init__(self, class_: NDArray[Any], tolerance: float):
        self.class_, self.tolerance = class_, tolerance
        n_classes = int(class_.max()) + 1
        self._member = np.zeros(n_classes, np.int64)  # some agent of each class
        self._member[class_] = np.arange(len(class_))
        self._size = np.bincount(class_, minlength=n_classes).astype(float)
        self._scratch = np.empty((3, 4, n_classes))
        self._truth: NDArray[np.float64] | None = None
        self._class_truth = np.empty(n_classes)

    def estimates(self, estimate: NDArray[np.float64], truth: NDArray[np.float64], out: NDArray[Any], k: int) -> None:
        judge_estimates(estimate, truth, self.tolerance, out, k)

    def means(
        self, mean: NDArray[np.float64], count: NDArray[np.int32] | None, truth: NDArray[np.float64],
        out: NDArray[np.float64], k: int,
    ) -> None:  # fmt: skip
        if truth is not self._truth:
            self._truth, self._class_truth = truth, truth[self._member]
        judge_means(
            mean, count, truth, self.tolerance, self.class_, self._class_truth, self._size, self._scratch, out, k
        )
