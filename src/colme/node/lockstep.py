"""Agents in lockstep over bytes: `colme.lockstep`, with messages packed as records and carried by a `MemoryNetwork`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.graphs import Graph
from colme.lockstep import Carrier, Outboxes, agents_of, step_together
from colme.method import Agent, Inbox, Method
from colme.node.messages.adapters import NO_MESSAGE, adapter_of
from colme.node.messages.wire import Record, pack, unpack
from colme.node.net.memory import MemoryNetwork


def lockstep_over(
    network: MemoryNetwork, method: Method, samples: NDArray[np.float64], graph: Graph, **known: Any
) -> NDArray[np.float64]:
    """Estimates (steps, agents): as `colme.lockstep.lockstep`, to the bit. Agents have texts for names; `known` are the
    arguments of `agents_of`."""
    n = graph.n_agents
    names = [f"{a:0{len(str(n))}d}" for a in range(n)]
    agents = agents_of(method, graph, names=names, gaps=bool(np.isnan(samples).any()), **known)
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
                degree = len(adapters[a].neighbors)
                body = adapters[a].encode(outbox)
                ports[a].publish(pack(Record(1, agent.t, agent.count, float(agent.mean), degree, body, exchange)))
        network.settle()
        return {a: dict(_read(a, exchange)) for a in agents}

    def _read(a: Any, exchange: int) -> Iterable[tuple[Any, Any]]:
        for b in agents[a].place.neighbors:
            raw = ports[a].latest(b)  # type: ignore[arg-type]
            if raw is not None and (message := adapters[a].decode(unpack(raw), exchange)) is not NO_MESSAGE:
                yield b, message

    return carry
