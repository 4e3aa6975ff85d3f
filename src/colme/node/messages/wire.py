"""The wire format of records and control messages: fixed layouts, little-endian. Every field is checked on arrival.

A record is the newest state of an agent, for all its neighbors. It does not name its sender: the transport's key does,
and the transport ensures that no agent publishes under the key of another. A head of 40 bytes, then what the method
needs:

    magic 4s, version u8, kind u8, turn u8, n_intervals u8, incarnation u32, epoch u64, count u64, mean f64,
    degree u16, n_items u16
    consensus  n_intervals x (center f64, radius f64), estimate f64, restart i64, generation u32
    flow       n_intervals x (center f64, radius f64), estimate f64, n_items x (neighbor u64, flow f64)
    histogram  census u64, began u64, since u64, round u64, n_items x code i64, n_items x mass f32,
               n_items x mass of the round before f32
    any        MessagePack of the messages in each exchange of a step: [the same to all, {neighbor: another}]
    guard      after any of these, if 128 is added to the kind: vote u64, began u64, since u64, round u64,
               degree u64, 5 x sum f64, 5 x sum of the round before f64; the last two are zero without intervals
    sums       last, if 64 is added to the kind: for the first n sizes n x B_b / B_1 f16, n x A_b / B_b f32; then
               average u64, began u64, since u64, round u8, n u8, degree u16, B_1 f32, and the sums of w, w^2, s and
               agents f32

Numbers are finite. NaN stands for what is missing: mean, center and estimate before the first sample (the estimate
until it was used), the center of a kurtosis that is not defined, and a flow whose edge is cut. A radius may be
infinite. 128 is added to n_intervals where difference tests compare standard errors, which then stand in place of
radii. incarnation: higher with every start (`node/device`); epoch: the agent's steps; turn: the exchange within a
step, in lockstep. Flow bodies identify a neighbor by a hash of its name; a flow of NaN means that the edge is cut. A
control message has 18 bytes:

    magic 4s, version u8, kind u8, incarnation u32, epoch u64

incarnation and epoch are the sender's own; in `OLD` they are those of the newest record that it has of the receiver.
An edge message, about an edge that was cut, has
the sender's intervals, too:

    magic 4s, version u8, kind u8, n_intervals u8, 1 byte of zero, incarnation u32, epoch u64, then the intervals
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

import msgspec
import numpy as np

from colme.dependence import SIZES, SUMS, A, B
from colme.errors import ColmeError, NodeError
from colme.methods.intervals import AgentIntervals
from colme.support.arrays import Array

VERSION: Final = 1
RECORD, CONTROL, EDGE = b"cmeR", b"cmeC", b"cmeE"
LARGEST = 1e30
"""The largest mean, estimate or flow: sums of a few thousand of them are finite even in float32."""
MOST_INTERVALS, MOST_ITEMS = 3, 1024
ERRORS = 128
"""Added to the number of intervals where standard errors stand in place of radii."""
CUT, CUT_HEARD, OLD, STARTED = 1, 2, 3, 4
"""Kinds of control messages: this edge is cut; acknowledged; your record is older than one that I have; I have been
started (is our edge cut?)."""
ASK, FORGIVE, AGREE, KEEP = 1, 2, 3, 4
"""Kinds of edge messages: shall we reconsider the cut; the same, at the request of a person; the edge is back; it stays
cut."""

_HEAD = struct.Struct("<4sBBBBIQQdHH")
_CONTROL, _EDGE = struct.Struct("<4sBBIQ"), struct.Struct("<4sBBBxIQ")
_CONSENSUS, _FLOW, _HISTOGRAM = struct.Struct("<dqI"), struct.Struct("<d"), struct.Struct("<QQQQ")
_SUMS = struct.Struct("<QQQQQ10d")
_DEPENDENCE = struct.Struct("<QQQBBH5f")
_PER_SIZE = 6
"""Bytes of a pair B_b / B_1, A_b / B_b."""
PAIR, _ITEM = struct.Struct("<dd"), struct.Struct("<Qd")
GUARDED = 128
"""Added to the kind of a body that has the sums of a guard behind it."""
DEPENDENT = 64
"""Added to the kind of a body with sums of dependence behind it."""
LARGEST_SUM = 1e150
"""The largest sum of a guard: of fourth powers of numbers up to `LARGEST`."""
LARGEST_RATIO = 6.0 * SIZES[-1]
"""Beyond any A_b / B_b (`colme.node.dependence`)."""
MOST_NUMBER = 2**62
"""The largest epoch, count and the like: the sum of two still fits into u64 and i64."""

MOST_SUMS = _DEPENDENCE.size + len(SIZES) * _PER_SIZE
"""The largest size of the sums of dependence in a record."""
MOST_BYTES = _HEAD.size + MOST_INTERVALS * PAIR.size + _HISTOGRAM.size + MOST_ITEMS * 16 + _SUMS.size + MOST_SUMS
"""Size of the longest record."""


class WireError(ColmeError):
    """Bytes that are not a valid message; `reason` is one word, under which it is counted."""

    def __init__(self, reason: str, got: str):
        super().__init__(
            f"{got}: that is not a message of version {VERSION} ({reason}). Refuse it and wait for the next."
        )
        self.reason = reason


class ConsensusBody(msgspec.Struct, frozen=True):
    """CL-colME and C-colME: intervals, estimate, the step of the last restart of the clock, and how many there were."""

    intervals: AgentIntervals
    estimate: float
    restart: int
    generation: int = 0


class FlowBody(msgspec.Struct, frozen=True):
    """Flow updating: intervals, estimate, and the total flow from each neighbor by `name_hash`; NaN: edge cut."""

    intervals: AgentIntervals
    estimate: float
    flows: dict[int, float]


class HistogramBody(msgspec.Struct, frozen=True):
    """Census number `census`, begun at step `began` of the agent that began it, `since` steps ago: the histogram after
    `round` rounds, and that of the round before."""

    census: int
    began: int
    since: int
    round: int
    codes: Any
    values: Any
    before: Any


Exchange = tuple[Any, dict[int, Any]]
"""The messages in one exchange of a step: the same to all neighbors, and others by `name_hash`."""


class AnyBody(msgspec.Struct, frozen=True):
    """Any method: plain values, exchange by exchange."""

    exchanges: list[Exchange]


class GuardedBody(msgspec.Struct, frozen=True):
    """A method's body, and vote number `vote` of its guard, begun at step `began` of the agent that began it, `since`
    steps ago: the sums A, D, Q, V and C after `round` rounds, and those of the round before. The agent votes with
    `degree` others."""

    inner: ConsensusBody | FlowBody | HistogramBody | AnyBody | None
    vote: int
    began: int
    since: int
    round: int
    degree: int
    values: Any
    before: Any


class SumsBody(msgspec.Struct, frozen=True):
    """Average number `average` of the sums of dependence (`colme.dependence`, equation (3)), begun at step `began` of
    the agent that began it, `since` steps ago: the sums after `round` rounds. It averages with `degree` others."""

    average: int
    began: int
    since: int
    round: int
    degree: int
    values: Any


Body = ConsensusBody | FlowBody | HistogramBody | AnyBody | GuardedBody | None
_KINDS: tuple[type | None, ...] = (None, ConsensusBody, FlowBody, HistogramBody, AnyBody)
_ANY = msgspec.msgpack.Decoder(list[Exchange])


class Record(msgspec.Struct, frozen=True):
    """An agent's newest state."""

    incarnation: int
    epoch: int
    count: int
    mean: float
    degree: int
    body: Body = None
    turn: int = 0
    sums: SumsBody | None = None

    @property
    def age_mark(self) -> tuple[int, int, int]:
        """Larger for a later record."""
        return self.incarnation, self.epoch, self.turn


class Control(msgspec.Struct, frozen=True):
    """A message to one neighbor."""

    kind: int
    incarnation: int
    epoch: int


class EdgeMessage(msgspec.Struct, frozen=True):
    """A message to the agent at the other end of a cut edge."""

    kind: int
    incarnation: int
    epoch: int
    intervals: AgentIntervals


def name_hash(name: object) -> int:
    """A hash of a name, of 64 bits."""
    from hashlib import blake2b  # here, because it loads OpenSSL (4 MiB), and only flows need it

    return int.from_bytes(blake2b(str(name).encode(), digest_size=8).digest(), "little")


def pack(record: Record) -> bytes:
    """The bytes of a record. Of a histogram with too many bins the largest are sent."""
    body, items, tail, end = record.body, 0, b"", b""
    intervals: AgentIntervals = ()
    if isinstance(body, GuardedBody):
        end = _SUMS.pack(body.vote, body.began, body.since, body.round, body.degree, *body.values, *body.before)
        body = body.inner
    kind = _KINDS.index(None if body is None else type(body)) + (GUARDED if end else 0)
    if record.sums is not None:
        kind, end = kind + DEPENDENT, end + _pack_sums(record.sums)
    if isinstance(body, ConsensusBody):
        intervals, tail = body.intervals, _CONSENSUS.pack(body.estimate, body.restart, body.generation)
    elif isinstance(body, FlowBody):
        intervals, items = body.intervals, len(body.flows)
        tail = _FLOW.pack(body.estimate) + b"".join(_ITEM.pack(*item) for item in body.flows.items())
    elif isinstance(body, HistogramBody):
        codes, masses = _largest(np.asarray(body.codes), np.stack([body.values, body.before]))
        items = len(codes)
        tail = _HISTOGRAM.pack(body.census, body.began, body.since, body.round) + codes.astype("<i8").tobytes()
        tail += masses.astype("<f4").tobytes()
    elif isinstance(body, AnyBody):
        tail = msgspec.msgpack.encode(body.exchanges)
        most = MOST_BYTES - _HEAD.size - _SUMS.size - MOST_SUMS
        if len(tail) > most:
            raise NodeError(f"a message of {len(tail)} bytes: a record holds at most {most}. Send less per step.")
    head = _HEAD.pack(
        RECORD, VERSION, kind, record.turn, intervals_code(intervals), record.incarnation, record.epoch, record.count,
        record.mean, record.degree, items,
    )  # fmt: skip
    return head + pack_intervals(intervals) + tail + end


def _largest(codes: Array, values: Array) -> tuple[Array, Array]:
    if len(codes) <= MOST_ITEMS:
        return codes, values
    kept = np.sort(np.argsort(-values[0], kind="stable")[:MOST_ITEMS])
    return codes[kept], values[:, kept]


def unpack(raw: bytes) -> Record:
    """The record in these bytes; raises WireError for a wrong size, a value out of range, or anything that an honest
    agent could not send."""
    if len(raw) < _HEAD.size:
        raise WireError("size", f"{len(raw)} bytes")
    magic, version, kind, turn, code, *numbers, mean, degree, items = _HEAD.unpack_from(raw)
    n_intervals = code & ~ERRORS
    check_beginning(magic, RECORD, version)
    incarnation, epoch, count = numbers
    guarded, dependent, kind = kind >= GUARDED, bool(kind & DEPENDENT), kind % DEPENDENT
    raw, sums = _unpack_sums(raw) if dependent else (raw, None)
    raw, end = (raw[: -_SUMS.size], raw[-_SUMS.size :]) if guarded else (raw, b"")
    if len(raw) < _HEAD.size:
        raise WireError("size", f"{len(raw) + len(end)} bytes")
    if kind >= len(_KINDS) or n_intervals > MOST_INTERVALS or items > MOST_ITEMS:
        raise WireError("range", f"kind {kind} with {n_intervals} intervals and {items} items")
    if (n_intervals == 0) != (_KINDS[kind] in (None, HistogramBody, AnyBody)) or (items and kind not in (2, 3)):
        raise WireError("range", f"kind {kind} with {n_intervals} intervals and {items} items")
    rest = min(len(raw), MOST_BYTES) - _HEAD.size
    tail = (0, _CONSENSUS.size, _FLOW.size + items * _ITEM.size, _HISTOGRAM.size + items * 16, rest)[kind]
    if len(raw) != _HEAD.size + n_intervals * PAIR.size + tail:
        raise WireError("size", f"{len(raw)} bytes")
    if incarnation == 0 or max(epoch, count) > MOST_NUMBER:
        raise WireError("range", f"incarnation {incarnation}, epoch {epoch}, count {count}")
    _check_number(mean, "mean", missing=count == 0)
    if count == 0 and mean == mean:
        raise WireError("value", f"mean {mean} of no samples")
    at = _HEAD.size + n_intervals * PAIR.size
    intervals = intervals_in(raw, _HEAD.size, code)
    body: Body = None
    if kind == 1:
        estimate, restart, generation = _CONSENSUS.unpack_from(raw, at)
        if not 0 <= restart <= epoch + 2:  # clocks begin at step 2, also that of an agent at step 0
            raise WireError("range", f"restart {restart} at epoch {epoch}")
        body = ConsensusBody(intervals, _checked_estimate(estimate, count), restart, generation)
    elif kind == 2:
        estimate = _checked_estimate(_FLOW.unpack_from(raw, at)[0], count)
        flows = dict(_ITEM.iter_unpack(raw[at + _FLOW.size :]))
        if len(flows) < items:
            raise WireError("range", "a neighbor named twice")
        for flow in flows.values():
            _check_number(flow, "flow", missing=True)
        body = FlowBody(intervals, estimate, flows)
    elif kind == 3:
        body = _histogram(raw[at:], items)
    elif kind == 4:
        try:
            body = AnyBody(_ANY.decode(raw[at:]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise WireError("value", "a body that is no MessagePack of messages") from None
    if guarded:
        body = _guarded(body, end)
    return Record(incarnation, epoch, count, mean, degree, body, turn, sums)


def _pack_sums(body: SumsBody) -> bytes:
    """B_b is rounded to eleven bits, A_b along with it."""
    values = np.asarray(body.values, np.float32)
    first, n = values[B][0], int((np.cumsum(values[B][::-1] > 0.0) > 0).sum())
    share = (values[B][:n] / first).astype("<f2") if n else np.empty(0, "<f2")
    ratio = np.divide(values[A][:n], values[B][:n], out=np.zeros(n, "<f4"), where=values[B][:n] > 0.0)
    head = body.average, body.began, body.since, min(body.round, 255), n, min(body.degree, 65535)
    return share.tobytes() + ratio.tobytes() + _DEPENDENCE.pack(*head, first, *values[-4:])


def _unpack_sums(raw: bytes) -> tuple[bytes, SumsBody]:
    """(what is before the sums, the sums)."""
    if len(raw) < _HEAD.size + _DEPENDENCE.size:
        raise WireError("size", f"{len(raw)} bytes")
    average, began, since, round_, n, degree, first, *rest = _DEPENDENCE.unpack(raw[-_DEPENDENCE.size :])
    begin = len(raw) - _DEPENDENCE.size - n * _PER_SIZE
    if begin < _HEAD.size:
        raise WireError("size", f"{len(raw)} bytes")
    if n > len(SIZES) or max(average, began, since) > MOST_NUMBER:
        raise WireError("range", f"average {average}, begun at {began}, {since} ago, {n} sizes")
    with np.errstate(invalid="ignore"):  # any bits
        share = np.frombuffer(raw, "<f2", n, begin).astype(np.float32)
        ratio = np.frombuffer(raw, "<f4", n, begin + 2 * n).astype(np.float32)
        numbers = np.concatenate([share, ratio, [first, *rest]])
    possible = np.all((numbers >= 0.0) & (numbers <= LARGEST)) and np.all(ratio <= LARGEST_RATIO)
    if not possible or np.any(share > share[:1]) or np.any(share[:1] != 1.0):
        raise WireError("value", "sums that no samples have")
    values = np.zeros(SUMS, np.float32)
    values[B][:n] = share * np.float32(first)
    values[A][:n] = ratio * values[B][:n]
    values[-4:] = rest
    return raw[:begin], SumsBody(average, began, since, round_, degree, values)


def _guarded(body: Any, raw: bytes) -> GuardedBody:
    vote, began, since, round_, degree, *numbers = _SUMS.unpack(raw)
    if max(vote, began, since, round_, degree) > MOST_NUMBER:
        raise WireError("range", f"vote {vote}, begun at {began}, {since} ago, round {round_}, degree {degree}")
    if not all((-LARGEST_SUM if i % 5 == 0 else 0.0) <= x <= LARGEST_SUM for i, x in enumerate(numbers)):
        raise WireError("value", "sums that are not numbers, or sums of squares below zero")
    return GuardedBody(body, vote, began, since, round_, degree, *np.array(numbers).reshape(2, 5))


def _histogram(raw: bytes, items: int) -> HistogramBody:
    census, began, since, round_ = _HISTOGRAM.unpack_from(raw)
    if max(census, began, since, round_) > MOST_NUMBER:
        raise WireError("range", f"census {census}, begun at {began}, {since} ago, round {round_}")
    codes = np.frombuffer(raw, "<i8", items, _HISTOGRAM.size).astype(np.int64)
    masses = np.frombuffer(raw, "<f4", 2 * items, _HISTOGRAM.size + 8 * items).astype(np.float32).reshape(2, items)
    if np.any(codes[1:] <= codes[:-1]):
        raise WireError("range", "bins out of order")
    if not np.all(np.abs(masses) <= LARGEST):
        raise WireError("value", "a histogram with values that are not numbers")
    return HistogramBody(census, began, since, round_, codes, *masses)


def pack_control(message: Control) -> bytes:
    return _CONTROL.pack(CONTROL, VERSION, message.kind, message.incarnation, message.epoch)


def unpack_control(raw: bytes) -> Control:
    """The control message in these bytes; raises WireError if they are none."""
    if len(raw) != _CONTROL.size:
        raise WireError("size", f"{len(raw)} bytes")
    magic, version, kind, incarnation, epoch = _CONTROL.unpack(raw)
    check_beginning(magic, CONTROL, version)
    if not CUT <= kind <= STARTED or incarnation == 0 or epoch > MOST_NUMBER:
        raise WireError("range", f"kind {kind}, incarnation {incarnation}, epoch {epoch}")
    return Control(kind, incarnation, epoch)


def pack_edge(message: EdgeMessage) -> bytes:
    code = intervals_code(message.intervals)
    head = _EDGE.pack(EDGE, VERSION, message.kind, code, message.incarnation, message.epoch)
    return head + pack_intervals(message.intervals)


def unpack_edge(raw: bytes) -> EdgeMessage:
    """The edge message in these bytes; raises WireError if they are none."""
    if len(raw) < _EDGE.size:
        raise WireError("size", f"{len(raw)} bytes")
    magic, version, kind, code, incarnation, epoch = _EDGE.unpack_from(raw)
    check_beginning(magic, EDGE, version)
    n_intervals = code & ~ERRORS
    if not ASK <= kind <= KEEP or n_intervals > MOST_INTERVALS or incarnation == 0 or epoch > MOST_NUMBER:
        raise WireError("range", f"kind {kind} with {n_intervals} intervals, incarnation {incarnation}, epoch {epoch}")
    if len(raw) != _EDGE.size + n_intervals * PAIR.size:
        raise WireError("size", f"{len(raw)} bytes")
    return EdgeMessage(kind, incarnation, epoch, intervals_in(raw, _EDGE.size, code))


def intervals_code(intervals: AgentIntervals) -> int:
    """The number of intervals, and whether standard errors stand in place of radii."""
    return len(intervals) | (ERRORS if any(radius < 0.0 for _, radius in intervals) else 0)


def pack_intervals(intervals: AgentIntervals) -> bytes:
    return b"".join(PAIR.pack(center, abs(radius)) for center, radius in intervals)


def intervals_in(raw: bytes, at: int, code: int) -> AgentIntervals:
    """The intervals from this byte on, of which there are as many as the code says."""
    intervals = tuple(PAIR.unpack_from(raw, at + k * PAIR.size) for k in range(code & ~ERRORS))
    for center, radius in intervals:
        _check_number(center, "center", missing=True)
        if not radius >= 0.0:  # infinite before the first sample; NaN would be compared with nothing, and never cut
            raise WireError("value", f"radius {radius}")
    return tuple((center, -radius) for center, radius in intervals) if code & ERRORS else intervals


def check_beginning(magic: bytes, wanted: bytes, version: int) -> None:
    if magic != wanted:
        raise WireError("magic", f"{magic!r}")
    if version != VERSION:
        raise WireError("version", f"version {version}")


def _check_number(value: float, what: str, *, missing: bool) -> None:
    """Refuse a number that is not finite or too large; NaN is accepted where a value may be missing."""
    if not (abs(value) <= LARGEST or (missing and math.isnan(value))):
        raise WireError("value", f"{what} {value}")


def _checked_estimate(estimate: float, count: int) -> float:
    """An estimate may be NaN only before the first sample was used."""
    _check_number(estimate, "estimate", missing=count <= 1)
    return estimate
