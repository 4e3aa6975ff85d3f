"""Checks of the reference by hand computation: each of them is arithmetic that a reader can repeat."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from . import (
    Result,
    b_colme,
    b_colme_literal,
    c_colme,
    cl_colme,
    colme,
    flow,
    fourth_moment_radius,
    laplace_radius,
    local,
    oracle,
    prune,
    running_means,
)
from .c_colme import metropolis
from .cl_colme import laplacian
from .clocks import own_last_cut, rate, restarts

Array = np.ndarray
NAN = math.nan
NO_CUTS: dict[str, Any] = {"sigma": 1e6, "gamma": 0.05}
TOL: dict[str, Any] = {"rtol": 0, "atol": 1e-12}


def graph(agents: int, edges: list[tuple[int, int]]) -> Array:
    A = np.zeros((agents, agents), dtype=bool)
    for a, b in edges:
        A[a, b] = A[b, a] = True
    return A


def path(agents: int) -> Array:
    return graph(agents, [(a, a + 1) for a in range(agents - 1)])


def complete(agents: int) -> Array:
    return ~np.eye(agents, dtype=bool)


def random_graph(agents: int, share: float, seed: int) -> Array:
    upper = np.triu(np.random.default_rng(seed).random((agents, agents)) < share, 1)
    return upper | upper.T


def two_classes(steps: int, agents: int, seed: int) -> tuple[Array, Array]:
    """Unit noise around 0 (even agents) and 3 (odd agents)."""
    classes = np.arange(agents) % 2
    return np.random.default_rng(seed).normal(3.0 * classes, 1.0, (steps, agents)), classes


def unit(n: int, sigma: float, gamma: float) -> float:
    """A radius for hand computation: sigma as soon as there is a sample."""
    return sigma if n > 0 else math.inf


def late(first: int) -> Callable[[int, float, float], float]:
    """A radius that is sigma from n = first on and far too large to cut anything before."""
    return lambda n, sigma, gamma: sigma if n >= first else (1e9 if n > 0 else math.inf)


def same(x: Any, y: Any) -> None:
    np.testing.assert_allclose(x, y, **TOL)


def implied_alpha(result: Result, matrix: Callable[[Array], Array]) -> Array:
    """alpha_a(t) for t >= 2, solved from y = (1-alpha) X + alpha M y(t-1), for runs without absent agents."""
    alphas = []
    for i in range(1, len(result.mean)):
        mixed = matrix(result.adjacency[i]) @ result.estimate[i - 1]
        alphas.append((result.estimate[i] - result.mean[i]) / (mixed - result.mean[i]))
    return np.array(alphas)


# ---------------------------------------------------------------- common


def test_running_means() -> None:
    mean, count = running_means(np.array([[1.0, NAN], [3.0, 5.0], [NAN, NAN], [5.0, 8.0]]))
    np.testing.assert_array_equal(count, [[1, 0], [2, 1], [2, 1], [3, 2]])
    np.testing.assert_array_equal(mean, [[1.0, NAN], [2.0, 5.0], [2.0, 5.0], [3.0, 6.5]])


def test_laplace_radius() -> None:
    assert laplace_radius(0, 2.0, 0.05) == math.inf
    # n = 3: 2/3 * 4/3 * ln(2 / gamma), and gamma = 2/e makes the logarithm one
    assert laplace_radius(3, 3.0, 2 / math.e) == pytest.approx(3 * math.sqrt(8 / 9), abs=1e-14)


@pytest.mark.parametrize(("gamma", "t"), [(0.05, 293), (0.1 / (4 * 10 * 5000), 897)])
def test_separation_time(gamma: float, t: int) -> None:
    assert 2 * laplace_radius(t, 2.0, gamma) <= 0.8 < 2 * laplace_radius(t - 1, 2.0, gamma)


def test_fourth_moment_radius() -> None:
    assert fourth_moment_radius(0, 2.0, 0.05) == math.inf
    # n = 1: the second factor is one; 2 * 6 * 1 / 0.75 = 16 and the fourth root is 2
    assert fourth_moment_radius(1, 1.0, 0.75) == pytest.approx(2.0, abs=1e-14)
    assert fourth_moment_radius(1, 5.0, 0.75, kappa=3.0) == pytest.approx(10.0, abs=1e-14)
    # kappa = 5: the first factor is the fourth root of 16
    assert fourth_moment_radius(7, 1.0, 1.0, kappa=5.0) == pytest.approx(
        2 * ((1 + math.log(7) ** 2) / 7) ** 0.25, abs=1e-14
    )


def test_prune_closed_intervals_and_absent_agents() -> None:
    X = np.array([0.0, 2.0, 4.5, NAN])
    kept = prune(complete(4), X, [1.0, 1.0, 1.0, math.inf])
    # 0-1 touch (closed), 1-2 and 0-2 do not meet, agent 3 is unbounded
    np.testing.assert_array_equal(kept, graph(4, [(0, 1), (0, 3), (1, 3), (2, 3)]))
    kept = prune(graph(4, [(0, 2)]), X, [9.0] * 4)
    np.testing.assert_array_equal(kept, graph(4, [(0, 2)]))  # edges never come back


def test_pruning_is_irrevocable() -> None:
    # the means are 4 apart at t = 1 and equal at t = 2
    samples = np.array([[0.0, 4.0], [4.0, 0.0]])
    kwargs: dict[str, Any] = {"sigma": 1.0, "gamma": 0.05, "radius": unit}
    for result in (
        cl_colme(samples, complete(2), step=0.1, clock="own", **kwargs),
        flow(samples, complete(2), step=0.1, **kwargs),
        c_colme(samples, complete(2), clock="own", **kwargs),
        b_colme(samples, complete(2), depth=2, **kwargs),
        b_colme_literal(samples, complete(2), depth=2, **kwargs),
    ):
        assert not result.adjacency.any()
        same(result.estimate, result.mean)
    # colME: recomputed
    result = colme(samples, **kwargs)
    np.testing.assert_array_equal(result.adjacency, [graph(2, []), complete(2)])
    same(result.estimate, [[0.0, 4.0], [2.0, 2.0]])


def test_per_agent_sigma() -> None:
    samples = np.array([[0.0, 4.0, -4.0]])
    kwargs: dict[str, Any] = {"sigma": np.array([1.0, 3.0, 2.9]), "gamma": 0.05, "radius": unit}
    expected = graph(3, [(0, 1)])
    for result in (
        cl_colme(samples, complete(3), step=0.1, clock="own", **kwargs),
        c_colme(samples, complete(3), clock="own", **kwargs),
        b_colme(samples, complete(3), depth=1, **kwargs),
        b_colme_literal(samples, complete(3), depth=1, **kwargs),
        colme(samples, queries=2, **kwargs),
    ):
        np.testing.assert_array_equal(result.adjacency[0], expected)


# ---------------------------------------------------------------- local, oracle


def test_local_and_oracle() -> None:
    samples = np.array([[1.0, 5.0, NAN, 7.0], [3.0, 6.0, 10.0, NAN], [NAN, 7.0, 12.0, NAN]])
    classes = np.array([0, 1, 0, 1])
    mine = local(samples)
    np.testing.assert_array_equal(mine.estimate, mine.mean)
    assert not mine.adjacency.any()
    result = oracle(samples, classes)
    np.testing.assert_array_equal(result.adjacency, [graph(4, [(0, 2), (1, 3)])] * 3)
    # class 0: 1 | (1+3+10)/3 | (1+3+10+12)/4; class 1: (5+7)/2 | (5+6+7)/3 | (5+6+7+7)/4
    same(result.estimate, [[1, 6, NAN, 6], [14 / 3, 6, 14 / 3, 6], [6.5, 6.25, 6.5, 6.25]])


# ---------------------------------------------------------------- two agents by hand, nothing cut

# X = (0, 4), (2, 2), (3, 1)
BY_HAND = np.array([[0.0, 4.0], [4.0, 0.0], [5.0, -1.0]])


@pytest.mark.parametrize("clock", ["harmonic", "own", "global", "gossip"])
def test_cl_colme_two_agents(clock: str) -> None:
    result = cl_colme(BY_HAND, complete(2), step=0.25, clock=clock, **NO_CUTS)
    # t=2: (I-bL) y = (1, 3), alpha = 1/2; t=3: (I-bL) y = (1.75, 2.25), alpha = 2/3
    same(result.estimate, [[0, 4], [1.5, 2.5], [6.5 / 3, 5.5 / 3]])
    np.testing.assert_array_equal(result.adjacency, [complete(2)] * 3)


@pytest.mark.parametrize("clock", ["harmonic", "own", "global", "gossip"])
def test_c_colme_two_agents(clock: str) -> None:
    result = c_colme(BY_HAND, complete(2), clock=clock, **NO_CUTS)
    # W = 1/2 everywhere: W y = (2, 2) at t = 2 and 3
    same(result.estimate, [[0, 4], [2, 2], [7 / 3, 5 / 3]])


def test_flow_two_agents() -> None:
    result = flow(BY_HAND, complete(2), step=0.25, **NO_CUTS)
    # t=2: F = .25 (4 - 0) = 1; t=3: F = 1 + .25 (1 - 3) = .5
    same(result.estimate, [[0, 4], [3, 1], [3.5, 0.5]])


def test_constant_clock_two_agents() -> None:
    result = cl_colme(BY_HAND, complete(2), step=0.25, clock="constant", alpha=0.8, **NO_CUTS)
    # t=2: .2 (2, 2) + .8 (1, 3) = (1.2, 2.8); t=3: .2 (3, 1) + .8 (1.6, 2.4) = (1.88, 2.12)
    same(result.estimate, [[0, 4], [1.2, 2.8], [1.88, 2.12]])
    result = c_colme(BY_HAND, complete(2), clock="constant", alpha=0.8, **NO_CUTS)
    same(result.estimate, [[0, 4], [2, 2], [2.2, 1.8]])


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_b_colme_two_agents(depth: int) -> None:
    # t=2: (2*2 + 1*4)/3 and (2*2 + 1*0)/3; t=3: (3*3 + 2*2)/5 and (3*1 + 2*2)/5; nothing is sent back
    expected = [[0, 4], [8 / 3, 4 / 3], [13 / 5, 7 / 5]]
    same(b_colme(BY_HAND, complete(2), depth=depth, **NO_CUTS).estimate, expected)
    same(b_colme_literal(BY_HAND, complete(2), depth=depth, **NO_CUTS).estimate, expected)


def test_colme_two_agents() -> None:
    same(colme(BY_HAND, **NO_CUTS).estimate, np.full((3, 2), 2.0))


def test_clock_and_alpha_are_checked() -> None:
    for clock, alpha in [("constant", None), ("own", 0.5), ("sundial", None)]:
        with pytest.raises(ValueError, match=r"alpha|clock"):
            cl_colme(BY_HAND, complete(2), step=0.1, clock=clock, alpha=alpha, **NO_CUTS)
        with pytest.raises(ValueError, match=r"alpha|clock"):
            c_colme(BY_HAND, complete(2), clock=clock, alpha=alpha, **NO_CUTS)


# ---------------------------------------------------------------- consensus matrices


def test_laplacian_by_hand() -> None:
    L = laplacian(path(3))
    np.testing.assert_array_equal(L, [[1, -1, 0], [-1, 2, -1], [0, -1, 1]])


def test_laplacian_step_preserves_the_mean() -> None:
    A = random_graph(12, 0.4, 1)
    y = np.random.default_rng(2).normal(size=12)
    M = np.eye(12) - 0.1 * laplacian(A)
    assert (M @ y).mean() == pytest.approx(y.mean(), abs=1e-14)
    same(M.sum(axis=0), np.ones(12))
    same(M, M.T)
    assert (M >= 0).all() == (1 / A.sum(axis=1).max() >= 0.1)


def test_metropolis_by_hand() -> None:
    everybody = np.ones(3, dtype=bool)
    third = 1 / 3
    expected = [[2 * third, third, 0], [third, third, third], [0, third, 2 * third]]
    same(metropolis(path(3), everybody), expected)
    # agent 2 is silent: the degree of agent 1 is still 2, the weight stays at home
    silent = np.array([True, True, False])
    same(metropolis(path(3), silent), [[2 * third, third, 0], [third, 2 * third, 0], [0, 0, 1]])


def test_metropolis_is_doubly_stochastic() -> None:
    for seed in range(5):
        W = metropolis(random_graph(12, 0.4, seed), np.random.default_rng(seed).random(12) < 0.8)
        same(W.sum(axis=0), np.ones(12))
        same(W.sum(axis=1), np.ones(12))
        same(W, W.T)
        assert (W >= 0).all()


def test_mean_over_the_agents_follows_its_own_recursion() -> None:
    samples, _ = two_classes(30, 8, 3)
    A = random_graph(8, 0.5, 4)
    assert A.any(axis=1).all()
    expected = [samples[0].mean()]
    X_bar = running_means(samples)[0].mean(axis=1)
    for t in range(2, 31):
        expected.append(X_bar[t - 1] / t + (t - 1) / t * expected[-1])
    for result in (
        cl_colme(samples, A, step=0.1, clock="harmonic", **NO_CUTS),
        c_colme(samples, A, clock="harmonic", **NO_CUTS),
    ):
        same(result.estimate.mean(axis=1), np.array(expected))


@pytest.mark.parametrize("clock", ["harmonic", "own", "global", "gossip"])
def test_c_equals_cl_on_a_complete_graph(clock: str) -> None:
    # I - L/N and W are both 1/N everywhere
    samples, _ = two_classes(20, 6, 5)
    cl = cl_colme(samples, complete(6), step=1 / 6, clock=clock, **NO_CUTS)
    c = c_colme(samples, complete(6), clock=clock, **NO_CUTS)
    same(cl.estimate, c.estimate)


def test_agent_without_edges_is_local() -> None:
    samples, _ = two_classes(40, 5, 6)
    A = complete(5)
    A[2] = A[:, 2] = False
    kwargs: dict[str, Any] = {"sigma": 1.0, "gamma": 0.05}
    for clock in ("harmonic", "own", "global", "gossip", "constant"):
        alpha = 0.9 if clock == "constant" else None
        for result in (
            cl_colme(samples, A, step=0.1, clock=clock, alpha=alpha, **kwargs),
            c_colme(samples, A, clock=clock, alpha=alpha, **kwargs),
        ):
            same(result.estimate[:, 2], local(samples).estimate[:, 2])
            assert np.abs(result.estimate[5:, 0] - result.mean[5:, 0]).max() > 1e-3
    for result in (b_colme(samples, A, depth=3, **kwargs), flow(samples, A, step=0.1, **kwargs)):
        same(result.estimate[:, 2], local(samples).estimate[:, 2])


def test_flow_gives_back_what_crossed_a_cut_edge() -> None:
    # path 0-1-2 with X = (0, 4, 8) throughout; all is cut at t = 3
    samples = np.tile([0.0, 4.0, 8.0], (3, 1))
    result = flow(samples, path(3), sigma=1.0, gamma=0.05, step=0.25, radius=late(3))
    same(result.estimate, [[0, 4, 8], [1, 4, 7], [0, 4, 8]])


def test_flow_conserves_the_mean_and_ends_at_the_oracle() -> None:
    samples, classes = two_classes(300, 8, 7)
    result = flow(samples, complete(8), step=0.1, sigma=1.0, gamma=0.01)
    same(result.estimate.mean(axis=1), result.mean.mean(axis=1))
    best = oracle(samples, classes)
    np.testing.assert_array_equal(result.adjacency[-1], best.adjacency[-1])
    for c in (0, 1):  # by components, as soon as they are classes
        same(result.estimate[-1, classes == c].mean(), best.estimate[-1, classes == c][0])


def test_after_the_separation_the_class_average_is_a_time_average() -> None:
    samples, classes = two_classes(300, 8, 7)
    kwargs: dict[str, Any] = {"sigma": 1.0, "gamma": 0.01}
    best = oracle(samples, classes)
    for result in (
        cl_colme(samples, complete(8), step=0.1, clock="global", **kwargs),
        c_colme(samples, complete(8), clock="global", **kwargs),
    ):
        np.testing.assert_array_equal(result.adjacency[0], complete(8))
        np.testing.assert_array_equal(result.adjacency[-1], best.adjacency[-1])
        graphs = result.adjacency
        last = max(i for i in range(1, 300) if (graphs[i] != graphs[i - 1]).any()) + 1  # t of the last cut
        assert 2 < last < 100
        for c in (0, 1):
            # alpha = 1/2, 2/3, ... from t = last on: the plain average of y(last - 1), X(last), ..., X(T)
            y = result.estimate[:, classes == c].mean(axis=1)
            X = result.mean[:, classes == c].mean(axis=1)
            assert y[-1] == pytest.approx((y[last - 2] + X[last - 1 :].sum()) / (300 - last + 2), abs=1e-12)
            assert np.ptp(result.estimate[-1, classes == c]) < 0.05 * np.ptp(result.mean[-1, classes == c])


# ---------------------------------------------------------------- clocks


def test_rate() -> None:
    assert [rate("harmonic", t, 2, None) for t in (1, 2, 3, 4)] == [0, 1 / 2, 2 / 3, 3 / 4]
    assert [rate("own", t, 7, None) for t in (7, 8)] == [1 / 2, 2 / 3]
    assert [rate("constant", t, 2, 0.9) for t in (1, 2, 3)] == [0, 0.9, 0.9]


def cut_at_three() -> tuple[Array, Array, dict[str, Any]]:
    """Path 0-1-2-3-4 whose only cut is the edge 3-4, at t = 3."""
    samples = np.random.default_rng(11).normal(0, 0.1, (7, 5))
    samples[:, 4] += 50.0
    return samples, path(5), {"sigma": 5.0, "gamma": 0.05, "radius": late(3)}


# L at t = 2..7 for the agents 0..3 (agent 4 is isolated from t = 3 on)
EXPECTED_L = {
    "harmonic": [[2, 2, 2, 2]] * 6,
    "own": [[2, 2, 2, 2]] + [[2, 2, 2, 3]] * 5,
    "global": [[2, 2, 2, 2]] + [[3, 3, 3, 3]] * 5,
    "gossip": [[2, 2, 2, 2], [2, 2, 2, 3], [2, 2, 3, 3], [2, 3, 3, 3], [3, 3, 3, 3], [3, 3, 3, 3]],
}


@pytest.mark.parametrize("clock", list(EXPECTED_L))
def test_clocks_end_to_end(clock: str) -> None:
    samples, A, kwargs = cut_at_three()
    t = np.arange(2, 8)[:, None]
    k = t - np.array(EXPECTED_L[clock]) + 1
    cl = cl_colme(samples, A, step=0.2, clock=clock, **kwargs)
    np.testing.assert_array_equal(cl.adjacency[:2], [path(5)] * 2)
    np.testing.assert_array_equal(cl.adjacency[2:], [graph(5, [(0, 1), (1, 2), (2, 3)])] * 5)
    alpha = implied_alpha(cl, lambda A: np.eye(5) - 0.2 * laplacian(A))
    np.testing.assert_allclose(alpha[:, :4], k / (k + 1), rtol=1e-9)
    same(cl.estimate[2:, 4], cl.mean[2:, 4])
    c = c_colme(samples, A, clock=clock, **kwargs)
    alpha = implied_alpha(c, lambda A: metropolis(A, np.ones(5, dtype=bool)))
    np.testing.assert_allclose(alpha[:, :4], k / (k + 1), rtol=1e-9)


def test_cut_at_the_first_step_restarts_at_two() -> None:
    samples = np.array([[0.0, 1.0, 9.0], [0.0, 3.0, 9.0]])
    for clock in ("own", "global", "gossip"):
        result = cl_colme(samples, path(3), sigma=2.0, gamma=0.05, step=0.25, clock=clock, radius=unit)
        # X(2) = (0, 2, 9), y(1) = (0, 1, 9), the edge 1-2 goes at t = 1, alpha(2) = 1/2
        same(result.estimate, [[0, 1, 9], [0.125, 1.375, 9]])


def test_gossip_is_global_one_step_later_on_a_complete_graph() -> None:
    # agents at -6, 6, 0, 0, 0 with R = 5: only the edge 0-1 is cut, at t = 3
    centers = np.array([-6.0, 6.0, 0.0, 0.0, 0.0])
    samples = np.random.default_rng(12).normal(centers, 0.1, (8, 5))
    kwargs: dict[str, Any] = {"sigma": 5.0, "gamma": 0.05, "step": 0.1, "radius": late(3)}
    alpha = {}
    for clock in ("global", "gossip"):
        result = cl_colme(samples, complete(5), clock=clock, **kwargs)
        assert result.adjacency[1].sum() == 20
        assert result.adjacency[-1].sum() == 18
        alpha[clock] = implied_alpha(result, lambda A: np.eye(5) - 0.1 * laplacian(A))
    np.testing.assert_allclose(alpha["global"][1], np.full(5, 1 / 2), rtol=1e-9)
    np.testing.assert_allclose(alpha["gossip"][1], [1 / 2, 1 / 2, 2 / 3, 2 / 3, 2 / 3], rtol=1e-9)
    np.testing.assert_allclose(alpha["gossip"][2:], alpha["global"][2:], rtol=1e-9)


def test_gossip_restarts_never_exceed_global_and_never_decrease() -> None:
    rng = np.random.default_rng(13)
    for _ in range(20):
        A = random_graph(8, 0.5, int(rng.integers(1 << 30)))
        own = [2] * 8
        gossip = [2] * 8
        everywhere = [2] * 8
        n = np.ones(8, dtype=int)
        for t in range(1, 12):
            upper = np.triu(rng.random((8, 8)) < 0.1, 1)
            after = A & ~(upper | upper.T)
            own = own_last_cut(t, own, A, after)
            before = gossip
            gossip = restarts("gossip", t, gossip, own, A, after, n)
            everywhere = restarts("global", t, everywhere, own, A, after, n)
            assert all(old <= new for old, new in zip(before, gossip, strict=True))
            assert all(o <= g <= e for o, g, e in zip(own, gossip, everywhere, strict=True))
            A = after


# ---------------------------------------------------------------- B-colME


def test_b_colme_path_of_three() -> None:
    samples = np.array([[1.0, 2.0, 4.0], [3.0, 6.0, 4.0], [5.0, 1.0, 7.0]])
    # X = (1, 2, 4), (2, 4, 4), (3, 3, 5); at t = 3: own t=3, hop 1 of age 1, hop 2 of age 2
    end = [
        (3 * 3 + 2 * 4 + 1 * 4) / 6,
        (3 * 3 + 2 * 2 + 2 * 4) / 7,
        (3 * 5 + 2 * 4 + 1 * 1) / 6,
    ]
    same(b_colme(samples, path(3), depth=2, **NO_CUTS).estimate[-1], end)
    same(b_colme(samples, path(3), depth=9, **NO_CUTS).estimate[-1], end)
    one_hop = [(9 + 8) / 5, end[1], (15 + 8) / 5]
    same(b_colme(samples, path(3), depth=1, **NO_CUTS).estimate[-1], one_hop)


def test_b_colme_on_a_tree_is_the_sum_over_distances() -> None:
    agents, steps, depth = 9, 12, 3
    rng = np.random.default_rng(14)
    A = graph(agents, [(int(rng.integers(a)), a) for a in range(1, agents)])
    samples = rng.normal(size=(steps, agents))
    distance = np.full((agents, agents), 99)
    walks = np.eye(agents, dtype=int)
    for d in range(agents):
        distance[(walks > 0) & (distance == 99)] = d
        walks = walks @ A.astype(int)
    mean, _ = running_means(samples)
    expected = np.zeros((steps, agents))
    for t in range(1, steps + 1):
        for a in range(agents):
            top = bottom = 0.0
            for b in range(agents):
                age = distance[a, b]
                if age <= depth and t - age > 0:
                    top += (t - age) * mean[t - age - 1, b]
                    bottom += t - age
            expected[t - 1, a] = top / bottom
    same(b_colme(samples, A, depth=depth, **NO_CUTS).estimate, expected)
    same(b_colme_literal(samples, A, depth=depth, **NO_CUTS).estimate, expected)


def test_b_colme_triangle_counts_walks() -> None:
    # hop 2 of agent 0: through 1 it hears 2, through 2 it hears 1; hop 3 brings itself back, twice
    samples = np.random.default_rng(15).normal(size=(4, 3))
    X = running_means(samples)[0]
    top = 4 * X[3, 0] + 3 * (X[2, 1] + X[2, 2]) + 2 * (X[1, 1] + X[1, 2]) + 1 * 2 * X[0, 0]
    estimate = b_colme(samples, complete(3), depth=3, **NO_CUTS).estimate[-1, 0]
    assert estimate == pytest.approx(top / (4 + 6 + 4 + 2), abs=1e-12)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_b_colme_literal_is_the_general_one(depth: int) -> None:
    samples, _ = two_classes(25, 8, 16)
    A = random_graph(8, 0.5, 17)
    general = b_colme(samples, A, sigma=1.0, gamma=0.05, depth=depth)
    literal = b_colme_literal(samples, A, sigma=1.0, gamma=0.05, depth=depth)
    same(general.estimate, literal.estimate)
    np.testing.assert_array_equal(general.adjacency, literal.adjacency)
    edges = {int(A.sum()) // 2 for A in general.adjacency}
    assert len(edges) >= 5  # the cuts come one after another
    assert min(edges) > 0


def test_b_colme_cut_reaches_hop_two_one_step_late() -> None:
    # path 0-1-2, the edge 1-2 is cut at t = 3; the message 1 -> 0 of t = 3 is from the state of t = 2
    samples = np.array([[0.0, 1.0, 50.0]] * 4)
    result = b_colme(samples, path(3), sigma=5.0, gamma=0.05, depth=2, radius=late(3))
    np.testing.assert_array_equal(result.adjacency[2], graph(3, [(0, 1)]))
    # t=2: 0 hears 1 of age 1; t=3: 1 of age 1 twice the weight, and 2 of age 2; t=4: 1 with three samples
    same(result.estimate[:, 0], [0, 1 / 3, (2 * 1 + 1 * 50) / 6, 3 / 7])
    # agent 1 erases the row of 2 at t = 3 itself
    same(result.estimate[:, 1], [1, (2 * 1 + 50) / 4, 3 / 5, 4 / 7])
    same(result.estimate[2:, 2], [50, 50])


# ---------------------------------------------------------------- colME


def test_colme_round_robin_of_three() -> None:
    samples = np.random.default_rng(18).normal(size=(3, 3))
    X = running_means(samples)[0]
    y = colme(samples, **NO_CUTS).estimate
    # agent 0 asks 1, 2, 1; agent 1 asks 2, 0, 2; agent 2 asks 0, 1, 0; replies are of the same step
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        expected = [
            (X[0, a] + X[0, b]) / 2,
            (2 * X[1, a] + 1 * X[0, b] + 2 * X[1, c]) / 5,
            (3 * X[2, a] + 3 * X[2, b] + 2 * X[1, c]) / 8,
        ]
        same(y[:, a], expected)


def test_colme_restricted_round_robin() -> None:
    centers = np.array([0.0, 10.0, 0.5, 0.7])
    samples = np.random.default_rng(19).normal(centers, 0.1, (6, 4))
    X = running_means(samples)[0]
    kwargs: dict[str, Any] = {"sigma": 1.0, "gamma": 0.05, "radius": unit}
    # agent 0 asks 1 (and drops it), 2, 3, then 2, 3, 2 when restricted, and 1, 2, 3 when not
    y = colme(samples, restricted=True, **kwargs).estimate[-1, 0]
    assert y == pytest.approx((6 * X[5, 0] + 6 * X[5, 2] + 5 * X[4, 3]) / 17, abs=1e-12)
    result = colme(samples, restricted=False, **kwargs)
    expected = (6 * X[5, 0] + 5 * X[4, 2] + 6 * X[5, 3]) / 17
    assert result.estimate[-1, 0] == pytest.approx(expected, abs=1e-12)
    np.testing.assert_array_equal(result.adjacency[-1, 0], [False, False, True, True])
    np.testing.assert_array_equal(result.adjacency[-1, 1], [False] * 4)
    np.testing.assert_array_equal(result.adjacency[0, 0], [False, False, True, True])  # unseen are members
    # agent 1 has nobody left and asks nobody
    restricted = colme(samples, restricted=True, **kwargs)
    same(restricted.estimate[3:, 1], X[3:, 1])


def test_colme_many_queries() -> None:
    samples = np.random.default_rng(20).normal(size=(2, 4))
    X = running_means(samples)[0]
    y = colme(samples, queries=2, **NO_CUTS).estimate
    # agent 0 asks 1 and 2, then 3 and 1
    assert y[0, 0] == pytest.approx((X[0, 0] + X[0, 1] + X[0, 2]) / 3, abs=1e-12)
    expected = (2 * X[1, 0] + 2 * X[1, 1] + X[0, 2] + 2 * X[1, 3]) / 7
    assert y[1, 0] == pytest.approx(expected, abs=1e-12)
    # everybody: the oracle, and more than everybody is everybody
    best = oracle(samples, np.zeros(4)).estimate
    for queries in (3, 99):
        for restricted in (False, True):
            same(colme(samples, queries=queries, restricted=restricted, **NO_CUTS).estimate, best)


def test_colme_weights() -> None:
    kwargs: dict[str, Any] = {"sigma": 1.0, "gamma": 0.05, "radius": unit, "queries": 3}
    # intervals of length 2; agent 1 overlaps agent 0 by 1, agent 2 by 1/2, agent 3 touches it
    samples = np.array([[0.0, 1.0, 1.5, -2.0]])
    y = {w: colme(samples, weights=w, **kwargs).estimate[0, 0] for w in ("simple", "soft", "aggressive")}
    assert y["simple"] == pytest.approx((1 + 1.5 - 2) / 4, abs=1e-14)
    assert y["soft"] == pytest.approx((1 / 3 + 1.5 / 7) / (1 + 1 / 3 + 1 / 7), abs=1e-14)
    assert y["aggressive"] == pytest.approx((1 / 3) / (4 / 3), abs=1e-14)
    # the small interval lies inside the large one: 2/6, and 2 >= min(3, 1)
    kwargs["sigma"] = np.array([3.0, 1.0])
    for w in ("soft", "aggressive"):
        y_0 = colme(np.array([[0.0, 1.0]]), weights=w, **kwargs).estimate[0, 0]
        assert y_0 == pytest.approx((1 / 3) / (4 / 3), abs=1e-14)
    with pytest.raises(ValueError, match="weights"):
        colme(samples, weights="hard", **kwargs)


def test_colme_one_class_approaches_the_pooled_mean() -> None:
    samples = np.random.default_rng(21).normal(size=(200, 6))
    pooled = samples.mean()
    for restricted in (False, True):
        for weights in ("simple", "soft", "aggressive"):
            result = colme(samples, sigma=1.0, gamma=1e-9, weights=weights, restricted=restricted)
            assert result.adjacency.sum() == 200 * 30
            error = np.abs(result.estimate[-1] - pooled).max()
            assert error < 0.5 * np.abs(result.mean[-1] - pooled).max()
            if weights == "simple":
                # the others were heard 0, 1, 2, 3, 4 steps ago: 10 of the 1200 samples are missing
                assert error <= 10 / 1190 * np.abs(samples - pooled).max()


# ---------------------------------------------------------------- missing samples

# path 0-1-2; agent 2 is absent until t = 3, agent 0 skips t = 3
# X_0 = 0, 2, 2, 3; X_1 = 6, 5, 4, 3; X_2 = -, -, 8, 9
GAPS = np.array([[0.0, 6.0, NAN], [4.0, 4.0, NAN], [NAN, 2.0, 8.0], [5.0, 0.0, 10.0]])


def test_gaps_cl_colme() -> None:
    result = cl_colme(GAPS, path(3), step=0.25, clock="harmonic", **NO_CUTS)
    same(result.mean, [[0, 6, NAN], [2, 5, NAN], [2, 4, 8], [3, 3, 9]])
    np.testing.assert_array_equal(result.count, [[1, 1, 0], [2, 2, 0], [2, 3, 1], [3, 4, 2]])
    np.testing.assert_array_equal(result.adjacency, [path(3)] * 4)
    # t=2: .5 (2, 5) + .5 (1.5, 4.5); t=3: 1/3 (2, 4) + 2/3 (y + .25 differences), 1 does not hear 2 yet
    y2 = [1.75, 4.75]
    y3 = [2 / 3 + 2 / 3 * (1.75 + 0.75), 4 / 3 + 2 / 3 * (4.75 - 0.75), 8]
    # t=4: everybody is normal, alpha = 3/4
    y4 = [
        3 / 4 + 3 / 4 * (y3[0] + 0.25 * (y3[1] - y3[0])),
        3 / 4 + 3 / 4 * (y3[1] + 0.25 * (y3[0] - y3[1]) + 0.25 * (8 - y3[1])),
        9 / 4 + 3 / 4 * (8 + 0.25 * (y3[1] - 8)),
    ]
    same(result.estimate, [[0, 6, NAN], [*y2, NAN], y3, y4])


def test_gaps_flow() -> None:
    result = flow(GAPS, path(3), step=0.25, **NO_CUTS)
    # F_01 = 1.5 at t = 2 and 3, then 1.5 + .25 (2.5 - 3.5); F_12 = .25 (8 - 2.5) at t = 4
    same(result.estimate, [[0, 6, NAN], [3.5, 3.5, NAN], [3.5, 2.5, 8], [4.25, 3 - 1.25 + 1.375, 9 - 1.375]])


def test_gaps_c_colme() -> None:
    result = c_colme(GAPS, path(3), clock="harmonic", **NO_CUTS)
    # W = 1/3 on both edges, because agent 1 has degree 2 also while agent 2 is silent
    y2 = [(2 + 2) / 2, (5 + 4) / 2]
    y3 = [2 / 3 + 2 / 3 * (2 + 2.5 / 3), 4 / 3 + 2 / 3 * (4.5 - 2.5 / 3), 8]
    y4 = [
        3 / 4 + 3 / 4 * (y3[0] + (y3[1] - y3[0]) / 3),
        3 / 4 + 3 / 4 * (y3[1] + (y3[0] - y3[1]) / 3 + (8 - y3[1]) / 3),
        9 / 4 + 3 / 4 * (8 + (y3[1] - 8) / 3),
    ]
    same(result.estimate, [[0, 6, NAN], [*y2, NAN], y3, y4])


def test_gaps_b_colme() -> None:
    result = b_colme(GAPS, path(3), depth=2, **NO_CUTS)
    expected = [
        [0, 6, NAN],
        # 0: 2*2 + 1*6; 1: 2*5 + 1*0
        [10 / 3, 10 / 3, NAN],
        # 0: 2*2 + 2*5; 1: 3*4 + 2*2; 2: 1*8 + 2*5 + hop two 1*0
        [14 / 4, 16 / 5, 18 / 4],
        # 0: 3*3 + 3*4 + hop two of 2 at t=2, nothing; 1: 4*3 + 2*2 + 1*8; 2: 2*9 + 3*4 + 2*2
        [21 / 6, 24 / 7, 34 / 7],
    ]
    same(result.estimate, expected)


def test_absent_agent_does_not_relay_in_b_colme() -> None:
    # path 0-1-2, agent 1 arrives at t = 3, so its first message is that of t = 4, with what it holds of t = 3
    samples = np.array([[0.0, NAN, 6.0], [0.0, NAN, 6.0], [0.0, 3.0, 6.0], [0.0, 3.0, 6.0]])
    result = b_colme(samples, path(3), depth=2, **NO_CUTS)
    same(result.estimate[:, 0], [0, 0, 0, (1 * 3 + 2 * 6) / (4 + 1 + 2)])


def test_gaps_colme() -> None:
    # agent 2 is absent until t = 3 and answers 0 and 1 with nothing
    result = colme(GAPS, **NO_CUTS)
    # 0 asks 1, 2, 1, 2; 1 asks 2, 0, 2, 0; 2 asks 0 at t = 3 (its cursor did not move) and 1 at t = 4
    expected = [
        [(0 + 6) / 2, 6, NAN],
        [(2 * 2 + 1 * 6) / 3, (2 * 5 + 2 * 2) / 4, NAN],
        [(2 * 2 + 3 * 4) / 5, (3 * 4 + 2 * 2 + 1 * 8) / 6, (1 * 8 + 2 * 2) / 3],
        [(3 * 3 + 3 * 4 + 2 * 9) / 8, (4 * 3 + 3 * 3 + 1 * 8) / 8, (2 * 9 + 2 * 2 + 4 * 3) / 8],
    ]
    same(result.estimate, expected)
    assert (result.adjacency == complete(3)).all()


def test_edges_of_absent_agents_survive_and_then_are_cut() -> None:
    samples = np.array([[0.0, NAN], [0.0, NAN], [0.0, 9.0], [0.0, 9.0]])
    kwargs: dict[str, Any] = {"sigma": 1.0, "gamma": 0.05, "radius": unit}
    for result in (
        cl_colme(samples, complete(2), step=0.25, clock="gossip", **kwargs),
        flow(samples, complete(2), step=0.25, **kwargs),
        c_colme(samples, complete(2), clock="gossip", **kwargs),
        b_colme(samples, complete(2), depth=1, **kwargs),
    ):
        assert result.adjacency[:2].sum() == 4
        assert result.adjacency[2:].sum() == 0
        same(result.estimate, samples)


def test_agent_whose_neighbors_are_all_absent_is_not_isolated() -> None:
    # it has an edge, so it runs the recursion on its own past: X = 0, 2, 4; y = 0, 1, 4/3 + 2/3
    samples = np.array([[0.0, NAN], [4.0, NAN], [8.0, NAN]])
    for result in (
        cl_colme(samples, complete(2), step=0.25, clock="gossip", **NO_CUTS),
        c_colme(samples, complete(2), clock="gossip", **NO_CUTS),
    ):
        same(result.estimate, [[0, NAN], [1, NAN], [2, NAN]])


def test_absent_agent_does_not_relay_restarts() -> None:
    # path 0-1-2-3, the edge 2-3 is cut at t = 2, agent 1 arrives at t = 4
    n = np.array([1, 0, 1, 1])
    A = graph(4, [(0, 1), (1, 2)])
    L = restarts("gossip", 2, [2] * 4, [2, 2, 2, 2], path(4), A, n)
    assert L == [2, 2, 2, 2]
    L = restarts("gossip", 3, [2, 2, 3, 3], [2, 2, 3, 3], A, A, n)
    assert L == [2, 2, 3, 3]
    n[1] = 1
    L = restarts("gossip", 4, L, [2, 2, 3, 3], A, A, n)
    assert L == [2, 3, 3, 3]
    L = restarts("gossip", 5, L, [2, 2, 3, 3], A, A, n)
    assert L == [3, 3, 3, 3]


def test_absent_agent_does_not_relay_restarts_end_to_end() -> None:
    # path 0-1-2-3, the edge 2-3 is cut at t = 3, agent 1 arrives at t = 4, agent 0 hears of the cut at t = 5
    samples = np.random.default_rng(22).normal(0, 0.1, (6, 4))
    samples[:, 3] += 50.0
    samples[:3, 1] = NAN
    # radius by sigma 5 from n = 3 on; agent 1 has at most three samples and stays near 0
    result = cl_colme(samples, path(4), sigma=5.0, gamma=0.05, step=0.2, clock="gossip", radius=late(3))
    np.testing.assert_array_equal(result.adjacency[2], graph(4, [(0, 1), (1, 2)]))
    X, y = result.mean, result.estimate
    alpha_0 = []
    for t in range(2, 7):
        mixed = y[t - 2, 0]
        if t >= 5:
            mixed += 0.2 * (y[t - 2, 1] - y[t - 2, 0])
        alpha_0.append((y[t - 1, 0] - X[t - 1, 0]) / (mixed - X[t - 1, 0]))
    # harmonic until t = 4; from t = 5 on L = 3, so k = 3, 4
    np.testing.assert_allclose(alpha_0, [1 / 2, 2 / 3, 3 / 4, 3 / 4, 4 / 5], rtol=1e-9)
    assert y[3, 1] == X[3, 1]
    # agent 1 at t = 5: L = 3 from agent 2, k = 3
    mixed = y[3, 1] + 0.2 * (y[3, 0] - y[3, 1]) + 0.2 * (y[3, 2] - y[3, 1])
    assert y[4, 1] == pytest.approx(X[4, 1] / 4 + 3 / 4 * mixed, abs=1e-12)


def test_literal_b_colme_refuses_gaps() -> None:
    with pytest.raises(ValueError, match="missing"):
        b_colme_literal(GAPS, path(3), depth=1, **NO_CUTS)
