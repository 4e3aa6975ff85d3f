"""`examine`: checks of the installation. Versions, extras, compiled kernels, speed, cores, folders."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import colme
from colme._core import jit
from colme.errors import install_command
from colme.sim.simulation import available_cores

EXTRAS = {
    "data": ("narwhals", "pyarrow", "scipy"),
    "excel": ("python-calamine",),
    "lab": ("joblib", "matplotlib", "networkx", "pandas", "pyarrow", "scipy", "tomli-w", "xarray"),
    "graph": ("networkx",),
    "node": ("cryptography", "eclipse-zenoh", "tomli-w"),
    "mpi": ("mpi4py", "mpich"),
    "mqtt": ("paho-mqtt",),
    "sklearn": ("narwhals", "pyarrow", "scikit-learn", "scipy"),
}
ROOM = 1 << 30
"""Free bytes wanted where results are stored."""


@dataclass(frozen=True)
class Finding:
    """The result of one check: what was found, whether it is fine, and what to do if it is not."""

    check: str
    found: str
    ok: bool = True
    remedy: str = ""


def examine(results: str = "results") -> list[Finding]:
    """All checks."""
    findings = [Finding("colme", colme.__version__), Finding("python", platform.python_version())]
    findings += [Finding(package, _version(package) or "missing") for package in ("numpy", "msgspec", "click", "rich")]
    findings.append(_numba())
    findings += [_extra(extra, packages) for extra, packages in EXTRAS.items()]
    findings += [_kernels(), _speed(), _threads(), _folder("results", Path(results)), _terminal()]
    return findings


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numba() -> Finding:
    version = _version("numba")
    if jit.HAVE_NUMBA:
        return Finding("numba", f"{version}")
    if os.environ.get("COLME_NUMBA") == "0":
        return Finding(
            "numba", "switched off by COLME_NUMBA=0", False, "Unset COLME_NUMBA: runs are 1000 times slower."
        )
    return Finding("numba", version or "missing", False, "pip install numba: runs are 1000 times slower.")


def _extra(extra: str, packages: tuple[str, ...]) -> Finding:
    missing = [package for package in packages if _version(package) is None]
    if missing:
        return Finding(f"extra {extra}", f"missing: {', '.join(missing)}", True, f"To use it: {install_command(extra)}")
    return Finding(f"extra {extra}", ", ".join(f"{package} {_version(package)}" for package in packages))


def _kernels() -> Finding:
    folder = jit.cache_folder()
    if folder is None:
        return Finding(
            "compiled kernels", "no writable folder: every process compiles them again", False,
            "Set COLME_CACHE_DIR to a folder that is writable.",
        )  # fmt: skip
    files = [each for each in folder.rglob("*") if each.suffix in (".nbi", ".nbc")]
    size = sum(each.stat().st_size for each in files)
    count = sum(each.suffix == ".nbc" for each in files)
    return Finding("compiled kernels", f"{count} in {folder} ({size / 1e6:.1f} MB)")


def _speed() -> Finding:
    """A short simulation: whether it works, and how fast (the best of three)."""
    import time

    scenario = colme.Scenario(n_agents=1000, means=(0.0, 1.0))
    method = colme.CLColME()
    colme.simulate(method, scenario, steps=50)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        trace = colme.simulate(method, scenario, steps=500)
        times.append(time.perf_counter() - started)
    fine = bool(trace.mse[-1] < trace.local_mse[-1])
    remedy = "" if fine else "Collaboration did not help on a simple scenario: please report this."
    return Finding("simulation", f"{min(times) / 500 / 1000 * 1e9:.0f} ns per agent and step", fine, remedy)


def _threads() -> Finding:
    cores, all_cores = available_cores(), os.cpu_count() or 1
    limited = "" if cores == all_cores else f" of {all_cores}"
    return Finding("cores", f"{cores}{limited}; each run uses one")


def _folder(name: str, path: Path) -> Finding:
    """Whether the folder is writable and has room; a folder that does not exist is not created."""
    existing = path.resolve()
    while not existing.exists():
        existing = existing.parent
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        return Finding(f"folder {name}", f"{path}: {error.strerror}", False, "Choose another with --results.")
    free = shutil.disk_usage(existing).free
    if free < ROOM:
        return Finding(f"folder {name}", f"{path}: {free / 1e9:.1f} GB free", False, "Make room, or use --results.")
    return Finding(f"folder {name}", f"{path}: writable, {free / 1e9:.0f} GB free")


def _terminal() -> Finding:
    return Finding("terminal", f"{sys.stdout.encoding}, {'a terminal' if sys.stderr.isatty() else 'no terminal'}")
