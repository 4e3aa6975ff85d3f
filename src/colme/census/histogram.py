"""The histogram of local means: linear binning on a common grid. (Its average over agents: `colme.gossip`.)

Linear binning splits an agent's unit mass between the two bins around its mean, in proportion to nearness, so the mean
of a histogram is the mean of all binned means, exactly. Bins are h wide, a power of two times a unit that all agents
know. Each agent chooses h by the noise of its mean (its sampling variance s^2), so agents of similar noise use the same
grid without any agreement. A grid also has a noise channel, to which agents add s^2 / h^2.

Every bin and channel has an integer code, so a sparse histogram is a sorted array of codes and an array of masses: bin
k of the grid with h = unit 2^e has the code e 2^44 + 2^43 + k, and e 2^44 is the noise channel of that grid. Only
occupied bins are sent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from colme._core.jit import kernel
from colme.noise import BOUNDS, PRODUCT
from colme.support.arrays import Array, Floats, Integers

WIDTH = 0.84
"""The largest bin width in standard deviations of a mean; the smallest is half of it."""
REACH = 2**40
"""Bins on either side of zero. Means beyond fall into the last bin."""
NEGLIGIBLE = 1e-8
"""Masses below this are set to zero and not sent."""
_ONE = 1.001
"""The mass of one agent, with room for the rounding of float32."""
_LARGEST_NOISE = 4.0 / WIDTH**2 * _ONE
"""The largest s^2 / h^2, since bins are wider than half of WIDTH."""
_LARGEST_EXPONENT = 200
"""The largest |e| = |log2(h / unit)|."""
_BITS, _VARIANCES = 44, 1 << 16
"""Bits of a code below e; the e of the channels of sample variances."""
_MIDDLE = 1 << (_BITS - 1)
_CHANNEL = (_VARIANCES << _BITS) + _MIDDLE
"""The code of the first channel of sample variances."""
NO_CODE = np.iinfo(np.int64).min
"""Sentinel: no bin."""


def width_exponents(noise: Any, unit: float) -> Any:
    """e = log2(h / unit) for means with this sampling variance."""
    return np.floor(np.log2(WIDTH * np.sqrt(noise) / unit)).astype(np.int64)


def bin_means(mean: Any, noise: Any, unit: float) -> tuple[Any, Any]:
    """The contributions of agents with these means and noises, equation (2): codes and masses of shape (..., 3), the
    noise channel and two bins."""
    e = width_exponents(noise, unit)
    h = unit * np.exp2(e)
    y = np.clip(mean / h, -float(REACH), float(REACH))
    k = np.floor(y)
    channel = e << _BITS
    first = channel + _MIDDLE + k.astype(np.int64)
    codes = np.stack([channel, first, first + 1], axis=-1)
    masses = np.stack([noise / (h * h), 1.0 - (y - k), y - k], axis=-1)
    return codes, masses


def sum_by_code(codes: Any, masses: Any) -> tuple[Integers, Floats]:
    """Contributions added up: sorted codes, each once, and the masses of each."""
    found = np.unique(codes)  # return_inverse would take four times as long as to search
    summed = np.bincount(np.searchsorted(found, codes).ravel(), masses.ravel(), len(found))
    return found, summed.astype(np.float64, copy=False)


def histogram_of(mean: Any, noise: Any, unit: float) -> tuple[Integers, Floats]:
    """The histogram of all these means, computed in one place: its codes, and the average of all contributions."""
    codes, masses = sum_by_code(*bin_means(mean, noise, unit))
    return codes, masses / len(mean)


def in_channels(first: int, masses: Any) -> tuple[Any, Any]:
    """Codes of the channels `first`, `first` + 1, .. of sample variances (`colme.noise`), and these masses in them."""
    return np.broadcast_to(_CHANNEL + first + np.arange(masses.shape[-1]), masses.shape), masses


def channel(codes: Integers, masses: Array, k: int) -> Floats:
    """Channel k of sample variances of each row of masses; zeros where there is none."""
    found = np.searchsorted(codes, _CHANNEL + k)
    there = found < len(codes) and codes[found] == _CHANNEL + k
    return masses[:, found].astype(np.float64) if there else np.zeros(len(masses))


def _parts(codes: Integers) -> tuple[Any, Any, Any, Any]:
    """The e and k of codes, which of them are channels of sample variances, and which are bins."""
    e, k = codes >> _BITS, (codes & ((1 << _BITS) - 1)) - _MIDDLE
    variances = e == _VARIANCES
    return e, k, variances, ~variances & (k != -_MIDDLE)


def plausible(codes: Integers, masses: Array, ballots: float = 1.0) -> bool:
    """Whether honest nodes that only average could have sent this, if each casts so many ballots at most: no negative
    mass (but of products), and noise that fits the bins of its grid. A dishonest node within these limits weighs as
    much as its neighbors' average."""
    e, k, variances, bins = _parts(codes)
    signed = variances & (k >= PRODUCT)
    return bool(
        np.all(variances | (np.abs(e) <= _LARGEST_EXPONENT))
        and np.all(~bins | (np.abs(k) <= REACH + 1))
        and np.all(~variances | ((k >= 0) & (k < len(BOUNDS))))
        and np.all(masses[~signed] >= -NEGLIGIBLE)
        and np.all(masses[~variances & ~bins] <= _LARGEST_NOISE * ballots)
        and np.all(np.abs(masses[variances]) <= _ONE * ballots * BOUNDS[k[variances]])
        and masses[bins].sum() <= _ONE * ballots
    )


def ballots_in(codes: Integers, masses: Array) -> float:
    """The means in a histogram per node: its mass, if that is more than one."""
    *_, bins = _parts(codes)
    total = float(masses[bins].sum(dtype=np.float64))
    return total if total > _ONE else 1.0


def clip_masses(codes: Integers, masses: Array, ballots: float = 1.0) -> Array:
    """These masses with negative ones set to zero (but products), those of channels of sample variances to at most
    their bounds, and the bins, if they then sum to more than the ballots of a node, scaled to sum to that."""
    _, k, variances, bins = _parts(codes)
    clipped = np.where(variances & (k >= PRODUCT), masses, np.maximum(masses, masses.dtype.type(0.0)))
    bounds = ballots * BOUNDS[k[variances]]
    clipped[variances] = np.clip(clipped[variances], -bounds, bounds)
    total = clipped[bins].sum(dtype=np.float64)
    if total > ballots:
        clipped[bins] = clipped[bins] / (total / ballots)
    return clipped


class Bins(NamedTuple):
    """What the columns of an array of masses are, decoded from their codes."""

    center: Floats
    """NaN for channels."""
    squared_width: Floats
    """h^2."""
    grid: Integers
    """The grid of each column: grids in use are numbered from 0, by width."""

    @classmethod
    def of(cls, codes: Integers, unit: float) -> Bins:
        e, k, variances, bins = _parts(codes)
        h = unit * np.exp2(np.where(variances, 0.0, e))
        center = np.where(bins, k * h, np.nan)
        return cls(center, h * h, np.unique(e, return_inverse=True)[1].astype(np.int64))


@kernel
def disagreement(masses, average, center, n, out):
    """out[a] = n times the mean over bins of (z_a - z)^2 / z: how far agent a's histogram z_a is from the average one
    z, in units of the sampling variance of a histogram of n agents."""
    total, bins = 0.0, 0
    for c in range(average.size):
        if center[c] == center[c] and average[c] > 0.0:
            total += average[c]
            bins += 1
    for a in range(masses.shape[0]):
        mass = away = 0.0
        for c in range(average.size):
            if center[c] == center[c]:
                mass += masses[a, c]
        for c in range(average.size):
            if center[c] == center[c]:
                d = masses[a, c] / max(mass, 1e-9) - average[c] / total
                away += d * d / max(average[c] / total, 1.0 / n)
        out[a] = n * away / max(bins, 1)
