"""`colme node demo`: agents as processes on this machine, one of which is killed and restarted.

The agents are of two classes, on a random graph, and do not know the classes. Their samples are drawn here and written
to their stdin, so that the simulator can run on the same ones.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from colme.errors import NodeError, positive, whole
from colme.graphs import random_regular_graph
from colme.lockstep import lockstep
from colme.methods import CLColME, Method
from colme.node.config.plan import method_table, to_toml
from colme.node.config.presets import default_degree
from colme.node.core import Core
from colme.node.net.zenoh_settings import runtime

MEANS = (0.0, 3.0)
SIGMA = 1.0
RATE = 20.0
"""Samples, and ticks, per second."""
_REPORT = 0.25  # s between two lines of an agent
_PATIENCE = 60.0  # s within which all must have started
_DEATH, _RETURN = 0.4, 0.6  # when, as fractions of the duration


class DemoView(NamedTuple):
    """The reports of all agents at one moment."""

    seconds: float
    event: str
    reports: list[dict[str, Any]]  # with the true mean, and whether the agent runs
    local_error: float
    error: float  # root mean squares over agents


class DemoErrors(NamedTuple):
    """Root mean squared errors over agents: alone, over the network, and in the simulator with the same samples."""

    local: float
    network: float
    simulator: float


class Demo:
    """The agents: starts, feeds, kills, restarts and stops them."""

    def __init__(self, folder: Path, n_agents: int, seed: int, method: Method, modules: Sequence[str | Path]):
        self.folder, self.n_agents, self.method = folder, n_agents, method
        self.modules = [str(Path(each).absolute()) for each in modules]
        self._rng = np.random.default_rng(seed)
        self.degree = default_degree(n_agents)
        self.graph = random_regular_graph(n_agents, self.degree, rng=seed)
        self.names = [f"agent-{a + 1:02d}" for a in range(n_agents)]
        self.truth = [MEANS[a % 2] for a in range(n_agents)]
        self.reports: list[dict[str, Any]] = [{} for _ in self.names]
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * n_agents
        self.rows: list[list[float]] = []  # samples, NaN where the agent was not running
        self._begun = [b""] * n_agents
        Core(method, self.names[0], (), n_agents=n_agents, degree=self.degree, sigma=SIGMA)  # refuses what cannot run
        self._write_configurations()

    def start(self, a: int) -> None:
        arguments = [sys.executable, "-m", "colme", "node", "run", "--until-end", "--config", str(self._path(a))]
        # read by zenoh and colme when they are imported
        environment = os.environ | {"COLME_NUMBA": "0", "ZENOH_RUNTIME": runtime(self.degree + 2)}
        log = (self.folder / f"{self.names[a]}.log").open("ab")
        pipe = subprocess.PIPE
        with log:
            process = subprocess.Popen(
                arguments, env=environment, stdin=pipe, stdout=pipe, stderr=log, process_group=0
            )  # a process group of its own: Ctrl-C goes to the demo, which stops them
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self.processes[a] = process

    def kill(self, a: int) -> None:
        """Kill an agent with SIGKILL, as a power cut would."""
        process = self.processes[a]
        if process is not None:
            self.processes[a] = None
            _end(process, signal.SIGKILL)

    def stop(self) -> None:
        """Stop all agents by ending their samples."""
        for process in self.processes:
            if process is not None and process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
        for a, process in enumerate(self.processes):
            if process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=10.0)
                self._read(a, process)
                _end(process, signal.SIGKILL)
        self.processes = [None] * self.n_agents

    def feed(self) -> None:
        """Write the next sample of every running agent."""
        noise = self._rng.normal(0.0, SIGMA, self.n_agents)
        row = [math.nan] * self.n_agents
        for a, process in enumerate(self.processes):
            if process is not None and process.stdin is not None:
                sample = self.truth[a] + float(noise[a])
                with contextlib.suppress(OSError):  # it is dying
                    os.write(process.stdin.fileno(), f"{sample!r}\n".encode())
                    row[a] = sample
        self.rows.append(row)

    def look(self, seconds: float) -> None:
        """Read what the agents report, for so long."""
        end = time.monotonic() + seconds
        poll = select.poll()
        by_descriptor = {}
        for a, process in enumerate(self.processes):
            if process is not None and process.stdout is not None:
                by_descriptor[process.stdout.fileno()] = (a, process)
                poll.register(process.stdout.fileno(), select.POLLIN)
        while (left := end - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(1000 * left):
                a, process = by_descriptor[descriptor]
                if not self._read(a, process):
                    poll.unregister(descriptor)
                    self._check_alive(a, process)

    def view(self, seconds: float, event: str) -> DemoView:
        reports = []
        for a, report in enumerate(self.reports):
            here = {"agent": self.names[a], "running": self.processes[a] is not None, "truth": self.truth[a]}
            reports.append(here | {key: report.get(key) for key in ("samples", "mean", "estimate", "neighbors", "cut")})
        return DemoView(seconds, event, reports, self._error("mean"), self._error("estimate"))

    def outcome(self) -> DemoErrors:
        """The final errors. In the simulator a killed agent has no samples; everything else is the same."""
        simulated = lockstep(self.method, np.array(self.rows), self.graph, sigma=SIGMA, independent=True)[-1]
        return DemoErrors(self._error("mean"), self._error("estimate"), _rms(simulated - np.array(self.truth)))

    def _error(self, what: str) -> float:
        values = [report.get(what) for report in self.reports]
        if any(value is None for value in values):
            return math.nan
        return _rms(np.array(values, float) - np.array(self.truth))

    def _read(self, a: int, process: subprocess.Popen[bytes]) -> bool:
        """Read the reports of an agent; False if its output has ended."""
        assert process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(process.stdout.fileno(), 65536):
                *lines, self._begun[a] = (self._begun[a] + chunk).split(b"\n")
                if lines:
                    self.reports[a] = json.loads(lines[-1])
            return False
        return True

    def _check_alive(self, a: int, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        words = (self.folder / f"{self.names[a]}.log").read_text(errors="replace").strip().splitlines()
        raise NodeError(f"{self.names[a]} ended: {words[-1] if words else 'without a message'}. Try again.")

    def _path(self, a: int) -> Path:
        return self.folder / f"{self.names[a]}.toml"

    def _write_configurations(self) -> None:
        places = [f"tcp/127.0.0.1:{port}" for port in _free_ports(self.n_agents)]
        for a, name in enumerate(self.names):
            others = [int(b) for b in self.graph.neighbors(a)]
            table = {
                "name": name, "network": "demo", "preset": "local", "tick_rate": RATE, "listen": [places[a]],
                "n_agents": self.n_agents, "n_edges": self.graph.n_edges, "report_every": _REPORT,
                "independent": True,
                "method": method_table(self.method),
                "modules": self.modules,
                "neighbors": [
                    {"name": self.names[b]} | ({"endpoint": places[b]} if b < a else {}) for b in others
                ],
            }  # fmt: skip
            self._path(a).write_bytes(to_toml(table))


def run_demo(
    *, seconds: float = 20.0, n_agents: int = 12, seed: int = 0, method: Method | None = None,
    modules: Sequence[str | Path] = (),
) -> Generator[DemoView | DemoErrors]:  # fmt: skip
    """Yield views of the agents, twice a second, and at the end the errors. `modules` are the Python files that define
    the method (default: guarded CL-colME) if it is one of your own."""
    positive(seconds, "seconds", "seconds=20", NodeError)
    whole(n_agents, "n_agents", "n_agents=12", NodeError, low=3)
    whole(seed, "seed", "seed=0", NodeError, low=0)
    with tempfile.TemporaryDirectory(prefix="colme-demo-") as folder:
        usual = CLColME(cut="difference", sigma=SIGMA, delta=0.1, guard=True)
        demo = Demo(Path(folder), n_agents, seed, method or usual, modules)
        try:
            yield from _play(demo, seconds)
        finally:
            demo.stop()
        yield demo.outcome()


def _play(demo: Demo, seconds: float) -> Iterator[DemoView]:
    for a in range(demo.n_agents):
        demo.start(a)
    began = time.monotonic()
    while not all(demo.reports):
        demo.look(0.5)
        yield demo.view(0.0, f"{sum(map(bool, demo.reports))} of {demo.n_agents} agents have started")
        if time.monotonic() - began > _PATIENCE:
            raise NodeError(f"not all agents started within {_PATIENCE:g} s: the machine is busy. Try fewer agents.")
    victim, event, dead = demo.n_agents - 1, "all run", 0
    began, shown = time.monotonic(), 0.0
    n_steps = max(1, round(seconds * RATE))
    for step in range(n_steps):
        if step == round(_DEATH * n_steps):
            demo.kill(victim)
            event, dead = f"{demo.names[victim]} was killed", 1
        elif step == round(_RETURN * n_steps) and dead:
            demo.start(victim)
            event = f"{demo.names[victim]} restarts from its store"
        demo.feed()
        now = time.monotonic() - began
        demo.look(max(0.0, (step + 1) / RATE - now))
        if now - shown >= 0.5 or step == 0:
            shown = now
            yield demo.view(now, event)


def _rms(errors: Any) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """End a process and close its pipes."""
    if process.poll() is None:
        process.send_signal(number)
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _free_ports(n: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [int(probe.getsockname()[1]) for probe in probes]
