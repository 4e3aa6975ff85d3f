"""What a fresh process takes: CPU seconds of a first call, and memory at the worst moment of a whole call."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import colme
from benchmarks import workloads as w
from benchmarks.estimates import most_memory
from benchmarks.measuring import Measured, Timed, Times, in_turns
from colme.methods import Method
from colme.sim.run import Run
from colme.sim.spec import RunSpec

ROOT = Path(__file__).resolve().parent.parent
FIRST_CALL = """
import colme
colme.simulate(colme.CLColME(), colme.Scenario(n_agents=1000, means=(0.0, 1.0)), steps=100)
"""
WHOLE_CALL = """
import sys
from benchmarks.fresh import whole_call
print(*whole_call(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""
FEW = 2000
"""Agents of the call before, after which memory counts."""
METHODS: dict[str, Method] = {"census": colme.Census(), "CL-colME": w.CL}


def first_call(quick: bool) -> dict[str, Measured]:
    """CPU seconds of a process that imports colme and makes a first small simulation, and of `colme estimate`."""
    simulates = [sys.executable, "-c", FIRST_CALL]
    with tempfile.TemporaryDirectory() as folder:
        table, modules = small_table(Path(folder)), Path(folder) / "modules"
        estimates = [sys.executable, "-m", "colme", "estimate", str(table), "--agent", "agent", "--value", "value"]
        if quick:
            return {"import_warm": in_turns({"warm": cpu_seconds(simulates, modules)}, 1)["warm"].measured()}
        kept = {"import_warm": cpu_seconds(simulates, modules, lambda: folder)}
        works = {
            "import_cold": cpu_seconds(simulates, modules, lambda: tempfile.mkdtemp(dir=folder)),
            "estimate_cold": cpu_seconds(estimates, modules, lambda: tempfile.mkdtemp(dir=folder)),
        }
        cpu_seconds(estimates, modules, lambda: folder)()  # writes what an ordinary installation has of all modules
        times = in_turns(kept, 5) | in_turns(works, 2, warm=False)
    return {name: seen.measured() for name, seen in times.items()}


def small_table(folder: Path) -> Path:
    """A CSV file with 40 samples of each of 30 agents."""
    rng = np.random.default_rng(0)
    path = folder / "table.csv"
    rows = [f"agent {k % 30},{k % 2 + 2.0 * rng.standard_normal():.3f}" for k in range(30 * 40)]
    path.write_text("\n".join(["agent,value", *rows, ""]))
    return path


def cpu_seconds(command: list[str], modules: Path, cache: Callable[[], str] | None = None) -> Timed:
    """CPU time of a process. Python keeps its compiled modules in the folder `modules`, whatever is set here, and
    `cache` names the folder of compiled kernels (None: where they always are)."""

    def seconds() -> float:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(modules)
        environment |= {} if cache is None else {"COLME_CACHE_DIR": cache()}
        before = time_of_children()
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
        return time_of_children() - before

    return seconds


def time_of_children() -> float:
    """CPU seconds of all child processes that have ended."""
    spent = os.times()
    return spent.children_user + spent.children_system


def large_census(quick: bool) -> dict[str, Measured]:
    """The first steps of many agents, when votes are most frequent."""
    n, steps = 200_000, 40
    calls = [in_a_fresh_process("census", n, steps) for _ in range(2)]
    found = {"census_large": Times(tuple(seconds for _, seconds, _ in calls)).measured(1e9 / (n * steps))}
    return found | _memory("census_memory", calls[-1][2] / n)  # by then its kernels are kept, and not compiled


def huge(quick: bool) -> dict[str, Measured]:
    """Ten million agents."""
    n, steps = 10_000_000, 5
    setup, _, memory = in_a_fresh_process("CL-colME", n, steps)
    return {"huge_setup": Measured.once(setup)} | _memory("huge_memory", memory / n)


def in_a_fresh_process(method: str, n: int, steps: int) -> tuple[float, float, float]:
    """`whole_call` there."""
    command = [sys.executable, "-c", WHOLE_CALL, method, str(n), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    setup, seconds, memory = map(float, done.stdout.split())
    return setup, seconds, memory


def whole_call(name: str, n: int, steps: int) -> tuple[float, float, float]:
    """CPU seconds of graph and set-up alone, of a whole call of `simulate`, and the bytes that this process has had at
    most by the end of the call, its result included, beyond what it had had after a call with few agents. NaN: the
    system does not count them."""
    from colme.lab.runs.worker import warm_up

    method = METHODS[name]
    warm_up(method, w.scenario(n))
    w.simulate(method, FEW, steps)()
    before = most_memory()
    started = time.process_time()
    result = w.simulate(method, n, steps)()
    seconds, memory = time.process_time() - started, most_memory() - before
    del result
    gc.collect()
    started = time.process_time()
    run = Run([RunSpec(method=method, source=w.scenario(n), degree=w.DEGREE, steps=steps, seed=0)])
    setup = time.process_time() - started
    assert run.world.t == 0
    return setup, seconds, memory


def _memory(row: str, value: float) -> dict[str, Measured]:
    return {} if math.isnan(value) else {row: Measured.once(value)}
