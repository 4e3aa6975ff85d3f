"""What all the methods share: running means, confidence radii, pruning (METHODS sections 0, 1, 2)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
Radius = Callable[[int, float, float], float]


@dataclass
class Result:
    """Everything a run produced; row i belongs to step t = i + 1."""

    mean: Array
    """(T, N) local means X, NaN as long as an agent has no sample."""
    count: Array
    """(T, N) numbers of samples n, integer."""
    estimate: Array
    """(T, N) estimates y, NaN as long as an agent has no sample."""
    adjacency: Array
    """(T, N, N) bool, the surviving graph after the pruning of the step (see each method)."""


def running_means(samples: Array) -> tuple[Array, Array]:
    """Section 0: n += 1, then X += (x - X) / n; a NaN sample leaves both as they are.

    Returns X and n, both (T, N), after every step. X is NaN while n = 0.
    """
    steps, agents = samples.shape
    mean = np.full((steps, agents), math.nan)
    count = np.zeros((steps, agents), dtype=np.int64)
    for a in range(agents):
        n = 0
        x_bar = 0.0
        for i in range(steps):
            x = float(samples[i, a])
            if not math.isnan(x):
                n += 1
                x_bar += (x - x_bar) / n
            count[i, a] = n
            if n > 0:
                mean[i, a] = x_bar
    return mean, count


def laplace_radius(n: int, sigma: float, gamma: float) -> float:
    """Section 1: R(n) = sigma sqrt( 2/n (1 + 1/n) ln( sqrt(n+1) / gamma ) ), R(0) infinite."""
    if n == 0:
        return math.inf
    return sigma * math.sqrt(2 / n * (1 + 1 / n) * math.log(math.sqrt(n + 1) / gamma))


def fourth_moment_radius(n: int, sigma: float, gamma: float, kappa: float = 3.0) -> float:
    """Section 1: R(n) = ( 2 (kappa+3) sigma^4 / gamma )^(1/4) ( (1 + ln(n)^2) / n )^(1/4), R(0) infinite."""
    if n == 0:
        return math.inf
    return float((2 * (kappa + 3) * sigma**4 / gamma) ** (1 / 4) * ((1 + math.log(n) ** 2) / n) ** (1 / 4))


def per_agent(sigma: float | Array, agents: int) -> list[float]:
    """One sigma for everybody, or one per agent, as a list of N floats."""
    return [float(s) for s in np.broadcast_to(np.asarray(sigma, dtype=float), (agents,))]


def radii(count: Array, sigma: list[float], gamma: float, radius: Radius) -> list[float]:
    """R(n_a) of every agent at one step."""
    return [radius(int(n), s, gamma) for n, s in zip(count, sigma, strict=True)]


def prune(adjacency: Array, mean: Array, radius: list[float]) -> Array:
    """Section 2: keep the edge {a, b} iff |X_a - X_b| <= R(n_a) + R(n_b).

    An infinite interval meets every other one. Edges that are already gone stay gone.
    """
    agents = len(adjacency)
    kept = np.zeros((agents, agents), dtype=bool)
    for a in range(agents):
        for b in range(agents):
            if adjacency[a, b]:
                unbounded = math.isinf(radius[a]) or math.isinf(radius[b])
                kept[a, b] = unbounded or abs(mean[a] - mean[b]) <= radius[a] + radius[b]
    return kept


def initial_graph(adjacency: Array, agents: int) -> Array:
    """A copy of the initial graph, which must be simple and undirected."""
    graph = np.array(adjacency, dtype=bool)
    if graph.shape != (agents, agents) or (graph != graph.T).any() or graph.diagonal().any():
        raise ValueError("adjacency must be (N, N), symmetric and zero on the diagonal")
    return graph
