"""`diagnose`: flags for agents with unusual samples, and autocorrelation, drift and count dependence of the table."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import kernel
from colme.data.fit.noise import Noise, t_quantile, trigamma
from colme.data.read.table import Table
from colme.data.report.result import FLAGS

Floats = NDArray[np.float64]
_FAR = 5.0
"""Standard deviations beyond which a mean or a variance is unusual: by chance, 0.6 in a million are."""
_MOVED = 3.0
"""A dominant sample moves the mean by this many standard errors of the mean of the other samples."""
_FEW = 5
"""Fewest samples to judge one sample by the others."""
_LONG = 20
"""Fewest samples to estimate the autocorrelation of one agent."""
_CHANCE, _SURE = 0.05, 0.001
"""Levels of the test of early against late halves: for the share of agents that drift, and for an agent's flag."""
_RARE = 0.05
"""If a larger share of agents has zero variance, it is normal for the table and not a fault."""


class Diagnosis(NamedTuple):
    """The flags of each agent, and three numbers about the whole table."""

    flags: NDArray[np.uint8]
    autocorrelation: float
    drift: float
    count_correlation: float


class _Deviations(NamedTuple):
    """By agent, without weights: the mean, and around it the sum of squares, the sum of products of consecutive
    deviations, the largest deviation, and the mean of the first half minus that of the second."""

    mean: Floats
    square: Floats
    lag: Floats
    farthest: Floats
    gap: Floats


@kernel
def _fill(start, value, mean, square, lag, farthest, gap):
    for a in range(start.size - 1):
        first, last = start[a], start[a + 1]
        middle, total = first + (last - first) // 2, 0.0
        for i in range(first, last):
            total += value[i] - value[first]
        m = value[first] + total / (last - first) if last > first else np.nan
        before = far = total = 0.0
        for i in range(first, last):
            d = value[i] - m
            square[a] += d * d
            lag[a] += before * d
            before = d
            far = d if abs(d) > abs(far) else far
            total += d if i < middle else 0.0
        mean[a], farthest[a] = m, far
        if middle > first:  # deviations from the mean add up to zero
            gap[a] = total / (middle - first) + total / (last - middle)


def diagnose(table: Table, noise: Noise, *, ordered: bool) -> Diagnosis:
    """The diagnosis of a table. `ordered`: the samples are in order of time."""
    n = np.diff(table.start)
    seen = _Deviations(*(np.zeros(len(n)) for _ in range(5)))
    _fill(table.start, table.value, *seen)
    freedom = np.maximum(n - 1, 0)
    sample = (noise.freedom * noise.common + seen.square) / (noise.freedom + freedom)
    stuck = (n > 1) & (seen.square == 0.0)
    marks = {
        "one sample": n == 1,
        "zero variance": stuck,
        "faulty": _far(seen.mean, sample / np.maximum(n, 1)) & _odd(seen.square, freedom, stuck, noise),
        "dominant sample": _dominant(n, seen, sample),
    }
    autocorrelation = drift = math.nan
    if ordered:
        # around the sample mean, the products of independent samples sum to - square / n on average
        joint, known = seen.lag + seen.square / np.maximum(n, 1), (n > 2) & (seen.square > 0.0)
        autocorrelation = float(joint[known].sum() / seen.square[known].sum()) if known.any() else math.nan
        marks["autocorrelated"] = known & (n >= _LONG) & (joint > _MOVED * seen.square / np.sqrt(np.maximum(n, 1)))
        marks["drifting"], drift = _drifting(n, seen.gap, sample, np.minimum(noise.freedom + freedom, freedom.sum()))
    flags = np.zeros(len(n), np.uint8)
    for name, who in marks.items():
        flags |= who.astype(np.uint8) << np.uint8(FLAGS.index(name))
    return Diagnosis(flags, autocorrelation, drift, _count_correlation(n, seen.mean))


def _far(mean: Floats, variance: Floats) -> NDArray[np.bool_]:
    """Agents whose mean is far from the others, by the median and the interquartile range of all means."""
    low, middle, high = np.nanquantile(mean, [0.25, 0.5, 0.75]) if len(mean) else np.zeros(3)
    spread = (high - low) / 1.349  # of a normal distribution
    return np.asarray(np.abs(mean - middle) > _FAR * np.sqrt(spread * spread + variance))


def _odd(square: Floats, freedom: Floats, stuck: NDArray[np.bool_], noise: Noise) -> NDArray[np.bool_]:
    """Agents with an unusual variance: the logarithm of one with d degrees of freedom has variance trigamma(d / 2)."""
    known = (freedom > 0.0) & ~stuck & (noise.common > 0.0)
    half = 0.5 * np.where(known, freedom, 1.0)
    away = np.log(np.where(known, square, 1.0) / (2.0 * half)) - math.log(noise.common if noise.common > 0.0 else 1.0)
    error = np.sqrt(trigamma(half) + trigamma(np.array([0.5 * noise.freedom])))
    return np.asarray((known & (np.abs(away) > _FAR * error)) | (stuck & (freedom >= _FEW) & (stuck.mean() < _RARE)))


def _dominant(n: NDArray[np.int64], seen: _Deviations, sample: Floats) -> NDArray[np.bool_]:
    """Agents with one sample that moves the mean by `_MOVED` standard errors of the mean of the other samples."""
    others = np.maximum(n - 1, 1)
    moved = np.abs(seen.farthest) / others  # the distance to the mean without it
    square = np.maximum(seen.square - np.square(seen.farthest) * n / others, 0.0) / np.maximum(n - 2, 1)
    # a floor: where all other samples are equal, any difference at all would count
    return np.asarray((n >= _FEW) & (moved > _MOVED * np.sqrt(np.maximum(square, 0.1 * sample) / others)))


def _drifting(
    n: NDArray[np.int64], gap: Floats, sample: Floats, freedom: Floats
) -> tuple[NDArray[np.bool_], float]:  # fmt: skip
    """(agents whose halves differ at level `_SURE`, the share of agents that drift beyond chance), by the t-test."""
    known = (n > 3) & (sample > 0.0)
    if not known.any():
        return known, math.nan
    early = np.maximum(n // 2, 1)
    t = np.abs(gap) / np.sqrt(np.where(known, sample, 1.0) * (1.0 / early + 1.0 / np.maximum(n - early, 1)))
    beyond = (t > t_quantile(1.0 - 0.5 * _CHANCE, np.maximum(freedom, 2.0)))[known].mean()
    drift = max(0.0, (float(beyond) - _CHANCE) / (1.0 - _CHANCE))
    return known & (t > t_quantile(1.0 - 0.5 * _SURE, np.maximum(freedom, 2.0))), drift


def _count_correlation(n: NDArray[np.int64], mean: Floats) -> float:
    """The correlation of log n with the mean; NaN if either is constant."""
    there = n > 0
    if there.sum() < 3 or np.ptp(n[there]) == 0 or np.ptp(mean[there]) == 0.0:
        return math.nan
    return float(np.corrcoef(np.log(n[there]), mean[there])[0, 1])
