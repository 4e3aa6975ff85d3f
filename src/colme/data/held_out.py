"""How good an estimate of a real table is: learn from n samples of every agent, score on its other samples.

Nobody knows true means of real agents. But the mean of m other samples of the same agent misses the true one by
s^2 / m on average, so the mean over agents of (estimate - that mean)^2 - s^2 / m is the error of the estimates. It is
reported relative to that of the local means: below 1, collaboration helps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme.data.estimate import estimate_table
from colme.data.read.table import Table
from colme.data.report.result import Result
from colme.errors import ColmeError, whole

Floats = NDArray[np.float64]
HELD_OUT = 20
"""Samples that must be left to score on: fewer do not know the mean themselves."""


class Split(NamedTuple):
    """n samples of every agent that has enough, and what is known of the others."""

    train: Table
    agents: NDArray[np.int64]
    """Which agents of the whole table."""
    mean: Floats
    """Of the samples that were held out."""
    noise: Floats
    """The variance of that mean: s^2 / m."""

    def error(self, estimate: Floats) -> float:
        """Mean squared error of estimates, without the noise of what they are scored on."""
        return float((np.square(estimate - self.mean) - self.noise).mean())

    def ratio(self, result: Result) -> float:
        """The error of the estimates relative to that of the local means."""
        return self.error(result.estimate) / self.error(result.mean)


class Score(NamedTuple):
    """What the protocol found for one n, averaged over seeds."""

    n: int
    n_agents: int
    ratio: float
    """Mean error relative to the local mean's."""
    ratio_se: float
    """From seed to seed; NaN for one."""
    rand_index: float
    """Adjusted, of the groups against known ones; NaN if none were given."""
    methods: dict[str, int]
    """How often each was used."""


def split(table: Table, n: int, *, seed: int | None = None, held_out: int = HELD_OUT) -> Split:
    """Train on n samples of every agent: random ones, or the first ones (`seed` None) if the table has a time."""
    n = whole(n, "n", "n=10")
    count = np.diff(table.start)
    agents = np.flatnonzero(count >= n + whole(held_out, "held_out", "held_out=20", low=2))
    if not len(agents):
        raise ColmeError(f"no agent has {n} + {held_out} samples: the protocol needs as many. Try a smaller n.")
    who = np.repeat(np.arange(len(count)), count)
    chance = np.zeros(len(who)) if seed is None else np.random.default_rng(seed).random(len(who))
    first = np.zeros(len(who), bool)
    first[np.lexsort((chance, who))] = np.arange(len(who)) - table.start[who] < n
    here = (count >= n + held_out)[who]
    rest = here & ~first
    of, m = np.repeat(np.arange(len(agents)), (count - n)[agents]), (count - n)[agents]
    mean = np.bincount(of, table.value[rest]) / m
    noise = np.bincount(of, np.square(table.value[rest] - mean[of])) / (m - 1) / m
    return Split(_taken(table, here & first, agents, n, timed=seed is None), agents, mean, noise)


def _taken(table: Table, rows: NDArray[np.bool_], agents: NDArray[np.int64], n: int, *, timed: bool) -> Table:
    return table._replace(
        labels=table.labels[agents],
        start=np.arange(len(agents) + 1) * n,
        value=table.value[rows],
        time=table.time[rows] if timed and table.time is not None else None,
        weight=None if table.weight is None else table.weight[rows],
        label=None if table.label is None else table.label[agents],
        covariates=None if table.covariates is None else table.covariates[agents],
    )


def score(
    table: Table, n: int, *, seeds: Iterable[int] | None = None, truth: NDArray[Any] | None = None,
    held_out: int = HELD_OUT, **options: Any,
) -> Score:  # fmt: skip
    """The protocol for one n: shuffled, once for each seed, or in time order (`seeds` None).

    truth    a known group of each agent of the table, which the found ones are compared with
    options  of `estimate_table`
    """
    ratios: list[float] = []
    indices: list[float] = []
    methods: dict[str, int] = {}
    n_agents = 0
    for seed in [None] if seeds is None else seeds:
        part = split(table, n, seed=seed, held_out=held_out)
        result = estimate_table(part.train, **options)
        ratios.append(part.ratio(result))
        name, n_agents = result.summary.method, len(part.agents)
        methods[name] = methods.get(name, 0) + 1
        if truth is not None:
            indices.append(adjusted_rand_index(result.group, truth[part.agents]))
    se = float(np.std(ratios, ddof=1)) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
    index = float(np.mean(indices)) if indices else float("nan")
    return Score(n, n_agents, float(np.mean(ratios)), se, index, methods)


def adjusted_rand_index(one: NDArray[Any], other: NDArray[Any]) -> float:
    """How much two groupings agree: 1 if they are the same, 0 on average by chance (Hubert and Arabie 1985).

    >>> adjusted_rand_index(np.array([0, 0, 1, 1]), np.array([5, 5, 3, 3]))
    1.0
    """
    rows, columns = (np.unique(each, return_inverse=True)[1] for each in (one, other))
    joint = np.unique(rows * (columns.max() + 1) + columns, return_counts=True)[1]
    pairs, of_rows, of_columns, every = (
        float((count * (count - 1)).sum()) / 2.0
        for count in (joint, np.bincount(rows), np.bincount(columns), np.array([len(rows)]))
    )
    expected = of_rows * of_columns / max(every, 1.0)
    most = 0.5 * (of_rows + of_columns)
    return 1.0 if most == expected else (pairs - expected) / (most - expected)
