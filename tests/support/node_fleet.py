"""Small fleets on loopback, for tests of the node. Run as a script, it is an agent that talks until it is killed."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import colme
from colme.node.config.node_toml import NodeConfig
from colme.node.config.tables import Limits, Neighbor, Tls
from colme.node.net.zenoh_transport import ZenohTransport

NAMES = ("ann", "bob", "cid", "dan", "eve", "flo", "gus")
TICK = 0.05


def make_keys(folder: Path) -> Path:
    """An authority and a certificate for everybody."""
    from colme.node.security.keys import make_authority, make_certificate  # not on a device: 10 MB

    make_authority(folder / "authority", "test")
    for name in NAMES:
        make_certificate(folder / "authority", name, ["localhost", "127.0.0.1"], folder=folder / name)
    return folder


@contextlib.contextmanager
def transports() -> Iterator[Callable[[NodeConfig], ZenohTransport]]:
    """Opens transports, and closes them in the end."""
    every: list[ZenohTransport] = []

    def one(settings: NodeConfig) -> ZenohTransport:
        every.append(ZenohTransport(settings))
        return every[-1]

    yield one
    for transport in every:
        transport.close()


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
    """Another process that dials the ports of its neighbors and says its name at every tick. As on a device, it does
    without numba, which would be most of its memory."""
    arguments = [sys.executable, __file__, name, json.dumps(ports), "" if keys is None else str(keys), str(lease)]
    return subprocess.Popen(arguments, env=environment())


def environment() -> dict[str, str]:
    """That of another process, with this colme and these tests, without the number of zenoh's threads in this one."""
    paths = (Path(colme.__file__).parents[1], Path(__file__).parents[2])
    kept = {key: value for key, value in os.environ.items() if key != "ZENOH_RUNTIME"}
    return kept | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "COLME_NUMBA": "0"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


if __name__ == "__main__":
    _talk(*sys.argv[1:])
