"""Checks of the reference of the difference tests: closed forms, and the values noted with the rules."""

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from .common import laplace_radius
from .cuts import (
    any_counts,
    cuts,
    difference,
    guaranteed,
    intersection,
    last_time,
    level_alpha,
    mean_time,
    precision,
    smallest,
    wald_bound,
)
from .test_reference import complete, graph, path

EDGE = 0.1 / 25000  # delta = .1, 5000 agents of degree 10


@pytest.mark.parametrize(
    ("n_a", "n_b", "alpha", "d", "f"),
    [
        (100, 100, 0.01, 1.020645797, 1.143080301),
        (1000, 50, 0.01, 1.071541249, 1.694042756),
        (100, 100, EDGE, 2.372640948, 2.495075452),
        (1000, 50, EDGE, 2.496393916, 3.480428941),
    ],
)
def test_noted_values(n_a: int, n_b: int, alpha: float, d: float, f: float) -> None:
    rho = precision(2, 2)
    assert rho == 1
    assert difference(4 / n_a, 4 / n_b, rho, alpha) == pytest.approx(d, rel=1e-9)
    assert any_counts(4 / n_a, 4 / n_b, rho, alpha) == pytest.approx(f, rel=1e-9)
    assert any_counts(4 / n_b, 4 / n_a, rho, alpha) == pytest.approx(f, rel=1e-9)


def test_more_noted_values() -> None:
    assert any_counts(4 / 1000, 4 / 50, 1.0, 0.01, k=1.0) == pytest.approx(1.551986863, rel=1e-9)
    rho = precision(2, 1)
    assert rho == pytest.approx(1.6)
    assert difference(4 / 100, 1 / 50, rho, 0.01) == pytest.approx(0.7658024673, rel=1e-9)
    assert any_counts(4 / 100, 1 / 50, rho, 0.01) == pytest.approx(0.8910693598, rel=1e-9)


def test_closed_forms() -> None:
    """The e-processes give the closed forms of both rules."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        v_a, v_b, rho = np.exp(rng.uniform(-6, 3, 3))
        k, alpha = math.exp(rng.uniform(-2, 3)), math.exp(rng.uniform(-20, 0))
        u, L = v_a + v_b, 2 * math.log(1 / alpha)
        assert difference(v_a, v_b, rho, alpha) == pytest.approx(u * (1 + rho * u) * (math.log1p(1 / (rho * u)) + L))
        q = 1 / (2 * rho * k)
        det = 1 + (k + 1) * q / 2 * (1 / v_a + 1 / v_b) + k * q**2 / (v_a * v_b)
        g = (u + rho * u**2 + rho * k * (v_a - v_b) ** 2) * (math.log(det) + L)
        assert any_counts(v_a, v_b, rho, alpha, k) == pytest.approx(g, rel=1e-9)
    # K = 1 is the product of two normal-mixture e-processes; K -> infinity at v_a = v_b is D
    v_a, v_b, ra = 0.3, 0.02, 2 * 0.7
    product = (v_a * (1 + ra * v_a) + v_b * (1 + ra * v_b)) * (
        math.log1p(1 / (ra * v_a)) + math.log1p(1 / (ra * v_b)) + 2 * math.log(100)
    )
    assert any_counts(v_a, v_b, 0.7, 0.01, k=1.0) == pytest.approx(product)
    assert any_counts(0.1, 0.1, 0.7, 0.01, k=1e7) == pytest.approx(difference(0.1, 0.1, 0.7, 0.01), rel=1e-5)


def test_intersections() -> None:
    assert [intersection(0.8, 2, alpha) for alpha in (0.1, 0.01, EDGE)] == [98, 161, 367]
    assert guaranteed(0.8, 2, EDGE) == 1514
    assert intersection(0.8, 2, EDGE, any_counts) == 401


@pytest.mark.parametrize(
    ("gap", "edge", "edge_bound", "at_01", "bound_01"),
    [
        (0.1, 6108, 4972, 2825, 1842),
        (0.2, 1462, 1243, 639, 461),
        (0.4, 354, 311, 148, 115),
        (0.8, 90.0, 77.7, 38.3, 28.8),
        (1.6, 26.1, 19.4, 12.3, 7.2),
        (3.2, 9.2, 4.9, 4.8, 1.8),
        (5, 5.1, 2.0, 2.8, 0.7),
    ],
)
def test_mean_times(gap: float, edge: float, edge_bound: float, at_01: float, bound_01: float) -> None:
    """The noted figures have three to four digits: half a unit of the last one."""
    for value, noted in (
        (mean_time(gap, 1, 1, EDGE), edge),
        (wald_bound(gap, 1, 1, EDGE), edge_bound),
        (mean_time(gap, 1, 1, 0.01), at_01),
        (wald_bound(gap, 1, 1, 0.01), bound_01),
    ):
        assert value == pytest.approx(noted, abs=0.051 if noted < 100 else 0.51)


def test_last_times() -> None:
    """The last of 12500 wrong edges, half of those of 5000 agents of degree 10."""
    z = NormalDist().inv_cdf(1 - 1 / 12500)
    assert last_time(0.8, 2, 2, EDGE, z) == pytest.approx(1070, abs=0.51)
    assert last_time(0.8, 2, 2, 0.01, z) == pytest.approx(703, abs=0.51)


def test_exact_accounting_of_the_intervals() -> None:
    """gamma = delta / (4 r N) is 2 r times stricter than its promise needs: delta / (2 N) brings 897 to 742."""
    agents, degree, delta = 5000, 10, 0.1

    def separated(gamma: float) -> int:
        return smallest(lambda n: 2 * laplace_radius(n, 2.0, gamma) <= 0.8)

    assert separated(delta / (4 * degree * agents)) == 897
    assert separated(delta / (2 * agents)) == 742


def test_levels() -> None:
    star = graph(5, [(0, 1), (0, 2), (0, 3), (3, 4)])
    edges = star > 0
    assert level_alpha("edge", 0.1, star)[edges] == pytest.approx(0.1 / 4)
    assert level_alpha("edge", 0.1, star, own_counts=True)[edges] == pytest.approx(0.1 / 8)
    agent = level_alpha("agent", 0.1, star)
    assert (agent[0, 1], agent[1, 0], agent[3, 4]) == pytest.approx((0.1 / 3, 0.1 / 3, 0.1 / 2))
    assert agent[1, 2] == 0
    assert level_alpha(0.02, 0.1, star)[edges] == pytest.approx(0.02)


def test_cuts_by_hand() -> None:
    """Constant samples 0, 0 and gap on a path: the wrong edge goes at the intersection, and stays cut."""
    gap, alpha = 2.0, 0.01
    n = intersection(gap, 1, alpha)
    samples = np.tile([0.0, 0.0, gap * (1 + 1e-12)], (n + 3, 1))
    samples[n:, 2] = 0.0
    at: dict[str, Any] = {"sigma": 1.0, "alpha": level_alpha(alpha, 0.1, path(3)), "rule": difference}
    graphs = cuts(samples, path(3), **at)
    assert graphs[:, 0, 1].all()
    assert list(graphs[:, 1, 2]) == [True] * (n - 1) + [False] * 4
    samples[:, 2] = math.nan  # an agent without a sample keeps its edges
    assert cuts(samples, path(3), **at)[:, 1, 2].all()


def test_false_cuts_stay_below_alpha() -> None:
    """Each null pair is cut with probability at most alpha = .1; pairs of a run are dependent, the 40 runs are not."""
    rng = np.random.default_rng(7)
    agents, runs = 6, 40
    pairs = complete(agents)
    alpha = level_alpha(0.1, 0.1, pairs)
    lost = np.empty((runs, 2))
    for run in range(runs):
        samples = rng.normal(size=(60, agents))
        samples[rng.random(samples.shape) < rng.random(agents) * 0.8] = math.nan
        for i, rule in enumerate((difference, any_counts)):
            kept = cuts(samples, pairs, sigma=1.0, alpha=alpha, rule=rule)[-1]
            lost[run, i] = 1 - kept.sum() / pairs.sum()
    mean, error = np.mean(lost, axis=0), np.std(lost, axis=0) / math.sqrt(runs)
    assert (mean <= 0.1 + 3 * error).all()
    assert mean[1] < mean[0]
