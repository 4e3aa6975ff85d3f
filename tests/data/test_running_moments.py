"""Moments of rows in any order, against a plain loop: the same bits, however the rows are cut into batches."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from colme._core.random import key_of, philox
from colme.data.moments import N_FOLDS, RunningMoments
from colme.data.read import batches
from colme.data.read.format import TableFormat
from colme.data.read.table import Names, read_moments

NAMES = Names("agent", "x")


def next_folds(agent: int, count: int, seed: int) -> list[int]:
    """Five folds in random order: a shuffle by Fisher and Yates whose draws are those of a counter."""
    w0, w1, _, _ = philox(agent, count // N_FOLDS, 0, 0, *key_of(seed))
    words, order = int(w0) << 32 | int(w1), list(range(N_FOLDS))
    for j in range(N_FOLDS - 1, 0, -1):
        words, other = divmod(words, j + 1)
        order[j], order[other] = order[other], order[j]
    return order


def by_a_plain_loop(agent: np.ndarray, x: np.ndarray, weight: np.ndarray, n_agents: int, seed: int) -> np.ndarray:
    """Count, weight, mean and square of each fold of each agent, row after row (West 1979)."""
    sums, coming, count = np.zeros((n_agents, N_FOLDS, 4)), [[] for _ in range(n_agents)], [0] * n_agents
    for a, value, w in zip(agent.tolist(), x.tolist(), weight.tolist(), strict=True):
        coming[a] = coming[a] or next_folds(a, count[a], seed)
        fold = sums[a, coming[a].pop(0)]
        count[a] += 1
        fold[0] += 1.0
        fold[1] += w
        d = value - fold[2]
        fold[2] += d * (w / fold[1])
        fold[3] += w * d * (value - fold[2])
    return sums


@pytest.mark.parametrize("n_agents", [1, 3, 40, 900])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_a_plain_loop_for_any_batches(n_agents: int, weighted: bool) -> None:
    """Few agents come again within the rows that are looked ahead; many leave some without a sample."""
    rng = np.random.default_rng(n_agents)
    agent, x, w = rng.integers(0, n_agents, 1500), rng.normal(5.0, 2.0, 1500), rng.uniform(0.5, 2.0, 1500)
    w = w if weighted else np.ones(1500)
    expected = by_a_plain_loop(agent, x, w, n_agents, seed=7)
    for sizes in ([1500], [1] * 1500, [23, 24, 25, 1, 1427], [700, 0, 800]):
        running, first = RunningMoments(7), 0
        for size in sizes:
            part = slice(first, first + size)
            running.add(agent[part], x[part], w[part] if weighted else None, int(agent[: part.stop].max()) + 1)
            first += size
        found = running.moments(np.arange(n_agents), NAMES)
        for k, name in enumerate(("n", "weight", "mean", "square")):
            np.testing.assert_array_equal(getattr(found.folds, name), expected[:, :, k])
        for a in range(n_agents):
            ends = (x[agent == a].min(), x[agent == a].max()) if (agent == a).any() else (np.inf, -np.inf)
            assert (found.low[a], found.high[a]) == ends
        np.testing.assert_array_equal(running.count(n_agents), np.bincount(agent, minlength=n_agents))


def test_a_file_in_many_batches_gives_the_bits_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread reads ahead: no batch may be lost, repeated or out of order."""
    draw = random.Random(0)
    table = pa.table({"agent": [f"sensor {draw.randrange(50)}" for _ in range(2000)],
                      "x": [draw.gauss(0.0, 1.0) for _ in range(2000)]})  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=130)
    known = read_moments(table, NAMES, TableFormat(), seed=1)
    monkeypatch.setattr(batches, "BATCH_ROWS", 37)
    found = read_moments(tmp_path / "t.parquet", NAMES, TableFormat(), seed=1)
    assert found.labels.tolist() == known.labels.tolist()
    for one, other in zip(found.folds, known.folds, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("values", [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
def test_samples_of_0_and_1_are_rates_and_others_are_not(values: list[float]) -> None:
    def law(x: Any) -> str:
        return read_moments({"agent": ["a"] * len(x), "x": x}, NAMES, TableFormat()).law

    assert law(values) == "binomial"
    assert law([*values, 0.5]) == law([2.0 * each for each in values]) == law([each - 1.0 for each in values]) == ""
