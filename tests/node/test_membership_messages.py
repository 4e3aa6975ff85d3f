"""How an agent reacts to membership messages: what it accepts and refuses, and how little a liar achieves."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import colme
from colme.node.core import Core
from colme.node.membership import LATER, ROOM, Introductions
from colme.node.messages import membership, wire
from colme.node.messages.membership import MembershipMessage as Message
from colme.node.messages.membership import pack_membership, unpack_membership
from tests.support.nodes import PERIOD

SIGMA = 1.0


def alone(name: str = "a", neighbors: tuple[str, ...] = ("b",), **options: Any) -> tuple[Core, Introductions]:
    core = Core(colme.CLColME(), name, neighbors, n_agents=30, degree=18, sigma=SIGMA)
    options = {"endpoint": "tcp/127.0.0.1:9", "rng": random.Random(1)} | options
    return core, Introductions(name, **options)


def turn(core: Core, meet: Introductions, now: float, *messages: tuple[str, Message]) -> list[tuple[str, Message]]:
    """One tick; the messages that it writes."""
    rest = meet.receive(core, now, [(name, pack_membership(message)) for name, message in messages])
    core.tick(now, 0.1, {}, rest)
    return [(name, unpack_membership(raw)) for name, raw in meet.send(core, now)]


WIDE = ((0.0, 9.0),)


def test_who_is_asked_says_yes_once_it_is_saved_and_again_if_asked_again() -> None:
    core, meet = alone()
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
    core, meet = alone(neighbors=("b", "c", "d"), degree=1)
    for _ in range(200):
        core.observe(0.0)
    radius = core.agent.intervals[0][1]  # type: ignore[attr-defined]
    intervals = {
        "apart": ((1.0, 0.1),), "hardly touches": ((1.5 * radius, radius),), "other statistics": WIDE * 2,
    }.get(why, ((0.0, radius),))  # fmt: skip
    if why == "cut":
        cut = wire.pack_control(wire.Control(wire.CUT, 1, 1))
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


def test_answers_that_nobody_asked_for_are_refused() -> None:
    core, meet = alone()
    for message in (
        Message(membership.PEERS, 0, (), (("x", "tcp/127.0.0.1:1"),)),
        Message(membership.ACCEPT, 1, WIDE),
        Message(membership.REJECT, 2, WIDE),
    ):
        turn(core, meet, 0.1, ("x", message), ("b", message))
    assert core.neighbors == ["b"] and meet.address_book.endpoints == {} and core.refused == {"old": 6}


def test_a_liar_costs_bounded_work_and_memory() -> None:
    """It answers every question with names that nobody has, asks at every tick, and comes back under new names."""
    core, meet = alone(known={"b": "tcp/127.0.0.1:2"}, seeds={"s": "tcp/127.0.0.1:3"}, answer_in=20 * PERIOD)
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
    core, meet = alone(admits=lambda name, place: place != "tcp/192.0.2.1:7")
    messages = [each for k in range(8) for each in turn(core, meet, 0.01 * k)]
    question = next(message for name, message in messages if name == "b" and message.kind == membership.FIND_PEERS)
    told = (("x", "tcp/192.0.2.1:7"), ("a", "tcp/127.0.0.1:1"), ("y", None), ("z", "tcp/127.0.0.1:4"))
    turn(core, meet, 0.2, ("b", Message(membership.PEERS, question.token, (), told)))
    assert meet.address_book.endpoints == {"z": "tcp/127.0.0.1:4"}
    turn(core, meet, 0.3, ("z", Message(membership.FIND_PEERS, 1, (), (("z", "tcp/127.0.0.1:5"),))))
    assert meet.address_book.endpoints == {"z": "tcp/127.0.0.1:5"}, "it has moved"


def test_goodbyes_of_strangers_are_nothing() -> None:
    core, meet = alone()
    turn(core, meet, 0.1, ("x", Message(membership.LEAVE)))
    assert meet.left == {} and core.neighbors == ["b"]
    assert [(name, unpack_membership(raw).kind) for name, raw in meet.leave_messages(core)] == [("b", membership.LEAVE)]


def test_fuzzed_letters_do_not_raise() -> None:
    rng = random.Random(4)
    core, meet = alone(known={"b": "tcp/127.0.0.1:2"})
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
