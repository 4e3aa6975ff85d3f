"""The memory network: loss, delay, duplication and partitions happen at the given rates, reproducibly."""

from __future__ import annotations

import math
from typing import Any

import pytest

from colme.errors import NodeError
from colme.node.net.memory import MemoryNetwork, MemoryTransport

FAR = 1e9


def pair(**how: Any) -> tuple[MemoryNetwork, MemoryTransport, MemoryTransport]:
    network = MemoryNetwork(**how)
    return network, network.join("a", ["b"]), network.join("b", ["a"])


def test_only_the_newest_record_is_kept_and_read_once_and_control_messages_queue() -> None:
    network, a, b = pair()
    for message in (b"1", b"2"):
        a.publish(message)
        b.send("a", message)
    assert b.latest("a") is None, "nothing arrives before time passes"
    network.settle()
    assert (b.latest("a"), b.latest("a"), a.latest("b")) == (b"2", None, None)
    assert a.control() == [("b", b"1"), ("b", b"2")] and a.control() == b.control() == []


def test_delays_are_kept_and_messages_overtake() -> None:
    network, a, b = pair(delay=(1.0, 3.0), seed=1)
    for k in range(50):
        a.send("b", bytes([k]))
    network.run_until(0.999)
    assert b.control() == []
    network.run_until(3.0)
    order = [raw[0] for _, raw in b.control()]
    assert sorted(order) == list(range(50)) != order


@pytest.mark.parametrize(("how", "expected"), [({"loss": 0.3}, 0.7), ({"duplication": 0.2}, 1.2)])
def test_misfortunes_are_as_frequent_as_told(how: dict[str, float], expected: float) -> None:
    n, (network, a, b) = 4000, pair(seed=3, **how)
    for _ in range(n):
        a.send("b", b"x")
    network.settle()
    share = next(iter(how.values()))
    assert len(b.control()) / n == pytest.approx(expected, abs=4 * math.sqrt(share * (1 - share) / n))


def test_a_partition_stops_what_is_on_its_way_and_healing_does_not_bring_it_back() -> None:
    network, a, b = pair(delay=(1.0, 1.0))
    a.publish(b"1")
    network.partition(["a"], ["b", "c"])
    assert a.present() == set()
    network.run_until(2.0)
    a.publish(b"2")
    network.partition()
    network.run_until(4.0)
    assert b.latest("a") is None and a.present() == {"b"} and network.lost == 2
    a.publish(b"3")
    network.run_until(FAR)
    assert b.latest("a") == b"3"


def test_the_seed_decides() -> None:
    heard = []
    for seed in (1, 1, 2):
        network, a, b = pair(seed=seed, loss=0.5, delay=(0.0, 1.0), duplication=0.5)
        for k in range(100):
            a.send("b", bytes([k]))
        network.settle()
        heard.append(b.control())
    assert heard[0] == heard[1] != heard[2]


def test_bad_networks_are_refused() -> None:
    for how, words in (
        ({"loss": 1.5}, "loss=1.5.*between 0 and 1.*Try loss=0.2"), ({"delay": (2.0, 1.0)}, "delay=.*Try delay="),
        ({"duplication": -1.0}, "duplication=-1.0.*Try duplication=0.2"),
    ):  # fmt: skip
        with pytest.raises(NodeError, match=words):
            MemoryNetwork(**how)
    network, _, b = pair()
    with pytest.raises(NodeError, match=r"'b' has joined already.*Close its transport first"):
        network.join("b")
    b.close()
    network.join("b")
