"""The wire format: records survive a round trip, and invalid bytes are refused."""

from __future__ import annotations

import math
import random
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from colme.node.messages import membership, wire
from colme.node.messages.membership import MembershipMessage as Message
from colme.node.messages.membership import pack_membership, unpack_membership

NAN, INF = math.nan, math.inf
HELLO = wire.ConsensusBody(((0.25, 0.5),), 0.125, 7, 3)
ERRORS = wire.ConsensusBody(((0.25, -0.5),), 0.125, 7, 3)  # a standard error, for difference tests
THREE = wire.ConsensusBody(((0.25, 0.5), (1.5, INF), (NAN, 0.5)), 0.125, 7)
LOANS = wire.FlowBody(((0.25, 0.5),), -0.5, {wire.name_hash("a"): 0.25, wire.name_hash("b"): -1.5, 3: NAN})
VOTES = wire.HistogramBody(
    2, 10, 4, 3, np.array([-5, 0, 9]), np.array([0.25, 0.5, 0.25], np.float32), np.array([0.0, 1.0, 0.0], np.float32)
)  # fmt: skip
GUARDED = wire.GuardedBody(
    HELLO, 5, 10, 4, 3, 6, np.array([-0.5, 2.0, 3.0, 1.0, 1.0]), np.array([0.5, 1.0, 2.0, 0.0, 0.0])
)
VALUES = np.zeros(wire.SUMS, np.float32)
VALUES[wire.A][:3], VALUES[wire.B][:3], VALUES[-4:] = [6.0, 2.0, 0.0], [8.0, 4.0, 2.0], [1.0, 1.0, 0.5, 1.0]
SUMS = wire.SumsBody(5, 10, 4, 3, 6, VALUES)
RECORDS = {
    "local": wire.Record(1, 5, 4, 0.25, 6), "hello": wire.Record(2, 9, 9, 0.25, 6, HELLO),
    "errors": wire.Record(2, 9, 9, 0.25, 6, ERRORS),
    "no errors yet": wire.Record(1, 1, 0, NAN, 6, wire.ConsensusBody(((NAN, -INF),), NAN, 2)),
    "three": wire.Record(2, 9, 9, 0.25, 6, THREE), "loans": wire.Record(1, 5, 4, 0.25, 6, LOANS, turn=1),
    "votes": wire.Record(1, 5, 4, 0.25, 6, VOTES), "guarded": wire.Record(2, 9, 9, 0.25, 6, GUARDED),
    "guarded votes": wire.Record(2, 9, 9, 0.25, 6, msgspec.structs.replace(GUARDED, inner=VOTES)),
    "guard alone": wire.Record(1, 5, 4, 0.25, 6, msgspec.structs.replace(GUARDED, inner=None)),
    "sums": wire.Record(1, 5, 4, 0.25, 6, sums=SUMS), "guarded sums": wire.Record(2, 9, 9, 0.25, 6, GUARDED, sums=SUMS),
    "no sums": wire.Record(1, 5, 4, 0.25, 6, sums=msgspec.structs.replace(SUMS, values=0.0 * VALUES)),
    "own": wire.Record(1, 5, 4, 0.25, 6, wire.AnyBody([("all", {}), (None, {3: [1.5, None], 2**63: {"x": INF}})])),
    "nobody": wire.Record(1, 1, 0, NAN, 6, wire.ConsensusBody(((NAN, INF),), NAN, 2)),
}  # fmt: skip


def plain(record: wire.Record) -> str:
    """As text, for NaN is not equal to itself."""
    body: Any = record.body
    if isinstance(body, wire.GuardedBody):
        inner = plain(msgspec.structs.replace(record, body=body.inner))
        return f"{inner} {msgspec.structs.replace(body, inner=None)}"
    if isinstance(body, wire.HistogramBody):
        lists = {name: getattr(body, name).tolist() for name in ("codes", "values", "before")}
        body = msgspec.structs.replace(body, **lists)
    return repr(msgspec.structs.replace(record, body=body))


@pytest.mark.parametrize("name", RECORDS)
def test_what_goes_in_comes_out(name: str) -> None:
    record = RECORDS[name]
    raw = wire.pack(record)
    assert plain(wire.unpack(raw)) == plain(record)
    assert wire.pack(wire.unpack(raw)) == raw and len(raw) <= wire.MOST_BYTES


def test_a_census_of_too_many_bins_tells_its_largest() -> None:
    values = np.random.default_rng(0).permutation(2000).astype(np.float32)
    record = wire.Record(1, 5, 4, 0.25, 6, wire.HistogramBody(1, 1, 1, 1, np.arange(2000), values, values))
    body: Any = wire.unpack(wire.pack(record)).body
    assert len(body.codes) == wire.MOST_ITEMS and body.values.min() == 2000 - wire.MOST_ITEMS
    assert np.array_equal(values[body.codes], body.values)
    assert len(wire.pack(record)) <= wire.MOST_BYTES


def with_field(name: str, at: int, form: str, value: Any) -> bytes:
    raw = bytearray(wire.pack(RECORDS[name]))
    struct.pack_into(form, raw, at, value)
    return bytes(raw)


INTERVAL, BODY = 40, 56  # where they begin in "hello" and "loans"
WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "size"),
    "short": (wire.pack(RECORDS["hello"])[:-1], "size"),
    "long": (wire.pack(RECORDS["hello"]) + b"\0", "size"),
    "huge": (b"cmeR" + bytes(10**6), "version"),
    "magic": (with_field("hello", 0, "4s", b"cmeX"), "magic"),
    "a control message": (wire.pack_control(wire.Control(wire.CUT, 1, 2)) + bytes(40), "magic"),
    "version": (with_field("hello", 4, "B", 2), "version"),
    "kind": (with_field("hello", 5, "B", 4), "range"),
    "no intervals": (with_field("hello", 7, "B", 0), "range"),
    "many intervals": (with_field("hello", 7, "B", 4), "range"),
    "incarnation zero": (with_field("hello", 8, "<I", 0), "range"),
    "epoch": (with_field("hello", 12, "<Q", 2**63), "range"),
    "count": (with_field("hello", 20, "<Q", 2**63), "range"),
    "mean of nothing": (with_field("hello", 20, "<Q", 0), "value"),
    "mean absurd": (with_field("hello", 28, "<d", 1e31), "value"),
    "items": (with_field("loans", 38, "<H", 2000), "range"),
    "items of a hello": (with_field("hello", 38, "<H", 1), "range"),
    "fewer items than bytes": (with_field("loans", 38, "<H", 2), "size"),
    "radius": (with_field("hello", INTERVAL + 8, "<d", -1.0), "value"),
    "estimate absurd": (with_field("loans", BODY, "<d", -1e31), "value"),
    "restart before all": (with_field("hello", BODY + 8, "<q", -1), "range"),
    "restart to come": (with_field("hello", BODY + 8, "<q", 12), "range"),
    "twice": (with_field("loans", BODY + 8, "<Q", 3), "range"),
    "census": (with_field("votes", 40, "<Q", 2**63), "range"),
    "bins out of order": (with_field("votes", 72, "<q", 0), "range"),
    "round": (with_field("votes", 64, "<Q", 2**63), "range"),
    "sums left out": (wire.pack(RECORDS["guarded"])[:-112], "size"),
    "a head and half of the sums": (with_field("guard alone", 5, "B", 128)[:96], "size"),
    "sums that are not announced": (with_field("guarded", 5, "B", 1), "size"),
    "sums of dependence left out": (with_field("local", 5, "B", 64), "size"),
    "too few of them": (with_field("sums", 40 + 18 + 25, "B", 4), "size"),
    "too many": (wire.pack(RECORDS["sums"])[:40] + bytes(200) + with_field("sums", 83, "B", 19)[58:], "range"),
    "a share above one": (with_field("sums", 42, "<e", 1.5), "value"),
    "no ratio": (with_field("sums", 46, "<f", NAN), "value"),
    "a ratio below zero": (with_field("sums", 46, "<f", -1.0), "value"),
    "a ratio that no samples have": (with_field("sums", 46, "<f", 1e4), "value"),
    "weights absurd": (with_field("sums", -16, "<f", INF), "value"),
    "average": (with_field("sums", 58, "<Q", 2**63), "range"),
    "a guard around no kind": (with_field("guard alone", 5, "B", 133), "range"),
    "vote number": (with_field("guarded", 76, "<Q", 2**63), "range"),
    "vote round": (with_field("guarded", 100, "<Q", 2**63), "range"),
    "vote degree": (with_field("guarded", 108, "<Q", 2**63), "range"),
    "sum absurd": (with_field("guarded", 116, "<d", 1e151), "value"),
    "sum of squares": (with_field("guarded", 124, "<d", -1.0), "value"),
}


@pytest.mark.parametrize("case", WRONG)
def test_every_field_is_checked(case: str) -> None:
    raw, reason = WRONG[case]
    with pytest.raises(
        wire.WireError, match=r"^[^\n]*: that is not a message .*\. Refuse it and wait for the next\.$"
    ) as caught:
        wire.unpack(raw)
    assert caught.value.reason == reason and len(str(caught.value)) < 160


def float_fields(record: wire.Record) -> dict[str, tuple[int, str]]:
    """Where the floating-point numbers of a record are: name, (byte, format); from the docstring of `wire`."""
    found, body, end = {"mean": (28, "<d")}, record.body, len(wire.pack(record))
    if record.sums is not None:
        n, tail = int((record.sums.values[wire.B] > 0.0).sum()), 48
        end -= tail + 6 * n
        found |= {f"share {k}": (end + 2 * k, "<e") for k in range(n)}
        found |= {f"ratio {k}": (end + 2 * n + 4 * k, "<f") for k in range(n)}
        found |= {f"of weights {k}": (end + 6 * n + 28 + 4 * k, "<f") for k in range(5)}
    if isinstance(body, wire.GuardedBody):
        found |= {f"sum {k}": (end - 80 + 8 * k, "<d") for k in range(10)}
        body = body.inner
    intervals = getattr(body, "intervals", ())
    for k in range(len(intervals)):
        found |= {f"center {k}": (40 + 16 * k, "<d"), f"radius {k}": (48 + 16 * k, "<d")}
    at = 40 + 16 * len(intervals)
    if isinstance(body, wire.ConsensusBody | wire.FlowBody):
        found["estimate"] = (at, "<d")
    if isinstance(body, wire.FlowBody):
        found |= {f"flow {k}": (at + 16 + 16 * k, "<d") for k in range(len(body.flows))}
    if isinstance(body, wire.HistogramBody):
        n = len(body.codes)
        found |= {f"mass {k}": (at + 32 + 8 * n + 4 * k, "<f") for k in range(2 * n)}
    return found


MISSING = ("center", "flow")
"""What may be missing in a record of an agent with samples: a kurtosis that is not defined, the flow of a cut edge."""


@pytest.mark.parametrize("name", RECORDS)
def test_a_number_that_is_none_is_refused_in_every_field(name: str) -> None:
    """NaN and both infinities, in each floating-point field; but an infinite radius is an honest one."""
    record = RECORDS[name]
    fields = float_fields(record)
    assert len(fields) > 0
    for field, (at, form) in fields.items():
        for wrong in (NAN, INF, -INF):
            raw = with_field(name, at, form, wrong)
            may_be_missing = field.startswith(MISSING) or (field in ("mean", "estimate") and record.count == 0)
            if (wrong != wrong and may_be_missing) or (wrong == INF and field.startswith("radius")):
                wire.unpack(raw)
                continue
            with pytest.raises(wire.WireError) as caught:
                wire.unpack(raw)
            assert caught.value.reason == "value", (field, wrong)


AGENTS = (("pi-1", "tls/192.168.1.11:7447"), ("pi-2", None), ("pi-3", "tls/[fe80::1]:7447"))
EXAMPLE = Message(membership.INVITE, 2**32 - 1, ((0.25, 0.5), (NAN, INF)), AGENTS, 2)


def test_letters_come_out_as_they_went_in() -> None:
    for message in (EXAMPLE, Message(membership.LEAVE), Message(membership.PEERS, 7, (), AGENTS)):
        assert repr(unpack_membership(pack_membership(message))) == repr(message)
    assert len(pack_membership(Message(membership.LEAVE))) == 16
    long = tuple((f"{k}" * 60, "tls/" + f"{k}" * 100 + ":7447") for k in range(1, 10))
    raw = pack_membership(Message(membership.PEERS, 7, ((0.0, 1.0),), long, 8))
    told = unpack_membership(raw)
    assert len(raw) <= membership.MOST_MEMBERSHIP_BYTES and told.agents == long[:3] and told.near == 3


CONTROL = wire.Control(wire.CUT_HEARD, 3, 8)
EDGE = wire.EdgeMessage(wire.ASK, 3, 8, ((0.25, 0.5), (1.5, INF)))
PLUS_INF, MINUS_ONE, NOT_A_NUMBER = (struct.pack("<d", value) for value in (INF, -1.0, NAN))
# (a whole message, how it is read, what is changed at which byte and why that is refused)
Change = tuple[int, bytes, str]
SHORT: dict[str, tuple[bytes, Callable[[bytes], object], list[Change]]] = {
    "control": (
        wire.pack_control(CONTROL), wire.unpack_control,
        [(0, b"cmeR", "magic"), (4, b"\x09", "version"), (5, b"\5", "range"), (6, bytes(4), "range")],
    ),
    "edge": (
        wire.pack_edge(EDGE), wire.unpack_edge,
        [(0, b"cmeC", "magic"), (4, b"\2", "version"), (5, b"\0", "range"), (5, b"\5", "range"), (6, b"\4", "range"),
         (6, b"\1", "size"), (8, bytes(4), "range"), (12, b"\xff" * 8, "range"), (20, PLUS_INF, "value"),
         (28, NOT_A_NUMBER, "value"), (28, MINUS_ONE, "value")],
    ),
    "membership": (
        pack_membership(EXAMPLE), unpack_membership,
        [(0, b"cmeC", "magic"), (4, b"\2", "version"), (5, b"\0", "range"), (5, b"\x0a", "range"),
         (6, b"\4", "range"), (6, b"\1", "value"), (7, b"\2", "size"), (7, b"\4", "value"), (7, b"\x09", "range"),
         (8, b"\4", "range"), (16, PLUS_INF, "value"), (24, MINUS_ONE, "value"), (24, NOT_A_NUMBER, "value"),
         (40, NOT_A_NUMBER, "value"), (48, b"\0", "value"), (48, b"\xff", "value"), (49, b"/", "value"),
         (49, b"\xc3", "value"), (54, b"x", "value")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "change"), [(kind, change) for kind in SHORT for change in SHORT[kind][2]], ids=str)
def test_every_field_of_a_short_message_is_checked(kind: str, change: Change) -> None:
    raw, read, _ = SHORT[kind]
    at, value, reason = change
    with pytest.raises(wire.WireError) as caught:
        read(raw[:at] + value + raw[at + len(value) :])
    assert caught.value.reason == reason


@pytest.mark.parametrize("kind", SHORT)
def test_a_short_message_has_its_length(kind: str) -> None:
    raw, read, _ = SHORT[kind]
    assert repr(read(raw)) == repr({"control": CONTROL, "edge": EDGE, "membership": EXAMPLE}[kind])
    for wrong in (b"", raw[:-1], raw + b"\0", raw[:20][:-1], raw + bytes(600)):
        with pytest.raises(wire.WireError):
            read(wrong)


LETTERS = [EXAMPLE, Message(membership.FIND_PEERS, 1, (), AGENTS[:1]), Message(membership.ACCEPT, 1)]
PACKED = {name: wire.pack(record) for name, record in RECORDS.items()}
FUZZED: dict[str, tuple[int, bytes, list[bytes], Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    "records": (40_000, b"cmeR", [raw for name, raw in PACKED.items() if name != "own"], wire.unpack, wire.pack),
    "records of a method of one's own": (20_000, b"cmeR", [PACKED["own"]], wire.unpack, wire.pack),
    "membership": (20_000, b"cmeL", [pack_membership(each) for each in LETTERS], unpack_membership, pack_membership),
}


@pytest.mark.parametrize("kind", FUZZED)
def test_messages_that_are_random_mutilated_or_spliced_are_refused_or_as_good_as_any(kind: str) -> None:
    rng, tally = random.Random(1), Counter[str]()
    n, magic, whole, read, write = FUZZED[kind]
    for k in range(n):
        raw = bytearray(rng.choice(whole))
        if k % 4 == 0:
            raw = bytearray(magic + rng.randbytes(rng.randrange(200)))
        elif k % 4 == 1:
            raw = raw[: rng.randrange(len(raw))] + rng.choice(whole)[rng.randrange(16) :]
        for _ in range(rng.randrange(4)):
            if raw:
                raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            again = write(read(bytes(raw)))
        except wire.WireError as error:
            tally[error.reason] += 1
            continue
        tally["accepted"] += 1
        assert write(read(again)) == again
    assert set(tally) == {"accepted", "size", "magic", "version", "range", "value"}
    assert tally["accepted"] > 1000
