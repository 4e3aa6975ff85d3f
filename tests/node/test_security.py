"""The refusal matrix: whatever a stranger or a malicious neighbor sends, nothing gets in that should not.

The intruder is a bare zenoh session without our rules. An agent that is permitted makes the same attempt, so that no
test passes because nothing ever arrives.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zenoh

import colme
from colme.node.assemble import introductions_of
from colme.node.config.node_toml import NodeConfig
from colme.node.config.presets import MOST_LINKS
from colme.node.config.tables import Join
from colme.node.core import Core
from colme.node.device import Device
from colme.node.io.status import status_of
from colme.node.net.admission import Admission
from colme.node.net.zenoh_transport import CONTROL_ROOM, ZenohTransport
from colme.node.security import keys as node_keys
from colme.node.security.keys import make_certificate
from tests.support.node_fleet import NAMES, TICK, Opened, config, free_port, heard, tls, until

ATTEMPT = 1.0  # s that an intruder tries at least; an agent that may is heard within 0.1 s on an idle machine


@pytest.fixture
def ann(keys: Path, opened: Opened) -> ZenohTransport:
    """The victim: it listens, and bob and cid are its neighbors."""
    return opened(config("ann", keys=keys, port=free_port(), neighbors={"bob": None, "cid": None}))


class Intruder:
    """A session without rules: dials somebody, with whatever certificate it has."""

    def __init__(self, port: int, files: dict[str, Any] | None, *, protocol: str = "tls", mode: str = "peer"):
        settings: dict[str, Any] = {
            "mode": mode, "scouting/multicast/enabled": False, "scouting/gossip/enabled": False,
            "scouting/delay": 50, "transport/shared_memory/enabled": False, "listen/endpoints": [],
            "connect/endpoints": [f"{protocol}/localhost:{port}"], "connect/timeout_ms": -1,
            "connect/exit_on_failure": False,
            "connect/retry": {"period_init_ms": 100, "period_max_ms": 100, "period_increase_factor": 1.0},
        }  # fmt: skip
        if files is not None:
            settings["transport/link/tls"] = files
        raw = zenoh.Config()
        for key, value in settings.items():
            raw.insert_json5(key, json.dumps(value))
        self.session = zenoh.open(raw)
        self.tokens: list[Any] = []

    def __enter__(self) -> Intruder:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    def speak_as(self, name: str, to: str = "ann") -> None:
        """Everything that an agent could say."""
        self.session.put(f"cme/test/a/{name}", b"record")
        self.session.put(f"cme/test/x/{name}/{to}", b"message")
        self.session.delete(f"cme/test/a/{name}")
        if not self.tokens:
            self.tokens.append(self.session.liveliness().declare_token(f"cme/test/live/{name}"))


def with_certificate(keys: Path, name: str, *, ca: Path | None = None) -> dict[str, Any]:
    own = tls(keys, name)
    return {
        "root_ca_certificate": str(ca) if ca is not None else own.ca, "enable_mtls": True,
        "connect_certificate": own.certificate, "connect_private_key": own.key, "verify_name_on_connect": False,
    }  # fmt: skip


def without_certificate(keys: Path) -> dict[str, Any]:
    return {"root_ca_certificate": tls(keys, "bob").ca, "enable_mtls": False}


def listen_to(victim: ZenohTransport) -> list[tuple[str, str]]:
    """What got in since the last time: (from, what)."""
    found = [(name, "record") for name in victim.config.peers if victim.latest(name) is not None]
    found += [(name, "message") for name, _ in victim.control()]
    return found + [(name, "present") for name in victim.present()]


Heard = set[tuple[str, str]]


def attack(
    victim: ZenohTransport, intruder: Intruder, name: str, wanted: Heard = frozenset(),  # type: ignore[assignment]
    witness: Callable[[], object] = lambda: None,
) -> Heard:  # fmt: skip
    """All that got in while the intruder tried: for a while, and until all that is wanted has arrived. A witness is a
    permitted sender, heard over the same network, so that a slow machine cannot pass for a closed port."""
    got: Heard = set()
    start = time.monotonic()
    while time.monotonic() - start < ATTEMPT or not got >= wanted:
        assert time.monotonic() - start < 120.0, f"only {got} arrived"
        for speak in (lambda: intruder.speak_as(name), witness):
            speak()
            time.sleep(0.06)  # slower than the cap on rates, which a refused record uses up, too
        victim.publish(b"mine")
        got |= set(listen_to(victim))
    return got


def port_of(transport: ZenohTransport) -> int:
    return int(transport.config.listen[0].rsplit(":", 1)[1])


@pytest.mark.parametrize(
    ("how", "protocol"),
    [
        ("no certificate", "tls"), ("another authority", "tls"), ("another authority on both sides", "tls"),
        ("expired", "tls"), ("not a member", "tls"), ("plain", "tcp"),
    ],
)  # fmt: skip
def test_strangers_are_not_heard(
    how: str, protocol: str, ann: ZenohTransport, keys: Path, opened: Opened
) -> None:  # fmt: skip
    ours = keys / "ann" / "ca.pem"
    files = {
        "no certificate": without_certificate(keys),
        "another authority": with_certificate(keys / "rogue", "bob", ca=ours),
        "another authority on both sides": with_certificate(keys / "rogue", "bob"),
        "expired": with_certificate(keys / "expired", "bob"),
        "not a member": with_certificate(keys, "eve"),
        "plain": None,
    }[how]
    overheard: list[Any] = []
    with Intruder(port_of(ann), files, protocol=protocol) as intruder:
        remote = zenoh.Locality.REMOTE
        ear = intruder.session.declare_subscriber("**", overheard.append, allowed_origin=remote)
        cid = opened(config("cid", keys=keys, neighbors={"ann": port_of(ann)}))
        got = attack(ann, intruder, "bob", {("cid", "record")}, lambda: cid.publish(b"record"))
        assert {name for name, _ in got} == {"cid"}
        ear.undeclare()
    assert overheard == []


@pytest.mark.parametrize("mode", ["peer", "client", "router"])
def test_a_neighbor_speaks_for_itself_only(mode: str, ann: ZenohTransport, keys: Path) -> None:
    """Neither records nor messages nor presence of another, in whatever role it connects."""
    with Intruder(port_of(ann), with_certificate(keys, "bob"), mode=mode) as bob:
        all_of_bob = {("bob", "record"), ("bob", "message"), ("bob", "present")}
        got = attack(ann, bob, "cid", all_of_bob, lambda: bob.speak_as("bob"))
        assert {name for name, _ in got} == {"bob"}


@pytest.mark.parametrize("mode", ["peer", "client"])
def test_a_neighbor_hears_only_what_is_meant_for_it(mode: str, ann: ZenohTransport, keys: Path) -> None:
    """zenoh's peers relay between sessions that come as clients; the access list does not let it out."""
    found: list[str] = []
    keys_of_others = ("a/bob", "a/cid", "a/*", "x/ann/cid", "x/cid/bob", "**")
    with (
        Intruder(port_of(ann), with_certificate(keys, "bob"), mode=mode) as bob,
        Intruder(port_of(ann), with_certificate(keys, "cid"), mode=mode) as cid,
    ):
        ears = [
            bob.session.declare_subscriber(key, lambda heard: found.append(str(heard.key_expr)))
            for key in ("**", "cme/test/a/ann", *(f"cme/test/{key}" for key in keys_of_others))
        ]
        until(lambda: ann.publish(b"mine") or "cme/test/a/ann" in found)
        until(lambda: cid.speak_as("cid") or ("cid", "record") in listen_to(ann))
        for _ in range(10):
            ann.publish(b"mine")
            ann.send("cid", b"secret")
            cid.speak_as("cid")
            cid.speak_as("cid", "bob")
            time.sleep(0.06)
        until(lambda: cid.speak_as("cid") or ("cid", "record") in listen_to(ann))
        replies = [reply for key in ("@/**", "cme/**", "**") for reply in bob.session.get(key, timeout=0.3)]
        own = str(bob.session.info.zid())  # a session answers itself about itself
        for ear in ears:
            ear.undeclare()
    assert set(found) == {"cme/test/a/ann"}
    answers = [str(reply.ok.key_expr) for reply in replies if reply.ok is not None]
    assert [key for key in answers if f"@/{own}/" not in key] == []


@pytest.mark.parametrize("name", ["cid", "eve"])
def test_whoever_answers_a_call_must_be_who_was_called(name: str, keys: Path, opened: Opened) -> None:
    """A member, or a holder of a good certificate, at the address of bob is not heard as bob, nor as itself."""
    port = free_port()
    impostor = opened(config(name, keys=keys, port=port, neighbors={"ann": None}))
    ann = opened(config("ann", keys=keys, neighbors={"bob": port}, members=("cid",)))
    got: set[Any] = set()
    end = time.monotonic() + ATTEMPT
    while time.monotonic() < end:
        impostor.publish(b"record")
        impostor.send("ann", b"message")
        ann.publish(b"mine")
        got |= set(listen_to(ann)) | set(listen_to(impostor))
        time.sleep(0.06)
    assert got == set()


def test_nothing_too_large_gets_in(ann: ZenohTransport, keys: Path) -> None:
    with Intruder(port_of(ann), with_certificate(keys, "bob")) as bob:
        limit = ann.config.max_record
        got: set[tuple[str, int]] = set()

        def arrives(size: int) -> bool:
            """Whether a record and a message of this size have arrived; they are sent again until they do."""
            for key in ("cme/test/a/bob", "cme/test/x/bob/ann"):
                bob.session.put(key, bytes(size))
            time.sleep(0.06)
            got.update(("record", len(record)) for record in [ann.latest("bob")] if record is not None)
            got.update(("message", len(message)) for _, message in ann.control())
            return got >= {("record", size), ("message", size)}

        until(lambda: arrives(limit))
        for size in (limit + 1, 70_000, 2_000_000):
            assert not arrives(size)
        until(lambda: arrives(limit - 1))  # later than all that was too large
    assert {size for _, size in got} == {limit, limit - 1}


def test_a_flood_is_dammed_and_drowns_nobody(ann: ZenohTransport, keys: Path, opened: Opened) -> None:
    cid = opened(config("cid", keys=keys, neighbors={"ann": port_of(ann)}))
    until(heard(ann, cid, b"cid is there"))
    records, most, of_cid, sent = 0, 0, 0, 0
    with Intruder(port_of(ann), with_certificate(keys, "bob")) as bob:
        start = time.monotonic()
        while of_cid < 10:
            now = time.monotonic()
            assert now - start < 120.0, "the flood drowns cid"
            until_tick = now + 0.05
            while time.monotonic() < until_tick:
                for _ in range(50):
                    bob.session.put("cme/test/a/bob", b"record")
                    bob.session.put("cme/test/x/bob/ann", b"message")
                sent += 50
                time.sleep(0.001)
            cid.publish(b"calm")
            cid.send("ann", b"calm")
            time.sleep(0.01)
            records += ann.latest("bob") is not None
            of_cid += ann.latest("cid") is not None
            most = max(most, sum(name == "bob" for name, _ in ann.control()))
        elapsed = time.monotonic() - start
    assert sent >= 50 * records  # the flood was one
    assert records <= elapsed * ann.config.max_rate + 1
    assert most <= CONTROL_ROOM


def test_noise_at_the_port_does_not_disturb_links(ann: ZenohTransport, keys: Path, opened: Opened) -> None:
    """Connections that send nothing or nonsense. Open links are not disturbed; new ones may have to wait, because zenoh
    pauses for 0.1 s after every handshake that fails (its issue 2685)."""
    cid = opened(config("cid", keys=keys, neighbors={"ann": port_of(ann)}))
    until(heard(ann, cid, b"cid is there"))
    noise = random.Random(7)
    with contextlib.ExitStack() as connections:
        for i in range(60):
            noisy = connections.enter_context(socket.create_connection(("127.0.0.1", port_of(ann))))
            if i % 2:
                noisy.send(noise.randbytes(300))
        for i in range(10):
            until(heard(ann, cid, f"record {i}".encode()))
        bob = opened(config("bob", keys=keys, neighbors={"ann": port_of(ann)}))
        until(heard(ann, bob, b"bob is there, too"))
    assert ann.control() == [] and ann.present() <= {"bob", "cid"}


def test_one_agent_has_only_so_many_links(keys: Path, opened: Opened) -> None:
    """Of an agent that opens more and more, the oldest are closed, and the others can still dial."""
    ann = opened(config("ann", keys=keys, port=free_port(), neighbors={"bob": None, "cid": None}))
    with contextlib.ExitStack() as links:
        bobs = []
        for _ in range(MOST_LINKS + 4):
            bobs.append(links.enter_context(Intruder(port_of(ann), with_certificate(keys, "bob"))))
            ann.publish(b"")
        until(lambda: ann.publish(b"") or ann.surplus["bob"] >= 4)  # type: ignore[func-returns-value]
        until(lambda: ann.publish(b"") or ann.links()["bob"] <= MOST_LINKS)  # type: ignore[func-returns-value]
        cid = opened(config("cid", keys=keys, neighbors={"ann": port_of(ann)}))
        until(heard(ann, cid, b"cid is there"))
        assert ann.links()["cid"] == 1 and ann.surplus.keys() == {"bob"}


def test_links_are_renewed_when_the_process_has_grown(
    keys: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with declarations that are denied, for which zenoh keeps memory until a link ends."""
    ports = {"ann": free_port(), "bob": free_port()}
    ann = opened(config("ann", keys=keys, port=ports["ann"], neighbors={"bob": ports["bob"], "cid": None}))
    bob = opened(config("bob", keys=keys, port=ports["bob"], neighbors={"ann": ports["ann"]}))
    cid = opened(config("cid", keys=keys, neighbors={"ann": ports["ann"]}))
    monkeypatch.setattr("colme.node.net.zenoh_transport._LOOK_AT_MEMORY", 0.0)
    ann._look_at_memory = 0.0
    for resident, recycled in ((100.0, 0), (90.0, 0), (153.0, 0), (155.0, 1)):  # 64 MiB more than the least
        monkeypatch.setattr("colme.node.net.zenoh_transport._resident", lambda resident=resident: resident)
        until(heard(ann, bob, f"bob {resident}".encode()))
        until(heard(ann, cid, f"cid {resident}".encode()))
        assert ann.recycled == recycled
    until(heard(cid, ann, b"after"))


@pytest.mark.network
def test_a_link_ends_with_the_certificate(keys: Path, tmp_path: Path, opened: Opened) -> None:
    """close_link_on_expiration: who got in is out again when its certificate expires."""
    soon = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1, seconds=-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_keys, "_now", lambda: soon)
        make_certificate(keys / "authority", "bob", ["localhost"], folder=tmp_path / "bob", days=1)
    ann = opened(config("ann", keys=keys, port=free_port(), neighbors={"bob": None}))
    with Intruder(port_of(ann), with_certificate(tmp_path, "bob")) as bob:
        until(lambda: bob.speak_as("bob") or ("bob", "record") in listen_to(ann))
        until(lambda: ("bob", "present") not in listen_to(ann))
        assert attack(ann, bob, "bob") == set()


# Joining: agents with a certificate of the authority are admitted, and no others


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


def test_newcomers_are_admitted_together_and_not_too_many(keys: Path) -> None:
    admission = Admission(joining("ann", keys, 1, ("bob", 2), max_members=3))
    assert admission.visitors(["bob", "cid", "dan", "no name", "ann"]) == {"bob"}
    assert admission.waiting == {"cid", "dan"} and admission.due(0.0) and admission.reopen(10.0) == {"cid", "dan"}
    assert admission.visitors(["cid", "eve", "flo"]) == {"cid"} and admission.waiting == {"eve"}
    lease = admission.config.lease
    assert not admission.due(10.0 + 1.9 * lease) and admission.due(10.0 + 2.1 * lease)
    members = Admission(config("ann", keys=keys, members=("bob",)))
    assert members.visitors(["bob", "cid"]) == {"bob"} and not members.due(1e9) and not members.may_dial("cid")
