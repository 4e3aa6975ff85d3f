"""The mixture that explains a noisy histogram best. (How sure one can be of it: `colme.census.uncertainty`.)

A mixture has k tribes, each with a share w, a place m and a spread tau^2, which is zero unless the tribe is `wide`:

    c ~ sum over i of w_i N(m_i, tau_i^2 + v)        for the bins (center c, count n, noise variance v).

Its score is the log-likelihood minus a price per tribe (ln N + 3) and per spread (ln N / 2). The search comes from
above: the non-parametric maximum-likelihood mixture on a fine grid is lumped into tribes, and neighbors are merged one
by one; as no mixture is more likely than that one, it also says when two tribes can never pay.
"""

from __future__ import annotations

import math

import numpy as np

from colme._core.jit import helper, kernel

i64 = np.int64  # a plain number in a call would make numba compile the callee for that very number

MOST = 40
"""Tribes at most."""
_GRID = 160
"""Atoms of the non-parametric mixture at most."""
_PRICE = 3.0
"""Nats per tribe, beside ln N."""
_BETWEEN = 2.0
"""Nats that mixtures with places between the atoms may be better by."""
TINY = 1e-300


@helper
def range_of(values):
    """Smallest and largest."""
    low = high = values[0]
    for i in range(values.size):
        low, high = min(low, values[i]), max(high, values[i])
    return low, high


@helper
def density(distance, variance):
    """A normal density without its constant 1 / sqrt(2 pi); zero beyond eight deviations."""
    e = distance * distance / variance
    return math.exp(-0.5 * e) / math.sqrt(variance) if e < 64.0 else 0.0


@helper
def _runs(center, noise):
    """Where runs of bins begin that have the same noise and lie from left to right; the number of bins comes last."""
    begin, n = np.empty(center.size + 1, np.int64), 0
    for b in range(center.size):
        if b == 0 or noise[b] != noise[b - 1] or center[b] < center[b - 1]:
            begin[n] = b
            n += 1
    begin[n] = center.size
    return begin[: n + 1]


@helper
def _nearby(center, first, last, place, reach):
    """The bins first..last-1, from left to right, whose distance from a place is at most the reach, by bisection."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if center[middle] < place - reach:
            low = middle + 1
        else:
            high = middle
    first = high
    while high < last and center[high] <= place + reach:
        high += 1
    return first, high


@helper
def _explain(center, noise, begin, share, place, spread, k, p, near, f):
    """p[i, b] = share times density of tribe i at bin b, for near[i, r, 0] <= b < near[i, r, 1] in run r, as it is zero
    elsewhere; f = their sums."""
    for b in range(center.size):
        f[b] = TINY
    for i in range(k):
        for r in range(begin.size - 1):
            variance = noise[begin[r]] + spread[i]
            first, last = _nearby(center, begin[r], begin[r + 1], place[i], 8.0 * math.sqrt(variance))
            near[i, r, 0], near[i, r, 1] = first, last
            for b in range(first, last):
                p[i, b] = share[i] * density(center[b] - place[i], variance)
                f[b] += p[i, b]


@kernel
def _log_likelihood(center, count, noise, share, place, spread, k):
    begin = _runs(center, noise)
    p, near, f = np.empty((k, center.size)), np.empty((k, begin.size, 2), np.int64), np.empty(center.size)
    _explain(center, noise, begin, share, place, spread, k, p, near, f)
    total = 0.0
    for b in range(center.size):
        total += count[b] * math.log(f[b])
    return total


@kernel
def refine(center, count, noise, share, place, spread, wide, k, rounds):
    """Expectation and maximisation; bins weigh in by their precision. `wide`: which tribes may have a spread."""
    begin = _runs(center, noise)
    p, near, f = np.empty((k, center.size)), np.empty((k, begin.size, 2), np.int64), np.empty(center.size)
    total = 0.0
    for b in range(center.size):
        total += count[b]
    for _ in range(rounds):
        _explain(center, noise, begin, share, place, spread, k, p, near, f)
        for i in range(k):
            mass = weight = pull = square = excess = 0.0
            for r in range(begin.size - 1):
                blur = noise[begin[r]]
                precision = 1.0 / (blur + spread[i])
                for b in range(near[i, r, 0], near[i, r, 1]):
                    part, d = count[b] * p[i, b] / f[b], center[b] - place[i]
                    mass += part
                    weight += part * precision
                    pull += part * precision * d
                    square += part * precision * precision
                    excess += part * precision * precision * (d * d - blur)
            share[i] = mass / total
            if weight > 0.0:
                place[i] += pull / weight
            spread[i] = max(0.0, excess / square) if wide[i] and square > 0.0 else 0.0


@kernel
def _score(center, count, noise, share, place, spread, wide, k, price, price_of_spread):
    score = _log_likelihood(center, count, noise, share, place, spread, k) - price * k
    for i in range(k):
        if wide[i]:
            score -= price_of_spread
    return score


@kernel
def _atoms(center, count, noise, total, low, high):
    """The non-parametric maximum-likelihood mixture: (places, shares, the log-likelihood that no mixture exceeds).

    Expectation and maximisation come only near it, but the growth of the shares tells how near: as the logarithm is
    concave, no mixture of the atoms is better by more than N ln(largest growth)."""
    finest = range_of(noise)[0]
    n_atoms = min(_GRID, int((high - low) / (0.5 * math.sqrt(finest))) + 2)
    place, share, grown = np.empty(n_atoms), np.empty(n_atoms), np.empty(n_atoms)
    for g in range(n_atoms):
        place[g], share[g] = low + (high - low) * g / (n_atoms - 1), 1.0 / n_atoms
    like, near = np.empty((center.size, n_atoms)), np.empty((center.size, 2), np.int64)
    for b in range(center.size):
        near[b] = _nearby(place, 0, n_atoms, center[b], 8.0 * math.sqrt(noise[b]))
        for g in range(near[b, 0], near[b, 1]):
            like[b, g] = density(center[b] - place[g], noise[b])
    bound = 0.0
    for _ in range(200):
        for g in range(n_atoms):
            grown[g] = 0.0
        bound = 0.0
        for b in range(center.size):
            f = TINY
            for g in range(near[b, 0], near[b, 1]):
                f += share[g] * like[b, g]
            bound += count[b] * math.log(f)
            q = count[b] / (f * total)
            for g in range(near[b, 0], near[b, 1]):
                grown[g] += q * like[b, g]
        most = 0.0
        for g in range(n_atoms):
            most = max(most, grown[g])
            share[g] *= grown[g]
        bound += total * math.log(most)
        if most - 1.0 < 1e-3:
            break
    return place, share, bound


@kernel
def _lump(atoms, share_of, total, share, place):
    """Tribes from atoms: a new one begins at every valley of their shares. Returns how many."""
    k, mass, moment = 0, 0.0, 0.0
    for g in range(atoms.size):
        valley = g > 0 and share_of[g] > share_of[g - 1] and (g < 2 or share_of[g - 1] <= share_of[g - 2])
        if valley and mass * total > 0.3 and k < MOST - 1:
            share[k], place[k] = mass, moment / mass
            k += 1
        if valley:
            mass = moment = 0.0
        mass += share_of[g]
        moment += share_of[g] * atoms[g]
    if mass * total > 0.3 or k == 0:
        share[k], place[k] = mass, moment / max(mass, TINY)
        k += 1
    kept = 0.0
    for i in range(k):
        kept += share[i]
    for i in range(k):
        share[i] /= kept
    return k


@kernel
def _copy(k, share, place, spread, wide, share_to, place_to, spread_to, wide_to):
    for i in range(k):
        share_to[i], place_to[i], spread_to[i], wide_to[i] = share[i], place[i], spread[i], wide[i]


@kernel
def _merged(i, k, wider, share, place, spread, wide, share_to, place_to, spread_to, wide_to):
    """Tribes i and i + 1 become one, with a spread or without."""
    both = max(share[i] + share[i + 1], TINY)
    middle = (share[i] * place[i] + share[i + 1] * place[i + 1]) / both
    across = share[i] * (spread[i] + (place[i] - middle) ** 2)
    across += share[i + 1] * (spread[i + 1] + (place[i + 1] - middle) ** 2)
    for j in range(k - 1):
        source = j if j < i else j + 1
        share_to[j], place_to[j], spread_to[j] = share[source], place[source], spread[source]
        wide_to[j] = wide[source]
    share_to[i], place_to[i], spread_to[i], wide_to[i] = both, middle, across / both if wider else 0.0, wider


@kernel
def _sort(k, share, place, spread, wide):
    """By place."""
    for i in range(1, k):
        j = i
        while j > 0 and place[j] < place[j - 1]:
            share[j], share[j - 1] = share[j - 1], share[j]
            place[j], place[j - 1] = place[j - 1], place[j]
            spread[j], spread[j - 1] = spread[j - 1], spread[j]
            wide[j], wide[j - 1] = wide[j - 1], wide[j]
            j -= 1


@kernel
def _polish(center, count, noise, share, place, spread, wide, k, price, price_of_spread):
    """Give each tribe a spread or take it, if that pays. Returns the score."""
    share_2, place_2, spread_2 = np.empty(MOST), np.empty(MOST), np.empty(MOST)
    wide_2 = np.zeros(MOST, np.bool_)
    best = _score(center, count, noise, share, place, spread, wide, k, price, price_of_spread)
    for i in range(k):
        _copy(k, share, place, spread, wide, share_2, place_2, spread_2, wide_2)
        wide_2[i] = not wide[i]
        spread_2[i] = 0.25 * range_of(noise)[0] if wide_2[i] else 0.0
        refine(center, count, noise, share_2, place_2, spread_2, wide_2, k, i64(25))
        score = _score(center, count, noise, share_2, place_2, spread_2, wide_2, k, price, price_of_spread)
        if score > best:
            best = score
            _copy(k, share_2, place_2, spread_2, wide_2, share, place, spread, wide)
    return best


@kernel
def moments_of(center, count, noise):
    """Mean and variance of a histogram, and what of the variance is not noise, as far as that is positive."""
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
def one_tribe(center, count, noise, share, place, spread):
    """The best single tribe: place and spread from the moments."""
    share[0] = 1.0
    place[0], _, spread[0] = moments_of(center, count, noise)


@kernel
def fit_tribes(center, count, noise, share, place, spread):
    """The mixture with the best score; fills share, place and spread (room for MOST) and returns how many tribes."""
    total = 0.0
    for b in range(count.size):
        total += count[b]
    price, price_of_spread = math.log(max(total, 3.0)) + _PRICE, 0.5 * math.log(max(total, 3.0))
    wide = np.zeros(MOST, np.bool_)
    one_tribe(center, count, noise, share, place, spread)
    low, high = range_of(center)
    if total < 3.0 or low == high:
        return 1
    wide[0] = True
    refine(center, count, noise, share, place, spread, wide, i64(1), i64(8))
    best = _polish(center, count, noise, share, place, spread, wide, i64(1), price, price_of_spread)
    k_best = 1
    atoms, share_of, bound = _atoms(center, count, noise, total, low, high)
    if bound + _BETWEEN - 2.0 * price < best:
        return 1

    w, m, v, g = np.empty(MOST), np.empty(MOST), np.zeros(MOST), np.zeros(MOST, np.bool_)
    w2, m2, v2, g2 = np.empty(MOST), np.empty(MOST), np.empty(MOST), np.zeros(MOST, np.bool_)
    w3, m3, v3, g3 = np.empty(MOST), np.empty(MOST), np.empty(MOST), np.zeros(MOST, np.bool_)
    cost = np.empty(MOST)
    k = _lump(atoms, share_of, total, w, m)
    finest = range_of(noise)[0]
    refine(center, count, noise, w, m, v, g, k, i64(30))
    now = _score(center, count, noise, w, m, v, g, k, price, price_of_spread)
    while True:
        if k > 1 and (now > best or k <= 4):
            _copy(k, w, m, v, g, w2, m2, v2, g2)
            refine(center, count, noise, w2, m2, v2, g2, k, i64(40))
            score = _polish(center, count, noise, w2, m2, v2, g2, k, price, price_of_spread)
            if score > best:
                best, k_best = score, k
                _copy(k, w2, m2, v2, g2, share, place, spread, wide)
        if k <= 2:
            break
        _sort(k, w, m, v, g)
        for i in range(k - 1):
            d = m[i + 1] - m[i]
            cost[i] = w[i] * w[i + 1] / max(w[i] + w[i + 1], TINY) * d * d / (finest + v[i] + v[i + 1])
        now = -np.inf
        for _ in range(min(3, k - 1)):
            i = 0
            for j in range(k - 1):
                if cost[j] < cost[i]:
                    i = j
            cost[i] = np.inf
            for wider in range(2):
                _merged(i, k, wider == 1, w, m, v, g, w2, m2, v2, g2)
                refine(center, count, noise, w2, m2, v2, g2, k - 1, i64(12))
                score = _score(center, count, noise, w2, m2, v2, g2, k - 1, price, price_of_spread)
                if score > now:
                    now = score
                    _copy(k - 1, w2, m2, v2, g2, w3, m3, v3, g3)
        k -= 1
        _copy(k, w3, m3, v3, g3, w, m, v, g)
    refine(center, count, noise, share, place, spread, wide, k_best, i64(20))
    _sort(k_best, share, place, spread, wide)
    return k_best
