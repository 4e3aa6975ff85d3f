"""The CL-colME paper's experiment: 5000 agents, two hidden classes, ten seeds. Prints the table, draws the figure.

python examples/demo.py [folder]          (default folder: results/demo)
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path

import matplotlib
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import colme
from colme.metrics import METRICS

matplotlib.use("agg")
matplotlib.rcParams["svg.fonttype"] = "none"
matplotlib.rcParams["svg.hashsalt"] = "colme"
import matplotlib.pyplot as plt  # noqa: E402

SEEDS = range(10)
SCENARIO = colme.Scenario(n_agents=5000, means=(1.2, 2.0), sigma=2.0)
METHODS = {
    "CL-colME": colme.CLColME(delta=0.1, level="agent", step=0.1, clock="global"),
    "C-colME": colme.CColME(delta=0.1, level="agent", clock="global"),
    "CL-colME, harmonic clock": colme.CLColME(delta=0.1, level="agent", step=0.1, clock="harmonic"),
}
EXPECTED = {  # (t, method): mean squared error, docs/methods.md
    (100, "C-colME"): 4.7e-2, (100, "CL-colME"): 4.9e-2, (400, "C-colME"): 1.19e-2, (400, "CL-colME"): 1.19e-2,
    (1000, "C-colME"): 2.2e-5, (1000, "CL-colME"): 3.3e-5, (2000, "C-colME"): 4.3e-6, (2000, "CL-colME"): 4.35e-6,
}  # fmt: skip
STYLE = {  # color-blind safe (Okabe & Ito)
    "CL-colME": ("#D55E00", "-"), "C-colME": ("#0072B2", "--"), "CL-colME, harmonic clock": ("#CC79A7", "-"),
    "local": ("#666666", "-"), "oracle": ("#009E73", "-"),
}  # fmt: skip


def table(traces: colme.Traces) -> Table:
    columns = ["t", "local", "oracle", "C", "expected", "CL", "expected", "wrong edges"]
    out = Table(*columns, title="Mean squared error, median of ten seeds", padding=(0, 0), box=box.SIMPLE_HEAVY)
    for t in (100, 400, 1000, 2000):
        median = {
            name: {m: np.median([trace.at(t)[m] for trace in traces.select(method=method)]) for m in METRICS}
            for name, method in METHODS.items()
        }
        cl, c = median["CL-colME"], median["C-colME"]
        row = [cl["local_mse"], cl["oracle_mse"], c["mse"], EXPECTED[t, "C-colME"], cl["mse"], EXPECTED[t, "CL-colME"]]
        out.add_row(str(t), *(f"{value:.2e}" for value in row), f"{cl['wrong_edges']:.1%}")
    return out


def curves(traces: colme.Traces) -> dict[str, np.ndarray]:
    """name -> (3, steps): quartiles of the mean squared error over the seeds."""
    one = traces.select(method=METHODS["CL-colME"])
    all_ = {name: [trace.mse for trace in traces.select(method=method)] for name, method in METHODS.items()}
    all_ |= {"local": [trace.local_mse for trace in one], "oracle": [trace.oracle_mse for trace in one]}
    return {name: np.quantile(rows, [0.25, 0.5, 0.75], axis=0) for name, rows in all_.items()}


def draw(t: np.ndarray, lines: dict[str, np.ndarray], path: Path) -> None:
    figure, ax = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    for name, (low, middle, high) in lines.items():
        color, dashes = STYLE[name]
        ax.fill_between(t, low, high, color=color, alpha=0.15, linewidth=0)
        ax.plot(t, middle, dashes, color=color, linewidth=1.8)
    labels = {  # where the eye looks for them
        "local": (2.2, 2.6, "local: every agent alone"), "oracle": (1.3, 4e-5, "oracle: knows the classes"),
        "CL-colME": (650, 1.5e-4, "CL-colME\nand C-colME"),
        "CL-colME, harmonic clock": (430, 0.2, "CL-colME,\nclock never restarts"),
    }  # fmt: skip
    for name, (x, y, text) in labels.items():
        ax.text(x, y, text, color=STYLE[name][0], fontsize=9.5, ha="right" if name == "CL-colME" else "left")
    ax.set(xscale="log", yscale="log", xlim=(1, t[-1]), xlabel="samples per agent", ylabel="mean squared error")
    ax.set_title("5000 agents, two hidden classes: 1.2 and 2.0, noise 2.0", loc="left", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, which="major", alpha=0.25)
    for ending in ("svg", "pdf"):
        figure.savefig(path.with_suffix(f".{ending}"))
    plt.close(figure)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    methods = list(METHODS.values())
    traces = colme.simulate(methods, SCENARIO, degree=10, steps=2000, seeds=SEEDS, progress=True)
    Console().print(table(traces))
    t, lines = traces[0].t, curves(traces)
    few = np.unique(np.geomspace(1, len(t), 300).astype(int)) - 1  # as many points as a figure can show
    t, lines = t[few], {name: bands[:, few] for name, bands in lines.items()}
    draw(t, lines, folder / "cl_colme.svg")
    with (folder / "cl_colme.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["t", *(f"{name} {part}" for name in lines for part in ("quartile 1", "median", "quartile 3"))])
        writer.writerows(zip(t, *(row for bands in lines.values() for row in bands), strict=True))
    Console(stderr=True).print(
        f"{time.perf_counter() - started:.0f} s. Figure and numbers: {folder}/cl_colme.svg, .pdf, .csv"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results/demo"))
