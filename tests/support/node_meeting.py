"""Agents on a memory network that find their neighbors by introductions, for tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.graphs import Graph, from_edges
from colme.methods import Method
from colme.node.config.presets import max_degree
from colme.node.core import Core
from colme.node.device import Device
from colme.node.membership import Introductions
from colme.node.net.memory import MemoryNetwork
from tests.support.nodes import PERIOD, Fleet


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
