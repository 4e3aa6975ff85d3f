"""Network namespaces connected by this process, with loss, delay and partitions, for tests.

Each namespace has a TUN device whose other end is a descriptor here; a thread carries packets between them. It needs
root and /dev/net/tun, and no kernel module for bad networks (netem is not available everywhere).
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import selectors
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from colme.node.config.plan import PORT, Host
from tests.support.node_fleet import Swarm

_TUN = "/dev/net/tun"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
_SUBNET = "10.99.0"
_DESTINATION = slice(16, 20)  # of the header of an IPv4 packet
_IDLE = 0.1  # s between two looks at whether to stop


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
        self.carried = self.lost = self.cut = 0
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
            self.cut += 1
        elif self._rng.random() < self.loss:
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


def ring_with_chords(n: int, chord: int = 3) -> Iterable[tuple[int, int]]:
    """Edges of a graph in which everybody has four neighbors, two of them in its own half."""
    return sorted({tuple(sorted((a, (a + k) % n))) for a in range(n) for k in (1, chord)})  # type: ignore[type-var]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _open_tun(device: str) -> int:
    door = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(door, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TUN | _IFF_NO_PI))
    return door
