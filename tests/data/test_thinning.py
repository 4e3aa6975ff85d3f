"""Thinned folds against folds of rows: the same totals, and the same distribution where thinning is exact."""

from __future__ import annotations

import numpy as np
import pytest

from colme.data.estimate import estimate
from colme.data.moments import N_FOLDS, FoldMoments, RunningMoments, moments_of
from colme.data.read.table import Names
from colme.data.thinning import thinned, thinned_counts, thinned_successes, too_much_alike
from tests.support.tables import table_of


def totals(rng: np.random.Generator, n: np.ndarray) -> FoldMoments:
    """One row per agent: the moments of normal samples."""
    weight = n.astype(np.float64)
    square = np.where(n > 1, rng.chisquare(np.maximum(n - 1, 1)), 0.0)
    return FoldMoments(n, weight, weight, weight, rng.normal(size=len(n)), square)


@pytest.mark.parametrize("skewness", [0.0, 2.0, -3.0])
def test_the_folds_add_up_to_what_was_split(skewness: float) -> None:
    rng = np.random.default_rng(0)
    every = totals(rng, np.concatenate([np.arange(1, 60), [1000, 10**7]]))
    folds = thinned(every, 1, skewness)
    again = folds.merged(slice(None))
    assert np.array_equal(again.n, every.n) and np.ptp(folds.n, axis=1).max() <= 1
    np.testing.assert_allclose(again.mean, every.mean, atol=1e-12)
    np.testing.assert_allclose(again.square, every.square, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(again.worth, every.worth)


@pytest.mark.parametrize("size", [6, 40])
def test_folds_of_normal_samples_vary_like_folds_of_rows(size: int) -> None:
    """The variance of a fold's mean, and the mean of its square, over 20 000 agents: within 5 standard errors."""
    rng = np.random.default_rng(2)
    table = table_of(list(rng.normal(size=(20_000, size))))
    rows = moments_of(table).folds
    drawn = thinned(rows.merged(slice(None)), 3)
    for one, other in ((rows, drawn), (drawn, rows)):
        assert np.array_equal(np.sort(one.n, axis=1), np.sort(other.n, axis=1))
    large = [folds.n == folds.n.max(axis=1, keepdims=True) for folds in (rows, drawn)]
    for part, power in (("mean", 2), ("mean", 4), ("square", 1), ("square", 2)):
        a, b = (getattr(folds, part)[mask] ** power for folds, mask in zip((rows, drawn), large, strict=True))
        error = np.hypot(a.std() / len(a) ** 0.5, b.std() / len(b) ** 0.5)
        assert abs(a.mean() - b.mean()) < 5.0 * max(error, 1e-12)


def test_successes_are_drawn_without_replacement() -> None:
    trials = np.array([1, 3, 10, 1000, 2 * 10**9])
    successes = np.array([1, 0, 7, 20, 10**9])
    folds = thinned_successes(trials, successes, 0)
    y = np.rint(folds.mean * folds.weight)
    assert np.array_equal(folds.n.sum(axis=1), trials) and np.array_equal(y.sum(axis=1), successes)
    assert (y >= 0).all() and (y <= folds.n).all()
    # of 10 trials with 4 successes, a fold of 2 has .8 on average, with variance 2 * .4 * .6 * 8 / 9
    many = thinned_successes(np.full(20_000, 10), np.full(20_000, 4), 1)
    y = 2.0 * many.mean[:, 0]
    assert abs(y.mean() - 0.8) < 5 * (0.427 / 20_000) ** 0.5
    assert y.var() == pytest.approx(2 * 0.4 * 0.6 * 8 / 9, rel=5 * (2 / 20_000) ** 0.5)


def test_events_fall_into_folds_independently() -> None:
    """Folds of Poisson counts are independent Poisson counts."""
    rng = np.random.default_rng(4)
    events = rng.poisson(10.0, 20_000)
    folds = thinned_counts(events, np.full(20_000, 5.0), 5)
    assert np.array_equal(np.rint(folds.mean.sum(axis=1)), events) and folds.weight[0].tolist() == [1.0] * N_FOLDS
    correlation = np.corrcoef(folds.mean.T)
    assert np.abs(correlation[np.triu_indices(N_FOLDS, 1)]).max() < 5 / 20_000**0.5
    assert folds.mean.var() == pytest.approx(2.0, rel=5 * (2.5 / 100_000) ** 0.5)  # a Poisson variable of mean 2


NOISE = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "lognormal": lambda rng, shape: rng.lognormal(sigma=1.5, size=shape),
    "t(2)": lambda rng, shape: rng.standard_t(2, size=shape),
    "rounded": lambda rng, shape: np.round(rng.normal(size=shape)),
    "0 and 1": lambda rng, shape: (rng.random(shape) < 0.1).astype(float),
}


def folds_of(x: np.ndarray, seed: int, weight: np.ndarray | None = None) -> FoldMoments:
    running = RunningMoments(seed)
    agent = np.repeat(np.arange(len(x)), x.shape[1])
    running.add(agent, x.ravel(), None if weight is None else weight.ravel(), len(x))
    return running.moments(np.arange(len(x)), Names("agent", "x")).folds


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("n", [6, 11, 60])
def test_only_rows_in_an_order_make_folds_that_are_too_much_alike(noise: str, n: int) -> None:
    """100 tables in random order raise no alarm, with weights and without; 60 agents with sorted rows do, if they
    have more than a sample beside the first five."""
    rng = np.random.default_rng(4)
    for seed in range(100):
        x = NOISE[noise](rng, (60, n))
        assert not too_much_alike(folds_of(x, seed, rng.uniform(0.5, 2.0, x.shape) if seed % 2 else None))
    if n > 6 and noise != "0 and 1":
        assert too_much_alike(folds_of(np.sort(NOISE[noise](rng, (60, n)), axis=1), 0))


@pytest.mark.parametrize("binary", [False, True])
def test_the_order_of_rows_does_not_matter(binary: bool) -> None:
    """Sorted by value, local means would seem perfect."""
    rng = np.random.default_rng(5)
    truth = rng.normal(size=100) * 0.5
    x = truth[:, None] + rng.normal(scale=1.5, size=(100, 20))
    x = (x > 1.0).astype(float) if binary else x
    one, other = (
        estimate({"a": np.repeat(np.arange(100), 20), "x": table.ravel()}, agent="a", value="x")
        for table in (x, np.sort(x, axis=1))
    )
    assert one.summary.method == other.summary.method == "shrinkage"
    assert abs(one.summary.gain - other.summary.gain) < 3.0 * np.hypot(one.summary.gain_se, other.summary.gain_se)
    np.testing.assert_allclose(one.estimate, other.estimate, rtol=1e-6)
    assert any("sorted by value" in note for note in other.summary.notes) and not one.summary.notes
