"""The loop of a node: it ticks on a monotonic clock, with a phase of its own, until it is told to stop.

Each tick takes the samples that came, makes one step and speaks. Ticks that are late are skipped, not bunched: after a
pause of the machine there is one tick, and then the next in its time. SIGTERM and SIGINT end the loop: the state is
saved and the network left.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from colme.node.device import Device
from colme.node.io.sources import Source
from colme.node.io.status import Desk, Status, report_of, status_of


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
            last.callback(self.device.leave)
            last.callback(self.device.save)


@contextlib.contextmanager
def stopped_by_signals(runner: Runner) -> Iterator[None]:
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
