"""`LiveWidget`: the live view in a notebook.

The recording so far is a trait of the widget, so that a saved notebook shows it without a kernel. Sending all of it
with every frame would cost too much: new messages are sent one by one, and the recording is set anew when a tenth has
been added, at the end, and when the widget is closed. A view reads the recording when it is made, and then says that it
is ready. It may have read an old recording, and missed messages between that and its own beginning. So it is then sent
all messages, unless none came after the first recording. Nothing is lost, and the renderer keeps one frame for each t.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from colme.errors import missing_extra, whole
from colme.live.broadcast import Broadcast
from colme.live.messages import head_of
from colme.live.page import asset, compressed, write_page

try:
    import anywidget
    import traitlets
except ImportError:
    raise missing_extra("anywidget", "notebook", "trace.live()") from None

GROWTH = 0.1
"""The recording is set anew when this share has been added to it."""


class LiveWidget(anywidget.AnyWidget):
    """A view of messages (`colme.live.messages`): those given, and those that are published later.

    height  in pixels

    Of many frames, or large ones, every second one of the older half is left out, again and again.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    recording = traitlets.Bytes().tag(sync=True)
    """All messages so far, joined and compressed with zlib."""
    height = traitlets.Int(640).tag(sync=True)

    def __init__(self, messages: Iterable[bytes] = (), *, height: int = 640):
        self._lock = threading.RLock()
        self._kept = Broadcast()
        self.closed = threading.Event()  # nothing can be published from then on
        self._added, self._since = False, 0  # whether messages were published, how many since the recording was set
        pixels = whole(height, "height", "height=640", low=100, high=10_000)
        for message in messages:
            self._kept.publish(message)
        recording = compressed(self.messages)
        super().__init__(_esm=asset("live.js"), _css=asset("live.css"), recording=recording, height=pixels)
        self.on_msg(self._heard)

    @property
    def messages(self) -> list[bytes]:
        """The messages so far, without the frames that were left out."""
        return self._kept.messages()

    def publish(self, *messages: bytes) -> None:
        """Show further messages; any thread may call it."""
        with self._lock:
            if self.closed.is_set() or not messages:
                return
            for message in messages:
                self._kept.publish(message)
            self._added, self._since = True, self._since + len(messages)
            self.send({"kind": "messages"}, buffers=list(messages))
            if self._since > GROWTH * self._kept.n_frames or head_of(messages[-1])["kind"] == "end":
                self._set_recording()

    def save(self, path: str | Path) -> Path:
        """Write what is shown as a page of its own, which any browser can open."""
        return write_page(path, self.messages)

    def close(self) -> None:
        with self._lock:
            if self._since:
                self._set_recording()
            self.closed.set()
        super().close()

    def _set_recording(self) -> None:
        self.recording, self._since = compressed(self.messages), 0

    def _heard(self, _: Any, content: Any, buffers: Any) -> None:
        """A view says something."""
        with self._lock:
            if isinstance(content, dict) and content.get("kind") == "ready" and self._added:
                self.send({"kind": "messages"}, buffers=self.messages)
