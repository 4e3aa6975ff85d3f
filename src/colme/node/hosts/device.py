"""`Device` for a host of many agents."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from colme.errors import NodeError, one_of
from colme.node.config.node_toml import NodeConfig
from colme.node.device import Device
from colme.node.hosts.graph import HostGraph
from colme.node.hosts.host import NO_SAMPLES, AgentSamples, HostCore
from colme.node.hosts.samples import together
from colme.node.net.transport import Transport
from colme.node.store import AgentStore

PATIENCE = 5
"""Ticks between two saves because of cuts: when many edges part, nearly every tick cuts one, and a save takes about as
long as a tick of all agents."""


class HostDevice(Device):
    """Reads the frames of other hosts, ticks all agents, saves what must survive a crash, and only then sends.

    parts   number of parts in the frames of this network (default: as many as this host needs)
    """

    many: ClassVar[bool] = True
    core: HostCore  # type: ignore[assignment]

    def __init__(
        self, core: HostCore, transport: Transport, store: AgentStore | None = None, *, parts: int | None = None,
        **options: Any,
    ):  # fmt: skip
        super().__init__(core, transport, store, **options)  # type: ignore[arg-type]
        self.parts = core.links.n_parts if parts is None else parts
        if core.links.n_parts > self.parts:
            raise NodeError(
                f"host.parts={self.parts}: the frames of {core.name!r} have {core.links.n_parts} parts. "
                f"Set parts = {core.links.n_parts} on all hosts."
            )
        self._last_save = core.epoch
        self._before = core.estimates.copy()

    def feed(self, now: float, samples: list[Any]) -> None:
        """A tick with the blocks of samples that came since the last."""
        self.tick(now, together(samples))

    def tick(self, now: float, samples: AgentSamples = NO_SAMPLES) -> None:  # type: ignore[override]
        """One step; see `HostCore.tick`."""
        core, transport = self.core, self.transport
        heard = [
            (host, raw) for host in core.graph.hosts for part in range(self.parts)
            if (raw := transport.latest(host, part)) is not None
        ]  # fmt: skip
        self._before[:] = core.estimates
        frame = core.tick(now, samples, heard, transport.control())
        if core.epoch - self._last_save >= (PATIENCE if core.urgent else self.save_every):
            self.save()
        for part, record in enumerate(frame):
            transport.publish(record, part)
        for host, message in core.messages():
            transport.send(host, message)

    def save(self) -> None:
        super().save()
        self.core.saved()
        self._last_save = self.core.epoch

    @property
    def moved(self) -> float | None:
        """How far estimates moved at the last tick, root of the mean square; None before there are any."""
        squares = (self.core.estimates - self._before) ** 2
        there = ~np.isnan(squares)
        return math.sqrt(squares[there].mean()) if there.any() else None


def host_core(config: NodeConfig) -> HostCore:
    """The agents of a configuration, ready to tick."""
    assert config.host is not None
    graph = HostGraph.read(config.host.agents, config.name)
    for host in graph.hosts:
        one_of(host, [each.name for each in config.neighbors], "neighbor", NodeError)
    core = HostCore(
        config.method, config.name, graph, n_agents=config.n_agents, n_edges=config.n_edges, degree=config.degree,
        sigma=getattr(config.method, "sigma", None), origin=config.origin, stale_after=config.freshness,
    )  # fmt: skip
    warm_up(core)
    return core


def warm_up(core: HostCore) -> None:
    """Compile what a tick needs, which takes seconds, before the clock starts."""
    alone = HostCore(core.method, core.name, HostGraph(1, (), [], [], []), sigma=1.0, width=1.0)
    alone.tick(0.0, (np.zeros(1, np.int64), np.zeros(1)))
    alone.sever(np.empty(0, np.int64))
