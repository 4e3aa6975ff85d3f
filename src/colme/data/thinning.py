"""Thinning: split the moments of each agent into folds that samples with these moments could have made.

An engine returns one row per agent, and a table of summaries has no more: there are no rows to put into folds. But
folds are random anyway. Given the count, the mean and the square of independent samples of a known law, the moments of
their folds have a known distribution too, and a draw from it serves cross-validation as folds of rows would (data
thinning, the coupled bootstrap):

    normal samples    normal means and chi-squared squares, shifted and scaled to the agent's own: exact
    skewed samples    likewise from gamma variables with the skewness of all samples
    0 and 1           successes without replacement (hypergeometric): exact
    counts            events fall into folds independently (multinomial): exact for Poisson counts

What thinning cannot know is whether the samples of an agent are like that. Where rows are at hand, folds of rows are
better (`colme.data.moments.RunningMoments`): they assume nothing.
"""

from __future__ import annotations

import numpy as np

from colme.data.moments import N_FOLDS, AgentMoments, FoldMoments, pooled
from colme.dependence import BATCHES, B, learn, look_up
from colme.noise import INDEPENDENT, Factors
from colme.support.arrays import Floats, Integers

_BLOCKS = 4
"""Skewed samples of a fold that are drawn one by one; more are drawn as so many blocks. The mean and the square of
normal samples are independent, so that one block is exact."""
_TOGETHER = 1 << 16
"""Agents that are drawn together."""
_STRAIGHT = 0.05
"""A smaller skewness is treated as none."""
_MOST = 10**9
"""Samples of an agent for which NumPy can draw without replacement; with more, successes are nearly normal."""
_BEYOND = 4.0
"""Standard errors by which folds must be too much alike: by chance in one table of 30 000."""
PLATEAU = 0.6
"""The median factor to shrink by, relative to that for intervals, if the dependence ends before the samples do."""
_ORDERED = "Rows are sorted by value, or drift: methods were compared as if each agent's samples were in random order."


def as_independent(
    moments: AgentMoments, seed: int, *, independent: bool = False, forward: bool = False
) -> tuple[AgentMoments, Factors]:  # fmt: skip
    """The moments of as many independent samples whose means would be as uncertain, as far as estimates shrink by it;
    and the factors of dependence. Folds of dependent rows know too much of each other, so these are made anew. (With
    `forward`, they must stay periods of time, and nothing is changed.) So are those that differ less than random ones
    do: where rows are sorted by value, or drift, local means would look better than they are. Where times show a
    dependence that does not end, methods must predict what comes: an agent may have drifted."""
    every, sums = moments.folds.merged(), moments.sums
    if sums is None and moments.successive is not None and not independent:  # an engine has these, batches of one
        batches = np.zeros((len(every.n), BATCHES))
        batches[:, 2] = moments.successive
        sums = pooled(batches, every.n.astype(np.float64), every)
        sums[B][1:] = 0.0
    table = None if sums is None else learn(sums, float(every.n.max()))
    if table is None:
        if moments.forward or moments.law == "Poisson" or not too_much_alike(moments.folds):
            return moments, INDEPENDENT
        folds = refolded(every, moments.law, seed)
        return moments._replace(folds=folds, notes=(*moments.notes, _ORDERED)), INDEPENDENT
    out = np.empty((6, len(every.n)))
    look_up(table[None], np.zeros(len(every.n), np.int64), every.n.astype(np.float64), out)
    factors = Factors(*out)
    long = np.median(factors.low_of_own) < PLATEAU * np.median(factors.high_of_own)
    if forward or (long and moments.forward):
        return moments._replace(law=""), factors
    successive = None if moments.successive is None else moments.successive * factors.low_of_own
    folds = refolded(every._replace(square=every.square * factors.low_of_own), "", seed)
    return moments._replace(folds=folds, successive=successive, law="", forward=False), factors


def too_much_alike(folds: FoldMoments) -> bool:
    """Whether the means of folds differ by less than those of random folds can.

    If an agent's n samples, of variance s^2, fall into d + 1 folds at random, the squares between the folds are s^2 d
    on average, whatever the samples are; the variance of that is 2 s^4 d (n - 1 - d) / (n + 1) if they are normal."""
    every = folds.merged()
    some = (every.n > N_FOLDS) & (every.square > 0.0)
    n, d = every.n[some].astype(np.float64), (folds.n[some] > 0).sum(axis=1) - 1.0
    between = (every.square - folds.square.sum(axis=1))[some] * ((n - 1.0) / every.square[some])
    deviation = np.sqrt((2.0 * d * (n - 1.0 - d) / (n + 1.0)).sum())
    return bool((between - d).sum() < -_BEYOND * deviation)


def refolded(every: FoldMoments, law: str, seed: int, skewness: float = 0.0) -> FoldMoments:
    """The samples of each agent in five random folds; `every` has one value per agent."""
    if law:
        return thinned_successes(every.n, np.rint(np.nan_to_num(every.mean) * every.n).astype(np.int64), seed)
    return thinned(every, seed, skewness)


def thinned(every: FoldMoments, seed: int, skewness: float = 0.0) -> FoldMoments:
    """Five folds of plain or weighted samples; `every` has one value per agent. Agents must be in a fixed order."""
    rng = np.random.default_rng(seed)
    n = np.empty((len(every.n), N_FOLDS), np.int64)
    weight, mean, square = (np.empty(n.shape) for _ in range(3))
    for k in range(0, len(n), _TOGETHER):
        some = slice(k, k + _TOGETHER)
        n[some], weight[some], mean[some], square[some] = _split(every.select(some), rng, skewness)
    return FoldMoments(n, weight, weight, n.astype(np.float64), mean, square)


def _split(
    every: FoldMoments, rng: np.random.Generator, skewness: float
) -> tuple[Integers, Floats, Floats, Floats]:  # fmt: skip
    """Counts, weights, means and squares of the folds."""
    n = _fold_counts(every.n, rng)
    j = np.arange(1 if abs(skewness) < _STRAIGHT else _BLOCKS)
    blocks = np.minimum(n, len(j))[:, :, None]
    share = np.maximum(blocks, 1)
    size = np.where(j < blocks, n[:, :, None] // share + (j < n[:, :, None] % share), 0).astype(np.float64)
    away, inside = _drawn(size, rng, skewness), 2.0 * rng.standard_gamma(np.maximum(size - 1.0, 0.0) / 2.0)
    mean = (size * away).sum(axis=2) / np.maximum(n, 1)
    square = (inside + size * np.square(away - mean[:, :, None])).sum(axis=2)
    middle = ((n * mean).sum(axis=1) / np.maximum(every.n, 1))[:, None]
    total = (square + n * np.square(mean - middle)).sum(axis=1)
    scale = np.sqrt(every.square / np.where(total > 0.0, total, np.inf))[:, None]
    heft = (every.weight / np.maximum(every.n, 1))[:, None]  # the mean weight of a sample
    scale = scale / np.sqrt(np.where(heft > 0.0, heft, 1.0))
    center = np.nan_to_num(every.mean)[:, None]
    mean = np.where(n > 0, center + scale * (mean - middle), 0.0)
    return n, heft * n, mean, heft * np.square(scale) * square


def _fold_counts(n: Integers, rng: np.random.Generator) -> Integers:
    """As equal as possible, with the larger folds at random."""
    rank = rng.random((len(n), N_FOLDS)).argsort(axis=1)
    return n[:, None] // N_FOLDS + (rank < (n % N_FOLDS)[:, None])


def _drawn(size: Floats, rng: np.random.Generator, skewness: float) -> Floats:
    """The means of blocks of samples with mean 0 and variance 1."""
    there = np.where(size > 0.0, size, 1.0)
    if abs(skewness) < _STRAIGHT:
        return rng.standard_normal(size.shape) / np.sqrt(there)
    shape = 4.0 / (skewness * skewness)  # of a gamma variable with this skewness
    return np.sign(skewness) * (rng.standard_gamma(shape * there) / there - shape) / np.sqrt(shape)


def _even(weight: Floats, mean: Floats) -> FoldMoments:
    """Folds with a fifth of the weight each, as one sample."""
    ones = np.ones(mean.shape)
    share = np.repeat(weight[:, None] / N_FOLDS, N_FOLDS, axis=1)
    return FoldMoments(ones.astype(np.int64), share, share, ones, mean, np.zeros(mean.shape))


def thinned_means(mean: Floats, weight: Floats, seed: int) -> FoldMoments:
    """Five folds of normal means of a known precision, with a fifth of it each."""
    away = np.random.default_rng(seed).standard_normal((len(mean), N_FOLDS))
    away -= away.mean(axis=1, keepdims=True)
    return _even(weight, mean[:, None] + away / np.sqrt(weight[:, None] / N_FOLDS))


def thinned_successes(trials: Integers, successes: Integers, seed: int) -> FoldMoments:
    """Five folds of samples that are 0 or 1."""
    rng = np.random.default_rng(seed)
    n = _fold_counts(trials, rng)
    left, ones = trials.copy(), successes.copy()
    y = np.zeros(n.shape, np.int64)
    small = trials < _MOST
    for k in range(N_FOLDS):
        y[small, k] = rng.hypergeometric(ones[small], (left - ones)[small], n[small, k])
        take, some, of = n[~small, k], ones[~small], left[~small]
        share = take / np.maximum(of, 1)
        deviation = np.sqrt(some * share * (1.0 - share) * (1.0 - some / np.maximum(of, 1)))
        drawn = np.rint(some * share + deviation * rng.standard_normal(len(share))).astype(np.int64)
        y[~small, k] = np.clip(drawn, np.maximum(0, take - (of - some)), np.minimum(some, take))
        left, ones = left - n[:, k], ones - y[:, k]
    weight = n.astype(np.float64)
    mean = y / np.maximum(weight, 1.0)
    return FoldMoments(n, weight, weight, weight, mean, weight * mean * (1.0 - mean))


def thinned_counts(events: Integers, exposure: Floats, seed: int) -> FoldMoments:
    """Five folds of Poisson counts, each with a fifth of the exposure. The mean is the rate."""
    rng = np.random.default_rng(seed)
    left = events.copy()
    y = np.zeros((len(events), N_FOLDS), np.int64)
    for k in range(N_FOLDS):
        y[:, k] = rng.binomial(left, 1.0 / (N_FOLDS - k))
        left -= y[:, k]
    return _even(exposure, y / (exposure[:, None] / N_FOLDS))
