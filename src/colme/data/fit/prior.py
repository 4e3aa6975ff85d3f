"""`Prior`: a normal prior for every agent's mean, from covariates and known labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from colme.support.arrays import Floats, Integers, Mask

_ROUNDS = 100
_TOLERANCE = 1e-8
_ROUNDING = 1e-12
"""A covariate whose variation within labels is a smaller share of the whole counts as constant within them."""
_RIDGE = 1e-8
"""Added to the squared length, 1, of a covariate."""


class FittedPrior(NamedTuple):
    """A normal prior for every agent."""

    mean: Floats
    variance: Floats
    """Variance of the prior mean, from the regression."""
    spread: Any
    """tau^2: variance of true means around the prior mean; a number, or one for each agent."""
    spread_error: Any
    """Standard error of the spread."""


class Prior(NamedTuple):
    """label[a] = known group (0, 1, ...), covariates (n_agents, n_covariates); both may be missing."""

    label: Integers | None = None
    covariates: Floats | None = None

    def with_columns(self, columns: Sequence[int] | Integers) -> Prior:
        """The prior with some of the covariates only."""
        some = None if self.covariates is None or not len(columns) else self.covariates[:, columns]
        return self._replace(covariates=some)

    def select(self, agents: Mask) -> Prior:
        """The prior of some agents."""
        label = None if self.label is None else np.unique(self.label[agents], return_inverse=True)[1]
        return Prior(label, None if self.covariates is None else self.covariates[agents])

    def fit(self, mean: Floats, noise: Floats, spread: float | None = None) -> FittedPrior:
        """Prior mean by weighted least squares; spread, if not given, by maximum likelihood (Fisher scoring)."""
        value = float(np.var(mean)) if spread is None else spread
        for _ in range(_ROUNDS):
            weight = 1.0 / (noise + value)
            place, variance = self.regression(mean, weight)
            information = float(np.square(weight).sum())
            error = np.sqrt(2.0 / information)
            if spread is not None:
                break
            away = np.square(mean - place)
            lost = 1.0 - weight * variance  # the fitted mean is closer to the data than the true one
            step = float((np.square(weight) * away - weight * lost).sum()) / information
            before, value = value, max(0.0, value + step)
            if abs(value - before) <= _TOLERANCE * (value + float(noise.min())):
                break
        return FittedPrior(place, variance, value, float(error))

    def log_likelihood(self, mean: Floats, noise: Floats) -> float:
        """The logarithm of the likelihood of the fitted prior, but for a constant."""
        found = self.fit(mean, noise)
        whole = noise + found.spread
        return -0.5 * float((np.log(whole) + np.square(mean - found.mean) / whole).sum())

    def ranked(self, mean: Floats, noise: Floats) -> Integers:
        """The covariates, in the order of what they tell beside those before them: again and again, the one is taken
        away without which the regression on the others loses least."""
        assert self.covariates is not None
        weight = 1.0 / (noise + self.fit(mean, noise).spread)
        residual, design, _ = self._residuals(mean, weight)
        assert design is not None
        gram, told = design.T @ (weight[:, None] * design), design.T @ (weight * residual)
        left, taken = list(range(design.shape[1])), []
        while left:
            # of covariates on a line, the ridge makes each dispensable, but not all of them
            inverse = np.linalg.inv(gram[np.ix_(left, left)] + _RIDGE * np.eye(len(left)))
            least = int(np.argmin(np.square(inverse @ told[left]) / np.diag(inverse)))
            taken.append(left.pop(least))
        return np.array(taken[::-1], np.int64)

    def _residuals(self, mean: Floats, weight: Floats) -> tuple[Floats, Floats | None, Floats]:
        """(means, covariates scaled to length 1, variance of a label's mean), means and covariates less those of the
        label."""
        label = np.zeros(len(mean), np.int64) if self.label is None else self.label
        total = np.bincount(label, weight)

        def centered(column: Floats) -> Floats:
            return column - (np.bincount(label, weight * column) / total)[label]

        design = None
        if self.covariates is not None:
            design = np.stack([centered(column) for column in self.covariates.T], axis=1)
            scale, whole = (np.sqrt((weight[:, None] * part**2).sum(axis=0)) for part in (design, self.covariates))
            design = design / np.where(scale > _ROUNDING * whole, scale, np.inf)
        return centered(mean), design, (1.0 / total)[label]

    def regression(self, mean: Floats, weight: Floats) -> tuple[Floats, Floats]:
        """(fitted mean, its variance) by weighted least squares on label means and covariates."""
        residual, design, variance = self._residuals(mean, weight)
        if design is not None:
            # Frisch, Waugh and Lovell: regress residuals on residuals
            gram = design.T @ (weight[:, None] * design)
            slope = np.linalg.lstsq(gram, design.T @ (weight * residual), rcond=1e-10)[0]
            inverse = np.linalg.pinv(gram, rcond=1e-10)
            variance = variance + np.einsum("ai,ij,aj->a", design, inverse, design)
            residual = residual - design @ slope
        return mean - residual, variance


def standardized(covariates: Floats) -> Floats:
    """Columns centered at zero and scaled to at most one, whatever their unit; zero where a column is constant."""
    size = np.maximum(np.abs(covariates).max(axis=0), 1e-300)
    away = covariates / size
    away = away - away.mean(axis=0)
    width = np.abs(away).max(axis=0)
    return away / np.where(width > _ROUNDING, width, np.inf)


def beyond_chance(gain: float, more: int, chance: float) -> bool:
    """Whether so many more covariates that tell nothing raise the log-likelihood as much with this probability only."""
    return gain > 0.5 * float(special.chdtri(more, chance))
