"""Agents in lockstep: the per-agent form of a method, driven round by round on a perfect network."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.graphs import Graph
from colme.methods import EVERYONE, Method, Place
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
) -> NDArray[np.float64]:
    """Estimates (steps, agents) of one agent object per agent that exchange messages over the graph, nothing else.

    Every message arrives in the round in which it was sent. Messages to EVERYONE, which no real network could carry,
    reach all agents in the order of their names.
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
    estimates = np.empty((n_steps, n))
    for t, row in enumerate(samples):
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
                        inboxes[b][a] = message  # type: ignore[call-overload]
        estimates[t] = [agent.estimate for agent in agents]
    return estimates
