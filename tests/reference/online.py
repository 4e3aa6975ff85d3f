"""CL-colME event by event: dense matrices and plain Python, for a given graph.

An event (a, x): a counts x; drops every neighbor b with |X_a - X_b| > R_a + R_b, where R_b is what b had at its own
last event; works out alpha = k / (k + 1), k its own samples since its clock restarted; and leans towards its kept
neighbors,

    y_a <- (1 - alpha) X_a + alpha (y_a - b (L y)_a),

with L of the graph that is left, between those who have an estimate.
"""

import math

import numpy as np

from .common import Array, laplace_radius
from .cuts import any_counts, precision


def online(
    events: list[tuple[int, float]], adjacency: Array, *, sigma: float, gamma: float, step: float, clock: str,
    cut: str = "intervals",
) -> tuple[Array, Array]:  # fmt: skip
    """Estimates and adjacency after all events; with cut="difference", gamma is the alpha of rule F."""
    n = len(adjacency)
    graph = np.array(adjacency, bool)
    samples: list[list[float]] = [[] for _ in range(n)]
    radius = [math.inf] * n
    last_cut, news, restart = [0] * n, [0] * n, [2] * n
    cut_anywhere = 0
    y = np.full(n, np.nan)

    for number, (a, x) in enumerate(events, start=1):
        samples[a].append(x)
        count = len(samples[a])
        mean = [float(np.mean(s)) if s else math.nan for s in samples]
        radius[a] = laplace_radius(count, sigma, gamma)

        for b in range(n):
            if not (graph[a, b] and samples[b]):
                continue
            apart = abs(mean[a] - mean[b]) > radius[a] + radius[b]
            if cut == "difference":
                v_a, v_b = (sigma**2 / len(samples[each]) for each in (a, b))
                apart = (mean[a] - mean[b]) ** 2 > any_counts(v_a, v_b, precision(sigma, sigma), gamma)
            if apart:
                graph[a, b] = graph[b, a] = False
                last_cut[a] = last_cut[b] = cut_anywhere = number

        known = {
            "harmonic": [0],
            "own": [last_cut[a]],
            "global": [last_cut[a], cut_anywhere],
            "gossip": [last_cut[a], *(news[b] for b in range(n) if graph[a, b])],
        }[clock]
        if max(known) > news[a]:
            news[a] = max(known)
            restart[a] = max(count, 2)
        k = count - restart[a] + 1
        alpha = k / (k + 1)

        if math.isnan(y[a]) or not graph[a].any():
            y[a] = mean[a]
            continue
        speaks = ~np.isnan(y)
        edges = (graph & np.outer(speaks, speaks)).astype(float)
        laplacian = np.diag(edges.sum(axis=1)) - edges
        pull = -float(laplacian[a] @ np.where(speaks, y, 0.0))
        y[a] = (1 - alpha) * mean[a] + alpha * (y[a] + step * pull)
    return y, graph
