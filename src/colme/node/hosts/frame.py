"""The wire format between hosts of many agents: little-endian columns, every field checked, column by column.

A frame is the newest state of those agents of a host that have neighbors elsewhere. It goes out in parts, each of which
is useful on its own and fits into one batch of the transport. It does not name the host that sent it: the key of the
transport does, and a host speaks for its own agents only. A part has a head of 32 bytes, then columns:

    magic 4s, version u8, kind u8, turn u8, errors u8, incarnation u32, part u32, n_agents u32, n_items u32, epoch u64
    hello   mean f64, radius f64, restart i64, estimate f32, degree u32, agent u32, generation u32
    loans   mean f64, radius f64, estimate f32, degree u32, agent u32, and for each of n_items edges
            flow f64, row u32, host u32, neighbor u32

errors: 128 where difference tests compare standard errors, which then stand in place of radii; else 0.
incarnation: how often the host was started; epoch: its ticks; turn: the exchange within a step, in lockstep. A loan is
of the agent in this row of the part, to the neighbor of this number on the host with this hash. A mean or estimate is
NaN before there is one. Cuts of edges are sent in lists of pairs (agent of the sender, agent of the receiver):

    magic 4s, version u8, kind u8, zero u16, incarnation u32, n_pairs u32, epoch u64, n_pairs x u32, n_pairs x u32
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.node.messages.wire import CUT, CUT_HEARD, ERRORS, LARGEST, MOST_NUMBER, WireError, check_beginning, name_hash

FRAME, CUTS = b"cmeF", b"cmeP"
HELLO, LOANS = 1, 2
MOST_BYTES: Final = 60_000
"""Of a part: with what the transport adds it fits into one batch of 65 535, and needs no putting together."""
MOST_AGENTS, MOST_PARTS, MOST_PAIRS = 1024, 256, 4096

_HEAD = struct.Struct("<4sBBBBIIIIQ")
_CUTS = struct.Struct("<4sBBHIIQ")
_STATE = {
    HELLO: (("mean", "<f8"), ("radius", "<f8"), ("restart", "<i8"), ("estimate", "<f4"), ("degree", "<u4"),
            ("agent", "<u4"), ("generation", "<u4")),
    LOANS: (("mean", "<f8"), ("radius", "<f8"), ("estimate", "<f4"), ("degree", "<u4"), ("agent", "<u4")),
}  # fmt: skip
"""Columns, the widest first, so that all are aligned."""
_ITEMS = {HELLO: (), LOANS: (("flow", "<f8"), ("row", "<u4"), ("host", "<u4"), ("neighbor", "<u4"))}
ROW_BYTES = {kind: sum(np.dtype(form).itemsize for _, form in columns) for kind, columns in _STATE.items()}
ITEM_BYTES = {kind: sum(np.dtype(form).itemsize for _, form in columns) for kind, columns in _ITEMS.items()}
HEAD_BYTES = _HEAD.size

Columns = dict[str, NDArray[Any]]


class Frame(msgspec.Struct, frozen=True):
    """A part of a host's newest state: one number per agent in each column of `rows`, one per edge in `items`."""

    kind: int
    incarnation: int
    epoch: int
    part: int
    rows: Columns
    items: Columns
    turn: int = 0
    errors: bool = False

    @property
    def age_mark(self) -> tuple[int, int, int]:
        """Larger for whatever was said later."""
        return self.incarnation, self.epoch, self.turn


class Cuts(msgspec.Struct, frozen=True):
    """Edges that are cut (CUT), or of which that is known (CUT_HEARD): agents of the sender, and of the receiver."""

    kind: int
    incarnation: int
    epoch: int
    mine: NDArray[np.uint32]
    yours: NDArray[np.uint32]


def host_hash(name: str) -> int:
    """32 bits that stand for a host."""
    return name_hash(name) & 0xFFFFFFFF


def pack_frame(frame: Frame) -> bytes:
    n, n_items = len(frame.rows["agent"]), len(frame.items.get("row", ()))
    head = _HEAD.pack(
        FRAME, 1, frame.kind, frame.turn, ERRORS * frame.errors, frame.incarnation, frame.part, n, n_items, frame.epoch
    )  # fmt: skip
    columns = [frame.rows[name].astype(form, copy=False) for name, form in _STATE[frame.kind]]
    columns += [frame.items[name].astype(form, copy=False) for name, form in _ITEMS[frame.kind]]
    return b"".join([head, *(column.tobytes() for column in columns)])


def unpack_frame(raw: bytes) -> Frame:
    """The frame in these bytes, or a WireError. A part with one wrong number is refused whole."""
    if not _HEAD.size <= len(raw) <= MOST_BYTES:
        raise WireError("size", f"{len(raw)} bytes")
    magic, version, kind, turn, errors, incarnation, part, n, n_items, epoch = _HEAD.unpack_from(raw)
    check_beginning(magic, FRAME, version)
    large = max(n, n_items) > MOST_BYTES or part >= MOST_PARTS
    if kind not in _STATE or errors not in (0, ERRORS) or (n_items and kind == HELLO) or large:
        raise WireError("range", f"kind {kind}, part {part} with {n} agents and {n_items} edges")
    if len(raw) != _HEAD.size + n * ROW_BYTES[kind] + n_items * ITEM_BYTES[kind] or n > MOST_AGENTS:
        raise WireError("size", f"{len(raw)} bytes")
    if incarnation == 0 or epoch > MOST_NUMBER:
        raise WireError("range", f"incarnation {incarnation}, epoch {epoch}")
    rows, at = _columns(raw, _HEAD.size, n, _STATE[kind])
    items, _ = _columns(raw, at, n_items, _ITEMS[kind])
    _check_rows(rows, epoch)
    if kind == LOANS:
        if not np.all(np.abs(items["flow"]) <= LARGEST):
            raise WireError("value", "flows that are no numbers")
        if n_items and items["row"].max() >= n:
            raise WireError("range", "an edge of no agent")
    return Frame(kind, incarnation, epoch, part, rows, items, turn, bool(errors))


def _columns(raw: bytes, at: int, n: int, forms: Any) -> tuple[Columns, int]:
    found = {}
    for name, form in forms:
        found[name] = np.frombuffer(raw, form, n, at)
        at += found[name].nbytes
    return found, at


def _check_rows(rows: Columns, epoch: int) -> None:
    agent = rows["agent"]
    if np.any(agent[1:] <= agent[:-1]):
        raise WireError("range", "agents out of order")
    for name in ("mean", "estimate"):
        if not np.all((np.abs(rows[name]) <= LARGEST) | np.isnan(rows[name])):
            raise WireError("value", f"a {name} that is no number")
    if not np.all(rows["radius"] >= 0.0):
        raise WireError("value", "a radius below zero")
    if "restart" in rows and len(agent):
        restart = rows["restart"]
        if restart.min() < 0 or restart.max() > epoch + 2:  # clocks begin at step 2, also that of an agent at step 0
            raise WireError("range", f"a restart before all or after epoch {epoch}")


def pack_cuts(cuts: Cuts) -> bytes:
    head = _CUTS.pack(CUTS, 1, cuts.kind, 0, cuts.incarnation, len(cuts.mine), cuts.epoch)
    return head + cuts.mine.astype("<u4").tobytes() + cuts.yours.astype("<u4").tobytes()


def unpack_cuts(raw: bytes) -> Cuts:
    """The list of cuts in these bytes, or a WireError."""
    if len(raw) < _CUTS.size:
        raise WireError("size", f"{len(raw)} bytes")
    magic, version, kind, zero, incarnation, n, epoch = _CUTS.unpack_from(raw)
    check_beginning(magic, CUTS, version)
    if kind not in (CUT, CUT_HEARD) or zero or incarnation == 0 or epoch > MOST_NUMBER:
        raise WireError("range", f"kind {kind}, incarnation {incarnation}, epoch {epoch}")
    if n > MOST_PAIRS or len(raw) != _CUTS.size + 8 * n:
        raise WireError("size", f"{len(raw)} bytes of {n} pairs")
    mine, yours = (np.frombuffer(raw, "<u4", n, _CUTS.size + 4 * n * side) for side in (0, 1))
    return Cuts(kind, incarnation, epoch, mine, yours)
