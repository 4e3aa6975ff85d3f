"""The uncertainty of a fitted mixture (`colme.census.mixture`): standard errors, and how they widen its components.

Locations and spreads are known up to standard errors, from the information matrix of all weights, locations and spreads
together: overlapping components are hard to tell apart. `added_variance` turns them into variance that a posterior adds
to each component.
"""

from __future__ import annotations

import math

import numpy as np

from colme._core.jit import helper, kernel
from colme._core.normal import normal_cdf, normal_density
from colme.census.mixture import TINY, Mixture, noise_at
from colme.noise import variance_at

_FEW, _SMALL = 5.0, 0.05
"""Components of fewer agents, and of less weight, do not tell how far apart true means are."""
_OVERLAP = 1.05
"""A component overlaps others if its spread has more than this times the variance that it would have alone."""


@kernel
def added_variance(histogram, mixture, k, everything, true, out, allowed):
    """out[i] = what uncertainty adds to the spread of component i: the variance of its location, and its expected
    spread in excess of the fitted one, above all if the fitted one is zero. `everything` is the variance of all means
    in the histogram, `true` the part of it in excess of the noise (`moments_of`).

    A component that overlaps no other may have been fitted with a spread by luck: of some dozen fits, which look at
    means that share most samples, one may find it. So its spread counts with its probability only.

    allowed[i] = the same for intervals, which always allow for a spread: that of a class matters before it is seen.
    Estimates, which would lose by it where there is none, do not."""
    if k == 1:
        out[0] = _added_to_one(histogram, mixture.location[0], mixture.spread[0], everything, true)
        allowed[0] = out[0]
        return
    center, count, function = histogram.center, histogram.counts, histogram.function
    weight, location, spread = mixture.weight, mixture.location, mixture.spread
    wide, variance, slope = np.zeros(k, np.bool_), np.empty(2 * k), np.zeros(k)
    alone = np.zeros(k)  # information about a spread if each bin were known to belong to its component
    relative = np.empty((k, 2))
    for i in range(k):
        wide[i] = spread[i] > 0.0
        relative[i, 0], relative[i, 1] = variance_at(function, location[i], spread[i])
    parameter_variances(histogram, Mixture(weight, location, spread, wide), k, variance)
    for i in range(k):
        out[i], wide[i] = variance[i], True
        allowed[i] = out[i]
    parameter_variances(histogram, Mixture(weight, location, spread, wide), k, variance)
    for b in range(center.size):
        f = TINY
        for i in range(k):
            q = noise_at(histogram, b, relative[i]) + spread[i]
            f += weight[i] * normal_density(center[b] - location[i], q)
        for i in range(k):
            d, q = center[b] - location[i], noise_at(histogram, b, relative[i]) + spread[i]
            slope[i] += count[b] * weight[i] * normal_density(d, q) / f * 0.5 * (d * d / q - 1.0) / q
            alone[i] += count[b] * weight[i] * normal_density(d, q) / f * 0.5 / (q * q)
    everything, true = _without_outliers(histogram, mixture, k, everything, true)
    for i in range(k):
        if everything > 0.0:
            e = min(math.sqrt(variance[k + i]), everything)
            positive = spread[i] > 0.0
            z = spread[i] / e if positive else slope[i] * e
            probability, expected = _expected_spread(z, e, max(true, e))
            allowed[i] = out[i] + max(0.0, e * expected - spread[i])
            if positive and alone[i] * variance[k + i] > _OVERLAP:
                out[i] += max(0.0, e * expected - spread[i])
            elif positive:
                out[i] += probability * max(e * expected, spread[i]) - spread[i]
            else:
                out[i] += probability * e * expected
            allowed[i] = max(allowed[i], out[i])


@kernel
def _added_to_one(histogram, location, spread, everything, true):
    """`added_variance` for a single component, to which all bins within eight deviations belong: no densities are
    needed.

    The error of its spread is that of the expected information. The observed one grows with the scatter of the means
    and would hide a spread that was not fitted."""
    center, count, function = histogram.center, histogram.counts, histogram.function
    relative = variance_at(function, location, spread)
    # information about the location, about both, and about the spread: observed, and expected
    first = both = second = alone = slope = 0.0
    for b in range(center.size):
        d, precision = center[b] - location, 1.0 / (noise_at(histogram, b, relative) + spread)
        if d * d * precision < 64.0:
            pull, growth = d * precision, 0.5 * (d * d * precision - 1.0) * precision
            first += count[b] * pull * pull
            both += count[b] * pull * growth
            second += count[b] * growth * growth
            slope += count[b] * growth
            alone += count[b] * 0.5 * precision * precision
    first, second = first + (1e-9 * first + TINY), second + (1e-9 * second + TINY)
    variance = 1.0 / first
    if spread > 0.0:
        variance += (both / first) ** 2 / max(second - both * both / first, TINY)
    if everything > 0.0:
        e = min(math.sqrt(1.0 / max(alone, TINY)), everything)
        z = spread / e if spread > 0.0 else slope * e
        _, expected = _expected_spread(z, e, max(true, e))
        variance += max(0.0, e * expected - spread)
    return variance


@kernel
def _without_outliers(histogram, mixture, k, everything, true):
    """The variance of all means, and that of the true ones, without components of fewer than five agents (and less than
    5 %), if there are any: a single agent far away would make all spreads up to its distance equally likely."""
    total = blur = kept = middle = across = 0.0
    for b in range(histogram.counts.size):
        total += histogram.counts[b]
        blur += histogram.counts[b] * histogram.noise[b]
    for i in range(k):
        if mixture.weight[i] >= min(_FEW / total, _SMALL):
            kept += mixture.weight[i]
            middle += mixture.weight[i] * mixture.location[i]
    few = False
    for i in range(k):
        if mixture.weight[i] >= min(_FEW / total, _SMALL):
            across += mixture.weight[i] * (mixture.spread[i] + (mixture.location[i] - middle / kept) ** 2)
        else:
            few = True
    return (across / kept + blur / total, across / kept) if few and kept > 0.0 else (everything, true)


@kernel
def parameter_variances(histogram, mixture, k, out):
    """out[:k] = squared standard errors of the locations, out[k:] = those of the spreads of the wide components: the
    diagonal of the inverse of the information about all locations, spreads and weights."""
    center, count, function = histogram.center, histogram.counts, histogram.function
    weight, location, spread, wide = mixture
    n_wide, relative = 0, np.empty((k, 2))
    for i in range(k):
        n_wide += 1 if wide[i] else 0
        relative[i, 0], relative[i, 1] = variance_at(function, location[i], spread[i])
    n = 2 * k - 1 + n_wide
    information, slope, p = np.zeros((n, n)), np.empty(n), np.empty(k)
    for b in range(center.size):
        f = TINY
        for i in range(k):
            q = noise_at(histogram, b, relative[i]) + spread[i]
            p[i] = normal_density(center[b] - location[i], q)
            f += weight[i] * p[i]
        j = k
        for i in range(k):
            d, q = center[b] - location[i], noise_at(histogram, b, relative[i]) + spread[i]
            slope[i] = weight[i] * p[i] * d / q
            if wide[i]:
                slope[j] = weight[i] * p[i] * 0.5 * (d * d / q - 1.0) / q
                j += 1
            if i < k - 1:
                slope[k + n_wide + i] = p[i] - p[k - 1]
        for i in range(n):
            for j in range(i + 1):
                information[i, j] += count[b] * (slope[i] / f) * (slope[j] / f)  # f * f may underflow
    for i in range(n):
        information[i, i] += 1e-9 * information[i, i] + TINY
    _inverse_diagonal(information, k + n_wide, out)


@kernel
def _inverse_diagonal(matrix, k, out):
    """out[i] = the first k diagonal elements of the inverse of a positive definite matrix, which is overwritten
    (Cholesky)."""
    n = matrix.shape[0]
    for i in range(n):
        for j in range(i + 1):
            total = matrix[i, j]
            for q in range(j):
                total -= matrix[i, q] * matrix[j, q]
            matrix[i, j] = total / matrix[j, j] if j < i else math.sqrt(max(total, TINY))
    column = np.empty(n)
    for i in range(k):
        out[i] = 0.0
        for j in range(i, n):
            total = 1.0 if j == i else 0.0
            for q in range(i, j):
                total -= matrix[j, q] * column[q]
            column[j] = total / matrix[j, j]
            out[i] += column[j] * column[j]


@helper
def _expected_spread(z, e, everything):
    """(the probability of a spread, its expected value over e given that there is one), from the likelihood N(z e, e^2)
    of a spread and a prior that is uniform between zero and `everything`, plus a point mass of one half at zero. (A
    single component has one: without it all agents would have the same mean.)

    The odds of a spread are sqrt(2 pi) e / everything Phi(z) exp(z^2 / 2); given that there is one, its mean is
    e (z + phi(z) / Phi(z))."""
    z = min(max(z, -6.0), 6.0)
    phi, below = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi), normal_cdf(z, 0.0, 1.0)
    odds = e / everything * below / phi
    return odds / (1.0 + odds), z + phi / below
