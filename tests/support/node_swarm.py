"""A fleet of real processes from a plan, for tests: `colme node run` on loopback with TLS, fed through their stdin; and
what a process uses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from colme.node.config.plan import Host, plan
from tests.support.node_fleet import environment, free_port

MIB = 2**20


class Usage(NamedTuple):
    """Of one process, now."""

    cpu: float  # seconds, user and system
    resident: float  # MiB
    descriptors: int
    threads: int


def usage(process: int) -> Usage:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()  # from the third on, see proc(5)
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    resident = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / MIB
    return Usage(cpu, resident, len(os.listdir(f"/proc/{process}/fd")), int(fields[17]))


class Swarm:
    """Processes by name, on loopback or at these hosts. They end when they are told to."""

    def __init__(self, folder: Path, hosts: int | list[Host], **options: Any):
        if isinstance(hosts, int):
            hosts = [Host(f"pi-{a:02d}", "127.0.0.1", port) for a, port in enumerate(_ports(hosts))]
        self.hosts = hosts
        self.folder = plan(self.hosts, folder / "fleet", **options)
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str) -> None:
        with (self.folder / name / "out.jsonl").open("a") as out, (self.folder / name / "log").open("a") as log:
            self.processes[name] = subprocess.Popen(
                self.command(name), env=environment(), stdin=subprocess.PIPE, stdout=out, stderr=log, text=True
            )

    def command(self, name: str) -> list[str]:
        return [sys.executable, "-m", "colme", "node", "run", "--config", str(self.config(name))]

    def config(self, name: str) -> Path:
        return self.folder / name / "node.toml"

    def feed(self, name: str, sample: float) -> None:
        pipe = self.processes[name].stdin
        assert pipe is not None
        pipe.write(f"{sample!r}\n")
        pipe.flush()

    def kill(self, name: str) -> None:
        self._end(name, signal.SIGKILL)

    def stop(self) -> dict[str, dict[str, Any]]:
        """The last report of everybody, told to stop."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for name in list(self.processes):
            self._end(name, signal.SIGTERM)
        reports = {host.name: self.folder / host.name / "out.jsonl" for host in self.hosts}
        return {name: json.loads(path.read_text().splitlines()[-1]) for name, path in reports.items()}

    def _end(self, name: str, number: signal.Signals) -> None:
        process = self.processes.pop(name)
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(timeout=20)
        finally:
            process.kill()
            assert process.stdin is not None
            process.stdin.close()


def _ports(n: int) -> list[int]:
    found: set[int] = set()
    while len(found) < n:
        found.add(free_port())
    return sorted(found)
