"""Judges give the numbers that NumPy gives in the plainest way."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import colme
from colme.metrics import ERRORS, METRICS, OF_METHOD, OF_RUN, oracle_variance
from colme.sim.sampling import FEW_CLASSES, Errors
from tests.support.sampled import sampled

Array = NDArray[np.float64]
NAN = math.nan
CLOSE: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-15}


PLAIN: dict[str, Callable[[Array, float], float]] = {
    "mse": lambda error, tolerance: float(np.mean(error**2)),
    "error_rate": lambda error, tolerance: float(np.mean(np.abs(error) > tolerance)),
}
"""The metrics of errors, from the errors that there are."""


def plain_errors(estimate: Array, truth: Array, tolerance: float) -> list[float]:
    error = (estimate - truth)[~np.isnan(estimate)]
    return [PLAIN[name](error, tolerance) for name in ERRORS]


def plain_oracle(mean: Array, count: NDArray[Any], truth: Array, class_: NDArray[Any]) -> float:
    """Mean over the agents with a sample of the squared error of the mean of all samples of their class."""
    squares = []
    for a in np.flatnonzero(count > 0):
        mine = (class_ == class_[a]) & (count > 0)
        squares.append((np.average(mean[mine], weights=count[mine]) - truth[a]) ** 2)
    return float(np.mean(squares))


def world(n: int, n_classes: int, seed: int) -> tuple[Array, Array, NDArray[Any]]:
    """(means or estimates, truth, classes)."""
    rng = np.random.default_rng(seed)
    class_ = rng.integers(n_classes, size=n).astype(np.uint16)
    truth = rng.normal(size=n_classes)[class_]
    return truth + 0.2 * rng.normal(size=n), truth, class_


def judged_means(judge: Errors, mean: Array, count: NDArray[np.int32] | None, truth: Array) -> list[float]:
    """The metrics of a run; without counts, as of a stream without gaps (one step: the first sample is the mean)."""
    if count is None:
        return sampled(mean[None, :], np.full(len(mean), NAN), 1, judge, truth)[1][0].tolist()
    out = np.full((2, 3), -1.0)
    judge.means(mean, count, truth, out[1])
    assert (out[0] == -1.0).all()
    return out[1].tolist()


def judged_estimates(judge: Errors, estimate: Array, truth: Array) -> list[float]:
    return list(judge.estimates(estimate, truth))


SIZES = [1, 2, 63, 64, 65, 128, 1000]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("gaps", [False, True])
def test_errors_are_those_of_the_estimates_that_there_are(n: int, gaps: bool) -> None:
    estimate, truth, class_ = world(n, 3, seed=n)
    if gaps:
        estimate[1::3] = NAN
    for tolerance in (0.05, 0.1, 0.3):
        got = judged_estimates(Errors(class_, tolerance), estimate, truth)
        np.testing.assert_allclose(got, plain_errors(estimate, truth, tolerance), **CLOSE)


def test_nobody_with_an_estimate_is_nan_not_zero() -> None:
    _, truth, class_ = world(70, 3, seed=0)
    assert np.isnan(judged_estimates(Errors(class_, 0.1), np.full(70, NAN), truth)).all()
    nobody = np.zeros(70, np.int32)
    assert np.isnan(judged_means(Errors(class_, 0.1), np.full(70, NAN), nobody, truth)).all()


def test_an_error_equal_to_the_tolerance_is_within_it() -> None:
    judge = Errors(np.zeros(4, np.uint16), 0.25)
    errors = np.array([0.25, -0.25, 0.26, -0.26])
    assert judged_estimates(judge, errors, np.zeros(4))[1] == 0.5


def test_a_large_error_is_not_lost() -> None:
    estimate, truth, class_ = world(1000, 3, seed=1)
    estimate[777] = 1e9
    assert judged_estimates(Errors(class_, 0.1), estimate, truth)[0] == pytest.approx(1e15, rel=1e-6)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("n_classes", [1, 3, FEW_CLASSES + 2])
def test_errors_of_local_means_and_of_the_oracle_with_equal_counts(n: int, n_classes: int) -> None:
    mean, truth, class_ = world(n, n_classes, seed=n)
    got = judged_means(Errors(class_, 0.1), mean, None, truth)
    expected = [*plain_errors(mean, truth, 0.1)[:2], plain_oracle(mean, np.ones(n), truth, class_)]
    np.testing.assert_allclose(got, expected, **CLOSE)


@pytest.mark.parametrize("n", SIZES[1:])
def test_errors_of_local_means_and_of_the_oracle_with_unequal_counts(n: int) -> None:
    mean, truth, class_ = world(n, 3, seed=n)
    count = np.random.default_rng(n).integers(0, 9, size=n).astype(np.int32)
    count[0] = 5
    mean[count == 0] = NAN
    got = judged_means(Errors(class_, 0.1), mean, count, truth)
    expected = [*plain_errors(mean, truth, 0.1)[:2], plain_oracle(mean, count, truth, class_)]
    np.testing.assert_allclose(got, expected, **CLOSE)


def test_a_class_without_agents_does_no_harm() -> None:
    mean, truth, class_ = world(100, 2, seed=6)
    class_ = class_ * np.uint16(2)  # nobody is in class 1
    expected = plain_oracle(mean, np.ones(100), truth, class_)
    assert judged_means(Errors(class_, 0.1), mean, None, truth)[2] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("options", [
    {"steps": 1}, {"steps": 40}, {"steps": 40, "skip_rate": 0.7}, {"steps": 7, "n_agents": 2100, "threads": 2},
], ids=str)  # fmt: skip
def test_the_last_errors_of_a_trace_are_those_of_its_estimates(options: dict[str, Any]) -> None:
    """By every way in which errors are measured: alone and shared, few steps at once or one, with gaps or without."""
    assert set(PLAIN) == set(ERRORS)
    known = {"n_agents": 60, "skip_rate": 0.0} | options
    steps, threads = known.pop("steps"), known.pop("threads", None)
    scenario = colme.Scenario(means=(0.0, 1.0), sigma=0.5, **known)
    methods = [colme.Local(), colme.Oracle(), colme.CLColME(), colme.CColME(), colme.BColME(), colme.Census()]
    for trace in colme.simulate(methods, scenario, steps=steps, seeds=[1], threads=threads, tolerance=0.2):
        final = trace.final
        expected = plain_errors(final.estimate, final.truth, 0.2)
        np.testing.assert_allclose([getattr(trace, name)[-1] for name in ERRORS], expected, rtol=1e-10)


def test_every_metric_has_its_place_in_a_trace_and_its_words() -> None:
    """What must be written beside the record: a field of `Trace`. All else is read from it."""
    assert tuple(METRICS) == OF_METHOD + OF_RUN and OF_METHOD[: len(ERRORS)] == ERRORS
    fields = [each.name for each in dataclasses.fields(colme.Trace)]
    assert set(METRICS) == set(fields[fields.index("t") + 1 : fields.index("final")])
    for name, metric in METRICS.items():
        assert metric.name == name and metric.words and metric.axis and metric.spare in (0, 1, 2)
    trace = colme.simulate(colme.Local(), colme.Scenario(n_agents=8, means=(0.0, 1.0)), steps=3)
    assert all(len(getattr(trace, name)) == 3 for name in METRICS)


# The oracle's exact error


def test_oracle_variance_is_sigma_squared_over_all_samples_of_the_class() -> None:
    assert oracle_variance(sigma=2.0, t=1000, class_size=2500) == 1.6e-06
    assert oracle_variance(3.0, 1, 1) == 9.0
