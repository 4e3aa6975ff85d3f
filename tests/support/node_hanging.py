"""Prints for how long (s) a healthy neighbor was not heard after three others hung. It is a process of its own, because
the remedies are set once per process. Arguments: the remedy (threads, linger, none), a port, the folder of keys or
nothing."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from colme.node.config.tables import Limits
from colme.node.net import zenoh_transport
from tests.support.node_fleet import NAMES, config, start_peer

ALL = NAMES[:5]
HEALTHY = ALL[-1]
LEASE = 3.0  # s, in which the buffers of those that hang must fill: some 10 MB
WATCHED = LEASE + 6.0  # s after the others hung: a stall would last 10 s


def main(remedy: str, port: int, keys: Path | None) -> float:
    if remedy != "threads":
        os.environ["ZENOH_RUNTIME"] = "(rx: (worker_threads: 2))"  # zenoh's own number
    if remedy != "linger":
        zenoh_transport.disable_linger = lambda: None
    hub, *others = ALL
    settings = config(hub, keys=keys, port=port, neighbors=dict.fromkeys(others), limits=Limits(lease=LEASE))
    transport = zenoh_transport.ZenohTransport(settings)
    processes = {name: start_peer(name, {hub: port}, keys, LEASE) for name in others}
    try:
        heard: dict[str, float] = {}
        while set(heard) != set(others):
            _round(transport, heard)
        for name in others:
            if name != HEALTHY:
                processes[name].send_signal(signal.SIGSTOP)
        hung, longest = time.monotonic(), 0.0
        while (now := time.monotonic()) - hung < WATCHED:
            for _ in range(60):
                transport.publish(bytes(3000))
            _round(transport, heard)
            longest = max(longest, now - heard[HEALTHY])
        return longest
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def _round(transport: zenoh_transport.ZenohTransport, heard: dict[str, float]) -> None:
    transport.publish(b"")
    transport.present()
    for name in ALL[1:]:
        if transport.latest(name) is not None:
            heard[name] = time.monotonic()
    time.sleep(0.02)


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3] else None), flush=True)
    os._exit(0)  # links to the killed need not be closed
