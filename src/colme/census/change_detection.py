"""Change detection: a two-sided CUSUM of an agent's samples against its own mean, and a fresh start on an alarm.

With z = (x - X') / sigma, at most 4, where X' is the mean of the n' samples before the sum began to rise, the sums
S <- max(0, S + z - d) and S <- max(0, S - z - d) rise when samples leave the mean by more than d deviations. A sum
beyond h = 28 is an alarm. The slack d = 0.15 + 2 / sqrt(n') allows for the error of X' itself. A change by g
deviations is found after about h / (g - d) samples. While a change is suspected (a sum beyond 12) an agent contributes
no mean to a census, because its mean may be a mixture of an old and a new one.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import at, helper, kernel
from colme.samples import running_mean

SLACK = 0.15
LARGEST = 4.0
"""A sample counts as at most so many deviations: under heavy tails no single one raises an alarm."""
ALARM = 28.0
SUSPICION = 12.0
"""A change is suspected beyond this sum."""
MIN_REFERENCE = 30
"""Samples before a mean is good enough to compare with."""


class ChangeDetector:
    """The CUSUMs of all agents, and their means and numbers of samples since their last alarm."""

    saved: ClassVar[tuple[str, ...]] = ("mean", "count", "_all_mean", "_all_count", "_up", "_down")

    def __init__(self, n_agents: int):
        self.mean, self.count = np.full(n_agents, np.nan), np.zeros(n_agents, np.int64)
        self._all_mean, self._all_count = np.full(n_agents, np.nan), np.zeros(n_agents, np.int64)
        self._up, self._down = np.zeros((n_agents, 3)), np.zeros((n_agents, 3))

    def observe(self, mean: NDArray[np.float64], count: NDArray[Any], sigma: Any) -> None:
        """The means and numbers of all samples after one more step."""
        _observe(mean, count, sigma, self._all_mean, self._all_count, self.mean, self.count, self._up, self._down)

    @property
    def suspected(self) -> NDArray[np.bool_]:
        """Which agents may have changed."""
        return np.maximum(self._up[:, 0], self._down[:, 0]) > SUSPICION


@kernel
def _observe(new_mean, new_count, sigma, all_mean, all_count, mean, count, up, down):
    """Update mean and count, those since the last alarm. The means and numbers of all samples are `new_mean` and
    `new_count` now, `all_mean` and `all_count` a step before; the new sample follows from the two."""
    for a in range(new_mean.size):
        if new_count[a] <= all_count[a]:
            continue
        x = new_mean[a] if new_count[a] == 1 else all_mean[a] + (new_mean[a] - all_mean[a]) * new_count[a]
        all_mean[a], all_count[a] = new_mean[a], new_count[a]
        risen = _cusum(x, 1.0, at(sigma, a), mean[a], count[a], up, a)
        fallen = _cusum(x, -1.0, at(sigma, a), mean[a], count[a], down, a)
        if risen or fallen:
            for i in range(3):
                up[a, i] = down[a, i] = 0.0
            count[a] = 0
        count[a] += 1
        mean[a] = x if count[a] == 1 else running_mean(mean[a], x, count[a])


@helper
def _cusum(x, sign, sigma, mean, count, side, a):
    """Update one side of the CUSUM of agent a; side[a] = the sum, the number of samples since it was zero, and their
    total. Returns whether it is an alarm."""
    before = count - side[a, 1]
    if before < MIN_REFERENCE:
        return False
    reference = (mean * count - side[a, 2]) / before
    total = side[a, 0] + min(sign * (x - reference) / sigma, LARGEST) - (SLACK + 2.0 / np.sqrt(before))
    if total > 0.0:
        side[a, 0] = total
        side[a, 1] += 1.0
        side[a, 2] += x
    else:
        side[a, 0] = side[a, 1] = side[a, 2] = 0.0
    return total > ALARM
