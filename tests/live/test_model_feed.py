"""The feed of an online model: frames while it learns, of agents that come, go, and come back."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from colme import Census, CLColME, CollaborativeMean, Local
from colme.errors import ColmeError
from colme.graphs import random_regular_graph
from colme.live import model_feed
from colme.live import widget as widget_module
from colme.live.messages import head_of
from colme.live.model_feed import ModelFeed
from colme.live.widget import LiveWidget
from tests.online.test_model import two_classes
from tests.support.live_messages import messages_in, unpack
from tests.support.live_viewer import PATIENCE, wait_until

Message = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(autouse=True)
def renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renderer that does nothing."""
    monkeypatch.setattr(widget_module, "asset", lambda name: "")


def news_of(feed: ModelFeed) -> list[Message]:
    return [unpack(message) for message in feed.news()]


def learned(method: Any = None, n_agents: int = 30, n: int = 900, **options: Any) -> CollaborativeMean:
    model = CollaborativeMean(method, **options)
    agent, value = two_classes(n_agents, n)
    model.learn_many(agent=agent, value=value)
    return model


@pytest.mark.parametrize("method", [Census(guard=True), CLColME(sigma=1.0), Local()], ids=repr)
def test_a_frame_shows_what_to_columns_says(method: Any) -> None:
    model = learned(method)
    (start, _), (frame, arrays) = news_of(ModelFeed(model))
    columns = model.to_columns()
    assert start["names"] == [str(each) for each in columns["agent"]]
    assert (start["unit"], start["n_agents"], frame["t"]) == ("samples", 30, 900)
    np.testing.assert_array_equal(arrays["count"], columns["n"])
    estimate = arrays["0/estimate"]
    shown = {
        "mean": arrays["mean"], "estimate": estimate, "lower": estimate - arrays["0/below"],
        "upper": estimate + arrays["0/above"],
    }  # fmt: skip
    for name, numbers in shown.items():
        np.testing.assert_allclose(numbers, columns[name], atol=1e-3, err_msg=name)


def test_groups_of_a_frame_are_those_of_the_model() -> None:
    model = learned(Census(), n=3000)
    _, (_, arrays) = news_of(ModelFeed(model))
    group = model.to_columns()["group"]
    assert len(set(zip(group.tolist(), arrays["0/group"].tolist(), strict=True))) == len(set(group.tolist())) > 1


def test_edges_are_those_to_the_neighbors() -> None:
    model = learned(CLColME(sigma=1.0))
    (start, begun), (_, arrays) = news_of(ModelFeed(model))
    pairs = begun["edges"].reshape(-1, 2)
    alive = np.unpackbits(arrays["0/alive"], count=len(pairs), bitorder="little").astype(bool)
    names = start["names"]
    found = {frozenset((names[a], names[b])) for a, b in pairs[alive]}
    assert start["panels"][0]["graph"]
    assert found == {frozenset((str(a), str(b))) for a in model.count_ for b in model.neighbors(a)}


def test_there_is_no_news_if_nothing_was_learned() -> None:
    model = learned()
    feed = ModelFeed(model)
    assert len(feed.news()) == 2 and feed.news() == []
    model.learn_one(3, 1.0)
    assert [head["kind"] for head, _ in news_of(feed)] == ["frame"]
    model.forget(3)
    assert [head["kind"] for head, _ in news_of(feed)] == ["frame"] and feed.news() == []


def test_a_model_without_samples_has_only_a_start() -> None:
    graph = random_regular_graph(8, 4, rng=0)
    model = CollaborativeMean(CLColME(sigma=1.0, level="agent"), graph=graph)
    ((start, begun),) = news_of(ModelFeed(model))
    assert start["n_agents"] == 8 and len(begun["edges"]) == 2 * graph.n_edges


def test_a_forgotten_agent_keeps_its_place_and_has_no_numbers() -> None:
    model = learned()
    feed = ModelFeed(model)
    (start, _), _ = news_of(feed)
    model.forget(7)
    model.learn_one(3, 1.0)
    ((_, arrays),) = news_of(feed)
    place = start["names"].index("7")
    for name in ("mean", "0/estimate", "0/below", "0/above"):
        assert np.flatnonzero(np.isnan(arrays[name])).tolist() == [place], name
    assert arrays["0/group"][place] == 255 and arrays["count"][place] == 0


def test_an_agent_that_comes_back_has_its_place_again() -> None:
    model = learned()
    feed = ModelFeed(model)
    (start, _), _ = news_of(feed)
    model.forget(7)
    model.learn_many(agent=[3, "new", 7], value=[1.0, 2.0, 5.0])
    (later, _), (_, arrays) = news_of(feed)
    place = start["names"].index("7")
    assert later["names"] == [*start["names"], "new"] and later["run"] == start["run"]
    assert arrays["count"][place] == 1 and arrays["mean"][place] == pytest.approx(5.0)


def test_where_agents_keep_coming_and_going_the_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_feed, "ROOM", 10)
    model = CollaborativeMean(Local(), max_agents=5)
    feed, runs, longest = ModelFeed(model), set(), 0
    for agent in range(200):
        model.learn_one(agent, 1.0)
        for head, arrays in news_of(feed):
            if head["kind"] == "start":
                runs.add(head["run"])
                longest = max(longest, len(head["names"]))
            else:
                assert np.isfinite(arrays["mean"]).sum() == model.n_agents
    assert longest <= 21 and len(runs) > 5


def test_the_list_of_edges_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_feed, "MOST_EDGES", 40)
    model = learned(CLColME(sigma=1.0), n_agents=30)
    (_, begun), (_, arrays) = news_of(ModelFeed(model))
    assert len(begun["edges"]) == 2 * 40 and len(arrays["0/alive"]) == 5


def test_edges_of_a_given_graph_that_are_cut_stay_in_the_list() -> None:
    graph = random_regular_graph(20, 6, rng=0)
    model = CollaborativeMean(CLColME(sigma=0.5, level="agent"), graph=graph)
    feed = ModelFeed(model)
    ((first, _),) = news_of(feed)
    agent = np.tile(np.arange(20), 200)
    model.learn_many(agent=agent, value=5.0 * (agent % 2) + np.random.default_rng(0).normal(0, 0.5, len(agent)))
    ((frame, arrays),) = news_of(feed)
    alive = np.unpackbits(arrays["0/alive"], count=graph.n_edges, bitorder="little")
    assert frame["kind"] == "frame" and 0 < alive.sum() < graph.n_edges and first["run"]


def test_after_a_merge_all_agents_are_shown() -> None:
    model, other = learned(n_agents=10, n=100), CollaborativeMean()
    other.learn_many(agent=["x", 3], value=[1.0, 2.0])
    feed = ModelFeed(model)
    feed.news()
    model.merge(other)
    (start, _), (frame, _) = news_of(feed)
    assert start["names"][-1] == "x" and frame["t"] == 102


def test_of_many_agents_the_first_are_shown() -> None:
    model = CollaborativeMean(CLColME(sigma=1.0))
    agent = np.arange(5000)
    model.learn_many(agent=agent, value=agent % 2 * 1.0)
    (start, begun), (_, arrays) = news_of(ModelFeed(model))
    assert start["n_agents"] == 5000
    assert len(start["names"]) == len(arrays["mean"]) == 2000 and begun["edges"].max() < 2000


def test_a_view_changes_no_bit_of_what_is_learned() -> None:
    seen, alone = CollaborativeMean(), CollaborativeMean()
    feed = ModelFeed(seen)
    agent, value = two_classes(20, 600)
    for a, x in zip(agent.tolist(), value.tolist(), strict=True):
        seen.learn_one(a, x)
        alone.learn_one(a, x)
        if a % 3 == 0:
            feed.news()
    assert dict(seen.estimate_) == dict(alone.estimate_)


@pytest.fixture
def followed() -> Iterator[tuple[CollaborativeMean, LiveWidget]]:
    model = learned()
    widget = model.live(every=0.001, height=500)
    yield model, widget
    widget.close()


def last_t(widget: LiveWidget) -> int:
    return max(head.get("t", 0) for head in map(head_of, widget.messages))


def test_a_widget_follows_the_model_while_it_learns(followed: tuple[CollaborativeMean, LiveWidget]) -> None:
    model, widget = followed
    assert widget.height == 500 and last_t(widget) == 900
    for k in range(3):
        model.learn_one("more", float(k))
        wait_until(lambda: last_t(widget) == model.n_samples)
    assert times_in(widget) == sorted(set(times_in(widget)))


def times_in(widget: LiveWidget) -> list[int]:
    return [head["t"] for head in map(head_of, messages_in(widget.recording)) if head["kind"] == "frame"]


def test_the_thread_ends_when_the_widget_is_closed_or_the_model_is_gone() -> None:
    for close in (True, False):
        before = set(threading.enumerate())
        model = learned()
        widget = model.live(every=0.001)
        (mine,) = set(threading.enumerate()) - before
        if close:
            widget.close()
        del model
        gc.collect()
        mine.join(PATIENCE)
        assert not mine.is_alive()
        assert close or head_of(messages_in(widget.recording)[-1])["kind"] == "end"
        widget.close()


def test_an_error_ends_the_view_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    model = learned()
    widget = model.live(every=0.001)

    def fail(n: int) -> Any:
        raise ColmeError("broken.")

    monkeypatch.setattr(model, "first_agents", fail)
    model.learn_one(3, 1.0)
    wait_until(lambda: head_of(widget.messages[-1])["kind"] == "end")
    assert head_of(widget.messages[-2])["text"] == "The view has stopped: broken."
    widget.close()


@pytest.mark.parametrize("every", [0, -1, float("nan"), "often"])
def test_an_impossible_interval_is_refused(every: Any) -> None:
    with pytest.raises(ColmeError, match=r"every=.*Try every=0.5"):
        CollaborativeMean().live(every=every)
