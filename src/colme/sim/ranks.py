"""Ranks of MPI that make one run together, as a team (`colme._core.team`).

Ranks on one machine share arrays (windows of MPI): what one writes, the others read, without a copy. Between machines
only the numbers of agents move that have a neighbor on the other one (`Halo`). Every rank has a block of the agents,
and the blocks of a machine follow each other, so a machine has one range of the agents.
"""

from __future__ import annotations

import os
import textwrap
import weakref
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import HAVE_NUMBA, LANES, kernel
from colme._core.team import Neighborhood, Team
from colme.errors import RunError, missing_extra
from colme.support.arrays import Array, Floats, Integers

PRETEND = "COLME_RANKS_PER_MACHINE"
"""An environment variable, for tests: so many ranks count as one machine."""
NEARLY_ALL = 0.9
"""If this share of the agents elsewhere is needed, all are sent: then nothing is packed. On random graphs of degree 10
that is so for up to four machines."""


def mpi() -> Any:
    """mpi4py's MPI, or the sentence that says why there is none."""
    try:
        from mpi4py import MPI
    except ModuleNotFoundError:
        raise missing_extra("mpi4py", "mpi", "a run in ranks") from None
    except (ImportError, RuntimeError) as error:  # it looks for an MPI when it is imported
        reason = textwrap.shorten(str(error), 120, placeholder=" ..")
        raise RunError(
            f"mpi4py finds no MPI ({reason}): there must be one beside it. Try: pip install mpich, "
            "or load your cluster's MPI module."
        ) from None
    return MPI


class _CommTeam(Team):
    """The ranks of a communicator, some or all of those on this machine sharing arrays."""

    def __init__(self, comm: Any, shared: _SharedArrays):
        self._mpi, self.comm, self._shared = mpi(), comm, shared
        self.rank, self.size = comm.rank, comm.size

    def wait(self) -> None:
        self._shared.wait()

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return self._shared.zeros(shape, dtype)

    def gather(self, rows: Array) -> Array:
        counts, width = self._counts(rows)
        out = np.empty((counts.sum(), *rows.shape[1:]), rows.dtype)
        self.comm.Allgatherv(_bytes(rows), [_bytes(out), counts * width])
        return out

    def collect(self, rows: Array) -> Array | None:
        counts, width = self._counts(rows)
        out = np.empty((counts.sum(), *rows.shape[1:]), rows.dtype) if self.rank == 0 else None
        self.comm.Gatherv(_bytes(rows), None if out is None else [_bytes(out), counts * width], 0)
        return out

    def _counts(self, rows: Array) -> tuple[Integers, int]:
        """The numbers of all ranks' rows, and the bytes of a row."""
        counts = np.empty(self.size, np.int64)
        self.comm.Allgather(np.array([len(rows)], np.int64), counts)
        return counts, int(np.prod(rows.shape[1:])) * rows.dtype.itemsize

    def total(self, counts: Any) -> Integers:
        return self._reduce(np.array(counts, np.int64), self._mpi.SUM)

    def greatest(self, numbers: Any) -> Floats:
        return self._reduce(np.array(numbers, np.float64), self._mpi.MAX)

    def _reduce(self, mine: Array, operation: Any) -> Array:
        out = np.empty_like(mine)
        self.comm.Allreduce(mine, out, operation)
        return out


class RankTeam(_CommTeam):
    """The ranks of a communicator, in the order of their machines; `machine` is the number of this one."""

    def __init__(self, comm: Any):
        MPI = mpi()
        here = comm.Split_type(MPI.COMM_TYPE_SHARED)
        if PRETEND in os.environ:
            here = comm.Split(comm.rank // int(os.environ[PRETEND]))
        leader = here.bcast(comm.rank)  # names the machine
        super().__init__(comm.Split(0, leader * comm.size + here.rank), _SharedArrays(MPI, here))
        self._check_versions()
        leaders = self.comm.allgather(leader)
        self.machines: list[int] = [sorted(set(leaders)).index(each) for each in leaders]
        """The machine of each rank."""
        self.machine, self.n_machines = self.machines[self.rank], max(self.machines) + 1
        self._local = None if self.n_machines == 1 else _CommTeam(here, self._shared)

    def _check_versions(self) -> None:
        """Refuse ranks whose software may compute other bits."""
        from colme import __version__

        versions = self.comm.allgather((__version__, np.__version__, HAVE_NUMBA))
        for rank, theirs in enumerate(versions):
            if theirs != versions[0]:
                first, other = (f"colme {v}, NumPy {n}{'' if jit else ', no numba'}" for v, n, jit in
                                (versions[0], theirs))  # fmt: skip
                raise RunError(f"rank 0 has {first}, rank {rank} {other}: all must have the same. Install the same.")

    def check_same(self, configuration: Any) -> None:
        theirs = self.comm.allgather(zlib.crc32(repr(configuration).encode()))
        for rank, each in enumerate(theirs):
            if each != theirs[0]:
                raise RunError(f"rank {rank} was called with other arguments than rank 0: all must have the same. Set "
                               "them before the ranks differ.")  # fmt: skip

    @property
    def local(self) -> Team:
        return self if self._local is None else self._local

    def neighborhood(self, hood: Neighborhood, indices: NDArray[np.uint32]) -> Neighborhood:
        return hood if self.n_machines == 1 else Halo(hood, indices)


def _bytes(array: Array) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class _SharedArrays:
    """Arrays in windows that all ranks of a machine share.

    A window can only be freed by all ranks together. Each notes which of its arrays are no longer used, and the next
    allocation frees those that no rank uses."""

    def __init__(self, MPI: Any, comm: Any):
        self._mpi, self._comm = MPI, comm
        self._windows: dict[int, Any] = {}
        self._unused: set[int] = set()
        self._number = 0
        self._fence = self._allocate(LANES)

    def _allocate(self, size: int) -> Any:
        window = self._mpi.Win.Allocate_shared(size if self._comm.rank == 0 else 0, 1, comm=self._comm)
        window.Lock_all()
        return window

    def wait(self) -> None:
        self._fence.Sync()
        self._comm.Barrier()
        self._fence.Sync()

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        self._free()
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        window = self._allocate(max(size, 1))
        memory, _ = window.Shared_query(0)
        array = np.ndarray(shape, dtype, buffer=memory)
        rank, n_ranks = self._comm.rank, self._comm.size
        plain = np.frombuffer(memory, np.uint8, size) if size else np.empty(0, np.uint8)
        plain[size * rank // n_ranks : size * (rank + 1) // n_ranks] = 0  # each touches its part first
        self._windows[self._number] = window
        weakref.finalize(array, self._unused.add, self._number)
        self._number += 1
        self.wait()
        return array

    def _free(self) -> None:
        unused = set.intersection(*self._comm.allgather(set(self._unused)))
        for number in sorted(unused):
            window = self._windows.pop(number)
            window.Unlock_all()
            window.Free()
        self._unused -= unused


class Halo(Neighborhood):
    """The neighborhood where agents are on several machines.

    Arrays hold the agents of this machine, then its halo: those of other machines with a neighbor here, by number.
    `refresh` sends the numbers of own agents to the machines that have them in their halo."""

    one_machine = False

    def __init__(self, hood: Neighborhood, indices: NDArray[np.uint32]):
        """`indices`: the neighbors of the own agents, by number; they become indices of its arrays."""
        team = hood.team
        assert isinstance(team, RankTeam)
        self.__dict__.update(vars(hood))
        self._seen = {}
        machine_of, ends = np.array(team.machines), np.array(self.ends)
        mine = np.flatnonzero(machine_of == team.machine)
        self.machine_first, machine_end = int(ends[mine[0]]), int(ends[mine[-1] + 1])
        self.own_start = self.first - self.machine_first
        needed = team.zeros((self.n_agents,), np.uint8)
        needed[indices] = 1
        team.wait()
        halo = np.flatnonzero(needed)
        halo = halo[(halo < self.machine_first) | (halo >= machine_end)]
        if len(halo) > NEARLY_ALL * (self.n_agents - machine_end + self.machine_first):
            halo = np.concatenate([np.arange(self.machine_first), np.arange(machine_end, self.n_agents)])
        n_machine = -(-(machine_end - self.machine_first) // LANES) * LANES
        self.n_visible = n_machine + len(halo)
        del needed
        index = team.zeros((self.n_agents,), np.uint32)
        if team.local.rank == 0:
            index[self.machine_first : machine_end] = np.arange(machine_end - self.machine_first)
            index[halo] = n_machine + np.arange(len(halo))
        team.wait()
        _look_up(indices, index)
        team.wait()
        del index
        self._halo, self._n_machine, self._n_here = halo, n_machine, machine_end - self.machine_first
        self._ranks, self._full = team, Plan(team, halo, n_machine + np.arange(len(halo)), ends)

    def plan(self, indices: Array) -> Plan:
        """A plan that brings only those agents of the halo that are at these indices, of any rank on this machine."""
        team = self._ranks
        used = team.zeros((len(self._halo) + 1,), np.uint8)
        used[indices[indices >= self._n_machine] - self._n_machine] = 1
        team.wait()
        found = np.flatnonzero(used)
        if len(found) > NEARLY_ALL * len(self._halo):
            found = np.arange(len(self._halo))
        team.wait()
        return Plan(team, self._halo[found], self._n_machine + found, np.array(self.ends))

    def numbers(self, indices: NDArray[np.uint32]) -> NDArray[np.uint32]:
        here = indices < self._n_machine
        out = indices + np.uint32(self.machine_first)
        out[~here] = self._halo[indices[~here] - np.uint32(self._n_machine)]
        return out

    def indices(self, numbers: NDArray[np.uint32]) -> NDArray[np.uint32]:
        out = self._n_machine + np.searchsorted(self._halo, numbers)
        here = (numbers >= self.machine_first) & (numbers < self.machine_first + self._n_here)
        return np.where(here, numbers - np.int64(self.machine_first), out).astype(np.uint32)

    def array(self, dtype: Any, fill: Any = 0, rows: tuple[int, ...] = ()) -> Array:
        array = self.team.zeros((*rows, self.n_visible), dtype)
        if fill != 0:
            if self.team.local.rank == 0:
                array[...] = fill
            self.team.wait()
        return array

    def refresh(self, *arrays: Array) -> None:
        self.fetch(*arrays)

    def fetch(self, *arrays: Array, plan: Any = None) -> None:
        chosen: Plan = plan or self._full
        for array in arrays:
            for rows in self._rows(array):
                chosen.exchange(rows, self.own_start)
        self.team.wait()

    def _rows(self, array: Array) -> list[Array]:
        """An array as rows by agent; one that has agents on its second axis becomes several."""
        if array.ndim == 2 and array.shape[1] == self.n_visible and array.shape[0] != self.n_visible:
            return [row[:, None] for row in array]
        return [array.reshape(self.n_visible, -1)]


class Plan:
    """Which numbers are sent to whom, and where those that come belong.

    The agents of a rank are received on every other machine by one rank there; the ranks of a machine take turns."""

    def __init__(self, team: RankTeam, halo: Integers, indices: Integers, ends: Integers):
        """`halo`: the agents that this machine needs, by number, and their indices; `ends`: of all ranks' blocks."""
        bounds, local = np.searchsorted(halo, ends), team.local
        sources = [rank for rank in range(team.size) if team.machines[rank] != team.machine
                   and rank % local.size == local.rank and bounds[rank] < bounds[rank + 1]]  # fmt: skip
        wanted = {rank: halo[bounds[rank] : bounds[rank + 1]] - ends[rank] for rank in sources}
        asked = team.comm.alltoall([wanted.get(rank) for rank in range(team.size)])
        targets = [rank for rank, want in enumerate(asked) if want is not None]
        self._n_own = int(ends[team.rank + 1] - ends[team.rank])
        self._send_counts = np.array([len(asked[rank]) for rank in targets], np.int64)
        self._send: Integers | None = None  # None: all own agents go to all targets, without being packed
        if (self._send_counts < self._n_own).any():
            self._send = np.concatenate([asked[rank] for rank in targets])
        self._receive_counts = np.array([len(wanted[rank]) for rank in sources], np.int64)
        came = [indices[bounds[rank] : bounds[rank + 1]] for rank in sources]
        self._first_indices = np.array([each[0] for each in came], np.int64)
        self._receive: Integers | None = None  # None: the indices of each source follow each other
        if any(each[-1] - each[0] >= len(each) for each in came):
            self._receive = np.concatenate(came)
        self._channel = team.comm.Create_dist_graph_adjacent(sources, targets, reorder=False)

    def exchange(self, lines: Array, own_start: int) -> None:
        """Send the rows of own agents, the first of which is row `own_start`, and put those that come in place.

        Sampling and pruning while the numbers are under way was tried (`Ineighbor_alltoallv`): it gained nothing."""
        width = lines.shape[1] * lines.dtype.itemsize
        if self._send is None:
            out, send_at = lines[own_start : own_start + self._n_own], np.zeros_like(self._send_counts)
        else:
            out, send_at = lines[own_start + self._send], _starts(self._send_counts)
        if self._receive is None:
            came, receive_at = lines, self._first_indices
        else:
            receive_at = _starts(self._receive_counts)
            came = np.empty((len(self._receive), lines.shape[1]), lines.dtype)
        self._channel.Neighbor_alltoallv(
            [_bytes(out), (self._send_counts * width, send_at * width)],
            [_bytes(came), (self._receive_counts * width, receive_at * width)],
        )
        if self._receive is not None:
            lines[self._receive] = came


def _starts(counts: Integers) -> Integers:
    return np.cumsum(counts, dtype=np.int64) - counts


@kernel
def _look_up(indices, index):
    for k in range(indices.size):
        indices[k] = index[indices[k]]
