"""A random regular graph depends on its sizes and its key alone, not on how many workers make it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from colme._core.regular_graph import random_regular_rows
from colme._core.team import Neighborhood, Team
from colme.graphs import GraphPart, random_regular_graph, random_regular_part
from colme.sim.threads import run_threads
from tests.support.examples import examples

# As version 0.10.0 made them, one worker alone: n, d, key, and the start of the SHA-256 of the rows.
KNOWN = [
    (2, 1, 0, "7c9fa136d4413fa6"),
    (7, 2, 3, "7f7e8b27982e4038"),
    (10, 7, 1, "fa52e44b026b2a3e"),
    (9, 4, 2**64 - 1, "0d1c364c136a9939"),
    (65, 32, 5, "86acd779f9498cb8"),
    (1000, 499, 1, "ee5b168abad1838b"),
    (1025, 10, 7, "7c4c35487070baa6"),
    (8192, 3, 2**63, "cd6e23cd688153e9"),
    (8194, 5, 11, "ae0d555e9e51d44e"),
    (24577, 10, 1, "baad29f5624346c1"),
    (100_000, 10, 0, "42091394d1b8d157"),
    (300_001, 2, 12345, "11c5abef72dffe4a"),
]
SIZES = [
    (1, 0), (2, 1), (3, 2), (4, 2), (5, 2), (6, 3), (9, 4), (10, 9), (40, 35), (64, 31), (101, 50), (1023, 6),
    (1025, 10), (2050, 1), (8191, 2), (8193, 10), (8194, 5), (16385, 8), (30_001, 4),
]  # fmt: skip


def made_by(size: int, n: int, d: int, key: int) -> NDArray[np.uint32]:
    """The rows that the first of so many threads gets."""
    return run_threads(size, lambda team: random_regular_rows(n, d, key, team).copy())


@pytest.mark.parametrize(("n", "d", "key", "digest"), KNOWN)
def test_graphs_are_those_of_earlier_versions(n: int, d: int, key: int, digest: str) -> None:
    rows = random_regular_rows(n, d, key)
    assert rows.shape == (n, d) and rows.dtype == np.uint32
    assert hashlib.sha256(rows.tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_team_makes_the_graph_of_one_worker(size: int) -> None:
    for n, d in SIZES:
        for key in (0, n, 2**64 - 1):
            assert np.array_equal(made_by(size, n, d, key), random_regular_rows(n, d, key)), (n, d, key)


@examples(60)
@given(st.integers(1, 90), st.data(), st.sampled_from([2, 3, 5]), st.integers(0, 2**64 - 1))
def test_a_team_makes_any_tiny_or_dense_graph_of_one_worker(n: int, data: st.DataObject, size: int, key: int) -> None:
    d = data.draw(st.integers(0, n - 1).filter(lambda d: n * d % 2 == 0))
    assert np.array_equal(made_by(size, n, d, key), random_regular_rows(n, d, key))


def test_all_workers_share_one_array() -> None:
    def same_array(team: Team) -> bool:
        rows = random_regular_rows(1000, 6, 1, team)
        return bool((team.gather(np.array([rows.ctypes.data])) == rows.ctypes.data).all())

    assert run_threads(3, same_array)


@pytest.mark.parametrize(("n", "d"), [(3000, 10), (3000, 2), (4096, 0), (5001, 4)])
def test_parts_are_the_rows_of_the_whole_graph(n: int, d: int) -> None:
    whole = random_regular_graph(n, d, rng=9)

    def rows_of_all(team: Team) -> tuple[NDArray[np.uint32], NDArray[np.int64], GraphPart]:
        part = random_regular_part(d, 9, Neighborhood(n, team))
        return team.gather(part.indices), team.gather(part.degrees), part

    indices, degrees, part = run_threads(3, rows_of_all)
    assert np.array_equal(indices, whole.indices) and np.array_equal(degrees, whole.degrees)
    totals = part.whole
    assert (totals.n_agents, totals.n_edges, totals.max_degree) == (n, whole.n_edges, d)
