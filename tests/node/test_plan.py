"""Plans for fleets: every agent gets a valid configuration, and both ends of an edge agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

import colme
from colme.cli.node_command import command
from colme.errors import ColmeError, NodeError
from colme.graphs import Graph, from_edges
from colme.methods import skeleton
from colme.node.config.node_toml import NodeConfig, method_of
from colme.node.config.plan import Host, plan, read_hosts
from colme.node.core import Core
from colme.node.demo import Demo
from colme.node.security import keys
from colme.node.security.identity import check_identity

METHOD = colme.CLColME(sigma=2.0, delta=0.05)
PIS = tuple(Host(f"pi-{i}", f"192.168.1.{10 + i}") for i in range(1, 13))


def read(folder: Path, hosts: tuple[Host, ...]) -> dict[str, NodeConfig]:
    return {host.name: NodeConfig.read(folder / host.name / "node.toml") for host in hosts}


def test_both_ends_of_every_edge_agree_and_dial_each_other_if_they_can(tmp_path: Path) -> None:
    hosts = (*PIS, Host("roof", None), Host("cellar", None))  # two that nobody can dial
    nodes = read(plan(hosts, tmp_path / "fleet", method=METHOD, network="net", degree=4), hosts)
    places = {host.name: f"tls/{host.address}:7447" for host in PIS}
    ends = {(name, each.name): each.endpoint for name, node in nodes.items() for each in node.neighbors}
    assert len(ends) == 14 * 4
    for (a, b), endpoint in ends.items():
        assert endpoint == places.get(b) and (endpoint is not None or ends[b, a] is not None)
    for name, node in nodes.items():
        assert node.method == METHOD and node.network == "net" and (node.n_agents, node.n_edges) == (14, 28)
        assert node.listen == ((places[name],) if name in places else ())
        assert set(node.peers) == {host.name for host in hosts} - {name}
        assert node.tls is not None
        check_identity(name, node.tls)
        addresses = tuple(host.address for host in hosts if host.name == name and host.address is not None)
        assert keys.identity(node.tls.certificate).hosts == addresses


def test_a_fleet_replaces_neighbors_unless_told_not_to(tmp_path: Path) -> None:
    """Each knows the next in the list that can be dialed, should nobody else know anybody."""
    hosts = (*PIS, Host("roof", None))
    nodes = read(plan(hosts, tmp_path / "a", method=METHOD, degree=4, admit="certified"), hosts)
    joins = {name: node.join for name, node in nodes.items()}
    for name, seed in (("pi-1", "pi-2"), ("pi-12", "pi-1"), ("roof", "pi-1")):
        join = joins[name]
        assert join is not None and (join.seed, join.degree, join.admit) == (seed, 4, "certified")
        assert join.endpoint == f"tls/192.168.1.{10 + int(seed[3:])}:7447"
    assert nodes["roof"].advertised is None and nodes["pi-1"].advertised == "tls/192.168.1.11:7447"
    assert {node.join for node in read(plan(PIS, tmp_path / "b", method=METHOD, replace=False), PIS).values()} == {None}
    assert {node.join for node in read(plan(PIS, tmp_path / "c", method=colme.Local()), PIS).values()} == {None}


def test_only_the_authority_holds_its_key_and_nobody_else_reads_the_folder(tmp_path: Path) -> None:
    folder = plan(PIS[:3], tmp_path / "deep" / "fleet", method=METHOD)
    assert folder.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in folder.iterdir()) == ["authority", "pi-1", "pi-2", "pi-3"]
    assert [str(path.relative_to(folder)) for path in folder.rglob("ca.key")] == ["authority/ca.key"]
    files = ["ca.pem", "firewall.nft", "limits.conf", "node.toml", "pi-2.key", "pi-2.pem"]
    assert sorted(path.name for path in (folder / "pi-2").iterdir()) == files


def test_a_plan_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(keys, "make_certificate", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            plan(PIS, tmp_path / "fleet", method=METHOD)
    assert list(tmp_path.iterdir()) == []
    plan(PIS[:2], tmp_path / "fleet", method=METHOD)
    with pytest.raises(NodeError, match=r"fleet exists: a plan holds keys and is not overwritten"):
        plan(PIS[:2], tmp_path / "fleet", method=METHOD)


def test_a_list_of_hosts(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text("# the greenhouse\npi-1 192.168.1.11  # door\n\npi-2 pi-2.local:7500\npi-3 -\npi-4 [fe80::4]:1\n"
                    "pi-5 [fe80::5]\npi-6 hub.example:7501 listen 127.0.0.1\n")  # fmt: skip
    assert read_hosts(path) == (
        Host("pi-1", "192.168.1.11"), Host("pi-2", "pi-2.local", 7500), Host("pi-3", None), Host("pi-4", "fe80::4", 1),
        Host("pi-5", "fe80::5"), Host("pi-6", "hub.example", 7501, "127.0.0.1:7447"),
    )  # fmt: skip


def test_an_agent_behind_a_tunnel_listens_at_one_place_and_is_dialed_at_another(tmp_path: Path) -> None:
    hosts = (Host("pi-4", "hub.example", 7501, "127.0.0.1:7447"), Host("pi-5", None))
    nodes = read(plan(hosts, tmp_path / "fleet", method=METHOD), hosts)
    assert nodes["pi-4"].listen == ("tls/127.0.0.1:7447",) and nodes["pi-4"].advertised == "tls/hub.example:7501"
    assert nodes["pi-5"].neighbors[0].endpoint == "tls/hub.example:7501"
    assert nodes["pi-4"].tls is not None and keys.identity(nodes["pi-4"].tls.certificate).hosts == ("hub.example",)


HIDDEN = tuple(Host(f"h{i}", None) for i in range(3))
IMPOSSIBLE: dict[str, tuple[tuple[Host, ...], dict[str, Any], str]] = {
    "nobody": ((), {}, r"the list of hosts is empty"),
    "twice": ((PIS[0], PIS[0]), {}, r"agent 'pi-1' is taken"),
    "the authority's name": (
        (Host("authority", "a"),), {}, r"name='authority': the folder of this name is the authority's",
    ),
    "the authority's file": (
        (Host("CA", "a"),), {}, r"name='CA': ca.pem and ca.key are the authority's, so no agent can",
    ),
    "one address": (
        (PIS[0], Host("b", PIS[0].address)), {}, r"agent 'b' has the address 192.168.1.11:7447, as another",
    ),
    "odd": (PIS[:5], {"degree": 3}, r"3-regular graph on 5 agents"),
    "not connected": (PIS, {"degree": 1}, r"degree=1: 12 agents would not all be connected. Try degree=3"),
    "nobody dials": (
        HIDDEN, {}, r"'h0' and 'h1' would be neighbors, and neither can be dialed.*Give one of them",
    ),
    "too few dial": (
        (*HIDDEN, PIS[0]), {"degree": 2}, r"neither can be dialed.*Leave the degree out, give one",
    ),
    "graph of others": (PIS[:3], {"graph": from_edges([(0, 1)])}, r"the graph has 2 agents and the list 3"),
    "graph and degree": (
        PIS[:2], {"graph": from_edges([(0, 1)]), "degree": 1}, r"a graph has its degrees. Leave one out",
    ),
    "preset": (PIS[:2], {"preset": "lann"}, r"unknown preset 'lann'.*Did you mean 'lan'"),
    "admit": (
        PIS[:3], {"admit": "certified", "replace": False}, r"admit='certified': only agents that find neighbors",
    ),
    "method": (PIS[:3], {"method": colme.BColME(sigma=1.0)}, r"cannot run on a node"),
    "no sigma": (PIS[:3], {"method": colme.CLColME()}, r"the scale of the samples is not known"),
    "no module": (PIS[:3], {"modules": [Path("no.py")]}, r"cannot read module .*no.py"),
    "gateways": (PIS[:3], {"agents": 4}, r"many local agents vote in a census. Try method = 'census'"),
}  # fmt: skip


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_fleets_that_cannot_be_leave_nothing_behind(case: str, tmp_path: Path) -> None:
    hosts, options, sentence = IMPOSSIBLE[case]
    with pytest.raises(ColmeError, match=sentence):
        plan(hosts, tmp_path / "fleet", **{"method": METHOD} | options)
    assert list(tmp_path.iterdir()) == []


def test_a_list_of_hosts_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    with pytest.raises(NodeError, match=r"cannot read .*: No such file"):
        read_hosts(path)
    for line, sentence in (
        ("pi-1", r"line 1: 'pi-1' must be a name and an address. Try: pi-1 192"),
        ("a/b 10.0.0.1", r"name='a/b'"),
        ("pi-1 10.0.0.1:x", r"line 1: address='10.0.0.1:x': it must be a host, host:port or -"),
    ):
        path.write_text(line)
        with pytest.raises(NodeError, match=sentence):
            read_hosts(path)


def graph_of(nodes: dict[str, NodeConfig]) -> Graph:
    """The graph that configurations describe, of which one end of each edge dials."""
    order = {name: i for i, name in enumerate(nodes)}
    ends = {(name, each.name): each.endpoint for name, node in nodes.items() for each in node.neighbors}
    assert all(endpoint is not None or ends[b, a] is not None for (a, b), endpoint in ends.items())
    return from_edges(sorted({tuple(sorted((order[a], order[b]))) for a, b in ends}), len(nodes))


@pytest.mark.parametrize(
    ("n_dialable", "n_hidden", "degree"),
    [(1, 1, None), (1, 2, None), (1, 6, None), (2, 3, None), (4, 20, None), (3, 3, None), (4, 3, None), (10, 10, None),
     (12, 9, 6), (6, 5, 4), (12, 0, 2)],
)  # fmt: skip
def test_agents_that_cannot_be_dialed_get_neighbors_that_can(
    n_dialable: int, n_hidden: int, degree: int | None, tmp_path: Path
) -> None:
    """All are connected, by the graph of the seed. If half of them can be dialed, degrees are equal."""
    hidden = tuple(Host(f"h{i}", None) for i in range(n_hidden))
    hosts, said = (*hidden[:2], *PIS[:n_dialable], *hidden[2:]), list[str]()

    def made(folder: str, seed: int) -> dict[str, NodeConfig]:
        return read(plan(hosts, tmp_path / folder, method=METHOD, degree=degree, seed=seed, say=said.append), hosts)

    nodes = made("a", 1)
    graph = graph_of(nodes)
    assert graph.components().max() == 0
    if not n_hidden:
        assert graph == graph_of(made("b", 1)) != graph_of(made("c", 50))
    assert all(len(nodes[host.name].neighbors) <= min(6, n_dialable) for host in hidden)
    degrees = graph.degrees
    if n_dialable >= n_hidden:
        assert degrees.min() == degrees.max() and degree in (None, degrees[0])
        assert not any("neighbors" in each for each in said)
    dialable = [i for i, host in enumerate(hosts) if host.address is not None]
    assert np.ptp(degrees[dialable]) <= 2


def planned(folder: Path, *options: str, hosts: str = "pi-1 192.168.1.11\npi-2 192.168.1.12\n") -> Result:
    """The command, with the fleet in `fleet`."""
    (folder / "hosts.txt").write_text(hosts)
    return CliRunner().invoke(command, ["plan", str(folder / "hosts.txt"), "-o", str(folder / "fleet"), *options])


def test_the_command_says_how_to_give_sigma_and_why_degrees_are_unequal(tmp_path: Path) -> None:
    for options, remedy in (
        ([], "intervals need it. Try --set sigma=2, or --method census."),
        (["--method", "census", "--set", "restart=true"], "requires a known sigma. Try --set sigma=2."),
        (["--samples", "fiel:x"], "Did you mean 'file'?"),
        (["--set", "sigmaa=2"], "Did you mean 'sigma'?"),
    ):
        error = planned(tmp_path, *options).exception
        assert isinstance(error, ColmeError) and str(error).endswith(remedy)
    wrong = planned(tmp_path, "--set", "sigma")
    assert wrong.exit_code == 2 and "has no value" in wrong.stderr
    done = planned(tmp_path, "--method", "census", hosts="a 192.168.1.11\nb -\nc -\nd -\n")
    assert "Agents have 1 to 3 neighbors: 3 of 4 cannot be dialed" in done.output


def test_a_method_of_ones_own_is_planned_and_copied_to_every_agent(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(Path(skeleton.__file__).read_text().replace('"one-hop"', '"my-hop"'))
    result = planned(tmp_path, "--set", "sigma=2", "--module", str(own), "--method", "my-hop")
    assert result.exit_code == 0, result.exception
    own.unlink()  # each agent has its own copy
    for name in ("pi-1", "pi-2"):
        node = NodeConfig.read(tmp_path / "fleet" / name / "node.toml")
        assert repr(node.method) == "OneHop(guard=True, sigma=2.0)"
        assert node.modules == (str(tmp_path / "fleet" / name / "own.py"),)
        core = Core(node.method, node.name, [each.name for each in node.neighbors], n_agents=2, degree=1, sigma=2.0)
        assert type(core.agent.inner).__name__ == "OneHopAgent"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("word", "source", "addresses"),
    [
        ("file:readings.txt", "file", ("readings.txt", "readings.txt")),
        ("file:/run/{name}.txt", "file", ("/run/pi-1.txt", "/run/pi-2.txt")),
        ("mqtt:127.0.0.1:1883/hall/{name}", "mqtt", ("127.0.0.1:1883/hall/pi-1", "127.0.0.1:1883/hall/pi-2")),
        ("stdin", "stdin", ("", "")),
    ],
)
def test_samples_are_planned_for_every_agent(
    word: str, source: str, addresses: tuple[str, str], tmp_path: Path
) -> None:
    result = planned(tmp_path, "--method", "local", "--samples", word)
    assert result.exit_code == 0, result.exception
    for name, address in zip(("pi-1", "pi-2"), addresses, strict=True):
        folder = tmp_path / "fleet" / name
        here = str(folder / address) if source == "file" else address
        found = NodeConfig.read(folder / "node.toml").samples
        assert (found.source, found.address) == (source, here)


def test_an_agent_alone_and_a_graph_of_ones_own(tmp_path: Path) -> None:
    assert read(plan(PIS[:1], tmp_path / "one", method=METHOD), PIS[:1])["pi-1"].neighbors == ()
    line = read(plan(PIS[:3], tmp_path / "line", method=METHOD, graph=from_edges([(0, 1), (1, 2)])), PIS[:3])
    assert [len(line[f"pi-{i}"].neighbors) for i in (1, 2, 3)] == [1, 2, 1]


@pytest.mark.parametrize(
    ("fields", "cut"),
    [([], "difference"), *(([field], None) for field in ("cut=intervals", "gamma=0.01", "bound=fourth-moment"))],
    ids=str,
)
def test_a_planned_fleet_cuts_by_difference_tests_where_they_fit(
    tmp_path: Path, fields: list[str], cut: str | None
) -> None:
    options = (word for field in ("sigma=2", *fields) for word in ("--set", field))
    result = planned(tmp_path, *options, "--tick-rate", "20", "--degree", "1")
    assert result.exit_code == 0
    assert result.stdout.split() == [f"{tmp_path}/fleet/{name}/node.toml" for name in ("pi-1", "pi-2")]
    written = msgspec.toml.decode((tmp_path / "fleet" / "pi-1" / "node.toml").read_bytes())
    assert written["method"].get("cut") == cut and written["tick_rate"] == 20.0 and len(written["neighbors"]) == 1
    assert ("If agents share noise" in result.output) == (cut == "difference")


def test_the_demo_writes_configurations_for_a_method_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(Path(skeleton.__file__).read_text().replace('"one-hop"', '"demo-hop"'))
    method = method_of({"method": "demo-hop", "sigma": 1.0}, [own])
    Demo(tmp_path, 3, 0, method, [own])
    node = NodeConfig.read(tmp_path / "agent-01.toml")
    assert node.method == method and node.modules == (str(own),)
