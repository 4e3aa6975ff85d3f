"""Sample sources: stdin, a growing file, or an MQTT broker; one number per line or message, or for a gateway
lines `name value`.

A source never blocks: at each tick it returns what has arrived since the last. A line that is not a number is counted,
the first one is reported, and none is fatal. A sender that is faster than the ticks waits (stdin), or its
lines wait on the disk.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import stat
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import msgspec

from colme.errors import shorten
from colme.node.config.node_toml import NodeConfig
from colme.node.config.tables import MOST_AGENTS
from colme.node.names import is_local_name

CHUNK = 16384
"""Bytes that are read per tick from each sender: some thousand samples."""
LONGEST = 256
"""Bytes of the longest line that can be a number."""
Say = Callable[[str], None]


class SampleSource(Protocol):
    """Samples, for a tick loop."""

    bad: int
    """Lines that are not numbers."""
    ended: bool
    """Whether there will be no more samples."""

    def take(self) -> list[Any]:
        """The samples that arrived since the last call, as the `LineParser` of the source read them."""

    def position(self) -> bytes | None:
        """How far it has been read, to be saved together with the state of the agent; None if it cannot resume."""

    def resume(self, position: bytes) -> None:
        """Continue from a saved position."""

    def close(self) -> None: ...


class LineParser:
    """Reads numbers from bytes, one per line."""

    rule: ClassVar[str] = "is not a number: it is skipped, as others will be. Send one number per line."
    chunk: ClassVar[int] = CHUNK

    def __init__(self, complain: Callable[[bytes], None]):
        self.held = 0  # bytes since the last newline
        self._complain = complain
        self._begun = b""

    def feed(self, chunk: bytes) -> list[Any]:
        """The numbers in the lines that are complete with this chunk."""
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


class NamedLineParser(LineParser):
    """Samples of the local agents of a gateway: a name and a number per line. Names may have spaces."""

    rule = "is not a name and a number: it is skipped, as others will be. Send lines like: meter-17 21.4"
    chunk = 1 << 20

    def __init__(self, complain: Callable[[bytes], None]):
        super().__init__(complain)
        self._names: dict[bytes, str] = {}  # those that were seen

    def read(self, lines: list[bytes]) -> list[Any]:
        found = []
        for line in lines:
            try:
                word, number = line.rsplit(None, 1)
                x = float(number)
            except ValueError:
                if line.strip():
                    self._complain(line.strip())
                continue
            name = self._names.get(word)
            if name is None:
                name = self._name(word)
            if name and x - x == 0.0 and b"_" not in number and len(line) <= LONGEST:  # as in `number_in`
                found.append((name, x))
            else:
                self._complain(line.strip())
        return found

    def _name(self, word: bytes) -> str:
        """The name in this word; empty if it is not one."""
        try:
            name = word.decode().strip()
        except UnicodeDecodeError:  # what stands for a byte that is not text would be the same for all
            return ""
        if not is_local_name(name):
            return ""
        if len(self._names) >= MOST_AGENTS:
            self._names.clear()
        self._names[word] = name
        return name


def number_in(text: bytes) -> float | None:
    """The finite number in this text; None if it is not one."""
    if b"_" not in text:  # Python would read 1_000 as a thousand
        with contextlib.suppress(ValueError):
            if math.isfinite(x := float(text)):
                return x
    return None


class _Base:
    """What all sources share: the parser of lines, and the count of bad ones, of which the first is reported."""

    def __init__(self, say: Say, form: type[LineParser] = LineParser):
        self.bad, self.ended = 0, False
        self._say, self._form = say, form

    def _complain(self, text: bytes, rule: str = "") -> None:
        self.bad += 1
        if self.bad == 1:
            shown = shorten(text[:LONGEST].decode(errors="replace"))
            self._say(f"{shown} {rule or self._form.rule}")

    def position(self) -> bytes | None:
        return None

    def resume(self, position: bytes) -> None:
        """There is no position to resume from."""

    def close(self) -> None:
        """Nothing to close."""


class Stdin(_Base):
    """Lines of stdin: a pipe, a terminal or a redirected file."""

    def __init__(self, say: Say, descriptor: int = 0, form: type[LineParser] = LineParser):
        super().__init__(say, form)
        self._descriptor, self._lines = descriptor, form(self._complain)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def take(self) -> list[Any]:
        found: list[Any] = []
        left = self._form.chunk
        while left > 0 and not self.ended and self._poll.poll(0):  # a pipe may return less than asked for
            try:
                chunk = os.read(self._descriptor, left)
            except OSError:  # closed, or the terminal is gone
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
    """A file that grows, followed by name. If it is rotated, the old file is read to its end and then the new one; if
    it is truncated, from its beginning. It need not exist yet. What it holds at the first start counts."""

    def __init__(self, path: str, say: Say, form: type[LineParser] = LineParser):
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
        moved = self._moved()  # before reading, so that what is written to the old file until then is read below
        chunk = os.read(self._descriptor, self._form.chunk)
        if chunk:
            return self._lines.feed(chunk)
        if not moved:
            return []
        self.close()
        self._lines = self._form(self._complain)  # an incomplete last line is discarded: it may be torn
        return []

    def position(self) -> bytes | None:
        if self._descriptor is None:
            return None if self._saved is None else msgspec.json.encode(self._saved)
        found = os.fstat(self._descriptor)
        offset = os.lseek(self._descriptor, 0, os.SEEK_CUR) - self._lines.held
        return msgspec.json.encode(_Place(found.st_dev, found.st_ino, offset))

    def resume(self, position: bytes) -> None:
        with contextlib.suppress(msgspec.DecodeError):  # torn: start from the beginning
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
            return self._wait("not a regular file")
        saved, self._saved = self._saved, None
        if saved and (found.st_dev, found.st_ino) == (saved.device, saved.inode) and saved.offset <= found.st_size:
            os.lseek(self._descriptor, saved.offset, os.SEEK_SET)
        return True

    def _wait(self, reason: str | None) -> bool:
        if not self._told:
            self._say(f"cannot read {self.path}: {reason}. Samples are read as soon as it is readable.")
        self._told = True
        return False

    def _moved(self) -> bool:
        """Whether the name now refers to another file, or the file was truncated."""
        assert self._descriptor is not None
        here = os.fstat(self._descriptor)
        try:
            there = os.stat(self.path)
        except OSError:
            return False  # between two files of a rotation: wait for the new one
        same = (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
        return not same or here.st_size < os.lseek(self._descriptor, 0, os.SEEK_CUR)


def open_source(config: NodeConfig, say: Say) -> SampleSource:
    """The source of a configuration."""
    form = LineParser if config.gateway is None else NamedLineParser
    kind, address = config.samples.source, config.samples.address
    if kind == "stdin":
        return Stdin(say, form=form)
    if kind == "file":
        return GrowingFile(address, say, form)
    from colme.node.io.mqtt import subscribe

    return subscribe(config, Messages(say, form), say)


Message = tuple[str | None, bytes]
"""The part of its topic that a wildcard stands for, if the address has one, and the lines."""


class Messages(_Base):
    """Samples that arrive as messages, each with lines; `pull` returns the waiting ones. For a gateway, a wildcard in
    the address stands for the name of the local agent, and lines are numbers."""

    def __init__(self, say: Say, form: type[LineParser] = LineParser):
        super().__init__(say, form)
        self.pull: Callable[[], list[Message]] = list
        self.leave: Callable[[], None] = lambda: None

    def take(self) -> list[Any]:
        return [x for name, lines in self.pull() for x in self._read(name, lines + b"\n")]

    def _read(self, name: str | None, lines: bytes) -> list[Any]:
        if name is None or not issubclass(self._form, NamedLineParser):
            return self._form(self._complain).feed(lines)
        if not is_local_name(name):
            self._complain(name.encode(), "in a topic is not a name: its messages are skipped. Try another topic.")
            return []
        numbers = LineParser(lambda text: self._complain(text, LineParser.rule)).feed(lines)
        return [(name, x) for x in numbers]

    def close(self) -> None:
        self.leave()
