"""`TextStream`: a text file of any encoding as UTF-8; if its bytes do not fit, the error names a likely encoding."""

from __future__ import annotations

import codecs
import io
import time
import weakref
from collections.abc import Callable
from typing import Any

from colme.data.read.batches import pyarrow as pa
from colme.errors import DataError

PIECE = 1 << 20
"""Bytes read at a time."""
BOMS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class TextStream:
    """The bytes of a text file as UTF-8.

    name      of the file, in messages
    size      its number of bytes, if known
    encoding  None: UTF-8, and the bytes are passed on as they are
    reopen    opens the file once more, to find out what is wrong with it; None: it can only be read once
    """

    def __init__(
        self, source: Any, name: str, *, encoding: str | None = None, size: int | None = None,
        reopen: Callable[[], Any] | None = None,
    ):  # fmt: skip
        self.name, self.size, self.encoding = name, size, encoding
        self._source, self._reopen = source, reopen
        self._ahead: _Stoppable | None = None
        if encoding is not None:
            native = source if isinstance(source, pa.NativeFile) else pa.PythonFile(source, "r")
            source = pa.transcoding_input_stream(native, encoding, "utf-8")
        self.stream = io.BufferedReader(source, PIECE) if isinstance(source, pa.NativeFile) else source

    def rest(self, start: int) -> Any:
        """What follows the first `start` bytes, which were read, for Arrow, which reads ahead in a thread of its own.

        That thread must not be within Python when the process ends, for then Python aborts. So Arrow opens a file of
        UTF-8 itself; other streams must be stopped."""
        if self._reopen is not None and self.encoding is None:
            self._source = self._reopen()
            self._source.read(start)
            return self._source
        self._ahead = _Stoppable(self.stream)
        return pa.PythonFile(self._ahead, "r")

    def stop(self) -> None:
        """End `rest`, and wait until Arrow has let go of it, unless it waits for a pipe."""
        if self._ahead is None:
            return
        self._ahead.closed = True
        held, self._ahead = weakref.ref(self._ahead), None
        end = time.monotonic() + 1.0
        while held() is not None and time.monotonic() < end:
            time.sleep(0.002)

    def total(self, rows: int) -> int | None:
        """About how many rows there are, if so many were read so far."""
        place = self._source.tell() if self.size else 0
        return max(rows, round(rows * self.size / place)) if self.size and place else None

    def not_decoded(self) -> DataError:
        """The error if the bytes do not fit the encoding."""
        line, likely = (0, "latin-1") if self._reopen is None else _diagnosis(self._reopen())
        here = f" in line {line:,}" if line and self.encoding is None else ""
        if likely is None:
            remedy = "Leave the encoding out." if self.encoding else "Write it again."
        elif self.encoding and codecs.lookup(likely).name == codecs.lookup(self.encoding).name:
            remedy = "Try another encoding, or save it as UTF-8."
        else:
            remedy = f"Try encoding={likely!r} (--encoding {likely}), or save it as UTF-8."
        return DataError(
            f"{self.name} is not {self.encoding or 'UTF-8'} text{here}: text must be in UTF-8, or in the encoding that "
            f"is named. {remedy}"
        )


class _Stoppable:
    """A stream of Python that ends when it is stopped."""

    def __init__(self, stream: Any):
        self._stream, self.closed = stream, False

    def read(self, size: int) -> bytes:
        pieces: list[bytes] = []
        while size > 0 and not self.closed and (piece := self._stream.read(min(size, PIECE))):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """The stream is the caller's."""

    def readable(self) -> bool:
        return True


def _diagnosis(source: Any) -> tuple[int, str | None]:
    """The line that is not UTF-8 (0: unknown), and the likely encoding of a text (None: it is UTF-8)."""
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    for k, piece in enumerate(iter(lambda: source.read(PIECE), b"")):
        if k == 0 and (found := _utf16(piece)) is not None:
            return 0, found
        try:
            decoder.decode(piece)
        except UnicodeDecodeError as error:
            rest = error.object[error.start :]
            # of the bytes 80 to 9f, latin-1 has only control characters, cp1252 quotes, dashes and the euro
            return line + error.object.count(b"\n", 0, error.start), (
                "cp1252" if any(0x80 <= byte < 0xA0 for byte in rest) else "latin-1"
            )
        line += piece.count(b"\n")
    return 0, None


def _utf16(piece: bytes) -> str | None:
    """UTF-16 by its mark, or by the zeros in every other byte of Latin text."""
    if piece[:2] in BOMS:
        return BOMS[piece[:2]]
    even, odd = piece[0::2].count(0), piece[1::2].count(0)
    if max(even, odd) < len(piece) // 4 or min(even, odd) > max(even, odd) // 10:
        return None
    return "utf-16-le" if odd > even else "utf-16-be"
