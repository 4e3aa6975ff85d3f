"""Sinks: where estimates go, as JSON lines on stdout or in a file, or as messages on an MQTT topic.

A sink never blocks the tick. What cannot be delivered now is dropped and counted; the next line is newer anyway.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
from collections.abc import Iterator
from typing import Protocol

from colme.node.config.node_toml import NodeConfig
from colme.node.io.sources import Say
from colme.node.io.status import Status

READY, PIPE = 4096, 65536
"""Bytes that fit into a pipe which is ready, and into an empty one."""


class Sink(Protocol):
    """Takes reports: one, or one per local agent of a gateway."""

    dropped: int
    """Reports that were not delivered."""

    def __call__(self, reports: list[Status]) -> None: ...

    def close(self) -> None: ...


class LinePrinter:
    """Lines to a descriptor. They are dropped if they are not read; of many, the next time others are."""

    def __init__(self, descriptor: int):
        self.dropped = 0
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._first = 0  # the first line to be written next time
        self._room = PIPE

    def __call__(self, reports: list[Status]) -> None:
        if len(reports) > 1:
            self._widen()
        n = len(reports)
        order = [*range(self._first % max(n, 1), n), *range(self._first % max(n, 1))]
        blocks = _blocks([to_line(reports[i]) for i in order], READY)
        done = 0
        try:
            for lines, block in blocks:
                if not self._poll.poll(0):  # a pipe is ready if 4096 bytes fit
                    break
                os.write(self._descriptor, block)
                done += lines
        except OSError:  # the reader is gone, or the disk is full
            pass
        self._first = order[done] if done < n else 0
        self.dropped += n - done

    def _widen(self) -> None:
        """Give a pipe room for the lines of many agents, where the system allows it."""
        if self._room == PIPE:
            self._room = 2 * PIPE
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, 1 << 20)

    def close(self) -> None:
        """The descriptor is the caller's."""


class LineFile:
    """Lines appended to a file, which is opened for each, so that it may be rotated or truncated at any time."""

    def __init__(self, path: str, say: Say):
        self.dropped = 0
        self._path, self._say = path, say
        self._torn = False  # the disk was full in the middle of the last line

    def __call__(self, reports: list[Status]) -> None:
        if not reports:
            return
        line = b"\n" * self._torn + b"".join(map(to_line, reports))
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o644)
            try:
                written = os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._drop(error.strerror, len(reports))
        else:
            self._torn = written < len(line)
            if self._torn:
                self._drop("the disk is full", line[written:].count(b"\n"))

    def close(self) -> None:
        """Nothing is open."""

    def _drop(self, reason: str | None, lines: int) -> None:
        first, self.dropped = not self.dropped, self.dropped + lines
        if first:
            self._say(f"cannot write {self._path}: {reason}. Estimates are dropped until it is writable.")


def to_line(report: Status) -> bytes:
    return json.dumps(report).encode() + b"\n"


def _blocks(lines: list[bytes], size: int) -> Iterator[tuple[int, bytes]]:
    """Lines in blocks of at most this size, or single longer ones: how many, and the bytes."""
    held: list[bytes] = []
    total = 0
    for line in lines:
        if held and total + len(line) > size:
            yield len(held), b"".join(held)
            held, total = [], 0
        held.append(line)
        total += len(line)
    if held:
        yield len(held), b"".join(held)


def open_sink(config: NodeConfig, say: Say, descriptor: int = 1) -> Sink:
    """The sink of a configuration; lines for stdout go to the descriptor."""
    if config.estimates.to == "stdout":
        return LinePrinter(descriptor)
    if config.estimates.to == "file":
        return LineFile(config.estimates.address, say)
    from colme.node.io.mqtt import MqttSink

    return MqttSink(config, say)
