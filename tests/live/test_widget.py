"""The widget: what a view reads when it is made, and what it is sent afterwards."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from colme.errors import ColmeError, MissingExtra
from colme.live import widget as widget_module
from colme.live.messages import end, head_of, pack
from colme.live.widget import LiveWidget
from tests.support.live_messages import messages_in


@pytest.fixture(autouse=True)
def renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renderer that does nothing."""
    monkeypatch.setattr(widget_module, "asset", lambda name: f"/* {name} */")


class FakeBrowser:
    """What a browser knows of a widget: the newest recording, and views that hear messages from when they are made."""

    def __init__(self, widget: LiveWidget, monkeypatch: pytest.MonkeyPatch):
        self.widget = widget
        self.views: list[list[bytes]] = []
        self.n_sent = 0
        monkeypatch.setattr(widget, "send", self._sent)

    def _sent(self, content: Any, buffers: list[bytes]) -> None:
        assert content == {"kind": "messages"}
        self.n_sent += len(buffers)
        for view in self.views:
            view += buffers

    def open(self, recording: bytes | None = None) -> list[bytes]:
        """A new view, which may have read an old recording."""
        view = messages_in(self.widget.recording if recording is None else recording)
        self.views.append(view)
        self.widget._handle_custom_msg({"kind": "ready"}, [])
        return view


def start(run: str = "a") -> bytes:
    return pack({"kind": "start", "run": run})


def frame(t: int, size: int = 0) -> bytes:
    return pack({"kind": "frame", "t": t, "more": "x" * size})


def times(messages: list[bytes]) -> list[int]:
    """The times of all frames, in order, each once."""
    return sorted({head["t"] for head in map(head_of, messages) if head["kind"] == "frame"})


def kinds(messages: list[bytes]) -> list[str]:
    return [head_of(message)["kind"] for message in messages]


def test_the_recording_holds_all_messages_from_the_beginning() -> None:
    given = [start(), frame(1), frame(2), end()]
    widget = LiveWidget(given, height=300)
    assert messages_in(widget.recording) == given
    assert (widget._esm, widget._css, widget.height) == ("/* live.js */", "/* live.css */", 300)


def test_a_view_of_a_finished_run_is_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    browser = FakeBrowser(LiveWidget([start(), frame(1), end()]), monkeypatch)
    assert times(browser.open()) == [1]
    assert browser.n_sent == 0


@pytest.mark.parametrize("n_before", [1, 9, 40, 333])
def test_a_view_that_comes_late_loses_nothing_whichever_recording_it_read(
    n_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    widget = LiveWidget([start()])
    browser, old = FakeBrowser(widget, monkeypatch), widget.recording
    for t in range(1, n_before + 1):
        widget.publish(frame(t))
    for recording in (old, widget.recording):
        assert times(browser.open(recording)) == list(range(1, n_before + 1))


def test_the_recording_follows_without_being_sent_with_every_frame() -> None:
    widget, n_set = LiveWidget([start()]), []
    widget.observe(n_set.append, names="recording")
    for t in range(1, 501):
        widget.publish(frame(t))
        assert len(times(messages_in(widget.recording))) >= 0.85 * t
    assert len(n_set) < 100


def test_the_recording_is_whole_at_the_end() -> None:
    widget = LiveWidget([start()])
    widget.publish(*(frame(t) for t in range(1, 100)))
    widget.publish(frame(100), end())
    assert messages_in(widget.recording) == widget.messages
    assert times(widget.messages)[-1] == 100


def test_the_recording_is_whole_when_the_widget_is_closed() -> None:
    widget = LiveWidget([start()])
    for t in range(1, 100):
        widget.publish(frame(t))
    for _ in range(2):
        widget.close()
        widget.publish(frame(100))  # nothing more is taken
        assert widget.closed.is_set()
    assert times(messages_in(widget.recording)) == list(range(1, 100))


def test_threads_may_publish_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    widget = LiveWidget([start()])
    view = FakeBrowser(widget, monkeypatch).open()

    def publish(first: int) -> None:
        for t in range(first, 400, 4):
            widget.publish(frame(t))

    threads = [threading.Thread(target=publish, args=(first,)) for first in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert times(view) == times(widget.messages) == list(range(400))


@pytest.mark.parametrize("height", [0, -5, 1e9, "tall", True])
def test_an_impossible_height_is_refused(height: Any) -> None:
    with pytest.raises(ColmeError, match=r"height=.*Try height=640"):
        LiveWidget(height=height)


def test_save_writes_a_page_of_all_messages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pages: list[tuple[Path, list[bytes]]] = []
    write = lambda path, messages: pages.append((path, list(messages))) or path  # noqa: E731
    monkeypatch.setattr(widget_module, "write_page", write)
    given = [start(), frame(1), end()]
    assert LiveWidget(given).save(tmp_path / "page.html") == tmp_path / "page.html"
    assert pages == [(tmp_path / "page.html", given)]


def test_without_anywidget_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import colme

    trace = colme.simulate(colme.Local(), colme.Scenario(n_agents=4, means=(0.0,)), steps=2)
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "colme.live.widget")
    with pytest.raises(MissingExtra, match=r"needs anywidget.*notebook"):
        trace.live()
    with pytest.raises(MissingExtra, match=r"needs anywidget.*notebook"):
        colme.CollaborativeMean().live()
