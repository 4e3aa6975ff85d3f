"""How good was it: errors against the true means, every step, without slowing the loop.

Sums run in 64 lanes that are added in order at the end: the compiler may use vector registers, yet the result has the
same bits on every machine. Agents without an estimate (NaN) are left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colme._jit import LANES, at, kernel, lanes_like
from colme.errors import ColmeError

u64 = np.uint64

METRICS = (
    "mse", "error_rate", "local_mse", "local_error_rate", "oracle_mse", "wrong_edges", "lost_edges", "isolated",
)  # fmt: skip
"""What a trace records at a step.

mse, error_rate              mean squared error of the estimates; share of agents with |estimate - mean| > tolerance
local_mse, local_error_rate  the same for every agent's own mean
oracle_mse                   the same for the mean of the true class
wrong_edges, lost_edges      share of edges between classes still alive; share of edges within a class that were cut
isolated                     agents without an edge
"""


@kernel
def squared_errors(estimate, truth, tolerance):  # type: ignore[no-untyped-def]
    """(sum of squared errors, agents beyond the tolerance, agents with an estimate)."""
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
    return total, beyond, present


@kernel
def class_squared_errors(mean, count, class_, class_truth, total, weight, present):  # type: ignore[no-untyped-def]
    """Sum over agents with a sample of (mean of all samples of the class - truth)^2. The last three are scratch space
    (4, classes): four rows taken in turn, so that an addition need not wait for the one before."""
    total[:] = 0.0
    weight[:] = 0.0
    present[:] = 0.0
    for a in range(mean.size):
        row, c = a & 3, class_[a]
        n = float(at(count, a))
        if n > 0.0:
            total[row, c] += n * mean[a]
            weight[row, c] += n
            present[row, c] += 1.0
    result = 0.0
    for c in range(class_truth.size):
        agents = present[0, c] + present[1, c] + present[2, c] + present[3, c]
        if agents > 0.0:
            samples = weight[0, c] + weight[1, c] + weight[2, c] + weight[3, c]
            error = (total[0, c] + total[1, c] + total[2, c] + total[3, c]) / samples - class_truth[c]
            result += agents * error * error
    return result


@kernel
def class_squared_errors_equal(mean, class_, class_truth, class_size, total):  # type: ignore[no-untyped-def]
    """The same where every agent has the same number of samples."""
    total[:] = 0.0
    for a in range(mean.size):
        total[a & 3, class_[a]] += mean[a]
    result = 0.0
    for c in range(class_truth.size):
        if class_size[c] > 0.0:
            error = (total[0, c] + total[1, c] + total[2, c] + total[3, c]) / class_size[c] - class_truth[c]
            result += class_size[c] * error * error
    return result


def oracle_variance(sigma: float, t: int, class_size: int) -> float:
    """The oracle's exact mean squared error: sigma^2 / (t |class|) for t samples from each agent of the class."""
    if not sigma > 0 or t < 1 or class_size < 1:
        raise ColmeError(f"sigma={sigma}, t={t}, class_size={class_size}: all must be positive.")
    return sigma * sigma / (t * class_size)


class Judge:
    """Computes the metrics of a step."""

    def __init__(self, class_: NDArray[np.integer], tolerance: float):
        self.class_, self.tolerance = class_, tolerance
        n_classes = int(class_.max()) + 1
        self.size = np.bincount(class_, minlength=n_classes).astype(float)
        self._first = np.full(n_classes, -1)
        self._first[class_[::-1]] = np.arange(len(class_))[::-1]
        self._scratch = [np.empty((4, n_classes)) for _ in range(3)]

    def errors(self, estimate: NDArray[np.float64], truth: NDArray[np.float64]) -> tuple[float, float]:
        """(mean squared error, share beyond the tolerance) over the agents who have an estimate."""
        square, beyond, present = squared_errors(estimate, truth, self.tolerance)
        return (square / present, beyond / present) if present else (np.nan, np.nan)

    def oracle_mse(
        self, mean: NDArray[np.float64], count: NDArray[np.int32] | None, truth: NDArray[np.float64]
    ) -> float:
        class_truth = truth[self._first]
        if count is None:
            square = class_squared_errors_equal(mean, self.class_, class_truth, self.size, self._scratch[0])
            return float(square / len(mean))
        present = np.count_nonzero(count)
        square = class_squared_errors(mean, count, self.class_, class_truth, *self._scratch)
        return float(square / present) if present else np.nan
