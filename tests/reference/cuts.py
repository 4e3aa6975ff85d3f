"""Difference tests: an edge is cut when (X_a - X_b)^2 > g.

v = sigma^2 / n is the variance of a local mean. Both rules are written as the e-processes of which g is the closed
form, with matrices, so that the closed form is judged and not repeated:

    D   one normal gap with precision rho in front of Z = (X_a - X_b) / u, which is Brownian motion at time I = 1 / u
    F   two normal shifts from the common mean mu, which is chosen against us
"""

import math
from collections.abc import Callable

import numpy as np

from .common import Array, initial_graph, per_agent, running_means

KAPPA = 0.5  # gap, in sigmas, at which the rules are sharpest
K = 4.0

Threshold = Callable[[float, float, float, float], float]


def precision(sigma_a: float, sigma_b: float, kappa: float = KAPPA) -> float:
    """rho = 2 / (kappa^2 (sigma_a^2 + sigma_b^2)), of the edge."""
    return 2 / (kappa**2 * (sigma_a**2 + sigma_b**2))


def difference(v_a: float, v_b: float, rho: float, alpha: float) -> float:
    """g of rule D: the square of the difference at which E = 1 / alpha.

    E = sqrt(rho / (I + rho)) exp(Z^2 / (2 (I + rho))), Z = (X_a - X_b) / u, I = 1 / u. With alpha = 1 it is the
    difference from which an edge is muted.
    """
    u = v_a + v_b
    information = 1 / u
    log_factor = 0.5 * math.log(rho / (information + rho))
    squared_z = 2 * (information + rho) * (math.log(1 / alpha) - log_factor)
    return squared_z * u**2


def any_counts(v_a: float, v_b: float, rho: float, alpha: float, k: float = K) -> float:
    """g of rule F: the square of the difference at which the infimum over mu of E(mu) is 1 / alpha.

    E(mu) = det(I + C V^-1)^(-1/2) exp(e' M e / 2), M = (V + V C^-1 V)^-1, e = (X_a - mu, X_b - mu). C is the
    covariance of (m + h/2, m - h/2) with h ~ N(0, 1 / rho), m ~ N(0, 1 / (4 rho K)). The quadratic form is smallest at
    the mu at which 1' M e = 0.
    """
    h, m = 1 / rho, 1 / (4 * rho * k)
    C = np.array([[m + h / 4, m - h / 4], [m - h / 4, m + h / 4]])
    V = np.diag([v_a, v_b])
    M = np.linalg.inv(V + V @ np.linalg.inv(C) @ V)
    one = np.ones(2)
    e = np.array([1.0, 0.0])  # a difference of 1, before the worst mu is taken
    e = e - one * (one @ M @ e) / (one @ M @ one)
    log_det = math.log(np.linalg.det(np.eye(2) + C @ np.linalg.inv(V)))
    return float((log_det + 2 * math.log(1 / alpha)) / (e @ M @ e))


def level_alpha(level: str | float, delta: float, adjacency: Array, *, own_counts: bool = False) -> Array:
    """(N, N) alpha of every edge: "edge", "agent", or a number, which is alpha itself. 0 where there is no edge.

    edge    delta / E, E the undirected edges; delta / (2 E) if the two ends see counts of their own (own_counts)
    agent   delta / r, r the degree, the larger of the two ends
    """
    agents = len(adjacency)
    degree = adjacency.sum(axis=1)
    alpha = np.zeros((agents, agents))
    for a in range(agents):
        for b in range(agents):
            if not adjacency[a, b]:
                continue
            if level == "edge":
                alpha[a, b] = delta / (adjacency.sum() / 2) / (2 if own_counts else 1)
            elif level == "agent":
                alpha[a, b] = delta / max(degree[a], degree[b])
            else:
                alpha[a, b] = float(level)
    return alpha


def cuts(samples: Array, adjacency: Array, *, sigma: float | Array, alpha: Array, rule: Threshold) -> Array:
    """(T, N, N) bool, the graph after the cuts of each step. An edge is kept until both ends have a sample."""
    steps, agents = samples.shape
    mean, count = running_means(samples)
    scale = per_agent(sigma, agents)
    graph = initial_graph(adjacency, agents)
    graphs = np.zeros((steps, agents, agents), dtype=bool)
    for i in range(steps):
        for a in range(agents):
            for b in range(a):
                n_a, n_b = int(count[i, a]), int(count[i, b])
                if graph[a, b] and n_a > 0 and n_b > 0:
                    rho = precision(scale[a], scale[b])
                    g = rule(scale[a] ** 2 / n_a, scale[b] ** 2 / n_b, rho, float(alpha[a, b]))
                    graph[a, b] = graph[b, a] = (mean[i, a] - mean[i, b]) ** 2 <= g
        graphs[i] = graph
    return graphs


def smallest(holds: Callable[[int], bool]) -> int:
    """The smallest n >= 1 for which this holds, where it holds from some n on."""
    n = 1
    while not holds(n):
        n += 1
    return n


def intersection(gap: float, sigma: float, alpha: float, rule: Threshold = difference) -> int:
    """The smallest equal count at which g <= gap^2."""
    rho = precision(sigma, sigma)
    return smallest(lambda n: rule(sigma**2 / n, sigma**2 / n, rho, alpha) <= gap**2)


def guaranteed(gap: float, sigma: float, alpha: float, rule: Threshold = difference) -> int:
    """The smallest equal count at which g <= gap^2 / 4: by then the edge is cut, but for an event of alpha."""
    return intersection(gap / 2, sigma, alpha, rule)


def c(n: float, alpha: float, kappa: float = KAPPA) -> float:
    """c(n) = (1 + m / n) (ln(1 + n / m) + L), m = 2 / kappa^2: g = (sigma_a^2 + sigma_b^2) c(n) / n for rule D."""
    m = 2 / kappa**2
    return (1 + m / n) * (math.log(1 + n / m) + 2 * math.log(1 / alpha))


def _fixed_point(start: float, f: Callable[[float], float]) -> float:
    n = start
    for _ in range(200):
        n = f(n)
    return n


def mean_time(gap: float, sigma_a: float, sigma_b: float, alpha: float) -> float:
    """n = n0 (c(n) - 1): about the mean first cut, at equal counts."""
    n0 = (sigma_a**2 + sigma_b**2) / gap**2
    return _fixed_point(n0 * 2 * math.log(1 / alpha), lambda n: n0 * (c(n, alpha) - 1))


def last_time(gap: float, sigma_a: float, sigma_b: float, alpha: float, z: float) -> float:
    """n = n0 (sqrt(c(n)) + z)^2: about the last of M first cuts, z the 1 - 1 / M quantile of N(0, 1)."""
    n0 = (sigma_a**2 + sigma_b**2) / gap**2
    return _fixed_point(n0 * 2 * math.log(1 / alpha), lambda n: n0 * (math.sqrt(c(n, alpha)) + z) ** 2)


def wald_bound(gap: float, sigma_a: float, sigma_b: float, alpha: float) -> float:
    """2 n0 ln(1 / alpha): no rule of this level that cuts with probability 1 has a smaller mean time."""
    return 2 * (sigma_a**2 + sigma_b**2) / gap**2 * math.log(1 / alpha)
