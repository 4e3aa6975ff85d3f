"""Rows per second of `colme.estimate`, beside a mean per agent in pandas; alone: python -m benchmarks.estimates."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import colme
from benchmarks.measuring import Measured, in_turns, ratio, timed

ROWS = 3_000_000
SIZES = {"estimate_3e3": 3_000, "estimate_1e5": 100_000, "estimate_1e6": 1_000_000}
SHAPES = ("groups", "continuum")
STATUS = Path("/proc/self/status")
PEAK = """
import sys
from benchmarks.estimates import estimated, frame, most_memory
estimated(frame(300, n_rows=6000))
before = most_memory()
n_rows = estimated(sys.argv[1]).summary.n_samples
print((most_memory() - before) / n_rows)
"""


def frame(n_agents: int, shape: str = "groups", n_rows: int = ROWS) -> Any:
    """Samples of agents in no order, at least one each, a few agents having most of them; sigma 2, three means or,
    what is hardest to explain, a wide continuum of them."""
    import pandas

    rng = np.random.default_rng(0)
    chance = rng.pareto(1.5, n_agents) + 0.3
    agent = np.append(np.arange(n_agents), rng.choice(n_agents, n_rows - n_agents, p=chance / chance.sum()))
    rng.shuffle(agent)
    mean = rng.choice([0.0, 1.0, 4.0], n_agents) if shape == "groups" else rng.uniform(0.0, 1000.0, n_agents)
    value = mean[agent] + 2.0 * rng.standard_normal(n_rows)
    return pandas.DataFrame({"agent": agent, "value": value, "time": rng.random(n_rows)})


def estimated(table: Any, time: str | None = None) -> colme.Result:
    return colme.estimate(table, agent="agent", value="value", time=time)


def most_memory() -> float:
    """Bytes that this process has had at most (getrusage would tell those of its parent, if they were more)."""
    found = re.search(r"^VmHWM:\s*(\d+) kB", STATUS.read_text() if STATUS.exists() else "", re.M)
    return 1024.0 * int(found.group(1)) if found else math.nan


def peak(table: Any) -> float:
    """Bytes per row at the worst moment of a fresh process that estimates a file; NaN where nobody counts them."""
    if not STATUS.exists():
        return math.nan
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        table.to_parquet(path)
        command = [sys.executable, "-c", PEAK, str(path)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def rows(quick: bool) -> dict[str, Measured]:
    """Mean per agent in pandas by everything that `estimate` does, for the same table in the same round."""
    found: dict[str, Measured] = {}
    for key, n_agents in SIZES.items():
        if quick and key != "estimate_3e3":
            continue
        table = frame(n_agents)
        works = {
            "pandas": timed(lambda table=table: table.groupby("agent")["value"].mean(), lasting=0.0 if quick else 0.4),
            "ours": timed(lambda table=table: estimated(table)),
        }
        times = in_turns(works, 1 if quick else 3)
        found[key] = ratio(times["pandas"], times["ours"])
        if key == "estimate_1e6":
            found["estimate_seconds"] = times["ours"].measured()
            memory = peak(table)
            found |= {} if math.isnan(memory) else {"estimate_memory": Measured.once(memory)}
    return found


def main() -> None:
    estimated(frame(300, n_rows=6000), "time")  # compile
    for n_agents in SIZES.values():
        for shape in SHAPES:
            table = frame(n_agents, shape)
            works = {
                "pandas": timed(lambda table=table: table.groupby("agent")["value"].mean(), lasting=0.4),
                "ours": timed(lambda table=table: estimated(table)),
                "in time": timed(lambda table=table: estimated(table, "time")),
            }
            times = in_turns(works, 2, warm=False)
            words = ", ".join(f"{name} {seconds.best:.2f} s" for name, seconds in times.items())
            share = ratio(times["pandas"], times["ours"]).value
            print(f"{n_agents:9,} agents, {shape:9}  {words} of CPU; {share:.3f} of pandas' speed, "
                  f"{ROWS / times['ours'].best:.3g} rows/s, {peak(table):.0f} B per row", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
