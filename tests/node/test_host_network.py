"""Hosts of many agents over zenoh: parts of frames, access lists, plans; and, marked `network`, real processes."""

from __future__ import annotations

import csv
import functools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import colme
from colme.cli.node_command import command
from colme.errors import NodeError
from colme.graphs import complete_graph
from colme.node.config.node_toml import NodeConfig
from colme.node.config.plan import Host, plan
from colme.node.config.tables import HostTable, Limits
from colme.node.hosts.device import host_core
from colme.node.hosts.frame import MOST_BYTES, MOST_PARTS
from colme.node.hosts.graph import HostGraph
from colme.node.io.status import ask, metrics
from colme.node.net import zenoh_settings
from tests.support.node_fleet import config, environment, free_port, make_keys, transports, until
from tests.support.node_hosts import run_hosts

METHOD = colme.CLColME(sigma=1.0)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_keys(tmp_path_factory.mktemp("keys"))


def hosting(node: NodeConfig, parts: int) -> NodeConfig:
    fields = {name: getattr(node, name) for name in node.__struct_fields__}
    return NodeConfig(**fields | {"host": HostTable(agents="agents.csv", parts=parts)})


def test_parts_are_heard_apart_and_no_more_of_them_than_agreed(keys: Path) -> None:
    """Parts as long as they may be, said at once: each has a mailbox and a rate of its own."""
    port, limits = free_port(), Limits(max_rate=10.0)
    with transports() as opened:
        ann = opened(hosting(config("ann", keys=keys, port=port, neighbors={"bob": None}, limits=limits), 3))
        bob = opened(hosting(config("bob", keys=keys, neighbors={"ann": port}, limits=limits), 4))
        got: dict[int, bytes] = {}

        def all_parts() -> bool:
            for part in range(4):
                bob.publish(bytes([part]) * MOST_BYTES, part)
            got.update({part: raw for part in range(3) if (raw := ann.latest("bob", part)) is not None})
            return len(got) == 3

        until(all_parts)
        assert got == {part: bytes([part]) * MOST_BYTES for part in range(3)}
        got.clear()
        bob.publish(bytes(MOST_BYTES + 1), 0)
        bob.publish(b"small", 1)
        until(lambda: bob.publish(b"small", 1) or ann.latest("bob", 1) == b"small")
        assert ann.latest("bob", 0) in (None, bytes(MOST_BYTES))


def test_only_hosts_let_frames_in(keys: Path) -> None:
    plain = config("ann", keys=keys, port=7447, members=("bob",))
    many = hosting(plain, 3)
    for node, longest, parts in ((plain, plain.max_record, 1), (many, MOST_BYTES, 3)):
        settings = zenoh_settings.listening(node)
        assert settings["low_pass_filter"][0]["size_limit"] == longest
        assert [rule["key_expr"] for rule in settings["downsampling"][0]["rules"]] == [
            f"cme/test/a/*{f'/{part}' if part else ''}" for part in range(parts)
        ]
        heard = settings["access_control"]["rules"][0]["key_exprs"]
        assert heard == [*(f"cme/test/a/bob{f'/{k}' if k else ''}" for k in range(parts)),
                         "cme/test/x/bob/ann", "cme/test/live/bob"]  # fmt: skip
    assert plain.max_record < 2000 and settings["transport/link/tx/batch_size"] <= 65535
    with pytest.raises(NodeError, match=rf"host\.parts=1000: there can be at most {MOST_PARTS}"):
        hosting(plain, 1000)


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    hosts = [Host(name, "127.0.0.1", free_port()) for name in ("ann", "bob")]
    return plan(hosts, tmp_path / "fleet", method=METHOD, preset="local", tick_rate=20.0, agents=200)


def test_a_plan_for_many_agents(fleet: Path) -> None:
    nodes = {name: NodeConfig.read(fleet / name / "node.toml") for name in ("ann", "bob")}
    graphs = {name: HostGraph.read(node.host.agents, name) for name, node in nodes.items() if node.host}
    for name, other in (("ann", "bob"), ("bob", "ann")):
        node, graph = nodes[name], graphs[name]
        assert node.host is not None and node.host.estimates == str(fleet / name / "estimates.csv")
        assert (node.n_agents, node.n_edges, node.parts, node.degree) == (400, 1200, 1, 6)
        assert graph.n_agents == 200 and set(graph.degrees.tolist()) == {6} and graph.hosts == (other,)
        assert [each.name for each in node.neighbors] == [other]
    for name, other in (("ann", "bob"), ("bob", "ann")):
        crossing = graphs[name].crossing
        mine = {
            (int(graphs[name].rows[k]), int(graphs[name].ghost_number[graphs[name].ends[k] - 200])) for k in crossing
        }
        theirs = {
            (int(graphs[other].ghost_number[graphs[other].ends[k] - 200]), int(graphs[other].rows[k]))
            for k in graphs[other].crossing
        }
        assert mine == theirs and 500 < len(mine) < 700  # half of 1200, give or take four deviations


def test_a_plan_is_for_drawn_graphs_only(tmp_path: Path) -> None:
    hosts = [Host(name, "127.0.0.1", port) for name, port in (("ann", 1), ("bob", 2))]
    with pytest.raises(NodeError, match=r"agents=5 and graph=.*Leave one out\."):
        plan(hosts, tmp_path / "fleet", method=METHOD, agents=5, graph=complete_graph(2))


def test_the_command_plans_for_many_agents(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("ann 127.0.0.1:7001\nbob 127.0.0.1:7002\n")
    asked = ["plan", str(hosts), "-o", str(tmp_path / "fleet"), "--agents", "5", "--degree", "2", "--set", "sigma=1"]
    done = CliRunner().invoke(command, asked)
    assert done.exit_code == 0 and "holds 2 hosts." in done.stderr
    graph = HostGraph.read(tmp_path / "fleet" / "ann" / "agents.csv", "ann")
    assert graph.n_agents == 5 and set(graph.degrees.tolist()) == {2}


def test_a_list_that_names_unknown_hosts_is_refused(fleet: Path) -> None:
    path = fleet / "ann" / "agents.csv"
    path.write_text(path.read_text() + "0,cid/3\n")
    with pytest.raises(NodeError, match=r"'cid'.*'bob'"):
        host_core(NodeConfig.read(fleet / "ann" / "node.toml"))


class Pair:
    """Both hosts of a fleet as processes, fed through their stdin."""

    def __init__(self, fleet: Path):
        self.fleet = fleet
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        arguments = [sys.executable, "-m", "colme", "node", "run", "--config", str(self.fleet / name / "node.toml")]
        with (self.fleet / f"{name}.out").open("ab") as out, (self.fleet / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                arguments, env=environment() | {"COLME_NUMBA": "1"}, stdin=subprocess.PIPE, stdout=out, stderr=log
            )
        until(lambda: self.status(name) is not None)

    def status(self, name: str) -> Any:
        try:
            return ask(str(self.fleet / name / f"{name}.sock"))
        except NodeError:
            return None

    def feed(self, name: str, samples: Any) -> None:
        pipe = self.processes[name].stdin
        assert pipe is not None
        pipe.write(b"".join(b"%d %r\n" % (a, x) for a, x in enumerate(samples)))
        pipe.flush()

    def end(self, name: str, number: int) -> int:
        process = self.processes.pop(name)
        process.send_signal(number)
        assert process.stdin is not None
        process.stdin.close()
        return process.wait(30)


@pytest.fixture
def both(fleet: Path) -> Iterator[Pair]:
    found = Pair(fleet)
    yield found
    for name in list(found.processes):
        found.end(name, signal.SIGKILL)


@pytest.mark.network
def test_two_hosts_run_die_and_come_back(both: Pair, fleet: Path) -> None:
    """200 agents of two classes on each of two hosts: they find their twins, one host is killed and comes back from its
    store, and what `status`, `neighbors` and the file of estimates say is so."""
    truth = 4.0 * (np.arange(200) % 2)
    rng = np.random.default_rng(1)
    forgotten = {"ann": 0, "bob": 0}
    for name in forgotten:
        both.start(name)

    def all_read(k: int) -> bool:
        return all(both.status(name)["samples"] >= 200 * (k + 1) - lost for name, lost in forgotten.items())

    for k in range(60):
        for name in forgotten:
            both.feed(name, (truth + rng.standard_normal(200)).tolist())
        until(functools.partial(all_read, k))
        if k == 30:
            until(lambda: both.status("ann")["neighbor_rows"][0]["fresh"])
            before = both.status("ann")["samples"]
            assert both.end("ann", signal.SIGKILL) == -signal.SIGKILL
            both.start("ann")
            forgotten["ann"] = before - both.status("ann")["samples"]
            assert 0 <= forgotten["ann"] <= 20 * 200  # those of save_every ticks
            until(lambda: both.status("ann")["neighbor_rows"][0]["fresh"])
    status = both.status("ann")
    assert status["incarnation"] == 2 and status["agents"] == 200 and status["refused"].keys() <= {"old"}
    assert 2.0 < status["neighbors"] < 4.0 and f'colme_neighbors{{agent="ann"}} {status["neighbors"]}'[:25] in metrics(
        status
    )
    shown = CliRunner().invoke(command, ["neighbors", "-c", str(fleet / "ann" / "node.toml"), "--format", "json"])
    assert json.loads(shown.output)[0]["fresh_agents"] > 100
    for name in ("ann", "bob"):
        assert both.end(name, signal.SIGTERM) == 0
        with (fleet / name / "estimates.csv").open() as file:
            rows = list(csv.DictReader(file))
        found = np.array([float(row["estimate"]) for row in rows])
        mean = np.array([float(row["mean"]) for row in rows])
        error, local = (np.sqrt(((each - truth) ** 2).mean()) for each in (found, mean))
        assert len(rows) == 200 and error < 0.6 * local, (error, local)
        assert json.loads((fleet / f"{name}.out").read_text().splitlines()[-1])["agents"] == 200


@pytest.mark.network
@pytest.mark.parametrize("consensus", ["laplacian", "flow"])
def test_ten_thousand_agents_on_a_host(keys: Path, tmp_path: Path, consensus: str) -> None:
    """Half of the edges lead to the other host, and half of all are cut. It prints the share of a core; 25 % at 20 Hz
    is the goal."""
    for host in run_hosts(keys, tmp_path, 10_000, 15.0, 20.0, consensus):
        print(json.dumps(host))
        assert host["mib"] < 400
        assert host["refused"].keys() <= {"old"} and host["rms"] < 0.5 * host["rms_local"] and 0.4 < host["alive"] < 0.6


def test_neighbors_of_a_host_and_of_an_agent_are_shown_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:  # fmt: skip
    rows = {"ann": {"name": "bob", "agents": 3}, "cid": {"name": "dan", "met": True}}

    def ask(path: str) -> dict[str, Any]:
        return {"name": Path(path).stem, "neighbor_rows": [rows[Path(path).stem]]}

    monkeypatch.setattr("colme.node.io.status.ask", ask)
    flags = []
    for name in rows:
        (tmp_path / name).write_text(f'name = "{name}"\nmethod = {{ method = "local" }}\n')
        flags += ["-c", str(tmp_path / name)]
    shown = CliRunner().invoke(command, ["neighbors", *flags, "--format", "csv"])
    assert shown.output.splitlines() == ["agent,name,agents,met", "ann,bob,3,", "cid,dan,,True"]
