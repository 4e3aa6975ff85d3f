"""C-colME: consensus with a doubly stochastic matrix (METHODS section 6; arXiv 2402.12812).

    W_ab = 1 / (max(D_a, D_b) + 1)  on surviving edges,   W_aa = 1 - sum_b W_ab
    y(t) = (1 - alpha(t)) X(t) + alpha(t) W(t) y(t-1),      y(1) = X(1)

D are the degrees after the pruning of t.
"""

import numpy as np

from . import clocks
from .common import Array, Radius, Result, initial_graph, laplace_radius, running_means
from .intervals import intervals, prune_by


def metropolis(adjacency: Array, speaks: Array) -> Array:
    """W. An edge to a silent agent counts in the degrees, but its weight goes to the diagonal."""
    agents = len(adjacency)
    degree = adjacency.sum(axis=1)
    W = np.zeros((agents, agents))
    for a in range(agents):
        for b in range(agents):
            if adjacency[a, b] and speaks[a] and speaks[b]:
                W[a, b] = 1 / (max(degree[a], degree[b]) + 1)
    for a in range(agents):
        W[a, a] = 1 - W[a].sum()
    return W


def c_colme(
    samples: Array,
    adjacency: Array,
    *,
    sigma: float | Array,
    gamma: float,
    clock: str,
    alpha: float | None = None,
    radius: Radius = laplace_radius,
    statistics: tuple[str, ...] = ("mean",),
    kept: Array | None = None,
) -> Result:
    """Run C-colME. The adjacency of the result is the graph after the pruning of each step,
    which `kept` gives where it is not that of intervals."""
    clocks.check(clock, alpha)
    steps, agents = samples.shape
    mean, count = running_means(samples)
    told = intervals(samples, sigma=sigma, gamma=gamma, radius=radius, statistics=statistics)
    graph = initial_graph(adjacency, agents)
    own = [2] * agents
    restart = [2] * agents
    y = np.full(agents, np.nan)
    estimate = np.full((steps, agents), np.nan)
    graphs = np.zeros((steps, agents, agents), dtype=bool)

    for t in range(1, steps + 1):
        X = mean[t - 1]
        n = count[t - 1]

        # pruning with X(t), n(t)
        before = graph
        graph = prune_by(before, told[t - 1]) if kept is None else before & kept[t - 1]

        # clocks
        own = clocks.own_last_cut(t, own, before, graph)
        restart = clocks.restarts(clock, t, restart, own, before, graph, n)

        # W y(t-1), over the agents that have an estimate y(t-1)
        speaks = ~np.isnan(y)
        W = metropolis(graph, speaks)
        mixed = W @ np.where(speaks, y, 0.0)

        # the recursion
        new = np.full(agents, np.nan)
        for a in range(agents):
            if n[a] == 0:
                continue
            first_sample = not speaks[a]
            isolated = not graph[a].any()
            if first_sample or isolated:
                new[a] = X[a]
            else:
                rate = clocks.rate(clock, t, restart[a], alpha)
                new[a] = (1 - rate) * X[a] + rate * mixed[a]
        y = new
        estimate[t - 1] = y
        graphs[t - 1] = graph
    return Result(mean, count, estimate, graphs)
