"""The census of a table: an empirical Bayes estimator with a mixture, fitted to all means at once, as the prior.

With all means in one place there are no rounds of consensus: one histogram (`colme.census.histogram`), one mixture
(`colme.census.mixture`) and the posterior of every agent (`colme.census.posterior`).
"""

from __future__ import annotations

import numpy as np

from colme.census.histogram import Bins, histogram_of
from colme.census.posterior import (
    FittedMixtures,
    posterior_cdf,
    posterior_draw,
    posterior_quantiles,
    posteriors,
)
from colme.data.fit.estimators import AgentStatistics, Estimator
from colme.data.moments import Floats, Integers, Mask

_FINEST = 300.0
"""About how many of the narrowest bins span the range of all means. Finer bins cost time, and an agent whose mean is
known better than that has little to gain."""

_FAR = 20.0
"""Standard errors between an isolated agent and the next one."""
_PAIR = 2
"""The largest number of agents that are isolated together."""
_RARE = 0.02
"""If a larger share of agents is isolated (and more than one), they are a part of the population."""


class MixtureEstimator(Estimator, frozen=True, kw_only=True):
    """Empirical Bayes with a mixture of point masses and normal components as the prior."""

    name = "census"
    needs_groups = True

    def fit(self, agents: AgentStatistics) -> MixtureFit:
        return mixture_fit(agents)


class MixtureFit:
    """The mixture, and every agent's posterior.

    middle     of all means; `center`: for each agent, with what covariates explain
    mean       of each agent, relative to its center; `sampling`: its variance, `noise`: with a floor for binning
    component  the most probable one of each agent
    isolated   agents far from all others, which the mixture is fitted without; they keep their own means
    """

    groups: Integers | None = None

    def __init__(self, agents: AgentStatistics):
        offset = agents.prior.fit(agents.mean, agents.noise).offset
        self.middle = float(np.median(agents.mean - offset))
        self.center, self.sampling = offset + self.middle, agents.noise
        self.mean = agents.mean - self.center
        self.isolated = isolated(self.mean, agents.noise)
        rest = self.mean[~self.isolated]
        low, high = np.quantile(rest, [0.001, 0.999])
        self.noise = np.maximum(agents.noise, np.square((high - low) / _FINEST))
        self.mixture = _fitted(rest, self.noise[~self.isolated])
        n = len(self.mean)
        self.mixture.row = np.zeros(n, np.int64)
        # the posterior uses the noise itself, however small; only binning has a floor
        self._args = self.mean, agents.noise, self.mixture.prior
        found = posteriors(*self._args)
        self.estimate, self.component = found.estimate + self.center, found.group.astype(np.int64)
        self.probability, self._variance, self.borrowed = found.probability, found.variance, 1.0 - found.kept

    def error(self) -> Floats:
        return np.sqrt(self._variance)

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """(lower, upper), between which the true mean lies with this posterior probability."""
        lower, upper = np.empty((2, len(self.mean)))
        for end, tail in ((lower, 0.5 - 0.5 * level), (upper, 0.5 + 0.5 * level)):
            posterior_quantiles(tail, *self._args, end)
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
    def components(self) -> tuple[Floats, Floats, Floats]:
        """(shares, locations, variances) of the components, around the middle of all means."""
        k = int(self.mixture.n_components[0])
        share, location, variance = (part[0, :k] for part in self.mixture.prior[1:4])
        return share, location, variance


def isolated(mean: Floats, noise: Floats) -> Mask:
    """Agents that are alone or in pairs `_FAR` standard errors away from all others, if few agents are."""
    order = np.argsort(mean)
    gap, blur = np.diff(mean[order]), np.sqrt(noise[order])
    block = np.concatenate([[0], np.cumsum(gap > _FAR * np.maximum(blur[1:], blur[:-1]))])
    alone = np.empty(len(mean), bool)
    alone[order] = (np.bincount(block) <= _PAIR)[block]
    return alone if alone.sum() <= max(1.0, _RARE * len(mean)) else np.zeros(len(mean), bool)


def mixture_fit(agents: AgentStatistics) -> MixtureFit:
    """The fit to these agents, computed once."""
    known: MixtureFit | None = agents.cache.get(MixtureEstimator.name)
    if known is None:
        known = agents.cache[MixtureEstimator.name] = MixtureFit(agents)
    return known


def _fitted(mean: Floats, noise: Floats) -> FittedMixtures:
    unit = float(np.sqrt(np.median(noise)))
    codes, masses = histogram_of(mean, noise, unit)
    return FittedMixtures.of_rows(masses[None], Bins.of(codes, unit), float(len(mean)), len(mean))
