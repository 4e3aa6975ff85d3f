"""Agents in lockstep: the per-agent form of a method, driven exchange by exchange, with a barrier after each.

The network is perfect, or loses what a simulation with the same seed loses, or is a `MemoryNetwork` that carries bytes:
the same estimates as the array engine's, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.graphs import Graph
from colme.method import Inbox, arrived
from colme.methods import EVERYONE, Agent, Method, Place
from colme.node.messages.adapters import SILENCE, dialect_of
from colme.node.messages.wire import Record, pack, unpack
from colme.node.net.memory import MemoryNetwork
from colme.spectrum import stable_step

Outboxes = dict[Any, dict[Hashable, Any]]
Carrier = Callable[[Outboxes, int], Mapping[Any, Inbox]]
"""Brings outboxes, sender by sender, to inboxes, in the exchange of this number within a step."""


def lockstep(
    method: Method,
    samples: NDArray[np.float64],
    graph: Graph,
    *,
    sigma: Any = None,
    width: float | None = None,
    classes: NDArray[Any] | None = None,
    exchange: type = np.float32,
    loss: float = 0.0,
    seed: int = 0,
    network: MemoryNetwork | None = None,
) -> NDArray[np.float64]:
    """Estimates (steps, agents) of one agent object per agent that exchange messages over the graph, nothing else.

    Every message arrives in the round in which it was sent, or never: with loss, the very messages get lost that a
    simulation with this seed loses. Messages to EVERYONE, which no real network could carry or lose, reach all agents
    in the order of their names. With a network, agents have texts for names and messages are bytes that it carries.
    """
    n_steps, n = samples.shape
    sigmas = np.broadcast_to(np.asarray(np.nan if sigma is None else sigma, float), n)
    names: list[Any] = list(range(n)) if network is None else [f"{a:0{len(str(n))}d}" for a in range(n)]
    agents = {
        names[a]: method.agent(
            Place(
                agent=names[a], neighbors=tuple(names[b] for b in graph.neighbors(a)), n_agents=n,
                n_edges=graph.n_edges, auto_step=stable_step(graph), sigma=None if sigma is None else float(sigmas[a]),
                width=width, exchange=exchange, unit=1.0 if sigma is None else float(sigmas.max()),
                class_=None if classes is None else int(classes[a]),
            )
        )
        for a in range(n)
    }  # fmt: skip
    ends = np.stack([graph.indices, np.repeat(np.arange(n), graph.degrees)], axis=1)
    carrier = None if network is None else _by_network(method, agents, network)
    estimates = np.empty((n_steps, n))
    for t, row in enumerate(samples):
        lost = set(map(tuple, ends[~arrived(seed, t + 1, len(ends), loss)].tolist())) if loss else set()
        step_together(agents, row, carrier or _by_hand(agents, lost))
        estimates[t] = [agent.estimate for agent in agents.values()]
    return estimates


def step_together(agents: Mapping[Any, Agent], samples: Iterable[float], carry: Carrier) -> None:
    """One step of all agents, with a barrier after each exchange."""
    rounds = {a: agent.step(float(x)) for (a, agent), x in zip(agents.items(), samples, strict=True)}
    inboxes: Mapping[Any, Inbox | None] = dict.fromkeys(rounds)
    exchange = 0
    while rounds:
        outboxes: Outboxes = {}
        for a in list(rounds):
            try:
                # the first send of a generator must be None; later ones deliver the inbox
                outboxes[a] = rounds[a].send(inboxes[a])  # type: ignore[arg-type]
            except StopIteration:
                del rounds[a]
        inboxes = carry(outboxes, exchange)
        exchange += 1


def _by_hand(agents: Mapping[Any, Agent], lost: set[Any]) -> Carrier:
    """Objects from one agent to another, but those that get lost."""

    def carry(outboxes: Outboxes, exchange: int) -> Mapping[Any, Inbox]:
        inboxes: dict[Any, Inbox] = {a: {} for a in agents}
        for a, outbox in outboxes.items():
            for to, message in outbox.items():
                for b in agents if to == EVERYONE else (to,):
                    if to == EVERYONE or (a, b) not in lost:
                        inboxes[b][a] = message
        return inboxes

    return carry


def _by_network(method: Method, agents: Mapping[Any, Agent], network: MemoryNetwork) -> Carrier:
    """Bytes through the doors of a network. All that is sent arrives before anybody reads."""
    dialects = {a: dialect_of(method, agent) for a, agent in agents.items()}
    doors = {a: network.join(a, agent.place.neighbors) for a, agent in agents.items()}  # type: ignore[arg-type]

    def carry(outboxes: Outboxes, exchange: int) -> Mapping[Any, Inbox]:
        for a, outbox in outboxes.items():
            agent = agents[a]
            if outbox:
                degree = len(dialects[a].neighbors)
                body = dialects[a].say(outbox)
                doors[a].publish(pack(Record(1, agent.t, agent.count, float(agent.mean), degree, body, exchange)))
        network.settle()
        return {a: dict(_read(a, exchange)) for a in agents}

    def _read(a: Any, exchange: int) -> Iterable[tuple[Any, Any]]:
        for b in agents[a].place.neighbors:
            raw = doors[a].latest(b)  # type: ignore[arg-type]
            if raw is not None and (message := dialects[a].said(unpack(raw), exchange)) is not SILENCE:
                yield b, message

    return carry
