"""What the graph says about speed: the Laplacian's spectrum, stable and fastest steps, convergence and its limit.

Consensus with I - bL multiplies the disagreement along the Laplacian's eigenvector of eigenvalue l by 1 - b l. It is
stable iff b lambda_max < 2, non-negative (an average of neighbors) iff b <= 1 / max degree, and on a fixed connected
graph fastest at b = 2 / (lambda_2 + lambda_max). Pruning only lowers eigenvalues, so a stable step stays stable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._jit import kernel
from colme.errors import GraphError, MethodError
from colme.graphs import Graph

DENSE = 1500
"""Up to this many agents the spectrum is computed from the dense matrix, exactly."""
QUICK = 200
"""Up to this many agents the dense matrix is also the quickest way to the largest eigenvalue."""


@dataclass(frozen=True)
class Spectrum:
    """Extreme Laplacian eigenvalues. `gap` is the smallest positive one: the slowest disagreement within a component
    (lambda_2 when the graph is connected)."""

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
def _laplacian_times(indptr, indices, x, out):
    for a in range(x.size):
        total = 0.0
        for k in range(indptr[a], indptr[a + 1]):
            total += x[a] - x[indices[k]]
        out[a] = total


@kernel
def _largest_degree_sum(indptr, indices):
    """max over edges of D_a + D_b, which bounds lambda_max (Anderson & Morley 1985)."""
    most = 0
    for a in range(indptr.size - 1):
        degree = indptr[a + 1] - indptr[a]
        for k in range(indptr[a], indptr[a + 1]):
            b = indices[k]
            most = max(most, degree + indptr[b + 1] - indptr[b])
    return most


def laplacian_matrix(graph: Graph) -> NDArray[np.float64]:
    """L = D - A as a dense matrix."""
    adjacency = graph.adjacency().astype(float)
    return np.diag(adjacency.sum(axis=1)) - adjacency


def spectrum(graph: Graph) -> Spectrum:
    """The spectrum of a graph, for example of the surviving one: `spectrum(trace.final.graph)`.

    Exact up to `DENSE` agents; beyond, the two ends by Lanczos' method, to a residual of 0.1 % (the eigenvalues
    themselves are then far more accurate)."""
    component = graph.components()
    n_components = int(component.max()) + 1
    if graph.n_agents <= DENSE:
        values = np.linalg.eigvalsh(laplacian_matrix(graph))
        positive = values[n_components:]  # the kernel has one dimension per component
        if len(positive) == 0:
            return Spectrum(0.0, 0.0, n_components)
        return Spectrum(float(positive[0]), float(values[-1]), n_components)
    if graph.n_edges == 0:
        return Spectrum(0.0, 0.0, n_components)
    low, high = _lanczos(graph, component)
    return Spectrum(low, high, n_components)


def _lanczos(
    graph: Graph, component: NDArray[np.int64] | None, *, limit: float | None = None, tolerance: float = 1e-3
) -> tuple[float, float]:
    """Extreme eigenvalues on the space orthogonal to the components' indicators, by Lanczos' method with full
    reorthogonalisation. With `limit` it looks at the upper end only, and stops early when that is clearly below."""
    n = graph.n_agents
    rng = np.random.default_rng(n)
    sizes = None if component is None else np.bincount(component)

    def project(v: NDArray[np.float64]) -> NDArray[np.float64]:
        if component is None or sizes is None:
            return v
        return v - (np.bincount(component, v) / sizes)[component]

    steps = min(n - 1, max(60, min(300, 2**27 // n)) if limit is None else 60)  # the basis takes at most 1 GiB
    basis = np.empty((steps + 1, n))
    basis[0] = project(rng.standard_normal(n))
    basis[0] /= np.linalg.norm(basis[0])
    diagonal, off = list[float](), list[float]()
    product = np.empty(n)
    low = high = 0.0
    for k in range(steps):
        _laplacian_times(graph.indptr, graph.indices, basis[k], product)
        diagonal.append(float(basis[k] @ product))
        w = product - diagonal[-1] * basis[k]
        if off:
            w -= off[-1] * basis[k - 1]
        if limit is None:
            for _ in range(2):  # twice: one pass leaves errors that grow with every step
                w -= basis[: k + 1].T @ (basis[: k + 1] @ w)
        w = project(w)
        beta = float(np.linalg.norm(w))
        values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
        low, high = float(values[0]), float(values[-1])
        residual_low, residual_high = abs(beta * vectors[-1, 0]), abs(beta * vectors[-1, -1])
        if beta < 1e-12 * max(high, 1.0):
            break
        if limit is None:
            if max(residual_low / max(low, 1e-300), residual_high / high) < tolerance:
                break
        elif residual_high < tolerance * high or (k >= 8 and high + residual_high < limit):
            break
        off.append(beta)
        basis[k + 1] = w / beta
    return low, high


def check_step(graph: Graph, step: float) -> None:
    """Refuse a step that makes consensus on this graph diverge."""
    if not 0 < step < np.inf:
        raise MethodError(f"step={step}: it must be positive and finite. Try step='auto'.")
    if step * _largest_degree_sum(graph.indptr, graph.indices) < 2.0:
        return
    if graph.n_agents <= QUICK:
        largest = spectrum(graph).largest
    else:
        largest = _lanczos(graph, None, limit=2.0 / step)[1]
    if step * largest >= 2.0:
        raise MethodError(
            f"step={step:g} is not stable on this graph: step * lambda_max must be below 2 and lambda_max is "
            f"{largest:.4g}, so step < {2.0 / largest:.4g}. Try step='auto'."
        )


def stable_step(graph: Graph) -> float:
    """1 / max degree: stable and non-negative on every graph, and the fastest step on a random regular one."""
    return 1.0 / max(1, graph.max_degree)


def consensus_limit(graph: Graph) -> NDArray[np.float64]:
    """What (I - bL)^k tends to: the mean over each component, a block 1/|component| (dense, for small graphs)."""
    component = graph.components()
    same = component[:, None] == component[None, :]
    return same / same.sum(axis=1, keepdims=True)


def distance_to_limit(graph: Graph, step: float, n_steps: int) -> NDArray[np.float64]:
    """|| (I - bL)^k - limit ||_2 for k = 1..n_steps: the statement that I - bL averages each component, in numbers."""
    if graph.n_agents > DENSE:
        raise GraphError(f"{graph.n_agents} agents: this is a dense computation, made for at most {DENSE}.")
    once = np.eye(graph.n_agents) - step * laplacian_matrix(graph)
    limit = consensus_limit(graph)
    power: Any = np.eye(graph.n_agents)
    distances = []
    for _ in range(n_steps):
        power = power @ once
        distances.append(np.linalg.norm(power - limit, 2))
    return np.array(distances)
