"""`score`: the accuracy of estimates on a real table: learn from n samples of every agent, score on its other samples.

The true means of real agents are unknown. But the mean of m held-out samples of the same agent has variance s^2 / m
around its true mean, so the average over agents of (estimate - held-out mean)^2 - s^2 / m is the error of the
estimates. It is reported relative to that of the local means: below 1, collaboration helps.
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
"""Fewest held-out samples of an agent: the mean of fewer is too noisy to score on."""


class Split(NamedTuple):
    """n training samples of every agent that has enough, and the statistics of its held-out samples."""

    train: Table
    agents: NDArray[np.int64]
    """The agents, as indices of the whole table."""
    mean: Floats
    """The mean of the held-out samples."""
    noise: Floats
    """The variance of that mean: s^2 / m."""

    def error(self, estimate: Floats) -> float:
        """Mean squared error of estimates, without the noise of the held-out means."""
        return float((np.square(estimate - self.mean) - self.noise).mean())

    def ratio(self, result: Result) -> float:
        """The error of the estimates relative to that of the local means."""
        return self.error(result.estimate) / self.error(result.mean)


class Score(NamedTuple):
    """The score for one n, averaged over seeds."""

    n: int
    n_agents: int
    ratio: float
    """Mean error relative to the local mean's."""
    ratio_se: float
    """Its standard error over the seeds; NaN for one seed."""
    rand_index: float
    """Adjusted Rand index of the groups against known ones; NaN if none were given."""
    methods: dict[str, int]
    """How often each method was used."""


def split(table: Table, n: int, *, seed: int | None = None, held_out: int = HELD_OUT) -> Split:
    """Train on n samples of every agent: random ones, or the first ones (`seed` None) if the table has a time."""
    n = whole(n, "n", "n=10")
    count = np.diff(table.start)
    agents = np.flatnonzero(count >= n + whole(held_out, "held_out", "held_out=20", low=2))
    if not len(agents):
        raise ColmeError(f"no agent has {n} + {held_out} samples: the protocol needs so many. Try a smaller n.")
    who = np.repeat(np.arange(len(count)), count)
    chance = np.zeros(len(who)) if seed is None else np.random.default_rng(seed).random(len(who))
    first = np.zeros(len(who), bool)
    first[np.lexsort((chance, who))] = np.arange(len(who)) - table.start[who] < n
    here = (count >= n + held_out)[who]
    rest = here & ~first
    of, m = np.repeat(np.arange(len(agents)), (count - n)[agents]), (count - n)[agents]
    mean = np.bincount(of, table.value[rest]) / m
    noise = np.bincount(of, np.square(table.value[rest] - mean[of])) / (m - 1) / m
    rows = np.flatnonzero(here & first)
    if (
        seed is not None
    ):  # random samples in random order: in that of time, they would look dependent, which they are not
        rows = rows[np.lexsort((chance[rows], who[rows]))]
    return Split(_taken(table, rows, agents, n, timed=seed is None), agents, mean, noise)


def _taken(table: Table, rows: NDArray[np.int64], agents: NDArray[np.int64], n: int, *, timed: bool) -> Table:
    return table._replace(
        labels=table.labels[agents],
        parts=tuple(each[agents] for each in table.parts),
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
    """The protocol for one n: with random samples, once for each seed, or in time order (`seeds` None).

    truth    the known group of each agent, to compare the found groups with
    options  passed to `estimate_table`
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
    """The agreement of two groupings: 1 if they are equal, 0 on average by chance (Hubert and Arabie 1985).

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
