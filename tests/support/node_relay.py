"""A relay and tunnels to it in threads of a test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from colme.node.net.relay import Relay, RelayConfig
from colme.node.net.tunnel import Tunnel
from tests.support.node_fleet import config, free_port, tls


def relay_config(keys: Path, agents: dict[str, int], **options: Any) -> RelayConfig:
    options = {"listen": f"127.0.0.1:{free_port()}"} | options
    return RelayConfig(agents=agents, tls=tls(keys, "relay"), **options)


@contextlib.contextmanager
def running(settings: RelayConfig, kind: type[Relay] = Relay) -> Iterator[Relay]:
    """A relay that serves in a thread."""
    relay = kind(settings, lambda _: None)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(relay.run()), daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        loop.call_soon_threadsafe(relay.stop)
        thread.join(10)
        loop.run_until_complete(asyncio.sleep(0.05))  # the last ends close
        loop.close()


@contextlib.contextmanager
def tunnel(keys: Path, name: str, relay: RelayConfig, inner: int, **options: Any) -> Iterator[tuple[Tunnel, list[str]]]:
    """From the relay to a port on loopback, and what it says."""
    from colme.node.config.tables import Via

    said: list[str] = []
    own = config(name, keys=keys, port=inner, relay=Via(address=relay.listen, name=relay.name), **options)
    with contextlib.closing(Tunnel(own, said.append)) as made:
        yield made, said


def connect(port: int) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port))
    line.settimeout(10)
    return line
