"""Agents as processes: what `colme node` prints and how it exits; and, marked `network`, real fleets."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import colme
from colme.cli.node_command import command
from colme.node.config.plan import to_toml
from colme.node.demo import DemoErrors, DemoView, run_demo
from colme.node.security.keys import make_certificate
from tests.support.node_fleet import MIB, Swarm, environment, every, free_port, until, usage


def call(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


@pytest.mark.parametrize("name", sorted(command.commands))
def test_every_command_has_help_with_an_example(name: str) -> None:
    found = call(name, "--help")
    assert found.exit_code == 0 and re.search(rf"colme node {name}\b", found.output)


def test_help_and_run_load_nothing_heavy(tmp_path: Path) -> None:
    """A device must not pay for numba, the lab or OpenSSL."""
    code = """
import sys
from colme.cli import main
try:
    main(["node", "run", "--config", "nowhere.toml"])
except SystemExit as done:
    print(done.code, [name for name in ("numba", "colme.lab", "xarray", "rich", "_hashlib") if name in sys.modules])
"""
    kept = {key: value for key, value in environment().items() if key != "COLME_NUMBA"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=kept, cwd=tmp_path)
    assert done.stdout == "1 []\n" and "cannot read nowhere.toml" in done.stderr


def test_keys_makes_an_authority_once_and_rotates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = call("keys", "ann", "bob", "--host", "127.0.0.1", "-o", "fleet")
    assert made.exit_code == 0 and made.stdout.split() == ["fleet/ann/ann.pem", "fleet/bob/bob.pem"]
    assert "new authority" in made.stderr and stat.S_IMODE(os.stat("authority/ca.key").st_mode) == 0o600
    authority, old = Path("authority/ca.pem").read_bytes(), Path("fleet/ann/ann.key").read_bytes()
    again = call("keys", "ann", "-o", "fleet")
    assert isinstance(again.exception, colme.errors.ColmeError) and "not overwritten" in str(again.exception)
    assert call("keys", "ann", "--rotate", "-o", "fleet").exit_code == 0
    assert Path("authority/ca.pem").read_bytes() == authority and Path("fleet/ann/ann.key").read_bytes() != old


def test_asking_nobody_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('name = "ann"\n[method]\nmethod = "local"\n')
    for what in ("status", "neighbors"):
        found = call(what, "--config", str(path))
        assert "no node answers" in str(found.exception)
    watched = call("watch", "--config", str(path), "--times", "1")
    assert watched.exit_code == 0 and watched.output.startswith("name ann  samples -")


def test_tables_fit_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither numbers nor names are broken over two lines."""
    row = {
        "name": "greenhouse-12", "fresh": True, "present": True, "met": False, "age": 0.0234, "incarnation": 12,
        "samples": 1234567, "mean": -1.234e-5, "estimate": -1.345e-5,
    }  # fmt: skip
    status = row | {
        "tick": 7654321, "radius": 4.56e-6, "lower": -1.8e-5, "upper": -8.9e-6, "level": 0.9, "late": 1,
        "neighbors": 12, "fresh": 11, "cut": 3, "refused": {"old": 5}, "bad_lines": 2, "neighbor_rows": [row],
    }  # fmt: skip
    monkeypatch.setattr("colme.node.io.status.ask", lambda socket: status)
    path = tmp_path / "node.toml"
    path.write_text('name = "ann"\n[method]\nmethod = "local"\n')
    for what in ("status", "neighbors"):
        lines = [line for line in call(what, "--config", str(path)).output.splitlines() if line.strip()]
        (numbers,) = [line for line in lines if "greenhouse-12" in line]
        assert max(map(len, lines)) <= 80 and "1,234,567" in numbers and f"{row['estimate']:.2e}" in numbers
        assert any("estimate" in line for line in lines) and not any("incarnation" in line for line in lines)
        assert "incarnation" in call(what, "--config", str(path), "--wide", "--format", "csv").output


def test_three_agents_over_tls_hear_each_other_and_tell(tmp_path: Path) -> None:
    with Swarm(tmp_path, 3, method=colme.CLColME(sigma=1.0), preset="local", tick_rate=20.0) as swarm:
        names = swarm.names
        configs = [word for name in names for word in ("-c", str(swarm.config(name)))]
        swarm.start_all(fresh=2)
        for a, name in enumerate(names):
            swarm.feed(name, float(a))
        until(lambda: all(swarm.status(name)["samples"] == 1 for name in names))
        rows = json.loads(call("status", *configs, "--format", "json").output)
        assert [row["name"] for row in rows] == names and [row["mean"] for row in rows] == [0.0, 1.0, 2.0]
        heard = json.loads(call("neighbors", *configs, "--format", "json").output)
        assert len(heard) == 6 and all(row["fresh"] and row["present"] for row in heard)
        lines = call("watch", *configs, "--times", "2", "--every", "0.1").output.splitlines()
        assert len(lines) == 6 and lines[0].startswith("name pi-00  samples 1")
        table = call("status", *configs).output
        assert all(name in table for name in names)
        assert {report["samples"] for report in swarm.stop().values()} == {1}


@pytest.mark.network
def test_the_demo_converges_though_one_dies() -> None:
    views = list(run_demo(seconds=12.0))
    *seen, outcome = views
    assert isinstance(outcome, DemoErrors) and outcome.network < 0.75 * outcome.local
    assert outcome.network < 1.5 * outcome.simulator
    events = {view.event for view in seen if isinstance(view, DemoView)}
    assert {"agent-12 was killed", "agent-12 restarts from its store"} <= events
    last = seen[-1]
    assert isinstance(last, DemoView) and all(row["running"] for row in last.reports)


@pytest.mark.network
def test_an_agent_takes_little_of_its_device(tmp_path: Path) -> None:
    """Six neighbors at 20 Hz, mutual TLS, a sample at every tick: 3 % of a core, which is printed, and 60 MB are the
    goal."""
    seconds, rate = 60.0, 20.0
    with Swarm(tmp_path, 7, method=colme.CLColME(sigma=1.0), preset="local", tick_rate=rate) as swarm:
        swarm.start_all(fresh=6)
        processes = [swarm.processes[name].pid for name in swarm.names]
        before, began = [usage(each).cpu for each in processes], time.monotonic()
        for step in every(1 / rate, round(seconds * rate)):
            for name in swarm.names:
                swarm.feed(name, step % 2)
        found, elapsed = [usage(each) for each in processes], time.monotonic() - began
        ticks = [swarm.status(name)["tick"] for name in swarm.names]
    shares = [100 * (use.cpu - cpu) / elapsed for use, cpu in zip(found, before, strict=True)]
    megabytes = [use.resident * MIB / 1e6 for use in found]
    print(f"{min(shares):.2f} to {max(shares):.2f} % of a core, {min(megabytes):.1f} to {max(megabytes):.1f} MB")
    assert min(ticks) > 0 and max(megabytes) < 70.0


@pytest.mark.network
def test_newcomers_with_a_seed_join_a_planned_fleet(tmp_path: Path) -> None:
    """Six processes of a plan, two classes; then three newcomers that know one address. All have twins for neighbors in
    the end, and estimates nearer to the truth than their own means."""
    rate, n_steps, came = 20.0, 600, 100
    options = {"method": colme.CLColME(sigma=1.0), "degree": 3, "tick_rate": rate, "admit": "certified"}
    with Swarm(tmp_path, 6, preset="local", **options) as swarm:
        first = swarm.hosts[0]
        for name in ("new-0", "new-1", "new-2"):
            make_certificate(swarm.folder / "authority", name, ["127.0.0.1"], folder=swarm.folder / name)
            join = {"seed": first.name, "endpoint": f"tls/127.0.0.1:{first.port}", "degree": 3, "admit": "certified"}
            table = {
                "name": name, "preset": "local", "tick_rate": rate, "n_agents": 9,
                "listen": [f"tls/127.0.0.1:{free_port()}"], "method": {"method": "cl-colme", "sigma": 1.0},
                "tls": {"ca": "ca.pem", "certificate": f"{name}.pem", "key": f"{name}.key"}, "join": join,
            }  # fmt: skip
            swarm.config(name).write_bytes(to_toml(table))
        swarm.start_all(fresh=3)
        swarm.names += ["new-0", "new-1", "new-2"]
        names, rng = swarm.names, np.random.default_rng(5)
        truth = np.array([3.0 * (int(name[-1]) % 2) for name in names])
        for step in every(1 / rate, n_steps):
            if step == came:
                for name in names[6:]:
                    swarm.start(name)
            for a, name in enumerate(names):
                if name in swarm.processes:
                    swarm.feed(name, float(truth[a] + rng.standard_normal()))
        statuses = {name: swarm.status(name) for name in names}
        reports = swarm.stop()
    for name, status in statuses.items():
        others = [row["name"] for row in status["neighbor_rows"] if row["fresh"]]
        assert len(others) >= 3, (name, others)
        assert all((int(name[-1]) - int(other[-1])) % 2 == 0 for other in others), (name, others)
    errors = {what: np.array([reports[name][what] for name in names]) - truth for what in ("estimate", "mean")}
    network, local = (np.sqrt(np.mean(each**2)) for each in errors.values())
    print(f"rms error: {network:.4f} with neighbors, {local:.4f} alone")
    assert network < local


N_LOCAL, GATEWAY_SECONDS = 10_000, int(os.environ.get("COLME_GATEWAY_SECONDS", "60"))


@pytest.mark.network
def test_two_gateways_of_ten_thousand_local_agents(tmp_path: Path) -> None:
    """A sample of each per second; two classes a sigma apart. It prints what a gateway took in the last half of
    the time."""
    rng, agents = np.random.default_rng(0), [f"meter-{i:05d}" for i in range(N_LOCAL)]
    with Swarm(tmp_path, 2, method=colme.Census(), preset="local", tick_rate=1.0, agents=N_LOCAL) as swarm:
        truth = {name: rng.integers(0, 2, N_LOCAL).astype(float) for name in swarm.names}
        sums = {name: np.zeros(N_LOCAL) for name in swarm.names}
        half: dict[str, float] = {}
        swarm.start_all(fresh=1)
        for second in every(1.0, GATEWAY_SECONDS):
            for name in swarm.names:
                samples = truth[name] + rng.normal(size=N_LOCAL)
                sums[name] += samples
                rows = zip(agents, samples.tolist(), strict=True)
                swarm.write(name, "".join(f"{agent} {x:.6f}\n" for agent, x in rows))
            if second == GATEWAY_SECONDS // 2:
                half = {name: usage(swarm.processes[name].pid).cpu for name in swarm.names}
                since = time.monotonic()
        until(lambda: all(swarm.status(name)["samples"] == N_LOCAL * GATEWAY_SECONDS for name in swarm.names))
        took = time.monotonic() - since
        for name in swarm.names:
            found, status = usage(swarm.processes[name].pid), swarm.status(name)
            share = (found.cpu - half[name]) / took
            print(f"{name}: {100 * share:.1f} % of a core, {found.resident:.0f} MiB, {status['late']} late ticks")
            assert found.resident < 150.0 and status["agents"] == N_LOCAL and status["fresh"] == 1
        swarm.stop()
    for name in swarm.names:
        lines = (swarm.folder / name / "out.jsonl").read_text().splitlines()
        last = {report["name"]: report for report in map(json.loads, lines)}
        assert set(last) == set(agents)
        estimate = np.array([last[agent]["estimate"] for agent in agents])
        local = np.square(sums[name] / GATEWAY_SECONDS - truth[name]).mean()
        print(f"{name}: {np.square(estimate - truth[name]).mean() / local:.4f} of the local error, {len(lines)} lines")
        assert np.square(estimate - truth[name]).mean() < 0.2 * local


SOAK_SECONDS = float(os.environ.get("COLME_SOAK_SECONDS", "600"))
"""A minute is enough to see the test run, but not to tell a slow leak from noise."""


@pytest.mark.network
def test_agents_hardly_grow_in_ten_minutes(tmp_path: Path) -> None:
    """Every 20 s one of two is killed, and started again 5 s later: the memory of the others must hardly grow, after a
    fifth of the time, in which everything should have been seen once."""
    n, rate, rng, deaths = 8, 20.0, np.random.default_rng(0), 0
    seen: list[list[tuple[float, ...]]] = []  # by time and survivor

    def look(name: str) -> tuple[float, ...]:
        """MiB, descriptors, threads, MiB on the disk."""
        found = usage(swarm.processes[name].pid)
        disk = sum(path.stat().st_size for path in (swarm.folder / name).glob("*.sqlite*")) / MIB
        return found.resident, found.descriptors, found.threads, disk

    with Swarm(tmp_path, n, method=colme.CLColME(sigma=1.0), preset="local", tick_rate=rate, degree=5, seed=1) as swarm:
        names, mortals = swarm.names, swarm.names[::4]
        survivors = [name for name in names if name not in mortals]
        swarm.start_all(fresh=5)
        first_starts = {name: swarm.status(name)["incarnation"] for name in names}
        for turn in every(1 / rate, round(SOAK_SECONDS * rate)):
            now, victim = turn / rate, mortals[deaths % len(mortals)]
            if victim in swarm.processes and now > (deaths + 1) * 20.0:
                swarm.kill(victim)
            elif victim not in swarm.processes and now > (deaths + 1) * 20.0 + 5.0:
                swarm.start(victim)
                deaths += 1
            for name in swarm.processes:
                swarm.feed(name, float(rng.normal()))
            if turn % round(2.0 * rate) == 0:
                seen.append([look(name) for name in survivors])
        until(lambda: all(swarm.status(name)["fresh"] == 5 for name in names))
        last = {name: swarm.status(name) for name in names}
    assert deaths and {name for name in names if last[name]["incarnation"] > first_starts[name]} <= set(mortals)
    assert not any(status["cut"] for status in last.values())
    assert all(last[name]["samples"] > 0.8 * SOAK_SECONDS * rate for name in survivors)
    figures = np.array(seen)[len(seen) // 5 :]
    span = np.linspace(0.0, 1.0, len(figures))
    growth = np.polyfit(span, figures[:, :, 0], 1)[0]
    print("MiB: " + ", ".join(f"{name} {each:+.2f}" for name, each in zip(survivors, growth, strict=True)))
    quarter = len(figures) // 4
    first, end = figures[:quarter].max(axis=0), figures[-quarter:].min(axis=0)
    assert growth.max() < 1.0
    assert np.all(end[:, 1:3] <= first[:, 1:3])  # descriptors and threads, of which zenoh keeps idle ones for seconds
    assert figures[:, :, 3].max() < 0.1
