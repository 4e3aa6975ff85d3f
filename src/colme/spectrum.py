"""The spectrum of a graph: eigenvalues of its Laplacian, stable and fastest steps, convergence.

Consensus with I - bL multiplies the disagreement along the Laplacian's eigenvector of eigenvalue l by 1 - b l. It is
stable iff b lambda_max < 2, non-negative (an average of neighbors) iff b <= 1 / max degree, and on a fixed connected
graph fastest at b = 2 / (lambda_2 + lambda_max). Pruning only lowers eigenvalues, so a stable step stays stable.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from colme._core.jit import kernel
from colme.consensus import stable_step
from colme.errors import MethodError, positive
from colme.graphs import Graph, GraphTotals
from colme.support.arrays import Floats, Integers

DENSE = 1500
"""Up to this many agents the spectrum is computed from the dense matrix, exactly."""
QUICK = 200
"""Up to this many agents the dense matrix is also the quickest way to the largest eigenvalue."""


@dataclass(frozen=True)
class Spectrum:
    """Extreme Laplacian eigenvalues. `gap` is the smallest positive one: the slowest disagreement within a component
    (lambda_2 when the graph is connected).

    >>> from colme.graphs import random_regular_graph
    >>> graph = random_regular_graph(100, 10, rng=0)
    >>> round(spectrum(graph).convergence_rate(0.1), 2)
    0.57

    See also: spectrum, stable_step
    """

    gap: float
    largest: float
    n_components: int

    @property
    def fastest_step(self) -> float:
        """b = 2 / (gap + largest), the best fixed step on this graph."""
        return 2.0 / (self.gap + self.largest) if self.largest > 0 else 1.0

    def convergence_rate(self, step: float) -> float:
        """Factor per step by which the slowest disagreement within a component shrinks: max |1 - b lambda|."""
        if self.largest == 0:
            return 0.0
        return max(abs(1.0 - step * self.gap), abs(1.0 - step * self.largest))


@kernel
def _times_laplacian(indptr, indices, x, out):
    for a in range(x.size):
        total = 0.0
        for k in range(indptr[a], indptr[a + 1]):
            total += x[a] - x[indices[k]]
        out[a] = total


def laplacian_matrix(graph: Graph) -> Floats:
    """L = D - A as a dense matrix.

    graph  a `Graph`

    >>> from colme.graphs import ring_lattice_graph
    >>> graph = ring_lattice_graph(4, 2)
    >>> laplacian_matrix(graph).astype(int).tolist()
    [[2, -1, 0, -1], [-1, 2, -1, 0], [0, -1, 2, -1], [-1, 0, -1, 2]]

    See also: metropolis_matrix, spectrum
    """
    return np.diag(graph.degrees.astype(float)) - graph.adjacency()


def metropolis_matrix(graph: Graph) -> Floats:
    """C-colME's W as a dense matrix: W_ab = 1 / (max(D_a, D_b) + 1) on edges, and rows that add up to one.

    graph  a `Graph`

    >>> from colme.graphs import ring_lattice_graph
    >>> graph = ring_lattice_graph(4, 2)
    >>> metropolis_matrix(graph).round(2).tolist()[0]
    [0.33, 0.33, 0.0, 0.33]

    See also: laplacian_matrix, CColME
    """
    weights = np.zeros((graph.n_agents, graph.n_agents))
    weights[graph.owners, graph.indices] = metropolis_weights(graph, graph.degrees)
    return weights + np.diag(1.0 - weights.sum(axis=1))


def metropolis_weights(graph: Graph, seen: Integers) -> Floats:
    """Metropolis' weight of each slot of the rows; `seen` are the degrees of the agents that the slots point to, more
    than those of the rows where the graph is a part."""
    degree = graph.degrees
    return 1.0 / (np.maximum(np.repeat(degree, degree), seen[graph.indices]) + 1.0)


def spectrum(graph: Graph) -> Spectrum:
    """The spectrum of a graph, for example of the surviving one: `spectrum(trace.final.graph)`.

    Exact up to `DENSE` agents; beyond, the two ends by Lanczos' method, to a residual of 0.1 % (the eigenvalues
    themselves are then far more accurate). It warns if an end did not get that far, as on a long ring.

    graph  a `Graph`

    >>> from colme.graphs import random_regular_graph
    >>> graph = random_regular_graph(100, 10, rng=0)
    >>> found = spectrum(graph)
    >>> round(found.gap, 1), round(found.largest, 1), round(found.fastest_step, 2)
    (4.7, 15.7, 0.1)

    See also: Spectrum, stable_step
    """
    component = graph.components()
    n_components = int(component.max()) + 1
    if graph.n_edges == 0:
        return Spectrum(0.0, 0.0, n_components)
    if graph.n_agents <= DENSE:
        values = np.linalg.eigvalsh(laplacian_matrix(graph))
        # the kernel has one dimension per component
        return Spectrum(float(values[n_components]), float(values[-1]), n_components)
    sizes = np.bincount(component)

    def project(v: Floats) -> Floats:
        """Onto the space in which every component has mean zero: away from the kernel."""
        return v - (np.bincount(component, v) / sizes)[component]

    n_steps = max(60, min(300, 2**27 // graph.n_agents))  # the basis takes at most 1 GiB
    low = high = error = 0.0
    for low, high, error_low, error_high in _lanczos(graph, n_steps, project):
        error = max(error_low / max(low, 1e-300), error_high / high)
        if error < 1e-3:
            break
    else:
        warnings.warn(
            f"Lanczos' method ended {error:.1%} from an eigenvalue: the gap, {low:.3g}, may be smaller. "
            f"On up to {DENSE} agents it is exact.",
            RuntimeWarning,
            stacklevel=2,
        )
    return Spectrum(low, high, n_components)


def _lanczos(
    graph: Graph, n_steps: int, project: Callable[[Floats], Floats] | None
) -> Iterator[tuple[float, float, float, float]]:
    """After each step: the smallest and largest Ritz value, and how far at most an eigenvalue is from each.

    With a projection the basis is kept and orthogonalised fully, which the lower end needs; without, two rows do."""
    n = graph.n_agents
    n_rows = n_steps if project else 2
    basis = np.empty((n_rows, n))
    v = np.random.default_rng(n).standard_normal(n)
    v = project(v) if project else v
    basis[0] = v / np.linalg.norm(v)
    diagonal, off = list[float](), list[float]()
    product = np.empty(n)
    for k in range(min(n_steps, n)):
        current = basis[k % n_rows]
        _times_laplacian(graph.indptr, graph.indices, current, product)
        diagonal.append(float(current @ product))
        w = product - diagonal[-1] * current
        if off:
            w -= off[-1] * basis[(k - 1) % n_rows]
        if project:
            for _ in range(2):  # twice: one pass leaves errors that grow with every step
                w -= basis[: k + 1].T @ (basis[: k + 1] @ w)
            w = project(w)
        beta = float(np.linalg.norm(w))
        values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
        yield float(values[0]), float(values[-1]), abs(beta * vectors[-1, 0]), abs(beta * vectors[-1, -1])
        if beta < 1e-12 * max(values[-1], 1.0):
            return
        off.append(beta)
        basis[(k + 1) % n_rows] = w / beta


def check_step(graph: Graph | GraphTotals, step: float) -> None:
    """Refuse a step that makes consensus on this graph diverge. The workers of a team, who know only the totals of
    their graph, also refuse steps beyond 1 / max degree that it might bear."""
    positive(step, "step", "step='auto'", MethodError)
    bound = 2 * graph.max_degree  # at least lambda_max
    if step * bound < 2.0 or (step * bound == 2.0 and not graph.bipartite):
        return
    remedy = f"Try step='auto', which is {stable_step(graph):.4g}."
    if isinstance(graph, GraphTotals):
        raise MethodError(
            f"step={step:g} with ranks or threads: it must be at most 1 / max degree, {2.0 / bound:g}, where every "
            f"graph is stable. {remedy}"
        )
    if graph.bipartite:
        largest = float(bound)
    elif graph.n_agents <= QUICK:
        largest = spectrum(graph).largest
    else:
        largest = _largest_eigenvalue(graph, 2.0 / step)
    if step * largest >= 2.0:
        raise MethodError(
            f"step={step:g} is not stable on this graph: step * lambda_max must be below 2 and lambda_max is "
            f"{largest:.4g}, so step < {2.0 / largest:.4g}. {remedy}"
        )


def _largest_eigenvalue(graph: Graph, limit: float) -> float:
    """lambda_max, or any number below the limit if lambda_max is: with probability 1 - 1e-6 over the start vector it
    is within a factor 1 - (ln(1.648 sqrt(n) / 1e-6) / (2k-1))^2 after k steps (Kuczynski & Wozniakowski 1992)."""
    high = 0.0
    luck = np.log(1.648e6 * np.sqrt(graph.n_agents))
    for k, (_, high, _, error) in enumerate(_lanczos(graph, 120, None), start=1):
        if high < (1.0 - (luck / (2 * k - 1)) ** 2) * limit or (high >= limit and error < 1e-3 * high):
            break
    return high
