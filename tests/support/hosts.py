"""Hosts of many agents, for tests: in lockstep over bytes, or on a memory network, each with a phase of its own."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.graphs import Graph
from colme.methods import CColME, Method
from colme.node.hosts.device import HostDevice
from colme.node.hosts.graph import split
from colme.node.hosts.host import HostCore
from colme.node.net.memory import MemoryNetwork
from tests.support.nodes import PERIOD


def spread(n_agents: int, n_hosts: int, seed: int = 3) -> NDArray[np.int64]:
    """A host for every agent, at random: most neighbors are elsewhere."""
    return np.random.default_rng(seed).integers(0, n_hosts, n_agents)


def row_of(samples: NDArray[np.float64]) -> Any:
    """The samples of a host at a step: of those who have one."""
    there = np.flatnonzero(~np.isnan(samples))
    return there, samples[there]


class Hosts:
    """The agents of a graph on some hosts."""

    def __init__(self, method: Method, graph: Graph, owner: NDArray[np.int64], **known: Any):
        self.names = [f"host-{h}" for h in range(int(owner.max()) + 1)]
        self.graphs, self.agents = split(graph, owner.tolist(), self.names)
        self.known = {"n_agents": graph.n_agents, "n_edges": graph.n_edges, "degree": graph.max_degree} | known
        self.method, self.n_agents = method, graph.n_agents
        self.cores = [self.core(h) for h in range(len(self.names))]

    def core(self, host: int) -> HostCore:
        known = {
            key: value[self.agents[host]] if isinstance(value, np.ndarray) else value
            for key, value in self.known.items()
        }
        return HostCore(self.method, self.names[host], self.graphs[host], **known)

    @property
    def estimate(self) -> NDArray[np.float64]:
        return self._gather([core.estimate for core in self.cores])

    @property
    def mean(self) -> NDArray[np.float64]:
        return self._gather([core.mean for core in self.cores])

    def _gather(self, columns: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        whole = np.empty(self.n_agents)
        for own, column in zip(self.agents, columns, strict=True):
            whole[own] = column
        return whole

    def edges(self) -> set[tuple[int, int]]:
        """(agent, neighbor) as each end believes."""
        place = {(h, i): a for h, own in enumerate(self.agents) for i, a in enumerate(own.tolist())}
        found = set()
        for h, core in enumerate(self.cores):
            graph = core.graph
            for k in np.flatnonzero(core.alive).tolist():
                end = int(graph.ends[k])
                where = (h, end)
                if end >= graph.n_agents:
                    ghost = end - graph.n_agents
                    host = graph.hosts[int(graph.ghost_host[ghost]) - 1]
                    where = self.names.index(host), int(graph.ghost_number[ghost])
                found.add((place[h, int(graph.rows[k])], place[where]))
        return found


class LockstepHosts(Hosts):
    """All hosts tick together, with a barrier after each exchange of frames."""

    def run(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        estimates = np.empty(samples.shape)
        for t, row in enumerate(samples):
            for own, core in zip(self.agents, self.cores, strict=True):
                core.observe(row_of(row[own]))
            self._exchange(0)
            for core in self.cores:
                core.prune()
            if isinstance(self.method, CColME):
                self._exchange(1)
            for core in self.cores:
                core.average(together=True)
            estimates[t] = self.estimate
        return estimates

    def _exchange(self, turn: int) -> None:
        frames = {core.name: core.frame(turn) for core in self.cores}
        for core in self.cores:
            for host in core.graph.hosts:
                for raw in frames[host]:
                    assert core.hear(host, raw, 0.0, together=True), core.refused


class HostFleet(Hosts):
    """Hosts on a memory network. `tick` lets a period pass, in which every host ticks once."""

    def __init__(
        self, method: Method, graph: Graph, owner: NDArray[np.int64], network: MemoryNetwork, *, seed: int = 0,
        **known: Any,
    ):  # fmt: skip
        super().__init__(method, graph, owner, **{"stale_after": 20 * PERIOD} | known)
        self.network, self.periods = network, 0
        rng = random.Random(seed)
        self.phase = [PERIOD * rng.random() for _ in self.names]
        self.devices = [HostDevice(core, self.join(h)) for h, core in enumerate(self.cores)]

    def join(self, host: int) -> Any:
        return self.network.join(self.names[host], self.graphs[host].hosts)

    def tick(self, row: NDArray[np.float64], without: tuple[int, ...] = ()) -> None:
        for h in sorted(range(len(self.names)), key=self.phase.__getitem__):
            self.network.run_until(self.periods * PERIOD + self.phase[h])
            if h not in without:
                self.devices[h].tick(self.network.now, row_of(row[self.agents[h]]))
        self.periods += 1

    def run(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimates at the end."""
        for row in samples:
            self.tick(row)
        return self.estimate

    @property
    def one_sided(self) -> int:
        """Edges that only one end has cut, or that one end has not heard about."""
        edges = self.edges()
        unknown = sum(len(core.links.unknown(core.alive)) for core in self.cores)
        return unknown + len({(a, b) for a, b in edges if (b, a) not in edges})
