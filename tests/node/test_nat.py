"""Two agents, each behind a router that translates addresses, in network namespaces (root, iproute2 and iptables)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import colme
from colme.errors import NodeError
from colme.node.config.node_toml import NodeConfig
from colme.node.config.plan import Host, plan
from colme.node.io.status import ask
from tests.support.node_fleet import environment, until

PREFIX = f"nat{os.getpid()}-"
RELAY = "203.0.113.1"


def ip(command: str) -> None:
    """`ip` with # in the place of what all namespaces of this process begin with."""
    subprocess.run(["ip", *command.replace("#", PREFIX).split()], check=True, capture_output=True)


def wire(one: str, end: str, other: str, other_end: str) -> None:
    ip(f"link add name {end} netns #{one} type veth peer name {other_end} netns #{other}")
    ip(f"-n #{one} link set {end} up")
    ip(f"-n #{other} link set {other_end} up")


@pytest.fixture
def homes() -> Iterator[None]:
    """home-1 -- gate-1 -- public -- gate-2 -- home-2, and the relay; both homes have the same addresses inside."""
    names = ("public", "relay", "gate-1", "gate-2", "home-1", "home-2")
    try:
        for name in names:
            ip(f"netns add #{name}")
            ip(f"-n #{name} link set lo up")
        ip("-n #public link add name switch type bridge")
        ip("-n #public link set switch up")
        for i, name in enumerate(("relay", "gate-1", "gate-2"), 1):
            wire("public", f"port{i}", name, "wan")
            ip(f"-n #public link set port{i} master switch")
            ip(f"-n #{name} addr add 203.0.113.{i}/24 dev wan")
        for i in (1, 2):
            wire(f"gate-{i}", "lan", f"home-{i}", "eth")
            ip(f"-n #gate-{i} addr add 192.168.1.1/24 dev lan")
            ip(f"-n #home-{i} addr add 192.168.1.10/24 dev eth")
            ip(f"-n #home-{i} route add default via 192.168.1.1")
            ip(f"netns exec #gate-{i} sysctl -qw net.ipv4.ip_forward=1")
            ip(f"netns exec #gate-{i} iptables -t nat -A POSTROUTING -o wan -j MASQUERADE")
        yield
    finally:
        for name in names:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip(f"netns del #{name}")


@contextlib.contextmanager
def started(place: str, verb: str, path: Path) -> Iterator[None]:
    colme_node = [sys.executable, "-m", "colme", "node", verb, "--config", str(path)]
    with (path.parent / "out").open("w") as out:
        process = subprocess.Popen(
            ["ip", "netns", "exec", f"{PREFIX}{place}", *colme_node], env=environment(), stdin=subprocess.DEVNULL,
            stdout=out, stderr=out,
        )  # fmt: skip
    try:
        yield
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.network
def test_agents_in_two_homes_meet_through_a_relay_and_again_after_their_routers_were_off(
    homes: None, tmp_path: Path
) -> None:
    hosts = [Host("pi-4", RELAY, 7501, f"{RELAY}:7460"), Host("pi-5", RELAY, 7502, f"{RELAY}:7460")]
    fleet = plan(hosts, tmp_path / "fleet", method=colme.CLColME(sigma=2.0), preset="lan")

    def told(key: str) -> list[Any]:
        found = []
        for host in hosts:
            with contextlib.suppress(NodeError):
                found.append(ask(NodeConfig.read(fleet / host.name / "node.toml").socket)[key])
        return found

    with (
        started("relay", "relay", fleet / "relay" / "relay.toml"),
        started("home-1", "run", fleet / "pi-4" / "node.toml"),
        started("home-2", "run", fleet / "pi-5" / "node.toml"),
    ):
        until(lambda: told("fresh") == [1, 1], 30.0)
        for i in (1, 2):
            ip(f"-n #gate-{i} link set wan down")
        until(lambda: told("fresh") == [0, 0] and told("relay_connected") == [False, False], 60.0)
        for i in (1, 2):
            ip(f"-n #gate-{i} link set wan up")
        until(lambda: told("fresh") == [1, 1] and told("relay_connected") == [True, True], 30.0)
    assert "pi-4 is here." in (fleet / "relay" / "out").read_text()
