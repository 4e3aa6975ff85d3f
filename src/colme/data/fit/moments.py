"""`fold_moments`: counts, means and sums of squares of each agent's samples by fold, in one pass over the rows.

A sample has a precision p (its weight: its variance is sigma^2 / p) and a decay g (1 for the latest, halved every
half-life). Then

    mean = sum(g p x) / sum(g p),   its variance = sigma^2 sum(g^2 p) / sum(g p)^2,
    E square = sigma^2 (sum(g) - sum(g^2 p) / sum(g p)),   square = sum(g p (x - mean)^2).

All of these merge (Chan et al. 1979), so leaving out a fold needs no second pass.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import kernel
from colme._core.random import key_of, philox
from colme.data.read.table import Table

N_FOLDS = 5
_OLDEST = 200.0
"""Half-lives after which the decay stops, so that squared weights do not underflow."""


class FoldMoments(NamedTuple):
    """Moments of samples: a row per agent, and a column per fold unless the folds are merged."""

    n: NDArray[np.int64]
    weight: NDArray[np.float64]
    """sum(g p)."""
    spread: NDArray[np.float64]
    """sum(g^2 p)."""
    decay: NDArray[np.float64]
    """sum(g)."""
    mean: NDArray[np.float64]
    """NaN without a sample, if the folds are merged."""
    square: NDArray[np.float64]

    @property
    def worth(self) -> NDArray[np.float64]:
        """The effective sample size: the variance of the mean is sigma^2 / worth."""
        return self.weight * self.weight / np.where(self.spread > 0.0, self.spread, 1.0)

    @property
    def freedom(self) -> NDArray[np.float64]:
        """E square / sigma^2: n - 1 for plain samples."""
        return np.maximum(self.decay - self.spread / np.where(self.weight > 0.0, self.weight, 1.0), 0.0)

    def select(self, agents: NDArray[np.bool_]) -> FoldMoments:
        """The moments of some agents."""
        return FoldMoments(self.n[agents], *(part[agents] for part in self[1:]))

    def merged(self, folds: slice | list[int]) -> FoldMoments:
        """The samples of these folds together."""
        some = [part[:, folds] for part in self]
        n, weight, spread, decay = (part.sum(axis=1) for part in some[:4])
        mean = (some[1] * some[4]).sum(axis=1) / np.where(weight > 0.0, weight, 1.0)
        square = (some[5] + some[1] * np.square(some[4] - mean[:, None])).sum(axis=1)
        return FoldMoments(n, weight, spread, decay, np.where(n > 0, mean, np.nan), square)


@kernel
def _fill(start, value, time, weight, rate, forward, k0, k1, n, mass, spread, decay, mean, square):
    n_folds = n.shape[1]
    order = np.empty(n_folds, np.int64)
    for a in range(start.size - 1):
        first, size = start[a], start[a + 1] - start[a]
        for i in range(size):
            if forward:
                f = i * n_folds // size if size >= n_folds else n_folds - size + i
            else:
                if i % n_folds == 0:  # each run of n_folds samples falls into different folds, in random order
                    w0, w1, _, _ = philox(np.uint32(a), np.uint32(i // n_folds), np.uint32(a >> 32), 0, k0, k1)
                    words = np.uint64(w0) << np.uint64(32) | np.uint64(w1)
                    order[:] = np.arange(n_folds)
                    for j in range(n_folds - 1, 0, -1):
                        other = np.int64(words % np.uint64(j + 1))
                        words //= np.uint64(j + 1)
                        order[j], order[other] = order[other], order[j]
                f = order[i % n_folds]
            p = 1.0 if weight is None else weight[first + i]
            g = 1.0
            if rate > 0.0 and time is not None:
                g = math.exp2(-min(rate * (time[first + size - 1] - time[first + i]), _OLDEST))
            w = g * p
            n[a, f] += 1
            mass[a, f] += w
            spread[a, f] += g * w
            decay[a, f] += g
            d = value[first + i] - mean[a, f]
            mean[a, f] += d * (w / mass[a, f])
            square[a, f] += w * d * (value[first + i] - mean[a, f])


def fold_moments(table: Table, *, forward: bool, seed: int = 0, half_life: float | None = None) -> FoldMoments:
    """The moments of every agent by fold: random folds, or periods of time (the last ones, if samples are few)."""
    shape = (len(table.start) - 1, N_FOLDS)
    out = FoldMoments(np.zeros(shape, np.int64), *(np.zeros(shape) for _ in range(5)))
    rate = 0.0 if half_life is None else 1.0 / half_life
    _fill(table.start, table.value, table.time, table.weight, rate, forward, *key_of(seed), *out)
    return out
