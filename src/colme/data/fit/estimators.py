"""Estimators of all agents' means behind one interface, and the simple ones: local, pooled, shrinkage.

An `Estimator` is a frozen struct with `fit(agents: AgentStatistics) -> Fit`. Estimators see counts only through the
variance of a mean, so agents may have one sample or a million. What covariates and labels explain is subtracted first,
see `colme.data.fit.prior`. The other estimators are in `close`,
`mixture_estimator` and `overlaps`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.data.fit.prior import Prior

Floats = NDArray[np.float64]
ESTIMATORS = ("local", "pooled", "shrinkage", "close", "census", "one-hop", "cl-colme")
"""The names of all estimators."""


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


class Fit(Protocol):
    """The estimates of an estimator."""

    @property
    def estimate(self) -> Floats: ...

    @property
    def borrowed(self) -> Floats:
        """The weight of other agents in each estimate."""

    @property
    def groups(self) -> NDArray[np.int64] | None:
        """The group of each agent, if the estimator forms groups itself."""

    def error(self) -> Floats:
        """The standard error of each estimate."""


class PlainFit(msgspec.Struct, frozen=True):
    """Estimates whose variances have a formula."""

    estimate: Floats
    borrowed: Floats
    variance: Floats
    groups: NDArray[np.int64] | None = None

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
    if abs(middle) > _BEYOND * float(away.std(ddof=1)) / len(away) ** 0.5:
        shift += middle / float(borrowed.mean())
    low, high = min(agents.mean.min(), estimate.min()), max(agents.mean.max(), estimate.max())
    return np.clip(estimate + shift * borrowed, low, high)


def mean_above_zero(value: float, error: float) -> float:
    """The mean of a normal variable with this mean and standard deviation, given that it is positive."""
    if error <= 0.0:
        return max(value, 0.0)
    z = value / error
    return error * (z + math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) / NormalDist().cdf(z))


class Estimator(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An estimator of all means. `variance`: which variances of samples it uses, "pooled" or "moderated"."""

    name: ClassVar[str]
    needs_groups: ClassVar[bool] = False
    """Whether its standard errors are those of a mixture: too small for a continuum, which a mixture fits by points."""
    variance: str = "moderated"

    @abstractmethod
    def fit(self, agents: AgentStatistics) -> Fit:
        """The estimates for these agents."""

    def estimates(self, agents: AgentStatistics) -> Floats:
        """The balanced estimates for these agents."""
        return balanced(self.fit(agents), agents)

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
            middle, variance = Shrinkage(variance=self.variance).claimed(agents, persistence)
            return estimate, variance + np.square(middle - estimate)
        fit = self.fit(own)
        estimate, variance = balanced(fit, own), np.square(fit.error())
        if self.variance != "pooled" and persistence < 1.0:
            common = msgspec.structs.replace(self, variance="pooled")
            other = common.fit(agents["pooled"])
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
        kept = found.spread / (found.spread + agents.noise)
        away = agents.mean - found.mean
        spread = mean_above_zero(found.spread, found.spread_error)  # the true spread may be larger than a small one
        believed = spread / (spread + agents.noise)
        from_spread = np.square((1.0 - believed) * (found.spread_error / (spread + agents.noise)))
        variance = believed * agents.noise + np.square(1.0 - kept) * found.variance + from_spread * np.square(away)
        return PlainFit(found.mean + kept * away, 1.0 - kept, variance)
