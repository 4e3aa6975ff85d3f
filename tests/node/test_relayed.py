"""Agents that meet through a relay: they believe each other's certificates and nothing else; it may come and go."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zenoh

import colme
from colme.node.config.node_toml import NodeConfig
from colme.node.config.plan import Host, plan, read_hosts
from colme.node.io.status import ask
from colme.node.net import splice
from colme.node.net.relay import RelayConfig
from colme.node.security.keys import identity, make_certificate
from tests.support.node_fleet import config, environment, free_port, heard, make_keys, tls, transports, until
from tests.support.node_relay import relay_config, running, tunnel

ATTEMPT = 1.0  # s that an impostor tries; one that may is through within 0.1 s


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_keys(tmp_path_factory.mktemp("keys"))
    make_certificate(folder / "authority", "relay", [], folder=folder / "relay")
    return folder


@contextlib.contextmanager
def impostor(keys: Path, name: str, victim: str, port: int) -> Iterator[Any]:
    """A session without rules that answers at a port, with the certificate of one, in the name of another."""
    own = tls(keys, name)
    settings: dict[str, Any] = {
        "mode": "peer", "scouting/multicast/enabled": False, "listen/endpoints": [f"tls/127.0.0.1:{port}"],
        "transport/link/tls": {
            "root_ca_certificate": own.ca, "enable_mtls": True, "listen_certificate": own.certificate,
            "listen_private_key": own.key,
        },
    }  # fmt: skip
    raw = zenoh.Config()
    for key, value in settings.items():
        raw.insert_json5(key, json.dumps(value))
    with zenoh.open(raw) as session:
        token = session.liveliness().declare_token(f"cme/test/live/{victim}")
        heard_it = session.declare_subscriber("cme/test/a/bob", zenoh.handlers.RingChannel(16))
        yield session, heard_it
        token.undeclare()


def test_two_agents_talk_through_a_relay_that_sees_no_word_of_it(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    write = splice._End.write
    monkeypatch.setattr(splice._End, "write", lambda end, data: (seen.append(data), write(end, data))[1])  # type: ignore[func-returns-value]
    inner, record = free_port(), b"a record of ann, 0123456789"
    settings = relay_config(keys, {"ann": free_port()})
    with running(settings) as relay, tunnel(keys, "ann", settings, inner), transports() as opened:
        ann = opened(config("ann", keys=keys, port=inner, neighbors={"bob": None}))
        bob = opened(config("bob", keys=keys, neighbors={"ann": settings.agents["ann"]}))
        until(heard(bob, ann, record))
        until(heard(ann, bob, b"a record of bob"))
        assert bob.present() == {"ann"} and len(relay.links) == 1
    assert relay.links.carried > 2000 and record not in b"".join(seen)


@pytest.mark.parametrize("who", ["eve", "relay"])
def test_nobody_answers_in_the_place_of_another(who: str, keys: Path) -> None:
    """A relay that lies: what is for ann ends at another agent, with a good certificate of its own, or at the relay."""
    inner, settings = free_port(), relay_config(keys, {"ann": free_port(), "eve": free_port()})
    place = settings.agents["eve"]
    with (
        running(settings) as relay, tunnel(keys, "eve", settings, inner) as (made, _),
        impostor(keys, who, "ann", inner) as (session, ear), transports() as opened,
    ):  # fmt: skip
        until(lambda: made.connected)
        bob = opened(config("bob", keys=keys, neighbors={"ann": place}))
        end = time.monotonic() + ATTEMPT
        while time.monotonic() < end:
            session.put("cme/test/a/ann", b"record")
            session.put("cme/test/x/ann/bob", b"message")
            bob.publish(b"for ann only")
            assert bob.latest("ann") is None and bob.control() == [] and bob.present() == set()
            time.sleep(0.05)
        assert ear.try_recv() is None  # nor does it hear
        assert relay.links.carried > 0  # though the two were connected
    if who == "eve":  # the same, but for the name: so the way was open
        inner = free_port()
        with (
            running(settings), tunnel(keys, "eve", settings, inner), transports() as opened,
        ):  # fmt: skip
            eve = opened(config("eve", keys=keys, port=inner, neighbors={"bob": None}))
            until(heard(opened(config("bob", keys=keys, neighbors={"eve": place})), eve, b"record"))


class Site:
    """Two agents behind NAT (they listen on loopback, where nobody is told) and a relay, as processes, from a plan."""

    def __init__(self, folder: Path):
        own = free_port()
        hosts = [Host(name, "127.0.0.1", free_port(), f"127.0.0.1:{own}") for name in ("pi-4", "pi-5")]
        method = colme.CLColME(sigma=1.0)
        self.folder = plan(hosts, folder / "fleet", method=method, preset="local", tick_rate=20.0)
        self.names = [host.name for host in hosts]
        for host in hosts:  # on one machine the relay has their ports, so that they listen at others
            path = self.folder / host.name / "node.toml"
            text = path.read_text()
            assert f'listen = [\n    "tls/127.0.0.1:{host.port}",\n]' in text
            path.write_text(text.replace(f'    "tls/127.0.0.1:{host.port}"', f'    "tls/127.0.0.1:{free_port()}"'))
        self.running = {name: self.start("run", self.folder / name / "node.toml") for name in self.names}
        self.relay = self.start_relay()

    def start(self, verb: str, path: Path) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-m", "colme", "node", verb, "--config", str(path)]
        with (path.parent / "log").open("a") as log, (path.parent / "out.jsonl").open("a") as out:
            return subprocess.Popen(
                arguments, env=environment(), stdin=subprocess.PIPE, stdout=out, stderr=log, text=True
            )

    def start_relay(self) -> subprocess.Popen[str]:
        return self.start("relay", self.folder / "relay" / "relay.toml")

    def status(self, name: str) -> dict[str, Any]:
        with contextlib.suppress(colme.errors.NodeError):
            return ask(NodeConfig.read(self.folder / name / "node.toml").socket)
        return {"fresh": 0, "relay_connected": False, "estimate": None}

    def fresh(self) -> list[int]:
        return [self.status(name)["fresh"] for name in self.names]

    def stop(self) -> None:
        every = [*self.running.values(), self.relay]
        for process in every:
            process.terminate()
        for process in every:
            try:
                assert process.wait(20) == 0
            finally:
                process.kill()
                assert process.stdin is not None
                process.stdin.close()


@pytest.mark.network
def test_agents_behind_nat_collaborate_and_outlive_their_relay(tmp_path: Path) -> None:
    site = Site(tmp_path)
    try:
        until(lambda: site.fresh() == [1, 1], 30.0)
        for name, sample in zip(site.names, ("1.0\n", "3.0\n"), strict=True):
            pipe = site.running[name].stdin
            assert pipe is not None
            pipe.write(sample)
            pipe.flush()
        # one sample each, far within their intervals: they lean towards each other, to 2
        until(lambda: all(abs((site.status(name)["estimate"] or 0.0) - 2.0) < 0.9 for name in site.names), 30.0)
        for _ in range(2):
            site.relay.kill()
            site.relay.wait()
            until(lambda: site.fresh() == [0, 0], 30.0)
            site.relay.stdin.close()  # type: ignore[union-attr]
            site.relay = site.start_relay()
            print(f"fresh {until(lambda: site.fresh() == [1, 1], 30.0):.1f} s after the relay was started again")
        until(lambda: all(site.status(name)["relay_connected"] for name in site.names), 30.0)
    finally:
        site.stop()
    words = (site.folder / "relay" / "log").read_text()
    assert "pi-4 is here." in words and "relay has left: " in words


def test_a_plan_with_relays(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text("pi-1 192.168.1.11\npi-4 relay.example:7501 via relay.example:7460\n"
                    "pi-5 r.example:7502 via r.example\npi-6 relay.example:7503 via relay.example\n")  # fmt: skip
    hosts = read_hosts(path)
    assert hosts[1:3] == (Host("pi-4", "relay.example", 7501, "relay.example:7460"),
                          Host("pi-5", "r.example", 7502, "r.example:7460"))  # fmt: skip
    fleet = plan(hosts, tmp_path / "fleet", method=colme.CLColME(sigma=1.0))
    nodes = {host.name: NodeConfig.read(fleet / host.name / "node.toml") for host in hosts}
    assert nodes["pi-4"].listen == ("tls/127.0.0.1:7501",) and nodes["pi-1"].relay is None
    vias = [nodes[name].relay for name in ("pi-4", "pi-5", "pi-6")]
    assert [(via.address, via.name) for via in vias if via is not None] == [
        ("relay.example:7460", "relay-1"), ("r.example:7460", "relay-2"), ("relay.example:7460", "relay-1"),
    ]  # fmt: skip
    ends = {each.name: each.endpoint for node in nodes.values() for each in node.neighbors if each.endpoint}
    assert ends["pi-4"] == "tls/relay.example:7501" and ends["pi-5"] == "tls/r.example:7502"
    assert identity(fleet / "pi-5" / "pi-5.pem").hosts == ("r.example",)
    first = RelayConfig.read(fleet / "relay-1" / "relay.toml")
    assert first.agents == {"pi-4": 7501, "pi-6": 7503} and first.listen == "0.0.0.0:7460"
    assert identity(first.tls.certificate)[:2] == ("relay-1", ())  # no host: it cannot answer for an agent
    with pytest.raises(colme.errors.NodeError, match=r"agent 'relay' is taken"):
        plan([Host("relay", "10.0.0.1"), hosts[1]], tmp_path / "other", method=colme.Local())
    with pytest.raises(colme.errors.NodeError, match=r"agents.pi-4=7460: it is that of the relay itself"):
        plan([Host("pi-4", "r.example", 7460, "r.example:7460")], tmp_path / "other", method=colme.Local())


@pytest.mark.network
def test_what_a_relay_costs(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Milliseconds that it adds to a record, and its CPU for one."""
    inner, n = free_port(), 60
    settings = relay_config(keys, {"ann": free_port()})
    delays: dict[str, list[float]] = {"direct": [], "relayed": []}
    with running(settings), tunnel(keys, "ann", settings, inner), transports() as opened:
        ann = opened(config("ann", keys=keys, port=inner, neighbors={"bob": None, "cid": None}))
        ways = {
            "direct": opened(config("bob", keys=keys, neighbors={"ann": inner})),
            "relayed": opened(config("cid", keys=keys, neighbors={"ann": settings.agents["ann"]})),
        }
        for way in ways.values():
            until(heard(way, ann, b"there"))
        for way, transport in ways.items():
            for i in range(n):
                time.sleep(0.05)  # within the rate that is let in
                transport.latest("ann")
                began = time.perf_counter()
                ann.publish(f"{way} {i}".encode())
                while transport.latest("ann") is None and time.perf_counter() - began < 5.0:
                    time.sleep(0.0001)
                delays[way].append(time.perf_counter() - began)
    median = {way: sorted(found)[n // 2] for way, found in delays.items()}
    with capsys.disabled():
        print(f"\nmedian ms from agent to agent: { ({way: round(1e3 * each, 2) for way, each in median.items()}) }")
    assert median["relayed"] < median["direct"] + 0.05
