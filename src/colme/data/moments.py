"""`AgentMoments`: all that estimation needs to know about each agent's samples. Rows, batches, engines and tables of
summaries all end here.

Samples are counted in five folds, for cross-validation: random ones, or periods of time. A sample has a precision p
(its weight: its variance is sigma^2 / p) and a decay g (1 for the latest, halved every half-life). Then

    mean = sum(g p x) / sum(g p),   its variance = sigma^2 sum(g^2 p) / sum(g p)^2,
    E square = sigma^2 (sum(g) - sum(g^2 p) / sum(g p)),   square = sum(g p (x - mean)^2).

All of these merge (Chan et al. 1979), so leaving out a fold needs no second pass, and rows in any order take one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from colme._core.jit import helper, kernel, prefetch
from colme._core.random import key_of, philox
from colme.dependence import BATCHES, SUMS, add_to_batches, pool
from colme.support.arrays import Array, Floats, Integers

if TYPE_CHECKING:
    from colme.data.read.table import Names, Table

N_FOLDS = 5
EARLY, LATE = [0, 1, 2], [3, 4]
"""Folds that are compared with each other."""
_EVERY = slice(None)
JUDGES, LONGEST = 1024, 2048
"""Agents, and samples of each, whose order is looked at: they are enough."""
SORTED = 0.01
"""Rows are sorted by value if at most this part of the differences between samples change sign."""
OLDEST = 200.0
"""Half-lives after which the decay stops, so that squared weights do not underflow."""
_FAR = 1e50
"""Values are divided by a unit unless the largest is between this and its inverse: fourth powers must stay finite."""
_SOME = 10_000
"""Samples that tell to which step all are rounded."""


class FoldMoments(NamedTuple):
    """Moments of samples: a row per agent, and a column per fold unless the folds are merged."""

    n: Integers
    weight: Floats
    """sum(g p)."""
    spread: Floats
    """sum(g^2 p)."""
    decay: Floats
    """sum(g)."""
    mean: Floats
    """NaN without a sample, if the folds are merged."""
    square: Floats

    @property
    def worth(self) -> Floats:
        """The effective sample size: the variance of the mean is sigma^2 / worth."""
        return self.weight * self.weight / np.where(self.spread > 0.0, self.spread, 1.0)

    @property
    def freedom(self) -> Floats:
        """E square / sigma^2: n - 1 for plain samples."""
        return np.maximum(self.decay - self.spread / np.where(self.weight > 0.0, self.weight, 1.0), 0.0)

    def select(self, agents: Array | slice) -> FoldMoments:
        """The moments of some agents."""
        return FoldMoments(self.n[agents], *(part[agents] for part in self[1:]))

    def merged(self, folds: slice | list[int] = _EVERY) -> FoldMoments:
        """The samples of these folds together."""
        some = [part[:, folds] for part in self]
        n, weight, spread, decay = (part.sum(axis=1) for part in some[:4])
        mean = (some[1] * some[4]).sum(axis=1) / np.where(weight > 0.0, weight, 1.0)
        square = (some[5] + some[1] * np.square(some[4] - mean[:, None])).sum(axis=1)
        return FoldMoments(n, weight, spread, decay, np.where(n > 0, mean, np.nan), square)


class AgentMoments(NamedTuple):
    """The samples of every agent as moments.

    labels      the label of each agent
    folds       counts, means and squares by fold
    low, high   the smallest and the largest sample of each agent; NaN if they are not known
    successive  in time order: half the squared differences of successive samples, summed; None without time
    resolution  the smallest difference between two samples, if they are rounded or counts
    unit        a power of two by which all values were divided: 1 unless they are very large or small
    label       the known group of each agent, -1 if unknown; None if no labels were given
    covariates  (n_agents, n_covariates); None if none were given
    notes       what was done to the rows, one sentence each
    parts       the columns of labels made of several; empty for one column
    law         "binomial" for successes in trials, "Poisson" for events in an exposure, else ""
    sigma       the standard deviation of a sample of weight 1, if it is known
    reported    the number of samples to report, if it is not that in the folds
    group_names the names of known groups
    sums        what the order of the samples says of the dependence between them (`colme.dependence`), of all agents
                together; None if the order is not known, or is that of the values
    forward     whether the folds are periods of time
    """

    labels: Array
    folds: FoldMoments
    low: Floats
    high: Floats
    successive: Floats | None
    resolution: float
    unit: float
    label: Integers | None
    covariates: Floats | None
    notes: tuple[str, ...]
    names: Names
    parts: tuple[Array, ...] = ()
    law: str = ""
    sigma: float | None = None
    reported: Integers | None = None
    group_names: tuple[Any, ...] = ()
    sums: Floats | None = None
    forward: bool = False

    def select(self, agents: Array) -> AgentMoments:
        """The moments of some agents, or of all in another order."""
        chosen: dict[str, Any] = {
            "folds": self.folds.select(agents),
            "parts": tuple(each[agents] for each in self.parts),
        }
        chosen |= {name: part[agents] for name, part in self._asdict().items()
                   if isinstance(part, np.ndarray) and name != "sums"}  # fmt: skip
        return self._replace(**chosen)


def moments_of(
    table: Table, *, seed: int = 0, half_life: float | None = None, independent: bool = False
) -> AgentMoments:  # fmt: skip
    """The moments of samples by agent, in random folds or, if they have a time, in periods (the last ones, if few)."""
    n = np.diff(table.start)
    if table.time is None:
        sums = RunningMoments(seed, ordered=not independent)
        sums.add(np.repeat(np.arange(len(n)), n), table.value, table.weight, len(n))
        made = sums.moments(table.labels, table.names)
    else:
        unit = unit_of(_largest(table.value))
        value = table.value if unit == 1.0 else table.value / unit
        folds = FoldMoments(np.zeros((len(n), N_FOLDS), np.int64), *np.zeros((5, len(n), N_FOLDS)))
        low, high, successive = np.full(len(n), np.inf), np.full(len(n), -np.inf), np.zeros(len(n))
        rate = 0.0 if half_life is None else 1.0 / half_life
        _fill_periods(table.start, value, table.time, table.weight, rate, *folds, low, high, successive)
        resolution = resolution_of(value[:_SOME])
        some = min(int(table.start[JUDGES]) if len(n) > JUDGES else len(value), len(value))
        order = None if independent or table.weight is not None else Sequences()
        if order is not None:
            order.add(np.repeat(np.arange(min(len(n), JUDGES)), n[:JUDGES]), value[:some])
        made = AgentMoments(table.labels, folds, low, high, successive, resolution, unit, None, None, (), table.names,
                            sums=None if order is None else order.sums(folds.merged()), forward=True)  # fmt: skip
    return made._replace(label=table.label, covariates=table.covariates, notes=table.notes, parts=table.parts,
                         group_names=table.group_names)  # fmt: skip


@kernel
def _fill_periods(start, value, time, weight, rate, n, mass, spread, decay, mean, square, low, high, successive):
    n_folds = n.shape[1]
    for a in range(start.size - 1):
        first, size = start[a], start[a + 1] - start[a]
        for i in range(size):
            f = i * n_folds // size if size >= n_folds else n_folds - size + i
            x, p, g = value[first + i], 1.0 if weight is None else weight[first + i], 1.0
            if rate > 0.0:
                g = math.exp2(-min(rate * (time[first + size - 1] - time[first + i]), OLDEST))
            w = g * p
            n[a, f] += 1
            mass[a, f] += w
            spread[a, f] += g * w
            decay[a, f] += g
            d = x - mean[a, f]
            mean[a, f] += d * (w / mass[a, f])
            square[a, f] += w * d * (x - mean[a, f])
            low[a], high[a] = min(low[a], x), max(high[a], x)
            if i > 0:
                share = 2.0 if weight is None else 1.0 / p + 1.0 / weight[first + i - 1]
                successive[a] += (x - value[first + i - 1]) ** 2 / share


class RunningMoments:
    """The moments of rows that come in any order, batch by batch, in random folds that the seed decides.

    Of each run of five samples of an agent, every fold gets one. For rows that are sorted by value, see
    `colme.data.thinning.in_random_order`."""

    def __init__(self, seed: int, *, ordered: bool = False):
        """`ordered`: the samples of an agent come in their order, which tells how they depend on each other."""
        self._key = key_of(seed)
        self._order = Sequences() if ordered else None
        self._sums = _whole_lines(0)
        """A row per agent: see `_ORDER` to `_FOLDS`."""
        self._some: list[Floats] = []
        self._unit = 0.0

    def add(self, agent: Array, value: Floats, weight: Floats | None, n_agents: int) -> None:
        """Count rows of agents 0 to n_agents - 1."""
        self._grow(n_agents)
        value = self._scaled(value)
        if sum(map(len, self._some)) < _SOME:
            self._some.append(value[:_SOME].copy())
        _add(agent, value, weight, *self._key, self._sums)
        if weight is not None:
            self._order = None
        if self._order is not None:
            self._order.add(agent, value)

    def _grow(self, n_agents: int) -> None:
        """Room for as many agents, and for more if there are new ones."""
        old = self._sums
        if n_agents > len(old):
            self._sums = _whole_lines(max(n_agents, 2 * len(old)))
            self._sums[: len(old)] = old

    def _scaled(self, value: Floats) -> Floats:
        """The values, divided by the unit; larger ones than all before may need a larger unit."""
        largest = _largest(value)
        if largest > 0.0 and (self._unit == 0.0 or largest / self._unit >= _FAR):
            before, self._unit = self._unit, unit_of(largest)
            share = before / self._unit
            self._sums[:, [_LOW, _HIGH, *range(_FOLDS + 2, _WIDTH, 4)]] *= share
            self._sums[:, _FOLDS + 3 :: 4] *= share * share
            self._some = [part * share for part in self._some]
            if self._order is not None:
                self._order.scale(share)
        return value if self._unit in (0.0, 1.0) else value / self._unit

    def count(self, n_agents: int) -> Integers:
        """The number of samples of each agent."""
        self._grow(n_agents)
        return self._sums[:n_agents, _COUNT].astype(np.int64)

    def moments(self, labels: Array, names: Names) -> AgentMoments:
        """All that was counted, of the agents with these labels."""
        self._grow(len(labels))
        rows = self._sums[: len(labels)]
        count, weight, mean, square = (np.ascontiguousarray(rows[:, _FOLDS + k :: 4]) for k in range(4))
        folds = FoldMoments(count.astype(np.int64), weight, weight, count, mean, square)
        there = rows[:, _COUNT] > 0.0
        low, high = np.where(there, rows[:, _LOW], np.inf), np.where(there, rows[:, _HIGH], -np.inf)
        some = np.concatenate(self._some)[:_SOME] if self._some else np.empty(0)
        plain = self._unit == 1.0 and bool((low >= 0.0).all() and (high <= 1.0).all() and (weight == count).all())
        return AgentMoments(
            labels, folds, low, high, None, resolution_of(some), self._unit or 1.0, None, None, (), names,
            law="binomial" if plain and are_binary(folds.merged()) else "",
            sums=None if self._order is None else self._order.sums(folds.merged()),
        )  # fmt: skip


def pooled(batches: Floats, count: Any, every: FoldMoments) -> Floats:
    """The sums of dependence over agents with these batches of so many samples (`colme.dependence`)."""
    variance = np.where(every.freedom > 0.0, every.square / np.maximum(every.freedom, 1e-300), 0.0)
    there, out = variance > 0.0, np.empty((len(variance), SUMS))
    typical = np.full(len(variance), np.sqrt(variance[there]).mean() if there.any() else 1.0)
    pool(batches, count, variance * (count - 1.0), typical, out)
    return np.asarray(out.sum(axis=0))


class Sequences:
    """How the samples of the first agents follow each other, as far as is enough to see how they depend on each other
    (`colme.dependence`)."""

    def __init__(self) -> None:
        self._batches = np.zeros((0, BATCHES))
        self._turns = np.zeros((0, 4))
        """Of each agent: its samples, the last difference between two, and of how many differences how many have
        another sign than the one before."""

    def add(self, agent: Array, value: Floats) -> None:
        """The samples of these agents, row by row."""
        need = min(int(agent.max(initial=-1)) + 1, JUDGES)
        if need > len(self._turns):
            more = ((0, max(need, min(2 * need, JUDGES)) - len(self._turns)), (0, 0))
            self._batches, self._turns = np.pad(self._batches, more), np.pad(self._turns, more)
        _follow(agent, value, self._batches, self._turns)

    def scale(self, share: float) -> None:
        """Values are in another unit."""
        self._batches[:, :2] *= share
        self._batches[:, 3::2] *= share
        self._batches[:, 2::2] *= share * share

    def sums(self, every: FoldMoments) -> Floats | None:
        """What is pooled over agents; None where rows are sorted by value."""
        k = min(len(self._turns), len(every.n))
        count, _, differences, turns = self._turns[:k].T
        if turns.sum() <= SORTED * differences.sum():
            return None
        return pooled(self._batches, count, every.select(slice(k)))


@kernel
def _follow(agent, value, batches, turns):
    for i in range(agent.size):
        a = np.int64(agent[i])
        if a >= turns.shape[0] or turns[a, 0] >= LONGEST:
            continue
        turns[a, 0] += 1.0
        if turns[a, 0] > 1.0:
            step = value[i] - batches[a, 1]
            if step != 0.0:
                if turns[a, 1] != 0.0:
                    turns[a, 2] += 1.0
                    turns[a, 3] += 1.0 if (step > 0.0) != (turns[a, 1] > 0.0) else 0.0
                turns[a, 1] = step
        add_to_batches(batches[a], np.int64(turns[a, 0]), value[i])


_ORDER, _COUNT, _LOW, _HIGH, _FOLDS = range(5)
"""What a row of `RunningMoments` begins with: the folds of the agent's next samples, numbered from 1, three bits each,
the next one lowest (0: five more must be drawn); how many samples it has, the smallest and the largest. From `_FOLDS`
on, the count, weight, mean and square of each fold."""
_WIDTH = _FOLDS + 4 * N_FOLDS
_LINE = 8
"""Numbers in a line of the cache."""
_AHEAD = 12
"""Rows by which memory is asked for before it is needed."""


def _whole_lines(n: int) -> Floats:
    """Zeros for n agents, in whole lines of the cache: a sample then touches one line or two, never three. Memory that
    was not written to yet takes no room."""
    flat = np.zeros(n * _WIDTH + _LINE)
    first = -(flat.ctypes.data // 8) % _LINE
    return flat[first : first + n * _WIDTH].reshape(n, _WIDTH)


@kernel
def _add(agent, value, weight, k0, k1, sums):
    """For each row: take the next fold of the agent, and move the mean and the square of that fold (Welford).

    The rest makes it fast. Agents come in random order and do not fit into the caches, so the lines that a row will
    need are loaded while earlier rows are added: first the beginning of the agent's row, which says to which fold the
    sample belongs, then that fold. Folds may be drawn then already: they depend on the agent and its count only."""
    for i in range(agent.size):
        if i + 2 * _AHEAD < agent.size:
            prefetch(sums, (np.int64(agent[i + 2 * _AHEAD]), 0))
        if i + _AHEAD < agent.size:
            b = np.int64(agent[i + _AHEAD])
            if sums[b, _ORDER] == 0.0:
                sums[b, _ORDER] = _next_folds(b, sums[b, _COUNT], k0, k1)
            prefetch(sums, (b, 4 * (np.int64(sums[b, _ORDER]) & 7)))
        a, x, w = np.int64(agent[i]), value[i], 1.0 if weight is None else weight[i]
        if sums[a, _ORDER] == 0.0:
            sums[a, _ORDER] = _next_folds(a, sums[a, _COUNT], k0, k1)
        order = np.int64(sums[a, _ORDER])
        sums[a, _ORDER] = order >> 3
        if sums[a, _COUNT] == 0.0:
            sums[a, _LOW], sums[a, _HIGH] = x, x
        sums[a, _COUNT] += 1.0
        sums[a, _LOW], sums[a, _HIGH] = min(sums[a, _LOW], x), max(sums[a, _HIGH], x)
        f = 4 * (order & 7)  # the place of fold 1 is _FOLDS, which is 4
        sums[a, f] += 1.0
        sums[a, f + 1] += w
        d = x - sums[a, f + 2]
        sums[a, f + 2] += d * (w / sums[a, f + 1])
        sums[a, f + 3] += w * d * (x - sums[a, f + 2])


@helper
def _next_folds(agent, count, k0, k1):
    """The folds 1 to 5 in random order, three bits each: of the agent's samples `count` to `count + 4`."""
    w0, w1, _, _ = philox(np.uint32(agent), np.uint32(count // N_FOLDS), np.uint32(agent >> 32), 0, k0, k1)
    words = np.uint64(w0) << np.uint64(32) | np.uint64(w1)
    order = np.int64(0)
    for j in range(N_FOLDS):
        order |= np.int64(j + 1) << (3 * j)
    for j in range(N_FOLDS - 1, 0, -1):  # Fisher and Yates
        other = np.int64(words % np.uint64(j + 1))
        words //= np.uint64(j + 1)
        swapped = (order >> (3 * j) ^ order >> (3 * other)) & 7
        order ^= swapped << (3 * j) | swapped << (3 * other)  # exchanges the two
    return order


def _largest(values: Floats) -> float:
    return max(abs(float(values.min())), abs(float(values.max()))) if len(values) else 0.0


def are_binary(every: FoldMoments) -> bool:
    """Whether all samples can only be 0 or 1, and are not all equal: then squares follow from means."""
    mean = np.nan_to_num(every.mean)
    return bool((mean >= 0.0).all() and (mean <= 1.0).all() and every.square.any()
                and np.allclose(every.square, every.n * mean * (1.0 - mean), rtol=1e-9, atol=1e-9))  # fmt: skip


def unit_of(largest: float) -> float:
    """1, or for very large or small values the power of two to divide them by, which changes no digit."""
    return 1.0 if largest == 0.0 or 1.0 / _FAR < largest < _FAR else math.ldexp(1.0, math.frexp(largest)[1] - 1)


def resolution_of(values: Floats) -> float:
    """The smallest difference between two of the values; 0 if all are equal."""
    some = np.unique(values)
    return float(np.diff(some).min()) if len(some) > 1 else 0.0
