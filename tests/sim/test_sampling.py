"""What everybody sees: local means and the metrics of a run, as NumPy works them out step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import colme
from colme.methods import World
from colme.samples import ScenarioStream
from colme.sim.sampling import BLOCK, FEW_CLASSES, STRETCH, Errors, Sampler, finish_errors, update_means
from tests.support.sampled import sampled

Array = NDArray[np.float64]
CLOSE: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-15}
"""Sums of a few thousand numbers, in another order."""
SIZES = [1, 2, 63, 64, 65, 1023, 1024, 1025, 2500]


def plain_means(samples: Array, before: Array, t: int) -> Array:
    """X + (x - X) / n, n = t, t + 1, ..: the bits are part of the promise."""
    rows, mean = [], before
    for i, x in enumerate(samples):
        mean = x if t + i == 1 else mean + (x - mean) * (1.0 / (t + i))
        rows.append(mean)
    return np.array(rows)


def plain_metrics(mean: Array, truth: Array, class_: NDArray[Any], tolerance: float) -> list[float]:
    """Local mean squared error and error rate, and the squared error of the mean of each agent's class."""
    error = mean - truth
    pooled = np.array([mean[class_ == c].mean() if (class_ == c).any() else np.nan for c in range(class_.max() + 1)])
    squares = (pooled[class_] - truth) ** 2
    return [float((error**2).mean()), float((np.abs(error) > tolerance).mean()), float(squares.mean())]


def population(n: int, n_classes: int, seed: int = 0) -> tuple[Errors, Array, np.random.Generator]:
    rng = np.random.default_rng([n, n_classes, seed])
    class_ = rng.integers(n_classes, size=n).astype(np.uint16)
    class_[0] = n_classes - 1
    return Errors(class_, 0.3), rng.normal(size=n_classes)[class_], rng


@pytest.mark.parametrize("n_classes", [1, 2, FEW_CLASSES, FEW_CLASSES + 1, 40])
@pytest.mark.parametrize("n", SIZES)
def test_means_and_metrics_of_a_stretch_are_those_of_numpy(n: int, n_classes: int) -> None:
    judge, truth, rng = population(n, n_classes)
    for t, steps in ((1, 1), (1, 5), (2, 3), (1000, 4)):
        samples, before = truth + rng.normal(size=(steps, n)), truth + 0.1 * rng.normal(size=n)
        means, metrics = sampled(samples, before, t, judge, truth)
        assert np.array_equal(means, plain_means(samples, before, t))
        expected = [plain_metrics(mean, truth, judge.class_, judge.tolerance) for mean in means]
        np.testing.assert_allclose(metrics, expected, **CLOSE)


@pytest.mark.parametrize("n_classes", [2, FEW_CLASSES + 2])
@pytest.mark.parametrize("n", [65, 1025, 3500])
def test_parts_of_the_agents_give_the_bits_of_the_whole(n: int, n_classes: int) -> None:
    judge, truth, rng = population(n, n_classes)
    samples, before = truth + rng.normal(size=(3, n)), np.full(n, np.nan)
    means, metrics = sampled(samples, before, 1, judge, truth)
    for part in (1024, 2048, 3072):
        again, in_parts = sampled(samples, before, 1, judge, truth, part=part)
        assert again.tobytes() == means.tobytes() and in_parts.tobytes() == metrics.tobytes(), part


@pytest.mark.parametrize("n_classes", [2, FEW_CLASSES + 2])
def test_only_the_steps_that_are_wanted_are_judged(n_classes: int) -> None:
    judge, truth, rng = population(300, n_classes)
    samples, before = truth + rng.normal(size=(6, 300)), np.full(300, np.nan)
    all_means, every = sampled(samples, before, 1, judge, truth)
    wanted = np.array([False, True, True, False, False, True])
    means, metrics = sampled(samples, before, 1, judge, truth, wanted=wanted)
    assert np.array_equal(means, all_means) and np.array_equal(metrics[wanted], every[wanted])
    assert np.isnan(metrics[~wanted][:, :2]).all(), "nothing was added up"


def test_without_a_truth_there_are_means_and_no_metrics() -> None:
    judge, _, rng = population(100, 3)
    samples, before = rng.normal(size=(4, 100)), np.full(100, np.nan)
    means, metrics = sampled(samples, before, 1, judge, None)
    assert np.array_equal(means, plain_means(samples, before, 1)) and np.isnan(metrics).all()


def test_means_may_be_written_over_the_samples_and_the_means_before() -> None:
    judge, truth, rng = population(1500, 2)
    samples, before = rng.normal(size=(4, 1500)), rng.normal(size=1500)
    expected = plain_means(samples, before, 7)
    sums = 0, judge.hood.page, np.zeros((2, 4, 3)), np.zeros((2, 4, 2))
    lines = samples.copy()
    update_means(lines, lines, before, 7, np.ones(4, bool), truth, 0.3, judge.class_, *sums)
    assert np.array_equal(lines, expected)
    mean = before.copy()
    update_means(samples[:1], mean[None, :], mean, 7, np.ones(1, bool), truth, 0.3, judge.class_, *sums)
    assert np.array_equal(mean, expected[0])


def test_an_error_equal_to_the_tolerance_is_within_it_and_sums_are_taken_over_all_pages() -> None:
    errors, totals = np.zeros((2, 2, 3)), np.zeros((2, 2, 1))
    errors[:, :, 2], errors[:, 0, 0], errors[1, 0, 1] = 50.0, (30.0, 34.0), 3.0
    totals[:, 0, 0] = 2000.0, 16.0
    out = np.full((2, 3), np.nan)
    finish_errors(errors, totals, np.array([10.0]), np.array([100.0]), out)
    assert out.tolist() == [[0.64, 0.03, (20.16 - 10.0) ** 2], [0.0, 0.0, 100.0]]
    judge, errors = Errors(np.zeros(4, np.uint16), 0.25), np.array([[0.25, -0.25, 0.26, -0.26]])
    assert sampled(errors, np.zeros(4), 1, judge, np.zeros(4))[1][0, 1] == 0.5


# What a run sees

N, STEPS = 150, 70
TWO: dict[str, Any] = {"n_agents": N, "means": (0.0, 1.25), "sigma": 0.5}


def streams() -> dict[str, ScenarioStream | colme.Recording]:
    rng = np.random.default_rng(1)
    truth = np.arange(N) % 7 / 3.0
    return {
        "two classes": ScenarioStream(colme.Scenario(**TWO), 3),
        "six classes": ScenarioStream(colme.Scenario(**TWO | {"means": (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)}), 3),
        "shift": ScenarioStream(colme.Scenario(**TWO, shift_step=20, shift_means=(3.0, -1.0)), 3),
        "recording": colme.Recording(truth + rng.normal(size=(STEPS, N)), means=truth),
        "no truth": colme.Recording(rng.normal(size=(STEPS, N)), classes=np.arange(N) % 3),
    }


def sampler_of(stream: ScenarioStream | colme.Recording, block: int, recorded: NDArray[np.int64]) -> Sampler:
    assert stream.class_ is not None
    errors = Errors(stream.class_, 0.3)
    world = World(class_=stream.class_, sigma=1.0, width=None, mean=np.full(N, np.nan), count=None, errors=errors)
    return Sampler(stream, world, recorded, block)


@pytest.mark.parametrize("block", [64, 128, 7 * N, BLOCK])
@pytest.mark.parametrize("kind", sorted(streams()))
def test_a_run_sees_what_numpy_works_out_from_the_samples(kind: str, block: int) -> None:
    stream = streams()[kind]
    samples = np.empty((STEPS, N))
    stream.fill(samples, 1)
    expected = plain_means(samples, np.full(N, np.nan), 1)
    recorded = np.array([1, 2, 5, 19, 20, 21, 33, 34, STEPS])
    seen = sampler_of(stream, block, recorded)
    assert seen.most == max(1, min(STRETCH, block // N))
    rng, t = np.random.default_rng(block), 0
    while t < STEPS:
        last = int(rng.integers(t + 1, STEPS + 1))
        means, is_recorded, errors = seen.sample(t + 1, last)
        n_steps = len(means)
        assert 1 <= n_steps <= min(seen.most, last - t)
        assert is_recorded.tolist() == np.isin(np.arange(t + 1, t + 1 + n_steps), recorded).tolist()
        assert np.array_equal(means, expected[t : t + n_steps])
        for row in range(n_steps):
            truth = stream.truth(t + 1 + row)
            if truth is None:
                assert np.isnan(errors[row]).all()
            elif t + 1 + row in recorded:
                wanted = plain_metrics(expected[t + row], truth, seen.world.errors.class_, 0.3)
                np.testing.assert_allclose(errors[row], wanted, **CLOSE)
        t += n_steps
        seen.world.t, seen.world.mean = t, means[-1]


@pytest.mark.parametrize("block", [64, 7 * N, BLOCK])
@pytest.mark.parametrize("kind", ["two classes", "six classes", "shift"])
def test_looking_back_gives_the_bits_of_having_looked(kind: str, block: int) -> None:
    for t in (1, 19, 20, 40):
        there = sampler_of(streams()[kind], block, np.arange(1, t + 1))
        while (done := there.world.t) < t:
            means, _, metrics = there.sample(done + 1, t)
            there.world.t, there.world.mean = done + len(means), means[-1]
            errors = metrics[-1].copy()
        back = sampler_of(streams()[kind], block, np.array([STEPS]))
        back.world.t = t
        back.world.mean[:] = there.world.mean
        assert back.measure_again()[0].tobytes() == errors.tobytes()
