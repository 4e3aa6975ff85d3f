"""CPU and memory of each peer from 10^3 to 10^6 agents: every fit in a process of its own, with a limit on CPU time.

Agents have five samples each, true means N(0, 1) and noise N(0, 4). A peer that exceeds the limit is asked no more.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.peers import lme4
from benchmarks.peers.estimators import PEERS, Samples
from benchmarks.peers.jobs import Journal

SIZES = (1_000, 10_000, 100_000, 1_000_000)
QUICK = (1_000, 10_000)
SAMPLES, SIGMA = 5, 2.0
LIMIT = 100
"""CPU seconds of the whole process, its start and the made table included."""
SLOWED = 6
"""Wall seconds per CPU second that are waited for, on a machine with others at work."""
Tell = Callable[[str], None]


class Cost(msgspec.Struct, frozen=True):
    """What a fit took."""

    peer: str
    n_agents: int
    cpu: float | None = None
    """CPU seconds of all threads."""
    memory: float | None = None
    """Bytes beyond what the process had before the fit, at the worst moment; None: the system does not say."""
    ratio: float | None = None
    """Squared error relative to that of the local means, against the true means."""
    failure: str = ""


def made(n_agents: int) -> tuple[Samples, np.ndarray]:
    """Samples and true means."""
    rng = np.random.default_rng(n_agents)
    truth = rng.standard_normal(n_agents)
    agent = np.repeat(np.arange(n_agents), SAMPLES)
    return Samples(agent, truth[agent] + SIGMA * rng.standard_normal(len(agent)), n_agents), truth


def fit_here(name: str, n_agents: int) -> Cost:
    """One fit in this process, after a small one that imports and compiles."""
    peer = PEERS[name]
    for small in (40, 300):
        peer.fit(made(small)[0])
    samples, truth = made(n_agents)
    process = lme4.process_id() if peer.package == "lme4" else None
    before, started, lme4.Spent.seconds = _memory(process, reset=True), time.process_time(), 0.0
    found = peer.fit(samples)
    cpu = time.process_time() - started if process is None else lme4.Spent.seconds
    after = _memory(process)
    local = PEERS["local"].fit(samples).estimate
    ratio = float(np.square(found.estimate - truth).mean() / np.square(local - truth).mean())
    return Cost(name, n_agents, cpu, None if math.isnan(after - before) else after - before, ratio)


def _memory(process: int | None, *, reset: bool = False) -> float:
    """Bytes that the process has had at most; `reset` starts again from what it has now."""
    folder = Path("/proc") / ("self" if process is None else str(process))
    try:
        if reset:
            (folder / "clear_refs").write_text("5")
        found = re.search(r"^VmHWM:\s*(\d+) kB", (folder / "status").read_text(), re.M)
    except OSError:
        return math.nan
    return 1024.0 * int(found.group(1)) if found else math.nan


def measure(name: str, n_agents: int) -> Cost:
    """One fit in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.peers.scaling", name, str(n_agents)]
    try:
        done = subprocess.run(command, capture_output=True, check=False, preexec_fn=_limit, timeout=SLOWED * LIMIT)
    except subprocess.TimeoutExpired:
        return Cost(name, n_agents, failure=f"more than {SLOWED * LIMIT} s of wall time")
    if done.returncode == 0:
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=Cost)
    if done.returncode < 0 or b"R ended" in done.stderr:
        return Cost(name, n_agents, failure=f"more than {LIMIT} s")
    return Cost(name, n_agents, failure=done.stderr.decode().strip().splitlines()[-1][:100])


def _limit() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))  # processes that it starts have it, too


def measure_all(peers: list[str], sizes: tuple[int, ...], journal: Journal[Cost], tell: Tell) -> None:
    """What is missing, smallest tables first; peers that failed once are not asked for more."""
    there = {(cost.peer, cost.n_agents) for cost in journal.done}
    failed = {cost.peer for cost in journal.done if cost.failure}
    for n_agents in sizes:
        for peer in peers:
            if peer in failed or (peer, n_agents) in there:
                continue
            tell(f"{n_agents:,} agents: {peer}")
            cost = measure(peer, n_agents)
            journal.add(cost)
            if cost.failure:
                tell(f"... {cost.failure}")
                failed.add(peer)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(fit_here(sys.argv[1], int(sys.argv[2]))) + b"\n")
