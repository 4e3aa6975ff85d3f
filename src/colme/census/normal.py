"""The normal distribution for compiled kernels, which cannot call SciPy."""

from __future__ import annotations

import math

from colme._core.jit import helper


@helper
def normal_density(distance, variance):
    """exp(-d^2 / 2v) / sqrt(v): the density without its constant 1 / sqrt(2 pi). Zero beyond eight deviations."""
    e = distance * distance / variance
    return math.exp(-0.5 * e) / math.sqrt(variance) if e < 64.0 else 0.0


@helper
def normal_cdf(value, mean, variance):
    """The probability that N(mean, variance) lies below the value."""
    return 0.5 * math.erfc((mean - value) / math.sqrt(2.0 * variance))


@helper
def normal_quantile(level):
    """The quantile of the standard normal distribution, by bisection to the last bit."""
    low, high = -40.0, 40.0
    for _ in range(64):
        middle = 0.5 * (low + high)
        if normal_cdf(middle, 0.0, 1.0) < level:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
