"""Ways to better a mean, behind one interface: evidence in, an estimate per agent out, an error on request.

Each is a frozen struct with `fit(evidence) -> Fit`. All see counts only through the variance of a mean, so agents may
have one sample or a million. What is known beforehand (covariates, labels) is taken off first, see `colme.data.prior`.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.confidence import laplace_radius, level_gamma
from colme.data.prior import Prior

Floats = NDArray[np.float64]
METHODS = ("local", "pooled", "shrinkage", "census", "one-hop", "cl-colme")


class Evidence(NamedTuple):
    """What estimators know: agents with at least one sample each."""

    mean: Floats
    noise: Floats
    """Variance of the mean."""
    sample: Floats
    """Variance of a sample."""
    count: Floats
    prior: Prior
    """What is known of agents beside their samples."""


class Fit(Protocol):
    """What an estimator found."""

    estimate: Floats
    borrowed: Floats
    """Weight on others."""
    groups: NDArray[np.int64] | None
    """Only of estimators that make their own."""

    def error(self) -> Floats:
        """Standard error of each estimate."""


class _Fit(msgspec.Struct, frozen=True):
    estimate: Floats
    borrowed: Floats
    variance: Floats
    groups: NDArray[np.int64] | None = None

    def error(self) -> Floats:
        return np.sqrt(self.variance)


class Estimator(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A way to better a mean. `variance`: whose variances it believes."""

    name: ClassVar[str]
    variance: str = "moderated"

    def fit(self, evidence: Evidence) -> Fit:
        raise NotImplementedError

    @property
    def label(self) -> str:
        return self.name if self.name == "local" else f"{self.name} ({self.variance} variance)"


class LocalMean(Estimator, frozen=True, kw_only=True):
    """Everybody for himself: the floor."""

    name = "local"

    def fit(self, evidence: Evidence) -> Fit:
        return _Fit(evidence.mean, np.zeros(len(evidence.mean)), evidence.noise)


class Pooled(Estimator, frozen=True, kw_only=True):
    """One mean for all (or for all of a label, or on the plane of the covariates)."""

    name = "pooled"

    def fit(self, evidence: Evidence) -> Fit:
        found = evidence.prior.fit(evidence.mean, evidence.noise, spread=0.0)
        return _Fit(found.mean, np.ones(len(evidence.mean)), found.variance)


class Shrinkage(Estimator, frozen=True, kw_only=True):
    """Normal empirical Bayes: means are drawn from N(prior mean, tau^2), tau by maximum likelihood (Morris 1983)."""

    name = "shrinkage"

    def fit(self, evidence: Evidence) -> Fit:
        found = evidence.prior.fit(evidence.mean, evidence.noise)
        kept = found.spread / (found.spread + evidence.noise)
        away = evidence.mean - found.mean
        # if no spread was seen, it may be as large as the mean of half a normal around zero
        spread = max(found.spread, math.sqrt(2.0 / math.pi) * found.spread_error)
        believed = spread / (spread + evidence.noise)
        doubt = np.square(evidence.noise) / np.power(spread + evidence.noise, 4) * found.spread_error**2
        variance = believed * evidence.noise + np.square(1.0 - kept) * found.variance + doubt * np.square(away)
        return _Fit(found.mean + kept * away, 1.0 - kept, variance)


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
        return _Fit(offset + pull / total, 1.0 - weight / total, 1.0 / total)


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
        return _Fit(offset + place[group], 1.0 - weight / total[group], 1.0 / total[group], group)


def _radii(evidence: Evidence, gamma: float) -> Floats:
    counts, which = np.unique(evidence.count, return_inverse=True)
    unit = np.array([laplace_radius(n, 1.0, gamma) for n in counts.tolist()])
    return np.asarray(np.sqrt(evidence.noise * evidence.count) * unit[which])


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
