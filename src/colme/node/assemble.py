"""A node of a configuration, put together: what it reads, who it is, whom it speaks to, where its estimates go."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from colme.node.config.node_toml import NodeConfig
from colme.node.core import Core
from colme.node.device import Device
from colme.node.io.sinks import open_outlet
from colme.node.io.sources import Lines, Say, open_source
from colme.node.io.status import Desk, Status
from colme.node.loop import Runner, stopped_by_signals
from colme.node.membership.introductions import Introductions
from colme.node.store import Store


def run_node(
    config: NodeConfig, *, say: Say, until_end: bool = False, metrics: str | None = None, output: int = 1
) -> None:
    """The node of a configuration, over zenoh, until a signal: JSON lines to a descriptor, words to `say`."""
    from colme.node.net.zenoh_transport import ZenohTransport

    parts = _one_agent(config) if config.host is None else _many_agents(config, say)
    core = parts.core
    with contextlib.ExitStack() as aside, contextlib.ExitStack() as undo:
        desk = Desk(path=config.socket, metrics=metrics)  # first: it tells whether this node runs already
        undo.callback(desk.close)
        source = open_source(config, say, parts.lines)
        undo.callback(source.close)
        store = Store(config.store)
        undo.callback(store.close)
        transport = ZenohTransport(config)
        undo.callback(transport.close)
        outlet = aside.enter_context(contextlib.closing(open_outlet(config, say, output)))
        besides: list[Callable[[], Status]] = [lambda: {"dropped_lines": outlet.dropped}]
        device = parts.device(core, transport, store, save_every=config.save_every, reading=source)
        runner = Runner(device, source, desk, period=config.period, report_every=config.report_every,
                        report=parts.report(outlet), until_end=until_end, besides=besides)  # fmt: skip
        undo.pop_all()
        say(f"{config.name} runs (start {core.incarnation}) with {len(core.neighbors)} neighbors.")
        with stopped_by_signals(runner):
            runner.run()
    say(f"{config.name} has saved its state and left.")


def introductions_of(config: NodeConfig) -> Introductions | None:
    """How the node of a configuration finds neighbors; None: it has those of the file."""
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


class Parts(NamedTuple):
    """What differs between a node of one agent and a host of many."""

    core: Any
    device: Callable[..., Device]
    lines: type[Lines]
    report: Callable[[Report], Report]
    """Does more at each report than to print it."""


def _one_agent(config: NodeConfig) -> Parts:
    n_agents = config.n_agents or len(config.everyone) + 1
    core = Core(
        config.method, config.name, [each.name for each in config.neighbors], n_agents=n_agents, degree=config.degree,
        sigma=getattr(config.method, "sigma", None), origin=config.origin, stale_after=config.freshness,
    )  # fmt: skip
    device = functools.partial(Device, introductions=introductions_of(config))
    return Parts(core, device, Lines, lambda report: report)


def _many_agents(config: NodeConfig, say: Say) -> Parts:
    from colme.node.hosts.device import HostDevice, host_core
    from colme.node.hosts.samples import AgentLines
    from colme.node.hosts.status import with_estimates

    core = host_core(config)
    device = functools.partial(HostDevice, parts=config.parts)
    return Parts(core, device, AgentLines, lambda report: with_estimates(report, core, config, say))
