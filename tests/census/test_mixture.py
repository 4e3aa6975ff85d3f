"""The mixture that explains a histogram, and the posterior under it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from colme.census.histogram import Bins, cast
from colme.census.mixture import _BETWEEN, MOST, _atoms, _log_likelihood, fit_tribes, refine
from colme.census.posterior import Tribes, below, posterior, quantiles
from colme.census.uncertainty import _uncertainty, doubts

Floats = NDArray[np.float64]


def census_of(means: Floats, noise: float) -> tuple[Floats, Floats, Floats]:
    """Histogram (center, count, noise) of means of this variance."""
    codes, values = cast(means, np.full(len(means), noise), 1.0)
    every, where = np.unique(codes, return_inverse=True)
    votes = np.asarray(np.bincount(where.ravel(), values.ravel()), float)
    center, square, _ = Bins.of(every, 1.0)
    kept = ~np.isnan(center) & (votes > 1e-8)
    return center[kept], votes[kept], square[kept] * (1.0 / 6.0) + noise


def planted(share: Any, place: Any, spread: Any, n: int, seed: int, noise: float = 1.0) -> Floats:
    rng = np.random.default_rng(seed)
    tribe = rng.choice(len(share), n, p=share)
    deviation = np.sqrt(np.asarray(spread)[tribe] + noise)
    return np.asarray(np.asarray(place)[tribe] + deviation * rng.standard_normal(n), float)


def fitted(bins: tuple[Floats, Floats, Floats]) -> tuple[Floats, Floats, Floats]:
    share, place, spread = (np.zeros(MOST) for _ in range(3))
    k = fit_tribes(*bins, share, place, spread)
    return share[:k], place[:k], spread[:k]


WORLDS = {
    "a point": ([1.0], [2.0], [0.0]),
    "a cloud": ([1.0], [2.0], [4.0]),
    "two points": ([0.3, 0.7], [-3.0, 4.0], [0.0, 0.0]),
    "a point and a cloud": ([0.4, 0.6], [-5.0, 9.0], [0.0, 3.0]),
    "five": ([0.1, 0.15, 0.2, 0.25, 0.3], [-20.0, -10.0, 0.0, 12.0, 26.0], [0.0, 0.0, 2.0, 0.0, 4.0]),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("world", WORLDS)
def test_what_was_planted_is_found(world: str, seed: int) -> None:
    """Tribes seven deviations apart do not overlap: each is known as if it were alone, within four standard errors."""
    share, place, spread = (np.array(part) for part in WORLDS[world])
    n = 4000
    bins = census_of(planted(share, place, spread, n, seed), 1.0)
    got_share, got_place, got_spread = fitted(bins)
    assert len(got_share) == len(share)
    mine, blur = n * share, 1.0 + 1.0 / 12.0  # h = 1/2: linear binning blurs by at most h^2 / 4
    assert (np.abs(got_share - share) <= 4.0 * np.sqrt(share * (1.0 - share) / n) + 1e-3).all()
    assert (np.abs(got_place - place) <= 4.0 * np.sqrt((spread + blur) / mine)).all()
    assert (np.abs(got_spread - spread) <= 4.0 * (spread + blur) * np.sqrt(2.0 / mine)).all()
    assert (got_spread[spread == 0.0] == 0.0).sum() >= (spread == 0.0).sum() - 1


@pytest.mark.parametrize("gap", [0.0, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("n", [30, 300, 3000])
def test_no_mixture_is_more_likely_than_the_bound(n: int, gap: float) -> None:
    for seed in range(5):
        bins = census_of(planted([0.4, 0.6], [0.0, gap], [0.0, 0.1], n, seed), 1.0)
        share, place, spread = fitted(bins)
        likelihood = _log_likelihood(*bins, share, place, spread, len(share))
        _, weights, bound = _atoms(*bins, float(bins[1].sum()), bins[0].min(), bins[0].max())
        assert likelihood <= bound + _BETWEEN
        assert weights.sum() == pytest.approx(1.0, abs=1e-6)


def test_a_tribe_costs_what_it_must_bring() -> None:
    """Two free numbers must bring ln N + 3 nats, 8.7 of 300 agents: by luck with probability exp(-8.7)."""
    twos = sum(len(fitted(census_of(planted([1.0], [0.0], [0.0], 300, seed), 1.0))[0]) > 1 for seed in range(300))
    assert twos <= 1
    # and two points three deviations apart are told apart from fifty agents on
    ones = sum(
        len(fitted(census_of(planted([0.5, 0.5], [0, 3.5], [0, 0], 100, seed), 1.0))[0]) == 1 for seed in range(20)
    )
    assert ones <= 2


def test_the_uncertainty_is_that_of_the_curvature() -> None:
    """At the expected histogram of a mixture, the information is minus the Hessian of the log-likelihood."""
    share, place, spread = np.array([0.3, 0.45, 0.25]), np.array([0.0, 2.5, 6.0]), np.array([0.0, 0.7, 0.0])
    wide = spread > 0.0
    center = np.arange(-9.0, 16.0, 0.2)
    noise = np.full(len(center), 0.9)
    d, v = center[:, None] - place, noise[:, None] + spread
    count = 1000.0 * 0.2 * (np.exp(-0.5 * d * d / v) / np.sqrt(2.0 * np.pi * v)) @ share

    def likelihood(x: Floats) -> float:
        tau2 = spread.copy()
        tau2[wide] = x[3:4]
        w = np.array([x[4], x[5], 1.0 - x[4] - x[5]])
        return float(_log_likelihood(center, count, noise, w, x[:3], tau2, 3))

    x = np.concatenate([place, spread[wide], share[:2]])
    hessian, step = np.empty((6, 6)), 1e-3 * np.eye(6)
    for i in range(6):
        for j in range(6):
            corners = [likelihood(x + a * step[i] + b * step[j]) * a * b for a in (1, -1) for b in (1, -1)]
            hessian[i, j] = sum(corners) / 4e-6
    out = np.empty(6)
    _uncertainty(center, count, noise, share, place, spread, wide, 3, out)
    np.testing.assert_allclose(out[:4], np.linalg.inv(-hessian).diagonal()[:4], rtol=2e-3)
    doubt = np.empty(3)
    doubts(center, count, noise, share, place, spread, 3, doubt)
    assert (doubt > out[:3]).all()  # points may have a spread all the same
    # the spread that was found is uncertain and positive: by a sum over spreads
    every = np.empty(6)
    _uncertainty(center, count, noise, share, place, spread, np.ones(3, np.bool_), 3, every)
    tau2 = np.linspace(0.0, 20.0, 2_000_001)
    weight = np.exp(-0.5 * (tau2 - spread[1]) ** 2 / every[4])
    assert doubt[1] == pytest.approx(out[1] + weight @ tau2 / weight.sum() - spread[1], rel=1e-5)


PRIOR = (np.array([[0.3, 0.5, 0.2]]), np.array([[-2.0, 0.5, 3.0]]), np.array([[0.01, 0.4, 1.5]]))
STRANGER = 1e-3
FIRST_GROUP = np.array([100])


def prior_of() -> tuple[Any, ...]:
    return *PRIOR, np.array([3]), np.array([STRANGER])


@pytest.mark.parametrize("noise", [0.05, 1.0])
@pytest.mark.parametrize("x", [-2.3, -0.7, 1.0, 4.0])
def test_the_posterior_is_bayes(x: float, noise: float) -> None:
    """Mean, distribution and quantiles against sums over a fine grid of true means."""
    share, place, width = (part[0] for part in PRIOR)
    true = np.linspace(-30.0, 30.0, 600_001)
    d = true[:, None] - place
    prior = STRANGER + (np.exp(-0.5 * d * d / width) / np.sqrt(2.0 * np.pi * width)) @ share
    weight = prior * np.exp(-0.5 * (x - true) ** 2 / noise)
    weight /= weight.sum()
    means, noises, fit = np.array([x]), np.array([noise]), np.zeros(1, np.int64)
    estimate, group, probability, out = np.empty(1), np.zeros(1, np.int64), np.empty(1), np.empty(1)
    posterior(means, noises, fit, *prior_of(), FIRST_GROUP, estimate, group, probability)
    assert estimate[0] == pytest.approx(weight @ true, abs=1e-9)
    members = share * np.exp(-0.5 * (x - place) ** 2 / (noise + width)) / np.sqrt(2.0 * np.pi * (noise + width))
    assert group[0] == 100 + members.argmax()
    assert probability[0] == pytest.approx(members.max() / (members.sum() + STRANGER))
    mass = np.cumsum(weight) - 0.5 * weight
    for value in (-3.0, 0.1, x):
        below(np.array([value]), means, noises, fit, *prior_of(), out)
        assert out[0] == pytest.approx(np.interp(value, true, mass), abs=1e-6)
    for level in (0.05, 0.5, 0.95):
        quantiles(level, means, noises, fit, *prior_of(), out)
        assert out[0] == pytest.approx(np.interp(level, mass, true), abs=1e-4)


@pytest.mark.parametrize("level", [0.001, 0.05, 0.5, 0.95])
@pytest.mark.parametrize("k", [1, 2, 40])
def test_quantiles_are_where_the_distribution_is_at_the_level(k: int, level: float) -> None:
    """Also where parts are a thousand times narrower than others, and Newton's steps lead astray."""
    rng, n = np.random.default_rng(k), 3000
    share, place, width = np.zeros((3, 1, MOST))
    share[0, :k], place[0, :k] = rng.dirichlet(np.ones(k)), np.sort(rng.uniform(-10.0, 10.0, k))
    width[0, :k] = 10.0 ** rng.uniform(-6.0, 1.0, k)
    prior = share, place, width, np.array([k]), np.array([1e-4])
    means, noises, fit = rng.uniform(-14.0, 14.0, n), 10.0 ** rng.uniform(-6.0, 2.0, n), np.zeros(n, np.int64)
    value, out = np.empty((2, n))
    quantiles(level, means, noises, fit, *prior, value)
    below(value, means, noises, fit, *prior, out)
    # numbers near 10 have an absolute precision of 2e-15, a millionth of 1e-9 deviations of the narrowest part
    np.testing.assert_allclose(out, level, atol=1e-9)


def test_refinement_is_expectation_and_maximisation() -> None:
    """Whoever is out of reach adds nothing: against the same sums over all bins and tribes."""
    rng = np.random.default_rng(4)
    center = np.concatenate([np.sort(rng.uniform(-30.0, 30.0, n)) for n in (60, 40, 1, 20)])
    noise, count = np.repeat([0.2, 1.0, 1.0, 3.0], [60, 40, 1, 20]), rng.uniform(0.5, 20.0, 121)
    share, place, spread = np.array([0.3, 0.5, 0.2]), np.array([-9.0, 0.5, 20.0]), np.array([4.0, 0.0, 9.0])
    wide, found = np.array([True, False, True]), (share.copy(), place.copy(), spread.copy())
    refine(center, count, noise, *found, wide, 3, 5)
    for _ in range(5):
        d, variance = center[:, None] - place, noise[:, None] + spread
        p = share * np.where(d * d < 64.0 * variance, np.exp(-0.5 * d * d / variance) / np.sqrt(variance), 0.0)
        r = count[:, None] * p / (p.sum(axis=1, keepdims=True) + 1e-300)
        share, place = r.sum(axis=0) / count.sum(), place + (r * d / variance).sum(axis=0) / (r / variance).sum(axis=0)
        excess = (r * (d * d - noise[:, None]) / variance**2).sum(axis=0) / (r / variance**2).sum(axis=0)
        spread = np.where(wide, np.maximum(excess, 0.0), 0.0)
    for mine, plain in zip(found, (share, place, spread), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-10)


def test_without_tribes_one_is_alone() -> None:
    means, noises, fit = np.array([1.0, np.nan, 2.0]), np.array([4.0, 1.0, np.inf]), np.full(3, -1)
    estimate, group, probability, out = np.empty(3), np.ones(3, np.int64), np.empty(3), np.empty(3)
    posterior(means, noises, fit, *prior_of(), FIRST_GROUP, estimate, group, probability)
    np.testing.assert_array_equal(estimate, means)
    assert probability.tolist() == [0.0, 0.0, 0.0]
    quantiles(0.95, means, noises, fit, *prior_of(), out)
    np.testing.assert_allclose(out, [1.0 + 2.0 * 1.6448536269514722, np.nan, np.inf])
    quantiles(0.05, means, noises, fit, *prior_of(), out)
    np.testing.assert_allclose(out, [1.0 - 2.0 * 1.6448536269514722, np.nan, -np.inf])
    below(np.zeros(3), means, noises, fit, *prior_of(), out)
    np.testing.assert_allclose(out, [0.5 * math.erfc(1.0 / math.sqrt(8.0)), np.nan, 0.5])


@given(x=st.floats(-50.0, 50.0), noise=st.floats(1e-6, 100.0))
def test_estimates_lie_between_the_tribes_and_oneself(x: float, noise: float) -> None:
    estimate, group, probability = np.empty(1), np.zeros(1, np.int64), np.empty(1)
    means, noises, fit = np.array([x]), np.array([noise]), np.zeros(1, np.int64)
    posterior(means, noises, fit, *prior_of(), FIRST_GROUP, estimate, group, probability)
    ends = np.append(PRIOR[1], x)
    assert ends.min() - 1e-9 <= estimate[0] <= ends.max() + 1e-9
    assert 0.0 <= probability[0] <= 1.0


def test_small_censuses_tell_a_place_and_a_spread() -> None:
    """Of fewer than 500 and not of all; one of fewer than a single agent tells nothing."""
    means = planted([0.5, 0.5], [0.0, 10.0], [0.0, 0.0], 400, 0)
    codes, values = cast(means, np.ones(400), 1.0)
    every, where = np.unique(codes, return_inverse=True)
    votes = (np.bincount(where.ravel(), values.ravel()) / 400.0).astype(np.float32)[None]
    bins = Bins.of(every, 1.0)
    assert Tribes.fitted(votes, bins, 400.0, 400).n_tribes.tolist() == [2]
    assert Tribes.fitted(votes, bins, 100.0, 400).n_tribes.tolist() == [1]
    assert Tribes.fitted(votes, bins, 500.0, 4000).n_tribes.tolist() == [2]
    none = Tribes.fitted(votes * np.float32(1e-4), bins, 400.0, 400)
    assert none.n_tribes.tolist() == [0] and none.fit.tolist() == [-1]
