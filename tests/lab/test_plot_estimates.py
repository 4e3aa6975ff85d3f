"""The figure and the page about a table show its numbers, say what they leave out, and trust no name."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from matplotlib.figure import Figure

from colme.data.fit import Candidate
from colme.data.read.table import Names
from colme.data.report.result import Result
from colme.errors import ColmeError
from colme.lab import plots
from colme.lab.estimate_page import MOST, chosen_agents, estimate_page, write_estimate_page
from colme.lab.plots.estimates import (
    ARROWS,
    LISTED,
    color_of,
    estimates_caption,
    estimates_table,
    plot_estimates,
)
from colme.lab.plots.output import as_image
from tests.support.made_results import made_result

NASTY = "<script>alert('x')</script> & $\\alpha$ \"q\""


def words_of(ax: Any) -> str:
    figure = ax.get_figure(root=True)
    figure.draw_without_rendering()
    return " ".join(text.get_text() for text in figure.findobj(match=lambda each: hasattr(each, "get_text")))


@pytest.mark.parametrize("n", [1, 2, LISTED])
def test_few_agents_are_listed_by_name_in_order_of_their_estimates(n: int) -> None:
    result = made_result(n)
    ax = plot_estimates(result)
    names = [label.get_text() for label in ax.get_yticklabels()]
    order = np.argsort(result.estimate, kind="stable")
    assert names == [f"sensor-{a} ({result.n[a]})" for a in order]
    own, estimates = ax.collections[-2:]
    assert np.allclose(own.get_offsets()[:, 0], result.mean[order])
    assert np.allclose(estimates.get_offsets()[:, 0], result.estimate[order])
    assert "90% interval" in words_of(ax)


@pytest.mark.parametrize("groups", [True, False])
@pytest.mark.parametrize("n", [LISTED + 1, 3000])
def test_many_agents_are_a_cloud_of_all_with_the_arrows_of_some(n: int, groups: bool) -> None:
    result = made_result(n, groups=groups)
    ax = plot_estimates(result)
    dots = ax.collections[0]
    assert len(dots.get_offsets()) == n and dots.get_rasterized() == (n > 2000)
    low, high = ax.get_xlim()
    assert ax.get_ylim() == (low, high)
    drawn, words = len(estimates_table(result)), " ".join(words_of(ax).split())
    assert drawn <= ARROWS
    assert f"Dots: all {n:,} agents. Arrows and intervals: {drawn} of them." in words
    outside = int(np.sum((result.mean < low) | (result.mean > high)))
    assert outside <= 0.01 * n + 2
    assert ("group 2:" in words) == groups


@pytest.mark.parametrize("n", [12, 200])
@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (25e6, 3e5), (1.7e9, 360.0), (3e13, 6e10), (0.0, 1e-10)])
def test_labels_of_large_numbers_do_not_overlap(shift: float, scale: float, n: int) -> None:
    result = made_result(n)
    columns = {name: shift + scale * (getattr(result, name) - 20) for name in ("mean", "estimate", "lower", "upper")}
    ax = plot_estimates(msgspec.structs.replace(result, **columns))
    figure = ax.get_figure(root=True)
    figure.draw_without_rendering()
    low, high = ax.get_xlim()
    shown = [label for label in ax.get_xticklabels() if low <= label.get_position()[0] <= high]
    boxes = [label.get_window_extent() for label in shown]
    assert len(boxes) >= 2 and len({label.get_text() for label in shown}) == len(shown)
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_groups_have_colors_that_do_not_repeat_soon() -> None:
    assert len({color_of(group) for group in range(-1, 12)}) == 13
    result = made_result(30)
    table = estimates_table(result)
    face = plot_estimates(result).collections[-1].get_facecolor()
    assert len({tuple(each) for each in np.asarray(face)}) == len(set(table["group"]))


def test_strange_results_can_be_drawn() -> None:
    whole = made_result(60)
    same = np.full(60, 3.0)
    for changes in (
        {"mean": same, "estimate": same, "lower": same, "upper": same},
        {"lower": np.full(60, -np.inf), "upper": np.full(60, np.inf)},
        {"mean": np.where(np.arange(60) == 5, np.nan, whole.mean)},
        {"group": np.arange(60)},
        {"names": Names("who", "$x_")},
    ):
        for n in (60, 20):
            fields = {name: getattr(whole, name) for name in Result.__struct_fields__}
            cut = {name: each[:n] for name, each in fields.items() if isinstance(each, np.ndarray)}
            cut |= {name: value if name == "names" else value[:n] for name, value in changes.items()}
            assert words_of(plot_estimates(msgspec.structs.replace(whole, **cut)))
    with pytest.raises(ColmeError, match=r"must be a result of colme\.estimate"):
        plot_estimates(3)  # type: ignore[arg-type]


def test_axes_may_be_given_and_files_are_whole(tmp_path: Path) -> None:
    figure = Figure()
    ax = figure.add_subplot()
    assert plot_estimates(made_result(12), ax) is ax
    heads = {".svg": b"<?xml", ".pdf": b"%PDF", ".png": b"\x89PNG"}
    for ending, head in heads.items():
        path = plots.write_figure(ax, tmp_path / f"f{ending}")
        assert path.read_bytes().startswith(head)
    assert len(list(tmp_path.iterdir())) == 3
    with pytest.raises(ColmeError, match=r"ending of a figure '.gif'"):
        plots.write_figure(ax, tmp_path / "f.gif")


def test_a_crowd_is_a_small_file() -> None:
    assert len(as_image(plot_estimates(made_result(50_000)), "x")) < 1_500_000


@pytest.mark.filterwarnings("error")
def test_names_with_dollars_long_names_and_missing_glyphs_are_drawn() -> None:
    result = made_result(6)
    result.agent[:] = ["$\\alpha$", "x" * 300, "日本語" * 9, "a\nb", "\u202egnp", "cost in $"]
    ax = plot_estimates(result)
    names = {label.get_text().rpartition(" ")[0] for label in ax.get_yticklabels()}
    assert {r"\$\alpha\$", "x" * 23 + "…", "a b", "�gnp", r"cost in \$"} <= names  # an escaped dollar starts no TeX
    assert as_image(ax, "x")
    figure = ax.get_figure(root=True)
    assert ax.get_window_extent().width > 0.35 * figure.bbox.width, "long names leave room for the data"


def test_known_groups_are_named_and_their_names_are_not_believed() -> None:
    names = ("$x$ <i>", "a very long name of a group indeed", "\u202eright")
    result = msgspec.structs.replace(made_result(60), group_names=names)
    drawn = " ".join(words_of(plot_estimates(result)).split())
    assert "$x$ <i>" in drawn and "a very long nam…" in drawn and "\u202e" not in drawn and "group 0" not in drawn
    page = estimate_page(result)
    assert "$x$ &lt;i&gt;" in page and "<i>" not in page and "\u202e" not in page


def test_the_caption_says_what_the_figure_shows() -> None:
    few, many = estimates_caption(made_result(12)), estimates_caption(made_result(3000, groups=False))
    assert "One line per agent" in few and "open circle" in few and "90% interval" in few
    assert "each of 3,000 agents" in many and "dotted line" in many
    result = made_result(3000, groups=False)
    assert f"For {len(estimates_table(result))} agents, evenly spaced" in many
    low, high = plot_estimates(result).get_xlim()
    outside = int(np.sum((result.mean < low) | (result.mean > high)))
    assert outside > 1 and f"{outside:,} own means lie outside the frame." in many
    endless = msgspec.structs.replace(result, lower=result.lower - np.inf, upper=result.upper + np.inf)
    assert "Unbounded intervals are not drawn." in estimates_caption(endless)


# The page


class Parsed(HTMLParser):
    """Tags that are open, rows and addresses."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts, self.rows, self.links = 0, 0, []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.rows += tag == "tr"
        self.links += [value for name, value in attributes if name in ("src", "href") and value]
        if tag not in ("meta", "input", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_says_everything() -> None:
    page = estimate_page(made_result(30, notes=("12 rows were left out.",)), command="colme estimate x.csv")
    parsed = Parsed(page)
    assert parsed.open == [] and parsed.scripts == 1 and parsed.rows == 30 + 1 + 3
    for words in ("69% less error", "3 groups.", "census (pooled variance)", "chosen", "12 rows were left out.",
                  "colme estimate x.csv", "sensor-17", "one sample", "90% interval"):  # fmt: skip
        assert words in page, words
    assert not [link for link in parsed.links if not link.startswith(("#", "data:"))]


def test_candidates_have_equally_many_digits() -> None:
    candidates = (Candidate("local", 1.0, 0.0), Candidate("pooled", 12.3456, 0.4567), Candidate("census", 0.3, 0.0213))
    page = estimate_page(made_result(9, candidates=candidates))
    for numbers in (("1.000", "0.000"), ("12.346", "0.457"), ("0.300", "0.021")):
        assert re.search(r">{}</td><td [^>]*>{}</td>".format(*map(re.escape, numbers)), page)


def test_no_name_of_the_user_is_believed() -> None:
    result = made_result(5, notes=(NASTY,), why=NASTY, groups_sentence=NASTY, faulty=(NASTY,), method=NASTY)
    result.agent[0] = NASTY
    result = msgspec.structs.replace(result, names=Names(NASTY, NASTY))
    page = estimate_page(result, command=NASTY)
    assert Parsed(page).scripts == 1 and "alert('x')</script>" not in page
    assert page.count("&lt;script&gt;") >= 7


def test_a_long_table_shows_some_and_says_so(tmp_path: Path) -> None:
    n = 5 * MOST
    result = made_result(n)
    flags = result.flags.copy()
    flags[[7, 4321]] = 4  # faulty
    result = msgspec.structs.replace(result, flags=flags)
    shown = chosen_agents(result)
    assert len(shown) == len(set(shown.tolist())) == MOST and {7, 4321} <= set(shown.tolist())
    path = write_estimate_page(result, tmp_path / "p.html", title="A title")
    page = path.read_text()
    assert "<h1>A title</h1>" in page and f"{MOST:,} of {n:,} agents: those with rare flags" in page
    assert Parsed(page).rows == MOST + 1 + 3 and len(page) < 3_000_000


def test_agents_can_be_searched_and_sorted(browser: Any, tmp_path: Path) -> None:
    result = made_result(50)
    browser.get(write_estimate_page(result, tmp_path / "p.html").as_uri())
    script = (
        "return [...document.querySelectorAll('#rows tr:not([hidden]) td:first-child')].map(cell => cell.textContent)"
    )
    browser.find_element("css selector", "#agents input").send_keys("sensor-1")
    names = browser.execute_script(script)
    assert names == [f"sensor-{k}" for k in range(50) if str(k).startswith("1")]
    browser.find_element("css selector", "#agents input").clear()
    browser.find_element("css selector", "#agents input").send_keys(" ")
    heads = {each.text.split()[0]: each for each in browser.find_elements("css selector", "#agents th")}
    heads["mean"].click()
    assert browser.execute_script(script) == [f"sensor-{a}" for a in np.argsort(-result.mean)]
    heads["mean"].click()
    assert browser.execute_script(script) == [f"sensor-{a}" for a in np.argsort(result.mean)]
    heads["agent"].click()
    assert browser.execute_script(script)[0] == "sensor-49"
    assert not re.search("undefined|NaN", browser.find_element("css selector", "main").text)


def test_long_names_keep_the_numbers_on_the_screen(browser: Any, tmp_path: Path) -> None:
    result = made_result(50)
    result.agent[:3] = ["x" * 300, "</script>" * 30, "\u202e" + "אבג" * 60]
    browser.set_window_size(1000, 800)
    browser.get(write_estimate_page(result, tmp_path / "p.html").as_uri())
    right = "return [...document.querySelectorAll('#rows tr')].map(row => row.cells[5].getBoundingClientRect().right)"
    assert max(browser.execute_script(right)) < browser.execute_script("return document.documentElement.clientWidth")
    result.agent[3] = "the store at the corner of a long street"
    browser.set_window_size(1400, 800)
    browser.get(write_estimate_page(result, tmp_path / "p.html", command="colme estimate " + "--flag " * 99).as_uri())
    fits = "const each = document.querySelector('{}'); return each.scrollWidth <= each.clientWidth"
    for selector in ("#rows tr:nth-child(4) td.name", "#agents .wide", "pre"):
        assert browser.execute_script(fits.format(selector)), selector
    name = "return document.querySelector('#rows td.name').title"
    assert browser.execute_script(name) == "x" * 300
