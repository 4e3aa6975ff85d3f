"""Agents in lockstep: the per-agent form of a method, driven round by round, if need be on a network that loses."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.graphs import Graph
from colme.methods import EVERYONE, Method, Place
from colme.methods._base import arrived
from colme.spectrum import stable_step


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
) -> NDArray[np.float64]:
    """Estimates (steps, agents) of one agent object per agent that exchange messages over the graph, nothing else.

    Every message arrives in the round in which it was sent, or never: with loss, the very messages get lost that a
    simulation with this seed loses. Messages to EVERYONE, which no real network could carry or lose, reach all agents
    in the order of their names.
    """
    n_steps, n = samples.shape
    sigmas = np.broadcast_to(np.asarray(np.nan if sigma is None else sigma, float), n)
    agents = [
        method.agent(
            Place(
                agent=a, neighbors=tuple(int(b) for b in graph.neighbors(a)), n_agents=n, n_edges=graph.n_edges,
                auto_step=stable_step(graph), sigma=None if sigma is None else float(sigmas[a]), width=width,
                exchange=exchange, unit=1.0 if sigma is None else float(sigmas.max()),
                class_=None if classes is None else int(classes[a]),
            )
        )
        for a in range(n)
    ]  # fmt: skip
    ends = np.stack([graph.indices, np.repeat(np.arange(n), graph.degrees)], axis=1)
    estimates = np.empty((n_steps, n))
    for t, row in enumerate(samples):
        lost = set(map(tuple, ends[~arrived(seed, t + 1, len(ends), loss)].tolist())) if loss else set()
        rounds = [agent.step(float(x)) for agent, x in zip(agents, row, strict=True)]
        inboxes: list[dict[Hashable, Any] | None] = [None] * n
        running = set(range(n))
        while running:
            outboxes: dict[int, dict[Hashable, Any]] = {}
            for a in sorted(running):
                try:
                    # the first send of a generator must be None; later ones deliver the inbox
                    outboxes[a] = rounds[a].send(inboxes[a])  # type: ignore[arg-type]
                except StopIteration:
                    running.discard(a)
            inboxes = [{} for _ in range(n)]
            for a, outbox in outboxes.items():
                for to, message in outbox.items():
                    for b in range(n) if to == EVERYONE else (to,):
                        if to == EVERYONE or (a, b) not in lost:
                            inboxes[b][a] = message  # type: ignore[call-overload]
        estimates[t] = [agent.estimate for agent in agents]
    return estimates
