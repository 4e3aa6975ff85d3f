"""The page of a stream, in a real browser: feeds that stall, tabs that sleep, two viewers, hostile names of a fleet."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import colme
from colme.live import server as server_module
from colme.live.broadcast import Broadcast
from colme.live.fleet_feed import Answer, FleetFeed, Statement
from colme.live.messages import end, note, pack
from colme.live.page import asset
from colme.live.server import LiveServer
from colme.live.simulation import SimulationFeed
from tests.support.browser import complaints, requests_of, resize, until
from tests.support.live_messages import feed_of

VIEW = "const view = document.querySelector('.colme-live').colme;"
STATUS = "document.querySelector('.colme-status').textContent"
HOSTILE = "</script><img src=x onerror=document.body.innerHTML='taken'>"

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def desktop(browser: Any) -> None:
    resize(browser, 1280)


def feed(n_frames: int = 40) -> SimulationFeed:
    scenario = colme.Scenario(n_agents=30, means=(0.0, 1.0))
    return feed_of([colme.CLColME()], scenario, 10 * n_frames, n_frames, degree=4)


def publish(broadcast: Broadcast, some: SimulationFeed, n: int) -> None:
    for _ in range(n):
        broadcast.publish(some.next_frame())


def test_a_feed_that_stalls_is_said_to_stall_until_it_goes_on(browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = lambda name: asset(name).replace("const STALLED = 15;", "const STALLED = 1;")  # noqa: E731
    monkeypatch.setattr(server_module, "asset", hasty)
    monkeypatch.setattr(server_module, "ALIVE_SECONDS", 1000.0)
    broadcast, some = Broadcast(), feed()
    with LiveServer(broadcast) as server:
        broadcast.publish(some.start(run=1))
        publish(broadcast, some, 2)
        browser.get(server.url)
        until(browser, f"return {STATUS}.includes('the feed has stalled')")
        publish(broadcast, some, 1)
        until(browser, f"{VIEW} return view.film.frames.length === 3")
        assert "stalled" not in browser.execute_script(f"return {STATUS}")


def test_a_tab_that_slept_shows_the_newest_frame_when_it_wakes(browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colme.live.broadcast.MOST_FRAMES", 50)
    broadcast, some = Broadcast(), feed(300)
    with LiveServer(broadcast) as server:
        broadcast.publish(some.start(run=1))
        publish(broadcast, some, 3)
        browser.get(server.url)
        until(browser, f"{VIEW} return view.film.frames.length === 3")
        browser.execute_cdp_cmd("Page.setWebLifecycleState", {"state": "frozen"})
        while not some.done:
            publish(broadcast, some, 1)
        browser.execute_cdp_cmd("Page.setWebLifecycleState", {"state": "active"})
        browser.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})  # else it stays hidden
        until(browser, f"{VIEW} return view.current.t === {some.t}")
        steps = browser.execute_script(f"{VIEW} return view.film.frames.map(frame => frame.t)")
        assert steps == sorted(set(steps)) and browser.execute_script(f"{VIEW} return view.following")


def test_who_scrubs_back_is_not_carried_forward(browser: Any) -> None:
    broadcast, some = Broadcast(), feed()
    with LiveServer(broadcast) as server:
        broadcast.publish(some.start(run=1))
        publish(broadcast, some, 10)
        browser.get(server.url)
        until(browser, f"{VIEW} return view.position === 9")
        browser.execute_script(f"{VIEW} view.seek(3)")
        publish(broadcast, some, 5)
        until(browser, f"{VIEW} return view.film.frames.length === 15")
        assert browser.execute_script(f"{VIEW} return view.position") == 3
        newest = browser.find_element("css selector", ".colme-newest")
        assert newest.is_displayed()
        newest.click()
        until(browser, f"{VIEW} return view.position === 14 && view.following")


CONTROLS: dict[str, Any] = {"paused": False, "speed": 1.0, "fields": [
    {"name": "method", "label": "method", "kind": "choice", "value": "cl-colme", "choices": ["cl-colme", "local"]},
    {"name": "degree", "label": "degree", "kind": "number", "value": "4"},
    {"name": "seed", "label": "seed", "kind": "number", "value": "0"},
]}  # fmt: skip


def test_notes_stay_while_frames_come(browser: Any) -> None:
    broadcast, some = Broadcast(), feed()
    with LiveServer(broadcast) as server:
        broadcast.publish(some.start(run=1))
        for text in ("one", "two", "one"):
            broadcast.publish(note(text))
        publish(broadcast, some, 5)
        browser.get(server.url)
        until(browser, f"{VIEW} return view.film.frames.length === 5")
        publish(broadcast, some, 1)
        until(browser, f"{VIEW} return view.film.frames.length === 6")
        assert [each.text for each in browser.find_elements("css selector", ".colme-notes li")] == ["two", "one"]
        broadcast.publish(feed().start(run=2))
        until(browser, f"{VIEW} return view.notes.children.length === 0")


def test_a_paused_simulation_is_seen_to_be_paused_before_its_first_frame(browser: Any) -> None:
    broadcast, some = Broadcast(), feed()
    with LiveServer(broadcast, dict) as server:
        broadcast.publish(some.start(run=1, controls=CONTROLS))
        broadcast.publish(pack({"kind": "state", "paused": True, "speed": 4.0}))
        browser.get(server.url)
        until(browser, f"{VIEW} return view.holdButton?.textContent === 'Resume simulation'")
        assert (
            browser.find_element("css selector", "select[aria-label='simulation speed']").get_attribute("value") == "4"
        )
        assert browser.find_element("css selector", ".colme-restart").is_displayed()
        assert "Waiting for the first frame" in browser.execute_script(f"return {STATUS}")


def test_a_restart_by_somebody_else_leaves_what_is_being_typed(browser: Any) -> None:
    broadcast, some = Broadcast(), feed()
    with LiveServer(broadcast, dict) as server:
        broadcast.publish(some.start(run=1, controls=CONTROLS))
        publish(broadcast, some, 2)
        browser.get(server.url)
        until(browser, f"{VIEW} return view.film.frames.length === 2")
        field = browser.find_element("css selector", "form [name=degree]")
        field.clear()
        field.send_keys("6")
        fields = [each | ({"value": "9"} if each["kind"] == "number" else {}) for each in CONTROLS["fields"]]
        broadcast.publish(feed().start(run=2, controls=CONTROLS | {"fields": fields}))
        until(browser, f"{VIEW} return view.film.start.run === 2")
        values = browser.execute_script(f"{VIEW} return [...view.form.querySelectorAll('input')].map(e => e.value)")
        assert values == ["6", "9"]
        assert browser.execute_script("return document.activeElement.name") == "degree"


def test_the_sentence_ends_at_the_last_step_and_says_that_the_server_has_ended(browser: Any) -> None:
    broadcast, some = Broadcast(), feed()
    with LiveServer(broadcast) as server:
        broadcast.publish(some.start(run=1))
        browser.get(server.url)
        until(browser, f"return {STATUS}.startsWith('Waiting')")
        publish(broadcast, some, len(some.steps))
        broadcast.publish(end())
        until(browser, f"return {STATUS} === 'The run has ended.'")
        until(browser, f"{VIEW} return !view.dirty")
        said = browser.execute_script(f"{VIEW} return [view.clock.textContent, view.summary.textContent.split('.')[0]]")
        assert said == ["step 400", "At step 400"]
    until(browser, f"return {STATUS}.startsWith('The server has ended.')")


def test_keys_work_without_a_click_first(browser: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    broadcast, some = Broadcast(), feed()
    with LiveServer(broadcast) as server:
        broadcast.publish(some.start(run=1))
        publish(broadcast, some, 6)
        browser.get(server.url)
        until(browser, f"{VIEW} return view.position === 5")
        assert browser.execute_script("return document.activeElement === document.body")
        ActionChains(browser).send_keys(Keys.ARROW_LEFT).perform()
        assert browser.execute_script(f"{VIEW} return [view.position, scrollX, scrollY]") == [4, 0, 0]


def test_names_of_a_fleet_are_text(browser: Any) -> None:
    named = [HOSTILE, "\u202edlrow\u202c", "x" * 10_000, "pi-1"]

    def poll() -> list[Answer]:
        rows = [{"name": name, "fresh": True, "mean": 1.0, "estimate": 1.0, "age": 0.1, "samples": 3} for name in named]
        status = {"name": "pi-0", "mean": 1.0, "estimate": 1.1, "lower": 0.5, "upper": 1.5, "samples": 4,
                  "neighbors": 4, "neighbor_rows": rows, "cut_names": [HOSTILE + "2"], "refused": {}}  # fmt: skip
        return [Answer("pi-0", Statement.parse(status)), Answer("gone", None)]

    broadcast, fleet = Broadcast(), FleetFeed(title=HOSTILE, clock=itertools.count().__next__)
    with LiveServer(broadcast) as server:
        requests_of(browser), complaints(browser)
        for _ in range(3):
            for message in fleet.messages(poll()):
                broadcast.publish(message)
        browser.get(server.url)
        until(browser, f"{VIEW} return view.film.frames.length === 3 && view.table.textContent.includes('pi-0')")
        for i in range(7):
            browser.execute_script(f"{VIEW} view.pinned = true; view.select({i})")
            until(browser, f"{VIEW} return !view.dirty")
        shown = browser.execute_script(f"{VIEW} return view.root.innerText")
        assert "onerror" in shown and "\u202e" not in shown
        assert browser.execute_script("return document.images.length") == 0
        assert browser.execute_script("return document.body.innerHTML") != "taken"
        assert all(url.startswith((server.url, "data:")) for url in requests_of(browser))
        assert complaints(browser) == []
        assert "does not answer" in " ".join(
            browser.execute_script(f"{VIEW} view.choose('gone'); return view.about(view.selected).flat()")
        )


def test_who_looks_back_stays_at_that_moment_when_frames_are_thinned_out(browser: Any) -> None:
    broadcast, fleet = Broadcast(), FleetFeed(clock=itertools.count().__next__)
    with LiveServer(broadcast) as server:
        browser.get(server.url)
        until(browser, f"{VIEW} return view?.film")
        for turn in range(1210):
            for message in fleet.messages([Answer("ann", Statement.parse({"mean": 1.0}))]):
                broadcast.publish(message)
            if turn == 100:
                until(browser, f"{VIEW} return view.film.frames.length > 90")
                t = browser.execute_script(f"{VIEW} view.seek(50); return view.current.t")
            if turn % 10 == 0:
                until(browser, f"{VIEW} return view.film.frames.at(-1)?.t >= {turn}")
        until(browser, f"{VIEW} return view.film.frames.at(-1).t >= 1209 && view.film.frames.length < 1000")
        assert abs(browser.execute_script(f"{VIEW} return view.current.t") - t) <= 1
