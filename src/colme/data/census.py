"""The census of a table: all means at once explained by tribes, and whether the tribes are groups.

Centrally there are no rounds: one histogram (`colme._ballots`), one mixture (`colme.tribes`). A mixture fits any
continuum, so its tribes are no evidence of groups. Tribes are groups if the means that one expects to see have a
valley between them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._ballots import Bins, cast
from colme.data.estimators import Estimator, Evidence
from colme.tribes import Tribes, borrowing, posterior, quantiles

Floats = NDArray[np.float64]
_FINEST = 1000.0
"""Bins in the range of all means at most; agents who know theirs better than a bin gain nothing."""
_VALLEY = 0.9
"""Between two groups, fewer means are expected than this share of what is expected at the lower peak."""
_LOOKS = 64
"""Points between two tribes at which a valley is looked for."""


class Census(Estimator, frozen=True, kw_only=True):
    """Empirical Bayes with a mixture of tribes, points or wide ones, as the prior."""

    name = "census"

    def fit(self, evidence: Evidence) -> CensusFit:
        return CensusFit(evidence)


class CensusFit:
    """Tribes, and everybody's posterior."""

    groups = None

    def __init__(self, evidence: Evidence):
        offset = evidence.prior.fit(evidence.mean, evidence.noise).offset
        self._center = offset + float(np.median(evidence.mean - offset))
        self.mean = evidence.mean - self._center
        low, high = np.quantile(self.mean, [0.001, 0.999])
        self.noise = np.maximum(evidence.noise, np.square((high - low) / _FINEST))
        self.tribes = _fitted(self.mean, self.noise)
        n = len(self.mean)
        # who knows its mean better than a bin still knows it so well
        self._args = self.mean, evidence.noise, np.zeros(n, np.int64), *self.tribes[1:]
        self.estimate, self.tribe, self.probability = np.empty(n), np.zeros(n, np.int64), np.empty(n)
        posterior(*self._args, self.estimate, self.tribe, self.probability)
        kept, self._variance = np.empty((2, n))
        borrowing(*self._args, self.estimate, kept, self._variance)
        self.estimate += self._center
        self.borrowed = 1.0 - kept

    def error(self) -> Floats:
        return np.sqrt(self._variance)

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Where the true mean lies with this posterior probability."""
        lower, upper = np.empty((2, len(self.mean)))
        for end, tail in ((lower, 0.5 - 0.5 * level), (upper, 0.5 + 0.5 * level)):
            quantiles(tail, *self._args, end)
        return lower + self._center, upper + self._center

class Groups(NamedTuple):
    """Groups of agents, numbered by their place; all -1 where there is no evidence of any."""

    group: NDArray[np.int64]
    probability: Floats
    n_groups: int
    """0: no evidence."""

    @classmethod
    def parts(cls, group: NDArray[np.int64]) -> Groups:
        """Groups that an estimator made itself: parts of a graph, of at least two agents each."""
        size = np.bincount(group)
        if (size > 1).sum() < 2:
            return cls(np.full(len(group), -1), np.zeros(len(group)), 0)
        names = np.where(size > 1, np.cumsum(size > 1) - 1, -1)[group]
        return cls(names, (names >= 0).astype(np.float64), int((size > 1).sum()))

    @classmethod
    def of(cls, fit: CensusFit, most: int | None = None) -> Groups:
        """The groups of a census, `most` at most."""
        k = int(fit.tribes.n_tribes[0])
        share, place, width = (part[0, :k] for part in fit.tribes[1:4])
        depth = _valleys(share, place, width, float(np.median(fit.noise)))
        apart = depth < _VALLEY
        if most is not None and apart.sum() >= max(most, 1):  # the deepest valleys stay
            apart &= depth <= np.sort(depth)[max(most, 1) - 2] if most > 1 else False
        of_tribe = np.concatenate([[0], np.cumsum(apart)])
        group = of_tribe[fit.tribe]
        found = cls.parts(group)
        return found._replace(probability=np.where(found.group >= 0, _memberships(fit, of_tribe, group), 0.0))


def _fitted(mean: Floats, noise: Floats) -> Tribes:
    unit = float(np.sqrt(np.median(noise)))
    codes, values = cast(mean, noise, unit)
    every, column = np.unique(codes, return_inverse=True)
    votes = np.bincount(column.ravel(), values.ravel()) / len(mean)
    return Tribes.fitted(votes[None], Bins.of(every, unit), float(len(mean)), len(mean))


def _density(x: Any, share: Floats, place: Floats, variance: Floats) -> Floats:
    z = np.square(x[..., None] - place) / variance
    return np.asarray((share * np.exp(-0.5 * z) / np.sqrt(variance)).sum(axis=-1))


def _valleys(share: Floats, place: Floats, width: Floats, noise: float) -> Floats:
    """For each pair of neighbors: the density of means at the deepest point between them, relative to the lower one."""
    if len(place) < 2:
        return np.empty(0)
    variance = width + noise
    between = place[:-1] + np.linspace(0.0, 1.0, _LOOKS)[:, None] * np.diff(place)
    seen = _density(between, share, place, variance)
    return np.asarray(seen.min(axis=0) / np.maximum(np.minimum(seen[0], seen[-1]), 1e-300))


def _memberships(fit: CensusFit, of_tribe: NDArray[np.int64], group: NDArray[np.int64]) -> Floats:
    """The posterior probability of each agent's group: that of all its tribes together."""
    inside, total = np.zeros((2, len(fit.mean)))
    total += float(fit.tribes.stranger[0]) * math.sqrt(2.0 * math.pi)
    for i, each in enumerate(of_tribe):  # at most `colme._mixture.MOST`
        variance = fit.noise + fit.tribes.width[0, i]
        z = np.square(fit.mean - fit.tribes.place[0, i]) / variance
        density = fit.tribes.share[0, i] * np.exp(-0.5 * z) / np.sqrt(variance)
        total += density
        inside += np.where(group == each, density, 0.0)
    return np.asarray(inside / np.maximum(total, 1e-300))
