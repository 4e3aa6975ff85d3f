"""How fast, as ratios in one run: `make bench`. Machines are noisy; only what is measured side by side compares.

CPU time of one core, fastest of several interleaved repetitions; compilation is not counted.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core for the baseline too

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import colme
from colme.graphs import random_regular_graph
from colme.samples import ScenarioStream
from colme.sim.engine import Run
from colme.sim.recorder import recorded_steps

sys.path.insert(0, str(Path(__file__).parent))
import scipy_loop

N, STEPS, DEGREE, SIGMA = 5000, 2000, 10, 2.0
SCENARIO = colme.Scenario(n_agents=N, means=(1.2, 2.0), sigma=SIGMA)
GAMMA = {"edge": 0.1 / (4 * DEGREE * N), "agent": 0.05}


def cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def interleaved(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    for work in works.values():
        work()  # compile, and fill the caches
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(cpu(work))
    return times


def against_scipy(repeats: int) -> Table:
    table = Table(
        "level",
        "method",
        "SciPy ns",
        "colme ns",
        "ratio",
        "ratios seen",
        title=f"N={N}, T={STEPS}, r=10, all metrics every step; ns per agent and step",
    )
    graph = random_regular_graph(N, DEGREE, rng=0)
    edges, truth = graph.edges(), np.where(np.arange(N) % 2, 1.2, 2.0)
    for level, gamma in GAMMA.items():
        methods = {"CL-colME": (colme.CLColME(delta=0.1, level=level, clock="global", step=0.1), 0.1),
                   "C-colME": (colme.CColME(delta=0.1, level=level, clock="global"), None)}  # fmt: skip
        for name, (method, step) in methods.items():
            times = interleaved({
                "scipy": lambda gamma=gamma, step=step: scipy_loop.run(
                    edges, truth, n_steps=STEPS, sigma=SIGMA, gamma=gamma, step=step),
                "colme": lambda method=method: colme.simulate(method, SCENARIO, degree=DEGREE, steps=STEPS),
            }, repeats)  # fmt: skip
            unit = 1e9 / (N * STEPS)
            ratios = [a / b for a, b in zip(times["scipy"], times["colme"], strict=True)]
            base, ours = min(times["scipy"]), min(times["colme"])
            table.add_row(level, name, f"{base * unit:.0f}", f"{ours * unit:.1f}", f"{base / ours:.1f}",
                          f"{min(ratios):.1f} .. {max(ratios):.1f}")  # fmt: skip
    return table


def methods_side_by_side(repeats: int) -> Table:
    """All methods, one size that also fits colME."""
    n, steps = 1000, 500
    scenario = colme.Scenario(n_agents=n, means=(1.2, 2.0), sigma=SIGMA)
    methods = {
        "CL-colME, global clock": colme.CLColME(delta=0.1, clock="global", step=0.1),
        "CL-colME, gossip clock": colme.CLColME(delta=0.1, step=0.1),
        "C-colME, global clock": colme.CColME(delta=0.1, clock="global"),
        "B-colME, depth 4": colme.BColME(delta=0.1, depth=4),
        "colME, soft weights": colme.ColME(delta=0.1, weights="soft"),
        "local": colme.Local(),
        "oracle": colme.Oracle(),
    }
    works = {name: (lambda m=m: colme.simulate(m, scenario, degree=10, steps=steps)) for name, m in methods.items()}
    times = interleaved(works, repeats)
    base = min(times["CL-colME, global clock"])
    table = Table("method", "ns per agent and step", "times CL-colME", title=f"N={n}, T={steps}, r=10")
    for name, seen in times.items():
        table.add_row(name, f"{min(seen) * 1e9 / (n * steps):.1f}", f"{min(seen) / base:.2f}")
    return table


def sizes() -> Table:
    """Cost and memory over the number of agents."""
    table = Table(
        "agents", "steps", "ns per agent and step", "bytes per agent", "graph, s", title="CL-colME, gossip clock, r=10"
    )
    method = colme.CLColME(delta=0.1, step=0.1)
    for n, steps in ((5000, 1000), (100_000, 100), (1_000_000, 20)):
        started = time.perf_counter()
        graph = random_regular_graph(n, DEGREE, rng=1)
        made = time.perf_counter() - started
        scenario = colme.Scenario(n_agents=n, means=(1.2, 2.0), sigma=SIGMA)
        run = Run([method], ScenarioStream(scenario, 0), graph, recorded_steps("all", steps), seed=0, tolerance=0.1,
                  exchange=np.float32, configuration={})  # fmt: skip
        del graph
        for t in (1, 2):
            run.step(t)
        spent = cpu(lambda run=run, steps=steps: [run.step(t) for t in range(3, steps + 1)])
        table.add_row(
            f"{n:,}", str(steps), f"{spent * 1e9 / (n * (steps - 2)):.1f}", f"{run.nbytes / n:.0f}", f"{made:.2f}"
        )
    return table


def threads() -> Table:
    seeds = range(8)
    method = colme.CLColME(delta=0.1, clock="global", step=0.1)
    wall = {}
    for jobs in (1, 2):
        started = time.perf_counter()
        colme.simulate(method, SCENARIO, degree=DEGREE, steps=1000, seeds=seeds, n_jobs=jobs)
        wall[jobs] = time.perf_counter() - started
    table = Table("threads", "wall s", "speed-up", title="eight seeds of N=5000, T=1000")
    for jobs, seconds in wall.items():
        table.add_row(str(jobs), f"{seconds:.2f}", f"{wall[1] / seconds:.2f}")
    return table


if __name__ == "__main__":
    console = Console(width=110)
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for part in (lambda: against_scipy(repeats), lambda: methods_side_by_side(repeats), sizes, threads):
        console.print(part())
