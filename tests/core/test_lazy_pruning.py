"""Lazy pruning checks only edges that can have been parted: one reference for many methods, many steps in one call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import colme
from colme._core import edges as lazy_pruning
from colme._core.edges import KeptEdges, ReferenceMeans
from colme._core.team import Neighborhood
from colme.graphs import random_regular_graph
from colme.methods import Method
from tests.support.edges import Walk, assert_same_bits, count_full_looks, shrink_list, walks
from tests.support.examples import examples
from tests.support.runs import run_of
from tests.support.same_bits import assert_same_bits as assert_same_traces

# Reference means


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 1000, 1025])
def test_displacements_are_the_largest_distances_from_the_reference(n: int) -> None:
    rng = np.random.default_rng(n)
    reference, where = ReferenceMeans(Neighborhood(n)), rng.normal(size=n)
    means = where + rng.normal(size=(7, n)) * 10.0 ** -np.arange(7.0)[:, None]
    assert (reference.displacements(means, 1) == np.inf).all() and reference.version == 0
    reference.set(where)
    assert reference.version == 1
    expected = np.abs(means - where.astype(np.float32).astype(float)).max(axis=1)
    assert np.array_equal(reference.displacements(means, 1), expected)
    assert np.array_equal(reference.displacements(means[3:5], 4), expected[3:5])
    for a in {0, n // 2, n - 1}:  # whoever it is
        alone = where[None, :].repeat(2, axis=0)
        alone[1, a] += 1e3
        reference.set(where)
        assert reference.displacements(alone, 1)[1] > 999.0 > 1e-6 > reference.displacements(alone, 1)[0]


def test_displacements_are_measured_once_for_all_methods_and_anew_when_anything_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[int] = []
    honest = lazy_pruning._measure_displacements
    monkeypatch.setattr(lazy_pruning, "_measure_displacements", lambda *args: (measured.append(1), honest(*args))[1])
    means = np.random.default_rng(0).normal(size=(5, 100))
    reference = ReferenceMeans(Neighborhood(100))
    reference.set(means[0])
    for t, rows, fresh in ((1, 5, 1), (1, 5, 0), (2, 5, 1), (2, 4, 1), (2, 4, 0), (1, 5, 1)):
        before = len(measured)
        reference.displacements(means[:rows], t)
        assert len(measured) - before == fresh
    reference.set(means[1])
    assert reference.displacements(means, 1)[1] < 1e-6 < reference.displacements(means, 1)[0]


@examples(30)
@given(walks(), st.lists(st.floats(0.3, 2.0), min_size=2, max_size=3), st.integers(0, 2**16))
def test_a_shared_reference_cuts_what_the_plain_check_cuts(walk: Walk, factors: list[float], seed: int) -> None:
    """Edges with different radii, each of which sets the reference when it needs to; some sit out a step."""
    graph, class_, means, radii = walk
    rng = np.random.default_rng(seed)
    shared = ReferenceMeans(Neighborhood(graph.n_agents))
    pairs = [(KeptEdges(graph, class_), KeptEdges(graph, class_), factor) for factor in factors]
    for t, (mean, radius) in enumerate(zip(means, radii, strict=True), start=1):
        for lazy, plain, factor in pairs:
            if rng.random() < 0.9:
                lazy.prune(mean, factor * radius, shared, t)
                plain.prune(mean, factor * radius)
                assert_same_bits(lazy, plain)


def test_edges_that_share_a_reference_do_not_look_at_everything_all_the_time() -> None:
    n = 2000
    rng = np.random.default_rng(0)
    graph, shared = random_regular_graph(n, 10, rng=2), ReferenceMeans(Neighborhood(n))
    both = [KeptEdges(graph, np.zeros(n, int)) for _ in range(2)]
    looks = count_full_looks(*both)
    mean = rng.standard_normal(n)
    for t in range(1, 201):
        now = mean + 0.01 * rng.standard_normal(n)
        for edges, factor in zip(both, (1.0, 1.1), strict=True):
            edges.prune(now, factor * (3.0 - 0.002 * t), shared, t)
    assert all(edges.lost > 0 for edges in both) and 2 <= len(looks) < 100 and shared.version < 50


# Many steps in one call

METHODS: list[Method] = [
    colme.CLColME(delta=0.5, sigma=0.5),
    colme.CLColME(gamma=0.3, sigma=0.6, clock="global"),
    colme.CColME(delta=0.1, sigma=0.4, level="agent"),
    colme.CColME(gamma=0.6, sigma=0.7, clock="own"),
]
"""Who believe in less noise than there is, and cut edges within a class too."""
SCENARIO = colme.Scenario(n_agents=300, means=(0.0, 1.0), sigma=1.0)


def simulated(prepare: Callable[..., Any] = lambda *edges: None) -> tuple[list[colme.Trace], Any]:
    """All methods in one run, and what `prepare` made of their edges."""
    run = run_of(METHODS, SCENARIO, degree=10, steps=200)
    prepared = prepare(*[state.edges for state in run.states])  # type: ignore[attr-defined]
    return run.go(None, threading.Event()), prepared


@pytest.fixture(scope="module")
def lazy() -> list[colme.Trace]:
    traces, looks = simulated(count_full_looks)
    assert len(METHODS) <= len(looks) < 0.4 * 200 * len(METHODS), "lazy is what this is about"
    for trace in traces:
        assert 0.0 < trace.lost_edges[-1] < 0.9 and trace.wrong_edges[-1] < 0.5, "much must be cut, not all"
        assert (np.diff(trace.wrong_edges) != 0).sum() > 10
    return traces


def assert_all_the_same(ours: list[colme.Trace], theirs: list[colme.Trace]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert_same_traces(one, other)


def test_a_full_look_at_every_step_changes_no_bit(lazy: list[colme.Trace], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_pruning, "FULL_CHECK", 0.0)
    traces, looks = simulated(count_full_looks)
    assert len(looks) == 200 * len(METHODS)
    assert_all_the_same(traces, lazy)


@pytest.mark.parametrize(
    ("constant", "value"),
    [("FULL_CHECK", 0.01), ("FULL_CHECK", 1e9), ("NEAR_ENOUGH", 0.0), ("NEAR_ENOUGH", 10.0)],
)
def test_no_bit_depends_on_how_often_everything_is_looked_at_or_the_reference_is_set(
    lazy: list[colme.Trace], monkeypatch: pytest.MonkeyPatch, constant: str, value: float
) -> None:
    monkeypatch.setattr(lazy_pruning, constant, value)
    assert_all_the_same(simulated()[0], lazy)


def test_the_plain_check_at_every_step_changes_no_bit(lazy: list[colme.Trace], monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[int] = []

    def plainly(
        self: KeptEdges, mean: NDArray[np.float64], means: NDArray[np.float64], row: int, radius: float, *_: Any
    ) -> None:
        checks.append(1)
        self.prune(mean, radius)

    monkeypatch.setattr(KeptEdges, "check_all", plainly)
    traces, _ = simulated()
    assert len(checks) == 200 * len(METHODS)
    assert_all_the_same(traces, lazy)


@pytest.mark.parametrize("room", [64, 100, 400])
def test_a_list_without_room_changes_no_bit(lazy: list[colme.Trace], room: int) -> None:
    def shrink(*all_edges: KeptEdges) -> list[int]:
        for edges in all_edges:
            shrink_list(edges, room)
        return count_full_looks(*all_edges)

    traces, looks = simulated(shrink)
    assert len(looks) > 2 * len(METHODS)
    assert_all_the_same(traces, lazy)
