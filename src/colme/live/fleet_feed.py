"""The feed of a fleet: at each poll, what the nodes say about themselves and about each other.

The agents are the nodes that are asked or that report, and the neighbors that they name. Agents and edges are only
added, so that frames remain valid: those that are gone stay, silent and not alive.

What a node says may come from another version, or be a lie. A value that is missing, of another type or out of range is
unknown; of long lists and names the first part is used. Nothing that a node says raises an error. A number that is
absurdly far from all others is not drawn, because nothing else could be seen beside it. The table has it, and a note
says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from colme.live.growing import GrowingLists
from colme.live.messages import LONGEST_NAME, Arrays, bits, note, pack, to_codes
from colme.support.arrays import Floats, Integers, Mask
from colme.support.tables import Row, safe_name

MOST_AGENTS = 2000
MOST_HEARSAY = 1000
"""Agents that are known only by what others say: no node can fill the places of those that speak for themselves."""
MOST_EDGES = 20_000
MOST_NEIGHBORS = 2000
"""Neighbors of one node that are looked at, and as many cut edges."""
MOST_ROWS = 300
"""Agents that have a row in the table, the first ones: with rows of 2000 agents, a frame would be half a megabyte."""
FAR = 1e6
"""Numbers are drawn up to so many median deviations from the median of the means."""
LONGEST_KEY = 192
"""Characters of a name that tell agents apart: those of a gateway, a slash, and those of its local agent."""
COLOR = "#0072b2"
_LARGEST = 1e300  # the difference of two numbers is finite
_LARGEST_COUNT = 2**53  # the largest whole number of JavaScript
_MOST_REASONS = 1000
_NUMBERS = ("mean", "estimate", "lower", "upper", "radius", "trust", "age")
_COUNTERS = ("neighbors", "fresh", "cut", "refused", "bad_lines", "late")
_COUNTS = (*_COUNTERS, "samples", "incarnation", "agents", "group")


class Statement(NamedTuple):
    """What a node says about itself and its edges, or what it has heard of a neighbor.

    numbers  those of `_NUMBERS`; NaN: not known
    counts   those of `_COUNTS`; None: not known
    fresh    whether what was heard is recent
    gateway  the name of its gateway, if it is a local agent of one
    """

    numbers: dict[str, float]
    counts: dict[str, int | None]
    fresh: bool
    gateway: str | None
    neighbors: dict[str, Statement]
    cut: frozenset[str]

    @classmethod
    def parse(cls, status: Row, *, most_neighbors: int = MOST_NEIGHBORS) -> Statement:
        """From a status, a report, or the row of a neighbor, whatever it holds."""

        def some(key: str) -> list[Any]:
            values = status.get(key)
            return values[:most_neighbors] if isinstance(values, list) else []

        counts = {key: _count(status.get(key)) for key in _COUNTS}
        if isinstance(refused := status.get("refused"), dict):  # counts by reason
            counts["refused"] = sum(_count(each) or 0 for each in islice(refused.values(), _MOST_REASONS))
        heard = {key_of(row.get("name")): row for row in some("neighbor_rows") if isinstance(row, dict)}
        return cls(
            numbers={key: _number(status.get(key)) for key in _NUMBERS},
            counts=counts,
            fresh=status.get("fresh") is True,
            gateway=key_of(status.get("gateway")),
            neighbors={name: cls.parse(row, most_neighbors=0) for name, row in heard.items() if name is not None},
            cut=frozenset(filter(None, map(key_of, some("cut_names")))),
        )


class Answer(NamedTuple):
    """What a node has said, and how many seconds ago; None if it does not answer."""

    name: str
    statement: Statement | None
    age: float = 0.0


def key_of(name: Any) -> str | None:
    """The name by which an agent is known, of bounded length; None if it is not a name."""
    return name[:LONGEST_KEY] if isinstance(name, str) and name else None


def _number(value: Any) -> float:
    """NaN for what is not a number, or is too large to be drawn."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST
    return float(value) if fits else math.nan


def _count(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT
    return value if fits else None


_NOTHING = Statement.parse({})


class _Shown:
    """An agent, and the last that is known of it: what it says, or, if it is not asked, what others heard of it."""

    def __init__(self, name: str, place: int):
        self.name, self.label, self.place = name, safe_name(name, LONGEST_NAME), place
        self.speaks = False  # it is asked, or reports: what others heard of it does not count
        self.is_gateway = False
        self.recent = False  # it answers; if it is not asked, a node that answers has a fresh record
        self.known = _NOTHING
        self.at = math.nan  # when it said so

    @property
    def answers(self) -> bool:
        return self.speaks and self.recent

    @property
    def said(self) -> Statement:
        """What it says itself."""
        return self.known if self.speaks else _NOTHING

    def hear(self, heard: Statement, at: float) -> None:
        """Take what a node says about it, if that is newer than what is known."""
        age = heard.numbers["age"]
        since = at - age if age >= 0 else math.nan
        self.recent |= heard.fresh
        if math.isnan(self.at) or since >= self.at:
            self.known, self.at = heard, since

    @property
    def kind(self) -> str:
        if self.is_gateway:
            return "gateway"
        return "local agent" if self.said.gateway else "node" if self.speaks else "neighbor"

    def row(self, now: float) -> Row:
        """Of the table, with the counters of `colme node status --wide`."""
        counts, numbers = self.known.counts, self.known.numbers
        return {
            "name": self.label, "kind": self.kind, "answers": self.recent,
            **{key: counts[key] for key in ("agents", "samples")},
            **{key: numbers[key] for key in ("mean", "estimate", "lower", "upper", "trust")},
            **{key: counts[key] for key in (*_COUNTERS, "incarnation")}, "age": round(now - self.at, 1),
        }  # fmt: skip


class FleetFeed:
    """Messages about the nodes of a fleet; `clock` is in seconds."""

    def __init__(self, *, title: str = "", clock: Callable[[], float] = time.monotonic):
        self.title, self._clock = title, clock
        self._began = clock()
        self._agents: dict[str, _Shown] = {}
        self._lists = GrowingLists()
        self._n_hearsay = 0
        self.notes: list[str] = []  # of the next messages
        self._noted: set[str] = set()

    def messages(self, answers: Iterable[Answer]) -> list[bytes]:
        """After a poll: a start if there are new agents or edges, notes, and a frame. Without agents, only notes. Of
        two answers for one name, the first that is not None counts."""
        now = self._clock()
        self._hear(answers, now)
        self._meet()
        start, frame = [], []
        if self._agents:
            panel = {"label": "fleet", "color": COLOR, "graph": True, "cuts": True}
            names = [agent.label for agent in self._agents.values()]
            start = self._lists.start(names, title=self.title, unit="seconds", n_agents=len(names), panels=[panel])
            frame = [self._frame(now)]
        found = list(map(note, self.notes))
        self.notes.clear()
        return [*start, *found, *frame]

    def _hear(self, answers: Iterable[Answer], now: float) -> None:
        """Note what the nodes say about themselves."""
        for agent in self._agents.values():
            agent.recent = False
        for name, statement, age in answers:
            if (spoken := self._agent(name)) is None:
                continue
            if not spoken.speaks:
                spoken.speaks, spoken.known, spoken.at = True, _NOTHING, math.nan
            if statement is not None and not spoken.recent:
                spoken.recent, spoken.known, spoken.at = True, statement, now - age
            if spoken.said.counts["agents"] is not None:
                self._is_gateway(spoken)

    def _meet(self) -> None:
        """Note what they say about their neighbors: edges, and numbers of agents that do not speak for themselves."""
        for agent in list(self._agents.values()):
            said = agent.said
            for name, heard in said.neighbors.items():
                other = self._join(agent, name)
                if other is not None and agent.answers and not other.speaks:
                    other.hear(heard, agent.at)
            for name in sorted(said.cut):
                self._join(agent, name)
            if said.gateway is not None and (gateway := self._join(agent, said.gateway)) is not None:
                self._is_gateway(gateway)

    def _agent(self, name: str, *, hearsay: bool = False) -> _Shown | None:
        """The agent of a name, a new one if it is not known; None if there is no room."""
        if name not in self._agents:
            if len(self._agents) >= MOST_AGENTS:
                self._say_once(f"There are more than {MOST_AGENTS} agents: the others are not shown.")
                return None
            if hearsay and self._n_hearsay >= MOST_HEARSAY:
                self._say_once(f"More than {MOST_HEARSAY} agents are only named by others: the rest is not shown.")
                return None
            self._n_hearsay += hearsay
            self._agents[name] = _Shown(name, len(self._agents))
        return self._agents[name]

    def _join(self, agent: _Shown, name: str) -> _Shown | None:
        """Another agent that this one names, which an edge joins to it."""
        other, edges = self._agent(name, hearsay=True), self._lists.edges
        if other is None or other is agent:
            return None
        edge = (min(agent.place, other.place), max(agent.place, other.place))
        if edge not in edges and len(edges) >= MOST_EDGES:
            self._say_once(f"There are more than {MOST_EDGES} edges: the others are not shown.")
        else:
            edges.setdefault(edge, len(edges))
        return other

    def _is_gateway(self, agent: _Shown) -> None:
        agent.is_gateway = True
        self._say_once("Gateways have no estimate of their own: the table shows what they count.")

    def _say_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self.notes.append(text)

    def _frame(self, now: float) -> bytes:
        agents = list(self._agents.values())
        alive, fresh = self._edge_states(agents)
        recent = np.array([agent.recent for agent in agents], bool)
        counts = [min(agent.known.counts["samples"] or 0, 2**32 - 1) for agent in agents]
        mean, estimate = self._drawn(agents)
        arrays: Arrays = {
            "mean": to_codes(mean),
            "count": np.array(counts, np.uint32),
            "state": recent.astype(np.uint8),
            "0/estimate": to_codes(estimate),
            "0/alive": bits(alive),
            "0/fresh": bits(fresh),
            "0/group": self._lists.groups.renumber(self._components(agents, alive)),
            **{f"0/{name}": to_codes(column) for name, column in _intervals(agents, estimate).items()},
        }
        n_recent = int(recent.sum())
        panel = {"metrics": {"answering": n_recent, "silent": len(agents) - n_recent}}
        rows = [agent.row(now) for agent in agents[:MOST_ROWS]]
        if len(agents) > MOST_ROWS:
            self._say_once(f"The table has the first {MOST_ROWS} agents of {len(agents)}.")
        head = {"kind": "frame", "t": round(now - self._began, 3), "panels": [panel], "rows": rows}
        return pack(head, arrays)

    def _drawn(self, agents: list[_Shown]) -> Floats:
        """Means and estimates; those that are absurdly far from most means are NaN."""
        columns = np.stack([_column(agents, "mean"), _column(agents, "estimate")])
        if np.isnan(columns[0]).all():
            return columns
        distance = np.abs(columns - np.nanmedian(columns[0]))
        limit = FAR * np.nanmedian(distance[0])
        far = distance > (limit or np.inf)
        for place in np.flatnonzero(far.any(axis=0))[:1]:
            self._say_once(f"Numbers of {agents[place].label} are far from all others: they are not drawn.")
        columns[far] = np.nan
        return columns

    def _edge_states(self, agents: list[_Shown]) -> tuple[Mask, Mask]:
        """Which edges are alive, and which of these are fresh at both ends.

        The ends that answer decide whether an edge is alive: one has it as a neighbor, and none has cut it. If neither
        end answers, what both said last decides. An end that does not speak for itself is not asked. The edge from a
        local agent to its gateway is alive, and fresh if the agent answers."""
        alive, fresh = np.zeros((2, len(self._lists.edges)), bool)
        for k, (a, b) in enumerate(self._lists.edges):
            ends = [(agents[a], agents[b].name), (agents[b], agents[a].name)]
            if local := [agent for agent, other in ends if agent.said.gateway == other]:
                alive[k], fresh[k] = True, all(agent.answers for agent in local)
                continue
            deciding = [end for end in ends if end[0].answers] or ends
            alive[k] = any(other in agent.said.neighbors for agent, other in deciding) and not any(
                other in agent.said.cut for agent, other in deciding
            )
            fresh[k] = alive[k] and all(
                agent.answers and agent.said.neighbors.get(other, _NOTHING).fresh
                for agent, other in ends
                if agent.speaks
            )
        return alive, fresh

    def _components(self, agents: list[_Shown], alive: Mask) -> Integers:
        """The groups: agents that living edges connect. A gateway says the groups of its local agents."""
        parent = list(range(len(agents)))

        def root(a: int) -> int:
            while parent[a] != a:
                parent[a] = a = parent[parent[a]]
            return a

        first: dict[tuple[str, int], int] = {}
        for a, agent in enumerate(agents):
            gateway, group = agent.said.gateway, agent.said.counts["group"]
            if gateway is not None and group is not None:
                parent[a] = root(first.setdefault((gateway, group), a))
        for (a, b), kept in zip(self._lists.edges, alive.tolist(), strict=True):
            if kept and agents[a].said.gateway is None and agents[b].said.gateway is None:
                parent[root(a)] = root(b)
        return np.array([root(a) for a in range(len(parent))], np.int64)


def _column(agents: list[_Shown], key: str) -> Floats:
    return np.array([agent.known.numbers[key] for agent in agents], np.float64)


def _intervals(agents: list[_Shown], estimate: Floats) -> dict[str, Floats]:
    """Distances from the estimates to the ends of their intervals; if nobody has one, the radii of the means."""
    below, above = estimate - _column(agents, "lower"), _column(agents, "upper") - estimate
    known = (below >= 0) & (above >= 0)
    if not known.any():
        radius = _column(agents, "radius")
        return {"radius": np.where(radius >= 0, radius, np.nan)}
    return {"below": np.where(known, below, np.nan), "above": np.where(known, above, np.nan)}
