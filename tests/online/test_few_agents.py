"""Few agents in one place: their estimates are averages over all partitions (`colme.methods.partition`)."""

from __future__ import annotations

import numpy as np
import pytest

import colme
from colme.data.fit.estimators import AgentStatistics, PartitionEstimator
from colme.data.fit.prior import Prior
from tests.reference.partition import posterior


@pytest.mark.parametrize("method", [colme.Partition(guard=False), colme.Census(guard=False)])
def test_estimates_are_those_of_a_list_of_all_partitions(method: colme.methods.Method) -> None:
    rng = np.random.default_rng(2)
    agent = rng.integers(0, 6, 80)
    value = 3.0 * (agent % 2) + rng.normal(size=80)
    model = colme.CollaborativeMean(method, sigma=1.0, independent=True)
    model.learn_many(agent=agent, value=value)
    mean, count = (np.array([each[a] for a in range(6)]) for each in (model.mean_, model.count_))
    wanted = posterior(mean, 1.0 / count)
    np.testing.assert_allclose([model.estimate_[a] for a in range(6)], wanted["estimate"], rtol=1e-9)
    ends = np.array([model.interval_[a] for a in range(6)])
    half = 1.645 * np.sqrt(wanted["variance"])  # of a normal distribution; those of mixtures differ by a part of it
    np.testing.assert_allclose(ends, wanted["estimate"][:, None] + half[:, None] * [-1, 1], atol=0.5 * half.max())


def test_a_census_of_more_agents_fits_a_mixture() -> None:
    """From one agent to the next, and back again when they are as few as before."""
    rng = np.random.default_rng(4)
    value, few = rng.normal(size=(20, 20)), colme.Census.partitioned
    models = [colme.CollaborativeMean(method(guard=False), sigma=1.0) for method in (colme.Census, colme.Partition)]
    same = []
    for n in (few, few + 1):
        for model in models:
            for row in value[:, :n]:
                model.learn_many(agent=np.arange(n), value=row)
        same.append(models[0].estimate_[0] == models[1].estimate_[0])
    assert same == [True, False]


def test_few_equal_agents_gain_what_they_can() -> None:
    """Five equal agents: the default model has at most half the error of their own means, on average over 60 models,
    within two standard errors of it (a mixture fitted to five points has .53, the best that knows it .2)."""
    own, together = np.empty((2, 60))
    for seed in range(60):
        samples = np.random.default_rng([7, seed]).normal(size=(60, 5))
        model = colme.CollaborativeMean()
        for row in samples:
            model.learn_many(agent=np.arange(5), value=row)
        estimate = np.array([model.estimate_[a] for a in range(5)])
        own[seed], together[seed] = np.square(samples.mean(axis=0)).mean(), np.square(estimate).mean()
    ratio = together.mean() / own.mean()
    error = (together - ratio * own).std(ddof=1) / 60**0.5 / own.mean()
    assert ratio < 0.42 + 2.0 * error


def test_the_estimator_of_tables_is_the_same() -> None:
    rng = np.random.default_rng(9)
    mean, noise = rng.normal(size=7) + 2.0 * (np.arange(7) % 2), rng.uniform(0.05, 0.3, 7)
    noise[3] = 0.0  # known exactly
    agents = AgentStatistics(mean, noise, np.full(7, 9.0), Prior(None, None))
    fit, known = PartitionEstimator().fit(agents), np.flatnonzero(noise > 0.0)
    wanted = posterior(mean[known], noise[known])
    np.testing.assert_allclose(fit.estimate[known], wanted["estimate"], rtol=1e-9)
    np.testing.assert_allclose(fit.error()[known], np.sqrt(wanted["variance"]), rtol=1e-9)
    assert fit.estimate[3] == mean[3] and fit.borrowed[3] == fit.error()[3] == 0.0
