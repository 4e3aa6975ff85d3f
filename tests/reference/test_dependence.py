"""What agents pool, and what they learn of it, is the dense reading of the rule."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from colme.dependence import AHEAD, BATCHES, PER_OCTAVE, SIZES, SUMS, learn, observe, pool

from . import dependence as reference
from .common import Array


def samples_of(kind: str, n: int, agents: int, rng: np.random.Generator) -> Array:
    noise = rng.normal(size=(n + 100, agents)) * np.exp(0.5 * rng.normal(size=agents))
    if kind == "AR":
        return np.asarray(lfilter([1.0], [1.0, -0.6], noise, axis=0)[100:])
    if kind == "MA":
        return np.asarray(noise[100:] - 0.6 * noise[99:-1])
    if kind == "cycle":
        return np.asarray(noise[100:] + 2.0 * np.sin(np.arange(n)[:, None] / 1.5 + rng.uniform(0, 6, agents)))
    return np.asarray(noise[100:])


@pytest.mark.parametrize("kind", ["independent", "AR", "MA", "cycle"])
@pytest.mark.parametrize("known", [False, True])
def test_sums_and_factors_are_the_dense_reading(kind: str, known: bool) -> None:
    n, agents = 70, 12
    samples = samples_of(kind, n, agents, np.random.default_rng(4))
    means = np.cumsum(samples, axis=0) / np.arange(1.0, n + 1)[:, None]
    mean, square, count = np.zeros(agents), np.zeros(agents), np.zeros(agents, np.int64)
    batches, out = np.zeros((agents, BATCHES)), np.empty((agents, SUMS))
    for first in (0, 1, 9):  # in stretches of one step, of eight and of all others
        rows = means[first : {0: 1, 1: 9, 9: n}[first]]
        observe(rows, np.full(agents, first + 1), mean, count, square, batches)
    typical = 1.3 if known else None
    pool(batches, count, square, np.full(agents, typical or np.nan), out)
    sums, dense = out.sum(axis=0), reference.pooled(samples, typical)
    wanted = [*dense["A"], *dense["B"], dense["w"], dense["w2"], dense["s"], dense["n"]]  # type: ignore[misc]
    np.testing.assert_allclose(sums, wanted, rtol=1e-9)

    table = learn(sums, 2.0 * n)
    if kind == "independent":
        assert table is None and reference.factors(dense, n) is None
        return
    assert table is not None
    for octave in (2, 4, 6, 7):
        k = octave * PER_OCTAVE
        dense_rows = [reference.factors(dense, 2.0 ** ((k + j) / PER_OCTAVE)) for j in range(AHEAD + 1)]
        low, high, low_of_own, high_of_own = np.array(dense_rows, float).T
        if k + AHEAD < table.shape[1]:  # shapes of a probability below 1e-4 are left out
            np.testing.assert_allclose(table[:, k], [low.min(), high[0], low_of_own.min(), high_of_own[0]], rtol=5e-3)
    assert len(SIZES) == len(reference.SIZES)
