"""The files that keep strangers away from the port of an agent, checked by the programs that read them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import colme
from colme.node.config import firewall
from colme.node.config.plan import Host, plan
from tests.support.node_fleet import Hub, lacking
from tests.support.paths import ROOT

METHOD = colme.CLColME(sigma=1.0)
PIS = (Host("pi-1", "192.168.1.11"), Host("pi-2", "192.168.1.12"), Host("pi-3", "fd00::3", 7500))


def write(hosts: tuple[Host, ...], folder: Path, **options: str) -> list[str]:
    """Plan a fleet; what was said."""
    said: list[str] = []
    plan(hosts, folder, method=METHOD, degree=2, say=said.append, **options)  # type: ignore[arg-type]
    return said


def test_a_fleet_with_known_addresses_admits_only_them(tmp_path: Path) -> None:
    loopback = tuple(Host(f"pi-{i}", "127.0.0.1", 7447 + i) for i in range(3))
    assert write(loopback, tmp_path / "loopback") == write(PIS, tmp_path / "fleet") == []
    assert not list((tmp_path / "loopback").glob(f"*/{firewall.RULES}"))  # it needs none
    for host in PIS:
        rules = (tmp_path / "fleet" / host.name / firewall.RULES).read_text()
        limits = (tmp_path / "fleet" / host.name / firewall.LIMITS).read_text()
        assert f"tcp dport != {host.port} accept" in rules and "\n        counter drop\n    }" in rules
        assert "elements = { 192.168.1.11, 192.168.1.12 }" in rules and "elements = { fd00::3 }" in rules
        assert "IPAddressDeny=any" in limits and all(f"IPAddressAllow={each.address}\n" in limits for each in PIS)


@pytest.mark.parametrize("what", ["behind NAT", "a name", "newcomers"])
def test_where_not_all_addresses_are_known_others_are_limited_and_not_denied(what: str, tmp_path: Path) -> None:
    more = {"behind NAT": (Host("roof", None),), "a name": (Host("roof", "roof.example"),), "newcomers": ()}[what]
    said = write((*PIS, *more), tmp_path / "fleet", **({"admit": "certified"} if what == "newcomers" else {}))
    assert len(said) == (0 if what == "newcomers" else 1)
    assert all("roof: no address is known from which they dial" in sentence for sentence in said)
    own = tmp_path / "fleet" / "pi-1"
    rules, limits = (own / firewall.RULES).read_text(), (own / firewall.LIMITS).read_text()
    assert "limit rate over 5/second burst 10 packets counter drop" in rules and "\n        counter drop\n" not in rules
    assert "roof" not in rules and "IPAddressDeny" not in limits.replace("# ", "") and "LimitNOFILE=4096" in limits
    assert not (tmp_path / "fleet" / "roof" / firewall.RULES).exists() or what == "a name"


def test_agents_that_share_an_address_share_more_links(tmp_path: Path) -> None:
    hosts = (*PIS, Host("pi-4", "192.168.1.11", 7448), Host("pi-5", "10.0.0.5", 7501, "127.0.0.1:7447"))
    write(hosts[:4], tmp_path / "fleet")
    assert "ip saddr ct count over 12" in (tmp_path / "fleet" / "pi-2" / firewall.RULES).read_text()
    write((*PIS, hosts[4]), tmp_path / "tunnel")  # where it listens, not where the tunnel begins
    assert "tcp dport != 7447" in (tmp_path / "tunnel" / "pi-5" / firewall.RULES).read_text()


@pytest.mark.skipif(shutil.which("nft") is None or os.geteuid() != 0, reason="it needs nft, and root")
@pytest.mark.parametrize("others", [False, True])
def test_nftables_understands_the_rules(others: bool, tmp_path: Path) -> None:
    for known in ({"10.0.0.1": 1, "10.0.0.2": 3, "fd00::3": 1}, {"10.0.0.1": 1}, {"fd00::3": 1}, {}):
        path = tmp_path / "rules"
        path.write_text(firewall.rules(7447, known, others=others))
        done = subprocess.run(["nft", "-c", "-f", str(path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="it needs systemd-analyze")
def test_systemd_understands_the_drop_in(tmp_path: Path) -> None:
    unit = (ROOT / "deploy" / "colme-node@.service").read_text().replace("/opt/colme/bin/colme", "/bin/true")
    (tmp_path / "colme-node@.service").write_text(unit)
    drop_in = tmp_path / "colme-node@pi-1.service.d" / firewall.LIMITS
    drop_in.parent.mkdir()
    for text, understood in (
        (firewall.limits("pi-1", ["192.168.1.11", "fd00::3"], others=False), True),
        (firewall.limits("pi-1", ["192.168.1.11", "fd00::3"], others=True), True),
        ("[Service]\nIPAddressAllow=nonsense\n", False),  # so it is read
    ):
        drop_in.write_text(text)
        arguments = ["systemd-analyze", "verify", str(tmp_path / "colme-node@pi-1.service")]
        complaints = subprocess.run(arguments, capture_output=True, text=True).stderr
        assert (firewall.LIMITS not in complaints) == understood


KNOCK = """
import contextlib, socket, sys
links = []
with contextlib.suppress(OSError):
    for _ in range(int(sys.argv[2])):
        links.append(socket.create_connection((sys.argv[1], 7447), timeout=2))
print(len(links))
"""
SERVE = """
import socket, time
server = socket.create_server(("", 7447), backlog=200)
print("listening", flush=True)
time.sleep(600)
"""


@pytest.mark.network
def test_strangers_do_not_reach_the_port_and_the_fleet_has_so_many_links(tmp_path: Path) -> None:
    """In the kernel: three namespaces, of which the first listens, the second is of the fleet and the third is not."""
    reason = lacking() or ("it needs nft" if shutil.which("nft") is None else None)
    if reason is not None:
        pytest.skip(reason)
    with Hub(3) as hub:
        own, fleet, stranger = hub.namespaces
        path = tmp_path / "rules"

        def inside(namespace: str, *words: str) -> list[str]:
            return ["ip", "netns", "exec", namespace, *words]

        def knock(namespace: str, n: int) -> int:
            words = inside(namespace, sys.executable, "-c", KNOCK, hub.addresses[0], str(n))
            return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

        server = subprocess.Popen(inside(own, sys.executable, "-c", SERVE), stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None and server.stdout.readline() == "listening\n"
            assert knock(stranger, 1) == 1
            for others in (False, True):
                path.write_text(firewall.rules(7447, {hub.addresses[1]: 1}, others=others))
                for _ in range(2):  # a second time replaces the first
                    subprocess.run(inside(own, "nft", "-f", str(path)), check=True)
                assert knock(fleet, 1) == 1 and knock(stranger, 1) == int(others)
            assert 1 <= knock(fleet, 40) <= firewall.MOST_LINKS
            assert knock(stranger, 40) <= firewall.STRANGERS
        finally:
            server.kill()
            server.communicate()
