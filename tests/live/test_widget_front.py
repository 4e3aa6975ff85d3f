"""The notebook's side of the widget, in a real browser: the renderer with a model as anywidget hands it over."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

import colme
from colme.live.page import asset, compressed
from colme.live.simulation import frame_steps
from tests.support.browser import complaints, requests_of, until
from tests.support.live_messages import feed_of

MODEL = """
class Model {
  constructor(values) { this.values = values; this.heard = []; this.listeners = []; }
  get(name) { return this.values[name]; }
  on(event, listener) { if (event === "msg:custom") this.listeners.push(listener); }
  off(event, listener) { this.listeners = this.listeners.filter((each) => each !== listener); }
  send(content) { this.heard.push(content); }
  say(buffer) { for (const each of this.listeners) each({ kind: "messages" }, [new DataView(buffer)]); }
}
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
"""
VIEW = "const view = window.root.firstChild.colme;"

pytestmark = pytest.mark.slow


def test_a_view_in_a_notebook_shows_the_recording_then_what_comes(browser: Any, tmp_path: Path) -> None:
    scenario = colme.Scenario(n_agents=50, means=(0.0, 1.0))
    feed = feed_of([colme.CLColME()], scenario, 50, 6, degree=4)
    first = [feed.start(), feed.next_frame(), feed.next_frame()]
    later = [feed.next_frame(), feed.next_frame()]
    recording = base64.b64encode(compressed(first)).decode()
    script = asset("live.js").replace("export default { render };", "") + MODEL + f"""
    const recording = bytes("{recording}");
    window.model = new Model({{ recording: new DataView(recording.buffer), height: 500 }});
    window.root = document.getElementById("root");
    window.close_ = render({{ model: window.model, el: window.root }});
    window.bytes = bytes;
    """  # fmt: skip
    page = tmp_path / "page.html"
    page.write_text(
        f'<!doctype html><style>{asset("live.css")}</style><div id="root"></div><script type="module">{script}</script>'
    )
    complaints(browser), requests_of(browser)
    browser.get(page.as_uri())
    until(browser, "return window.root?.firstChild?.colme?.film.frames.length === 2 && window.model.heard.length === 1")
    assert browser.execute_script("return window.model.heard") == [{"kind": "ready"}]
    assert "500px" in browser.execute_script("return window.root.firstChild.style.getPropertyValue('--colme-height')")
    for message in [later[0], *first[1:], *later]:  # twice is once
        browser.execute_script(
            "window.model.say(window.bytes(arguments[0]).buffer)", base64.b64encode(message).decode()
        )
    assert browser.execute_script(f"{VIEW} return view.film.frames.map(f => f.t)") == [
        int(each) for each in frame_steps(50, 6)[:4]
    ]
    until(browser, f"{VIEW} return view.position === 3")  # it follows
    assert requests_of(browser) == [page.as_uri()] and complaints(browser) == []
    browser.execute_script("window.close_()")
    assert browser.execute_script("return window.model.listeners.length") == 0
