"""The estimators of tables against the slowest possible reading of each."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from colme.data.fit import Candidate
from colme.data.fit.conjugate import ConjugateShrinkage
from colme.data.fit.cross_validation import Scored, best_of
from colme.data.fit.estimators import AgentStatistics, Close, Shrinkage, fitted_spreads, spread_evidence
from colme.data.fit.mixture_estimator import components, overlapping
from colme.data.fit.noise import measure_noise
from colme.data.fit.prior import Prior
from colme.data.moments import moments_of
from colme.data.thinning import as_independent
from colme.noise import INDEPENDENT
from tests.reference import close as brute
from tests.support.tables import drawn, table_of


def _touch(mean: np.ndarray, radius: np.ndarray) -> np.ndarray:
    lower, upper = mean - radius, mean + radius
    return (lower[:, None] <= upper) & (lower <= upper[:, None])


agents = st.lists(
    st.tuples(st.floats(-50, 50), st.floats(0, 5), st.floats(0.1, 10)), min_size=1, max_size=40
)  # fmt: skip


@given(agents)
@settings(max_examples=150, deadline=None)
def test_one_hop_sums_are_those_of_all_pairs(rows: list[tuple[float, float, float]]) -> None:
    mean, radius, weight = np.array(rows).T
    near = _touch(mean, radius)
    total, pull = overlapping(mean, radius, weight)
    np.testing.assert_allclose(total, near @ weight, rtol=1e-9)
    np.testing.assert_allclose(pull, near @ (weight * mean), rtol=1e-9, atol=1e-9 * 50 * weight.sum())


@given(agents)
@settings(max_examples=150, deadline=None)
def test_components_are_those_of_the_graph(rows: list[tuple[float, float, float]]) -> None:
    mean, radius, _ = np.array(rows).T
    near = _touch(mean, radius)
    reach = near.astype(np.int64)
    for _ in range(6):  # 2^6 > 40 steps
        reach = (reach @ reach > 0).astype(np.int64)
    group = components(mean, radius)
    assert np.array_equal(group[:, None] == group, reach > 0)


@pytest.mark.parametrize("forward", [False, True])
def test_moments_of_folds_merge_to_those_of_all_samples(forward: bool) -> None:
    rng = np.random.default_rng(0)
    samples = [rng.normal(1e6, 1.0, n) for n in (1, 2, 3, 4, 5, 6, 11, 100)]
    weight = rng.uniform(0.5, 2.0, sum(map(len, samples)))
    table = table_of(samples, timed=forward, weight=weight)
    half_life = 7.0 if forward else math.inf
    folds = moments_of(table, seed=3, half_life=half_life).folds
    every = folds.merged(slice(None))
    for a, x in enumerate(samples):
        p, age = weight[table.start[a] : table.start[a + 1]], np.arange(len(x))[::-1]
        g = 0.5 ** (age / half_life)
        mean = (g * p * x).sum() / (g * p).sum()
        np.testing.assert_allclose(every.mean[a], mean, rtol=1e-14)
        np.testing.assert_allclose(every.square[a], (g * p * (x - mean) ** 2).sum(), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(every.worth[a], (g * p).sum() ** 2 / (g * g * p).sum())
        np.testing.assert_allclose(every.freedom[a], g.sum() - (g * g * p).sum() / (g * p).sum(), atol=1e-9)
    assert np.array_equal(folds.n.sum(axis=1), [len(x) for x in samples])
    assert np.ptp(folds.n[-1]) == 0  # 100 samples fill five folds evenly
    if forward:  # few samples fill the last folds
        assert folds.n[2].tolist() == [0, 0, 1, 1, 1]
    else:
        assert (folds.n[:5] <= 1).all()


def test_moderated_variances_find_the_prior_that_made_them() -> None:
    """Own variances are d s / chi^2_d with d = 8 and s = 4: what 4000 agents with 5 degrees of freedom know well."""
    rng = np.random.default_rng(1)
    variance = 4.0 * 8.0 / rng.chisquare(8.0, 4000)
    table = table_of([rng.normal(0.0, math.sqrt(v), 6) for v in variance])
    noise = measure_noise(moments_of(table).folds, None)
    assert noise.common == pytest.approx(4.0, rel=0.1)
    assert noise.freedom == pytest.approx(8.0, rel=0.25)  # the error of trigamma(d/2) is three times larger in d
    assert noise.pooled == pytest.approx(variance.mean(), rel=0.1)


def test_equal_variances_are_pooled_almost_wholly() -> None:
    table = drawn(np.random.default_rng(2), np.zeros(3000), 5, sigma=2.0)
    noise = measure_noise(moments_of(table).folds, None)
    assert noise.freedom > 50.0
    assert noise.common == pytest.approx(4.0, rel=0.05)


def test_autocorrelated_samples_are_worth_less() -> None:
    """AR(1) with rho = .5: the mean of n samples varies (1 + rho) / (1 - rho) = 3 times as much as its count says."""
    rng = np.random.default_rng(3)
    x = np.zeros((2000, 60))
    for t in range(60):
        x[:, t] = 0.5 * x[:, t - 1] * (t > 0) + rng.normal(size=2000)
    for timed in (False, True):
        _, factors = as_independent(moments_of(table_of(list(x), timed=timed)), seed=0)
        # 2000 agents know it to some percent, and at 60 samples it is not quite the limit
        assert np.median(factors.low_of_own) == pytest.approx(3.0, rel=0.15)
        assert np.median(factors.high_of_own) == pytest.approx(3.0, rel=0.15)
        _, free = as_independent(moments_of(drawn(rng, np.zeros(2000), 60, timed=timed)), seed=0)
        assert free is INDEPENDENT


def test_prior_is_weighted_least_squares() -> None:
    rng = np.random.default_rng(4)
    label, x = rng.integers(0, 3, 400), rng.normal(size=(400, 2))
    noise = rng.uniform(0.1, 2.0, 400)
    truth = np.array([0.0, 5.0, -3.0])[label] + x @ [2.0, -1.0]
    mean = truth + rng.normal(size=400) * np.sqrt(noise + 0.25)
    found = Prior(label, x).fit(mean, noise)
    assert found.spread == pytest.approx(0.25, abs=3 * found.spread_error)
    weight = 1.0 / (noise + found.spread)
    design = np.concatenate([np.eye(3)[label], x], axis=1)
    inverse = np.linalg.inv(design.T @ (weight[:, None] * design))
    np.testing.assert_allclose(found.mean, design @ (inverse @ (design.T @ (weight * mean))), atol=1e-8)
    np.testing.assert_allclose(found.variance, ((design @ inverse) * design).sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize(("law", "unit"), [("binomial", 1.0), ("Poisson", 1.0), ("Poisson", 1e-12)])
def test_the_prior_weight_of_rates_maximizes_the_likelihood_of_all_agents_one_by_one(law: str, unit: float) -> None:
    rng = np.random.default_rng(0)
    n = rng.integers(3, 30, 400).astype(float)
    if law == "binomial":
        y = rng.binomial(n.astype(int), rng.beta(2.0, 6.0, 400)).astype(float)
    else:
        y, n = rng.poisson(n * rng.gamma(3.0, 1.0, 400)).astype(float), unit * n
    fit = ConjugateShrinkage(variance=law).fit(AgentStatistics(y / n, np.ones(400), n, Prior()))
    weight = n * fit.borrowed / (1.0 - fit.borrowed)
    np.testing.assert_allclose(weight, weight[0])
    place = (fit.y - y) / weight

    def likelihood(s: float) -> float:
        if law == "binomial":
            a, b = s * place, s * (1.0 - place)
            return float((special.betaln(y + a, n - y + b) - special.betaln(a, b)).sum())
        a = s * place
        return float((special.gammaln(y + a) - special.gammaln(a) + a * np.log(s) - (y + a) * np.log(n + s)).sum())

    # the search stops within 1e-3 of the logarithm of the weight
    assert likelihood(weight[0]) > max(likelihood(weight[0] * 1.01), likelihood(weight[0] / 1.01))


@pytest.mark.parametrize("labeled", [False, True])
def test_covariates_are_ranked_by_what_the_others_miss(labeled: bool) -> None:
    """Against regressions with every covariate left out in turn, by least squares on indicators of labels."""
    rng = np.random.default_rng(8)
    label = rng.integers(0, 3, 50)
    covariates = rng.normal(size=(50, 5)) @ rng.normal(size=(5, 5))
    mean, noise = (
        covariates @ np.array([0.3, 0.0, -0.2, 0.1, 0.05]) + label + rng.normal(size=50),
        rng.uniform(1, 3, 50),
    )
    prior = Prior(label if labeled else None, covariates)
    weight = np.sqrt(1.0 / (noise + prior.fit(mean, noise).spread))
    common = np.eye(3)[label] if labeled else np.ones((50, 1))

    def missed(columns: list[int]) -> float:
        design = weight[:, None] * np.concatenate([common, covariates[:, columns]], axis=1)
        return float(np.square(weight * mean - design @ np.linalg.lstsq(design, weight * mean)[0]).sum())

    left = list(range(5))
    for k in prior.ranked(mean, noise)[::-1]:
        without = {j: missed([i for i in left if i != j]) for j in left}
        assert min(without, key=without.__getitem__) == k
        left.remove(int(k))
    whole = noise + prior.fit(mean, noise).spread
    away = missed(list(range(5)))
    assert prior.log_likelihood(mean, noise) == pytest.approx(-0.5 * (np.log(whole).sum() + away), rel=1e-9)
    assert prior.with_columns([]).covariates is None and prior.with_columns([4, 1]).covariates is not None


def spread_by_count(seed: int, n_agents: int, slope: float, *, heavy: bool = False) -> AgentStatistics:
    """3 to 200 samples of standard deviation 2; log tau^2 grows with log n."""
    rng = np.random.default_rng(seed)
    n = np.exp(rng.uniform(np.log(3.0), np.log(200.0), n_agents)).round()
    tau = 0.6 * np.exp(0.5 * slope * (np.log(n) - 3.2))
    truth = tau * (rng.standard_t(3, n_agents) / 3.0**0.5 if heavy else rng.normal(size=n_agents))
    return AgentStatistics(rng.normal(truth, 2.0 / np.sqrt(n)), 4.0 / n, n, Prior())


@pytest.mark.parametrize(("n_agents", "slope"), [(12, 0.5), (40, 0.0), (40, -1.0), (80, 1.5)])
def test_close_is_what_a_grid_of_all_spreads_finds(n_agents: int, slope: float) -> None:
    agents = spread_by_count(1, n_agents, slope)
    found = fitted_spreads(agents)
    assert found is not None
    scale = np.log(agents.worth) - np.log(agents.worth).mean()
    level, best, line = brute.most_likely(agents.mean, agents.noise, scale, math.log(0.3))
    # the grid ends with steps of .4^11 = 4e-5, the scoring with steps of 1e-5
    assert np.polyfit(scale, np.log(found.spread), 1)[0] == pytest.approx(best, abs=2e-3)
    np.testing.assert_allclose(found.spread, np.exp(level + best * scale), rtol=1e-2)
    np.testing.assert_allclose(found.mean, line[0] + line[1] * scale, atol=1e-3)
    estimate = Close().fit(agents).estimate
    for a in range(0, n_agents, 5):
        place, tau = float(found.mean[a]), math.sqrt(float(found.spread[a]))
        expected = brute.posterior_mean(float(agents.mean[a]), float(agents.noise[a]), place, tau)
        assert estimate[a] == pytest.approx(expected, abs=1e-6)


def test_close_is_shrinkage_where_counts_are_equal_or_agents_do_not_differ() -> None:
    rng = np.random.default_rng(2)
    equal = AgentStatistics(rng.normal(size=50), np.full(50, 0.5), np.full(50, 8.0), Prior())
    same = AgentStatistics(np.linspace(-1e-3, 1e-3, 50), np.full(50, 0.5), np.arange(1.0, 51.0), Prior())
    for agents in (equal, same):
        one, other = Close().fit(agents), Shrinkage().fit(agents)
        assert np.array_equal(one.estimate, other.estimate) and np.array_equal(one.error(), other.error())
        assert abs(spread_evidence(agents)) < 1e-9


def test_the_evidence_that_spreads_depend_on_counts_is_in_standard_errors() -> None:
    """By chance it exceeds 2 with probability .045, also with heavy tails: 28 of 300 at most (four standard errors
    above). A slope of .4 is found with a standard error of .06 or less in 2000 agents."""
    for heavy in (False, True):
        chance = [abs(spread_evidence(spread_by_count(seed, 200, 0.0, heavy=heavy))) > 2.0 for seed in range(300)]
        assert sum(chance) <= 28
    assert spread_evidence(spread_by_count(3, 2000, 0.4)) > 3.0
    assert spread_evidence(spread_by_count(3, 2000, -0.4)) < -3.0


def test_an_alternative_that_is_worse_is_not_said_to_gain() -> None:
    """Worse than the local mean by more than its standard error, in agents of which half are far better off."""

    def scored(name: str, ratio: float, se: float, away: list[float]) -> Scored:
        return Scored(SimpleNamespace(name=name), Candidate(name, ratio, se), np.array(away))  # type: ignore[arg-type]

    scores = [scored("local", 1.0, 0.0, [0.0] * 4), scored("shrinkage", 1.232, 0.183, [-9.0, 8.0, -9.0, 8.0])]
    winner, why = best_of(scores)
    assert winner.candidate.name == "local"
    assert why == "the best alternative, shrinkage, has 23.2% more error in cross-validation (standard error 18.3%)"
    scores[1] = scored("shrinkage", 0.95, 0.08, [-9.0, 8.0, -9.0, 8.0])
    assert best_of(scores)[1].endswith("gains 5.0% in cross-validation, which is within its standard error of 8.0%")
