"""Estimators on the graph of agents whose intervals overlap, in O(N log N) by sorting the ends of the intervals.

Their standard error has no formula: which agents are pooled depends on the agent's own mean, and some of them may
differ from it in truth. So the posterior of the census is used, if there are groups: its variance plus the squared
distance of the estimates.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from colme.confidence import laplace_radius, level_gamma
from colme.data.fit.estimators import AgentStatistics, Estimator, Fit
from colme.data.fit.mixture_estimator import mixture_fit
from colme.data.moments import Floats, Integers


class PooledFit(msgspec.Struct, frozen=True):
    """Estimates that pool the means of several agents."""

    agents: AgentStatistics
    estimate: Floats
    borrowed: Floats
    groups: Integers | None = None

    def error(self) -> Floats:
        census = mixture_fit(self.agents)
        return np.hypot(census.error(), census.estimate - self.estimate)


class OverlapPooling(Estimator, frozen=True, kw_only=True):
    """One-hop pooling: each agent pools all agents whose interval of z / sqrt(2) standard errors overlaps its own.

    Between agents of equal noise that is the two-sample z-test; between others it is stricter, by at most sqrt(2)."""

    name = "one-hop"
    needs_groups = True
    z: float = 1.96

    def fit(self, agents: AgentStatistics) -> Fit:
        offset = agents.prior.fit(agents.mean, agents.noise).offset
        weight = 1.0 / agents.noise
        radius = self.z / math.sqrt(2.0) * np.sqrt(agents.noise)
        total, pull = overlapping(agents.mean - offset, radius, weight)
        return PooledFit(agents, offset + pull / total, 1.0 - weight / total)


class ConsensusLimit(Estimator, frozen=True, kw_only=True):
    """The limit of CL-colME on the complete graph: agents are connected if their confidence intervals (Laplace's bound,
    Asadi et al. 2022) overlap, and every connected component converges to its weighted mean."""

    name = "cl-colme"
    needs_groups = True
    delta: float = 0.1

    def fit(self, agents: AgentStatistics) -> Fit:
        offset = agents.prior.fit(agents.mean, agents.noise).offset
        gamma = level_gamma("agent", self.delta, n_agents=len(agents.mean), n_edges=0)
        radius = _radii(agents, gamma)
        group = components(agents.mean - offset, radius)
        weight = 1.0 / agents.noise
        total = np.bincount(group, weight)
        place = np.bincount(group, weight * (agents.mean - offset)) / total
        return PooledFit(agents, offset + place[group], 1.0 - weight / total[group], group)


def _radii(agents: AgentStatistics, gamma: float) -> Floats:
    counts, which = np.unique(agents.worth, return_inverse=True)
    unit = np.array([laplace_radius(n, 1.0, gamma) for n in counts.tolist()])
    return np.asarray(np.sqrt(agents.noise * agents.worth) * unit[which])


def overlapping(mean: Floats, radius: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """(total weight, weighted sum of means) of all agents whose intervals overlap each agent's own, O(N log N).

    Two intervals are disjoint if one ends before the other begins; only one of the two orders can hold."""
    center = np.median(mean)  # sums of differences lose fewer digits
    moment = weight * (mean - center)
    lower, upper = mean - radius, mean + radius
    by_upper, by_lower = np.argsort(upper), np.argsort(lower)
    before = np.searchsorted(upper[by_upper], lower, side="left")
    until = np.searchsorted(lower[by_lower], upper, side="right")
    sums = []
    for each in (weight, moment):
        ended = np.concatenate([[0.0], np.cumsum(each[by_upper])])
        begun = np.concatenate([[0.0], np.cumsum(each[by_lower])])
        sums.append(begun[until] - ended[before])
    total = np.maximum(sums[0], weight)  # at least its own weight, despite rounding
    return total, sums[1] + center * total


def components(mean: Floats, radius: Floats) -> Integers:
    """The connected component of each agent where edges are overlaps of intervals, in order of means, O(N log N)."""
    lower, upper = mean - radius, mean + radius
    order = np.argsort(lower)
    reach = np.maximum.accumulate(upper[order])
    group = np.empty(len(mean), np.int64)
    group[order] = np.concatenate([[0], np.cumsum(lower[order][1:] > reach[:-1])])
    return group
