"""The variance of samples as a function of their mean: the regression finds it where there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colme.census.histogram import channel, clip_masses, in_channels, plausible
from colme.noise import (
    BOUNDS,
    CONSTANT,
    LEAST,
    MOST,
    PRODUCT,
    PRODUCTS,
    excess_noise,
    fitted_function,
    is_constant,
    products,
    variance_at,
)
from tests.support.edges import Floats

FRAME = (0.3, 0.5)


def summary(samples: Floats) -> Floats:
    """(agents, 3): mean, sum of squared deviations and number, of samples (steps, agents)."""
    n = np.full(samples.shape[1], float(len(samples)))
    return np.stack([samples.mean(axis=0), n * samples.var(axis=0), n], axis=-1)


def regression(samples: Floats, split: int, frame: tuple[float, float] = FRAME, variance: float = 1.0) -> Any:
    """The function that these agents find together, and whether it is that of an exponential family."""
    n = samples.shape[1]
    each = products(summary(samples), summary(samples[:split]), np.tile(frame, (n, 1)), np.full(n, variance))
    return fitted_function(each.mean(axis=0)[None], float(n), np.array([frame]))


def value(function: Floats, mean: float) -> float:
    return float(variance_at(function, mean, 0.0)[0])


@pytest.mark.parametrize("n_samples", [8, 40])
def test_the_variance_of_coins_is_found(n_samples: int) -> None:
    """m (1 - m), for means all over the unit interval, relative to its average, 1/6. With 20000 agents sample variances
    near a mean are known to a percent or two."""
    rng = np.random.default_rng(1)
    means = rng.random(20_000)
    coins = (rng.random((n_samples, len(means))) < means).astype(float)
    (function,), _ = regression(coins, n_samples // 2, (0.5, 0.6), 0.25)
    for m in (0.1, 0.3, 0.5, 0.8):
        assert value(function, m) == pytest.approx(6.0 * m * (1.0 - m), abs=0.05)


def test_the_variance_of_counts_is_found() -> None:
    """The variance of Poisson counts is their mean, and errors of means and variances are related in the same way."""
    rng = np.random.default_rng(2)
    means = rng.choice([1.0, 4.0], 2000)
    (function,), skewed = regression(rng.poisson(means, (16, len(means))).astype(float), 8, (2.5, 3.5))
    assert skewed.all()
    assert value(function, 1.0) == pytest.approx(0.4, abs=0.05)  # of the average, 2.5
    assert value(function, 4.0) == pytest.approx(1.6, abs=0.05)


def test_two_classes_of_normal_noise_are_no_exponential_family() -> None:
    rng = np.random.default_rng(3)
    high = rng.random(2000) < 0.5
    samples = np.where(high, 1.0, 0.0) + np.where(high, 2.0, 1.0) * rng.standard_normal((16, 2000))
    (function,), skewed = regression(samples, 8, (0.5, 1.5))
    assert value(function, 1.0) > 2.0 * value(function, 0.0)
    assert not skewed.any()


@pytest.mark.parametrize("noise", ["normal", "exponential", "student"])
def test_noise_that_does_not_depend_on_the_mean_has_no_function(noise: str) -> None:
    """Skewed noise moves a mean and a variance together; but those of different samples are independent. A false alarm
    at 4 standard errors has a probability of 6e-5, for heavy tails more."""
    rng = np.random.default_rng(4)
    draw = {"normal": rng.standard_normal, "exponential": rng.standard_exponential}.get(noise)
    found = 0
    for _ in range(100):
        means = rng.choice([0.0, 1.0], 500)
        samples = means + (draw((12, 500)) if draw else rng.standard_t(3.0, (12, 500)))
        found += int((~is_constant(regression(samples, 6, (0.5, 1.5))[0])).sum())
    assert found <= 1


def test_no_function_changes_nothing() -> None:
    for mean in (-1e9, 0.0, 3.0):
        assert variance_at(CONSTANT, mean, 2.0) == (1.0, 0.0)
        assert excess_noise(variance_at(CONSTANT, mean, 2.0), 0.7) == 0.0


def test_variances_are_bounded_and_means_no_more_skewed_than_one() -> None:
    line = np.array([0.0, 1.0, 1.0, 0.5, 0.0])  # 1 + u / 2
    assert value(line, -10.0) == LEAST and value(100.0 * line, 10.0) == MOST  # of u = 4
    relative = variance_at(line, 0.0, 0.0)
    assert relative == (1.0, 0.25)
    assert excess_noise(relative, 2.0) == 0.0  # a skewness of sqrt(.25 * 2 / 1)
    assert excess_noise(relative, 8.0) == 8.0  # that of 1 is at a variance of .25 * 8
    bowl = np.array([0.0, 2.0, 1.0, 0.0, 1.0])  # 1 + u^2: on average over means of variance 4 it is 2
    assert variance_at(bowl, 0.0, 4.0)[0] == 2.0


def test_an_agent_needs_two_samples_of_either_time() -> None:
    rng = np.random.default_rng(5)
    now = summary(rng.standard_normal((6, 3)))
    earlier = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 1.0], [0.1, 0.3, 5.0]])
    assert (products(now, earlier, np.tile(FRAME, (3, 1)), np.ones(3)) == 0.0).all()
    assert is_constant(fitted_function(np.zeros((2, PRODUCTS)), 100.0, np.tile(FRAME, (2, 1)))[0]).all()


def test_products_travel_with_a_histogram() -> None:
    rng = np.random.default_rng(6)
    wild = 1e3 * rng.standard_normal((8, 5))
    each = products(summary(wild), summary(wild[:4]), np.tile(FRAME, (5, 1)), np.ones(5))
    bounds = BOUNDS[PRODUCT:]
    assert (np.abs(each) <= bounds).all() and (each < 0.0).any()
    codes, masses = in_channels(PRODUCT, each)
    np.testing.assert_array_equal(np.stack([channel(codes[0], masses, PRODUCT + k) for k in range(PRODUCTS)], -1), each)
    assert all(plausible(codes[0], row) for row in masses)
    assert not plausible(codes[0], 1.1 * bounds) and plausible(codes[0], clip_masses(codes[0], -1.1 * bounds))
