"""The feed of a fleet: at each poll, what the nodes say about themselves and about each other.

The agents are the nodes that are asked or that report, and the neighbors that they name. Agents and edges are only
added, so that frames remain valid: those that are gone stay, silent and not alive.

A number that is absurdly far from all others (a broken sensor, a lie) is not drawn, because nothing else could be seen
beside it. The table has it, and a note says so.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.errors import printable
from colme.live.fleet.statements import Answer, Hearsay, Statement, key_of
from colme.live.groups import GroupNumbers
from colme.live.messages import VERSION, Codes, note, pack, short_name, to_codes

MOST_AGENTS = 2000
MOST_HEARSAY = 1000
"""Agents that are known only by what others say: no node can fill the places of those that speak for themselves."""
MOST_EDGES = 20_000
MOST_ROWS = 300
"""Agents that have a row in the table, the first ones: with rows of 2000 agents, a frame would be half a megabyte."""
FAR = 1e6
"""Numbers are drawn up to so many median deviations from the median of the means."""
COLOR = "#0072b2"
_LARGEST_COUNT = 2**32 - 1


class _Shown:
    """An agent, and the last that is known of it."""

    def __init__(self, name: str):
        self.name, self.label = name, short_name(printable(name))
        self.speaks = False  # it is asked, or reports: what others heard of it does not count
        self.answers = False
        self.statement: Statement | None = None
        self.at = math.nan  # when it said so
        self.hearsay: Hearsay | None = None
        self.heard_at = math.nan

    @property
    def recent(self) -> bool:
        """Whether it answers; of an agent that is not asked, whether a node that answers has a fresh record."""
        return self.answers if self.speaks else self.hearsay is not None and self.hearsay.fresh

    @property
    def source(self) -> Statement | Hearsay | None:
        return self.statement if self.speaks else self.hearsay

    @property
    def samples(self) -> int | None:
        source = self.source
        return source.counters["samples"] if isinstance(source, Statement) else source and source.samples

    def number(self, key: str) -> float:
        return getattr(self.source, key, math.nan)

    def row(self, now: float, gateway: bool) -> dict[str, Any]:
        """Of the table, with the counters of `colme node status --wide`."""
        said = self.statement
        counters = {} if said is None else said.counters
        kind = "neighbor" if not self.speaks else "local agent" if said is not None and said.gateway else "node"
        return {
            "name": self.label, "kind": "gateway" if gateway else kind, "answers": self.recent,
            "agents": None if said is None else said.agents, "samples": self.samples,
            **{key: self.number(key) for key in ("mean", "estimate", "lower", "upper", "trust")},
            **{key: counters.get(key) for key in ("neighbors", "fresh", "cut", "refused", "bad_lines", "late")},
            "incarnation": counters.get("incarnation") if self.speaks else self.hearsay and self.hearsay.incarnation,
            "age": round(now - (self.at if self.speaks else self.heard_at), 1),
        }  # fmt: skip


class FleetFeed:
    """Messages about the nodes of a fleet.

    poll   gives an answer of each node, in the same order each time; of two for one name, the first that is not None
    clock  in seconds
    """

    def __init__(
        self, poll: Callable[[], Iterable[Answer]], *, title: str = "", clock: Callable[[], float] = time.monotonic
    ):
        self.poll, self.title, self._clock = poll, title, clock
        self._began = clock()
        self._run = secrets.token_hex(8)
        self._agents: list[_Shown] = []
        self._places: dict[str, int] = {}
        self._edges: dict[tuple[int, int], None] = {}  # in the order in which they were named
        self._n_hearsay = 0
        self._gateways: set[int] = set()
        self._groups = GroupNumbers()
        self._sent: tuple[int, int] | None = None  # agents and edges of the last start
        self._notes: list[str] = []
        self._noted: set[str] = set()

    def say(self, text: str) -> None:
        """Add a note to the next messages."""
        self._notes.append(text)

    def messages(self) -> list[bytes]:
        """Poll once: a start if there are new agents or edges, notes, and a frame. Without agents, only notes."""
        answers = list(self.poll())
        now = self._clock()
        self._hear(answers, now)
        self._meet(now)
        size = len(self._agents), len(self._edges)
        found = []
        if self._agents and self._sent != size:
            self._sent = size
            found.append(self._start())
        found += map(note, self._notes)
        self._notes.clear()
        return [*found, self._frame(now)] if self._agents else found

    def _hear(self, answers: list[Answer], now: float) -> None:
        """Note what the nodes say about themselves."""
        for agent in self._agents:
            agent.answers = False
        for name, statement, age in answers:
            place = self._place(name)
            if place is None:
                continue
            agent = self._agents[place]
            agent.speaks = True
            if statement is not None and not agent.answers:
                agent.answers, agent.statement, agent.at = True, statement, now - age
            if statement is not None and statement.agents is not None:
                self._add_gateway(place)

    def _meet(self, now: float) -> None:
        """Note what they say about their neighbors: edges, and numbers of agents that do not speak for themselves."""
        for agent in self._agents:
            agent.hearsay = agent.hearsay and agent.hearsay._replace(fresh=False)
        for a, agent in enumerate(self._agents[:]):
            said = agent.statement
            if said is None:
                continue
            for name, heard in said.neighbors.items():
                b = self._join(a, name)
                if b is not None and agent.answers and not self._agents[b].speaks:
                    _update(self._agents[b], heard, agent.at)
            for name in sorted(said.cut):
                self._join(a, name)
            if said.gateway is not None and (b := self._join(a, said.gateway)) is not None:
                self._add_gateway(b)

    def _place(self, name: str, *, hearsay: bool = False) -> int | None:
        """The place of an agent, a new one if it is not known; None if there is no room."""
        key = key_of(name)
        if key is None:
            return None
        if key not in self._places:
            if len(self._agents) >= MOST_AGENTS:
                self._say_once(f"There are more than {MOST_AGENTS} agents: the others are not shown.")
                return None
            if hearsay and self._n_hearsay >= MOST_HEARSAY:
                self._say_once(f"More than {MOST_HEARSAY} agents are only named by others: the rest is not shown.")
                return None
            self._n_hearsay += hearsay
            self._places[key] = len(self._agents)
            self._agents.append(_Shown(key))
        return self._places[key]

    def _join(self, a: int, name: str) -> int | None:
        """The place of an agent that a names, which an edge joins to a."""
        b = self._place(name, hearsay=True)
        if b is None or a == b:
            return None
        edge = (min(a, b), max(a, b))
        if edge not in self._edges:
            if len(self._edges) < MOST_EDGES:
                self._edges[edge] = None
            else:
                self._say_once(f"There are more than {MOST_EDGES} edges: the others are not shown.")
        return b

    def _add_gateway(self, place: int) -> None:
        self._gateways.add(place)
        self._say_once("Gateways have no estimate of their own: the table shows what they count.")

    def _say_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self.say(text)

    def _start(self) -> bytes:
        head = {
            "kind": "start", "version": VERSION, "run": self._run, "title": self.title, "unit": "seconds",
            "log": False, "last": None, "n_agents": len(self._agents), "window": None,
            "panels": [{"label": "fleet", "color": COLOR, "graph": True, "cuts": True}],
            "names": [agent.label for agent in self._agents],
        }  # fmt: skip
        return pack(head, {"edges": np.array(list(self._edges), np.uint32).reshape(-1)})

    def _frame(self, now: float) -> bytes:
        agents = self._agents
        alive, fresh = self._edge_states()
        recent = np.array([agent.recent for agent in agents], bool)
        counts = [min(agent.samples or 0, _LARGEST_COUNT) for agent in agents]
        mean, estimate = self._drawn(self._column("mean"), self._column("estimate"))
        arrays: dict[str, NDArray[Any] | Codes] = {
            "mean": to_codes(mean),
            "count": np.array(counts, np.uint32),
            "state": recent.astype(np.uint8),
            "0/estimate": to_codes(estimate),
            "0/alive": np.packbits(alive, bitorder="little"),
            "0/fresh": np.packbits(fresh, bitorder="little"),
            "0/group": self._groups.renumber(self._components(alive)),
            **{f"0/{name}": to_codes(column) for name, column in self._intervals(estimate).items()},
        }
        panel: dict[str, Any] = {"metrics": {
            "answering": int(recent.sum()), "silent": int((~recent).sum()), "edges": int(alive.sum()),
        }}  # fmt: skip
        levels = {said.level for agent in agents if (said := agent.statement) and math.isfinite(said.level)}
        if len(levels) == 1:
            panel["level"] = levels.pop()
        rows = [agent.row(now, place in self._gateways) for place, agent in enumerate(agents[:MOST_ROWS])]
        if len(agents) > MOST_ROWS:
            self._say_once(f"The table has the first {MOST_ROWS} agents of {len(agents)}.")
        head = {"kind": "frame", "t": round(now - self._began, 3), "panels": [panel], "rows": rows}
        return pack(head, arrays)

    def _column(self, key: str) -> NDArray[np.float64]:
        return np.array([agent.number(key) for agent in self._agents], np.float64)

    def _drawn(self, mean: NDArray[np.float64], estimate: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Means and estimates without those that are absurdly far from most means."""
        known = mean[np.isfinite(mean)]
        center = float(np.median(known)) if len(known) else 0.0
        limit = FAR * float(np.median(np.abs(known - center))) if len(known) else 0.0
        if not limit > 0:
            return [mean, estimate]
        far = [np.abs(column - center) > limit for column in (mean, estimate)]
        for place in np.flatnonzero(far[0] | far[1])[:1].tolist():
            self._say_once(f"Numbers of {self._agents[place].label} are far from all others: they are not drawn.")
        return [np.where(beyond, np.nan, column) for beyond, column in zip(far, (mean, estimate), strict=True)]

    def _intervals(self, estimate: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Distances from the estimates to the ends of their intervals; if nobody has one, the radii of the means."""
        below, above = estimate - self._column("lower"), self._column("upper") - estimate
        wrong = ~((below >= 0) & (above >= 0))
        if wrong.all():
            radius = self._column("radius")
            return {"radius": np.where(radius >= 0, radius, np.nan)}
        below[wrong] = above[wrong] = np.nan
        return {"below": below, "above": above}

    def _edge_states(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which edges are alive, and which of these are fresh at both ends.

        The ends that answer decide whether an edge is alive: one has it as a neighbor, and none has cut it. If neither
        end answers, what both said last decides. An end that does not speak for itself is not asked."""
        alive, fresh = np.zeros((2, len(self._edges)), bool)
        for k, (a, b) in enumerate(self._edges):
            ends = [_End(self._agents[a], self._agents[b].name), _End(self._agents[b], self._agents[a].name)]
            if member := [end for end in ends if end.local]:
                alive[k], fresh[k] = True, all(end.agent.answers for end in member)
                continue
            present = [end for end in ends if end.agent.answers]
            deciding = present or ends
            alive[k] = any(end.heard for end in deciding) and not any(end.cut for end in deciding)
            speaking = [end for end in ends if end.agent.speaks]
            fresh[k] = alive[k] and all(end.agent.answers and end.heard and end.heard.fresh for end in speaking)
        return alive, fresh

    def _components(self, alive: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The groups: agents that living edges connect. A gateway says the groups of its local agents."""
        parent = list(range(len(self._agents)))

        def root(a: int) -> int:
            while parent[a] != a:
                parent[a] = a = parent[parent[a]]
            return a

        said: dict[tuple[str, int], int] = {}
        local = set()
        for a, agent in enumerate(self._agents):
            if agent.statement is not None and agent.statement.gateway is not None:
                local.add(a)
                if agent.statement.group is not None:
                    parent[a] = root(said.setdefault((agent.statement.gateway, agent.statement.group), a))
        for (a, b), kept in zip(self._edges, alive.tolist(), strict=True):
            if kept and a not in local and b not in local:
                parent[root(a)] = root(b)
        return np.array([root(a) for a in range(len(parent))], np.int64)


class _End:
    """One end of an edge, and what it says about the other."""

    __slots__ = ("agent", "cut", "heard", "local")

    def __init__(self, agent: _Shown, other: str):
        said = agent.statement
        self.agent = agent
        self.heard = None if said is None else said.neighbors.get(other)
        self.cut = said is not None and other in said.cut
        self.local = said is not None and said.gateway == other


def _update(agent: _Shown, heard: Hearsay, at: float) -> None:
    """Take what a node says about a neighbor, if that is newer than what is known."""
    since = at - heard.age
    known = agent.hearsay
    if known is not None and not since >= agent.heard_at and not math.isnan(agent.heard_at):
        agent.hearsay = known._replace(fresh=known.fresh or heard.fresh)
        return
    agent.hearsay = heard._replace(fresh=heard.fresh or (known is not None and known.fresh))
    agent.heard_at = since
