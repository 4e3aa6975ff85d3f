"""The zenoh transport on loopback."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from colme.errors import NodeError
from colme.node.config.tables import Limits
from colme.node.net.zenoh_transport import CONTROL_ROOM
from tests.support.node_fleet import TICK, Opened, config, free_port, heard, until

OFTEN = Limits(max_rate=1e6)


def test_records_messages_and_presence_go_both_ways(maybe_keys: Path | None, port: int, opened: Opened) -> None:
    ann = opened(config("ann", keys=maybe_keys, port=port, neighbors={"bob": None}))
    bob = opened(config("bob", keys=maybe_keys, neighbors={"ann": port}))
    until(heard(ann, bob, b"record of bob"))
    until(heard(bob, ann, b"record of ann"))
    until(lambda: ann.present() == {"bob"} and bob.present() == {"ann"})
    for first, second in ((ann, bob), (bob, ann)):
        first.send(second.config.name, b"one")
        first.send(second.config.name, b"two")
        heard_messages: list[tuple[str, bytes]] = []
        until(lambda second=second, got=heard_messages: got.extend(second.control()) or len(got) == 2)  # type: ignore[misc]
        assert heard_messages == [(first.config.name, b"one"), (first.config.name, b"two")]


def test_the_newest_record_wins_and_is_heard_once(port: int, opened: Opened) -> None:
    ann = opened(config("ann", keys=None, port=port, neighbors={"bob": None}, limits=OFTEN))
    bob = opened(config("bob", keys=None, neighbors={"ann": port}, limits=OFTEN))
    until(heard(ann, bob, b"0"))
    for i in range(1, 19):
        bob.publish(str(i).encode())  # of records that arrive in one packet only the first is heard
    said: list[bytes] = []

    def newest_arrived() -> bool:
        time.sleep(0.02)
        bob.publish(b"19")
        said.extend(filter(None, [ann.latest("bob")]))
        return b"19" in said

    until(newest_arrived)
    assert said == sorted(said, key=int), "an older record never comes after a newer one"
    until(lambda: ann.latest("bob") is None)
    assert ann.latest("bob") is None


def test_control_messages_of_one_neighbor_do_not_crowd_out_those_of_another(port: int, opened: Opened) -> None:
    ann = opened(config("ann", keys=None, port=port, neighbors={"bob": None, "cid": None}))
    bob = opened(config("bob", keys=None, neighbors={"ann": port}))
    cid = opened(config("cid", keys=None, neighbors={"ann": port}))
    until(heard(ann, bob, b"b"))
    until(heard(ann, cid, b"c"))
    cid.send("ann", b"quiet word")
    for i in range(2000):
        bob.send("ann", str(i).encode())
    until(heard(ann, bob, b"after the messages"))  # a link keeps the order
    until(heard(ann, cid, b"after the message"))
    messages = ann.control()
    assert ("cid", b"quiet word") in messages
    numbers = [int(message) for name, message in messages if name == "bob"]
    assert len(numbers) == CONTROL_ROOM and numbers == sorted(numbers) and numbers[0] > 0, "older ones are dropped"


def test_neighbors_come_and_go_at_run_time(maybe_keys: Path | None, opened: Opened) -> None:
    protocol = "tcp" if maybe_keys is None else "tls"
    ports = {"ann": free_port(), "bob": free_port()}
    ann = opened(config("ann", keys=maybe_keys, port=ports["ann"], members=("cid",)))
    bob = opened(config("bob", keys=maybe_keys, port=ports["bob"], members=("cid",)))
    cid = opened(config("cid", keys=maybe_keys, members=("ann", "bob")))
    for other in (ann, bob):
        other.add("cid")
        cid.add(other.config.name, f"{protocol}/127.0.0.1:{ports[other.config.name]}")
        cid.add(other.config.name, f"{protocol}/127.0.0.1:{ports[other.config.name]}")  # nothing more happens
    until(heard(ann, cid, b"to both"))
    until(heard(bob, cid, b"to both"))
    cid.drop("ann")  # the end that dialed closes the link
    until(lambda: ann.present() == set())
    ann.latest("cid")
    cid.publish(b"only to bob")
    until(heard(bob, cid, b"only to bob"))
    assert ann.latest("cid") is None and cid.latest("ann") is None
    bob.drop("cid")  # the end that was dialed hears no records any more, but messages, and answers
    cid.publish(b"to nobody")
    got: list[tuple[str, bytes]] = []
    # repeated, as by agents: the new subscription may reach the sender after its first message has left
    until(lambda: (cid.send("bob", b"started"), got.extend(bob.control()), got)[-1])  # type: ignore[func-returns-value]
    assert set(got) == {("cid", b"started")} and bob.latest("cid") is None and bob.present() == set()
    bob.send("cid", b"cut")
    until(lambda: cid.control() == [("bob", b"cut")])
    cid.add("ann", f"{protocol}/127.0.0.1:{ports['ann']}")
    until(heard(ann, cid, b"again"))
    until(lambda: "cid" in ann.present())


def test_dropping_a_neighbor_that_is_still_being_dialed(port: int, opened: Opened) -> None:
    cid = opened(config("cid", keys=None, neighbors={"ann": port}))
    cid.drop("ann")
    ann = opened(config("ann", keys=None, port=port, neighbors={"cid": None}))
    for _ in range(20):
        cid.publish(b"nobody dials any more")
        time.sleep(TICK)
    assert ann.present() == set() and ann.latest("cid") is None


def test_a_listener_restarted_is_dialed_again(maybe_keys: Path | None, port: int, opened: Opened) -> None:
    settings = config("ann", keys=maybe_keys, port=port, neighbors={"bob": None})
    first = opened(settings)
    bob = opened(config("bob", keys=maybe_keys, neighbors={"ann": port}))
    until(heard(first, bob, b"before"))
    first.close()
    until(lambda: bob.present() == set())
    second = opened(settings)
    until(heard(second, bob, b"after"))
    until(lambda: bob.present() == {"ann"})


def test_if_both_ends_can_dial_one_link_remains_and_no_record_is_heard_twice(keys: Path, opened: Opened) -> None:
    ports = {"ann": free_port(), "bob": free_port()}
    ann = opened(config("ann", keys=keys, port=ports["ann"], neighbors={"bob": ports["bob"]}))
    bob = opened(config("bob", keys=keys, port=ports["bob"], neighbors={"ann": ports["ann"]}))
    until(heard(ann, bob, b"0"))
    ann._dialed["bob"]._dialed_us = -1e9  # ann does as if bob had no link, and dials, too
    got: list[int] = []

    def often() -> bool:
        bob.publish(str(time.monotonic_ns()).encode())
        time.sleep(TICK)
        ann.publish(b"")
        bob.latest("ann")
        got.extend(int(record) for record in [ann.latest("bob")] if record is not None)
        return len(got) >= 40 and ann.links() == {"bob": 1} and bob.links() == {}

    until(often)
    assert got == sorted(set(got)), "each record once, and in order"


def test_what_cannot_be_opened_or_added_is_refused(keys: Path, port: int, opened: Opened) -> None:
    ann = opened(config("ann", keys=None, port=port, members=("bob",)))
    deaf = opened(config("cid", keys=None, members=("bob",)))
    elsewhere = replace(config("bob", keys=keys), listen=("tls/192.0.2.1:7447",))  # reserved for documentation
    for call, words in (
        (lambda: ann.add("bbo"), r"unknown member 'bbo': .* Did you mean 'bob'\?"),
        (lambda: ann.add("bob", "tcp/192.0.2.1:7447"), r"off loopback TLS is required"),
        (lambda: deaf.add("bob"), r"'bob' has no endpoint, and this agent does not listen.*Give an endpoint"),
        (
            lambda: opened(config("bob", keys=None, port=port)),
            f"at tcp/127.0.0.1:{port}: Address already in use. Choose",
        ),
        (lambda: opened(elsewhere), r"at tls/192.0.2.1:7447: .*Choose an address of this machine"),
    ):
        with pytest.raises(NodeError, match=words):
            call()


def test_an_agent_alone_and_one_that_left_do_nothing_and_do_not_fail(port: int, opened: Opened) -> None:
    alone = opened(config("ann", keys=None, port=port))
    for _ in range(2):
        alone.publish(b"anybody?")
        alone.send("bob", b"you?")
        assert alone.latest("bob") is None and alone.control() == [] and alone.present() == set()
        alone.drop("bob")
        alone.close()


def test_nothing_blocks_while_a_neighbor_cannot_be_reached(opened: Opened) -> None:
    def use() -> None:
        lost = opened(config("ann", keys=None, neighbors={"bob": free_port(), "cid": free_port()}))
        for _ in range(100):
            lost.publish(b"x")
            lost.send("bob", b"x")
            lost.present()
        lost.close()

    thread = threading.Thread(target=use, daemon=True)  # dialing goes on forever: what waited for it would never end
    thread.start()
    thread.join(120)
    assert not thread.is_alive()
