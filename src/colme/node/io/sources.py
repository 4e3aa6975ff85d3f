"""Where samples come from: one number per line of stdin, of a file that grows or of a socket; or messages of a broker.

A source never blocks: at each tick it is asked for what has come since the last. A line that is no number is counted,
the first one is told, and none is fatal. Whoever sends faster than is read waits (stdin, sockets) or stays on the disk.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import stat
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import msgspec

from colme.errors import shorten
from colme.node.config.node_toml import NodeConfig
from colme.node.net.sockets import accept, listen_tcp, listen_unix, remove

CHUNK = 16384
"""Bytes that are read at a tick, of each sender: some thousand samples."""
LONGEST = 256
"""Bytes of a line; what is longer is no number."""
MOST_SENDERS = 16

Say = Callable[[str], None]


class Source(Protocol):
    """Samples, for a tick loop."""

    bad: int
    """Lines that were no numbers."""
    ended: bool
    """There will be no more."""

    def take(self) -> list[Any]:
        """Those that have come since the last call, as the `Lines` of the source read them."""

    def position(self) -> bytes | None:
        """How far it has been read, to be saved together with what was learned from it; None: it cannot go back."""

    def resume(self, position: bytes) -> None:
        """Go on there."""

    def close(self) -> None: ...


class Lines:
    """Numbers from bytes, one per line."""

    rule: ClassVar[str] = "is no number: it is skipped, as others will be. Send one number per line."
    chunk: ClassVar[int] = CHUNK

    def __init__(self, complain: Callable[[bytes], None]):
        self.held = 0  # bytes since the last end of a line
        self._complain = complain
        self._begun = b""

    def feed(self, chunk: bytes) -> list[Any]:
        """What is in the lines that end here."""
        *whole, rest = chunk.split(b"\n")
        if not whole:
            self._begun = (self._begun + rest)[: LONGEST + 1]
            self.held += len(rest)
            return []
        whole[0] = self._begun + whole[0]
        self._begun, self.held = rest[: LONGEST + 1], len(rest)
        return self.read(whole)

    def read(self, lines: list[bytes]) -> list[Any]:
        """The numbers in these lines."""
        return [x for line in lines if (x := self._number(line)) is not None]

    def _number(self, line: bytes) -> float | None:
        text = line.strip()
        if not text:
            return None
        if len(line) <= LONGEST and (x := number_in(text)) is not None:
            return x
        self._complain(text)
        return None


def number_in(text: bytes) -> float | None:
    """The finite number that this is."""
    if b"_" not in text:  # Python reads 1_000 as a thousand
        with contextlib.suppress(ValueError):
            if math.isfinite(x := float(text)):
                return x
    return None


class _Base:
    """What all sources share: what lines mean, and a count of bad ones, of which the first is told."""

    def __init__(self, say: Say, form: type[Lines] = Lines):
        self.bad, self.ended = 0, False
        self._say, self._form = say, form

    def _complain(self, text: bytes) -> None:
        self.bad += 1
        if self.bad == 1:
            shown = shorten(text[:LONGEST].decode(errors="replace"))
            self._say(f"{shown} {self._form.rule}")

    def position(self) -> bytes | None:
        return None

    def resume(self, position: bytes) -> None:
        """Nothing to go back to."""

    def close(self) -> None:
        """Nothing to close."""


class Stdin(_Base):
    """Lines of a pipe, a terminal or a file that was redirected."""

    def __init__(self, say: Say, descriptor: int = 0, form: type[Lines] = Lines):
        super().__init__(say, form)
        self._descriptor, self._lines = descriptor, form(self._complain)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def take(self) -> list[Any]:
        found: list[Any] = []
        left = self._form.chunk
        while left > 0 and not self.ended and self._poll.poll(0):  # a pipe gives what it holds, which may be less
            try:
                chunk = os.read(self._descriptor, left)
            except OSError:  # closed, or a terminal that went away
                chunk = b""
            self.ended = not chunk
            left -= len(chunk)
            found += self._lines.feed(chunk or b"\n")
        return found


class _Place(msgspec.Struct):
    """How far a file has been read."""

    device: int
    inode: int
    offset: int


class GrowingFile(_Base):
    """A file that grows, followed by its name: if it is rotated, the old one is read to its end and then the new one;
    if it is cut short, from its beginning. It may come later. What it holds at the first start counts, too."""

    def __init__(self, path: str, say: Say, form: type[Lines] = Lines):
        super().__init__(say, form)
        self.path = path
        self._lines = form(self._complain)
        self._descriptor: int | None = None
        self._saved: _Place | None = None
        self._told = False

    def take(self) -> list[Any]:
        if self._descriptor is None and not self._open():
            return []
        assert self._descriptor is not None
        moved = self._moved()  # before reading: what is written to the old file until then is read below
        chunk = os.read(self._descriptor, self._form.chunk)
        if chunk:
            return self._lines.feed(chunk)
        if not moved:
            return []
        self.close()
        self._lines = self._form(self._complain)  # a line that was not ended is none: it may be torn
        return []

    def position(self) -> bytes | None:
        if self._descriptor is None:
            return None if self._saved is None else msgspec.json.encode(self._saved)
        found = os.fstat(self._descriptor)
        offset = os.lseek(self._descriptor, 0, os.SEEK_CUR) - self._lines.held
        return msgspec.json.encode(_Place(found.st_dev, found.st_ino, offset))

    def resume(self, position: bytes) -> None:
        with contextlib.suppress(msgspec.DecodeError):  # torn: from the beginning
            self._saved = msgspec.json.decode(position, type=_Place)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> bool:
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            return self._wait(error.strerror)
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode):  # a folder cannot be read, and a pipe has no position
            self.close()
            return self._wait("it is no file")
        saved, self._saved = self._saved, None
        if saved and (found.st_dev, found.st_ino) == (saved.device, saved.inode) and saved.offset <= found.st_size:
            os.lseek(self._descriptor, saved.offset, os.SEEK_SET)
        return True

    def _wait(self, reason: str | None) -> bool:
        if not self._told:
            self._say(f"cannot read {self.path}: {reason}. Samples are read as soon as it can be.")
        self._told = True
        return False

    def _moved(self) -> bool:
        """Whether the name stands for another file by now, or for this one cut short."""
        assert self._descriptor is not None
        here = os.fstat(self._descriptor)
        try:
            there = os.stat(self.path)
        except OSError:
            return False  # between two files: wait for the new one
        same = (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
        return not same or here.st_size < os.lseek(self._descriptor, 0, os.SEEK_CUR)


class Listener(_Base):
    """Lines from whoever connects to a socket of this machine."""

    def __init__(self, listener: socket.socket, say: Say, path: str | None = None, form: type[Lines] = Lines):
        super().__init__(say, form)
        self._listener, self._path = listener, path
        self._senders: dict[socket.socket, Lines] = {}

    def take(self) -> list[Any]:
        while len(self._senders) < MOST_SENDERS and (sender := accept(self._listener)) is not None:
            self._senders[sender] = self._form(self._complain)
        return [x for sender, lines in list(self._senders.items()) for x in self._read(sender, lines)]

    def _read(self, sender: socket.socket, lines: Lines) -> list[Any]:
        try:
            chunk = sender.recv(self._form.chunk)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if chunk:
            return lines.feed(chunk)
        del self._senders[sender]
        sender.close()
        return lines.feed(b"\n")

    def close(self) -> None:
        for each in (self._listener, *self._senders):
            each.close()
        if self._path is not None:
            remove(self._path)


def open_source(config: NodeConfig, say: Say, form: type[Lines] = Lines) -> Source:
    """What the file of the node asks for."""
    kind, address = config.samples.source, config.samples.address
    if kind == "stdin":
        return Stdin(say, form=form)
    if kind == "file":
        return GrowingFile(address, say, form)
    if kind == "unix":
        return Listener(listen_unix(address), say, address, form)
    if kind == "tcp":
        return Listener(listen_tcp(address, "samples.address"), say, form=form)
    from colme.node.io.brokers import open_broker

    return open_broker(config, Messages(say, form))


class Messages(_Base):
    """Samples that come as messages, each with lines of numbers; `pull` gets those that wait."""

    def __init__(self, say: Say, form: type[Lines] = Lines):
        super().__init__(say, form)
        self.pull: Callable[[], list[bytes]] = list
        self.leave: Callable[[], None] = lambda: None

    def take(self) -> list[Any]:
        return [x for message in self.pull() for x in self._form(self._complain).feed(message + b"\n")]

    def close(self) -> None:
        self.leave()
