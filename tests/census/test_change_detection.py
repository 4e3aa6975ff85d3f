"""Agents that watch for changes of their own mean."""

from __future__ import annotations

import numpy as np
import pytest

import colme
from colme.census.array import ChangeDetector
from tests.reference.census import WatchedAgent
from tests.support.edges import Floats
from tests.support.runs import run_of


def detected(samples: Floats, sigma: float) -> tuple[ChangeDetector, Floats]:
    """After all samples (steps, agents), NaN where there is none; and the counts since the last alarm at every step."""
    n = samples.shape[1]
    agents, mean, count, counts = ChangeDetector(n), np.full(n, np.nan), np.zeros(n, np.int64), []
    for row in samples:
        there = ~np.isnan(row)
        count[there] += 1
        mean[there] = np.where(count[there] == 1, row[there], mean[there] + (row[there] - mean[there]) / count[there])
        agents.observe(mean, count, sigma)
        counts.append(agents.count.copy())
    return agents, np.array(counts)


def test_the_sums_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(3)
    samples = rng.normal(0.0, 2.0, (400, 8))
    samples[150:] += np.array([0.0, 0.5, 1.0, 2.0, -1.0, -2.0, 6.0, 0.0])
    samples[rng.random(samples.shape) < 0.2] = np.nan
    agents, counts = detected(samples, 2.0)
    for a in range(8):
        one = WatchedAgent(2.0)
        for t, x in enumerate(samples[:, a]):
            if x == x:
                one.observe(x)
            assert counts[t, a] == len(one.samples)
        assert agents.mean[a] == pytest.approx(np.mean(one.samples), abs=1e-9)
        assert agents.suspected[a] == one.suspected
    assert (counts[-1][[3, 5, 6]] < 300).all(), "a change by a deviation or more is found"


def test_a_change_is_found_soon_and_rarely_where_there_is_none() -> None:
    """A change by g deviations after 300 samples raises the sum by g - d per sample, d = .15 + 2 / sqrt(300) = .27,
    with deviation 1 per sample: at twice the mean delay of h / (g - d) the sum is beyond the alarm by
    h / sqrt(2 h / (g - d)) = sqrt(h (g - d) / 2) = 3.2 deviations. False alarms need a mean of 30 samples or more that
    is off by more than d: with 30, P(|Z| > .15 sqrt(30) + 2) = .005, with half as many again .003, and so on; the
    sum of a few such chances is about .01, and we allow twice that."""
    rng = np.random.default_rng(4)
    samples = rng.normal(size=(600, 2000))
    _, counts = detected(samples, 1.0)
    assert (counts[-1] < 600).mean() <= 0.02
    samples[300:] += 1.0
    _, counts = detected(samples, 1.0)
    delay = 600 - counts[-1]
    assert ((delay >= 300) & (delay <= 300 + 2 * 28 / 0.73)).mean() > 0.98  # and false alarms, see above


def test_a_single_sample_raises_no_alarm() -> None:
    """Of Student samples with 3 degrees of freedom, one in ten thousand is beyond 28 standard deviations; counted as 4,
    seven would have to follow each other. The bound of false alarms is that of the test above."""
    rng = np.random.default_rng(6)
    samples = rng.standard_t(3.0, size=(600, 1000)) / np.sqrt(3.0)
    _, counts = detected(samples, 1.0)
    assert (counts[-1] < 600).mean() <= 0.02


def test_agents_with_a_suspected_change_contribute_no_mean() -> None:
    """All samples of agent 0 leave its mean after step 60, so for a while it contributes nothing."""
    rng = np.random.default_rng(5)
    samples = rng.normal(size=(80, 12))
    samples[60:, 0] += 1.5
    run = run_of(
        [colme.Census(guard=False, restart=True, refresh=1.0)], colme.Recording(samples, sigma=1.0), steps=80, seed=0,
        degree=4, record=[80],
    )  # fmt: skip
    state, silent = run.states[0], []
    for t in range(1, 81):
        began = state.began
        run.step(t)
        if state.began != began:  # after its first round `previous` holds z(0)
            binned = np.abs(state.previous).sum(axis=1) > 0.0
            np.testing.assert_array_equal(binned, ~state.detector.suspected)
            silent.append(not binned[0])
    assert any(silent) and not all(silent)
