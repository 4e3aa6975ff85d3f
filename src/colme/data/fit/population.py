"""`AgentPopulation`: what the agents of a table tell about the mean of an agent that is not in it.

Without evidence of groups, true means are normal around the prior mean, or beta or gamma for rates and counts. The
spread tau is not known: every tau counts by its likelihood (restricted, on a uniform prior of tau; for rates and counts
of the variance). Where there is evidence of groups, the distribution is the mixture in which they were found, whose
components have all spreads that are likely; for rates and counts, it is the mixture of rates. Covariates and labels
that are not told are those of an agent of the table, drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
from scipy import special

from colme.data.fit.conjugate import RateMixtureFit, alike, possible_weights, prior_rates, prior_weight
from colme.data.fit.estimators import AgentStatistics
from colme.data.fit.groups import Groups
from colme.data.fit.laws import Law
from colme.data.fit.mixture_estimator import isolated
from colme.data.fit.posterior import quantiles
from colme.data.fit.prior import Prior, standardized
from colme.data.moments import Floats, Integers

_SPREADS = np.linspace(-4.0, 3.0, 57)
"""Logarithms of spreads tau, relative to a likely one, that may be the true one."""
_SOME = 100
"""Agents, about, whose covariates and labels stand for those that are not told."""
_TAILS = (np.arange(9) + 0.5) / 9.0
"""Quantiles that stand for the uncertain prior mean of rates."""
_MANY = 20
"""Fewest agents of which one may be left out because it is far from all others."""


class Predictive(NamedTuple):
    """The distribution of a true mean: its mean, a width, its distribution function, and its bounds."""

    mean: float
    width: float
    cdf: Callable[[Floats], Floats]
    low: float = -np.inf
    high: float = np.inf

    def interval(self, level: float) -> tuple[float, float]:
        """(lower, upper), between which the true mean lies with this probability."""
        share = np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])
        both = np.full(2, self.mean), np.full(2, self.width)
        lower, upper = quantiles(self.cdf, share, *both, self.low, self.high).tolist()
        return min(lower, self.mean), max(upper, self.mean)


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

    def predict(self, group: int | None = None, covariates: Mapping[str, float] | None = None) -> Predictive:
        """The distribution of the mean of a new agent, of this group and with these covariates if they are told."""
        told = dict(covariates or {})
        if self.label is not None:
            found = self._by_spread(group, told) if self.law is None else self._by_weight(self.law, group, told)
        elif self._mixed is not None:
            groups = self._mixed
            found = self._by_components(groups, group, told) if self.law is None else (
                self._by_points(self.law, groups, group))  # fmt: skip
        elif group is not None and self.groups is not None:  # formed by an estimator
            found = self._members(group).predict(covariates=told)
        else:
            found = self._by_spread(None, told) if self.law is None else self._by_weight(self.law, None, told)
        return _in_unit(found, self.unit)

    @property
    def _mixed(self) -> Groups | None:
        """The groups of a mixture, if there are any."""
        return self.groups if self.groups is not None and self.groups.mixture is not None else None

    def _members(self, group: int) -> AgentPopulation:
        assert self.groups is not None
        some = self.groups.group == group
        agents = AgentStatistics(self.agents.mean[some], self.agents.noise[some], self.agents.worth[some], Prior())
        columns = None if self.covariates is None else self.covariates[some]
        return AgentPopulation(agents, self.law, None, columns, self.names, None)

    def _typical(self) -> AgentPopulation:
        """Without the few agents that are far from all others: they would decide the spread."""
        agents = self.agents
        if self.label is not None or len(agents.mean) < _MANY or not agents.noise.any():
            return self
        near = ~isolated(agents.mean, agents.noise)
        if near.all():
            return self
        columns = None if self.covariates is None else self.covariates[near]
        kept = AgentStatistics(agents.mean[near], agents.noise[near], agents.worth[near], Prior())
        return AgentPopulation(kept, self.law, None, columns, self.names, None)

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
        if (typical := self._typical()) is not self:
            return typical._by_spread(group, told)
        every, n = self._extended(group, told), len(self.agents.mean)
        found = every.prior.fit(every.mean, every.noise) if self.agents.noise.any() else None
        likely = float(np.var(self.agents.mean)) if found is None else found.spread + found.spread_error
        if likely <= 0.0:  # all agents have the same mean, without noise
            middle = float(self.agents.mean[0])
            return Predictive(middle, 0.0, lambda x: np.asarray(x >= middle, np.float64))
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
        weights, share = self._weights(found.mean[:n])
        # the prior mean is uncertain, too: a distribution of the same kind around it
        middle, doubt = found.mean[n:], np.minimum(found.variance[n:], 0.999 * _largest_variance(law, found.mean[n:]))
        known = law.prior_weight(middle, np.maximum(doubt, 1e-300))
        place = np.maximum(np.array([law.quantile(float(each), known * middle, known) for each in _TAILS]), 1e-300)
        place = np.minimum(place, law.most * (1.0 - 1e-15)).ravel()
        share = np.repeat(share / len(place), len(place))
        whole, flat = np.repeat(weights, len(place)), np.tile(place, len(weights))
        y = np.maximum(whole * flat, 1e-300)

        def cdf(x: Floats) -> Floats:
            return np.array([float(share @ law.cdf(np.full(len(y), each), y, whole)) for each in x])

        mean = float(share @ flat)
        variance = law.variance(flat) / (whole + (1.0 if law.most == 1.0 else 0.0))
        return Predictive(mean, float(np.sqrt(share @ (variance + np.square(flat - mean)))), cdf, 0.0, law.most)

    def _common_rate(self, law: Law) -> Predictive:
        """No agent has a success or event, or no agent has a failure: nothing shows that rates differ, so it is the
        posterior of one rate for all, on Jeffreys' prior."""
        more = 1.0 if law.most == 1.0 else 0.0
        whole = np.array([float(self.agents.worth.sum()) + more])
        y = whole - more + 0.5 if self.agents.mean[0] > 0.0 else np.full(1, 0.5)
        mean = y / whole
        width = float(np.sqrt(law.variance(mean) / whole)[0])
        return Predictive(float(mean[0]), width, lambda x: law.cdf(x, y, whole), 0.0, law.most)

    def _weights(self, place: Floats) -> tuple[Floats, Floats]:
        assert self.law is not None
        y, n = self.agents.mean * self.agents.worth, self.agents.worth
        pairs = alike(y, n, place)
        return possible_weights(self.law, pairs, prior_weight(self.law, pairs))

    def _by_components(self, groups: Groups, group: int | None, told: Mapping[str, float]) -> Predictive:
        """The components of a mixture, those of one group if it is told, with all spreads that each may have."""
        fit, of_component = groups.mixture, groups.of_component
        assert fit is not None and of_component is not None
        share, location, variance = fit.components
        x, noise = fit.mean[~fit.isolated], fit.sampling[~fit.isolated]
        every = noise[:, None] + variance
        log = np.log(share) - 0.5 * (np.log(every) + np.square(x[:, None] - location) / every)
        member = np.exp(log - log.max(axis=1, keepdims=True))
        member /= member.sum(axis=1, keepdims=True)
        parts = []
        for i in range(len(share)) if group is None else np.flatnonzero(of_component == group):
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
        middle = self._middle(told)
        weights = np.repeat(weights / weights.sum() / len(middle), len(middle))
        return _normals(weights, (place[:, None] + middle).ravel(), np.repeat(wide, len(middle)))

    def _by_points(self, law: Law, groups: Groups, group: int | None) -> Predictive:
        """The points of a mixture of rates; of one group, those nearest to its components."""
        fit, of_component = groups.mixture, groups.of_component
        assert fit is not None and of_component is not None
        found = RateMixtureFit(law, self.agents.mean * self.agents.worth, self.agents.worth)
        weight, rate, deviation = found.prior
        if group is not None:
            share, location, variance = fit.components
            every = variance + float(np.median(fit.sampling))
            away = law.stabilized(rate)[:, None] - location - fit.middle
            nearest = np.argmax(np.log(share) - 0.5 * (np.log(every) + away * away / every), axis=1)
            some = of_component[nearest] == group
            weight, rate, deviation = weight[some], rate[some], deviation[some]
        return _bounded(_normals(weight / weight.sum(), rate, np.square(deviation)), 0.0, law.most)

    def _middle(self, told: Mapping[str, float]) -> Floats:
        """What the locations of a mixture are relative to, for new agents."""
        assert self.groups is not None and self.groups.mixture is not None
        middle, n = self.groups.mixture.middle, len(self.agents.mean)
        if not self.names:
            return np.array([middle])
        every = self._extended(None, told)
        scale = self.groups.mixture.mean + self.groups.mixture.center
        mean = np.concatenate([scale, np.full(len(every.mean) - n, middle)])
        noise = np.concatenate([self.groups.mixture.sampling, np.full(len(every.mean) - n, np.inf)])
        found = every.prior.fit(mean, noise)
        return found.mean[n:] - float(np.median(found.mean[:n])) + middle


def _shares(log: Floats) -> Floats:
    """The probabilities of spreads, by their likelihoods: uniform in tau, whose logarithms are equally spaced."""
    share = np.exp(log + _SPREADS - (log + _SPREADS).max())
    return share / share.sum()


def _normals(share: Floats, place: Floats, variance: Floats) -> Predictive:
    """A mixture of normal distributions."""
    deviation = np.sqrt(variance)

    def cdf(x: Floats) -> Floats:
        return np.asarray(special.ndtr((x[:, None] - place) / deviation) @ share)

    mean = float(share @ place)
    return Predictive(mean, float(np.sqrt(share @ (variance + np.square(place - mean)))), cdf)


def _bounded(found: Predictive, low: float, high: float) -> Predictive:
    """A distribution whose tails beyond the bounds are at the bounds."""

    def cdf(x: Floats) -> Floats:
        return np.where(x >= high, 1.0, np.where(x < low, 0.0, found.cdf(x)))

    return Predictive(min(max(found.mean, low), high), found.width, cdf, low, high)


def _largest_variance(law: Law, place: Floats) -> Any:
    """Of true rates with this mean."""
    return law.variance(place) if law.most == 1.0 else np.inf


def _in_unit(found: Predictive, unit: float) -> Predictive:
    if unit == 1.0:
        return found
    return Predictive(found.mean * unit, found.width * unit, lambda x: found.cdf(x / unit), found.low * unit,
                      found.high * unit)  # fmt: skip
