"""`AgentPosteriors`: the distribution of each agent's true mean that its interval is made of.

The true mean of an agent is `estimate + scale (Z - center)`, within the bounds of a rate or count, and Z has the shape
of the posterior of the estimator: Student's t where estimates have a standard error, the mixture of the census, beta or
gamma for rates and counts, or the mixture of rates. Cross-validation decides the scale, as it does for intervals. The
posteriors of different agents are taken as independent. What they share, the error of the prior, makes differences
between agents more certain than that, not less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from scipy import special

from colme.support.arrays import Floats, Integers

_NORMAL = 1e5
"""Degrees of freedom from which on Student's t is normal."""
_STEPS = 200
"""Steps of a bisection at most."""
_EXACT, _ROUNDING = 1e-9, 1e-15
"""The error of a quantile relative to the width of its distribution, or to the quantile itself where that is more."""
_EVERY = slice(None)


class Shape(Protocol):
    """Distributions of Z, one per row."""

    def cdf(self, rows: Integers, z: Floats) -> Floats:
        """The probability that Z of each of these rows is at most z."""

    def draw(self, rng: np.random.Generator) -> Floats:
        """One draw of each row."""


class StudentShape(NamedTuple):
    """Student's t, normal for many degrees of freedom."""

    freedom: Floats

    def cdf(self, rows: Integers, z: Floats) -> Floats:
        freedom = self.freedom[rows]
        if len(freedom) and freedom.min() >= _NORMAL:
            return special.ndtr(z)
        return np.where(freedom >= _NORMAL, special.ndtr(z), special.stdtr(np.minimum(freedom, _NORMAL), z))

    def draw(self, rng: np.random.Generator) -> Floats:
        normal = rng.standard_normal(len(self.freedom))
        if self.freedom.min() >= _NORMAL:
            return normal
        return normal / np.sqrt(rng.chisquare(self.freedom) / self.freedom)


def scaled(away: Floats, scale: Floats) -> Floats:
    """Distances from the middle of distributions, in units of their scales: infinite where the scale is zero."""
    return np.divide(away, scale, out=np.where(away >= 0.0, np.inf, -np.inf), where=scale > 0.0)


class AgentPosteriors(msgspec.Struct, frozen=True, eq=False):
    """The posteriors of all agents of a result.

    row       the row of each agent in the other arrays; -1 without a sample
    estimate, center, scale
              of each row: the true mean is `estimate + scale (Z - center)`; the scale is infinite if the noise of
              samples is not known, and zero if there is none
    error     the standard error of the estimate
    noise     the standard error of the agent's own mean
    low, high the bounds of a true mean
    unit      by which all values are multiplied in the end
    """

    shape: Shape
    row: Integers
    estimate: Floats
    center: Floats
    scale: Floats
    error: Floats
    noise: Floats
    low: float = -np.inf
    high: float = np.inf
    unit: float = 1.0

    def cdf(self, value: Floats | float, agents: Integers | slice = _EVERY) -> Floats:
        """The probability that the true mean of each of these agents (default: all) is at most its value; NaN for
        agents without a sample."""
        row = self.row[agents]
        x = np.broadcast_to(np.asarray(value, np.float64) / self.unit, row.shape)
        there = np.flatnonzero(row >= 0)
        row, x, out = row[there], x[there], np.full(len(row), np.nan)
        scale, away = self.scale[row], x - self.estimate[row]
        found = self.shape.cdf(row, self.center[row] + scaled(away, scale))
        found = np.where(scale > 0.0, found, away >= 0.0)
        out[there] = np.where(x >= self.high, 1.0, np.where(x < self.low, 0.0, found))
        return out

    def quantile(self, share: Floats | float, agents: Integers | slice = _EVERY) -> Floats:
        """The values below which the true means of these agents (default: all) lie with these probabilities."""
        index = np.arange(len(self.row))[agents]
        row, out = self.row[index], np.full(len(index), np.nan)
        there = np.flatnonzero(row >= 0)
        wanted = np.broadcast_to(np.asarray(share, np.float64), row.shape)[there]
        middle, width = self.unit * self.estimate[row[there]], self.unit * self.error[row[there]]
        bounds = self.unit * self.low, self.unit * self.high
        out[there] = quantiles(lambda x: self.cdf(x, index[there]), wanted, middle, width, *bounds)
        return out

    def draw(self, rng: np.random.Generator) -> Floats:
        """One draw of the true means of all agents; NaN for agents without a sample."""
        found = self.estimate + self.scale * (self.shape.draw(rng) - self.center)
        every = np.append(np.clip(found, self.low, self.high) * self.unit, np.nan)
        return every[self.row]

    def standard_error(self, agent: int) -> float:
        """Of an agent's own mean; NaN without a sample."""
        row = int(self.row[agent])
        return self.unit * float(self.noise[row]) if row >= 0 else float("nan")


def quantiles(
    cdf: Callable[[Floats], Floats], share: Floats, middle: Floats, width: Floats, low: float = -np.inf,
    high: float = np.inf,
) -> Floats:  # fmt: skip
    """The smallest values at which distribution functions reach these shares, by bisection.

    middle, width  about where each distribution is, and how wide; a distribution of width 0 is a point"""
    reach = np.where(width > 0.0, width, 0.0)
    below, above = (np.clip(middle + side * reach, low, high) for side in (-4.0, 4.0))
    for _ in range(_STEPS):  # until the quantile is between the two
        short, over = cdf(above) < share, cdf(below) >= share
        short &= (above < high) & (reach > 0.0) & np.isfinite(above)
        over &= (below > low) & (reach > 0.0) & np.isfinite(below)
        if not (short.any() or over.any()):
            break
        reach = 2.0 * reach
        below = np.where(over, np.maximum(middle - 4.0 * reach, low), below)
        above = np.where(short, np.minimum(middle + 4.0 * reach, high), above)
    with np.errstate(invalid="ignore"):
        for _ in range(_STEPS):
            half = below + 0.5 * (above - below)
            reached = cdf(half) >= share
            below, above = np.where(reached, below, half), np.where(reached, half, above)
            if not (above - below > np.maximum(_EXACT * width, _ROUNDING * np.abs(half))).any():
                break
    return above


def interval(
    level: float, cdf: Callable[[Floats], Floats], mean: float, width: float, low: float = -np.inf,
    high: float = np.inf,
) -> tuple[float, float]:  # fmt: skip
    """(lower, upper) ends of an interval around the mean that holds a variable with this distribution function with
    probability `level`; the other arguments are those of `quantiles`."""
    tails = np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])
    lower, upper = quantiles(cdf, tails, np.full(2, mean), np.full(2, width), low, high).tolist()
    return min(lower, mean), max(upper, mean)
