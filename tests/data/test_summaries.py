"""Tables of means, rates and counts: against formulas, on worlds whose truth is known, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from colme.data.estimate import estimate
from colme.data.fit.conjugate import ConjugateLocal, ConjugateShrinkage, RateMixture
from colme.data.fit.estimators import AgentStatistics
from colme.data.fit.prior import Prior
from colme.data.report.result import Result
from tests.support.tables import COUNTS, RATES, counts, rates


def error(result: Result, truth: Any) -> float:
    return float(np.square(result.estimate - truth).mean() / np.square(result.mean - truth).mean())


def covered(result: Result, truth: Any) -> float:
    return float(((result.lower <= truth) & (truth <= result.upper)).mean())


WORLDS: dict[str, Any] = {
    "beta": (rates, lambda rng: rng.beta(2, 20, 300), RATES, 0.45),
    "uniform rates": (rates, lambda rng: rng.random(300), RATES, 0.95),
    "classes of rates": (rates, lambda rng: rng.choice([0.05, 0.3], 300), RATES, 0.55),
    "gamma": (counts, lambda rng: rng.gamma(2.0, 1.0, 300), COUNTS, 0.7),
    "classes of counts": (counts, lambda rng: rng.choice([0.5, 3.0], 300), COUNTS, 0.5),
}


@pytest.mark.parametrize("world", WORLDS)
def test_rates_and_counts_gain_and_their_intervals_cover(world: str) -> None:
    """Six tables of 300 agents: the standard error of coverage is .007 if agents were independent, and their errors
    share those of the prior; .03 are allowed. The gain said is unbiased or cautious, within two standard errors."""
    make, draw, columns, most = WORLDS[world]
    found = []
    for seed in range(40, 46):
        rng = np.random.default_rng(seed)
        truth = draw(rng)
        result = estimate(make(rng, truth), **columns)
        found.append((error(result, truth), covered(result, truth), 1.0 - result.summary.gain, result.summary.gain_se))
        assert (result.lower >= 0.0).all() and (result.lower <= result.estimate).all()
        assert (result.upper >= result.estimate).all() and (columns is COUNTS or (result.upper <= 1.0).all())
        assert 0.0 <= result.summary.gain <= 1.0
    true, coverage, said, se = np.mean(found, axis=0)
    assert true < most and coverage > 0.87 - 0.03 and said > true - 2.0 * se
    assert coverage < 0.93 + 0.03 or "classes" in world


def test_shrinkage_finds_the_prior() -> None:
    """20 000 agents: the estimates are those of the true prior, to the error of the fitted one."""
    rng = np.random.default_rng(1)
    n, p = np.full(20_000, 12.0), rng.beta(3, 27, 20_000)
    y = rng.binomial(12, p)
    agents = AgentStatistics(y / n, 0.09 / n, n, Prior())
    fit = ConjugateShrinkage(variance="binomial").fit(agents)
    np.testing.assert_allclose(fit.estimate, (y + 3.0) / (n + 30.0), atol=0.004)
    lower, upper = fit.interval(0.9)
    expected = stats.beta(y + 3.0, n - y + 27.0)
    np.testing.assert_allclose(lower, expected.ppf(0.05), atol=0.006)
    np.testing.assert_allclose(upper, expected.ppf(0.95), atol=0.006)
    e = rng.uniform(1.0, 4.0, 20_000)
    y = rng.poisson(rng.gamma(2.0, 0.5, 20_000) * e)
    fit = ConjugateShrinkage(variance="Poisson").fit(AgentStatistics(y / e, 1.0 / e, e, Prior()))
    np.testing.assert_allclose(fit.estimate, (y + 2.0) / (e + 2.0), atol=0.1)
    np.testing.assert_allclose(fit.interval(0.9)[0], stats.gamma(y + 2.0, scale=1.0 / (e + 2.0)).ppf(0.05), atol=0.1)


def test_local_intervals_are_those_of_jeffreys() -> None:
    n, y = np.array([10.0, 10.0, 4.0]), np.array([0.0, 10.0, 1.0])
    fit = ConjugateLocal(variance="binomial").fit(AgentStatistics(y / n, 0.1 / n, n, Prior()))
    lower, upper = fit.interval(0.9)
    expected = stats.beta(y + 0.5, n - y + 0.5)
    np.testing.assert_allclose(lower, np.minimum(expected.ppf(0.05), y / n))
    np.testing.assert_allclose(upper, np.maximum(expected.ppf(0.95), y / n))


def test_a_mixture_of_rates_finds_two_points() -> None:
    rng = np.random.default_rng(2)
    truth = rng.choice([0.1, 0.5], 4000)
    n = np.full(4000, 20.0)
    y = rng.binomial(20, truth)
    fit = RateMixture(variance="binomial").fit(AgentStatistics(y / n, 0.2 / n, n, Prior()))
    share = 1.0 / (1.0 + stats.binom(20, 0.1).pmf(y) / stats.binom(20, 0.5).pmf(y))
    np.testing.assert_allclose(fit.estimate, 0.1 + 0.4 * share, atol=0.03)


def test_means_with_standard_errors_are_shrunk_as_by_hand() -> None:
    """Known errors: normal empirical Bayes, 2000 agents, so that tau is known to 3 %."""
    rng = np.random.default_rng(3)
    truth, se = rng.normal(5.0, 1.0, 2000), rng.uniform(0.5, 2.0, 2000)
    mean = rng.normal(truth, se)
    result = estimate({"a": np.arange(2000), "m": mean, "se": se}, agent="a", mean="m", se="se", method="shrinkage")
    kept = 1.0 / (1.0 + se * se)
    np.testing.assert_allclose(result.estimate, 5.0 + kept * (mean - 5.0), atol=0.2)
    assert 0.87 < covered(result, truth) < 0.93
    assert 1.0 - result.summary.gain == pytest.approx(error(result, truth), abs=3.0 * result.summary.gain_se)
    assert result.n.tolist() == [1] * 2000 and not result.flag_names()[0].count("zero")


def test_means_with_counts_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(4)
    agent = np.repeat(np.arange(200), rng.integers(2, 30, 200))
    value = rng.normal(agent % 7, 2.0)
    n = np.bincount(agent)
    mean = np.bincount(agent, value) / n
    se = np.sqrt(np.bincount(agent, np.square(value - mean[agent])) / (n - 1) / n)
    rows = estimate({"a": agent, "x": value}, agent="a", value="x", method="shrinkage")
    summary = estimate({"a": np.arange(200), "m": mean, "se": se, "n": n}, agent="a", mean="m", se="se", n="n",
                       method="shrinkage")  # fmt: skip
    np.testing.assert_allclose(summary.mean, rows.mean, rtol=1e-12)
    assert summary.summary.sigma == pytest.approx(rows.summary.sigma, rel=1e-9)
    np.testing.assert_allclose(summary.estimate, rows.estimate, atol=0.15)  # folds choose the kind of variance
    assert summary.summary.gain == pytest.approx(rows.summary.gain, abs=4.0 * rows.summary.gain_se)


def test_rows_of_one_agent_are_added_up_and_their_order_does_not_matter() -> None:
    table = {"a": ["x", "y", "x", "z", "w", "v", "u"], "y": [1, 2, 3, 0, 4, 2, 0], "n": [5, 9, 5, 4, 8, 7, 0]}
    one = estimate(table, **RATES)
    assert one.agent.tolist() == ["x", "y", "z", "w", "v"] and one.n.tolist() == [10, 9, 4, 8, 7]
    np.testing.assert_allclose(one.mean, [0.4, 2 / 9, 0.0, 0.5, 2 / 7])
    turned = estimate({name: column[::-1] for name, column in table.items()}, **RATES)
    order = [turned.agent.tolist().index(label) for label in one.agent]
    np.testing.assert_allclose(turned.estimate[order], one.estimate, rtol=1e-6)  # the prior weight is found to 1e-3
    assert one.summary.gain == pytest.approx(turned.summary.gain, abs=1e-6)


@pytest.mark.parametrize("n_agents", [1, 2, 4])
def test_few_agents_keep_their_own_rates(n_agents: int) -> None:
    result = estimate({"a": np.arange(n_agents), "y": np.zeros(n_agents), "n": np.full(n_agents, 5)}, **RATES)
    assert result.summary.method == "local" and (result.upper > 0.2).all() and (result.lower == 0.0).all()
