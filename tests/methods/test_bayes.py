"""The Bayes bound: against brute force, and below everybody who is not told who is who."""

from __future__ import annotations

import numpy as np
import pytest

import colme
from colme.errors import MethodError


def test_it_is_the_posterior_mean_of_one_who_knows_all_classes_but_its_own() -> None:
    scenario = colme.Scenario(n_agents=40, means=(0.0, 1.0, 3.0), sizes=(20, 15, 5), sigma=2.0)
    final = colme.simulate(colme.Bayes(), scenario, steps=9, seed=2).final
    assert final.class_ is not None
    place = np.array([final.mean[final.class_ == final.class_[b]].mean() for b in range(40)])  # one atom per agent
    for mean, estimate in zip(final.mean, final.estimate, strict=True):
        weight = np.exp(-0.5 * (mean - place) ** 2 * 9 / 4.0)
        assert estimate == pytest.approx((weight * place).sum() / weight.sum(), rel=1e-12)


def test_grouping_many_means_changes_little() -> None:
    scenario = colme.Scenario(n_agents=3000, means=(0.0,), spread=1.0, sigma=2.0)
    final = colme.simulate(colme.Bayes(), scenario, steps=25, seed=0).final
    assert final.truth is not None
    weight = np.exp(-0.5 * (final.mean[:, None] - final.truth) ** 2 * 25 / 4.0)
    exact = (weight * final.truth).sum(axis=1) / weight.sum(axis=1)
    # a group is 1/511 of the range wide, 0.014 of which 1/sqrt(12) is the error of a place; posteriors average many
    assert np.abs(final.estimate - exact).max() < 0.014


def test_nobody_who_is_not_told_beats_it() -> None:
    """In expectation; 20 seeds of 400 agents leave 2 % of noise, and what all methods share cancels."""
    scenario = colme.Scenario(n_agents=400, means=(0.0, 1.0), sigma=2.0)
    methods = [colme.Bayes(), colme.Census(), colme.Local()]
    traces = colme.simulate(methods, scenario, degree=8, steps=40, seeds=range(20), record=[5, 15, 40])
    bound, census, local = (np.mean([t.mse for t in traces.select(method=m)], axis=0) for m in methods)
    assert (bound < 1.02 * census).all() and (census < local).all()


def test_agents_without_a_sample_have_no_estimate() -> None:
    samples = np.random.default_rng(0).normal(size=(4, 5))
    samples[:, 2] = np.nan
    recording = colme.Recording(samples, means=np.arange(5.0), sigma=1.0, classes=np.arange(5))
    estimate = colme.simulate(colme.Bayes(), recording, degree=2).final.estimate
    assert np.isnan(estimate).tolist() == [False, False, True, False, False]


def test_what_it_must_know_is_asked_for() -> None:
    samples = np.random.default_rng(0).normal(size=(4, 6))
    with pytest.raises(MethodError, match="needs sigma"):
        colme.simulate(colme.Bayes(), colme.Recording(samples, classes=np.zeros(6, int)))
    with pytest.raises(MethodError, match="told the classes"):
        colme.simulate(colme.Bayes(), colme.Recording(samples, sigma=1.0))
    with pytest.raises(MethodError, match="no per-agent form"):
        colme.Bayes().agent(None)  # type: ignore[arg-type]
