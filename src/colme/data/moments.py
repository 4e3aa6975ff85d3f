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
from numpy.typing import NDArray

from colme._core.jit import kernel
from colme._core.random import key_of, philox

if TYPE_CHECKING:
    from colme.data.read.table import Names, Table

Floats = NDArray[np.float64]
N_FOLDS = 5
EARLY, LATE = [0, 1, 2], [3, 4]
"""Folds that are compared with each other."""
_OLDEST = 200.0
"""Half-lives after which the decay stops, so that squared weights do not underflow."""
_FAR = 1e50
"""Values are divided by a unit unless the largest is between this and its inverse: fourth powers must stay finite."""
_SOME = 10_000
"""Samples that tell to which step all are rounded."""


class FoldMoments(NamedTuple):
    """Moments of samples: a row per agent, and a column per fold unless the folds are merged."""

    n: NDArray[np.int64]
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

    def select(self, agents: NDArray[Any] | slice) -> FoldMoments:
        """The moments of some agents."""
        return FoldMoments(self.n[agents], *(part[agents] for part in self[1:]))

    def merged(self, folds: slice | list[int]) -> FoldMoments:
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
    """

    labels: NDArray[Any]
    folds: FoldMoments
    low: Floats
    high: Floats
    successive: Floats | None
    resolution: float
    unit: float
    label: NDArray[np.int64] | None
    covariates: Floats | None
    notes: tuple[str, ...]
    names: Names
    parts: tuple[NDArray[Any], ...] = ()
    law: str = ""
    sigma: float | None = None
    reported: NDArray[np.int64] | None = None
    group_names: tuple[Any, ...] = ()

    @property
    def forward(self) -> bool:
        """Whether the folds are periods of time."""
        return self.successive is not None

    def select(self, agents: NDArray[Any]) -> AgentMoments:
        """The moments of some agents, or of all in another order."""
        some = {name: part[agents] for name, part in self._asdict().items() if isinstance(part, np.ndarray)}
        parts = tuple(part[agents] for part in self.parts)
        return self._replace(folds=self.folds.select(agents), parts=parts, **some)


def moments_of(table: Table, *, seed: int = 0, half_life: float | None = None) -> AgentMoments:
    """The moments of samples by agent, in random folds or, if they have a time, in periods (the last ones, if few)."""
    n = np.diff(table.start)
    if table.time is None:
        sums = RunningMoments(seed)
        sums.add(np.repeat(np.arange(len(n)), n), table.value, table.weight, len(n))
        made = sums.moments(table.labels, table.names, table.label, table.covariates, table.notes)
        return made._replace(parts=table.parts, group_names=table.group_names)
    unit = unit_of(_largest(table.value))
    value = table.value if unit == 1.0 else np.asarray(table.value / unit)
    folds = FoldMoments(np.zeros((len(n), N_FOLDS), np.int64), *np.zeros((5, len(n), N_FOLDS)))
    low, high, successive = np.full(len(n), np.inf), np.full(len(n), -np.inf), np.zeros(len(n))
    rate = 0.0 if half_life is None else 1.0 / half_life
    _fill_periods(table.start, value, table.time, table.weight, rate, *folds, low, high, successive)
    return AgentMoments(
        table.labels, folds, low, high, successive, resolution_of(value[:_SOME]), unit, table.label, table.covariates,
        table.notes, table.names, table.parts, group_names=table.group_names,
    )  # fmt: skip


@kernel
def _fill_periods(start, value, time, weight, rate, n, mass, spread, decay, mean, square, low, high, successive):
    n_folds = n.shape[1]
    for a in range(start.size - 1):
        first, size = start[a], start[a + 1] - start[a]
        for i in range(size):
            f = i * n_folds // size if size >= n_folds else n_folds - size + i
            x, p, g = value[first + i], 1.0 if weight is None else weight[first + i], 1.0
            if rate > 0.0:
                g = math.exp2(-min(rate * (time[first + size - 1] - time[first + i]), _OLDEST))
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

    Of each run of five samples of an agent, every fold gets one."""

    def __init__(self, seed: int):
        self._key = key_of(seed)
        self._sums = np.zeros((0, N_FOLDS, 4))
        """Count, weight, mean, square."""
        self._order = np.zeros(0, np.int64)
        """The folds of the next samples, three bits each, the next one lowest; 0 if five more must be drawn."""
        self._ends = np.zeros((0, 2))
        self._some: list[Floats] = []
        self._unit = 0.0

    def add(self, agent: NDArray[Any], value: Floats, weight: Floats | None, n_agents: int) -> None:
        """Count rows of agents 0 to n_agents - 1."""
        self._grow(n_agents)
        value = self._scaled(value)
        if sum(map(len, self._some)) < _SOME:
            self._some.append(value[:_SOME])
        _add(agent, value, weight, *self._key, self._order, self._sums, self._ends)

    def _grow(self, n_agents: int) -> None:
        """Room for as many agents, and for more if there are new ones."""
        old = len(self._order)
        if n_agents > old:
            size = max(n_agents, old + old // 2)
            for name, empty in (("_sums", 0.0), ("_order", 0), ("_ends", -np.inf)):
                part = getattr(self, name)
                setattr(self, name, np.concatenate([part, np.full((size - old, *part.shape[1:]), empty, part.dtype)]))

    def _scaled(self, value: Floats) -> Floats:
        """The values, divided by the unit; larger ones than all before may need a larger unit."""
        largest = _largest(value)
        if largest > 0.0 and (self._unit == 0.0 or largest / self._unit >= _FAR):
            before, self._unit = self._unit, unit_of(largest)
            share = before / self._unit
            self._sums[:, :, 2] *= share
            self._sums[:, :, 3] *= share * share
            self._ends[np.isfinite(self._ends)] *= share
            self._some = [part * share for part in self._some]
        return value if self._unit in (0.0, 1.0) else np.asarray(value / self._unit)

    def moments(
        self, labels: NDArray[Any], names: Names, label: NDArray[np.int64] | None = None,
        covariates: Floats | None = None, notes: tuple[str, ...] = (),
    ) -> AgentMoments:  # fmt: skip
        """All that was counted, of the agents with these labels."""
        self._grow(len(labels))
        count, weight, mean, square = (np.ascontiguousarray(self._sums[: len(labels), :, k]) for k in range(4))
        folds = FoldMoments(count.astype(np.int64), weight, weight, count, mean, square)
        low, high = -self._ends[: len(labels), 0], self._ends[: len(labels), 1].copy()
        some = np.concatenate(self._some)[:_SOME] if self._some else np.empty(0)
        plain = self._unit == 1.0 and bool((weight == count).all())
        return AgentMoments(
            labels, folds, low, high, None, resolution_of(some), self._unit or 1.0, label, covariates, notes, names,
            law="binomial" if plain and are_binary(folds.merged(slice(None))) else "",
        )  # fmt: skip


@kernel
def _add(agent, value, weight, k0, k1, order, sums, ends):
    n_folds = sums.shape[1]
    shuffled = np.empty(n_folds, np.int64)
    for i in range(agent.size):
        a, x, w = np.int64(agent[i]), value[i], 1.0 if weight is None else weight[i]
        if order[a] == 0:  # folds are stored as 1 to n_folds
            block = 0.0
            for f in range(n_folds):
                block += sums[a, f, 0]
            block = block // n_folds
            w0, w1, _, _ = philox(np.uint32(a), np.uint32(block), np.uint32(a >> 32), 0, k0, k1)
            words = np.uint64(w0) << np.uint64(32) | np.uint64(w1)
            shuffled[:] = np.arange(1, n_folds + 1)
            for j in range(n_folds - 1, 0, -1):
                other = np.int64(words % np.uint64(j + 1))
                words //= np.uint64(j + 1)
                shuffled[j], shuffled[other] = shuffled[other], shuffled[j]
            for j in range(n_folds - 1, -1, -1):
                order[a] = order[a] << 3 | shuffled[j]
        f = (order[a] & 7) - 1
        order[a] >>= 3
        sums[a, f, 0] += 1.0
        sums[a, f, 1] += w
        d = x - sums[a, f, 2]
        sums[a, f, 2] += d * (w / sums[a, f, 1])
        sums[a, f, 3] += w * d * (x - sums[a, f, 2])
        ends[a, 0], ends[a, 1] = max(ends[a, 0], -x), max(ends[a, 1], x)


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
