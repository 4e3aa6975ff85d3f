"""What `colme node run` writes to the disk: `python -m benchmarks.node_writes --help`.

Agents of one fleet on loopback, one per variant of `tick_rate` and `save_every`, each with a sample every tenth of a
second. Bytes are those of /proc/PID/io (pages that the process made dirty). If the folder of an agent is a file system
of its own (`--mounts`), those that reached its device, which has the file system's own journal in it, are printed, too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import colme
from colme.node.config.plan import Host, plan
from tests.support.node_fleet import environment, free_port

VARIANTS = ((10.0, 20), (1.0, 20), (20.0, 20), (10.0, 5), (10.0, 200))
"""(tick_rate, save_every); the first is the default."""
DAY = 86400.0


class Written(NamedTuple):
    """Bytes since the start of the process, and since the file system was mounted, if it is the agent's alone."""

    process: int
    device: int | None


def written(process: int, folder: Path, own: bool) -> Written:
    fields = dict(line.split(": ") for line in Path(f"/proc/{process}/io").read_text().splitlines())
    if not own:
        return Written(int(fields["write_bytes"]), None)
    number = os.stat(folder).st_dev
    sectors = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat").read_text().split()[6]
    return Written(int(fields["write_bytes"]), 512 * int(sectors))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--warm", type=float, default=60.0, help="seconds before it is measured")
    parser.add_argument("--method", default="cl-colme", choices=("cl-colme", "census"))
    parser.add_argument("--mounts", type=Path, nargs="*", default=[], help="a mounted file system per agent")
    options = parser.parse_args()
    method = colme.CLColME(sigma=1.0, cut="difference", guard=True) if options.method == "cl-colme" else colme.Census()
    with tempfile.TemporaryDirectory() as scratch:
        hosts = [Host(f"pi-{a}", "127.0.0.1", free_port()) for a in range(len(VARIANTS))]
        fleet = plan(hosts, Path(scratch) / "fleet", method=method, degree=len(hosts) - 1)
        folders = {host.name: fleet / host.name for host in hosts}
        for (rate, save_every), host, mount in zip(VARIANTS, hosts, options.mounts or [None] * len(hosts), strict=True):
            path = folders[host.name] / "node.toml"
            text = path.read_text().replace("tick_rate = 10.0\n", "")
            store = "" if mount is None else f'store = "{mount / host.name}.sqlite"\n'
            path.write_text(f"tick_rate = {rate}\nsave_every = {save_every}\n{store}{text}")
            folders[host.name] = folders[host.name] if mount is None else mount
        run(hosts, fleet, folders, options)


def run(hosts: list[Host], fleet: Path, folders: dict[str, Path], options: argparse.Namespace) -> None:
    processes = []
    for host in hosts:
        command = [sys.executable, "-m", "colme", "node", "run", "--config", str(fleet / host.name / "node.toml")]
        processes.append(
            subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        )
    own = bool(options.mounts)
    try:
        start, before = time.monotonic(), None
        for step in range(round(10 * (options.warm + options.seconds))):
            for a, process in enumerate(processes):
                assert process.stdin is not None
                process.stdin.write(f"{(step * 7 + a) % 11 - 5}\n")
                process.stdin.flush()
            time.sleep(max(0.0, start + (step + 1) / 10 - time.monotonic()))
            if before is None and time.monotonic() - start > options.warm:
                before, since = _all_written(processes, hosts, folders, own), time.monotonic()
        assert before is not None
        after, seconds = _all_written(processes, hosts, folders, own), time.monotonic() - since
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=30)
    print(f"{options.method}, {seconds:.0f} s; MB per day")
    print("tick_rate  save_every  process  device  files")
    for (rate, save_every), old, new, host in zip(VARIANTS, before, after, hosts, strict=True):
        process = (new.process - old.process) / seconds * DAY / 1e6
        device = (
            "-"
            if new.device is None or old.device is None
            else f"{(new.device - old.device) / seconds * DAY / 1e6:.0f}"
        )
        sizes = {path.name: path.stat().st_size for path in folders[host.name].glob(f"{host.name}.sqlite*")}
        print(f"{rate:9g}  {save_every:10}  {process:7.1f}  {device:>6}  {sizes}", flush=True)


def _all_written(
    processes: list[subprocess.Popen[str]], hosts: list[Host], folders: dict[str, Path], own: bool
) -> list[Written]:
    return [written(process.pid, folders[host.name], own) for process, host in zip(processes, hosts, strict=True)]


if __name__ == "__main__":
    main()
