"""Neighbors by introduction, on the memory network: joining, replacing, leaving and restarts."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings

import colme
from colme.errors import CheckpointError
from colme.graphs import from_edges, random_regular_graph
from colme.node.core import Core
from colme.node.membership import LATER, ROOM, Introductions
from colme.node.messages import membership, wire
from colme.node.messages.membership import MembershipMessage as Message
from colme.node.messages.membership import pack_membership, unpack_membership
from colme.node.net.memory import MemoryNetwork
from colme.node.store import AgentStore
from colme.support.saved import to_bytes
from tests.support.nodes import PERIOD, Fleet, Meeting, lone_core, network_of, notice, samples_of, schedules

SIGMA = 1.0
FLOW = colme.CLColME(consensus="flow")
LOSSY = {"loss": 0.2, "delay": (0.0, 3 * PERIOD), "duplication": 0.1}


def own_and_other(fleet: Fleet, n_classes: int) -> tuple[list[int], int]:
    """Neighbors of the own class, for each agent; and edges between classes."""
    same = [
        [int(core.name[-3:]) % n_classes == int(b[-3:]) % n_classes for b in core.neighbors] for core in fleet.cores
    ]
    return [sum(each) for each in same], sum(each.count(False) for each in same)


# Joining


def test_all_join_through_one_seed() -> None:
    """One after another, on a bad network. A graph whose agents all chose 4 at random has a second Laplacian eigenvalue
    well above that of a ring or a star of cliques; 0.54 is that of a random regular graph of degree 4 in the limit."""
    n, degree = 50, 4
    fleet = Meeting(
        colme.CLColME(), from_edges([], n), MemoryNetwork(seed=1, **LOSSY), degree=degree, seeds=[0], sigma=SIGMA
    )
    fleet.waiting(fleet.names[1:])
    rng = np.random.default_rng(0)
    for name in fleet.names[1:]:
        fleet.come(name)
        for _ in range(4):
            fleet.tick(rng.standard_normal(n))
    for _ in range(60):
        fleet.tick(rng.standard_normal(n))
    graph = fleet.graph
    laplacian = np.diag(graph.degrees).astype(float)
    for a, b in graph.edges():
        laplacian[a, b] = laplacian[b, a] = -1.0
    assert fleet.half_edges == 0
    assert degree <= graph.degrees.min() and graph.degrees.max() <= 3 * degree
    assert graph.degrees[0] / graph.n_edges < 0.1, "it is a star"
    assert np.linalg.eigvalsh(laplacian)[1] > 0.54
    assert set(sum((core.refused for core in fleet.cores), Counter())) <= {"old"}


@pytest.mark.parametrize("method", [colme.CLColME(), FLOW, colme.CColME()], ids=repr)
def test_who_comes_late_does_no_harm_and_soon_knows_what_all_know(method: Any) -> None:
    """Ten agents of one class have 200 samples each when the eleventh comes. After 40 ticks it is nearly as good as
    they are, where alone it would have an error of 1 / sqrt(40) = .16; no clock has begun anew; and the others, whose
    error is 1 / sqrt(2400) = .02 on a perfect network, were drawn away by no more than a third of .16."""
    n, late = 11, "agent-010"
    x, _ = samples_of(1, n, 240, 3, 0.0, SIGMA)
    ring = from_edges([(a, (a + k) % 10) for a in range(10) for k in (1, 2)], n)
    fleet = Meeting(method, ring, MemoryNetwork(seed=2), degree=4, seeds=[0], sigma=SIGMA)
    fleet.waiting([late])
    for row in x[:200]:
        fleet.tick(row)
    restarts = [getattr(core.agent, "restart", 0) for core in fleet.cores]
    fleet.come(late)
    for row in x[200:]:
        fleet.tick(row)
    assert len(fleet.devices[late].core.neighbors) >= 4 and fleet.half_edges == 0
    assert [getattr(core.agent, "restart", 0) for core in fleet.cores][:10] == restarts
    errors = np.abs([core.estimate for core in fleet.cores])
    assert errors[:10].max() < 0.055 and errors[10] < 0.08, errors
    assert not any(core.cuts.edges for core in fleet.cores)


# Replacing


@pytest.mark.parametrize(
    ("method", "n_classes"), [(colme.CLColME(), 8), pytest.param(FLOW, 2, marks=pytest.mark.slow)], ids=repr
)
def test_lost_neighbors_are_replaced_by_twins_and_errors_are_smaller(method: Any, n_classes: int) -> None:
    n, degree, n_steps = 40, 4, 150
    twins = n // n_classes - 1
    errors = np.zeros(2)
    x, truth = samples_of(n_classes, n, n_steps, 1, 3.0, SIGMA)
    graph = random_regular_graph(n, degree, rng=2)
    for i, kind in enumerate((Fleet, Meeting)):
        how = {"degree": degree} if kind is Meeting else {}
        fleet = kind(method, graph, MemoryNetwork(seed=3, loss=0.05), sigma=SIGMA, **how)
        errors[i] = ((fleet.run(x)[-1] - truth) ** 2).mean()
    own, other = own_and_other(fleet, n_classes)
    assert other == 0 and fleet.one_sided == 0
    assert min(own) >= min(degree, twins) and max(own) <= 3 * degree
    assert errors[1] < errors[0] * (0.5 if n_classes == 8 else 1.0), errors


def test_an_agent_without_twins_asks_everybody_once_and_then_is_quiet() -> None:
    n = 24
    fleet = Meeting(colme.CLColME(), random_regular_graph(n, 4, rng=1), MemoryNetwork(seed=1), degree=4, sigma=SIGMA)
    rng, alone = np.random.default_rng(1), fleet.names[7]
    asked: list[tuple[int, str]] = []
    send = fleet.devices[alone].transport.send

    def watch(to: str, message: bytes) -> None:
        questions = (membership.INVITE, membership.FIND_PEERS)
        if message[:4] == membership.MEMBERSHIP and unpack_membership(message).kind in questions:
            asked.append((fleet.periods, to))
        send(to, message)

    fleet.devices[alone].transport.send = watch  # type: ignore[method-assign]
    for _ in range(500):
        fleet.tick(5.0 * (np.arange(n) == 7) + rng.standard_normal(n))
    device = fleet.devices[alone]
    assert device.core.neighbors == [] and len(device.core.cuts.edges) <= 5
    strangers = {to for _, to in asked}
    assert len(strangers) > 16, "it did not look around"
    late = [to for when, to in asked if when > 300]
    assert len(late) <= 12, "it does not become quiet"  # rarer and rarer: 4 questions, doubled by delays of an answer
    assert min(own_and_other(fleet, 1)[0][:7]) >= 4


def test_a_neighbor_that_leaves_or_is_silent_for_long_is_replaced_and_welcome_back() -> None:
    n, patience = 12, 40.0
    fleet = Meeting(colme.CLColME(), random_regular_graph(n, 4, rng=1), MemoryNetwork(seed=1), degree=4, sigma=SIGMA,
                    patience=patience)  # fmt: skip
    rng = np.random.default_rng(1)

    def run(ticks: int) -> None:
        for _ in range(ticks):
            fleet.tick(rng.standard_normal(n))

    run(30)
    polite, rude = fleet.names[0], fleet.names[1]
    of_polite, of_rude = (list(fleet.devices[name].core.neighbors) for name in (polite, rude))
    fleet.devices[polite].leave()
    fleet.later = {name: fleet.devices.pop(name) for name in (polite, rude)}
    run(3)
    now = fleet.network.now
    for b in set(of_polite) - {rude}:
        device = fleet.devices[b]
        assert device.introductions is not None
        assert polite not in device.introductions.counting(device.core, now) and polite in device.core.neighbors
    b = next(b for b in of_rude if b != polite)
    other = fleet.devices[b]
    assert other.introductions is not None and rude in other.introductions.counting(other.core, now)
    run(int(patience) + 40)
    for device in fleet.devices.values():
        assert device.introductions is not None
        counting = device.introductions.counting(device.core, fleet.network.now)
        assert len(counting) >= 4 and not {polite, rude}.intersection(counting) and not device.core.cuts.edges
    fleet.come(polite)
    fleet.come(rude)
    run(20)
    assert fleet.half_edges == 0
    assert {polite, rude} & set(other.introductions.counting(other.core, fleet.network.now))


# Surplus edges


def changes(fleet: Meeting, ticks: int, rng: np.random.Generator) -> int:
    """Neighbors that came or went in so many ticks."""
    found = 0
    for _ in range(ticks):
        before = {name: set(device.core.neighbors) for name, device in fleet.devices.items()}
        fleet.tick(rng.standard_normal(len(fleet.names)))
        found += sum(len(before[name] ^ set(device.core.neighbors)) for name, device in fleet.devices.items())
    return found


@pytest.mark.parametrize(
    ("n", "degree", "polite", "lossy"),
    [(8, 2, True, False), (10, 4, True, True), pytest.param(16, 4, False, True, marks=pytest.mark.slow),
     pytest.param(24, 6, True, True, marks=pytest.mark.slow)],
)  # fmt: skip
def test_after_a_rolling_restart_surplus_edges_are_released_and_all_stay_connected(
    n: int, degree: int, polite: bool, lossy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each agent is gone for so long that its neighbors replace it, and comes back. Without releases, degrees stay
    above `degree` for good."""
    ring = from_edges([tuple(sorted((a, (a + k) % n))) for a in range(n) for k in range(1, degree // 2 + 1)], n)
    network = MemoryNetwork(seed=1, **LOSSY) if lossy else MemoryNetwork(seed=1)
    fleet = Meeting(colme.CLColME(), ring, network, degree=degree, sigma=SIGMA, patience=30.0, folder=tmp_path,
                    save_every=50)  # fmt: skip
    rng = np.random.default_rng(1)
    changes(fleet, 30, rng)
    for name in fleet.names:
        if polite:
            fleet.devices[name].leave()
            fleet.devices[name].save()
        fleet.stop(name)
        changes(fleet, 20 if polite else 60, rng)
        fleet.back(name)
        changes(fleet, 10, rng)
    assert fleet.graph.degrees.max() > degree + 1, "there is nothing to release"
    monkeypatch.setattr("colme.node.membership.CALM", 16)
    for _ in range(40):
        changes(fleet, 25, rng)
        assert fleet.graph.components().max() == 0 and fleet.graph.degrees.min() >= degree
        if fleet.graph.degrees.max() <= degree + 1:
            break
    assert fleet.half_edges == 0 and fleet.graph.degrees.max() <= degree + 1
    changes(fleet, 200, rng)
    assert changes(fleet, 200, rng) == 0, "edges are released and added again"
    assert not any(core.cuts.edges for core in fleet.cores)
    # strangers: an agent that has been started greets neighbors, some of which have replaced it
    assert set(sum((core.refused for core in fleet.cores), Counter())) <= {"old", "stranger"}


def test_no_edge_is_released_that_only_one_end_has_too_many_of_or_that_might_be_a_bridge() -> None:
    """ann has four neighbors and wants two."""
    core = lone_core(colme.CLColME(), "ann", [], degree=6)
    meet = Introductions("ann", degree=2)
    meet.receive(core, 0.0, [])
    for name in ("bob", "cid", "dan"):
        meet._add(core, 0.0, name)

    def hear(*names: str) -> None:
        friends = {name: lone_core(colme.CLColME(), name, ["ann"], degree=6) for name in names}
        core.tick(1.0, 0.0, {name: friend.tick(1.0, 0.0, {})[0] for name, friend in friends.items()})

    def asks(name: str, *theirs: str, near: int = 0, token: int = 7) -> int:
        request = Message(membership.RELEASE, token, (), tuple((b, None) for b in theirs), near)
        meet.receive(core, 1.0, [(name, pack_membership(request))])
        return meet._answers[name].kind

    hear("bob", "cid")
    assert asks("bob", "cid") == membership.KEEP  # it would have one that is heard
    hear("bob", "cid", "dan")
    assert asks("bob", "eve") == membership.KEEP and asks("bob") == membership.KEEP  # no neighbor of both
    assert asks("bob", "eve", near=1) == membership.KEEP  # ann has no first neighbors, so the edge may be a bridge
    meet._begin(membership.RELEASE, "cid", 1.0)
    assert asks("bob", "dan") == membership.KEEP  # one at a time
    meet.requests.clear()
    assert asks("bob", "dan", "eve") == membership.RELEASED and core.neighbors == ["cid", "dan"]
    assert asks("bob", "dan") == asks("gus") == membership.RELEASED  # it is no neighbor any more, or never was
    assert asks("cid", "dan") == membership.KEEP  # no more than wanted
    assert not core.cuts.edges and meet.to_drop == []
    meet.ticks = 3
    meet.send(core, 1.0 + meet.answer_in)
    assert "bob" in meet.to_drop  # the link ends later: the answer may have to be repeated


# Restarts


def test_who_was_met_is_still_a_neighbor_after_a_restart(tmp_path: Path) -> None:
    method, n = FLOW, 10
    fleet = Meeting(method, from_edges([(a, (a + 1) % n) for a in range(n)], n), MemoryNetwork(seed=1), degree=4,
                    sigma=SIGMA)  # fmt: skip
    name = fleet.names[3]
    fleet.stop(name)
    fleet.devices[name] = fleet.start(name, AgentStore(tmp_path / "db"), save_every=10**6)
    rng = np.random.default_rng(1)
    for _ in range(80):
        fleet.tick(rng.standard_normal(n))
    for saved in (False, True):  # it dies, but was saved when it met somebody; it stops
        before = fleet.stop(name)
        assert before.introductions is not None and len(before.introductions.introduced) >= 2
        after = fleet.devices[name] = fleet.start(name, AgentStore(tmp_path / "db"), save_every=10**6)
        assert after.introductions is not None
        assert after.core.neighbors == before.core.neighbors
        assert after.introductions.introduced == before.introductions.introduced
        if saved:
            assert after.introductions.address_book.endpoints == before.introductions.address_book.endpoints
            flows: Any = (after.core.agent, before.core.agent)
            assert flows[0].flows == flows[1].flows
        fleet.tick(rng.standard_normal(n))
        after.save()
    for _ in range(10):
        fleet.tick(rng.standard_normal(n))
    assert set(after.core.fresh(fleet.network.now)) == set(before.core.neighbors)
    with pytest.raises(CheckpointError, match=r"is torn"):
        after.introductions.restore(to_bytes({"book": 3}), after.core)


def test_who_was_met_and_cut_is_dialed_after_a_restart_until_it_knows(tmp_path: Path) -> None:
    fleet = Meeting(colme.CLColME(), from_edges([], 2), MemoryNetwork(seed=1), degree=1, seeds=[1], sigma=SIGMA)
    ann, bob = fleet.names
    fleet.devices[ann].transport.close()
    fleet.devices[ann] = fleet.start(ann, AgentStore(tmp_path / "db"))
    rng = np.random.default_rng(1)
    while fleet.devices[ann].core.neighbors != [bob]:
        fleet.tick(rng.standard_normal(2))
    before = fleet.devices[ann]
    assert before.introductions is not None
    before.introductions.address_book.remove(bob)  # its endpoint is known all the same
    far = np.array([0.0, 50.0])
    while bob not in before.core.cuts.edges:
        fleet.tick(rng.standard_normal(2) + far)
    fleet.network.partition([ann], [bob])
    before.core.cuts.edges[bob].known = False
    for _ in range(50):
        before.tick(fleet.network.now)
    before.transport.close()
    fleet.network.partition()
    after = fleet.start(ann, AgentStore(tmp_path / "db"))
    assert after.core.neighbors == [] and bob in after.transport.present()
    fleet.devices[ann] = after
    for _ in range(50):
        fleet.tick(rng.standard_normal(2) + far)
    assert after.core.cuts.edges[bob].known and after.introductions is not None
    assert after.introductions.introduced == {}
    assert bob not in after.transport.present() or bob not in after.core.gone(
        fleet.network.now
    )  # it is being asked again


def test_who_may_no_longer_come_is_no_neighbor_after_a_restart(tmp_path: Path) -> None:
    core = lone_core(colme.CLColME(), "ann", [])
    meet = Introductions("ann", degree=1, admits=lambda name, endpoint: name != "eve" and endpoint is not None)
    meet.restore(to_bytes({"book": {}, "met": {"eve": "tcp/127.0.0.1:1", "bob": None, "cid": "tcp/127.0.0.1:2"}}), core)
    assert core.neighbors == ["cid"] and meet.to_add == [("cid", "tcp/127.0.0.1:2")]


@pytest.mark.parametrize("n", [2, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", [colme.CLColME(), FLOW], ids=repr)
def test_no_edge_has_one_end_only_whatever_happened(method: Any, n: int) -> None:
    @settings(max_examples=n, deadline=None, derandomize=True, phases=[Phase.generate])  # shrinking would take minutes
    @given(schedule=schedules(60, 8))
    def survived(schedule: dict[str, Any]) -> None:
        join_in_trouble(method, schedule)

    survived()


def join_in_trouble(method: Any, schedule: dict[str, Any]) -> None:
    """All join while messages are lost and agents die, before or after they saved. When the trouble is over every edge
    is known to both ends, and every agent has neighbors."""
    n, sigma = 8, 0.5
    rng = np.random.default_rng(schedule["seed"])

    def row() -> Any:
        return 2.0 * (np.arange(n) % 2) + sigma * rng.standard_normal(n)

    with tempfile.TemporaryDirectory() as folder:
        fleet = Meeting(method, from_edges([], n), network_of(schedule), degree=3, seeds=[0, 1], sigma=sigma,
                        patience=60.0, folder=Path(folder), save_every=7)  # fmt: skip
        fleet.suffer((row() for _ in range(60)), schedule["deaths"])
        for _ in range(200):
            fleet.tick(row())
        assert fleet.half_edges == 0 and fleet.one_sided == 0
        own, other = own_and_other(fleet, 2)
        assert other == 0 and min(own) == 3  # all twins there are
        if method is FLOW:
            assert abs(fleet.imbalance) < 1e-3  # lost with a crash before saving, and halved since
        for name in fleet.names:
            fleet.stop(name)


# What membership messages are answered, and how little a liar achieves


def joiner(name: str = "a", neighbors: tuple[str, ...] = ("b",), **options: Any) -> tuple[Core, Introductions]:
    core = lone_core(colme.CLColME(), name, neighbors, n_agents=30, degree=18, sigma=SIGMA)
    options = {"endpoint": "tcp/127.0.0.1:9", "rng": random.Random(1)} | options
    return core, Introductions(name, **options)


def turn(core: Core, meet: Introductions, now: float, *messages: tuple[str, Message]) -> list[tuple[str, Message]]:
    """One tick; the messages that it writes."""
    rest = meet.receive(core, now, [(name, pack_membership(message)) for name, message in messages])
    core.tick(now, 0.1, {}, rest)
    return [(name, unpack_membership(raw)) for name, raw in meet.send(core, now)]


WIDE = ((0.0, 9.0),)


def test_who_is_asked_says_yes_once_it_is_saved_and_again_if_asked_again() -> None:
    core, meet = joiner()
    me = (("c", "tcp/127.0.0.1:7"),)
    for token in (5, 5, 6):
        messages = turn(core, meet, 0.1, ("c", Message(membership.INVITE, token, WIDE, me)))
        (answer,) = [message for name, message in messages if name == "c" and message.kind != membership.FIND_PEERS]
        assert (answer.kind, answer.token) == (membership.ACCEPT, token) and len(answer.intervals) == 1
        assert core.neighbors == ["b", "c"] and meet.introduced == dict(me)  # it may be dialed, too
    assert meet.to_add == [*me] and not meet.urgent
    meet.receive(core, 0.2, [("d", pack_membership(Message(membership.INVITE, 1, WIDE, (("d", None),))))])
    assert meet.urgent, "it would say yes before it is saved"


@pytest.mark.parametrize("why", ["cut", "apart", "hardly touches", "full", "other statistics", "another's name"])
def test_who_is_no_neighbor_is_told_no(why: str) -> None:
    core, meet = joiner(neighbors=("b", "c", "d"), degree=1)
    for _ in range(200):
        core.observe(0.0)
    radius = core.agent.intervals[0][1]  # type: ignore[attr-defined]
    intervals = {
        "apart": ((1.0, 0.1),), "hardly touches": ((1.5 * radius, radius),), "other statistics": WIDE * 2,
    }.get(why, ((0.0, radius),))  # fmt: skip
    if why == "cut":
        cut = notice(wire.CUT)
        core.tick(0.0, 0.0, {}, [("b", cut)])
    if why != "full":
        core.remove_neighbor("c")
    name, said = ("b", "b") if why == "cut" else ("x", "y" if why == "another's name" else "x")
    before = core.neighbors
    answers = dict(turn(core, meet, 0.1, (name, Message(membership.INVITE, 5, intervals, ((said, None),)))))
    assert core.neighbors == before
    if why == "another's name":
        assert core.refused == {"sense": 1} and name not in answers
    else:
        assert answers[name].kind == membership.REJECT


def test_a_cut_neighbor_is_dialed_until_it_knows() -> None:
    core, meet = joiner()
    turn(core, meet, 0.1, ("c", Message(membership.INVITE, 5, WIDE, (("c", "tcp/127.0.0.1:7"),))))
    core.tick(0.2, 0.0, {}, [("c", notice(wire.CUT))])
    for known in (False, True):
        core.cuts.edges["c"].known = known
        for _ in range(8):  # at least one review
            turn(core, meet, 0.3)
        assert ("c" in meet.introduced) is not known


def test_who_forgets_its_samples_may_invite_all_again() -> None:
    core, meet = joiner()
    meet.address_book.add("x", "tcp/127.0.0.1:7", "x", ())
    meet.address_book.avoid("x", 10**6)
    for forgotten, picked in ((0, None), (1, "x")):
        core.cuts.forgotten = forgotten
        for _ in range(8):
            turn(core, meet, 0.1)
        assert meet.address_book.pick(meet.ticks, (), ()) == picked


def test_answers_that_nobody_asked_for_are_refused() -> None:
    core, meet = joiner()
    for message in (
        Message(membership.PEERS, 0, (), (("x", "tcp/127.0.0.1:1"),)),
        Message(membership.ACCEPT, 1, WIDE),
        Message(membership.REJECT, 2, WIDE),
    ):
        turn(core, meet, 0.1, ("x", message), ("b", message))
    assert core.neighbors == ["b"] and meet.address_book.endpoints == {} and core.refused == {"old": 6}


def test_a_liar_costs_bounded_work_and_memory() -> None:
    """It answers every question with names that nobody has, asks at every tick, and comes back under new names."""
    core, meet = joiner(known={"b": "tcp/127.0.0.1:2"}, seeds={"s": "tcp/127.0.0.1:3"}, answer_in=20 * PERIOD)
    rng, messages, called = random.Random(3), 0, Counter[str]()
    asked: list[tuple[str, Message]] = []
    for k in range(1500):
        lies = [("b", Message(membership.FIND_PEERS, k, (), (("b", "tcp/127.0.0.1:2"),)))]
        for name, question in asked:
            names = tuple((f"x{rng.getrandbits(40)}", "tcp/127.0.0.1:1") for _ in range(8))
            if name == "b" and question.kind in (membership.FIND_PEERS, membership.INVITE):
                kind = membership.PEERS if question.kind == membership.FIND_PEERS else membership.ACCEPT
                lies.append(("b", Message(kind, question.token, WIDE, names, 8)))
        lies.append((f"y{k}", Message(membership.INVITE, 1, ((50.0, 0.1),), ((f"y{k}", "tcp/127.0.0.1:1"),))))
        asked = turn(core, meet, k * PERIOD, *lies)
        messages += len(asked)
        called.update(name for name, _ in meet.to_add)
        meet.to_add, meet.to_drop = [], []
        assert len(meet.address_book.endpoints) <= ROOM and len(meet.requests) <= 8 and len(meet.introduced) <= 18
    assert messages < 4 * 1500 and called.total() < 1500 / 8, "it runs after every lie"
    assert len(meet.address_book._avoided) <= 4096
    assert max(count for name, count in called.items() if name.startswith("x")) <= 1 + 1500 // LATER


def test_names_where_nobody_may_be_dialed_are_not_written_down() -> None:
    core, meet = joiner(admits=lambda name, place: place != "tcp/192.0.2.1:7")
    messages = [each for k in range(8) for each in turn(core, meet, 0.01 * k)]
    question = next(message for name, message in messages if name == "b" and message.kind == membership.FIND_PEERS)
    told = (("x", "tcp/192.0.2.1:7"), ("a", "tcp/127.0.0.1:1"), ("y", None), ("z", "tcp/127.0.0.1:4"))
    turn(core, meet, 0.2, ("b", Message(membership.PEERS, question.token, (), told)))
    assert meet.address_book.endpoints == {"z": "tcp/127.0.0.1:4"}
    turn(core, meet, 0.3, ("z", Message(membership.FIND_PEERS, 1, (), (("z", "tcp/127.0.0.1:5"),))))
    assert meet.address_book.endpoints == {"z": "tcp/127.0.0.1:5"}, "it has moved"


def test_goodbyes_of_strangers_are_nothing() -> None:
    core, meet = joiner()
    turn(core, meet, 0.1, ("x", Message(membership.LEAVE)))
    assert meet.left == {} and core.neighbors == ["b"]
    assert [(name, unpack_membership(raw).kind) for name, raw in meet.leave_messages(core)] == [("b", membership.LEAVE)]


def test_fuzzed_letters_do_not_raise() -> None:
    rng = random.Random(4)
    core, meet = joiner(known={"b": "tcp/127.0.0.1:2"})
    whole = [
        pack_membership(Message(kind, 1, WIDE, (("b", "tcp/127.0.0.1:2"), ("c", None)), 1))
        for kind in range(membership.FIND_PEERS, membership.LEAVE + 1)
    ]
    for k in range(5000):
        raw = bytearray(rng.choice(whole))
        for _ in range(rng.randrange(3)):
            raw[rng.randrange(4, len(raw))] = rng.randrange(256)
        rest = meet.receive(core, k * PERIOD, [("b", bytes(raw[: rng.choice((len(raw), rng.randrange(4, 60)))]))])
        assert rest == []
        meet.send(core, k * PERIOD)
    assert {"size", "range", "value", "version"} <= set(core.refused) and core.neighbors == ["b"]
