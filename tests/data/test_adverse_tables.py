"""`estimate` on tables that suit none of its methods: no worse than local means on average, and no gain is made up.

docs/estimate.md has the same worlds and more, with 30 tables each. Bounds leave room for two standard errors of the
mean over tables.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from colme.data.estimate import estimate_table
from colme.data.read.table import Table
from tests.support.tables import drawn, noisy, table_of

Floats = NDArray[np.float64]
Drawn = tuple[Table, Floats]
TABLES = 10


def _one_far_away(rng: np.random.Generator) -> Drawn:
    means = rng.normal(size=30)
    means[0] = 1000.0
    return drawn(rng, means, rng.integers(3, 15, 30), sigma=2.0), means


def _few_trials(rng: np.random.Generator) -> Drawn:
    means = rng.beta(2, 20, 200)
    return noisy(rng, "0/1", means, rng.integers(1, 5, 200)), means


def _one_with_most_rows(rng: np.random.Generator) -> Drawn:
    means, n = rng.normal(size=60), rng.integers(2, 12, 60)
    n[0] = 9 * n[1:].sum()
    return drawn(rng, means, n, sigma=2.0), means


def _each_row_twice(rng: np.random.Generator) -> Drawn:
    means = rng.normal(size=100)
    return table_of(
        [np.repeat(rng.normal(m, 2.0, k), 2) for m, k in zip(means, rng.integers(3, 15, 100), strict=True)]
    ), means


def _some_constant(rng: np.random.Generator) -> Drawn:
    means = rng.normal(size=100)
    sigma = np.where(rng.random(100) < 0.3, 0.0, 2.0)
    each = zip(means, sigma, rng.integers(3, 15, 100), strict=True)
    return table_of([rng.normal(m, s, k) for m, s, k in each]), means


def _heavy_tails(rng: np.random.Generator) -> Drawn:
    means = rng.normal(size=150)
    each = zip(means, rng.integers(3, 30, 150), strict=True)
    return table_of([m + rng.standard_t(2.1, k) for m, k in each]), means


def _levels_shift(rng: np.random.Generator) -> Drawn:
    """Three in ten agents shift once; what counts is the level after the table."""
    means, n = rng.normal(size=200), rng.integers(4, 40, 200)
    shift = np.where(rng.random(200) < 0.3, 3.0 * rng.normal(size=200), 0.0)
    after = [np.arange(k) >= u * k for k, u in zip(n, rng.uniform(0.2, 0.9, 200), strict=True)]
    each = zip(means, shift, after, strict=True)
    return table_of([m + s * late + rng.normal(0.0, 2.0, len(late)) for m, s, late in each], timed=True), means + shift


WORLDS: list[Callable[[np.random.Generator], Drawn]] = [
    _one_far_away, _few_trials, _one_with_most_rows, _each_row_twice, _some_constant, _heavy_tails, _levels_shift
]  # fmt: skip


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.__name__.strip("_"))
def test_an_adverse_table_costs_nothing_and_promises_nothing(world: Callable[..., Drawn]) -> None:
    ratios, excess = [], []
    for seed in range(TABLES):
        table, means = world(np.random.default_rng([seed, 11]))
        result = estimate_table(table)
        ratios.append(np.square(result.estimate - means).mean() / np.square(result.mean - means).mean())
        excess.append(result.summary.gain - (1.0 - ratios[-1]))
    two = 2.0 / TABLES**0.5
    assert np.mean(ratios) < 1.05 + two * np.std(ratios, ddof=1)
    assert np.mean(excess) < 0.05 + two * np.std(excess, ddof=1)
