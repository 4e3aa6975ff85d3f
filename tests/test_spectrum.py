"""The spectrum, the bound on the step that follows from it, and what consensus really does on either side of it."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from colme import spectrum as spectrum_module
from colme.consensus import stable_step
from colme.errors import MethodError
from colme.graphs import (
    Graph,
    complete_graph,
    from_edges,
    gnp_random_graph,
    random_regular_graph,
    ring_lattice_graph,
    watts_strogatz_graph,
)
from colme.spectrum import (
    check_step,
    laplacian_matrix,
    metropolis_matrix,
    spectrum,
)
from tests.support.examples import examples

modest = examples(25)


def star(n_leaves: int) -> Graph:
    return from_edges([(0, leaf) for leaf in range(1, n_leaves + 1)])


def bipartite(left: int, right: int) -> Graph:
    return from_edges([(a, left + b) for a in range(left) for b in range(right)])


def cube(dimension: int) -> Graph:
    """Agents joined when their names differ in one bit."""
    n = 2**dimension
    return from_edges([(a, a ^ (1 << bit)) for a in range(n) for bit in range(dimension) if not a >> bit & 1])


def together(*graphs: Graph) -> Graph:
    """The graphs side by side, not joined."""
    edges, n = [], 0
    for graph in graphs:
        edges += [(a + n, b + n) for a, b in graph.edges().tolist()]
        n += graph.n_agents
    return from_edges(edges, n)


def eigenvalues(graph: Graph) -> NDArray[np.float64]:
    """Of D - A, by hand."""
    adjacency = graph.adjacency().astype(float)
    return np.linalg.eigvalsh(np.diag(adjacency.sum(axis=0)) - adjacency)


@st.composite
def graphs_with_edges(draw: st.DrawFn) -> Graph:
    n, seed = draw(st.integers(2, 40)), draw(st.integers(0, 2**32 - 1))
    graph = gnp_random_graph(n, draw(st.floats(0.02, 1.0)), rng=seed)
    return graph if graph.n_edges else from_edges([(0, 1)], n)


RESIDUAL = 1e-3
"""What Lanczos' method stops at, relative: there is an eigenvalue that near."""


def force_lanczos(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no graph is small, and a dense matrix is an error."""

    def refuse(graph: Graph) -> None:
        raise AssertionError("a dense matrix was made")

    monkeypatch.setattr(spectrum_module, "DENSE", 1)
    monkeypatch.setattr(spectrum_module, "QUICK", 1)
    monkeypatch.setattr(spectrum_module, "laplacian_matrix", refuse)


# the spectrum


@pytest.mark.parametrize(
    ("graph", "gap", "largest", "n_components"),
    [
        (complete_graph(7), 7.0, 7.0, 1),
        (complete_graph(2), 2.0, 2.0, 1),
        (star(9), 1.0, 10.0, 1),
        (bipartite(3, 5), 3.0, 8.0, 1),
        (cube(4), 2.0, 8.0, 1),
        (ring_lattice_graph(12, 2), 2 - 2 * np.cos(2 * np.pi / 12), 4.0, 1),
        (ring_lattice_graph(13, 2), 2 - 2 * np.cos(2 * np.pi / 13), 2 - 2 * np.cos(12 * np.pi / 13), 1),
        (together(complete_graph(5), star(8), complete_graph(1)), 1.0, 9.0, 3),
        (from_edges([], 6), 0.0, 0.0, 6),
        (from_edges([], 1), 0.0, 0.0, 1),
    ],
    ids=["complete", "pair", "star", "bipartite", "cube", "even ring", "odd ring", "apart", "no edges", "one agent"],
)
def test_known_spectra(graph: Graph, gap: float, largest: float, n_components: int) -> None:
    found = spectrum(graph)
    assert found.gap == pytest.approx(gap, abs=1e-10)
    assert found.largest == pytest.approx(largest, abs=1e-10)
    assert found.n_components == n_components


@modest
@given(graphs_with_edges())
def test_spectrum_is_the_smallest_positive_and_the_largest_eigenvalue(graph: Graph) -> None:
    values = eigenvalues(graph)
    found = spectrum(graph)
    assert found.n_components == (values < 1e-9).sum()
    assert found.gap == pytest.approx(values[values > 1e-9].min(), abs=1e-9)
    assert found.largest == pytest.approx(values[-1], abs=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: complete_graph(80),
        lambda: star(90),
        lambda: bipartite(30, 50),
        lambda: bipartite(2, 100),
        lambda: cube(7),
        lambda: together(complete_graph(20), complete_graph(30), complete_graph(1)),
        lambda: together(star(12), star(12), from_edges([], 40)),
        lambda: together(cube(5), bipartite(8, 8), from_edges([(0, 1)])),
        lambda: from_edges([(0, 1)]),
        lambda: from_edges([(0, 1), (2, 3)], 7),
        lambda: ring_lattice_graph(80, 2),
        lambda: random_regular_graph(50, 10, rng=0),
        lambda: random_regular_graph(800, 10, rng=1),
        lambda: random_regular_graph(600, 3, rng=1),
        lambda: gnp_random_graph(500, 0.02, rng=1),
        lambda: gnp_random_graph(400, 0.005, rng=2),
        lambda: watts_strogatz_graph(300, 6, 0.3, rng=1),
        lambda: together(random_regular_graph(300, 6, rng=1), random_regular_graph(200, 4, rng=2), from_edges([], 9)),
    ],
    ids=[
        "complete", "star", "bipartite", "lopsided", "cube", "cliques", "stars", "mixed", "pair", "two pairs", "ring",
        "small regular", "regular", "cubic", "gnp", "gnp in pieces", "small world", "two regular and lonely ones",
    ],
)  # fmt: skip
def test_lanczos_agrees_with_the_dense_matrix(make: Callable[[], Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make()
    exact = spectrum(graph)
    force_lanczos(monkeypatch)
    found = spectrum(graph)
    assert found.n_components == exact.n_components
    assert found.gap == pytest.approx(exact.gap, rel=RESIDUAL)
    assert found.largest == pytest.approx(exact.largest, rel=RESIDUAL)
    # Ritz values lie between the ends of the spectrum, if the basis is orthonormal
    assert found.gap >= exact.gap * (1 - 1e-9)
    assert found.largest <= exact.largest * (1 + 1e-9)


# the step


def refused_bound(graph: Graph, step: float) -> tuple[float, float]:
    """(lambda_max, largest step) as the refusal of this step gives them."""
    with pytest.raises(MethodError) as caught:
        check_step(graph, step)
    error = caught.value
    rule = f"step={step:g} is not stable on this graph: step * lambda_max must be below 2 and lambda_max is "
    assert str(error).startswith(rule)
    found = re.search(r"lambda_max is ([\d.e+-]+), so step < ([\d.e+-]+)\. Try step='auto', which is", str(error))
    assert found is not None, str(error)
    return float(found[1]), float(found[2])


@modest
@given(graphs_with_edges())
def test_check_step_draws_the_line_at_two_over_lambda_max(graph: Graph) -> None:
    largest = eigenvalues(graph)[-1]
    check_step(graph, 2.0 / largest * (1 - 1e-9))
    told_largest, told_bound = refused_bound(graph, 2.0 / largest * (1 + 1e-9))
    assert told_largest == pytest.approx(largest, rel=1e-3)
    assert told_bound == pytest.approx(2.0 / largest, rel=1e-3)


@pytest.mark.parametrize(
    ("make", "margin"),
    [
        (lambda: star(100), RESIDUAL),
        (lambda: complete_graph(90), RESIDUAL),
        (lambda: bipartite(40, 60), RESIDUAL),
        (lambda: cube(7), RESIDUAL),
        (lambda: together(star(60), complete_graph(40)), RESIDUAL),
        (lambda: random_regular_graph(400, 10, rng=1), 2 * RESIDUAL),
        (lambda: gnp_random_graph(500, 0.02, rng=1), 2 * RESIDUAL),
    ],
    ids=["star", "complete", "bipartite", "cube", "apart", "regular", "gnp"],
)
def test_check_step_draws_the_same_line_by_lanczos(
    make: Callable[[], Graph], margin: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make()
    bound = 2.0 / eigenvalues(graph)[-1]
    force_lanczos(monkeypatch)
    check_step(graph, bound * (1 - margin))
    for step in (bound * (1 + margin), bound * 1.3, bound * 10):  # however wrong the step, the bound is the bound
        told_largest, told_bound = refused_bound(graph, step)
        assert told_largest == pytest.approx(2.0 / bound, rel=2 * RESIDUAL)
        assert told_bound == pytest.approx(bound, rel=2 * RESIDUAL)


@pytest.mark.parametrize("n", [100, 2000], ids=["dense", "lanczos"])
def test_the_step_of_the_paper_is_stable_although_it_is_above_one_over_lambda_max(n: int) -> None:
    """b = 0.1 on a 10-regular graph: b lambda_max is about 1.6, which is above 1 and below 2."""
    check_step(random_regular_graph(n, 10, rng=0), 0.1)


def test_check_step_accepts_any_step_where_nobody_has_a_neighbor(monkeypatch: pytest.MonkeyPatch) -> None:
    check_step(from_edges([], 5), 1e9)
    force_lanczos(monkeypatch)
    check_step(from_edges([], 5), 1e9)


@modest
@given(graphs_with_edges())
def test_stable_step_is_one_over_the_largest_degree_and_averages(graph: Graph) -> None:
    step, degree = stable_step(graph), graph.degrees.max()
    at_the_edge = eigenvalues(graph)[-1] > 2 * degree - 1e-9  # a regular bipartite component
    assert step == 1.0 / (degree + 1 if at_the_edge else degree)
    once = np.eye(graph.n_agents) - step * laplacian_matrix(graph)
    assert once.min() > -1e-15
    assert step * eigenvalues(graph)[-1] < 2.0
    check_step(graph, step)


@pytest.mark.parametrize("degree", [3, 4, 10])
def test_stable_step_is_accepted_and_nearly_the_fastest_on_random_regular_graphs(degree: int) -> None:
    graph = random_regular_graph(1000, degree, rng=2)
    check_step(graph, stable_step(graph))
    found = spectrum(graph)
    assert found.convergence_rate(stable_step(graph)) <= found.convergence_rate(found.fastest_step) * 1.02


# speed and limit


@modest
@given(graphs_with_edges(), st.floats(0.0, 3.0))
def test_fastest_step_is_the_best_of_all_steps(graph: Graph, factor: float) -> None:
    found = spectrum(graph)
    best = found.convergence_rate(found.fastest_step)
    assert best <= found.convergence_rate(factor * found.fastest_step) + 1e-12
    assert best == pytest.approx((found.largest - found.gap) / (found.largest + found.gap), abs=1e-12)
    assert best < 1


@modest
@given(graphs_with_edges(), st.floats(0.05, 0.99))
def test_convergence_rate_is_the_observed_decay(graph: Graph, share: float) -> None:
    """The matrix is symmetric, so the distance after k steps is exactly rate^k."""
    found = spectrum(graph)
    step = share * 2.0 / found.largest
    rate = found.convergence_rate(step)
    component = graph.components()
    same = component[:, None] == component[None, :]
    limit, once = same / same.sum(axis=1), np.eye(graph.n_agents) - step * laplacian_matrix(graph)
    for k in range(1, 13):
        distance = np.linalg.norm(np.linalg.matrix_power(once, k) - limit, 2)
        assert distance == pytest.approx(rate**k, rel=1e-7, abs=1e-12)


def test_a_graph_without_edges_has_converged() -> None:
    found = spectrum(from_edges([], 4))
    assert found.convergence_rate(0.3) == 0.0 and found.fastest_step == 1.0


def test_a_small_unstable_part_of_a_large_graph_is_found() -> None:
    """A star with 16 leaves (lambda_max 17) beside 20 000 agents of a regular graph (16): the star decides."""
    regular = random_regular_graph(20_000, 10, rng=1).edges()
    star = np.stack([np.full(16, 20_000), np.arange(20_001, 20_017)], axis=1)
    graph = from_edges(np.concatenate([regular, star]))
    with pytest.raises(MethodError, match="lambda_max is 17"):
        check_step(graph, 1.02 * 2 / 17)
    check_step(graph, 0.98 * 2 / 17)


def test_a_regular_bipartite_graph_is_the_edge_of_stability() -> None:
    ring = ring_lattice_graph(400, 2)
    with pytest.raises(MethodError, match="not stable"):
        check_step(ring, 0.5)
    check_step(ring_lattice_graph(401, 2), 0.5)  # an odd ring has no two sides


def test_an_end_that_did_not_converge_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of 3000 would need far more than the 300 steps that it gets, and it is given 40 here."""
    honest = spectrum_module._lanczos
    monkeypatch.setattr(spectrum_module, "_lanczos", lambda graph, _, *rest: honest(graph, 40, *rest))
    with pytest.warns(RuntimeWarning, match="may be smaller"):
        spectrum(ring_lattice_graph(3000, 2))


# Metropolis' matrix of C-colME


@modest
@given(graphs_with_edges())
def test_metropolis_matrix_is_symmetric_stochastic_and_that_of_the_degrees(graph: Graph) -> None:
    w, degree = metropolis_matrix(graph), graph.degrees
    assert np.array_equal(w, w.T) and np.allclose(w.sum(axis=1), 1.0) and (w >= 0).all()
    for a, b in graph.edges():
        assert w[a, b] == 1.0 / (max(degree[a], degree[b]) + 1.0)
