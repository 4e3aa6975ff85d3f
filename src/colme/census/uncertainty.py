"""How sure one can be of the mixture that explains a noisy histogram best (`colme.census.mixture`)."""

from __future__ import annotations

import math

import numpy as np

from colme._core.jit import helper, kernel
from colme.census.mixture import TINY, density, moments_of


@kernel
def _inverse_diagonal(matrix, k, out):
    """out[i] = the first k diagonal elements of the inverse of a positive matrix, which is lost (Cholesky)."""
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


@kernel
def _uncertainty(center, count, noise, share, place, spread, wide, k, out):
    """out[:k] = variances of the places, out[k:] those of the spreads of the wide tribes, from the information that the
    histogram has about all places, spreads and shares together: tribes that overlap are hard to tell."""
    n_wide = 0
    for i in range(k):
        n_wide += 1 if wide[i] else 0
    n = 2 * k - 1 + n_wide
    information, slope, p = np.zeros((n, n)), np.empty(n), np.empty(k)
    for b in range(center.size):
        f = TINY
        for i in range(k):
            p[i] = density(center[b] - place[i], noise[b] + spread[i])
            f += share[i] * p[i]
        j = k
        for i in range(k):
            d, q = center[b] - place[i], noise[b] + spread[i]
            slope[i] = share[i] * p[i] * d / q
            if wide[i]:
                slope[j] = share[i] * p[i] * 0.5 * (d * d / q - 1.0) / q
                j += 1
            if i < k - 1:
                slope[k + n_wide + i] = p[i] - p[k - 1]
        for i in range(n):
            for j in range(i + 1):
                information[i, j] += count[b] * (slope[i] / f) * (slope[j] / f)  # f * f may be less than any number
    for i in range(n):
        information[i, i] += 1e-9 * information[i, i] + TINY
    _inverse_diagonal(information, k + n_wide, out)


@helper
def _expected_spread(z, e, everything, alone):
    """The expected spread of a tribe, from the likelihood of a spread, N(z e, e^2), and a prior: anything up to
    `everything`, or, as likely as not, zero, unless the tribe is `alone`: a world of one tribe is none of twins.

    A spread is the more probable than none by sqrt(2 pi) e / everything Phi(z) exp(z^2 / 2), and if there is one, its
    mean is e (z + phi(z) / Phi(z))."""
    z = min(max(z, -6.0), 6.0)
    bell, below = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi), 0.5 * math.erfc(-z / math.sqrt(2.0))
    odds = e / everything * below / bell
    return (1.0 if alone else odds / (1.0 + odds)) * e * (z + bell / below)


@kernel
def doubts(center, count, noise, share, place, spread, k, doubt):
    """doubt[i] = what to add to the spread of tribe i: the variance of its place, and what its spread may be more than
    it seems, above all if it seems to have none."""
    wide, out, slope = np.zeros(k, np.bool_), np.empty(2 * k), np.zeros(k)
    for i in range(k):
        wide[i] = spread[i] > 0.0
    _uncertainty(center, count, noise, share, place, spread, wide, k, out)
    for i in range(k):
        doubt[i], wide[i] = out[i], True
    _uncertainty(center, count, noise, share, place, spread, wide, k, out)
    for b in range(center.size):
        f = TINY
        for i in range(k):
            f += share[i] * density(center[b] - place[i], noise[b] + spread[i])
        for i in range(k):
            d, q = center[b] - place[i], noise[b] + spread[i]
            slope[i] += count[b] * share[i] * density(d, q) / f * 0.5 * (d * d / q - 1.0) / q
    _, everything, true = moments_of(center, count, noise)
    for i in range(k):
        if everything > 0.0:
            e = min(math.sqrt(out[k + i]), everything)
            seen = spread[i] > 0.0
            z = spread[i] / e if seen else slope[i] * e
            doubt[i] += max(0.0, _expected_spread(z, e, max(true, e), seen or k == 1) - spread[i])
