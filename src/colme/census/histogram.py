"""How a census is taken: ballots on a common grid, and one round of consensus on vectors of votes.

A ballot puts one unit of weight on the two bins around an agent's mean, in proportion to its nearness (so the mean of
all votes is the mean of all means, exactly). Bins are h wide, a power of two times a unit that everybody knows, chosen
by the agent's own noise, so agents of like noise share bins without a word. Bin k of width e = log2(h / unit) has one
number, its code; codes of a width begin with its noise channel, where agents add the variance of their means.

Only occupied bins are sent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import kernel

WIDTH = 0.84
"""Bins are at most so wide, and more than half of it, in standard deviations of a mean."""
REACH = 2**20
"""Bins to either side of zero; votes beyond fall into the last."""
NOTHING = 1e-8
"""Less than this is not sent."""
_ONE = 1.001
"""A vote, and what float32 may round it to."""
_NOISIEST = 4.0 / WIDTH**2 * _ONE
"""Variance of a mean over h^2, at most: bins are more than half of WIDTH."""
_WIDEST = 200
"""Binary orders of magnitude between the unit and any bin in use."""
_BITS, _SPECIAL = 44, 1 << 16
_MIDDLE = 1 << (_BITS - 1)


def bin_widths(noise: Any, unit: float) -> Any:
    """log2(h / unit) for means of this variance."""
    return np.floor(np.log2(WIDTH * np.sqrt(noise) / unit)).astype(np.int64)


def cast(mean: Any, noise: Any, unit: float) -> tuple[Any, Any]:
    """The ballots of agents with these means and variances: codes and values, (..., 3): noise channel and two bins."""
    e = bin_widths(noise, unit)
    h = unit * np.exp2(e)
    y = np.clip(mean / h, -float(REACH), float(REACH))
    k = np.floor(y)
    base = e * (1 << _BITS) + _MIDDLE + k.astype(np.int64)
    codes = np.stack([e * (1 << _BITS), base, base + 1], axis=-1)
    values = np.stack([noise / (h * h), 1.0 - (y - k), y - k], axis=-1)
    return codes, values


def count_all(mean: Any, noise: Any, unit: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The census of all these agents, counted in one place: its codes, and the mean of all ballots."""
    ballots, values = cast(mean, noise, unit)
    codes, column = np.unique(ballots, return_inverse=True)
    return codes, np.bincount(column.ravel(), values.ravel()) / len(mean)


def cast_variance(square: Any, count: Any) -> tuple[Any, Any]:
    """What agents say of the variance of their samples: the channel of variances, and that of agents who have one."""
    codes = np.broadcast_to(_SPECIAL * (1 << _BITS) + _MIDDLE + np.arange(2), (*np.shape(square), 2))
    return codes, np.stack([square / (count - 1.0), np.ones_like(square)], axis=-1)


def common_variance(codes: NDArray[np.int64], votes: NDArray[Any], before: Any) -> NDArray[np.float64]:
    """The mean variance of everybody's samples, row by row of votes; as before where nobody told of any."""
    found = np.searchsorted(codes, _SPECIAL * (1 << _BITS) + _MIDDLE)
    if found + 1 >= len(codes):
        return np.broadcast_to(before, len(votes)).astype(np.float64)
    total, agents = votes[:, found].astype(np.float64), votes[:, found + 1].astype(np.float64)
    return np.where((agents > NOTHING) & (total > 0.0), total / np.maximum(agents, NOTHING), before)


def plausible(codes: NDArray[np.int64], values: NDArray[Any]) -> bool:
    """Whether honest agents who only average could have got here: no vote below zero, at most one in all, and noise
    that fits the bins it is told for. Who lies within these limits weighs as much as its neighbors' average."""
    e, k = codes >> _BITS, (codes & ((1 << _BITS) - 1)) - _MIDDLE
    special, noise = e == _SPECIAL, k == -_MIDDLE
    bins = ~special & ~noise
    return bool(
        np.all(special | (np.abs(e) <= _WIDEST))
        and np.all(~bins | (np.abs(k) <= REACH + 1))
        and np.all(~special | (k == 0) | (k == 1))
        and np.all(values >= -NOTHING)
        and np.all(values[noise & ~special] <= _NOISIEST)
        and np.all(values[special & (k == 1)] <= _ONE)
        and values[bins].sum() <= _ONE
    )


def at_most_one(codes: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
    """These votes, or if some are below zero or all together more than one, the nearest that are `plausible`."""
    votes = np.maximum(values, values.dtype.type(0.0))
    k = codes & ((1 << _BITS) - 1)
    bins = (codes >> _BITS != _SPECIAL) & (k != 0)
    total = votes[bins].sum(dtype=np.float64)
    if total > 1.0:
        votes[bins] = votes[bins] / total
    return votes


class Bins(NamedTuple):
    """What codes mean, column by column: noise channels have center NaN."""

    center: NDArray[np.float64]
    square: NDArray[np.float64]
    """h^2."""
    width: NDArray[np.int64]
    """Which of the widths in use, from 0."""

    @classmethod
    def of(cls, codes: NDArray[np.int64], unit: float) -> Bins:
        e, k = codes >> _BITS, (codes & ((1 << _BITS) - 1)) - _MIDDLE
        h = unit * np.exp2(np.where(e == _SPECIAL, 0.0, e))
        center = np.where((k == -_MIDDLE) | (e == _SPECIAL), np.nan, k * h)
        return cls(center, h * h, np.unique(e, return_inverse=True)[1].astype(np.int64))


@kernel
def share_votes(indptr, indices, weights, now, before, momentum, first, heard):
    """One round: z <- momentum (W z - z_before) + z_before, written over `before`; W z alone in the first round.

    heard[j]: whether the message on slot j arrived; a neighbor that is not heard is replaced by oneself. Returns how
    many numbers were sent to each neighbor, on average over all edges."""
    n, n_bins = now.shape
    number, total = now.dtype.type, np.empty_like(now[0])
    sent = 0
    for a in range(n):
        own = number(1.0)
        total[:] = number(0.0)
        for j in range(indptr[a], indptr[a + 1]):
            if heard is not None and not heard[j]:
                continue
            weight = weights[j]
            own -= weight
            for c in range(n_bins):
                total[c] += weight * now[indices[j], c]
        occupied = 0
        for c in range(n_bins):
            occupied += 1 if now[a, c] != number(0.0) else 0
            value = total[c] + own * now[a, c]
            if not first:
                value = momentum * (value - before[a, c]) + before[a, c]
            before[a, c] = value if abs(value) > NOTHING else number(0.0)
        sent += occupied * (indptr[a + 1] - indptr[a])
    return sent / max(indices.size, 1)


@kernel
def disagreement(votes, average, center, n, out):
    """out[a] = n times the mean over bins of (z_a - z)^2 / z: how far agent a's census is from the average one, in
    units of the sampling variance of a census of n."""
    total, bins = 0.0, 0
    for c in range(average.size):
        if center[c] == center[c] and average[c] > 0.0:
            total += average[c]
            bins += 1
    for a in range(votes.shape[0]):
        mass = away = 0.0
        for c in range(average.size):
            if center[c] == center[c]:
                mass += votes[a, c]
        for c in range(average.size):
            if center[c] == center[c]:
                d = votes[a, c] / max(mass, 1e-9) - average[c] / total
                away += d * d / max(average[c] / total, 1.0 / n)
        out[a] = n * away / max(bins, 1)
