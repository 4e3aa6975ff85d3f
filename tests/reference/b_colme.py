"""B-colME: messages over d hops (METHODS section 5; arXiv 2402.12812).

State of a per kept neighbor b and hop h = 1..d: (S_bh, K_bh). Message b -> a at t, from b's state at t-1:

    hop 1:       (X_b, 1)
    hop h >= 2:  sums over the kept neighbors c != a of b of (S_c,h-1 , K_c,h-1)

    y_a(t) = ( t X_a + sum_b sum_h (t-h) S_bh ) / ( t + sum_b sum_h (t-h) K_bh )

That is `b_colme_literal`, where everybody has t samples at step t. In `b_colme` counts may differ: S carries
sums of n X and K sums of n, so that the factor (t-h) is inside:

    y_a(t) = ( n_a X_a + sum_b sum_h S_bh ) / ( n_a + sum_b sum_h K_bh )
"""

import numpy as np

from .common import Array, Radius, Result, initial_graph, laplace_radius, running_means
from .intervals import intervals, prune_by


def b_colme(
    samples: Array,
    adjacency: Array,
    *,
    sigma: float | Array,
    gamma: float,
    depth: int,
    radius: Radius = laplace_radius,
    statistics: tuple[str, ...] = ("mean",),
    kept: Array | None = None,
) -> Result:
    """Run B-colME, `depth` is d. The adjacency of the result is the graph after the pruning of each step,
    which `kept` gives where it is not that of intervals.

    An agent that had no sample at t-1 sends nothing at t, its own data or anybody else's.
    """
    steps, agents = samples.shape
    mean, count = running_means(samples)
    told = intervals(samples, sigma=sigma, gamma=gamma, radius=radius, statistics=statistics)
    graph = initial_graph(adjacency, agents)
    S = np.zeros((agents, agents, depth + 1))  # S[a, b, h], h = 1..depth; nothing is held at t = 0
    K = np.zeros((agents, agents, depth + 1))
    estimate = np.full((steps, agents), np.nan)
    graphs = np.zeros((steps, agents, agents), dtype=bool)

    for t in range(1, steps + 1):
        X = mean[t - 1]
        n = count[t - 1]
        before = graph
        graph = prune_by(before, told[t - 1]) if kept is None else before & kept[t - 1]

        # messages b -> a from the state of t-1; the rows of cut neighbors stay erased (zero)
        new_S = np.zeros_like(S)
        new_K = np.zeros_like(K)
        for a in range(agents):
            for b in range(agents):
                if not graph[a, b]:
                    continue
                if t == 1 or count[t - 2, b] == 0:
                    continue
                new_S[a, b, 1] = count[t - 2, b] * mean[t - 2, b]
                new_K[a, b, 1] = count[t - 2, b]
                for h in range(2, depth + 1):
                    for c in range(agents):
                        if before[b, c] and c != a:
                            new_S[a, b, h] += S[b, c, h - 1]
                            new_K[a, b, h] += K[b, c, h - 1]
        S = new_S
        K = new_K

        for a in range(agents):
            if n[a] == 0:
                continue
            numerator = n[a] * X[a]
            denominator = float(n[a])
            for b in range(agents):
                for h in range(1, depth + 1):
                    numerator += S[a, b, h]
                    denominator += K[a, b, h]
            estimate[t - 1, a] = numerator / denominator
        graphs[t - 1] = graph
    return Result(mean, count, estimate, graphs)


def b_colme_literal(
    samples: Array,
    adjacency: Array,
    *,
    sigma: float | Array,
    gamma: float,
    depth: int,
    radius: Radius = laplace_radius,
    statistics: tuple[str, ...] = ("mean",),
) -> Result:
    """The formula of the paper to the letter, for samples without NaN. X(0) = 0, its weight t-h is zero."""
    if np.isnan(samples).any():
        raise ValueError("the literal formula knows no missing samples")
    steps, agents = samples.shape
    mean, count = running_means(samples)
    told = intervals(samples, sigma=sigma, gamma=gamma, radius=radius, statistics=statistics)
    graph = initial_graph(adjacency, agents)
    X = np.zeros(agents)
    S = np.zeros((agents, agents, depth + 1))
    K = np.zeros((agents, agents, depth + 1))
    estimate = np.full((steps, agents), np.nan)
    graphs = np.zeros((steps, agents, agents), dtype=bool)

    for t in range(1, steps + 1):
        X_before = X
        X = mean[t - 1]
        before = graph
        graph = prune_by(before, told[t - 1])

        new_S = np.zeros_like(S)
        new_K = np.zeros_like(K)
        for a in range(agents):
            for b in range(agents):
                if graph[a, b]:
                    new_S[a, b, 1] = X_before[b]
                    new_K[a, b, 1] = 1
                    for h in range(2, depth + 1):
                        for c in range(agents):
                            if before[b, c] and c != a:
                                new_S[a, b, h] += S[b, c, h - 1]
                                new_K[a, b, h] += K[b, c, h - 1]
        S = new_S
        K = new_K

        for a in range(agents):
            numerator = t * X[a]
            denominator = float(t)
            for b in range(agents):
                for h in range(1, depth + 1):
                    numerator += (t - h) * S[a, b, h]
                    denominator += (t - h) * K[a, b, h]
            estimate[t - 1, a] = numerator / denominator
        graphs[t - 1] = graph
    return Result(mean, count, estimate, graphs)
