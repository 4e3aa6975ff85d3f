"""Questions to a result: against brute-force integration, on worlds whose truth is known, and in adverse tables."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import colme
from colme.data.estimate import estimate, estimate_table
from colme.data.report.questions import with_answers
from colme.data.report.result import Result
from colme.errors import ColmeError, UnknownAgent
from tests.reference import hierarchical
from tests.support.tables import COUNTS, RATES, counts, drawn, noisy, rates, table_of

MEANS = {"agent": "a", "mean": "m", "se": "s"}


def means(rng: np.random.Generator, truth: Any, error: Any = 1.0) -> dict[str, Any]:
    se = np.broadcast_to(np.asarray(error, np.float64), truth.shape)
    return {"a": np.arange(len(truth)), "m": truth + se * rng.normal(size=len(truth)), "s": se}


def results() -> dict[str, Result]:
    """One result for each kind of posterior."""
    rng = np.random.default_rng(5)
    normal, two = rng.normal(size=60), rng.choice([0.0, 6.0], 60)
    return {
        "normal": estimate(means(rng, normal), **MEANS),
        "Student": estimate_table(drawn(rng, normal[:30], 4)),
        "mixture": estimate(means(rng, two), **MEANS),
        "beta": estimate(rates(rng, rng.beta(2, 20, 60)), **RATES),
        "gamma": estimate(counts(rng, rng.gamma(2.0, 1.0, 60)), **COUNTS),
        "points": estimate(rates(rng, rng.choice([0.1, 0.7], 80)), **RATES),
        "one-hop": estimate(means(rng, two), **MEANS, method="one-hop"),
        "pooled": estimate(means(rng, normal), **MEANS, method="pooled"),
        "local": estimate(means(rng, normal), **MEANS, method="local"),
        "local rates": estimate(rates(rng, rng.beta(2, 20, 60)), **RATES, method="local"),
        "pooled rates": estimate(rates(rng, rng.beta(2, 20, 60)), **RATES, method="pooled"),
    }


@pytest.fixture(scope="module")
def known() -> dict[str, Result]:
    return results()


# consistency


KINDS = ("normal", "Student", "mixture", "beta", "gamma", "points", "one-hop", "pooled", "local", "local rates",
         "pooled rates")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_mean_is_in_its_interval_with_the_probability_of_the_level(known: dict[str, Result], kind: str) -> None:
    """Student's quantiles in intervals are an expansion, 0.3 % off at 3 degrees of freedom; and an end that was moved
    to the estimate, or to a bound of rates, adds probability."""
    result = known[kind]
    inside = result.probability_between(result.lower - 1e-12, result.upper)
    ends = (result.lower == result.estimate) | (result.upper == result.estimate)
    if result.population is not None and result.population.law is not None:
        ends |= (result.lower <= 0.0) | (result.upper >= result.population.law.most)
    assert (inside > 0.9 - 2e-3).all()
    assert (inside[~ends] < 0.9 + 2e-3).all()
    assert ends.sum() < len(ends) / 2 or kind in ("local rates", "pooled rates")


@pytest.mark.parametrize("kind", KINDS)
def test_quantiles_draws_and_probabilities_are_of_one_distribution(known: dict[str, Result], kind: str) -> None:
    """2000 draws: a share has a standard error of at most .011, and 4.5 of these are allowed for some 60 agents."""
    posterior = known[kind].posterior
    rng = np.random.default_rng(1)
    draws = np.stack([posterior.draw(rng) for _ in range(2000)])
    for share in (0.1, 0.5, 0.8):
        value = posterior.quantile(share)
        assert (posterior.cdf(value) >= share - 1e-6).all()
        below = (draws <= value).mean(axis=0)
        assert np.abs(below - posterior.cdf(value)).max() < 0.05
    assert (np.diff([posterior.cdf(x) for x in np.linspace(-3.0, 9.0, 50)], axis=0) >= -1e-12).all()


# against brute force


def test_normal_means_agree_with_brute_force() -> None:
    """Estimates plug in the spread that is most likely, and cross-validation stretches standard errors. A standard
    error that is off by a factor f moves a probability by at most .242 |log f|, and a shift of a standard errors by at
    most .4 a: 10 % of a standard error is allowed for the spread that is plugged in."""
    rng = np.random.default_rng(11)
    table = means(rng, rng.normal(size=12), rng.uniform(0.4, 0.9, 12))
    result = estimate(table, **MEANS, method="shrinkage")
    above, expected, among, larger, (grid, new) = hierarchical.questions(table["m"], table["s"] ** 2, 0.5, 3)
    allowed = 0.242 * abs(np.log(result.summary.stretch)) + 0.04
    assert allowed < 0.1
    assert np.abs(result.probability_above(0.5) - above).max() < allowed
    ranking = result.rank(3, draws=4000)
    assert np.abs(ranking.top - among).max() < allowed + 4.0 * 0.5 / 4000**0.5
    assert np.abs(ranking.expected - expected).max() < 11 * allowed / 2
    for a, b in ((0, 1), (2, 7), (5, 11)):
        assert abs(result.difference(a, b).probability - larger[a, b]) < 2**0.5 * allowed
    found, share = result.predict(), np.cumsum(new)
    assert abs(found.estimate - (grid * new).sum()) < 0.02
    for end, tail in ((found.lower, 0.05), (found.upper, 0.95)):  # the grid of mu and tau is another one
        assert abs(np.interp(end, grid, share) - tail) < 0.01


def test_rates_agree_with_brute_force() -> None:
    rng = np.random.default_rng(3)
    table = rates(rng, rng.beta(2, 8, 40))
    result = estimate(table, **RATES, method="shrinkage")
    above = hierarchical.rates_above(table["y"], table["n"], 0.2)
    assert np.abs(result.probability_above(0.2) - above).max() < 0.242 * abs(np.log(result.summary.stretch)) + 0.04


def test_a_mixture_agrees_with_brute_force() -> None:
    """The posterior of the census, before it is stretched: in each component the error of the posterior mean, if the
    spread is the one that intervals allow for."""
    rng = np.random.default_rng(2)
    result = estimate(means(rng, rng.choice([0.0, 4.0], 300)), **MEANS, method="census")
    assert result.population is not None and result.population.groups is not None
    fit = result.population.groups.mixture
    assert fit is not None
    share, location, variance = fit.components
    allowed = fit.mixture.allowed[0, : len(share)]
    assert (allowed >= variance).all() and (allowed > variance).any()
    grid = np.linspace(-6.0, 10.0, 16001)
    for a in range(0, 300, 20):
        x = result.mean[a]
        density = float(fit.mixture.outlier_density[0]) * hierarchical.normal_density(grid, x, 1.0)
        for w, m, v, wide in zip(share, location + fit.middle, variance, allowed, strict=True):
            own = v / (v + 1.0)
            error = own**2 + (1.0 - own) ** 2 * wide
            likelihood = w * hierarchical.normal_density(x, m, v + 1.0)
            density = density + likelihood * hierarchical.normal_density(grid, m + own * (x - m), error)
        density /= density.sum()
        for x in (0.0, 0.05, 1.0, 4.0):
            cdf = float(np.interp(x, grid, np.cumsum(density) - 0.5 * density))
            assert abs(float(fit.cdf(np.array([a]), np.array([x]))[0]) - cdf) < 2e-4
        scale = result.posterior.scale[a]
        mean = float((grid * density).sum())
        moved = mean + (2.0 - result.estimate[a]) / scale
        wide = 1.0 - float(np.interp(moved, grid, np.cumsum(density) - 0.5 * density))
        assert abs(result.probability_above(2.0)[a] - wide) < 2e-3


@pytest.mark.parametrize(("kind", "a", "b"), [("normal", 3, 4), ("mixture", 0, 7), ("beta", 1, 2), ("points", 5, 9)])
def test_differences_agree_with_draws(known: dict[str, Result], kind: str, a: int, b: int) -> None:
    """4000 draws of each: the standard error of a share is at most .008, and 4 are allowed."""
    result, rng = known[kind], np.random.default_rng(0)
    posterior = result.posterior
    one, two = (posterior.quantile(rng.random(4000), np.full(4000, agent)) for agent in (a, b))
    found = result.difference(result.agent[a], result.agent[b])
    assert found.estimate == result.estimate[a] - result.estimate[b]
    assert abs((one > two).mean() - found.probability) < 0.032
    for end, tail in ((found.lower, 0.05), (found.upper, 0.95)):
        assert abs((one - two <= end).mean() - tail) < 0.032
    back = result.difference(result.agent[b], result.agent[a])
    assert abs(found.probability + back.probability - 1.0) < 2e-3
    assert back.lower == pytest.approx(-found.upper, abs=0.02 * (found.upper - found.lower))


# new agents


def _normal(shape: str, law: str, n_agents: int) -> Any:
    def make(rng: np.random.Generator) -> tuple[Result, NDArray[np.float64]]:
        def means(n: int) -> NDArray[np.float64]:
            if shape == "two":
                return rng.choice([0.0, 8.0], n) + 0.7 * rng.normal(size=n)
            return {"normal": rng.normal(size=n), "near": 0.5 * rng.normal(size=n),
                    "uniform": rng.uniform(-2.0, 2.0, n),
                    "exponential": rng.exponential(size=n)}[shape]  # fmt: skip

        table = noisy(rng, law, means(n_agents), rng.integers(5, 30, n_agents), 2.0)
        return estimate_table(table), means(4000)

    return make


def _law(make: Any, draw: Any, columns: dict[str, str]) -> Any:
    def world(rng: np.random.Generator) -> tuple[Result, NDArray[np.float64]]:
        return estimate(make(rng, draw(rng, 150)), **columns), draw(rng, 4000)

    return world


NEW: dict[str, Any] = {
    "normal": _normal("normal", "normal", 150),
    "normal, 20 agents": _normal("normal", "normal", 20),
    "normal, t(3) noise": _normal("normal", "t(3)", 150),
    "normal, lognormal noise": _normal("normal", "lognormal", 150),
    "little spread": _normal("near", "normal", 150),
    "exponential": _normal("exponential", "normal", 150),
    "uniform": _normal("uniform", "normal", 150),
    "two wide groups": _normal("two", "normal", 150),
    "beta(2, 20)": _law(rates, lambda rng, n: rng.beta(2, 20, n), RATES),
    "uniform rates": _law(rates, lambda rng, n: rng.random(n), RATES),
    "groups of rates": _law(rates, lambda rng, n: np.where(rng.random(n) < 0.5, rng.beta(10, 90, n),
                                                           rng.beta(30, 20, n)), RATES),
    "gamma(2)": _law(counts, lambda rng, n: rng.gamma(2.0, 1.0, n), COUNTS),
}  # fmt: skip
SHAPE = {"exponential": 0.035, "uniform": 0.05, "two wide groups": 0.02, "groups of rates": 0.03}
"""A normal interval of the right mean and variance covers .93 of an exponential and .95 of a uniform distribution."""


QUICK = ("normal, 20 agents", "two wide groups", "gamma(2)")


@pytest.mark.parametrize("world", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NEW])
def test_intervals_of_new_agents_cover_their_means(world: str) -> None:
    """Eight tables. What is random is the table: the mean coverage has the standard error of tables, and 2.5 of these
    are allowed (12 worlds), with .01 for the standard error itself, and what the shape of a distribution adds."""
    covered = []
    for seed in range(8):
        result, fresh = NEW[world](np.random.default_rng([seed, 9]))
        found = result.predict("nobody")
        assert found.new and found.lower < found.estimate < found.upper
        if result.population is not None and result.population.law is not None:
            assert found.lower >= 0.0 and found.upper <= result.population.law.most
        covered.append(float(((found.lower <= fresh) & (fresh <= found.upper)).mean()))
    error = 2.5 * float(np.std(covered, ddof=1)) / 8**0.5 + 0.01
    assert 0.9 - error < np.mean(covered) < 0.9 + error + SHAPE.get(world, 0.0)


def test_new_agents_of_a_group_have_its_mean() -> None:
    rng = np.random.default_rng(0)
    result = estimate(means(rng, rng.choice([0.0, 6.0], 200)), **MEANS)
    assert result.summary.n_groups == 2
    low, high, both = result.predict(group=0), result.predict(group=1), result.predict()
    assert low.lower < 0.0 < low.upper < 2.0 and 4.0 < high.lower < 6.0 < high.upper
    assert low.estimate < both.estimate < high.estimate
    assert both.lower < low.estimate and high.estimate < both.upper
    rated = estimate(rates(rng, rng.choice([0.1, 0.7], 200)), **RATES)
    assert rated.summary.n_groups == 2
    assert 0.0 <= rated.predict(group=0).lower < 0.1 < rated.predict(group=0).upper < 0.3
    assert 0.5 < rated.predict(group=1).lower < 0.7 < rated.predict(group=1).upper <= 1.0


def test_new_agents_of_a_known_group_and_with_covariates() -> None:
    """Groups of 40 agents whose means have standard error 1.4 / sqrt(40); slopes of 120 agents likewise: .9 is four."""
    rng = np.random.default_rng(4)
    kind, age = rng.choice(["north", "south", "east"], 120), rng.uniform(0.0, 10.0, 120)
    truth = 10.0 * (kind == "south") + rng.normal(size=120)
    table = means(rng, truth) | {"kind": kind, "age": age}
    labelled = estimate(table, **MEANS, label="kind")
    for name, place in (("north", 0.0), ("south", 10.0)):
        found = labelled.predict(group=name)
        assert abs(found.estimate - place) < 0.9 and 2.0 < found.upper - found.lower < 6.0
    anyone = labelled.predict()
    assert anyone.lower < 0.0 and anyone.upper > 10.0
    assert sorted(labelled.group_names) == ["east", "north", "south"]
    aged = estimate(table | {"m": table["m"] - truth + 3.0 * age}, **MEANS, covariates="age")
    for years in (2.0, 8.0, 20.0):
        assert abs(aged.predict(covariates={"age": years}).estimate - 3.0 * years) < 0.9 * max(1.0, years / 10.0)
    wide = aged.predict()
    assert wide.lower < 5.0 and wide.upper > 25.0
    with pytest.raises(ColmeError, match=r"unknown covariate 'size'.*'age'"):
        aged.predict(covariates={"size": 1.0})
    with pytest.raises(ColmeError, match="age=nan: a covariate must be a finite number"):
        aged.predict(covariates={"age": float("nan")})
    with pytest.raises(ColmeError, match=r"unknown group 'nroth'.*Did you mean 'north'"):
        labelled.predict(group="nroth")


# ranks


@pytest.mark.parametrize("kind", ["normal", "mixture", "points", "gamma"])
def test_ranks_are_consistent(known: dict[str, Result], kind: str) -> None:
    result = known[kind]
    n = len(result.agent)
    ranking = result.rank(7)
    assert ranking.top.sum() == pytest.approx(7.0) and ranking.expected.sum() == pytest.approx(n * (n + 1) / 2)
    assert ((ranking.lower <= ranking.expected) & (ranking.expected <= ranking.upper)).all()
    assert (ranking.lower >= 1).all() and (ranking.upper <= n).all()
    again, other = result.rank(7), result.rank(7, seed=1)
    assert (again.top == ranking.top).all() and (other.top != ranking.top).any()
    first = result.top(7)
    assert len(first.agent) == 7 and (np.diff(first.top) <= 0.0).all()
    smallest = result.rank(7, largest=False)
    assert np.abs(smallest.expected - (n + 1 - ranking.expected)).max() < 4.0 * n / 1000**0.5
    assert list(first.to_frame().columns) == ["agent", "estimate", "expected", "lower", "upper", "top"]


def test_probabilities_of_ranks_are_calibrated() -> None:
    """Of agents said to be among the ten largest with probability p, a share p is: 40 tables, p in four parts. The
    standard error follows from the numbers of agents, and 4 are allowed, with .02 for the prior."""
    said, was, inside = [], [], []
    for seed in range(40):
        rng = np.random.default_rng([seed, 3])
        truth = rng.normal(size=60)
        ranking = estimate(means(rng, truth, 0.7), **MEANS, method="shrinkage").rank(10, draws=400)
        place = np.empty(60, np.int64)
        place[np.argsort(-truth)] = np.arange(1, 61)
        said.append(ranking.top)
        was.append(place <= 10)
        inside.append(((ranking.lower <= place) & (place <= ranking.upper)).mean())
    p, yes = np.concatenate(said), np.concatenate(was)
    for low, high in ((0.0, 0.1), (0.1, 0.4), (0.4, 0.7), (0.7, 1.01)):
        some = (p >= low) & (p < high)
        middle = p[some].mean()
        assert abs(yes[some].mean() - middle) < 4.0 * (middle * (1.0 - middle) / some.sum()) ** 0.5 + 0.02
    # an interval of ranks holds at least its level, and ranks of a table depend on each other: 4 standard errors
    assert 0.9 - 4.0 * np.std(inside, ddof=1) / 40**0.5 < np.mean(inside) < 0.96


@pytest.mark.slow
def test_differences_cover_and_their_probabilities_are_calibrated() -> None:
    """15 pairs of agents in each of 20 tables: standard error .0173 of 300 pairs, 3.5 of these allowed."""
    inside, said, was = [], [], []
    for seed in range(20):
        rng = np.random.default_rng([seed, 4])
        truth = rng.normal(size=60)
        result = estimate(means(rng, truth, 0.7), **MEANS, method="shrinkage")
        for a in range(0, 30, 2):
            found = result.difference(a, a + 1)
            inside.append(found.lower <= truth[a] - truth[a + 1] <= found.upper)
            said.append(found.probability)
            was.append(truth[a] > truth[a + 1])
    assert abs(np.mean(inside) - 0.9) < 3.5 * 0.0173
    p, yes = np.array(said), np.array(was)
    for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.01)):
        some = (p >= low) & (p < high)
        middle = p[some].mean()
        assert abs(yes[some].mean() - middle) < 3.5 * (middle * (1.0 - middle) / some.sum()) ** 0.5 + 0.02


# adverse tables


def test_agents_that_are_equal_share_their_ranks() -> None:
    """Four exact and equal means: 1000 draws break ties at random, standard error of a share .014, 4 allowed."""
    result = estimate_table(table_of([[1.0, 1.0]] * 4 + [[5.0, 5.0]]))
    ranking = result.rank(2)
    assert ranking.top[4] == 1.0 and np.abs(ranking.top[:4] - 0.25).max() < 0.056
    assert ranking.expected[4] == 1.0 and np.abs(ranking.expected[:4] - 3.5).max() < 4.0 * 1.12 / 1000**0.5
    assert result.probability_above(1.0).tolist() == [0.0] * 4 + [1.0]
    assert result.probability_above(0.999).tolist() == [1.0] * 5
    found = result.difference("a4", "a0")
    assert (found.estimate, found.lower, found.upper, found.probability) == (4.0, 4.0, 4.0, 1.0)
    same = estimate_table(table_of([[2.0, 2.0]] * 6))
    assert (same.predict().lower, same.predict().upper) == (2.0, 2.0)
    assert "keeps" in same.explain("a0")


def test_one_agent_has_answers_about_itself_only() -> None:
    rng = np.random.default_rng(0)
    result = estimate_table(table_of([rng.normal(3.0, 1.0, 20)]))
    assert result.rank().expected.tolist() == [1.0] and result.top(5).agent.tolist() == ["a0"]
    assert 0.9 < result.probability_above(2.0)[0] <= 1.0
    assert result.predict("a0").estimate == result.estimate[0]
    with pytest.raises(ColmeError, match=r"agent 'b' is not in the table, and there is only one agent.*Ask for"):
        result.predict("b")
    with pytest.raises(ColmeError, match="agent 'a0' twice"):
        result.difference("a0", "a0")
    assert "only one agent" in result.explain("a0")


def test_two_agents_tell_little_about_a_third() -> None:
    rng = np.random.default_rng(0)
    result = estimate_table(drawn(rng, [0.0, 1.0], 10))
    found = result.predict()
    assert found.upper - found.lower > 3.0 * abs(result.mean[1] - result.mean[0])
    assert 0.5 < result.difference("a1", "a0").probability <= 1.0


def test_noise_that_is_not_known_is_said_in_a_sentence() -> None:
    result = estimate_table(table_of([[1.0], [2.0], [4.0]]))
    for ask in (result.rank, lambda: result.probability_above(1.0), lambda: result.difference("a0", "a1")):
        with pytest.raises(ColmeError, match=r"noise of a sample is not known.*pass it as sigma"):
            ask()
    with pytest.raises(ColmeError, match="no agent has two samples"):
        result.predict()
    assert result.predict("a0", level=0.5).upper == np.inf
    assert result.explain("a1").startswith("a1 has 1 sample with a mean of 2")


@pytest.mark.parametrize("scale", [1e-120, 1.0, 1e120])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_answers_do_not_depend_on_the_unit(scale: float, shift: float) -> None:
    rng = np.random.default_rng(2)
    plain = drawn(rng, rng.normal(size=30), 8)
    other = plain._replace(value=(plain.value + shift) * scale)
    one, two = estimate_table(plain), estimate_table(other)
    assert np.abs(two.probability_above((0.3 + shift) * scale) - one.probability_above(0.3)).max() < 1e-6
    first, second = one.predict(), two.predict()
    assert second.lower / scale - shift == pytest.approx(first.lower, abs=1e-4)
    first_gap, second_gap = one.difference("a0", "a1"), two.difference("a0", "a1")
    assert second_gap.probability == pytest.approx(first_gap.probability, abs=1e-6)
    assert second_gap.lower / scale == pytest.approx(first_gap.lower, abs=1e-4)
    assert (two.rank(3).top == one.rank(3).top).all()


def test_hostile_names_are_found_and_made_safe() -> None:
    names = np.array(["a\nb", "\x1b[31mred", "x" * 500, "7", "'; drop", "\u202eabc", ""], object)
    names[6] = "None"
    rng = np.random.default_rng(0)
    result = estimate_table(drawn(rng, np.arange(7.0), 5)._replace(labels=names))
    for a, name in enumerate(names):
        assert result.predict(name).estimate == result.estimate[a]
        text = result.explain(name)
        assert "\n" not in text and "\x1b" not in text and "\u202e" not in text and len(text) < 700
    assert not result.predict(7).new  # reads like the label
    assert result.predict(None).new
    with pytest.raises(UnknownAgent, match="there is no agent 'rde'"):
        result.difference("rde", "7")
    with pytest.raises(UnknownAgent) as caught:
        result.explain("y" * 1000)
    assert len(str(caught.value)) < 200


def test_agents_of_several_columns_are_named_by_tuples() -> None:
    rng = np.random.default_rng(0)
    table = {"dest": np.repeat(["x", "y"], 60), "hour": np.tile(np.repeat([1, 2, 3], 20), 2), "v": rng.normal(size=120)}
    result = colme.estimate(table, agent=["dest", "hour"], value="v")
    assert result.predict(("y", 2)).agent == "y / 2" and not result.predict("y / 2").new
    assert result.predict(("y", 9)).new
    with pytest.raises(ColmeError, match="a tuple of its 2 labels"):
        result.predict(("y", 2, 3))
    with pytest.raises(ColmeError, match="Ask for one agent at a time"):
        result.predict(np.array(["y"]))


BAD: list[tuple[Any, str]] = [
    (lambda r: r.rank(0), "k=0: it must be a whole number of at least 1"),
    (lambda r: r.rank(draws=0), "draws=0"),
    (lambda r: r.rank(seed=-1), "seed=-1"),
    (lambda r: r.rank(level=1.5), "level"),
    (lambda r: r.probability_above("x"), "value='x': it must be a number"),
    (lambda r: r.probability_above([1.0, 2.0]), "one for each of 60 agents"),
    (lambda r: r.probability_between(2.0, 1.0), "low=2 and high=1: the low end"),
    (lambda r: r.predict(group=0), "no evidence of groups: there is no group"),
    (lambda r: r.predict(covariates={"age": 1}), "unknown covariate 'age'"),
    (lambda r: r.predict([1, 2]), "named by its label"),
]


@pytest.mark.parametrize(("ask", "message"), BAD)
def test_bad_questions_are_refused_in_a_sentence(known: dict[str, Result], ask: Any, message: str) -> None:
    with pytest.raises(ColmeError, match=message):
        ask(known["normal"])


def test_an_agent_without_a_sample_has_no_rank() -> None:
    rng = np.random.default_rng(0)
    result = estimate_table(table_of([*(rng.normal(size=6) for _ in range(6)), []]))
    ranking = result.rank(2)
    assert np.isnan(ranking.expected[6]) and ranking.lower[6] == 0 and ranking.expected[:6].sum() == pytest.approx(21.0)
    assert np.isnan(result.probability_above(0.0)[6])
    assert result.explain("a6") == "a6 has no samples, so it has no estimate."
    with pytest.raises(ColmeError, match="agent 'a6' has no samples"):
        result.difference("a6", "a0")


def test_explanations_say_what_was_weighted(known: dict[str, Result]) -> None:
    result = known["normal"]
    text = result.explain(0)
    for number in (result.mean[0], result.estimate[0], result.lower[0], result.upper[0]):
        assert f"{number:.2f}"[:-1] in text
    assert (
        "1 sample" in text
        and "standard error 1.0" in text
        and "90% interval" in text
        and "Other agents suggest" in text
    )
    assert "trials" in known["beta"].explain(0) and "event" in known["gamma"].explain(0)
    assert "It belongs to group" in known["mixture"].explain(0)
    assert "local was requested" in known["local"].explain(0)


def test_results_with_answers_are_columns_and_can_be_pickled(known: dict[str, Result]) -> None:
    for result in known.values():
        asked = with_answers(result, [0.2, 1.0], k=3)
        columns = asked.to_columns()
        assert list(columns)[-6:] == ["above_0.2", "above_1", "rank", "rank_lower", "rank_upper", "top_3"]
        assert (columns["above_1"] == result.probability_above(1.0)).all()
        copy = pickle.loads(pickle.dumps(result))  # by users; colme itself stores nothing so
        assert (copy.rank(2, draws=50).top == result.rank(2, draws=50).top).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "groups"])
def test_ranks_of_many_agents_take_memory_of_agents(kind: str) -> None:
    """100 000 agents: 400 draws of ranks in 4 bytes are 160 MB; a matrix of pairs would be 80 GB."""
    import tracemalloc

    rng = np.random.default_rng(0)
    truth = rng.normal(size=100_000) if kind == "normal" else rng.choice([0.0, 8.0], 100_000)
    result = estimate(means(rng, truth), **MEANS)
    tracemalloc.start()
    ranking = result.top(100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert ranking.draws == 400 and peak < 250e6
    assert ranking.top.sum() < 100.0 and (ranking.lower <= ranking.upper).all()


def test_one_agent_far_away_does_not_decide_what_is_expected_of_others() -> None:
    """The others have means of standard deviation 1, and 90 % of them are within 1.645 of zero."""
    rng = np.random.default_rng(0)
    result = estimate_table(drawn(rng, np.append(rng.normal(size=60), 1e6), 20))
    found = result.predict()
    assert -3.0 < found.lower < -1.0 < 1.0 < found.upper < 3.0


@pytest.mark.parametrize(("successes", "low", "high"), [(0, 0.0, 0.3), (10, 0.7, 1.0)])
def test_rates_that_are_all_0_or_all_1_leave_room_for_others(successes: int, low: float, high: float) -> None:
    """None of 100 trials succeeded: with 95 % confidence, the common rate is below .03."""
    result = estimate({"a": np.arange(10), "y": np.full(10, successes), "n": np.full(10, 10)}, **RATES)
    found = result.predict()
    assert low <= found.lower < found.upper <= high and found.upper - found.lower > 0.01
    assert "trials" in result.explain(0)
