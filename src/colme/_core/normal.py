"""The normal distribution for compiled kernels, which cannot call SciPy.

`exponential` and what is made of it are polynomials, without a branch: the compiler turns a loop over agents into
vector instructions, in which a call of the mathematical library would have no place. NumPy computes the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from colme._core.jit import bits_to_float, equation, float_to_bits, helper, select

f64, i64 = np.float64, np.int64

_LOG2_E, _LN_2, _LN_2_REST = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
"""1 / ln 2; ln 2 as a sum of two numbers, the first of which has a short fraction."""
_WHOLE = 1.5 * 2.0**52
"""A number plus this has no digits behind the point, and its last bits are those of the number, rounded."""


@equation
def exponential(x: Any) -> Any:
    """exp(x) for -700 <= x <= 700, to 1.2 units of the last bit: 2^k times a polynomial of x - k ln 2."""
    shifted = x * _LOG2_E + _WHOLE
    k = shifted - _WHOLE
    r = (x - k * _LN_2) - k * _LN_2_REST
    p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * bits_to_float(i64((float_to_bits(f64(shifted)) << i64(52)) + (i64(1023) << i64(52))))


@equation
def cumulative(u: Any) -> Any:
    """The standard normal distribution function, to 3e-11: erfc(z) = t exp(polynomial - z^2) with t = 2 / (2 + z)."""
    z = abs(u) * 0.7071067811865476
    z = select(z < 40.0, z, 40.0)  # beyond, nothing is left
    t = 2.0 / (2.0 + z)
    y = 2.0 * t - 1.0
    p = y * -8.911517291683897e-06 + 2.071326359403732e-05
    p = p * y + 4.4575918389000413e-05
    p = p * y - 0.0001546028334454756
    p = p * y - 7.504292247683487e-05
    p = p * y + 0.0006579165546542737
    p = p * y - 0.00015349322318236605
    p = p * y - 0.0023392564043544324
    p = p * y + 0.001760406765276305
    p = p * y + 0.008823552357338501
    p = p * y - 0.009872823288236255
    p = p * y - 0.046895481500255895
    p = p * y + 0.047343310402105786
    p = p * y + 0.6726432205257895
    p = p * y - 0.671794084056692
    tail = 0.5 * t * exponential(select(z < 26.0, p - z * z, -700.0))
    return select(u < 0.0, tail, 1.0 - tail)


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
