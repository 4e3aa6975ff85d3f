"""Assemble and run the node of a configuration: source, core, transport, store, sink and loop."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from colme.errors import NodeError, printable
from colme.node.config.node_toml import NodeConfig
from colme.node.cuts import forgive_saved
from colme.node.device import Device, lowest_incarnation
from colme.node.gateway import Gateway, core_of
from colme.node.io.journal import Journal
from colme.node.io.sinks import open_sink
from colme.node.io.sockets import wait_for_addresses
from colme.node.io.sources import Say, open_source
from colme.node.io.status import Status, StatusServer, request
from colme.node.loop import Loop, stopped_by_signals
from colme.node.membership import Introductions
from colme.node.names import Endpoint
from colme.node.readings import LocalReadings, ReadingFilter
from colme.node.store import AgentStore, open_store

LOGGER = logging.getLogger("colme.node")
"""Takes the messages of a node."""


def logged(level: int, say: Say | None = None) -> Say:
    """Takes a sentence, logs it at this level, and passes it on to `say` if there is one."""

    def both(sentence: str) -> None:
        LOGGER.log(level, "%s", printable(sentence))
        if say is not None:
            say(sentence)

    return both


def run_node(
    config: NodeConfig, *, say: Say | None = None, until_end: bool = False, metrics: str | None = None, output: int = 1
) -> None:
    """Run the node of a configuration over zenoh until a signal. JSON lines go to the descriptor `output`, messages for
    people to the logger `colme.node`, and to `say` if it is given."""
    from colme.node.net.zenoh_transport import ZenohTransport

    tell, say = logged(logging.INFO, say), logged(logging.WARNING, say)
    wait_for_addresses([Endpoint.parse(each).host for each in config.listen], say)
    core = core_of(config, incarnation=lowest_incarnation(time.time()))
    if isinstance(core, Gateway):
        core.readings = LocalReadings(**_reading_rules(config, say))
    with contextlib.ExitStack() as aside, contextlib.ExitStack() as undo:
        # first: opening the socket fails if this node runs already
        status_server = StatusServer(path=config.socket, metrics=metrics, requests=config.request_socket)
        undo.callback(status_server.close)
        source = open_source(config, say)
        undo.callback(source.close)
        store = open_store(config.store, sync_every=config.sync_every)
        undo.callback(store.close)
        for warning in store.warnings:
            say(warning)
        transport = ZenohTransport(config)
        undo.callback(transport.close)
        sink = aside.enter_context(contextlib.closing(open_sink(config, say, output)))
        more_status: list[Callable[[], Status]] = [
            lambda: {"dropped_lines": sink.dropped, "store_warnings": store.warnings}
        ]
        device = Device(core, transport, store, save_every=config.save_every, source=source, say=say,
                        introductions=introductions_of(config),
                        readings=None if isinstance(core, Gateway) else ReadingFilter(**_reading_rules(config, say)),
                        endpoints={each.name: each.endpoint for each in config.neighbors})  # fmt: skip
        loop = Loop(device, source, status_server, period=config.period, report_every=config.report_every,
                        report=sink, until_end=until_end, more_status=more_status,
                        journal=Journal(say, tell, expires=transport.expires))  # fmt: skip
        undo.pop_all()
        n_neighbors = len(core.neighbors)
        plural = "" if n_neighbors == 1 else "s"
        with stopped_by_signals(loop):  # before it says that it runs: who reads that may send a signal
            tell(f"{config.name} runs (incarnation {core.incarnation}) with {n_neighbors} neighbor{plural}.")
            loop.run()
    tell(f"{config.name} has saved its state and left.")


def forgive(config: NodeConfig, name: str) -> str:
    """Reconsider the cut of the edge to this agent, by the running node or in the store of a stopped one; say what
    happens."""
    answer = request(config.request_socket, f"forgive {name}")
    if answer is not None:
        return answer
    if not Path(config.store).exists():
        raise NodeError(f"{config.name} does not run and has no store at {config.store}. Start it: colme node run.")
    with contextlib.closing(AgentStore(config.store)) as store:
        saved = store.load(config.name)
        state = None if saved is None or saved.state is None else forgive_saved(saved.state, name)
        if saved is None or state is None:
            return f"{config.name} does not run, and its store has no cut edge to {name!r}."
        store.save(config.name, saved.epoch, state)
    return f"{config.name} does not run: it will ask {name} to reconsider the cut when it starts."


def _reading_rules(config: NodeConfig, say: Say) -> dict[str, Any]:
    """Which readings of a configuration count as samples."""
    samples = config.samples
    return {"least": samples.least, "most": samples.most, "wild": samples.wild, "say": say}


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
