"""The feed of a simulation: every method has the numbers of its trace at every step that is shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import fields

import colme
from colme.cli.fields import parse_flag
from colme.lab.quick import flags_experiment
from colme.lab.watch import feed_of as feed_of_planned
from colme.lab.watch import watched_run
from colme.live import simulation
from colme.live.growing import MOST_GROUPS, OTHERS, GroupNumbers
from colme.live.simulation import SimulationFeed, frame_steps
from colme.methods import Method
from colme.scenario import Scenario
from colme.sim.spec import Setup
from tests.support.flags import FLAGS, NEEDS, sample_of
from tests.support.live_messages import feed_of, unpack

SCENARIO = colme.Scenario(n_agents=60, means=(0.0, 2.0), sigma=0.5)
METHODS = [
    colme.CLColME(), colme.CLColME(guard=True), colme.CColME(cut="difference"), colme.BColME(), colme.ColME(),
    colme.Census(), colme.Census(guard=False), colme.Local(), colme.Oracle(), colme.Bayes(),
    colme.CLColME(statistics=("mean", "deviation")),
]  # fmt: skip


def frames_of(feed: SimulationFeed) -> list[tuple[dict, dict]]:
    _, *frames, last = (unpack(each) for each in feed.messages())
    assert last[0]["kind"] == "end"
    return frames


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("skip_rate", [0.0, 0.3])
def test_frames_are_moments_of_the_trace(method: Method, skip_rate: float) -> None:
    scenario = colme.Scenario(n_agents=60, means=(0.0, 2.0), sigma=0.5, skip_rate=skip_rate)
    steps = frame_steps(60, 8)
    frames = frames_of(feed_of([method], scenario, 60, 8, seed=5, degree=4))
    assert [head["t"] for head, _ in frames] == steps.tolist()
    for head, columns in (frames[3], frames[-1]):
        trace = colme.simulate(method, scenario, degree=4, steps=head["t"], seed=5)
        final = trace.final
        metrics = {name: value for name, value in head["panels"][0]["metrics"].items() if value is not None}
        assert metrics == {name: value for name, value in trace.at(head["t"]).items() if name in metrics}
        for found, exact in ((columns["0/estimate"], final.estimate), (columns["mean"], final.mean)):
            assert np.allclose(found, exact, atol=np.ptp(exact[~np.isnan(exact)]) / 65534, equal_nan=True)
        assert (final.lower is None) is ("0/radius" in columns)
        if final.lower is not None and final.upper is not None:
            for found, exact in (
                (columns["0/below"], final.estimate - final.lower),
                (columns["0/above"], final.upper - final.estimate),
            ):
                known = np.isfinite(exact)
                assert np.array_equal(np.isnan(found), ~known)
                assert np.allclose(found[known], exact[known], atol=np.ptp(exact[known]) / 254)


def test_your_own_samples_can_be_shown() -> None:
    samples = np.random.default_rng(0).normal(5.0, 1.0, (30, 40))
    feed = feed_of([colme.CLColME(sigma=1.0)], colme.Recording(samples), 30, 4)
    start, columns = unpack(feed.start())
    assert "truth" not in columns and "class" not in columns
    low, high = start["window"]
    assert low < 5.0 < high
    _, shown = frames_of(feed)[-1]
    assert np.abs(shown["mean"] - samples.mean(axis=0)).max() < 1e-3


def test_of_many_agents_a_part_is_shown_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "MOST_AGENTS", 500)
    monkeypatch.setattr(simulation, "PART", 100)
    scenario = colme.Scenario(n_agents=1000, means=(0.0, 2.0), sigma=0.5)
    method = colme.CLColME(level="agent")
    feed = feed_of([method], scenario, 40, 4, degree=6)
    _, start = unpack(feed.start())
    agents, edges = start["agent"].astype(int), start["edges"].reshape(-1, 2).astype(int)
    assert len(agents) == 100 and len(edges) > 99
    first = {tuple(pair) for pair in feed.graph.edges().tolist()}
    assert all((agents[a], agents[b]) in first for a, b in edges)
    head, columns = frames_of(feed)[-1]
    trace = colme.simulate(method, scenario, degree=6, steps=40)
    assert np.abs(columns["0/estimate"] - trace.final.estimate[agents]).max() < 1e-4
    assert columns["0/density"].sum() == 1000
    alive = np.unpackbits(columns["0/alive"], bitorder="little")[: len(edges)].astype(bool)
    left = {tuple(pair) for pair in trace.final.graph.edges().tolist()}
    assert alive.tolist() == [(agents[a], agents[b]) in left for a, b in edges]
    assert head["panels"][0]["metrics"]["mse"] == trace.mse[-1]


def test_a_dense_graph_is_shown_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "MOST_EDGES", 300)
    feed = feed_of([colme.CLColME()], SCENARIO, 10, 3, graph=colme.graphs.complete_graph(60))
    _, start = unpack(feed.start())
    assert len(start["edges"]) == 600
    assert len(frames_of(feed)[-1][1]["0/estimate"]) == 60


@pytest.mark.parametrize("n_steps", [1, 2, 3, 2000])
def test_the_first_and_the_last_step_are_shown(n_steps: int) -> None:
    steps = frame_steps(n_steps, 120)
    assert steps[0] == 1 and steps[-1] == n_steps and (np.diff(steps) > 0).all()
    assert len(frames_of(feed_of([colme.Local()], SCENARIO, min(n_steps, 3)))) == min(n_steps, 3)


def test_groups_keep_their_numbers() -> None:
    numbers = GroupNumbers()
    assert set(numbers.renumber(np.zeros(100, np.int64))) == {0}
    halves = np.repeat([0, 1], [60, 40])
    assert numbers.renumber(halves).tolist() == halves.tolist()
    assert numbers.renumber(1 - halves).tolist() == halves.tolist()  # other names of the same groups
    grown = np.repeat([5, 3, 9], [10, 50, 40])
    assert numbers.renumber(grown).tolist() == np.repeat([2, 0, 1], [10, 50, 40]).tolist()


def test_small_groups_have_no_color() -> None:
    found = GroupNumbers().renumber(np.arange(1000))
    assert set(found) == {OTHERS}
    found = GroupNumbers().renumber(np.arange(1000) // 20)
    assert len(set(found)) == MOST_GROUPS + 1


def test_a_page_holds_as_many_frames_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    from colme.lab import watch
    from colme.live.page import compressed

    monkeypatch.setattr(watch, "MOST_RECORDED", 8000)
    feed = feed_of([colme.CLColME()], SCENARIO, 200, 60, degree=4)
    kept = watch.fitting_messages(feed)
    heads = [unpack(each)[0] for each in kept]
    steps = [head["t"] for head in heads[1:-1]]
    assert len(compressed(kept)) <= 8000 and 2 < len(steps) < 60
    assert steps[0] == 1 and steps[-1] == 200 and [heads[0]["kind"], heads[-1]["kind"]] == ["start", "end"]


WORLD: dict[str, Any] = {"n_agents": 24, "means": [0.0, 1.0], "steps": 20}


@pytest.mark.parametrize("name", [name for name, (struct, _) in FLAGS.items() if struct in (Scenario, Setup)])
def test_every_field_of_a_run_plays_in_a_page_and_in_watch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a value that it does not have: what is shown is what `simulate` computes with it."""
    monkeypatch.setattr("colme.lab.watch.WATCH_FRAMES", 5)
    kind = next(each.type for each in fields(FLAGS[name][0]) if each.name == name)
    needed = {"graph": "small-world"} if name == "rewire" else NEEDS.get(name, {})
    changes = WORLD | needed | {name: parse_flag(name, (sample_of(name),), kind)}
    experiment = flags_experiment(("census" if name == "loss" else "cl-colme",), [3], changes)
    (planned,) = experiment.planned
    spec = planned.spec
    (trace,) = colme.simulate(spec.method, seeds=[3], **spec.but("method", "seed") | {"record": "all"})
    shown = {
        "simulate --live": feed_of_planned([planned], frames=5),
        "watch": watched_run(experiment, chosen=True).feed(),
    }
    for where, feed in shown.items():
        frames = frames_of(feed)
        for head, _ in frames:
            known = trace.at(head["t"])
            for metric, value in head["panels"][0]["metrics"].items():
                assert value is None or value == known[metric], f"{where}: {metric}"
        head, columns = frames[-1]
        final = trace.final.estimate
        assert head["t"] == spec.steps == trace.t[-1], where
        assert np.allclose(columns["0/estimate"], final, atol=np.ptp(final) / 65534 + 1e-12, equal_nan=True), where
