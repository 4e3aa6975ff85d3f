"""A small class early: while a census cannot show it, its agents are shrunk towards the others.

    python examples/small_class.py [FOLDER]

writes small_class.svg, .pdf and .csv: the squared error of the smallest class and of all agents, relative to their own
means, at every step (N = 1000, sigma 2, ten seeds). It is the figure of docs/census.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import colme
from colme.lab.plots import STYLE, save
from colme.sim.run import Run
from colme.sim.spec import RunSpec

CASES = {
    "1 % of 90, 9 and 1 %, means 0, 1, 3": ((0.0, 1.0, 3.0), (90, 9, 1)),
    "1 % of 99 and 1 %, means 0, 3": ((0.0, 3.0), (99, 1)),
    "5 % of 70, 25 and 5 %, means 1, 1.6, 2.4": ((1.0, 1.6, 2.4), (70, 25, 5)),
    "5 % of 95 and 5 %, means 0, 1": ((0.0, 1.0), (95, 5)),
}
COLORS = ("#D55E00", "#0072B2")


def errors(scenario: colme.Scenario, steps: int, seed: int) -> np.ndarray:
    """(steps, 2, 2): squared errors of (census, own mean), on average over (the smallest class, all agents)."""
    run = Run([RunSpec(method=colme.Census(guard=False), source=scenario, steps=steps, seed=seed, degree=10)])
    population = scenario.populate(seed)
    small = population.class_ == len(scenario.means) - 1
    truth = run.stream.truth(1)
    out = np.empty((steps, 2, 2))
    for t in range(1, steps + 1):
        run.step(t)
        for k, values in enumerate((run.states[0].estimate, run.world.mean)):
            square = (values - truth) ** 2
            out[t - 1, k] = square[small].mean(), square.mean()
    return out


def table(steps: int, seeds: int, n_agents: int) -> pd.DataFrame:
    """One row per case and step."""
    found = []
    for case, (means, shares) in CASES.items():
        sizes = tuple(n_agents * share // 100 for share in shares)
        scenario = colme.Scenario(n_agents=n_agents, means=means, sizes=sizes, sigma=2.0)
        square = sum(errors(scenario, steps, seed) for seed in range(seeds))
        small, everyone = (square[:, 0] / square[:, 1]).T
        found.append(pd.DataFrame({"case": case, "t": np.arange(1, steps + 1), "small": small, "all": everyone}))
    return pd.concat(found, ignore_index=True)


def plot(found: pd.DataFrame) -> Figure:
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(7.0, 4.4), layout="constrained")
        axes = figure.subplots(2, 2, sharex=True, sharey=True)
        for ax, (case, rows) in zip(axes.flat, found.groupby("case", sort=False), strict=True):
            ax.axhline(1.0, color="#777777", linewidth=0.8)
            ax.plot(rows["t"], rows["small"], color=COLORS[0], label="the smallest class")
            ax.plot(rows["t"], rows["all"], color=COLORS[1], linestyle=(0, (4, 1.6)), label="all agents")
            ax.set(xscale="log", yscale="log", title=case)
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_formatter("{x:g}")
        axes[0, 0].legend(loc="lower left")
        figure.supxlabel("step")
        figure.supylabel("MSE / MSE of the local means")
    return figure


def main(folder: Path, *, steps: int = 300, seeds: int = 10, n_agents: int = 1000) -> None:
    found = table(steps, seeds, n_agents)
    folder.mkdir(parents=True, exist_ok=True)
    for path in save(plot(found), found, folder / "small_class"):
        print(path)


if __name__ == "__main__":
    main(Path((sys.argv[1:] or ["results"])[0]))
