"""Radii are the papers' formulas, hold as often as they promise, and tell how long two means take to part."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from colme import confidence
from colme.confidence import (
    Bound,
    fourth_moment_radius,
    laplace_radius,
    level_gamma,
    separation_time,
    too_far,
)
from colme.samples import draw
from colme.scenario import Scenario
from tests.support.examples import examples

counts = st.integers(1, 10**6)
scales = st.floats(1e-3, 1e3)
levels = st.floats(1e-9, 0.5)


# Formulas


def test_radii_computed_by_hand() -> None:
    # n = 1: 2 * 2 * ln(sqrt(2) / 0.05) = 4 (0.34657 + 2.99573) = 13.36923
    assert laplace_radius(1, 1.0, 0.05) == pytest.approx(3.65640, abs=1e-5)
    # n = 99: 2/99 * 100/99 * ln(10 / 0.1) = 0.0204061 * 4.6051702 = 0.0939736
    assert laplace_radius(99, 2.0, 0.1) == pytest.approx(2 * math.sqrt(0.0939736), abs=1e-6)
    # n = 1: (2 * 6 / 0.12)^(1/4) = 100^(1/4)
    assert fourth_moment_radius(1, 1.0, 0.12) == pytest.approx(math.sqrt(10.0), rel=1e-14)


RADII: list[Callable[..., float]] = [laplace_radius, fourth_moment_radius]


@pytest.mark.parametrize("radius", RADII)
def test_nobody_is_sure_without_a_sample(radius: Callable[..., float]) -> None:
    assert radius(0, 1.0, 0.1) == math.inf


@pytest.mark.parametrize("radius", RADII)
@given(n=counts, sigma=scales, gamma=levels)
def test_a_radius_shrinks_with_samples_and_grows_with_scale_and_certainty(
    radius: Callable[..., float], n: int, sigma: float, gamma: float
) -> None:
    here = radius(n, sigma, gamma)
    assert 0 < here < math.inf
    assert radius(n + 1, sigma, gamma) <= here
    assert radius(2 * n + 3, sigma, gamma) < here
    assert radius(n, sigma, gamma / 2) > here
    assert radius(n, 2 * sigma, gamma) == pytest.approx(2 * here, rel=1e-14)


@pytest.mark.parametrize("name", confidence.BOUNDS)
def test_a_bound_is_the_function_of_its_name(name: str) -> None:
    bound = Bound(gamma=0.03, name=name, kurtosis=5.0)
    expected = {
        "laplace": laplace_radius(17, 2.0, 0.03),
        "fourth-moment": fourth_moment_radius(17, 2.0, 0.03, 5.0),
        "hoeffding": laplace_radius(17, 2.0, 0.03),  # an interval of length 4 is 2-sub-Gaussian
    }
    assert bound.radius(17, 2.0) == expected[name]
    assert bound.radius(0) == math.inf


@pytest.mark.parametrize("name", confidence.BOUNDS)
def test_a_table_holds_the_radii(name: str) -> None:
    bound = Bound(gamma=0.03, name=name)
    for most in (0, 1, 63, 64, 1000):
        table = bound.table(most)
        assert len(table) > most and table[0] == math.inf
        assert all(table[n] == bound.radius(n) for n in (1, 63, most))


def test_closed_intervals_that_touch_are_not_too_far() -> None:
    assert not too_far(0.0, 1.0, 0.5, 0.5)
    assert not too_far(1.0, 0.0, 0.25, 0.75)
    assert too_far(0.0, 1.0, 0.5, 0.5 - 2.0**-52)
    assert not too_far(math.nan, 1.0, math.inf, 0.1)


# Levels


@pytest.mark.parametrize(
    ("level", "gamma"),
    [("agent", 0.1 / 2), ("edge", 0.1 / (4 * 10 * 5000)), ("population", 0.1 / (8 * 5000))],
)
def test_the_papers_levels_for_5000_agents_of_degree_10(level: str, gamma: float) -> None:
    assert level_gamma(level, 0.1, n_agents=5000, n_edges=25_000) == pytest.approx(gamma, rel=1e-15)


def test_a_graph_without_edges_has_a_level() -> None:
    assert level_gamma("edge", 0.1, n_agents=3, n_edges=0) == 0.1 / 4


# How long two means take to part


def test_separation_times_of_the_papers_setting() -> None:
    assert separation_time(0.8, sigma=2.0, gamma=0.05) == 293
    assert separation_time(0.8, sigma=2.0, gamma=0.1 / (4 * 10 * 5000)) == 897


def by_trying(gap: float, sigma: float, gamma: float, factor: float, radius: Callable[..., float]) -> int:
    t = 1
    while factor * radius(t, sigma, gamma) > gap:
        t += 1
    return t


@pytest.mark.parametrize("radius", [laplace_radius, fourth_moment_radius])
@examples(30)
@given(gap=st.floats(0.5, 20.0), sigma=st.floats(0.05, 1.0), gamma=st.floats(1e-6, 0.9), guaranteed=st.booleans())
def test_separation_time_is_the_first_step_at_which_intervals_part(
    radius: Callable[..., float], gap: float, sigma: float, gamma: float, guaranteed: bool
) -> None:
    factor = 4.0 if guaranteed else 2.0
    assume(factor * radius(3000, sigma, gamma) <= gap)
    found = separation_time(gap, sigma=sigma, gamma=gamma, guaranteed=guaranteed, radius=radius)
    assert found == by_trying(gap, sigma, gamma, factor, radius)


def test_a_wide_gap_is_seen_at_once() -> None:
    assert separation_time(1e6, sigma=1.0, gamma=0.1) == 1


# Coverage: how many of 4000 agents ever see their mean outside the interval within 300 steps

N, STEPS, SIGMA = 4000, 300, 2.0


def share_ever_outside(values: NDArray[Any], truth: float, radii: NDArray[Any]) -> float:
    means = np.cumsum(values, axis=0) / np.arange(1, STEPS + 1)[:, None]
    return float((np.abs(means - truth) > radii[:, None]).any(axis=0).mean())


def allowed(probability: float) -> float:
    """The promise, and three standard deviations of a share of N agents."""
    return probability + 3.0 * math.sqrt(probability * (1 - probability) / N)


GAUSSIAN = {"means": (1.0,), "sigma": SIGMA}
LAPLACE = GAUSSIAN | {"distribution": "laplace"}
STUDENT = GAUSSIAN | {"distribution": "student", "df": 5.0}
SELDOM, OFTEN = ({"means": (mean,), "distribution": "bernoulli"} for mean in (0.1, 0.5))


@pytest.mark.parametrize(("options", "radius", "parameters", "outside", "noticed"), [
    (GAUSSIAN, laplace_radius, (SIGMA, 0.05), 0.1, 0.6),
    (GAUSSIAN, laplace_radius, (SIGMA, 0.2), 0.4, 0.6),
    *((options, fourth_moment_radius, (SIGMA, 0.05, kurtosis), 1.29 * 0.05, 1 / 3)  # Markov's inequality is generous
      for options, kurtosis in ((GAUSSIAN, 3.0), (LAPLACE, 6.0), (STUDENT, 9.0))),
    (SELDOM, laplace_radius, (0.5, 0.05), 0.1, 0.5),
    (OFTEN, laplace_radius, (0.5, 0.05), 0.1, 0.5),
])  # fmt: skip
def test_intervals_hold_over_all_steps_and_shorter_ones_would_be_noticed(
    options: dict[str, Any], radius: Callable[..., float], parameters: tuple[float, ...], outside: float, noticed: float
) -> None:
    values, mean = draw(Scenario(n_agents=N, **options), 1, STEPS), options["means"][0]
    radii = np.array([radius(n, *parameters) for n in range(1, STEPS + 1)])
    assert share_ever_outside(values, mean, radii) <= allowed(outside)
    assert share_ever_outside(values, mean, noticed * radii) > allowed(outside)


def test_of_many_classes_the_two_closest_decide_the_separation_time() -> None:
    alone = separation_time(0.5, sigma=2.0, gamma=0.05)
    for means in ([0.0, 3.0, 3.5], (3.5, 0.0, 3.0, 0.0), np.array([-1.0, 3.0, 3.5])):
        assert separation_time(means, sigma=2.0, gamma=0.05) == alone
