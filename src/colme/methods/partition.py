"""Partition: the exact posterior over who shares a mean, for an agent and its direct neighbors.

From the perspective of agent a, at step t:

(1) it observes x_a(t), updates its mean X_a, and hears the means X_b of its neighbors, of sampling variances v_b
(2) a partition of itself and its neighbors into classes has the prior probability alpha^K product of (k - 1)! over
    alpha (alpha + 1) .. (alpha + n - 1), for K classes of k agents each (the Chinese restaurant process), and the mean
    of a class the prior N(m, s). Only partitions that are contiguous in the order of the means matter, and these can be
    summed exactly: with w(i, j) the prior and likelihood of a class that holds the sorted means i .. j,
                        F(j + 1) = sum over i of F(i) w(i, j),    B(i) = sum over j of w(i, j) B(j + 1),
                        P(i, j) = F(i) w(i, j) B(j + 1) / F(n)    is the probability of the class i .. j
    or, with probability .25, v_b is larger by 1 or 8 typical ones: the true means of a class differ by so much, and
    that of an agent lies between the mean of its class and its own
(3) beside it there is the model without classes: true means are N(m, s), m flat, or equal. It takes the average over
    both models and a grid of s, by posterior probability
(4) its estimate is its posterior mean,                           y_a = X_a + sum over b of c_ab (X_b - X_a),
    for given a partition and s the posterior mean is linear in the means

The weights c are those of the last sum over partitions, which is made anew when counts have grown by 5 % (in large
networks 40 %) or a new neighbor has a sample. The classes of sorted means that follow one another are product
partitions (Barry and Hartigan 1992); m is the mean of all by moments, which is linear in the means, too.

An agent that does not know sigma takes the squares of its own and its neighbors' samples: variances are moderated by
the average over these agents (`colme.noise`), and as uncertain ones count as their expectation, D / (D - 2) times as
much, with D degrees of freedom in all.

Two or three agents cannot gain where means are equal without losing where they are about 1.5 standard errors apart. The
prior of s is such that they lose about .15 at most.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from colme._core.edges import Edges
from colme._core.jit import at, helper, kernel
from colme._core.normal import exponential, normal_cdf, normal_quantile
from colme._core.team import Neighborhood
from colme.census.mixture import TINY
from colme.census.posterior import mixture_quantile
from colme.errors import MethodError, positive
from colme.graphs import Graph
from colme.guard import GuardedMethod
from colme.method import Agent, Intervals, Place, Posterior, Round, State, World
from colme.noise import FIRST_MODERATION, SamplingNoise, own_weight, variance_of_mean
from colme.support.arrays import Array, Floats, Mask

MOST = 200
"""Agents in a sum over partitions at most."""
SPREADS = 5
"""Values of s, from LEAST (1 + FEW / (n - 1)^2) standard errors squared to the squared range of the means."""
LEAST, FEW = 0.62, 1.6
ALPHA = 0.7
CLASSES = 0.18
"""The probability that there are classes, times (n - 2) / (n - 1)."""
WITHIN, PARTS = np.array([0.0, 1.0, 8.0]), np.array([0.75, 0.15, 0.1])
"""The variance of true means within a class, in sampling variances of a mean, and its probability. In networks of more
than `MOST` agents it is zero, for speed."""
GROWTH, QUICK = 1.05 * (1.0 - 1e-6), 1.4 * (1.0 - 1e-6)
"""The sum over partitions is made anew when precisions have grown by this factor (whatever is rounded); in networks of
more than `MOST` agents by the second one, for speed: a late sum costs up to .1 of the error of local means."""
PLACES = 16
"""A posterior is kept as a mixture of so many normal distributions: their places are half a standard error wide."""
_NEGLIGIBLE = 1e-12
WIDER = 1.05
"""Intervals are wider than those of the posterior: the prior is one of small errors, and where true means are a
continuum about as wide as the noise of means, it counts too much on equal ones."""
_RARE = 1e-5
"""Components of a posterior with less probability are left out of intervals."""
_LOWEST = -700.0


class Room(NamedTuple):
    """Arrays for the sum over the partitions of n agents; row j and column i belong to the class i .. j."""

    x: Floats
    """Sorted means."""
    v: Floats
    pull: Floats
    """Their weights in m."""
    factorial: Floats
    """ln (k - 1)!"""
    scale: Floats
    """Of F, which is exp(scale) times what is kept."""
    forward: Floats
    backward: Floats
    precision: Floats
    middle: Floats
    """The mean of the class, relative to m."""
    within: Floats
    """What it leaves unexplained: a chi-square."""
    w: Floats
    left: Floats
    """The part of the distance from m that the mean of the class keeps."""
    p: Floats
    """P, summed over s."""
    gain: Floats
    """The same, times the posterior variance of the mean of the class,"""
    gain_2: Floats
    """and times its square."""
    model: Floats
    """Models without classes: s, m and the probability."""
    begins: Floats
    ends: Floats
    known: Floats
    """m, the log probability of all, and what share that is for one of WITHIN."""


@helper
def room_for(n):
    line, square = np.empty((9, n + 1)), np.empty((8, n, n))
    return Room(
        line[0], line[1], line[2], line[3], line[4], line[5], line[6], square[0], square[1], square[2], square[3],
        square[4], square[5], square[6], square[7], np.empty((SPREADS + 1, 3)), line[7], line[8],
        np.empty(3),
    )  # fmt: skip


@helper
def sum_partitions(rooms, n, n_within):
    """Equations (2) and (3) for n sorted means, at least two, which are in the first room with their variances; a room
    for each of WITHIN that counts."""
    first, total, top = rooms[0], 0.0, -np.inf
    for i in range(n):
        total += 1.0 / first.v[i]
    for r in range(n_within):
        room = rooms[r]
        for i in range(n):
            room.x[i], room.v[i] = first.x[i], first.v[i] + WITHIN[r] * (n / total)
        sum_within(room, n, PARTS[r] if n_within > 1 else 1.0, r == 0)
        top = max(top, room.known[1])
    total = 0.0
    for r in range(n_within):
        rooms[r].known[2] = math.exp(rooms[r].known[1] - top)
        total += rooms[r].known[2]
    for r in range(n_within):
        rooms[r].known[2] /= total


@helper
def sum_within(room, n, part, also):
    """The same, if the true means of a class have the variance by which `v` exceeds sampling variances: of `part` of
    the probability of classes, and `also` with the models without classes."""
    x, v, pull, log_factorial, scale = room.x, room.v, room.pull, room.factorial, room.scale
    u, left, forward, backward = room.w, room.left, room.forward, room.backward
    forward[0] = 1.0
    total = first = second = 0.0
    for i in range(n):
        away = x[i] - x[0]
        total += 1.0 / v[i]
        first += away / v[i]
        second += away * away / v[i]
    noise = n / total
    between = max(second / total - first / total * (first / total) - noise, 0.0)
    total = m = 0.0
    for i in range(n):
        pull[i] = 1.0 / (v[i] + between)
        total += pull[i]
        m += pull[i] * (x[i] - x[0])
    m = x[0] + m / total
    rising = math.log(ALPHA)  # of alpha (alpha + 1) .. (alpha + n - 1)
    log_factorial[0] = log_factorial[1] = 0.0
    for k in range(1, n):
        rising += math.log(ALPHA + k)
        log_factorial[k + 1] = log_factorial[k] + math.log(k)
    for j in range(n):
        pull[j] /= total
        weight = first = second = 0.0
        for i in range(j, -1, -1):
            away = x[i] - x[j]
            weight += 1.0 / v[i]
            first += away / v[i]
            second += away * away / v[i]
            room.precision[j, i], room.middle[j, i] = weight, x[j] + first / weight - m
            room.within[j, i] = second - first * first / weight
            room.p[j, i] = room.gain[j, i] = room.gain_2[j, i] = 0.0
    few = 1.0 / (n - 1.0)
    least, span = LEAST * (1.0 + FEW * few * few), x[n - 1] - x[0]
    least, widest = least * least * noise, max(span * span, noise)
    step = math.exp(math.log(widest / least) / (SPREADS - 1.0))  # powers are rounded in other ways by numba
    classes = CLASSES * (1.0 - few)
    top = without_classes(
        room, n, m, least, step, widest, math.log((1.0 - classes) / (SPREADS + 1)) if also else -np.inf
    )
    log_prior = math.log(max(part * classes, _NEGLIGIBLE) / SPREADS) - rising
    s = everything = 0.0  # the probability of partitions, relative to exp(top)
    for k in range(SPREADS):
        s = least if k == 0 else s * step
        typical = 1.0 + s / noise
        usual = math.log(ALPHA) - 0.5 * math.log(typical)
        scale[0] = 0.0
        for j in range(n):
            best = -np.inf
            for i in range(j + 1):
                precision = room.precision[j, i]
                left[j, i] = 1.0 / (1.0 + s * precision)
                e = room.within[j, i] + room.middle[j, i] * room.middle[j, i] * precision * left[j, i]
                u[j, i] = scale[i] + log_factorial[j - i + 1] + usual - 0.5 * e
                best = max(best, u[j, i])
            scale[j + 1] = best
            total = 0.0
            for i in range(j + 1):
                u[j, i] = math.sqrt(typical * left[j, i]) * exponential(max(u[j, i] - best, _LOWEST))
                total += forward[i] * u[j, i]
            forward[j + 1], backward[j] = total, 0.0
        evidence = scale[n] + math.log(forward[n]) + log_prior
        if evidence > top:
            less = math.exp(top - evidence)
            top, everything = evidence, everything * less
            for j in range(n):
                for i in range(j + 1):
                    room.p[j, i] *= less
                    room.gain[j, i] *= less
                    room.gain_2[j, i] *= less
        share = math.exp(evidence - top)
        everything += share
        backward[n] = share / forward[n]
        for j in range(n - 1, -1, -1):
            for i in range(j + 1):
                after = u[j, i] * backward[j + 1]
                one, gain = forward[i] * after, s * left[j, i]
                backward[i] += after
                room.p[j, i] += one
                room.gain[j, i] += one * gain
                room.gain_2[j, i] += one * gain * gain
    for k in range(SPREADS + 1):
        room.model[k, 2] = math.exp(room.model[k, 2] - top)
        everything += room.model[k, 2]
    for k in range(SPREADS + 1):
        room.model[k, 2] /= everything
    for j in range(n):
        for i in range(j + 1):
            room.p[j, i] /= everything
            room.gain[j, i] /= everything
            room.gain_2[j, i] /= everything
    room.known[0], room.known[1] = m, top + math.log(everything)
    for i in range(n):
        room.known[1] -= 0.5 * math.log(v[i])


@helper
def without_classes(room, n, m, least, step, widest, log_prior):
    """The log probabilities of the models without classes, the first with equal means; returns the largest."""
    top, s = -np.inf, 0.0
    for k in range(SPREADS + 1):
        s = 0.0 if k == 0 else least if k == 1 else s * step
        total = first = square = logs = 0.0
        for i in range(n):
            one, away = 1.0 / (room.v[i] + s), room.x[i] - m
            total += one
            first += one * away
            square += one * away * away
            logs += math.log(1.0 + s / room.v[i])
        evidence = log_prior - 0.5 * (logs + square - first * first / total + math.log(total * widest))
        room.model[k, 0], room.model[k, 1], room.model[k, 2] = s, m + first / total, evidence
        top = max(top, evidence)
    return top


@helper
def posterior_of(rooms, n, n_within, i, weight, alike, places):
    """The posterior of sorted agent i: the weights of all means in its own, the probabilities that others share it, and
    its mixture, relative to its own mean: the sums of probabilities, means and squares in each place."""
    places[:] = 0.0
    for j in range(n):
        weight[j] = alike[j] = 0.0
    for r in range(n_within):
        room, c, together = rooms[r], rooms[r].forward, rooms[r].backward
        share, kept = room.known[2], rooms[0].v[i] / room.v[i]
        posterior_within(room, n, i, c, together, places, rooms[0].v[i], kept)
        for j in range(n):
            weight[j] += share * kept * c[j]
            alike[j] += share * together[j]
        weight[i] += share * (1.0 - kept)


@helper
def posterior_within(room, n, i, weight, alike, places, own, kept):
    """The same for one of WITHIN: the weights in the mean of the class, of whose distance from the own mean, which has
    the sampling variance `own`, this part is kept."""
    begins, ends, v, mean, m = room.begins, room.ends, room.v, room.x[i], room.known[0]
    rest, equal, share = 0.0, room.model[0, 2], room.known[2]
    for j in range(n):
        begins[j] = ends[j] = weight[j] = 0.0
        alike[j] = equal
    for last in range(i, n):
        for begin in range(i + 1):
            p = room.p[last, begin]
            if p > _NEGLIGIBLE:
                gain, precision, away = room.gain[last, begin], room.precision[last, begin], m - mean
                pulled = room.middle[last, begin] * precision
                begins[begin] += gain
                ends[last] += gain
                weight[begin] += p
                alike[last] += p if last > i else 0.0
                rest += p - gain * precision
                first = away * p + pulled * gain
                square = away * (away * p + 2.0 * pulled * gain) + pulled * pulled * room.gain_2[last, begin]
                add_to_place(places, p, first, square + gain, share, own, kept)
    total = also = 0.0
    for j in range(i):
        total, also = total + begins[j], also + weight[j]
        begins[j], alike[j] = total, alike[j] + also
    total = also = 0.0
    for j in range(n - 1, i, -1):
        total, also = total + ends[j], also + alike[j] - equal
        begins[j], alike[j] = total, equal + also
    begins[i], alike[i] = total + ends[i], 1.0
    for j in range(n):
        weight[j] = begins[j] / v[j] + rest * room.pull[j]
    for k in range(SPREADS + 1):
        s, middle, p = room.model[k, 0], room.model[k, 1], room.model[k, 2]
        left, total = v[i] / (v[i] + s), 0.0
        for j in range(n):
            total += 1.0 / (v[j] + s)
        for j in range(n):
            weight[j] += p * left / ((v[j] + s) * total)
        weight[i] += p * (1.0 - left)
        moved = left * (middle - mean)
        square = moved * moved + left * s + left * left / total
        add_to_place(places, p, p * moved, p * square, share, own, kept)


@helper
def add_to_place(places, p, first, square, share, own, kept):
    k = 0
    if p > 0.0:
        k = int(min(max(kept * first / p / (0.5 * math.sqrt(own)) + 0.5 * PLACES, 0.0), PLACES - 1.0))
    places[0, k] += share * p
    places[1, k] += share * (kept * first)
    places[2, k] += share * (kept * kept * square + (1.0 - kept) * own * p)


@kernel
def update(
    indptr, indices, growth, mean, spread, count, told, factor, seen, weight, alike, variance, noise, mixture, estimate
):
    """Equation (4), for the agents that have rows; `spread` is the sampling variance of a mean if sigma was told, else
    the sum of squared deviations of its samples. Returns whether a sum over partitions was made."""
    n_own, most, any_due = indptr.size - 1, 2, False
    due = np.zeros(n_own, np.bool_)
    for a in range(n_own):
        if mean[a] != mean[a]:
            estimate[a] = np.nan
            continue
        own = precision_of(a, spread, count, told)
        known, total, y = 1.0, own, 0.0
        for k in range(indptr[a], indptr[a + 1]):
            b = indices[k]
            if mean[b] == mean[b]:
                known += 1.0
                total += precision_of(b, spread, count, told)
                y += weight[k] * (mean[b] - mean[a])
        estimate[a] = mean[a] + y
        grown = max(total / seen[a, 1], seen[a, 1] / total, own / seen[a, 2])
        if known != seen[a, 0] or grown >= growth:
            seen[a, 0], seen[a, 1], seen[a, 2] = known, total, own
            due[a] = any_due = True
            most = max(most, int(known))
    if not any_due:
        return False
    rooms, n_within = (room_for(most), room_for(most), room_for(most)), WITHIN.size if growth == GROWTH else 1
    room, rows, who, n_before = rooms[0], np.empty((6, most + 1)), np.empty(most, np.int64), 0
    x, s, n = rows[0], rows[1], rows[2]
    for a in range(n_own):
        if not due[a]:
            continue
        size, begin = 0, indptr[a]
        for k in range(begin - 1, indptr[a + 1]):  # sorted by insertion; the agent itself comes first
            b = a if k < begin else indices[k]
            if k >= begin:
                weight[k] = alike[k] = 0.0
            if mean[b] == mean[b]:
                place = size
                while place > 0 and (x[place - 1], s[place - 1]) > (mean[b], spread[b]):
                    who[place], x[place], s[place], n[place] = who[place - 1], x[place - 1], s[place - 1], n[place - 1]
                    place -= 1
                who[place], x[place], s[place], n[place] = k, mean[b], spread[b], float(at(count, b))
                size += 1
        if not told:
            squares = freedom = 0.0
            for i in range(size):
                squares += s[i]
                freedom += n[i] - 1.0
            average, freedom = squares / freedom if freedom > 0.0 else np.inf, max(freedom, 3.0)
            for i in range(size):
                v = variance_of_mean(s[i], n[i], average, FIRST_MODERATION)
                s[i] = v * at(factor, a) * (freedom / (freedom - 2.0))
        used, own, same = 0, -1, True
        for i in range(size):
            if who[i] < begin:
                noise[a], own = s[i], used
            if 0.0 < s[i] < np.inf:
                same = same and used < n_before and room.x[used] == x[i] and room.v[used] == s[i]
                room.x[used], room.v[used], who[used] = x[i], s[i], who[i]
                used += 1
        variance[a], estimate[a], mixture[a] = noise[a], mean[a], 0.0
        if used < 2 or not 0.0 < noise[a] < np.inf:
            n_before = n_before if same else 0
            continue
        if not (same and used == n_before):
            sum_partitions(rooms, used, n_within)
            n_before = used
        c, together = rows[3], rows[4]
        posterior_of(rooms, used, n_within, own, c, together, mixture[a])
        for i in range(used):
            if i != own:
                weight[who[i]], alike[who[i]] = c[i], together[i]
        y = square = 0.0
        for k in range(begin, indptr[a + 1]):
            if weight[k] != 0.0:
                y += weight[k] * (mean[indices[k]] - mean[a])
        for k in range(PLACES):
            square += mixture[a, 2, k]
        estimate[a], variance[a] = mean[a] + y, max(square - y * y, 0.0)
    return True


@helper
def precision_of(a, spread, count, told):
    """What has to grow."""
    return 1.0 / spread[a] if told else float(at(count, a))


@kernel
def fit_partitions(mean, noise, order, estimate, variance, weight, alike, mixture):
    """The posteriors of all agents, two at least, if everybody knows all means, of these sampling variances; `order`
    sorts the means. weight[i, j] = the weight of mean j in estimate i."""
    n = mean.size
    rooms, c, together = (room_for(n), room_for(n), room_for(n)), np.empty(n), np.empty(n)
    room = rooms[0]
    for i in range(n):
        room.x[i], room.v[i] = mean[order[i]], noise[order[i]]
    sum_partitions(rooms, n, WITHIN.size)
    for i in range(n):
        a = order[i]
        posterior_of(rooms, n, WITHIN.size, i, c, together, mixture[a])
        y = square = 0.0
        for j in range(n):
            weight[a, order[j]], alike[a, order[j]] = c[j], together[j]
            y += c[j] * (room.x[j] - room.x[i])
        for k in range(PLACES):
            square += mixture[a, 2, k]
        estimate[a], variance[a] = mean[a] + y, max(square - y * y, 0.0)


@helper
def components_of(places, estimate, variance, p, middle, deviation):
    """The mixture that is a posterior; of an agent that no other one tells anything, one normal distribution. Returns
    the number of components."""
    n, moved = 0, 0.0
    for k in range(PLACES):
        moved += places[1, k]
    for k in range(PLACES):
        if places[0, k] > _RARE:
            p[n], away = places[0, k], places[1, k] / places[0, k]
            middle[n] = estimate + WIDER * (away - moved)
            deviation[n] = WIDER * math.sqrt(max(places[2, k] / p[n] - away * away, TINY))
            n += 1
    if n == 0:
        p[0], middle[0], deviation[0], n = 1.0, estimate, math.sqrt(max(variance, TINY)), 1
    return n


@kernel
def quantiles(level, mixture, estimate, variance, out):
    """The values below which true means lie with this posterior probability."""
    z, (p, middle, deviation) = normal_quantile(level), np.empty((3, PLACES))
    for a in range(estimate.size):
        n = components_of(mixture[a], estimate[a], variance[a], p, middle, deviation)
        out[a] = estimate[a] + z * deviation[0]
        if abs(out[a]) < np.inf:
            out[a] = mixture_quantile(level, z, n, p, middle, deviation)


@kernel
def fill_below(value, mixture, estimate, variance, out):
    """The posterior probabilities that true means lie below these values."""
    p, middle, deviation = np.empty((3, PLACES))
    for a in range(estimate.size):
        out[a] = 0.0 if estimate[a] == estimate[a] else np.nan
        for k in range(components_of(mixture[a], estimate[a], variance[a], p, middle, deviation)):
            out[a] += p[k] * normal_cdf(value[a], middle[k], deviation[k] * deviation[k])


class FewPosteriors(NamedTuple):
    """The posteriors of all agents, if everybody knows all means."""

    estimate: Floats
    variance: Floats
    noise: Floats
    """Sampling variances of the own means; where they are zero or not finite, an estimate is the own mean."""
    weight: Floats
    """weight[i, j] = that of mean j in estimate i."""
    alike: Floats
    """The probability that two agents share a mean."""
    mixture: Floats

    @classmethod
    def of(cls, mean: Floats, noise: Floats) -> FewPosteriors:
        """At most `MOST` means of these sampling variances."""
        n = len(mean)
        found = cls(mean.copy(), noise.copy(), noise, np.eye(n), np.eye(n), np.zeros((n, 3, PLACES)))
        used = np.flatnonzero((noise > 0.0) & (noise < np.inf))
        if len(used) > 1:
            (estimate, variance), (weight, alike) = np.empty((2, len(used))), np.empty((2, len(used), len(used)))
            mixture, order = found.mixture[used], np.argsort(mean[used])
            fit_partitions(mean[used], noise[used], order, estimate, variance, weight, alike, mixture)
            found.weight[np.ix_(used, used)], found.alike[np.ix_(used, used)] = weight, alike
            found.estimate[used], found.variance[used], found.mixture[used] = estimate, variance, mixture
        return found

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """(lower, upper), between which the true means lie with this posterior probability."""
        lower, upper = np.empty((2, len(self.estimate)))
        for end, tail in ((lower, 0.5 - 0.5 * level), (upper, 0.5 + 0.5 * level)):
            quantiles(tail, self.mixture, self.estimate, self.variance, end)
        return lower, upper


class PartitionSums:
    """What agents keep of their last sums over partitions; rows and slots are those of their graph."""

    saved = ("seen", "weight", "alike", "variance", "noise", "mixture")

    def __init__(self, n_agents: int, n_slots: int, n_all: int):
        self.growth = GROWTH if n_all <= MOST else QUICK
        self.seen = np.tile(
            [0.0, 1.0, 1.0], (n_agents, 1)
        )  # agents with samples; precision of all, and of the own mean
        self.weight, self.alike = np.zeros((2, n_slots))  # c, and the probability that a neighbor shares the mean
        self.variance, self.noise = np.full((2, n_agents), np.inf)  # of the posterior and of the own mean
        self.mixture = np.zeros((n_agents, 3, PLACES))
        self.version = 0  # how often any of this changed

    def update(
        self, rows: tuple[Array, Array], mean: Floats, spread: Floats, count: Any, sampling: SamplingNoise,
        estimate: Floats,
    ) -> bool:  # fmt: skip
        """Equation (4); see `update`."""
        told = sampling.variance is not None
        changed: bool = update(
            *rows, self.growth, mean, spread, count, told, sampling.factors.low_of_own, self.seen, self.weight,
            self.alike, self.variance, self.noise, self.mixture, estimate,
        )  # fmt: skip
        self.version += changed
        return changed


class Partition(GuardedMethod, frozen=True, kw_only=True, tag="partition"):
    """Every agent takes its posterior mean over all partitions of itself and its neighbors into classes.

    guard   report X + lambda (y - X), with a weight lambda that the agents learn from their next samples
            (`colme.guard`)
    sigma   the standard deviation of the samples, as the agents know it; default: that of the scenario or recording, or
            where these have none, what their samples show

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=8, means=(0.0, 2.0), sigma=0.5)
    >>> trace = colme.simulate(Partition(), scenario, degree=7, steps=100, seed=0)
    >>> f"{trace.mse[-1]:.1e} instead of {trace.local_mse[-1]:.1e}"
    '5.3e-04 instead of 2.3e-03'

    See also: Census, CLColME, CollaborativeMean
    """

    label = "partition"
    color = "#E69F00"
    irrevocable = False
    cuts_edges = False
    trusting = True
    has_intervals = True
    patience = 5.0
    partitioned = MOST
    guard_refresh = 1.02

    guard: bool = True
    sigma: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sigma is not None:
            positive(self.sigma, "sigma", "sigma=2.0", MethodError)

    @property
    def learns_dependence(self) -> bool:
        return True

    @property
    def online_rule(self) -> str:
        return "colme.online.rules:CensusRule"

    def check(self, n_agents: int, graph: Graph) -> None:
        if graph.max_degree >= MOST:
            raise MethodError(
                f"{graph.max_degree} neighbors: the sum over partitions is for at most {MOST} agents, an agent and its "
                "neighbors. Try a smaller degree, or Census()."
            )

    def start(self, world: World, graph: Graph) -> State:
        return PartitionState(self, world, graph)

    def agent(self, place: Place) -> Agent:
        return PartitionAgent(self, place)


class LikelyEdges(Edges):
    """The edges between agents that both find it likely that they share a mean."""

    wrong_share, lost_share, isolated = 0.0, 0.0, 0

    def __init__(self, given: Graph, class_: Array, hood: Neighborhood):
        super().__init__(hood)
        self.given, self.owner = given, given.owners
        self._within = class_[self.owner] == class_[given.indices]
        self._back = np.empty(len(self.owner), np.int64)  # the slot of each edge at its other end
        self._back[np.lexsort((given.indices, self.owner))] = np.lexsort((self.owner, given.indices))
        self.find(np.zeros(len(self.owner)))

    def find(self, alike: Floats) -> None:
        """By the probability in each slot."""
        self.kept, within = (alike > 0.5) & (alike[self._back] > 0.5), self._within
        self.wrong_share, self.lost_share = (
            float(each.mean()) if len(each) else 0.0 for each in (self.kept[~within], ~self.kept[within])
        )
        self.degree = np.bincount(self.owner[self.kept], minlength=self.given.n_agents)
        self.isolated = int((self.degree == 0).sum())

    def graph(self) -> Graph:
        return self.given.kept(self.kept)


class PartitionState(State):
    """Array form."""

    saved = (*State.saved, "sampling", "sums")

    def __init__(self, method: Partition, world: World, graph: Graph):
        super().__init__(method, world)
        self.estimate = np.full(world.n_agents, np.nan)
        self.sampling = SamplingNoise(world.n_agents, world.sigma if method.sigma is None else method.sigma)
        self.sums = PartitionSums(world.n_agents, len(graph.indices), world.n_agents)
        self.numbers = 3.0 if self.sampling.variance is None else 2.0
        self.posterior = PartitionPosterior(self)
        self.edges: LikelyEdges = LikelyEdges(graph, world.class_, world.hood)

    def step(self, world: World) -> None:
        sampling, sums, graph = self.sampling, self.sums, self.edges.given
        sampling.factors = world.factors
        sampling.observe_all(world.mean, world.n_samples)
        spread = sampling.square if sampling.variance is None else sampling.of_means()
        rows = graph.indptr, graph.indices
        if sums.update(rows, world.mean, spread, world.n_samples, sampling, self.estimate):
            self.edges.find(sums.alike)

    def restored(self) -> None:
        self.sums.version += 1
        self.edges.find(self.sums.alike)

    @property
    def own_weight(self) -> Floats:
        return own_weight(self.sums.variance, self.sums.noise)

    @property
    def variance(self) -> Floats:
        return self.sums.variance * np.square(self.stretch)

    @property
    def stretch(self) -> Any:
        """The factor by which intervals are wider, for dependence between samples."""
        return self.sampling.stretch(self.own_weight)


class PartitionPosterior(Posterior):
    """The mixtures of the last sums over partitions, around the estimates of now."""

    def __init__(self, state: PartitionState):
        self._state = state
        self._of: tuple[float, int] | None = None  # the level, and the sums, of
        self._reach = np.empty((2, 0))  # how far the ends of intervals are from the estimates

    def _ends(self, level: float) -> Floats:
        state, sums = self._state, self._state.sums
        if self._of != (level, sums.version):
            self._of, self._reach, middle = (
                (level, sums.version),
                np.empty((2, len(sums.seen))),
                np.zeros(len(sums.seen)),
            )
            for end, tail in zip(self._reach, (0.5 - 0.5 * level, 0.5 + 0.5 * level), strict=True):
                quantiles(tail, sums.mixture, middle, sums.variance, end)
        return state.estimate + state.stretch * self._reach

    def intervals(self, level: float) -> Intervals:
        """The probability is that of sharing the mean with those neighbors with which it is likely, on average."""
        edges, alike = self._state.edges, self._state.sums.alike
        total = np.bincount(edges.owner[edges.kept], alike[edges.kept], len(edges.degree))
        return Intervals((1.0 + total) / (1.0 + edges.degree), *self._ends(level))

    def held(self, truth: Floats, level: float) -> tuple[Mask, Mask]:
        lower, upper = self._ends(level)
        return (lower <= truth) & (truth <= upper), lower == lower

    def cdf(self, value: Floats) -> Floats:
        state, below = self._state, np.empty(len(value))
        value = state.estimate + (value - state.estimate) / state.stretch
        fill_below(value, state.sums.mixture, state.estimate, state.sums.variance, below)
        return below


class PartitionAgent(Agent):
    """Per-agent form: what it heard last of each neighbor, and its own sum over partitions."""

    saved = (*Agent.saved, "neighbors", "heard", "order", "sums", "sampling")

    def __init__(self, method: Partition, place: Place):
        super().__init__(place)
        self.neighbors = list(place.neighbors)
        self.heard: dict[Any, Any] = {}
        self.order = self.neighbors.copy()  # of the slots
        self.sums = PartitionSums(1, len(self.order), place.n_agents)
        self.sampling = SamplingNoise(1, place.sigma if method.sigma is None else method.sigma)

    def observe(self, sample: float) -> None:
        """Equation (1)."""
        super().observe(sample)
        self.sampling.factors = self.factors
        self.sampling.observe(np.atleast_1d(self.mean), np.atleast_1d(self.count))

    def step(self, sample: float) -> Round:
        self.observe(sample)
        told = self.sampling.variance is not None
        mine = [self.mean, (self.sampling.of_means() if told else self.sampling.square).item(), self.count]
        inbox = yield dict.fromkeys(self.neighbors, mine if self.count else [math.nan, 0.0, 0])
        self.heard = {b: inbox.get(b, self.heard.get(b, [math.nan, 0.0, 0])) for b in self.neighbors}
        if self.order != self.neighbors:
            self.order, self.sums = self.neighbors.copy(), PartitionSums(1, len(self.neighbors), self.place.n_agents)
        mean, spread, count = np.array([mine, *self.heard.values()]).T
        slots, estimate = np.arange(1, len(mean), dtype=np.uint32), np.empty(1)
        self.sums.update((np.array([0, len(slots)]), slots), mean, spread, count, self.sampling, estimate)
        self.estimate, self.own_weight = estimate.item(), own_weight(self.sums.variance, self.sums.noise)
        self.variance = (self.sums.variance * self.sampling.stretch(self.own_weight) ** 2).item()
