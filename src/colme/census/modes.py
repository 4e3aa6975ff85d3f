"""Whether there is evidence of groups, and which components of a mixture belong to the same one.

A mixture can fit any continuum, so mixture components alone are no evidence of groups. The null hypothesis is that true
means have a density with a single mode, of whatever shape: it rises up to the mode and falls from there. Such a density
is a mixture of uniform densities that begin or end at the mode (Khinchin), so its largest likelihood is that of a
non-parametric mixture, for each place of the mode. There are groups if the fitted mixture is more likely than all of
these, by more than `_EVIDENCE`. Then components belong to different groups where the density of means has a valley
between them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from colme._core.normal import cumulative
from colme.census.histogram import Bins, histogram_of
from colme.census.posterior import MixturePrior
from colme.support.arrays import Floats, Integers, Mask

_EVIDENCE = 2.75
"""Nats by which the mixture must be more likely than every density with a single mode, for `_TYPICAL` agents: about the
99.5 % quantile for uniform means, the hardest continuum (by simulation, see docs/estimate.md)."""
_TYPICAL, _MORE, _FEWER = 40.0, 0.5, 2.0
"""This grows with the logarithm of the number of agents, and faster if there are fewer."""
_SMALL = 0.01
"""Groups with a smaller share of the agents are no evidence: a few means in the tail of skewed noise look like one."""
_VALLEY = 0.9
"""Depth of a valley: the density between two groups is below this share of that at the lower one."""
_POINTS = 64
"""Points between two components at which the density is evaluated."""
_FEW = 500
"""Up to so many agents, means are not binned."""
_TINY = 1e-300
_KNOTS = 100
"""Places where a density with a single mode may change, half at quantiles of the means and half equally spaced."""
_ROUNDS = 2000
"""Rounds of expectation and maximization at most, for each place of the mode."""
_CHECK = 20
"""Rounds between two checks."""


class Components(NamedTuple):
    """The components of a mixture."""

    share: Floats
    place: Floats
    variance: Floats

    @classmethod
    def of(cls, prior: MixturePrior) -> Components:
        """Those of the first row of a prior."""
        k = int(prior.n_components[0])
        return cls(prior.weight[0, :k], prior.location[0, :k], prior.variance[0, :k])

    def density(self, x: Any, noise: Any) -> Floats:
        """Of means with this noise, without a constant."""
        variance = self.variance + noise
        z = np.square(x[..., None] - self.place) / variance
        return np.asarray((self.share * np.exp(-0.5 * z) / np.sqrt(variance)).sum(axis=-1))


def groups_of(
    components: Components, mean: Floats, noise: Floats, component: Integers, judges: Mask,
    most: int | None = None, step: Any = 0.0,
) -> Integers:  # fmt: skip
    """The group of each component; all zero if there is no evidence of groups.

    mean, noise  of agents, and their most probable component
    judges       the agents that may be evidence
    most         the largest number of groups, 2 or more
    step         the smallest difference between two means that each agent could have, if samples are rounded"""
    depth = _valleys(components, float(np.median(noise)))
    apart = depth < _VALLEY
    if apart.any():
        group = np.concatenate([[0], np.cumsum(apart)])[component]
        large = judges & (np.bincount(group) >= _SMALL * len(group))[group]
        if len(np.unique(group[large])) < 2 or not _several_modes(components, mean, noise, large, step):
            apart[:] = False
    if most is not None and apart.sum() >= most:  # keep the deepest valleys
        apart &= depth <= np.sort(depth)[most - 2]
    return np.concatenate([[0], np.cumsum(apart)])


def memberships(
    components: Components, outliers: float, mean: Floats, noise: Floats, of_component: Integers, group: Integers
) -> Floats:
    """The posterior probability of each agent's group: the sum over its components."""
    inside, total = np.zeros((2, len(mean)))
    total += outliers * math.sqrt(2.0 * math.pi)
    for each, share, place, width in zip(of_component, *components, strict=True):  # at most 40
        variance = noise + width
        density = share * np.exp(-0.5 * (np.square(mean - place) / variance)) / np.sqrt(variance)
        total += density
        inside += np.where(group == each, density, 0.0)
    return inside / np.maximum(total, _TINY)


def _valleys(components: Components, noise: float) -> Floats:
    """For each pair of neighbors: the lowest density between them, relative to that at the lower of the two."""
    place = components.place
    between = place[:-1] + np.linspace(0.0, 1.0, _POINTS)[:, None] * np.diff(place)
    seen = components.density(between, noise)
    return np.asarray(seen.min(axis=0) / np.maximum(np.minimum(seen[0], seen[-1]), _TINY))


def _several_modes(components: Components, mean: Floats, noise: Floats, judges: Mask, step: Any) -> bool:
    """Whether the mixture is more likely than every density of true means with a single mode, judged by some agents."""
    center, count, noise = _histogram(mean, noise, judges, step)
    log = np.log(components.density(center, noise[:, None]) / math.sqrt(2.0 * math.pi) + _TINY)
    relative = math.log(float(count.sum()) / _TYPICAL)
    bound = float((count * log).sum()) - _EVIDENCE - max(_MORE * relative, -_FEWER * relative)
    modes = [components.place[np.argsort(-components.share)], np.quantile(center, np.linspace(0.05, 0.95, 10))]
    return not any(_reaches(bound, mode, center, count, noise) for mode in np.concatenate(modes))


def _histogram(mean: Floats, noise: Floats, judges: Mask, step: Any) -> tuple[Floats, Floats, Floats]:
    """(center, number of agents, noise) of bins of means. Means on a grid of `step` are spread over its cells."""
    jitter = np.random.default_rng(0).uniform(-0.5, 0.5, len(mean)) * step
    mean, noise = (mean + jitter)[judges], noise[judges]
    if len(mean) <= _FEW:
        return mean, np.ones(len(mean)), noise
    unit = float(np.sqrt(np.median(noise)))
    codes, masses = histogram_of(mean, noise, unit)
    bins = Bins.of(codes, unit)
    channel = np.isnan(bins.center)
    n_grids = int(bins.grid.max()) + 1
    mass = np.bincount(bins.grid[~channel], masses[~channel], n_grids)
    blur = np.bincount(bins.grid[channel], masses[channel], n_grids) / np.maximum(mass, _TINY)
    here = ~channel & (masses > 0.0)
    # linear binning adds a variance of h^2 / 6
    return bins.center[here], len(mean) * masses[here], (bins.squared_width * (blur[bins.grid] + 1.0 / 6.0))[here]


def _reaches(bound: float, mode: float, center: Floats, count: Floats, noise: Floats) -> bool:
    """Whether a density of true means with its only mode there has a log-likelihood of at least `bound`.

    Expectation and maximization raise the likelihood, and from the growth of the weights follows how far it is from its
    maximum at most (as in `colme.census.mixture.nonparametric_mixture`), so the answer is mostly known early."""
    deviation = np.sqrt(noise)[:, None]
    knots = np.concatenate([np.quantile(center, np.linspace(0.0, 1.0, _KNOTS // 2)),
                            np.linspace(center.min(), center.max(), _KNOTS // 2)])  # fmt: skip
    width = knots - mode
    knots, width = knots[width != 0.0], width[width != 0.0]
    below = cumulative((center[:, None] - mode) / deviation)
    like = (below - cumulative((center[:, None] - knots) / deviation)) / width
    point = np.exp(-0.5 * np.square((center[:, None] - mode) / deviation)) / (math.sqrt(2.0 * math.pi) * deviation)
    like = np.maximum(np.concatenate([like, point], axis=1), 0.0)
    weight, total = np.full(like.shape[1], 1.0 / like.shape[1]), float(count.sum())
    for k in range(_ROUNDS):
        density = like @ weight + _TINY
        growth = like.T @ (count / density) / total
        weight *= growth
        if k % _CHECK == 0:
            value = float((count * np.log(density)).sum())
            if value >= bound:
                return True
            if value + total * math.log(float(growth.max())) < bound:
                return False
    return True
