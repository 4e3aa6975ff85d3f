"""Who lives here: the few tribes that explain a census, and what they say about one agent's own mean.

A census is explained by a mixture (`colme.census.mixture`). One agent's own mean X ~ N(its true mean, s^2) then has a
posterior: the estimate is its mean, the group its most probable tribe, the interval lies between its quantiles.

That takes for granted that true means have nothing to do with the noise. Where the votes on the grid of one noise stand
out from the rest (one class has the larger sigma, or fewer samples), its voters have tribes of their own.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import helper, kernel
from colme.census.mixture import MOST, TINY, density, fit_tribes, one_tribe, range_of, refine
from colme.census.uncertainty import doubts

FEW = 500.0
"""A census of fewer, and not of all, only tells a place and a spread."""
_STRANGERS = 0.1
"""Agents of no tribe that are expected in a census, anywhere in its range."""
REFINEMENTS = 20
"""Rounds in which tribes known from another census become one's own."""
_SMALLEST = 1e-8
"""Votes that count."""
_OUTSTANDING = 20.0
"""Squared deviations by which the mean of one grid is off that of all tribes before its voters have their own."""
_WEIGHTLESS = 1e-17
"""Parts of a posterior with less probability are lost in rounding anyway."""
_LAST = 1e-5
"""Newton's last step, in deviations of the narrowest part: the one after it would be as small as its square."""


class Tribes(NamedTuple):
    """Fits, one row each, and which row is whose (-1: nobody's). `width`: the variance of a tribe, doubts included."""

    fit: NDArray[np.int64]
    share: NDArray[np.float64]
    place: NDArray[np.float64]
    width: NDArray[np.float64]
    n_tribes: NDArray[np.int64]
    stranger: NDArray[np.float64]
    first_group: NDArray[np.int64]
    """The group that the first tribe of a row is."""

    @property
    def prior(self) -> tuple[Any, ...]:
        """All but the names of groups."""
        return self[:-1]

    @classmethod
    def unknown(cls, n_agents: int, n_rows: int = 1) -> Tribes:
        """As long as nobody knows any."""
        share, place, width = (np.zeros((n_rows, MOST)) for _ in range(3))
        n_tribes, first_group = np.zeros((2, n_rows), np.int64)
        return cls(np.full(n_agents, -1), share, place, width, n_tribes, np.zeros(n_rows), first_group)

    @classmethod
    def fitted(cls, votes: NDArray[Any], bins: Any, n_most: Any, n_agents: int, *, alike: bool = False) -> Tribes:
        """The tribes of every row of votes, a census of at most n_most agents; columns as in `histogram.Bins`.
        `alike`: the rows are much like the first, so their tribes are those of the first, refined."""
        n = len(votes)
        tribes = cls.unknown(n, n)
        if votes.shape[1]:
            most = np.broadcast_to(np.asarray(n_most, np.float64), n)
            _fit_rows(votes, *bins, most, float(n_agents), alike, *tribes.prior[1:])
        tribes.fit[:] = np.where(tribes.n_tribes > 0, np.arange(n), -1)
        return tribes

    @classmethod
    def of_voters(
        cls, votes: NDArray[Any], bins: Any, n_most: float, n_agents: int, row: NDArray[np.int64],
        grid: NDArray[np.int64], *, alike: bool = False,
    ) -> Tribes:  # fmt: skip
        """As `fitted`, for agents who know these rows of votes and have voted on these grids (-1: on none)."""
        everybody = cls.fitted(votes, bins, n_most, n_agents, alike=alike)
        everybody = everybody._replace(fit=everybody.fit[row])
        n_grids = int(bins.width.max(initial=-1)) + 1
        part = np.zeros((len(votes), n_grids))
        if n_grids > 1:
            _stand_out(votes, *bins, n_most, float(n_agents), *everybody.prior[1:5], part)
        parts, n_rows = [everybody], len(votes)
        for g in np.flatnonzero((part > 0.0).any(axis=0)):
            voters = np.flatnonzero((grid == g) & (part[row, g] > 0.0))
            rows, which = np.unique(row[voters], return_inverse=True)
            if not len(rows):
                continue
            own = np.where(bins.width == g, votes[rows], votes.dtype.type(0.0))
            apart = cls.fitted(own, bins, n_most * part[rows, g], n_agents, alike=alike)
            known = apart.fit[which] >= 0
            everybody.fit[voters[known]] = n_rows + which[known]
            parts.append(apart._replace(first_group=apart.first_group + MOST * (g + 1)))
            n_rows += len(rows)
        joined = (np.concatenate(column) for column in zip(*(part[1:] for part in parts), strict=True))
        return cls(everybody.fit, *joined)


@kernel
def _fit_rows(votes, center, square, width_of, n_most, n_agents, alike, share, place, width, n_tribes, stranger):
    n_widths = 0
    for b in range(width_of.size):
        n_widths = max(n_widths, width_of[b] + 1)
    mass, variance = np.empty(n_widths), np.empty(n_widths)
    c, n, v, error = np.empty(center.size), np.empty(center.size), np.empty(center.size), np.empty(MOST)
    n_first, first, wide = 0, np.empty(MOST), np.zeros(MOST, np.bool_)
    for row in range(votes.shape[0]):
        for e in range(n_widths):
            mass[e] = variance[e] = 0.0
        for b in range(center.size):
            if center[b] == center[b]:
                mass[width_of[b]] += max(votes[row, b], 0.0)
            else:
                variance[width_of[b]] += votes[row, b]
        total, bins = 0.0, 0
        for e in range(n_widths):
            total += mass[e]
        counted = min(n_most[row], n_agents * total)
        n_tribes[row] = 0
        if counted < 1.0:
            continue
        for b in range(center.size):
            if center[b] == center[b] and votes[row, b] > _SMALLEST:
                e = width_of[b]
                c[bins], n[bins] = center[b], counted * votes[row, b] / total
                # linear binning blurs by h^2 / 6
                v[bins] = square[b] * (max(variance[e] / max(mass[e], _SMALLEST), 1.0) + 1.0 / 6.0)
                bins += 1
        k, few = 1, counted < min(FEW, 0.99 * n_agents * total)
        if few:
            one_tribe(c[:bins], n[:bins], v[:bins], share[row], place[row], width[row])
        elif alike and n_first > 0:
            k = n_first
            for i in range(k):
                share[row, i], place[row, i] = share[0, i], place[0, i]
                width[row, i], wide[i] = first[i], first[i] > 0.0
            refine(c[:bins], n[:bins], v[:bins], share[row], place[row], width[row], wide, k, np.int64(REFINEMENTS))
        else:
            k = fit_tribes(c[:bins], n[:bins], v[:bins], share[row], place[row], width[row])
        if row == 0:
            n_first = k
            for i in range(k):
                first[i] = width[row, i]
        doubts(c[:bins], n[:bins], v[:bins], share[row], place[row], width[row], k, error)
        for i in range(k):
            width[row, i] += error[i]
        n_tribes[row] = k
        low, high = range_of(c[:bins])
        stranger[row] = _STRANGERS / counted / max(high - low, math.sqrt(v[0]))


@kernel
def _stand_out(votes, center, square, width_of, n_most, n_agents, share, place, width, n_tribes, part):
    """part[row, g] = the part of the votes that is on grid g, where their mean is not that of the tribes of all."""
    for row in range(votes.shape[0]):
        total = middle = within = 0.0
        for b in range(center.size):
            if center[b] == center[b]:
                total += max(votes[row, b], 0.0)
        if n_tribes[row] == 0 or total <= _SMALLEST:
            continue
        for i in range(n_tribes[row]):
            middle += share[row, i] * place[row, i]
        for i in range(n_tribes[row]):
            within += share[row, i] * (width[row, i] + (place[row, i] - middle) ** 2)
        counted = min(n_most, n_agents * total)
        for g in range(part.shape[1]):
            mass = first = blur = 0.0
            for b in range(center.size):
                if width_of[b] == g and center[b] == center[b]:
                    mass += max(votes[row, b], 0.0)
                    first += max(votes[row, b], 0.0) * (center[b] - middle)
                elif width_of[b] == g:
                    blur = votes[row, b] * square[b]
            if mass > _SMALLEST:
                variance = (within + max(blur, 0.0) / mass) / (counted * mass / total)
                if (first / mass) ** 2 > _OUTSTANDING * variance:
                    part[row, g] = mass / total


@helper
def _memberships(x, noise, share, place, width, k, stranger, p):
    """p[i] = probability of tribe i given the mean x, p[k] = that of a stranger; `width` is the variance of a tribe,
    the error of its place included. `stranger`: prior density of the strangers, who may be anywhere."""
    total = p[k] = stranger * math.sqrt(2.0 * math.pi)
    for i in range(k):
        p[i] = share[i] * density(x - place[i], noise + width[i])
        total += p[i]
    if total <= 0.0:
        p[k] = total = 1.0
    for i in range(k + 1):
        p[i] /= total


@kernel
def posterior(
    mean, noise, fit, share, place, width, n_tribes, stranger, first_group, estimate, group, probability
):  # fmt: skip
    """Posterior mean, group of the most probable tribe and its probability of every agent, by the tribes in fit[a]."""
    p = np.empty(MOST + 1)
    for a in range(mean.size):
        x, s2, f = mean[a], noise[a], fit[a]
        if x != x or f < 0:
            estimate[a], group[a], probability[a] = x, 0, 0.0
            continue
        k = n_tribes[f]
        _memberships(x, s2, share[f], place[f], width[f], k, stranger[f], p)
        value, best = p[k] * x, 0
        for i in range(k):
            value += p[i] * (place[f, i] + width[f, i] / (width[f, i] + s2) * (x - place[f, i]))
            best = i if p[i] > p[best] else best
        estimate[a], group[a], probability[a] = value, first_group[f] + best, p[best]


@kernel
def borrowing(mean, noise, fit, share, place, width, n_tribes, stranger, estimate, kept, variance):
    """kept[a] = the weight of agent a's own mean in its estimate, given who belongs where (the rest is borrowed), and
    the posterior variance around the estimate."""
    p = np.empty(MOST + 1)
    for a in range(mean.size):
        x, s2, f = mean[a], noise[a], fit[a]
        kept[a], variance[a] = 1.0, s2
        if x != x or f < 0:
            continue
        k = n_tribes[f]
        _memberships(x, s2, share[f], place[f], width[f], k, stranger[f], p)
        kept[a], variance[a] = p[k], p[k] * (s2 + (x - estimate[a]) ** 2)
        for i in range(k):
            own = width[f, i] / (width[f, i] + s2)
            kept[a] += p[i] * own
            variance[a] += p[i] * (own * s2 + (place[f, i] + own * (x - place[f, i]) - estimate[a]) ** 2)


@helper
def _below(value, x, s2, place, width, k, p):
    """The posterior probability that the true mean lies below the value."""
    total = p[k] * 0.5 * math.erfc((x - value) / math.sqrt(2.0 * s2))
    for i in range(k):
        kept = width[i] / (width[i] + s2)
        middle, variance = place[i] + kept * (x - place[i]), max(kept * s2, TINY)
        total += p[i] * 0.5 * math.erfc((middle - value) / math.sqrt(2.0 * variance))
    return total


@kernel
def below(value, mean, noise, fit, share, place, width, n_tribes, stranger, out):
    """out[a] = posterior probability that agent a's true mean lies below value[a]; NaN without a sample."""
    p = np.empty(MOST + 1)
    for a in range(mean.size):
        x, s2, f = mean[a], noise[a], fit[a]
        if x != x:
            out[a] = np.nan
        elif f < 0:
            out[a] = 0.5 * math.erfc((x - value[a]) / math.sqrt(2.0 * s2))
        else:
            k = n_tribes[f]
            _memberships(x, s2, share[f], place[f], width[f], k, stranger[f], p)
            out[a] = _below(value[a], x, s2, place[f], width[f], k, p)


@helper
def _normal_quantile(level):
    """Of the standard normal distribution."""
    low, high = -40.0, 40.0
    for _ in range(64):
        middle = 0.5 * (low + high)
        if 0.5 * math.erfc(-middle / math.sqrt(2.0)) < level:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


@helper
def _parts(x, s2, place, width, k, p, middle, deviation):
    """Bring the parts of a posterior that weigh anything to the front of p, with their places and deviations: what is
    left of it if the agent is of that tribe, or a stranger. Returns how many."""
    n = 0
    for i in range(k + 1):
        if p[i] > _WEIGHTLESS:
            kept = width[i] / (width[i] + s2) if i < k else 1.0
            middle[n] = place[i] + kept * (x - place[i]) if i < k else x
            deviation[n], p[n] = math.sqrt(max(kept * s2, TINY)), p[i]
            n += 1
    return n


@helper
def _crossing(level, z, n, p, middle, deviation):
    """Where the distribution of n normal parts crosses a level: Newton's method between the quantiles of the parts,
    which are z deviations from their middles, and bisection where it would leave them
    or is slow."""
    low = high = middle[0] + z * deviation[0]
    value, total, narrow = low, 0.0, deviation[0]
    for i in range(n):
        one = middle[i] + z * deviation[i]
        low, high, narrow = min(low, one), max(high, one), min(narrow, deviation[i])
        value = middle[i] if total < level else value  # tribes lie from left to right: it is near the one that crosses
        total += p[i]
    value, before = min(max(value, low), high), high - low
    rounding = 1e-16 * (abs(low) + abs(high))
    for _ in range(100):
        below, slope = -level, 0.0
        for i in range(n):
            u = (value - middle[i]) / deviation[i]
            below += p[i] * 0.5 * math.erfc(-u / math.sqrt(2.0))
            slope += p[i] * math.exp(-0.5 * u * u) / (math.sqrt(2.0 * math.pi) * deviation[i])
        if below < 0.0:
            low = max(low, value)
        else:
            high = min(high, value)
        step, exact = -below / slope if slope > 0.0 else np.inf, _LAST * narrow
        if abs(step) > 0.5 * before or not low <= value + step <= high:
            step, exact = 0.5 * (low + high) - value, _LAST * _LAST * narrow
        before, value = abs(step), value + step
        if before <= max(exact, rounding):
            break
    return value


@kernel
def quantiles(level, mean, noise, fit, share, place, width, n_tribes, stranger, out):
    """out[a] = the value below which agent a's true mean lies with this posterior probability."""
    z = _normal_quantile(level)
    p, middle, deviation = np.empty(MOST + 1), np.empty(MOST + 1), np.empty(MOST + 1)
    for a in range(mean.size):
        x, s2, f = mean[a], noise[a], max(fit[a], 0)
        if x != x or s2 == np.inf:  # without a sample, or with nothing known about it
            out[a] = np.nan if x != x else -np.inf if level < 0.5 else np.inf
            continue
        k = n_tribes[f] if fit[a] >= 0 else 0
        p[0] = 1.0  # with no tribes known, one is a stranger
        if k > 0:
            _memberships(x, s2, share[f], place[f], width[f], k, stranger[f], p)
        n = _parts(x, s2, place[f], width[f], k, p, middle, deviation)
        out[a] = _crossing(level, z, n, p, middle, deviation)
