"""The mixture that fits a noisy histogram best, equation (4). (Its standard errors: `colme.census.uncertainty`.)

A mixture has k components, each with a weight w, a location m and a spread tau^2, the variance of the true means in it.
A component is either a point mass (tau = 0) or wide. Bins with center c, count n and noise variance v follow

    c ~ sum over i of w_i N(m_i, tau_i^2 + v).

Where the variance of samples depends on their mean, so does v: see `colme.noise`.

The score of a mixture is its log-likelihood minus a penalty of ln N + 3 per component and ln N / 2 per spread, where N
is the effective number of agents. The search goes from many components to few: it groups the atoms of the
non-parametric maximum-likelihood mixture into components, then merges neighbors one pair at a time and keeps the best
score. No mixture is more likely than the non-parametric one, so its likelihood also shows when two components cannot
score better than one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from colme._core.jit import helper, kernel
from colme._core.normal import normal_density
from colme.noise import excess_noise, variance_at
from colme.support.arrays import Floats, Mask

i64 = np.int64  # a plain number in a call would make numba compile the callee for that very number

MAX_COMPONENTS = 40
_MAX_ATOMS = 160
"""Atoms of the non-parametric mixture all over the range. If it needs more, there are atoms near occupied bins only."""
_NEAR = 4
"""Atoms on either side of such a bin."""
_MAX_NEAR = 20000
"""Atoms near bins at most, before neighbors are left out; beyond it there is one on either side."""
_GAP = 4.0
"""Atoms further apart than this many standard deviations belong to different components."""
_PENALTY = 3.0
"""Nats per component, in addition to ln N."""
OFF_GRID = 2.0
"""Nats by which a mixture with locations between the atoms may exceed the bound."""
TINY = 1e-300


class Histogram(NamedTuple):
    """The occupied bins of one histogram."""

    center: Floats
    counts: Floats
    """Agents in the bin, a fraction for some."""
    noise: Floats
    """The variance of a binned mean around the true one."""
    sampling: Floats
    """The part of it that is due to the samples, not to binning: it may depend on the true mean."""
    function: Floats
    """How it does (`colme.noise`)."""


class Mixture(NamedTuple):
    """Components, in arrays that may have more room than there are components."""

    weight: Floats
    location: Floats
    spread: Floats
    """tau^2; zero for point masses."""
    wide: Mask
    """Which components may have a spread."""


@helper
def _room():
    """A mixture with room for MAX_COMPONENTS."""
    return Mixture(
        np.empty(MAX_COMPONENTS), np.empty(MAX_COMPONENTS), np.zeros(MAX_COMPONENTS), np.zeros(MAX_COMPONENTS, np.bool_)
    )


@kernel
def fit_mixture(histogram, mixture):
    """Fill `mixture`, which has room for MAX_COMPONENTS, with the mixture of the best score, sorted by location.
    Returns the number of components."""
    center, count = histogram.center, histogram.counts
    total = 0.0
    for b in range(count.size):
        total += count[b]
    penalty, spread_penalty = math.log(max(total, 3.0)) + _PENALTY, 0.5 * math.log(max(total, 3.0))
    mixture.weight[0], mixture.wide[0] = 1.0, True
    mixture.location[0], _, mixture.spread[0] = moments_of(histogram)
    low, high = range_of(center)
    if total < 3.0 or low == high:
        return 1
    em(histogram, mixture, i64(1), i64(8))
    best = _toggle_spreads(histogram, mixture, i64(1), penalty, spread_penalty)
    k_best = 1
    atoms, atom_weight, bound = nonparametric_mixture(histogram, total, low, high)
    if bound + OFF_GRID - 2.0 * penalty < best:
        return 1

    now, trial, merged = _room(), _room(), _room()
    cost = np.empty(MAX_COMPONENTS)
    finest = finest_noise(histogram)
    k = _group_atoms(atoms, atom_weight, total, _GAP * math.sqrt(finest), now)
    em(histogram, now, k, i64(30))
    score_now = _score(histogram, now, k, penalty, spread_penalty)
    while True:
        if k > 1 and (score_now > best or k <= 4):
            _copy(k, now, trial)
            em(histogram, trial, k, i64(40))
            score = _toggle_spreads(histogram, trial, k, penalty, spread_penalty)
            if score > best:
                best, k_best = score, k
                _copy(k, trial, mixture)
        if k <= 2:
            break
        _sort(k, now)
        weight, location, spread = now.weight, now.location, now.spread
        for i in range(k - 1):
            d = location[i + 1] - location[i]
            both = max(weight[i] + weight[i + 1], TINY)
            cost[i] = weight[i] * weight[i + 1] / both * d * d / (finest + spread[i] + spread[i + 1])
        score_now = -np.inf
        for _ in range(min(3, k - 1)):  # the three pairs that are cheapest to merge
            i = i64(0)  # a literal would compile `_merge` twice
            for j in range(k - 1):
                if cost[j] < cost[i]:
                    i = j
            cost[i] = np.inf
            for wide in range(2):
                _merge(i, k, wide == 1, now, trial)
                em(histogram, trial, k - 1, i64(12))
                score = _score(histogram, trial, k - 1, penalty, spread_penalty)
                if score > score_now:
                    score_now = score
                    _copy(k - 1, trial, merged)
        k -= 1
        _copy(k, merged, now)
    em(histogram, mixture, k_best, i64(20))
    _sort(k_best, mixture)
    return k_best


@kernel
def moments_of(histogram):
    """Mean and variance of a histogram, and the part of the variance in excess of the noise (zero if negative)."""
    center, count, noise = histogram.center, histogram.counts, histogram.noise
    total = first = second = blur = 0.0
    for b in range(center.size):
        total += count[b]
        first += count[b] * center[b]
        blur += count[b] * noise[b]
    mean = first / total
    for b in range(center.size):
        second += count[b] * (center[b] - mean) * (center[b] - mean)
    return mean, second / total, max(0.0, (second - blur) / total)


@kernel
def em(histogram, mixture, k, rounds):
    """So many rounds of expectation and maximization for k components. Bins are weighted by their precision."""
    if k == 1:
        _em_of_one(histogram, mixture, rounds)
        return
    center, count, noise = histogram.center, histogram.counts, histogram.noise
    weight, location, spread, wide = mixture
    begin = _runs(center, noise)
    p, near, f = np.empty((k, center.size)), np.empty((k, begin.size, 2), np.int64), np.empty(center.size)
    total = 0.0
    for b in range(center.size):
        total += count[b]
    for _ in range(rounds):
        _joint_densities(histogram, begin, mixture, k, p, near, f)
        for i in range(k):
            mass = information = pull = square = excess = 0.0
            relative = variance_at(histogram.function, location[i], spread[i])
            for r in range(begin.size - 1):
                blur = noise_at(histogram, begin[r], relative)
                precision = 1.0 / (blur + spread[i])
                for b in range(near[i, r, 0], near[i, r, 1]):
                    part, d = count[b] * p[i, b] / f[b], center[b] - location[i]
                    mass += part
                    information += part * precision
                    pull += part * precision * d
                    square += part * precision * precision
                    excess += part * precision * precision * (d * d - blur)
            weight[i] = mass / total
            if information > 0.0:
                location[i] += pull / information
            spread[i] = max(0.0, excess / square) if wide[i] and square > 0.0 else 0.0


@helper
def _em_of_one(histogram, mixture, rounds):
    """`em` for a single component, to which all bins within eight deviations belong: no densities are needed. It ends
    as soon as nothing changes."""
    center, count, noise = histogram.center, histogram.counts, histogram.noise
    location, spread, weight = mixture.location[0], mixture.spread[0], mixture.weight[0]
    total = 0.0
    for b in range(center.size):
        total += count[b]
    for _ in range(rounds):
        relative = variance_at(histogram.function, location, spread)
        mass = information = pull = square = excess = blur = precision = 0.0
        for b in range(center.size):
            if b == 0 or noise[b] != noise[b - 1]:
                blur = noise_at(histogram, b, relative)
                precision = 1.0 / (blur + spread)
            d = center[b] - location
            if d * d * precision <= 64.0:
                mass += count[b]
                information += count[b] * precision
                pull += count[b] * precision * d
                square += count[b] * precision * precision
                excess += count[b] * precision * precision * (d * d - blur)
        before = location, spread, weight
        weight = mass / total
        location = location + pull / information if information > 0.0 else location
        spread = max(0.0, excess / square) if mixture.wide[0] and square > 0.0 else 0.0
        if before == (location, spread, weight):
            break
    mixture.location[0], mixture.spread[0], mixture.weight[0] = location, spread, weight


@kernel
def log_likelihood(histogram, mixture, k):
    """The log-likelihood of the first k components."""
    center, count = histogram.center, histogram.counts
    begin = _runs(center, histogram.noise)
    p, near, f = np.empty((k, center.size)), np.empty((k, begin.size, 2), np.int64), np.empty(center.size)
    _joint_densities(histogram, begin, mixture, k, p, near, f)
    total = 0.0
    for b in range(center.size):
        total += count[b] * math.log(f[b])
    return total


@helper
def _joint_densities(histogram, begin, mixture, k, p, near, f):
    """p[i, b] = weight times density of component i at bin b, for near[i, r, 0] <= b < near[i, r, 1] in run r (it is
    zero elsewhere); f[b] = their sum over components."""
    center = histogram.center
    for b in range(center.size):
        f[b] = TINY
    for i in range(k):
        location, spread = mixture.location[i], mixture.spread[i]
        relative = variance_at(histogram.function, location, spread)
        for r in range(begin.size - 1):
            variance = noise_at(histogram, begin[r], relative) + spread
            first, last = _within(center, begin[r], begin[r + 1], location, 8.0 * math.sqrt(variance))
            near[i, r, 0], near[i, r, 1] = first, last
            for b in range(first, last):
                p[i, b] = mixture.weight[i] * normal_density(center[b] - location, variance)
                f[b] += p[i, b]


@helper
def _runs(center, noise):
    """The first bin of every run of bins with equal noise and increasing centers, and the number of bins at the end."""
    begin, n = np.empty(center.size + 1, np.int64), 0
    for b in range(center.size):
        if b == 0 or noise[b] != noise[b - 1] or center[b] < center[b - 1]:
            begin[n] = b
            n += 1
    begin[n] = center.size
    return begin[: n + 1]


@helper
def _within(center, first, last, location, reach):
    """Those of the bins first..last-1, sorted by center, within `reach` of a location: (first, last + 1), by
    bisection."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if center[middle] < location - reach:
            low = middle + 1
        else:
            high = middle
    first = high
    while high < last and center[high] <= location + reach:
        high += 1
    return first, high


@kernel
def _score(histogram, mixture, k, penalty, spread_penalty):
    score = log_likelihood(histogram, mixture, k) - penalty * k
    for i in range(k):
        if mixture.wide[i]:
            score -= spread_penalty
    return score


@kernel
def _toggle_spreads(histogram, mixture, k, penalty, spread_penalty):
    """Make each component wide, or a point mass, in turn where that improves the score. Returns the score."""
    trial = _room()
    best = _score(histogram, mixture, k, penalty, spread_penalty)
    for i in range(k):
        _copy(k, mixture, trial)
        trial.wide[i] = not mixture.wide[i]
        trial.spread[i] = 0.25 * finest_noise(histogram) if trial.wide[i] else 0.0
        em(histogram, trial, k, i64(25))
        score = _score(histogram, trial, k, penalty, spread_penalty)
        if score > best:
            best = score
            _copy(k, trial, mixture)
    return best


@kernel
def _atom_locations(center, finest, low, high):
    """Locations half a standard deviation apart between low and high, or only near the bins if those were too many."""
    step = 0.5 * math.sqrt(finest)
    if (high - low) / step + 2.0 < _MAX_ATOMS + 1.0:
        n = int((high - low) / step) + 2
        location = np.empty(n)
        for g in range(n):
            location[g] = low + (high - low) * g / (n - 1)
        return location
    near = _NEAR if center.size * (2 * _NEAR + 1) <= _MAX_NEAR else 1
    place = np.empty(center.size * (2 * near + 1))
    for b in range(center.size):
        for j in range(2 * near + 1):
            place[b * (2 * near + 1) + j] = math.floor((center[b] - low) / step + 0.5) + j - near
    return low + step * _distinct(place)


@helper
def _distinct(values):
    """The distinct values, sorted, as `np.unique` has them, which takes two seconds to compile (Shell's sort)."""
    gap = values.size // 2
    while gap > 0:
        for i in range(gap, values.size):
            value, j = values[i], i
            while j >= gap and values[j - gap] > value:
                values[j] = values[j - gap]
                j -= gap
            values[j] = value
        gap //= 2
    n = 0
    for value in values:
        if n == 0 or value != values[n - 1]:
            values[n] = value
            n += 1
    return values[:n]


@kernel
def nonparametric_mixture(histogram, total, low, high):
    """The non-parametric maximum-likelihood mixture of atoms between low and high: (locations, weights, bound), where
    no mixture of the atoms has a log-likelihood above the bound.

    Expectation and maximization only approach the maximum. How far it is follows from the growth of the weights: as the
    logarithm is concave, no mixture of the atoms is better by more than N ln(largest growth)."""
    center, count = histogram.center, histogram.counts
    location = _atom_locations(center, finest_noise(histogram), low, high)
    n_atoms = location.size
    weight, growth, relative = np.full(n_atoms, 1.0 / n_atoms), np.empty(n_atoms), np.empty((n_atoms, 2))
    for g in range(n_atoms):
        relative[g, 0], relative[g, 1] = variance_at(histogram.function, location[g], 0.0)
    most = range_of(relative[:, 0])[1], range_of(relative[:, 1])[1]
    near, begin = np.empty((center.size, 2), np.int64), np.zeros(center.size + 1, np.int64)
    for b in range(center.size):
        reach = 8.0 * math.sqrt(noise_at(histogram, b, most))
        near[b, 0], near[b, 1] = _within(location, 0, n_atoms, center[b], reach)
        begin[b + 1] = begin[b] + near[b, 1] - near[b, 0]
    like = np.empty(begin[center.size])  # like[begin[b] + j]: the density of bin b at atom near[b, 0] + j
    for b in range(center.size):
        for j in range(begin[b + 1] - begin[b]):
            g = near[b, 0] + j
            like[begin[b] + j] = normal_density(center[b] - location[g], noise_at(histogram, b, relative[g]))
    bound = 0.0
    for _ in range(200):
        for g in range(n_atoms):
            growth[g] = 0.0
        bound = 0.0
        for b in range(center.size):
            f = TINY
            for j in range(begin[b + 1] - begin[b]):
                f += weight[near[b, 0] + j] * like[begin[b] + j]
            bound += count[b] * math.log(f)
            q = count[b] / (f * total)
            for j in range(begin[b + 1] - begin[b]):
                growth[near[b, 0] + j] += q * like[begin[b] + j]
        largest = 0.0
        for g in range(n_atoms):
            largest = max(largest, growth[g])
            weight[g] *= growth[g]
        bound += total * math.log(largest)
        if largest - 1.0 < 1e-3:
            break
    return location, weight, bound


@kernel
def _group_atoms(atoms, atom_weight, total, gap, mixture):
    """Components from atoms: a new one starts at every valley of their weights and after every gap. If that
    gives more than MAX_COMPONENTS, it starts only after a gap between atoms of more than 0.01 agents. Components of
    less than 0.3 agents are dropped, and so are those beyond MAX_COMPONENTS. Returns the number of components."""
    k = 0
    for valleys in range(1, -1, -1):
        k, dropped, mass, moment, last = 0, 0, 0.0, 0.0, 0
        for g in range(atoms.size + 1):
            starts = g == atoms.size
            if 0 < g < atoms.size:
                starts = atoms[g] - atoms[last] > gap
                if valleys == 1 and atom_weight[g] > atom_weight[g - 1]:
                    starts = starts or g < 2 or atom_weight[g - 1] <= atom_weight[g - 2]
                if valleys == 1 or starts or atom_weight[g] * total > 0.01:
                    last = g
            if starts and (mass * total > 0.3 or (k == 0 and g == atoms.size)):
                if k < MAX_COMPONENTS:
                    mixture.weight[k], mixture.location[k] = mass, moment / max(mass, TINY)
                    k += 1
                else:
                    dropped += 1
            if starts:
                mass = moment = 0.0
            if g < atoms.size:
                mass += atom_weight[g]
                moment += atom_weight[g] * atoms[g]
        if dropped == 0:
            break
    kept = 0.0
    for i in range(k):
        kept += mixture.weight[i]
    for i in range(k):
        mixture.weight[i] /= kept
    return k


@kernel
def _merge(i, k, wide, mixture, out):
    """out = the mixture with components i and i + 1 merged into one, wide or not, of the same mean (and variance)."""
    weight, location, spread, _ = mixture
    both = max(weight[i] + weight[i + 1], TINY)
    middle = (weight[i] * location[i] + weight[i + 1] * location[i + 1]) / both
    across = weight[i] * (spread[i] + (location[i] - middle) ** 2)
    across += weight[i + 1] * (spread[i + 1] + (location[i + 1] - middle) ** 2)
    for j in range(k - 1):
        source = j if j < i else j + 1
        out.weight[j], out.location[j], out.spread[j] = weight[source], location[source], spread[source]
        out.wide[j] = mixture.wide[source]
    out.weight[i], out.location[i], out.spread[i], out.wide[i] = both, middle, across / both if wide else 0.0, wide


@kernel
def _copy(k, source, to):
    for i in range(k):
        to.weight[i], to.location[i] = source.weight[i], source.location[i]
        to.spread[i], to.wide[i] = source.spread[i], source.wide[i]


@kernel
def _sort(k, mixture):
    """Sort the components by location."""
    weight, location, spread, wide = mixture
    for i in range(1, k):
        j = i
        while j > 0 and location[j] < location[j - 1]:
            weight[j], weight[j - 1] = weight[j - 1], weight[j]
            location[j], location[j - 1] = location[j - 1], location[j]
            spread[j], spread[j - 1] = spread[j - 1], spread[j]
            wide[j], wide[j - 1] = wide[j - 1], wide[j]
            j -= 1


@helper
def noise_at(histogram, b, relative):
    """The noise of bin b where samples have this relative variance (`variance_at`)."""
    return histogram.noise[b] + excess_noise(relative, histogram.sampling[b])


@helper
def finest_noise(histogram):
    """The smallest noise of all bins, with the variance of samples at their centers."""
    finest = np.inf
    for b in range(histogram.center.size):
        relative = variance_at(histogram.function, histogram.center[b], 0.0)
        finest = min(finest, noise_at(histogram, b, relative))
    return finest


@helper
def range_of(values):
    """The smallest and the largest value."""
    low = high = values[0]
    for i in range(values.size):
        low, high = min(low, values[i]), max(high, values[i])
    return low, high
