"""colME: everybody may ask everybody (METHODS section 4; arXiv 2208.11530).

State of a: the mean and count (X_al, n_al) that it last heard from every l. One step:

    (1) all perceive
    (2) C_a = { l : |X_aa - X_al| - R(n_aa) - R(n_al) <= 0 },   unseen l are in
    (3) query: round robin over everybody, or restricted to C_a
    (4) store the fresh (X, n) of the queried agent
    (5) recompute C_a
    (6) y_a = sum over C_a of w n X / sum over C_a of w n
"""

import math

import numpy as np

from .common import Array, Radius, Result, laplace_radius, running_means
from .intervals import intervals

WEIGHTS = ("simple", "soft", "aggressive")


def members(a: int, n: Array, held: list[list[tuple[float, float]]]) -> list[bool]:
    """C_a from what a holds of every l: n[l] and, for each statistic, (center, radius) held[..][l]."""
    inside = []
    for m in range(len(n)):
        touches = True
        for pairs in held:
            (x, r), (y, q) = pairs[a], pairs[m]
            if n[a] > 0 and n[m] > 0 and math.isfinite(r) and math.isfinite(q) and abs(x - y) - r - q > 0:
                touches = False
        inside.append(touches)
    return inside


def weight(weights: str, X_a: float, R_a: float, X_l: float, R_l: float) -> float:
    """w of a member l that has been seen: its interval I_l against the own interval I_a."""
    if weights == "simple" or math.isinf(R_a) or math.isinf(R_l):
        return 1.0
    intersection = max(0.0, min(X_a + R_a, X_l + R_l) - max(X_a - R_a, X_l - R_l))
    union = 2 * R_a + 2 * R_l - intersection
    soft = intersection / union if union > 0 else 1.0  # two equal points: the intervals are the same
    if weights == "soft":
        return soft
    return soft if intersection >= min(R_a, R_l) else 0.0


def colme(
    samples: Array,
    *,
    sigma: float | Array,
    gamma: float,
    weights: str = "simple",
    restricted: bool = False,
    queries: int = 1,
    radius: Radius = laplace_radius,
    statistics: tuple[str, ...] = ("mean",),
) -> Result:
    """Run colME. Row a of the adjacency is C_a after the step (unseen agents are members), a excluded."""
    if weights not in WEIGHTS:
        raise ValueError(f"weights must be one of {WEIGHTS}, not {weights!r}")
    steps, agents = samples.shape
    mean, count = running_means(samples)
    told = intervals(samples, sigma=sigma, gamma=gamma, radius=radius, statistics=statistics)
    held_X = np.zeros((agents, agents))  # held_X[a, l] = X_al
    held_n = np.zeros((agents, agents), dtype=np.int64)
    held_t = np.zeros((agents, agents), dtype=np.int64)  # when it was heard
    cursor = list(range(agents))
    estimate = np.full((steps, agents), np.nan)
    graphs = np.zeros((steps, agents, agents), dtype=bool)

    def held_by(a: int) -> list[list[tuple[float, float]]]:
        pairs = []
        for i in range(len(statistics)):
            heard = [told[held_t[a, m]][i] for m in range(agents)]
            pairs.append([(float(center[m]), r[m]) for m, (center, r) in enumerate(heard)])
        return pairs

    for t in range(1, steps + 1):
        X = mean[t - 1]
        n = count[t - 1]

        # (1) all perceive
        for a in range(agents):
            if n[a] > 0:
                held_X[a, a] = X[a]
                held_n[a, a] = n[a]
                held_t[a, a] = t - 1

        for a in range(agents):
            # (2)
            C = members(a, held_n[a], held_by(a))

            # (3) the agents after the cursor, in cyclic order; the one at the cursor comes last
            ask: list[int] = []
            if n[a] > 0:
                for i in range(1, agents + 1):
                    m = (cursor[a] + i) % agents
                    if m != a and len(ask) < queries and (C[m] or not restricted):
                        ask.append(m)

            # (4) the replies carry X(t), n(t)
            for m in ask:
                if n[m] > 0:
                    held_X[a, m] = X[m]
                    held_n[a, m] = n[m]
                    held_t[a, m] = t - 1
                cursor[a] = m

            # (5)
            held = held_by(a)
            C = members(a, held_n[a], held)
            R = [r for _, r in held[0]]  # of the mean, which comes first
            for m in range(agents):
                graphs[t - 1, a, m] = C[m] and m != a

            # (6)
            if n[a] == 0:
                continue
            numerator = 0.0
            denominator = 0.0
            for m in range(agents):
                if C[m] and held_n[a, m] > 0:
                    w = weight(weights, held_X[a, a], R[a], held_X[a, m], R[m])
                    numerator += w * held_n[a, m] * held_X[a, m]
                    denominator += w * held_n[a, m]
            estimate[t - 1, a] = numerator / denominator
    return Result(mean, count, estimate, graphs)
