"""Streamed central moments: against exact fractions, SciPy, and what shifts and scales must do."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from colme.moments import Moments, add_sample, deviation, kurtosis
from colme.samples import observe_some, running_mean

EPSILON = 2.0**-53
SAMPLES = st.lists(st.floats(-100.0, 100.0, width=32), min_size=1, max_size=60)


def streamed(samples: list[float]) -> tuple[float, float, float]:
    mean, moments = math.nan, (0.0, 0.0, 0.0)
    for n, x in enumerate(samples, 1):
        moments = add_sample(*moments, mean, x, n)
        mean = running_mean(mean, x, n)
    return moments


def exact(samples: list[float]) -> tuple[Fraction, ...]:
    values = [Fraction(x) for x in samples]
    mean = sum(values) / len(values)
    return tuple(sum(((x - mean) ** k for x in values), Fraction(0)) for k in (2, 3, 4))


@given(SAMPLES)
def test_they_are_the_exact_sums(samples: list[float]) -> None:
    """A sample costs some twenty roundings of numbers that are at most n range^k."""
    n, spread = len(samples), max(samples) - min(samples)
    size = max(map(abs, samples))  # means are rounded relative to their size, not to the spread
    for k, got, wanted in zip((2, 3, 4), streamed(samples), exact(samples), strict=True):
        assert abs(got - float(wanted)) <= 50 * n * EPSILON * n * (spread + size * EPSILON) ** (k - 1) * (spread + size)


@given(SAMPLES, st.integers(-20, 20))
def test_powers_of_two_scale_them_without_rounding(samples: list[float], power: int) -> None:
    scale = 2.0**power
    for k, plain, scaled in zip((2, 3, 4), streamed(samples), streamed([scale * x for x in samples]), strict=True):
        assert scaled == scale**k * plain or abs(plain) < 1e-200


def test_values_far_from_zero_keep_their_digits() -> None:
    """Sums of powers would leave nothing of a spread of a thousandth around a million."""
    samples = (1e6 + 1e-3 * np.random.default_rng(0).standard_normal(500)).tolist()
    for got, wanted in zip(streamed(samples), exact(samples), strict=True):
        assert got == pytest.approx(float(wanted), rel=1e-5)


def test_deviation_and_kurtosis_are_those_of_scipy() -> None:
    samples = np.random.default_rng(1).laplace(size=1000)
    second, _, fourth = streamed(samples.tolist())
    assert deviation(1000, second) == pytest.approx(samples.std(ddof=1), rel=1e-13)
    assert kurtosis(1000, second, fourth) == pytest.approx(stats.kurtosis(samples, fisher=False), rel=1e-12)


def test_equal_samples_have_no_deviation_and_no_kurtosis() -> None:
    second, third, fourth = streamed([0.1] * 50)
    assert (second, third, fourth) == (0.0, 0.0, 0.0)
    assert deviation(50, second) == 0.0 and math.isnan(kurtosis(50, second, fourth))


def test_arrays_have_the_bits_of_single_agents_also_with_gaps_and_in_parts() -> None:
    samples = np.random.default_rng(2).standard_normal((80, 130))
    samples[np.random.default_rng(3).random(samples.shape) < 0.3] = np.nan
    moments, mean, count = Moments(130), np.full(130, np.nan), np.zeros(130, np.int32)
    for row in samples:
        for part in (slice(0, 64), slice(64, 130)):
            moments.observe(row[part], mean[part], count[part], part.start)
        observe_some(mean, count, row)
    for a in range(130):
        seen = samples[:, a][~np.isnan(samples[:, a])].tolist()
        assert streamed(seen) == (moments.second[a], moments.third[a], moments.fourth[a])
