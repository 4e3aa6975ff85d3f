"""`AgentPopulation`: what the agents of a table tell about the mean of an agent that is not in it.

Without evidence of groups, true means are normal around the prior mean, or beta or gamma for rates and counts. The
spread tau is not known: every tau counts by its likelihood (restricted, on a uniform prior of tau; for rates and counts
of the variance). Where there is evidence of groups, the distribution is the mixture in which they were found, whose
components have all spreads that are likely; for rates and counts, it is the mixture of rates. Covariates and labels
that are not told are those of an agent of the table, drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from scipy import special

from colme.data.fit.conjugate import RateMixtureFit, prior_rates, prior_weights
from colme.data.fit.estimators import AgentStatistics
from colme.data.fit.groups import Groups
from colme.data.fit.laws import Law
from colme.data.fit.mixture_estimator import MixtureFit, isolated
from colme.data.fit.posterior import interval
from colme.data.fit.prior import Prior, standardized
from colme.support.arrays import Floats, Integers, Mask

_SPREADS = np.linspace(-4.0, 3.0, 57)
"""Logarithms of spreads tau, relative to a likely one, that may be the true one."""
_SOME = 100
"""Agents, about, whose covariates and labels stand for those that are not told."""
_TAILS = (np.arange(9) + 0.5) / 9.0
"""Quantiles that stand for the uncertain prior mean of rates."""
_MANY = 20
"""Fewest agents of which one may be left out because it is far from all others."""


class Predictive(NamedTuple):
    """The distribution of a true mean: its distribution function, its mean, a width, and its bounds."""

    cdf: Callable[[Floats], Floats]
    mean: float
    width: float
    low: float = -np.inf
    high: float = np.inf


class AgentPopulation(msgspec.Struct, frozen=True, eq=False):
    """The agents of a table that have a sample.

    agents      their means, and the variances of these
    law         of rates or counts
    label       the known group of each agent; None if there are none
    covariates  (agents, covariates), in the units of the table
    names       the names of the covariates
    groups      found groups
    unit        by which all values are multiplied in the end
    """

    agents: AgentStatistics
    law: Law | None
    label: Integers | None
    covariates: Floats | None
    names: tuple[str, ...]
    groups: Groups | None
    unit: float = 1.0

    def predict(
        self, level: float, group: int | None, told: Mapping[str, float]
    ) -> tuple[float, float, float]:  # fmt: skip
        """(mean, lower, upper) of the mean of a new agent, of this group and with these covariates if they are told;
        it lies between the ends with this probability."""
        found = self._predictive(group, told)
        lower, upper = interval(level, *found)
        return self.unit * found.mean, self.unit * lower, self.unit * upper

    def _predictive(self, group: int | None, told: Mapping[str, float]) -> Predictive:
        groups = self.groups
        if groups is not None and groups.mixture is not None and groups.of_component is not None:
            inside = groups.of_component == (groups.of_component if group is None else group)
            if self.law is None:
                return self._by_components(groups.mixture, inside, told)
            return self._by_points(self.law, groups.mixture, inside)
        agents = self if groups is None or group is None else self._some(groups.group == group)
        if self.law is None:
            return agents._typical()._by_spread(group, told)
        return agents._by_weight(self.law, group, told)

    def _some(self, agents: Mask) -> AgentPopulation:
        every = self.agents
        some = AgentStatistics(every.mean[agents], every.noise[agents], every.worth[agents], Prior())
        columns = None if self.covariates is None else self.covariates[agents]
        return AgentPopulation(some, self.law, None, columns, self.names, None)

    def _typical(self) -> AgentPopulation:
        """Without the few agents that are far from all others: they would decide the spread."""
        agents = self.agents
        if self.label is not None or len(agents.mean) < _MANY or not agents.noise.any():
            return self
        near = ~isolated(agents.mean, agents.noise)
        return self if near.all() else self._some(near)._typical()

    def _extended(self, group: int | None, told: Mapping[str, float]) -> AgentStatistics:
        """The agents, followed by agents without a sample: new ones that each have what is told, and otherwise the
        label and covariates of an agent of the table. Their noise is infinite, so they do not change the prior."""
        n = len(self.agents.mean)
        untold = (self.label is not None and group is None) or any(name not in told for name in self.names)
        like = np.arange(0, n, max(n // _SOME, 1)) if untold else np.zeros(1, np.int64)
        label = None
        if self.label is not None:
            new = self.label[like] if group is None else np.full(len(like), group)
            label = np.unique(np.concatenate([self.label, new]), return_inverse=True)[1]
        columns = None
        if self.covariates is not None:
            rows = self.covariates[like].copy()
            for k, name in enumerate(self.names):
                rows[:, k] = told.get(name, rows[:, k])
            columns = standardized(np.concatenate([self.covariates, rows]))
        more = np.ones(len(like))
        return AgentStatistics(
            np.concatenate([self.agents.mean, float(np.median(self.agents.mean)) * more]),
            np.concatenate([self.agents.noise, np.inf * more]), np.concatenate([self.agents.worth, 0.0 * more]),
            Prior(label, columns),
        )  # fmt: skip

    def _by_spread(self, group: int | None, told: Mapping[str, float]) -> Predictive:
        """Normal distributions with all spreads that may be the true one."""
        every, n = self._extended(group, told), len(self.agents.mean)
        found = every.prior.fit(every.mean, every.noise) if self.agents.noise.any() else None
        likely = float(np.var(self.agents.mean)) if found is None else found.spread + found.spread_error
        if likely <= 0.0:  # all agents have the same mean, without noise
            middle = float(self.agents.mean[0])
            return Predictive(lambda x: np.asarray(x >= middle, np.float64), middle, 0.0)
        label = np.zeros(n, np.int64) if every.prior.label is None else every.prior.label[:n]
        place, variance, log = [], [], []
        for each in likely * np.exp(2.0 * _SPREADS):
            fitted = every.prior.fit(every.mean, every.noise, spread=float(each))
            weight = 1.0 / (self.agents.noise + each)
            away = self.agents.mean - fitted.mean[:n]
            lost = np.log(np.bincount(label, weight)).sum() + len(self.names) * np.log(weight.sum())
            log.append(0.5 * float((np.log(weight) - weight * away * away).sum() - lost))
            place.append(fitted.mean[n:])
            variance.append(each + fitted.variance[n:])
        share = np.repeat(_shares(np.array(log)) / len(place[0]), len(place[0]))
        return _normals(share, np.concatenate(place), np.concatenate(variance))

    def _by_weight(self, law: Law, group: int | None, told: Mapping[str, float]) -> Predictive:
        """Beta or gamma distributions with all weights that may be the true one."""
        if np.ptp(self.agents.mean) == 0.0 and self.agents.mean[0] in (0.0, law.most):
            return self._common_rate(law)
        every, n = self._extended(group, told), len(self.agents.mean)
        found = prior_rates(law, every)
        _, weights, share = prior_weights(law, self.agents.total, self.agents.worth, found.mean[:n])
        # the prior mean is uncertain, too: a distribution of the same kind around it
        middle = found.mean[n:]
        largest = law.variance(middle) if law.most == 1.0 else np.inf  # the variance of true rates with this mean
        known = law.prior_weight(middle, np.maximum(np.minimum(found.variance[n:], 0.999 * largest), 1e-300))
        place = np.maximum(np.array([law.quantile(float(each), known * middle, known) for each in _TAILS]), 1e-300)
        place = np.minimum(place, law.most * (1.0 - 1e-15)).ravel()
        share = np.repeat(share / len(place), len(place))
        whole, flat = np.repeat(weights, len(place)), np.tile(place, len(weights))
        y = np.maximum(whole * flat, 1e-300)

        def cdf(x: Floats) -> Floats:
            return np.array([float(share @ law.cdf(np.full(len(y), each), y, whole)) for each in x])

        mean = float(share @ flat)
        variance = law.variance(flat) / (whole + (1.0 if law.most == 1.0 else 0.0))
        return Predictive(cdf, mean, float(np.sqrt(share @ (variance + np.square(flat - mean)))), 0.0, law.most)

    def _common_rate(self, law: Law) -> Predictive:
        """No agent has a success or event, or no agent has a failure: nothing shows that rates differ, so it is the
        posterior of one rate for all, on Jeffreys' prior."""
        more = 1.0 if law.most == 1.0 else 0.0
        whole = np.array([float(self.agents.worth.sum()) + more])
        y = whole - more + 0.5 if self.agents.mean[0] > 0.0 else np.full(1, 0.5)
        mean = y / whole
        width = float(np.sqrt(law.variance(mean) / whole)[0])
        return Predictive(lambda x: law.cdf(x, y, whole), float(mean[0]), width, 0.0, law.most)

    def _by_components(self, fit: MixtureFit, inside: Mask, told: Mapping[str, float]) -> Predictive:
        """Those components of a mixture that are inside, with all spreads that each may have."""
        share, location, variance = fit.components
        x, noise = fit.mean[~fit.isolated], fit.sampling[~fit.isolated]
        every = noise[:, None] + variance
        log = np.log(share) - 0.5 * (np.log(every) + np.square(x[:, None] - location) / every)
        member = np.exp(log - log.max(axis=1, keepdims=True))
        member /= member.sum(axis=1, keepdims=True)
        parts = []
        for i in np.flatnonzero(inside):
            part, size = member[:, i], max(float(member[:, i].sum()), 1.0)
            likely = variance[i] + float(part @ noise) / size * (2.0 / size) ** 0.5
            spread = likely * np.exp(2.0 * _SPREADS)
            weight = part[:, None] / (noise[:, None] + spread)
            total = weight.sum(axis=0)
            place = (weight * x[:, None]).sum(axis=0) / total
            away = (weight * np.square(x[:, None] - place)).sum(axis=0)
            found = _shares(0.5 * (-part @ np.log(noise[:, None] + spread) - away - np.log(total)))
            parts.append((share[i] * found, place, spread + 1.0 / total))
        weights, place, wide = (np.concatenate(each) for each in zip(*parts, strict=True))
        middle = self._middle(fit, told)
        weights = np.repeat(weights / weights.sum() / len(middle), len(middle))
        return _normals(weights, (place[:, None] + middle).ravel(), np.repeat(wide, len(middle)))

    def _by_points(self, law: Law, fit: MixtureFit, inside: Mask) -> Predictive:
        """The points of a mixture of rates that are nearest to those components of another mixture that are inside."""
        weight, rate, deviation = RateMixtureFit(law, self.agents.total, self.agents.worth).prior
        if not inside.all():
            share, location, variance = fit.components
            every = variance + float(np.median(fit.sampling))
            away = law.stabilized(rate)[:, None] - location - fit.middle
            some = inside[np.argmax(np.log(share) - 0.5 * (np.log(every) + away * away / every), axis=1)]
            weight, rate, deviation = weight[some], rate[some], deviation[some]
        return _normals(weight / weight.sum(), rate, np.square(deviation), 0.0, law.most)

    def _middle(self, fit: MixtureFit, told: Mapping[str, float]) -> Floats:
        """What the locations of a mixture are relative to, for new agents."""
        if not self.names:
            return np.array([fit.middle])
        every, n = self._extended(None, told), len(self.agents.mean)
        more = np.ones(len(every.mean) - n)
        mean = np.concatenate([fit.mean + fit.center, fit.middle * more])
        found = every.prior.fit(mean, np.concatenate([fit.sampling, np.inf * more]))
        return found.mean[n:] - float(np.median(found.mean[:n])) + fit.middle


def _shares(log: Floats) -> Floats:
    """The probabilities of spreads, by their likelihoods: uniform in tau, whose logarithms are equally spaced."""
    share = np.exp(log + _SPREADS - (log + _SPREADS).max())
    return share / share.sum()


def _normals(
    share: Floats, place: Floats, variance: Floats, low: float = -np.inf, high: float = np.inf
) -> Predictive:  # fmt: skip
    """A mixture of normal distributions, whose tails beyond the bounds are at the bounds."""
    deviation = np.sqrt(variance)

    def cdf(x: Floats) -> Floats:
        found = special.ndtr((x[:, None] - place) / deviation) @ share
        return np.where(x >= high, 1.0, np.where(x < low, 0.0, found))

    mean = float(share @ place)
    width = float(np.sqrt(share @ (variance + np.square(place - mean))))
    return Predictive(cdf, min(max(mean, low), high), width, low, high)
