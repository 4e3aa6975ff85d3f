"""The estimators that form groups: the census of a table, and two on the graph of agents whose intervals overlap.

The census is an empirical Bayes estimator with a mixture, fitted to all means at once, as the prior. With all means in
one place there are no rounds of consensus: one histogram (`colme.census.histogram`), one mixture
(`colme.census.mixture`) and the posterior of every agent (`colme.census.posterior`).

The others sort the ends of the intervals, in O(N log N). Their standard error has no formula: which agents are pooled
depends on the agent's own mean, and some of them may differ from it in truth. So the posterior of the census is used,
if there are groups: its variance plus the squared distance of the estimates.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from colme.census.histogram import Bins, histogram_of
from colme.census.modes import Components
from colme.census.posterior import FittedMixtures, posterior_cdf, posterior_draw, posterior_interval, posteriors
from colme.confidence import laplace_radius, level_gamma
from colme.data.fit.estimators import AgentStatistics, Estimator
from colme.support.arrays import Floats, Integers, Mask

_FINEST = 300.0
"""About how many of the narrowest bins span the range of all means. Finer bins cost time, and an agent whose mean is
known better than that has little to gain."""
_FAR = 20.0
"""Standard errors between an isolated agent and the next one."""
_PAIR = 2
"""The largest number of agents that are isolated together."""
_RARE = 0.02
"""If a larger share of agents is isolated (and more than one), they are a part of the population."""
_Z = 1.96
"""Standard errors of the difference of two means of equal noise up to which their agents are pooled."""
_GAMMA = level_gamma("agent", 0.1, n_agents=1, n_edges=0)
"""The level of confidence intervals, which fail with probability .1, as in CL-colME's experiment."""


class MixtureEstimator(Estimator, frozen=True, kw_only=True):
    """Empirical Bayes with a mixture of point masses and normal components as the prior."""

    name = "census"
    needs_groups = True

    def fit(self, agents: AgentStatistics) -> MixtureFit:
        if self.name not in agents.cache:
            agents.cache[self.name] = MixtureFit(agents)
        found: MixtureFit = agents.cache[self.name]
        return found


class MixtureFit:
    """The mixture, and every agent's posterior.

    middle     of all means; `center`: for each agent, with what covariates explain
    mean       of each agent, relative to its center; `sampling`: its variance, `noise`: with a floor for binning
    component  the most probable one of each agent
    isolated   agents far from all others, which the mixture is fitted without; they keep their own means
    """

    def __init__(self, agents: AgentStatistics):
        offset = agents.offset
        self.middle = float(np.median(agents.mean - offset))
        self.center, self.sampling = offset + self.middle, agents.noise
        self.mean = agents.mean - self.center
        self.isolated = isolated(self.mean, agents.noise)
        rest = self.mean[~self.isolated]
        low, high = np.quantile(rest, [0.001, 0.999])
        self.noise = np.maximum(agents.noise, np.square((high - low) / _FINEST))
        unit = float(np.sqrt(np.median(self.noise[~self.isolated])))
        codes, masses = histogram_of(rest, self.noise[~self.isolated], unit)
        self.mixture = FittedMixtures.of_rows(masses[None], Bins.of(codes, unit), float(len(rest)), len(rest))
        self.mixture.row = np.zeros(len(self.mean), np.int64)
        # the posterior uses the noise itself, however small; only binning has a floor
        self._args = self.mean, agents.noise, self.mixture.prior
        found = posteriors(*self._args)
        self.estimate, self.component = found.estimate + self.center, found.group.astype(np.int64)
        self._variance, self.borrowed = found.variance, 1.0 - found.kept

    def error(self) -> Floats:
        return np.sqrt(self._variance)

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """(lower, upper), between which the true mean lies with this posterior probability."""
        lower, upper = posterior_interval(level, *self._args)
        return lower + self.center, upper + self.center

    def cdf(self, rows: Integers, z: Floats) -> Floats:
        """The posterior probability that the true means of these agents are at most z."""
        mean, noise, prior = self._args
        return posterior_cdf(z - self.center[rows], mean[rows], noise[rows], prior._replace(row=prior.row[rows]))

    def draw(self, rng: np.random.Generator) -> Floats:
        """A true mean of every agent from its posterior."""
        n = len(self.mean)
        out = np.empty(n)
        posterior_draw(rng.random(n), rng.standard_normal(n), *self._args, out)
        return out + self.center

    @property
    def components(self) -> Components:
        """Those of the mixture, around the middle of all means."""
        return Components.of(self.mixture.prior)


def isolated(mean: Floats, noise: Floats) -> Mask:
    """Agents that are alone or in pairs `_FAR` standard errors away from all others, if few agents are."""
    order = np.argsort(mean)
    gap, blur = np.diff(mean[order]), np.sqrt(noise[order])
    block = np.concatenate([[0], np.cumsum(gap > _FAR * np.maximum(blur[1:], blur[:-1]))])
    alone = np.empty(len(mean), bool)
    alone[order] = (np.bincount(block) <= _PAIR)[block]
    return alone if alone.sum() <= max(1.0, _RARE * len(mean)) else np.zeros(len(mean), bool)


class PooledFit(msgspec.Struct, frozen=True):
    """Estimates that pool the means of several agents whose intervals overlap."""

    agents: AgentStatistics
    estimate: Floats
    borrowed: Floats
    groups: Integers | None = None
    """The group of each agent, if the estimator forms groups itself."""

    def error(self) -> Floats:
        census = MixtureEstimator().fit(self.agents)
        return np.hypot(census.error(), census.estimate - self.estimate)


class OverlapPooling(Estimator, frozen=True, kw_only=True):
    """One-hop pooling: each agent pools all agents whose interval of z / sqrt(2) standard errors overlaps its own.

    Between agents of equal noise that is the two-sample z-test; between others it is stricter, by at most sqrt(2)."""

    name = "one-hop"
    needs_groups = True

    def fit(self, agents: AgentStatistics) -> PooledFit:
        offset = agents.offset
        weight = 1.0 / agents.noise
        radius = _Z / math.sqrt(2.0) * np.sqrt(agents.noise)
        total, pull = overlapping(agents.mean - offset, radius, weight)
        return PooledFit(agents, offset + pull / total, 1.0 - weight / total)


class ConsensusLimit(Estimator, frozen=True, kw_only=True):
    """The limit of CL-colME on the complete graph: agents are connected if their confidence intervals (Laplace's bound,
    Asadi et al. 2022) overlap, and every connected component converges to its weighted mean."""

    name = "cl-colme"
    needs_groups = True

    def fit(self, agents: AgentStatistics) -> PooledFit:
        offset = agents.offset
        counts, which = np.unique(agents.worth, return_inverse=True)
        unit = np.array([laplace_radius(n, 1.0, _GAMMA) for n in counts.tolist()])
        radius = np.sqrt(agents.noise * agents.worth) * unit[which]
        group = components(agents.mean - offset, radius)
        weight = 1.0 / agents.noise
        total = np.bincount(group, weight)
        place = np.bincount(group, weight * (agents.mean - offset)) / total
        return PooledFit(agents, offset + place[group], 1.0 - weight / total[group], group)


def overlapping(mean: Floats, radius: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """(total weight, weighted sum of means) of all agents whose intervals overlap each agent's own, O(N log N).

    Two intervals are disjoint if one ends before the other begins; only one of the two orders can hold."""
    center = np.median(mean)  # sums of differences lose fewer digits
    moment = weight * (mean - center)
    lower, upper = mean - radius, mean + radius
    by_upper, by_lower = np.argsort(upper), np.argsort(lower)
    before = np.searchsorted(upper[by_upper], lower, side="left")
    until = np.searchsorted(lower[by_lower], upper, side="right")
    sums = []
    for each in (weight, moment):
        ended = np.concatenate([[0.0], np.cumsum(each[by_upper])])
        begun = np.concatenate([[0.0], np.cumsum(each[by_lower])])
        sums.append(begun[until] - ended[before])
    total = np.maximum(sums[0], weight)  # at least its own weight, despite rounding
    return total, sums[1] + center * total


def components(mean: Floats, radius: Floats) -> Integers:
    """The connected component of each agent where edges are overlaps of intervals, in order of means, O(N log N)."""
    lower, upper = mean - radius, mean + radius
    order = np.argsort(lower)
    reach = np.maximum.accumulate(upper[order])
    group = np.empty(len(mean), np.int64)
    group[order] = np.concatenate([[0], np.cumsum(lower[order][1:] > reach[:-1])])
    return group
