"""Threads that make one run together, as a team (`colme._core.team`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from colme._core.team import Team
from colme.support.arrays import Array, Floats, Integers

T = TypeVar("T")


class _Meeting:
    """What the threads of a team share."""

    def __init__(self, size: int):
        self.barrier = threading.Barrier(size)
        self.places: list[Any] = [None] * size


class ThreadTeam(Team):
    """Threads of one process. Kernels run without the GIL."""

    def __init__(self, rank: int, size: int, meeting: _Meeting):
        self.rank, self.size, self._meeting = rank, size, meeting

    def wait(self) -> None:
        self._meeting.barrier.wait()

    def _exchange(self, mine: Any) -> list[Any]:
        places = self._meeting.places
        places[self.rank] = mine
        self.wait()
        all_of_them = list(places)
        self.wait()
        return all_of_them

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return self._exchange(np.zeros(shape, dtype) if self.rank == 0 else None)[0]

    def gather(self, rows: Array) -> Array:
        return np.concatenate(self._exchange(rows.copy()))

    def collect(self, rows: Array) -> Array | None:
        all_rows = self._exchange(rows)
        collected = np.concatenate(all_rows) if self.rank == 0 else None
        self.wait()
        return collected

    def total(self, counts: Any) -> Integers:
        return np.sum(self._exchange(np.array(counts, np.int64)), axis=0, dtype=np.int64)

    def greatest(self, numbers: Any) -> Floats:
        return np.asarray(np.max(self._exchange(np.array(numbers, np.float64)), axis=0))


def run_threads(size: int, work: Callable[[Team], T]) -> T:
    """Let so many threads do the same work as a team; returns what the first one returns."""
    meeting = _Meeting(size)

    def one(rank: int) -> T:
        try:
            return work(ThreadTeam(rank, size, meeting))
        except BaseException:
            meeting.barrier.abort()  # the others must not wait for this one
            raise

    with ThreadPoolExecutor(size - 1, "colme-team") as pool:
        others = [pool.submit(one, rank) for rank in range(1, size)]
        failures: list[BaseException] = []
        try:
            result = one(0)
        except BaseException as error:
            failures.append(error)
        failures += [each for each in (other.exception() for other in others) if each is not None]
    for failure in sorted(failures, key=lambda each: isinstance(each, threading.BrokenBarrierError)):
        raise failure
    return result
