"""A page that plays a run, in a real browser: the numbers that it shows, its controls, and what it must not do."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colme
from colme.live.messages import end, pack, to_codes
from colme.live.page import asset, page, write_page
from colme.live.simulation import frame_steps
from tests.support.browser import complaints, requests_of, resize, until
from tests.support.live_messages import feed_of, split

SCENARIO = colme.Scenario(n_agents=300, means=(0.0, 1.0), sigma=0.7)
METHOD = colme.CLColME(delta=0.1, level="agent", step=0.05, clock="global")
STEPS = 300
ROOT = Path(__file__).parents[2]
VIEW = "const view = document.querySelector('.colme-live').colme;"
HOSTILE = (
    "</script><img src=x onerror=document.body.innerHTML='taken'>",
    "‮evil‬",
    "x" * 10_000,
    "<b>bold</b>",
    "a\x00b\n",
)
COLUMNS = {  # frame k, panel 0: what the renderer makes of the codes
    "estimate": "view.film.frames[k].panels[0].estimate",
    "mean": "view.film.frames[k].columns.mean",
}


def opened(browser: Any, path: Path, n_frames: int | None = None) -> None:
    """Open a page and wait until all its frames are there and it stands still at the first one."""
    resize(browser, 1280)
    browser.get(path.as_uri())
    until(browser, "return document.querySelector('.colme-live')?.colme?.clouds.length > 0")
    if n_frames is not None:
        until(browser, f"{VIEW} return view.film.frames.length === {n_frames}")
    browser.execute_script(f"{VIEW} view.seek(0)")


def ask(browser: Any, script: str) -> Any:
    return browser.execute_script(f"{VIEW} {script}")


def read(number: str) -> float:
    """A number as the page writes it."""
    return float(number.replace("\N{MINUS SIGN}", "-"))


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ask(browser, "view.root.focus()")
    for key in keys:
        ActionChains(browser).send_keys(key).perform()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    feed = feed_of([METHOD], SCENARIO, STEPS, 40, seed=3, degree=6, title="A run")
    return write_page(tmp_path_factory.mktemp("live") / "page.html", feed.messages(), title="A run")


@pytest.fixture(scope="module")
def n_frames() -> int:
    return len(frame_steps(STEPS, 40))


@pytest.mark.slow
def test_frames_have_the_numbers_of_the_trace(browser: Any, path: Path, n_frames: int) -> None:
    opened(browser, path, n_frames)
    steps = ask(browser, "return view.film.frames.map(frame => frame.t)")
    assert steps == frame_steps(STEPS, 40).tolist()
    for k in (0, n_frames // 2, n_frames - 1):
        trace = colme.simulate(METHOD, SCENARIO, degree=6, steps=steps[k], seed=3)
        shown = {
            name: np.array(ask(browser, f"const k = {k}; return Array.from({{length: 300}}, (_, i) => {where}.at(i))"))
            for name, where in COLUMNS.items()
        }
        for name, exact in (("estimate", trace.final.estimate), ("mean", trace.final.mean)):
            half_a_code = 0.5 * np.ptp(exact) / 65534
            assert np.abs(shown[name] - exact).max() <= half_a_code * (1 + 1e-9)
        alive = ask(browser, f"const f = view.film.frames[{k}]; return Array.from({{length: 300}}, (_, i) => "
                             "view.film.neighbors(f, 0, i).sort((a, b) => a - b))")  # fmt: skip
        assert alive == [sorted(map(int, trace.final.graph.neighbors(a))) for a in range(300)]
        metrics = ask(browser, f"return view.film.frames[{k}].panels[0].metrics")
        for name in ("mse", "local_mse", "oracle_mse", "wrong_edges"):
            assert metrics[name] == getattr(trace, name)[-1]


@pytest.mark.slow
def test_an_agent_is_described_as_in_the_trace(browser: Any, path: Path, n_frames: int) -> None:
    opened(browser, path, n_frames)
    trace = colme.simulate(METHOD, SCENARIO, degree=6, steps=STEPS, seed=3)
    ask(browser, "view.seek(view.last); view.choose('17')")
    until(browser, f"{VIEW} return view.details.textContent.includes('neighbors')")
    rows = dict(ask(browser, "return view.about(17)"))
    final = trace.final
    assert final.truth is not None and final.class_ is not None
    assert rows["agent"] == "17" and rows["class"] == str(final.class_[17])
    assert float(rows["true mean"]) == final.truth[17]
    assert read(rows["own mean"]) == pytest.approx(final.mean[17], abs=1e-3)
    assert read(rows["estimate"]) == pytest.approx(final.estimate[17], abs=1e-3)
    near = sorted(int(b) for b in final.graph.neighbors(17))
    assert rows["neighbors"].startswith(f"{len(near)}: {', '.join(map(str, near[:8]))}" if near else "none")
    low, high = (read(each) for each in rows["interval"].split(" to "))
    assert low < final.mean[17] < high


@pytest.mark.slow
def test_the_sentence_and_the_clock_tell_the_same_moment_while_it_plays(
    browser: Any, path: Path, n_frames: int
) -> None:
    opened(browser, path, n_frames)
    pairs = browser.execute_async_script(
        f"{VIEW} const done = arguments[0], seen = []; view.play(); const look = () => {{ "
        "seen.push([view.clock.textContent, view.summary.textContent]); "
        "if (view.playing && seen.length < 40) requestAnimationFrame(look); else done(seen); }; look();"
    )
    assert len({clock for clock, _ in pairs}) > 1
    assert all(sentence.startswith(f"At {clock}.") for clock, sentence in pairs)


@pytest.mark.slow
def test_the_keyboard_moves_through_time(browser: Any, path: Path, n_frames: int) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, path, n_frames)
    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert ask(browser, "return view.position") == 2
    press(browser, Keys.END)
    assert ask(browser, "return [view.position, view.playing]") == [n_frames - 1, False]
    press(browser, Keys.HOME, Keys.SPACE)
    until(browser, f"{VIEW} return view.playing && view.position > 1")
    press(browser, Keys.SPACE)
    assert ask(browser, "return [view.playing, Number.isInteger(view.position)]") == [False, True]
    press(browser, "c", "l", "d")
    assert ask(browser, "return [view.colorBy, view.log, view.theme]") == ["group", False, "dark"]
    press(browser, "]", "]")
    assert ask(browser, "return view.selected") == 1
    press(browser, Keys.ESCAPE, "+")
    assert ask(browser, "return [view.selected, view.speed]") == [-1, 2]


@pytest.mark.slow
def test_the_controls_do_what_they_say(browser: Any, path: Path, n_frames: int) -> None:
    from selenium.webdriver.support.ui import Select

    opened(browser, path, n_frames)
    find = lambda selector: browser.find_element("css selector", selector)  # noqa: E731
    assert find(".colme-play").text == "Play"
    find(".colme-play").click()
    until(browser, f"{VIEW} return view.position > 0")
    assert find(".colme-play").text == "Pause"
    find(".colme-play").click()
    browser.execute_script(
        "const s = document.querySelector('.colme-scrubber'); s.value = 7; s.dispatchEvent(new Event('input'))"
    )
    until(browser, f"return document.querySelector('.colme-clock').textContent === 'step {frame_steps(STEPS, 40)[7]}'")
    assert find(".colme-scrubber").get_attribute("aria-valuetext") == f"step {frame_steps(STEPS, 40)[7]}"
    Select(find(".colme-settings select[aria-label=color]")).select_by_value("group")
    Select(find(".colme-settings select[aria-label=speed]")).select_by_value("4")
    assert ask(browser, "return [view.colorBy, view.speed]") == ["group", 4]
    find(".colme-agent").send_keys("12\n")
    assert ask(browser, "return [view.selected, view.pinned]") == [12, True]
    find(".colme-agent").clear()
    find(".colme-agent").send_keys("nobody\n")
    assert "no agent “nobody”" in find(".colme-status").text


@pytest.mark.slow
def test_pointing_at_an_agent_describes_it(browser: Any, path: Path, n_frames: int) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    opened(browser, path, n_frames)
    ask(browser, "view.seek(view.last)")
    until(browser, f"{VIEW} return view.graphs[0].sx && view.clouds[0].places")
    until(browser, f"{VIEW} return view.graphs[0].heat <= 0.02")  # it stands still
    for picture, place in (
        ("view.graphs[0]", "[p.sx(p.place[i]), p.sy(p.place[i])]"),
        ("view.clouds[0]", "[p.width - p.margin.right + 8 + (p.margin.right - 16) * ((i * 0.61803398875) % 1), "
                           "p.places[i]]"),
    ):  # fmt: skip
        where = lambda i: np.array(ask(browser, f"const p = {picture}, i = {i}; return {place}"))  # noqa: B023, E731
        canvas = ask(browser, f"return {picture}.canvas")
        offset = where(5) - [canvas.size["width"] / 2, canvas.size["height"] / 2]
        ActionChains(browser).move_to_element_with_offset(canvas, *offset).perform()
        (found,) = until(browser, f"{VIEW} return view.selected >= 0 && [view.selected]")
        assert np.abs(where(found) - where(5)).max() < 4  # it, or another one at the same place
        ask(browser, "view.select(-1)")


def test_nothing_is_asked_for_and_nothing_is_wrong(browser: Any, path: Path, n_frames: int) -> None:
    browser.get("about:blank")
    requests_of(browser), complaints(browser)
    opened(browser, path, n_frames)
    ask(browser, "view.play()")
    until(browser, f"{VIEW} return !view.playing")
    assert requests_of(browser) == [path.as_uri()]
    assert complaints(browser) == []


@pytest.mark.slow
def test_the_policy_of_the_page_lets_nothing_else_run_or_load(browser: Any, path: Path, n_frames: int) -> None:
    opened(browser, path, n_frames)
    complaints(browser)
    browser.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.taken = true'; document.body.append(s);"
        "const i = document.createElement('img'); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i);"
    )
    until(browser, "return document.images.length === 1")
    assert browser.execute_script("return window.taken") is None
    refused = complaints(browser)
    assert sum("Content Security Policy" in each for each in refused) == 2


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (700, True), (390, False)])
@pytest.mark.slow
def test_the_page_fits_the_window(browser: Any, path: Path, n_frames: int, width: int, dark: bool) -> None:
    opened(browser, path, n_frames)
    resize(browser, width, dark=dark)
    until(browser, f"{VIEW} view.dirty = true; return innerWidth === {width}")
    until(browser, f"{VIEW} return !view.dirty")
    assert ask(browser, "return document.documentElement.scrollWidth <= innerWidth")
    paper = ask(browser, "return getComputedStyle(view.root).backgroundColor")
    assert (paper == "rgb(18, 22, 28)") is dark


@pytest.mark.slow
def test_pictures_are_not_blank(browser: Any, path: Path, n_frames: int) -> None:
    opened(browser, path, n_frames)
    ask(browser, "view.seek(view.last)")
    until(browser, f"{VIEW} return !view.dirty && view.curves.x !== undefined")
    for picture in ("view.clouds[0]", "view.graphs[0]", "view.curves"):
        colors = ask(browser, f"const p = {picture}, {{width, height}} = p.canvas;"
                              "const d = p.pen.getImageData(0, 0, width, height).data;"
                              "const seen = new Set(); for (let i = 0; i < d.length; i += 4) if (d[i + 3])"
                              "seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return seen.size")  # fmt: skip
        assert colors > 20


@pytest.mark.slow
def test_what_a_screen_reader_hears(browser: Any, path: Path, n_frames: int) -> None:
    opened(browser, path, n_frames)
    ask(browser, "view.seek(view.last)")
    said = browser.find_element("css selector", ".colme-summary")
    assert said.get_attribute("aria-live") == "polite"
    assert re.fullmatch(r"At step 300\. CL-colME: the error is [\d.,]+ times smaller than alone, [\d.]+ % of the edges "
                        r"between classes are left\.", said.text)  # fmt: skip
    for canvas in browser.find_elements("css selector", "canvas"):
        assert canvas.get_attribute("role") == "img" and canvas.get_attribute("aria-label")
    unnamed = browser.execute_script(
        "return [...document.querySelectorAll('input, select, button')].filter(e => !e.textContent.trim() && "
        "!e.getAttribute('aria-label') && !e.labels?.length).length"
    )
    assert unnamed == 0


@pytest.mark.parametrize("offset", [1013.0, 1e9])
@pytest.mark.slow
def test_numbers_that_differ_little_are_written_apart(browser: Any, tmp_path: Path, offset: float) -> None:
    near = colme.Scenario(n_agents=40, means=(offset, offset + 1), sigma=0.3)
    opened(browser, write_page(tmp_path / "p.html", feed_of([METHOD], near, 50, 9, degree=4).messages()))
    until(browser, f"{VIEW} return view.clouds[0].y")
    ticks = ask(browser, "return view.clouds[0].y.ticks(8).map(([, text]) => text)")
    assert len(set(ticks)) == len(ticks) > 2
    values = [float(each.replace(",", "")) for each in ticks]
    assert min(values) < offset + 1 and max(values) > offset
    rows = dict(ask(browser, "view.seek(view.last); return view.about(3)"))
    assert rows["true mean"].replace(",", "") in (f"{offset:.0f}", f"{offset + 1:.0f}")
    low, high = (float(each.replace(",", "")) for each in rows["interval"].split(" to "))
    assert offset - 1 < low < high < offset + 2


@pytest.mark.slow
def test_a_scenario_whose_means_move_shows_the_new_ones(browser: Any, tmp_path: Path) -> None:
    moving = colme.Scenario(
        n_agents=40, means=(0.0, 1.0), sigma=0.5, shift_step=50, shift_means=(2.0, 3.0), skip_rate=0.2
    )
    feed = feed_of([colme.Census()], moving, 100, 20, degree=4)
    opened(browser, write_page(tmp_path / "p.html", feed.messages()))
    until(browser, f"{VIEW} return view.film.frames.length === {len(frame_steps(100, 20))}")
    first, last = (ask(browser, f"return view.film.truth(view.film.frames.at({k}), 0)") for k in (0, -1))
    assert last - first == pytest.approx(2.0, abs=1e-3)
    counts = ask(browser, "return Array.from(view.film.frames.at(-1).columns.count.codes)")
    trace = colme.simulate(colme.Census(), moving, degree=4, steps=100)
    assert counts == trace.final.count.tolist()
    rows = dict(ask(browser, "view.seek(view.last); return view.about(3)"))
    assert trace.final.lower is not None and trace.final.upper is not None
    low, high = (read(each) for each in rows["interval"].split(" to "))
    assert low < read(rows["estimate"]) < high


@pytest.mark.slow
def test_many_agents_are_drawn_as_a_density_of_all(browser: Any, tmp_path: Path) -> None:
    many = colme.Scenario(n_agents=100_000, means=(0.0, 1.0), sigma=0.5)
    feed = feed_of([METHOD], many, 30, 10, degree=6)
    written = write_page(tmp_path / "p.html", feed.messages())
    assert written.stat().st_size < 1_000_000
    opened(browser, written, len(frame_steps(30, 10)))
    counted = ask(browser, "return view.film.frames.at(-1).panels[0].density.codes.reduce((a, b) => a + b, 0)")
    assert 99_000 < counted <= 100_000
    assert ask(browser, "return [view.film.nAgents, view.film.start.n_agents]") == [2000, 100_000]
    assert "2,000 of 100,000" in ask(browser, "let said = ''; const p = view.graphs[0], write = p.pen.fillText;"
                                              "p.pen.fillText = text => { said += text }; p.draw(0, false);"
                                              "p.pen.fillText = write; return said")  # fmt: skip


def hostile_messages(names: tuple[str, ...]) -> Iterator[bytes]:
    n = len(names)
    edges = np.array([[i, (i + 1) % n] for i in range(n)], np.uint32).reshape(-1)
    panels = [{"label": names[0], "color": names[0], "graph": True, "cuts": True}]
    head = {"kind": "start", "version": 1, "title": names[0], "unit": "seconds", "log": False, "last": None,
            "n_agents": n, "window": None, "panels": panels, "names": names}  # fmt: skip
    yield pack(head, {"edges": edges})
    for t in range(5):
        values = to_codes(np.arange(n) + 0.1 * t)
        rows = [{"name": each, names[0]: each, "samples": t} for each in names]
        yield pack(
            {"kind": "frame", "t": float(t), "panels": [{}], "rows": rows},
            {"mean": values, "0/estimate": values, "0/group": np.zeros(n, np.uint8), "state": np.ones(n, np.uint8),
             "0/alive": np.packbits(np.ones(n, bool), bitorder="little")},
        )  # fmt: skip
    yield pack({"kind": "note", "text": names[0]})
    yield end()


@pytest.mark.slow
def test_a_damaged_recording_is_said_to_be_damaged(browser: Any, path: Path, tmp_path: Path) -> None:
    html = path.read_text()
    data = re.search(r'id="recording">([^<]*)<', html)
    assert data is not None
    half = data[1][: len(data[1]) // 2 // 4 * 4]
    torn = tmp_path / "torn.html"
    torn.write_text(html.replace(data[1], half))
    browser.get(torn.as_uri())
    said = until(
        browser,
        "const s = document.querySelector('.colme-status'); return s?.dataset.kind === 'error' && s.textContent",
    )
    assert said.startswith("The recording is damaged") and said.endswith("Make the page again.")


def test_a_page_holds_its_recording_and_nothing_that_ends_it_early() -> None:
    messages = list(hostile_messages(HOSTILE))
    html = page(iter(messages), title=HOSTILE[0])
    assert html.count("<script") == html.count("</script>") == 2
    data = re.search(r'id="recording">([^<]*)<', html)
    assert data is not None and list(split(zlib.decompress(base64.b64decode(data[1])))) == messages
    shown = (ROOT / "docs" / "live" / "cl_colme.html").read_text(encoding="utf-8")
    assert asset("live.js") in shown, "make the page of docs/live.md again"
    assert "http" not in asset("live.js").replace("http-equiv", "") and "http" not in asset("live.css")
