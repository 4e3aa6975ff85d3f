"""Teams: workers that make one run together, each for a block of the agents, with the same bits for any number of them.

Workers are threads of one process (`colme.sim.threads`) or ranks of MPI (`colme.sim.ranks`). Each executes the same
code for its own agents. What they exchange goes through the methods of `Team`, which all workers call in the same
order, and through arrays of a `Neighborhood`, which hold the numbers of all agents that a worker can see.

Sums of floating-point numbers depend on the order of additions. Here it is always the same: agents are added up within
pages of a fixed size, and the pages in order. A block is some pages, so a page never belongs to two workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import CHUNK, LANES
from colme.support.arrays import Array, Floats, Integers

MOST_PAGES = 1024
"""Pages of a run at most: enough for balance, few enough to be gathered at every recorded step."""
MOST_CLASS_SUMS = 2**20
"""Sums by page and class at most. Where classes are many, pages are few and large."""


class Team:
    """A team of one: a plain run."""

    rank, size = 0, 1

    @property
    def local(self) -> Team:
        """The workers on this machine."""
        return self

    def neighborhood(self, hood: Neighborhood, indices: NDArray[np.uint32]) -> Neighborhood:
        """The neighborhood of own agents with these neighbors, whose numbers become indices in its arrays."""
        return hood

    def check_same(self, configuration: Any) -> None:
        """Refuse workers that are to do something else than the first."""

    def wait(self) -> None:
        """Until all workers on this machine are here. What each wrote before, all of them see afterwards."""

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An array that all workers on this machine write to and see."""
        return np.zeros(shape, dtype)

    def gather(self, rows: Array) -> Array:
        """The rows of all workers, in the workers' order."""
        return rows

    def collect(self, rows: Array) -> Array | None:
        """The same, for the first worker only; None for the others."""
        return rows

    def total(self, counts: Any) -> Integers:
        """Whole numbers, added up over all workers."""
        return np.asarray(counts, np.int64)

    def greatest(self, numbers: Any) -> Floats:
        """The largest of all workers' numbers, one by one."""
        return np.asarray(numbers, np.float64)

    def any(self, true: bool) -> bool:
        """Whether it is true for some worker."""
        return true if self.size == 1 else bool(self.total(int(true)))


ALONE = Team()


class Neighborhood:
    """The agents of one worker, `n_own` of `n_agents` from `first` on, in whole pages; and the arrays in which it finds
    their numbers and those of all their neighbors.

    On one machine arrays hold all agents, at their own numbers, and are shared by all workers of the machine."""

    one_machine = True
    """All agents are on this machine."""

    def __init__(self, n_agents: int, team: Team = ALONE, n_classes: int = 1):
        self.n_agents, self.team = n_agents, team
        n_chunks = -(-n_agents // CHUNK)
        most = max(1, min(MOST_PAGES, MOST_CLASS_SUMS // n_classes))
        self.page = -(-n_chunks // most) * CHUNK
        """Agents of a page."""
        self.n_all_pages = -(-n_agents // self.page)
        self.ends = [min(n_agents, self.n_all_pages * k // team.size * self.page) for k in range(team.size + 1)]
        """Where the block of each worker begins; one more for the end of the last."""
        self.first = self.ends[team.rank]
        self.n_own = self.ends[team.rank + 1] - self.first
        self.own = slice(self.first, self.first + self.n_own)
        """The agents of this worker among all."""
        self.n_pages = -(-self.n_own // self.page)
        """Pages of this worker."""
        self.n_visible = -(-n_agents // LANES) * LANES
        self.own_start = self.first
        """The index of the first own agent."""
        self._seen: dict[str, Array] = {}

    def array(self, dtype: Any, fill: Any = 0, rows: tuple[int, ...] = ()) -> Array:
        """An array of all visible agents, the last axis, filled with a number."""
        shape = (*rows, self.n_visible)
        if self.team.size == 1:
            return np.zeros(shape, dtype) if fill == 0 else np.full(shape, fill, dtype)
        array = self.team.zeros(shape, dtype)
        if fill != 0:
            if self.team.rank == 0:
                array[...] = fill
            self.team.wait()
        return array

    def lines(self, width: int) -> Floats:
        """Zeros, so many for every visible agent one after the other, that begin where a line of the cache does."""
        size = self.n_visible * width
        room = self.team.zeros((size + 7,), np.float64)
        begin = -room.ctypes.data // 8 % 8 if self.team.size == 1 else 0  # shared arrays begin where a page does
        return room[begin : begin + size]

    def mine(self, array: Array) -> Array:
        """The own agents of an array of visible ones."""
        return array[..., self.own_start : self.own_start + self.n_own]

    def my_lines(self, lines: Array) -> Array:
        """Those of `lines`, a row each."""
        return lines.reshape(self.n_visible, -1)[self.own_start : self.own_start + self.n_own]

    def numbers(self, indices: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The numbers of the agents at these indices."""
        return indices

    def indices(self, numbers: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The indices of these agents."""
        return numbers

    def refresh(self, *arrays: Array) -> None:
        """Let all workers see what each wrote for its own agents."""
        self.team.wait()

    def fetch(self, *arrays: Array, plan: Any = None) -> None:
        """Bring the numbers of agents on other machines, or those in a plan; all workers here have written theirs."""

    def plan(self, indices: Array) -> Any:
        """A plan for the agents at these indices, for `fetch`; None where all agents are on this machine."""
        return None

    def seen(self, name: str, own: Array) -> Array:
        """Numbers of the own agents as an array of visible ones; `name` tells it from others that are in use."""
        if self.team.size == 1:
            return own
        array = self._seen.get(name)
        if array is None or array.dtype != own.dtype:
            array = self._seen[name] = self.array(own.dtype)
        self.team.wait()  # all have read what it held before
        self.mine(array)[...] = own
        self.refresh(array)
        return array
