"""Where estimates go: JSON lines on stdout, added to a file, or as messages of a zenoh key or an MQTT topic.

An outlet never makes the tick wait. What cannot go out now is dropped and counted: the next line says more.
"""

from __future__ import annotations

import json
import os
import select
from typing import Protocol

from colme.node.config.node_toml import NodeConfig
from colme.node.io.sources import Say
from colme.node.io.status import Status


class Outlet(Protocol):
    """Takes reports."""

    dropped: int
    """Reports that did not go out."""

    def __call__(self, report: Status) -> None: ...

    def close(self) -> None: ...


class LinePrinter:
    """Lines to a descriptor. If nobody reads them they are dropped."""

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
        except OSError:  # whoever read them is gone, or the disk is full
            pass
        self.dropped += 1

    def close(self) -> None:
        """It is not ours."""


class LineFile:
    """Lines at the end of a file, which is opened for each: so it may be moved away or cut short at any time."""

    def __init__(self, path: str, say: Say):
        self.dropped = 0
        self._path, self._say = path, say
        self._torn = False  # the disk was full in the middle of a line

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
                self._drop("there is no room")

    def close(self) -> None:
        """Nothing is open."""

    def _drop(self, reason: str | None) -> None:
        self.dropped += 1
        if self.dropped == 1:
            self._say(f"cannot write {self._path}: {reason}. Estimates are dropped until it can be.")


def to_line(report: Status) -> bytes:
    return json.dumps(report).encode() + b"\n"


def open_outlet(config: NodeConfig, say: Say, descriptor: int = 1) -> Outlet:
    """What the file of the node asks for; lines on stdout go to the descriptor."""
    if config.estimates.to == "stdout":
        return LinePrinter(descriptor)
    if config.estimates.to == "file":
        return LineFile(config.estimates.address, say)
    from colme.node.io.brokers import MqttOutlet, ZenohOutlet

    return (ZenohOutlet if config.estimates.to == "zenoh" else MqttOutlet)(config)
