"""Dependence between the samples of an agent: by how much it changes the variance of their mean.

Real sensors repeat themselves: the mean of n autocorrelated samples is as uncertain as that of fewer independent ones,
or of more where samples alternate. With V_b the variance of a mean of b samples of variance sigma^2, F_b = b V_b /
sigma^2 is one for independent samples. Successive batches of b samples have means whose squared difference has the
expectation 4 (V_b - V_2b), so

(1)  r(b) = b E(difference^2) / (2 sigma^2) = 2 F_b - F_2b          one for all b, if samples are independent
(2)  F_n = 1/2 sum over j >= 0 of 2^-j r(n 2^j)                      which lies beyond the data: b is n / 2 at most

So agents compare what they see with a dictionary of shapes of r: independent samples (a priori .95), autoregression in
white noise, alternation, cycles, long memory. Each keeps two numbers for every size b, the last batch mean and
S_b = b / 2 times the sum of squared differences; they pool

(3)  A_b = sum of w S_b / s^2,  B_b = sum of w M_b                   M_b = floor(n / b) - 1 differences, s^2 of samples
     w = s^2, but for no agent more than four times that of a typical one; also the sums of w, of w^2 and of s
(4)  nu_b = 2/3 B_b (sum of w) / (sum of w^2)                        degrees of freedom: neighbors share a batch
     q_b = (nu_b A_b / B_b + 1/2 min(q, 1)) / (nu_b + 1/2)           q of the next smaller size, at first one
     y_b = ln q_b - digamma(h) + ln h,  h = (nu_b + 1/2) / 2
(5)  y ~ N(c + ln r_shape, C),  C_bb' = t_b t_b' exp(-1.05 |log2 b / b'|) + walk min(log2 b, log2 b')
     t_b^2 = trigamma(h), c flat, walk = 0, .05 or .5: real data fit no shape exactly (with a walk, also C_bb += .05^2)
(6)  ln r = ln r_shape + d,  d(b) = walk min(log2 b, log2 sizes) . C^-1 (y - c - ln r_shape)

and have, over all shapes and walks, two factors of sigma^2 / n:

(7)  high = exp(mean of ln F_n)            for intervals, tests of differences and what samples say of sigma
     low = 1 / mean of 1 / F'_n            to shrink by;  ln F' = min(ln F, 0) + trust max(ln F, 0)

A trust below one (F_n is more than 1.8 times r(n / 2)) says that the plateau of F has not been seen: a cycle that is
seen for less than about its length looks like autoregression, whose mean gains much from others when that of a cycle
does not. Where sigma^2 is estimated from the n samples themselves, whose s^2 has the expectation
sigma^2 (n - F_n) / (n - 1), factors of s^2 / n are those of G_n = F_n (n - 1) / (n - F_n).

What it cannot see: dependence longer than about half of the samples, drift that agents have in common, and that some
agents differ from others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from colme._core.jit import at, helper, kernel
from colme.consensus import stable_step
from colme.gossip import Gossip, SumsMessage, agents_heard, consensus_round, line_room, mean_over_agents
from colme.graphs import Graph
from colme.method import Agent, Round, World
from colme.noise import INDEPENDENT, Factors, add_square
from colme.support.arrays import Array, Floats, Integers

SIZES = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512])
"""b: two chains, each size twice the one before it."""
BATCHES = 1 + 2 * len(SIZES)
"""Numbers that an agent keeps: the sum of the open batch of three; of each size, the last batch mean and S_b."""
A, B = slice(len(SIZES)), slice(len(SIZES), 2 * len(SIZES))
WEIGHT, WEIGHT_2, DEVIATION, NUMBER = range(2 * len(SIZES), 2 * len(SIZES) + 4)
SUMS = 2 * len(SIZES) + 4
"""Numbers that agents pool, equation (3): A_b, B_b, the sums of w, w^2 and s, and the number of agents."""
CLIP = 4.0
FREEDOM = 2.0 / 3.0
PSEUDO = 0.5
OVERLAP = 1.05
WALKS = ((0.0, 0.6), (0.05, 0.3), (0.5, 0.1))
"""walk, and its probability."""
MISFIT = 0.05
PLATEAU = 1.8, 2.4
"""F_n / r(n / 2) up to which trust is one, and from which on it is zero."""
LARGEST = 0.97
"""The largest F_n, as a part of n."""
SNAP = 0.8
TRUSTED = 0.95
"""The probability of independence before anything was seen."""
NEGLIGIBLE = 1e-4
"""Shapes of less probability, relative to the most probable one, are left out."""
FIRST, GROWTH, ROUNDS = 4, 1.4, 3
"""The first step at which agents pool sums, the growth of the step until they do again, and the most rounds of it."""
AHEAD = 8
OWN = 64
"""Agents up to which a simulation has every agent fit its own sums, as devices do."""
PER_OCTAVE, OCTAVES = 16, 24
"""Factors are tabulated at n = 2^(k / PER_OCTAVE), up to 2^OCTAVES."""


@helper
def add_to_batches(batches, n, x):
    """Sample number n of an agent. A batch of 2b is two batches of b; that of 3 is summed up by itself."""
    batches[0] += x
    _close_batches(batches, 0, n, x)
    if n % 3 == 0:
        _close_batches(batches, 2, n // 3, batches[0] / 3.0)
        batches[0] = 0.0


@helper
def _close_batches(batches, i, count, mean):
    """The batch number `count` of size number i has this mean; and so on, if it is the second half of a larger one."""
    while i < SIZES.size:
        before = batches[1 + 2 * i]
        if count > 1:
            batches[2 + 2 * i] += 0.5 * SIZES[i] * ((mean - before) * (mean - before))
        batches[1 + 2 * i] = mean
        if count % 2 == 1:
            break
        count, mean, i = count // 2, 0.5 * (mean + before), 1 if i == 0 else i + 2


@kernel
def observe(means, count, before, seen, square, batches):
    """The means of agents after one or more steps, a row each, and their numbers of samples at the first; before it
    they were `before` and `seen`. The new sample of an agent follows from two means. If there are several rows, every
    agent has a sample at each."""
    for a in range(means.shape[1]):
        for k in range(means.shape[0]):
            n = int(at(count, a)) + k
            if n > seen[a]:
                mean = means[k, a]
                x = mean
                if n > 1:
                    square[a] = add_square(square[a], mean, before[a], n)
                    x = before[a] + (mean - before[a]) * n
                before[a], seen[a] = mean, n
                add_to_batches(batches[a], n, x)


@kernel
def pool(batches, count, square, typical, out):
    """out[a] = what agent a contributes to the sums of equation (3), from its number of samples and their squared
    deviations."""
    for a in range(out.shape[0]):
        for i in range(SUMS):
            out[a, i] = 0.0
        n = int(at(count, a))
        if n > 2:
            add_to_sums(batches[a], n, square[a] / (n - 1.0), typical[a], out[a])


@helper
def add_to_sums(batches, n, variance, typical, sums):
    """Add what an agent of n samples contributes to the sums of equation (3). As long as it is not known what deviation
    is typical (NaN), agents weigh alike."""
    if not variance > 0.0:
        return
    w = min(variance / (typical * typical), CLIP) if typical > 0.0 else 1.0
    for i in range(SIZES.size):
        sums[i] += w * (batches[2 + 2 * i] / variance)
        sums[SIZES.size + i] += w * max(n // SIZES[i] - 1, 0)
    sums[WEIGHT] += w
    sums[WEIGHT_2] += w * w
    sums[DEVIATION] += math.sqrt(variance)
    sums[NUMBER] += 1.0


@helper
def factor_at(factors, n):
    """The factor at n samples in a row of a table."""
    k = PER_OCTAVE * math.log2(n) if n > 1 else 0.0
    i = min(int(k), factors.size - 2)
    return factors[i] + min(k - i, 1.0) * (factors[i + 1] - factors[i])


@kernel
def look_up(table, row, count, out):
    """out[:, a] = the `Factors` of agent a, in its row of the table."""
    for a in range(out.shape[1]):
        n = at(count, a)
        for i in range(4):
            out[i, a] = factor_at(table[row[a], i], n) if row[a] >= 0 else 1.0
        out[4, a], out[5, a] = 0.0, 1.0
        if row[a] >= 0 and n > 2:
            out[4, a] = covariance_with_next(table[row[a], 0], n)
            high, next_one = out[1, a], covariance_with_next(table[row[a], 1], n)
            out[5, a] = high * (n + 1.0) / (n + high - 2.0 * n * next_one)


@helper
def covariance_with_next(factors, n):
    """Of the mean of n samples with sample n + 1, in the variance of a sample."""
    return 0.5 * ((n + 1.0) / n * factor_at(factors, n + 1) - factor_at(factors, n) - 1.0 / n)


def learn(sums: Floats, most: float) -> Floats | None:
    """Equations (4) to (7): `Factors` at n = 2^(k / PER_OCTAVE) up to `most`, (4, columns); None as long as these sums
    over all agents do not make independence less probable than it was."""
    use = np.flatnonzero((sums[A] > 0.0) & (sums[B] > 0.0))
    if not len(use) or min(sums[WEIGHT], sums[WEIGHT_2]) <= 0.0:  # where messages are lost, averages may be anything
        return None
    shapes, log_b = _shapes(), np.log2(SIZES[use])
    freedom = FREEDOM * sums[B][use] * sums[WEIGHT] / sums[WEIGHT_2]
    q, half = sums[A][use] / sums[B][use], 0.5 * (freedom + PSEUDO)
    for i in range(len(use)):
        before = min(q[i - 1], 1.0) if i else 1.0
        q[i] = (q[i] * freedom[i] + PSEUDO * before) / (freedom[i] + PSEUDO)
    deviation = np.sqrt(trigamma(half))
    away = np.log(q) - digamma(half) + np.log(half) - np.log(shapes.at_sizes[:, use])
    noise = np.outer(deviation, deviation) * np.exp(-OVERLAP * np.abs(log_b[:, None] - log_b))
    weights, pulls = [], []
    for walk, probability in WALKS:
        wandering = walk * np.minimum(log_b[:, None], log_b) + (MISFIT * MISFIT * np.eye(len(use)) if walk else 0.0)
        precision = np.linalg.inv(noise + wandering)
        ones = precision.sum(axis=1)
        rest = away - (away @ ones / ones.sum())[:, None]
        pull = rest @ precision
        evidence = (pull * rest).sum(axis=1) + np.log(ones.sum()) - np.linalg.slogdet(precision)[1]
        weight = np.log(probability * shapes.prior) - 0.5 * evidence
        weight[0] = weight[0] - np.log(probability) if walk == 0.0 else -np.inf  # independence has no misfit
        weights.append(weight)
        pulls.append(walk * pull)
    log_weight = np.concatenate(weights)
    weight = np.exp(log_weight - log_weight.max())
    if weight[0] >= SNAP * weight.sum():
        return None
    kept = np.flatnonzero(weight > NEGLIGIBLE)
    weight, pull, which = weight[kept] / weight[kept].sum(), np.concatenate(pulls)[kept], kept % len(shapes.prior)
    return _tabulate(weight, shapes, which, pull, log_b, most)


def _tabulate(weight: Floats, shapes: _Shapes, which: Integers, pull: Floats, log_b: Floats, most: float) -> Floats:
    """The factors of equation (7)."""
    columns = min(int(PER_OCTAVE * np.log2(max(most, 2.0))) + 2, PER_OCTAVE * OCTAVES)
    log_n = np.arange(columns) / PER_OCTAVE
    n, seen = 2.0**log_n, min(columns, int(PER_OCTAVE * log_b[-1]))
    misfit = np.exp(np.minimum(pull @ np.minimum(log_b[:, None], log_n), 12.0))
    F, r = shapes.F[which, :columns] * misfit, shapes.r[which, :columns] * misfit  # beyond all sizes d is constant
    end = np.exp(np.minimum(pull @ log_b, 12.0))
    for k in range(seen - 1, -1, -1):
        beyond = F[:, k + PER_OCTAVE] if k + PER_OCTAVE < columns else shapes.F[which, k + PER_OCTAVE] * end
        F[:, k] = 0.5 * (r[:, k] + beyond)
    one = F[:, :1].copy()  # the variance of a sample
    F = np.minimum(F / one, LARGEST * np.maximum(n, 1.0))
    half = np.concatenate([r[:, :1].repeat(PER_OCTAVE, axis=1), r[:, :-PER_OCTAVE]], axis=1)[:, :columns] / one
    low, high = np.log(PLATEAU)
    trust = np.clip((high - np.log(F / half)) / (high - low), 0.0, 1.0)
    G = F * np.maximum(n - 1.0, 1e-9) / np.maximum(n - F, 1e-9)
    out = np.zeros((4, columns))
    for row, each in ((0, np.log(F)), (2, np.log(np.maximum(G, 1e-9)))):
        shrinking = np.minimum(each, 0.0) + trust * np.maximum(each, 0.0)
        out[row + 1] = weight @ each
        out[row] = np.minimum(-np.log(weight @ np.exp(-shrinking)), out[row + 1])
    for row in (0, 2):  # as small as it becomes before long: cycles end suddenly, and what was fitted lags behind
        ahead = np.pad(out[row], (0, AHEAD), mode="edge")
        out[row] = np.lib.stride_tricks.sliding_window_view(ahead, AHEAD + 1).min(axis=1)
    out[:, n < 2.9] = 0.0
    return np.exp(out)


class _Shapes(NamedTuple):
    """The dictionary: independence first."""

    prior: Floats
    at_sizes: Floats
    """r at SIZES, (shapes, sizes)."""
    F: Floats
    """At n = 2^(k / PER_OCTAVE), (shapes, columns), an octave more than tables have."""
    r: Floats
    """The same of r."""


@functools.cache
def _shapes() -> _Shapes:
    phis = (.2, .3, .4, .5, .6, .7, .8, .85, .9, .93, .95, .97, .98, .99)  # fmt: skip
    shares = (1.0, .9, .7, .5, .3, .15, .07)  # of the variance that are autoregression  # fmt: skip
    ar = [(phi, 1.0 + 2.0 * share * phi / (1.0 - phi)) for phi in phis for share in shares]
    positive = [*ar, *((0.0, f) for f in (1.15, 1.3, 1.5, 1.8))]
    negative = [*((0.0, f) for f in (.9, .8, .7, .6, .5, .4, .3, .2, .12, .07, .03)),
                *((phi, (1.0 + phi) / (1.0 - phi)) for phi in (-.2, -.35, -.5, -.65, -.8)),
                *((phi, f) for phi in (.5, .8) for f in (.7, .5, .3, .15, .06))]  # fmt: skip
    cycles = [(period, share) for period in (3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40, 48, 56, 68, 80)
              for share in (.1, .25, .5, .75, .93)]  # fmt: skip
    long = [(d / 20.0, share) for d in range(1, 10) for share in (1.0, 0.6, 0.3)]
    families: list[tuple[Callable[[Floats, Floats, Floats], Floats], Sequence[tuple[float, float]], float]]
    families = [(_arma, [(0.0, 1.0)], TRUSTED), (_arma, positive, .45), (_arma, negative, .25),
                (_cycle, cycles, .2), (_long, long, .1)]  # fmt: skip

    def every(b: Floats) -> Floats:
        both = ((family, np.array(rows).T[:, :, None]) for family, rows, _ in families)
        return np.concatenate([family(one, two, b) for family, (one, two) in both])

    prior = [np.full(len(rows), part / len(rows)) * (1.0 if k == 0 else 1.0 - TRUSTED)
             for k, (_, rows, part) in enumerate(families)]  # fmt: skip
    F = every(2.0 ** (np.arange(PER_OCTAVE * (OCTAVES + 1)) / PER_OCTAVE))
    return _Shapes(
        np.concatenate(prior), _difference(every(SIZES), every(2.0 * SIZES)), F,
        _difference(F[:, :-PER_OCTAVE], F[:, PER_OCTAVE:]),
    )  # fmt: skip


def _difference(one: Floats, two: Floats) -> Floats:
    """Equation (1)."""
    return np.maximum(2.0 * one - two, 0.01)


def _arma(phi: Floats, total: Floats, b: Floats) -> Floats:
    """F_b of ARMA(1, 1) with this autoregression and F of infinitely many samples."""
    power = np.abs(phi) ** b * np.where(phi < 0.0, np.cos(np.pi * b), 1.0)
    return 1.0 + (total - 1.0) * (b * (1.0 - phi) - 1.0 + power) / (b * (1.0 - phi))


def _cycle(period: Floats, share: Floats, b: Floats) -> Floats:
    return 1.0 - share + share * b * np.square(np.sin(np.pi * b / period) / (b * np.sin(np.pi / period)))


def _long(memory: Floats, share: Floats, b: Floats) -> Floats:
    return 1.0 - share + share * b ** (2.0 * memory)


def digamma(x: Any) -> Floats:
    """The slope of the logarithm of the gamma function, for x > 0."""
    x, below = np.asarray(x, np.float64), 0.0
    for _ in range(8):
        x, below = x + 1.0, below + 1.0 / x
    y = 1.0 / (x * x)
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))))
    return np.asarray(np.log(x) - 0.5 / x - series - below)


def trigamma(x: Any) -> Floats:
    """The slope of `digamma`: the variance of the logarithm of a gamma variable of shape x."""
    x, below = np.asarray(x, np.float64), 0.0
    for _ in range(8):
        x, below = x + 1.0, below + 1.0 / (x * x)
    y = 1.0 / (x * x)
    return np.asarray((1.0 + 0.5 / x + y * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y / 30)))) / x + below)


class Dependence:
    """What agents know of the dependence between their samples: one agent, or all of an array. From time to time they
    pool sums, by a few rounds of gossip."""

    saved: ClassVar[tuple[str, ...]] = (
        "batches", "mean", "count", "square", "typical", "now", "before", "began", "rounds", "row", "table",
    )  # fmt: skip
    split: ClassVar[dict[str, str]] = {"table": "row"}

    def __init__(self, n_agents: int, gossip: Gossip, heard: Floats):
        """`heard`: agents heard after 1, 2, .. rounds, (rounds, agents)."""
        self.gossip, self.heard = gossip._replace(rounds=min(gossip.rounds, ROUNDS)), heard
        self.batches = np.zeros((n_agents, BATCHES))
        self.mean, self.square = np.zeros((2, n_agents))
        self.count = np.zeros(n_agents, np.int64)
        self.typical = np.full(n_agents, np.nan)  # the mean standard deviation of samples
        self.now: Array = np.zeros((n_agents, SUMS), np.float32)  # z(k) of the average
        self.before = self.now.copy()  # z(k - 1)
        self.began = 0  # the step at which sums were last handed in
        self.rounds = -1  # rounds done of the average under way; -1: none is
        self.row = np.full(n_agents, -1)  # of the table, for each agent; -1: samples are independent
        self.table = np.empty((0, 4, 2))

    def begin_step(self, t: int, means: Floats, count: Any) -> bool:
        """The means after step t, or a row for each of some steps without a round, and numbers of samples. Returns
        whether step t has a round."""
        observe(means, count, self.mean, self.count, self.square, self.batches)
        if self.rounds < 0 and t >= max(FIRST, GROWTH * self.began):
            pool(self.batches, count, self.square, self.typical, self.now)
            self.before[:] = 0.0
            self.began, self.rounds = t, 0
        return self.rounds >= 0

    def end_round(self) -> None:
        """After a round of gossip; learn, if it was the last one."""
        self.rounds += 1
        if self.rounds == self.gossip.rounds_from(self.began):
            self._use(self.heard[self.rounds - 1], 2.0 * self.began)
            self.rounds = -1

    def _use(self, heard: Floats, most: float) -> None:
        """The averages over so many agents, for up to so many samples."""
        agents = np.maximum(self.now[:, NUMBER], 0.0)
        self.typical = np.where(agents > 0.0, self.now[:, DEVIATION] / np.maximum(agents, 1e-30), self.typical)
        self._learn(self.now, heard, most)

    def _learn(self, average: Array, heard: Floats, most: float) -> None:
        sums = average * heard[:, None]
        tables = [learn(each, most) for each in sums]
        found = [each for each in tables if each is not None]
        dependent = np.array([each is not None for each in tables])
        self.row = np.where(dependent, np.cumsum(dependent) - 1, -1)
        self.table = np.stack(found) if found else np.empty((0, 4, 2))

    def factors(self, count: Any) -> Factors:
        """Of these numbers of samples, one for all agents or one each."""
        if not len(self.table):
            return INDEPENDENT
        alike = np.ndim(count) == 0 and (self.row == self.row[0]).all()
        out = np.empty((6, 1 if alike else len(self.row)))
        look_up(self.table, self.row, count, out)
        return Factors(*(out[:, 0].tolist() if alike else out))


class ArrayDependence(Dependence):
    """The same for all agents of an array, in kernels. Where they are many, all share the fit of the average sums."""

    def __init__(self, world: World, graph: Graph):
        whole, hood = graph.whole, world.hood
        gossip = Gossip.of(whole.n_agents, whole.n_edges, stable_step(whole))
        heard = agents_heard(graph, gossip, hood)
        super().__init__(hood.n_own, gossip, np.broadcast_to(heard, (len(heard), hood.n_own)))
        self._hood, self._graph, self._weights = hood, graph, gossip.weights(graph, hood, np.float32)
        self.seen, self.seen_before = (line_room(hood, SUMS, np.float32) for _ in range(2))
        self._mine = slice(hood.own_start, hood.own_start + hood.n_own), slice(SUMS)
        self.now, self.before = self.seen[self._mine], self.seen_before[self._mine]

    def steps_at_once(self, t: int) -> int:
        """How many steps from t on have no round, and the same factors."""
        quiet = self.rounds < 0 and not len(self.table)
        return max(math.ceil(max(FIRST, GROWTH * self.began)) - t, 1) if quiet else 1

    def step(self, world: World, means: Floats) -> None:
        """Learn from the means of the next steps, before the methods do, and tell `world` the factors."""
        if self.begin_step(world.t, means, world.n_samples):
            if self.rounds == 0:
                self._hood.refresh(self.seen.reshape(-1))
            consensus_round(
                self._graph.indptr, self._graph.indices, self._weights, self._hood.own_start, self.seen,
                self.seen_before, np.float32(self.gossip.momentum), self.rounds == 0,
                world.arrived(len(self._graph.indices)), 0.0,
            )  # fmt: skip
            self.now, self.before, self.seen, self.seen_before = self.before, self.now, self.seen_before, self.seen
            self._hood.refresh(self.seen.reshape(-1))
            self.end_round()
        world.factors = self.factors(world.n_samples)

    def restored(self) -> None:
        self._hood.refresh(self.seen.reshape(-1))

    def _learn(self, average: Array, heard: Floats, most: float) -> None:
        if self._hood.n_agents <= OWN:
            super()._learn(average, heard, most)
        else:
            number, average = len(average), mean_over_agents(average, self._hood)
            super()._learn(average[None], mean_over_agents(heard, self._hood)[None], most)
            self.row = np.full(number, self.row[0])


class DependentAgent(Agent):
    """Per-agent form: the agent of a method, and what it learns of dependence from messages of its own."""

    saved = (*Agent.saved, "inner", "dependence")

    def __init__(self, inner: Agent):
        place = inner.place
        super().__init__(place)
        gossip = Gossip.of(place.n_agents, place.n_edges, place.auto_step)
        heard = place.heard or tuple(gossip.agents_reached(k + 1) for k in range(gossip.rounds))
        self.inner, self.dependence = inner, Dependence(1, gossip, np.array(heard)[:, None])

    def step(self, sample: float) -> Round:
        dependence, place = self.dependence, self.place
        self.observe(sample)
        if dependence.begin_step(self.t, np.array([[self.mean]]), self.count):
            message = SumsMessage(dependence.now[0].copy(), len(place.neighbors))
            inbox = yield dict.fromkeys(place.neighbors, message)
            value = dependence.gossip.round_of_one(
                dependence.now[0], dependence.before[0],
                ((inbox[b].degree, inbox[b].sums) for b in place.neighbors if b in inbox),
                len(place.neighbors), first=dependence.rounds == 0,
            )  # fmt: skip
            dependence.before[0], dependence.now[0] = dependence.now[0], value
            dependence.end_round()
        tell_factors(self.inner, dependence.factors(self.count))
        yield from self.inner.step(sample)
        self.estimate = self.inner.estimate


def tell_factors(agent: Any, factors: Factors) -> None:
    """Tell an agent of a method, which may be in its guard."""
    while agent is not None:
        agent.factors, agent = factors, getattr(agent, "inner", None)
