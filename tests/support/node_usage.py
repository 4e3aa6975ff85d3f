"""CPU time, memory, descriptors and threads of a process, from /proc, for tests that measure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

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
