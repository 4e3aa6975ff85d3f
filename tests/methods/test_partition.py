"""The posterior over partitions: against brute force, and what it gains with few agents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import colme
from colme.errors import MethodError
from colme.graphs import complete_graph
from colme.methods.partition import MOST, PLACES, fit_partitions
from tests.reference.partition import every, posterior

SEEDS = range(7000, 7100)
"""Not those that the prior was chosen with."""


def fitted(mean: NDArray[Any], noise: NDArray[Any]) -> dict[str, NDArray[Any]]:
    n = len(mean)
    estimate, variance = np.empty((2, n))
    weights, alike = np.empty((2, n, n))
    mixture = np.empty((n, 3, PLACES))
    fit_partitions(mean, noise, np.argsort(mean), estimate, variance, weights, alike, mixture)
    return {"estimate": estimate, "variance": variance, "weights": weights, "alike": alike, "mixture": mixture}


@pytest.mark.parametrize("n", [2, 3, 5, 9])
@pytest.mark.parametrize("gap", [0.0, 3.0, 300.0])
def test_the_sum_is_that_over_a_list_of_all_contiguous_partitions(n: int, gap: float) -> None:
    rng = np.random.default_rng(n)
    mean, noise = rng.normal(size=n) + gap * (np.arange(n) % 2), rng.uniform(0.1, 2.0, n)
    found, wanted = fitted(mean, noise), posterior(mean, noise)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(found["mixture"][:, 0].sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(found["weights"].sum(axis=1), 1.0, rtol=1e-9)


def test_partitions_that_are_not_contiguous_hardly_matter() -> None:
    """A tenth of a standard error: with equal noise the classes of a likely partition do not interleave."""
    rng = np.random.default_rng(1)
    for _ in range(10):
        mean, noise = rng.normal(size=6) + 3.0 * rng.integers(0, 2, 6), np.ones(6)
        wanted = posterior(mean, noise, every)["estimate"]
        assert np.abs(fitted(mean, noise)["estimate"] - wanted).max() < 0.1


def test_two_hundred_agents_far_apart_do_not_overflow() -> None:
    for gap in (1e-9, 1.0, 1e6):
        mean = np.arange(200) // 10 * gap
        found = fitted(mean, np.ones(200))
        assert all(np.isfinite(each).all() for each in found.values())
    np.testing.assert_allclose(found["estimate"], mean, atol=1e-6)
    assert found["alike"][0, 9] > 0.9 > 0.1 > found["alike"][0, 10]


@pytest.mark.parametrize(
    ("n", "means", "spread", "t", "floor"),
    [
        (5, (0.0,), 0.0, 10, 0.35),
        (5, (0.0, 4.0), 0.0, 20, 0.58),
        (8, (0.0, 4.0), 0.0, 20, 0.35),
        (20, (0.0, 4.0), 0.0, 20, 0.14),
        (8, (0.0, 1.0), 0.0, 60, 0.55),
        (3, (0.0,), 0.5, 20, 1.15),
        (5, (0.0,), 0.5, 60, 1.08),
        (8, (0.0,), 2.0, 20, 1.03),
        (20, (0.0,), 0.3, 140, 1.03),
    ],
)
def test_error_over_that_of_local_means(
    n: int, means: tuple[float, ...], spread: float, t: int, floor: float
) -> None:  # fmt: skip
    """Up to two standard errors of the ratio of two means over seeds; and 90 % intervals hold."""
    scenario = colme.Scenario(n_agents=n, means=means, spread=spread, sigma=1.0)
    traces = colme.simulate(colme.Partition(guard=False), scenario, graph=complete_graph(n), steps=t, seeds=SEEDS)
    mse, local = (np.array([getattr(each, name)[-1] for each in traces]) for name in ("mse", "local_mse"))
    ratio = mse.mean() / local.mean()
    error = (mse - ratio * local).std(ddof=1) / len(mse) ** 0.5 / local.mean()
    assert ratio < floor + 2.0 * error
    held = np.array([each.coverage[-1] for each in traces])
    assert held.mean() > 0.86 - 2.0 * held.std() / len(held) ** 0.5


def test_the_guard_costs_little_and_ends_a_wrong_model() -> None:
    """Paired: with the right sigma the guard costs at most .05; with three times the true one, twenty agents of a
    continuum have three times the error of local means without it, and no more than theirs with it."""
    methods = [colme.Partition(guard=False), colme.Partition()]
    for sigma, spread in ((1.0, 0.0), (3.0, 0.5)):
        told = [colme.Partition(guard=each.guard, sigma=sigma) for each in methods]
        scenario = colme.Scenario(n_agents=20, means=(0.0,), spread=spread, sigma=1.0)
        traces = colme.simulate(told, scenario, graph=complete_graph(20), steps=140, seeds=range(7000, 7020))
        without, guarded = (
            sum(each.mse[-1] for each in runs) / sum(each.local_mse[-1] for each in runs)
            for runs in (list(traces.select(method=m)) for m in told)
        )  # fmt: skip
        if sigma == 1.0:
            assert guarded < without + 0.05
        else:
            assert without > 2.0 and guarded < 1.1


def test_an_agent_needs_no_sigma() -> None:
    rng = np.random.default_rng(3)
    truth = np.where(np.arange(10) % 2, 4.0, 0.0)
    samples = truth + rng.normal(size=(40, 10))
    recording = colme.Recording(samples, means=truth, classes=np.arange(10) % 2)
    final = colme.simulate(colme.Partition(), recording, graph=complete_graph(10)).final
    assert np.square(final.estimate - truth).mean() < 0.6 * np.square(samples.mean(axis=0) - truth).mean()


def test_it_finds_who_shares_a_mean() -> None:
    scenario = colme.Scenario(n_agents=12, means=(0.0, 3.0), sigma=1.0)
    trace = colme.simulate(colme.Partition(), scenario, graph=complete_graph(12), steps=100)
    assert trace.wrong_edges[-1] == trace.lost_edges[-1] == 0.0
    assert len(np.unique(trace.final.graph.components())) == 2


def test_too_many_neighbors_are_refused() -> None:
    scenario = colme.Scenario(n_agents=MOST + 1, means=(0.0,))
    with pytest.raises(
        MethodError, match=rf"{MOST} neighbors: .* at most {MOST} agents.*Try a smaller degree, or Census"
    ):
        colme.simulate(colme.Partition(), scenario, graph=complete_graph(MOST + 1), steps=2)
