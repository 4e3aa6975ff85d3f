"""`Groups`: whether there is evidence of groups, and the group of each agent.

A mixture can fit any continuum, so mixture components alone are no evidence of groups. A table has groups if, somewhere
between two neighboring components, there are significantly fewer means than around both: the rates of means in the gap
and around each component are compared by a binomial test. In such a table, components belong to different groups where
the density of means has a valley between them.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme.data.fit.mixture_estimator import MixtureFit

Floats = NDArray[np.float64]
_SURELY = 1e-3
"""Level of the test that a table has groups."""
_VALLEY = 0.9
"""Depth of a valley: the density between two groups is below this share of that at the lower one."""
_POINTS = 64
"""Points between two components at which the density is evaluated."""
_MANY = 1000
"""Number of means above which the binomial distribution is approximated by a normal one."""


class Groups(NamedTuple):
    """The group of each agent, numbered in order of the means; all -1 if there is no evidence of groups."""

    group: NDArray[np.int64]
    probability: Floats
    n_groups: int
    """0: no evidence."""

    @classmethod
    def parts(cls, group: NDArray[np.int64]) -> Groups:
        """Groups formed by an estimator: connected components of at least two agents."""
        size = np.bincount(group)
        if (size > 1).sum() < 2:
            return cls(np.full(len(group), -1), np.zeros(len(group)), 0)
        names = np.where(size > 1, np.cumsum(size > 1) - 1, -1)[group]
        return cls(names, (names >= 0).astype(np.float64), int((size > 1).sum()))

    @classmethod
    def of(cls, fit: MixtureFit, most: int | None = None) -> Groups:
        """The groups found by a census, at most `most`."""
        k = int(fit.mixture.n_components[0])
        share, place, width = (part[0, :k] for part in fit.mixture.prior[1:4])
        variance = width + float(np.median(fit.noise))
        depth = _valleys(share, place, variance)
        evidence = min(_chances(np.sort(fit.mean), place, np.sqrt(variance)), default=1.0) < _SURELY
        apart = (depth < _VALLEY) & evidence
        if most is not None and apart.sum() >= max(most, 1):  # keep the deepest valleys
            apart &= depth <= np.sort(depth)[max(most, 1) - 2] if most > 1 else False
        of_component = np.concatenate([[0], np.cumsum(apart)])
        group = of_component[fit.component]
        found = cls.parts(group)
        if not found.n_groups:
            return found
        return found._replace(probability=np.where(found.group >= 0, _memberships(fit, of_component, group), 0.0))


def _density(x: Any, share: Floats, place: Floats, variance: Floats) -> Floats:
    z = np.square(x[..., None] - place) / variance
    return np.asarray((share * np.exp(-0.5 * z) / np.sqrt(variance)).sum(axis=-1))


def _valleys(share: Floats, place: Floats, variance: Floats) -> Floats:
    """For each pair of neighbors: the lowest density between them, relative to that at the lower of the two."""
    if len(place) < 2:
        return np.empty(0)
    between = place[:-1] + np.linspace(0.0, 1.0, _POINTS)[:, None] * np.diff(place)
    seen = _density(between, share, place, variance)
    return np.asarray(seen.min(axis=0) / np.maximum(np.minimum(seen[0], seen[-1]), 1e-300))


def _memberships(fit: MixtureFit, of_component: NDArray[np.int64], group: NDArray[np.int64]) -> Floats:
    """The posterior probability of each agent's group: the sum over its components."""
    inside, total = np.zeros((2, len(fit.mean)))
    total += float(fit.mixture.outlier_density[0]) * math.sqrt(2.0 * math.pi)
    for i, each in enumerate(of_component):  # at most `colme.census.mixture.MAX_COMPONENTS`
        variance = fit.noise + fit.mixture.variance[0, i]
        z = np.square(fit.mean - fit.mixture.location[0, i]) / variance
        density = fit.mixture.weight[0, i] * np.exp(-0.5 * z) / np.sqrt(variance)
        total += density
        inside += np.where(group == each, density, 0.0)
    return np.asarray(inside / np.maximum(total, 1e-300))


def _chances(mean: Floats, place: Floats, deviation: Floats) -> list[float]:
    """For each pair of neighbors: the probability of so few means in the gap between them if the density there were the
    same as within one deviation of either. Means are sorted."""

    def count(low: float, high: float) -> int:
        return int(np.searchsorted(mean, high) - np.searchsorted(mean, low))

    beside = [count(m - d, m + d) for m, d in zip(place, deviation, strict=True)]
    out = []
    for i in range(len(place) - 1):
        low, high = place[i] + deviation[i], place[i + 1] - deviation[i + 1]
        seen = count(low, high) if high > low else 0
        shares = [(high - low) / (high - low + 2.0 * deviation[j]) for j in (i, i + 1)]
        both = zip((i, i + 1), shares, strict=True)
        out.append(max(_at_most(seen, seen + beside[j], share) for j, share in both) if high > low else 1.0)
    return out


def _at_most(k: int, n: int, p: float) -> float:
    """P(X <= k) for X binomial(n, p)."""
    if n > _MANY:
        return NormalDist().cdf((k + 0.5 - n * p) / math.sqrt(n * p * (1.0 - p)))
    logs = (math.log(math.comb(n, i)) + i * math.log(p) + (n - i) * math.log1p(-p) for i in range(k + 1))
    return sum(map(math.exp, logs))
