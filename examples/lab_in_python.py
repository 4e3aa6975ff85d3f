"""An experiment without a file: run it, summarize it, and draw two figures side by side on axes of your own.

python examples/lab_in_python.py [folder]          (default folder: results)
"""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib.figure import Figure

from colme import lab

EXPERIMENT = {
    "title": "Late joiners",
    "seeds": 5,
    "steps": 2000,
    "record": 10,
    "scenario": {
        "n_agents": 2000, "means": [0.0, 1.0], "sigma": 1.0, "late_step": 500, "late_share": [0.0, 0.3],
    },
    "methods": [{"method": "cl-colme", "cut": "difference"}, {"method": "local"}],
}  # fmt: skip


def main(folder: Path) -> None:
    data = lab.run(EXPERIMENT, results=folder, progress=True)  # again: nothing to do, the runs are there
    middle = lab.summary(data)["mse"].sel(quantile=0.5, t=[100, 500, 2000])
    print(middle.sel({"method": "CL-colME"}).to_series().unstack("t").map("{:.1e}".format))
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    lab.plots.plot_over_time(data, "mse", left)
    lab.plots.plot_over_time(data, "wrong_edges", right)
    path = folder / "late_joiners.svg"
    figure.savefig(path)
    lab.to_parquet(data, folder / "late_joiners.parquet")
    print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results"))
