"""`open_json_lines`: a table of JSON objects, one per line; cells become Arrow arrays block by block."""

from __future__ import annotations

import itertools
import json
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import msgspec

from colme.data.read.arrow_columns import Where, as_array
from colme.data.read.batches import Batch, BatchSource
from colme.data.read.file_errors import damaged, empty
from colme.data.read.text_stream import TextStream
from colme.errors import DataError, shorten

BLOCK = 1 << 24
"""Bytes of lines read at a time; the columns are the keys of the first block."""
LONGEST_LINE = 1 << 24
"""Bytes of a line at most: compressed, a line of gigabytes takes a megabyte."""
MARK = "\ufeff".encode()


def open_json_lines(text: TextStream) -> BatchSource:
    """A text of flat JSON objects, one per line. A key that a line does not have is a missing value."""
    blocks = _blocks(text)
    first = next((block for block in blocks if block.strip()), b"")
    if not first:
        raise empty(text.name)
    objects = _objects(first, msgspec.json.Decoder(dict[str, Any]), text, 0)
    columns = list(dict.fromkeys(itertools.chain.from_iterable(objects)))

    def read(wanted: Sequence[Hashable]) -> Iterator[Batch]:
        fields = [f"f{k}" for k in range(len(wanted))]
        kind = msgspec.defstruct("Line", [(field, Any, None) for field in fields],
                                 rename=dict(zip(fields, map(str, wanted), strict=True)), gc=False)  # fmt: skip
        decoder, row = msgspec.json.Decoder(kind), 0
        for block in itertools.chain([first], blocks):
            lines = _objects(block, decoder, text, row)
            row += len(lines)
            yield {
                column: _cells([getattr(line, field) for line in lines], Where(text.name, column, row - len(lines)))
                for column, field in zip(wanted, fields, strict=True)
            }

    return BatchSource(text.name, columns, read, text.total)


def _cells(cells: list[Any], where: Where) -> Any:
    if not {dict, list}.isdisjoint(map(type, cells)):
        i = next(i for i, cell in enumerate(cells) if isinstance(cell, dict | list))
        raise DataError(f"{where.at(i)} is {shorten(cells[i])}: objects must be flat, without lists or objects in "
                        "them. Flatten it, or choose another column.")  # fmt: skip
    return as_array(cells)


def _blocks(text: TextStream) -> Iterator[bytes]:
    """Whole lines, about `BLOCK` bytes at a time."""
    try:
        start = text.stream.read(len(MARK)).removeprefix(MARK)
        while True:
            block = start + text.stream.read(BLOCK)
            if not block:
                return
            rest = text.stream.readline(LONGEST_LINE + 1)
            if len(rest) > LONGEST_LINE:
                raise DataError(f"{text.name} has a line of more than {LONGEST_LINE >> 20} MB: lines must be shorter. "
                                "Write one object per line.")  # fmt: skip
            yield block + rest
            start = b""
    except UnicodeError:
        raise text.not_decoded() from None
    except OSError as error:
        raise damaged(text.name, error) from None


def _objects(block: bytes, decoder: msgspec.json.Decoder[Any], text: TextStream, row: int) -> list[Any]:
    """The objects of a block, `row` rows after the first."""
    try:
        return decoder.decode_lines(block)
    except UnicodeDecodeError:
        raise text.not_decoded() from None
    except (msgspec.DecodeError, RecursionError):
        # not JSON, or NaN and numbers beyond floats, which the standard library reads
        if b"\0" in block:
            raise text.not_decoded() from None
    found = []
    for line in filter(bytes.strip, block.split(b"\n")):
        row += 1
        try:
            found.append(msgspec.convert(json.loads(line.decode()), decoder.type))
        except UnicodeDecodeError:
            raise text.not_decoded() from None
        except (ValueError, RecursionError):
            shown = shorten(line.decode("utf-8", "replace").strip())
            raise DataError(f"row {row:,} of {text.name} is {shown}: every line must be one JSON object. Write it like "
                            '{"agent": "a", "value": 1.5}.') from None  # fmt: skip
    return found
