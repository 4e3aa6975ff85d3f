"""Devices on a memory network, for tests: each ticks at its own phase of the same period. `Meeting`: they find their
neighbors by introductions; `Gateways`: each has many local agents."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from colme.graphs import Graph, from_edges
from colme.methods import Method
from colme.node.config.presets import max_degree
from colme.node.core import Core
from colme.node.device import Device
from colme.node.gateway import Gateway
from colme.node.membership import Introductions
from colme.node.messages.wire import Control, HistogramBody, Record, pack, pack_control, unpack
from colme.node.net.memory import MemoryNetwork
from colme.node.store import AgentStore
from colme.testing import SIGMA

PERIOD = 0.05


class Crash(Exception):
    """The power is gone."""


DEATHS = ("after all", "before saving", "before telling")
"""Points of a tick at which an agent may die."""


def schedules(ticks: int, n_agents: int) -> st.SearchStrategy[dict[str, Any]]:
    """Troubles of so many ticks: loss, delay (periods) and duplication of messages; who dies when and how, and for how
    many ticks; and how far two classes are apart."""
    when = st.tuples(st.integers(0, ticks - 1), st.integers(0, n_agents - 1))
    return st.fixed_dictionaries(
        {
            "seed": st.integers(0, 10**6), "loss": st.sampled_from([0.0, 0.2, 0.6]),
            "delay": st.sampled_from([0.0, 1.5, 6.0]), "duplication": st.sampled_from([0.0, 0.5]),
            "gap": st.sampled_from([0.0, 1.25, 3.0]),
            "deaths": st.dictionaries(when, st.tuples(st.sampled_from(DEATHS), st.integers(0, 15)), max_size=6),
        }
    )  # fmt: skip


def network_of(schedule: dict[str, Any]) -> MemoryNetwork:
    return MemoryNetwork(
        seed=schedule["seed"], loss=schedule["loss"], delay=(0.0, schedule["delay"] * PERIOD),
        duplication=schedule["duplication"],
    )  # fmt: skip


class Fleet:
    """Agents of a method on a graph. `tick` lets a period pass, in which everybody ticks once. With a folder, they have
    stores there, and continue from them when they are started again."""

    def __init__(
        self, method: Method, graph: Graph, network: MemoryNetwork, *, seed: int = 0, folder: Path | None = None,
        save_every: int = 20, **known: Any,
    ):  # fmt: skip
        n = graph.n_agents
        self.network, self.names = network, [f"agent-{a:03d}" for a in range(n)]
        rng = random.Random(seed)
        self.phase = {name: PERIOD * rng.random() for name in self.names}
        self.neighbors = {self.names[a]: [self.names[b] for b in graph.neighbors(a)] for a in range(n)}
        self.known = {"n_agents": n, "degree": int(graph.degrees.max()), "stale_after": 20 * PERIOD} | known
        self.method, self.periods, self.folder, self.save_every = method, 0, folder, save_every
        self.devices = {name: self.start(name) for name in self.names}

    def start(self, name: str, store: Any = None, **options: Any) -> Device:
        if self.folder is not None:
            store, options = AgentStore(self.folder / name), {"save_every": self.save_every} | options
        transport = self.network.join(name, self.neighbors[name])
        return Device(self.core(name), transport, store, introductions=self.introductions(name), **options)

    def core(self, name: str) -> Core:
        return Core(self.method, name, self.neighbors[name], **self.known)

    def introductions(self, name: str) -> Introductions | None:
        return None

    def stop(self, name: str) -> Device:
        """End a device; what it has not saved is lost."""
        device = self.devices.pop(name)
        device.transport.close()
        if device.store is not None:
            device.store.close()
        return device

    def back(self, name: str) -> None:
        self.devices[name] = self.start(name)

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

    def suffer(self, rows: Iterable[Any], deaths: dict[tuple[int, int], tuple[str, int]]) -> None:
        """Tick through the samples while agents die as scheduled and come back; then the network is healthy again."""
        down: dict[str, int] = {}
        for t, row in enumerate(rows):
            for name in [name for name, until in down.items() if until <= t]:
                del down[name]
                self.back(name)

            def each(name: str, device: Device, now: float, x: float, t: int = t) -> None:
                how, pause = deaths.get((t, self.names.index(name)), (None, 0))
                if not self.survives(device, now, x, how):
                    self.stop(name)
                    down[name] = t + 1 + pause

            self.tick(row, each)
            self.after_tick()
        for name in down:
            self.back(name)
        self.network.loss, self.network.delay, self.network.duplication = 0.0, (0.0, 0.0), 0.0

    def survives(self, device: Device, now: float, sample: float, dies: str | None) -> bool:
        """Tick, or die on the way."""

        def die(*_: Any) -> None:
            raise Crash

        if dies == "before saving":
            device.store.save_all = die  # type: ignore[method-assign,union-attr]
        if dies == "before telling":
            device.transport.publish = die  # type: ignore[method-assign]
        try:
            device.tick(now, sample)
        except Crash:
            return False
        return dies is None

    def after_tick(self) -> None:
        """What is checked while agents suffer."""

    @property
    def imbalance(self) -> float:
        """Mean of all estimates, less the mean of all local means."""
        return float(np.nanmean([core.estimate - core.mean for core in self.cores]))

    @property
    def half_edges(self) -> int:
        """Edges that only one end knows of."""
        links = {(a, b) for a, device in self.devices.items() for b in device.core.neighbors}
        return len({(a, b) for a, b in links if (b, a) not in links})

    @property
    def one_sided(self) -> int:
        """Edges that only one end has cut, or that one end has not heard about."""
        unknown = sum(not cut_edge.known for core in self.cores for cut_edge in core.cuts.edges.values())
        return unknown + self.half_edges


def lone_core(method: Method, name: str = "a", neighbors: Iterable[str] = ("b",), **known: Any) -> Core:
    """An agent without a fleet."""
    return Core(method, name, neighbors, **{"n_agents": 9, "degree": 3, "sigma": SIGMA} | known)


def lone_device(core: Core, store: Any = None, **options: Any) -> Device:
    """The device of an agent whose neighbors are not there."""
    return Device(core, MemoryNetwork().join(core.name, core.neighbors), store, **options)


def notice(kind: int, epoch: int = 1) -> bytes:
    """A control message of the first life of an agent, such as that of a cut."""
    return pack_control(Control(kind, 1, epoch))


class Meeting(Fleet):
    """A fleet whose agents may have others than their first neighbors; `degree` is what they want."""

    def __init__(
        self, method: Method, graph: Graph, network: MemoryNetwork, *, degree: int = 6, patience: float = 200.0,
        replace: bool = True, seeds: Sequence[int] = (), **known: Any,
    ):  # fmt: skip
        self.wanted = {"degree": degree, "patience": patience * PERIOD, "replace": replace}
        self.seeds = {f"agent-{a:03d}": f"tcp/127.0.0.1:{a + 1}" for a in seeds}
        super().__init__(method, graph, network, **{"degree": max_degree(degree)} | known)

    def introductions(self, name: str) -> Introductions:
        return Introductions(
            name, endpoint=endpoint(name), seeds={b: e for b, e in self.seeds.items() if b != name},
            known={b: endpoint(b) for b in self.neighbors[name]}, rng=random.Random(name), answer_in=200 * PERIOD,
            **self.wanted,
        )  # fmt: skip

    @property
    def graph(self) -> Graph:
        """Edges that both ends know of."""
        number = {name: a for a, name in enumerate(self.names)}
        links = {(a, b) for a, device in self.devices.items() for b in device.core.neighbors}
        return from_edges([(number[a], number[b]) for a, b in links if a < b and (b, a) in links], len(self.names))

    def waiting(self, names: Sequence[str]) -> None:
        """Take these out, to come later."""
        self.later = {name: self.devices.pop(name) for name in names}

    def come(self, name: str) -> None:
        self.devices[name] = self.later.pop(name)


def endpoint(name: str) -> str:
    return f"tcp/127.0.0.1:{int(name[-3:]) + 1}"


def samples_of(
    n_classes: int, n: int, n_steps: int, seed: int = 1, gap: float = 2.5 * SIGMA, sigma: float = SIGMA
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
