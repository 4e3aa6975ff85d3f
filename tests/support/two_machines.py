"""Two network namespaces that are two machines to MPI: what moves between them goes through TCP."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DEVICE = "e0"
ADDRESSES = ("10.77.0.1", "10.77.0.2")
REMOTE_SHELL = """#!/bin/sh
# as ssh: [options] host command
while [ "${{1#-}}" != "$1" ]; do shift; done
case $1 in {address}) name={first};; *) name={second};; esac
shift
exec ip netns exec $name unshare --uts sh -c "hostname $name; $*"
"""


class TwoMachines:
    """mpiexec with one rank on each."""

    def __init__(self, names: tuple[str, str], folder: Path):
        self.names, self._shell = names, folder / "remote-shell"
        self._shell.write_text(REMOTE_SHELL.format(address=ADDRESSES[0], first=names[0], second=names[1]))
        self._shell.chmod(0o755)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Python with these arguments in two ranks."""
        launcher = str(Path(sys.executable).with_name("mpiexec"))
        command = ["ip", "netns", "exec", self.names[0], launcher, "-launcher", "ssh", "-launcher-exec",
                   str(self._shell), "-iface", DEVICE, "-hosts", ",".join(ADDRESSES), "-ppn", "1", "-n", "2",
                   sys.executable, *arguments]  # fmt: skip
        transport = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": DEVICE}  # MPICH's wheel; else it finds shared memory
        return subprocess.run(command, capture_output=True, text=True, timeout=1200, env=os.environ | transport)

    def bytes_sent(self) -> int:
        """Through the network, from the first to the second."""
        path = f"/sys/class/net/{DEVICE}/statistics/tx_bytes"
        return int(subprocess.check_output(["ip", "netns", "exec", self.names[0], "cat", path]))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _wait_until_up(name: str) -> None:
    """A new cable is not up at once."""
    end = time.monotonic() + 30
    show = ["ip", "-n", name, "-br", "link", "show", DEVICE]
    while " UP " not in subprocess.check_output(show, text=True) and time.monotonic() < end:
        time.sleep(0.05)


@contextlib.contextmanager
def two_machines(folder: Path) -> Iterator[TwoMachines]:
    """Namespaces with a cable between them, until the block ends."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2")
    names = f"colme{os.getpid()}a", f"colme{os.getpid()}b"
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", DEVICE, "netns", names[0], "type", "veth", "peer", "name", DEVICE, "netns", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", DEVICE)
            for device in ("lo", DEVICE):
                _ip("-n", name, "link", "set", device, "up")
        for name in names:
            _wait_until_up(name)
        yield TwoMachines(names, folder)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
