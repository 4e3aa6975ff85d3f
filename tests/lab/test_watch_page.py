"""The page of `colme watch` in a real browser: it follows the run, restarts it, and keeps to its policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from colme.lab.quick import flags_experiment
from colme.lab.watch import WatchSession, watched_run
from colme.live.broadcast import Broadcast
from colme.live.server import LiveServer
from tests.support.browser import complaints, requests_of, until

VIEW = "const view = document.querySelector('.colme-live')?.colme;"


@pytest.fixture
def server(browser: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    monkeypatch.setattr("colme.lab.watch.WATCH_FRAMES", 60)
    fields = {"n_agents": 30, "means": [0.0, 2.0], "steps": 200, "degree": 4}
    run = watched_run(flags_experiment(("cl-colme", "local"), [3], fields), chosen=True)
    session = WatchSession(run, Broadcast())
    with LiveServer(session.broadcast, session.control) as live, session:
        browser.get(live.url)
        until(browser, f"{VIEW} return view?.film?.frames.length > 0")
        yield live
        browser.get("about:blank")


def type_into(browser: Any, name: str, text: str) -> None:
    field = browser.find_element("css selector", f"form [name={name}]")
    field.clear()
    field.send_keys(text)
    browser.find_element("css selector", ".colme-restart").click()


def test_the_page_follows_the_run_and_loads_nothing_from_elsewhere(browser: Any, server: LiveServer) -> None:
    until(browser, f"{VIEW} return view.film.frames.at(-1).t === 200")
    assert complaints(browser) == []
    asked = [each for each in requests_of(browser) if each.startswith("http")]
    assert asked and all(each.startswith(server.url) for each in asked)


def test_a_restart_from_the_form_shows_the_new_run(browser: Any, server: LiveServer) -> None:
    type_into(browser, "n_agents", "50")
    until(browser, f"{VIEW} return view.film.start.n_agents === 50 && view.film.frames.length > 0")


def test_a_refused_value_is_read_on_the_page(browser: Any, server: LiveServer) -> None:
    type_into(browser, "delta", "2")
    until(browser, "return document.body.innerText.includes('it must be between 0 and 1')")
    until(browser, f"{VIEW} return view.film.frames.at(-1).t === 200")


def test_a_server_that_is_gone_is_missed(browser: Any, server: LiveServer) -> None:
    server.stop()
    until(browser, "return /The server has ended|connection is lost/.test(document.body.innerText)")
