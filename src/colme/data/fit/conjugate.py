"""Shrinkage of rates and counts with their own likelihood: beta-binomial and gamma-Poisson (negative binomial).

The true rate of an agent has the prior mean m and the prior weight s, in units of trials or exposure:

    rates    Beta(s m, s (1 - m)),     y of n trials are successes
    counts   Gamma(s m) with rate s,   y events in exposure n

In both, the estimate is (y + s m) / (n + s), and the posterior is of the same kind with y and n added, so intervals
stay within [0, 1] and above 0. The weight s is chosen by maximum likelihood.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from colme.data.fit.estimators import AgentStatistics, Estimator

Floats = NDArray[np.float64]
JEFFREYS = 0.5
"""Successes, failures or events that the prior of an agent alone counts for."""
_LEAST, _MOST = 1e-3, 1e7
"""The prior weight lies between these, in units of the median count."""


class Law(msgspec.Struct, frozen=True):
    """How samples vary around the true rate, and the conjugate prior."""

    name: ClassVar[str]

    @abstractmethod
    def variance(self, rate: Floats) -> Floats:
        """The variance of one trial, or of a count in exposure 1."""

    @abstractmethod
    def log_likelihood(self, y: Floats, n: Floats, place: Floats, weight: float) -> float:
        """Of the weight s of the prior, with prior mean `place`; constants are left out."""

    @abstractmethod
    def quantile(self, share: float, y: Floats, n: Floats) -> Floats:
        """Of a posterior with y successes or events in n, the prior's included."""


class Binomial(Law, frozen=True):
    """Successes in a number of trials."""

    name = "binomial"

    def variance(self, rate: Floats) -> Floats:
        return rate * (1.0 - rate)

    def log_likelihood(self, y: Floats, n: Floats, place: Floats, weight: float) -> float:
        a, b = weight * place, weight * (1.0 - place)
        return float((special.betaln(y + a, n - y + b) - special.betaln(a, b)).sum())

    def quantile(self, share: float, y: Floats, n: Floats) -> Floats:
        return np.asarray(special.betaincinv(y, np.maximum(n - y, 1e-300), share))


class Poisson(Law, frozen=True):
    """Events in an exposure."""

    name = "Poisson"

    def variance(self, rate: Floats) -> Floats:
        return rate

    def log_likelihood(self, y: Floats, n: Floats, place: Floats, weight: float) -> float:
        a = weight * place
        whole = special.gammaln(y + a) - special.gammaln(a) + a * np.log(weight) - (y + a) * np.log(n + weight)
        return float(whole.sum())

    def quantile(self, share: float, y: Floats, n: Floats) -> Floats:
        return np.asarray(special.gammaincinv(y, share) / n)


LAWS: dict[str, Law] = {law.name: law for law in (Binomial(), Poisson())}


class ConjugateFit(msgspec.Struct, frozen=True):
    """Posteriors that count the prior's successes or events and weight."""

    law: Law
    y: Floats
    n: Floats
    borrowed: Floats
    estimate: Floats
    groups: NDArray[np.int64] | None = None

    def error(self) -> Floats:
        rate = self.y / self.n
        return np.sqrt(self.law.variance(rate) / self.n)

    def interval(self, level: float, factor: Floats | float = 1.0) -> tuple[Floats, Floats]:
        """The posterior interval, with standard errors larger by a factor."""
        share = 1.0 / np.square(factor)
        lower, upper = (self.law.quantile(0.5 + 0.5 * side * level, share * self.y, share * self.n) for side in (-1, 1))
        return np.minimum(lower, self.estimate), np.maximum(upper, self.estimate)


class ConjugateShrinkage(Estimator, frozen=True, kw_only=True):
    """Beta-binomial or gamma-Poisson empirical Bayes; `variance` names the law."""

    name = "shrinkage"
    variance: str = "binomial"

    def fit(self, agents: AgentStatistics) -> ConjugateFit:
        law = LAWS[self.variance]
        y, n = agents.mean * agents.worth, agents.worth
        place, _, most = self._place(agents, law), 0.0, float(np.median(n))
        found = optimize.minimize_scalar(
            lambda log: -law.log_likelihood(y, n, place, float(np.exp(log))), method="bounded",
            bounds=(np.log(_LEAST * most), np.log(_MOST * most)), options={"xatol": 1e-3},
        )  # fmt: skip
        weight = float(np.exp(found.x))
        total = n + weight
        return ConjugateFit(law, y + weight * place, total, weight / total, (y + weight * place) / total)

    def _place(self, agents: AgentStatistics, law: Law) -> Floats:
        """The prior mean of every agent: common, or what labels and covariates explain, within the range of rates."""
        place = agents.prior.fit(agents.mean, agents.noise).mean
        least = JEFFREYS / (float(agents.worth.sum()) + 1.0)
        return np.clip(place, least, 1.0 - least if law.name == "binomial" else np.inf)

    @property
    def label(self) -> str:
        return f"shrinkage ({'beta-binomial' if self.variance == 'binomial' else 'gamma-Poisson'})"


class ConjugateLocal(Estimator, frozen=True, kw_only=True):
    """Every agent's own rate, with Jeffreys' intervals."""

    name = "local"
    variance: str = "binomial"

    def fit(self, agents: AgentStatistics) -> ConjugateFit:
        law = LAWS[self.variance]
        y, n = agents.mean * agents.worth, agents.worth
        more = 2.0 * JEFFREYS if law.name == "binomial" else 0.0
        return ConjugateFit(law, y + JEFFREYS, n + more, np.zeros(len(n)), agents.mean)
