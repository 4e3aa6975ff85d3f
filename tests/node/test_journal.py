"""The journal: what changes is said once, and nothing floods it. In virtual time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import colme
from colme.graphs import from_edges
from colme.node.device import Device
from colme.node.gateway import Gateway
from colme.node.io.journal import Journal
from colme.node.membership import Introductions
from colme.node.net.memory import MemoryNetwork
from colme.node.security.probe import Reason
from tests.support.nodes import PERIOD, Fleet, lone_core, lone_device

DAY = 86400.0


class Watched(Fleet):
    """A fleet of which the first agent has a journal."""

    def __init__(self, n: int = 2, **options: Any):
        edges = [(a, (a + 1) % n) for a in range(n if n > 2 else 1)]
        super().__init__(colme.CLColME(), from_edges(edges, n), MemoryNetwork(seed=1), sigma=1.0, **options)
        self.said: list[str] = []
        self.journal = Journal(self.said.append)

    def go_on(self, ticks: int, samples: Any = 0.0) -> list[str]:
        """Let some ticks pass; what was said."""
        self.said.clear()
        for _ in range(ticks):
            self.tick(samples)
            self.journal.look(self.devices[self.names[0]], self.network.now)
        return list(self.said)


SECOND = round(1 / PERIOD)


def ann(*neighbors: str) -> Device:
    return lone_device(lone_core(colme.CLColME(), "ann", neighbors))


def test_a_neighbor_is_said_to_be_heard_stale_and_heard_again() -> None:
    """What is as it should be is told apart from what to mend."""
    fleet, told = Watched(), list[str]()
    fleet.journal = Journal(fleet.said.append, told.append)
    ann, bob = fleet.names
    assert fleet.go_on(4 * SECOND) == [] and told == [f"{bob} is heard."]
    fleet.network.partition([ann], [bob])
    assert fleet.go_on(4 * SECOND) == [f"{bob} is stale: no record for 1.0 s."] and len(told) == 1
    fleet.network.partition()
    assert fleet.go_on(4 * SECOND) == [] and told[1].startswith(f"{bob} is heard again, after ")


def test_a_neighbor_that_comes_and_goes_does_not_flood_the_journal() -> None:
    fleet = Watched()
    ann, bob = fleet.names
    said = []
    for _ in range(12):
        fleet.network.partition()
        said += fleet.go_on(3 * SECOND)
        fleet.network.partition([ann], [bob])
        said += fleet.go_on(3 * SECOND)
    assert len(said) == 6 and said[-1].endswith("It comes and goes: further changes are counted for 10 minutes.")
    fleet.journal._next_look = 0.0
    fleet.journal.look(fleet.devices[ann], fleet.network.now + 700.0)
    assert fleet.said[-1].startswith(f"{bob} became fresh or stale 18 more times; now it is stale")


def test_a_neighbor_that_left_is_not_said_to_be_lost() -> None:
    fleet = Watched()
    ann, bob = fleet.names
    fleet.go_on(4 * SECOND)
    device = fleet.devices[ann]
    device.introductions = Introductions(ann, degree=1)
    device.introductions.left[bob] = fleet.network.now
    fleet.network.partition([ann], [bob])
    assert fleet.go_on(4 * SECOND) == [f"{bob} is stale: it has left."]


def test_cut_edges_and_new_neighbors_are_said() -> None:
    fleet = Watched(3)
    ann, bob, cid = fleet.names
    samples = np.array([0.0, 0.0, 4.0])
    rng = np.random.default_rng(1)
    said: list[str] = []
    while cid in fleet.devices[ann].core.neighbors:
        said += fleet.go_on(1, samples + rng.standard_normal(3))
    said += fleet.go_on(2 * SECOND, samples)
    assert f"{cid}: the edge is cut, because the means differ." in said
    core = fleet.devices[ann].core
    core.remove_neighbor(bob)
    assert fleet.go_on(2 * SECOND) == [f"{bob} is no longer a neighbor."]
    core.add_neighbor("agent-777")
    assert fleet.go_on(2 * SECOND) == [f"agent-777 is a new neighbor, in place of {cid}."]
    assert f"{ann} is" not in " ".join(said)


def test_an_edge_that_is_back_is_not_a_new_neighbor_and_forgotten_samples_are_mentioned() -> None:
    fleet = Watched()
    ann, bob = fleet.names
    fleet.go_on(4 * SECOND)
    core = fleet.devices[ann].core
    core.remove_neighbor(bob)
    fleet.go_on(2 * SECOND)
    core.add_neighbor(bob)
    core.cuts.revived[bob] = (1, 1, 1)
    assert fleet.go_on(2 * SECOND)[0] == f"{bob}: the edge is back, because the means no longer differ."
    assert fleet.go_on(2 * SECOND) == []
    core.cuts.forgotten += 1
    (sentence,) = fleet.go_on(4 * SECOND)
    assert sentence.startswith("the samples from before a cut were forgotten: those since differ from them.")


def test_what_comes_of_a_request_to_forgive_is_said() -> None:
    fleet = Watched()
    ann, bob = fleet.names
    rng = np.random.default_rng(1)
    classes = np.array([0.0, 4.0])
    while any(core.neighbors for core in fleet.cores):
        fleet.go_on(1, classes + rng.standard_normal(2))
    for _ in range(40 * SECOND):
        fleet.go_on(1, classes + rng.standard_normal(2))
    fleet.devices[ann].core.cuts.forgive(bob)
    said = [sentence for _ in range(4 * SECOND) for sentence in fleet.go_on(1, classes + rng.standard_normal(2))]
    assert said == [f"{bob}: the edge stays cut, because the means still differ."]


def test_local_agents_without_room_are_mentioned_at_1_2_4_8_samples() -> None:
    core = Gateway(colme.Census(estimate_sigma=True), "g", [], n_agents=1, max_ballots=2, most_agents=2)
    device, said = lone_device(core), list[str]()
    journal = Journal(said.append)
    for t in range(20):
        device.feed(float(t), [(name, float(t)) for name in "abc"])
        journal.look(device, float(t))
    assert [sentence.split()[0] for sentence in said] == ["1", "2", "4", "8", "16"]
    assert said[0] == (
        "1 sample of new local agents did not count: there are 2 already. See agents and forget of [gateway] in "
        "node.toml."
    )


def test_why_a_neighbor_is_silent_is_said_once_per_reason_and_hour() -> None:
    device = ann("bob")
    reason: list[Reason | None] = [None]
    device.transport.why_silent = lambda name: reason[0]  # type: ignore[method-assign]
    said: list[str] = []
    journal = Journal(said.append)

    def look(start: int, end: int) -> list[str]:
        said.clear()
        for now in range(start, end, 2):
            journal.look(device, float(now))
        return [sentence for sentence in said if sentence.startswith("bob")]

    assert look(0, 100) == []
    reason[0] = Reason("refused", "nothing listens.")
    assert look(100, 3000) == ["bob is silent: nothing listens."]
    reason[0] = Reason("unknown_ca", "another authority.")
    assert look(3000, 3100) == ["bob is silent: another authority."]
    assert look(3100, 7000) == ["bob is silent: another authority."]


def test_the_certificate_is_mentioned_at_30_7_and_1_days_and_when_it_has_expired() -> None:
    device = ann()
    said: list[str] = []
    wall = [0.0]
    journal = Journal(said.append, expires=60 * DAY, wall=lambda: wall[0])
    at = {}
    for hour in range(24 * 62):
        wall[0] = 3600.0 * hour
        before = len(said)
        journal._count, journal._samples_said = 0, True
        journal.look(device, wall[0])
        if len(said) > before:
            at[hour / 24] = said[-1]
    assert list(at) == [30, 53, 59, 60]
    assert "expires in 30 days (1970-03-02" in at[30] and "in 7 days" in at[53] and "in 24 hours" in at[59]
    assert "has expired" in at[60] and "--rotate" in at[60]
    for left, sentence in ((2 * DAY, "expires in 2 days"), (60.0, "expires in less than 2 hours")):  # at the start
        said.clear()
        again = Journal(said.append, expires=60 * DAY, wall=lambda left=left: 60 * DAY - left)
        for now in range(5):
            again.look(device, 2.0 * now)
        assert len(said) == 1 and sentence in said[0]
    assert journal.status() == {"certificate_expires": 60 * DAY, "certificate_days": pytest.approx(-47 / 24)}
    assert Journal(said.append).status() == {"certificate_expires": None, "certificate_days": None}


def test_samples_that_end_or_do_not_come_are_mentioned_once() -> None:
    device = ann()

    def look(start: int, end: int, ended: int) -> list[str]:
        """What is said by a journal that begins now, in seconds."""
        said: list[str] = []
        journal = Journal(said.append)
        for now in range(start, end, 2):
            if start > 0:
                device.tick(float(now), 1.0 if now < 100 or 300 <= now < 400 else float("nan"))
            journal.look(device, float(now), ended=now >= ended)
        return [sentence.partition(".")[0] for sentence in said]

    assert look(0, 400, ended=0) == ["there are no samples: their source is empty"]
    assert look(2, 600, ended=500) == [
        "no sample has arrived for 60 s", "samples arrive again", "no sample has arrived for 60 s",
    ]  # fmt: skip
    assert look(600, 700, ended=600) == ["the samples have ended"]


def test_local_agents_that_are_forgotten_are_not_samples_that_arrive() -> None:
    core = Gateway(colme.Census(sigma=1.0), "g", [], n_agents=1, sigma=1.0, forget_after=100.0)
    device, said = lone_device(core), list[str]()
    journal = Journal(said.append)
    for t in range(400):
        device.feed(float(t), [("a", 1.0), ("b", 2.0)] if t in (0, 1, 390) else [])
        journal.look(device, float(t))
    assert core.names == ["a", "b"] and core.n_samples == 2  # forgotten, and new
    assert len(said) == 2 and "no sample has arrived for 60 s" in said[0] and said[1] == "samples arrive again."
