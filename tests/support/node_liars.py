"""Agents that lie, for tests: devices whose records are changed before they are sent.

A liar has its own name only; it knows what it receives and the true mean of its own class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.census.histogram import bin_means
from colme.graphs import Graph
from colme.node.core import Core
from colme.node.device import Device
from colme.node.hosts.frame import pack_frame, unpack_frame
from colme.node.messages.wire import ConsensusBody, FlowBody, HistogramBody, Record, pack, unpack
from colme.node.net.memory import MemoryNetwork
from colme.testing._promises import SIGMA
from tests.support.hosts import HostFleet
from tests.support.nodes import Fleet

FAR = 1e6
Lie = Callable[[Core, Record], Record]
"""What a liar says instead of what its core would."""


def two_classes(n_agents: int, n_steps: int, seed: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(samples, true means), 2.5 sigma apart."""
    truth = 2.5 * SIGMA * (np.arange(n_agents) % 2)
    return truth + SIGMA * np.random.default_rng(seed).standard_normal((n_steps, n_agents)), truth


def _with(record: Record, **body: Any) -> Record:
    return msgspec.structs.replace(record, body=msgspec.structs.replace(record.body, **body))


def _wide(core: Core, record: Record) -> tuple[tuple[float, float], ...]:
    """An interval that parts from nobody's."""
    return tuple((center, 1e3) for center, _ in record.body.intervals)  # type: ignore[union-attr]


def far(core: Core, record: Record) -> Record:
    """An estimate that is absurd, beside an honest interval."""
    return _with(record, estimate=FAR)


def wide(core: Core, record: Record) -> Record:
    """The same, and never cut."""
    return _with(record, estimate=FAR, intervals=_wide(core, record))


def edge(core: Core, record: Record) -> Record:
    """The estimate at the edge of the liar's interval, that is, of about everybody's of its class."""
    center, radius = record.body.intervals[0]  # type: ignore[union-attr]
    return _with(record, estimate=center + radius)


def flip(core: Core, record: Record) -> Record:
    """One side at one tick, the other at the next."""
    return _with(record, estimate=FAR if record.epoch % 2 else -FAR, intervals=_wide(core, record))


def storm(core: Core, record: Record) -> Record:
    """The clock restarts at every tick, and it is always news."""
    if not isinstance(record.body, ConsensusBody):
        return record
    told = [heard.record.body for b in core.neighbors if (heard := core.last_heard(b)) is not None]
    newest = max([0, *(body.generation for body in told if isinstance(body, ConsensusBody))])
    return _with(record, restart=record.epoch, generation=newest + 1, intervals=_wide(core, record))


def lend(core: Core, record: Record) -> Record:
    """Everybody has lent it a lot, it says, and it is never cut."""
    if not isinstance(record.body, FlowBody):
        return record
    flows = dict.fromkeys(record.body.flows, -FAR)
    return _with(record, flows=flows, estimate=FAR, intervals=_wide(core, record))


def stubborn(core: Core, record: Record) -> Record:
    """Masses of the round that all are in, of its own false mean alone: a component half a class away."""
    if not isinstance(record.body, HistogramBody):
        return record
    agent: Any = core.agent
    codes, values = bin_means(np.float64(0.5 * SIGMA), np.float64(agent.noise), agent.unit)
    return _with(record, codes=codes, values=values.astype(np.float32), before=values.astype(np.float32))


LIES: dict[str, Lie] = {each.__name__: each for each in (far, wide, edge, flip, storm, lend, stubborn)}


class Liars(Fleet):
    """A fleet in which some lie."""

    def __init__(self, method: Any, graph: Graph, network: MemoryNetwork, lies: dict[int, Lie], **known: Any):
        super().__init__(method, graph, network, **known)
        self.honest = np.array([a not in lies for a in range(graph.n_agents)])
        for a, lie in lies.items():
            device = self.devices[self.names[a]]
            device.transport.publish = self._lying(device, lie)  # type: ignore[method-assign]

    def _lying(self, device: Device, lie: Lie) -> Callable[[bytes], None]:
        tell = device.transport.publish
        return lambda raw: tell(pack(lie(device.core, unpack(raw))))


def lying_host(fleet: HostFleet, host: int, lie: str) -> None:
    """Let this host say of all its agents what the agents above say of themselves."""
    door = fleet.devices[host].transport
    tell = door.publish

    def publish(raw: bytes, part: int = 0) -> None:
        frame = unpack_frame(raw)
        rows = {name: column.copy() for name, column in frame.rows.items()}
        items = {name: column.copy() for name, column in frame.items.items()}
        rows["radius"][:] = 1e3
        if lie == "storm":
            rows["restart"][:] = frame.epoch
            rows["generation"][:] = max(core.generation.max() for core in fleet.cores) + 1
        else:
            rows["estimate"][:] = FAR
        if lie == "lend":
            items["flow"][:] = -FAR
        tell(pack_frame(msgspec.structs.replace(frame, rows=rows, items=items)), part)

    door.publish = publish  # type: ignore[method-assign]


def forge(A: float, D: float, Q: float) -> Lie:
    """In every round of every vote of the guard, these sums."""

    def forged(core: Core, record: Record) -> Record:
        sums = np.array([A, D, Q, Q, Q])
        return _with(record, values=sums, before=sums)

    return forged


FORGED = {
    "praise": forge(FAR, FAR, FAR),  # the method is right, as if a million agents had seen it
    "slander": forge(-FAR, FAR, FAR),
    "noise": forge(0.0, 0.0, FAR**2),  # nothing can be seen: sums of others would be negligible
    "nothing": forge(0.0, 0.0, 0.0),
    "sway": lambda core, record: FORGED["praise" if record.epoch % 8 < 4 else "slander"](core, record),
}
