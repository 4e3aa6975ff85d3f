"""The loop of a node: it ticks on a monotonic clock, with a phase of its own, until it is told to stop.

Each tick takes the samples that came, makes one step and speaks. Ticks that are late are skipped, not bunched: after a
pause of the machine there is one tick, and then the next in its time. SIGTERM and SIGINT end the loop: the state is
saved and the network left.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from colme.node.config import NodeConfig
from colme.node.core import Core
from colme.node.device import Device
from colme.node.introductions import Introductions
from colme.node.sources import Say, Source, open_source
from colme.node.status import Desk, Status, report_of, status_of
from colme.node.store import Store


class Ticker:
    """When to tick: at start + (phase + k) period."""

    def __init__(self, period: float, start: float, phase: float):
        self.period, self.due = period, start + phase * period
        self.late = 0  # ticks that were skipped

    def began(self, now: float) -> None:
        """The tick that was due begins; the next is the first in the future."""
        behind = int((now - self.due) // self.period)
        self.late += behind
        self.due += (behind + 1) * self.period


class Runner:
    """A device that runs.

    report_every   seconds between two reports; `report` gets them
    until_end      stop when there will be no more samples
    phase          of the first tick, in periods (default: random, so that the agents of a fleet do not speak at once)
    """

    def __init__(
        self, device: Device, source: Source, desk: Desk, *, period: float, report_every: float = 1.0,
        report: Callable[[Status], None] = lambda _: None, until_end: bool = False, phase: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):  # fmt: skip
        self.device, self.source, self.desk = device, source, desk
        self.report_every, self.report, self.until_end = report_every, report, until_end
        self.clock, self.began, self.stopping = clock, clock(), False
        self.ticker = Ticker(period, self.began, random.random() if phase is None else phase)
        self._report_due = self.began

    def run(self) -> None:
        """Until `stop`; then save, leave and report a last time."""
        try:
            while not self.stopping:
                now = self.clock()
                if now < self.ticker.due:
                    self.desk.wait(self.ticker.due - now, self.status)
                else:
                    self.ticker.began(now)
                    self._tick(now)
            self.report(report_of(self.device))
        finally:
            self._leave()

    def stop(self) -> None:
        self.stopping = True
        with contextlib.suppress(OSError):  # closed, or so full that it rings anyway
            self.desk.ring.send(b"!")

    def status(self) -> Status:
        now = self.clock()
        return status_of(self.device, now) | {
            "seconds": now - self.began,
            "late": self.ticker.late,
            "bad_lines": self.source.bad,
            "samples_ended": self.source.ended,
        }

    def _tick(self, now: float) -> None:
        first, *more = self.source.take() or [float("nan")]
        for sample in more:
            self.device.core.observe(sample)
        self.device.tick(now, first)
        if now >= self._report_due:
            self._report_due += self.report_every * (1 + (now - self._report_due) // self.report_every)
            self.report(report_of(self.device))
        if self.until_end and self.source.ended:
            self.stop()

    def _leave(self) -> None:
        with contextlib.ExitStack() as last:  # each of them, whatever happens to the others
            if self.device.store is not None:
                last.callback(self.device.store.close)
            last.callback(self.source.close)
            last.callback(self.desk.close)
            last.callback(self.device.transport.close)
            last.callback(self.device.leave)
            last.callback(self.device.save)


def run_node(
    config: NodeConfig, *, say: Say, until_end: bool = False, metrics: str | None = None, output: int = 1
) -> None:
    """The node of a configuration, over zenoh, until a signal: JSON lines to a descriptor, words to `say`."""
    from colme.node.zenoh_transport import ZenohTransport

    n_agents = config.n_agents or len(config.everyone) + 1
    core = Core(
        config.method, config.name, [each.name for each in config.neighbors], n_agents=n_agents, degree=config.degree,
        sigma=getattr(config.method, "sigma", None), origin=config.origin, stale_after=config.freshness,
    )  # fmt: skip
    with contextlib.ExitStack() as undo:
        desk = Desk(path=config.socket, metrics=metrics)  # first: it tells whether this node runs already
        undo.callback(desk.close)
        source = open_source(config, say)
        undo.callback(source.close)
        store = Store(config.store)
        undo.callback(store.close)
        transport = ZenohTransport(config)
        undo.callback(transport.close)
        device = Device(core, transport, store, save_every=config.save_every, reading=source,
                        introductions=introductions_of(config))  # fmt: skip
        runner = Runner(device, source, desk, period=config.period, report_every=config.report_every,
                        report=LinePrinter(output), until_end=until_end)  # fmt: skip
        undo.pop_all()
    say(f"{config.name} runs (start {core.incarnation}) with {len(core.neighbors)} neighbors.")
    with _signals(runner):
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


class LinePrinter:
    """Reports as JSON lines. If nobody reads them they are dropped, for the next tick does not wait."""

    def __init__(self, descriptor: int):
        self.dropped = 0
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def __call__(self, report: Status) -> None:
        if self._poll.poll(0):  # a pipe is ready if 4096 bytes fit, which is more than a line
            os.write(self._descriptor, json.dumps(report).encode() + b"\n")
        else:
            self.dropped += 1


@contextlib.contextmanager
def _signals(runner: Runner) -> Iterator[None]:
    """SIGTERM and SIGINT stop it, the second time at once; SIGHUP, from a terminal that closes, is nothing."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, before[number])
        runner.stop()

    before: dict[int, Any] = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
