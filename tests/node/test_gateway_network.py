"""Gateways as processes over TLS: ten thousand local agents each, fed with lines."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

import colme
from colme.node.config.node_toml import NodeConfig
from colme.node.io.status import ask
from tests.support.node_fleet import Swarm, until, usage

K, SECONDS = 10_000, int(os.environ.get("COLME_GATEWAY_SECONDS", "60"))
MOST_MEMORY = 150.0  # MiB


@pytest.mark.network
def test_two_gateways_of_ten_thousand_local_agents(tmp_path: Path) -> None:
    """A sample of each per second; two classes a sigma apart. It prints what a gateway took in the last half of
    the time."""
    swarm = Swarm(tmp_path, 2, method=colme.Census(), preset="local", tick_rate=1.0, agents=K)
    names = [host.name for host in swarm.hosts]
    sockets = {name: NodeConfig.read(swarm.config(name)).socket for name in names}
    rng, agents = np.random.default_rng(0), [f"meter-{i:05d}" for i in range(K)]
    truth = {name: rng.integers(0, 2, K).astype(float) for name in names}
    sums = {name: np.zeros(K) for name in names}
    half: dict[str, float] = {}
    try:
        for name in names:
            swarm.start(name)
        until(lambda: all(os.path.exists(path) for path in sockets.values()))
        until(lambda: all(ask(path)["fresh"] == 1 for path in sockets.values()))
        start = time.monotonic()
        for second in range(SECONDS):
            for name in names:
                samples = truth[name] + rng.normal(size=K)
                sums[name] += samples
                pipe = swarm.processes[name].stdin
                assert pipe is not None
                pipe.write("".join(f"{agent} {x:.6f}\n" for agent, x in zip(agents, samples.tolist(), strict=True)))
                pipe.flush()
            if second == SECONDS // 2:
                half = {name: usage(swarm.processes[name].pid).cpu for name in names}
                since = time.monotonic()
            time.sleep(max(0.0, start + second + 1 - time.monotonic()))
        until(lambda: all(ask(path)["samples"] == K * SECONDS for path in sockets.values()))
        took = time.monotonic() - since
        for name in names:
            found, status = usage(swarm.processes[name].pid), ask(sockets[name])
            share = (found.cpu - half[name]) / took
            print(f"{name}: {100 * share:.1f} % of a core, {found.resident:.0f} MiB, {status['late']} late ticks")
            assert found.resident < MOST_MEMORY and status["agents"] == K and status["fresh"] == 1
    finally:
        swarm.stop()
    for name in names:
        lines = (swarm.folder / name / "out.jsonl").read_text().splitlines()
        last = {report["name"]: report for report in map(json.loads, lines)}
        assert set(last) == set(agents)
        estimate = np.array([last[agent]["estimate"] for agent in agents])
        local = np.square(sums[name] / SECONDS - truth[name]).mean()
        print(f"{name}: {np.square(estimate - truth[name]).mean() / local:.4f} of the local error, {len(lines)} lines")
        assert np.square(estimate - truth[name]).mean() < 0.2 * local
