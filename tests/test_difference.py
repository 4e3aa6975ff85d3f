"""Difference tests are their formulas, cut edges of one class no more often than they promise, and tell how long others
take."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import colme
from colme.confidence import (
    FEWEST_DEPENDENT,
    KAPPA,
    DifferenceTest,
    apart,
    differ,
    difference_radius,
    difference_times,
    laplace_radius,
    level_alpha,
    level_gamma,
    separation_time,
    standard_error,
)
from colme.errors import MethodError
from colme.graphs import from_edges, random_regular_graph
from colme.methods import kernel
from colme.methods.intervals import parted

ALPHA = 0.1


def any_counts(alpha: float, scale: float = 1.0) -> DifferenceTest:
    return DifferenceTest(1.0 / (KAPPA * scale), -2.0 * math.log(alpha))


def threshold(error_a: float, error_b: float, test: DifferenceTest) -> float:
    """g: the squared difference from which two means differ, by bisection."""
    low, high = 0.0, 1e3
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if differ(middle, 0.0, error_a, error_b, test) else (middle, high)
    return high * high


# Formulas. The values were computed apart from this code, with sigma = 2, so that rho = 1.


@pytest.mark.parametrize(("alpha", "g"), [(0.01, 1.020645797), (4e-6, 2.372640948)])
def test_equal_counts(alpha: float, g: float) -> None:
    assert (2.0 * difference_radius(100, 2.0, alpha)) ** 2 == pytest.approx(g, rel=1e-9)


@pytest.mark.parametrize(
    ("n_a", "n_b", "alpha", "g"),
    [
        (100, 100, 0.01, 1.143080301),
        (1000, 50, 0.01, 1.694042756),
        (100, 100, 4e-6, 2.495075452),
        (1000, 50, 4e-6, 3.480428941),
    ],
)
def test_any_counts(n_a: int, n_b: int, alpha: float, g: float) -> None:
    errors = standard_error(n_a, 2.0), standard_error(n_b, 2.0)
    assert threshold(*errors, any_counts(alpha, 2.0)) == pytest.approx(g, rel=1e-9)


def test_sigmas_of_their_own() -> None:
    errors = standard_error(100, 2.0), standard_error(50, 1.0)
    assert threshold(*errors, any_counts(0.01, math.sqrt(2.5))) == pytest.approx(0.8910693598, rel=1e-9)


def test_separation_times_computed_apart() -> None:
    assert [separation_time(0.8, sigma=2.0, gamma=a, radius=difference_radius) for a in (0.1, 0.01, 4e-6)] == [
        98, 161, 367,
    ]  # fmt: skip
    assert separation_time(0.8, sigma=2.0, gamma=4e-6, radius=difference_radius, guaranteed=True) == 1514
    test = any_counts(4e-6, 2.0)
    at = [threshold(standard_error(n, 2.0), standard_error(n, 2.0), test) <= 0.64 for n in (400, 401)]
    assert at == [False, True]


@pytest.mark.parametrize(
    ("gap", "alpha", "mean", "least"),
    [(0.1, 4e-6, 6108, 4972), (0.4, 4e-6, 354, 311), (1.6, 4e-6, 26.1, 19.4), (0.2, 0.01, 639, 461)],
)
def test_expected_times(gap: float, alpha: float, mean: float, least: float) -> None:
    times = difference_times(gap, sigma=1.0, alpha=alpha)
    assert times.mean == pytest.approx(mean, rel=2e-3) and times.least == pytest.approx(least, rel=2e-3)
    assert times.least < times.mean < times.intersection < times.guaranteed
    assert times.last == times.mean


@pytest.mark.parametrize(("alpha", "last"), [(4e-6, 1070), (0.01, 703)])
def test_the_last_of_many_edges(alpha: float, last: float) -> None:
    assert difference_times([1.2, 2.0], sigma=2.0, alpha=alpha, n_edges=12_500).last == pytest.approx(last, rel=1e-3)


@pytest.mark.parametrize("gap", [1e-3, 0.1, 5.0, 20.0, 1e6])
@pytest.mark.parametrize("alpha", [1e-12, 0.1, 0.99])
def test_times_solve_their_equations_or_are_one_sample(gap: float, alpha: float) -> None:
    for n_edges in (1, 2, 10**9):
        times = difference_times(gap, sigma=1.0, alpha=alpha, n_edges=n_edges)
        for n, z in ((times.mean, None), (times.last, NormalDist().inv_cdf(1 - 1 / max(2, n_edges)))):
            c = (2.0 * difference_radius(n, 1.0, alpha)) ** 2 / (2.0 / n)
            right = 2.0 / gap**2 * (c - 1.0 if z is None or n_edges == 1 else (math.sqrt(c) + z) ** 2)
            assert n == pytest.approx(max(1.0, right), rel=1e-9)


def test_measured_times_are_the_expected_ones() -> None:
    """4000 pairs, gap 0.4 sigma: the deviation of a time is about 75, so the standard error of the mean is 0.8 %; the
    formula is good to 4 % at such a gap."""
    rng, times = np.random.default_rng(1), difference_times(0.4, sigma=1.0, alpha=0.01)
    steps = np.arange(1, 1001)
    gaps = 0.4 + np.cumsum(math.sqrt(2.0) * rng.standard_normal((4000, 1000)), axis=1) / steps
    radii = np.array([difference_radius(n, 1.0, 0.01) for n in steps])
    first = 1 + np.argmax(np.abs(gaps) > 2.0 * radii, axis=1)
    assert first.mean() == pytest.approx(times.mean, rel=0.04 + 3 * 0.008) and first.mean() > times.least
    assert np.median(first) < times.intersection
    assert (first > times.guaranteed).mean() <= 0.01


numbers, errors = st.floats(-1e6, 1e6), st.floats(1e-9, 1e6) | st.just(math.inf)


@given(numbers, numbers, errors, errors)
def test_both_ends_get_the_same_bits(x: float, y: float, a: float, b: float) -> None:
    test = any_counts(0.01)
    assert differ(x, y, a, b, test) == differ(y, x, b, a, test)
    assert not differ(x, x, a, b, test)


@pytest.mark.parametrize(("mean", "error"), [(math.nan, math.inf), (1e30, math.inf), (1e30, 0.0), (1e30, 1e-200)])
def test_no_cut_without_samples_or_by_impossible_claims(mean: float, error: float) -> None:
    assert not differ(mean, 0.0, error, 0.1, any_counts(0.01))
    assert not apart(0.0, mean, 0.1, error, any_counts(0.01))


@given(st.integers(1, 10**6), st.floats(1e-9, 0.5))
def test_with_equal_counts_any_counts_is_the_stricter_rule(n: int, alpha: float) -> None:
    at = 2.0 * difference_radius(n, 1.0, alpha)
    assert not differ(at, 0.0, standard_error(n, 1.0), standard_error(n, 1.0), any_counts(alpha))


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_any_scale_will_do(scale: float) -> None:
    test, error = any_counts(0.01, scale), standard_error(100, scale)
    assert differ(1.1 * 0.5 * scale, 0.0, error, error, test) == differ(1.1 * 0.5, 0.0, 0.1, 0.1, any_counts(0.01))
    assert differ(scale, 0.0, error, error, test) and not differ(0.1 * scale, 0.0, error, error, test)


# Levels


def test_levels_for_5000_agents_of_degree_10() -> None:
    graph = {"n_edges": 25_000, "max_degree": 10}
    assert level_alpha("edge", 0.1, **graph) == pytest.approx(4e-6)
    assert level_alpha("edge", 0.1, **graph, paths=2) == pytest.approx(2e-6)
    assert level_alpha("agent", 0.1, **graph) == pytest.approx(0.01)
    assert level_gamma("network", 0.1, n_agents=5000, n_edges=25_000) == pytest.approx(1e-5)
    assert separation_time(0.8, sigma=2.0, gamma=1e-5) == 742
    assert level_alpha("edge", 0.1, n_edges=0, max_degree=0) == 0.1


def test_on_devices_either_end_may_fail() -> None:
    method = colme.CLColME(cut="difference")
    alphas = [method.bound_for(100, 300, looks=looks).gamma for looks in ("equal", "common", "separate")]
    assert alphas == [0.1 / 300, 0.1 / 300, 0.1 / 600]
    agent = colme.CLColME(cut="difference", level="agent")
    assert agent.bound_for(100, 300).gamma == 0.1 / 6, "a regular graph of so many edges has degree 6"
    assert agent.bound_for(100, 300, max_degree=20).gamma == 0.1 / 20
    assert colme.CLColME(cut="difference", gamma=0.03).bound_for(100, 300, looks="separate").gamma == 0.03


def test_a_method_that_takes_standard_errors_for_radii_is_told() -> None:
    with pytest.raises(MethodError, match=r"Pass the agent's test: parted\(mine, theirs, self.test\)"):
        parted(((0.0, -0.1),), ((0.0, -0.1),))


def test_what_another_rule_tells_cuts_nothing() -> None:
    assert parted(((0.0, 0.1),), ((9.0, 0.1),)) and parted(((0.0, -0.1),), ((9.0, -0.1),), any_counts(0.01))
    assert not parted(((0.0, 0.1),), ((9.0, -0.1),))
    assert not parted(((0.0, -0.1),), ((9.0, 0.1),), any_counts(0.01))


# False cuts: how many pairs of one mean are ever cut

GAUSSIAN, UNIFORM, RADEMACHER, BERNOULLI = range(4)
SCALE = (1.0, 1.0 / math.sqrt(3.0), 1.0, 0.5)
"""Sub-Gaussian scales of the noises."""
EQUAL, TENTH, LATE, SKIP = range(4)
"""Which counts two agents have: equal; b a tenth of a's; b joins late; both skip half of the steps."""


@kernel
def count_cuts(rng, noise, counts, join, n_pairs, n_steps, radii, errors, test):
    """Of pairs with one mean: how many are ever cut by equal radii, and by the test for any counts."""
    by_radii = by_test = 0
    for _ in range(n_pairs):
        a = b = 0.0
        n_a = n_b = 0
        first = second = False
        for t in range(n_steps):
            for end in range(2):
                if (counts == 1 and end == 1 and t % 10 != 9) or (counts == 2 and end == 1 and t < join):
                    continue
                if counts == 3 and rng.random() < 0.5:
                    continue
                if noise == 0:
                    x = rng.standard_normal()
                else:
                    x = rng.random()
                    if noise == 1:
                        x = 2.0 * x - 1.0
                    elif noise == 2:
                        x = 1.0 if x < 0.5 else -1.0
                    else:
                        x = 1.0 if x < 0.5 else 0.0
                if end == 0:
                    a, n_a = a + x, n_a + 1
                else:
                    b, n_b = b + x, n_b + 1
            if n_a > 0 and n_b > 0:
                mean_a, mean_b = a / n_a, b / n_b
                if counts == 0 and not first:
                    first = apart(mean_a, mean_b, radii[n_a], radii[n_b], None)
                if not second:
                    second = apart(mean_a, mean_b, errors[n_a], errors[n_b], test)
        by_radii, by_test = by_radii + int(first), by_test + int(second)
    return by_radii, by_test


def shares_cut(noise: int, counts: int, n_pairs: int, n_steps: int, shrink: float = 1.0) -> tuple[float, float]:
    """Shares of the pairs that are cut by radii, and by the test for any counts; `shrink` multiplies both."""
    steps, scale = range(n_steps + 1), SCALE[noise]
    radii = np.array([shrink * difference_radius(n, scale, ALPHA) for n in steps])
    errors = np.array([shrink * standard_error(n, scale) for n in steps])
    rng = np.random.Generator(np.random.PCG64(10 * noise + counts))
    cut = count_cuts(
        rng, noise, counts, n_steps // 4, n_pairs, n_steps, radii, errors, any_counts(ALPHA, shrink * scale)
    )  # fmt: skip
    return cut[0] / n_pairs, cut[1] / n_pairs


def allowed(n_pairs: int) -> float:
    """alpha, and three standard deviations of a share of so many pairs."""
    return ALPHA + 3.0 * math.sqrt(ALPHA * (1.0 - ALPHA) / n_pairs)


@pytest.mark.parametrize("counts", [EQUAL, TENTH, LATE, SKIP])
@pytest.mark.parametrize("noise", [GAUSSIAN, UNIFORM, RADEMACHER, BERNOULLI])
def test_edges_of_one_class_are_rarely_cut(noise: int, counts: int) -> None:
    n_pairs = 20_000 if counts == EQUAL else 5_000
    by_radii, by_test = shares_cut(noise, counts, n_pairs, 500)
    assert by_radii <= allowed(n_pairs) and by_test <= allowed(n_pairs)
    if counts == EQUAL:
        # not by never cutting at all; and rules that were a third too eager would be noticed
        assert by_radii > 0.04 and by_test > 0.02
        assert min(shares_cut(noise, counts, 5_000, 500, 0.67)) > allowed(5_000)


@pytest.mark.slow
@pytest.mark.parametrize("counts", [EQUAL, TENTH, LATE, SKIP])
@pytest.mark.parametrize("noise", [GAUSSIAN, UNIFORM, RADEMACHER, BERNOULLI])
def test_edges_of_one_class_are_rarely_cut_in_2000_steps(noise: int, counts: int) -> None:
    assert max(shares_cut(noise, counts, 10**5, 2000)) <= allowed(10**5)


@kernel
def count_cuts_by_an_adversary(rng, n_pairs, most, errors, test):
    """Sample a until it looks high, then b until it looks low, then whichever has fewer."""
    cut = 0
    for _ in range(n_pairs):
        a = b = 0.0
        n_a = n_b = 0
        while n_a < most or n_b < most:
            if n_a < most and (n_a < 8 or a < 2.0 * math.sqrt(n_a)):
                a, n_a = a + rng.standard_normal(), n_a + 1
            elif n_b < most and (n_b < 8 or b > -2.0 * math.sqrt(n_b)):
                b, n_b = b + rng.standard_normal(), n_b + 1
            elif n_a <= n_b and n_a < most:
                a, n_a = a + rng.standard_normal(), n_a + 1
            elif n_b < most:
                b, n_b = b + rng.standard_normal(), n_b + 1
            else:
                a, n_a = a + rng.standard_normal(), n_a + 1
            if n_b > 0 and apart(a / n_a, b / n_b, errors[n_a], errors[n_b], test):
                cut += 1
                break
    return cut


def test_counts_may_depend_on_the_samples() -> None:
    errors = np.array([standard_error(n, 1.0) for n in range(1001)])
    rng = np.random.Generator(np.random.PCG64(5))
    assert count_cuts_by_an_adversary(rng, 5_000, 1000, errors, any_counts(ALPHA)) / 5_000 <= allowed(5_000)


# In a graph


@pytest.mark.parametrize("level", ["edge", "agent"])
def test_classes_part_sooner_and_stay_together(level: str) -> None:
    scenario = colme.Scenario(n_agents=300, means=(0.0, 1.0), sigma=1.0)
    intervals, differences = colme.simulate(
        [colme.CLColME(), colme.CLColME(cut="difference", level=level)], scenario, steps=400, degree=8, seeds=[1]
    )
    half = [int(np.argmax(trace.wrong_edges < 0.5)) for trace in (intervals, differences)]
    assert half[1] < 0.5 * half[0]
    # at level agent a true edge is lost with probability below 0.1 / 8
    assert differences.lost_edges[-1] <= (0.0 if level == "edge" else 0.1 / 8)
    assert differences.wrong_edges[-1] == 0.0


def test_the_trusted_interval_holds_with_probability_one_minus_alpha() -> None:
    from colme.node.core import Core

    core = Core(colme.CLColME(cut="difference", gamma=0.02), "a", ["b"], n_agents=9, degree=3, sigma=2.0)
    agent: Any = core.agent
    for x in range(12):
        known = x >= FEWEST_DEPENDENT  # else it is not known yet whether samples are independent
        assert agent.intervals[0][1] == (-2.0 / math.sqrt(x) if known else -math.inf)
        core.observe(float(x % 3))
    assert agent.intervals == ((1.0, -2.0 / math.sqrt(12.0)),)
    assert agent.radius == 2.0 * laplace_radius(12, 1.0, 0.01)


def test_hubs_count_their_neighbors() -> None:
    """On a star the promise to each agent is over the hub's neighbors; lockstep knows the largest degree, too."""
    star = from_edges([(0, k) for k in range(1, 9)])
    method = colme.CLColME(cut="difference", level="agent", clock="own")
    samples = np.random.default_rng(0).standard_normal((80, 9)) + np.where(np.arange(9) > 4, 2.0, 0.0)
    recording = colme.Recording(samples, sigma=1.0, independent=True)
    run = colme.simulate(method, recording, graph=star)
    from colme.lockstep import agents_of, lockstep

    agents: Any = agents_of(method, star, sigma=1.0, independent=True)
    assert {agent.bound.gamma for agent in agents.values()} == {0.1 / 8}
    estimates = lockstep(method, samples - recording.origin, star, sigma=1.0, independent=True)[-1] + recording.origin
    np.testing.assert_array_equal(estimates, run.final.estimate)
    assert run.final.graph.n_edges == 4


def test_unequal_sigmas_are_compared_at_equal_counts_too() -> None:
    """Half of the agents are eight times as noisy: they keep their neighbors until they know, and no true edge goes."""
    rng, sigma = np.random.default_rng(3), np.where(np.arange(60) % 2, 0.25, 2.0)
    classes = np.arange(60) % 4 // 2
    samples = classes * 2.0 + sigma * rng.standard_normal((600, 60))
    recording = colme.Recording(samples, sigma=sigma, classes=classes)
    trace = colme.simulate(colme.CLColME(cut="difference"), recording, graph=random_regular_graph(60, 6, rng=1))
    assert trace.lost_edges[-1] == 0.0 and trace.wrong_edges[-1] == 0.0


if __name__ == "__main__":  # the table of docs/methods.md; half an hour
    for law, name in enumerate(("Gaussian", "uniform", "Rademacher", "Bernoulli(.5)")):
        found = [shares_cut(law, counts, 10**6, 2000) for counts in (EQUAL, TENTH, LATE, SKIP)]
        print(f"| {name} |", " | ".join(f"{share:.4f}" for share in (*found[0], *(each[1] for each in found[1:]))), "|")
