"""`examine`: checks of the installation. Versions, extras, compiled kernels, speed, cores, folders.

`compile_kernels`: compile ahead what common calls need.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

import colme
from colme._core import jit
from colme.errors import MissingExtra, install_command
from colme.lab.runs.store import version_of
from colme.lab.runs.worker import warm_up
from colme.lockstep import lockstep
from colme.method import Method
from colme.methods import METHODS
from colme.sim.simulation import available_cores
from colme.support.tables import csv_of

FEW, STEPS = 120, 40
"""Agents and samples of each with which kernels are compiled ahead: enough for a census to vote and find two groups."""


class Finding(NamedTuple):
    """The result of one check: what was found, whether it is fine, and what to do if it is not."""

    check: str
    found: str
    ok: bool = True
    remedy: str = ""


def examine(results: str = "results") -> list[Finding]:
    """All checks."""
    findings = [Finding("colme", colme.__version__), Finding("python", platform.python_version())]
    findings += [Finding(name, version_of(name) or "missing") for name in ("numpy", "msgspec", "click", "rich")]
    found = [_extra(*each) for each in extras().items()]
    return [*findings, _numba(), *found, _kernels(), _speed(), _cores(), _folder(Path(results))]


def extras() -> dict[str, list[str]]:
    """Extra -> the packages that it installs, as the installed colme declares them."""
    found: dict[str, list[str]] = {}
    for requirement in metadata.requires("colme") or ():
        if match := re.match(r"([\w.-]+).*extra == '(\w+)'", requirement):
            found.setdefault(match[2], []).append(match[1])
    return {extra: packages for extra, packages in found.items() if extra not in ("all", "examples")}


def _numba() -> Finding:
    remedy = "pip install --upgrade numba: runs are 1000 times slower."
    if jit.HAVE_NUMBA:
        return Finding("numba", f"{version_of('numba')}")
    if jit.BROKEN is None:
        return Finding("numba", "switched off by COLME_NUMBA=0", False, f"Unset COLME_NUMBA, or {remedy}")
    return Finding("numba", jit.BROKEN, False, remedy)


def _extra(extra: str, packages: list[str]) -> Finding:
    if missing := [package for package in packages if version_of(package) is None]:
        return Finding(f"extra {extra}", f"missing: {', '.join(missing)}", True, f"To use it: {install_command(extra)}")
    return Finding(f"extra {extra}", ", ".join(f"{package} {version_of(package)}" for package in packages))


def _kernels() -> Finding:
    folder = jit.cache_folder()
    if folder is None:
        remedy = "Set COLME_CACHE_DIR to a folder that is writable."
        return Finding("compiled kernels", "no writable folder: every process compiles them again", False, remedy)
    files = [each for ending in ("nbi", "nbc") for each in folder.rglob(f"*.{ending}")]
    size = sum(each.stat().st_size for each in files)
    count = sum(each.suffix == ".nbc" for each in files)
    return Finding("compiled kernels", f"{count} in {folder} ({size / 1e6:.1f} MB)")


def _speed() -> Finding:
    """A short simulation: whether it works, and how fast."""
    scenario = colme.Scenario(n_agents=1000, means=(0.0, 1.0))
    colme.simulate(colme.CLColME(), scenario, steps=50)  # compiles
    started = time.perf_counter()
    trace = colme.simulate(colme.CLColME(), scenario, steps=1000)
    seconds = time.perf_counter() - started
    fine = bool(trace.mse[-1] < trace.local_mse[-1])
    remedy = "" if fine else "Collaboration did not help on a simple scenario: please report this."
    return Finding("simulation", f"{seconds / 1000 / 1000 * 1e9:.0f} ns per agent and step", fine, remedy)


def _cores() -> Finding:
    cores, all_cores = available_cores(), os.cpu_count() or 1
    return Finding("cores", f"{cores}{'' if cores == all_cores else f' of {all_cores}'}; each run uses one")


def _folder(path: Path) -> Finding:
    """Whether the folder of results is writable; a folder that does not exist is not created."""
    existing = next(each for each in (path.resolve(), *path.resolve().parents) if each.exists())
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        return Finding("folder results", f"{path}: {error.strerror}", False, "Choose another with --results.")
    return Finding("folder results", f"{path}: writable, {shutil.disk_usage(existing).free / 1e9:.0f} GB free")


def compile_kernels(progress: Callable[[str], None] = lambda what: None) -> int:
    """Compile what simulations, tables, online models and nodes need, by running each on few agents. Returns how many
    kernels were compiled: zero if all of them are in the cache. `progress` is told what is run next.

    What an extra is missing for is left out."""
    before = jit.n_compiled()
    calls: dict[str, Callable[[], object]] = {f"simulate {each!r}": partial(_simulate, each) for each in _methods()}
    calls["estimate"] = _estimate
    for method in (colme.Census(guard=True), colme.CLColME()):
        calls[f"learn online with {method!r}"] = partial(_learn, method)
        samples = _table()["value"].reshape(STEPS, FEW)
        graph = colme.graphs.random_regular_graph(FEW, 4)
        calls[f"node with {method!r}"] = partial(lockstep, method, samples, graph, sigma=1.0)
    for name, run in calls.items():
        progress(name)
        with contextlib.suppress(MissingExtra):
            run()
    return jit.n_compiled() - before


def _methods() -> list[Method]:
    """Every method as it is by default, and with the other choice of a guard, where there is one."""
    methods: list[Method] = [each() for each in METHODS]
    guarded = [each for each in methods if hasattr(each, "guard") and each.message_adapter is not None]
    return methods + [replace(each, guard=not each.guard) for each in guarded]


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
        file.write_bytes(csv_of(table | {"agent": [f"a{a}" for a in table["agent"]]}))
        for times in (None, "time"):
            colme.estimate(file, agent="agent", value="value", time=times)
    colme.estimate(table, agent="agent", value="value")


def _learn(method: Method) -> None:
    """Sample by sample and many at once."""
    model, table = colme.CollaborativeMean(method), _table()
    for a, x in zip(table["agent"].tolist(), table["value"].tolist(), strict=True):
        model.learn_one(a, x)
    model.learn_many(table)
    _ = model.estimate_[0], model.interval_[0], model.groups_[0]
