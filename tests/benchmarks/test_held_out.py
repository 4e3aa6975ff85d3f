"""The protocol of held-out samples: what it says on worlds whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.held_out import adjusted_rand_index, score, split
from colme.errors import ColmeError
from tests.support.tables import drawn


def test_protocol_scores_estimates_without_their_noise() -> None:
    """On a continuum with tau = 1, sigma = 2 and n = 4, shrinkage keeps 1 / (1 + sigma^2 / (n tau^2)) = 1/2."""
    rng = np.random.default_rng(12)
    table = drawn(rng, rng.normal(0.0, 1.0, 1500), 44, sigma=2.0)
    part = split(table, 4, seed=0, held_out=20)
    assert np.diff(part.train.start).tolist() == [4] * 1500
    assert part.error(part.mean) == pytest.approx(-part.noise.mean())
    found = score(table, 4, seeds=range(3), method="shrinkage")
    assert found.ratio == pytest.approx(0.5, abs=0.05) and found.n_agents == 1500
    with pytest.raises(ColmeError, match="smaller n"):
        split(table, 40)


def test_adjusted_rand_index_is_zero_by_chance() -> None:
    rng = np.random.default_rng(13)
    values = [adjusted_rand_index(rng.integers(0, 4, 200), rng.integers(0, 3, 200)) for _ in range(200)]
    assert np.mean(values) == pytest.approx(0.0, abs=0.005)
    assert adjusted_rand_index(np.zeros(5), np.zeros(5)) == 1.0
