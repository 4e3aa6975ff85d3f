"""Histograms of means drawn from a known mixture."""

from __future__ import annotations

from typing import Any

import numpy as np

from colme.census.histogram import Bins, bin_means
from colme.census.mixture import Histogram
from colme.noise import CONSTANT
from tests.support.edges import Floats


def drawn_means(weight: Any, location: Any, spread: Any, n: int, seed: int, noise: float = 1.0) -> Floats:
    """n local means: true means from the mixture, plus noise of this variance."""
    rng = np.random.default_rng(seed)
    component = rng.choice(len(weight), n, p=weight)
    deviation = np.sqrt(np.asarray(spread)[component] + noise)
    return np.asarray(np.asarray(location)[component] + deviation * rng.standard_normal(n), float)


def plain_histogram(center: Floats, counts: Floats, noise: Floats) -> Histogram:
    """Bins whose noise does not depend on the mean."""
    return Histogram(center, counts, noise, noise, CONSTANT)


def histogram_of(means: Floats, noise: float) -> Histogram:
    """The occupied bins of means of this noise."""
    codes, values = bin_means(means, np.full(len(means), noise), 1.0)
    every, where = np.unique(codes, return_inverse=True)
    masses = np.asarray(np.bincount(where.ravel(), values.ravel()), float)
    center, square, _ = Bins.of(every, 1.0)
    kept = ~np.isnan(center) & (masses > 1e-8)
    return plain_histogram(center[kept], masses[kept], square[kept] * (1.0 / 6.0) + noise)
