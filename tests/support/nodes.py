"""Devices on a memory network, for tests: each ticks at its own phase of the same period. `Meeting`: they find their
neighbors by introductions; `Gateways`: each has many local agents."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.graphs import Graph, from_edges
from colme.methods import Method
from colme.node.config.presets import max_degree
from colme.node.core import Core
from colme.node.device import Device
from colme.node.gateway import Gateway
from colme.node.membership import Introductions
from colme.node.messages.wire import HistogramBody, Record, pack, unpack
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


class Meeting(Fleet):
    """A fleet whose agents may have others than their first neighbors; `degree` is what they want."""

    def __init__(
        self, method: Method, graph: Graph, network: MemoryNetwork, *, degree: int = 6, patience: float = 200.0,
        replace: bool = True, seeds: Sequence[int] = (), **known: Any,
    ):  # fmt: skip
        self.wanted = {"degree": degree, "patience": patience * PERIOD, "replace": replace}
        self.seeds = {f"agent-{a:03d}": f"tcp/127.0.0.1:{a + 1}" for a in seeds}
        super().__init__(method, graph, network, **{"degree": max_degree(degree)} | known)

    def start(self, name: str, store: Any = None, **options: Any) -> Device:
        neighbors = self.neighbors[name]
        core = Core(self.method, name, neighbors, **self.known)
        introductions = Introductions(
            name, endpoint=endpoint(name), seeds={b: e for b, e in self.seeds.items() if b != name},
            known={b: endpoint(b) for b in neighbors}, rng=random.Random(name), answer_in=200 * PERIOD, **self.wanted,
        )  # fmt: skip
        return Device(core, self.network.join(name, neighbors), store, introductions=introductions, **options)

    @property
    def graph(self) -> Graph:
        """Edges that both ends know of."""
        number = {name: a for a, name in enumerate(self.names)}
        links = {(a, b) for a, device in self.devices.items() for b in device.core.neighbors}
        return from_edges([(number[a], number[b]) for a, b in links if a < b and (b, a) in links], len(self.names))

    @property
    def half_edges(self) -> int:
        links = {(a, b) for a, device in self.devices.items() for b in device.core.neighbors}
        return len({(a, b) for a, b in links if (b, a) not in links})

    def waiting(self, names: Sequence[str]) -> None:
        """Take these out, to come later."""
        self.later = {name: self.devices.pop(name) for name in names}

    def come(self, name: str) -> None:
        self.devices[name] = self.later.pop(name)


def endpoint(name: str) -> str:
    return f"tcp/127.0.0.1:{int(name[-3:]) + 1}"


def samples(n_classes: int, n: int, n_steps: int, seed: int, gap: float, sigma: float) -> tuple[NDArray[Any], Any]:
    """Samples (steps, agents) of classes in turn, and their means."""
    truth = gap * (np.arange(n) % n_classes)
    rng = np.random.default_rng(seed)
    return truth + sigma * rng.standard_normal((n_steps, n)), truth


class Gateways:
    """Gateways that all know each other, with so many local agents each, called 0, 1, ..

    lies    by the number of a gateway: what it makes of its records before it sends them"""

    def __init__(
        self, method: Method, sizes: list[int], network: MemoryNetwork | None = None, *,
        lies: dict[int, Callable[[Record], Record]] | None = None, stores: dict[str, Any] | None = None, **known: Any,
    ):  # fmt: skip
        self.network = MemoryNetwork() if network is None else network
        self.names = [f"gateway-{i}" for i in range(len(sizes))]
        self.sizes, self.periods = sizes, 0
        options = {"n_agents": len(sizes), "max_ballots": max(sizes), "stale_after": 20 * PERIOD} | known
        options.setdefault("degree", max(len(sizes) - 1, 1))
        self.devices = []
        for i, name in enumerate(self.names):
            others = [each for each in self.names if each != name]
            core = Gateway(method, name, others, **options)
            self.devices.append(Device(core, self.network.join(name, others), (stores or {}).get(name)))
            if i in (lies or {}):
                self._lie(self.devices[i], (lies or {})[i])

    def _lie(self, device: Device, lie: Callable[[Record], Record]) -> None:
        tell = device.transport.publish
        device.transport.publish = lambda raw: tell(pack(lie(unpack(raw))))  # type: ignore[method-assign]

    @property
    def cores(self) -> list[Any]:
        return [device.core for device in self.devices]

    def tick(self, samples: list[NDArray[np.float64]]) -> None:
        """One sample of every local agent; NaN: none."""
        for i, (device, row) in enumerate(zip(self.devices, samples, strict=True)):
            self.network.run_until((self.periods + (i + 0.5) / len(self.devices)) * PERIOD)
            device.feed(self.network.now, [(str(a), x) for a, x in enumerate(row.tolist()) if x == x])
        self.periods += 1


def bins_of(record: Record, **fields: Any) -> Record:
    """A record with other fields in its histogram, guarded or not."""
    body: Any = record.body
    inner = getattr(body, "inner", body)
    assert isinstance(inner, HistogramBody)
    other = msgspec.structs.replace(inner, **fields)
    body = msgspec.structs.replace(body, inner=other) if inner is not body else other
    return msgspec.structs.replace(record, body=body)
