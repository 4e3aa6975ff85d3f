"""How noisy a sample is: pooled over all agents, or each agent's own variance, moderated by everybody's.

An agent's own variance from few samples is the most expensive mistake there is. Moderation gives everybody a common
variance as if seen in d extra degrees of freedom: (d common + square) / (d + freedom). Both are measured by empirical
Bayes on the logarithms of own variances (Smyth 2004), which an outlier moves little.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme.data.fit.moments import FoldMoments

KINDS = ("pooled", "moderated")
_MOST = 1e6
"""Degrees of freedom that are as good as infinitely many."""
_LEAST = 2.0
"""Of the common variance, so that nobody believes a variance of zero from few samples."""
_FLOOR = 1e-3
"""Own variances below this share of the median one are taken for it: rounding made them."""


class Noise(NamedTuple):
    """What is known of the variance of samples."""

    pooled: float
    """NaN: nobody has two samples."""
    common: float
    """The middle of agents' variances, which the own one is moderated by."""
    freedom: float
    """Degrees of freedom that the common variance is worth beside an agent's own."""
    factor: float = 1.0
    """By how much a mean varies more than its count says (autocorrelation, common shocks)."""
    known: bool = False
    """It was given, so it has no error."""

    def of_sample(self, moments: FoldMoments, kind: str) -> NDArray[np.float64]:
        """The variance of a sample of each agent."""
        if kind == "pooled" or self.known:
            return np.full(len(moments.n), self.pooled)
        return np.asarray((self.freedom * self.common + moments.square) / (self.freedom + moments.freedom))

    def of_mean(self, moments: FoldMoments, kind: str) -> NDArray[np.float64]:
        """The variance of each agent's mean."""
        return np.asarray(self.factor * self.of_sample(moments, kind) / np.maximum(moments.worth, 1e-300))

    def freedoms(self, moments: FoldMoments, kind: str) -> NDArray[np.float64]:
        """Degrees of freedom of the variances."""
        if self.known:
            return np.full(len(moments.n), _MOST)
        every = max(float(moments.freedom.sum()), 1.0)
        return np.full(len(moments.n), every) if kind == "pooled" else np.minimum(self.freedom + moments.freedom, every)


def measured(folds: FoldMoments, sigma: float | None, *, ordered: bool) -> Noise:
    """What the samples tell of their noise. `ordered`: folds are stretches of time."""
    every = folds.merged(slice(None))
    factor = inflation(folds) if ordered else 1.0
    if sigma is not None:
        return Noise(sigma * sigma, sigma * sigma, _MOST, factor, True)
    some = (every.n > 1) & (every.freedom > 0.0)
    if not some.any():
        return Noise(math.nan, math.nan, _MOST, factor)
    pooled = float(every.square[some].sum() / every.freedom[some].sum())
    return Noise(pooled, *_common(every.square[some] / every.freedom[some], every.freedom[some]), factor)


def _common(own: NDArray[np.float64], freedom: NDArray[np.float64]) -> tuple[float, float]:
    """(common variance, its degrees of freedom): log own = log common + a log-F variable of both degrees of freedom."""
    if not own.any():
        return 0.0, _MOST
    own = np.maximum(own, _FLOOR * np.median(own[own > 0.0]))
    log = np.log(own) - _digamma(0.5 * freedom) + np.log(0.5 * freedom)
    between = float(log.var(ddof=1) - trigamma(0.5 * freedom).mean()) if len(log) > 1 else 0.0
    d = _MOST if between <= 2.0 / _MOST else min(max(2.0 * _inverse_trigamma(between), _LEAST), _MOST)
    half = np.array([0.5 * d])
    return float(np.exp(log.mean() + _digamma(half)[0] - math.log(0.5 * d))), d


def inflation(folds: FoldMoments) -> float:
    """How much more the means of the first and the second part of an agent's samples differ than those of independent
    samples would, squared. A mean of n samples tells as much of the long run as n / inflation independent ones."""
    early, late = folds.merged([0, 1, 2]), folds.merged([3, 4])
    both = (early.n > 0) & (late.n > 0) & (early.n + late.n > 2)
    within, freedom = ((one[both] + two[both]).sum() for one, two in
                       ((early.square, late.square), (early.freedom, late.freedom)))  # fmt: skip
    if within <= 0.0 or freedom <= 0.0:
        return 1.0
    share = 1.0 / early.worth[both] + 1.0 / late.worth[both]
    between = float((np.square(early.mean[both] - late.mean[both]) / share).mean())
    return max(1.0, between / float(within / freedom))


def _raised(x: NDArray[np.float64], term: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """x raised above six, where asymptotic series are exact to ten digits, and the sum of the terms on the way."""
    total, x = np.zeros_like(x), x.copy()
    for _ in range(6):
        low = x < 6.0
        total += np.where(low, term(x), 0.0)
        x += low
    return x, total


def _digamma(x: NDArray[np.float64]) -> NDArray[np.float64]:
    x, total = _raised(x, lambda x: -1.0 / x)
    y = 1.0 / (x * x)
    series = y * (1.0 / 12.0 - y * (1.0 / 120.0 - y * (1.0 / 252.0 - y * (1.0 / 240.0 - y / 132.0))))
    return np.asarray(total + np.log(x) - 0.5 / x - series)


def trigamma(x: NDArray[np.float64]) -> NDArray[np.float64]:
    x, total = _raised(x, lambda x: 1.0 / (x * x))
    y = 1.0 / (x * x)
    series = (1.0 / 6.0 - y * (1.0 / 30.0 - y * (1.0 / 42.0 - y * (1.0 / 30.0 - y * 5.0 / 66.0)))) * y / x
    return np.asarray(total + 1.0 / x + 0.5 * y + series)


def _inverse_trigamma(value: float) -> float:
    """By bisection of the logarithm: trigamma falls from infinity to zero."""
    low, high = math.log(1e-6), math.log(1e9)
    for _ in range(80):
        middle = 0.5 * (low + high)
        if trigamma(np.array([math.exp(middle)]))[0] > value:
            low = middle
        else:
            high = middle
    return math.exp(0.5 * (low + high))


def t_quantile(probability: float, freedom: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of Student's t, by the expansion of Cornish and Fisher around the normal one (Abramowitz and Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(probability)
    return np.asarray(
        z
        + (z**3 + z) / (4.0 * freedom)
        + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * freedom**2)
        + (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / (384.0 * freedom**3)
    )
