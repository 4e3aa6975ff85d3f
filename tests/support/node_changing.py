"""Prints by how many kB a process grows for each neighbor that is dialed and dropped again, both ends being in it. It
is a process of its own, because others have free memory to reuse. Arguments: folder of keys, port, number of times."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from colme.node.net.zenoh_transport import ZenohTransport
from tests.support.node_fleet import config, heard, until
from tests.support.node_swarm import usage


def main(keys: Path, port: int, times: int) -> float:
    ann = ZenohTransport(config("ann", keys=keys, port=port, neighbors={"bob": None}))
    bob = ZenohTransport(config("bob", keys=keys, neighbors={"ann": port}))
    before = 0.0
    for i in range(2 * times + 1):  # the first half fills pools and caches
        until(heard(ann, bob, str(i).encode()))
        if i == times:
            before = _settled()
        bob.drop("ann")
        bob.add("ann", bob.config.neighbors[0].endpoint)
    return 1024 * (_settled() - before) / times


def _settled() -> float:
    time.sleep(1.0)  # sessions are closed in a thread
    return usage(os.getpid()).resident


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])), flush=True)
    os._exit(0)
