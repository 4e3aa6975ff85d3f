"""The census of a table: all means at once explained by tribes.

Centrally there are no rounds: one histogram (`colme.census.histogram`), one mixture and everybody's posterior
(`colme.census.posterior`).
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from colme.census.histogram import Bins, count_all
from colme.census.posterior import Tribes, borrowing, posterior, quantiles
from colme.data.fit.estimators import AgentStatistics, Estimator

Floats = NDArray[np.float64]
_FINEST = 300.0
"""Bins of the narrowest kind in the range of all means, about: finer ones cost time, and who knows its mean better than
that has little to gain."""


class Census(Estimator, frozen=True, kw_only=True):
    """Empirical Bayes with a mixture of tribes, points or wide ones, as the prior."""

    name = "census"

    def fit(self, agents: AgentStatistics) -> CensusFit:
        return census_of(agents)


class CensusFit:
    """Tribes, and everybody's posterior."""

    groups: NDArray[np.int64] | None = None

    def __init__(self, agents: AgentStatistics):
        offset = agents.prior.fit(agents.mean, agents.noise).offset
        self._center = offset + float(np.median(agents.mean - offset))
        self.mean = agents.mean - self._center
        low, high = np.quantile(self.mean, [0.001, 0.999])
        self.noise = np.maximum(agents.noise, np.square((high - low) / _FINEST))
        self.tribes = _fitted(self.mean, self.noise)
        n = len(self.mean)
        # who knows its mean better than a bin still knows it so well
        self.tribes = self.tribes._replace(fit=np.zeros(n, np.int64))
        self._args = self.mean, agents.noise, *self.tribes.prior
        self._away, self.tribe, self.probability = np.empty(n), np.zeros(n, np.int64), np.empty(n)
        posterior(*self._args, self.tribes.first_group, self._away, self.tribe, self.probability)
        self.estimate = self._away + self._center

    @property
    def borrowed(self) -> Floats:
        return 1.0 - self._borrowing[0]

    def error(self) -> Floats:
        return np.sqrt(self._borrowing[1])

    @functools.cached_property
    def _borrowing(self) -> tuple[Floats, Floats]:
        """(the weight of agents' own means, posterior variances): cross-validation never asks."""
        kept, variance = np.empty((2, len(self.mean)))
        borrowing(*self._args, self._away, kept, variance)
        return kept, variance

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Where the true mean lies with this posterior probability."""
        lower, upper = np.empty((2, len(self.mean)))
        for end, tail in ((lower, 0.5 - 0.5 * level), (upper, 0.5 + 0.5 * level)):
            quantiles(tail, *self._args, end)
        return lower + self._center, upper + self._center


def census_of(agents: AgentStatistics) -> CensusFit:
    """The census of these agents, computed once."""
    known: CensusFit | None = agents.cache.get(Census.name)
    if known is None:
        known = agents.cache[Census.name] = CensusFit(agents)
    return known


def _fitted(mean: Floats, noise: Floats) -> Tribes:
    unit = float(np.sqrt(np.median(noise)))
    codes, votes = count_all(mean, noise, unit)
    return Tribes.fitted(votes[None], Bins.of(codes, unit), float(len(mean)), len(mean))
