"""The mixture that explains a noisy histogram best, and how sure one can be of it.

A mixture has k tribes, each with a share w, a place m and a spread tau^2, which is zero unless the tribe is `wide`:

    c ~ sum over i of w_i N(m_i, tau_i^2 + v)        for the bins (center c, count n, noise variance v).

Its score is the log-likelihood minus a price per tribe (ln N + 3) and per spread (ln N / 2). The search comes from
above: the non-parametric maximum-likelihood mixture on a fine grid is lumped into tribes, and neighbors are merged one
by one; as no mixture is more likely than that one, it also says when two tribes can never pay.
"""

from __future__ import annotations

import math

import numpy as np

from colme._jit import helper, kernel

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


@kernel
def _log_likelihood(center, count, noise, share, place, spread, k):
    total = 0.0
    for b in range(center.size):
        f = TINY
        for i in range(k):
            f += share[i] * density(center[b] - place[i], noise[b] + spread[i])
        total += count[b] * math.log(f)
    return total


@kernel
def refine(center, count, noise, share, place, spread, wide, k, rounds):
    """Expectation and maximisation; bins weigh in by their precision. `wide`: which tribes may have a spread."""
    p, mass, weight, pull = np.empty(k), np.empty(k), np.empty(k), np.empty(k)
    square, excess = np.empty(k), np.empty(k)
    for _ in range(rounds):
        for i in range(k):
            mass[i] = weight[i] = pull[i] = square[i] = excess[i] = 0.0
        total = 0.0
        for b in range(center.size):
            f = TINY
            for i in range(k):
                p[i] = share[i] * density(center[b] - place[i], noise[b] + spread[i])
                f += p[i]
            total += count[b]
            for i in range(k):
                if p[i] > 0.0:
                    r, precision = count[b] * p[i] / f, 1.0 / (noise[b] + spread[i])
                    d = center[b] - place[i]
                    mass[i] += r
                    weight[i] += r * precision
                    pull[i] += r * precision * d
                    square[i] += r * precision * precision
                    excess[i] += r * precision * precision * (d * d - noise[b])
        for i in range(k):
            share[i] = mass[i] / total
            if weight[i] > 0.0:
                place[i] += pull[i] / weight[i]
            spread[i] = max(0.0, excess[i] / square[i]) if wide[i] and square[i] > 0.0 else 0.0


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
    like = np.empty((center.size, n_atoms))
    for b in range(center.size):
        for g in range(n_atoms):
            like[b, g] = density(center[b] - place[g], noise[b])
    bound = 0.0
    for _ in range(200):
        for g in range(n_atoms):
            grown[g] = 0.0
        bound = 0.0
        for b in range(center.size):
            f = TINY
            for g in range(n_atoms):
                f += share[g] * like[b, g]
            bound += count[b] * math.log(f)
            q = count[b] / (f * total)
            for g in range(n_atoms):
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
def _moments(center, count, noise):
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
    place[0], _, spread[0] = _moments(center, count, noise)


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


@kernel
def _inverse_diagonal(matrix, k, out):
    """out[i] = the first k diagonal elements of the inverse of a positive matrix, which is lost (Cholesky)."""
    n = matrix.shape[0]
    for i in range(n):
        for j in range(i + 1):
            total = matrix[i, j]
            for q in range(j):
                total -= matrix[i, q] * matrix[j, q]
            matrix[i, j] = total / matrix[j, j] if j < i else math.sqrt(max(total, TINY))
    column = np.empty(n)
    for i in range(k):
        out[i] = 0.0
        for j in range(i, n):
            total = 1.0 if j == i else 0.0
            for q in range(i, j):
                total -= matrix[j, q] * column[q]
            column[j] = total / matrix[j, j]
            out[i] += column[j] * column[j]


@kernel
def _uncertainty(center, count, noise, share, place, spread, wide, k, out):
    """out[:k] = variances of the places, out[k:] those of the spreads of the wide tribes, from the information that the
    histogram has about all places, spreads and shares together: tribes that overlap are hard to tell."""
    n_wide = 0
    for i in range(k):
        n_wide += 1 if wide[i] else 0
    n = 2 * k - 1 + n_wide
    information, slope, p = np.zeros((n, n)), np.empty(n), np.empty(k)
    for b in range(center.size):
        f = TINY
        for i in range(k):
            p[i] = density(center[b] - place[i], noise[b] + spread[i])
            f += share[i] * p[i]
        j = k
        for i in range(k):
            d, q = center[b] - place[i], noise[b] + spread[i]
            slope[i] = share[i] * p[i] * d / q
            if wide[i]:
                slope[j] = share[i] * p[i] * 0.5 * (d * d / q - 1.0) / q
                j += 1
            if i < k - 1:
                slope[k + n_wide + i] = p[i] - p[k - 1]
        for i in range(n):
            for j in range(i + 1):
                information[i, j] += count[b] * (slope[i] / f) * (slope[j] / f)  # f * f may be less than any number
    for i in range(n):
        information[i, i] += 1e-9 * information[i, i] + TINY
    _inverse_diagonal(information, k + n_wide, out)


@helper
def _expected_spread(z, e, everything, alone):
    """The expected spread of a tribe, from the likelihood of a spread, N(z e, e^2), and a prior: anything up to
    `everything`, or, as likely as not, zero, unless the tribe is `alone`: a world of one tribe is none of twins.

    A spread is the more probable than none by sqrt(2 pi) e / everything Phi(z) exp(z^2 / 2), and if there is one, its
    mean is e (z + phi(z) / Phi(z))."""
    z = min(max(z, -6.0), 6.0)
    bell, below = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi), 0.5 * math.erfc(-z / math.sqrt(2.0))
    odds = e / everything * below / bell
    return (1.0 if alone else odds / (1.0 + odds)) * e * (z + bell / below)


@kernel
def doubts(center, count, noise, share, place, spread, k, doubt):
    """doubt[i] = what to add to the spread of tribe i: the variance of its place, and what its spread may be more than
    it seems, above all if it seems to have none."""
    wide, out, slope = np.zeros(k, np.bool_), np.empty(2 * k), np.zeros(k)
    for i in range(k):
        wide[i] = spread[i] > 0.0
    _uncertainty(center, count, noise, share, place, spread, wide, k, out)
    for i in range(k):
        doubt[i], wide[i] = out[i], True
    _uncertainty(center, count, noise, share, place, spread, wide, k, out)
    for b in range(center.size):
        f = TINY
        for i in range(k):
            f += share[i] * density(center[b] - place[i], noise[b] + spread[i])
        for i in range(k):
            d, q = center[b] - place[i], noise[b] + spread[i]
            slope[i] += count[b] * share[i] * density(d, q) / f * 0.5 * (d * d / q - 1.0) / q
    _, everything, true = _moments(center, count, noise)
    for i in range(k):
        if everything > 0.0:
            e = min(math.sqrt(out[k + i]), everything)
            seen = spread[i] > 0.0
            z = spread[i] / e if seen else slope[i] * e
            doubt[i] += max(0.0, _expected_spread(z, e, max(true, e), seen or k == 1) - spread[i])
