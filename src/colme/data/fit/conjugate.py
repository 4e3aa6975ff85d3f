"""Rates and counts with their own likelihood: beta-binomial and gamma-Poisson shrinkage, and a mixture of rates.

The true rate of an agent has the prior mean m and the prior weight s, in trials or exposure (`colme.data.fit.laws`). Of
y successes or events in n, the estimate is (y + s m) / (n + s), and the posterior is that of a prior with y and n
added, so intervals stay within [0, 1] or above 0. The weight s is chosen by maximum likelihood.

Where rates form classes, the prior of largest likelihood is a few points of weight (Kiefer and Wolfowitz 1956). It is
found on a grid of rates by expectation and maximization: the census of a table, for samples that are far from normal.
"""

from __future__ import annotations

import msgspec
import numpy as np
from scipy import optimize, special

from colme.data.fit.estimators import AgentStatistics, Estimator
from colme.data.fit.laws import LAWS, Law
from colme.data.fit.posterior import quantiles, scaled
from colme.data.fit.prior import FittedPrior
from colme.support.arrays import Floats, Integers

_JEFFREYS = 0.5
"""Successes, failures or events that the prior of an agent alone counts for."""
_POINTS = 100
"""Points of the grid of rates."""
_ROUNDS, _ENOUGH = 1000, 1e-3
"""Rounds of expectation and maximization at most, and the growth of a weight at which there are enough."""
_ROUNDING = 1e-12
"""Points that no agent is at with a larger probability are left out."""
_BLOCK = 10_000
"""Rows whose probabilities are in memory at a time."""
_OTHERS = np.linspace(-4.0, 4.0, 25)
"""Logarithms of weights of the prior, relative to the most likely one, that may be the true one."""
_TAIL = 18
"""Bits at the end of a number that rounding errors may change."""
_LEAST, _MOST = 1e-3, 1e7
"""The prior weight lies between these, in units of the median count."""


class ConjugateFit(msgspec.Struct, frozen=True):
    """Posteriors with y successes or events in n, the prior's included.

    extra  the variance of an estimate that comes from the prior, whose parameters are estimates, too"""

    law: Law
    y: Floats
    n: Floats
    estimate: Floats
    borrowed: Floats
    extra: Floats | float = 0.0

    @property
    def _inside(self) -> Floats:
        """The variance of the posterior."""
        return self.law.variance(self.y / self.n) / self.n

    def error(self) -> Floats:
        return np.sqrt(self._inside + self.extra)

    def with_errors(self, error: Floats) -> ConjugateFit:
        """Posteriors of the same kind and mean, with these standard errors."""
        share = self._inside / np.square(np.maximum(error, 1e-300))
        return msgspec.structs.replace(self, y=share * self.y, n=share * self.n)

    def cdf(self, rows: Integers, z: Floats) -> Floats:
        """The posterior probability that the true rates of these agents are at most z."""
        return self.law.cdf(z, self.y[rows], self.n[rows])

    def draw(self, rng: np.random.Generator) -> Floats:
        """A true rate of every agent from its posterior."""
        return self.law.draw(rng, self.y, self.n)

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """(lower, upper), between which the true rate lies with this posterior probability."""
        lower, upper = (self.law.quantile(0.5 + 0.5 * side * level, self.y, self.n) for side in (-1, 1))
        return np.minimum(lower, self.estimate), np.maximum(upper, self.estimate)


class ConjugateShrinkage(Estimator, frozen=True, kw_only=True):
    """Beta-binomial or gamma-Poisson empirical Bayes, with the law that `variance` names."""

    name = "shrinkage"

    def fit(self, agents: AgentStatistics) -> ConjugateFit:
        law, y, n = LAWS[self.variance], agents.total, agents.worth
        place = prior_rates(law, agents).mean
        weight, weights, share = prior_weights(law, y, n, place)
        whole = n + weight
        estimate, borrowed = (y + weight * place) / whole, weight / whole
        # what the unknown weight of the prior adds to the variance of estimates
        inside = law.variance(estimate) / whole
        extra = np.zeros(len(y))
        for part, each in zip(share, weights, strict=True):
            other = (y + each * place) / (n + each)
            extra += part * (law.variance(other) / (n + each) + np.square(other - estimate) - inside)
        spread = law.variance(place) / weight + law.variance(place) / n
        extra = np.maximum(extra, 0.0) + np.square(borrowed) / float((1.0 / spread).sum())  # of the prior mean
        return ConjugateFit(law, y + weight * place, whole, estimate, borrowed, extra)

    @property
    def label(self) -> str:
        return f"shrinkage ({'beta-binomial' if self.variance == 'binomial' else 'gamma-Poisson'})"


def prior_rates(law: Law, agents: AgentStatistics) -> FittedPrior:
    """The prior mean of each agent's rate, and the variance of that mean."""
    y, n = agents.total, agents.worth
    there = n > 0.0
    least = _JEFFREYS / (float(n.sum()) + 1.0)
    # weights must not depend on the rate of an agent: those without an event would have the largest
    common = law.variance((y.sum() + _JEFFREYS) / (n.sum() + 2.0 * _JEFFREYS)) / np.where(there, n, 1.0)
    found = agents.prior.fit(agents.mean, np.where(there, common, np.inf))
    return found._replace(mean=np.clip(found.mean, least, law.most - least))


def _rounded(values: Floats) -> Integers:
    """The leading bits of positive numbers: equal if these agree to ten digits, up to rare ties."""
    return (values.view(np.int64) + (1 << _TAIL - 1)) >> _TAIL


def prior_weights(law: Law, y: Floats, n: Floats, place: Floats) -> tuple[float, Floats, Floats]:
    """(the most likely weight of the prior, weights that may be the true one, the probabilities of these): by their
    likelihoods, on a uniform prior of the spread of true rates, which is about v(m) / weight.

    Agents with the same counts and the same prior mean have equal likelihoods, and are counted together."""
    prior = np.unique(_rounded(n) + 1j * _rounded(place), return_inverse=True)[1]
    _, first, number = np.unique(_rounded(y) + 1j * prior, return_index=True, return_counts=True)
    y, n, place, times = y[first], n[first], place[first], number.astype(np.float64)
    middle = float(np.median(np.repeat(n, number)))
    found = optimize.minimize_scalar(
        lambda log: -law.log_likelihood(y, n, place, times, float(np.exp(log))), method="bounded",
        bounds=(np.log(_LEAST * middle), np.log(_MOST * middle)), options={"xatol": 1e-3},
    )  # fmt: skip
    weight = float(np.exp(found.x))
    weights = weight * np.exp(_OTHERS)
    log = np.array([law.log_likelihood(y, n, place, times, float(each)) for each in weights]) - _OTHERS
    share = np.exp(log - log.max())
    return weight, weights, share / share.sum()


class RateMixtureFit:
    """Posteriors under a prior of points: a few normal distributions, the same for all agents, which each agent has
    with other probabilities.

    prior  (weights, rates, standard errors of the rates) of the points"""

    def __init__(self, law: Law, y: Floats, n: Floats):
        own = law.stabilized(y / n)
        rate = law.at(np.linspace(own.min(), own.max(), _POINTS))
        # agents with the same counts have the same posterior
        _, self._first, self._pair, number = np.unique(
            _rounded(y) + 1j * _rounded(n), return_index=True, return_inverse=True, return_counts=True
        )
        log = law.log_density(y[self._first][:, None], n[self._first][:, None], rate)
        like = np.exp(log - log.max(axis=1, keepdims=True))
        weight = np.full(_POINTS, 1.0 / _POINTS)
        for _ in range(_ROUNDS):
            growth = like.T @ (number / (like @ weight)) / len(y)
            weight *= growth
            if growth.max() < 1.0 + _ENOUGH:
                break
        share = like * weight
        share /= share.sum(axis=1, keepdims=True)
        middle = share @ rate
        # the place of a point is known as well as the rate of all agents together that it stands for
        held = share.T @ (number * n[self._first])
        place = law.variance(rate) / np.maximum(held, float(np.median(n)))
        self.prior = weight, rate, np.sqrt(np.maximum(place, 1e-300))
        some = share.max(axis=0) > _ROUNDING
        self._points = rate[some], np.sqrt(place[some]), share[:, some] / share[:, some].sum(axis=1, keepdims=True)
        inside = share @ (np.square(rate) + place) - np.square(middle)
        self._variance = inside[self._pair].clip(min=0.0)
        self.estimate = middle[self._pair]
        noise = law.variance(self.estimate) / n
        # by Tweedie's formula, an estimate follows its own rate as far as the posterior is as wide as the noise
        self.borrowed = 1.0 - np.clip(self._variance / np.maximum(noise, 1e-300), 0.0, 1.0)

    def error(self) -> Floats:
        return np.sqrt(self._variance)

    def cdf(self, rows: Integers, z: Floats) -> Floats:
        """The posterior probability that the true rates of these agents are at most z."""
        (place, deviation, share), found = self._points, np.empty(len(rows))
        for begin in range(0, len(rows), _BLOCK):
            some = slice(begin, begin + _BLOCK)
            below = special.ndtr(scaled(z[some, None] - place, deviation))  # a rate of 0 or 1 is a point
            found[some] = (share[self._pair[rows[some]]] * below).sum(axis=1)
        return found

    def draw(self, rng: np.random.Generator) -> Floats:
        """A true rate of every agent from its posterior."""
        place, deviation, share = self._points
        uniform, normal = rng.random(len(self._pair)), rng.standard_normal(len(self._pair))
        point = np.zeros(len(self._pair), np.int64)
        for below in np.cumsum(share, axis=1).T[:-1]:
            point += uniform >= below[self._pair]
        return place[point] + deviation[point] * normal

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """(lower, upper), between which the true rate lies with this posterior probability."""
        first = self._first
        middle, width = self.estimate[first], np.sqrt(self._variance[first])
        lower, upper = (
            quantiles(lambda x: self.cdf(first, x), np.full(len(first), 0.5 + 0.5 * side * level), middle, width)
            for side in (-1, 1)
        )
        return lower[self._pair], upper[self._pair]


class RateMixture(Estimator, frozen=True, kw_only=True):
    """Empirical Bayes with a prior of points."""

    name = "census"
    needs_groups = True

    def fit(self, agents: AgentStatistics) -> RateMixtureFit:
        return RateMixtureFit(LAWS[self.variance], agents.total, agents.worth)

    def without_groups(self) -> Estimator:
        return ConjugateShrinkage(variance=self.variance)


class ConjugateLocal(Estimator, frozen=True, kw_only=True):
    """Every agent's own rate, with Jeffreys' intervals."""

    name = "local"

    def fit(self, agents: AgentStatistics) -> ConjugateFit:
        law, y, n = LAWS[self.variance], agents.total, agents.worth
        more = 2.0 * _JEFFREYS if law.most == 1.0 else 0.0
        return ConjugateFit(law, y + _JEFFREYS, n + more, agents.mean, np.zeros(len(n)))
