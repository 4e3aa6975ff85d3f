"""A trial: samples to learn from, and targets that estimates are scored on; how errors become ratios and verdicts.

The target of a real agent is the mean of its held-out samples, which has a noise of its own of variance s^2 / m. As in
`benchmarks.held_out`, that variance is subtracted from every squared error, for all peers alike. What is left is the
error against the true mean, on average; for a single agent it may be negative.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.held_out import split
from benchmarks.peers.estimators import NORMAL, Estimates, Samples
from colme.data.read.table import Table

Floats = NDArray[np.float64]
TIE = 2.0
"""Standard errors of the difference up to which two peers tie."""
SMALL = 0.01
"""Differences below this share of the local means' error are counted apart: they are of no use to anybody."""


class Trial(NamedTuple):
    """Samples of every agent, and the target for its estimate with the variance of that target."""

    samples: Samples
    target: Floats
    noise: Floats

    def losses(self, estimate: Floats) -> Floats:
        """The squared error of each agent, without the noise of its target."""
        return np.asarray(np.square(estimate - self.target) - self.noise)

    def covered(self, estimates: Estimates) -> float | None:
        """The share of targets within the intervals, which are widened by the noise of the target: radii of the same
        level are added as variances are, which is exact for normal errors."""
        if estimates.lower is None or estimates.upper is None:
            return None
        side = np.where(self.target < estimates.estimate, estimates.lower, estimates.upper)
        radius = np.hypot(side - estimates.estimate, NORMAL * np.sqrt(self.noise))
        return float((np.abs(self.target - estimates.estimate) <= radius).mean())


def trial_of(table: Table, n: int, *, seed: int | None, held_out: int) -> Trial:
    """n samples of every agent that has enough, random ones or, without a seed, the first ones."""
    part = split(table, n, seed=seed, held_out=held_out)
    n_agents = len(part.agents)
    time = part.train.time
    if time is not None and np.ptp(time) == 0:  # one period, whose samples have no order
        time = None
    samples = Samples(np.repeat(np.arange(n_agents), n), part.train.value, n_agents, time)
    return Trial(samples, part.mean, part.noise)


class Compared(NamedTuple):
    """A number with its standard error, which is NaN if there is only one draw."""

    value: float
    se: float


def ratio(error: Floats, local: Floats) -> Compared:
    """Sum of errors over sum of the local means' errors; draws are seeds or agents.

    The ratio of sums is steadier than the mean of ratios: a draw whose local means are accurate by luck counts little.
    Its standard error is that of the residuals, error - ratio * local, which vary together (delta method)."""
    value = float(error.sum() / local.sum())
    return Compared(value, _se(error - value * local, float(local.mean())))


def difference(error: Floats, other: Floats, local: Floats) -> Compared:
    """(error - other) / local, of the same draws: below 0, the first is more accurate."""
    value = float((error - other).sum() / local.sum())
    return Compared(value, _se(error - other - value * local, float(local.mean())))


def _se(residuals: Floats, unit: float) -> float:
    if len(residuals) < 2:
        return float("nan")
    return float(np.std(residuals, ddof=1)) / len(residuals) ** 0.5 / abs(unit)


def verdict(found: Compared) -> str:
    """Of the first against the second: better, worse, tie; "" if a single draw cannot tell."""
    if not np.isfinite(found.se):
        return ""
    if abs(found.value) <= TIE * found.se:
        return "tie"
    return "better" if found.value < 0.0 else "worse"
