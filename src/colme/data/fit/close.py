"""`Close`: shrinkage whose spread depends on the number of samples.

How much agents differ may depend on how well they are known: those with many samples may be alike, or the opposite.
Normal empirical Bayes with the prior N(m(n), tau^2(n)) is known as CLOSE (Chen 2022, "Empirical Bayes When Estimation
Precision Predicts Parameters"). Here log tau^2 is linear in log n: its slope is found by maximum likelihood, with a
standard normal prior, so that it is near zero where there is little evidence. The prior mean is linear in log n, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from colme.data.fit.estimators import AgentStatistics, Estimator, Fit, PlainFit, Shrinkage
from colme.data.fit.prior import Prior

Floats = NDArray[np.float64]
_ROUNDS = 50
_TOLERANCE = 1e-5
_FARTHEST = 1.0
"""The logarithm of a spread changes by so much in a round, at most."""
_ALIKE = 0.99
"""The correlation of a covariate with log n that is much the same."""
_LEAST = 1e-6
"""The smallest spread, relative to the smallest noise."""


class Spreads(NamedTuple):
    """tau^2 of every agent, its standard error, and the prior mean with the variance of that."""

    spread: Floats
    error: Floats
    mean: Floats
    variance: Floats
    slope: float
    """Of log tau^2 in log n."""


class Close(Estimator, frozen=True, kw_only=True):
    """Normal empirical Bayes: true means are N(prior mean, tau^2), with log tau^2 linear in log n."""

    name = "close"

    def fit(self, agents: AgentStatistics) -> Fit:
        if self.name not in agents.cache:
            agents.cache[self.name] = fitted_spreads(agents)
        found: Spreads | None = agents.cache[self.name]
        if found is None:
            return Shrinkage(variance=self.variance).fit(agents)
        kept = found.spread / (found.spread + agents.noise)
        away = agents.mean - found.mean
        z = found.spread / np.maximum(found.error, 1e-300)
        # the true spread may be larger than a small one: the mean of a normal variable that is positive
        spread = found.spread + found.error * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) / special.ndtr(z)
        believed = spread / (spread + agents.noise)
        from_spread = np.square((1.0 - believed) * (found.error / (spread + agents.noise)))
        variance = believed * agents.noise + np.square(1.0 - kept) * found.variance + from_spread * np.square(away)
        return PlainFit(found.mean + kept * away, 1.0 - kept, variance)


def _scale(agents: AgentStatistics) -> Floats:
    """log n, centered."""
    scale = np.log(np.maximum(agents.worth, 1e-300))
    return np.asarray(scale - scale.mean())


def _with_scale(prior: Prior, scale: Floats) -> Prior:
    """The prior with log n as a covariate, if none is much the same."""
    size = float(np.sqrt(np.square(scale).mean()))
    if prior.covariates is None:
        return prior._replace(covariates=scale[:, None] / (size or 1.0))
    spread = prior.covariates.std(axis=0) * size
    alike = np.abs((prior.covariates * scale[:, None]).mean(axis=0)) > _ALIKE * spread
    return (
        prior if alike.any() else prior._replace(covariates=np.column_stack([prior.covariates, scale / (size or 1.0)]))
    )


def spread_evidence(agents: AgentStatistics) -> float:
    """By how many standard errors the squared distances from the prior mean show that the spread depends on log n.

    The score test of a slope at the constant spread. Its standard error is that of the agents' own scores, so it holds
    also where true means have heavy tails."""
    found = agents.prior.fit(agents.mean, agents.noise)
    if found.spread <= 0.0:
        return 0.0
    scale, weight = _scale(agents), 1.0 / (agents.noise + found.spread)
    share = weight * found.spread
    information = np.square(share)
    away = scale - float(information @ scale) / float(information.sum())
    score = share * away * (weight * np.square(agents.mean - found.mean) - 1.0 + weight * found.variance)
    error = float(np.sqrt(np.square(score).sum()))
    return float(score.sum()) / error if error > 0.0 else 0.0


def fitted_spreads(agents: AgentStatistics) -> Spreads | None:
    """The spreads of largest likelihood (Fisher scoring); None if agents do not differ, or have equal counts."""
    mean, noise, scale = agents.mean, agents.noise, _scale(agents)
    prior = _with_scale(agents.prior, scale)
    start = prior.fit(mean, noise).spread
    least = _LEAST * float(noise.min())
    if start <= least or np.ptp(scale) <= 0.0:
        return None
    design = np.stack([np.ones(len(scale)), scale], axis=1)
    doubt = np.array([0.0, 1.0])  # information of the standard normal prior of the slope

    value, last = np.array([np.log(start), 0.0]), False
    for _ in range(_ROUNDS):
        spread = np.maximum(np.exp(design @ value), least)
        weight = 1.0 / (noise + spread)
        share = weight * spread
        place, variance = prior.regression(mean, weight)
        information = 0.5 * (design.T * np.square(share)) @ design + np.diag(doubt)
        if last:
            break
        lost = 1.0 - weight * variance  # the fitted mean is closer to the data than the true one
        score = 0.5 * design.T @ (share * (weight * np.square(mean - place) - lost)) - doubt * value
        step = np.linalg.solve(information, score)
        step *= min(1.0, _FARTHEST / max(float(np.abs(design @ step).max()), 1e-300))
        value, last = value + step, float(np.abs(step).max()) < _TOLERANCE
    if agents.prior.covariates is None:  # a line through extreme counts may leave the range of all means
        place = np.clip(place, mean.min(), mean.max())
    relative = np.einsum("ai,ij,aj->a", design, np.linalg.inv(information), design)
    return Spreads(spread, spread * np.sqrt(relative), place, variance, float(value[1]))
