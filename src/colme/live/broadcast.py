"""`Broadcast`: the messages of what is shown, kept for viewers who come, fall behind or come back."""

from __future__ import annotations

import bisect
import threading
from dataclasses import dataclass
from typing import NamedTuple

from colme.live.messages import head_of

MOST_FRAMES = 600
"""Frames that are kept; of more, every second one of the older half is dropped."""
MOST_FRAME_BYTES = 32 << 20
"""Bytes of the frames that are kept, likewise."""
MOST_NOTES = 20
"""Notes, and ends, that are kept."""
LATE = 20
"""A viewer who is so many frames behind gets the newest one instead."""


class Event(NamedTuple):
    """A message. With `number` as its last one, a viewer gets what follows when it comes back."""

    number: int
    kind: str
    message: bytes


_NO_EVENT = Event(0, "", b"")


@dataclass
class Viewer:
    """What a viewer has: all messages up to `seen`. It misses nothing up to `known`, the newest when it came."""

    seen: int = 0
    known: int = 0
    start: int = 0
    state: int = 0


class Broadcast:
    """The start, the frames and the notes of the current run, for any number of viewers.

    `publish` takes no time: it neither sends anything nor waits for anybody. A viewer is a position in the history that
    all share, and asks for what follows, so that a slow one costs no memory. Messages are numbered from 1 on, also
    through new runs; a start with the same `run` as the last one continues it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest = 0
        self._start = self._state = _NO_EVENT
        self._run: object = None
        self._run_began = 0
        self._history: list[Event] = []

    def publish(self, message: bytes) -> None:
        """Keep a message, and wake the viewers."""
        head = head_of(message)
        kind, run = str(head["kind"]), head.get("run")
        with self._changed:
            self._newest += 1
            kept = Event(self._newest, kind, message)
            if kind == "start":
                if run is None or run != self._run:
                    self._history, self._state, self._run_began = [], _NO_EVENT, kept.number
                self._start, self._run = kept, run
            elif kind == "state":
                self._state = kept
            else:
                self._history.append(kept)
                self._thin()
            self._changed.notify_all()

    def messages(self) -> list[bytes]:
        """All that a new viewer is told, in an order in which it can be shown."""
        with self._changed:
            kept = (self._start, self._state, *self._history)
            return [each.message for each in kept if each.number]

    @property
    def n_frames(self) -> int:
        with self._changed:
            return sum(kept.kind == "frame" for kept in self._history)

    def viewer(self, last: int | None = None) -> Viewer:
        """A viewer; `last` is the number of the last event that it got when it was here before."""
        with self._changed:
            seen = 0 if last is None or not self._run_began <= last <= self._newest else last
            return Viewer(seen=seen, known=self._newest, start=seen)

    def next_event(self, viewer: Viewer, timeout: float = 0.0) -> Event | None:
        """What the viewer gets next: the start, where it lacks it, then the state, then what follows in the history;
        None if there is nothing after `timeout` seconds, or if the viewers were woken."""
        with self._changed:
            event = self._next(viewer)
            if event is None and timeout > 0:
                self._changed.wait(timeout)
                event = self._next(viewer)
            return event

    def wake(self) -> None:
        """Let all who wait look around."""
        with self._changed:
            self._changed.notify_all()

    def _next(self, viewer: Viewer) -> Event | None:
        if viewer.start < self._start.number:
            # The number is not that of the start: a run that was continued has older frames, which come next.
            viewer.seen, viewer.start = max(viewer.seen, self._run_began), self._start.number
            return self._start._replace(number=viewer.seen)
        if viewer.state < self._state.number:
            viewer.state = self._state.number
            return self._state._replace(number=viewer.seen)
        rest = self._history[bisect.bisect_right(self._history, viewer.seen, key=lambda kept: kept.number) :]
        if not rest:
            return None
        late = [kept for kept in rest if kept.kind == "frame" and kept.number > viewer.known]
        if len(late) > LATE and rest[0].number > viewer.known:
            rest = [kept for kept in rest if kept.kind != "frame" or kept is late[-1]]
        viewer.seen = rest[0].number
        return rest[0]

    def _thin(self) -> None:
        """Leave out the oldest note of too many, and every second one of the older half of too many frames."""
        notes = [each.number for each in self._history if each.kind != "frame"]
        frames = [each for each in self._history if each.kind == "frame"]
        while len(frames) > 1 and (
            len(frames) > MOST_FRAMES or sum(len(each.message) for each in frames) > MOST_FRAME_BYTES
        ):
            del frames[slice(1, (len(frames) + 1) // 2, 2) if len(frames) > 2 else slice(0, 1)]
        left = {*notes[-MOST_NOTES:], *(each.number for each in frames)}
        if len(left) < len(self._history):
            self._history = [each for each in self._history if each.number in left]
