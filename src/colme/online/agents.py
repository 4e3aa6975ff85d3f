"""The agents of an online model: their labels and rows, how agents are added, forgotten and merged, and what is known
about them by label."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from threading import RLock
from typing import Any, TypeVar

import numpy as np

from colme.confidence import DifferenceTest
from colme.consensus import START
from colme.dependence import BATCHES
from colme.errors import UnknownAgent, nearest
from colme.graphs import Graph, row_ends
from colme.online.kernel import (
    ARRIVED,
    COUNT,
    CUT,
    DEGREE,
    ESTIMATE,
    EVENTS,
    HEARD,
    LAST_CUT,
    MEAN,
    PRESENT,
    RADIUS,
    RESTART,
    SQUARE,
    STAMP,
    TIME,
    WEIGHT,
    WEIGHT_2,
    link,
    sum_pool,
    unlink_all,
    unlink_pair,
)
from colme.support.arrays import Floats, Integers, Mask
from colme.support.columns import Label, Labels, as_label

T = TypeVar("T")

_ASKED = 10_000
"""Labels that are searched for the nearest one to an unknown label."""
_EMPTY_AGENT = np.zeros(8)
_EMPTY_AGENT[[MEAN, ESTIMATE]] = np.nan
_EMPTY_AGENT[RADIUS], _EMPTY_AGENT[TIME] = np.inf, -np.inf
_EMPTY_NUMBERS = np.zeros(5, np.int64)
_EMPTY_NUMBERS[RESTART] = START


class _Index(dict[Label, int]):
    """Slots by label; a new label gets the next slot."""

    def __init__(self, table: AgentTable):
        super().__init__()
        self.table = table

    def __missing__(self, label: Label) -> int:
        return self.table.admit(label)


class AgentTable:
    """The agents of a model. A slot is a row of its arrays; `roster[:n_agents]` are the slots in use."""

    arrays = ("agents", "numbers", "roster", "places", "neighbors", "snapshots", "batches")
    """Arrays with one row per slot."""

    def __init__(self, width: int | None, *, votes: bool = False, dependent: bool = False):
        """`width`: neighbors that an agent has room for; None: there is no graph. `votes`: estimates are judged.
        `dependent`: the samples of an agent may depend on each other."""
        self.index = _Index(self)
        self.labels: list[Label | None] = []
        self.free: list[int] = []
        self.agents = np.empty((0, len(_EMPTY_AGENT)))
        self.numbers = np.empty((0, len(_EMPTY_NUMBERS)), np.int64)
        self.roster, self.places = np.empty(0, np.int64), np.empty(0, np.int64)
        self.neighbors = None if width is None else np.empty((0, width), np.int32)
        self.snapshots = np.empty((0, 7)) if votes else None
        self.batches = np.empty((0, BATCHES)) if dependent else None
        self.counters, self.pool = np.zeros(4, np.int64), np.zeros(2)

    @property
    def n_agents(self) -> int:
        return len(self.index)

    @property
    def present(self) -> Integers:
        """The slots of all agents, in the order of arrival; the last one replaces a forgotten agent."""
        return self.roster[: self.counters[PRESENT]]

    def labels_of(self, slots: Integers) -> list[Label]:
        return [self.labels[slot] for slot in slots.tolist()]

    def slot(self, label: Label) -> int:
        """The slot of a known agent, or a refusal."""
        found = self.index.get(label)
        if found is not None:
            return found
        names = [name for name, _ in zip(self.index, range(_ASKED), strict=False)]
        close = nearest(label, map(str, names))
        remedy = "Learn a sample of it first." if close is None else f"Did you mean {_as_typed(close, names)!r}?"
        known = {0: "no agent is", 1: "1 other agent is"}.get(self.n_agents, f"{self.n_agents:,} other agents are")
        raise UnknownAgent(f"unknown agent {label!r}: {known} known. {remedy}")

    def admit(self, label: Label) -> int:
        """A slot for a new agent. It is in the roster from its first event on."""
        if self.free:
            slot = self.free.pop()
            self.labels[slot] = label
        else:
            slot = len(self.labels)
            self.labels.append(label)
        self.index[label] = slot
        return slot

    def slots_of(self, labels: Labels) -> Integers:
        """The slots of all labels, new ones included, in the order in which they appear."""
        if isinstance(labels, list):
            return np.fromiter(map(self.index.__getitem__, labels), np.int64, len(labels))
        if not len(labels):
            return labels
        low = labels.min()
        places, row = labels - low, np.arange(len(labels))
        slots = np.full(places.max() + 1, -1)
        slots[places[::-1]] = row[::-1]  # the first row of each label, for the last one that is written counts
        seen = np.flatnonzero(slots >= 0)
        seen = seen[np.argsort(slots[seen])]
        slots[seen] = self.slots_of((seen + low).tolist())
        return slots[places]

    def newest(self, n: int) -> list[Label]:
        """The labels of the last n admissions, the latest first."""
        return list(itertools.islice(reversed(self.index), n))

    def withdraw(self, n_agents: int, n_slots: int) -> None:
        """Undo the last admissions, of agents without an event, back to this number of agents and slots."""
        for label in self.newest(self.n_agents - n_agents):
            slot = self.index.pop(label)
            self.labels[slot] = None
            if slot < n_slots:
                self.free.append(slot)
        del self.labels[n_slots:]

    def reserve(self) -> None:
        """Make room in all arrays for every slot."""
        have, need = len(self.agents), len(self.labels)
        if need <= have:
            return
        size = max(need, 2 * have, 16)
        empty = {"agents": _EMPTY_AGENT, "numbers": _EMPTY_NUMBERS, "places": -1, "snapshots": np.nan}
        for name in self.arrays:
            old = getattr(self, name)
            if old is not None:
                new = np.empty((size, *old.shape[1:]), old.dtype)
                new[:have], new[have:] = old, empty.get(name, 0)
                setattr(self, name, new)

    def as_of_now(self) -> AgentTable:
        """What a vote reads, unchanged by later events. Snapshots are shared until the vote copies them: events do not
        touch them, and neither do they touch the part of the roster that is in use."""
        now = AgentTable.__new__(AgentTable)
        vars(now).update(vars(self))
        for name in ("agents", "numbers", "batches", "counters", "pool"):
            setattr(now, name, copy.copy(getattr(self, name)))
        return now

    def forget(self, slot: int) -> None:
        """Remove an agent and its edges. The last agent in the roster takes its place there."""
        label = self.labels[slot]
        if self.neighbors is not None:
            unlink_all(self.neighbors, self.numbers, slot)
        self.counters[PRESENT] -= 1
        last = self.roster[self.counters[PRESENT]]
        self.roster[self.places[slot]], self.places[last] = last, self.places[slot]
        self.places[slot] = -1
        self.agents[slot], self.numbers[slot] = _EMPTY_AGENT, _EMPTY_NUMBERS
        if self.snapshots is not None:
            self.snapshots[slot] = np.nan
        if self.batches is not None:
            self.batches[slot] = 0.0
        sum_pool(self.agents, self.present, self.pool)  # subtracting would leave rounding errors behind
        del self.index[label]  # type: ignore[arg-type]
        self.labels[slot] = None
        self.free.append(slot)

    def least_recent(self) -> int:
        """The slot of the agent whose last event is the oldest."""
        return int(self.present[np.argmin(self.numbers[self.present, HEARD])])

    def settle(self, labels: list[Label], edges: Integers) -> None:
        """Enter all agents and edges of a given graph, before the first event."""
        for label in labels:
            self.admit(label)
        self.reserve()
        self._enter(np.arange(len(labels)))
        assert self.neighbors is not None
        for a, b in edges.tolist():
            link(self.neighbors, self.numbers, self.agents, a, b, None)

    def _enter(self, slots: Integers) -> None:
        first = int(self.counters[PRESENT])
        self.places[slots] = np.arange(first, first + len(slots))
        self.roster[first : first + len(slots)] = slots
        self.counters[PRESENT] += len(slots)
        self.counters[ARRIVED] += len(slots)

    def graph(self) -> Graph:
        """The kept edges; agents by slot."""
        n = len(self.labels)
        degree = self.numbers[:n, DEGREE]
        indptr = row_ends(degree)
        if self.neighbors is None:
            return Graph(indptr, np.empty(0, np.uint32), check=False)
        there = np.arange(self.neighbors.shape[1]) < degree[:, None]
        return Graph(indptr, self.neighbors[:n][there].astype(np.uint32), check=False)

    def merge(self, other: AgentTable, half_life: float) -> tuple[Integers, Integers, Mask]:
        """Add what another table learned from other samples. Returns the slots of its agents here and there, and which
        of them are new here."""
        theirs = other.present
        mine = np.array([self.index[label] for label in other.labels_of(theirs)], np.int64)
        self.reserve()
        new = self.places[mine] < 0
        self._enter(mine[new])
        self.agents[mine] = combined(self.agents[mine], other.agents[theirs], half_life)
        self.numbers[mine, COUNT] += other.numbers[theirs, COUNT]
        self.numbers[mine, HEARD] = np.maximum(
            self.numbers[mine, HEARD], self.counters[EVENTS] + other.numbers[theirs, HEARD]
        )
        self.counters[EVENTS] += other.counters[EVENTS]
        if self.snapshots is not None:
            self.snapshots[mine] = np.nan
        if self.batches is not None and other.batches is not None:
            self.batches[mine, 2::2] += other.batches[theirs, 2::2]
        sum_pool(self.agents, self.present, self.pool)
        return mine, theirs, new

    def merge_edges(
        self, other: AgentTable, mine: Integers, theirs: Integers, new: Mask,
        given: bool, test: DifferenceTest | None,
    ) -> None:  # fmt: skip
        """Of a given graph, keep the edges that both have kept; else keep the own ones and, where there is room, add
        those of new agents. All clocks restart."""
        assert self.neighbors is not None
        to = np.full(len(other.labels), -1)
        to[theirs] = mine
        edges = [(int(to[a]), int(to[b])) for a, b in other.graph().edges().tolist()]
        if given:
            for a, b in {(a, b) for a, b in self.graph().edges().tolist()} - {(min(e), max(e)) for e in edges}:
                unlink_pair(self.neighbors, self.numbers, a, b)
        else:
            came = set(mine[new].tolist())
            for a, b in edges:
                if a in came or b in came:
                    link(self.neighbors, self.numbers, self.agents, a, b, test)
        here = self.present
        self.agents[here, STAMP] = self.numbers[here, CUT] = self.counters[LAST_CUT] = self.counters[EVENTS]
        self.numbers[here, RESTART] = np.maximum(self.numbers[here, COUNT] + 1, START)


class AgentView(Mapping[Label, T]):
    """A read-only mapping from labels to answers, always up to date. One agent is looked up alone; `items` and `values`
    compute all at once, as of the call."""

    def __init__(self, table: Callable[[], AgentTable], lock: RLock, answer: Callable[[Integers], list[T]]):
        """`table` returns the agents as of now; `answer` what is asked about the agents in these slots."""
        self._table, self._lock, self._answer = table, lock, answer

    def __getitem__(self, agent: Any) -> T:
        with self._lock:
            return self._answer(np.array([self._table().slot(as_label(agent))]))[0]

    def __contains__(self, agent: object) -> bool:
        with self._lock:
            return self._table().index.get(agent) is not None  # type: ignore[call-overload]

    def __len__(self) -> int:
        return self._table().n_agents

    def __iter__(self) -> Iterator[Label]:
        with self._lock:
            table = self._table()
            return iter(table.labels_of(table.present))

    def items(self) -> ItemsView[Label, T]:
        return self._now().items()

    def values(self) -> ValuesView[T]:
        return self._now().values()

    def _now(self) -> dict[Label, T]:
        with self._lock:
            table = self._table()
            present = table.present.copy()
            return dict(zip(table.labels_of(present), self._answer(present), strict=True))

    def __repr__(self) -> str:
        return repr(self._now())


def combined(a: Floats, b: Floats, half_life: float) -> Floats:
    """The rows of agents that saw the samples of both a and b (Chan, Golub, LeVeque 1979, with weights)."""
    late = np.maximum(a[:, TIME], b[:, TIME])
    for rows in (a, b):
        heard = rows[:, WEIGHT] > 0.0
        age = np.subtract(late, rows[:, TIME], out=np.zeros(len(rows)), where=heard)
        kept = 0.5 ** (age / half_life) if half_life > 0.0 else np.ones(len(rows))
        rows[:, WEIGHT] *= kept
        rows[:, WEIGHT_2] *= kept * kept
        rows[:, SQUARE] *= kept
    weight = a[:, WEIGHT] + b[:, WEIGHT]
    share = np.divide(b[:, WEIGHT], weight, out=np.zeros(len(a)), where=weight > 0.0)
    both = (a[:, WEIGHT] > 0.0) & (b[:, WEIGHT] > 0.0)
    out = np.where((a[:, WEIGHT] > 0.0)[:, None], a, b)
    for column in (MEAN, ESTIMATE):
        out[both, column] = (a[:, column] + share * (b[:, column] - a[:, column]))[both]
    gap = np.where(both, b[:, MEAN] - a[:, MEAN], 0.0)
    out[:, SQUARE] = a[:, SQUARE] + b[:, SQUARE] + gap * gap * a[:, WEIGHT] * share
    out[:, WEIGHT], out[:, WEIGHT_2], out[:, TIME] = weight, a[:, WEIGHT_2] + b[:, WEIGHT_2], late
    return out


def _as_typed(text: str, names: list[Label]) -> Label:
    return next(name for name in names if str(name) == text)
