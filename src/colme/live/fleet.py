"""Watch a fleet: ask the nodes of this machine, read the reports of others, and publish what they say."""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

from colme.errors import NodeError
from colme.live.fleet_feed import MOST_AGENTS, Answer, FleetFeed, Statement, key_of
from colme.live.messages import end
from colme.node.io.status import ask

TIMEOUT = 2.0
"""Seconds after which a node that is asked counts as silent."""
MOST_AT_ONCE = 64
LONGEST_LINE = 65_536
MOST_READ = 1 << 24
"""Bytes of reports that are read per poll."""
MOST_NEIGHBORS = 50
"""Neighbors that are looked at, if a line of the reports is a whole status."""
_FIRST_SILENT = 180.0  # seconds after which an agent with a single report is silent
_SILENT = (10.0, 600.0)  # of the others: three times the time between two reports, within these bounds


def watch_fleet(
    sockets: dict[str, str],
    publish: Callable[[bytes], None],
    *,
    reports: ReportReader | None = None,
    every: float = 1.0,
    times: int | None = None,
    stop: threading.Event | None = None,
    title: str = "",
) -> None:
    """Publish the messages of a fleet, polled every so many seconds, until `times` polls are over or `stop` is set.

    sockets  of the nodes of this machine, by name: each is asked once per poll, whatever the number of viewers
    reports  those of other nodes
    """
    stop, feed = stop or threading.Event(), FleetFeed(title=title)
    with contextlib.closing(NodePoll(sockets, patience=min(every / 2, 1.0))) as nodes:
        due, turn = time.monotonic(), 0
        try:
            while not stop.is_set():
                answers = [*nodes(), *(reports() if reports else ())]
                for sentence in reports.sentences() if reports else ():
                    feed.say(sentence)
                for message in feed.messages(answers):
                    publish(message)
                turn += 1
                if turn == times:
                    break
                due = max(due + every, time.monotonic())
                stop.wait(due - time.monotonic())
        finally:
            publish(end())


class NodePoll:
    """Nodes by name and socket, asked all at once, so that one that hangs does not stall the others. Each is asked at
    most once per poll, and not again before it has answered or failed to.

    patience  seconds that a poll waits for answers; later ones are part of the next poll
    """

    def __init__(
        self, sockets: dict[str, str], *, patience: float = 0.5, ask: Callable[..., dict[str, Any]] = ask,
        clock: Callable[[], float] = time.monotonic,
    ):  # fmt: skip
        self._sockets, self._patience, self._ask, self._clock = sockets, patience, ask, clock
        self._workers = ThreadPoolExecutor(min(len(sockets), MOST_AT_ONCE) or 1, thread_name_prefix="ask")
        self._pending: dict[str, Future[tuple[Statement | None, float]]] = {}
        self._last: dict[str, tuple[Statement | None, float]] = {}

    def __call__(self) -> list[Answer]:
        """The newest answers, of those that are still asked the last ones."""
        for name in self._sockets.keys() - self._pending.keys():
            self._pending[name] = self._workers.submit(self._statement, name)
        wait(self._pending.values(), timeout=self._patience)
        for name in [name for name, future in self._pending.items() if future.done()]:
            self._last[name] = self._pending.pop(name).result()
        now = self._clock()
        found = [(name, *self._last.get(name, (None, now))) for name in self._sockets]
        return [Answer(name, statement, now - at) for name, statement, at in found]

    def _statement(self, name: str) -> tuple[Statement | None, float]:
        try:
            status = self._ask(self._sockets[name], timeout=TIMEOUT)
        except (NodeError, OSError):
            return None, self._clock()
        return Statement.parse(status), self._clock()

    def close(self) -> None:
        self._workers.shutdown(wait=False, cancel_futures=True)


class _Report(NamedTuple):
    statement: Statement
    at: float
    silent_after: float


class ReportReader:
    """Reads reports of nodes that cannot be asked, JSON lines, and keeps the last one of each agent.

    source  a file, which is read to its end and then followed, also if it is rotated or truncated; or a descriptor,
            which is read to its end
    """

    def __init__(self, source: str | int, *, clock: Callable[[], float] = time.monotonic):
        self.bad, self.surplus = 0, 0  # lines that are not reports, and those of agents for which there is no room
        self._source, self._clock = source, clock
        self._descriptor: int | None = source if isinstance(source, int) else _open(source)
        self._read_so_far = 0
        self._rest, self._skipping = b"", False
        self._known: dict[str, _Report] = {}
        self._sentences: list[str] = []
        self._told = 0

    def close(self) -> None:
        if isinstance(self._source, str) and self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def __call__(self) -> list[Answer]:
        """The last report of each agent, None if it was long ago; after reading what has arrived."""
        try:
            self._read()
        except OSError as error:
            self._sentences.append(f"The reports cannot be read any more: {error.strerror}.")
            self.close()
        now = self._clock()
        return [
            Answer(name, report.statement if now - report.at <= report.silent_after else None, now - report.at)
            for name, report in self._known.items()
        ]

    def sentences(self) -> list[str]:
        """What there is to say about the lines since the last call."""
        found, self._sentences = self._sentences, []
        if self.bad >= max(2 * self._told, 1):
            self._told = self.bad
            lines = "1 line of the reports is" if self.bad == 1 else f"{self.bad} lines of the reports are"
            found.append(f"{lines} not used: each must be a JSON object with a name, of at most {LONGEST_LINE} bytes.")
        return found

    def _read(self) -> None:
        """Take what has arrived."""
        room = MOST_READ
        while room > 0 and self._descriptor is not None and select.select([self._descriptor], [], [], 0)[0]:
            try:
                chunk = os.read(self._descriptor, LONGEST_LINE)
            except BlockingIOError:
                return
            room -= len(chunk)
            self._read_so_far += len(chunk)
            if chunk:
                self._take(chunk)
            elif isinstance(self._source, int):
                self._take(b"\n")  # a last line without an end
                self._sentences.append("The reports have ended.")
                self.close()
            elif self._reopened(self._source):
                self._take(b"\n")  # the last line of the old file ends
            else:
                return

    def _reopened(self, path: str) -> bool:
        """Open the file again if it was rotated or truncated; a pipe stays open for further writers."""
        assert self._descriptor is not None
        here = os.fstat(self._descriptor)
        try:
            new = _open(path)
        except NodeError:  # rotated, and not there yet
            return False
        there = os.fstat(new)
        same = os.path.samestat(there, here) and there.st_size >= self._read_so_far
        if same or not stat.S_ISREG(here.st_mode):
            os.close(new)
            return False
        os.close(self._descriptor)
        self._descriptor, self._read_so_far = new, 0
        return True

    def _take(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False  # this is the end of a line that was too long
            elif line.strip():
                self._take_line(line)
        if len(self._rest) > LONGEST_LINE:
            self.bad += not self._skipping
            self._rest, self._skipping = b"", True

    def _take_line(self, line: bytes) -> None:
        try:
            report = json.loads(line) if len(line) <= LONGEST_LINE else None
        except (ValueError, RecursionError):
            report = None
        if not isinstance(report, dict) or (name := key_of(report.get("name"))) is None:
            self.bad += 1
            return
        statement = Statement.parse(report, most_neighbors=MOST_NEIGHBORS)
        if statement.gateway is not None:  # names of local agents are unique within their gateway
            name = key_of(f"{statement.gateway}/{name}") or name
        now, before = self._clock(), self._known.get(name)
        if before is None and len(self._known) >= MOST_AGENTS:
            if not self.surplus:
                self._sentences.append(f"More than {MOST_AGENTS} agents report: the others are not shown.")
            self.surplus += 1
            return
        silent_after = _FIRST_SILENT if before is None else min(max(3 * (now - before.at), _SILENT[0]), _SILENT[1])
        self._known[name] = _Report(statement, now, silent_after)


def _open(path: str) -> int:
    """A descriptor to read; a pipe need not have a writer yet."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise NodeError(f"cannot read {path}: {error.strerror}. Name a file of reports, or - for stdin.") from None
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NodeError(f"cannot read {path}: it is a folder. Name a file of reports, or - for stdin.")
    return descriptor
