"""`show_results`: print the results of an experiment."""

from __future__ import annotations

import json
from typing import Any

import click

from colme.cli.output import emit, plain_row
from colme.lab.experiments.experiment import Experiment
from colme.lab.results import dataset
from colme.lab.runs.store import RunStore
from colme.lab.timing_runs import ratio_rows

TITLES = {
    "methods": "medians over the seeds at the last step",
    "expected": "measured beside expected",
    "timing": "times relative to CL-colME",
}


SPARE = {  # columns that a table leaves out first where the terminal is narrow
    "methods": ("n_groups", "coverage", "numbers", "isolated", "lost_edges", "seconds", "seeds", "error_rate",
                "time_ratio", "wrong_edges"),
    "expected": ("low", "high", "source", "statistic"),
    "timing": ("repeats", "ns_per_agent_step", "low", "high"),
}  # fmt: skip


def show_results(experiment: Experiment, store: RunStore, form: str, *, wide: bool = False) -> None:
    """Print the final errors, and measured beside expected."""
    from colme.lab.tables import expected_rows, final_rows

    sections: dict[str, list[dict[str, Any]]] = {}
    if experiment.head.timing is not None:
        sections["timing"] = ratio_rows(experiment, store)
    else:
        data = dataset(experiment, store)
        sections["methods"] = final_rows(data)
        if experiment.head.expected:
            sections["expected"] = expected_rows(data, experiment.head.expected)
    if form == "json":
        plain = {name: [plain_row(row) for row in rows] for name, rows in sections.items()}
        click.echo(json.dumps({"experiment": experiment.name} | plain, indent=2))
        return
    for name, rows in sections.items():
        emit(rows, form, title=f"{experiment.title}: {TITLES[name]}", spare=SPARE[name], wide=wide)
        if form == "csv":
            break  # a CSV file holds one table
