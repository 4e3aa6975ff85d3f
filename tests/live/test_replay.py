"""Traces as live views: the run is made again, and shows what the trace recorded."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colme import CLColME, Local, Oracle, Scenario, simulate
from colme.errors import ColmeError
from colme.graphs import gnp_random_graph, random_regular_graph
from colme.live import widget as widget_module
from colme.live.replay import replay
from colme.live.widget import LiveWidget
from colme.metrics import METRICS
from colme.recording import Recording
from colme.sim.trace import Trace, Traces
from tests.support.live_messages import unpack

WORLD = Scenario(n_agents=60, means=(0.0, 2.0), sigma=1.0)


def frames_of(traces: Any, frames: int = 12) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    shown = traces if isinstance(traces, Traces) else Traces([traces])
    found = [unpack(message) for message in replay(shown, frames=frames)]
    assert found[0][0]["kind"] == "start" and found[-1][0]["kind"] == "end"
    return [each for each in found if each[0]["kind"] == "frame"]


def notes_of(trace: Trace) -> list[str]:
    found = [unpack(message)[0] for message in replay(Traces([trace]), frames=3)]
    return [head["text"] for head in found if head["kind"] == "note"]


def assert_shows(trace: Trace) -> None:
    """Metrics are those of the trace, and the last estimates its final ones."""
    frames = frames_of(trace)
    for head, _ in frames:
        known = trace.at(head["t"])
        metrics = head["panels"][0]["metrics"]
        for name in METRICS:
            found = np.nan if metrics[name] is None else metrics[name]
            np.testing.assert_equal(found, known[name], err_msg=f"{name} at t = {head['t']}")
    head, arrays = frames[-1]
    assert head["t"] == trace.t[-1]
    estimate = trace.final.estimate
    resolution = np.ptp(estimate) / 65534
    np.testing.assert_allclose(arrays["0/estimate"], estimate, rtol=0, atol=0.51 * resolution + 1e-12)
    assert notes_of(trace) == []


@pytest.mark.parametrize(
    "options",
    [
        {"graph": random_regular_graph(60, 4, rng=1)},
        {"graph": lambda rng: gnp_random_graph(60, 0.2, rng=rng)},
        {"graph": "small-world", "degree": 4, "rewire": 0.3},
        {"degree": 6, "tolerance": 0.3, "precision": "double"},
    ],
    ids=["graph", "function", "family", "others"],
)
def test_the_run_has_the_graph_and_the_options_it_had(options: dict[str, Any]) -> None:
    trace = simulate(CLColME(), WORLD, steps=60, seed=2, **options)
    assert_shows(trace)


def test_runs_of_threads_and_on_own_samples_are_shown_too() -> None:
    assert_shows(simulate(CLColME(), Scenario(n_agents=4000, means=(0.0, 2.0)), steps=20, threads=2))
    assert_shows(simulate(CLColME(sigma=1.0), np.random.default_rng(0).normal(size=(40, 30))))


def test_copies_of_a_trace_are_shown_too(tmp_path: Path) -> None:
    trace = simulate(CLColME(), WORLD, steps=60, degree=6, tolerance=0.2, precision="double")
    trace.save(tmp_path / "trace.npz")
    loaded = Trace.load(tmp_path / "trace.npz")
    for copied in (copy.copy(trace), copy.deepcopy(trace), pickle.loads(pickle.dumps(trace)), loaded):
        assert_shows(copied)
        assert repr(copied) == repr(trace)


def test_a_trace_with_a_function_as_graph_can_be_pickled() -> None:
    trace = simulate(CLColME(), WORLD, steps=5, graph=lambda rng: gnp_random_graph(60, 0.2, rng=rng))
    again = pickle.loads(pickle.dumps(trace))
    np.testing.assert_array_equal(again.final.estimate, trace.final.estimate)
    with pytest.raises(ColmeError, match=r"does not hold its first graph.*Simulate it again"):
        replay([again], frames=3)


def test_samples_that_were_changed_since_are_noticed() -> None:
    values = np.random.default_rng(0).normal(size=(40, 30))
    trace = simulate(Local(), Recording(values))
    source = trace._spec.source if trace._spec is not None else None
    assert isinstance(source, Recording)
    source.values[10] += 1.0
    assert "did not end as the trace did" in notes_of(trace)[0]


def test_methods_are_side_by_side_under_the_first_seed() -> None:
    traces = simulate([CLColME(), Local(), Oracle()], WORLD, steps=40, seeds=[5, 6])
    head, arrays = frames_of(traces)[-1]
    assert [panel["metrics"]["mse"] for panel in head["panels"]] == [t.mse[-1] for t in traces if t.seed == 5]
    assert {"0/estimate", "1/estimate", "2/estimate"} <= arrays.keys()


def test_what_cannot_be_shown_is_refused_with_the_remedy() -> None:
    trace, other = simulate(Local(), WORLD, steps=3), simulate(Oracle(), WORLD, steps=4)
    unmade = dataclasses.replace(trace, configuration={})
    refused: list[tuple[Sequence[Trace], str]] = [
        ([trace] * 5, r"5 methods side by side: there must be 1 to 4. Choose"),
        ([trace, other], r"of different runs: .* Simulate the methods together"),
        ([copy.copy(simulate(Local(), np.zeros((4, 3))))], r"does not hold its samples, an array: .*Simulate it again"),
        ([copy.copy(unmade)], r"does not hold how it was made: .*Simulate it again"),
        ([dataclasses.replace(trace, method={"method": "Mine"})], r"not known here: .*Simulate it"),
    ]
    for traces, said in refused:
        with pytest.raises(ColmeError, match=said):
            replay(traces, frames=3)
    with pytest.raises(ColmeError, match=r"frames=1:"):
        trace.live(frames=1)
    with pytest.raises(ColmeError, match=r"0 methods side by side"):
        Traces([]).live()


def test_live_is_a_widget_of_all_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widget_module, "asset", lambda name: "")
    trace = simulate(CLColME(), WORLD, steps=40)
    widget = trace.live(frames=5, height=400)
    assert isinstance(widget, LiveWidget) and widget.height == 400
    assert widget.messages == list(replay([trace], frames=5))


def test_a_page_is_written_without_a_widget(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pages: list[list[bytes]] = []
    write = lambda path, messages: pages.append(list(messages)) or path  # noqa: E731
    monkeypatch.setattr("colme.live.page.write_page", write)
    monkeypatch.setitem(sys.modules, "anywidget", None)
    trace = simulate(CLColME(), WORLD, steps=40)
    assert trace.write_live(tmp_path / "run.html", frames=5) == tmp_path / "run.html"
    assert pages == [list(replay([trace], frames=5))]
