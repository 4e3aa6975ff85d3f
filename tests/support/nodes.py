"""Devices on a memory network, for tests: each ticks at its own phase of the same period."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.graphs import Graph
from colme.methods import Method
from colme.node.core import Core
from colme.node.device import Device
from colme.node.net.memory import MemoryNetwork

PERIOD = 0.05


class Fleet:
    """Agents of a method on a graph. `tick` lets a period pass, in which everybody ticks once."""

    def __init__(self, method: Method, graph: Graph, network: MemoryNetwork, *, seed: int = 0, **known: Any):
        n = graph.n_agents
        self.network, self.names = network, [f"agent-{a:03d}" for a in range(n)]
        rng = random.Random(seed)
        self.phase = {name: PERIOD * rng.random() for name in self.names}
        self.neighbors = {self.names[a]: [self.names[b] for b in graph.neighbors(a)] for a in range(n)}
        self.known = {"n_agents": n, "degree": int(graph.degrees.max()), "stale_after": 20 * PERIOD} | known
        self.method, self.periods = method, 0
        self.devices = {name: self.start(name) for name in self.names}

    def start(self, name: str, store: Any = None, **options: Any) -> Device:
        neighbors = self.neighbors[name]
        core = Core(self.method, name, neighbors, **self.known)
        return Device(core, self.network.join(name, neighbors), store, **options)

    @property
    def cores(self) -> list[Core]:
        return [device.core for device in self.devices.values()]

    def tick(self, samples: Any, each: Callable[[str, Device, float, float], None] | None = None) -> None:
        row = dict(zip(self.names, np.broadcast_to(samples, len(self.names)).tolist(), strict=True))
        for name in sorted(self.devices, key=lambda name: self.phase[name]):
            self.network.run_until(self.periods * PERIOD + self.phase[name])
            if each is None:
                self.devices[name].tick(self.network.now, row[name])
            else:
                each(name, self.devices[name], self.network.now, row[name])
        self.periods += 1

    def run(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimates (steps, agents)."""
        estimates = np.empty(samples.shape)
        for t, row in enumerate(samples):
            self.tick(row)
            estimates[t] = [core.estimate for core in self.cores]
        return estimates

    @property
    def imbalance(self) -> float:
        """Mean of all estimates, less the mean of all local means."""
        return float(np.nanmean([core.estimate - core.mean for core in self.cores]))

    @property
    def one_sided(self) -> int:
        """Edges that only one end has cut, or that one end has not heard about."""
        links = {(a, b) for a, device in self.devices.items() for b in device.core.neighbors}
        unknown = sum(not cut_edge.known for core in self.cores for cut_edge in core.cuts.edges.values())
        return unknown + len({(a, b) for a, b in links if (b, a) not in links})
