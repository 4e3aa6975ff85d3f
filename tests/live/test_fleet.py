"""The feed of a fleet: what nodes say, as messages of the live view."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import colme
from colme.graphs import complete_graph
from colme.live.fleet_feed import (
    LONGEST_KEY,
    MOST_AGENTS,
    MOST_EDGES,
    MOST_HEARSAY,
    MOST_ROWS,
    Answer,
    FleetFeed,
    Statement,
)
from colme.live.messages import LONGEST_NAME
from colme.node.io.status import status_of
from colme.node.net.memory import MemoryNetwork
from tests.support.live_messages import unpack
from tests.support.nodes import Fleet

Message = tuple[dict[str, Any], dict[str, NDArray[Any]]]
MARKUP = "</script><img src=x onerror=alert(1)>"
HOSTILE = [MARKUP, "\u202egnp.txt\u2066", "x" * 10_240, "\ud800", "a\nb\x1b[31m", "", " "]


class Watched:
    """A feed over statuses that a test sets, at a time that a test sets."""

    def __init__(self, **statuses: Any):
        self.statuses: dict[str, Any] = statuses
        self.now = 100.0
        self.feed = FleetFeed(title="a fleet", clock=lambda: self.now)

    def _answers(self) -> Iterator[Answer]:
        for name, status in self.statuses.items():
            yield Answer(name, None if status is None else Statement.parse(status))

    def poll_bytes(self) -> list[bytes]:
        return self.feed.messages(self._answers())

    def poll(self) -> list[Message]:
        return list(map(unpack, self.poll_bytes()))

    def frame(self) -> Message:
        return self.poll()[-1]


def status(mean: float = 0.0, neighbors: Any = (), cut: Any = (), **more: Any) -> dict[str, Any]:
    """A status such as nodes give; neighbors are names, or rows."""
    rows = [{"name": each, "fresh": True, "age": 0.5} if isinstance(each, str) else each for each in neighbors]
    return {
        "samples": 7, "mean": mean, "estimate": mean + 0.5, "lower": mean - 0.5, "upper": mean + 2.5,
        "radius": 1.0, "trust": 0.25, "neighbors": len(rows), "fresh": len(rows), "cut": len(cut), "incarnation": 3,
        "refused": {"old": 2, "sense": 3}, "bad_lines": 1, "late": 4, "neighbor_rows": rows, "cut_names": list(cut),
    } | more  # fmt: skip


def bits(frame: Message, key: str) -> list[int]:
    return [int(bit) for bit in np.unpackbits(frame[1][key], bitorder="little")]


def row_of(frame: Message, name: str) -> dict[str, Any]:
    return next(row for row in frame[0]["rows"] if row["name"] == name)


def test_the_first_poll_sends_a_start_and_a_frame() -> None:
    start, frame = Watched(ann=status(1.0, ["bob"]), bob=status(2.0, ["ann"])).poll()
    assert start[0]["kind"] == "start" and start[0]["names"] == ["ann", "bob"] and start[0]["unit"] == "seconds"
    assert start[0]["n_agents"] == 2 and start[1]["edges"].tolist() == [0, 1]
    assert frame[0]["kind"] == "frame" and frame[0]["t"] == 0.0
    assert frame[1]["mean"].tolist() == [1.0, 2.0] and frame[1]["0/estimate"].tolist() == [1.5, 2.5]
    assert frame[1]["0/below"].tolist() == [1.0, 1.0] and frame[1]["0/above"].tolist() == [2.0, 2.0]
    assert frame[1]["count"].tolist() == [7, 7] and frame[1]["state"].tolist() == [1, 1]


def test_a_start_is_sent_again_only_when_agents_or_edges_are_added() -> None:
    watched = Watched(ann=status(0.0, ["bob"]))
    first = watched.poll()[0]
    assert [head["kind"] for head, _ in watched.poll()] == ["frame"]
    watched.statuses["ann"] = status(0.0, ["cid", "bob"])
    again = watched.poll()[0]
    assert again[0]["run"] == first[0]["run"]
    assert again[0]["names"] == ["ann", "bob", "cid"] and again[1]["edges"].tolist() == [0, 1, 0, 2]


def test_agents_and_edges_that_are_gone_keep_their_places() -> None:
    watched = Watched(ann=status(0.0, ["bob"]))
    watched.poll()
    watched.statuses["ann"] = status(0.0, ["cid"])
    frame = watched.frame()
    assert bits(frame, "0/alive")[:2] == [0, 1] and frame[1]["state"].tolist() == [1, 0, 1]


def test_a_silent_node_keeps_its_last_numbers_and_its_age_grows() -> None:
    watched = Watched(ann=status(1.0))
    watched.poll()
    watched.statuses["ann"], watched.now = None, 104.0
    frame = watched.frame()
    assert frame[0]["t"] == 4.0 and frame[1]["state"].tolist() == [0] and frame[1]["mean"].tolist() == [1.0]
    assert row_of(frame, "ann")["age"] == 4.0 and row_of(frame, "ann")["answers"] is False


def test_an_agent_that_is_not_asked_is_shown_as_it_was_last_heard() -> None:
    older = {"name": "cid", "fresh": False, "age": 9.0, "samples": 3, "mean": 1.0, "estimate": 1.0, "incarnation": 1}
    newer = {"name": "cid", "fresh": True, "age": 1.0, "samples": 5, "mean": 4.0, "estimate": 4.5, "incarnation": 2}
    for rows in ([older], [newer]), ([newer], [older]):
        frame = Watched(ann=status(0.0, rows[0]), bob=status(0.0, rows[1])).frame()
        cid = row_of(frame, "cid")
        assert frame[1]["mean"][2] == 4.0 and frame[1]["count"][2] == 5 and frame[1]["state"][2] == 1
        assert cid["kind"] == "neighbor" and cid["age"] == 1.0 and cid["incarnation"] == 2 and cid["estimate"] == 4.5


@pytest.mark.parametrize("answer", [status(1.0), None])
def test_what_others_heard_never_replaces_what_an_asked_node_says(answer: Any) -> None:
    heard = {"name": "bob", "fresh": True, "age": 0.0, "samples": 99, "mean": 50.0, "estimate": 50.0}
    frame = Watched(ann=status(0.0, [heard]), bob=answer).frame()
    assert frame[1]["mean"][1] != 50.0 and frame[1]["count"][1] != 99


def test_ends_that_answer_decide_about_an_edge() -> None:
    cutting = {"ann": status(0.0, [], ["bob"]), "bob": status(0.0, [], ["ann"])}
    for now, alive in (
        ({}, 0), ({"ann": None, "bob": None}, 0), ({"ann": None, "bob": status(0.0, ["ann"])}, 1),
        ({"ann": status(0.0, ["bob"])}, 0),
    ):  # fmt: skip
        watched = Watched(**cutting)
        watched.poll()
        watched.statuses |= now
        assert bits(watched.frame(), "0/alive")[0] == alive


def test_an_edge_is_fresh_if_both_ends_say_so() -> None:
    stale = {"name": "ann", "fresh": False, "age": 30.0}
    for other, fresh in ((status(0.0, ["ann"]), 1), (status(0.0, [stale]), 0), (status(), 0), (None, 0)):
        frame = Watched(ann=status(0.0, ["bob"]), bob=other).frame()
        assert bits(frame, "0/alive")[0] == 1 and bits(frame, "0/fresh")[0] == fresh


def test_radii_are_sent_where_nobody_has_an_interval() -> None:
    frame = Watched(ann=status(lower=None, upper=None), bob=status(lower=None, upper=None, radius=-1)).frame()
    np.testing.assert_allclose(frame[1]["0/radius"], [1.0, math.nan])
    assert "0/below" not in frame[1]


def test_an_interval_without_its_estimate_is_not_shown() -> None:
    frame = Watched(ann=status(), bob=status(lower=5.0, upper=9.0)).frame()
    assert np.isnan(frame[1]["0/below"]).tolist() == np.isnan(frame[1]["0/above"]).tolist() == [False, True]


def test_rows_have_the_counters_of_the_wide_table() -> None:
    row = row_of(Watched(ann=status(1.0, ["bob"])).frame(), "ann")
    assert row == {
        "name": "ann", "kind": "node", "answers": True, "agents": None, "samples": 7, "mean": 1.0, "estimate": 1.5,
        "lower": 0.5, "upper": 3.5, "trust": 0.25, "neighbors": 1, "fresh": 1, "cut": 0, "refused": 5, "bad_lines": 1,
        "late": 4, "incarnation": 3, "age": 0.0,
    }  # fmt: skip


def test_a_gateway_has_counters_and_no_estimate_and_a_note_says_so() -> None:
    none = dict.fromkeys(("mean", "radius", "estimate", "lower", "upper"))
    start, told, frame = Watched(hub=status(0.0, ["ann"], agents=300) | none, ann=status()).poll()
    assert start[0]["kind"] == "start" and told[0]["kind"] == "note" and "Gateways" in told[0]["text"]
    assert np.isnan(frame[1]["0/estimate"]).tolist() == [True, False]
    assert row_of(frame, "hub")["kind"] == "gateway" and row_of(frame, "hub")["agents"] == 300


def test_local_agents_have_an_edge_to_their_gateway_and_the_group_that_it_says() -> None:
    watched = Watched(**{
        f"hub/meter-{k}": status(float(k), gateway="hub", group=k % 2, neighbor_rows=[]) for k in range(4)
    })  # fmt: skip
    watched.statuses["hub"] = status(0.0, ["other"], agents=4)
    start, *_, frame = watched.poll()
    hub = start[0]["names"].index("hub")
    assert start[1]["edges"].reshape(-1, 2)[:4].tolist() == [[k, hub] for k in range(4)]
    groups = frame[1]["0/group"].tolist()
    assert groups[0] == groups[2] != groups[1] == groups[3] and groups[hub] not in groups[:4]
    assert bits(frame, "0/alive")[:4] == bits(frame, "0/fresh")[:4] == [1] * 4
    assert row_of(frame, "hub/meter-1")["kind"] == "local agent"


def test_of_two_answers_for_one_name_the_first_counts() -> None:
    answers = [Answer("ann", None), Answer("ann", Statement.parse(status(2.0))), Answer("ann", Statement.parse({}))]
    frame = unpack(FleetFeed().messages(answers)[-1])
    assert frame[1]["mean"].tolist() == [2.0] and frame[1]["state"].tolist() == [1]


def test_names_of_peers_are_short_text() -> None:
    watched = Watched(ann=status(0.0, [{"name": name, "fresh": True} for name in HOSTILE], HOSTILE))
    names = watched.poll()[0][0]["names"]
    assert names[1] == MARKUP and len(names) == len(HOSTILE)  # the empty name is none
    assert all(len(name) <= LONGEST_NAME for name in names)
    assert not set("\u202e\u2066\ud800\n\x1b") & set("".join(names))
    said = Statement.parse(status(0.0, ["n" * 10**6], ["m" * 10**6], gateway="g" * 10**6))
    assert {len(name) for name in (*said.neighbors, *said.cut, str(said.gateway))} == {LONGEST_KEY}


def test_agents_and_edges_are_bounded_and_notes_say_so() -> None:
    """A node that names other neighbors each time leaves room for those that speak for themselves."""
    watched = Watched(ann=status(), bob=status())
    texts = []
    for turn in range(4):
        watched.statuses["ann"] = status(0.0, [f"{turn}-{k}" for k in range(1500)])
        texts += [head["text"] for head, _ in watched.poll() if head["kind"] == "note"]
    frame = watched.frame()
    assert len(frame[1]["mean"]) == 2 + MOST_HEARSAY and len(frame[0]["rows"]) == MOST_ROWS
    watched.statuses |= {f"late-{k}": status() for k in range(MOST_AGENTS)}
    watched.statuses |= {f"late-{k}": status(0.0, [f"late-{b}" for b in range(300)]) for k in range(300)}
    start, *told, frame = watched.poll()
    texts += [head["text"] for head, _ in told]
    assert len(frame[1]["mean"]) == MOST_AGENTS and (frame[1]["state"] == 1).sum() >= MOST_AGENTS - MOST_HEARSAY
    assert len(start[1]["edges"]) == 2 * MOST_EDGES and len(frame[1]["0/alive"]) == MOST_EDGES // 8
    for most in (MOST_HEARSAY, MOST_AGENTS, MOST_EDGES):
        assert sum(f"than {most} " in text and "not shown" in text for text in texts) == 1


def test_an_absurd_number_is_in_the_table_but_not_drawn_and_a_note_says_so() -> None:
    watched = Watched(ann=status(1.0), bob=status(1.001), liar=status(1e299))
    _, told, frame = watched.poll()
    np.testing.assert_allclose(frame[1]["mean"], [1.0, 1.001, math.nan])
    assert np.isnan(frame[1]["0/above"]).tolist() == [False, False, True]
    assert row_of(frame, "liar")["mean"] == 1e299 and "Numbers of liar are far" in told[0]["text"]
    assert [head["kind"] for head, _ in watched.poll()] == ["frame"]


def test_a_class_far_away_is_drawn_also_when_estimates_agree() -> None:
    frame = Watched(**{f"n-{k}": status(1e-3 * k + 500 * (k > 6), estimate=500.0 * (k > 6)) for k in range(9)}).frame()
    assert np.isfinite(frame[1]["mean"]).all() and np.isfinite(frame[1]["0/estimate"]).all()


KEYS = [*status(), "name"]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["ann", "bob"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
statuses = st.dictionaries(st.sampled_from([*status(), "agents", "gateway", "group"]), values, max_size=8)


@given(st.lists(st.tuples(statuses, statuses), min_size=1, max_size=3))
def test_nothing_that_nodes_say_raises(turns: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    watched = Watched()
    for ann, bob in turns:
        watched.statuses = {"ann": ann, "bob": bob}
        watched.now += 1.0
        head, arrays = watched.frame()
        n = len(arrays["mean"])
        assert len(head["rows"]) == n >= 2 and {len(arrays[key]) for key in ("state", "0/group", "0/estimate")} == {n}


def test_real_nodes_that_cut_edges_fall_into_groups() -> None:
    """Six agents of two classes on a memory network."""
    graph = complete_graph(6)
    fleet = Fleet(colme.CLColME(sigma=1.0), graph, MemoryNetwork(seed=0))
    rng = np.random.default_rng(0)
    fleet.run(np.repeat([0.0, 20.0], 3) + rng.standard_normal((40, 6)))
    watched = Watched(**{name: status_of(each, fleet.network.now) for name, each in fleet.devices.items()})
    start, frame = watched.poll()
    kept = [bool(bit) for bit in bits(frame, "0/alive")[: graph.n_edges]]
    same = start[1]["edges"].reshape(-1, 2) // 3
    assert start[0]["names"] == fleet.names and kept == (same[:, 0] == same[:, 1]).tolist()
    assert bits(frame, "0/fresh") == bits(frame, "0/alive") and frame[0]["panels"][0]["metrics"]["answering"] == 6
    groups = frame[1]["0/group"].tolist()
    assert len(set(groups[:3])) == len(set(groups[3:])) == 1 and groups[0] != groups[3]
    np.testing.assert_allclose(frame[1]["mean"], [core.mean for core in fleet.cores], atol=1e-3)
