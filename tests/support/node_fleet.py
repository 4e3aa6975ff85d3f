"""Small fleets on loopback, for tests of the node: transports in this process, and agents in processes of their own.

Run as a module, it is one of `talk`, `hanging` and `changing`: an agent that talks until it is killed, or a measurement
that needs a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import colme
from colme.errors import NodeError
from colme.node.config.node_toml import NodeConfig
from colme.node.config.plan import Host, plan
from colme.node.config.tables import Limits, Neighbor, Tls
from colme.node.io.status import ask
from colme.node.net import zenoh_transport
from colme.node.net.zenoh_transport import ZenohTransport
from colme.node.security.keys import make_authority, make_certificate

NAMES = ("ann", "bob", "cid", "dan", "eve", "flo", "gus")
TICK = 0.05
MIB = 2**20
HUNG_LEASE = 3.0  # s, in which the buffers of those that hang must fill: some 10 MB
Opened = Callable[[NodeConfig], ZenohTransport]
"""Opens transports that the test need not close: the fixture `opened`."""
_MODULE = "tests.support.node_fleet"


def make_keys(folder: Path) -> Path:
    """An authority and a certificate for everybody."""
    make_authority(folder / "authority", "test")
    for name in NAMES:
        make_certificate(folder / "authority", name, ["localhost", "127.0.0.1"], folder=folder / name)
    return folder


def tls(keys: Path, name: str) -> Tls:
    own = keys / name
    return Tls(ca=str(own / "ca.pem"), certificate=str(own / f"{name}.pem"), key=str(own / f"{name}.key"))


def config(
    name: str,
    *,
    keys: Path | None,
    port: int | None = None,
    neighbors: dict[str, int | None] | None = None,
    members: tuple[str, ...] = (),
    limits: Limits = Limits(),  # noqa: B008
    **more: Any,
) -> NodeConfig:
    """An agent that listens at a port and dials the ports of some neighbors; keys=None: without TLS."""
    protocol = "tcp" if keys is None else "tls"
    return NodeConfig(
        name=name,
        network="test",
        method=colme.Local(),
        preset="local",
        tick_rate=1 / TICK,
        listen=() if port is None else (f"{protocol}/127.0.0.1:{port}",),
        neighbors=tuple(
            Neighbor(name=other, endpoint=None if at is None else f"{protocol}/127.0.0.1:{at}")
            for other, at in (neighbors or {}).items()
        ),
        members=members,
        tls=None if keys is None else tls(keys, name),
        limits=limits,
        **more,
    )


def until(condition: Callable[[], object], seconds: float = 120.0) -> float:
    """Wait for a condition; the time that it took. The limit is generous, because the machine may be busy."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, "the condition did not come true in time"
        time.sleep(TICK / 5)
    return time.monotonic() - start


def heard(listener: ZenohTransport, speaker: ZenohTransport, record: bytes) -> Callable[[], bool]:
    """Whether a record, said again and again, arrives."""

    def once() -> bool:
        speaker.publish(record)
        listener.publish(b"")  # so that it takes over new links
        return listener.latest(speaker.config.name) == record

    return once


def start_peer(name: str, ports: dict[str, int], keys: Path | None, lease: float = 1.0) -> subprocess.Popen[bytes]:
    """Another process that dials the ports of its neighbors and says its name at every tick."""
    arguments = ["talk", name, json.dumps(ports), "" if keys is None else str(keys), str(lease)]
    return subprocess.Popen([sys.executable, "-m", _MODULE, *arguments], env=environment())


def measured(what: str, port: int, keys: Path | None, *more: object) -> float:
    """What a measurement prints that has a process of its own."""
    arguments = [what, str(port), "" if keys is None else str(keys), *map(str, more)]
    command = [sys.executable, "-m", _MODULE, *arguments]
    return float(subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout)


def environment() -> dict[str, str]:
    """That of another process, with this colme and these tests, without the number of zenoh's threads in this one. As
    on a device, it does without numba, which would be most of its memory."""
    paths = (Path(colme.__file__).parents[1], Path(__file__).parents[2])
    kept = {key: value for key, value in os.environ.items() if key != "ZENOH_RUNTIME"}
    return kept | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "COLME_NUMBA": "0"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
    """Processes by name, on loopback or at these hosts: `colme node run` from a plan with TLS, fed through their stdin.
    They end when they are told to."""

    def __init__(self, folder: Path, hosts: int | list[Host], **options: Any):
        if isinstance(hosts, int):
            hosts = [Host(f"pi-{a:02d}", "127.0.0.1", port) for a, port in enumerate(_ports(hosts))]
        self.hosts = hosts
        self.names = [host.name for host in hosts]
        self.folder = plan(self.hosts, folder / "fleet", **options)
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Swarm:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.processes):
            self.kill(name)

    def start(self, name: str) -> None:
        with (self.folder / name / "out.jsonl").open("a") as out, (self.folder / name / "log").open("a") as log:
            self.processes[name] = subprocess.Popen(
                self.command(name), env=environment(), stdin=subprocess.PIPE, stdout=out, stderr=log, text=True
            )

    def start_all(self, fresh: int) -> None:
        """Start all, and wait until each hears so many neighbors."""
        for name in self.names:
            self.start(name)
        until(lambda: all(self.status(name)["fresh"] == fresh for name in self.names))

    def status(self, name: str) -> dict[str, Any]:
        """What an agent says about itself; nothing was heard if it does not answer yet."""
        with contextlib.suppress(NodeError):
            return ask(NodeConfig.read(self.config(name)).socket)
        return {"fresh": -1, "samples": -1, "incarnation": 0, "neighbor_rows": []}

    def command(self, name: str) -> list[str]:
        return [sys.executable, "-m", "colme", "node", "run", "--config", str(self.config(name))]

    def config(self, name: str) -> Path:
        return self.folder / name / "node.toml"

    def feed(self, name: str, sample: float) -> None:
        self.write(name, f"{sample!r}\n")

    def write(self, name: str, lines: str) -> None:
        pipe = self.processes[name].stdin
        assert pipe is not None
        pipe.write(lines)
        pipe.flush()

    def kill(self, name: str) -> None:
        self._end(name, signal.SIGKILL)

    def stop(self) -> dict[str, dict[str, Any]]:
        """The last report of everybody, told to stop."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for name in list(self.processes):
            self._end(name, signal.SIGTERM)
        reports = {name: self.folder / name / "out.jsonl" for name in self.names}
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


def every(seconds: float, n: int) -> Iterator[int]:
    """0, 1, .. n - 1, so many seconds apart, of the clock on the wall."""
    start = time.monotonic()
    for k in range(n):
        yield k
        time.sleep(max(0.0, start + (k + 1) * seconds - time.monotonic()))


def _ports(n: int) -> list[int]:
    found: set[int] = set()
    while len(found) < n:
        found.add(free_port())
    return sorted(found)


def _talk(name: str, ports: str, keys: str, lease: str) -> None:
    neighbors = json.loads(ports)
    limits = Limits(lease=float(lease))
    transport = ZenohTransport(config(name, keys=Path(keys) if keys else None, neighbors=neighbors, limits=limits))
    parent = os.getppid()
    while os.getppid() == parent:
        transport.publish(name.encode())
        transport.present()
        for neighbor in neighbors:
            transport.latest(neighbor)
        for sender, message in transport.control():
            transport.send(sender, b"re: " + message)
        time.sleep(TICK)


def _hanging(port: str, keys: str, remedy: str) -> None:
    """For how long (s) a healthy neighbor was not heard after three others hung. The remedies, threads or linger, are
    set once per process."""
    if remedy != "threads":
        os.environ["ZENOH_RUNTIME"] = "(rx: (worker_threads: 2))"  # zenoh's own number
    if remedy != "linger":
        zenoh_transport.disable_linger = lambda: None
    files = Path(keys) if keys else None
    hub, *hanging, healthy = NAMES[:5]
    others = [*hanging, healthy]
    settings = config(hub, keys=files, port=int(port), neighbors=dict.fromkeys(others), limits=Limits(lease=HUNG_LEASE))
    transport = ZenohTransport(settings)
    heard: dict[str, float] = {}

    def listen() -> None:
        transport.publish(b"")
        transport.present()
        heard.update({name: time.monotonic() for name in others if transport.latest(name) is not None})
        time.sleep(0.02)

    processes = {name: start_peer(name, {hub: int(port)}, files, HUNG_LEASE) for name in others}
    try:
        while set(heard) != set(others):
            listen()
        for name in hanging:
            processes[name].send_signal(signal.SIGSTOP)
        hung, longest = time.monotonic(), 0.0
        while (now := time.monotonic()) - hung < HUNG_LEASE + 6.0:  # a stall would last 10 s
            for _ in range(60):
                transport.publish(bytes(3000))
            listen()
            longest = max(longest, now - heard[healthy])
        print(longest, flush=True)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def _changing(port: str, keys: str, times: str) -> None:
    """By how many kB a process grows for each neighbor that is dialed and dropped again, both ends being in it. Other
    processes have free memory to reuse."""
    ann = ZenohTransport(config("ann", keys=Path(keys), port=int(port), neighbors={"bob": None}))
    bob = ZenohTransport(config("bob", keys=Path(keys), neighbors={"ann": int(port)}))

    def settled() -> float:
        time.sleep(1.0)  # sessions are closed in a thread
        return usage(os.getpid()).resident

    before, n = 0.0, int(times)
    for i in range(2 * n + 1):  # the first half fills pools and caches
        until(heard(ann, bob, str(i).encode()))
        if i == n:
            before = settled()
        bob.drop("ann")
        bob.add("ann", bob.config.neighbors[0].endpoint)
    print(1024 * (settled() - before) / n, flush=True)


if __name__ == "__main__":
    {"talk": _talk, "hanging": _hanging, "changing": _changing}[sys.argv[1]](*sys.argv[2:])
    os._exit(0)  # links to the killed need not be closed
