"""The noise of own means, learned from all samples together: what a census needs to know where sigma is not told.

At a vote the model keeps of each agent its mean X0, its estimate y0, and the number n0 and the sum S0 of squared
deviations of its samples. Up to the next vote k samples of mean x come and add q to S0. Each is compared with the mean
of those before it, so that q has the expectation k sigma^2, on average over agents. Over all agents, with v the
variance of a sample,

(1) variance   v(y) = a + b y + c y^2, where q' / k depends on y0 by more than 3 standard errors and by a factor of 1.3
               between some two agents, else the pooled one; q' = (q - (x - X0) (y0 - X0) n0 k / (n0 + k)) times what
               makes its sum that of q: a mean that is far out is so by its error, which adds to q, and its estimate
               knows
(2) skewness   gamma = mean of (q / v - k) (x - X0) / sqrt(v), as far as the same product of numbers clipped at 3
               deviations, which outliers do not move, is beyond two standard errors
(3) kurtosis   kappa = sum of (q / v - k)^2 / sum of k - 2, in excess of the normal one

What follows from these is in `colme.noise`. A told sigma is believed unless the mean of q / k contradicts it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from colme._core.jit import helper, kernel
from colme.census.posterior import first_row, posterior_moments
from colme.dependence import factor_at
from colme.noise import (
    CLIP,
    MODERATION,
    SCALE_ERRORS,
    SCALE_TOLERANCE,
    certain_part,
    skewed_moderation,
    variance_of_mean,
    worth_of,
)
from colme.online.agents import AgentTable
from colme.online.kernel import (
    EVENTS,
    FREEDOM,
    HIGH,
    LOW,
    LOW_OF_OWN,
    MEAN,
    SQUARE,
    SQUARES,
    THEN_ESTIMATE,
    THEN_FREEDOM,
    THEN_MEAN,
    THEN_SQUARE,
    THEN_WEIGHT,
    WEIGHT,
    WEIGHT_2,
    effective,
    freedom_of,
    keep,
    kept_part,
)
from colme.support.arrays import Floats, Integers

BENT = 3.0
"""Standard errors by which a variance must depend on the estimate,"""
UNEQUAL = 1.3
"""and the ratio of the largest v(y) to the smallest."""
FEWEST = 30.0
"""Judged batches of samples before anything but the pooled variance is learned."""
_SINGULAR = 1e-10
"""Determinant of a regression, with ones on the diagonal, that is not tried."""
LEAST = 0.02
"""The smallest v(y), in pooled variances."""
NUMBER, SAMPLES, GAINED, SCATTER, FOURTH, THIRD, CLIPPED, CLIPPED_2 = range(8)
"""Entries of `sums`: batches, k, q, (q - k times the pooled variance)^2, and what (2) and (3) need. After these, for
(1) and with t = (y0 - center) / scale: sums of k t^j / v^2 (j = 0 to 4), q' t^j / v^2 (to 2), (q' - k v)^2 t^j / v^4,
and of q / v^2; here q' before it is scaled."""
_LEVERS, _GAINS, _ERRORS, _WHOLE, _SUMS = 8, 13, 16, 21, 22
CENTER, SCALE, FROM, TO, CONSTANT, SLOPE, CURVE = range(7)
"""Entries of a curve, v(y) = CONSTANT + SLOPE t + CURVE t^2; t is kept between FROM and TO, the range of estimates."""


class NoiseModel(NamedTuple):
    """What kernels need to know of the noise."""

    sigma: float
    """The told one, if it is believed; else NaN."""
    average: float
    """The pooled variance of a sample; NaN: not known yet."""
    moderation: float
    """m of `colme.noise`."""
    curve: Floats
    """v(y), in units of its own."""
    factors: Floats
    """Of the variances of means, where samples depend on each other (`colme.dependence.learn`)."""


@helper
def is_curved(curve):
    return curve[SLOPE] != 0.0 or curve[CURVE] != 0.0


@helper
def variance_at(curve, estimate, average):
    """v(y): the pooled variance, unless it depends on the estimate."""
    if not is_curved(curve) or estimate != estimate:
        return average
    t = min(max((estimate - curve[CENTER]) / curve[SCALE], curve[FROM]), curve[TO])
    return max(curve[CONSTANT] + t * (curve[SLOPE] + t * curve[CURVE]), LEAST * average)


@helper
def variance_of(row, noise, estimate):
    """The variance of the mean of one agent; infinite where nothing is known."""
    if row[WEIGHT] == 0.0:
        return np.inf
    n = effective(row[WEIGHT], row[WEIGHT_2])
    if noise.sigma == noise.sigma:
        return noise.sigma * noise.sigma / n * factor_at(noise.factors[LOW], n)
    if noise.average != noise.average:
        return np.inf
    _, square = freedom_of(row)
    v = variance_at(noise.curve, estimate, noise.average)
    return max(0.0, variance_of_mean(square, n, v, noise.moderation)) * factor_at(noise.factors[LOW_OF_OWN], n)


@helper
def excess_of(row, noise):
    """By what the variance for intervals exceeds that to shrink by, relative to it."""
    if row[WEIGHT] == 0.0:
        return 0.0
    n, own = effective(row[WEIGHT], row[WEIGHT_2]), 0 if noise.sigma == noise.sigma else LOW_OF_OWN
    return factor_at(noise.factors[HIGH + own], n) / factor_at(noise.factors[LOW + own], n) - 1.0


@helper
def posterior_of(row, noise, prior, origin, p):
    """(variance of the own mean, estimate, variance of the estimate) of one agent, given the prior of all
    (`first_row`). Where the variance depends on the estimate, that of the pooled one is the first guess."""
    guess = s2 = y = spread = np.nan
    for _ in range(2 if noise.sigma != noise.sigma and is_curved(noise.curve) else 1):
        s2 = variance_of(row, noise, guess)
        y, spread = posterior_moments(row[MEAN] - origin, s2, prior, p)
        guess = y + origin
    return s2, y + origin, spread


@kernel
def fill_variances(agents, which, noise, prior, origin, out):
    """out[i] = variance of the own mean of agent which[i]."""
    prior_row, p = first_row(prior), np.empty(prior.weight.shape[1])
    curved = noise.sigma != noise.sigma and is_curved(noise.curve)
    for i in range(which.size):
        row = agents[which[i]]
        if curved:
            out[i], _, _ = posterior_of(row, noise, prior_row, origin, p)
        else:
            out[i] = variance_of(row, noise, np.nan)


@kernel
def keep_posteriors(agents, judges, noise, prior, origin, found, few, trust, snapshots, moments):
    """Snapshots of these agents, whose variances of own means, estimates and variances of these are `found` or, where
    there are none, follow from the prior; and moments[s], over agents of stratum s (0: less than `few` samples) with a
    known variance V of the own mean: their number, and the sums of V, d^2, d^4, d = y - X, and of the variance that
    intervals claim."""
    prior_row, p = first_row(prior), np.empty(prior.weight.shape[1])
    for i in range(judges.size):
        row, out = agents[judges[i]], snapshots[judges[i]]
        if found.size > 0:
            own, y, claimed = found[0, i], found[1, i], found[2, i]
        else:
            own, y, claimed = posterior_of(row, noise, prior_row, origin, p)
        weight, excess = min(claimed / own, 1.0) if 0.0 < own < np.inf else 1.0, excess_of(row, noise)
        keep(row, y, weight, out)
        claimed, own = claimed * (1.0 + excess * weight), own * (1.0 + excess)
        s, d = 0 if row[WEIGHT] < few else 1, y - row[MEAN]
        if d == d and own < np.inf:
            moments[s, 0] += 1.0
            moments[s, 1] += own
            moments[s, 2] += d * d
            moments[s, 3] += d * d * d * d
            moments[s, 4] += ((1.0 - trust[s]) * math.sqrt(own) + trust[s] * math.sqrt(claimed)) ** 2


@kernel
def fill_excess(agents, which, noise, out):
    """out[i] = `excess_of` agent which[i]."""
    for i in range(which.size):
        out[i] = excess_of(agents[which[i]], noise)


@kernel
def compare(agents, judges, snapshots, half_life, average, curve, factors, sums):
    """Add what the samples since the last vote show to `sums`; curve[FROM], curve[TO] = the range of all estimates
    then."""
    curve[FROM], curve[TO] = np.inf, -np.inf
    for i in range(judges.size):
        row, then = agents[judges[i]], snapshots[judges[i]]
        mean, estimate, n = then[THEN_MEAN], then[THEN_ESTIMATE], then[THEN_WEIGHT]
        if not (n > 0.0 and estimate == estimate):
            continue
        t = (estimate - curve[CENTER]) / curve[SCALE]
        curve[FROM], curve[TO] = min(curve[FROM], t), max(curve[TO], t)
        kept = kept_part(row, then, half_life)
        k = row[WEIGHT] - kept * n
        gained = row[SQUARE] - kept * then[THEN_SQUARE]
        freedom = row[WEIGHT] - row[WEIGHT_2] / row[WEIGHT] - kept * then[THEN_FREEDOM]
        # means follow dependent samples, so that squares are smaller
        freedom -= factor_at(factors[HIGH], row[WEIGHT]) - 1.0 - kept * (factor_at(factors[HIGH], n) - 1.0)
        if not (k > 0.0 and freedom > 0.0):
            continue
        v = variance_at(curve, estimate, average)
        away = row[WEIGHT] / k * (row[MEAN] - mean)
        more = gained / v - freedom
        sums[NUMBER] += 1.0
        sums[SAMPLES] += freedom
        sums[GAINED] += gained
        sums[SCATTER] += (gained - freedom * average) ** 2
        sums[FOURTH] += more * more
        sums[THIRD] += more * away / math.sqrt(v)
        clipped = _clip(more / math.sqrt(2.0 * freedom)) * _clip(away / math.sqrt(v * (1.0 / k + 1.0 / n)))
        sums[CLIPPED] += clipped
        sums[CLIPPED_2] += clipped * clipped
        if estimate == mean:
            continue  # nothing is known about the error of the mean
        power, weight = 1.0, 1.0 / (v * v)
        sums[_WHOLE] += weight * gained
        gained -= away * (estimate - mean) * kept * n * k / row[WEIGHT]
        error = (weight * (gained - freedom * v)) ** 2
        for j in range(5):
            sums[_LEVERS + j] += weight * freedom * power
            sums[_ERRORS + j] += error * power
            if j < 3:
                sums[_GAINS + j] += weight * gained * power
            power *= t


@helper
def _clip(x):
    return min(max(x, -CLIP), CLIP)


class OnlineNoise:
    """What is known about the noise of own means."""

    saved = (
        "sums", "curve", "size", "events", "moderation", "part", "skewness", "kurtosis"
    )  # fmt: skip

    def __init__(self) -> None:
        self.sums = np.zeros(_SUMS)
        self.curve = np.zeros(7)
        self.size, self.events = 1.0, 0  # samples at hand and events at the last vote
        self.moderation = MODERATION  # m of `colme.noise`
        self.part = 1.0  # of all agents that a mixture counts
        self.skewness = self.kurtosis = 0.0

    def model(self, table: AgentTable, sigma: float, factors: Floats) -> NoiseModel:
        """As kernels take it, if sigma was told (else NaN)."""
        believed = math.nan if self.contradict(sigma) else sigma
        return NoiseModel(believed, _average(table), self.moderation, self.curve, factors)

    def learn(
        self, table: AgentTable, judges: Integers, half_life: float, size: float, inverse: float, factors: Floats
    ) -> None:  # fmt: skip
        """Equations (1) to (3), from the samples since the last vote; `size` and `inverse` as in `count_samples`."""
        average, events = _average(table), int(table.counters[EVENTS])
        self.sums *= self.size / (self.size + max(events - self.events, 0))  # the last of n samples counts n times
        self.size, self.events = max(size, 1.0), events
        if not average > 0.0:
            return
        if self.curve[SCALE] == 0.0:
            self.curve[CENTER], self.curve[SCALE] = np.median(table.agents[table.present, MEAN]), math.sqrt(average)
        curve = self.curve.copy()
        compare(table.agents, judges, table.snapshots, half_life, average, curve, factors, self.sums)
        if curve[FROM] > curve[TO]:  # there were no estimates
            curve[[FROM, TO]] = self.curve[[FROM, TO]]
        self.skewness = self.kurtosis = 0.0
        curve[CONSTANT:] = 0.0
        if self.sums[NUMBER] >= FEWEST:
            curve[CONSTANT:] = _polynomial(self.sums)
            curve[CONSTANT:] *= _is_unequal(curve, average)
            sure = certain_part(self.sums[CLIPPED], self.sums[CLIPPED_2])
            self.skewness = float(sure * self.sums[THIRD] / self.sums[NUMBER])
            self.kurtosis = max(0.0, self.sums[FOURTH] / self.sums[SAMPLES] - 2.0)
        self.curve = curve
        n_agents = len(table.present)
        self.moderation = max(MODERATION, skewed_moderation(self.skewness, n_agents / inverse))
        self.part = worth_of(self.skewness, self.kurtosis, n_agents, inverse)

    def contradict(self, sigma: float) -> bool:
        """Whether the samples contradict this sigma."""
        if not self.sums[NUMBER] >= FEWEST:
            return False
        error = math.sqrt(self.sums[SCATTER]) / self.sums[SAMPLES]
        off = abs(self.sums[GAINED] / self.sums[SAMPLES] - sigma * sigma)
        return off > max(SCALE_ERRORS * error, SCALE_TOLERANCE * sigma * sigma)


def _average(table: AgentTable) -> float:
    """The pooled variance of a sample; NaN as long as it is not known."""
    return float(table.pool[SQUARES] / table.pool[FREEDOM]) if table.pool[FREEDOM] >= 1.0 else math.nan


def _is_unequal(curve: Floats, average: float) -> bool:
    """Whether the variances of some two agents differ by the factor that matters."""
    t = np.linspace(curve[FROM], curve[TO], 9)
    v = np.maximum(curve[CONSTANT] + t * (curve[SLOPE] + t * curve[CURVE]), LEAST * average)
    return bool(v.max() > UNEQUAL * v.min())


def _polynomial(sums: Floats) -> Floats:
    """The coefficients of equation (1): those of the highest degree whose last one is beyond its standard errors, all
    zero if none is."""
    found = np.zeros(3)
    for degree in (1, 2):
        size = degree + 1
        at = np.add.outer(np.arange(size), np.arange(size))
        levers, errors = sums[_LEVERS + at], sums[_ERRORS + at]
        scale = np.sqrt(np.diag(levers))
        with np.errstate(all="ignore"):
            scaled = levers / np.outer(scale, scale)
        if not (np.isfinite(scaled).all() and np.linalg.det(scaled) > _SINGULAR):
            break
        inverse = np.linalg.inv(scaled) / np.outer(scale, scale)
        gains = sums[_GAINS : _GAINS + size] * (sums[_WHOLE] / sums[_GAINS])
        coefficients, error = inverse @ gains, inverse[degree] @ errors @ inverse[degree]
        if abs(coefficients[degree]) > BENT * math.sqrt(error):
            found[:] = 0.0
            found[:size] = coefficients
    return found
