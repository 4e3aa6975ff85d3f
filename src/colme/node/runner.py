"""The loop of a node: it ticks on a monotonic clock, with a phase of its own, until it is told to stop.

Each tick takes the samples that came, makes one step and speaks. Ticks that are late are skipped, not bunched: after a
pause of the machine there is one tick, and then the next in its time. SIGTERM and SIGINT end the loop: the state is
saved and the network left.
"""

from __future__ import annotations

import contextlib
import functools
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

from colme.node.config import NodeConfig
from colme.node.core import Core
from colme.node.device import Device
from colme.node.outlets import open_outlet
from colme.node.sources import Lines, Say, Source, open_source
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
    besides        who else has something to tell in the status
    """

    def __init__(
        self, device: Device, source: Source, desk: Desk, *, period: float, report_every: float = 1.0,
        report: Callable[[Status], None] = lambda _: None, until_end: bool = False, phase: float | None = None,
        clock: Callable[[], float] = time.monotonic, besides: Sequence[Callable[[], Status]] = (),
    ):  # fmt: skip
        self.device, self.source, self.desk = device, source, desk
        self.report_every, self.report, self.until_end, self.besides = report_every, report, until_end, besides
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
        found = status_of(self.device, now) | {
            "seconds": now - self.began,
            "late": self.ticker.late,
            "bad_lines": self.source.bad,
            "samples_ended": self.source.ended,
        }
        for tell in self.besides:
            found |= tell()
        return found

    def _tick(self, now: float) -> None:
        self.device.feed(now, self.source.take())
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
            last.callback(self.device.save)


def run_node(
    config: NodeConfig, *, say: Say, until_end: bool = False, metrics: str | None = None, output: int = 1
) -> None:
    """The node of a configuration, over zenoh, until a signal: JSON lines to a descriptor, words to `say`."""
    from colme.node.zenoh_transport import ZenohTransport

    parts = _one_agent(config) if config.host is None else _many_agents(config)
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
        if config.relay is not None:
            from colme.node.tunnel import Tunnel

            besides.append(aside.enter_context(contextlib.closing(Tunnel(config, say))).status)
        device = parts.device(core, transport, store, save_every=config.save_every, reading=source)
        runner = Runner(device, source, desk, period=config.period, report_every=config.report_every,
                        report=parts.report(outlet), until_end=until_end, besides=besides)  # fmt: skip
        undo.pop_all()
        say(f"{config.name} runs (start {core.incarnation}) with {len(core.neighbors)} neighbors.")
        with _signals(runner):
            runner.run()
    say(f"{config.name} has saved its state and left.")


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
    return Parts(core, Device, Lines, lambda report: report)


def _many_agents(config: NodeConfig) -> Parts:
    from colme.node.host_device import HostDevice, host_core
    from colme.node.host_samples import AgentLines
    from colme.node.host_status import with_estimates

    core = host_core(config)
    device = functools.partial(HostDevice, parts=config.parts)
    return Parts(core, device, AgentLines, lambda report: with_estimates(report, core, config))


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
