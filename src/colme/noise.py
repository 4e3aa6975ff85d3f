"""What is known of the variance of an agent's mean: by simulator, nodes, online model, tables, tests and the guard.

(1) An agent with n samples and a sum of squared deviations S that does not know sigma takes

        (m v + S) / (m + n - 1) / n,        m = max(4, 2 |gamma| sqrt(N n)),

    where v is the average sample variance of all N agents, which so counts like m degrees of freedom beside the
    agent's own. The own variance of skewed samples errs together with their mean: averages with weights 1 / variance
    are off by gamma sigma / n if m is small. With this m it is at most half the standard error of the mean of N
    agents. Before agents know the skewness gamma, m is at least 15.

(2) A mixture counts N / (1 + kappa / (2 n) + N gamma^2 / (18 n)) agents. Means of n samples have the excess kurtosis
    kappa / n, which makes variances as uncertain as fewer agents would, and the skewness gamma / sqrt(n), which gives
    false components about gamma^2 / (12 n) of log-likelihood per agent. So many agents cannot tell that the noise is
    not normal (Miller and Dunson 2019, "Robust Bayesian inference via coarsening").

(3) A sigma that is told may be only a bound, or wrong. Agents average r = s^2 / sigma^2, and if the average is off 1 by
    more than 4 standard errors and by more than 3 %, they multiply sigma^2 by it.

(4) The variance of 0/1 samples of mean m is m (1 - m), that of Poisson counts m, that of normal samples does not depend
    on m: all are quadratic functions of m. Agents fit one to their sample variances. A sample variance and a mean of
    the same skewed samples err together, so these come from different samples: the mean X1 and variance s1^2 from those
    before the last check, X2 and s2^2 from those since. Given the true mean they are independent, and for the right a,
    b and c

        sum over agents of z (s2^2 - a - b X2 - c (X2^2 - s2^2 / n2)),        z = 1, X1, X1^2 - s1^2 / n1,

    have the expectation zero: an instrumental-variable regression. Agents average the products in these three equations
    in a census, and what gamma and kappa are averages of. They use the function if X1 explains variances by more than 4
    standard errors, or its square by 5, in the place of v and S; and they only ask if sample variances differ by more
    than those of normal samples do; else nothing is sent. Where the samples of all agents are 0 or 1, the function is
    known: m (1 - m).

    The mean of n samples of an exponential family has the skewness v' / sqrt(n v), where v' is the slope of v. Beyond 1
    (n samples hold less than one 1, say) normal distributions are far off, and v'^2 / n is taken for v.

(5) Where samples depend on each other, `Factors` of `colme.dependence` multiply the variance.

The online model, where everybody's samples are at hand, finds v, gamma and kappa by itself (`colme.online.noise`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from colme._core.jit import at, equation, kernel
from colme.support.arrays import Array, Floats, Integers, Mask

SCALE_ERRORS, SCALE_TOLERANCE = 4.0, 0.03
"""A known sigma is corrected if the average r is off 1 by more than both: standard errors, and this."""
EARLY, EARLY_ERRORS = 8, 2.0
"""With fewer samples so many standard errors are enough to make sigma smaller."""
ALIKE = 0.25
"""The largest squared variation of r between agents, beyond that of normal samples, if they are alike."""
UNEVEN = 1.25
"""The variance of r between agents that are uneven, over that of normal samples; and two standard errors."""
FEWEST_RATIOS = 8.0
"""Agents whose r are averaged at least."""
ROUNDING = 1e-6
"""How far sums may be off that would be equal without rounding."""
CLIP, DOUBT = 3.0, 2.0
"""Deviations at which numbers are clipped to see whether there is a skewness at all, and the standard errors that
this must show."""
MISFIT = 1.5
"""Log-likelihood that the skewness of means may give to false components."""
MODERATION, FIRST_MODERATION, MOST_MODERATION = 4.0, 15.0, 60.0
"""m at least: in general, and before agents know whether samples are skewed. And at most, in a census over gossip: the
average of variances that are infinite tells nothing."""
GUESS = 4.0, 6.0
"""Skewness and excess kurtosis that agents count with as long as variances are uneven and they do not know why."""
_TINY = 1e-300
CONSTANT = np.array([0.0, 1.0, 1.0, 0.0, 0.0])
"""No function. Others have a center, a scale and three coefficients; with u = (m - center) / scale, the variance of
samples of mean m is a polynomial of u, relative to the average variance."""
LEAST, MOST = 0.02, 50.0
"""The smallest and the largest variance, relative to the average one."""
REACH = 4.0
"""The largest |u|: beyond, a function has the value that it has there."""
EVIDENCE, SQUARE_EVIDENCE = 16.0, 25.0
"""Squared standard errors by which X1 must explain variances, or its square beyond it."""
BENT = 9.0
"""The same for its square, if the function is to have one."""
WEAK = 0.05
"""The smallest part of the variance of an instrument that is due to true means."""
FEWEST = 30.0
"""Agents whose variances are used at least."""
LARGEST = 100.0
"""The largest s2^2, in units of the average variance."""
LARGEST_RATIO = 100.0
"""The largest s^2 / sigma^2 that an agent contributes."""
FEWEST_PARTS = 1e-8
"""The part of agents whose variances are averaged at least."""
AVERAGE, RATIO, BINARY, PRODUCT, PRODUCTS = 0, 2, 5, 6, 22
"""Channels, the numbers that agents average: variances and how many have one (2); r, how many, and r^2 (3); how many
have samples that are 0 or 1; products (`products`)."""
BOUNDS = np.array([np.inf, 1, LARGEST_RATIO, 1, LARGEST_RATIO**2, 1,
                   1, 1, 2, 4, 16, 4, 16, 8, 32, 100, 100, 200, 1e4, 1, 2, 4, 400, 16, 1e4, 1e6, 9, 81])  # fmt: skip
"""The largest absolute values of what one agent contributes to each channel."""


class Factors(NamedTuple):
    """What dependence between samples (`colme.dependence`) makes of the variance of their mean, relative to that of
    independent ones: one number for all agents, or one for each."""

    low: Any
    """Of sigma^2 / n, to shrink by."""
    high: Any
    """Of sigma^2 / n, for intervals and tests."""
    low_of_own: Any
    """Of s^2 / n, to shrink by."""
    high_of_own: Any
    """Of s^2 / n, for intervals."""
    next: Any
    """Of sigma^2: the covariance of the mean with the next sample, as far as it is certain."""
    shown: Any
    """Of (x - X)^2 / (n + 1), x the sample after the n of mean X: its expectation is then the variance of X."""


INDEPENDENT = Factors(1.0, 1.0, 1.0, 1.0, 0.0, 1.0)


@equation
def add_square(square: Any, mean: Any, before: Any, n: Any) -> Any:
    """The sum of squared deviations after the n-th sample moved the mean (Welford, from the two means alone)."""
    return square + n * (n - 1.0) * ((mean - before) * (mean - before))


@equation
def variance_of_mean(square: Any, n: Any, average: Any, moderation: Any = MODERATION) -> Any:
    """Equation (1)."""
    return (moderation * average + square) / (moderation + n - 1.0) / n


def skewed_moderation(skewness: Any, samples: Any) -> Any:
    """m of equation (1), for so many samples of all agents; it may be less than m must be."""
    return 2.0 * np.abs(skewness) * np.sqrt(samples)


def worth_of(skewness: Any, kurtosis: Any, agents: Any, inverse: Any) -> Any:
    """The part of agents that a mixture counts, equation (2); `inverse`: 1 / n."""
    return 1.0 / (1.0 + (0.5 * kurtosis + agents * skewness * skewness / (12.0 * MISFIT)) * inverse)


def certain_part(product: Any, square: Any) -> Any:
    """The part of a skewness that is no chance, by the sums of products of clipped numbers, and of their squares."""
    doubt = DOUBT * DOUBT * square
    most = np.maximum(np.maximum(product * product, doubt), _TINY)
    return np.where(doubt > 0.0, 1.0 - doubt / most, 0.0)


def corrected_scale(mean: Any, variance: Any, agents: Any, count: Any) -> Floats:
    """The factor of sigma^2, by the mean and variance of the r of so many agents. They have about `count` samples, and
    the r of normal samples vary by 2 / (count - 1). A factor above 1 shrinks estimates more, so it also needs agents
    that are alike; one below 1 is careful, so that in the first steps it needs less evidence."""
    normal = 2.0 / np.maximum(count - 1.0, 1.0)
    error = np.sqrt(np.maximum(variance, normal) / np.maximum(agents, 1.0))
    errors = np.where((mean < 1.0) & (count < EARLY), EARLY_ERRORS, SCALE_ERRORS)
    off = np.abs(mean - 1.0) > np.maximum(errors * error, SCALE_TOLERANCE)
    off &= (mean < 1.0) | (variance < (normal + ALIKE) * mean * mean)
    return np.where(off, _within_reason(mean), 1.0)


def _within_reason(factor: Any) -> Any:
    return np.clip(factor, 1.0 / LARGEST_RATIO**2, LARGEST_RATIO)


def average_ratio(total: Any, agents: Any, squares: Any) -> tuple[Floats, Floats, Floats]:
    """From averages of r, of one, and of r^2 over all agents: the mean r, the variance of r between agents, and the
    share of agents that have one. It is zero where there are none, or sums that numbers cannot have:
    (sum of r)^2 <= number * (sum of r^2)."""
    possible = (agents > FEWEST_PARTS) & (total > 0.0) & (squares * agents >= 0.999 * total * total)
    agents = np.where(possible, agents, 0.0)
    mean = total / np.maximum(agents, FEWEST_PARTS)
    return mean, np.maximum(squares / np.maximum(agents, FEWEST_PARTS) - mean * mean, 0.0), agents


def are_uneven(mean: Any, variance: Any, agents: Any, count: Any) -> Mask:
    """Whether the r of so many agents vary more than those of normal samples. (If they do not, to ask why costs only
    messages.)"""
    freedom = np.maximum(count - 1.0, 1.0)
    error = np.sqrt((2.0 + 12.0 / freedom) / np.maximum(agents, 1.0))
    return np.asarray(variance > 2.0 / freedom * mean * mean * (UNEVEN + 2.0 * error))


def own_weight(variance: Any, noise: Any) -> Any:
    """The slope of a posterior mean in the own mean, from the posterior variance and the noise of the own mean
    (Tweedie's formula); one where the noise is not known, or zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((noise > 0.0) & (noise < np.inf), np.minimum(variance / noise, 1.0), 1.0)


class SamplingNoise:
    """The sampling variances of the means of some agents, as each of them knows it."""

    saved = (
        "mean", "square", "count", "average", "factor", "uneven", "earlier", "frame", "function", "least",
        "skewness", "kurtosis", "heard",
    )  # fmt: skip

    def __init__(self, n_agents: int, sigma: Any):
        self.variance = None if sigma is None else np.broadcast_to(np.square(np.float64(sigma)), n_agents)
        self.mean, self.count = np.full(n_agents, np.nan), np.zeros(n_agents, np.int64)
        self.square = np.zeros(n_agents)  # sums of squared deviations of the samples
        self.average = np.full(n_agents, np.nan)  # the average sample variance of all agents; NaN: not known
        self.factor = np.ones(n_agents)  # of a known sigma^2, see `corrected_scale`
        self.uneven = np.zeros(n_agents, bool)  # see `are_uneven`
        self.earlier = np.zeros((n_agents, 3))  # mean, square and count at the last check
        self.frame = np.tile(CONSTANT[:2], (n_agents, 1))  # center and scale of means at that check
        self.function = np.tile(CONSTANT, (n_agents, 1))  # of the mean, which the variance is
        self.least = np.full(n_agents, FIRST_MODERATION)  # of m
        self.skewness, self.kurtosis = np.zeros((2, n_agents))
        self.heard = np.zeros(n_agents)  # agents with two samples, at the last check
        self.factors = INDEPENDENT

    def observe(self, mean: Floats, count: Array) -> None:
        """Local means and numbers of samples after one more step; the squares follow from how the means moved. An agent
        with fewer samples than before has started afresh."""
        afresh = count < self.count
        self.square[afresh], self.earlier[afresh] = 0.0, 0.0
        new = np.flatnonzero((count > 1) & (count > self.count))
        self.square[new] = add_square(self.square[new], mean[new], self.mean[new], count[new])
        self.mean[:], self.count[:] = mean, count

    def observe_all(self, mean: Floats, count: Any) -> None:
        """`observe` for many agents, in a kernel; `count` may be one number for all of them."""
        _observe(mean, count, self.mean, self.count, self.square, self.earlier)

    def of_means(self) -> Floats:
        """The sampling variance of every local mean; infinite where it is not known."""
        with np.errstate(divide="ignore"):
            if self.variance is not None:
                return np.asarray(self.variance * self.factor * self.factors.low / self.count)
            common, own = (
                self.average / self.count,
                variance_of_mean(self.square, self.count, self.average, self.moderation),
            )
        found = np.where(is_constant(self.function), own, common) * self.factors.low_of_own
        return np.where((self.count > 0) & ~np.isnan(found), found, np.inf)

    @property
    def moderation(self) -> Floats:
        """m of equation (1)."""
        asked = skewed_moderation(self.skewness, self.heard * self.count)
        return np.maximum(self.least, np.minimum(asked, MOST_MODERATION))

    @property
    def worth(self) -> Floats:
        """The part of agents that a mixture counts, equation (2)."""
        guess = self.uneven & (self.least > MODERATION)
        gamma, kappa = np.where(guess, GUESS[0], self.skewness), np.where(guess, GUESS[1], self.kurtosis)
        return np.asarray(worth_of(gamma, kappa, self.heard, 1.0 / np.maximum(self.count, 1.0)))

    def stretch(self, weight: Any) -> Any:
        """The factor on half an interval of a posterior mean in which the own mean has this weight: what the noise for
        intervals has more than the noise to shrink by passes to the estimate."""
        low, high, low_of_own, high_of_own = self.factors[:4]
        ratio = high_of_own / low_of_own if self.variance is None else high / low
        return np.sqrt(1.0 + (ratio - 1.0) * weight)

    def contributions(self, frame: Floats | None) -> list[tuple[Integers, int, Floats]]:
        """What agents with two samples add to an average over all agents: the agents, the first of their channels, and
        a row of numbers each. In a check it is more, and `frame` as in `products`; else it is None."""
        parts, known = [], self.average if self.variance is None else self.variance
        some = np.flatnonzero(self.count > 1)
        if self.variance is None:
            variance = self.square[some] / (self.count[some] - 1.0)
            parts.append((some, AVERAGE, np.stack([variance, np.ones_like(variance)], axis=-1)))
        if frame is not None:
            some = some[~np.isnan(known[some])]
            n = self.count[some]
            freedom = np.maximum(n - np.broadcast_to(self.factors.high, len(self.count))[some], ROUNDING * n)
            ratio = np.minimum(self.square[some] / freedom / known[some], LARGEST_RATIO)
            parts.append((some, RATIO, np.stack([ratio, np.ones_like(ratio), ratio * ratio], axis=-1)))
            mean = self.mean[some]  # of samples that are 0 or 1, squares follow from means
            binary = some[np.abs(self.square[some] - n * mean * (1.0 - mean)) <= ROUNDING * n]
            parts.append((binary, BINARY, np.ones((len(binary), 1))))
            some = some[self.uneven[some] & (frame[some, 1] > 0.0)]
            now = np.stack([self.mean, self.square, self.count], axis=-1)
            parts.append((some, PRODUCT, products(now[some], self.earlier[some], frame[some], known[some])))
            self.earlier, self.frame = np.where(self.count[:, None] > 0, now, 0.0), frame
        return parts

    def _ratios(self, channel: Callable[[int], Floats]) -> tuple[Floats, Floats, Floats, Floats]:
        """As `average_ratio`, and the counts at the check. Where samples depend on each other a mean above one, which
        shrinks estimates more, is as small as the factors allow."""
        mean, variance, part = average_ratio(*(channel(RATIO + k) for k in range(3)))
        n = self.earlier[:, 2]
        if self.factors is not INDEPENDENT:
            share = (n - np.minimum(self.factors.high, n)) / np.maximum(n - self.factors.low, 1.0)
            mean = np.where(mean > 1.0, np.maximum(mean * np.minimum(share, 1.0), 1.0), mean)
        return mean, variance, part, n

    def notice(self, channel: Callable[[int], Floats], agents: Any) -> Mask:
        """In the first steps, while averages are under way: which agents see that sigma is smaller than they know, and
        use a smaller one from now on."""
        if self.variance is None:
            return np.zeros(len(self.count), bool)
        mean, variance, part, count = self._ratios(channel)
        scale = corrected_scale(mean, variance, agents * part, count)
        smaller = (agents * part >= FEWEST_RATIOS) & (count < EARLY) & (scale < np.minimum(self.factor, 1.0))
        smaller &= is_constant(self.function)
        self.factor = np.where(smaller, scale, self.factor)
        return np.asarray(smaller)

    def learn(self, channel: Callable[[int], Floats], agents: Any) -> None:
        """From the averages of what was contributed, channel by channel, as each agent has them of so many agents."""
        if self.variance is None:
            total, part = channel(AVERAGE), channel(AVERAGE + 1)
            there = (part > FEWEST_PARTS) & (total > 0.0)
            self.average = np.where(there, total / np.maximum(part, FEWEST_PARTS), self.average)
        mean, variance, part, count = self._ratios(channel)
        checked = agents * part >= FEWEST_RATIOS
        if not checked.any():
            return
        sums = np.stack([channel(PRODUCT + k) for k in range(PRODUCTS)], axis=-1)
        function, skewed = fitted_function(sums, agents, self.frame)
        third, fourth = skewness(sums, agents)
        self.skewness, self.kurtosis = np.where(checked, third, self.skewness), np.where(checked, fourth, self.kurtosis)
        self.heard = np.where(checked, agents * part, self.heard)
        binary = channel(BINARY) >= (1.0 - ROUNDING) * part
        if self.variance is None:
            function[~skewed] = CONSTANT
            binary &= self.average > 0.0
            function[binary] = binomial_function(self.average[binary])
        else:
            scale = corrected_scale(mean, variance, agents * part, count)
            scale = np.where(is_constant(function) & ~binary, scale, _within_reason(mean))
            self.factor = np.where(checked, scale, self.factor)
            function[binary] = binomial_function((self.variance * self.factor)[binary])
        self.uneven = np.where(checked, are_uneven(mean, variance, agents * part, count), self.uneven)
        known = ~self.uneven | (agents * sums[:, 0] >= FEWEST)
        self.least = np.where(checked & known, MODERATION, self.least)
        self.function = np.where(checked[:, None], function, self.function)


@equation
def variance_at(function: Any, mean: Any, spread: Any) -> Any:
    """(the variance of samples of this mean, relative to the average one; its squared slope). With a spread: on average
    over means of this variance."""
    scale = function[1]
    u = min(max((mean - function[0]) / scale, -REACH), REACH)
    slope = (function[3] + 2.0 * u * function[4]) / scale
    value = function[2] + u * (function[3] + u * function[4]) + spread / (scale * scale) * function[4]
    return min(max(value, LEAST), MOST), slope * slope


@equation
def excess_noise(relative: Any, noise: Any) -> Any:
    """What is to be added to `noise`, the average sampling variance of a mean, where samples have this relative
    variance (and its squared slope)."""
    return (max(relative[0], relative[1] * noise) - 1.0) * noise


def binomial_function(average: Any) -> Floats:
    """m (1 - m), relative to these average variances, one per row."""
    one = 1.0 / np.asarray(average)
    return np.stack([np.zeros_like(one), np.ones_like(one), np.zeros_like(one), one, -one], axis=-1)


def is_constant(function: Floats) -> Mask:
    """Which rows are no function."""
    return np.asarray((function[:, 3:] == 0.0).all(axis=1))


def _clip(x: Any) -> Any:
    return np.clip(x, -CLIP, CLIP)


def skewness(sums: Any, agents: Any) -> tuple[Floats, Floats]:
    """(skewness, excess kurtosis) of samples by averages of `products` over so many agents; zeros if these are few."""
    part = sums[:, 0]
    with np.errstate(all="ignore"):
        third, fourth, clipped, square = sums[:, 18:].T / part
        enough, n = agents * part >= FEWEST, agents * part
        return np.where(enough, certain_part(n * clipped, n * square) * third, 0.0), np.where(
            enough, np.maximum(fourth - 2.0, 0.0), 0.0
        )


def products(now: Any, earlier: Any, frame: Any, variance: Any) -> Floats:
    """What agents contribute to the regression, (agents, PRODUCTS); zeros without two samples of either time.

    now       (agents, 3): mean, sum of squared deviations and number of all samples
    earlier   the same of those before the last check
    frame     (agents, 2): center and scale of means
    variance  of samples, as far as it is known: what variances are relative to"""
    (center, scale), (X, S, n), (X1, S1, n1) = frame.T, now.T, earlier.T
    enough = (n1 > 1) & (n - n1 > 1)
    X1, S1, n1, n2 = np.where(enough, [X1, S1, n1, n - n1], [center, S, n, n])
    X2 = np.where(enough, (n * X - n1 * X1) / n2, center)
    d = X2 - X1
    S2 = np.maximum(S - S1 - n1 * n2 / n * (d * d), 0.0)
    r = np.minimum(S2 / np.maximum(n2 - 1.0, 1.0) / variance, LARGEST)
    freedom, e = np.maximum(n2 - 1.0, 1.0), d / np.sqrt(variance)
    third = np.clip((r - 1.0) * e * n2, -1e4, 1e4)
    fourth = np.minimum((r - 1.0) ** 2 * freedom, 1e6)
    clipped = _clip((r - 1.0) * np.sqrt(0.5 * freedom)) * _clip(e / np.sqrt(1.0 / n1 + 1.0 / n2))
    u, y, d = (X1 - center) / scale, np.clip((X2 - center) / scale, -REACH, REACH), np.clip(d / scale, -REACH, REACH)
    z = np.clip(u, -1.0, 1.0)
    z2 = np.clip(u * u - S1 / np.maximum(n1 - 1.0, 1.0) / n1 / (scale * scale), -2.0, 2.0)
    y2 = np.clip(y * y - r * variance / n2 / (scale * scale), -REACH * REACH, REACH * REACH)
    each = (
        np.ones_like(z), z, z2, y, y2, z * y, z * y2, z2 * y, z2 * y2, r, z * r, z2 * r, r * r, z * z, z * z2, z2 * z2,
        d * r, d * d * (n1 / n), third, fourth, clipped, clipped * clipped,
    )  # fmt: skip
    return np.where(enough[:, None], np.stack(each, axis=-1), 0.0)


def fitted_function(sums: Any, agents: Any, frame: Any) -> tuple[Floats, Mask]:
    """The function that averages of `products` over so many agents show, one per row, and CONSTANT where they show
    none; and whether variances and means also err together as those of an exponential family do."""
    part = sums[:, 0]
    with np.errstate(all="ignore"):
        z, z2, y, y2, zy, zy2, z2y, z2y2, r, zr, z2r, rr, zz, zz2, z2z2, dr, dd = sums[:, 1:18].T / part
        n = agents * part
        # covariances with the regressors, with the variances, and of the instruments
        A11, A12, A21, A22 = zy - z * y, zy2 - z * y2, z2y - z2 * y, z2y2 - z2 * y2
        b1, b2, V11, V12, V22, Vr = zr - z * r, z2r - z2 * r, zz - z * z, zz2 - z * z2, z2z2 - z2 * z2, rr - r * r
        side = V12 / V11  # the second instrument, without what the first one explains
        b3, A32, V33 = b2 - side * b1, A22 - side * A12, V22 - side * V12
        first, second = n * b1 * b1 / (V11 * Vr), n * b3 * b3 / (V33 * Vr)
        straight, bent = A11 > WEAK * V11, (second > BENT) & (A32 > WEAK * V33)
        determinant = A11 * A22 - A12 * A21
        c = np.where(bent, (A11 * b2 - A21 * b1) / determinant, 0.0)
        b = np.where(bent, (b1 * A22 - b2 * A12) / determinant, b1 / A11)
        function = np.stack([*frame.T, (r - b * y - c * y2) / r, b / r, c / r], axis=-1)
        found = ((first > EVIDENCE) & straight) | ((second > SQUARE_EVIDENCE) & bent)
        found &= (n >= FEWEST) & (r > 0.0) & np.isfinite(function).all(axis=-1)
        # the slope of errors is that of the function, or at least more than half of it
        slope = b1 / A11
        skewed = found & (first > EVIDENCE) & straight & (dr / dd * slope > 0.5 * slope * slope)
    return np.where(found[:, None], function, CONSTANT), skewed


def student(level: float, freedom: Floats) -> Floats:
    """Half the width of an interval of this level of Student's distribution: exact for one and two degrees of freedom,
    else by Cornish and Fisher's expansion, to .05 % at level .9, .2 % at .95 and 1 % at .99."""
    p, z = 0.5 + 0.5 * level, NormalDist().inv_cdf(0.5 + 0.5 * level)
    n = np.maximum(freedom, 1.0)
    terms = (
        (z**3 + z) / 4.0, (5 * z**5 + 16 * z**3 + 3 * z) / 96.0, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384.0,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160.0,
    )  # fmt: skip
    expanded = z + sum(term / n ** (k + 1) for k, term in enumerate(terms))
    one, two = math.tan(math.pi * (p - 0.5)), (2.0 * p - 1.0) * math.sqrt(0.5 / (p * (1.0 - p)))
    return np.where(freedom <= 1.0, one, np.where(freedom == 2.0, two, expanded))


@kernel
def _observe(mean, count, mean_before, count_before, square, earlier):
    for a in range(mean.size):
        n = at(count, a)
        if n < count_before[a]:
            square[a] = 0.0
            earlier[a] = 0.0
        if n > 1 and n > count_before[a]:
            square[a] = add_square(square[a], mean[a], mean_before[a], n)
        mean_before[a], count_before[a] = mean[a], n
