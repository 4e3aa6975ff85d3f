"""`diagnose`: flags for agents with unusual samples, and autocorrelation, drift and count dependence of the table."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme.data.fit import FLAGS
from colme.data.fit.noise import Noise, trigamma
from colme.data.moments import EARLY, LATE, AgentMoments, FoldMoments
from colme.noise import student
from colme.support.arrays import Floats, Integers, Mask

_FAR = 5.0
"""Standard deviations beyond which a mean or a variance is unusual: by chance, 0.6 in a million are."""
_MOVED = 3.0
"""A dominant sample moves the mean by this many standard errors of the mean of the other samples."""
_FEW = 5
"""Fewest samples to judge one sample by the others."""
_LONG = 20
"""Fewest samples to estimate the autocorrelation of one agent."""
_CHANCE, _SURE = 0.05, 0.001
"""Levels of the test of early against late samples: for the share of agents that drift, and for an agent's flag."""
_RARE = 0.05
"""If a larger share of agents has zero variance, it is normal for the table and not a fault."""


class Diagnosis(NamedTuple):
    """The flags of each agent, and three numbers about the whole table."""

    flags: NDArray[np.uint8]
    autocorrelation: float
    drift: float
    count_correlation: float


def diagnose(moments: AgentMoments, noise: Noise) -> Diagnosis:
    """The diagnosis of the samples; of rates, counts and means of a known error, only how many there are."""
    every = moments.folds.merged()
    n, mean, worth = every.n, every.mean, every.worth
    if moments.law or moments.sigma is not None:
        single = (n if moments.reported is None else moments.reported) == 1
        flags = single.astype(np.uint8) << np.uint8(FLAGS.index("one sample"))
        return Diagnosis(flags, math.nan, math.nan, _count_correlation(np.rint(worth).astype(np.int64), mean))
    # in the unit of a sample of weight 1: the sum of squares around the mean, and the largest deviation from it
    freedom = np.maximum(n - 1, 0)
    square = every.square * freedom / np.where(every.freedom > 0.0, every.freedom, 1.0)
    square = np.where(moments.low == moments.high, 0.0, square)
    weight = every.weight / np.where(every.decay > 0.0, every.decay, 1.0)
    farthest = np.maximum(mean - moments.low, moments.high - mean) * np.sqrt(weight)
    sample = (noise.freedom * noise.common + square) / (noise.freedom + freedom)
    stuck = (n > 1) & (square == 0.0)
    marks = {
        "one sample": n == 1,
        "zero variance": stuck,
        "faulty": _far(mean, sample / np.where(n > 0, worth, 1.0)) & _odd(square, freedom, stuck, noise),
        "dominant sample": _dominant(n, square, np.where(n > 0, farthest, 0.0), sample),
    }
    autocorrelation = drift = math.nan
    if moments.successive is not None:
        # independent samples differ from the next one by as much as from their mean (von Neumann 1941)
        joint, known = square - moments.successive, (n > 2) & (square > 0.0)
        autocorrelation = float(joint[known].sum() / square[known].sum()) if known.any() else math.nan
        marks["autocorrelated"] = known & (n >= _LONG) & (joint > _MOVED * square / np.sqrt(np.maximum(n, 1)))
        freedoms = np.minimum(noise.freedom + freedom, freedom.sum())
        marks["drifting"], drift = _drifting(moments.folds, sample, freedoms)
    flags = np.zeros(len(n), np.uint8)
    for name, who in marks.items():
        flags |= who.astype(np.uint8) << np.uint8(FLAGS.index(name))
    return Diagnosis(flags, autocorrelation, drift, _count_correlation(n, mean))


def _far(mean: Floats, variance: Floats) -> Mask:
    """Agents whose mean is far from the others, by the median and the interquartile range of all means."""
    low, middle, high = np.nanquantile(mean, [0.25, 0.5, 0.75])
    spread = (high - low) / 1.349  # of a normal distribution
    return np.abs(mean - middle) > _FAR * np.sqrt(spread * spread + variance)


def _odd(square: Floats, freedom: Integers, stuck: Mask, noise: Noise) -> Mask:
    """Agents with an unusual variance: the logarithm of one with d degrees of freedom has variance trigamma(d / 2)."""
    known = (freedom > 0.0) & ~stuck & (noise.common > 0.0)
    half = 0.5 * np.where(known, freedom, 1.0)
    away = np.log(np.where(known, square, 1.0) / (2.0 * half)) - math.log(max(noise.common, 1e-300))
    error = np.sqrt(trigamma(half) + trigamma(np.array([0.5 * noise.freedom])))
    return (known & (np.abs(away) > _FAR * error)) | (stuck & (freedom >= _FEW) & (stuck.mean() < _RARE))


def _dominant(n: Integers, square: Floats, farthest: Floats, sample: Floats) -> Mask:
    """Agents with one sample that moves the mean by `_MOVED` standard errors of the mean of the other samples."""
    others = np.maximum(n - 1, 1)
    moved = farthest / others  # the distance to the mean without it
    rest = np.maximum(square - np.square(farthest) * n / others, 0.0) / np.maximum(n - 2, 1)
    # a floor: where all other samples are equal, any difference at all would count
    return (n >= _FEW) & (moved > _MOVED * np.sqrt(np.maximum(rest, 0.1 * sample) / others))


def _drifting(folds: FoldMoments, sample: Floats, freedom: Floats) -> tuple[Mask, float]:
    """(agents whose early and late samples differ at level `_SURE`, the share that drift beyond chance), by t-tests."""
    early, late = folds.merged(EARLY), folds.merged(LATE)
    known = (early.n > 1) & (late.n > 1) & (sample > 0.0)
    if not known.any():
        return known, math.nan
    share = 1.0 / np.maximum(early.worth, 1e-300) + 1.0 / np.maximum(late.worth, 1e-300)
    t = np.abs(early.mean - late.mean) / np.sqrt(np.where(known, sample * share, 1.0))
    by_chance, surely = (t > student(1.0 - level, np.maximum(freedom, 2.0)) for level in (_CHANCE, _SURE))
    return known & surely, max(0.0, (float(by_chance[known].mean()) - _CHANCE) / (1.0 - _CHANCE))


def _count_correlation(n: Integers, mean: Floats) -> float:
    """The correlation of log n with the mean; NaN if either is constant."""
    there = n > 0
    if there.sum() < 3 or np.ptp(n[there]) == 0 or np.ptp(mean[there]) == 0.0:
        return math.nan
    return float(np.corrcoef(np.log(n[there]), mean[there])[0, 1])
