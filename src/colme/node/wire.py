"""What devices say to each other, in bytes. Fixed and little-endian; every field is checked; nothing is executed.

A record is an agent's newest state, for all neighbors. Who sent it is not in it: the transport's key says so, and the
transport sees to it that nobody publishes under another's. 40 bytes of head, then what the method needs:

    magic 4s, version u8, kind u8, turn u8, n_intervals u8, incarnation u32, epoch u64, count u64, mean f64,
    degree u16, n_items u16
    hello  n_intervals x (center f64, radius f64), estimate f64, restart i64, generation u32
    loans  n_intervals x (center f64, radius f64), estimate f64, n_items x (neighbor u64, flow f64)
    votes  census u64, began u64, since u64, n_items x code i64, n_items x vote f32

incarnation: starts of the agent; epoch: its steps; turn: the exchange within a step, where there are barriers. Loans
name the neighbor by a hash of its name; a flow of NaN says that the edge is cut. A control message is 18 bytes:

    magic 4s, version u8, kind u8, incarnation u32, epoch u64

A letter, to one agent that may be a stranger (see `introductions`), is 16 bytes, its own intervals, and up to 8 agents:

    magic 4s, version u8, kind u8, n_intervals u8, n_agents u8, n_near u8, 3 bytes of zero, token u32
    n_intervals x (center f64, radius f64), n_agents x (n u8, n bytes of a name, m u8, m bytes of an endpoint or none)
"""

from __future__ import annotations

import hashlib
import math
import struct
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.errors import ColmeError, NodeError, shorten
from colme.methods._intervals import AgentIntervals
from colme.node.names import Endpoint, check_name

VERSION: Final = 1
RECORD, CONTROL, LETTER = b"cmeR", b"cmeC", b"cmeL"
LARGEST = 1e30
"""No mean, estimate or flow is larger: differences and sums of a few thousand of them are finite even in float32."""
MOST_INTERVALS, MOST_ITEMS = 3, 1024
CUT, CUT_HEARD = 1, 2
"""Kinds of control messages: this edge is cut; I know, you can stop telling me."""
ASK, NAMES, MEET, YES, NO, BYE = range(1, 7)
"""Kinds of letters: whom do you know; these; be my neighbor; yes; no; I leave."""
MOST_NAMES, MOST_LETTER, LONGEST_ENDPOINT = 8, 640, 128
"""Agents in a letter; its bytes; those of an endpoint."""

_HEAD = struct.Struct("<4sBBBBIQQdHH")
_CONTROL = struct.Struct("<4sBBIQ")
_LETTER = struct.Struct("<4sBBBBB3xI")
_HELLO, _LOAN, _POLL = struct.Struct("<dqI"), struct.Struct("<d"), struct.Struct("<QQQ")
_PAIR, _ITEM = struct.Struct("<dd"), struct.Struct("<Qd")
_MOST_NUMBER = 2**62
"""Of epochs, counts and the like: sums of two of them are still numbers that a u64 and an i64 can hold."""

MOST_BYTES = _HEAD.size + MOST_INTERVALS * _PAIR.size + _POLL.size + MOST_ITEMS * 16
"""No record is longer."""


class WireError(ColmeError):
    """Bytes that are not a message; `reason` is one word for the tally."""

    def __init__(self, reason: str, got: str):
        super().__init__(f"{got}: that is no message of version {VERSION} ({reason}). Refuse it and wait for the next.")
        self.reason = reason


class HelloBody(msgspec.Struct, frozen=True):
    """CL-colME and C-colME: intervals, estimate, the step of the clock's last restart, and how many there were."""

    intervals: AgentIntervals
    estimate: float
    restart: int
    generation: int = 0


class LoansBody(msgspec.Struct, frozen=True):
    """Flow updating: intervals, estimate, and all that each neighbor has lent, by `name_hash`; NaN: the edge is cut."""

    intervals: AgentIntervals
    estimate: float
    flows: dict[int, float]


class VotesBody(msgspec.Struct, frozen=True):
    """The census of this number, that began at step `began` of whoever began it, `since` steps ago."""

    census: int
    began: int
    since: int
    codes: Any
    values: Any


Body = HelloBody | LoansBody | VotesBody | None
_KINDS: tuple[type | None, ...] = (None, HelloBody, LoansBody, VotesBody)


class Record(msgspec.Struct, frozen=True):
    """An agent's newest state."""

    incarnation: int
    epoch: int
    count: int
    mean: float
    degree: int
    body: Body = None
    turn: int = 0

    @property
    def age_mark(self) -> tuple[int, int, int]:
        """Larger for whatever was said later."""
        return self.incarnation, self.epoch, self.turn


class Control(msgspec.Struct, frozen=True):
    """A message to one neighbor."""

    kind: int
    incarnation: int
    epoch: int


class Letter(msgspec.Struct, frozen=True):
    """A message to one agent that need not be a neighbor. An answer repeats the token of the question.

    intervals   of the sender: in a question to be neighbors and in its answer
    agents      (name, endpoint; None: nobody can dial it): in a question its sender, in an answer whom it knows,
    near        of whom the first so many are its neighbors
    """

    kind: int
    token: int = 0
    intervals: AgentIntervals = ()
    agents: tuple[tuple[str, str | None], ...] = ()
    near: int = 0


def name_hash(name: object) -> int:
    """64 bits that stand for a name."""
    return int.from_bytes(hashlib.blake2b(str(name).encode(), digest_size=8).digest(), "little")


def pack(record: Record) -> bytes:
    """The bytes of a record. A census of too many bins tells its largest."""
    body, items, tail = record.body, 0, b""
    intervals: AgentIntervals = ()
    kind = _KINDS.index(None if body is None else type(body))
    if isinstance(body, HelloBody):
        intervals, tail = body.intervals, _HELLO.pack(body.estimate, body.restart, body.generation)
    elif isinstance(body, LoansBody):
        intervals, items = body.intervals, len(body.flows)
        tail = _LOAN.pack(body.estimate) + b"".join(_ITEM.pack(*item) for item in body.flows.items())
    elif isinstance(body, VotesBody):
        codes, values = _largest(np.asarray(body.codes), np.asarray(body.values))
        items = len(codes)
        tail = _POLL.pack(body.census, body.began, body.since) + codes.astype("<i8").tobytes()
        tail += values.astype("<f4").tobytes()
    head = _HEAD.pack(
        RECORD, VERSION, kind, record.turn, len(intervals), record.incarnation, record.epoch, record.count,
        record.mean, record.degree, items,
    )  # fmt: skip
    return head + b"".join(_PAIR.pack(*pair) for pair in intervals) + tail


def _largest(codes: NDArray[Any], values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    if len(codes) <= MOST_ITEMS:
        return codes, values
    kept = np.sort(np.argsort(-values, kind="stable")[:MOST_ITEMS])
    return codes[kept], values[kept]


def unpack(raw: bytes) -> Record:
    """The record in these bytes, or a WireError: sizes, ranges and everything that an honest agent could not say."""
    if len(raw) < _HEAD.size:
        raise WireError("size", f"{len(raw)} bytes")
    magic, version, kind, turn, n_intervals, *numbers, mean, degree, items = _HEAD.unpack_from(raw)
    _check_beginning(magic, RECORD, version)
    incarnation, epoch, count = numbers
    if kind >= len(_KINDS) or n_intervals > MOST_INTERVALS or items > MOST_ITEMS:
        raise WireError("range", f"kind {kind} with {n_intervals} intervals and {items} items")
    if (n_intervals == 0) != (_KINDS[kind] in (None, VotesBody)) or (items and kind < 2):
        raise WireError("range", f"kind {kind} with {n_intervals} intervals and {items} items")
    tail = (0, _HELLO.size, _LOAN.size + items * _ITEM.size, _POLL.size + items * 12)[kind]
    if len(raw) != _HEAD.size + n_intervals * _PAIR.size + tail:
        raise WireError("size", f"{len(raw)} bytes")
    if incarnation == 0 or max(epoch, count) > _MOST_NUMBER:
        raise WireError("range", f"incarnation {incarnation}, epoch {epoch}, count {count}")
    _check_number(mean, "mean", missing=count == 0)
    if count == 0 and mean == mean:
        raise WireError("value", f"mean {mean} of no samples")
    at = _HEAD.size + n_intervals * _PAIR.size
    intervals = _intervals(raw, _HEAD.size, n_intervals)
    body: Body = None
    if kind == 1:
        estimate, restart, generation = _HELLO.unpack_from(raw, at)
        if not 0 <= restart <= epoch + 2:  # clocks begin at step 2, also that of an agent at step 0
            raise WireError("range", f"restart {restart} at epoch {epoch}")
        body = HelloBody(intervals, _checked_estimate(estimate, count), restart, generation)
    elif kind == 2:
        estimate = _checked_estimate(_LOAN.unpack_from(raw, at)[0], count)
        flows = dict(_ITEM.iter_unpack(raw[at + _LOAN.size :]))
        if len(flows) < items:
            raise WireError("range", "a neighbor named twice")
        for flow in flows.values():
            _check_number(flow, "flow", missing=True)
        body = LoansBody(intervals, estimate, flows)
    elif kind == 3:
        body = _votes(raw[at:], items)
    return Record(incarnation, epoch, count, mean, degree, body, turn)


def _votes(raw: bytes, items: int) -> VotesBody:
    census, began, since = _POLL.unpack_from(raw)
    if max(census, began, since) > _MOST_NUMBER:
        raise WireError("range", f"census {census}, begun at {began}, {since} ago")
    codes = np.frombuffer(raw, "<i8", items, _POLL.size).astype(np.int64)
    values = np.frombuffer(raw, "<f4", items, _POLL.size + 8 * items).astype(np.float32)
    if np.any(codes[1:] <= codes[:-1]):
        raise WireError("range", "bins out of order")
    if not np.all(np.abs(values) <= LARGEST):
        raise WireError("value", "votes that are no numbers")
    return VotesBody(census, began, since, codes, values)


def pack_control(message: Control) -> bytes:
    return _CONTROL.pack(CONTROL, VERSION, message.kind, message.incarnation, message.epoch)


def unpack_control(raw: bytes) -> Control:
    """The control message in these bytes, or a WireError."""
    if len(raw) != _CONTROL.size:
        raise WireError("size", f"{len(raw)} bytes")
    magic, version, kind, incarnation, epoch = _CONTROL.unpack(raw)
    _check_beginning(magic, CONTROL, version)
    if kind not in (CUT, CUT_HEARD) or incarnation == 0 or epoch > _MOST_NUMBER:
        raise WireError("range", f"kind {kind}, incarnation {incarnation}, epoch {epoch}")
    return Control(kind, incarnation, epoch)


def pack_letter(letter: Letter) -> bytes:
    """The bytes of a letter: of many agents, those that fit."""
    pairs = b"".join(_PAIR.pack(*pair) for pair in letter.intervals)
    tail, n_agents = b"", 0
    for name, endpoint in letter.agents[:MOST_NAMES]:
        texts = name.encode(), (endpoint or "").encode()
        more = b"".join(bytes([len(text)]) + text for text in texts)
        if _LETTER.size + len(pairs) + len(tail) + len(more) > MOST_LETTER:
            break
        tail, n_agents = tail + more, n_agents + 1
    near = min(letter.near, n_agents)
    head = (LETTER, VERSION, letter.kind, len(letter.intervals), n_agents, near, letter.token)
    return _LETTER.pack(*head) + pairs + tail


def unpack_letter(raw: bytes) -> Letter:
    """The letter in these bytes, or a WireError."""
    if not _LETTER.size <= len(raw) <= MOST_LETTER:
        raise WireError("size", f"{len(raw)} bytes")
    magic, version, kind, n_intervals, n_agents, near, token = _LETTER.unpack_from(raw)
    _check_beginning(magic, LETTER, version)
    if not ASK <= kind <= BYE or n_intervals > MOST_INTERVALS or not near <= n_agents <= MOST_NAMES:
        raise WireError("range", f"kind {kind} with {n_intervals} intervals and {near} of {n_agents} agents")
    at = _LETTER.size + n_intervals * _PAIR.size
    if len(raw) < at:
        raise WireError("size", f"{len(raw)} bytes")
    intervals = _intervals(raw, _LETTER.size, n_intervals)
    agents: list[tuple[str, str | None]] = []
    for _ in range(n_agents):
        name, at = _text(raw, at)
        endpoint, at = _text(raw, at)
        try:
            check_name(name, "name")
            if endpoint:
                Endpoint.parse(endpoint)
        except NodeError:
            raise WireError("value", f"{shorten(name)} at {shorten(endpoint)}") from None
        if len(endpoint) > LONGEST_ENDPOINT:
            raise WireError("value", f"{len(endpoint)} bytes of an endpoint")
        agents.append((name, endpoint or None))
    if len(raw) != at:
        raise WireError("size", f"{len(raw)} bytes")
    return Letter(kind, token, intervals, tuple(agents), near)


def _text(raw: bytes, at: int) -> tuple[str, int]:
    """A text behind its length, and where it ends."""
    end = at + 1 + raw[at] if at < len(raw) else len(raw) + 1
    text = raw[at + 1 : end]
    if end > len(raw) or not text.isascii():
        raise WireError("value", "a text that is none")
    return text.decode(), end


def _intervals(raw: bytes, at: int, n: int) -> AgentIntervals:
    intervals = tuple(_PAIR.unpack_from(raw, at + k * _PAIR.size) for k in range(n))
    for center, radius in intervals:
        _check_number(center, "center", missing=True)
        if radius < 0.0:
            raise WireError("value", f"radius {radius}")
    return intervals


def _check_beginning(magic: bytes, wanted: bytes, version: int) -> None:
    if magic != wanted:
        raise WireError("magic", f"{magic!r}")
    if version != VERSION:
        raise WireError("version", f"version {version}")


def _check_number(value: float, what: str, *, missing: bool) -> None:
    """Finite and not absurd; NaN only where something may be missing."""
    if not (abs(value) <= LARGEST or (missing and math.isnan(value))):
        raise WireError("value", f"{what} {value}")


def _checked_estimate(estimate: float, count: int) -> float:
    """NaN before the first sample has been used, then no longer."""
    _check_number(estimate, "estimate", missing=count <= 1)
    return estimate
