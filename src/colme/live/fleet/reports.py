"""Reports of nodes that cannot be asked, because they run on other machines: JSON lines from a file or from stdin."""

from __future__ import annotations

import json
import os
import select
import stat
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from colme.errors import NodeError
from colme.live.fleet.feed import MOST_AGENTS
from colme.live.fleet.statements import Answer, Statement, key_of

LONGEST_LINE = 65_536
MOST_NEIGHBORS = 50
"""Neighbors that are looked at, if a line is a whole status."""
_PAUSE = 0.25  # seconds between two looks at the end of a file
_FIRST_SILENT = 180.0  # seconds after which an agent with a single report is silent
_SILENT = (10.0, 600.0)  # of the others: three times the time between two reports, within these bounds


class _Report(NamedTuple):
    statement: Statement
    at: float
    silent_after: float


class ReportReader:
    """Reads reports in a thread of its own, and keeps the last one of each agent.

    source  a file, which is read to its end and then followed, also if it is rotated or truncated; or a descriptor,
            which is read to its end
    """

    def __init__(self, source: str | int, *, clock: Callable[[], float] = time.monotonic):
        self.bad, self.surplus = 0, 0  # lines that are not reports, and those of agents for which there is no room
        self._source, self._clock = source, clock
        self._descriptor = source if isinstance(source, int) else _open(source)
        self._regular = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self._read_so_far = 0
        self._rest, self._skipping = b"", False
        self._known: dict[str, _Report] = {}
        self._lock = threading.Lock()
        self._sentences: list[str] = []
        self._told = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="reports", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        if not isinstance(self._source, int):
            os.close(self._descriptor)

    def __call__(self) -> list[Answer]:
        """The last report of each agent, None if it was long ago."""
        now = self._clock()
        with self._lock:
            known = list(self._known.items())
        return [
            Answer(name, report.statement if now - report.at <= report.silent_after else None, now - report.at)
            for name, report in known
        ]

    def sentences(self) -> list[str]:
        """What there is to say about the lines since the last call."""
        with self._lock:
            found, self._sentences = self._sentences, []
        if self.bad >= max(2 * self._told, 1):
            self._told = self.bad
            lines = "1 line of the reports is" if self.bad == 1 else f"{self.bad} lines of the reports are"
            found.append(f"{lines} not used: each must be a JSON object with a name, of at most {LONGEST_LINE} bytes.")
        return found

    def _follow(self) -> None:
        try:
            while not self._stop.is_set():
                chunk = self._next()
                if chunk is None:
                    break
                self._take(chunk)
                if not chunk:
                    self._stop.wait(_PAUSE)
        except OSError as error:
            self._say(f"The reports cannot be read any more: {error.strerror}.")
            return
        if not self._stop.is_set():
            self._take(b"\n")  # a last line without an end
            self._say("The reports have ended.")

    def _next(self) -> bytes | None:
        """What comes next; nothing if there is nothing yet, None at the end."""
        if not select.select([self._descriptor], [], [], _PAUSE)[0]:
            return b""
        try:
            chunk = os.read(self._descriptor, LONGEST_LINE)
        except BlockingIOError:
            return b""
        self._read_so_far += len(chunk)
        if chunk or not isinstance(self._source, str):
            return chunk or None
        return b"\n" if self._regular and self._reopened(self._source) else b""  # the last line of the old file ends

    def _reopened(self, path: str) -> bool:
        """Open the file again if it was rotated or truncated."""
        try:
            new = _open(path)
        except NodeError:  # rotated, and not there yet
            return False
        there, here = os.fstat(new), os.fstat(self._descriptor)
        if os.path.samestat(there, here) and there.st_size >= self._read_so_far:
            os.close(new)
            return False
        os.close(self._descriptor)
        self._descriptor, self._read_so_far, self._regular = new, 0, stat.S_ISREG(there.st_mode)
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
        silent_after = _FIRST_SILENT if before is None else min(max(3 * (now - before.at), _SILENT[0]), _SILENT[1])
        with self._lock:
            if before is None and len(self._known) >= MOST_AGENTS:
                if not self.surplus:
                    self._sentences.append(f"More than {MOST_AGENTS} agents report: the others are not shown.")
                self.surplus += 1
            else:
                self._known[name] = _Report(statement, now, silent_after)

    def _say(self, sentence: str) -> None:
        with self._lock:
            self._sentences.append(sentence)


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
