"""`Groups`: the group of each agent of a table, if there is evidence of groups (`colme.census.modes`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from colme.census.modes import groups_of, memberships
from colme.data.fit.mixture_estimator import MixtureFit
from colme.support.arrays import Floats, Integers


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
        """The groups found by a census; `most` and `step` as in `groups_of`."""
        of_component = groups_of(fit.components, fit.mean, fit.noise, fit.component, ~fit.isolated, most, step)
        group = of_component[fit.component]
        found = cls.parts(group)
        if not found.n_groups:
            return found
        number = np.full(len(of_component), -1)
        number[group] = found.group
        there = (found.group >= 0) & ~fit.isolated
        outliers = float(fit.mixture.outlier_density[0])
        probability = memberships(fit.components, outliers, fit.mean, fit.noise, of_component, group)
        group = np.where(there, found.group, -1)
        return cls(group, np.where(there, probability, 0.0), found.n_groups, fit, number[of_component])
