"""Sinks: where estimates go, as JSON lines on stdout or in a file, or as messages on a zenoh key or an MQTT topic.

A sink never blocks the tick. What cannot be delivered now is dropped and counted; the next line is newer anyway.
"""

from __future__ import annotations

import json
import os
import select
from typing import Protocol

from colme.node.config.node_toml import NodeConfig
from colme.node.io.sources import Say
from colme.node.io.status import Status


class Sink(Protocol):
    """Takes reports."""

    dropped: int
    """Reports that were not delivered."""

    def __call__(self, report: Status) -> None: ...

    def close(self) -> None: ...


class LinePrinter:
    """Lines to a descriptor. They are dropped if they are not read."""

    def __init__(self, descriptor: int):
        self.dropped = 0
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def __call__(self, report: Status) -> None:
        try:
            if self._poll.poll(0):  # a pipe is ready if 4096 bytes fit, which is more than a line
                os.write(self._descriptor, to_line(report))
                return
        except OSError:  # the reader is gone, or the disk is full
            pass
        self.dropped += 1

    def close(self) -> None:
        """The descriptor is the caller's."""


class LineFile:
    """Lines appended to a file, which is opened for each, so that it may be rotated or truncated at any time."""

    def __init__(self, path: str, say: Say):
        self.dropped = 0
        self._path, self._say = path, say
        self._torn = False  # the disk was full in the middle of the last line

    def __call__(self, report: Status) -> None:
        line = b"\n" * self._torn + to_line(report)
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o644)
            try:
                written = os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._drop(error.strerror)
        else:
            self._torn = written < len(line)
            if self._torn:
                self._drop("the disk is full")

    def close(self) -> None:
        """Nothing is open."""

    def _drop(self, reason: str | None) -> None:
        self.dropped += 1
        if self.dropped == 1:
            self._say(f"cannot write {self._path}: {reason}. Estimates are dropped until it is writable.")


def to_line(report: Status) -> bytes:
    return json.dumps(report).encode() + b"\n"


def open_sink(config: NodeConfig, say: Say, descriptor: int = 1) -> Sink:
    """The sink of a configuration; lines for stdout go to the descriptor."""
    if config.estimates.to == "stdout":
        return LinePrinter(descriptor)
    if config.estimates.to == "file":
        return LineFile(config.estimates.address, say)
    from colme.node.io.brokers import MqttSink, ZenohSink

    return (ZenohSink if config.estimates.to == "zenoh" else MqttSink)(config)
