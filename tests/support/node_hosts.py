"""Two hosts of many agents as processes, over zenoh with TLS, for tests. Run as a script, it is one of them: it ticks
for some seconds with a sample per agent and tick, and prints what it used."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import colme
from colme.graphs import random_regular_graph
from colme.node.config.node_toml import NodeConfig
from colme.node.config.tables import HostTable, Neighbor
from colme.node.hosts.device import HostDevice
from colme.node.hosts.graph import split
from colme.node.hosts.host import HostCore
from colme.node.loop import Ticker
from colme.node.net.zenoh_transport import ZenohTransport
from colme.node.store import AgentStore
from tests.support.node_fleet import environment, free_port, tls

NAMES = ("ann", "bob")
GAP, SIGMA = 2.0, 1.0


def run_hosts(keys: Path, folder: Path, n_agents: int, seconds: float, rate: float, consensus: str) -> list[Any]:
    """What both hosts say of themselves, n_agents on each."""
    port = free_port()
    words = [str(keys), str(folder), str(port), str(n_agents), str(seconds), str(rate), consensus]
    both = [
        subprocess.Popen(
            [sys.executable, __file__, name, *words], stdout=subprocess.PIPE, text=True,
            env=environment() | {"COLME_NUMBA": "1"},
        )
        for name in NAMES
    ]  # fmt: skip
    return [json.loads(host.communicate(timeout=seconds + 120)[0]) for host in both]


def _host(name: str, keys: str, folder: str, port: str, n: str, seconds: str, rate: str, consensus: str) -> None:
    me, n_agents, duration = NAMES.index(name), int(n), float(seconds)
    graph = random_regular_graph(2 * n_agents, 6, rng=1)
    graphs, _ = split(graph, (np.arange(2 * n_agents) % 2).tolist(), NAMES)
    method = colme.CLColME(consensus=consensus)
    core = HostCore(
        method, name, graphs[me], n_agents=graph.n_agents, n_edges=graph.n_edges, sigma=SIGMA,
        stale_after=1.0,
    )  # fmt: skip
    config = NodeConfig(
        name=name, network="test", method=method, preset="local", tick_rate=float(rate),
        listen=() if me else (f"tls/127.0.0.1:{port}",), tls=tls(Path(keys), name),
        neighbors=(Neighbor(name=NAMES[1 - me], endpoint=f"tls/127.0.0.1:{port}" if me else None),),
        host=HostTable(agents="agents.csv", parts=core.links.n_parts),
    )  # fmt: skip
    rng = np.random.default_rng(me)
    truth = GAP * (rng.random(n_agents) < 0.5)
    everybody = np.arange(n_agents)
    warm = HostCore(method, name, graphs[me], n_agents=graph.n_agents, n_edges=graph.n_edges, sigma=SIGMA)
    for _ in range(2):
        warm.tick(0.0, (everybody, truth))  # compiles
    device = HostDevice(core, ZenohTransport(config), AgentStore(Path(folder, f"{name}.db")), parts=config.parts)
    time.sleep(1.0)  # until both are there
    ticker = Ticker(config.period, time.monotonic(), 0.5 * me)
    begun, cpu, sampling, fresh = time.monotonic(), time.process_time(), 0.0, []
    while (now := time.monotonic()) < begun + duration:
        if now < ticker.due:
            time.sleep(ticker.due - now)
            continue
        ticker.began(now)
        start = time.thread_time()
        samples = truth + SIGMA * rng.standard_normal(n_agents)
        sampling += time.thread_time() - start
        device.tick(now, (everybody, samples))
        if core.epoch % 20 == 0:
            fresh.append(float(core.fresh(now)[core.wanted].mean()))
    used = time.process_time() - cpu - sampling
    device.save()
    device.transport.close()
    error = np.sqrt(np.mean((core.estimate - truth) ** 2))
    local = np.sqrt(np.mean((core.mean - truth) ** 2))
    print(json.dumps({
        "name": name, "ticks": core.epoch, "cpu": used / (time.monotonic() - begun), "late": ticker.late,
        "us_per_agent_tick": 1e6 * used / core.epoch / n_agents, "parts": config.parts,
        "mib": _most_resident(), "fresh": float(np.mean(fresh[1:])),
        "rms": error, "rms_local": local, "alive": float(core.alive.mean()), "refused": dict(core.refused),
    }))  # fmt: skip


def _most_resident() -> float:
    """The most MiB in memory so far. Not `ru_maxrss`, which a process inherits from the one that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    _host(*sys.argv[1:])
