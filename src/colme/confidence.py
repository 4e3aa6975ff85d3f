"""Confidence radii, one function per inequality, tests of a difference, and the time until two means can be told apart.

A radius R(n) is the half-width of the interval around an agent's local mean of n samples. All bounds here hold for
every n at once (P(some n: |mean - truth| > R(n)) is bounded), because agents look at every step.

Variance-aware intervals compare more than means, and know no sigma. With R(n) Laplace's radius at sigma = 1 and level
gamma / m, where m statistics are compared (the paper compares three):

    mean                s R(n)
    standard deviation  s R(n) sqrt((k - 1) / 4)
    kurtosis            R(n) sqrt(24)

from the samples' own deviation s and kurtosis k. They take the asymptotic standard errors s / sqrt(n),
s sqrt((k - 1) / (4n)) and sqrt(24 / n) for those of a Gaussian with known scale, which is fair after a burn-in of 30,
30 and 200 samples; before it a radius is infinite. The last one is that of Gaussian samples: heavier tails scatter more
(for Laplace's the error of k is 7 times as large), and agents of one class part. Samples that are all equal have a
point for an interval of the mean, and neither deviation nor kurtosis to compare.

A difference test compares two means without an interval of either: they differ if (X_a - X_b)^2 > g, where agents a and
b have independent, sigma-sub-Gaussian noise. With v = sigma^2 / n the variance of a mean, u = v_a + v_b,
rho = 1 / (KAPPA sigma)^2, L = 2 ln(1 / alpha) and K = 4:

    equal counts  g = u (1 + rho u) (ln(1 + 1 / (rho u)) + L)
    any counts    g = (u + rho u^2 + rho K (v_a - v_b)^2) (ln(1 + p (1/v_a + 1/v_b) + K q^2 / (v_a v_b)) + L)
                  q = 1 / (2 rho K),  p = (K + 1) q / 2

Two agents of one mean are ever told apart with probability at most alpha, at whatever times they look (Ville's
inequality, for the mixture of likelihood ratios over gaps of N(0, 1 / rho); docs/methods.md has the proof). The second
form holds for any counts, also counts that depend on the data. An interval tolerates noise that agents share; a
difference test needs it to be independent, and therefore needs less than half the samples.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import msgspec
import numpy as np

from colme._core.jit import at, equation, kernel
from colme.errors import ColmeError, MethodError, one_of, positive, shorten, whole
from colme.moments import deviation, kurtosis
from colme.support.arrays import Array, Floats

BOUNDS = ("laplace", "fourth-moment", "hoeffding")
LEVELS = ("agent", "edge", "network", "population")
CUTS = ("intervals", "difference")
"""When an edge is cut: when two intervals part, or when the difference of the means is significant."""
DIFFERENCE_LEVELS = ("agent", "edge")
KAPPA = 0.5
"""The gap, in sigmas, at which difference tests are sharpest; gaps from 0.1 to 0.8 sigma lose at most 8 % by it."""
FEWEST_DEPENDENT = 10
"""Samples of each agent before a difference test may cut an edge, if these are not known to be independent."""
STATISTICS = ("mean", "deviation", "kurtosis")
"""What intervals can be of."""
MEAN, DEVIATION, KURTOSIS = range(3)
LEAST = 1e-12
"""The least kurtosis - 1: that of samples of two values, half of each, is 0 but for the rounding."""
FEWEST_SAMPLES = (30, 30, 200)
"""Samples before a statistic is compared, where the samples' own deviation stands for sigma."""


@equation
def laplace_radius(n: Any, sigma: Any, gamma: Any) -> Any:
    """sigma-sub-Gaussian samples: R = sigma sqrt(2/n (1 + 1/n) ln(sqrt(n+1) / gamma)).

    Laplace's method of mixtures; fails with probability at most 2 gamma over all n (Asadi et al. 2022, section 3).

    n      number of samples
    sigma  their standard deviation, or a larger one
    gamma  the level, see `level_gamma`

    >>> [round(laplace_radius(n, 2.0, 0.05), 2) for n in (1, 10, 100, 1000)]
    [7.31, 1.92, 0.65, 0.23]

    See also: fourth_moment_radius, level_gamma, separation_time
    """
    if n == 0:
        return math.inf
    return sigma * math.sqrt(2.0 / n * (1.0 + 1.0 / n) * math.log(math.sqrt(n + 1.0) / gamma))


@equation
def fourth_moment_radius(n: Any, sigma: Any, gamma: Any, kurtosis: Any = 3.0) -> Any:
    """Samples with E (x - mean)^4 <= kurtosis sigma^4: R = (2 (kurtosis+3) sigma^4 / gamma * (1 + ln(n)^2) / n)^(1/4).

    Markov's inequality on the fourth moment (Galante et al. 2025); fails with probability at most 1.29 gamma.

    n         number of samples
    sigma     their standard deviation
    gamma     the level, see `level_gamma`
    kurtosis  a bound on their kurtosis; 3 for a Gaussian

    >>> [round(fourth_moment_radius(n, 2.0, 0.05), 2) for n in (1, 10, 100, 1000)]
    [7.87, 7.01, 5.4, 3.7]

    See also: laplace_radius, level_gamma
    """
    if n == 0:
        return math.inf
    log = math.log(n)
    return sigma * math.sqrt(math.sqrt(2.0 * (kurtosis + 3.0) / gamma * ((1.0 + log * log) / n)))


@equation
def too_far(mean_a: Any, mean_b: Any, radius_a: Any, radius_b: Any) -> Any:
    """The closed intervals do not touch. False where an agent has no sample (NaN): its interval is the whole line.

    mean_a, mean_b      the centers of the intervals
    radius_a, radius_b  their half-widths

    >>> too_far(1.0, 2.0, 0.3, 0.3), too_far(1.0, 2.0, 0.5, 0.5), too_far(1.0, math.nan, 0.3, math.inf)
    (True, False, False)

    See also: parted, laplace_radius
    """
    return abs(mean_a - mean_b) > radius_a + radius_b


@equation
def difference_radius(n: Any, sigma: Any, gamma: Any) -> Any:
    """Half of sqrt(g) for two sigma-sub-Gaussian agents of n samples each: two such radii are the difference test.

    Not the radius of an interval, and void where counts or sigmas differ; gamma is the alpha of the test.

    n      number of samples of each agent
    sigma  their standard deviation
    gamma  the alpha of the test, see `level_alpha`

    >>> difference_radius(100, 2.0, 0.05) < laplace_radius(100, 2.0, 0.05)
    True

    See also: laplace_radius, level_alpha, difference_times
    """
    if n == 0:
        return math.inf
    u = 2.0 / n
    w = u / (KAPPA * KAPPA)
    return sigma * (0.5 * math.sqrt(u * (1.0 + w) * (math.log(1.0 + 1.0 / w) - 2.0 * math.log(gamma))))


class DifferenceTest(NamedTuple):
    """The difference test for any counts, for a population: two numbers that all of its pairs share."""

    root: float
    """sqrt(rho): 1 / (KAPPA scale), where the scale is any that does not depend on the samples."""
    log: float
    """L = 2 ln(1 / alpha)."""


@equation
def differ(mean_a: Any, mean_b: Any, error_a: Any, error_b: Any, test: Any) -> Any:
    """(X_a - X_b)^2 > g for any counts, from standard errors sigma / sqrt(n); symmetric in a and b, to the bit.

    False where an agent has no sample (NaN, infinite) or claims an error of zero: then g is infinite.
    """
    gap, v_a, v_b = (mean_a - mean_b) * test.root, error_a * test.root, error_b * test.root
    v_a, v_b = v_a * v_a, v_b * v_b
    square, u, product = gap * gap, v_a + v_b, v_a * v_b
    if not (square > u * test.log and product > 0.0):  # g >= u L, which spares most pairs the logarithm
        return False
    d = v_a - v_b
    return square > (u + u * u + 4.0 * (d * d)) * (math.log(1.0 + (0.3125 * u + 0.0625) / product) + test.log)


@equation
def apart(mean_a: Any, mean_b: Any, spread_a: Any, spread_b: Any, test: Any) -> Any:
    """Two intervals do not touch (test=None, spreads are radii), or two means differ (spreads are standard errors)."""
    if test is None:
        return too_far(mean_a, mean_b, spread_a, spread_b)
    return differ(mean_a, mean_b, spread_a, spread_b, test)


@equation
def standard_error(n: Any, sigma: Any) -> Any:
    """sigma / sqrt(n) of a mean of n samples; infinite for n = 0."""
    return sigma / math.sqrt(n) if n > 0 else math.inf


@equation
def effective_number(n: Any, factor: Any, independent: Any) -> Any:
    """The number of independent samples whose mean is as uncertain as that of n samples, by the factor of dependence;
    none, as long as n is too small to know it."""
    return n / factor if independent or n >= FEWEST_DEPENDENT else 0.0


@equation
def interval_of(statistic: Any, n: Any, mean: Any, second: Any, fourth: Any, unit: Any) -> Any:
    """(center, radius) of a statistic of n samples with these central moments, from R(n) at sigma = 1. The radius is
    infinite where all samples are equal and k is not defined."""
    if n < FEWEST_SAMPLES[statistic]:
        return mean, math.inf
    s, k = deviation(n, second), kurtosis(n, second, fourth)
    if statistic == MEAN:
        return mean, s * unit
    if statistic == DEVIATION:
        return s, s * unit * math.sqrt(max(k - 1.0, LEAST) * 0.25) if s > 0.0 else math.inf
    return k, 4.898979485566356 * unit


@kernel
def fill_intervals(out, statistics, mean, second, fourth, count, unit):
    """out[i] = centers and radii of statistic number i, for all agents."""
    for i in range(statistics.size):
        for a in range(mean.size):
            n = at(count, a)
            out[i, 0, a], out[i, 1, a] = interval_of(statistics[i], n, mean[a], second[a], fourth[a], unit[n])


class Bound(msgspec.Struct, frozen=True):
    """A radius for every count: which inequality, at which level gamma. For Hoeffding, sigma is half the width; for
    "difference", gamma is the alpha of the test and the radius is for equal counts only."""

    gamma: float
    name: str = "laplace"
    kurtosis: float = 3.0

    def radius(self, n: float, sigma: float = 1.0) -> float:
        if self.name == "fourth-moment":
            return float(fourth_moment_radius(n, sigma, self.gamma, self.kurtosis))
        radius = difference_radius if self.name == "difference" else laplace_radius
        return float(radius(n, sigma, self.gamma))

    def table(self, n: int) -> Floats:
        """R(0), .., R(n) and some more, at sigma = 1: every radius is proportional to sigma."""
        return _table(self, max(64, 1 << n.bit_length()))


@functools.lru_cache(maxsize=64)
def _table(bound: Bound, size: int) -> Floats:
    """Runs that differ in their seeds share it."""
    return np.array([bound.radius(n) for n in range(size)])


@kernel
def scale_radii(out, count, unit, sigma):
    """out[a] = sigma[a] * R(count[a])."""
    for a in range(out.size):
        out[a] = at(sigma, a) * unit[count[a]]


@kernel
def scale_errors(out, count, sigma, factor, independent):
    """out[a] = sigma[a] / sqrt(count[a]), of effective numbers of samples."""
    for a in range(out.size):
        out[a] = standard_error(effective_number(at(count, a), at(factor, a), independent), at(sigma, a))


def level_gamma(level: str, delta: float, *, n_agents: int, n_edges: int) -> float:
    """The gamma of intervals for a failure probability delta. An interval at level gamma fails with probability at most
    2 gamma.

    "agent"       delta / 2: each agent's interval fails with probability delta (CL-colME's experiment)
    "edge"        delta / (4 r N), that is over all directed edges: no wrong decision anywhere (Galante et al.)
    "network"     delta / (2 N): the same promise as "edge", no interval anywhere fails, by its exact union bound,
                  which is over agents; "edge" is 2 r times stricter than its promise needs
    "population"  delta / (8 N): the union bound over agents of colME (Asadi et al.)

    level     one of these four
    delta     the failure probability
    n_agents  N
    n_edges   edges of the graph, r N / 2

    >>> [level_gamma(level, 0.1, n_agents=5000, n_edges=25_000) for level in ("agent", "edge")]
    [0.05, 5e-07]

    See also: level_alpha, laplace_radius, separation_time
    """
    one_of(level, LEVELS, "level", MethodError)
    if level == "agent":
        return delta / 2.0
    if level == "edge":
        return delta / (4.0 * max(1, 2 * n_edges))
    return delta / ((2.0 if level == "network" else 8.0) * n_agents)


def level_alpha(level: str, delta: float, *, n_edges: int, max_degree: int, paths: int = 1) -> float:
    """The alpha of difference tests for a failure probability delta: an edge of one class is ever cut with probability
    at most alpha.

    "edge"   delta / E: some edge of one class is ever cut with probability at most delta
    "agent"  delta / r, r the largest degree: each agent ever loses a neighbor of its class with at most delta

    level       one of these two
    delta       the failure probability
    n_edges     E, edges of the graph
    max_degree  r
    paths       2 where each end of an edge compares its own count with the one it last heard, as devices do. The two
                ends then look at different pairs of counts, and either may fail

    >>> [level_alpha(level, 0.1, n_edges=25_000, max_degree=10) for level in ("agent", "edge")]
    [0.01, 4e-06]

    See also: level_gamma, difference_radius, difference_times
    """
    one_of(level, DIFFERENCE_LEVELS, "level of difference tests", MethodError)
    return delta / (paths * max(1, n_edges if level == "edge" else max_degree))


def check_probability(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0.0 < value < 1.0:
        example = 0.9 if name == "level" else 0.1
        raise MethodError(f"{name}={shorten(value)}: it must be between 0 and 1, both excluded. Try {name}={example}.")


def smallest_gap(means: Sequence[float] | Array) -> float:
    """The smallest distance between two different means of a sequence.

    means  the means of classes; equal ones are one class

    >>> smallest_gap([0.0, 5.0, 3.0, 5.0])
    2.0

    See also: separation_time
    """
    different = np.unique(np.asarray(means, float))
    if different.ndim != 1 or len(different) < 2 or not np.isfinite(different).all():
        raise ColmeError(f"gap={shorten(means)}: it needs two different, finite means or more. Try gap=(1.2, 2.0).")
    return float(np.diff(different).min())


def separation_time(
    gap: float | Sequence[float] | Array,
    *,
    sigma: float,
    gamma: float,
    guaranteed: bool = False,
    radius: Callable[[int, float, float], float] = laplace_radius,
) -> int:
    """Steps until two agents whose means differ by `gap` part. For several classes, give their means instead of a gap:
    the two closest classes decide.

    Expected (the median edge): the smallest t with 2 R(t) <= gap; the last edge of a large graph takes 3 to 4 times
    longer. Guaranteed, unless an interval fails: 4 R(t) <= gap. With radius=difference_radius, gamma is the alpha of
    difference tests; see `difference_times` for more about them.

    gap         the distance of the means, or the means of several classes
    sigma       standard deviation of a sample
    gamma       the level of an interval, see `level_gamma`
    guaranteed  whether to return the guaranteed time, not the expected one
    radius      the function of the radius

    >>> separation_time(0.8, sigma=2.0, gamma=0.05)
    293
    >>> separation_time([1.2, 2.0, 4.0], sigma=2.0, gamma=0.05)
    293

    See also: difference_times, laplace_radius
    """
    if isinstance(gap, Sequence | np.ndarray) and not isinstance(gap, str):
        gap = smallest_gap(gap)
    gap = positive(gap, "gap", "gap=0.8")
    positive(sigma, "sigma", "sigma=2.0")
    check_probability("gamma", gamma)
    factor = 4.0 if guaranteed else 2.0

    steps = range(1, 2**60)
    found = bisect_left(steps, True, key=lambda t: bool(factor * radius(t, sigma, gamma) <= gap))
    if found == len(steps):
        raise ColmeError(f"a gap of {gap} at sigma={sigma} takes more than 2^60 steps to see. Try a larger gap.")
    return steps[found]


class DifferenceTimes(NamedTuple):
    """Samples per agent until a difference test tells two agents apart."""

    least: float
    """Wald's lower bound on the mean time of any test that has this alpha and stops with probability 1."""
    mean: float
    """The mean over edges: 1 to 4 % too small for gaps up to 0.4 sigma, up to 9 % at 0.8 sigma."""
    intersection: int
    """The first count with g <= gap^2: the median edge takes 0.65 (alpha = 0.1) to 0.95 (small alpha) of it."""
    last: float
    """The last of many edges."""
    guaranteed: int
    """The first count with g <= gap^2 / 4: an edge lives longer with probability at most alpha."""


def difference_times(
    gap: float | Sequence[float] | Array, *, sigma: float, alpha: float, n_edges: int = 1
) -> DifferenceTimes:
    """How soon difference tests tell apart two agents whose means differ by `gap` (or the closest of several means);
    `n_edges` is the number of edges whose last one is asked for.

    gap      the distance of the means, or the means of several classes
    sigma    standard deviation of a sample
    alpha    of the test, see `level_alpha`
    n_edges  edges between the classes, of which the last one is asked for

    >>> times = difference_times(0.8, sigma=2.0, alpha=0.1 / 25_000, n_edges=12_500)
    >>> times.intersection, times.guaranteed
    (367, 1514)
    >>> round(times.least), round(times.mean), round(times.last)
    (311, 354, 1070)

    See also: separation_time, level_alpha
    """
    whole(n_edges, "n_edges", "n_edges=1")
    check_probability("alpha", alpha)
    intersection, guaranteed = (
        separation_time(gap, sigma=sigma, gamma=alpha, guaranteed=each, radius=difference_radius)
        for each in (False, True)
    )
    if isinstance(gap, Sequence | np.ndarray):
        gap = smallest_gap(gap)
    n_0, log, m = 2.0 * (sigma / gap) ** 2, -2.0 * math.log(alpha), 2.0 / KAPPA**2
    tail = NormalDist().inv_cdf(1.0 - 1.0 / n_edges) if n_edges > 1 else 0.0

    def solve(right: Callable[[float], float]) -> float:
        """n = n_0 right(c(n)), where c(n) = g / u, by bisection between 1 and the guaranteed time: c(n) / n falls."""
        low, high = 1.0, 64.0 * max(1, guaranteed)
        for _ in range(100):
            n = math.sqrt(low * high)
            above = n < n_0 * right((1.0 + m / n) * (math.log1p(n / m) + log))
            low, high = (n, high) if above else (low, n)
        return high

    mean = solve(lambda c: c - 1.0)
    last = mean if n_edges == 1 else solve(lambda c: (math.sqrt(c) + tail) ** 2)
    return DifferenceTimes(n_0 * log, mean, intersection, last, guaranteed)
