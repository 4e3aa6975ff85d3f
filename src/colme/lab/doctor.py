"""`examine`: checks of the installation. Versions, extras, compiled kernels, speed, cores, folders.

`compile_kernels`: compile ahead what common calls need.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

import colme
from colme._core import jit
from colme.errors import MissingExtra, install_command
from colme.lab.runs.warm_up import warm_up
from colme.lockstep import lockstep
from colme.method import Method
from colme.methods import METHODS, ColME
from colme.sim.simulation import available_cores

EXTRAS = {
    "data": ("narwhals", "pyarrow", "scipy"),
    "excel": ("python-calamine",),
    "lab": ("joblib", "matplotlib", "networkx", "pandas", "pyarrow", "scipy", "tomli-w", "xarray"),
    "graph": ("networkx",),
    "node": ("cryptography", "eclipse-zenoh", "tomli-w"),
    "mpi": ("mpi4py", "mpich"),
    "mqtt": ("paho-mqtt",),
    "notebook": ("anywidget",),
    "sklearn": ("narwhals", "pyarrow", "scikit-learn", "scipy"),
}
FEW, STEPS = 120, 40
"""Agents and samples of each with which kernels are compiled ahead: enough for a census to vote and find two groups."""
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
    if jit.BROKEN is None:
        return Finding(
            "numba", "switched off by COLME_NUMBA=0", False, "Unset COLME_NUMBA: runs are 1000 times slower."
        )
    return Finding("numba", jit.BROKEN, False, "pip install --upgrade numba: runs are 1000 times slower.")


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


def compile_kernels(progress: Callable[[str], None] = lambda what: None) -> int:
    """Compile what simulations, tables, online models and nodes need, by running each on few agents. Returns how many
    kernels were compiled: zero if all of them are in the cache. `progress` is told what is run next.

    What an extra is missing for is left out."""
    before = jit.n_compiled()
    for name, run in _common_calls().items():
        progress(name)
        with contextlib.suppress(MissingExtra):
            run()
    return jit.n_compiled() - before


def _common_calls() -> dict[str, Callable[[], object]]:
    """What to run, by name."""
    calls: dict[str, Callable[[], object]] = {}
    for method in _methods():
        calls[f"simulate {method!r}"] = functools.partial(_simulate, method)
    calls["estimate"] = _estimate
    for method in (colme.Census(guard=True), colme.CLColME()):
        calls[f"learn online with {method!r}"] = functools.partial(_learn, method)
        calls[f"node with {method!r}"] = functools.partial(_exchange, method)
    return calls


def _methods() -> list[Method]:
    """Every method as it is by default, and with the other choice of a guard, where there is one."""
    methods: list[Method] = []
    for each in METHODS:
        methods.append(each())
        if hasattr(methods[-1], "guard") and each is not ColME:  # whose agents cannot have one
            methods.append(each(guard=not methods[-1].guard))
    return methods


def _simulate(method: Method) -> None:
    scenario = colme.Scenario(n_agents=FEW, means=(0.0, 1.0))
    colme.simulate(method, scenario, steps=STEPS)
    warm_up(method, scenario)  # edges are cut, too


def _table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    agent = np.tile(np.arange(FEW), STEPS)
    return {"agent": agent, "value": agent % 2 + rng.normal(size=agent.size), "time": np.arange(agent.size)}


def _estimate() -> None:
    """From a file with and without times, as `colme estimate` reads it, and from columns whose labels are numbers."""
    table = _table()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.csv"
        rows = (f"a{a},{x},{t}\n" for a, x, t in zip(*table.values(), strict=True))
        file.write_text("agent,value,time\n" + "".join(rows))
        colme.estimate(file, agent="agent", value="value")
        colme.estimate(file, agent="agent", value="value", time="time")
    colme.estimate(table, agent="agent", value="value")


def _learn(method: Method) -> None:
    """Sample by sample and many at once."""
    model, table = colme.CollaborativeMean(method), _table()
    for a, x in zip(table["agent"].tolist(), table["value"].tolist(), strict=True):
        model.learn_one(a, x)
    model.learn_many(table)
    _ = model.estimate_[0], model.interval_[0], model.groups_[0]


def _exchange(method: Method) -> None:
    """The agents of a node, here without a network."""
    samples = _table()["value"].reshape(STEPS, FEW)
    lockstep(method, samples, colme.graphs.random_regular_graph(FEW, 4), sigma=1.0)
