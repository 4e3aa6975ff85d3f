"""Fitted mixtures as priors, and posteriors under them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from colme.census.histogram import Bins, bin_means
from colme.census.mixture import MAX_COMPONENTS
from colme.census.posterior import (
    LIMIT,
    FittedMixtures,
    MixturePrior,
    posterior_cdf,
    posterior_quantiles,
    posteriors,
)
from colme.noise import CONSTANT
from tests.support.mixtures import drawn_means

PRIOR = (np.array([[0.3, 0.5, 0.2]]), np.array([[-2.0, 0.5, 3.0]]), np.array([[0.01, 0.4, 1.5]]))
OUTLIERS = 1e-3
FIRST_GROUP, NO_LIMIT = np.array([100]), np.array([np.inf])


def prior_of(row: NDArray[np.int64]) -> MixturePrior:
    return MixturePrior(
        row, *PRIOR, PRIOR[2], np.array([3]), np.array([OUTLIERS]), FIRST_GROUP, CONSTANT[None], NO_LIMIT
    )


@pytest.mark.parametrize("noise", [0.05, 1.0])
@pytest.mark.parametrize("x", [-2.3, -0.7, 1.0, 4.0])
def test_the_posterior_is_bayes(x: float, noise: float) -> None:
    """Mean, distribution and quantiles against sums over a fine grid of true means."""
    share, location, variance = (part[0] for part in PRIOR)
    true = np.linspace(-30.0, 30.0, 600_001)
    d = true[:, None] - location
    prior = OUTLIERS + (np.exp(-0.5 * d * d / variance) / np.sqrt(2.0 * np.pi * variance)) @ share
    weight = prior * np.exp(-0.5 * (x - true) ** 2 / noise)
    weight /= weight.sum()
    means, noises, row = np.array([x]), np.array([noise]), np.zeros(1, np.int64)
    found, out = posteriors(means, noises, prior_of(row)), np.empty(1)
    assert found.estimate[0] == pytest.approx(weight @ true, abs=1e-9)
    assert found.variance[0] == pytest.approx(weight @ (true - weight @ true) ** 2, rel=1e-6)
    members = (
        share * np.exp(-0.5 * (x - location) ** 2 / (noise + variance)) / np.sqrt(2.0 * np.pi * (noise + variance))
    )
    assert found.group[0] == 100 + members.argmax()
    assert found.probability[0] == pytest.approx(members.max() / (members.sum() + OUTLIERS))
    kept = (members @ (variance / (variance + noise)) + OUTLIERS) / (members.sum() + OUTLIERS)
    assert found.kept[0] == pytest.approx(kept)
    mass = np.cumsum(weight) - 0.5 * weight
    for value in (-3.0, 0.1, x):
        below = posterior_cdf(np.array([value]), means, noises, prior_of(row))
        assert below[0] == pytest.approx(np.interp(value, true, mass), abs=1e-6)
    for level in (0.05, 0.5, 0.95):
        posterior_quantiles(level, means, noises, prior_of(row), out)
        assert out[0] == pytest.approx(np.interp(level, mass, true), abs=1e-4)


def test_intervals_allow_for_a_spread_that_estimates_do_not_use() -> None:
    """The error of m + w (x - m), w = v / (v + noise), has the variance w^2 noise + (1 - w)^2 allowed."""
    x, noise, out = np.array([1.0]), np.array([2.0]), np.empty(1)
    one = (np.ones((1, 1)), np.zeros((1, 1)), np.full((1, 1), 0.5))
    prior = MixturePrior(
        np.zeros(1, np.int64), *one, np.full((1, 1), 1.5), np.array([1]), np.zeros(1), FIRST_GROUP, CONSTANT[None],
        NO_LIMIT,
    )  # fmt: skip
    found, deviation = posteriors(x, noise, prior), math.sqrt(0.04 * 2.0 + 0.64 * 1.5)
    assert found.estimate[0] == pytest.approx(0.2) and found.variance[0] == pytest.approx(deviation**2)
    posterior_quantiles(0.95, x, noise, prior, out)
    assert out[0] == pytest.approx(0.2 + 1.6448536269514722 * deviation)
    assert posterior_cdf(out, x, noise, prior)[0] == pytest.approx(0.95)


@pytest.mark.parametrize("level", [0.001, 0.05, 0.5, 0.95])
@pytest.mark.parametrize("k", [1, 2, 40])
def test_quantiles_are_where_the_distribution_is_at_the_level(k: int, level: float) -> None:
    """Also where components are a thousand times narrower than others, and Newton's steps lead astray."""
    rng, n = np.random.default_rng(k), 3000
    weight, location, variance = np.zeros((3, 1, MAX_COMPONENTS))
    weight[0, :k], location[0, :k] = rng.dirichlet(np.ones(k)), np.sort(rng.uniform(-10.0, 10.0, k))
    variance[0, :k] = 10.0 ** rng.uniform(-6.0, 1.0, k)
    means, noises, row = rng.uniform(-14.0, 14.0, n), 10.0 ** rng.uniform(-6.0, 2.0, n), np.zeros(n, np.int64)
    prior = MixturePrior(
        row,
        weight,
        location,
        variance,
        variance,
        np.array([k]),
        np.array([1e-4]),
        FIRST_GROUP,
        CONSTANT[None],
        NO_LIMIT,
    )
    value = np.empty(n)
    posterior_quantiles(level, means, noises, prior, value)
    out = posterior_cdf(value, means, noises, prior)
    # numbers near 10 have an absolute precision of 2e-15, a millionth of 1e-9 deviations of the narrowest component
    np.testing.assert_allclose(out, level, atol=1e-9)


def test_without_a_prior_the_posterior_is_that_of_the_local_mean() -> None:
    means, noises, row = np.array([1.0, np.nan, 2.0]), np.array([4.0, 1.0, np.inf]), np.full(3, -1)
    found, out = posteriors(means, noises, prior_of(row)), np.empty(3)
    np.testing.assert_array_equal(found.estimate, means)
    np.testing.assert_array_equal(found.variance, noises)
    assert found.probability.tolist() == [0.0, 0.0, 0.0] and found.kept.tolist() == [1.0, 1.0, 1.0]
    posterior_quantiles(0.95, means, noises, prior_of(row), out)
    np.testing.assert_allclose(out, [1.0 + 2.0 * 1.6448536269514722, np.nan, np.inf])
    posterior_quantiles(0.05, means, noises, prior_of(row), out)
    np.testing.assert_allclose(out, [1.0 - 2.0 * 1.6448536269514722, np.nan, -np.inf])
    out = posterior_cdf(np.zeros(3), means, noises, prior_of(row))
    np.testing.assert_allclose(out, [0.5 * math.erfc(1.0 / math.sqrt(8.0)), np.nan, 0.5])


def test_small_histograms_get_a_single_component() -> None:
    """Of fewer than 500 agents, if they are not all there are. One of less than a single agent gets none."""
    means = drawn_means([0.5, 0.5], [0.0, 10.0], [0.0, 0.0], 400, 0)
    codes, values = bin_means(means, np.ones(400), 1.0)
    every, where = np.unique(codes, return_inverse=True)
    masses = (np.bincount(where.ravel(), values.ravel()) / 400.0).astype(np.float32)[None]
    bins = Bins.of(every, 1.0)
    assert FittedMixtures.of_rows(masses, bins, 400.0, 400).n_components.tolist() == [2]
    assert FittedMixtures.of_rows(masses, bins, 100.0, 400).n_components.tolist() == [1]
    assert FittedMixtures.of_rows(masses, bins, 500.0, 4000).n_components.tolist() == [2]
    none = FittedMixtures.of_rows(masses * np.float32(1e-4), bins, 400.0, 400)
    assert none.n_components.tolist() == [0] and none.row.tolist() == [-1]


def test_an_agent_that_was_not_counted_more_readily_belongs_to_no_component() -> None:
    means = drawn_means([0.5, 0.5], [0.0, 10.0], [0.0, 0.0], 400, 0)
    codes, values = bin_means(means, np.ones(400), 1.0)
    every, where = np.unique(codes, return_inverse=True)
    masses = (np.bincount(where.ravel(), values.ravel()) / 400.0)[None]
    grid = np.array([0, -1, 0, -1])
    fitted = FittedMixtures.of_agents(masses, Bins.of(every, 1.0), 400.0, 400, np.zeros(4, np.int64), grid)
    assert fitted.row.tolist() == [0, 1, 0, 1]
    np.testing.assert_array_equal(fitted.location[1], fitted.location[0])
    assert fitted.outlier_density[1] == pytest.approx(0.01 / (4.0 * means.std()), rel=0.01)
    assert fitted.outlier_density[1] > 10.0 * fitted.outlier_density[0]


def test_few_agents_pull_a_mean_far_away_no_more_than_one_at_the_limit() -> None:
    """One component at 0, of variance 3, and noise 1: a mean x moves by x / 4, or by the limit of 2.5 times 2 / 4."""
    x, n = np.array([1.0, -4.0, 6.0, 9.0]), 4
    one = (np.ones((1, 1)), np.zeros((1, 1)), np.full((1, 1), 3.0))
    limit = np.array([LIMIT])
    prior = MixturePrior(
        np.zeros(n, np.int64), *one, one[2], np.array([1]), np.zeros(1), FIRST_GROUP, CONSTANT[None], limit
    )
    estimate, middle = posteriors(x, np.ones(n), prior).estimate, np.empty(n)
    np.testing.assert_allclose(x - estimate, [0.25, -1.0, 1.25, 1.25])
    posterior_quantiles(0.5, x, np.ones(n), prior, middle)
    np.testing.assert_allclose(middle, estimate, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_posteriors_of_many_agents_are_those_of_each_alone(seed: int) -> None:
    """To the bit, for any mix of priors: some with more components than others, some shared by a few or by many, some
    agents without a prior, a sample or a known noise."""
    rng, n, n_rows = np.random.default_rng(seed), 500, 12
    k = rng.integers(1, 5, n_rows)
    weight, location, variance = np.zeros((3, n_rows, 4))
    for r in range(n_rows):
        weight[r, : k[r]], location[r, : k[r]] = rng.dirichlet(np.ones(k[r])), np.sort(rng.normal(0.0, 3.0, k[r]))
        variance[r, : k[r]] = 10.0 ** rng.uniform(-6.0, 1.0, k[r])
    row = np.repeat(rng.integers(-1, n_rows, n), rng.choice([1, 2, 20, 90], n))[:n]
    function = np.where(rng.random((n_rows, 1)) < 0.5, CONSTANT, [0.0, 2.0, 1.0, 0.3, 0.05])
    limit = np.where(rng.random(n_rows) < 0.3, LIMIT, np.inf)
    allowed = variance * rng.choice([1.0, 3.0], variance.shape)
    outliers = rng.choice([0.0, 1e-3], n_rows)
    prior = MixturePrior(row, weight, location, variance, allowed, k, outliers, 10 * k, function, limit)
    mean, noise, value = rng.normal(0.0, 4.0, n), 10.0 ** rng.uniform(-4.0, 1.0, n), rng.normal(0.0, 4.0, n)
    mean[rng.random(n) < 0.05], noise[rng.random(n) < 0.05] = np.nan, np.inf
    together, below = posteriors(mean, noise, prior), posterior_cdf(value, mean, noise, prior)
    for a in range(n):
        one = prior._replace(row=row[a : a + 1])
        for all_of_them, alone in zip(together, posteriors(mean[a : a + 1], noise[a : a + 1], one), strict=True):
            np.testing.assert_array_equal(all_of_them[a : a + 1], alone)
        alone_below = posterior_cdf(value[a : a + 1], mean[a : a + 1], noise[a : a + 1], one)
        np.testing.assert_array_equal(below[a : a + 1], alone_below)
    assert np.isnan(below).tolist() == np.isnan(mean).tolist() and (together.variance >= 0.0).all()
