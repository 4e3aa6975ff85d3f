"""Agents that lie, for tests: devices whose records are changed before they are sent.

A liar has its own name only; it knows what it receives and the true mean of its own class.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
import numpy as np

import colme
from colme.census.histogram import bin_means
from colme.consensus import clock_rate
from colme.graphs import Graph, random_regular_graph
from colme.node.core import Core
from colme.node.device import Device
from colme.node.messages.wire import ConsensusBody, FlowBody, GuardedBody, HistogramBody, Record, pack, unpack
from colme.node.net.memory import MemoryNetwork
from colme.testing import SIGMA
from tests.support.nodes import Fleet, samples_of

FAR = 1e6
Lie = Callable[[Core, Record], Record]
"""What a liar says instead of what its core would."""


def _body(record: Record) -> Any:
    """The method's part of a record."""
    return record.body.inner if isinstance(record.body, GuardedBody) else record.body


def _with(record: Record, **body: Any) -> Record:
    """With other values in the method's part."""
    told = msgspec.structs.replace(_body(record), **body)
    if isinstance(record.body, GuardedBody):
        told = msgspec.structs.replace(record.body, inner=told)
    return msgspec.structs.replace(record, body=told)


def _wide(core: Core, record: Record) -> tuple[tuple[float, float], ...]:
    """An interval that parts from nobody's, or a standard error."""
    return tuple((center, math.copysign(1e3, spread)) for center, spread in _body(record).intervals)


def none(core: Core, record: Record) -> Record:
    """The truth."""
    return record


def far(core: Core, record: Record) -> Record:
    """An estimate that is absurd, beside an honest interval."""
    return _with(record, estimate=FAR)


def wide(core: Core, record: Record) -> Record:
    """The same, and never cut."""
    return _with(record, estimate=FAR, intervals=_wide(core, record))


def edge(core: Core, record: Record) -> Record:
    """The estimate at the edge of the liar's interval, that is, of about everybody's of its class."""
    return _with(record, estimate=record.mean + core.inner.radius)


def flip(core: Core, record: Record) -> Record:
    """One side at one tick, the other at the next."""
    return _with(record, estimate=FAR if record.epoch % 2 else -FAR, intervals=_wide(core, record))


def storm(core: Core, record: Record) -> Record:
    """The clock restarts at every tick, and it is always news."""
    if not isinstance(_body(record), ConsensusBody):
        return record
    told = [_body(heard.record) for b in core.neighbors if (heard := core.last_heard(b)) is not None]
    newest = max([0, *(body.generation for body in told if isinstance(body, ConsensusBody))])
    return _with(record, restart=record.epoch, generation=newest + 1, intervals=_wide(core, record))


def lend(core: Core, record: Record) -> Record:
    """Everybody has lent it a lot, it says, and it is never cut."""
    if not isinstance(_body(record), FlowBody):
        return record
    flows = dict.fromkeys(_body(record).flows, -FAR)
    return _with(record, flows=flows, estimate=FAR, intervals=_wide(core, record))


def stubborn(core: Core, record: Record) -> Record:
    """Masses of the round that all are in, of its own false mean alone: a component half a class away."""
    if not isinstance(_body(record), HistogramBody):
        return record
    agent: Any = core.inner
    codes, values = bin_means(np.float64(0.5 * SIGMA), np.float64(agent.noise), agent.unit)
    return _with(record, codes=codes, values=values.astype(np.float32), before=values.astype(np.float32))


def hover(core: Core, record: Record) -> Record:
    """Knows the rules: as far above the estimates that it hears as none of them is clipped, and within its interval."""
    heard = [_body(each.record) for b in core.neighbors if (each := core.last_heard(b)) is not None]
    agent: Any = core.inner
    if not heard or not hasattr(agent, "radius"):
        return record
    rate = clock_rate(agent.clock, agent.t, agent.restart) if hasattr(agent, "clock") else 0.0
    above = min(body.estimate for body in heard) + 1.9 * (1.0 - rate) * agent.radius
    return _with(record, estimate=min(above, record.mean + agent.radius))


def mimic(core: Core, record: Record) -> Record:
    """Knows the rules: an honest agent of another class, whose mean comes closer as evidence grows, just not cut."""
    agent: Any = core.inner
    if not hasattr(agent, "radius") or record.count == 0:
        return record
    shift = (0.9 if agent.test is not None else 1.8) * agent.radius
    told = tuple((center + shift, spread) for center, spread in _body(record).intervals)
    moved = msgspec.structs.replace(record, mean=record.mean + shift)
    return _with(moved, intervals=told, estimate=_body(record).estimate + shift)


LIES: dict[str, Lie] = {
    each.__name__: each for each in (none, far, wide, edge, flip, storm, lend, stubborn, hover, mimic)
}


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


def forge(A: float, D: float, Q: float) -> Lie:
    """In every round of every vote of the guard, these sums."""

    def forged(core: Core, record: Record) -> Record:
        if not isinstance(record.body, GuardedBody):
            return record
        sums = np.array([A, D, Q, Q, Q])
        return msgspec.structs.replace(record, body=msgspec.structs.replace(record.body, values=sums, before=sums))

    return forged


FORGED = {
    "praise": forge(FAR, FAR, FAR),  # the method is right, as if a million agents had seen it
    "slander": forge(-FAR, FAR, FAR),
    "noise": forge(0.0, 0.0, FAR**2),  # nothing can be seen: sums of others would be negligible
    "modest": lambda core, record: forge(*core.agent.judgment.now[0, [1, 1, 2]])(core, record),  # type: ignore[attr-defined]
    "nothing": forge(0.0, 0.0, 0.0),
    "sway": lambda core, record: FORGED["praise" if record.epoch % 8 < 4 else "slander"](core, record),
}


def and_votes(lie: Lie, forged: Lie) -> Lie:
    """Lie about the estimate, and to the guard about what it is worth."""
    return lambda core, record: forged(core, lie(core, record))


LIES |= {f"{lie}+{forged}": and_votes(LIES[lie], FORGED[forged]) for lie in LIES for forged in FORGED}


class Harm(NamedTuple):
    """Errors of the honest agents, relative to their root mean square error alone."""

    rms: float
    worst: float
    worst_alone: float


def harm(
    method: Any, lie: str, n_liars: int, *, n_agents: int = 11, degree: int = 4, n_classes: int = 1,
    seeds: Iterable[int] = range(4), n_steps: int = 300, **network: Any,
) -> Harm:  # fmt: skip
    """What so many liars do, over some seeds: each has its own graph, liars, samples and network."""
    errors, alone = [], []
    for seed in seeds:
        samples, truth = samples_of(n_classes, n_agents, n_steps, seed)
        liars = np.random.default_rng(100 + seed).choice(n_agents, n_liars, replace=False)
        fleet = Liars(
            method, random_regular_graph(n_agents, degree, rng=2 + seed), MemoryNetwork(seed=seed, **network),
            {int(a): LIES[lie] for a in liars}, sigma=SIGMA,
        )  # fmt: skip
        errors.append((fleet.run(samples)[-1] - truth)[fleet.honest])
        alone.append((samples.mean(axis=0) - truth)[fleet.honest])
    scale = np.sqrt(np.mean(np.square(alone)))
    rms = np.sqrt(np.mean(np.square(errors)))
    return Harm(rms / scale, np.max(np.abs(errors)) / scale, np.max(np.abs(alone)) / scale)


METHODS = {
    "clocked": colme.CLColME(), "flow": colme.CLColME(consensus="flow"), "C": colme.CColME(),
    "census": colme.Census(guard=False),
    "clocked, guarded": colme.CLColME(guard=True, cut="difference"),
    "flow, guarded": colme.CLColME(guard=True, cut="difference", consensus="flow"),
    "C, guarded": colme.CColME(guard=True, cut="difference"), "census, guarded": colme.Census(),
}  # fmt: skip
"""Unguarded and with intervals, and as `colme node plan` writes them."""


def main() -> None:
    """The tables of docs/developer/node.md: python -m tests.support.node_liars AGENTS DEGREE LIARS CLASSES [LIE ..]"""
    n_agents, degree, n_liars, n_classes = map(int, sys.argv[1:5])
    for name, method in METHODS.items():
        for lie in sys.argv[5:] or LIES:
            census, forged = "census" in name, "+" in lie
            if (census != ("stubborn" in lie) and lie != "none") or (forged and "guarded" not in name):
                continue
            found = harm(method, lie, n_liars, n_agents=n_agents, degree=degree, n_classes=n_classes)
            print(f"{name:18s} {lie:18s} {found.rms:5.2f} {found.worst:5.2f} {found.worst_alone:5.2f}", flush=True)


if __name__ == "__main__":
    main()
