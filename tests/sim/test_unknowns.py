"""What is not known is not invented: classes, true means, the shape of the noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

import colme
from colme.consensus import stable_step
from colme.errors import GraphError, MethodError, SampleError, ScenarioError
from colme.graphs import ring_lattice_graph
from colme.methods.intervals import IntervalMethod
from colme.spectrum import check_step

READINGS = np.random.default_rng(0).normal(np.repeat([20.0, 23.0], 30), 1.0, size=(300, 60))
CL = colme.CLColME(delta=0.1, sigma=1.0)


def test_without_classes_no_edge_is_called_right_or_wrong() -> None:
    trace = colme.simulate(CL, READINGS)
    assert np.isnan(trace.wrong_edges).all() and np.isnan(trace.lost_edges).all() and np.isnan(trace.mse).all()
    assert trace.isolated.min() >= 0 and len(np.unique(trace.final.groups)) >= 2
    told = colme.simulate(CL, colme.Recording(READINGS, classes=np.repeat([0, 1], 30)))
    assert told.wrong_edges[0] == 1 and told.wrong_edges[-1] == 0 and np.isnan(told.mse).all()
    assert np.array_equal(told.final.estimate, trace.final.estimate), "knowing the classes changed an estimate"


def test_the_oracle_must_be_told_the_classes() -> None:
    with pytest.raises(MethodError, match="must be told the classes, and they are not known"):
        colme.simulate(colme.Oracle(), READINGS)
    truth = np.repeat([20.0, 23.0], 30)
    final = colme.simulate(colme.Oracle(), colme.Recording(READINGS, means=truth)).final
    assert np.abs(final.estimate - truth).max() < 4.0 / math.sqrt(300 * 30)


def test_equal_means_are_one_class() -> None:
    """The oracle of two halves with the same mean knows that they are one."""
    halves = colme.Scenario(n_agents=100, means=(1.0, 1.0), sigma=2.0)
    trace = colme.simulate(CL, halves, steps=50)
    assert trace.final.class_ is not None and not trace.final.class_.any()
    pooled = trace.final.mean.mean() - 1.0
    assert trace.oracle_mse[-1] == pytest.approx(pooled**2)


def test_a_late_step_beyond_32_bits_is_late() -> None:
    scenario = colme.Scenario(n_agents=50, means=(0.0,), late_share=0.5, late_step=3_000_000_000)
    assert (colme.simulate(colme.Local(), scenario, steps=5).final.count == 0).sum() == 25


@pytest.mark.parametrize("unit", [2.0**125, 2.0**-149])
def test_units_that_float32_cannot_hold_are_refused(unit: float) -> None:
    with pytest.raises(ScenarioError, match="Try another unit"):
        colme.Scenario(n_agents=10, means=(0.0, unit), sigma=0.3 * unit)
    with pytest.raises(SampleError, match="Try another unit"):
        colme.Recording(READINGS * unit)


def test_the_fourth_moment_comes_from_the_scenario() -> None:
    """Kurtosis 9 of Student samples with 5 degrees widens the interval by (12/6)^(1/4); with 4 it is infinite."""
    method: IntervalMethod = colme.CLColME(bound="fourth-moment")
    wide = colme.Scenario(n_agents=9, means=(0.0,), distribution="student", df=5.0)
    ratio = method.bound_for(9, 9, wide.kurtosis).radius(10) / method.bound_for(9, 9).radius(10)
    assert ratio == pytest.approx(2.0**0.25)
    endless = colme.Scenario(n_agents=40, means=(0.0,), distribution="student", df=4.0)
    with pytest.raises(MethodError, match="radius is infinite"):
        colme.simulate(method, endless, steps=3)


def test_heavy_tails_break_the_sub_gaussian_promise() -> None:
    """Why bound="fourth-moment" exists: Student samples cut true edges at a level that promises not to."""
    scenario = colme.Scenario(n_agents=1000, means=(0.0,), distribution="student", df=2.1)
    traces = colme.simulate(colme.CLColME(delta=0.1), scenario, steps=300, seeds=range(2))
    assert min(trace.lost_edges[-1] for trace in traces) > 0
    milder = colme.Scenario(n_agents=1000, means=(0.0,), distribution="student", df=4.5)
    safe = colme.CLColME(delta=0.1, bound="fourth-moment")
    assert colme.simulate(safe, milder, steps=300).lost_edges[-1] == 0


@pytest.mark.parametrize(
    ("indptr", "indices"),
    [
        pytest.param([0, 2, 2, 2], [1, 2], id="one-sided"),
        pytest.param([0, 1, 2], [0, 1], id="loops"),
        pytest.param([0, 1, 2], [1, 5], id="unknown agent"),
        pytest.param([0, 2, 4], [1, 1, 0, 0], id="repeated"),
        pytest.param([1, 2], [0], id="bad rows"),
        pytest.param([0], [], id="nobody"),
    ],
)
def test_rows_that_are_no_graph_are_refused(indptr: list[int], indices: list[int]) -> None:
    with pytest.raises(GraphError, match="Try from_edges"):
        colme.Graph(indptr, indices)


def test_rows_of_a_graph_are_a_graph() -> None:
    assert colme.Graph([0, 1, 3, 4], [1, 0, 2, 1]).n_edges == 2


def test_traces_compare_as_what_they_are() -> None:
    trace = colme.simulate(colme.Local(), READINGS[:3])
    assert trace == trace and trace in [trace] and len({trace}) == 1


@pytest.mark.parametrize("n", [10, 400])
def test_the_remedy_for_an_unstable_step_is_stable(n: int) -> None:
    """Also on an even ring, whose two sides would change places for ever at 1 / max degree."""
    ring = ring_lattice_graph(n, 2)
    with pytest.raises(MethodError, match=f"which is {stable_step(ring):.4g}"):
        check_step(ring, 0.5)
    check_step(ring, stable_step(ring))
