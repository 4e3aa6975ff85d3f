"""Hostile orders and values of samples: the online census is not worse than own means, and its intervals hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from colme import CollaborativeMean

Floats = NDArray[np.float64]
Events = tuple[NDArray[np.int64], Floats]
N, EACH = 300, 30


def means(rng: np.random.Generator, n: int = N) -> Floats:
    """A continuum: there a coverage of 90 % can be asked for."""
    return 0.5 * rng.standard_normal(n)


def sampled(rng: np.random.Generator, agent: NDArray[np.int64], truth: Floats) -> Events:
    return agent, truth[agent] + rng.standard_normal(len(agent))


def one_agent_first(rng: np.random.Generator, truth: Floats) -> Events:
    rest = rng.permutation(np.repeat(np.arange(1, N), EACH))
    return sampled(rng, np.concatenate([np.zeros(3000, np.int64), rest]), truth)


def agent_after_agent(rng: np.random.Generator, truth: Floats) -> Events:
    return sampled(rng, np.repeat(np.arange(N), EACH), truth)


def bursts(rng: np.random.Generator, truth: Floats) -> Events:
    """Ten samples of one agent at a time."""
    return sampled(rng, np.repeat(rng.permutation(np.repeat(np.arange(N), EACH // 10)), 10), truth)


def by_size(rng: np.random.Generator, truth: Floats) -> Events:
    """The agents with the smallest means come first."""
    return sampled(rng, np.repeat(np.argsort(truth), EACH), truth)


def samples_sorted(rng: np.random.Generator, truth: Floats) -> Events:
    """Rounds in which the smallest samples come first."""
    value = truth + rng.standard_normal((EACH, N))
    order = np.argsort(value, axis=1)
    return order.ravel(), np.take_along_axis(value, order, axis=1).ravel()


def a_third_with_one_sample(rng: np.random.Generator, truth: Floats) -> Events:
    often = rng.permutation(np.repeat(np.arange(N // 3, N), EACH))
    return sampled(rng, np.concatenate([often, np.arange(N // 3)]), truth)


def every_sample_twice(rng: np.random.Generator, truth: Floats) -> Events:
    agent, value = sampled(rng, rng.permutation(np.repeat(np.arange(N), EACH)), truth)
    return np.repeat(agent, 2), np.repeat(value, 2)


def far_out(rng: np.random.Generator, truth: Floats) -> Events:
    """Three of all samples are a million deviations off."""
    agent, value = sampled(rng, rng.permutation(np.repeat(np.arange(N), EACH)), truth)
    value[rng.choice(len(value), 3, replace=False)] += 1e6
    return agent, value


def some_are_constant(rng: np.random.Generator, truth: Floats) -> Events:
    agent, value = sampled(rng, rng.permutation(np.repeat(np.arange(N), EACH)), truth)
    return agent, np.where(agent % 10 == 0, truth[agent], value)


ORDERS = (
    one_agent_first, agent_after_agent, bursts, by_size, samples_sorted, a_third_with_one_sample, every_sample_twice,
    far_out, some_are_constant,
)  # fmt: skip


CLAIMED_TWICE = {every_sample_twice: 0.74}
"""Repeated samples count as new ones: intervals are narrower by sqrt(2), as if made for a level of .755."""


def outcome(order: Any, seeds: int = 3, **options: Any) -> tuple[Floats, float]:
    """The squared error relative to that of own means after each seventh of the events, and the coverage at their
    end."""
    squares, held = np.zeros((2, 7)), []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        truth = means(rng)
        agent, value = order(rng, truth)
        model = CollaborativeMean(**options)
        for i, part in enumerate(np.array_split(np.arange(len(agent)), 7)):
            model.learn_many(agent=agent[part], value=value[part])
            known = model.to_columns()
            here = truth[known["agent"]]
            squares[:, i] += [((known[name] - here) ** 2).sum() for name in ("estimate", "mean")]
        held.append(((known["lower"] - 1e-9 <= here) & (here <= known["upper"] + 1e-9)).mean())
    return squares[0] / squares[1], float(np.mean(held))


@pytest.mark.parametrize("sigma", [None, 1.0])
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.__name__)
def test_hostile_orders(order: Any, sigma: float | None) -> None:
    """900 intervals that are independent, about, have a standard error of .01 in their coverage: two are allowed."""
    error, covered = outcome(order, sigma=sigma)
    assert error.max() < 1.05
    assert covered > CLAIMED_TWICE.get(order, 0.87) - 0.02


def test_one_value_for_all() -> None:
    model = CollaborativeMean()
    model.learn_many(agent=np.tile(np.arange(50), 20), value=np.full(1000, 7.25))
    assert set(model.estimate_.values()) == {7.25}
    assert set(model.interval_.values()) == {(7.25, 7.25)}


def test_agents_without_noise_keep_their_own_values() -> None:
    model = CollaborativeMean()
    model.learn_many(agent=np.tile(np.arange(50), 20), value=np.tile(np.arange(50.0), 20))
    assert list(model.estimate_.values()) == list(range(50))


def test_a_hundred_thousand_agents_with_two_samples() -> None:
    """Of means whose spread is half a sample's deviation, two samples give estimates of a third of the error:
    .25 / (.25 + .5), with a relative standard error of sqrt(2 / 10^5); that of the coverage is .001."""
    rng = np.random.default_rng(0)
    truth = means(rng, 100_000)
    model = CollaborativeMean()
    value = truth + rng.standard_normal((2, len(truth)))
    model.learn_many(agent=np.tile(np.arange(len(truth)), 2), value=value.ravel())
    known = model.to_columns()
    relative = ((known["estimate"] - truth) ** 2).sum() / ((known["mean"] - truth) ** 2).sum()
    covered = ((known["lower"] <= truth) & (truth <= known["upper"])).mean()
    assert relative < 0.35
    assert 0.87 < covered < 0.93


@pytest.mark.parametrize("half_life", [10.0, 40.0])
def test_drift_with_a_half_life(half_life: float) -> None:
    """Each mean moves by up to some hundredths of a deviation per step. Intervals do not know it (docs/online.md)."""
    rng = np.random.default_rng(0)
    truth, speed, ratio = means(rng), 0.02 * rng.standard_normal(N), []
    model = CollaborativeMean(half_life=half_life)
    for t in range(100):
        agent = rng.permutation(N)
        truth = truth + speed
        model.learn_many(agent=agent, value=truth[agent] + rng.standard_normal(N), time=np.full(N, float(t)))
        known = model.to_columns()
        estimate, mean = (((known[name] - truth[known["agent"]]) ** 2).sum() for name in ("estimate", "mean"))
        ratio.append(estimate / mean)
    assert max(ratio[2:]) < 1.05
