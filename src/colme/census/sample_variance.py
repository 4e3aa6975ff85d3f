"""The sampling variance of local means: from a known sigma, which sample variances check, or from these alone.

If sigma is not known, each agent has its own variance, moderated by the average over all agents: an agent with n
samples and a sum of squared deviations S takes (4 v + S) / (4 + n - 1), where v is the average sample variance of all
agents. So v counts like 4 degrees of freedom beside the agent's own n - 1.

If sigma is known, it may be only a bound, or wrong. So agents average r = s^2 / sigma^2, and if the average is off 1 by
more than 4 standard errors and by more than 3 %, they multiply sigma^2 by it.

Either way they look whether the variance is a function of the mean (`colme.census.variance_function`). If so, agents
that do not know sigma take v for their own variance, which tells nothing else then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colme._core.jit import at, equation, kernel
from colme.census.histogram import (
    BINARY,
    LARGEST_RATIO,
    average_products,
    average_ratio,
    average_variance,
    bin_products,
    bin_ratios,
    bin_variances,
    channel,
    has_products,
    in_channels,
)
from colme.census.variance_function import CONSTANT, binomial_function, fitted_function, is_constant, products
from colme.support.arrays import Array, Floats, Integers, Mask

SCALE_ERRORS, SCALE_TOLERANCE = 4.0, 0.03
"""A known sigma is corrected if the average r is off 1 by more than both: standard errors, and this."""
ALIKE = 0.25
"""The largest squared variation of r between agents, beyond that of normal samples, if they are alike."""
UNEVEN = 1.25
"""The variance of r between agents that are uneven, over that of normal samples; and two standard errors."""
FEWEST_RATIOS = 8.0
"""Agents whose r are averaged at least."""
ROUNDING = 1e-6
"""How far sums may be off that would be equal without rounding."""
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


def corrected_scale(mean: Any, variance: Any, agents: Any, count: Any) -> Floats:
    """The factor of sigma^2, by the mean and variance of the r of so many agents. They have about `count` samples, and
    the r of normal samples vary by 2 / (count - 1). A factor above 1 shrinks estimates more, so it also needs agents
    that are alike."""
    normal = 2.0 / np.maximum(count - 1.0, 1.0)
    error = np.sqrt(np.maximum(variance, normal) / np.maximum(agents, 1.0))
    off = np.abs(mean - 1.0) > np.maximum(SCALE_ERRORS * error, SCALE_TOLERANCE)
    off &= (mean < 1.0) | (variance < (normal + ALIKE) * mean * mean)
    return np.where(off, _within_reason(mean), 1.0)


def _within_reason(factor: Any) -> Any:
    return np.clip(factor, 1.0 / LARGEST_RATIO**2, LARGEST_RATIO)


def are_uneven(mean: Any, variance: Any, agents: Any, count: Any) -> Mask:
    """Whether the r of so many agents vary more than those of normal samples. (If they do not, to ask why costs only
    messages.)"""
    freedom = np.maximum(count - 1.0, 1.0)
    error = np.sqrt((2.0 + 12.0 / freedom) / np.maximum(agents, 1.0))
    return np.asarray(variance > 2.0 / freedom * mean * mean * (UNEVEN + 2.0 * error))


@kernel
def _observe(mean, count, mean_before, count_before, square, earlier):
    for a in range(mean.size):
        n = at(count, a)
        if n < count_before[a]:
            square[a] = 0.0
            earlier[a] = 0.0
        if n > 1 and n > count_before[a]:
            square[a] = add_square(square[a], mean[a], mean_before[a], n)
        mean_before[a], count_before[a] = mean[a], n


class SamplingNoise:
    """The sampling variances of the means of some agents, as each of them knows it."""

    saved = (
        "mean", "square", "count", "average", "factor", "uneven", "earlier", "frame", "function",
    )  # fmt: skip

    def __init__(self, n_agents: int, sigma: Any):
        self.variance = None if sigma is None else np.broadcast_to(np.square(np.float64(sigma)), n_agents)
        self.mean, self.count = np.full(n_agents, np.nan), np.zeros(n_agents, np.int64)
        self.square = np.zeros(n_agents)  # sums of squared deviations of the samples
        self.average = np.full(n_agents, np.nan)  # the average sample variance of all agents; NaN: not known
        self.factor = np.ones(n_agents)  # of a known sigma^2, see `corrected_scale`
        self.uneven = np.zeros(n_agents, bool)  # see `are_uneven`
        self.earlier = np.zeros((n_agents, 3))  # mean, square and count at the last check
        self.frame = np.tile(CONSTANT[:2], (n_agents, 1))  # center and scale of means at that check
        self.function = np.tile(CONSTANT, (n_agents, 1))  # of the mean, which the variance is

    def observe(self, mean: Floats, count: Array) -> None:
        """Local means and numbers of samples after one more step; the squares follow from how the means moved. An agent
        with fewer samples than before has started afresh."""
        afresh = count < self.count
        self.square[afresh], self.earlier[afresh] = 0.0, 0.0
        new = np.flatnonzero((count > 1) & (count > self.count))
        self.square[new] = add_square(self.square[new], mean[new], self.mean[new], count[new])
        self.mean[:], self.count[:] = mean, count

    def observe_all(self, mean: Floats, count: Any) -> None:
        """`observe` for many agents, in a kernel; `count` may be one number for all of them."""
        _observe(mean, count, self.mean, self.count, self.square, self.earlier)

    def of_means(self) -> Floats:
        """The sampling variance of every local mean; infinite where it is not known."""
        with np.errstate(divide="ignore"):
            if self.variance is not None:
                return np.asarray(self.variance * self.factor / self.count)
            common, own = self.average / self.count, variance_of_mean(self.square, self.count, self.average)
        found = np.where(is_constant(self.function), own, common)
        return np.where((self.count > 0) & ~np.isnan(found), found, np.inf)

    def contributions(self, frame: Floats | None) -> list[tuple[Integers, Any, Any]]:
        """What agents with two samples add to a census: the agents, codes and masses of each part. In a check it is
        more, and `frame` as in `products`; else it is None."""
        parts, known = [], self.average if self.variance is None else self.variance
        some = np.flatnonzero(self.count > 1)
        if self.variance is None:
            parts.append((some, *bin_variances(self.square[some], self.count[some])))
        if frame is not None:
            some = some[~np.isnan(known[some])]
            ratio = self.square[some] / (self.count[some] - 1.0) / known[some]
            parts.append((some, *bin_ratios(ratio)))
            mean, n = self.mean[some], self.count[some]  # of samples that are 0 or 1, squares follow from means
            binary = some[np.abs(self.square[some] - n * mean * (1.0 - mean)) <= ROUNDING * n]
            parts.append((binary, *in_channels(BINARY, np.ones((len(binary), 1)))))
            some = some[self.uneven[some] & (frame[some, 1] > 0.0)]
            now = np.stack([self.mean, self.square, self.count], axis=-1)
            parts.append((some, *bin_products(products(now[some], self.earlier[some], frame[some], known[some]))))
            self.earlier, self.frame = np.where(self.count[:, None] > 0, now, 0.0), frame
        return parts

    def learn(self, codes: Integers, masses: Array, agents: Any) -> None:
        """From the averages of what was contributed, each agent from its own row of masses, of so many agents."""
        if self.variance is None:
            self.average = average_variance(codes, masses, self.average)
        mean, variance, part = average_ratio(codes, masses)
        checked = agents * part >= FEWEST_RATIOS
        if not checked.any():
            return
        function, skewed = np.tile(CONSTANT, (len(mean), 1)), np.zeros(len(mean), bool)
        if has_products(codes):
            function, skewed = fitted_function(average_products(codes, masses), agents, self.frame)
        binary = channel(codes, masses, BINARY) >= (1.0 - ROUNDING) * part
        if self.variance is None:
            function[~skewed] = CONSTANT
            binary &= self.average > 0.0
            function[binary] = binomial_function(self.average[binary])
        else:
            scale = corrected_scale(mean, variance, agents * part, self.earlier[:, 2])
            scale = np.where(is_constant(function) & ~binary, scale, _within_reason(mean))
            self.factor = np.where(checked, scale, self.factor)
            function[binary] = binomial_function((self.variance * self.factor)[binary])
        self.uneven = np.where(checked, are_uneven(mean, variance, agents * part, self.earlier[:, 2]), self.uneven)
        self.function = np.where(checked[:, None], function, self.function)
