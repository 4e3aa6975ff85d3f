"""Sample variances where sigma is not known: each agent's own, moderated by the average over all agents.

An agent with n samples and a sum of squared deviations S takes (4 v + S) / (4 + n - 1) for its variance, where v is the
average sample variance of all agents: v counts like 4 degrees of freedom beside the agent's own n - 1.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import equation

MODERATION = 4.0
"""Degrees of freedom that the average variance counts for beside an agent's own."""


@equation
def add_square(square: Any, mean: Any, before: Any, n: Any) -> Any:
    """The sum of squared deviations after the n-th sample moved the mean (Welford, from the two means alone)."""
    return square + n * (n - 1.0) * ((mean - before) * (mean - before))


@equation
def variance_of_mean(square: Any, n: Any, average: Any) -> Any:
    """The sampling variance of an agent's mean: its own variance, moderated by the average one, over n."""
    return (MODERATION * average + square) / (MODERATION + n - 1.0) / n


class SampleVariances:
    """Sums of squared deviations of all agents, and the average variance as each agent knows it."""

    saved: ClassVar[tuple[str, ...]] = ("square", "average", "mean", "count")

    def __init__(self, n_agents: int):
        self.square = np.zeros(n_agents)
        self.average = np.full(n_agents, np.nan)  # NaN: not known yet
        self.mean, self.count = np.full(n_agents, np.nan), np.zeros(n_agents, np.int64)

    def observe(self, mean: NDArray[np.float64], count: NDArray[Any]) -> None:
        """Local means and numbers of samples after one more step; the squares follow from how the means moved."""
        new = np.flatnonzero((count > 1) & (count > self.count))
        self.square[new] = add_square(self.square[new], mean[new], self.mean[new], count[new])
        self.mean[:], self.count[:] = mean, count

    def of_means(self) -> NDArray[np.float64]:
        """The sampling variance of every local mean; infinite where it is not known."""
        known = (self.count > 0) & ~np.isnan(self.average)
        out = np.full(len(self.square), np.inf)
        out[known] = variance_of_mean(self.square[known], self.count[known], self.average[known])
        return out
