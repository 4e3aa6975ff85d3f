"""`colme watch`: what is shown is what `simulate` computes, and viewers can change it without breaking it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colme import simulate
from colme.errors import ColmeError
from colme.lab.quick import flags_experiment
from colme.lab.watch import WatchedRun, WatchSession, experiment_to_watch, watched_run
from colme.live.broadcast import Broadcast
from colme.live.simulation import frame_steps
from tests.support.live_viewer import Told, messages_in, wait_until

N_STEPS, N_FRAMES = 60, 12
FILE = """
title = "Two methods"
seeds = [5, 6]
steps = 30
degree = 4
[scenario]
n_agents = [24, 30]
means = [0.0, 3.0]
sigma = 0.5
[[methods]]
method = "local"
[[methods]]
method = "c-colme"
delta = 0.2
[[methods]]
method = "cl-colme"
clock = ["global", "gossip"]
"""


def chosen(*methods: str, **changes: Any) -> WatchedRun:
    fields: dict[str, Any] = {"n_agents": 30, "means": [0.0, 2.0], "steps": N_STEPS, "degree": 4} | changes
    return watched_run(flags_experiment(methods or ("cl-colme",), [3], fields), chosen=True)


class Watching:
    """A session and what its viewers get, all of it, as fast as it runs."""

    def __init__(self, run: WatchedRun) -> None:
        self.broadcast = Broadcast()
        self.session = WatchSession(run, self.broadcast)
        self.control = self.session.control

    @property
    def told(self) -> list[Told]:
        return messages_in(self.broadcast)

    @property
    def start(self) -> dict[str, Any]:
        return self.told[0].head

    @property
    def field(self) -> dict[str, str]:
        return {each["name"]: each["value"] for each in self.start["controls"]["fields"]}

    def frames(self) -> list[Told]:
        return [each for each in self.told if each.kind == "frame"]

    def finish(self) -> list[Told]:
        """All frames of the run."""
        self.control({"command": "speed", "value": 100})
        wait_until(lambda: self.told[-1].kind == "end")
        return self.frames()

    def restart(self, **values: str) -> None:
        self.control({"command": "restart", "values": values})


@pytest.fixture(autouse=True)
def _every_viewer_gets_every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colme.lab.watch.WATCH_FRAMES", N_FRAMES)
    monkeypatch.setattr("colme.live.broadcast.LATE", 10**6)


@pytest.fixture
def watching() -> Iterator[Watching]:
    watching = Watching(chosen())
    with watching.session:
        yield watching


# What is shown


def test_frames_are_what_simulate_computes(watching: Watching) -> None:
    run = watching.session.run
    [trace] = simulate(run.methods[0], run.spec.source, steps=N_STEPS, seeds=[3], degree=4)
    frames = watching.finish()
    assert [each.head["t"] for each in frames] == frame_steps(N_STEPS, N_FRAMES).tolist()
    for each in frames:
        assert each.head["panels"][0]["metrics"]["mse"] == trace.mse[each.head["t"] - 1]
    last = frames[-1].arrays["0/estimate"]
    np.testing.assert_allclose(last, trace.final.estimate, atol=1e-4 * np.ptp(trace.final.estimate))


def test_the_form_shows_what_runs(watching: Watching) -> None:
    assert watching.field == {
        "method": "cl-colme", "second": "", "delta": "0.1", "step": "auto", "degree": "4", "gap": "2", "n_agents": "30",
        "sigma": "1", "steps": "60", "seed": "3",
    }  # fmt: skip
    choices = {each["name"]: each.get("choices") for each in watching.start["controls"]["fields"]}
    assert "census" in choices["method"] and choices["second"] == ["", *choices["method"]]


def test_a_run_that_is_at_its_end_waits_for_a_restart(watching: Watching) -> None:
    first = watching.finish()
    watching.restart()
    wait_until(lambda: watching.told[-1].kind == "end")
    again = watching.frames()
    assert [each.head for each in again] == [each.head for each in first]
    assert again[0].number > first[-1].number


# Pause and speed


def test_a_paused_run_shows_nothing_new_until_it_goes_on(watching: Watching) -> None:
    wait_until(lambda: len(watching.frames()) >= 1)
    watching.control({"command": "pause"})
    n = len(watching.frames())
    for _ in range(20):
        assert len(watching.frames()) == n
        watching.control({"command": "speed", "value": 50})
    assert next(each for each in watching.told if each.kind == "state").head == {
        "kind": "state", "paused": True, "speed": 50.0,
    }  # fmt: skip
    watching.control({"command": "resume"})
    wait_until(lambda: watching.told[-1].kind == "end")


def test_a_restart_goes_on_from_a_pause_and_keeps_the_speed(watching: Watching) -> None:
    watching.control({"command": "pause"})
    watching.control({"command": "speed", "value": 100})
    watching.restart(seed="9")
    assert watching.start["controls"]["paused"] is False and watching.start["controls"]["speed"] == 100
    wait_until(lambda: watching.told[-1].kind == "end")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ({}, "unknown command None"),
        ({"command": "jump"}, "unknown command 'jump': it must be one of 'pause'"),
        ({"command": ["pause"]}, "unknown command"),
        ({"command": "speed"}, r"speed=None: it must be a number from 0\.05 to 100"),
        ({"command": "speed", "value": 0}, r"speed=0: it must be"),
        ({"command": "speed", "value": 1e9}, r"speed=1000000000\.0: it must be"),
        ({"command": "speed", "value": "2"}, r"speed='2': it must be"),
        ({"command": "restart", "values": "all"}, r"values='all': they must be an object"),
        ({"command": "restart", "values": {"delta": 0.5}}, r"delta=0\.5: it must be a text"),
        ({"command": "restart", "values": {"delta": "1" * 1000}}, r"delta='1.*: it must be a text of up to 200"),
        ({"command": "restart", "values": {"detla": "0.5"}}, r"unknown field 'detla'.* Did you mean 'delta'\?"),
    ],
)
def test_what_is_no_command_is_refused_with_a_sentence(watching: Watching, command: dict[str, Any], said: str) -> None:
    with pytest.raises(ColmeError, match=said):
        watching.control(command)


# Restarts


def test_a_restart_with_other_values_shows_these(watching: Watching) -> None:
    before = watching.start["run"]
    values = {"method": "census", "second": "cl-colme", "delta": "0.05", "step": "0.1", "degree": "6", "gap": "1",
              "n_agents": "40", "sigma": "0.5,2", "steps": "20", "seed": "11"}  # fmt: skip
    watching.restart(**values)
    assert watching.field == values and watching.start["run"] != before
    run = watching.session.run
    assert run.spec.source.means == (0.5, 1.5) and run.spec.source.sigma == (0.5, 2.0)
    assert watching.finish()[-1].head["t"] == 20
    trace = simulate(list(run.methods), run.spec.source, steps=20, seeds=[11], degree=6)[1]
    assert watching.frames()[-1].head["panels"][1]["metrics"]["mse"] == trace.mse[-1]


REFUSED = {
    "delta": ({"delta": "2"}, r"delta=2\.0: it must be between 0 and 1"),
    "word": ({"delta": "small"}, r"delta='small': it must be a number, not a word"),
    "infinite": ({"sigma": "1e999"}, r"sigma=inf: it must be positive and finite"),
    "unstable": ({"step": "5"}, r"step=5 is not stable on this graph"),
    "graph": ({"n_agents": "5", "degree": "3"}, r"3-regular graph on 5 agents does not exist"),
    "agents": ({"n_agents": "200001"}, r"n_agents=200001: at most 200,000 can be asked for here"),
    "steps": ({"steps": "1_000_001"}, r"steps=1_000_001: at most 1,000,000 can be asked for here"),
    "edges": ({"n_agents": "100000", "degree": "1000"}, r"at most 20,000,000 neighbors in all"),
    "nothing": ({"n_agents": ""}, r"n_agents is empty: it must be a number"),
    "no method": ({"method": ""}, r"method is empty"),
    "other method": ({"second": "cl-colm"}, r"unknown method 'cl-colm'.* Did you mean 'cl-colme'\?"),
    "twice": ({"second": "cl-colme"}, r"are both cl-colme, with the same fields"),
    "memory": ({"method": "colme", "n_agents": "200000", "step": "auto"}, r"colME on 200000 agents needs"),
    "distance": ({"gap": "-1"}, r"gap=-1: a distance is at least 0"),
    "seed": ({"seed": "-1"}, r"seed=-1: a seed is a whole number"),
    "nobody's": ({"method": "census", "delta": "0.2"}, r"delta=0\.2: none of the methods \(census\) has it"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_value_that_is_refused_leaves_the_run_as_it_is(watching: Watching, case: str) -> None:
    values, said = REFUSED[case]
    start = watching.start
    with pytest.raises(ColmeError, match=said):
        watching.restart(**values)
    assert watching.start == start
    assert len(watching.finish()) == len(frame_steps(N_STEPS, N_FRAMES))


def test_the_same_method_may_be_shown_twice_with_other_fields() -> None:
    experiment = flags_experiment(("cl-colme",), [0], {"n_agents": 20, "steps": 10})
    table = experiment.table | {
        "methods": [{"method": "cl-colme", "label": "early", "delta": 0.5}, {"method": "cl-colme", "label": "late"}]
    }
    run = watched_run(type(experiment).parse(table))
    again = run.changed(run.texts() | {"seed": "4"})
    assert again.shown == run.shown and [label for label, _ in again.shown] == ["early", "late"]


def test_a_distance_can_be_taken_back() -> None:
    run = chosen(means=[1.2, 2.0, 5.0])
    assert run.texts()["gap"] == "0.8"
    together = run.changed({"gap": "0"})
    assert len(set(together.spec.source.means)) == 1 and together.texts()["gap"] == "0"
    assert together.changed({"gap": "0.8"}).spec.source == run.spec.source


def test_means_that_shift_are_stretched_too() -> None:
    run = chosen(means=[0.0, 2.0], shift_step=10, shift_means=[1.0, 3.0]).changed({"gap": "4"})
    assert run.spec.source.means == (-1.0, 3.0) and run.spec.source.shift_means == (1.0, 5.0)


def test_one_class_has_no_distance() -> None:
    run = chosen(means=[1.0])
    assert run.texts()["gap"] == ""
    with pytest.raises(ColmeError, match="there is one class only"):
        run.changed({"gap": "1"})


def test_classes_keep_their_proportions_with_another_number_of_agents() -> None:
    run = chosen(n_agents=30, sizes=[10, 20]).changed({"n_agents": "60"})
    assert run.spec.source.n_agents == 60 and run.spec.source.assignment == "random"


def test_the_command_line_may_ask_for_more_than_viewers() -> None:
    run = chosen(n_agents=300_000)
    assert run.changed({"seed": "1"}).spec.source.n_agents == 300_000


def test_a_graph_with_degrees_of_its_own_has_none_to_choose() -> None:
    run = chosen(n_agents=10, graph="complete", degree=4)
    assert run.texts()["degree"] == ""
    with pytest.raises(ColmeError, match="has its own degrees"):
        run.changed({"degree": "6"})


# Experiments


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(FILE)
    return path


def test_of_an_experiment_the_first_runs_of_two_collaborating_methods_are_shown(file: Path) -> None:
    run = watched_run(experiment_to_watch(file, (), {}))
    assert [label for label, _ in run.shown] == ["CL-colME", "C-colME"]
    assert run.spec.source.n_agents == 24 and run.spec.seed == 5 and run.title == "Two methods"
    picked = "CL-colME (n_agents 24, clock global) and of C-colME (n_agents 24, clock gossip)"
    assert run.about == f"Of 16 runs you see the first of {picked}, with seed 5."
    assert run.methods[1].delta == 0.2  # type: ignore[attr-defined]


def test_flags_change_fields_of_an_experiment_and_may_choose_methods_that_it_lacks(file: Path) -> None:
    run = watched_run(experiment_to_watch(file, ("census", "local"), {"n_agents": 40, "seeds": [1]}), chosen=True)
    assert [label for label, _ in run.shown] == ["census", "local"]
    assert run.spec.source.n_agents == 40 and run.spec.source.sigma == 0.5 and run.spec.seed == 1


def test_a_method_that_is_chosen_again_is_as_the_experiment_has_it(file: Path) -> None:
    run = watched_run(experiment_to_watch(file, (), {}))
    there = run.changed({"method": "census", "second": ""})
    back = there.changed({"method": "cl-colme"})
    assert back.methods[0] == run.methods[0] and back.methods[0].clock == "global"  # type: ignore[attr-defined]


def test_the_sentence_about_the_choice_is_a_note(file: Path) -> None:
    watching = Watching(watched_run(experiment_to_watch(file, (), {})))
    with watching.session:
        assert watching.told[1].head == {"kind": "note", "text": watching.session.run.about}


def test_a_run_that_fails_says_so_and_waits_for_a_restart(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = watching.session._feed
    assert feed is not None
    watching.control({"command": "pause"})

    def fall(first: int, last: int) -> None:
        raise RuntimeError("over")

    monkeypatch.setattr(feed.run, "advance", fall)
    watching.control({"command": "resume"})
    wait_until(lambda: watching.told[-1].kind == "end")
    assert "RuntimeError: over. This is a bug in colme." in watching.told[-2].head["text"]
    watching.restart()
    assert watching.finish()
