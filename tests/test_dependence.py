"""Samples that depend on each other: what is promised of intervals and cuts, and equal bits of all forms."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

import colme
from colme.graphs import complete_graph, random_regular_graph
from colme.lockstep import lockstep
from colme.support.arrays import Floats

GRAPH = random_regular_graph(20, 8, rng=1)


def dependent(kind: str, steps: int, truth: Floats, seed: int) -> Floats:
    """Samples of these means, with noise of variance one."""
    rng, shape = np.random.default_rng(seed), (steps + 200, len(truth))
    if kind == "telegraph":  # states that flip with probability .1: correlation .8
        noise = np.where(rng.random(shape[1]) < 0.5, 1.0, -1.0) * np.cumprod(
            np.where(rng.random(shape) < 0.1, -1.0, 1.0), 0
        )
    elif kind.startswith("AR"):
        phi = float(kind[2:])
        noise = lfilter([math.sqrt(1.0 - phi * phi)], [1.0, -phi], rng.normal(size=shape), axis=0)
    else:  # MA(-.6)
        noise = lfilter([1.0, -0.6], [math.sqrt(1.36)], rng.normal(size=shape), axis=0)
    return np.asarray(truth + noise[200:])


def continuum(seed: int, agents: int = 20) -> Floats:
    return 0.5 * np.random.default_rng(1000 + seed).normal(size=agents)


def simulated(samples: Floats) -> tuple[Floats, Floats, Floats]:
    """(estimate, lower, upper) after the last step."""
    final = colme.simulate(colme.Census(guard=True), colme.Recording(samples), graph=GRAPH, seed=3).final
    assert final.lower is not None and final.upper is not None
    return final.estimate, final.lower, final.upper


def online(samples: Floats) -> tuple[Floats, Floats, Floats]:
    model, agents = colme.CollaborativeMean(), np.arange(samples.shape[1])
    for row in samples:
        model.learn_many(agent=agents, value=row)
    ends = np.array([model.interval_[int(a)] for a in agents])
    return np.array([model.estimate_[int(a)] for a in agents]), ends[:, 0], ends[:, 1]


def table(samples: Floats, *, timed: bool) -> tuple[Floats, Floats, Floats]:
    steps, agents = samples.shape
    columns = {"agent": np.tile(np.arange(agents), steps), "value": samples.ravel()}
    if timed:
        columns["time"] = np.repeat(np.arange(steps), agents)
    result = colme.estimate(columns, agent="agent", value="value", time="time" if timed else None)
    order = np.argsort(result.agent)
    return result.estimate[order], result.lower[order], result.upper[order]


HOMES: dict[str, Any] = {
    "simulator": simulated, "online": online,
    "rows in order": lambda samples: table(samples, timed=False), "times": lambda samples: table(samples, timed=True),
}  # fmt: skip


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("kind", ["AR.5", "AR.8", "telegraph"])
def test_intervals_of_dependent_samples_cover(home: str, kind: str) -> None:
    """At least .84 of the means of 20 agents after 60 samples; without the factors it would be .65 for AR(.5) and .4
    for the others. Sixteen tables: the factor that 20 agents of a table share errs by about a tenth, which is .03 of
    coverage, so that .02 are allowed for the mean over 16, two standard errors."""
    held, error, local = np.zeros(16), 0.0, 0.0
    for seed in range(16):
        truth = continuum(seed)
        samples = dependent(kind, 60, truth, seed)
        estimate, lower, upper = HOMES[home](samples)
        held[seed] = np.mean((lower <= truth) & (truth <= upper))
        error += np.square(estimate - truth).sum()
        local += np.square(samples.mean(axis=0) - truth).sum()
    assert held.mean() > 0.82
    assert error < 1.02 * local


def test_alternating_samples_are_not_shrunk_by_mistake() -> None:
    """The mean of MA(-.6) is known eight times as well as s^2 / n says."""
    for home in ("simulator", "online"):
        error = local = 0.0
        for seed in range(8):
            truth = continuum(seed)
            samples = dependent("MA", 25, truth, seed)
            error += np.square(HOMES[home](samples)[0] - truth).sum()
            local += np.square(samples.mean(axis=0) - truth).sum()
        assert error < 1.15 * local


@pytest.mark.parametrize("kind", ["AR.5", "AR.8"])
def test_difference_tests_keep_edges_of_dependent_agents(kind: str) -> None:
    """Of 20 equal agents over 400 steps at most .02 of the edges are cut; without the factors it is .25 and .76."""
    cut = np.zeros(30)
    for seed in range(30):
        recording = colme.Recording(dependent(kind, 400, np.zeros(20), seed), means=np.zeros(20), sigma=1.0)
        trace = colme.simulate(colme.CLColME(cut="difference", delta=0.1), recording, graph=GRAPH, record=[400])
        cut[seed] = trace.lost_edges[-1]
    assert cut.mean() < 0.02


@pytest.mark.parametrize("law", ["normal", "t(3)", "lognormal", "two-point"])
def test_independent_samples_pay_nothing(law: str) -> None:
    """Nine of ten runs have the very same estimates as those that are told; in others intervals are little wider."""
    same, width = 0, np.zeros(10)
    for seed in range(10):
        rng, truth = np.random.default_rng(seed), continuum(seed)
        shape = (100, 20)
        noise = {
            "normal": rng.normal(size=shape),
            "t(3)": rng.standard_t(3, size=shape),
            "lognormal": rng.lognormal(size=shape) - math.exp(0.5),
            "two-point": (rng.random(shape) < 0.1) / 0.3 - 1.0 / 3.0,
        }[law]
        each = [colme.Recording(truth + noise, means=truth, independent=told) for told in (False, True)]
        runs: Any = [colme.simulate(colme.Census(), recording, graph=GRAPH) for recording in each]
        same += np.array_equal(runs[0].mse, runs[1].mse)
        first, second = (np.median(run.final.upper - run.final.lower) for run in runs)
        width[seed] = first / second
    assert same >= 7
    assert width.mean() < 1.02


METHODS = [colme.Census(fits="own"), colme.CLColME(cut="difference", guard=True), colme.CColME(cut="difference")]


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_agents_learn_what_arrays_do(method: Any, loss: float) -> None:
    if loss and not method.tolerates_loss:
        return
    samples = dependent("AR.8", 60, continuum(0, 20), 0)
    recordings = [colme.Recording(samples, sigma=1.0, independent=told) for told in (False, True)]
    for each in recordings:
        each.loss = loss
    learned, told = (colme.simulate(method, each, graph=GRAPH, seed=5).final.estimate for each in recordings)
    origin = recordings[0].origin
    alone = lockstep(method, samples - origin, GRAPH, sigma=1.0, loss=loss, seed=5)
    np.testing.assert_array_equal(learned, alone[-1] + origin)
    assert not np.array_equal(learned, told)


@pytest.mark.parametrize("agents", [20, 2100])
def test_threads_and_checkpoints_keep_all_bits(agents: int, tmp_path: Path) -> None:
    """Up to 64 agents learn one by one, more together."""
    graph, truth = random_regular_graph(agents, 6, rng=2), continuum(1, agents)
    recording = colme.Recording(dependent("AR.8", 40, truth, 1), means=truth)
    whole = colme.simulate(colme.Census(), recording, graph=graph)
    each: list[Any] = [{"threads": 2}] if agents > 2000 else []
    for change in (*each, {"steps": 23, "checkpoint": tmp_path / "run"}, {"checkpoint": tmp_path / "run"}):
        run = colme.simulate(colme.Census(), recording, graph=graph, **change)
        steps = len(run.mse)
        np.testing.assert_array_equal(run.mse, whole.mse[:steps])
        np.testing.assert_array_equal(run.coverage, whole.coverage[:steps])
    np.testing.assert_array_equal(run.final.estimate, whole.final.estimate)


def test_a_saved_model_goes_on_with_what_it_learned(tmp_path: Path) -> None:
    samples, agents = dependent("AR.8", 80, continuum(2), 2), np.arange(20)
    models = [colme.CollaborativeMean(), colme.CollaborativeMean(independent=True)]
    for model in models:
        for row in samples[:50]:
            model.learn_many(agent=agents, value=row)
    models[0].save(tmp_path / "model")
    models.append(colme.CollaborativeMean.load(tmp_path / "model"))
    for model in models:
        for row in samples[50:]:
            model.learn_many(agent=agents, value=row)
    found, independent, loaded = ([model.interval_[a] for a in range(20)] for model in models)
    assert found == loaded
    assert np.ptp(found, axis=1).mean() > 2.0 * np.ptp(independent, axis=1).mean()


def test_rows_sorted_by_value_show_nothing() -> None:
    """Sorted rows look like the slowest dependence there is, which they are not."""
    truth = continuum(3)
    samples = np.sort(dependent("AR0", 40, truth, 3), axis=0)
    _, lower, upper = table(samples, timed=False)
    assert np.median(upper - lower) < 1.1 * 2.0 * 1.645 / math.sqrt(40)


def test_two_agents_on_a_complete_graph() -> None:
    """The fewest that can learn from each other."""
    samples = dependent("AR.8", 300, np.zeros(2), 4)
    final = colme.simulate(colme.Census(), colme.Recording(samples), graph=complete_graph(2)).final
    assert final.upper is not None and np.isfinite(final.upper).all()
