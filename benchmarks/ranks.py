"""python -m benchmarks.ranks: one run of CL-colME shared by threads and by ranks of MPI, as ratios to one process.

Every measurement is a process (or a job of ranks) of its own: it makes the graph, makes a few steps to warm up, and
times the others. Forms take turns, and the median of the rounds counts, because machines are noisy. `--huge` runs 10^8
agents.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import colme
from benchmarks import machine
from tests.support.two_machines import two_machines

FILE = Path(__file__).with_name("ranks.json")
WARM_UP = 3


def measure_steps(team: Any, n_agents: int, steps: int, method: str) -> dict[str, float]:
    """Seconds of the set-up, of a step, and of what workers spend with each other in a step."""
    from colme.sim.run import Run
    from colme.sim.spec import RunSpec

    methods: dict[str, Any] = {"cl-colme": colme.CLColME(clock="global"), "census": colme.Census()}
    scenario = colme.Scenario(n_agents=n_agents, means=(0.8, 2.0), sigma=2.0, assignment="random")
    started = time.perf_counter()
    run = Run(
        [RunSpec(method=methods[method], source=scenario, steps=steps, seed=1, degree=10, record=(steps,))], team=team
    )
    ready = time.perf_counter()
    run.advance(1, 1)  # compiles
    for t in range(2, WARM_UP + 1):
        run.step(t)
    spent = time_exchange(team, run.hood)
    began, times = time.perf_counter(), []
    for t in range(WARM_UP + 1, steps + 1):
        begin = time.perf_counter()
        run.step(t)
        times.append(time.perf_counter() - begin)
    whole = time.perf_counter() - began
    return {"setup": ready - started, "step": statistics.median(times), "exchange": sum(spent) / whole}


def time_exchange(team: Any, hood: Any) -> list[float]:
    """A list that grows by the seconds of every call in which workers wait for each other."""
    spent: list[float] = []
    inside = threading.local()

    def timed(call: Any) -> Any:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            if getattr(inside, "yes", False):
                return call(*arguments, **options)
            inside.yes, begin = True, time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                inside.yes = False
                spent.append(time.perf_counter() - begin)

        return wrapper

    if team.size > 1:
        for thing, names in ((team, ("wait", "total", "greatest", "gather")), (hood, ("fetch", "refresh"))):
            for name in names:
                setattr(thing, name, timed(getattr(thing, name)))
    return spent


def work(form: str, **given: Any) -> None:
    """In the process of a measurement: measure and, in the first rank, print."""
    if form == "ranks":
        from mpi4py import MPI

        from colme.sim.ranks import RankTeam

        team = RankTeam(MPI.COMM_WORLD)
        found = measure_steps(team, **given)
        if team.rank > 0:
            return
    elif form == "threads":
        from colme.sim.threads import run_threads

        found = run_threads(2, lambda team: measure_steps(team, **given))
    else:
        from colme._core.team import ALONE

        found = measure_steps(ALONE, **given)
    print(json.dumps(found))


class MemoryWatch(threading.Thread):
    """The most memory that the machine used since the start, beyond what it used then: right to about 100 MB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before, self.least, self.done = self.available(), self.available(), threading.Event()

    @staticmethod
    def available() -> int:
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))

    def run(self) -> None:
        while not self.done.wait(0.02):
            self.least = min(self.least, self.available())

    @property
    def peak(self) -> int:
        return self.before - self.least


def measure(form: str, n_ranks: int = 1, machines: Any = None, **given: Any) -> dict[str, float]:
    """One measurement, with the peak of memory per agent."""
    arguments = ["-m", "benchmarks.ranks", "--work", json.dumps({"form": form} | given)]
    watch = MemoryWatch()
    watch.start()
    if machines is not None:
        sent = machines.bytes_sent()
        done = machines.run(*arguments)
    else:
        launcher = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(n_ranks)] if form == "ranks" else []
        done = subprocess.run([*launcher, sys.executable, *arguments], capture_output=True, text=True)
    watch.done.set()
    if done.returncode:
        raise click.ClickException(done.stderr[-2000:])
    found: dict[str, float] = json.loads(done.stdout)
    found["bytes_per_agent"] = watch.peak / given["n_agents"]
    if machines is not None:
        found["sent_per_agent_step"] = (machines.bytes_sent() - sent) / given["n_agents"] / given["steps"]
    return found


def in_turns(rounds: int, forms: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The medians of several rounds of measurements that take turns."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in forms}
    for _ in range(rounds):
        for name, given in forms.items():
            found[name].append(measure(**given))
    return {name: {key: statistics.median(row[key] for row in rows) for key in rows[0]} for name, rows in found.items()}


def strong(n_agents: int, steps: int, rounds: int, method: str = "cl-colme") -> dict[str, Any]:
    given = {"n_agents": n_agents, "steps": steps, "method": method}
    forms = {"one process": {"form": "plain"}, "two threads": {"form": "threads"},
             "two ranks": {"form": "ranks", "n_ranks": 2}}  # fmt: skip
    return {"n_agents": n_agents, "method": method} | in_turns(rounds, {k: v | given for k, v in forms.items()})


def weak(n_agents: int, steps: int, rounds: int) -> dict[str, Any]:
    forms = {"one rank": {"form": "ranks", "n_ranks": 1, "n_agents": n_agents},
             "two ranks, twice the agents": {"form": "ranks", "n_ranks": 2, "n_agents": 2 * n_agents}}  # fmt: skip
    return {"n_agents": n_agents} | in_turns(rounds, {k: v | {"steps": steps, "method": "cl-colme"}
                                                      for k, v in forms.items()})  # fmt: skip


def on_two_machines(n_agents: int, steps: int, rounds: int) -> dict[str, Any]:
    given = {"n_agents": n_agents, "steps": steps, "method": "cl-colme"}
    with tempfile.TemporaryDirectory() as folder, two_machines(Path(folder)) as machines:
        forms: dict[str, dict[str, Any]] = {
            "two ranks on one machine": {"form": "ranks", "n_ranks": 2},
            "two machines": {"form": "ranks", "machines": machines},
        }
        return {"n_agents": n_agents, "steps": steps} | in_turns(rounds, {k: v | given for k, v in forms.items()})


def show(results: dict[str, Any]) -> None:
    console = Console(width=118)
    for title, rows in results.items():
        if not isinstance(rows, list):
            continue
        for row in rows:
            table = Table(title=f"{title}: {row.get('method', 'cl-colme')}, {row['n_agents']:.0e} agents")
            measured = {name: each for name, each in row.items() if isinstance(each, dict)}
            first = next(iter(measured.values()))
            for column in ("", "set-up s", "step ms", "speed-up", "exchange", "bytes/agent", "sent B/agent-step"):
                table.add_column(column)
            for name, each in measured.items():
                sent = each.get("sent_per_agent_step")
                table.add_row(name, f"{each['setup']:.2f}", f"{1e3 * each['step']:.1f}",
                              f"{first['step'] / each['step']:.2f}", f"{each['exchange']:.0%}",
                              f"{each['bytes_per_agent']:.0f}", "" if sent is None else f"{sent:.1f}")  # fmt: skip
            console.print(table)


@click.command()
@click.option("--quick", is_flag=True, help="Fewer agents and rounds.")
@click.option("--huge", is_flag=True, help="Only 10^8 agents, 20 steps, two ranks.")
@click.option("--work", "given", hidden=True)
def main(quick: bool, huge: bool, given: str | None) -> None:
    """Measure, print, and write benchmarks/ranks.json."""
    if given:
        work(**json.loads(given))
        return
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    if huge:
        results["huge"] = [{"n_agents": 10**8, "method": "cl-colme", "two ranks": measure(
            "ranks", 2, n_agents=10**8, steps=20, method="cl-colme")}]  # fmt: skip
    else:
        sizes, rounds = ([10**5], 1) if quick else ([10**6, 10**7], 3)
        results["machine"] = machine.describe()
        results["strong scaling"] = [strong(n, 40 if n < 10**7 else 13, rounds) for n in sizes]
        results["strong scaling"].append(strong(sizes[0] // 5, 20, rounds, "census"))
        results["weak scaling"] = [weak(sizes[0], 30, rounds)]
        if os.geteuid() == 0:
            results["two machines"] = [on_two_machines(sizes[0], 30, rounds)]
    show(results)
    if not quick:
        FILE.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
