"""The variance of samples as a function of their mean, where it is one: 0/1 samples, counts, relative errors.

The variance of 0/1 samples of mean m is m (1 - m), that of Poisson counts m, that of normal samples does not depend on
m: all are quadratic functions of m. Agents fit one to their sample variances. A sample variance and a mean of the
same skewed samples err together, so these come from different samples: the mean X1 and variance s1^2 from those before
the last check, X2 and s2^2 from those since. Given the true mean they are independent, and for the right a, b and c

    sum over agents of z (s2^2 - a - b X2 - c (X2^2 - s2^2 / n2)),        z = 1, X1, X1^2 - s1^2 / n1,

have the expectation zero: an instrumental-variable regression. Agents average the products in these three equations in
a census. They use the function if X1 explains variances by more than 4 standard errors, or its square by 5, and they
only ask if sample variances differ by more than those of normal samples do; else nothing is sent.

Where the samples of all agents are 0 or 1, the function is known and needs no regression: m (1 - m).

The mean of n samples of an exponential family has the skewness v' / sqrt(n v), where v is the variance and v' its
slope. Beyond 1 (n samples hold less than one 1, say) normal distributions are far off, and v'^2 / n is taken for v.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colme._core.jit import equation
from colme.support.arrays import Floats, Mask

CONSTANT = np.array([0.0, 1.0, 1.0, 0.0, 0.0])
"""No function. Others have a center, a scale and three coefficients; with u = (m - center) / scale, the variance of
samples of mean m is a polynomial of u, relative to the average variance."""
LEAST, MOST = 0.02, 50.0
"""The smallest and the largest variance, relative to the average one."""
REACH = 4.0
"""The largest |u|: beyond, a function has the value that it has there."""
EVIDENCE, SQUARE_EVIDENCE = 16.0, 25.0
"""Squared standard errors by which X1 must explain variances, or its square beyond it."""
BENT = 9.0
"""The same for its square, if the function is to have one."""
WEAK = 0.05
"""The smallest part of the variance of an instrument that is due to true means."""
FEWEST = 30.0
"""Agents whose variances are used at least."""
LARGEST = 100.0
"""The largest s2^2, in units of the average variance."""
PRODUCTS = 18
"""Numbers that agents average."""
BOUNDS = np.array([1, 1, 2, 4, 16, 4, 16, 8, 32, 100, 100, 200, 1e4, 1, 2, 4, 400, 16])
"""Their largest absolute values."""


@equation
def variance_at(function: Any, mean: Any, spread: Any) -> Any:
    """(the variance of samples of this mean, relative to the average one; its squared slope). With a spread: on average
    over means of this variance."""
    scale = function[1]
    u = min(max((mean - function[0]) / scale, -REACH), REACH)
    slope = (function[3] + 2.0 * u * function[4]) / scale
    value = function[2] + u * (function[3] + u * function[4]) + spread / (scale * scale) * function[4]
    return min(max(value, LEAST), MOST), slope * slope


@equation
def excess_noise(relative: Any, noise: Any) -> Any:
    """What is to be added to `noise`, the average sampling variance of a mean, where samples have this relative
    variance (and its squared slope)."""
    return (max(relative[0], relative[1] * noise) - 1.0) * noise


def binomial_function(average: Any) -> Floats:
    """m (1 - m), relative to these average variances, one per row."""
    one = 1.0 / np.asarray(average)
    return np.stack([np.zeros_like(one), np.ones_like(one), np.zeros_like(one), one, -one], axis=-1)


def is_constant(function: Floats) -> Mask:
    """Which rows are no function."""
    return np.asarray((function[:, 3:] == 0.0).all(axis=1))


def products(now: Any, earlier: Any, frame: Any, variance: Any) -> Floats:
    """What agents contribute to the regression, (agents, PRODUCTS); zeros without two samples of either time.

    now       (agents, 3): mean, sum of squared deviations and number of all samples
    earlier   the same of those before the last check
    frame     (agents, 2): center and scale of means
    variance  of samples, as far as it is known: what variances are relative to"""
    (center, scale), (X, S, n), (X1, S1, n1) = frame.T, now.T, earlier.T
    enough = (n1 > 1) & (n - n1 > 1)
    X1, S1, n1, n2 = np.where(enough, [X1, S1, n1, n - n1], [center, S, n, n])
    X2 = np.where(enough, (n * X - n1 * X1) / n2, center)
    d = X2 - X1
    S2 = np.maximum(S - S1 - n1 * n2 / n * (d * d), 0.0)
    r = np.minimum(S2 / np.maximum(n2 - 1.0, 1.0) / variance, LARGEST)
    u, y, d = (X1 - center) / scale, np.clip((X2 - center) / scale, -REACH, REACH), np.clip(d / scale, -REACH, REACH)
    z = np.clip(u, -1.0, 1.0)
    z2 = np.clip(u * u - S1 / np.maximum(n1 - 1.0, 1.0) / n1 / (scale * scale), -2.0, 2.0)
    y2 = np.clip(y * y - r * variance / n2 / (scale * scale), -REACH * REACH, REACH * REACH)
    each = (
        np.ones_like(z), z, z2, y, y2, z * y, z * y2, z2 * y, z2 * y2, r, z * r, z2 * r, r * r, z * z, z * z2, z2 * z2,
        d * r, d * d * (n1 / n),
    )  # fmt: skip
    return np.where(enough[:, None], np.stack(each, axis=-1), 0.0)


def fitted_function(sums: Any, agents: Any, frame: Any) -> tuple[Floats, Mask]:
    """The function that averages of `products` over so many agents show, one per row, and CONSTANT where they show
    none; and whether variances and means also err together as those of an exponential family do."""
    part = sums[:, 0]
    with np.errstate(all="ignore"):
        z, z2, y, y2, zy, zy2, z2y, z2y2, r, zr, z2r, rr, zz, zz2, z2z2, dr, dd = sums[:, 1:].T / part
        n = agents * part
        # covariances with the regressors, with the variances, and of the instruments
        A11, A12, A21, A22 = zy - z * y, zy2 - z * y2, z2y - z2 * y, z2y2 - z2 * y2
        b1, b2, V11, V12, V22, Vr = zr - z * r, z2r - z2 * r, zz - z * z, zz2 - z * z2, z2z2 - z2 * z2, rr - r * r
        side = V12 / V11  # the second instrument, without what the first one explains
        b3, A32, V33 = b2 - side * b1, A22 - side * A12, V22 - side * V12
        first, second = n * b1 * b1 / (V11 * Vr), n * b3 * b3 / (V33 * Vr)
        straight, bent = A11 > WEAK * V11, (second > BENT) & (A32 > WEAK * V33)
        determinant = A11 * A22 - A12 * A21
        c = np.where(bent, (A11 * b2 - A21 * b1) / determinant, 0.0)
        b = np.where(bent, (b1 * A22 - b2 * A12) / determinant, b1 / A11)
        function = np.stack([*frame.T, (r - b * y - c * y2) / r, b / r, c / r], axis=-1)
        found = ((first > EVIDENCE) & straight) | ((second > SQUARE_EVIDENCE) & bent)
        found &= (n >= FEWEST) & (r > 0.0) & np.isfinite(function).all(axis=-1)
        # the slope of errors is that of the function, or at least more than half of it
        slope = b1 / A11
        skewed = found & (first > EVIDENCE) & straight & (dr / dd * slope > 0.5 * slope * slope)
    return np.where(found[:, None], function, CONSTANT), skewed
