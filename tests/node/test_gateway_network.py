"""Gateways as processes over TLS: ten thousand local agents each, fed with lines."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

import colme
from tests.support.node_fleet import Swarm, every, until, usage

K, SECONDS = 10_000, int(os.environ.get("COLME_GATEWAY_SECONDS", "60"))
MOST_MEMORY = 150.0  # MiB


@pytest.mark.network
def test_two_gateways_of_ten_thousand_local_agents(tmp_path: Path) -> None:
    """A sample of each per second; two classes a sigma apart. It prints what a gateway took in the last half of
    the time."""
    rng, agents = np.random.default_rng(0), [f"meter-{i:05d}" for i in range(K)]
    with Swarm(tmp_path, 2, method=colme.Census(), preset="local", tick_rate=1.0, agents=K) as swarm:
        truth = {name: rng.integers(0, 2, K).astype(float) for name in swarm.names}
        sums = {name: np.zeros(K) for name in swarm.names}
        half: dict[str, float] = {}
        swarm.start_all(fresh=1)
        for second in every(1.0, SECONDS):
            for name in swarm.names:
                samples = truth[name] + rng.normal(size=K)
                sums[name] += samples
                rows = zip(agents, samples.tolist(), strict=True)
                swarm.write(name, "".join(f"{agent} {x:.6f}\n" for agent, x in rows))
            if second == SECONDS // 2:
                half = {name: usage(swarm.processes[name].pid).cpu for name in swarm.names}
                since = time.monotonic()
        until(lambda: all(swarm.status(name)["samples"] == K * SECONDS for name in swarm.names))
        took = time.monotonic() - since
        for name in swarm.names:
            found, status = usage(swarm.processes[name].pid), swarm.status(name)
            share = (found.cpu - half[name]) / took
            print(f"{name}: {100 * share:.1f} % of a core, {found.resident:.0f} MiB, {status['late']} late ticks")
            assert found.resident < MOST_MEMORY and status["agents"] == K and status["fresh"] == 1
        swarm.stop()
    for name in swarm.names:
        lines = (swarm.folder / name / "out.jsonl").read_text().splitlines()
        last = {report["name"]: report for report in map(json.loads, lines)}
        assert set(last) == set(agents)
        estimate = np.array([last[agent]["estimate"] for agent in agents])
        local = np.square(sums[name] / SECONDS - truth[name]).mean()
        print(f"{name}: {np.square(estimate - truth[name]).mean() / local:.4f} of the local error, {len(lines)} lines")
        assert np.square(estimate - truth[name]).mean() < 0.2 * local
