"""Checks of the reference of the census by hand computation."""

import math

import numpy as np
import pytest

from .census import Column, bin_mean, census, fitted, is_regular, sums_of_squares
from .common import running_means
from .mixture import (
    Histogram,
    Mixture,
    Prior,
    added_variance,
    by_moments,
    em,
    group_atoms,
    log_likelihood,
    merged,
    non_parametric,
    score,
    search,
)
from .test_reference import complete, graph, path, random_graph, same, two_classes


def exact(w: list[float], m: list[float], tau2: list[float], total: float = 1000.0) -> Histogram:
    """The expected histogram of a mixture, with noise variance 1."""
    c = np.arange(-12.0, 30.0, 0.25)
    f = sum(a * np.exp(-0.5 * (c - b) ** 2 / (t + 1)) / math.sqrt(t + 1) for a, b, t in zip(w, m, tau2, strict=True))
    kept = f / f.sum() * total > 1e-6
    return Histogram(c[kept], (f / f.sum() * total)[kept], np.ones(kept.sum()))


def test_bin_mean_by_hand() -> None:
    # 0.84 sqrt(4) = 1.68: h = 1; 2.25 lies a quarter of the way from bin 2 to bin 3
    assert bin_mean(2.25, 4.0, 1.0) == {("noise", 0): 4.0, ("bin", 0, 2): 0.75, ("bin", 0, 3): 0.25}
    # in units of 2: 0.84 is below 1, so h = 2 / 2
    assert bin_mean(-0.5, 4.0, 2.0) == {("noise", -1): 4.0, ("bin", -1, -1): 0.5, ("bin", -1, 0): 0.5}
    assert ("bin", 0, 2**40) in bin_mean(1e13, 4.0, 1.0)


def test_regular_graphs_have_momentum() -> None:
    assert is_regular(complete(5))
    assert not is_regular(path(5))
    assert not is_regular(graph(4, [(0, 1), (1, 2), (2, 3), (3, 0)]))  # degree 2
    cube = [(a, a ^ (1 << i)) for a in range(8) for i in range(3) if a < a ^ (1 << i)]
    assert not is_regular(graph(8, cube))  # bipartite


def test_sums_of_squares() -> None:
    nan = math.nan
    same(
        sums_of_squares(np.array([[1.0, nan], [3.0, 5.0], [nan, nan], [5.0, 8.0]])), [[0, 0], [2, 0], [2, 0], [8, 4.5]]
    )


def test_scores_by_hand() -> None:
    bins = Histogram(np.array([0.0, 2.0]), np.array([30.0, 10.0]), np.ones(2))
    one = Mixture(np.ones(1), np.zeros(1), np.zeros(1), np.zeros(1, bool))
    # ln of exp(0) and exp(-2)
    assert log_likelihood(bins, one) == pytest.approx(-20.0)
    assert score(bins, one) == pytest.approx(-20.0 - math.log(40) - 3)
    assert by_moments(bins).m[0] == 0.5 and by_moments(bins).tau2[0] == 0.0  # variance 3/4, noise 1
    moved = em(bins, one, 1)
    assert moved.m[0] == 0.5 and moved.w[0] == 1.0


def test_groups_of_atoms_and_merges_by_hand() -> None:
    found = group_atoms(np.arange(5.0), np.array([0.3, 0.1, 0.0, 0.2, 0.4]), 100.0, 4.0)
    same(found.w, [0.4, 0.6])
    same(found.m, [0.25, 2.2 / 0.6])
    apart = group_atoms(np.array([0.0, 1.0, 10.0]), np.array([0.5, 0.3, 0.2]), 100.0, 4.0)
    same(apart.m, [0.375, 10.0])
    both = merged(
        Mixture(np.array([0.25, 0.75]), np.array([0.0, 4.0]), np.array([1.0, 2.0]), np.ones(2, bool)), 0, True
    )
    same(both.m, [3.0])
    same(both.tau2, [0.25 * (1 + 9) + 0.75 * (2 + 1)])


@pytest.mark.parametrize(
    ("w", "m", "tau2"),
    [([1.0], [0.0], [0.0]), ([1.0], [0.0], [4.0]), ([0.5, 0.5], [0.0, 4.0], [0.0, 0.0]),
     ([0.2, 0.3, 0.5], [0.0, 7.0, 15.0], [0.0, 2.0, 0.0])],
)  # fmt: skip
def test_search_finds_what_was_planted(w: list[float], m: list[float], tau2: list[float]) -> None:
    bins = exact(w, m, tau2)
    found = search(bins)
    for got, wanted in ((found.w, w), (found.m, m), (found.tau2, tau2)):
        np.testing.assert_allclose(got, wanted, atol=0.02)
    assert log_likelihood(bins, found) <= non_parametric(bins)[2] + 2.0  # locations between the atoms
    # the variance of the location of a component that stands alone is (1 + tau^2) / n
    lone = (1.0 + np.array(tau2)) / (1000.0 * np.array(w))
    assert (added_variance(bins, found) >= 0.99 * lone).all()
    if len(w) == 1 and tau2[0] > 0.0:
        assert added_variance(bins, found)[0] == pytest.approx(lone[0], rel=0.01)


def test_posterior_by_hand() -> None:
    # prior variance 1 and noise 1: half way
    assert Prior(np.ones(1), np.zeros(1), np.ones(1), 0.0).posterior_mean(3.0, 1.0) == 1.5
    # two points at 0 and 2, seen from the middle
    two = Prior(np.full(2, 0.5), np.array([0.0, 2.0]), np.zeros(2), 0.0)
    assert two.posterior_mean(1.0, 1.0) == pytest.approx(1.0)
    assert two.posterior_mean(2.0, 1.0) == pytest.approx(2.0 / (1.0 + math.exp(-2.0)))
    # far from all components the prior is that of outliers
    assert Prior(np.ones(1), np.zeros(1), np.zeros(1), 1e-6).posterior_mean(30.0, 1.0) == 30.0


def test_an_empty_row_gives_no_prior() -> None:
    assert fitted(np.zeros(3), [("bin", 0, 0), ("bin", 0, 1), ("noise", 0)], 1.0, 10.0, 10, 0) is None


def test_bins_of_another_grid_count_unless_they_deviate() -> None:
    """Two grids of 40 agents each: of one mean, they give both the same prior; far apart, each gets its own only."""
    for shift, apart in ((0.0, False), (8.0, True)):
        masses: dict[Column, float] = {}
        for i in range(40):
            for one in (bin_mean(0.1 * i - 2.0, 1.0, 1.0), bin_mean(0.1 * i - 2.0 + shift, 9.0, 1.0)):
                for column, value in one.items():
                    masses[column] = masses.get(column, 0.0) + value / 80.0
        columns = sorted(masses)
        row = np.array([masses[column] for column in columns])
        fine, coarse = (fitted(row, columns, 1.0, 80.0, 80, grid) for grid in (-1, 1))
        assert fine is not None and coarse is not None
        assert bool(abs(fine.w @ fine.m - coarse.w @ coarse.m) > 7.0) == apart


def test_complete_graph_reaches_all_agents_at_once() -> None:
    """K_n with W = A / (n - 1) and one round is the average of all other agents."""
    samples, _ = two_classes(1, 6, 0)
    masses = [bin_mean(float(x), 1.0, 1.0) for x in samples[0]]
    others = Histogram(*np.array(sorted(
        (k * 0.5, sum(each.get(("bin", -1, k), 0.0) for each in masses[1:]), 0.25 * (4.0 + 1 / 6))
        for k in {column[2] for each in masses[1:] for column in each if column[0] == "bin"}
    )).T)  # fmt: skip
    assert others.total == pytest.approx(5.0)
    assert others.mean == pytest.approx(samples[0, 1:].mean())
    result = census(samples, complete(6), sigma=1.0, rounds=1)
    one = by_moments(others)
    # a histogram of all of 6, of effective number min(6, .6 * 4 + 1): a single component
    spread = one.tau2 + added_variance(Histogram(others.c, others.n * 3.4 / 5.0, others.v), one)
    reach = np.ptp(others.c)
    prior = Prior(np.ones(1), one.m, spread, 0.1 / 3.4 / reach)
    assert result.estimate[0, 0] == pytest.approx(prior.posterior_mean(samples[0, 0], 1.0), abs=1e-12)


def test_two_classes_part() -> None:
    samples, classes = two_classes(20, 24, 3)
    A = random_graph(24, 0.3, 4)
    estimate = census(samples, A, sigma=1.0).estimate[-1]
    mean = running_means(samples)[0][-1]
    truth = 3.0 * classes
    assert np.square(estimate - truth).mean() < 0.5 * np.square(mean - truth).mean()
