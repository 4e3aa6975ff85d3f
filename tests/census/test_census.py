"""The census: its two forms are one, its trace is consistent, and a run resumes in the middle of a census."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import colme
from colme.errors import MethodError
from colme.graphs import Graph, from_edges, gnp_random_graph, random_regular_graph
from colme.method import arrived
from colme.metrics import LEVEL
from colme.samples import draw as draw_scenario
from colme.sim.run import Run
from colme.testing import lockstep
from tests import reference
from tests.support.runs import run_of
from tests.support.same_bits import assert_same_bits

OWN = colme.Census(guard=False, fits="own")


def draw(n_agents: int, n_steps: int, *, gap: float = 3.0, late: bool = False, seed: int = 1) -> NDArray[np.float64]:
    """Two classes `gap` apart, unit noise; late: some agents come late or never, and samples are missing."""
    rng = np.random.default_rng(seed)
    samples = gap * (np.arange(n_agents) % 2 - 0.5) + rng.standard_normal((n_steps, n_agents))
    if late:
        begins = rng.integers(0, n_steps // 2, n_agents)
        begins[::9] = n_steps
        samples[np.arange(n_steps)[:, None] < begins] = np.nan
        samples[rng.random(samples.shape) < 0.1] = np.nan
    return samples


def recorded(
    samples: NDArray[np.float64], sigma: Any, loss: float = 0.0, *, independent: bool = False
) -> colme.Recording:
    recording = colme.Recording(samples, sigma=sigma, independent=independent)
    recording.loss = loss
    return recording


def start(method: colme.Census, recording: colme.Recording, graph: Graph, **options: Any) -> Run:
    return run_of([method], recording, graph=graph, seed=7, **options)


def estimates(method: colme.Census, recording: colme.Recording, graph: Graph, **options: Any) -> NDArray[np.float64]:
    run, out = start(method, recording, graph, **options), np.empty(recording.values.shape)
    for t in range(1, len(out) + 1):
        run.step(t)
        out[t - 1] = run.states[0].estimate
    return out


GRAPHS = {
    "regular": random_regular_graph(30, 4, rng=0),
    "irregular": gnp_random_graph(30, 0.12, rng=0),
    "bipartite": from_edges([(a, a ^ 1 << i) for a in range(16) for i in range(4) if a < a ^ 1 << i], 16),
    "in two": from_edges([*((a, b) for a in range(5) for b in range(a)), *((a, a + 1) for a in range(5, 29))], 30),
}


@pytest.mark.parametrize("known", ["sigma", "sigmas", "wrong", "nothing"])
@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[] if each in ("regular", "in two") else [pytest.mark.slow]) for each in GRAPHS]
)
def test_agents_and_arrays_are_the_same_bits(name: str, late: bool, loss: float, known: str) -> None:
    graph = GRAPHS[name]
    n = graph.n_agents
    sigma: Any = {"sigma": 1.0, "sigmas": np.linspace(0.5, 3.0, n), "wrong": 2.5, "nothing": None}[known]
    recording = recorded(draw(n, 18, late=late), sigma, loss)
    alone = lockstep(OWN, recording.values - recording.origin, graph, sigma=sigma, loss=loss, seed=7)
    got = estimates(OWN, recording, graph)
    np.testing.assert_array_equal(got, alone)
    if loss:
        assert not np.array_equal(got, estimates(OWN, recorded(recording.values, sigma), graph), equal_nan=True)


@pytest.mark.parametrize(
    ("name", "late", "loss", "known"),
    [("irregular", False, 0.0, "sigma"), ("irregular", True, 0.3, "nothing"), ("regular", True, 0.3, "sigmas"),
     ("bipartite", False, 0.3, "sigma"), ("in two", True, 0.0, "sigma"), ("irregular", True, 0.0, "wrong"),
     ("regular", False, 0.0, "wrong")],
)  # fmt: skip
def test_the_reference_agrees(name: str, late: bool, loss: float, known: str) -> None:
    """On graphs of every kind, to rounding in double precision, and to that of float32 masses otherwise."""
    graph = GRAPHS[name]
    n, steps = graph.n_agents, 14
    sigma: Any = {"sigma": 1.0, "sigmas": np.linspace(0.5, 3.0, n), "wrong": 2.5, "nothing": None}[known]
    recording = recorded(draw(n, steps, late=late), sigma, loss, independent=True)
    heard = np.zeros((steps, n, n), bool)
    for t in range(steps):
        heard[t, np.repeat(np.arange(n), graph.degrees), graph.indices] = arrived(7, t + 1, len(graph.indices), loss)
    wanted = reference.census(
        recording.values - recording.origin, graph.adjacency(), sigma=sigma, heard=heard if loss else None
    ).estimate
    np.testing.assert_allclose(estimates(OWN, recording, graph, precision="double"), wanted, rtol=0, atol=1e-9)
    np.testing.assert_allclose(estimates(OWN, recording, graph), wanted, rtol=0, atol=1e-5)


COUNTS = random_regular_graph(40, 6, rng=2)


def draw_counts(n_steps: int) -> NDArray[np.float64]:
    """Poisson counts of means .4 and 9; the variance is the mean."""
    means = np.where(np.arange(40) % 2, 9.0, 0.4)
    return np.random.default_rng(5).poisson(means, (n_steps, 40)).astype(np.float64)


def test_the_reference_agrees_on_the_variance_of_counts() -> None:
    recording = recorded(draw_counts(9), 2.5, independent=True)
    wanted = reference.census(recording.values - recording.origin, COUNTS.adjacency(), sigma=2.5).estimate
    got = estimates(OWN, recording, COUNTS, precision="double")
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("sigma", [2.5, None])
def test_counts_have_the_variance_of_their_mean(sigma: float | None) -> None:
    """Agents find that the variance grows with the mean, and both forms are the same bits."""
    recording = recorded(draw_counts(24), sigma)
    run, got = start(OWN, recording, COUNTS), np.empty((24, 40))
    for t in range(1, 25):
        run.step(t)
        got[t - 1] = run.states[0].estimate
    function = run.states[0].sampling.function  # type: ignore[attr-defined]
    assert (function[:, 3] > 0.0).all()
    np.testing.assert_array_equal(got, lockstep(OWN, recording.values - recording.origin, COUNTS, sigma=sigma, seed=7))


@pytest.mark.parametrize("sigma", [0.5, None])
def test_zeros_and_ones_are_recognized_at_once(sigma: float | None) -> None:
    """From the first check on agents have the variance of their place; forms are the same bits, and the reference
    agrees."""
    means = np.where(np.arange(40) % 2, 0.7, 0.1)
    samples = (np.random.default_rng(6).random((12, 40)) < means).astype(np.float64)
    recording = recorded(samples, sigma, independent=True)
    assert recording.origin == 0.0
    run, got = start(OWN, recording, COUNTS), np.empty((12, 40))
    for t in range(1, 13):
        run.step(t)
        got[t - 1] = run.states[0].estimate
    function = run.states[0].sampling.function  # type: ignore[attr-defined]
    assert np.array_equal(function[:, :3], np.tile([0.0, 1.0, 0.0], (40, 1)))
    assert (function[:, 3] == -function[:, 4]).all() and (function[:, 3] > 3.9).all()  # 1 / variance, at most 1/4
    np.testing.assert_array_equal(got, lockstep(OWN, samples, COUNTS, sigma=sigma, seed=7, independent=True))
    wanted = reference.census(samples, COUNTS.adjacency(), sigma=sigma).estimate
    np.testing.assert_allclose(estimates(OWN, recording, COUNTS, precision="double"), wanted, rtol=0, atol=1e-9)
    samples[3, 5] = 0.5  # one other sample is enough
    mixed = start(OWN, recorded(samples, sigma, independent=True), COUNTS)
    for t in range(1, 13):
        mixed.step(t)
    assert not np.array_equal(mixed.states[0].sampling.function[:, 2], np.zeros(40))  # type: ignore[attr-defined]


def test_the_reference_finds_the_same_components() -> None:
    """Where all agents find two components, and estimates are close to the class means."""
    graph, samples = random_regular_graph(60, 6, rng=2), draw(60, 16)
    recording = recorded(samples, 1.0, independent=True)
    wanted = reference.census(samples - recording.origin, graph.adjacency(), sigma=1.0).estimate
    run = start(OWN, recording, graph)
    state: Any = run.states[0]
    for t in range(1, 17):
        run.step(t)
        np.testing.assert_allclose(state.estimate, wanted[t - 1], rtol=0, atol=1e-5)
    assert state.edges.n_groups == 2.0
    classes = np.arange(60) % 2
    mean = samples.mean(axis=0) - recording.origin
    for c in (0, 1):
        assert np.ptp(state.estimate[classes == c]) < 0.3 * np.ptp(mean[classes == c])


def test_noisier_agents_may_have_a_mixture_of_their_own() -> None:
    """Agents of one class have the larger sigma: their grid deviates, and they have a mixture of their own. The
    reference agrees, agents and arrays are the same bits, and no agent is assigned to the other class."""
    graph, rng = random_regular_graph(60, 6, rng=2), np.random.default_rng(3)
    classes = np.arange(60) % 2
    sigma = np.where(classes == 0, 0.5, 4.0)
    recording = recorded(4.0 * classes + sigma * rng.normal(size=(16, 60)), sigma, independent=True)
    wanted = reference.census(recording.values - recording.origin, graph.adjacency(), sigma=sigma).estimate
    ours = estimates(OWN, recording, graph, precision="double")
    np.testing.assert_allclose(ours, wanted, rtol=0, atol=1e-9)
    alone = lockstep(OWN, recording.values - recording.origin, graph, sigma=sigma, seed=7, independent=True)
    np.testing.assert_array_equal(estimates(OWN, recording, graph), alone)
    trace = colme.simulate(colme.Census(guard=False), recording, graph=graph)
    groups = trace.final.groups
    assert not set(groups[classes == 0]) & set(groups[classes == 1])
    # The spread of a component of 30 has a standard error of e = sqrt(2/30) of the noise; the weight of an agent's own
    # mean is then about .8 e = .2, so estimates deviate from the class mean by .04 of what local means do. Three times
    # that:
    mean = recording.values.mean(axis=0)[classes == 1]
    assert np.var(trace.final.estimate[classes == 1]) < 3 * 0.04 * np.var(mean)


@pytest.mark.parametrize("options", [{"rounds": 2}, {"refresh": 1.0}, {"refresh": 2.0, "rounds": 7}])
def test_options_are_read_alike(options: dict[str, Any]) -> None:
    graph, recording = GRAPHS["regular"], recorded(draw(30, 12), 1.0, independent=True)
    wanted = reference.census(recording.values - recording.origin, graph.adjacency(), sigma=1.0, **options).estimate
    got = estimates(colme.Census(guard=False, fits="own", **options), recording, graph, precision="double")
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-10)


SCENARIO = colme.Scenario(n_agents=100, means=(0.0, 1.5), sigma=1.0, skip_rate=0.1, late_share=0.1, late_step=15)


@pytest.mark.parametrize(
    "method", [colme.Census(guard=False), OWN, colme.Census(guard=False, estimate_sigma=True)], ids=repr
)
def test_the_parts_of_a_trace_are_consistent(method: colme.Census, tmp_path: Path) -> None:
    trace = colme.simulate(method, SCENARIO, graph=random_regular_graph(100, 6, rng=9), steps=18, seed=3)
    final = trace.final
    assert final.class_ is not None
    assert final.probability is not None and final.lower is not None and final.upper is not None
    assert final.truth is not None
    assert ((final.probability >= 0.0) & (final.probability <= 1.0)).all()
    assert (final.lower < final.upper).all()
    assert ((final.lower <= final.truth) & (final.truth <= final.upper)).mean() == pytest.approx(trace.coverage[-1])
    assert final.groups.max() < trace.n_groups.max() + 1 and trace.n_groups[-1] >= 1.0
    a, b = np.repeat(np.arange(100), final.graph.degrees), final.graph.indices
    assert (final.groups[a] == final.groups[b]).all()
    edges = random_regular_graph(100, 6, rng=9).edges().T
    together, alike = final.groups[edges[0]] == final.groups[edges[1]], np.equal(*final.class_[edges])
    assert trace.wrong_edges[-1] == pytest.approx(together[~alike].mean(), abs=1e-15)
    assert trace.lost_edges[-1] == pytest.approx((~together)[alike].mean(), abs=1e-15)
    assert np.isfinite(trace.numbers).all() and trace.numbers.max() > 3.0
    # posterior means lie within the intervals
    inside = (final.lower <= final.estimate) & (final.estimate <= final.upper)
    assert inside.mean() > 0.95
    path = tmp_path / "trace.npz"
    trace.save(path)
    again = colme.Trace.load(path)
    assert_same_bits(again, trace)
    for name in ("probability", "lower", "upper"):
        np.testing.assert_array_equal(getattr(again.final, name), getattr(final, name))


def test_nothing_is_sent_between_censuses() -> None:
    """Zero while no census is under way, and at first three numbers: two bins and the noise channel."""
    trace = colme.simulate(colme.Census(guard=False, rounds=3), SCENARIO, degree=6, steps=60, seed=3)
    assert 2.0 < trace.numbers[0] <= 3.0  # a mean in the middle of a bin needs only one; late agents have none
    begins, t = [1], 1
    while t < 60:  # three rounds from t = 3 on, before that two; then a pause until a fifth has passed
        t = max(t + (3 if t >= 3 else 2), int(np.ceil(1.2 * t - 1e-9)))
        begins.append(t)
    busy = np.zeros(61, bool)
    for t in begins:
        busy[t : t + (3 if t >= 3 else 2)] = True
    sent = np.diff(trace.numbers * trace.t, prepend=0.0)  # recorded is the mean over all steps so far
    np.testing.assert_array_equal(sent > 1e-9, busy[1:])


@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize(
    "method",
    [
        colme.Census(guard=False),
        OWN,
        colme.Census(guard=False, estimate_sigma=True),
        colme.Census(guard=False, refresh=1.5, rounds=9),
    ],
    ids=repr,
)
def test_a_run_resumes_in_the_middle_of_a_census(method: colme.Census, loss: float, tmp_path: Path) -> None:
    graph, recording = GRAPHS["regular"], recorded(draw(30, 40, late=True), 1.0, loss)
    whole = start(method, recording, graph).go(None, threading.Event())[0]
    middles = 0
    for stop in range(1, 40, 5):
        path = tmp_path / f"{stop}.npz"
        broken = start(method, recording, graph, checkpoint=path)
        for t in range(1, stop + 1):
            broken.step(t)
        middles += broken.states[0].rounds > 0  # type: ignore[attr-defined]
        broken.save()
        assert_same_bits(start(method, recording, graph, checkpoint=path).go(None, threading.Event())[0], whole)
    assert middles >= 2


def test_samples_that_never_vary() -> None:
    """All samples are equal, and so are all estimates, whether sigma is known or not."""
    for method in (
        colme.Census(guard=False, sigma=1.0),
        colme.Census(guard=False),
        colme.Census(guard=False, sigma=1.0, fits="own"),
    ):
        trace = colme.simulate(method, np.full((12, 8), 5.0), degree=4)
        np.testing.assert_allclose(trace.final.estimate, 5.0, rtol=1e-12)
        assert trace.final.lower is not None and (trace.final.lower < 5.0).all()


def test_a_tiny_mass_far_away_spoils_nothing() -> None:
    """One agent at the end of a chain is unlike all others; only tiny masses of it arrive."""
    n = 60
    chain = from_edges([(a, a + 1) for a in range(n - 1)], n)
    samples = np.random.default_rng(0).standard_normal((30, n))
    samples[:, 0] += 1000.0
    trace = colme.simulate(OWN, colme.Recording(samples, sigma=1.0), graph=chain)
    assert np.isfinite(trace.final.estimate).all()
    assert np.abs(trace.final.estimate[20:]).max() < 1.0


def test_before_sigma_is_estimated_intervals_are_infinite() -> None:
    trace = colme.simulate(colme.Census(guard=False), colme.Recording(draw(8, 1), means=np.zeros(8)), degree=4)
    assert trace.final.lower is not None and np.isneginf(trace.final.lower).all()
    assert trace.final.upper is not None and np.isposinf(trace.final.upper).all()
    assert trace.coverage.tolist() == [1.0]
    assert LEVEL == 0.9


def test_an_unknown_sigma_is_found() -> None:
    """The average variance is near the true one, and the moderated one of each agent near that of its class."""
    scenario = colme.Scenario(n_agents=200, means=(0.0, 4.0), sigma=(1.0, 3.0))
    run = start(
        colme.Census(guard=False),
        colme.Recording(colme.samples.draw(scenario, 0, 30)),
        random_regular_graph(200, 6, rng=0),
    )
    for t in range(1, 31):
        run.step(t)
    state: Any = run.states[0]
    # 200 sample variances of 27 or more degrees of freedom: relative error sqrt(2 / 2700), and rounds that end early
    assert state.sampling.average == pytest.approx(np.full(200, 5.0), rel=0.25)
    assert state.sampling.average.mean() == pytest.approx(5.0, rel=0.12)
    mine = scenario.populate(0).class_
    noise = 30.0 * state.noise
    assert noise[mine == 0].mean() < 2.5 and 7.0 < noise[mine == 1].mean() < 10.0


UNKNOWN = colme.Recording(np.zeros((5, 8)))
REFUSED = (
    ("sigma=-1.0: it must be positive", lambda: colme.Census(sigma=-1.0)),
    ("either know sigma or estimate it", lambda: colme.Census(sigma=1.0, estimate_sigma=True)),
    ("refresh=0.9: it must be at least 1 and finite", lambda: colme.Census(refresh=0.9)),
    ("refresh=inf: it must be at least 1 and finite", lambda: colme.Census(refresh=np.inf)),
    ("rounds=0: a census takes at least one round", lambda: colme.Census(rounds=0)),
    ("rounds", lambda: colme.Census(rounds="many")),
    ("fits", lambda: colme.Census(fits="mine")),
    ("restart=True with estimate_sigma=True", lambda: colme.Census(restart=True, estimate_sigma=True)),
    ("restart=True where sigma is not known", lambda: colme.simulate(colme.Census(restart=True), UNKNOWN, degree=4)),
)


def test_bad_options_are_refused_in_a_sentence() -> None:
    for words, call in REFUSED:
        with pytest.raises(MethodError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_a_wrong_sigma_is_corrected_and_a_right_one_is_not() -> None:
    """The average r of 300 agents with n samples each is known to sqrt(2 / (n - 1) / 300)."""
    scenario = colme.Scenario(n_agents=300, means=(1.2, 2.0), sigma=2.0)
    for told, factor in ((2.0, 1.0), (4.0, 0.25), (1.0, 4.0)):
        for seed in range(5):
            run = start(
                colme.Census(guard=False, sigma=told),
                colme.Recording(draw_scenario(scenario, seed, 40)),
                random_regular_graph(300, 10, rng=0),
            )
            for t in range(1, 41):
                run.step(t)
            found = run.states[0].sampling.factor  # type: ignore[attr-defined]
            if told == 2.0:
                assert (found == 1.0).all()
            # the last check was between t = 16 and 32, where r is known to 2.1 %
            np.testing.assert_allclose(found, factor, rtol=4.0 * 0.021)
