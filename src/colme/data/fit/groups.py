"""`Groups`: whether there is evidence of groups, and the group of each agent.

A mixture can fit any continuum, so mixture components alone are no evidence of groups. The null hypothesis is that true
means have a density with a single mode, of whatever shape: it rises up to the mode and falls from there. Such a density
is a mixture of uniform densities that begin or end at the mode (Khinchin), so its largest likelihood is that of a
non-parametric mixture, for each place of the mode. A table has groups if the mixture of the census is more likely than
all of these, by more than `_EVIDENCE`. In such a table, components belong to different groups where the density of
means has a valley between them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from colme.census.histogram import Bins, histogram_of
from colme.data.fit.mixture_estimator import MixtureFit
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


class Groups(NamedTuple):
    """The group of each agent, numbered in order of the means; all -1 if there is no evidence of groups."""

    group: Integers
    probability: Floats
    n_groups: int
    """0: no evidence."""
    mixture: MixtureFit | None = None
    """Where they were found, unless an estimator formed them."""
    of_component: Integers | None = None
    """The group of each component of that mixture; -1 if it has none."""

    @classmethod
    def parts(cls, group: Integers) -> Groups:
        """Groups formed by an estimator: connected components of at least two agents."""
        several = np.bincount(group) > 1
        if several.sum() < 2:
            return cls(np.full(len(group), -1), np.zeros(len(group)), 0)
        names = np.where(several, np.cumsum(several) - 1, -1)[group]
        return cls(names, (names >= 0).astype(np.float64), int(several.sum()))

    @classmethod
    def of(cls, fit: MixtureFit, most: int | None, step: Floats) -> Groups:
        """The groups found by a census.

        most  the largest number of groups, 2 or more
        step  the smallest difference between two means that each agent could have, if samples are rounded or counts"""
        share, place, width = fit.components
        depth = _valleys(share, place, width + float(np.median(fit.noise)))
        apart = depth < _VALLEY
        if apart.any():
            group = np.concatenate([[0], np.cumsum(apart)])[fit.component]
            large = ~fit.isolated & (np.bincount(group) >= _SMALL * len(group))[group]
            if len(np.unique(group[large])) < 2 or not several_modes(fit, large, step):
                apart[:] = False
        if most is not None and apart.sum() >= most:  # keep the deepest valleys
            apart &= depth <= np.sort(depth)[most - 2]
        of_component = np.concatenate([[0], np.cumsum(apart)])
        group = of_component[fit.component]
        found = cls.parts(group)
        if not found.n_groups:
            return found
        number = np.full(len(of_component), -1)
        number[group] = found.group
        there = (found.group >= 0) & ~fit.isolated
        probability = np.where(there, _memberships(fit, of_component, group), 0.0)
        return cls(np.where(there, found.group, -1), probability, found.n_groups, fit, number[of_component])


def _density(x: Any, share: Floats, place: Floats, variance: Floats) -> Floats:
    z = np.square(x[..., None] - place) / variance
    return (share * np.exp(-0.5 * z) / np.sqrt(variance)).sum(axis=-1)


def _valleys(share: Floats, place: Floats, variance: Floats) -> Floats:
    """For each pair of neighbors: the lowest density between them, relative to that at the lower of the two."""
    between = place[:-1] + np.linspace(0.0, 1.0, _POINTS)[:, None] * np.diff(place)
    seen = _density(between, share, place, variance)
    return seen.min(axis=0) / np.maximum(np.minimum(seen[0], seen[-1]), 1e-300)


def _memberships(fit: MixtureFit, of_component: Integers, group: Integers) -> Floats:
    """The posterior probability of each agent's group: the sum over its components."""
    inside, total = np.zeros((2, len(fit.mean)))
    total += float(fit.mixture.outlier_density[0]) * math.sqrt(2.0 * math.pi)
    for each, share, place, width in zip(of_component, *fit.components, strict=True):  # at most 40
        variance = fit.noise + width
        density = share * np.exp(-0.5 * (np.square(fit.mean - place) / variance)) / np.sqrt(variance)
        total += density
        inside += np.where(group == each, density, 0.0)
    return inside / np.maximum(total, 1e-300)


def several_modes(fit: MixtureFit, agents: Mask, step: Floats) -> bool:
    """Whether the mixture is more likely than every density of true means with a single mode, judged by some agents."""
    center, count, noise = _histogram(fit, agents, step)
    share, place, width = fit.components
    log = np.log(_density(center, share, place, width + noise[:, None]) / math.sqrt(2.0 * math.pi) + _TINY)
    relative = math.log(float(count.sum()) / _TYPICAL)
    bound = float((count * log).sum()) - _EVIDENCE - max(_MORE * relative, -_FEWER * relative)
    modes = np.concatenate([place[np.argsort(-share)], np.quantile(center, np.linspace(0.05, 0.95, 10))])
    return not any(_reaches(bound, mode, center, count, noise) for mode in modes)


def _histogram(fit: MixtureFit, agents: Mask, step: Floats) -> tuple[Floats, Floats, Floats]:
    """(center, number of agents, noise) of bins of means. Means on a grid of `step` are spread over its cells."""
    jitter = np.random.default_rng(0).uniform(-0.5, 0.5, len(fit.mean)) * step
    mean, noise = (fit.mean + jitter)[agents], fit.noise[agents]
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
    below = special.ndtr((center[:, None] - mode) / deviation)
    like = (below - special.ndtr((center[:, None] - knots) / deviation)) / width
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
