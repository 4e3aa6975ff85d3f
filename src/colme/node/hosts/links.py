"""The edges between a host and other hosts: which frames were received, what goes into the own ones, and which cuts are
not acknowledged yet."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.errors import NodeError
from colme.node.backoff import Backoff
from colme.node.hosts.frame import (
    HEAD_BYTES,
    ITEM_BYTES,
    LOANS,
    MOST_AGENTS,
    MOST_BYTES,
    MOST_PAIRS,
    MOST_PARTS,
    ROW_BYTES,
    Columns,
    Cuts,
    Frame,
    host_hash,
    pack_cuts,
    unpack_cuts,
)  # fmt: skip
from colme.node.hosts.graph import HostGraph, looked_up
from colme.node.messages.wire import CUT, CUT_HEARD

MOST_TOLD = 6
"""Lists of cuts to a host at a tick: with as many answers they fit into its mailbox."""

Index = NDArray[np.int64]


class HostLinks:
    """Edges to other hosts. `silent`: nothing is said over them."""

    def __init__(self, graph: HostGraph, name: str, kind: int, *, silent: bool = False):
        self.graph, self.kind, self.me = graph, kind, host_hash(name)
        self.crossing = np.empty(0, np.int64) if silent else graph.crossing
        self.known = np.zeros(len(graph.ends), bool)  # of slots that are cut: the other host knows
        self.marks: dict[tuple[str, int], tuple[int, int, int]] = {}
        ghost = graph.ends[self.crossing] - graph.n_agents
        self._host = np.zeros(len(graph.ends), np.int64)  # of the other end, from 1
        self._number = np.zeros(len(graph.ends), np.int64)
        self._host[self.crossing] = graph.ghost_host[ghost]
        self._number[self.crossing] = graph.ghost_number[ghost]
        self._hashes = np.array([0, *map(host_hash, graph.hosts)], np.uint32)
        if len({self.me, *self._hashes[1:].tolist()}) <= len(graph.hosts):
            raise NodeError(f"two of {', '.join((name, *graph.hosts))} have the same hash. Rename one of them.")
        self._edges = {host: self._sorted_edges(i) for i, host in enumerate(graph.hosts, 1)}
        self._part = self._assign_parts()
        self._open = self.crossing  # those that live
        self._shown: list[tuple[Index, Index, Columns]] | None = None
        self._found: dict[tuple[str, int], tuple[bytes, Index, Any]] = {}
        self._found_slots: dict[tuple[str, int], tuple[list[NDArray[Any]], Index, Index]] = {}
        self._waiting: dict[str, Backoff] = {}  # hosts that do not know of some cuts yet
        self._answers: list[tuple[str, Cuts]] = []

    @property
    def any(self) -> bool:
        return len(self.crossing) > 0

    @property
    def n_parts(self) -> int:
        return int(self._part.max()) + 1 if self.any else 0

    def _sorted_edges(self, host: int) -> tuple[Index, Index]:
        """(keys in order, their slots) of the edges to a host."""
        slots = self.crossing[self._host[self.crossing] == host]
        keys = self._number[slots] << 32 | self.graph.rows[slots]
        order = np.argsort(keys)
        return keys[order], slots[order]

    def _find(self, host: str, theirs: NDArray[Any], mine: NDArray[Any]) -> Index:
        """The slots of edges from agents of another host to mine; -1: there is none."""
        keys, slots = self._edges[host]
        wanted = theirs.astype(np.int64) << 32 | mine.astype(np.int64)
        return looked_up(keys, wanted, slots)

    # Frames of others

    def refusal(self, host: str, frame: Frame) -> str:
        """Why a frame of this host does not count, in one word; "": it does."""
        if host not in self._edges:
            return "stranger"
        if not self.any or frame.kind != self.kind:
            return "sense"
        return "old" if frame.age_mark <= self.marks.get((host, frame.part), (0, 0, 0)) else ""

    def mark(self, host: str, frame: Frame) -> None:
        self.marks[host, frame.part] = frame.age_mark

    def ghosts_in(self, host: str, frame: Frame) -> tuple[Index, Any]:
        """(ghosts, rows of the frame) for its agents that are neighbors of own agents. Most parts name the same
        agents as the one before, so what was found is kept."""
        raw, key = frame.rows["agent"].tobytes(), (host, frame.part)
        if key not in self._found or self._found[key][0] != raw:
            span = self.graph.spans[host]
            numbers = self.graph.ghost_number[span]
            ghosts = looked_up(numbers, frame.rows["agent"].astype(np.int64), np.arange(span.start, span.stop))
            rows = slice(None) if np.all(ghosts >= 0) else np.flatnonzero(ghosts >= 0)
            self._found[key] = raw, ghosts[ghosts >= 0], rows
        return self._found[key][1:]

    def slots_in(self, host: str, frame: Frame) -> tuple[Index, Index]:
        """(slots, items of the frame) for those of its edges that lead here."""
        items, key = frame.items, (host, frame.part)
        named = [frame.rows["agent"], items["row"], items["host"], items["neighbor"]]
        if key not in self._found_slots or not all(map(np.array_equal, self._found_slots[key][0], named)):
            here = np.flatnonzero(items["host"] == self.me)
            slots = self._find(host, frame.rows["agent"][items["row"][here]], items["neighbor"][here])
            self._found_slots[key] = named, slots[slots >= 0], here[slots >= 0]
        return self._found_slots[key][1:]

    # The own frame

    def _assign_parts(self) -> Index:
        """The part of each agent, for ever, so that the parts of an agent's states do not overtake each other; -1: no
        neighbors elsewhere."""
        part = np.full(self.graph.n_agents, -1, np.int64)
        edges = np.bincount(self.graph.rows[self.crossing], minlength=self.graph.n_agents)
        at, n, size, largest = 0, 0, HEAD_BYTES, 0
        for a in np.flatnonzero(edges).tolist():
            more = ROW_BYTES[self.kind] + ITEM_BYTES[self.kind] * int(edges[a])
            if n == MOST_AGENTS or size + more > MOST_BYTES:
                at, n, size = at + 1, 0, HEAD_BYTES
            part[a], n, size = at, n + 1, size + more
            largest = max(largest, size)
        if at >= MOST_PARTS or largest > MOST_BYTES:
            raise NodeError(f"{len(self.crossing)} edges to other hosts do not fit into {MOST_PARTS} parts of a frame. "
                            "Use more hosts, or fewer edges between them.")  # fmt: skip
        return part

    def parts(self, core: Any) -> list[tuple[Columns, Columns]]:
        """(rows, items) of each part, of the agents that still have neighbors elsewhere."""
        if self._shown is None:
            self._shown = [self._show(part) for part in range(self.n_parts)]
        found: list[tuple[Columns, Columns]] = []
        for agents, slots, items in self._shown:
            columns = {
                "agent": agents, "mean": core.means[agents], "radius": core.spread[agents],
                "estimate": core.heard[agents], "degree": core.degree[agents],
            }  # fmt: skip
            if self.kind == LOANS:
                found.append((columns, items | {"flow": core.flows[slots]}))
            else:
                more = {"restart": core.restart[agents], "generation": core.generation[agents]}
                found.append((columns | more, {}))
        return found

    def _show(self, part: int) -> tuple[Index, Index, Columns]:
        """(agents, slots, what items say of the slots) of a part, until the next cut."""
        rows = self.graph.rows[self._open]
        slots = self._open[self._part[rows] == part]
        agents, row = np.unique(self.graph.rows[slots], return_inverse=True)
        items = {
            "row": row.astype(np.uint32), "host": self._hashes[self._host[slots]],
            "neighbor": self._number[slots].astype(np.uint32),
        }  # fmt: skip
        return agents, slots, items

    # Cuts

    def cut(self, slots: Index, *, known: bool) -> bool:
        """These slots were cut. True if some lead elsewhere."""
        crossing = slots[self._host[slots] > 0]
        if len(crossing) == 0:
            return False
        self._open = np.setdiff1d(self._open, crossing, assume_unique=True)
        self._shown = None
        self.known[crossing] = known
        if not known:
            for host in np.unique(self._host[crossing]).tolist():
                self._waiting[self.graph.hosts[host - 1]] = Backoff()
        return True

    def resume(self, alive: NDArray[np.bool_]) -> None:
        """After a restart: these slots live, and cuts that are not known are told anew."""
        self._open, self._shown = self.crossing[alive[self.crossing]], None
        self._waiting = {host: Backoff() for host in self.graph.hosts}

    def unknown(self, alive: NDArray[np.bool_]) -> Index:
        """Slots that are cut, which the other host does not know."""
        return self.crossing[~alive[self.crossing] & ~self.known[self.crossing]]

    def listen(self, host: str, raw: bytes, alive: NDArray[np.bool_], refused: Counter[str]) -> tuple[Index, bool]:
        """(slots that must be cut because the other host has, whether there is anything new to be saved); a WireError
        if it is no list of cuts."""
        none = np.empty(0, np.int64)
        if host not in self._edges or not self.any:
            refused["stranger"] += 1
            return none, False
        cuts = unpack_cuts(raw)
        slots = self._find(host, cuts.mine, cuts.yours)
        there = slots[slots >= 0]
        senseless = int(alive[there].sum()) if cuts.kind == CUT_HEARD else 0  # never cut here
        for reason, times in (("stranger", len(slots) - len(there)), ("sense", senseless)):
            if times:
                refused[reason] += times
        cut = there[~alive[there]]
        news = bool((~self.known[cut]).any())
        self.known[cut] = True
        if cuts.kind == CUT_HEARD:
            return none, news
        if len(there):
            self._answers.append((host, Cuts(CUT_HEARD, 1, 0, cuts.yours[slots >= 0], cuts.mine[slots >= 0])))
        return np.unique(there[alive[there]]), news

    def messages(self, incarnation: int, epoch: int, alive: NDArray[np.bool_]) -> list[tuple[str, bytes]]:
        """Answers, and the cuts that are not known, after 1, 2, 4, ... ticks."""
        told = [
            (host, pack_cuts(Cuts(cuts.kind, incarnation, epoch, cuts.mine, cuts.yours)))
            for host, cuts in self._answers
        ]  # fmt: skip
        self._answers = []
        if not self._waiting:
            return told
        unknown = self.unknown(alive)
        for host, backoff in list(self._waiting.items()):
            slots = unknown[self._host[unknown] == self.graph.hosts.index(host) + 1]
            if len(slots) == 0:
                del self._waiting[host]
                continue
            if backoff.due():
                for first in range(0, min(len(slots), MOST_TOLD * MOST_PAIRS), MOST_PAIRS):
                    some = slots[first : first + MOST_PAIRS]
                    cuts = Cuts(CUT, incarnation, epoch, self.graph.rows[some], self._number[some])
                    told.append((host, pack_cuts(cuts)))
        return told
