"""CL-colME by flow updating: every edge carries a flow, and an estimate is the own mean and what flowed in.

    F(t) = A(t) o ( F(t-1) + b (1 y(t-1)' - y(t-1) 1') ),      y(t) = X(t) + F(t) 1,      F(0) = 0

A is the graph after the pruning of t, o the product entry by entry. An entry moves only if both ends had an estimate.
"""

import numpy as np

from .common import Array, Radius, Result, initial_graph, laplace_radius, running_means
from .intervals import intervals, prune_by


def flow(
    samples: Array,
    adjacency: Array,
    *,
    sigma: float | Array,
    gamma: float,
    step: float,
    radius: Radius = laplace_radius,
    statistics: tuple[str, ...] = ("mean",),
    kept: Array | None = None,
) -> Result:
    """Run it; `step` is b. The adjacency of the result is the graph after the pruning of each step,
    which `kept` gives where it is not that of intervals."""
    steps, agents = samples.shape
    mean, count = running_means(samples)
    told = intervals(samples, sigma=sigma, gamma=gamma, radius=radius, statistics=statistics)
    graph = initial_graph(adjacency, agents)
    F = np.zeros((agents, agents))
    y = np.full(agents, np.nan)
    estimate = np.full((steps, agents), np.nan)
    graphs = np.zeros((steps, agents, agents), dtype=bool)

    for t in range(1, steps + 1):
        graph = prune_by(graph, told[t - 1]) if kept is None else graph & kept[t - 1]
        for a in range(agents):
            for j in range(agents):
                if not graph[a, j]:
                    F[a, j] = 0.0
                elif not np.isnan(y[a]) and not np.isnan(y[j]):
                    F[a, j] += step * (y[j] - y[a])
        y = mean[t - 1] + F.sum(axis=1)
        estimate[t - 1] = y
        graphs[t - 1] = graph
    return Result(mean, count, estimate, graphs)
