"""The posteriors of many agents where there is no compiler: what the kernels of `colme.census.posterior` compute agent
by agent, component by component instead, in NumPy.

A gateway with ten thousand local agents (`colme.node.gateway`) takes a few milliseconds for it; kernels would take half
a second without numba, and numba a hundred megabytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np

from colme._core.normal import cumulative
from colme.census.mixture import TINY
from colme.census.posterior import MixturePrior, Posteriors, in_component
from colme.noise import variance_at
from colme.support.arrays import Floats, Integers

_EXACT = 1e-6
"""The last step of a search for a quantile, in deviations of the narrowest component."""


def posteriors(mean: Floats, noise: Floats, prior: MixturePrior) -> Posteriors:
    """`colme.census.posterior.posteriors`."""
    found = Posteriors.room(len(mean))
    found.estimate[:], found.variance[:], found.kept[:], found.probability[:] = mean, noise, 1.0, 0.0
    for agents, row in _by_row(mean, noise, prior):
        p, middle, variance, kept = _components(mean[agents], noise[agents], prior, row)
        value = (p * middle).sum(axis=0)
        found.estimate[agents] = value
        found.variance[agents] = (p * (variance + (middle - value) ** 2)).sum(axis=0)
        found.kept[agents] = (p * kept).sum(axis=0)
        best = np.argmax(p[:-1], axis=0)
        found.group[agents] = prior.first_group[row] + best
        found.probability[agents] = p[best, np.arange(len(agents))]
    return found


def posterior_interval(level: float, mean: Floats, noise: Floats, prior: MixturePrior) -> tuple[Floats, Floats]:
    """`colme.census.posterior.posterior_interval`."""
    lower, upper = (_quantiles(tail, mean, noise, prior) for tail in (0.5 - 0.5 * level, 0.5 + 0.5 * level))
    return lower, upper


def _quantiles(level: float, mean: Any, noise: Any, prior: MixturePrior) -> Floats:
    """The values below which the true means lie with posterior probability `level`."""
    z = NormalDist().inv_cdf(level)
    with np.errstate(invalid="ignore"):
        out = mean + z * np.sqrt(noise)  # without a prior: N(mean, noise)
    for agents, row in _by_row(mean, noise, prior):
        p, middle, variance, _ = _components(mean[agents], noise[agents], prior, row)
        out[agents] = _mixture_quantiles(level, z, p, middle, np.sqrt(np.maximum(variance, TINY)))
    return out


def _by_row(mean: Any, noise: Any, prior: MixturePrior) -> Iterator[tuple[Integers, int]]:
    """The agents with a sample of known noise that use each prior, and its row."""
    known = ~np.isnan(mean) & (noise < np.inf)
    for row in np.unique(prior.row[prior.row >= 0]).tolist():
        yield np.flatnonzero((prior.row == row) & known), row


def _components(x: Any, s2: Any, prior: MixturePrior, row: int) -> tuple[Floats, ...]:
    """(probabilities, means, variances, weights of the own mean) of the components of each posterior, (components + 1,
    agents); the last is that of belonging to none."""
    k = prior.n_components[row]
    p, middle, variance, kept = np.empty((4, k + 1, len(x)))
    p[k], middle[k], variance[k], kept[k] = prior.outlier_density[row] * math.sqrt(2.0 * math.pi), x, s2, 1.0
    for i in range(k):
        location, spread = prior.location[row, i], prior.variance[row, i]
        relative, slope = variance_at(prior.function[row], location, spread)
        noise = s2 + (np.maximum(relative, slope * s2) - 1.0) * s2
        p[i], kept[i], variance[i], moved = in_component(
            x, noise, prior.weight[row, i], location, spread, prior.allowed[row, i], prior.limit[row]
        )
        middle[i] = x + moved
    total = p.sum(axis=0)
    p[k, total <= 0.0] = total[total <= 0.0] = 1.0
    return p / total, middle, variance, kept


def _mixture_quantiles(level: float, z: float, p: Any, middle: Any, deviation: Any) -> Floats:
    """The quantiles of mixtures of normal distributions: Newton's method between the smallest and the largest of those
    of the components, and bisection where it would leave them."""
    used = p > 1e-17
    ends = middle + z * deviation
    low, high = np.where(used, ends, np.inf).min(axis=0), np.where(used, ends, -np.inf).max(axis=0)
    narrow = np.where(used, deviation, np.inf).min(axis=0)
    value = np.clip((p * ends).sum(axis=0), low, high)
    left = np.arange(len(value))  # agents whose quantile is not found yet
    for _ in range(100):
        at, weight, width = value[left], p[:, left], deviation[:, left]
        u = (at - middle[:, left]) / width
        below = (weight * cumulative(u)).sum(axis=0) - level
        low[left] = np.where(below < 0.0, at, low[left])
        high[left] = np.where(below < 0.0, high[left], at)
        slope = (weight * np.exp(-0.5 * np.minimum(u * u, 1400.0)) / width).sum(axis=0) / math.sqrt(2.0 * math.pi)
        new = at - below / np.maximum(slope, 1e-300)
        new = np.where((new >= low[left]) & (new <= high[left]), new, 0.5 * (low[left] + high[left]))
        value[left] = new
        rounding = 1e-15 * (np.abs(low[left]) + np.abs(high[left]))
        left = left[np.abs(new - at) > np.maximum(_EXACT * narrow[left], rounding)]
        if not len(left):
            break
    return np.asarray(value)
