"""Watch a fleet: ask the nodes of this machine, read the reports of others, and publish what they say."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import stat
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from colme.errors import NodeError, shorten
from colme.live.fleet_feed import MOST_AGENTS, Answer, FleetFeed, Statement, key_of
from colme.live.messages import end
from colme.node.io.status import ask

TIMEOUT = 2.0
"""Seconds after which a node that is asked counts as silent."""
MOST_AT_ONCE = 64
LONGEST_LINE = 65_536
MOST_READ = 1 << 24
"""Bytes of reports that are read per poll."""
_FIRST_SILENT = 180.0  # seconds after which an agent with a single report is silent
_SILENT = (10.0, 600.0)  # of the others: three times the time between two reports, within these bounds


def watch_fleet(
    sockets: dict[str, str], publish: Callable[[bytes], None], *, reports: ReportReader | None = None,
    every: float = 1.0, times: int | None = None, title: str = "",
) -> None:  # fmt: skip
    """Publish the messages of a fleet, polled every so many seconds, for ever or so many times.

    sockets  of the nodes of this machine, by name: each is asked once per poll, whatever the number of viewers
    reports  those of other nodes
    """
    feed = FleetFeed(title=title)
    with contextlib.closing(NodePoll(sockets, patience=min(every / 2, 1.0))) as nodes:
        try:
            for turn in itertools.count(1):
                began = time.monotonic()
                answers = nodes()
                if reports is not None:
                    answers += reports()
                    feed.notes += reports.notes
                    reports.notes.clear()
                for message in feed.messages(answers):
                    publish(message)
                if turn == times:
                    break
                time.sleep(max(began + every - time.monotonic(), 0.0))
        finally:
            publish(end())


class NodePoll:
    """Nodes by name and socket, asked all at once, so that one that hangs does not stall the others. Each is asked at
    most once per poll, and not again before it has answered or failed to.

    patience  seconds that a poll waits for answers; later ones are part of the next poll
    """

    def __init__(self, sockets: dict[str, str], *, patience: float):
        self._sockets, self._patience = sockets, patience
        self._workers = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="ask")
        self._asked: dict[str, Future[None]] = {}
        self._last: dict[str, tuple[Statement | None, float]] = dict.fromkeys(sockets, (None, time.monotonic()))

    def __call__(self) -> list[Answer]:
        """The newest answers, of those that are still asked the last ones."""
        for name in self._sockets:
            if name not in self._asked or self._asked[name].done():
                self._asked[name] = self._workers.submit(self._hear, name)
        for answered in wait(self._asked.values(), timeout=self._patience).done:
            answered.result()  # raises what is not the node's fault
        now = time.monotonic()
        return [Answer(name, statement, now - at) for name, (statement, at) in self._last.items()]

    def _hear(self, name: str) -> None:
        try:
            statement = Statement.parse(ask(self._sockets[name], timeout=TIMEOUT))
        except (NodeError, OSError):
            statement = None
        self._last[name] = statement, time.monotonic()

    def close(self) -> None:
        self._workers.shutdown(wait=False, cancel_futures=True)


class _Report(NamedTuple):
    statement: Statement
    at: float
    silent_after: float


class ReportReader:
    """Reads reports of nodes that cannot be asked, JSON lines, and keeps the last one of each agent.

    source  a file or a named pipe, which is read to its end and then followed; or a descriptor, which is read to its
            end
    """

    def __init__(self, source: str | int):
        self.bad = 0  # lines that are not reports
        self.notes: list[str] = []  # what a person should know
        self._source = source
        self._descriptor: int | None = source if isinstance(source, int) else _open(source)
        self._rest = b""
        self._known: dict[str, _Report] = {}

    def close(self) -> None:
        if isinstance(self._source, str) and self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def __call__(self) -> list[Answer]:
        """The last report of each agent, None if it was long ago; after reading what has arrived."""
        try:
            self._read()
        except OSError as error:
            self.notes.append(f"The reports cannot be read any more: {error.strerror}.")
            self.close()
        now = time.monotonic()
        return [
            Answer(name, report.statement if now - report.at <= report.silent_after else None, now - report.at)
            for name, report in self._known.items()
        ]

    def _read(self) -> None:
        """Take what has arrived."""
        room = MOST_READ
        while room > 0 and self._descriptor is not None and select.select([self._descriptor], [], [], 0)[0]:
            try:
                chunk = os.read(self._descriptor, LONGEST_LINE)
            except BlockingIOError:
                return
            room -= len(chunk)
            if chunk:
                self._take(chunk)
            elif isinstance(self._source, int):
                self._take(b"\n")  # a last line without an end
                self.notes.append("The reports have ended.")
                self.close()
            else:  # more may come
                return

    def _take(self, chunk: bytes) -> None:
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[: LONGEST_LINE + 1]  # of a line that is too long this is enough to know it
        for line in lines:
            if line.strip():
                self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        try:
            report = json.loads(line) if len(line) <= LONGEST_LINE else None
        except (ValueError, RecursionError):
            report = None
        if not isinstance(report, dict) or (name := key_of(report.get("name"))) is None:
            self.bad += 1
            if self.bad == 1:
                self.notes.append(
                    f"Lines of the reports such as {shorten(line.decode(errors='replace'))} are left out: each must "
                    f"be a JSON object with a name, of at most {LONGEST_LINE} bytes."
                )
            return
        statement = Statement.parse(report)
        if statement.gateway is not None:  # names of local agents are unique within their gateway
            name = key_of(f"{statement.gateway}/{name}") or name
        now, before = time.monotonic(), self._known.get(name)
        if before is None and len(self._known) > MOST_AGENTS:  # one more than are shown, which the feed will say
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
