"""The normal distribution by polynomials: how exact, and the same bits from NumPy and from kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from colme._core.jit import kernel
from colme._core.normal import cumulative, exponential

EXPONENTS = np.concatenate([np.linspace(-700.0, 700.0, 20_001), [0.0, -0.0, 1e-300, -1e-17, 0.5 * math.log(2.0)]])
DEVIATIONS = np.concatenate([np.linspace(-45.0, 45.0, 20_001), [0.0, 1e-9, -1e-9, 1e10, -1e10, np.inf, -np.inf]])


@kernel
def in_a_kernel(x, u, exponentials, probabilities):  # type: ignore[no-untyped-def]
    for i in range(x.size):
        exponentials[i] = exponential(x[i])
    for i in range(u.size):
        probabilities[i] = cumulative(u[i])


def test_exponentials_are_exact_to_two_bits() -> None:
    expected = np.array([math.exp(x) for x in EXPONENTS.tolist()])
    assert np.abs(exponential(EXPONENTS) / expected - 1.0).max() < 2.0**-51


def test_the_distribution_function_errs_by_less_than_it_says() -> None:
    expected = np.array([0.5 * math.erfc(-u / math.sqrt(2.0)) for u in DEVIATIONS.tolist()])
    found = cumulative(DEVIATIONS)
    assert np.abs(found - expected).max() < 3e-11
    assert (np.diff(found[:20_001]) >= -1e-15).all() and found.min() >= 0.0 and found.max() <= 1.0


@pytest.mark.parametrize("shift", [0, 1, 3])
def test_kernels_give_the_bits_of_numpy(shift: int) -> None:
    """Also where a vector register is only partly filled."""
    x, u = EXPONENTS[shift:], DEVIATIONS[shift:]
    exponentials, probabilities = np.empty_like(x), np.empty_like(u)
    in_a_kernel(x, u, exponentials, probabilities)
    np.testing.assert_array_equal(exponentials, exponential(x))
    np.testing.assert_array_equal(probabilities, cumulative(u))
