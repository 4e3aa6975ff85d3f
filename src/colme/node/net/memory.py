"""A network in memory, for tests and simulations: a virtual clock, and loss, delay, duplication, reordering and
partitions drawn from a seed.

>>> network = MemoryNetwork(seed=1, delay=(0.01, 0.05))
>>> a, b = network.join("a", ["b"]), network.join("b", ["a"])
>>> a.publish(b"hello")
>>> b.latest("a") is None, network.run_until(1.0), b.latest("a"), b.latest("a")
(True, None, b'hello', None)
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from colme.errors import NodeError, shorten
from colme.graphs import Graph
from colme.lockstep import Carrier, Outboxes, agents_of, step_together
from colme.method import Agent, Inbox, Method
from colme.node.messages.adapters import NO_MESSAGE, adapter_of
from colme.node.messages.wire import Record, pack, unpack
from colme.node.security.probe import Reason
from colme.support.arrays import Floats


class MemoryNetwork:
    """Carries bytes between agents of one process.

    loss           probability that a message is lost
    delay          (shortest, longest) in seconds, drawn for each message, so that messages may overtake each other
    duplication    probability that a message arrives twice
    """

    def __init__(
        self, *, seed: int = 0, loss: float = 0.0, delay: tuple[float, float] = (0.0, 0.0), duplication: float = 0.0
    ):
        for name, value in (("loss", loss), ("duplication", duplication)):
            if not 0.0 <= value <= 1.0:
                raise NodeError(f"{name}={shorten(value)}: it must be between 0 and 1. Try {name}=0.2.")
        if not 0.0 <= delay[0] <= delay[1]:
            raise NodeError(f"delay={delay}: it must be (shortest, longest), in seconds. Try delay=(0.0, 0.05).")
        self.loss, self.delay, self.duplication = loss, delay, duplication
        self.now = 0.0
        self.sent = self.lost = 0
        self._random = random.Random(seed)
        self._transports: dict[str, MemoryTransport] = {}
        self._parts: list[frozenset[str]] = []
        # due time, number, sender, receiver, message, whether it is a record
        self._in_flight: list[tuple[float, int, str, str, bytes, bool]] = []

    def join(self, name: str, neighbors: Iterable[str] = ()) -> MemoryTransport:
        """The transport of an agent that starts, or starts again."""
        if name in self._transports:
            raise NodeError(f"{name!r} has joined already: names are unique. Close its transport first.")
        self._transports[name] = MemoryTransport(self, name, neighbors)
        return self._transports[name]

    def partition(self, *parts: Iterable[str]) -> None:
        """From now on messages only arrive within a part; an agent in no part is isolated. Without parts: heal."""
        self._parts = [frozenset(part) for part in parts]

    def run_until(self, time: float) -> None:
        """Advance the clock and deliver what is due."""
        while self._in_flight and self._in_flight[0][0] <= time:
            self.now, _, sender, to, message, is_record = heapq.heappop(self._in_flight)
            transport = self._transports.get(to)
            if transport is None or not self._connected(sender, to):
                self.lost += 1
            elif is_record and sender in transport.neighbors:
                transport.newest[sender] = message
            elif not is_record:
                transport.messages.append((sender, message))
        self.now = max(self.now, time)

    def settle(self) -> None:
        """Deliver everything that is in flight."""
        while self._in_flight:
            self.run_until(self._in_flight[0][0])

    def _connected(self, a: str, b: str) -> bool:
        return not self._parts or any(a in part and b in part for part in self._parts)

    def _carry(self, sender: str, to: str, message: bytes, is_record: bool) -> None:
        for _ in range(2 if self._random.random() < self.duplication else 1):
            self.sent += 1
            due = self.now + self._random.uniform(*self.delay)
            if self._random.random() < self.loss or not self._connected(sender, to):
                self.lost += 1
            else:
                heapq.heappush(self._in_flight, (due, self.sent, sender, to, message, is_record))


class MemoryTransport:
    """The connection of one agent to a `MemoryNetwork`; see `colme.node.net.transport.Transport`."""

    def __init__(self, network: MemoryNetwork, name: str, neighbors: Iterable[str]):
        self.network, self.name = network, name
        self.neighbors = dict.fromkeys(neighbors)
        self.newest: dict[str, bytes] = {}
        self.messages: list[tuple[str, bytes]] = []

    def publish(self, record: bytes) -> None:
        for b in self.neighbors:
            self.network._carry(self.name, b, record, True)

    def latest(self, neighbor: str) -> bytes | None:
        return self.newest.pop(neighbor, None)

    def send(self, neighbor: str, message: bytes) -> None:
        self.network._carry(self.name, neighbor, message, False)

    def control(self) -> list[tuple[str, bytes]]:
        heard, self.messages = self.messages, []
        return heard

    def present(self) -> set[str]:
        there = self.network._transports
        return {b for b in self.neighbors if b in there and self.network._connected(self.name, b)}

    def why_silent(self, neighbor: str) -> Reason | None:
        return None

    def add(self, neighbor: str, endpoint: str | None = None) -> None:
        self.neighbors[neighbor] = None

    def drop(self, neighbor: str) -> None:
        self.neighbors.pop(neighbor, None)
        self.newest.pop(neighbor, None)

    def close(self) -> None:
        if self.network._transports.get(self.name) is self:
            del self.network._transports[self.name]


def lockstep_over(network: MemoryNetwork, method: Method, samples: Floats, graph: Graph, **known: Any) -> Floats:
    """Estimates (steps, agents): as `colme.lockstep.lockstep` of independent samples, to the bit. (The wire rounds the
    sums of dependence.) Agents have texts for names; `known` are the arguments of `agents_of`."""
    n = graph.n_agents
    names = [f"{a:0{len(str(n))}d}" for a in range(n)]
    agents = agents_of(method, graph, names=names, gaps=bool(np.isnan(samples).any()), **known | {"independent": True})
    carrier = _by_network(method, agents, network)
    estimates = np.empty(samples.shape)
    for t, row in enumerate(samples):
        step_together(agents, row, carrier)
        estimates[t] = [agent.estimate for agent in agents.values()]
    return estimates


def _by_network(method: Method, agents: Mapping[Any, Agent], network: MemoryNetwork) -> Carrier:
    """Carries bytes. All that is sent arrives before any agent reads."""
    adapters = {a: adapter_of(method, agent) for a, agent in agents.items()}
    ports = {a: network.join(a, agent.place.neighbors) for a, agent in agents.items()}  # type: ignore[arg-type]

    def carry(outboxes: Outboxes, exchange: int) -> Mapping[Any, Inbox]:
        for a, outbox in outboxes.items():
            agent = agents[a]
            if outbox:
                body = adapters[a].encode(outbox)
                ports[a].publish(pack(Record(1, agent.t, agent.count, float(agent.mean), len(outbox), body, exchange)))
        network.settle()
        return {a: dict(_read(a, exchange)) for a in agents}

    def _read(a: Any, exchange: int) -> Iterable[tuple[Any, Any]]:
        for b in agents[a].place.neighbors:
            raw = ports[a].latest(b)  # type: ignore[arg-type]
            if raw is not None and (message := adapters[a].decode(unpack(raw), exchange)) is not NO_MESSAGE:
                yield b, message

    return carry
