"""Assemble and run the node of a configuration: source, core, transport, store, sink and loop."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from colme.node.config.node_toml import NodeConfig
from colme.node.core import Core
from colme.node.device import Device
from colme.node.io.sinks import open_sink
from colme.node.io.sources import LineParser, Say, open_source
from colme.node.io.status import Status, StatusServer
from colme.node.loop import Loop, stopped_by_signals
from colme.node.membership.introductions import Introductions
from colme.node.store import AgentStore


def run_node(
    config: NodeConfig, *, say: Say, until_end: bool = False, metrics: str | None = None, output: int = 1
) -> None:
    """Run the node of a configuration over zenoh until a signal. JSON lines go to the descriptor `output`, messages for
    people to `say`."""
    from colme.node.net.zenoh_transport import ZenohTransport

    parts = _one_agent(config) if config.host is None else _many_agents(config, say)
    core = parts.core
    with contextlib.ExitStack() as aside, contextlib.ExitStack() as undo:
        # first: opening the socket fails if this node runs already
        status_server = StatusServer(path=config.socket, metrics=metrics)
        undo.callback(status_server.close)
        source = open_source(config, say, parts.lines)
        undo.callback(source.close)
        store = AgentStore(config.store)
        undo.callback(store.close)
        transport = ZenohTransport(config)
        undo.callback(transport.close)
        sink = aside.enter_context(contextlib.closing(open_sink(config, say, output)))
        more_status: list[Callable[[], Status]] = [lambda: {"dropped_lines": sink.dropped}]
        device = parts.device(core, transport, store, save_every=config.save_every, source=source)
        loop = Loop(device, source, status_server, period=config.period, report_every=config.report_every,
                        report=parts.report(sink), until_end=until_end, more_status=more_status)  # fmt: skip
        undo.pop_all()
        n_neighbors = len(core.neighbors)
        plural = "" if n_neighbors == 1 else "s"
        say(f"{config.name} runs (start {core.incarnation}) with {n_neighbors} neighbor{plural}.")
        with stopped_by_signals(loop):
            loop.run()
    say(f"{config.name} has saved its state and left.")


def introductions_of(config: NodeConfig) -> Introductions | None:
    """How the node of a configuration finds further neighbors; None if it keeps those of the file."""
    join = config.join
    if join is None:
        return None
    seeds = {} if join.seed is None or join.endpoint is None else {join.seed: join.endpoint}
    return Introductions(
        config.name, degree=join.degree, endpoint=config.advertised, seeds=seeds, replace=join.replace,
        known={each.name: each.endpoint for each in config.neighbors if each.endpoint is not None},
        patience=join.patience or 60 * config.freshness, answer_in=config.freshness + 4 * config.lease,
        admits=config.admits,
    )  # fmt: skip


Report = Callable[[Status], None]


class _Parts(NamedTuple):
    """What differs between a node of one agent and a host of many."""

    core: Any
    device: Callable[..., Device]
    lines: type[LineParser]
    report: Callable[[Report], Report]
    """Wraps the function that takes reports."""


def _one_agent(config: NodeConfig) -> _Parts:
    n_agents = config.n_agents or len(config.peers) + 1
    core = Core(
        config.method, config.name, [each.name for each in config.neighbors], n_agents=n_agents, degree=config.degree,
        sigma=getattr(config.method, "sigma", None), origin=config.origin, level=config.level,
        stale_after=config.freshness,
    )  # fmt: skip
    device = functools.partial(Device, introductions=introductions_of(config))
    return _Parts(core, device, LineParser, lambda report: report)


def _many_agents(config: NodeConfig, say: Say) -> _Parts:
    from colme.node.hosts.device import HostDevice, host_core
    from colme.node.hosts.samples import AgentLineParser
    from colme.node.hosts.status import with_estimates

    core = host_core(config)
    device = functools.partial(HostDevice, parts=config.parts)
    return _Parts(core, device, AgentLineParser, lambda report: with_estimates(report, core, config, say))
