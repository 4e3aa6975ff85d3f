"""Central moments of the samples up to the fourth, updated sample by sample.

With D = x - X, the newest of n samples against the mean of those before, d = D / n and T = D d (n - 1), the sums
M_k = sum of (x - mean)^k follow (Welford 1962 for M2; Pebay, Sandia report 2008-6212, for the others):

    M4 <- M4 + T d^2 (n^2 - 3n + 3) + 6 d^2 M2 - 4 d M3
    M3 <- M3 + T d (n - 2) - 3 d M2
    M2 <- M2 + T

Nothing is subtracted from a sum of powers, so values near a million that differ by a thousandth keep their digits. The
scalar functions serve arrays and single agents alike.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from colme._core.jit import at, equation, kernel
from colme.support.arrays import Floats


@equation
def add_sample(second: Any, third: Any, fourth: Any, mean: Any, sample: Any, n: Any) -> Any:
    """(M2, M3, M4) of n samples from those of the n - 1 before, their mean, and the newest."""
    if n == 1:
        return 0.0, 0.0, 0.0
    difference = sample - mean
    d = difference / n
    t = difference * d * (n - 1.0)
    fourth += t * d * d * (float(n) * n - 3.0 * n + 3.0) + 6.0 * d * d * second - 4.0 * d * third
    third += t * d * (n - 2.0) - 3.0 * d * second
    return second + t, third, fourth


@equation
def deviation(n: Any, second: Any) -> Any:
    """The standard deviation s = sqrt(M2 / (n - 1)) of at least two samples."""
    return math.sqrt(second / (n - 1.0))


@equation
def kurtosis(n: Any, second: Any, fourth: Any) -> Any:
    """k = n M4 / M2^2, 3 for a Gaussian and at least 1; NaN where all samples are equal."""
    return n * fourth / (second * second) if second > 0.0 else math.nan


@kernel
def _observe(second, third, fourth, mean, count, samples):
    for a in range(samples.size):
        if samples[a] == samples[a]:
            second[a], third[a], fourth[a] = add_sample(
                second[a], third[a], fourth[a], mean[a], samples[a], at(count, a) + 1
            )


class Moments:
    """M2, M3 and M4 of every agent."""

    saved = ("second", "third", "fourth")

    def __init__(self, n_agents: int):
        self.second, self.third, self.fourth = np.zeros(n_agents), np.zeros(n_agents), np.zeros(n_agents)

    def observe(self, samples: Floats, mean: Floats, count: Any, first: int = 0) -> None:
        """Samples (NaN: none) of agents first, first + 1, .. whose means and counts are those before."""
        part = slice(first, first + len(samples))
        _observe(self.second[part], self.third[part], self.fourth[part], mean, count, samples)
