"""From a table to a result: what is chosen, how sure it is, and what it says."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import Any

import narwhals
import numpy as np
import pandas
import pytest
from numpy.typing import NDArray

from benchmarks.held_out import adjusted_rand_index
from colme.data.estimate import estimate, estimate_table
from colme.data.fit import FLAGS
from colme.data.read.table import Names, Table
from colme.data.report.output import save_result
from colme.data.report.result import COLUMNS
from colme.data.report.sentences import sentences
from colme.errors import ColmeError
from colme.support.tables import BACKENDS
from tests.support.tables import drawn, table_of


def test_groups_are_found_and_pooled() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 300)
    table = drawn(rng, np.array([0.0, 2.0, 5.0])[truth], rng.integers(8, 40, 300))
    result = estimate_table(table)
    assert result.summary.method in ("census", "one-hop") and result.summary.gain > 0.5
    assert result.summary.n_groups == 3 and result.summary.groups_sentence == "3 groups"
    assert adjusted_rand_index(result.group, truth) > 0.95
    error = np.square(result.estimate - np.array([0.0, 2.0, 5.0])[truth]).mean()
    assert error < 0.3 * np.square(result.mean - np.array([0.0, 2.0, 5.0])[truth]).mean()
    assert (result.borrowed >= 0.0).all() and (result.borrowed <= 1.0).all() and result.borrowed.mean() > 0.5
    assert estimate_table(table, groups=2).summary.n_groups == 2
    assert estimate_table(table, groups=1).summary.groups_sentence == "groups were not searched for"


@pytest.mark.parametrize("shape", ["normal", "uniform", "exponential", "heavy"])
def test_a_continuum_is_no_evidence_of_groups(shape: str) -> None:
    rng = np.random.default_rng(1)
    means = {"normal": rng.normal(size=400), "uniform": rng.uniform(0, 5, 400), "exponential": rng.exponential(2, 400),
             "heavy": rng.standard_t(3, 400)}[shape]  # fmt: skip
    result = estimate_table(drawn(rng, means, 10))
    assert result.summary.n_groups == 0 and result.summary.groups_sentence == "no evidence of groups"
    assert (result.group == -1).all()


def test_shrinkage_is_chosen_where_agents_are_a_continuum_and_samples_few() -> None:
    rng = np.random.default_rng(2)
    means = rng.normal(0.0, 0.5, 2000)
    result = estimate_table(drawn(rng, means, 5, sigma=2.0))
    ratio = np.square(result.estimate - means).mean() / np.square(result.mean - means).mean()
    # n_half = 16, so the best there is keeps 5 / 21 of the error
    assert ratio == pytest.approx(5 / 21, abs=0.04)
    assert result.summary.n_half == pytest.approx(16.0, rel=0.25)
    assert 1.0 - result.summary.gain == pytest.approx(4 / 20, abs=4 * result.summary.gain_se)  # trained on 4


def test_local_is_the_floor_where_samples_are_many() -> None:
    rng = np.random.default_rng(3)
    means = rng.uniform(0.0, 1000.0, 100)
    result = estimate_table(drawn(rng, means, 400))
    np.testing.assert_allclose(result.estimate, result.mean, atol=0.01)
    assert result.summary.gain == pytest.approx(0.0, abs=0.01)
    if result.summary.method == "local":
        assert "standard error" in result.summary.why or "no collaborative" in result.summary.why


def test_time_order_is_judged_forward() -> None:
    """Agents wander: their early mean is no better than what the others tell, which random folds cannot see."""
    rng = np.random.default_rng(5)
    walk = np.cumsum(rng.normal(size=(300, 40)), axis=1)
    table = table_of(list(walk), timed=True)
    result = estimate_table(table)
    assert result.summary.folds == "forward" and result.summary.autocorrelation > 0.5
    assert result.summary.effective_share < 0.2 and result.summary.drift > 0.5
    assert result.flagged("drifting").mean() > 0.5 and result.flagged("autocorrelated").mean() > 0.5
    forgetful = estimate_table(table, half_life=2.0, method="local")
    assert np.square(forgetful.estimate - walk[:, -1]).mean() < 0.5 * np.square(result.mean - walk[:, -1]).mean()


def test_known_labels_and_covariates_tell_the_prior_mean() -> None:
    rng = np.random.default_rng(6)
    label, size = rng.integers(0, 4, 400), rng.integers(2, 200, 400)
    place = np.array([0.0, 4.0, 8.0, 20.0])[label]
    means = place + rng.normal(0.0, 0.1, 400)
    told = estimate_table(drawn(rng, means, 3, sigma=2.0, label=label))
    assert told.summary.groups_sentence == "4 known groups" and np.array_equal(told.group, label)
    assert told.summary.gain > 0.8 and told.summary.tau < 0.5
    informative = drawn(rng, 2.0 * np.log(size) + rng.normal(0.0, 0.1, 400), size, sigma=6.0)
    plain, aware = (estimate_table(informative, method="shrinkage", log_n=log_n) for log_n in (False, True))
    assert plain.summary.count_correlation > 0.5 and "log n" not in sentences(plain)["Counts"]
    assert aware.summary.tau < 0.5 * plain.summary.tau and aware.summary.gain > plain.summary.gain


def test_flags() -> None:
    rng = np.random.default_rng(7)
    samples = [rng.normal(rng.normal(), 1.0, 30) for _ in range(100)]
    samples[3] = np.array([0.5])
    samples[5] = np.full(30, 0.25)
    samples[7] = np.full(30, 80.0)
    samples[9] = np.append(rng.normal(0.0, 1.0, 29), 1000.0)
    samples[11] = rng.normal(500.0, 200.0, 30)
    result = estimate_table(table_of(samples))
    assert np.flatnonzero(result.flagged("one sample")).tolist() == [3]
    assert np.flatnonzero(result.flagged("zero variance")).tolist() == [5, 7]
    assert np.flatnonzero(result.flagged("dominant sample")).tolist() == [9]
    assert np.flatnonzero(result.flagged("faulty")).tolist() == [7, 11]
    assert result.summary.faulty == ("a7", "a11") and result.summary.dominant == ("a9",)
    assert result.summary.zero_variance == 2 and result.summary.flagged["faulty"] == 2
    assert list(result.flag_names()[[3, 7, 20]]) == ["one sample", "zero variance, faulty", ""]
    with pytest.raises(ColmeError, match="Did you mean 'faulty'"):
        result.flagged("falty")


def test_weights_count_as_samples() -> None:
    """A mean of 9 samples with weight 9 is as good as the 9 samples."""
    rng = np.random.default_rng(8)
    means = rng.normal(0.0, 1.0, 1500)
    x = rng.normal(means[:, None, None], 3.0, (1500, 5, 9)).mean(axis=2)
    light = estimate_table(table_of(list(x)), method="shrinkage")
    heavy = estimate_table(table_of(list(x), weight=np.full(x.size, 9.0)), method="shrinkage")
    np.testing.assert_allclose(light.estimate, heavy.estimate, rtol=1e-6, atol=1e-9)
    assert heavy.summary.sigma == pytest.approx(3.0 * light.summary.sigma) == pytest.approx(3.0, rel=0.05)


def test_nothing_varies() -> None:
    result = estimate_table(table_of([[1.0, 1.0], [2.0, 2.0, 2.0], [3.0]]))
    assert result.estimate.tolist() == result.lower.tolist() == result.upper.tolist() == [1.0, 2.0, 3.0]
    assert result.summary.method == "local" and "no agent's samples vary" in result.summary.why


def test_one_agent_alone_is_local() -> None:
    result = estimate_table(table_of([[1.0, 2.0, 4.0]]))
    assert result.summary.method == "local" and "there is only one agent" in result.summary.why
    assert result.lower[0] < result.estimate[0] == result.mean[0] < result.upper[0]
    empty = estimate_table(table_of([[1.0, 2.0, 4.0], []]))
    assert math.isnan(empty.estimate[1]) and empty.n.tolist() == [3, 0] and empty.group.tolist() == [-1, -1]


def test_mixed_counts_from_one_sample_to_thousands() -> None:
    rng = np.random.default_rng(9)
    means, n = rng.normal(0.0, 1.0, 300), np.array([1, 2, 10, 5000] * 75)
    result = estimate_table(drawn(rng, means, n, sigma=2.0), method="shrinkage")
    assert np.isfinite(result.lower).all() and (result.lower <= result.upper).all()
    borrowed = [result.borrowed[n == k].mean() for k in (1, 2, 10, 5000)]
    assert borrowed == sorted(borrowed, reverse=True) and borrowed[-1] < 0.1 < 0.5 < borrowed[0]


def test_no_sample_at_all() -> None:
    with pytest.raises(ColmeError, match="no sample"):
        estimate_table(table_of([[], []]))


def test_seed_decides_everything_and_progress_is_told() -> None:
    table = drawn(np.random.default_rng(10), np.zeros(50), 10)
    told: list[tuple[int, int | None]] = []
    one = estimate_table(table, seed=5, progress=lambda done, total: told.append((done, total)))
    two = estimate_table(table, seed=5)
    assert np.array_equal(one.estimate, two.estimate) and one.summary == two.summary
    assert told and all(total is not None and 0 < done <= total for done, total in told)


def test_columns_and_frames() -> None:
    result = estimate_table(table_of([[1.0, 2.0], [3.0], [2.0, 2.0, 3.0]]))
    assert tuple(result.to_columns()) == COLUMNS and len(FLAGS) <= 8
    frame = result.to_frame()
    assert isinstance(frame, pandas.DataFrame) and frame["flags"].tolist() == ["", "one sample", ""]
    with pytest.raises(ColmeError, match="Did you mean 'pandas'"):
        result.to_frame("panda")
    assert "3 agents" in repr(result)


def test_several_columns_that_identify_an_agent_come_back_as_columns(tmp_path: Path) -> None:
    table = {"carrier": ["UA", "UA", "AA", "UA"], "dest": [7, 8, 7, 7], "delay": [1.0, 2.0, 3.0, 5.0]}
    result = estimate(table, agent=("carrier", "dest"), value="delay")
    assert tuple(result.to_columns()) == ("agent", "carrier", "dest", *COLUMNS[1:])
    expected = [("UA / 7", "UA", 7), ("UA / 8", "UA", 8), ("AA / 7", "AA", 7)]
    for backend in BACKENDS:
        frame = narwhals.from_native(result.to_frame(backend))
        assert frame.select("agent", "carrier", "dest").rows() == expected and frame["dest"].dtype == narwhals.Int64
    for ending in ("csv", "parquet", "json"):
        save_result(result, tmp_path / f"o.{ending}")
    rows = json.loads((tmp_path / "o.json").read_text())["agents"]
    assert [(row["agent"], row["carrier"], row["dest"]) for row in rows] == expected
    for found in (pandas.read_csv(tmp_path / "o.csv"), pandas.read_parquet(tmp_path / "o.parquet")):
        assert list(found[["agent", "carrier", "dest"]].itertuples(index=False, name=None)) == expected


@pytest.mark.parametrize(("names", "columns"), [
    (("n", "mean"), ("agent_n", "agent_mean")),
    (("agent", "x"), ("agent_agent", "x")),
    (("n", "agent_n"), ("agent_agent_n", "agent_n")),
    (("agent_n", "n", "y"), ("agent_n", "agent_agent_n", "y")),
])  # fmt: skip
def test_no_column_of_the_table_takes_the_name_of_another(names: tuple[str, ...], columns: tuple[str, ...]) -> None:
    table = {name: [f"{name}1", f"{name}2"] for name in names}
    found = estimate(table | {"v": [1.0, 2.0]}, agent=names, value="v").to_columns()
    assert tuple(found) == ("agent", *columns, *COLUMNS[1:])
    assert [found[column].tolist() for column in columns] == list(table.values()) and found["n"].tolist() == [1, 1]


@pytest.mark.parametrize("half_life", [1e-3, 0.3, 3.0])
def test_a_half_life_shorter_than_the_time_between_samples_leaves_the_last_one(half_life: float) -> None:
    rng = np.random.default_rng(3)
    agent, time = np.repeat(np.arange(30), 10), np.tile(np.arange(0.0, 100.0, 10.0), 30)
    time += rng.uniform(0.0, 5.0, len(time))
    table = {"agent": agent, "x": agent % 2 * 5.0 + rng.standard_normal(len(agent)), "t": time}
    found = estimate(table, agent="agent", value="x", time="t", half_life=half_life)
    last = table["x"][9::10]
    assert np.allclose(found.mean, last, atol=0.5 * half_life) and np.isfinite(found.estimate).all()


def test_a_half_life_of_dates_may_be_a_timedelta() -> None:
    day, rng = np.timedelta64(1, "D"), np.random.default_rng(14)
    table = {"a": np.arange(60) % 6, "v": rng.normal(size=60), "t": np.datetime64("2024-01-01") + np.arange(60) * day}
    week = [datetime.timedelta(days=7), np.timedelta64(7, "D"), pandas.Timedelta(days=7), 7 * 86400]
    results = [estimate(table, agent="a", value="v", time="t", half_life=each) for each in week]
    assert all(each.summary.half_life == 7 * 86400 for each in results)
    assert all(np.array_equal(each.estimate, results[0].estimate) for each in results)
    assert not np.array_equal(results[0].mean, estimate(table, agent="a", value="v", time="t").mean)
    with pytest.raises(ColmeError, match=r"a half-life of 604,800 seconds, but t holds plain numbers: .* Leave"):
        estimate(table | {"t": np.arange(60)}, agent="a", value="v", time="t", half_life=week[0])
    with pytest.raises(ColmeError, match="must be positive"):
        estimate(table, agent="a", value="v", time="t", half_life=-week[0])


def counted(rng: np.random.Generator, slope: float) -> tuple[Any, NDArray[np.float64]]:
    """300 agents with 2 to 55 samples, whose means grow with the logarithm of their number."""
    n = np.exp(rng.uniform(0.0, 4.0, 300)).astype(np.int64) + 1
    truth = slope * np.log(n) + rng.normal(0.0, 0.3 if slope else 1.0, 300)
    return table_of([rng.normal(mean, 2.0, size) for mean, size in zip(truth, n, strict=True)]), truth


def test_auto_sees_that_counts_tell_the_mean() -> None:
    """Ten tables: nearly as good as with the covariate that was asked for; and not used where counts tell nothing."""
    auto, asked, used, by_chance = [], [], [], 0
    for seed in range(60, 70):
        table, truth = counted(np.random.default_rng(seed), 1.5)
        for log_n, found in ((False, auto), (True, asked)):
            result = estimate_table(table, log_n=log_n)
            found.append(np.square(result.estimate - truth).mean() / np.square(result.mean - truth).mean())
        used.append(estimate_table(table).summary.log_n)
        plain = estimate_table(counted(np.random.default_rng(seed), 0.0)[0])
        by_chance += plain.summary.log_n
    assert np.mean(asked) < 0.15 and np.mean(auto) < np.mean(asked) + 0.05 and np.mean(used) > 0.8
    assert by_chance <= 1  # two of ten with probability .004: each has a likelihood ratio that chance has in .01
    words = sentences(estimate_table(counted(np.random.default_rng(60), 1.5)[0]))["Counts"]
    assert "so what is expected of an agent depends on log n" in words


def told(
    rng: np.random.Generator, covariates: NDArray[np.float64], truth: NDArray[np.float64], **parts: Any
) -> Table:  # fmt: skip
    """3 to 29 samples of each agent, with covariates x0, x1, ..."""
    names = Names("agent", "value", covariates=tuple(f"x{k}" for k in range(covariates.shape[1])))
    return drawn(rng, truth, rng.integers(3, 30, len(truth)), 2.0, covariates=covariates, names=names, **parts)


def without_covariates(table: Table) -> Table:
    return table._replace(covariates=None, names=Names("agent", "value"))


@pytest.mark.parametrize("n_agents", [12, 100])
def test_covariates_that_tell_nothing_are_not_used(n_agents: int) -> None:
    """Twenty tables: each uses one by chance with probability .01, for each number of covariates that is tried (.02
    with twelve agents, whose likelihood ratios are larger than in theory), so four do with probability .005."""
    used = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        label = rng.integers(0, 2, n_agents)
        covariates = rng.normal(size=(n_agents, 1 if seed % 2 else 8))
        table = told(rng, covariates, rng.normal(3.0 * label, 0.5), label=label if seed % 4 < 2 else None)
        result, plain = estimate_table(table), estimate_table(without_covariates(table))
        used.append(bool(result.summary.covariates))
        if not used[-1]:
            assert np.array_equal(result.estimate, plain.estimate) and np.array_equal(result.upper, plain.upper)
            assert result.summary.method == "local" or "beyond chance" in sentences(result)["Covariates"]
            assert result.predict(covariates={"x0": 1e3}) == result.predict()
    assert sum(used) <= 3


def test_covariates_that_tell_the_mean_are_used_and_only_those() -> None:
    """Twenty tables of 60 agents: one of six columns tells the mean, with a slope of more than 8 standard errors. It
    would be missed below 3.2 of them. Others beside it are used in one table with probability .04 (four numbers of
    covariates are tried), so in four of twenty with probability .01."""
    ratios, alone = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        covariates, label = rng.normal(size=(60, 6)), rng.integers(0, 2, 60)
        truth = covariates[:, 3] + rng.normal(4.0 * label, 0.3)
        table = told(rng, covariates, truth, label=label)
        result, asked = estimate_table(table), estimate_table(table, method="shrinkage")
        assert "x3" in result.summary.covariates and result.names.covariates == table.names.covariates
        assert asked.summary.covariates == table.names.covariates  # what is requested is used
        ratios.append([np.square(each.estimate - truth).mean() for each in (result, asked)])
        alone.append(result.summary.covariates == ("x3",))
    auto, every = np.mean(ratios, axis=0)
    assert sum(alone) >= 17 and auto < every  # six slopes instead of one cost something
    words = sentences(result)["Covariates"]
    assert (
        words == "What is expected of an agent depends on x3; x0, x1, x2, x4 and x5 do not tell the mean beyond chance."
    )


def test_covariates_that_tell_the_mean_only_together_are_used() -> None:
    rng = np.random.default_rng(3)
    covariates = rng.normal(size=(300, 5))
    signal = rng.normal(size=300)
    covariates[:, 1] = covariates[:, 4] + 0.1 * signal  # each alone tells a hundredth of what both tell
    truth = signal + rng.normal(0.0, 0.3, 300)
    assert estimate_table(told(rng, covariates, truth)).summary.covariates == ("x1", "x4")


def test_of_covariates_that_say_the_same_one_is_used() -> None:
    rng = np.random.default_rng(4)
    label, x = rng.integers(0, 3, 200), rng.normal(size=200)
    covariates = np.stack([x, 2.0 * x + 1.0, 1.0 * label, np.ones(200)], axis=1)
    result = estimate_table(told(rng, covariates, x + label, label=label))
    assert result.summary.covariates in (("x0",), ("x1",))


def spread_by_count(seed: int, slope: float) -> tuple[Table, NDArray[np.float64]]:
    """300 agents with 3 to 200 samples, whose spread tau is n^(slope / 2)."""
    rng = np.random.default_rng(seed)
    n = np.exp(rng.uniform(np.log(3.0), np.log(200.0), 300)).astype(np.int64)
    truth = 0.6 * np.exp(0.5 * slope * (np.log(n) - 3.2)) * rng.normal(size=300)
    return drawn(rng, truth, n, 2.0), truth


@pytest.mark.parametrize(("slope", "most"), [(1.4, 0.75), (-1.4, 0.9)])
def test_auto_sees_that_spreads_depend_on_counts(slope: float, most: float) -> None:
    """Eight tables of 75 agents in each quarter of counts: its coverage is known to sqrt(.09 / 600) = .012, but in the
    poorest one agents share the error of the prior mean, and tables differ by .1: it is known to .035. `most` is
    the error that is allowed relative to the better of shrinkage and local."""
    errors, inside, used = [], [], []
    for seed in range(8):
        table, truth = spread_by_count(seed, slope)
        result = estimate_table(table)
        used.append(result.summary.method == "close")
        every = (result, *(estimate_table(table, method=method) for method in ("shrinkage", "local", "close")))
        errors.append([np.square(each.estimate - truth).mean() for each in every])
        order = np.argsort(result.n, kind="stable")
        inside.append(((result.lower <= truth) & (truth <= result.upper))[order].reshape(4, 75).mean(axis=1))
    auto, shrinkage, local, close = np.mean(errors, axis=0)
    assert np.mean(used) > 0.5 and auto < most * min(shrinkage, local) and auto < 1.25 * close
    assert (np.mean(inside, axis=0) > 0.9 - np.array([2 * 0.035, *(3 * [4 * 0.012])])).all()


def test_a_spread_that_does_not_depend_on_counts_is_one_number() -> None:
    """The better one by a standard error of those that a hint of 1.5 standard errors lets try: 2 % of tables."""
    used = [estimate_table(spread_by_count(seed, 0.0)[0]).summary.method == "close" for seed in range(10)]
    assert sum(used) <= 1


def test_close_can_be_requested() -> None:
    result = estimate_table(spread_by_count(0, -1.4)[0], method="close")
    assert result.summary.method == "close" and result.summary.why == "close was requested"
    assert "How much agents differ depends on log n" in sentences(result)["Counts"]
    assert {each.name for each in result.summary.candidates} >= {
        "close (pooled variance)",
        "close (moderated variance)",
    }
    rates = estimate(
        {"a": np.arange(40), "y": np.arange(40) % 7, "n": np.arange(40) + 7}, agent="a", successes="y", trials="n",
        method="close",
    )  # fmt: skip
    assert rates.summary.method == "close" and (rates.lower >= 0.0).all() and (rates.upper <= 1.0).all()
