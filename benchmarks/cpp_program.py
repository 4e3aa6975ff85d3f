"""The C++ program of the AAAI-25 paper beside us, if it is at hand: PEER=path make bench.

`path` is a checkout of github.com/Franco-Galante/scalable-decentralized-algorithms-AAAI25 whose simulator was built as
its README says, with "Experiment 1b - C-ColME" chosen in main.cpp. Only the executable is run, in a temporary folder,
until it has written the times of its first seed; it reads nothing. Its graph takes as long as half of its algorithm, so
what counts of its CPU time is the share that its own clock gives to the algorithm. Ours is a whole call, graph and
set-up included. Besides C-ColME it runs, in the same loop, an oracle that averages over the true neighbors.
"""

from __future__ import annotations

import csv
import os
import subprocess
import tempfile
import time
from pathlib import Path

import click

import colme
from benchmarks import workloads as w
from benchmarks.fresh import time_of_children
from benchmarks.measuring import Measured, Timed, in_turns, ratio, timed

EXECUTABLE, ALGORITHM = "simulator", "consensus"
STEPS_FILE, TIMES_FILE = "preliminary.csv", "time.csv"
"""A row for each step, written as it is made; a row for each seed, written when it is done."""
SETTING = {"alg": ALGORITHM, "n": "10000", "int_avg_deg": "10", "sigma": "2.000000", "delta": "0.100000"}
"""Columns that tell whether it does what we do."""
MEANS, N_STEPS = (0.0, 1.0), 2000
FIRST_STEP, FIRST_SEED = 300.0, 1800.0
"""Seconds within which it must have made a step, and finished a seed."""
BUILD = 'Build it as the README of its folder says, with "Experiment 1b - C-ColME" chosen in main.cpp.'


def find_simulator(folder: Path) -> Path:
    """The newest executable of that name below the folder."""
    if not folder.is_dir():
        raise click.UsageError(
            f"PEER={folder}: there is no such folder. Give a checkout of scalable-decentralized-algorithms-AAAI25, or "
            "leave PEER out."
        )
    found = [path for path in folder.rglob(EXECUTABLE) if path.is_file() and os.access(path, os.X_OK)]
    if not found:
        raise click.UsageError(f"PEER={folder}: there is no executable named {EXECUTABLE} in this folder. {BUILD}")
    return max(found, key=lambda path: path.stat().st_mtime).resolve()


def rows(simulator: Path, quick: bool) -> dict[str, Measured]:
    """Its C-ColME against our CL-colME and C-colME, in turns."""
    scenario = colme.Scenario(n_agents=int(SETTING["n"]), means=MEANS, sigma=w.SIGMA)

    def ours(method: colme.methods.Method) -> Timed:
        return timed(
            lambda: colme.simulate(method, scenario, steps=N_STEPS, degree=w.DEGREE, n_jobs=1),
            lasting=0.0 if quick else 0.4,
        )

    works = {"cl": ours(w.CL), "c": ours(w.C)}
    for work in works.values():
        work()  # compiles; the program needs no such round
    times = in_turns(works | {"cpp": lambda: seconds_of_a_seed(simulator)}, 1 if quick else 3, warm=False)
    return {"cpp_cl": ratio(times["cpp"], times["cl"]), "cpp_c": ratio(times["cpp"], times["c"])}


def seconds_of_a_seed(simulator: Path) -> float:
    """CPU seconds that its algorithm takes for one seed."""
    before = time_of_children()
    with tempfile.TemporaryDirectory() as folder:
        first = _run_until_first_seed(simulator, Path(folder))
    spent = time_of_children() - before
    graph, algorithm = float(first["init_s"]), float(first["alg_s"])
    return spent * algorithm / (graph + algorithm)


def _run_until_first_seed(simulator: Path, folder: Path) -> dict[str, str]:
    """The first row of its times; the program is stopped then."""
    started = time.monotonic()
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen([simulator], cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        while True:
            over = process.poll()
            step, seed = first_row(folder / STEPS_FILE), first_row(folder / TIMES_FILE)
            for row in (step, seed):
                if row is not None:
                    check_setting(row)
            if seed is not None:
                check_steps(folder / STEPS_FILE)
                return seed
            took = time.monotonic() - started
            if over is not None:
                raise click.ClickException(
                    f"{simulator} ended with exit code {over} before it wrote the times of a seed to {TIMES_FILE}. "
                    f"Run it by hand to see why. {BUILD}"
                )
            if took > (FIRST_STEP if step is None else FIRST_SEED):
                done, limit = ("step", FIRST_STEP) if step is None else ("seed", FIRST_SEED)
                name = STEPS_FILE if step is None else TIMES_FILE
                raise click.ClickException(
                    f"{simulator} wrote no {done} to {name} within {limit:.0f} s. Is this its Release build? {BUILD}"
                )
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()


def first_row(path: Path) -> dict[str, str] | None:
    """The first row of a CSV file by column; None while it is not whole."""
    try:
        with path.open(encoding="utf-8") as file:
            head, row = file.readline(), file.readline()
    except FileNotFoundError:
        return None
    return dict(next(csv.DictReader([head, row]))) if row.endswith("\n") else None


def check_steps(path: Path) -> None:
    """A row for each step."""
    with path.open("rb") as file:
        steps = sum(1 for _ in file) - 1
    if steps != N_STEPS:
        raise click.ClickException(f"the C++ program made {steps} steps: the comparison needs {N_STEPS}. {BUILD}")


def check_setting(row: dict[str, str]) -> None:
    """Another experiment, or another size, is no comparison."""
    for column, expected in SETTING.items():
        got = row.get(column)
        if got != expected:
            raise click.ClickException(
                f"the C++ program writes {column}={got}: the comparison needs {column}={expected}. {BUILD}"
            )
