"""The guard of the online model: against the dense reading, and what it promises where a method is wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from colme import Census, CLColME, CollaborativeMean, Local
from colme.graphs import random_regular_graph
from colme.online.guard import judge
from tests.online.test_model import assert_same, two_classes
from tests.reference import online as reference

Floats = NDArray[np.float64]


def events_of(n_agents: int, n_events: int) -> tuple[NDArray[np.int64], Floats]:
    """Two classes; a third of the agents come late, and some have few samples."""
    agent, value = two_classes(n_agents, n_events, gap=1.0)
    late = (agent % 3 == 0) & (np.arange(n_events) < n_events // 2)
    rare = (agent % 7 == 1) & (np.arange(n_events) % 5 > 0)
    return agent[~late & ~rare], value[~late & ~rare]


@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_consensus_is_the_dense_reading(sigma: float) -> None:
    agent, value = events_of(12, 1500)
    graph = random_regular_graph(12, 5, rng=1)
    model = CollaborativeMean(CLColME(gamma=0.2, sigma=sigma, step=0.1, guard=True), graph=graph)
    events = list(zip(agent.tolist(), value.tolist(), strict=True))
    raw = [
        y for y, _ in reference.online(events, graph.adjacency(), sigma=sigma, gamma=0.2, step=0.1, clock="gossip")
    ]  # fmt: skip
    for stop in (100, 400, len(events)):
        model.learn_many(agent=agent[:stop][model._table.counters[0] :], value=value[:stop][model._table.counters[0] :])
        estimate, votes = reference.guarded(events[:stop], raw, trusting=False, given=12)
        np.testing.assert_allclose([model.estimate_[a] for a in range(12)], estimate, rtol=1e-9, atol=1e-12)
    weights = np.array([weight for _, *weight in votes])
    assert ((weights > 0.0) & (weights < 1.0)).any() and (weights[0] == 0.0).all()


@pytest.mark.parametrize("sigma", [None, *(pytest.param(each, marks=pytest.mark.slow) for each in (1.0, 3.0))])
def test_census_is_the_dense_reading(sigma: float | None) -> None:
    """The estimates that it judges are those of a model without a guard."""
    n = 30
    agent, value = events_of(n, 1200)
    model, plain = (CollaborativeMean(Census(guard=guard), sigma=sigma) for guard in (True, False))
    raw, got = [], []
    for a, x in zip(agent.tolist(), value.tolist(), strict=True):
        for each in (model, plain):
            each.learn_one(a, x)
        known, mine = plain.estimate_, model.estimate_
        raw.append(np.array([known.get(b, math.nan) for b in range(n)]))
        got.append(np.array([mine.get(b, math.nan) for b in range(n)]))
    events = list(zip(agent.tolist(), value.tolist(), strict=True))
    for stop in (1, 7, 60, 300, 700, len(events)):
        estimate, votes = reference.guarded(events[:stop], raw, trusting=True)
        np.testing.assert_allclose(got[stop - 1], estimate, rtol=1e-9, atol=1e-9)
    if sigma == 3.0:
        weights = np.array([weight for _, *weight in votes])
        assert ((weights > 0.0) & (weights < 1.0)).any()


def test_samples_judge_by_their_weights() -> None:
    """With a half-life the mean of the new samples is the weighted one."""
    rng = np.random.default_rng(0)
    model = CollaborativeMean(Census(guard=True), half_life=4.0)
    first, second = rng.standard_normal((2, 9, 3))
    for t, row in enumerate(first):
        model.learn_many(agent=np.arange(3), value=row, time=np.full(3, t))
    table = model._table
    assert table.snapshots is not None
    rows = table.agents[:3]
    table.snapshots[:3, :4] = np.column_stack([rows[:, 0], rows[:, 0] + [1.0, 2.0, np.nan], rows[:, 4], rows[:, 7]])
    independent = np.ones((4, 2))
    mean = rows[:, 0].copy()
    model._rule.stops[:] = 10**9
    for t, row in enumerate(second, start=9):
        model.learn_many(agent=np.arange(3), value=row, time=np.full(3, t))
    sums, inverse = np.zeros((2, 3)), np.zeros(2)
    judge(table.agents, table.present, table.snapshots, 4.0, 0.0, independent, sums, inverse)
    weight = 0.5 ** ((17.0 - np.arange(9.0, 18.0)) / 4.0)
    x, d = weight @ second / weight.sum(), np.array([1.0, 2.0])
    g = (x - mean)[:2] * d
    np.testing.assert_allclose(sums, [[0, 0, 0], [g.sum(), d @ d, g @ g]], rtol=1e-10)
    np.testing.assert_allclose(inverse, [0, d @ d / weight.sum()], rtol=1e-10)


def test_of_many_agents_some_judge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same ones whether samples are batched or not, and after a file; as good as if all did."""
    rng = np.random.default_rng(0)
    agent, value = two_classes(2000, 16_000)
    everyone = CollaborativeMean()
    everyone.learn_many(agent=agent, value=value)
    monkeypatch.setattr("colme.online.rules.JUDGES", 256)
    at_once, batched = CollaborativeMean(), CollaborativeMean()
    at_once.learn_many(agent=agent, value=value)
    for part in np.split(np.arange(len(agent)), np.sort(rng.integers(0, len(agent), 20))):
        batched.learn_many(agent=agent[part], value=value[part])
        batched.save(tmp_path / "model.npz")
        batched = CollaborativeMean.load(tmp_path / "model.npz")
    assert_same(at_once, batched)
    assert 256 <= len(at_once._rule._judges()) < 1000
    assert np.abs(at_once.to_columns()["estimate"] - everyone.to_columns()["estimate"]).mean() < 0.01


def test_trust_where_there_is_nothing_to_guard() -> None:
    assert math.isnan(CollaborativeMean().trust_)
    model = CollaborativeMean(Local())
    model.learn_one("a", 1.0)
    assert model.trust_ == 1.0
    assert CollaborativeMean().method == Census(guard=True)


def test_what_is_merged_was_not_judged() -> None:
    agent, value = two_classes(30, 3000)
    here, there = (CollaborativeMean(Census(guard=True)) for _ in range(2))
    here.learn_many(agent=agent[:1500], value=value[:1500])
    there.learn_many(agent=agent[1500:] + 15, value=value[1500:])
    votes = here._rule.guard.others.filter.votes  # type: ignore[union-attr]
    here.merge(there)
    assert here._rule.guard.others.filter.votes <= votes + 1  # type: ignore[union-attr]
    here.learn_many(agent=agent, value=value)
    assert here._rule.guard.others.filter.votes > votes + 5  # type: ignore[union-attr]


def errors(model: CollaborativeMean, truth: Floats) -> tuple[float, float, float]:
    """Squared errors of estimates and of local means, and the share of intervals that hold."""
    known = model.to_columns()
    mean = truth[known["agent"]]
    held = (known["lower"] <= mean) & (mean <= known["upper"])
    return (
        float(np.sum((known["estimate"] - mean) ** 2)),
        float(np.sum((known["mean"] - mean) ** 2)),
        float(held.mean()),
    )


def ratios(
    method: Any, truth: Floats, draw: Any, *, sigma: float | None, n_steps: int = 120, seeds: int = 3, first: int = 5
) -> tuple[Floats, float]:
    """Squared error over that of local means at every step, mean over seeds; and the coverage from step `first` on."""
    total, held = np.zeros((n_steps, 2)), []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        model = CollaborativeMean(method, sigma=sigma)
        for t in range(n_steps):
            agent = rng.permutation(len(truth))
            model.learn_many(agent=agent, value=draw(rng, truth[agent]))
            *squares, share = errors(model, truth)
            total[t] += squares
            held += [share] * (t + 1 >= first)
    return total[:, 0] / total[:, 1], float(np.mean(held))


def normal(rng: np.random.Generator, mean: Floats) -> Floats:
    return mean + 2.0 * rng.standard_normal(len(mean))


def heavy(rng: np.random.Generator, mean: Floats) -> Floats:
    """Student's t with 2.1 degrees of freedom, standard deviation 2."""
    return mean + 2.0 * rng.standard_t(2.1, len(mean)) / math.sqrt(21.0)


def coins(rng: np.random.Generator, mean: Floats) -> Floats:
    return (rng.random(len(mean)) < mean).astype(float)


CLASSES = np.where(np.arange(300) % 2, 1.2, 2.0)
WORLDS: dict[str, tuple[Floats, Any, float]] = {
    "sigma told double": (CLASSES, normal, 4.0),
    "very heavy tails": (CLASSES, heavy, 2.0),
    "coins, told the bound": (np.where(np.arange(300) % 2, 0.02, 0.1), coins, 0.5),
}


@pytest.mark.parametrize("world", WORLDS)
def test_where_consensus_is_worse_than_alone_the_guard_is_not(world: str) -> None:
    """The mean of 3 x 300 squared errors has a relative standard error of at most sqrt(2 / 900) = .05 (with such tails
    more), and the ratio of two that share their samples far less."""
    truth, draw, sigma = WORLDS[world]
    guarded, _ = ratios(CLColME(guard=True), truth, draw, sigma=sigma)
    plain, _ = ratios(CLColME(guard=False), truth, draw, sigma=sigma)
    assert plain.max() > 1.2
    assert guarded[2:].max() < 1.1


@pytest.mark.parametrize("guard", [True, False])
@pytest.mark.parametrize("world", WORLDS)
def test_the_census_measures_its_noise_and_is_not_worse_than_alone(world: str, guard: bool) -> None:
    truth, draw, sigma = WORLDS[world]
    relative, _ = ratios(Census(guard=guard), truth, draw, sigma=sigma)
    assert relative[2:].max() < 1.05


def test_a_census_that_is_right_keeps_its_estimates() -> None:
    model, plain = (CollaborativeMean(Census(guard=guard), sigma=2.0) for guard in (True, False))
    rng = np.random.default_rng(0)
    for _ in range(100):
        agent = rng.permutation(300)
        value = normal(rng, CLASSES[agent])
        model.learn_many(agent=agent, value=value)
        plain.learn_many(agent=agent, value=value)
    assert model.trust_ == 1.0
    ours, theirs = model.to_columns(), plain.to_columns()
    assert ours["estimate"].tobytes() == theirs["estimate"].tobytes()
    assert (ours["lower"] <= theirs["lower"]).all() and (ours["upper"] >= theirs["upper"]).all()


CONTINUUM = 1.5 + 0.8 * np.random.default_rng(9).standard_normal(300)


@pytest.mark.parametrize(
    "truth, draw, sigma, low, high",
    [
        (CLASSES, normal, 2.0, 0.87, 1.0),
        (CONTINUUM, normal, 2.0, 0.87, 0.93),
        (CONTINUUM, normal, None, 0.87, 0.93),
        (CLASSES, normal, 1.0, 0.87, 1.0),
        (CONTINUUM, normal, 1.0, 0.87, 0.93),
        (CONTINUUM, normal, 4.0, 0.87, 0.93),
        (CLASSES, heavy, 2.0, 0.87, 1.0),
    ],
    ids=["classes", "continuum", "estimated", "classes, half", "continuum, half", "continuum, double", "heavy tails"],
)
def test_intervals_cover(truth: Floats, draw: Any, sigma: float | None, low: float, high: float) -> None:
    """90 % intervals from the fifth sample on. Errors of one agent at different times depend on each other; 3 x 300
    agents as if at one time have a standard error of .01, so two of them are allowed beyond the bounds."""
    _, covered = ratios(Census(guard=True), truth, draw, sigma=sigma)
    assert low - 0.02 < covered < high + 0.02
