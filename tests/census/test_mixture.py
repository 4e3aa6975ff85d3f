"""The mixture that fits a noisy histogram best."""

from __future__ import annotations

import numpy as np
import pytest

from colme.census.mixture import (
    MAX_COMPONENTS,
    OFF_GRID,
    Histogram,
    Mixture,
    em,
    fit_mixture,
    log_likelihood,
    nonparametric_mixture,
)
from tests.support.mixtures import drawn_means, histogram_of, plain_histogram


def fitted(histogram: Histogram) -> Mixture:
    """The fitted mixture, without the room that is not used."""
    mixture = Mixture(*np.zeros((3, MAX_COMPONENTS)), np.zeros(MAX_COMPONENTS, np.bool_))
    k = fit_mixture(histogram, mixture)
    return Mixture(*(part[:k] for part in mixture))


WORLDS = {
    "a point": ([1.0], [2.0], [0.0]),
    "a cloud": ([1.0], [2.0], [4.0]),
    "two points": ([0.3, 0.7], [-3.0, 4.0], [0.0, 0.0]),
    "a point and a cloud": ([0.4, 0.6], [-5.0, 9.0], [0.0, 3.0]),
    "five": ([0.1, 0.15, 0.2, 0.25, 0.3], [-20.0, -10.0, 0.0, 12.0, 26.0], [0.0, 0.0, 2.0, 0.0, 4.0]),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("world", WORLDS)
def test_the_mixture_of_a_population_is_found(world: str, seed: int) -> None:
    """Components seven deviations apart do not overlap: each is known as if it were alone, within four standard
    errors."""
    weight, location, spread = (np.array(part) for part in WORLDS[world])
    n = 4000
    found = fitted(histogram_of(drawn_means(weight, location, spread, n, seed), 1.0))
    assert len(found.weight) == len(weight)
    agents, blur = n * weight, 1.0 + 1.0 / 12.0  # h = 1/2: linear binning adds a variance of at most h^2 / 4
    assert (np.abs(found.weight - weight) <= 4.0 * np.sqrt(weight * (1.0 - weight) / n) + 1e-3).all()
    assert (np.abs(found.location - location) <= 4.0 * np.sqrt((spread + blur) / agents)).all()
    assert (np.abs(found.spread - spread) <= 4.0 * (spread + blur) * np.sqrt(2.0 / agents)).all()
    assert (found.spread[spread == 0.0] == 0.0).sum() >= (spread == 0.0).sum() - 1


@pytest.mark.parametrize("gap", [0.0, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("n", [30, 300, 3000])
def test_no_mixture_is_more_likely_than_the_bound(n: int, gap: float) -> None:
    for seed in range(5):
        bins = histogram_of(drawn_means([0.4, 0.6], [0.0, gap], [0.0, 0.1], n, seed), 1.0)
        found = fitted(bins)
        likelihood = log_likelihood(bins, found, len(found.weight))
        _, weights, bound = nonparametric_mixture(bins, float(bins.counts.sum()), bins.center.min(), bins.center.max())
        assert likelihood <= bound + OFF_GRID
        assert weights.sum() == pytest.approx(1.0, abs=1e-6)


def n_components(weight: list[float], location: list[float], n: int, seed: int) -> int:
    return len(fitted(histogram_of(drawn_means(weight, location, np.zeros(len(weight)), n, seed), 1.0)).weight)


def test_a_component_must_pay_its_penalty() -> None:
    """Two free parameters must gain ln N + 3 nats, 8.7 for 300 agents: by luck with probability exp(-8.7)."""
    assert sum(n_components([1.0], [0.0], 300, seed) > 1 for seed in range(300)) <= 1
    # and two points 3.5 deviations apart are told apart by a hundred agents
    assert sum(n_components([0.5, 0.5], [0.0, 3.5], 100, seed) == 1 for seed in range(20)) <= 2


def test_em_is_expectation_and_maximization() -> None:
    """Components out of reach of a bin add nothing to it: against the same sums over all bins and components."""
    rng = np.random.default_rng(4)
    center = np.concatenate([np.sort(rng.uniform(-30.0, 30.0, n)) for n in (60, 40, 1, 20)])
    noise, count = np.repeat([0.2, 1.0, 1.0, 3.0], [60, 40, 1, 20]), rng.uniform(0.5, 20.0, 121)
    weight, location, spread = np.array([0.3, 0.5, 0.2]), np.array([-9.0, 0.5, 20.0]), np.array([4.0, 0.0, 9.0])
    wide = np.array([True, False, True])
    found = Mixture(weight.copy(), location.copy(), spread.copy(), wide)
    em(plain_histogram(center, count, noise), found, 3, 5)
    for _ in range(5):
        d, variance = center[:, None] - location, noise[:, None] + spread
        p = weight * np.where(d * d < 64.0 * variance, np.exp(-0.5 * d * d / variance) / np.sqrt(variance), 0.0)
        r = count[:, None] * p / (p.sum(axis=1, keepdims=True) + 1e-300)
        weight = r.sum(axis=0) / count.sum()
        location = location + (r * d / variance).sum(axis=0) / (r / variance).sum(axis=0)
        excess = (r * (d * d - noise[:, None]) / variance**2).sum(axis=0) / (r / variance**2).sum(axis=0)
        spread = np.where(wide, np.maximum(excess, 0.0), 0.0)
    for mine, plain in zip(found, (weight, location, spread), strict=False):
        np.testing.assert_allclose(mine, plain, rtol=1e-10)


@pytest.mark.parametrize("far", [3e2, 1e4, 1e9])
def test_one_mean_far_away_hides_no_component(far: float) -> None:
    """A range of 300 to 10^9 deviations has atoms near its bins only."""
    means = drawn_means([0.5, 0.5], [0.0, 6.0], np.zeros(2), 1000, 0)
    near, all_ = fitted(histogram_of(means, 1.0)), fitted(histogram_of(np.append(means, far), 1.0))
    assert len(all_.weight) == 3 and all_.location[2] == pytest.approx(far, abs=0.5)
    np.testing.assert_allclose(all_.location[:2], near.location, atol=1e-6)
    np.testing.assert_allclose(all_.weight[:2], near.weight * 1000.0 / 1001.0, rtol=1e-6)


def test_thirty_components_far_apart_are_found() -> None:
    places = 12.0 * np.arange(30)
    means = (places[:, None] + np.random.default_rng(1).normal(size=(30, 20))).ravel()
    found = fitted(histogram_of(means, 1.0))
    assert len(found.weight) == 30
    assert (np.abs(found.location - places) < 4.0 / np.sqrt(20.0)).all()  # four standard errors
