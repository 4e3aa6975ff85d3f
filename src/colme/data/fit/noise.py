"""`measure_noise`: the variance of a sample, pooled over all agents or each agent's own, moderated by the others.

An agent's own variance, estimated from few samples, is too unreliable to use alone. Moderation adds a common variance
with d extra degrees of freedom: (d common + square) / (d + freedom). Both `common` and d are estimated by empirical
Bayes from the logarithms of the agents' own variances (Smyth 2004), which an outlier moves little.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import special

from colme.data.fit.laws import LAWS
from colme.data.moments import EARLY, LATE, FoldMoments
from colme.support.arrays import Floats

KINDS = ("pooled", "moderated")
_MOST = 1e6
"""Degrees of freedom that are treated as infinitely many."""
_LEAST = 2.0
"""Fewest degrees of freedom of the common variance, so that few equal samples never give a variance of zero."""
_FEW = 20
"""Fewest agents to tell whether own variances persist."""
_WORTH = 0.5
"""Degrees of freedom from which on a variance says something: an agent's may have 1e-9, with a short half-life."""
_FLOOR = 1e-3
"""Own variances below this share of the median are raised to it: they come from rounding."""


class Noise(NamedTuple):
    """The variance of samples, as estimated or given."""

    pooled: float
    """One variance for all agents; NaN if no agent has two samples."""
    common: float
    """The typical variance of an agent, towards which its own variance is moderated."""
    freedom: float
    """The degrees of freedom of the common variance (d above)."""
    factor: float = 1.0
    """Of the variance of a mean, where samples depend on each other and squares do not say so."""
    known: bool = False
    """Whether the variance was given, so that it has no error."""
    law: str = ""
    """The law of rates or counts, whose variance follows from the rate."""
    persistence: float = 1.0
    """The part of the differences between agents' own variances that is found again in other samples, 0 to 1: low if
    own variances differ by chance only, as under skewed noise, where an agent of small variance has a small mean."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of variances that estimators may use."""
        return ("pooled", self.law) if self.law else KINDS

    def of_sample(self, moments: FoldMoments, kind: str) -> Floats:
        """The variance of a sample of each agent."""
        if kind == "pooled" or self.known:
            return np.full(len(moments.n), self.pooled)
        if self.law:  # at the agent's rate with a little of the common one: an agent without an event has a variance
            law, n, rate = LAWS[self.law], moments.worth, _common_rate(moments)
            little = law.little(rate)
            return law.variance((n * moments.mean + little * rate) / (n + little))
        return (self.freedom * self.common + moments.square) / (self.freedom + moments.freedom)

    def of_mean(self, moments: FoldMoments, kind: str) -> Floats:
        """The variance of each agent's mean."""
        return self.factor * self.of_sample(moments, kind) / np.maximum(moments.worth, 1e-300)

    def freedoms(self, moments: FoldMoments, kind: str) -> Floats:
        """The degrees of freedom of each agent's variance."""
        if self.known or self.law:
            return np.full(len(moments.n), _MOST)
        every = max(float(moments.freedom.sum()), 1.0)
        return np.full(len(moments.n), every) if kind == "pooled" else np.minimum(self.freedom + moments.freedom, every)


def measure_noise(folds: FoldMoments, sigma: float | None, *, law: str = "", factor: float = 1.0) -> Noise:
    """The noise of the samples, or `sigma` if it is given, or that of the law of rates or counts; `factor`: of the
    variances of means where samples depend on each other and squares do not say so."""
    every = folds.merged()
    if law:
        pooled = float(LAWS[law].variance(np.array(_common_rate(every))))
        return Noise(pooled, pooled, _MOST, law=law)
    if sigma is not None:
        return Noise(sigma * sigma, sigma * sigma, _MOST, factor, True)
    some = (every.n > 1) & (every.freedom > 0.0)
    if every.freedom[some].sum() < _WORTH:
        return Noise(math.nan, math.nan, _MOST, factor)
    pooled = float(every.square[some].sum() / every.freedom[some].sum())
    some &= every.freedom >= _WORTH
    if not some.any():
        return Noise(pooled, pooled, _MOST, factor)
    common, freedom = _common(every.square[some] / every.freedom[some], every.freedom[some])
    return Noise(pooled, common, freedom, factor, persistence=_persistence(folds, common, freedom))


def _common_rate(moments: FoldMoments) -> float:
    """The rate of all agents together, with half a success or event more, so that it is not 0 or 1."""
    return (float(moments.worth @ moments.mean) + 0.5) / (float(moments.worth.sum()) + 1.0)


def _persistence(folds: FoldMoments, common: float, freedom: float) -> float:
    """The slope of agents' variances in some of their samples against the moderated ones of their other samples. It is
    1 for normal samples."""
    one, two = folds.merged(EARLY), folds.merged(LATE)
    both = (one.n > 1) & (two.n > 1)
    if both.sum() < _FEW:
        return 0.0
    moderated = ((freedom * common + one.square) / (freedom + one.freedom))[both]
    weight = two.freedom[both] / two.freedom[both].sum()
    away = moderated - float((weight * moderated).sum())
    size = float((weight * away * away).sum())
    slope = float((weight * away * (two.square / np.maximum(two.freedom, 1e-300))[both]).sum()) / size if size else 1.0
    return min(max(slope, 0.0), 1.0)


def _common(own: Floats, freedom: Floats) -> tuple[float, float]:
    """(common variance, its degrees of freedom), from log own = log common + log F, F with both degrees of freedom."""
    if not own.any():
        return 0.0, _MOST
    own = np.maximum(own, _FLOOR * np.median(own[own > 0.0]))
    log = np.log(own) - special.digamma(0.5 * freedom) + np.log(0.5 * freedom)
    between = float(log.var(ddof=1) - trigamma(0.5 * freedom).mean()) if len(log) > 1 else 0.0
    d = _MOST if between <= 2.0 / _MOST else min(max(2.0 * _inverse_trigamma(between), _LEAST), _MOST)
    half = np.array([0.5 * d])
    return float(np.exp(log.mean() + special.digamma(half)[0] - math.log(0.5 * d))), d


def judging_variances(
    moments: FoldMoments, noise: Noise, successive: Floats | None
) -> Floats:  # fmt: skip
    """The variance of a sample of each agent to judge estimates by: its own, which is unbiased for any law of noise,
    or that of all agents for an agent with one sample.

    In time order it is half the mean squared difference of successive samples. Drift hardly changes that, and positive
    autocorrelation makes it smaller, so a judge errs on the side of the local means. Negative autocorrelation would
    make it larger, so it is then multiplied by the variance of a mean relative to independent samples (for AR(1))."""
    if noise.known:
        return np.full(len(moments.n), noise.pooled)
    if noise.law == "Poisson":
        return moments.mean
    square, freedom = moments.square, moments.freedom
    if successive is not None:
        pairs = np.asarray(moments.n - 1.0, np.float64)
        within = float(square.sum()) / max(float(freedom.sum()), 1e-300)
        relative = float(successive.sum()) / max(float(pairs.sum()), 1.0) / within if within > 0.0 else 1.0
        if relative > 1.0:  # 1 - rho; the variance of a mean is (1 + rho) / (1 - rho) of that of independent samples
            successive = successive * max(2.0 - relative, 0.0) / (relative * relative)
        square, freedom = successive, pairs
    every = float(square.sum()) / max(float(freedom.sum()), 1e-300)
    return np.where(freedom > 0.0, square / np.maximum(freedom, 1e-300), every)


def trigamma(x: Floats) -> Floats:
    """The variance of the logarithm of a gamma variable of shape x."""
    return special.polygamma(1, x)


def _inverse_trigamma(value: float) -> float:
    """The x with trigamma(x) = value, by Newton's method on 1 / trigamma (Smyth 2004, appendix).

    1 / trigamma is convex and nearly linear, so from 1/2 + 1/value the steps converge monotonically."""
    x = 0.5 + 1.0 / value
    for _ in range(50):
        seen = float(special.polygamma(1, x))
        step = seen * (1.0 - seen / value) / float(special.polygamma(2, x))
        x += step
        if abs(step) <= 1e-15 * x:
            break
    return x
