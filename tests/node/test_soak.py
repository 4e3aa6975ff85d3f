"""Ten minutes of agents of which one after another is killed and restarted: the memory of the others must hardly grow.

COLME_SOAK_SECONDS=60 makes it a minute, in which a slow leak cannot be distinguished from noise.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import colme
from tests.support.node_fleet import MIB, Swarm, every, until, usage

SECONDS = float(os.environ.get("COLME_SOAK_SECONDS", "600"))
WARM = 0.2
"""Share of the time after which everything should have been seen once."""
N, RATE = 8, 20.0
DEATH, RETURN = 20.0, 5.0  # s from one to the next, and until it is started again
LOOK = 2.0  # s
MOST = 1.0  # MiB from the warm-up to the end


@pytest.mark.network
def test_agents_hardly_grow_in_ten_minutes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    seen: list[tuple[float, list[tuple[float, ...]]]] = []
    deaths = 0
    with Swarm(tmp_path, N, method=colme.CLColME(sigma=1.0), preset="local", tick_rate=RATE, degree=5, seed=1) as swarm:
        names, mortals = swarm.names, swarm.names[::4]
        survivors = [name for name in names if name not in mortals]
        swarm.start_all(fresh=5)
        first_starts = {name: swarm.status(name)["incarnation"] for name in names}
        for turn in every(1 / RATE, round(SECONDS * RATE)):
            now, victim = turn / RATE, mortals[deaths % len(mortals)]
            if victim in swarm.processes and now > (deaths + 1) * DEATH:
                swarm.kill(victim)
            elif victim not in swarm.processes and now > (deaths + 1) * DEATH + RETURN:
                swarm.start(victim)
                deaths += 1
            for name in swarm.processes:
                swarm.feed(name, float(rng.normal()))
            if turn % round(LOOK * RATE) == 0:
                seen.append((now, [_looked_at(swarm, name) for name in survivors]))
        until(lambda: all(swarm.status(name)["fresh"] == 5 for name in names))
        last = {name: swarm.status(name) for name in names}
    assert deaths and {name for name in names if last[name]["incarnation"] > first_starts[name]} <= set(mortals)
    assert not any(status["cut"] for status in last.values())
    assert all(last[name]["samples"] > 0.8 * SECONDS * RATE for name in survivors)
    times = np.array([when for when, _ in seen])
    figures = np.array([rows for _, rows in seen])[times > WARM * times[-1]]  # times, agents, figures
    times = times[times > WARM * times[-1]]
    span = times[-1] - times[0]
    trends = []
    for name, own in zip(survivors, np.moveaxis(figures, 1, 0), strict=True):
        trends.append([span * each for each in _trend(times, own[:, 0])])
        print(f"{name}: {own[0, 0]:.2f} to {own[-1, 0]:.2f} MiB, trend {trends[-1][0]:+.2f} +- {trends[-1][1]:.2f} in "
              f"{span:.0f} s; descriptors {own[0, 1]:.0f} to {own[-1, 1]:.0f}, threads {own[0, 2]:.0f} to "
              f"{own[-1, 2]:.0f}, store {own[0, 3]:.2f} to {own[-1, 3]:.2f} MiB")  # fmt: skip
    quarter = len(figures) // 4
    first, end = figures[:quarter].max(axis=0), figures[-quarter:].min(axis=0)
    assert all(growth < MOST + 2 * error for growth, error in trends)
    assert np.all(end[:, 1] <= first[:, 1])  # descriptors: as few as before, at some time
    assert np.all(end[:, 2] <= first[:, 2])  # threads, too: zenoh keeps idle ones for seconds
    assert figures[:, :, 3].max() < 0.1  # MiB


def _looked_at(swarm: Swarm, name: str) -> tuple[float, ...]:
    """MiB, descriptors, threads, MiB on the disk."""
    found = usage(swarm.processes[name].pid)
    disk = sum(path.stat().st_size for path in (swarm.folder / name).glob("*.sqlite*")) / MIB
    return found.resident, found.descriptors, found.threads, disk


def _trend(times: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Slope of a straight line, and its standard error. Neighboring values of a process that grows in steps are alike,
    so the error counts as many independent values as a correlation of the residuals leaves."""
    x = times - times.mean()
    slope = float(x @ values / (x @ x))
    rest = values - values.mean() - slope * x
    alike = float(np.clip(rest[1:] @ rest[:-1] / max(rest @ rest, 1e-12), 0.0, 0.9))
    return slope, float(np.sqrt(rest @ rest / (len(x) - 2) / (x @ x) * (1 + alike) / (1 - alike)))
