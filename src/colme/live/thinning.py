"""`ThinnedMessages`: what a view that comes late must be told, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from colme.live.messages import head_of

MOST_FRAMES = 600
MOST_BYTES = 32 * 2**20


class ThinnedMessages:
    """The newest start, frames, the newest note, and the end.

    Of more than `most_frames` frames, or `most_bytes` bytes, every second one of the older half is left out: old frames
    are further apart than new ones. The first and the newest frame are always there.
    """

    def __init__(self, most_frames: int = MOST_FRAMES, most_bytes: int = MOST_BYTES):
        self.most_frames, self.most_bytes = most_frames, most_bytes
        self._start: bytes | None = None
        self._run: Any = None
        self._frames: list[bytes] = []
        self._size = 0  # of the frames
        self._note: bytes | None = None
        self._end: bytes | None = None

    @property
    def n_frames(self) -> int:
        return len(self._frames)

    @property
    def ended(self) -> bool:
        return self._end is not None

    def messages(self) -> list[bytes]:
        """All of them, in an order in which they can be shown."""
        others = (self._start, *self._frames, self._note, self._end)
        return [each for each in others if each is not None]

    def add(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            self._add(message)
            while len(self._frames) > self.most_frames or (self._size > self.most_bytes and len(self._frames) > 2):
                self._thin()

    def _add(self, message: bytes) -> None:
        head = head_of(message)
        kind = head["kind"]
        if kind == "start":
            run = head.get("run")
            if run is None or run != self._run:  # it replaces everything
                self._frames, self._size, self._note = [], 0, None
            self._start, self._run, self._end = message, run, None
        elif kind == "frame":
            self._frames.append(message)
            self._size += len(message)
            self._end = None
        elif kind == "note":
            self._note = message
        elif kind == "end":
            self._end = message

    def _thin(self) -> None:
        half = max(2, len(self._frames) // 2)
        self._frames[1:half] = self._frames[2:half:2]
        self._size = sum(map(len, self._frames))
