"""The loop of a node: it ticks on a monotonic clock, with a random phase, until it is stopped.

Each tick takes the samples that arrived, makes one step and sends. Ticks that are late are skipped, not made up for:
after a pause of the machine there is one tick, and then the next on schedule. SIGTERM and SIGINT end the loop: the
state is saved and the agent leaves the network.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from colme.errors import shorten
from colme.node.device import Device
from colme.node.io.journal import Journal
from colme.node.io.sources import SampleSource
from colme.node.io.status import Status, StatusServer, reports_of, status_of


class Ticker:
    """When to tick: at start + (phase + k) period."""

    def __init__(self, period: float, start: float, phase: float):
        self.period, self.due = period, start + phase * period
        self.late = 0  # ticks skipped

    def began(self, now: float) -> None:
        """Note that the due tick begins; the next is the first one in the future."""
        behind = int((now - self.due) // self.period)
        self.late += behind
        self.due += (behind + 1) * self.period


class Loop:
    """Drives a device.

    report_every   seconds between two reports, which are passed to `report`
    until_end      whether to stop at the end of the samples
    phase          of the first tick, in periods (default: random, so that the agents of a fleet do not send at once)
    more_status    functions that add fields to the status
    journal        is shown the device at every tick
    """

    def __init__(
        self, device: Device, source: SampleSource, status_server: StatusServer, *, period: float,
        report_every: float = 1.0, report: Callable[[list[Status]], None] = lambda _: None, until_end: bool = False,
        phase: float | None = None, clock: Callable[[], float] = time.monotonic,
        more_status: Sequence[Callable[[], Status]] = (), journal: Journal | None = None,
    ):  # fmt: skip
        self.device, self.source, self.status_server = device, source, status_server
        self.report_every, self.report, self.until_end, self.more_status = report_every, report, until_end, more_status
        self.clock, self.began, self.stopping = clock, clock(), False
        self.ticker = Ticker(period, self.began, random.random() if phase is None else phase)
        self._report_due = self.began
        self.journal = journal
        status_server.answer = self.answer

    def run(self) -> None:
        """Tick until `stop`; then report a last time, save and leave."""
        try:
            while not self.stopping:
                now = self.clock()
                if now < self.ticker.due:
                    self.status_server.wait(self.ticker.due - now, self.status)
                else:
                    self.ticker.began(now)
                    self._tick(now)
            self.report(reports_of(self.device))
        finally:
            self._leave()

    def stop(self) -> None:
        self.stopping = True
        with contextlib.suppress(OSError):  # closed, or full, and then it wakes up anyway
            self.status_server.wakeup.send(b"!")

    def status(self) -> Status:
        now = self.clock()
        found = status_of(self.device, now) | {
            "seconds": now - self.began,
            "late": self.ticker.late,
            "bad_lines": self.source.bad,
            "samples_ended": self.source.ended,
        }
        if self.journal is not None:
            found |= self.journal.status()
        for tell in self.more_status:
            found |= tell()
        return found

    def answer(self, request: str) -> str:
        """The answer to a request of `colme node forgive`."""
        match request.split():
            case ["forgive", name]:
                return self.device.forgive(name)
        return f"unknown request {shorten(request)}: there is forgive NAME."

    def _tick(self, now: float) -> None:
        self.device.feed(now, [] if self.device.core.busy else self.source.take())
        if now >= self._report_due:
            self._report_due += self.report_every * (1 + (now - self._report_due) // self.report_every)
            self.report(reports_of(self.device))
        if self.until_end and self.source.ended and not self.device.core.waiting:
            self.stop()
        elif self.journal is not None:
            self.journal.look(self.device, now, ended=self.source.ended)

    def _leave(self) -> None:
        with contextlib.ExitStack() as last:  # all of them, even if one fails
            if self.device.store is not None:
                last.callback(self.device.store.close)
            last.callback(self.source.close)
            last.callback(self.status_server.close)
            last.callback(self.device.transport.close)
            last.callback(self.device.leave)
            last.callback(self.device.save)


@contextlib.contextmanager
def stopped_by_signals(loop: Loop) -> Iterator[None]:
    """SIGTERM and SIGINT stop the loop, the second one immediately. SIGHUP is ignored."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, before[number])
        loop.stop()

    before: dict[int, Any] = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
