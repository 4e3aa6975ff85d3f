"""What agents compare: an interval of the mean for a known scale, or those of several statistics (METHODS section 9).

    gamma' = gamma / number of statistics,   c = sqrt( 2 (1 + 1/n) ln( sqrt(n+1) / gamma' ) )

    mean        X +- s c / sqrt(n)                     from 30 samples on
    deviation   s +- s c sqrt( (k-1) / (4n) )          from 30
    kurtosis    k +- c sqrt( 24 / n )                  from 200

s and k are computed anew from all samples so far, at every step. Where they are all equal only the mean is compared.
"""

import math

import numpy as np

from .common import Array, Radius, laplace_radius, per_agent, prune, radii, running_means

BURN_IN = {"mean": 30, "deviation": 30, "kurtosis": 200}
Interval = tuple[Array, list[float]]


def moment_interval(statistic: str, seen: Array, gamma: float) -> tuple[float, float]:
    """(center, radius) from the samples that one agent has seen."""
    n = len(seen)
    if n < BURN_IN[statistic]:
        return 0.0, math.inf
    s = float(np.std(seen, ddof=1))
    c = math.sqrt(2 * (1 + 1 / n) * math.log(math.sqrt(n + 1) / gamma))
    if np.ptp(seen) == 0.0:
        return {"mean": (float(seen[0]), 0.0), "deviation": (0.0, math.inf), "kurtosis": (0.0, math.inf)}[statistic]
    central = seen - np.mean(seen)
    k = float(np.mean(central**4) / np.mean(central**2) ** 2)
    if statistic == "mean":
        return float(np.mean(seen)), s * c / math.sqrt(n)
    if statistic == "deviation":
        return s, s * c * math.sqrt((k - 1) / (4 * n))
    return k, c * math.sqrt(24 / n)


def intervals(
    samples: Array,
    *,
    sigma: float | Array,
    gamma: float,
    radius: Radius = laplace_radius,
    statistics: tuple[str, ...] = ("mean",),
) -> list[list[Interval]]:
    """Centers and radii of all agents, for every step and every statistic."""
    steps, agents = samples.shape
    if statistics == ("mean",):
        mean, count = running_means(samples)
        scale = per_agent(sigma, agents)
        return [[(mean[t], radii(count[t], scale, gamma, radius))] for t in range(steps)]
    told: list[list[Interval]] = []
    for t in range(steps):
        now: list[Interval] = []
        for statistic in statistics:
            columns = [samples[: t + 1, a] for a in range(agents)]
            pairs = [moment_interval(statistic, x[~np.isnan(x)], gamma / len(statistics)) for x in columns]
            now.append((np.array([center for center, _ in pairs]), [r for _, r in pairs]))
        told.append(now)
    return told


def prune_by(adjacency: Array, now: list[Interval]) -> Array:
    """Keep an edge iff the intervals of all statistics intersect."""
    for center, radius in now:
        adjacency = prune(adjacency, center, radius)
    return adjacency
