"""The history of what is shown: bounded, and complete enough for viewers who come late or come back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colme.live.broadcast import LATE, MOST_FRAMES, MOST_NOTES, Broadcast
from colme.live.messages import end, note, pack
from tests.support.live_viewer import Told, messages_in


def start(run: Any = None, **more: Any) -> bytes:
    return pack({"kind": "start"} | ({} if run is None else {"run": run}) | more)


def published(*messages: bytes) -> Broadcast:
    broadcast = Broadcast()
    for message in messages:
        broadcast.publish(message)
    return broadcast


def frame(t: int, size: int = 0) -> bytes:
    return pack({"kind": "frame", "t": t}, {"mean": np.zeros(size)} if size else {})


def times(told: list[Told]) -> list[int]:
    return [each.head["t"] for each in told if each.kind == "frame"]


def test_a_viewer_gets_the_start_then_the_frames_in_order() -> None:
    told = messages_in(published(start(), frame(1), note("look"), frame(2), end()))
    assert [each.kind for each in told] == ["start", "frame", "note", "frame", "end"]
    assert [each.number for each in told] == sorted({each.number for each in told})


def test_a_new_run_replaces_the_old_one() -> None:
    for runs in ((1, 2), (None, None)):
        told = messages_in(published(start(runs[0]), frame(1), start(runs[1]), frame(7)))
        assert told[0].head.get("run") == runs[1] and times(told) == [7]


def test_a_start_of_the_same_run_keeps_the_frames() -> None:
    told = messages_in(published(start("a", n_agents=2), frame(1), start("a", n_agents=3), frame(2)))
    assert told[0].head["n_agents"] == 3 and times(told) == [1, 2]
    assert [each.kind for each in told].count("start") == 1


def test_whoever_lost_the_connection_at_any_moment_gets_the_rest() -> None:
    broadcast = published(start("a", n_agents=2), frame(1), start("a", n_agents=3), frame(2), frame(3))
    told = messages_in(broadcast)
    for got in range(1, len(told) + 1):
        rest = messages_in(broadcast, told[got - 1].number)
        assert times(told[:got] + rest) == [1, 2, 3]
        assert any(each.head.get("n_agents") == 3 for each in told[:got] + rest)


def test_whoever_comes_back_after_a_restart_gets_all_of_the_new_run() -> None:
    broadcast = published(start(1), frame(1), frame(2))
    last = messages_in(broadcast)[-1].number
    for message in (start(2), frame(5), frame(6)):
        broadcast.publish(message)
    assert len(messages_in(broadcast, 10**9)) == 3, "a number that was never given counts for nothing"
    told = messages_in(broadcast, last)
    assert told[0].head == {"kind": "start", "run": 2} and times(told) == [5, 6]


def test_the_history_is_thinned_but_for_its_newest_part() -> None:
    n = 5 * MOST_FRAMES
    kept = times(messages_in(published(start(), *map(frame, range(1, n + 1)))))
    assert MOST_FRAMES // 2 < len(kept) <= MOST_FRAMES and kept == sorted(kept)
    assert kept[0] == 1 and kept[-MOST_FRAMES // 3 :] == list(range(n - MOST_FRAMES // 3 + 1, n + 1))


def test_the_history_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colme.live.broadcast.MOST_FRAME_BYTES", 10_000)
    for size, n in ((100, 12), (2000, 1)):  # one frame beyond the bound is still shown
        frames = [frame(t, size) for t in range(1, 101)]
        kept = times(messages_in(published(start(), *frames)))
        assert n / 2 <= len(kept) <= n and kept[-1] == 100


def test_notes_are_bounded_and_survive_thinning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colme.live.broadcast.MOST_FRAMES", 4)
    broadcast = Broadcast()
    broadcast.publish(start())
    for t in range(100):
        broadcast.publish(note(str(t)))
        broadcast.publish(frame(t))
    notes = [each.head["text"] for each in messages_in(broadcast) if each.kind == "note"]
    assert notes == [str(t) for t in range(100 - MOST_NOTES, 100)]


def test_a_viewer_who_falls_behind_gets_the_newest_frame_and_every_note() -> None:
    broadcast = Broadcast()
    broadcast.publish(start())
    viewer = broadcast.viewer()
    assert broadcast.next_event(viewer) is not None
    for t in range(1, 3 * LATE):
        broadcast.publish(frame(t))
        if t == 5:
            broadcast.publish(note("look"))
    first, second = broadcast.next_event(viewer), broadcast.next_event(viewer)
    assert first is not None and b"look" in first.message
    assert second is not None and second.message == frame(3 * LATE - 1)
    assert broadcast.next_event(viewer) is None


def test_only_the_last_state_of_a_run_is_told() -> None:
    broadcast = Broadcast()
    broadcast.publish(start(1))
    for speed in (1, 2, 4):
        broadcast.publish(pack({"kind": "state", "paused": False, "speed": speed}))
    assert [each.head.get("speed") for each in messages_in(broadcast)] == [None, 4]
    broadcast.publish(start(2))
    assert [each.kind for each in messages_in(broadcast)] == ["start"]
