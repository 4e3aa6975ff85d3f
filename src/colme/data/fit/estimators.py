"""Estimators of all agents' means behind one interface, and those with a normal prior: local, pooled, shrinkage,
close; and partition.

An `Estimator` is a frozen struct with `fit(agents: AgentStatistics) -> Fit`. Estimators see counts only through the
variance of a mean, so agents may have one sample or a million. What covariates and labels explain is subtracted first,
see `colme.data.fit.prior`. The other estimators are in `mixture_estimator` and `conjugate`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
from scipy import special

from colme.data.fit.prior import FittedPrior, Prior
from colme.methods.partition import MOST, FewPosteriors
from colme.support.arrays import Floats

_ROUNDS = 50
_TOLERANCE = 1e-5
_FARTHEST = 1.0
"""The logarithm of a spread changes by so much in a round, at most."""
_ALIKE = 0.99
"""The correlation of a covariate with log n that is much the same."""
_LEAST = 1e-6
"""The smallest spread, relative to the smallest noise."""
_BEYOND = 2.0
"""Standard errors by which the mean of all estimates may differ from that of all own means."""


class AgentStatistics(msgspec.Struct, frozen=True, eq=False):
    """What an estimator is given: statistics of agents with at least one sample each."""

    mean: Floats
    noise: Floats
    """Variance of the mean."""
    worth: Floats
    """Effective sample size: the number of independent samples with a mean as precise."""
    prior: Prior
    """Covariates and known labels."""
    cache: dict[str, Any] = msgspec.field(default_factory=dict)
    """Results that are costly and that several estimators need."""

    @property
    def total(self) -> Floats:
        """Successes or events; `worth` is then the number of trials, or the exposure."""
        return self.mean * self.worth

    @property
    def offset(self) -> Floats:
        """What covariates and labels explain of each mean."""
        place = self.prior.fit(self.mean, self.noise).mean
        return place - float(np.median(place))


class Fit(Protocol):
    """The estimates of an estimator."""

    @property
    def estimate(self) -> Floats: ...

    @property
    def borrowed(self) -> Floats:
        """The weight of other agents in each estimate."""

    def error(self) -> Floats:
        """The standard error of each estimate."""


class PlainFit(msgspec.Struct, frozen=True):
    """Estimates whose variances have a formula."""

    estimate: Floats
    borrowed: Floats
    variance: Floats

    def error(self) -> Floats:
        return np.sqrt(self.variance)


def balanced(fit: Fit, agents: AgentStatistics) -> Floats:
    """The estimates, shifted so that they agree on average with the agents' own means, which are unbiased.

    An estimator that weights agents by their own variances is biased if means and variances depend on each other, as
    under skewed noise. The shift is proportional to what an estimate borrows, and it keeps the sum of all samples. If
    then the averages over agents still differ beyond chance, counts tell the mean, and that average is kept instead."""
    estimate, borrowed = fit.estimate, fit.borrowed
    total = float((agents.worth * borrowed).sum())
    if total <= 0.0 or len(estimate) < 2:
        return estimate
    shift = float((agents.worth * (agents.mean - estimate)).sum()) / total
    away = agents.mean - estimate - shift * borrowed
    middle = float(away.mean())
    if abs(middle) > _BEYOND * standard_error(away):
        shift += middle / float(borrowed.mean())
    low, high = min(agents.mean.min(), estimate.min()), max(agents.mean.max(), estimate.max())
    return np.clip(estimate + shift * borrowed, low, high)


def standard_error(values: Floats) -> float:
    """Of the mean of these values."""
    return float(values.std(ddof=1)) / len(values) ** 0.5


def mean_above_zero(value: float, error: float) -> float:
    """The mean of a normal variable with this mean and standard deviation, given that it is positive."""
    if error <= 0.0:
        return max(value, 0.0)
    z = value / error
    return error * (z + math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) / NormalDist().cdf(z))


class Estimator(msgspec.Struct, frozen=True, kw_only=True):
    """An estimator of all means. `variance`: which variances of samples it uses, "pooled" or "moderated"."""

    name: ClassVar[str]
    needs_groups = False
    """Whether its standard errors are those of a mixture: too small for a continuum, which a mixture fits by points."""
    variance: str = "moderated"

    @abstractmethod
    def fit(self, agents: AgentStatistics) -> Fit:
        """The estimates for these agents."""

    def estimates(self, agents: AgentStatistics) -> Floats:
        """The balanced estimates for these agents."""
        return balanced(self.fit(agents), agents)

    def without_groups(self) -> Estimator:
        """The estimator from which errors are seen where there is no evidence of groups."""
        return Shrinkage(variance=self.variance)

    def claimed(
        self, agents: Mapping[str, AgentStatistics], persistence: float, *, grouped: bool = True
    ) -> tuple[Floats, Floats]:
        """(balanced estimates, variances of their errors); statistics by kind of variance.

        As far as agents' own variances do not persist (`colme.data.fit.noise.Noise.persistence`), the errors are those
        seen from the same estimator with one variance for all agents. Without evidence of groups (`grouped`), the
        errors of an estimator that needs them are those seen from shrinkage."""
        own = agents[self.variance]
        if self.needs_groups and not grouped:
            estimate = self.estimates(own)
            middle, variance = self.without_groups().claimed(agents, persistence)
            return estimate, variance + np.square(middle - estimate)
        fit = self.fit(own)
        estimate, variance = balanced(fit, own), np.square(fit.error())
        if self.variance != "pooled" and persistence < 1.0:
            other = msgspec.structs.replace(self, variance="pooled").fit(agents["pooled"])
            wide = np.square(other.error()) + np.square(balanced(other, agents["pooled"]) - estimate)
            variance = persistence * variance + (1.0 - persistence) * wide
        return estimate, variance

    @property
    def label(self) -> str:
        return self.name if self.name == "local" else f"{self.name} ({self.variance} variance)"


class LocalMean(Estimator, frozen=True, kw_only=True):
    """Every agent's own mean: no collaboration."""

    name = "local"

    def fit(self, agents: AgentStatistics) -> Fit:
        return PlainFit(agents.mean, np.zeros(len(agents.mean)), agents.noise)


class Pooled(Estimator, frozen=True, kw_only=True):
    """One mean for all agents (with labels, one for each label; with covariates, a linear regression on them)."""

    name = "pooled"

    def fit(self, agents: AgentStatistics) -> Fit:
        found = agents.prior.fit(agents.mean, agents.noise, spread=0.0)
        # agents may differ: the posterior of shrinkage, seen from the common mean
        near = Shrinkage().fit(agents)
        variance = np.square(near.error()) + np.square(near.estimate - found.mean)
        return PlainFit(found.mean, np.ones(len(agents.mean)), variance)


class Shrinkage(Estimator, frozen=True, kw_only=True):
    """Normal empirical Bayes (Morris 1983): true means are N(prior mean, tau^2), with tau by maximum likelihood."""

    name = "shrinkage"

    def fit(self, agents: AgentStatistics) -> Fit:
        found = agents.prior.fit(agents.mean, agents.noise)
        return _shrunk(agents, found, mean_above_zero(found.spread, found.spread_error))


def _shrunk(agents: AgentStatistics, found: FittedPrior, believed: Floats | float) -> PlainFit:
    """Means shrunk towards prior means. The true spread may be larger than a small one, so the errors are those of the
    spread that is believed, with the standard error of the one that was found."""
    kept = found.spread / (found.spread + agents.noise)
    away = agents.mean - found.mean
    share = believed / (believed + agents.noise)
    from_spread = np.square((1.0 - share) * (found.spread_error / (believed + agents.noise)))
    wide = share * agents.noise + np.square(1.0 - kept) * found.variance + from_spread * np.square(away)
    return PlainFit(found.mean + kept * away, 1.0 - kept, wide)


class Close(Estimator, frozen=True, kw_only=True):
    """Shrinkage whose spread depends on the number of samples.

    How much agents differ may depend on how well they are known: those with many samples may be alike, or the opposite.
    Normal empirical Bayes with the prior N(m(n), tau^2(n)) is known as CLOSE (Chen 2022, "Empirical Bayes When
    Estimation Precision Predicts Parameters"). Here log tau^2 is linear in log n: its slope is found by maximum
    likelihood, with a standard normal prior, so that it is near zero where there is little evidence. The prior mean is
    linear in log n, too."""

    name = "close"

    def fit(self, agents: AgentStatistics) -> Fit:
        if self.name not in agents.cache:
            agents.cache[self.name] = fitted_spreads(agents)
        found: FittedPrior | None = agents.cache[self.name]
        if found is None:
            return Shrinkage(variance=self.variance).fit(agents)
        z = found.spread / np.maximum(found.spread_error, 1e-300)  # as in `mean_above_zero`
        believed = found.spread + found.spread_error * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) / special.ndtr(z)
        return _shrunk(agents, found, believed)


class PartitionEstimator(Estimator, frozen=True, kw_only=True):
    """The average over all partitions of the agents into classes of one mean, and over normal priors without classes
    (`colme.methods.partition`); shrinkage where agents are too many for it."""

    name = "partition"

    def fit(self, agents: AgentStatistics) -> Fit:
        if len(agents.mean) > MOST:
            return Shrinkage(variance=self.variance).fit(agents)
        offset = agents.offset
        found = FewPosteriors.of(agents.mean - offset, agents.noise)
        return PlainFit(found.estimate + offset, 1.0 - np.diag(found.weight), found.variance)


def _scale(agents: AgentStatistics) -> Floats:
    """log n, centered."""
    scale = np.log(np.maximum(agents.worth, 1e-300))
    return scale - scale.mean()


def _with_scale(prior: Prior, scale: Floats) -> Prior:
    """The prior with log n as a covariate, if none is much the same."""
    size = float(np.sqrt(np.square(scale).mean()))
    column = scale[:, None] / (size or 1.0)
    if prior.covariates is None:
        return prior._replace(covariates=column)
    spread = prior.covariates.std(axis=0) * size
    alike = np.abs((prior.covariates * scale[:, None]).mean(axis=0)) > _ALIKE * spread
    return prior if alike.any() else prior._replace(covariates=np.concatenate([prior.covariates, column], axis=1))


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


def fitted_spreads(agents: AgentStatistics) -> FittedPrior | None:
    """The prior of largest likelihood with a spread of each agent (Fisher scoring); None if agents do not differ, or
    have equal counts."""
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
    return FittedPrior(place, variance, spread, spread * np.sqrt(relative))
