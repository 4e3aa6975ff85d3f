"""Joining over zenoh with mutual TLS: agents with a certificate of the authority are admitted, and no others."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import colme
from colme.node.assemble import introductions_of
from colme.node.config.node_toml import NodeConfig
from colme.node.config.tables import Join
from colme.node.core import Core
from colme.node.device import Device
from colme.node.io.status import status_of
from colme.node.net.admission import Admission
from colme.node.net.zenoh_transport import ZenohTransport
from tests.node.test_security import Intruder, with_certificate
from tests.support.node_fleet import NAMES, TICK, Opened, config, free_port, heard, tls, until


def joining(name: str, keys: Path | None, port: int, seed: tuple[str, int] | None = None, **more: Any) -> NodeConfig:
    """An agent that knows nobody but, perhaps, a seed."""
    protocol = "tcp" if keys is None else "tls"
    start = {} if seed is None else {"seed": seed[0], "endpoint": f"{protocol}/127.0.0.1:{seed[1]}"}
    join = Join(degree=2, admit="members" if keys is None else "certified", **start, **more)
    return NodeConfig(
        name=name, network="test", method=colme.CLColME(sigma=1.0), preset="local", tick_rate=1 / TICK,
        listen=(f"{protocol}/127.0.0.1:{port}",), join=join, tls=None if keys is None else tls(keys, name),
        n_agents=len(NAMES), members=tuple(other for other in NAMES if other != name) if keys is None else (),
    )  # fmt: skip


def device_of(transport: ZenohTransport) -> Device:
    settings = transport.config
    core = Core(settings.method, settings.name, (), n_agents=len(NAMES), degree=settings.degree,
                stale_after=settings.freshness)  # fmt: skip
    return Device(core, transport, introductions=introductions_of(settings))


def run(devices: list[Device], until_all: Callable[[Device], bool], seconds: float = 120.0) -> None:
    """Tick until all are content."""
    rng, end = random.Random(1), time.monotonic() + seconds
    while not all(until_all(device) for device in devices):
        assert time.monotonic() < end, [(device.core.name, device.core.neighbors) for device in devices]
        for device in devices:
            device.tick(time.monotonic(), rng.gauss(0.0, 1.0))
        time.sleep(TICK)


def has_fresh(n: int) -> Callable[[Device], bool]:
    return lambda device: len(device.core.fresh(time.monotonic())) >= n


@pytest.mark.parametrize("secure", [True, False], ids=["tls", "tcp"])
def test_who_knows_only_a_seed_finds_neighbors(secure: bool, keys: Path, opened: Opened) -> None:
    """Certified strangers, or members over loopback. One of them leaves, and is replaced."""
    names, port = NAMES[:4], free_port()
    own = keys if secure else None
    devices = [device_of(opened(joining(names[0], own, port)))]
    devices += [device_of(opened(joining(name, own, free_port(), (names[0], port)))) for name in names[1:]]
    run(devices, has_fresh(2))
    for device in devices:
        status = status_of(device, time.monotonic())
        assert all(row["met"] for row in status["neighbor_rows"]) and status["known"] >= 2
    leaver = devices.pop()
    leaver.leave()
    leaver.transport.close()
    for device in devices:
        friends = device.introductions
        assert friends is not None
        if leaver.core.name in device.core.neighbors:
            run([device], lambda _, friends=friends: leaver.core.name in friends.left)  # type: ignore[misc]
    run(devices, has_fresh(2))


def test_a_stranger_is_admitted_under_its_own_name_only(keys: Path, opened: Opened) -> None:
    """eve has a certificate. Its membership messages are heard once the session has been reopened; what it sends as bob
    is not, nor is a bob of another authority. No agent is a neighbor before it is added."""
    port = free_port()
    ann = opened(joining("ann", keys, port))
    got: set[tuple[str, str]] = set()

    def listen() -> set[tuple[str, str]]:
        ann.publish(b"mine")
        got.update((name, "message") for name, _ in ann.control())
        got.update((name, "record") for name in ("bob", "eve") if ann.latest(name) is not None)
        return got

    with Intruder(port, with_certificate(keys / "rogue", "bob", ca=keys / "ann" / "ca.pem")) as rogue:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            rogue.speak_as("bob")
            listen()
            time.sleep(TICK)
    assert got == set() and ann._admission.admitted == ann._admission.waiting == set()
    with Intruder(port, with_certificate(keys, "eve")) as eve:
        until(lambda: eve.speak_as("bob") or eve.speak_as("eve") or listen())
        for _ in range(20):
            eve.speak_as("bob")
            eve.speak_as("eve")
            listen()
            time.sleep(TICK)
    assert got == {("eve", "message")} and ann._admission.admitted == {"eve"}


def test_neighbors_are_heard_again_after_the_session_was_reopened(keys: Path, opened: Opened) -> None:
    """bob dials ann and goes on sending while a stranger comes."""
    port = free_port()
    ann = opened(joining("ann", keys, port))
    ann.add("bob")
    bob = opened(config("bob", keys=keys, neighbors={"ann": port}))
    until(lambda: ann.publish(b"x") or bob.publish(b"y") or (ann.latest("bob") and bob.latest("ann")))
    opened(config("eve", keys=keys, neighbors={"ann": port}))
    until(lambda: ann.publish(b"x") or bob.publish(b"y") or "eve" in ann._admission.admitted)
    until(heard(ann, bob, b"afterwards"))
    until(heard(bob, ann, b"afterwards"))


def test_newcomers_are_admitted_together_and_not_too_many(keys: Path) -> None:
    admission = Admission(joining("ann", keys, 1, ("bob", 2), max_members=3))
    assert admission.visitors(["bob", "cid", "dan", "no name", "ann"]) == {"bob"}
    assert admission.waiting == {"cid", "dan"} and admission.due(0.0) and admission.reopen(10.0) == {"cid", "dan"}
    assert admission.visitors(["cid", "eve", "flo"]) == {"cid"} and admission.waiting == {"eve"}
    lease = admission.config.lease
    assert not admission.due(10.0 + 1.9 * lease) and admission.due(10.0 + 2.1 * lease)
    members = Admission(config("ann", keys=keys, members=("bob",)))
    assert members.visitors(["bob", "cid"]) == {"bob"} and not members.due(1e9) and not members.may_dial("cid")
