"""Estimators on the graph of agents whose intervals touch, in O(N log N) by sorted ends of intervals.

Their error has no formula: whom an agent pools depends on its own mean, and those it pools may be others than it
believes. It is that of the census, which knows who lives there: posterior variance plus squared distance.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.confidence import laplace_radius, level_gamma
from colme.data.fit.estimators import Estimator, Evidence, Fit
from colme.data.fit.mixture_estimator import mixture_fit

Floats = NDArray[np.float64]


class PooledFit(msgspec.Struct, frozen=True):
    """Where agents pool the means of others."""

    evidence: Evidence
    estimate: Floats
    borrowed: Floats
    groups: NDArray[np.int64] | None = None

    def error(self) -> Floats:
        census = mixture_fit(self.evidence)
        return np.hypot(census.error(), census.estimate - self.estimate)


class OneHop(Estimator, frozen=True, kw_only=True):
    """Everybody pools those whose mean may be the same: intervals of z / sqrt(2) standard errors touch. Between agents
    of equal noise that is the two-sample z-test; between others it is stricter, by a factor of sqrt(2) at most."""

    name = "one-hop"
    z: float = 1.96

    def fit(self, evidence: Evidence) -> Fit:
        offset = evidence.prior.fit(evidence.mean, evidence.noise).offset
        weight = 1.0 / evidence.noise
        radius = self.z / math.sqrt(2.0) * np.sqrt(evidence.noise)
        total, pull = overlapping(evidence.mean - offset, radius, weight)
        return PooledFit(evidence, offset + pull / total, 1.0 - weight / total)


class ConsensusLimit(Estimator, frozen=True, kw_only=True):
    """CL-colME to convergence on the complete graph: guaranteed intervals (Laplace's bound, Asadi et al. 2022), agents
    are connected where intervals touch, and every component agrees on its mean."""

    name = "cl-colme"
    delta: float = 0.1

    def fit(self, evidence: Evidence) -> Fit:
        offset = evidence.prior.fit(evidence.mean, evidence.noise).offset
        gamma = level_gamma("agent", self.delta, n_agents=len(evidence.mean), n_edges=0)
        radius = _radii(evidence, gamma)
        group = components(evidence.mean - offset, radius)
        weight = 1.0 / evidence.noise
        total = np.bincount(group, weight)
        place = np.bincount(group, weight * (evidence.mean - offset)) / total
        return PooledFit(evidence, offset + place[group], 1.0 - weight / total[group], group)


def _radii(evidence: Evidence, gamma: float) -> Floats:
    counts, which = np.unique(evidence.worth, return_inverse=True)
    unit = np.array([laplace_radius(n, 1.0, gamma) for n in counts.tolist()])
    return np.asarray(np.sqrt(evidence.noise * evidence.worth) * unit[which])


def overlapping(mean: Floats, radius: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """(total weight, weighted sum of means) of all agents whose intervals touch each agent's own, O(N log N).

    An interval misses another if it ends before the other begins, or begins after it ends; never both."""
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
    total = np.maximum(sums[0], weight)  # oneself, whatever rounding does
    return total, sums[1] + center * total


def components(mean: Floats, radius: Floats) -> NDArray[np.int64]:
    """The component of each agent in the graph of touching intervals, numbered from the left, O(N log N)."""
    lower, upper = mean - radius, mean + radius
    order = np.argsort(lower)
    reach = np.maximum.accumulate(upper[order])
    group = np.empty(len(mean), np.int64)
    group[order] = np.concatenate([[0], np.cumsum(lower[order][1:] > reach[:-1])])
    return group
