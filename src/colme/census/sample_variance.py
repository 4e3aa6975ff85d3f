"""Sample variances: in place of a sigma that is not known, and as a check of one that is.

If sigma is not known, each agent has its own variance, moderated by the average over all agents: an agent with n
samples and a sum of squared deviations S takes (4 v + S) / (4 + n - 1), where v is the average sample variance of all
agents. So v counts like 4 degrees of freedom beside the agent's own n - 1.

If sigma is known, it may be only a bound, or wrong. So agents average r = s^2 / sigma^2, and if the average is off 1 by
more than 4 standard errors and by more than 3 %, they multiply sigma^2 by it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import equation
from colme.census.histogram import LARGEST_RATIO

SCALE_ERRORS, SCALE_TOLERANCE = 4.0, 0.03
"""A known sigma is corrected if the average r is off 1 by more than both: standard errors, and this."""
ALIKE = 0.25
"""The largest squared variation of r between agents, beyond that of normal samples, if they are alike."""
FEWEST_RATIOS = 8.0
"""Agents whose r are averaged at least."""
MODERATION = 4.0
"""Degrees of freedom that the average variance counts for beside an agent's own."""


@equation
def add_square(square: Any, mean: Any, before: Any, n: Any) -> Any:
    """The sum of squared deviations after the n-th sample moved the mean (Welford, from the two means alone)."""
    return square + n * (n - 1.0) * ((mean - before) * (mean - before))


@equation
def variance_of_mean(square: Any, n: Any, average: Any, moderation: Any = MODERATION) -> Any:
    """The sampling variance of an agent's mean: its own variance, moderated by the average one, over n."""
    return (moderation * average + square) / (moderation + n - 1.0) / n


def corrected_scale(mean: Any, variance: Any, agents: Any, count: Any, before: Any) -> NDArray[np.float64]:
    """The factor of sigma^2, by the mean and variance of the r of so many agents; `before` if there are too few. They
    have about `count` samples, and the r of normal samples vary by 2 / (count - 1). A factor above 1 shrinks estimates
    more, so it also needs agents that are alike."""
    normal = 2.0 / np.maximum(count - 1.0, 1.0)
    error = np.sqrt(np.maximum(variance, normal) / np.maximum(agents, 1.0))
    off = np.abs(mean - 1.0) > np.maximum(SCALE_ERRORS * error, SCALE_TOLERANCE)
    off &= (mean < 1.0) | (variance < (normal + ALIKE) * mean * mean)
    return np.where(
        agents >= FEWEST_RATIOS, np.where(off, np.clip(mean, 1.0 / LARGEST_RATIO**2, LARGEST_RATIO), 1.0), before
    )


class SampleVariances:
    """Sums of squared deviations of all agents, and the average variance as each agent knows it."""

    saved: ClassVar[tuple[str, ...]] = ("square", "average", "mean", "count")

    def __init__(self, n_agents: int):
        self.square = np.zeros(n_agents)
        self.average = np.full(n_agents, np.nan)  # NaN: not known yet
        self.mean, self.count = np.full(n_agents, np.nan), np.zeros(n_agents, np.int64)

    def observe(self, mean: NDArray[np.float64], count: NDArray[Any]) -> None:
        """Local means and numbers of samples after one more step; the squares follow from how the means moved. An agent
        with fewer samples than before has started afresh."""
        self.square[count < self.count] = 0.0
        new = np.flatnonzero((count > 1) & (count > self.count))
        self.square[new] = add_square(self.square[new], mean[new], self.mean[new], count[new])
        self.mean[:], self.count[:] = mean, count

    def of_means(self) -> NDArray[np.float64]:
        """The sampling variance of every local mean; infinite where it is not known."""
        known = (self.count > 0) & ~np.isnan(self.average)
        out = np.full(len(self.square), np.inf)
        out[known] = variance_of_mean(self.square[known], self.count[known], self.average[known])
        return out
