"""Where it was measured: processor, caches, memory, versions. No names, no paths."""

from __future__ import annotations

import datetime
import os
import platform
import re
from pathlib import Path

from colme.lab.runs.store import versions
from colme.sim.simulation import available_cores

GIB = 2.0**30


def describe() -> dict[str, str]:
    """In words, for the page and for the baseline."""
    found = versions()
    facts = {"processor": processor(), "cores": str(available_cores()), "caches": caches(), "memory": memory()}
    facts["system"] = f"{found['system']} {found['machine']}"
    facts |= {name: found[name] for name in ("colme", "python", "numba", "numpy", "scipy") if name in found}
    facts["measured"] = datetime.date.today().isoformat()
    return {name: words for name, words in facts.items() if words}


def processor() -> str:
    """The model, as the system calls it; virtual machines may hide it."""
    info = _read("/proc/cpuinfo")
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", info, re.M))
    name = fields.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in fields:
        name += f", family {fields['cpu family']} model {fields.get('model', '?')}"
    return name


def family(processor: str) -> str:
    """AMD or Intel; of others, the first word of the name."""
    known = re.search(r"AMD|Intel", processor)
    return known.group() if known else re.split(r"\W", processor)[0]


def caches() -> str:
    """L1d, L2 and L3 as one core sees them."""
    found = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = _read(folder / "level"), _read(folder / "type")
        if kind != "Instruction":
            found.append(f"L{level} {_read(folder / 'size')}")
    return ", ".join(found)


def memory() -> str:
    total = _meminfo("MemTotal")
    return f"{total / GIB:.0f} GiB" if total else ""


def available_memory() -> float:
    """Bytes that can be had without swapping; infinite where nobody says."""
    return _meminfo("MemAvailable") or float("inf")


def load() -> float | None:
    """Processes that wanted to run in the last minute, where the system counts them."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _meminfo(name: str) -> float:
    found = re.search(rf"^{name}:\s*(\d+) kB", _read("/proc/meminfo"), re.M)
    return 1024.0 * int(found.group(1)) if found else 0.0


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
