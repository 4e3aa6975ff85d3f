"""Agents that compare more than means: whom they part, whom they keep, and what they say to bad requests."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import colme
from colme.confidence import FEWEST_SAMPLES, separation_time
from colme.errors import ColmeError, MethodError
from colme.graphs import complete_graph, random_regular_graph
from colme.lockstep import lockstep
from colme.methods.intervals import IntervalMethod
from tests import reference

TWO, ALL = ("mean", "deviation"), ("mean", "deviation", "kurtosis")
NOISE = colme.Scenario(n_agents=2000, means=(1.0, 1.0), sigma=(1.0, 2.0))
"""Two classes that share their mean."""


def tails(n_steps: int, n: int = 16) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Samples of mean 0 and deviation 1, by class: flat, Gaussian, and coins that are seldom heads (kurtosis 20)."""
    rng, classes = np.random.default_rng(4), np.arange(n) % 3
    shape = (n_steps, n)
    coins = np.where(rng.random(shape) < 0.05, rng.choice([-1.0, 1.0], shape) * math.sqrt(20.0), 0.0)
    flat = rng.uniform(-math.sqrt(3.0), math.sqrt(3.0), shape)
    return np.choose(classes, [flat, rng.standard_normal(shape), coins]), classes


# The two forms, and the reference, where deviation and kurtosis decide


@pytest.mark.parametrize("method", [
    colme.CLColME(gamma=0.05, statistics=ALL),
    colme.CLColME(gamma=0.05, statistics=("kurtosis",), consensus="flow"),
    colme.CColME(gamma=0.05, statistics=("deviation", "kurtosis")),
    colme.BColME(gamma=0.05, statistics=ALL, depth=3),
    colme.ColME(gamma=0.05, statistics=ALL, weights="aggressive", queries=3),
], ids=repr)  # fmt: skip
def test_agents_have_the_bits_of_the_array_when_kurtosis_parts_them(method: IntervalMethod) -> None:
    samples, classes = tails(330)
    samples[np.random.default_rng(6).random(samples.shape) < 0.1] = np.nan
    samples[:60, :2] = np.nan  # late, so burnt in later than their neighbors
    graph = random_regular_graph(16, 6, rng=1)
    recording = colme.Recording(samples, classes=classes)
    trace = colme.simulate(method, recording, graph=graph)
    alone = lockstep(method, samples - recording.origin, graph)
    assert np.array_equal(trace.final.estimate, alone[-1] + recording.origin)
    assert trace.wrong_edges[210] > trace.wrong_edges[-1], "nothing happened after the kurtosis had burnt in"


def test_the_graph_is_the_references_at_every_step() -> None:
    samples, classes = tails(260)
    graph, method = random_regular_graph(16, 6, rng=1), colme.CLColME(gamma=0.05, statistics=ALL)
    trace = colme.simulate(method, colme.Recording(samples, classes=classes), graph=graph)
    wanted = reference.cl_colme(
        samples, graph.adjacency(), sigma=math.nan, gamma=0.05, step=1.0 / 6.0, clock="gossip", statistics=ALL
    )
    edges = graph.edges()
    wrong = edges[classes[edges[:, 0]] != classes[edges[:, 1]]]
    shares = wanted.adjacency[:, wrong[:, 0], wrong[:, 1]].mean(axis=1)
    assert np.array_equal(trace.wrong_edges, shares)
    assert (trace.final.graph.adjacency() == wanted.adjacency[-1]).all()
    assert shares[FEWEST_SAMPLES[2] - 2] > shares[FEWEST_SAMPLES[2] - 1], "kurtosis parted nobody"


# Who is parted


def test_classes_that_share_their_mean_part_by_deviation_and_by_nothing_else() -> None:
    methods = [colme.CLColME(), colme.CLColME(statistics=TWO), colme.BColME(statistics=("deviation",))]
    by_mean, by_both, by_deviation = colme.simulate(methods, NOISE, steps=600, seed=1)
    assert by_mean.wrong_edges[-1] == 1.0
    for trace in (by_both, by_deviation):
        assert trace.wrong_edges[-1] == 0.0 and trace.lost_edges[-1] == 0.0
        assert trace.wrong_edges[FEWEST_SAMPLES[1] - 2] == 1.0, "somebody was parted before the burn-in"


def test_means_part_without_a_known_sigma() -> None:
    samples = colme.samples.draw(colme.Scenario(n_agents=100, means=(0.0, 2.0), sigma=3.0), 0, 900)
    with pytest.raises(MethodError, match="scale of the samples is not known"):
        colme.simulate(colme.CLColME(), samples)
    trace = colme.simulate(colme.CLColME(statistics=TWO), samples)
    assert len(np.unique(trace.final.groups)) == 2


def test_a_deviation_takes_as_long_as_the_formula_says() -> None:
    """The median of 10^4 edges; somewhat sooner, for noise parts some edges early and none comes back."""
    for gamma, ratio in ((1e-4, 1.6), (1e-6, 2.0)):
        sigma = 0.5 * (1.0 + ratio) * math.sqrt(0.5)  # as docs/methods.md says, for Gaussian samples
        expected, guaranteed = (
            separation_time(ratio - 1.0, sigma=sigma, gamma=gamma, guaranteed=each) for each in (False, True)
        )
        scenario = colme.Scenario(n_agents=2000, means=(1.0, 1.0), sigma=(1.0, ratio))
        method = colme.CLColME(gamma=2.0 * gamma, statistics=TWO)
        trace = colme.simulate(method, scenario, degree=20, steps=guaranteed, seed=3)
        median = int(np.argmax(trace.wrong_edges < 0.5)) + 1
        assert 0.85 * expected < median < expected
        assert trace.wrong_edges[-1] == 0.0


@pytest.mark.parametrize("statistics", [("mean", "deviation"), ALL], ids=str)
def test_false_cuts_stay_below_the_bound(statistics: tuple[str, ...]) -> None:
    """An edge within a class is cut if an interval of one of its ends fails: 2 ends, 2 gamma / m for each of m."""
    gamma = 0.02
    one = colme.Scenario(n_agents=2000, means=(1.0,), sigma=2.0)
    trace = colme.simulate(colme.CLColME(gamma=gamma, statistics=statistics), one, steps=1500, seed=2)
    assert trace.lost_edges[-1] <= 2 * 2 * gamma


@pytest.mark.parametrize("mean", [0.01, 0.05, 0.5])
def test_coins_are_not_cut_either(mean: float) -> None:
    """Many have seen one side only when they begin to compare, and some as many heads as tails."""
    coins = colme.Scenario(n_agents=1000, means=(mean,), distribution="bernoulli")
    trace = colme.simulate(colme.CLColME(gamma=0.02, statistics=TWO), coins, steps=500, seed=2)
    assert trace.lost_edges[-1] <= 2 * 2 * 0.02


def test_heavy_tails_are_too_much_for_the_radius_of_the_kurtosis_and_not_for_that_of_the_deviation() -> None:
    """As the documentation says: sqrt(24 / n) is the error of a Gaussian's kurtosis."""
    one = colme.Scenario(n_agents=1000, means=(1.0,), sigma=2.0, distribution="laplace")
    methods = [colme.CLColME(gamma=0.02, statistics=TWO), colme.CLColME(gamma=0.02, statistics=ALL)]
    two, three = colme.simulate(methods, one, steps=600, seed=2)
    assert two.lost_edges[-1] <= 2 * 2 * 0.02
    assert three.lost_edges[-1] > 0.1


def test_an_edge_is_looked_at_when_both_ends_have_burnt_in() -> None:
    samples = np.random.default_rng(0).standard_normal((100, 2))
    samples[:, 1] += 50.0
    samples[:40, 1] = np.nan
    trace = colme.simulate(
        colme.CLColME(statistics=TWO), colme.Recording(samples, classes=[0, 1]), graph=complete_graph(2)
    )
    cut = int(np.argmax(trace.wrong_edges == 0.0)) + 1
    assert cut == 40 + FEWEST_SAMPLES[0]


def test_samples_that_are_all_equal_are_points_and_only_their_means_are_compared() -> None:
    method = colme.CLColME(statistics=ALL)
    same = colme.simulate(method, np.full((250, 4), 7.0), graph=complete_graph(4))
    assert same.final.graph.n_edges == 6 and (same.final.estimate == 7.0).all()
    apart = colme.simulate(method, np.tile([5.0, 5.0, 7.0, 7.0], (250, 1)), graph=complete_graph(4))
    assert apart.final.groups.tolist() == [0, 0, 1, 1]
    for gap, n_edges in ((0.0, 1), (2.0, 0)):
        noisy = np.tile([5.0, 5.0 + gap], (250, 1))
        noisy[:, 1] += np.random.default_rng(0).standard_normal(250)
        assert colme.simulate(method, noisy, graph=complete_graph(2)).final.graph.n_edges == n_edges


def test_samples_of_two_values_do_not_part_by_rounding() -> None:
    """Half of each: the kurtosis is 1, the formula's radius zero, and equal deviations differ in their last bit."""
    rng = np.random.default_rng(0)
    samples = np.stack([rng.permutation(np.repeat([0.1, 0.7], 20)) for _ in range(20)], axis=1)
    trace = colme.simulate(colme.CLColME(statistics=("deviation",)), samples, graph=complete_graph(20))
    assert trace.final.graph.n_edges == 190


def test_agents_tell_centers_and_radii() -> None:
    assert colme.simulate(colme.CLColME(), NOISE, steps=2).numbers[-1] == 3.0
    assert colme.simulate(colme.CLColME(statistics=ALL), NOISE, steps=2).numbers[-1] == 8.0


# Classes


def test_classes_may_share_a_mean() -> None:
    some = colme.Scenario(n_agents=60, means=(0.0, 1.0, 0.0, 0.0), sigma=(1.0, 1.0, 2.0, 1.0), assignment="blocks")
    assert some.populate(0).class_.tolist() == [0] * 15 + [2] * 15 + [1] * 15 + [0] * 15
    recording = colme.Recording(np.ones((3, 2)), means=[1.0, 1.0], classes=["quiet", "loud"])
    assert recording.class_ is not None and recording.class_.tolist() == [1, 0]


# What is refused


def cl_colme(**fields: Any) -> colme.CLColME:
    return colme.CLColME(**fields)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: cl_colme(statistics=("mean", "deviaton")), "unknown statistic 'deviaton': .* Did you mean 'deviation'?"),
    (lambda: cl_colme(statistics=()), "at least one, each once. Try statistics=\\('mean', 'deviation'\\)"),
    (lambda: cl_colme(statistics=("mean", "mean")), "at least one, each once"),
    (lambda: cl_colme(statistics="deviation"), "statistics='deviation': expected array"),
    (lambda: cl_colme(statistics=TWO, sigma=2.0), "sigma=2 with .* Leave sigma out"),
    (lambda: cl_colme(statistics=TWO, bound="fourth-moment"), "bound='fourth-moment' with .* Leave bound out"),
    (lambda: colme.ColME(weights="soft", statistics=("deviation",)),
     r"weights='soft' with .* intervals of the mean\. Try weights='simple'"),
    (lambda: colme.simulate(colme.ColME(statistics=TWO), colme.Scenario(n_agents=8000, means=(0.0,)), steps=1),
     "at most 6987 agents"),
]  # fmt: skip


def test_what_cannot_be_compared_is_refused() -> None:
    for call, sentence in REFUSED:
        with pytest.raises(ColmeError, match=sentence):
            call()


def test_the_order_of_statistics_does_not_matter_and_the_default_is_not_shown() -> None:
    assert colme.CLColME(statistics=("kurtosis", "mean")) == colme.CLColME(statistics=["mean", "kurtosis"])  # type: ignore[arg-type]
    assert repr(colme.CLColME(statistics=("mean",))) == "CLColME()"
