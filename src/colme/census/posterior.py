"""Fitted mixtures as priors, and the posterior of an agent's true mean, equation (5).

Given its own mean X ~ N(true mean, s^2), and a mixture (`colme.census.mixture`) as the prior of the true mean, an agent
has a posterior. The estimate is its mean, the group is the most probable component, and an interval lies between two of
its quantiles. Components include the uncertainty of the fit (`colme.census.uncertainty`), and a small part of the prior
is uniform, for agents that belong to no component.

One prior for all agents presumes that true means do not depend on noise. Where the means on the grid of one noise
deviate from the others (one class has the larger sigma, or fewer samples), a mixture is fitted to that grid alone, and
its agents use that one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import LANES, equation, helper, kernel, lanes_like, select
from colme._core.normal import cumulative, exponential, normal_cdf, normal_density, normal_quantile
from colme._core.team import ALONE, Team
from colme.census.histogram import Bins
from colme.census.mixture import (
    MAX_COMPONENTS,
    TINY,
    Histogram,
    Mixture,
    em,
    fit_mixture,
    moments_of,
    range_of,
)
from colme.census.uncertainty import added_variance
from colme.metrics import NOT_KNOWN
from colme.noise import CONSTANT, excess_noise, is_constant, variance_at
from colme.support.arrays import Array, Floats, Integers, Mask

u64 = np.uint64

FEW = 500.0
"""A histogram of fewer agents, unless they are all there are, is fitted by a single component."""
LIMIT = 2.5
"""Means farther from the component of such a histogram, in standard deviations, are pulled no more than one at this
distance (limited translation, Efron and Morris 1971): they may belong to a class that so few agents do not show."""
SKEWED = 0.4
"""The squared skewness of local means from which on they are fitted by a single component."""
_OUTLIERS = 0.1
"""Agents expected to belong to no component, anywhere in the range of the histogram."""
UNCOUNTED = 0.01
"""The probability that an agent whose mean was not in a histogram belongs to no component of it: it may be of a new
class. Its mean is then anywhere in four standard deviations of the means that were. (Not where LIMIT applies.)"""
WARM_ROUNDS = 20
"""Rounds of EM for a histogram whose mixture starts from that of another."""
_TOGETHER = 1024
"""Rows of masses that are fitted together."""
_SMALLEST = 1e-8
"""Bins with less mass are left out."""
_DEVIANT = 20.0
"""A grid has a mixture of its own if its mean deviates by more than sqrt(20) = 4.5 standard errors from the others."""
_VAST = 1e300
"""A sampling variance that is infinite, for arithmetic that has no branch."""
_ROUNDING = 1e-17
"""Components of a posterior with less probability are lost in rounding."""
_NEWTON = 1e-5
"""The last step of Newton's method, in deviations of the narrowest component; the next would be about its square."""


class MixturePrior(NamedTuple):
    """The arrays of `FittedMixtures`, as kernels take them."""

    row: Integers
    weight: Floats
    location: Floats
    variance: Floats
    allowed: Floats
    n_components: Integers
    outlier_density: Floats
    first_group: Integers
    function: Floats
    limit: Floats


@dataclass
class FittedMixtures:
    """Mixtures, one per row, and the row that each agent uses as its prior."""

    saved = (*MixturePrior._fields, "frame")
    split: ClassVar[dict[str, str]] = dict.fromkeys(MixturePrior._fields[1:], "row")

    row: Integers
    """(agents): -1 for an agent without a prior."""
    weight: Floats
    """(rows, components), as are location and variance, with room for MAX_COMPONENTS or as many as rows have."""
    location: Floats
    variance: Floats
    """The spread of a component plus the uncertainty of the fit."""
    allowed: Floats
    """The same for intervals, which allow for a spread that is not seen yet."""
    n_components: Integers
    """(rows): 0 where nothing was fitted."""
    outlier_density: Floats
    """(rows): the uniform prior density of agents that belong to no component."""
    first_group: Integers
    """(rows): the group number of the first component."""
    function: Floats
    """(rows, 5): the variance of samples as a function of the mean (`colme.noise`)."""
    limit: Floats
    """(rows): means farther from a component, in standard deviations, are pulled no more than one at this distance."""
    frame: Floats
    """(agents, 2): the mean of all binned means and twice their standard deviation; zeros where they are not known."""

    @property
    def prior(self) -> MixturePrior:
        return MixturePrior(*(getattr(self, name) for name in MixturePrior._fields))

    @classmethod
    def none(cls, n_agents: int, n_rows: int = 1, room: int = MAX_COMPONENTS) -> FittedMixtures:
        """Before the first fit: rows without components, but with room for some, which no agent uses."""
        weight, location, variance, allowed = (np.zeros((n_rows, room)) for _ in range(4))
        n_components, first_group = np.zeros((2, n_rows), np.int64)
        return cls(
            np.full(n_agents, -1), weight, location, variance, allowed, n_components, np.zeros(n_rows), first_group,
            np.tile(CONSTANT, (n_rows, 1)), np.full(n_rows, np.inf), np.zeros((n_agents, 2)),
        )  # fmt: skip

    @classmethod
    def of_rows(
        cls, masses: Array, bins: Bins, reached: Any, n_agents: int, heard: Any = 1.0, factor: Any = 1.0,
        function: Any = CONSTANT, *, worth: Any = 1.0, warm_start: bool = False,
    ) -> FittedMixtures:  # fmt: skip
        """One mixture per row of masses, whose columns are `bins`; row i is the prior of agent i.

        reached     the number of agents that a row represents at most, one number or one per row
        n_agents    the number of agents in the population
        heard       the part of them that standard errors count on, one number or one per row: less than 1 where few
                    agents make up most of a histogram, as around a hub
        factor      of the noise that agents binned, one number or one per row, if sigma turned out to be wrong
        function    of the mean, which the variance of samples is, one or one per row (`variance_function`)
        worth       the part of them that the fit counts (`colme.noise`), one number or one per row
        warm_start  fit the first row and start the others from it: they are similar"""
        n, n_first = len(masses), min(len(masses), 1) if warm_start else len(masses)
        numbers = [np.broadcast_to(each, n) for each in (reached, heard, factor, worth)]
        start = Mixture._make([*np.zeros((3, MAX_COMPONENTS)), np.zeros(MAX_COMPONENTS, np.bool_)])

        def fit(first: int, n_started: Any) -> None:
            for begin in range(first, len(fitted.frame), _TOGETHER):
                some = slice(begin, begin + _TOGETHER)
                # contiguous float64: other types and strides would be compiled for, each anew
                given = [np.array(each[some], np.float64, order="C") for each in (masses, *numbers)]
                out = MixturePrior._make(column[some] for column in fitted.prior)
                _fit_rows(given[0], bins, *given[1:], float(n_agents), start, n_started, out, fitted.frame[some])

        fitted = cls.none(n_first, n_first)
        fitted.function[:] = np.broadcast_to(function, (n, len(CONSTANT)))[:n_first]
        fit(0, np.int64(0))
        if n_first < n:
            k, first = fitted.n_components[0], fitted
            fitted = cls.none(n, n, int(k) or MAX_COMPONENTS)
            for name in cls.saved:
                column = getattr(fitted, name)
                column[:1] = getattr(first, name)[(slice(None), *map(slice, column.shape[1:]))]
            fitted.function[:] = function
            fit(1, k)
        fitted.row = np.where(fitted.n_components > 0, np.arange(n), -1)
        return fitted

    @classmethod
    def of_agents(
        cls, masses: Array, bins: Bins, reached: float, n_agents: int, row: Integers,
        grid: Integers, *, heard: Any = 1.0, factor: Any = 1.0, function: Any = CONSTANT, worth: Any = 1.0,
        warm_start: bool = False, team: Team = ALONE,
    ) -> FittedMixtures:  # fmt: skip
        """As `of_rows`, for agents that hold row[a] of the masses and were binned on grid[a] (-1: on none). Agents of a
        deviating grid get a mixture of that grid alone, and agents of none more readily belong to no component.

        The workers of a team each have the first row and the rows of their own agents. Where these start from a row
        that only another worker has, it is exchanged."""
        n = len(masses)
        every = [masses, *(np.broadcast_to(each, n) for each in (reached, heard, factor)),
                 np.broadcast_to(function, (n, len(CONSTANT))), np.broadcast_to(worth, n)]  # fmt: skip
        fitted = cls.of_rows(masses, bins, reached, n_agents, *every[2:5], worth=every[5], warm_start=warm_start)
        scale = fitted.frame[:, 1]
        fitted.row, fitted.frame = fitted.row[row], fitted.frame[row]
        n_grids = int(bins.grid.max(initial=-1)) + 1
        share = np.zeros((len(masses), n_grids))
        if n_grids > 1:
            _deviating_grids(masses, bins, reached, float(n_agents), fitted.prior, share)
            share[~is_constant(fitted.function)] = 0.0
        parts, n_rows = [fitted.prior], len(masses)
        for g in np.flatnonzero(team.total((share > 0.0).any(axis=0))):
            agents = np.flatnonzero((grid == g) & (share[row, g] > 0.0))
            rows, which = np.unique(row[agents], return_inverse=True)
            given, foreign = [each[rows] for each in every], 0
            given[0] = np.where(bins.grid == g, given[0], masses.dtype.type(0.0))
            given[1] = given[1] * share[rows, g]
            if warm_start and team.size > 1:
                foreign, given = _with_first_row(given, rows, team)
            if not len(rows):
                continue
            apart = cls.of_rows(given[0], bins, given[1], n_agents, *given[2:5], worth=given[5], warm_start=warm_start)
            found = apart.row[foreign:][which] >= 0
            fitted.row[agents[found]] = n_rows + which[found]
            apart.first_group += MAX_COMPONENTS * (g + 1)
            parts.append(MixturePrior._make(column[foreign:] for column in apart.prior))
            n_rows += len(rows)
        uncounted = np.flatnonzero((grid < 0) & (fitted.row >= 0))
        uncounted = uncounted[fitted.limit[fitted.row[uncounted]] == np.inf]
        if len(uncounted):
            rows, which = np.unique(fitted.row[uncounted], return_inverse=True)
            same = MixturePrior._make([rows, *(each[rows] for each in fitted.prior[1:])])
            elsewhere = UNCOUNTED / np.maximum(2.0 * scale[rows], TINY)
            parts.append(same._replace(outlier_density=np.maximum(same.outlier_density, elsewhere)))
            fitted.row[uncounted] = n_rows + which
        room = int(team.greatest(max(part.weight.shape[1] for part in parts)))
        return cls(*(fitted.row, *_joined(parts, room), fitted.frame))

    def replaced(self, agents: Mask, other: FittedMixtures, team: Team) -> FittedMixtures:
        """With the mixtures of another fit for some agents."""
        room = int(team.greatest(max(self.weight.shape[1], other.weight.shape[1])))
        row = np.where(agents, other.row + np.where(other.row >= 0, len(self.n_components), 0), self.row)
        frame = np.where(agents[:, None], other.frame, self.frame)
        return type(self)(*(row, *_joined([self.prior, other.prior], room), frame))


def _joined(parts: list[MixturePrior], room: int) -> list[Array]:
    """The rows of all parts, with room for so many components; a single part that has it stays as it is."""
    columns = []
    for name, *column in zip(MixturePrior._fields, *parts, strict=True):
        if name in ("weight", "location", "variance", "allowed"):
            column = [np.pad(each, ((0, 0), (0, room - each.shape[1]))) if each.shape[1] < room else each
                      for each in column]  # fmt: skip
        columns.append(column[0] if len(parts) == 1 else np.concatenate(column))
    return columns[1:]


def _with_first_row(given: list[Array], rows: Integers, team: Team) -> tuple[int, list[Array]]:
    """What a fit needs of some rows, and before them, if it is not among them, the row with which all workers of the
    team would start: the first one of all, or else that of the first agent. Returns whether it was added."""
    numbers, *offered = (team.gather(each[:1]) for each in (rows, *given))
    if not len(rows):
        return 0, given
    chosen = int(np.argmin(numbers != 0))  # the first of the zeros, or the first of all
    first = [each[chosen : chosen + 1] for each in offered]
    if all(np.array_equal(one, each[:1]) for one, each in zip(first, given, strict=True)):
        return 0, given
    return 1, [np.concatenate(pair) for pair in zip(first, given, strict=True)]


@kernel
def _fit_rows(masses, bins, reached, heard, factor, worth, n_agents, start, k_start, out, frame):
    """Fit a mixture to every row of masses for which there is a row of `out` and `frame`, and write it there; see
    `of_rows`.

    start, k_start  the components that all rows start from; if there are none, the first row leaves its own there"""
    center, squared_width, grid = bins
    n_grids = 0
    for b in range(grid.size):
        n_grids = max(n_grids, grid[b] + 1)
    mass, sampling = np.empty(n_grids), np.empty(n_grids)
    c, n, v, added = np.empty(center.size), np.empty(center.size), np.empty(center.size), np.empty(MAX_COMPONENTS)
    s, wide, allowed = np.empty(center.size), np.zeros(MAX_COMPONENTS, np.bool_), np.empty(MAX_COMPONENTS)
    for row in range(out.n_components.size):
        for e in range(n_grids):
            mass[e] = sampling[e] = 0.0
        for b in range(center.size):
            if center[b] == center[b]:
                mass[grid[b]] += max(masses[row, b], 0.0)
            else:
                sampling[grid[b]] += masses[row, b]
        total, n_bins = 0.0, 0
        for e in range(n_grids):
            total += mass[e]
            sampling[e] = factor[row] * max(sampling[e] / max(mass[e], _SMALLEST), 1.0)
        n_effective = min(reached[row], n_agents * total)
        out.n_components[row] = 0
        if n_effective < 1.0:
            continue
        agents = worth[row] * n_effective / total
        for b in range(center.size):
            if center[b] == center[b] and masses[row, b] > _SMALLEST:
                c[n_bins], n[n_bins] = center[b], agents * masses[row, b]
                # linear binning adds a variance of h^2 / 6
                s[n_bins] = squared_width[b] * sampling[grid[b]]
                v[n_bins] = squared_width[b] * (sampling[grid[b]] + 1.0 / 6.0)
                n_bins += 1
        histogram = Histogram(c[:n_bins], n[:n_bins], v[:n_bins], s[:n_bins], out.function[row])
        mixture = Mixture(out.weight[row], out.location[row], out.variance[row], wide)
        mean, variance, spread = moments_of(histogram)
        frame[row, 0], frame[row, 1] = mean, 2.0 * math.sqrt(variance)
        k, few = 1, n_effective < min(FEW, 0.99 * n_agents * total)
        if few or _skewed(histogram, mean):
            mixture.weight[0], mixture.location[0], mixture.spread[0] = 1.0, mean, spread
            out.limit[row] = LIMIT if few else np.inf
        elif k_start > 0:
            k = k_start
            for i in range(k):
                mixture.weight[i], mixture.location[i] = start.weight[i], start.location[i]
                mixture.spread[i], wide[i] = start.spread[i], start.spread[i] > 0.0
            em(histogram, mixture, k, np.int64(WARM_ROUNDS))
        else:
            k = fit_mixture(histogram, mixture)
        if row == 0 and k_start == 0:
            for i in range(k):
                start.weight[i], start.location[i] = mixture.weight[i], mixture.location[i]
                start.spread[i] = mixture.spread[i]
        for b in range(n_bins):
            n[b] *= heard[row]
        added_variance(histogram, mixture, k, variance, spread, added, allowed)
        for i in range(k):
            out.allowed[row, i] = out.variance[row, i] + allowed[i]
            out.variance[row, i] += added[i]
        out.n_components[row] = k
        low, high = range_of(histogram.center)
        out.outlier_density[row] = _OUTLIERS / n_effective / max(high - low, math.sqrt(v[0]))


@helper
def _skewed(histogram, mean):
    """Whether local means are so skewed, by the function that the variance is, that several components may be one."""
    total = noise = 0.0
    for b in range(histogram.center.size):
        total += histogram.counts[b]
        noise += histogram.counts[b] * histogram.sampling[b]
    relative = variance_at(histogram.function, mean, 0.0)
    return relative[1] * noise / total > SKEWED * relative[0]


@kernel
def _deviating_grids(masses, bins, reached, n_agents, prior, share):
    """share[row, g] = the part of the mass that is on grid g, where its mean is not that of the mixture of the row."""
    center, squared_width, grid = bins
    for row in range(masses.shape[0]):
        total = middle = within = 0.0
        for b in range(center.size):
            if center[b] == center[b]:
                total += max(masses[row, b], 0.0)
        if prior.n_components[row] == 0 or total <= _SMALLEST:
            continue
        for i in range(prior.n_components[row]):
            middle += prior.weight[row, i] * prior.location[row, i]
        for i in range(prior.n_components[row]):
            within += prior.weight[row, i] * (prior.variance[row, i] + (prior.location[row, i] - middle) ** 2)
        n_effective = min(reached, n_agents * total)
        for g in range(share.shape[1]):
            mass = first = noise = 0.0
            for b in range(center.size):
                if grid[b] == g and center[b] == center[b]:
                    mass += max(masses[row, b], 0.0)
                    first += max(masses[row, b], 0.0) * (center[b] - middle)
                elif grid[b] == g:
                    noise = masses[row, b] * squared_width[b]
            if mass > _SMALLEST:
                variance = (within + max(noise, 0.0) / mass) / (n_effective * mass / total)
                if (first / mass) ** 2 > _DEVIANT * variance:
                    share[row, g] = mass / total


class Posteriors(NamedTuple):
    """The posterior of every agent."""

    estimate: Floats
    """Its mean, equation (5)."""
    variance: Floats
    kept: Floats
    """The weight of the own mean in the estimate, given the memberships; the rest is borrowed."""
    group: NDArray[np.int32]
    """The most probable component."""
    probability: Floats
    """Of that component."""

    @classmethod
    def room(cls, n_agents: int) -> Posteriors:
        """For so many agents, without values."""
        estimate, variance, kept, probability = np.empty((4, n_agents))
        return cls(estimate, variance, kept, np.zeros(n_agents, np.int32), probability)


def posteriors(mean: Floats, noise: Floats, prior: MixturePrior) -> Posteriors:
    """The posteriors of some agents with these means, of these sampling variances."""
    found = Posteriors.room(len(mean))
    find_posteriors(mean, noise, prior, NOT_KNOWN, found, NOT_KNOWN)
    return found


def posterior_cdf(value: Floats, mean: Floats, noise: Floats, prior: MixturePrior) -> Floats:
    """The posterior probabilities that true means lie below these values; NaN without a sample."""
    below = np.empty(len(mean))
    find_posteriors(mean, noise, prior, value, Posteriors.room(len(mean)), below)
    return below


@kernel
def find_posteriors(mean, noise, prior, value, out, below):
    """`posteriors`, written to `out`, and `posterior_cdf` for these values, or `NOT_KNOWN`, written to `below`.

    Agents in a row that have the same prior are evaluated together, one component after the other, in vector
    instructions."""
    x, s2, total, shift = lanes_like(mean), lanes_like(mean), lanes_like(mean), lanes_like(mean)
    square, kept, best, which = lanes_like(mean), lanes_like(mean), lanes_like(mean), lanes_like(mean)
    p, moved, variance = lanes_like(mean), lanes_like(mean), lanes_like(mean)
    away, alone, under = lanes_like(mean), lanes_like(mean), lanes_like(mean)
    a, n, with_values = u64(0), u64(mean.size), value.size > 0
    while a < n:
        row, size = prior.row[a], u64(1)
        while size < min(u64(LANES), n - a) and prior.row[a + size] == row:
            size += u64(1)
        k, none, first_group = 0, 1.0, 0
        if row >= 0:
            k, first_group = prior.n_components[row], prior.first_group[row]
            none = prior.outlier_density[row] * math.sqrt(2.0 * math.pi)
        for lane in range(size):
            x[lane], s2[lane] = mean[a + lane], min(noise[a + lane], _VAST)
            total[lane], shift[lane], square[lane], kept[lane] = none, 0.0, none * s2[lane], none
            best[lane] = which[lane] = 0.0
        if with_values:
            for lane in range(size):
                away[lane] = value[a + lane] - x[lane]
                alone[lane] = cumulative(away[lane] / math.sqrt(max(s2[lane], TINY)))  # without a prior
                under[lane] = none * alone[lane]
        for i in range(k):
            weight, location, spread = prior.weight[row, i], prior.location[row, i], prior.variance[row, i]
            allowed = prior.allowed[row, i]
            relative, limit = variance_at(prior.function[row], location, spread), prior.limit[row]
            for lane in range(size):
                # the mean in the component is x + moved
                within = s2[lane] + excess_noise(relative, s2[lane])
                p[lane], own, variance[lane], moved[lane] = in_component(
                    x[lane], within, weight, location, spread, allowed, limit
                )
                total[lane] += p[lane]
                shift[lane] += p[lane] * moved[lane]
                square[lane] += p[lane] * (variance[lane] + moved[lane] * moved[lane])
                kept[lane] += p[lane] * own
                which[lane] = select(p[lane] > best[lane], float(i), which[lane])
                best[lane] = select(p[lane] > best[lane], p[lane], best[lane])
            if with_values:
                for lane in range(size):
                    u = (away[lane] - moved[lane]) / math.sqrt(max(variance[lane], TINY))
                    under[lane] += p[lane] * cumulative(u)
        for lane in range(size):
            there, scale = x[lane] == x[lane], 1.0 / max(total[lane], TINY)
            known = there and total[lane] > 0.0 and noise[a + lane] < np.inf
            away_from_x = shift[lane] * scale
            out.estimate[a + lane] = x[lane] + away_from_x if known else x[lane]
            out.variance[a + lane] = (
                max(square[lane] * scale - away_from_x * away_from_x, 0.0) if known else noise[a + lane]
            )
            out.kept[a + lane] = kept[lane] * scale if known else 1.0
            out.group[a + lane] = first_group + int(which[lane]) if there else 0
            out.probability[a + lane] = best[lane] * scale if known else 0.0
        if with_values:
            for lane in range(size):
                known = total[lane] > 0.0 and noise[a + lane] < np.inf
                found = under[lane] / total[lane] if known else alone[lane]
                below[a + lane] = found if x[lane] == x[lane] else np.nan
        a += size


@equation
def in_component(x: Any, noise: Any, weight: Any, location: Any, spread: Any, allowed: Any, limit: Any) -> Any:
    """For one component: its probability given the mean x, which has this sampling variance there, up to a factor that
    all components share; the weight of x in the posterior mean; the variance of that mean's error, if the spread is the
    allowed one; and the posterior mean minus x."""
    everything = noise + spread
    everything = select(everything < TINY, TINY, everything)
    precision, away = 1.0 / everything, x - location
    root, e = np.sqrt(precision), away * away * precision
    p = select(e < 64.0, weight * root * exponential(-0.5 * select(e < 64.0, e, 0.0)), 0.0)
    beyond = abs(away) - limit * (everything * root)
    beyond = select(beyond > 0.0, beyond, 0.0)
    pulled, own, left = away - select(away < 0.0, -beyond, beyond), spread * precision, noise * precision
    return p, own, own * own * noise + left * left * allowed, -left * pulled


def posterior_interval(level: float, mean: Floats, noise: Floats, prior: MixturePrior) -> tuple[Floats, Floats]:
    """The quantiles of each posterior between which it has the probability `level`."""
    lower, upper = np.empty((2, len(mean)))
    for end, tail in ((lower, 0.5 - 0.5 * level), (upper, 0.5 + 0.5 * level)):
        posterior_quantiles(tail, mean, noise, prior, end)
    return lower, upper


@helper
def first_row(prior):
    """The first row of a prior, for `posterior_moments`: in a loop over agents its arrays are found once."""
    return (
        prior.n_components[0], prior.weight[0], prior.location[0], prior.variance[0], prior.allowed[0],
        prior.outlier_density[0],
    )  # fmt: skip


@helper
def posterior_moments(x, s2, row, p):
    """(posterior mean, posterior variance) of one agent, given a row of a prior; `p` has room for the probabilities of
    components. They are those of `posteriors`, without a function or limit."""
    k, weight, location, variance, allowed, outlier_density = row
    if x != x or k == 0 or not 0.0 < s2 < np.inf:
        return x, s2
    total = none = outlier_density * math.sqrt(2.0 * math.pi)
    for i in range(k):
        p[i] = weight[i] * normal_density(x - location[i], s2 + variance[i])
        total += p[i]
    if total <= 0.0:
        none = total = 1.0
    none /= total
    value = none * x
    for i in range(k):
        p[i] /= total
        value += p[i] * (location[i] + variance[i] / (variance[i] + s2) * (x - location[i]))
    spread = none * (s2 + (x - value) ** 2)
    for i in range(k):
        own = variance[i] / (variance[i] + s2)
        error = own * own * s2 + (1.0 - own) ** 2 * allowed[i]
        spread += p[i] * (error + (location[i] + own * (x - location[i]) - value) ** 2)
    return value, spread


@kernel
def posterior_draw(uniform, normal, mean, noise, prior, out):
    """out[a] = a true mean from the posterior of agent a, made of a uniform and a normal number; NaN without a
    sample."""
    p, middle, deviation = np.empty(MAX_COMPONENTS + 1), np.empty(MAX_COMPONENTS + 1), np.empty(MAX_COMPONENTS + 1)
    for a in range(mean.size):
        n, i = _components(a, mean[a], noise[a], prior, p, middle, deviation), 0
        below = p[0]
        while i < n - 1 and below <= uniform[a]:
            i += 1
            below += p[i]
        out[a] = middle[i] + deviation[i] * normal[a]


@kernel
def posterior_quantiles(level, mean, noise, prior, out):
    """out[a] = the value below which agent a's true mean lies with posterior probability `level`."""
    z = normal_quantile(level)
    p, middle, deviation = np.empty(MAX_COMPONENTS + 1), np.empty(MAX_COMPONENTS + 1), np.empty(MAX_COMPONENTS + 1)
    for a in range(mean.size):
        if mean[a] != mean[a] or noise[a] == np.inf:  # without a sample, or of unknown noise
            out[a] = np.nan if mean[a] != mean[a] else -np.inf if level < 0.5 else np.inf
        else:
            n = _components(a, mean[a], noise[a], prior, p, middle, deviation)
            out[a] = mixture_quantile(level, z, n, p, middle, deviation)


@helper
def _components(a, x, s2, prior, p, middle, deviation):
    """The components of the posterior of agent a, whose mean x has the sampling variance s2: their probabilities, means
    and standard deviations. The last one, the only one without a prior, is N(x, s2), of belonging to none. Those of
    negligible probability are left out. Returns how many there are."""
    row = prior.row[a]
    k = prior.n_components[row] if row >= 0 else 0
    total = p[k] = prior.outlier_density[row] * math.sqrt(2.0 * math.pi) if k > 0 else 1.0
    middle[k], deviation[k] = x, math.sqrt(max(s2, TINY))
    for i in range(k):
        location, variance, noise = prior.location[row, i], prior.variance[row, i], s2
        if s2 < np.inf:
            noise = s2 + excess_noise(variance_at(prior.function[row], location, variance), s2)
        p[i] = prior.weight[row, i] * normal_density(x - location, noise + variance)
        total += p[i]
        kept, away = variance / (variance + noise), x - location
        error = kept * kept * noise + (1.0 - kept) ** 2 * prior.allowed[row, i]
        middle[i], deviation[i] = location + kept * away, math.sqrt(max(error, TINY))
        beyond = abs(away) - prior.limit[row] * math.sqrt(variance + noise)
        if beyond > 0.0:
            middle[i] += (1.0 - kept) * math.copysign(beyond, away)
    if total <= 0.0:
        p[k] = total = 1.0
    n = 0
    for i in range(k + 1):
        if p[i] / total > _ROUNDING:
            p[n], middle[n], deviation[n] = p[i] / total, middle[i], deviation[i]
            n += 1
    return n


@helper
def mixture_quantile(level, z, n, p, middle, deviation):
    """The quantile of a mixture of n normal distributions: Newton's method between the smallest and the largest of
    their quantiles, which are z deviations from their means, and bisection where it would leave them or is slow."""
    low = high = middle[0] + z * deviation[0]
    value, total, narrow = low, 0.0, deviation[0]
    for i in range(n):
        one = middle[i] + z * deviation[i]
        low, high, narrow = min(low, one), max(high, one), min(narrow, deviation[i])
        value = middle[i] if total < level else value  # sorted by location: start at the component that crosses
        total += p[i]
    value, before = min(max(value, low), high), high - low
    rounding = 1e-16 * (abs(low) + abs(high))
    for _ in range(100):
        below, slope = -level, 0.0
        for i in range(n):
            u = (value - middle[i]) / deviation[i]
            below += p[i] * normal_cdf(u, 0.0, 1.0)
            slope += p[i] * math.exp(-0.5 * u * u) / (math.sqrt(2.0 * math.pi) * deviation[i])
        if below < 0.0:
            low = max(low, value)
        else:
            high = min(high, value)
        step, exact = -below / slope if slope > 0.0 else np.inf, _NEWTON * narrow
        if abs(step) > 0.5 * before or not low <= value + step <= high:
            step, exact = 0.5 * (low + high) - value, _NEWTON * _NEWTON * narrow
        before, value = abs(step), value + step
        if before <= max(exact, rounding):
            break
    return value
