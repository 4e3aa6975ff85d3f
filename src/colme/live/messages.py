"""The messages that every feed sends to the renderer (live.js): a head in JSON, then arrays as bytes.

A message is the length of the head in four bytes (little-endian), the head, and the arrays in the order in which
head["arrays"] lists them, [name, type, length] or [name, type, length, low, high]. Head and arrays begin at multiples
of eight bytes, so that a browser reads them in place. The types are those of NumPy: u1, u2, u4, f8.

Numbers of agents are sent as codes: with `low` and `high`, code c of type u1 or u2 is low + c (high - low) / (top - 1),
where top, the largest code, stands for NaN. Two bytes place a number within 1/131000 of the range of its frame.

The kinds of messages, in head["kind"]:

start   what is shown: title, agents, edges, panels (one per method). It may come again: a new start replaces all.
frame   one moment: the numbers of all agents at time t. Frames do not refer to each other, so that any can be skipped.
note    a sentence for the person who watches.
end     there are no more frames.

A recording is the start, its frames and the end, each behind its length in four bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colme.support.arrays import Array, Mask
from colme.support.tables import json_line

if TYPE_CHECKING:
    from colme.method import Method

VERSION = 1
_ALIGN = 8
LONGEST_NAME = 120
"""Characters of a name that are sent."""


class Codes(NamedTuple):
    """Numbers as codes of one or two bytes; see above."""

    values: NDArray[np.unsignedinteger[Any]]
    low: float
    high: float


Arrays = dict[str, Array | Codes]
Head = dict[str, Any]


def to_codes(numbers: ArrayLike, *, n_bytes: int = 2) -> Codes:
    """The codes of numbers, over their own range. Infinite numbers are NaN."""
    given = np.asarray(numbers, np.float64)
    top = 256**n_bytes - 1
    known = np.isfinite(given)
    low, high = (float(given[known].min()), float(given[known].max())) if known.any() else (0.0, 0.0)
    codes = np.full(given.shape, top, f"<u{n_bytes}")
    codes[known] = np.rint((given[known] - low) / ((high - low) or 1.0) * (top - 1))
    return Codes(codes, low, high)


def pack(head: Head, arrays: Arrays | None = None) -> bytes:
    """A message. NaN and infinity in the head become null."""
    listed, parts = [], []
    for name, array in (arrays or {}).items():
        values, *ends = array if isinstance(array, Codes) else (array,)
        kind = f"{values.dtype.kind}{values.dtype.itemsize}"
        listed.append([name, kind, values.size, *ends])
        parts.append(np.ascontiguousarray(values, f"<{kind}").tobytes())
    text = json_line(head | {"arrays": listed})
    text += b" " * (-(4 + len(text)) % _ALIGN)
    return b"".join([len(text).to_bytes(4, "little"), text, *(part + bytes(-len(part) % _ALIGN) for part in parts)])


def bits(values: Mask) -> NDArray[np.uint8]:
    """Truth values as the renderer reads them."""
    return np.packbits(values, bitorder="little")


def head_of(message: bytes) -> Head:
    """The head of a message alone."""
    head: Head = json.loads(message[4 : 4 + int.from_bytes(message[:4], "little")])
    return head


def join(messages: Iterable[bytes]) -> bytes:
    """A recording of messages."""
    return b"".join(len(each).to_bytes(4, "little") + each for each in messages)


def start(
    arrays: Arrays, *, title: str, unit: str, n_agents: int, panels: list[Head],
    **more: Any,
) -> bytes:  # fmt: skip
    """What is shown: `n_agents` agents over a time in units. `more` is added to the head: the `last` moment and the
    `window` of the numbers, where they are known, and whether time is logarithmic (`log`)."""
    head = {"kind": "start", "version": VERSION, "title": title, "unit": unit, "n_agents": n_agents, "panels": panels}
    return pack(head | more, arrays)


def panel_of(method: Method, label: str = "", *, graph: bool) -> Head:
    """The panel of a method in a start; `graph`: whether it has edges to show."""
    return {"label": label or method.label, "color": method.color, "graph": graph, "cuts": method.cuts_edges}


def note(text: str) -> bytes:
    return pack({"kind": "note", "text": text})


def end() -> bytes:
    return pack({"kind": "end"})
