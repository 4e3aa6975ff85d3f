"""The report as a reader sees it: in a real browser, without a network."""

from __future__ import annotations

import base64
import html
import io
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colme import lab
from colme.lab.experiment_page import html_of, write_report
from colme.lab.figures import Subject, draw, subject_of
from colme.lab.rows import final_rows
from colme.methods import skeleton
from tests.support.browser import complaints, requests_of, resize, until

EXPERIMENT: dict[str, Any] = {
    "title": "A <small> experiment & its page",
    "about": "Two paragraphs.\n\nThe second one has <b>brackets</b>.",
    "seeds": 3,
    "steps": 300,
    "scenario": {"n_agents": 400, "means": [0.0, 1.0], "sigma": 0.7},
    "methods": [
        {"method": "cl-colme", "level": ["agent", "edge"], "step": 0.1, "clock": "global"},
        {"method": "c-colme", "level": ["agent", "edge"], "clock": "global"},
        {"method": "local"},
        {"method": "oracle"},
    ],
    "expected": [
        {"method": "local", "t": 300, "value": 0.7**2 / 300, "source": "theory"},
        {"method": "CL-colME", "where": {"level": "agent"}, "metric": "wrong_edges", "below": 0.5, "value": 30},
        {"method": "C-colME", "where": {"level": "agent"}, "metric": "time_ratio", "value": 1.2},
    ],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    lab.run(EXPERIMENT, results=folder, jobs=1)
    return folder / "experiment"


def subject_with(folder: Path, methods: list[dict[str, Any]], **keys: Any) -> Subject:
    """The experiment with other methods and keys, after few steps of one seed."""
    table = EXPERIMENT | {"seeds": 1, "steps": 30, "expected": [], "methods": methods} | keys
    lab.run(table, results=folder, jobs=1)
    return subject_of(folder / "experiment")


@pytest.fixture(scope="module")
def report(results: Path) -> Path:
    page, _ = write_report(subject_of(results))
    return page


def test_the_page_asks_for_nothing_but_itself(browser: Any, report: Path) -> None:
    requests_of(browser)
    browser.get(report.as_uri())
    assert browser.title == "A <small> experiment & its page"
    inside = ("data:", "about:srcdoc")
    assert [url for url in requests_of(browser) if not url.startswith(inside)] == [report.as_uri()]
    assert complaints(browser) == []


def test_a_run_can_be_played_in_the_report(browser: Any, report: Path) -> None:
    browser.get(report.as_uri())
    frame = browser.find_element("css selector", "figure#live iframe")
    assert frame.get_attribute("sandbox") == "allow-scripts"
    browser.switch_to.frame(frame)
    ended = "const v = document.querySelector('.colme-live')?.colme; return v?.current?.t === v?.film.start?.last"
    until(browser, ended)
    steps = browser.execute_script("return document.querySelector('.colme-live').colme.film.frames.map(f => f.t)")
    assert steps[0] == 1 and steps[-1] == EXPERIMENT["steps"]
    browser.switch_to.default_content()


@pytest.mark.parametrize("width", [1280, 700, 390])
def test_the_page_fits_the_window(browser: Any, report: Path, width: int) -> None:
    resize(browser, width)
    browser.get(report.as_uri())
    inner, wide = browser.execute_script("return [innerWidth, document.documentElement.scrollWidth]")
    assert inner == width and wide <= inner
    for figure in browser.find_elements("css selector", "figure img"):
        assert 0.5 * min(width, 640) < figure.size["width"] <= width and figure.size["height"] > 60


def test_every_figure_is_there_and_not_blank(browser: Any, report: Path) -> None:
    from PIL import Image

    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(report.as_uri())
    names = [figure.get_attribute("id") for figure in browser.find_elements("css selector", "figure")]
    assert names == ["live", "mse", "density", "graph", "wrong_edges", "error_rate", "time"]
    for picture in browser.find_elements("css selector", "figure img"):
        assert picture.get_attribute("alt")
        pixels = np.asarray(Image.open(io.BytesIO(picture.screenshot_as_png)).convert("RGB")).reshape(-1, 3)
        assert len(np.unique(pixels, axis=0)) > 20 and 0.01 < (pixels.min(axis=1) < 200).mean() < 0.9


def test_numbers_behind_a_figure_can_be_saved_from_the_page(browser: Any, report: Path, results: Path) -> None:
    browser.get(report.as_uri())
    link = browser.find_element("css selector", "figure#mse a.download")
    kind, _, data = link.get_attribute("href").partition(",")
    assert kind == "data:text/csv;base64" and link.get_attribute("download") == "mse.csv"
    from colme.lab import plots
    from colme.lab.plots.output import csv_of

    table = plots.curves(lab.load(results), "mse")
    assert base64.b64decode(data) == csv_of(table)


def test_the_page_prints(browser: Any, report: Path) -> None:
    browser.get(report.as_uri())
    pdf = base64.b64decode(browser.print_page())
    assert pdf.startswith(b"%PDF") and 2 <= pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") <= 12


def test_nothing_is_cut_off_in_print(browser: Any, report: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    metrics = {"width": 700, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(report.as_uri())
    wide = browser.execute_script(
        "return [...document.querySelectorAll('.wide')].map(e => e.scrollWidth - e.clientWidth)"
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert len(wide) >= 3 and max(wide) <= 0


def test_tables_show_what_was_measured(browser: Any, report: Path) -> None:
    browser.get(report.as_uri())
    first, *_ = browser.find_elements("css selector", "table")
    rows = [row.text for row in first.find_elements("css selector", "tbody tr")]
    assert len(rows) == 3 and rows[0].startswith("local MSE at t=300") and rows[0].endswith("theory")
    data = lab.load(report.parent)
    measured = float(data["mse"].sel({"method": "local", "level": "agent", "t": 300}).median())
    assert f"{measured:.3g}" in rows[0]


def test_words_of_the_user_stay_words(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert "<title>A &lt;small&gt; experiment &amp; its page</title>" in text
    assert "&lt;b&gt;brackets&lt;/b&gt;" in text and "<script" not in text
    assert "http://" not in text.replace("http://www.w3.org/", "") and "https://" not in text


def test_the_page_holds_configuration_versions_and_citation(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    for words in ("@inproceedings{stankovic2026clcolme", "@software{colme", "numpy", "python"):
        assert words in text
    folded = re.search(r"<details><summary>experiment.toml</summary>\n<pre>(.*?)</pre></details>", text, re.S)
    assert folded is not None and "n_agents = 400" in folded[1] and text.count("n_agents = 400") == 1


def test_missing_runs_are_said_aloud(results: Path, tmp_path: Path) -> None:
    copy = tmp_path / "experiment"
    shutil.copytree(results, copy)
    shutil.rmtree(next((copy / "runs").iterdir()))
    subject = subject_of(copy)
    assert "1 of 18 runs are missing" in html_of(subject, [], {})


def test_a_figure_that_cannot_be_drawn_is_left_out_with_a_reason(results: Path) -> None:
    subject = subject_of(results)
    drawings, failed = draw(subject, ("mse", "parameter"))
    assert [each.name for each in drawings] == ["mse"] and "no number is swept" in failed["parameter"]
    assert 'The figure "parameter" is left out' in html_of(subject, drawings, failed)


def test_pictures_show_the_graph_that_was_asked_for(tmp_path: Path) -> None:
    (drawing,), _ = draw(subject_with(tmp_path, [{"method": "cl-colme"}], graph="ring", degree=4), ("graph",))
    apart = (drawing.table["a"] - drawing.table["b"]).abs()
    assert set(apart.where(apart < 40, 80 - apart)) == {1, 2}, "on a ring of 80, neighbors are one or two places away"
    assert "Shown: CL-colME, seed 0." in drawing.caption


def test_a_dollar_is_a_dollar(tmp_path: Path) -> None:
    methods = [{"method": "cl-colme", "label": "$a$ $\\b{"}, {"method": "local"}]
    subject_with(tmp_path, methods, title="100% $\\foo{$ x", figures=["mse", "time"])
    assert lab.report(tmp_path / "experiment").exists()


def headline(subject: Any) -> str:
    page = html_of(subject, [], {})
    found = re.search(r'<p class="headline">(.*?)</p>', page)
    return html.unescape(found[1]) if found else ""


def test_the_headline_compares_every_method_the_best_first(results: Path) -> None:
    subject = subject_of(results)
    gains: dict[str, list[float]] = {"CL-colME": [], "C-colME": []}
    for row in final_rows(subject.data):
        gains.get(row["method"], []).append(row["local_mse"] / row["mse"])
    start = "At t = 300 the mean squared error, compared with that of the agents' local means, is "
    span = r"([\d,.]+) to ([\d,.]+) times smaller with (C-colME|CL-colME)"
    said = re.fullmatch(f"{start}{span} and {span}, over 2 values of level\\.", headline(subject))
    assert said is not None, headline(subject)
    for low, high, name in (said.groups()[:3], said.groups()[3:]):
        assert float(low.replace(",", "")) == pytest.approx(min(gains[name]), rel=0.06)
        assert float(high.replace(",", "")) == pytest.approx(max(gains[name]), rel=0.06)
    assert float(said[2].replace(",", "")) >= float(said[5].replace(",", "")), "the best first"


def test_the_headline_says_where_collaboration_does_not_help(results: Path) -> None:
    subject = subject_of(results)
    data = subject.data.copy(deep=True)
    data["mse"].loc[{"method": "CL-colME", "level": "edge"}] *= 1e6
    assert re.search(r"between [\d,.]+ times larger and [\d,.]+ times smaller with CL-colME",
                     headline(subject._replace(data=data)))  # fmt: skip
    data["mse"].loc[{"method": "CL-colME"}] *= 1e6
    assert re.search("smaller with C-colME and .* larger with CL-colME", headline(subject._replace(data=data)))
    data["mse"].loc[{"method": "C-colME"}] *= 1e6
    for mse in (data["mse"], data["local_mse"] / 1.001):
        assert headline(subject._replace(data=data.assign(mse=mse))) == (
            "Collaboration does not help here: at t = 300 no method has a mean squared error that is more than 0.5 % "
            "smaller than that of the agents' local means."
        )


def test_too_many_lines_for_one_plot_become_panels(tmp_path: Path) -> None:
    swept = {"method": "cl-colme", "delta": [0.01, 0.1, 0.2], "level": ["agent", "edge"], "step": [0.05, 0.1]}
    (drawing,), _ = draw(subject_with(tmp_path, [swept], steps=20), ("mse",))
    panels = drawing.figure.get_axes()
    assert [panel.get_title(loc="left") for panel in panels] == ["delta 0.01", "delta 0.1", "delta 0.2"]
    assert all(len(panel.get_lines()) <= 6 for panel in panels)
    assert drawing.table["line"].str.startswith("CL-colME").sum() == 12 * 20  # the numbers behind are all of them


def test_columns_of_final_errors_are_explained(report: Path) -> None:
    text = html.unescape(report.read_text())
    assert re.search(
        r'<th class="number" title="share of the edges between classes that remain [^"]*">wrong edges', text
    )
    assert "MSE: mean squared error of the estimates over all agents; error rate: share of agents whose error" in text


def test_modules_are_among_what_is_needed_to_reproduce(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(Path(skeleton.__file__).read_text().replace('"one-hop"', '"my-hop"'))
    small = EXPERIMENT | {"seeds": 1, "steps": 10, "expected": [], "figures": ["mse"], "modules": [str(own)]}
    small["methods"] = [{"method": "my-hop"}, {"method": "local"}]
    lab.run(small, results=tmp_path, jobs=1)
    for source in (tmp_path / "experiment", small):
        page = html_of(subject_of(source, tmp_path), [], {})
        assert "copy the folder results/experiment/modules (it holds own.py) beside it, then run" in page
        assert "modules/own.py" in page and str(own) not in page


def test_figures_of_methods_that_cut_no_edges_say_so(tmp_path: Path) -> None:
    subject = subject_with(tmp_path, [{"method": "census"}, {"method": "local"}])
    (edges, graph, relative), failed = draw(subject, ("wrong_edges", "graph", "relative"))
    assert not failed
    assert "methods that cut no edges (census): the share whose two agents are put into one group" in edges.caption
    assert "edges between agents of one group: census cuts none" in graph.caption
    assert relative.figure.get_ylabel() == "MSE / MSE of the local means"


def test_the_picture_of_a_graph_has_no_white_bands(results: Path) -> None:
    subject = subject_of(results)
    (drawing,), _ = draw(subject, ("graph",))
    drawing.figure.draw_without_rendering()
    outer, inner = drawing.figure.bbox, drawing.figure.get_tightbbox()
    assert "cuts none" not in drawing.caption
    assert inner.height > 0.85 * outer.height / drawing.figure.dpi
