"""The agents of a host and their neighbors, there and on other hosts: a text file with a line per neighbor.

    agent,neighbor
    0,17
    0,pi-2/33              # number 33 of another host
    1,                     # no neighbor

Agents of a host are numbers from 0. Neighbors are added up in the order of the file. An edge within the host stands in
it twice, once for each end; one between hosts once in the file of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colme._core.fields import located
from colme._core.files import write_text
from colme.errors import NodeError, shorten
from colme.graphs import Graph
from colme.node.names import check_name

HEADER = "agent,neighbor"
MOST_AGENTS = 2**31 - 1


class HostGraph:
    """The agents of one host in compressed rows. The neighbors of a are ends[indptr[a]:indptr[a+1]]: other agents of
    this host by their numbers, then "ghosts", those of others that are neighbors of mine, host by host.

    backs[k] is the other end of slot k, or -1 where it is elsewhere."""

    def __init__(self, n_agents: int, hosts: Sequence[str], agent: ArrayLike, host: ArrayLike, number: ArrayLike):
        """An edge per row: an agent here, where its neighbor is (0: here, 1: on hosts[0], ..), and its number there."""
        self.n_agents, self.hosts = n_agents, tuple(hosts)
        for name in self.hosts:
            check_name(name, "neighbor")
        rows, where, numbers = (np.asarray(column, np.int64) for column in (agent, host, number))
        for column, most in ((rows, n_agents - 1), (numbers[where == 0], n_agents - 1), (numbers, MOST_AGENTS)):
            if len(column) and not 0 <= column.min() <= column.max() <= most:
                raise NodeError(f"agent {column.max()}: numbers here go from 0 to {most}. Correct the list.")
        order = np.argsort(rows, kind="stable")
        self.rows = rows[order]
        self.indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_agents))]).astype(np.int64)
        self._build(where[order], numbers[order])

    def _build(self, where: NDArray[np.int64], number: NDArray[np.int64]) -> None:
        """Give the ghosts their places, find the other ends, and refuse what is no graph."""
        ghosts, back = np.unique(where[where > 0] << 32 | number[where > 0], return_inverse=True)
        self.ghost_host, self.ghost_number = ghosts >> 32, ghosts & 0xFFFFFFFF  # the first host is 1
        self.ends = number.astype(np.int64)
        self.ends[where > 0] = self.n_agents + back
        there = self.rows << 32 | self.ends
        order = np.argsort(there)
        wrong = self.rows == self.ends
        wrong[order[1:]] |= np.diff(there[order]) == 0
        if wrong.any():
            raise NodeError(
                f"agent {self.rows[wrong][0]}: a neighbor is another agent, and listed once. Correct the list."
            )
        self.backs = np.full(len(self.ends), -1, np.int64)
        here = np.flatnonzero(where == 0)
        self.backs[here] = looked_up(there[order], self.ends[here] << 32 | self.rows[here], order)
        missing = here[self.backs[here] < 0]
        if len(missing):
            k = missing[0]
            raise NodeError(f"{self.rows[k]},{self.ends[k]}: an edge of this host is listed at both its ends. "
                            f"Add {self.ends[k]},{self.rows[k]}.")  # fmt: skip

    @property
    def n_ghosts(self) -> int:
        return len(self.ghost_number)

    @property
    def degrees(self) -> NDArray[np.int64]:
        return np.diff(self.indptr)

    @cached_property
    def crossing(self) -> NDArray[np.int64]:
        """Slots whose other end is elsewhere."""
        return np.flatnonzero(self.ends >= self.n_agents)

    @cached_property
    def spans(self) -> dict[str, slice]:
        """Where the ghosts of each host stand among all."""
        bounds = np.searchsorted(self.ghost_host, np.arange(1, len(self.hosts) + 2)).tolist()
        return {host: slice(bounds[i], bounds[i + 1]) for i, host in enumerate(self.hosts)}

    @classmethod
    def read(cls, path: str | Path, name: str) -> HostGraph:
        """That of the host of this name."""
        try:
            head, *lines = Path(path).read_text(encoding="utf-8").splitlines() or [""]
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise NodeError(f"cannot read {path}: {reason}. Make it with: colme node plan --agents.") from None
        if head.strip() != HEADER:
            raise NodeError(f"{path}, line 1: {shorten(head)} must be {HEADER!r}. Add that line.")
        agents, places, numbers = [], [], []
        most = -1
        for row, line in enumerate(lines, 2):
            agent, comma, neighbor = line.partition("#")[0].replace(" ", "").partition(",")
            host, _, number = neighbor.rpartition("/")
            if not (comma and agent.isdecimal() and (number.isdecimal() or not neighbor)) or len(number) > 10:
                raise NodeError(f"{path}, line {row}: {shorten(line)} must be agent,neighbor. Try 0,17 or 0,pi-2/33.")
            most = max(most, int(agent))
            if neighbor:
                agents.append(int(agent))
                places.append(host)
                numbers.append(int(number))
        if not 0 <= most < len(lines):
            named = f"agent {most} but not all before it" if lines else "no agents"
            raise NodeError(f"{path} names {named}: each has a line, from 0 on. Add a line: 0,")
        if name in places:
            raise NodeError(f"{path}: {name}/... is on {name!r} itself, whose own agents are plain numbers. "
                            f"Leave {name}/ out.")  # fmt: skip
        hosts = sorted(set(places) - {""})
        place = {host: i for i, host in enumerate(("", *hosts))}
        with located(f"{path}: ", NodeError):
            return cls(most + 1, hosts, agents, [place[host] for host in places], numbers)

    def write(self, path: str | Path) -> None:
        names = ("", *(f"{host}/" for host in self.hosts))
        lines = [HEADER]
        for a in range(self.n_agents):
            row = self.ends[self.indptr[a] : self.indptr[a + 1]].tolist()
            lines += [f"{a},{self._name(b, names)}" for b in row] or [f"{a},"]
        write_text(Path(path), "\n".join(lines) + "\n")

    def _name(self, end: int, names: Sequence[str]) -> str:
        if end < self.n_agents:
            return str(end)
        ghost = end - self.n_agents
        return f"{names[self.ghost_host[ghost]]}{self.ghost_number[ghost]}"


def looked_up(
    sorted_keys: NDArray[np.int64], wanted: NDArray[np.int64], values: NDArray[np.int64]
) -> NDArray[np.int64]:
    """values[i] where sorted_keys[i] is what is wanted; -1: nowhere."""
    if len(sorted_keys) == 0:
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(sorted_keys, wanted), len(sorted_keys) - 1)
    return np.where(sorted_keys[at] == wanted, values[at], -1)


def split(graph: Graph, owner: Sequence[int], names: Sequence[str]) -> tuple[list[HostGraph], list[NDArray[Any]]]:
    """A graph over hosts, agent a on host names[owner[a]]: their graphs, and the agents of each in the order of their
    numbers there."""
    owners = np.asarray(owner)
    agents = [np.flatnonzero(owners == host) for host in range(len(names))]
    number = np.empty(len(owners), np.int64)
    for own in agents:
        number[own] = np.arange(len(own))
    ends = graph.indices.astype(np.int64)
    rows = np.repeat(np.arange(graph.n_agents), graph.degrees)
    graphs = []
    for host, own in enumerate(agents):
        mine = np.flatnonzero(owners[rows] == host)
        there = owners[ends[mine]]
        others = [
            other for other in sorted(range(len(names)), key=names.__getitem__) if other != host and other in there
        ]
        place = np.zeros(len(names), np.int64)
        place[others] = np.arange(1, len(others) + 1)
        hosts = [names[other] for other in others]
        graphs.append(HostGraph(len(own), hosts, number[rows[mine]], place[there], number[ends[mine]]))
    return graphs, agents
