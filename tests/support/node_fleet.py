"""Small fleets, for tests of the node: transports in this process; agents in processes of their own, on loopback or in
network namespaces that this process connects, with loss, delay and partitions.

Namespaces need root and /dev/net/tun, and no kernel module for bad networks (netem is not available everywhere). Each
has a TUN device whose other end is a descriptor here; a thread carries packets between them."""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import json
import os
import random
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import colme
from colme.errors import NodeError
from colme.node.config.node_toml import NodeConfig
from colme.node.config.plan import PORT, Host, plan
from colme.node.config.tables import Limits, Neighbor, Tls
from colme.node.io.status import ask
from colme.node.net.zenoh_transport import ZenohTransport
from colme.node.security.keys import make_authority, make_certificate

NAMES = ("ann", "bob", "cid", "dan", "eve", "flo", "gus")
TICK = 0.05
MIB = 2**20
_TUN = "/dev/net/tun"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
_SUBNET = "10.99.0"
_DESTINATION = slice(16, 20)  # of the header of an IPv4 packet
_IDLE = 0.1  # s between two looks at whether to stop
Opened = Callable[[NodeConfig], ZenohTransport]
"""Opens transports that the test need not close: the fixture `opened`."""


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


def asked_of(config: Path) -> dict[str, Any]:
    """What the agent of this node.toml says about itself; nothing was heard if it does not answer yet."""
    with contextlib.suppress(NodeError):
        return ask(NodeConfig.read(config).socket)
    return {"fresh": -1, "samples": -1, "incarnation": 0, "neighbor_rows": []}


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
        return asked_of(self.config(name))

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


# Network namespaces


def lacking() -> str | None:
    """What this machine lacks for a hub; None: nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command ip (iproute2)"
    if not os.path.exists(_TUN):
        return f"a hub needs {_TUN}"
    probe = f"colme-{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode:
        return "this machine lets nobody make network namespaces"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return None


class Hub:
    """n namespaces with addresses in one subnet. Assign to change the network:

    loss    share of packets that are lost
    delay   seconds, each way
    halves  namespaces that hear each other only; others hear others only. Empty: all hear all
    """

    def __init__(self, n: int, *, seed: int = 0):
        self.loss, self.delay, self.halves = 0.0, 0.0, frozenset[int]()
        self.carried = self.lost = 0
        self.namespaces = [f"colme-{os.getpid()}-{i}" for i in range(n)]
        self.addresses = [f"{_SUBNET}.{i + 1}" for i in range(n)]
        self._rng = random.Random(seed)
        self._doors: list[int] = []
        self._waiting: list[tuple[float, int, int, bytes]] = []  # when, in order, to whom, packet
        self._turns = itertools.count()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="hub")

    def __enter__(self) -> Hub:
        with contextlib.ExitStack() as undo:
            undo.callback(self._clear)
            for i, (namespace, address) in enumerate(zip(self.namespaces, self.addresses, strict=True)):
                device = f"cme{i}"
                _ip("netns", "add", namespace)
                self._doors.append(_open_tun(device))
                _ip("link", "set", device, "netns", namespace)  # its other end stays here
                _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", device)
                for link in (device, "lo"):
                    _ip("-n", namespace, "link", "set", link, "up")
            self._thread.start()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._clear()

    def _clear(self) -> None:
        for door in self._doors:
            os.close(door)
        for namespace in self.namespaces:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)  # it may not have come to be

    def _carry(self) -> None:
        places = {bytes(map(int, address.split("."))): i for i, address in enumerate(self.addresses)}
        with selectors.DefaultSelector() as selector:
            for i, door in enumerate(self._doors):
                selector.register(door, selectors.EVENT_READ, i)
            while not self._stopping.is_set():
                now = time.monotonic()
                while self._waiting and self._waiting[0][0] <= now:
                    _, _, to, packet = heapq.heappop(self._waiting)
                    with contextlib.suppress(OSError):  # its device is full, or goes just now
                        os.write(self._doors[to], packet)
                due = self._waiting[0][0] - now if self._waiting else _IDLE
                for key, _ in selector.select(min(due, _IDLE)):
                    with contextlib.suppress(OSError):
                        packet = os.read(key.fd, 65536)
                        to = places.get(packet[_DESTINATION])
                        if to is not None:  # all else is multicast, or IPv6
                            self._send(key.data, to, packet)

    def _send(self, sender: int, to: int, packet: bytes) -> None:
        if self.halves and (sender in self.halves) != (to in self.halves):
            return
        if self._rng.random() < self.loss:
            self.lost += 1
        else:
            self.carried += 1
            heapq.heappush(self._waiting, (time.monotonic() + self.delay, next(self._turns), to, packet))


class HubSwarm(Swarm):
    """A fleet of which each agent lives in a namespace of the hub."""

    def __init__(self, folder: Path, hub: Hub, **options: Any):
        hosts = [Host(f"pi-{i:02d}", address, PORT) for i, address in enumerate(hub.addresses)]
        super().__init__(folder, hosts, **options)
        self._homes = dict(zip((host.name for host in hosts), hub.namespaces, strict=True))

    def command(self, name: str) -> list[str]:
        return ["ip", "netns", "exec", self._homes[name], *super().command(name)]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _open_tun(device: str) -> int:
    door = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(door, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TUN | _IFF_NO_PI))
    return door
