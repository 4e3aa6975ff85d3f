"""The wire format between hosts: frames survive a round trip, and invalid bytes are refused."""

from __future__ import annotations

import random
import struct
from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest

from colme.node.hosts import frame
from colme.node.hosts.frame import HELLO, LOANS, Cuts, Frame, pack_cuts, pack_frame, unpack_cuts, unpack_frame
from colme.node.messages.wire import CUT, CUT_HEARD, LARGEST, WireError

NAN, INF = np.nan, np.inf


def rows(kind: int) -> dict[str, Any]:
    found = {
        "mean": np.array([0.25, NAN, -1.5]), "radius": np.array([0.5, INF, 0.0]),
        "estimate": np.array([0.125, NAN, 2.5], np.float32), "degree": np.array([3, 0, 2]),
        "agent": np.array([0, 7, 9]),
    }  # fmt: skip
    clock = {"restart": np.array([2, 2, 11]), "generation": np.array([0, 0, 4])}
    return found | clock if kind == HELLO else found


ITEMS = {
    "flow": np.array([0.25, -3.0]), "row": np.array([0, 2]), "host": np.array([5, 2**32 - 1]),
    "neighbor": np.array([1, 2]),
}  # fmt: skip
FRAMES = {
    "hello": Frame(HELLO, 2, 9, 3, rows(HELLO), {}, turn=1),
    "loans": Frame(LOANS, 1, 5, 0, rows(LOANS), ITEMS),
    "empty": Frame(HELLO, 1, 1, 0, {name: column[:0] for name, column in rows(HELLO).items()}, {}),
}
RADIUS, RESTART, ESTIMATE, AGENT = 32 + 24, 32 + 48, 32 + 72, 32 + 96  # where columns of "hello" begin
FLOW, ROW = 32 + 84, 32 + 84 + 16  # and of "loans"


def plain(found: Frame) -> Any:
    """As lists of text, for NaN is not equal to itself."""
    head = msgspec.structs.replace(found, rows={}, items={})
    return head, *({name: repr(column.tolist()) for name, column in each.items()} for each in (found.rows, found.items))


@pytest.mark.parametrize("name", FRAMES)
def test_what_goes_in_comes_out(name: str) -> None:
    raw = pack_frame(FRAMES[name])
    found = unpack_frame(raw)
    assert plain(found) == plain(FRAMES[name]) and pack_frame(found) == raw
    n, n_items = len(found.rows["agent"]), len(found.items.get("row", ()))
    assert len(raw) == 32 + (40 * n if found.kind == HELLO else 28 * n + 20 * n_items)


def test_cuts_go_in_and_out() -> None:
    cuts = Cuts(CUT_HEARD, 3, 8, np.array([1, 2], np.uint32), np.array([9, 2**32 - 1], np.uint32))
    found = unpack_cuts(pack_cuts(cuts))
    assert (found.kind, found.incarnation, found.epoch) == (CUT_HEARD, 3, 8)
    assert found.mine.tolist() == [1, 2] and found.yours.tolist() == [9, 2**32 - 1]


def with_field(name: str, at: int, form: str, value: Any) -> bytes:
    raw = bytearray(pack_frame(FRAMES[name]))
    struct.pack_into(form, raw, at, value)
    return bytes(raw)


WRONG: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "size"),
    "short": (pack_frame(FRAMES["hello"])[:-1], "size"),
    "long": (pack_frame(FRAMES["hello"]) + b"\0", "size"),
    "huge": (pack_frame(FRAMES["hello"]) + bytes(frame.MOST_BYTES), "size"),
    "magic": (with_field("hello", 0, "4s", b"cmeR"), "magic"),
    "version": (with_field("hello", 4, "B", 2), "version"),
    "kind": (with_field("hello", 5, "B", 3), "range"),
    "filling": (with_field("hello", 7, "B", 1), "range"),
    "incarnation zero": (with_field("hello", 8, "<I", 0), "range"),
    "part": (with_field("hello", 12, "<I", frame.MOST_PARTS), "range"),
    "agents": (with_field("hello", 16, "<I", 2), "size"),
    "many agents": (with_field("hello", 16, "<I", 2**32 - 1), "range"),
    "items of a hello": (with_field("hello", 20, "<I", 1), "range"),
    "items": (with_field("loans", 20, "<I", 1), "size"),
    "epoch": (with_field("hello", 24, "<Q", 2**63), "range"),
    "mean infinite": (with_field("hello", 32, "<d", INF), "value"),
    "mean absurd": (with_field("hello", 32, "<d", -1e31), "value"),
    "radius negative": (with_field("hello", RADIUS, "<d", -0.5), "value"),
    "radius missing": (with_field("hello", RADIUS, "<d", NAN), "value"),
    "restart before all": (with_field("hello", RESTART, "<q", -1), "range"),
    "restart to come": (with_field("hello", RESTART, "<q", 12), "range"),
    "estimate absurd": (with_field("hello", ESTIMATE, "<f", 1e31), "value"),
    "agents out of order": (with_field("hello", AGENT, "<I", 8), "range"),
    "an agent twice": (with_field("hello", AGENT, "<I", 7), "range"),
    "flow missing": (with_field("loans", FLOW, "<d", NAN), "value"),
    "flow absurd": (with_field("loans", FLOW, "<d", 1e31), "value"),
    "an edge of nobody": (with_field("loans", ROW, "<I", 3), "range"),
}


@pytest.mark.parametrize("case", WRONG)
def test_every_field_is_checked(case: str) -> None:
    raw, reason = WRONG[case]
    with pytest.raises(WireError) as caught:
        unpack_frame(raw)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("at", "form", "value", "reason"),
    [(0, "4s", b"cmeC", "magic"), (4, "B", 2, "version"), (5, "B", 3, "range"), (6, "<H", 1, "range"),
     (8, "<I", 0, "range"), (12, "<I", 3, "size"), (12, "<I", 2**31, "size"), (16, "<Q", 2**63, "range")],
)  # fmt: skip
def test_cuts_are_checked_too(at: int, form: str, value: Any, reason: str) -> None:
    pair = np.array([1, 2], np.uint32)
    raw = bytearray(pack_cuts(Cuts(CUT, 1, 2, pair, pair)))
    struct.pack_into(form, raw, at, value)
    with pytest.raises(WireError) as caught:
        unpack_cuts(bytes(raw))
    assert caught.value.reason == reason


def test_fuzz() -> None:
    """Frames and cuts that are random, mutilated or spliced: refused in one way, or as good as any."""
    rng, tally = random.Random(1), Counter[str]()
    whole = [pack_frame(each) for each in FRAMES.values()]
    whole.append(pack_cuts(Cuts(CUT, 1, 2, np.arange(3, dtype=np.uint32), np.arange(3, dtype=np.uint32))))
    for k in range(20_000):
        raw = bytearray(rng.choice(whole))
        if k % 8 == 0:
            raw = bytearray(rng.randbytes(rng.randrange(200)))
        elif k % 8 == 1:
            raw = raw[: rng.randrange(len(raw))] + rng.choice(whole)[rng.randrange(40) :]
        for _ in range(rng.randrange(4)):
            if raw:
                raw[rng.randrange(len(raw))] = rng.randrange(256)
        read: Any = unpack_cuts if raw[:4] == frame.CUTS else unpack_frame
        try:
            found = read(bytes(raw))
        except WireError as error:
            tally[error.reason] += 1
            continue
        tally["accepted"] += 1
        assert found.incarnation > 0
        if isinstance(found, Frame):
            assert np.nanmax(np.abs(found.rows["mean"]), initial=0.0) <= LARGEST
            assert plain(unpack_frame(pack_frame(found))) == plain(found)
    assert set(tally) == {"accepted", "size", "magic", "version", "range", "value"}
    assert tally["accepted"] > 1000 and tally["value"] > 100, tally
