"""Messages of the live view as the renderer (live.js) reads them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.live.messages import Codes
from colme.live.simulation import N_FRAMES, SimulationFeed
from colme.methods import Method
from colme.sim.spec import RunSpec


def from_codes(codes: Codes) -> NDArray[np.float64]:
    top = 256**codes.values.dtype.itemsize - 1
    numbers: NDArray[np.float64] = codes.low + codes.values / (top - 1) * (codes.high - codes.low)
    numbers[codes.values == top] = np.nan
    return numbers


def unpack(message: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Head and arrays of a message, codes as numbers."""
    at = 4 + int.from_bytes(message[:4], "little")
    head = json.loads(message[4:at])
    arrays: dict[str, NDArray[Any]] = {}
    for name, kind, size, *ends in head.pop("arrays"):
        values = np.frombuffer(message, f"<{kind}", size, at)
        arrays[name] = from_codes(Codes(values, *ends)) if ends else values
        at += values.nbytes + -values.nbytes % 8
    return head, arrays


def split(recording: bytes) -> Iterator[bytes]:
    """The messages of a recording."""
    at = 0
    while at < len(recording):
        length = int.from_bytes(recording[at : at + 4], "little")
        yield recording[at + 4 : at + 4 + length]
        at += 4 + length


def messages_in(recording: bytes) -> list[bytes]:
    """The messages of a widget's recording."""
    return list(split(zlib.decompress(recording)))


def feed_of(
    methods: Sequence[Method], source: Any, steps: int, n_frames: int = N_FRAMES, *, title: str = "", **fields: Any
) -> SimulationFeed:
    """The feed of these methods on the same samples."""
    specs = [RunSpec(method=method, source=source, steps=steps, **fields) for method in methods]
    return SimulationFeed(specs, n_frames, title=title)
