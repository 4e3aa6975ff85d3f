"""The guard: against its dense reference, in both forms, and what it promises in worlds where methods go wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import colme
from colme._core.team import Neighborhood
from colme.consensus import stable_step
from colme.errors import MethodError
from colme.gossip import Gossip, agents_heard
from colme.graphs import Graph, from_edges, random_regular_graph
from colme.guard import GuardedMethod
from colme.noise import student
from colme.testing import lockstep
from tests.reference import guard as reference
from tests.support.runs import run_of

STAR = from_edges([(0, k) for k in range(1, 12)])
REGULAR = random_regular_graph(24, 4, rng=0)


def samples_of(n_agents: int, n_steps: int, *, gaps: bool = False) -> NDArray[np.float64]:
    """Two classes one deviation apart; gaps: a third of the samples are missing, and some agents come late."""
    rng = np.random.default_rng(3)
    samples = np.where(np.arange(n_agents) % 2, 0.0, 1.0) + rng.standard_normal((n_steps, n_agents))
    if gaps:
        samples[rng.random(samples.shape) < 0.3] = np.nan
        samples[:7, ::5] = np.nan
    return samples


def means_of(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    seen = ~np.isnan(samples)
    with np.errstate(invalid="ignore"):
        return np.cumsum(np.where(seen, samples, 0.0), axis=0) / np.where(seen, 1.0, 0.0).cumsum(axis=0)


def matrix_of(graph: Graph, gossip: Gossip) -> NDArray[np.float64]:
    W = np.zeros((graph.n_agents,) * 2)
    W[np.repeat(np.arange(graph.n_agents), graph.degrees), graph.indices] = gossip.weights(
        graph, Neighborhood(graph.n_agents)
    )
    return W + np.diag(1.0 - W.sum(axis=1))


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("graph", [REGULAR, STAR], ids=["regular", "star"])
@pytest.mark.parametrize(
    "method",
    [colme.CLColME(delta=0.1, sigma=3.0), colme.Census(fits="own", sigma=3.0), colme.BColME(delta=0.1, sigma=3.0)],
    ids=["wary", "trusting", "by hops"],
)
def test_both_forms_are_the_dense_reading_of_the_rule(method: Any, graph: Graph, gaps: bool) -> None:
    """Sigma is told three times too large and all means change their sign at step 41, so that weights between zero and
    one occur."""
    samples = samples_of(graph.n_agents, 70, gaps=gaps)
    samples[40:] *= -1.0
    raw, guarded = (
        lockstep(msgspec.structs.replace(method, guard=guard), samples, graph, independent=True)
        for guard in (False, True)
    )
    gossip = Gossip.of(graph.n_agents, graph.n_edges, stable_step(graph))
    heard = np.broadcast_to(agents_heard(graph, gossip), (gossip.rounds, graph.n_agents))
    wanted, trust = reference.guarded(
        means_of(samples), raw, samples, matrix_of(graph, gossip), gossip.momentum, heard,
        trusting=method.trusting, refresh=method.guard_refresh, rounds=gossip.rounds,
    )  # fmt: skip
    np.testing.assert_allclose(guarded, wanted, rtol=0, atol=1e-9)
    assert np.mean((trust > 0.0) & (trust < 1.0)) > 0.0, "the weights were never between zero and one"


def test_a_new_class_does_not_cost_the_trust_of_others() -> None:
    """Half of the agents arrive late, with a mean that nobody had. The error is that of the census without a guard."""
    samples = np.random.default_rng(4).standard_normal((90, 100))
    samples[:, ::2] += 2.0
    samples[:59, ::2] = np.nan
    recording = colme.Recording(samples, means=np.where(np.arange(100) % 2, 0.0, 2.0), sigma=1.0)
    trace = colme.simulate(colme.Census(), recording, degree=6)
    assert (trace.trust[59:] == 1.0).all()
    assert trace.mse[-1] < 0.3 * trace.local_mse[-1]


def relative(method: GuardedMethod, scenario: colme.Scenario, *, steps: int, seeds: int = 3, **where: Any) -> Any:
    """Squared error over that of local means at every step, mean over seeds; and the mean weight."""
    traces = colme.simulate(method, scenario, steps=steps, seeds=range(seeds), **where)
    mine, local, trust = (sum(getattr(trace, name) for trace in traces) for name in ("mse", "local_mse", "trust"))
    return mine / local, trust / seeds


WORLDS = {
    "sigma told double": ({"means": (1.2, 2.0), "sigma": 2.0}, {"sigma": 4.0}),
    "very heavy tails": ({"means": (1.2, 2.0), "sigma": 2.0, "distribution": "student", "df": 2.1}, {}),
    "rare ones": ({"means": (0.02, 0.1), "distribution": "bernoulli"}, {}),
}


@pytest.mark.parametrize(
    ("kind", "world"),
    [(colme.Census, "very heavy tails"), (colme.CLColME, "sigma told double"), (colme.CLColME, "rare ones"),
     *(pytest.param(*each, marks=pytest.mark.slow) for each in (
         (colme.Census, "sigma told double"), (colme.Census, "rare ones"), (colme.CLColME, "very heavy tails")))],
)  # fmt: skip
def test_where_a_method_is_worse_than_alone_the_guard_is_not(kind: Any, world: str) -> None:
    """Unguarded, CL-colME is 1.6 to 30 times worse; the census corrects its sigma, so it need not be. The mean of
    8 x 300 squared errors has a relative standard error of sqrt(2 / 2400) = .03, and the ratio of two that share their
    samples far less."""
    scenario, told = WORLDS[world]
    scene = colme.Scenario(n_agents=300, **scenario)
    unguarded, _ = relative(kind(**told, guard=False), scene, steps=150, degree=10)
    guarded, _ = relative(kind(**told, guard=True), scene, steps=150, seeds=8, degree=10)
    assert unguarded.max() > 1.5 or kind is colme.Census
    assert guarded[2:].max() < 1.1


def test_a_method_that_is_right_keeps_its_estimates() -> None:
    """Lambda is exactly one, and the guarded estimates are the method's own, to the bit."""
    scene = colme.Scenario(n_agents=400, means=(1.2, 2.0), sigma=2.0)
    plain = colme.simulate(colme.Census(guard=False), scene, steps=120, degree=10)
    guarded = colme.simulate(colme.Census(guard=True), scene, steps=120, degree=10)
    assert (guarded.trust[40:] == 1.0).all()
    np.testing.assert_array_equal(guarded.final.estimate, plain.final.estimate)
    np.testing.assert_array_equal(guarded.mse[40:], plain.mse[40:])


@pytest.mark.parametrize("world", ["very heavy tails", "rare ones"])
@pytest.mark.parametrize("skip_rate", [0.0, 0.3])
def test_the_coverage_is_that_of_the_guarded_intervals(world: str, skip_rate: float) -> None:
    """It is found without them: by where the truth lies in the method's own distribution. In these worlds the guard
    moves or widens the intervals at some steps."""
    scenario, told = WORLDS[world]
    scene = colme.Scenario(n_agents=200, skip_rate=skip_rate, **scenario)
    run = run_of([colme.Census(**told)], scene, degree=8, steps=60, seed=1)
    state, moved = run.states[0], 0
    for t in range(1, 61):
        run.step(t)
        posterior, truth = state.posterior, run.world.truth
        assert posterior is not None and truth is not None
        found = posterior.intervals(0.9)
        known = ~np.isnan(run.world.mean)
        held = known & (found.lower <= truth) & (truth <= found.upper)
        inside, there = posterior.held(truth, 0.9)
        assert inside.sum() / there.sum() == held.sum() / known.sum()
        moved += state.judgment.changes_intervals  # type: ignore[attr-defined]
    assert moved >= 2


def test_an_interval_without_ends_holds_the_truth() -> None:
    """Twenty agents have one sample each, no known sigma, and a guard that does not trust the census: their intervals
    are infinite. (The others' intervals hold 18 of 20.)"""
    samples, rng = np.full((11, 40), np.nan), np.random.default_rng(0)
    samples[3:, :20], samples[-1, 20:] = rng.standard_normal((8, 20)), 5.0 + rng.standard_normal(20)
    edges = [(a, (a + k) % 20) for a in range(20) for k in (1, 2, 3)] + [(a, a + 1) for a in range(20, 39, 2)]
    recording = colme.Recording(samples, means=np.repeat([0.0, 5.0], 20))
    trace = colme.simulate(colme.Census(), recording, graph=from_edges(edges, 40))
    assert trace.final.lower is not None and np.isinf(trace.final.lower[20:]).all()
    assert trace.coverage[-1] * 40 == 38


def test_trust_is_recorded_only_where_there_is_a_guard() -> None:
    scene = colme.Scenario(n_agents=50, means=(0.0, 1.0), sigma=1.0)
    plain, guarded = colme.simulate([colme.CLColME(), colme.CLColME(guard=True)], scene, steps=30, degree=4)
    assert np.isnan(plain.trust).all() and ((guarded.trust >= 0) & (guarded.trust <= 1)).all()
    assert guarded.trust[0] == 0.0  # wary: nothing was judged yet
    assert guarded.numbers[-1] > plain.numbers[-1] + 2.5  # three sums in nearly every step


def test_colme_has_no_neighbors_to_average_with() -> None:
    with pytest.raises(MethodError, match=r"guard=True with colME: .*Try"):
        colme.ColME(guard=True)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_students_quantiles(level: float) -> None:
    freedom = np.array([1.0, 2.0, 3.0, 5.0, 10.0, 1000.0])
    tolerance = {0.9: 5e-4, 0.95: 2e-3, 0.99: 1e-2}.get(level, 5e-4)
    np.testing.assert_allclose(student(level, freedom), stats.t.ppf(0.5 + 0.5 * level, freedom), rtol=tolerance)


@pytest.mark.parametrize("stop", range(4, 12))
def test_a_run_resumes_in_the_middle_of_a_vote(stop: int, tmp_path: Path) -> None:
    """Coverage and trust are those of a run that was not interrupted: sums of a vote under way are not counted twice.
    The told sigma is half the true one, so that intervals are widened from the first votes on."""
    scene = colme.Scenario(n_agents=60, means=(0.6, 1.0), told_sigma=0.5)
    whole = colme.simulate(colme.Census(), scene, steps=16, degree=4, seed=1)
    colme.simulate(colme.Census(), scene, steps=stop, degree=4, seed=1, checkpoint=tmp_path / "run.npz")
    resumed = colme.simulate(colme.Census(), scene, steps=16, degree=4, seed=1, checkpoint=tmp_path / "run.npz")
    for name in ("mse", "trust", "coverage"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name), name)
