"""What a notebook or a mail shows of results, traces and models: a headline and a small table."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import msgspec
import numpy as np
import pytest

from colme import Census, CLColME, CollaborativeMean, Local, Scenario, simulate
from colme.metrics import METRICS
from colme.sim.trace import Traces
from colme.support.tables import html_fragment, html_table, number
from tests.support.made_results import made_result

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' style='position:fixed",
    "&lt;b&gt;",
    "a\u202eb\u2066c\x1b[31m\n",
    "x" * 10_000,
    "\ud800",
)
WORLD = Scenario(n_agents=40, means=(0.0, 2.0), sigma=1.0)
BIGGEST = 40_000


class Fragment(HTMLParser):
    """The tags, attributes and texts of a piece of HTML."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def assert_inert(html: str) -> Fragment:
    """Only what belongs into a small table, nothing that acts, and all of it valid."""
    page = Fragment(html)
    assert set(page.tags) <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td"} and page.open == []
    assert {name for name, _ in page.attributes} <= {"style"}
    styles = " ".join(value or "" for _, value in page.attributes)
    assert not re.search(r"url|background|[^-]color:|position|expression|#", styles)
    text = "".join(page.texts)
    assert text.encode() and not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x1b]", text)
    assert len(html) < BIGGEST
    return page


def hostile_result() -> Any:
    result = made_result(len(HOSTILE))
    summary = msgspec.structs.replace(
        result.summary, faulty=HOSTILE[:5], flagged={"faulty": 5}, groups_sentence=HOSTILE[0], why=HOSTILE[1] * 500
    )  # fmt: skip
    names = tuple(HOSTILE[:3])
    return msgspec.structs.replace(
        result, agent=np.array(HOSTILE, object), summary=summary, group_names=names, group=np.arange(len(HOSTILE)) % 3
    )  # fmt: skip


def hostile_model() -> CollaborativeMean:
    model = CollaborativeMean(Local())
    for name in HOSTILE:
        model.learn_one(name, 1.0)
    return model


def _traces() -> Traces:
    return simulate([CLColME(), Census(), Local()], WORLD, steps=120, seeds=[0, 1])


SHOWN: dict[str, Callable[[], Any]] = {
    "a result": lambda: made_result(200),
    "a result without groups": lambda: made_result(3, groups=False),
    "a result with hostile names": hostile_result,
    "a trace": lambda: _traces()[0],
    "a trace without true means": lambda: simulate(Local(), np.random.default_rng(0).normal(size=(7, 5))),
    "a trace of few steps": lambda: simulate(Local(), WORLD, steps=500, record=[50, 300]),
    "traces": _traces,
    "no traces": lambda: Traces([]),
    "a model": hostile_model,
    "a model without samples": CollaborativeMean,
}


@pytest.mark.parametrize("make", SHOWN.values(), ids=SHOWN.keys())
def test_what_is_shown_is_inert_and_small(make: Callable[[], Any]) -> None:
    assert_inert(make()._repr_html_())


def test_hostile_names_are_shown_as_text() -> None:
    for html in (hostile_result()._repr_html_(), hostile_model()._repr_html_()):
        assert "</script><img src=x onerror=alert(1)>" in "".join(Fragment(html).texts)


def test_a_result_shows_its_headline_and_the_agents_that_changed_most() -> None:
    result = made_result(200)
    page = Fragment(result._repr_html_())
    assert page.texts[0].startswith("Collaboration helps: 69% less error")
    most = np.argsort(-np.abs(result.estimate - result.mean))[:10]
    assert [text for text in page.texts if text.startswith("sensor-")] == result.agent[most].tolist()
    assert page.texts[-1].startswith("10 of 200 agents, those whose estimates differ most")


def test_a_result_of_a_million_agents_is_small() -> None:
    small, large = made_result(1000), made_result(1_000_000)
    assert abs(len(large._repr_html_()) - len(small._repr_html_())) < 500


def test_a_trace_shows_its_metrics_at_powers_of_ten_and_at_the_end() -> None:
    trace = simulate(CLColME(), WORLD, steps=250)
    page = Fragment(trace._repr_html_())
    assert page.texts[0] == "CL-colME on 40 agents, 250 steps, seed 0."
    for step in (1, 10, 100, 250):
        at = page.texts.index(str(step))
        assert page.texts[at + 1 : at + 4] == [number(trace.at(step)[m]) for m in ("mse", "local_mse", "oracle_mse")]


def test_a_trace_shows_the_steps_that_it_has() -> None:
    texts = Fragment(simulate(Local(), WORLD, steps=500, record=[50, 90])._repr_html_()).texts
    n_columns = 1 + len([name for name in texts if name in {each.replace("_", " ") for each in METRICS}])
    first = texts.index("t")
    assert texts[first + n_columns :: n_columns] == ["50", "90", "500"]


def test_a_trace_without_true_means_has_no_errors() -> None:
    page = Fragment(simulate(Local(), np.zeros((7, 5)))._repr_html_())
    assert "The true means are not known, so there are no errors." in page.texts and "mse" not in page.texts


def test_traces_show_medians_of_each_method() -> None:
    traces = simulate([CLColME(), Local()], WORLD, steps=100, seeds=range(3))
    texts = Fragment(traces._repr_html_()).texts
    assert texts[0] == "2 methods, 3 seeds."
    median = float(np.median([trace.mse[-1] for trace in traces if trace.method == CLColME()]))
    assert texts[texts.index("CL-colME") : texts.index("CL-colME") + 4] == ["CL-colME", "3", "100", number(median)]


def test_of_many_methods_the_first_are_shown() -> None:
    traces = simulate([CLColME(delta=0.01 * k) for k in range(1, 26)], WORLD, steps=2)
    page = assert_inert(traces._repr_html_())
    assert page.tags.count("tr") == 21 and "5 more methods are not shown" in page.texts[-1]


def test_a_model_shows_how_much_it_has_learned_and_some_agents() -> None:
    model = CollaborativeMean(Local())
    model.learn_many(agent=np.arange(1200) % 12, value=np.arange(1200.0))
    page = Fragment(model._repr_html_())
    assert page.texts[:2] == ["CollaborativeMean(Local())", "12 agents, 1,200 samples, trust 1."]
    assert page.tags.count("tr") == 11 and page.texts[-1].startswith("The first 10 agents")


def test_every_text_is_escaped() -> None:
    table = html_table([{"<i>": "<b>", "n": "1 & 2"}], words=("<i>",))
    html = html_fragment("<u>", ["<s>"], table, "<a>")
    assert Fragment(html).texts == ["<u>", "<s>", "<i>", "n", "<b>", "1 & 2", "<a>"]


def test_columns_without_a_cell_are_left_out() -> None:
    assert Fragment(html_table([{"a": "1", "b": ""}, {"a": "2", "b": ""}])).texts == ["a", "1", "2"]
    assert html_table([]) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(12345, "12,345"), (0.123456, "0.1235"), (1e-9, "1e-09"), (float("nan"), ""), (float("-inf"), "-∞"), (0.0, "0")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text
