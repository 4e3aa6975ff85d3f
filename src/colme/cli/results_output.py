"""The numbers of an experiment on stdout."""

from __future__ import annotations

import json
from typing import Any

import click

from colme.cli.output import emit, plain_row
from colme.lab.experiments.experiment import Experiment
from colme.lab.results import dataset
from colme.lab.runs.store import Store
from colme.lab.timing_runs import ratio_rows

TITLES = {
    "methods": "medians over the seeds at the last step",
    "published": "measured beside published",
    "timing": "times as ratios to CL-colME",
}


def show_results(experiment: Experiment, store: Store, form: str) -> None:
    """How the methods ended, and measured beside published."""
    from colme.lab.tables import final_rows, published_rows

    sections: dict[str, list[dict[str, Any]]] = {}
    if experiment.head.timing is not None:
        sections["timing"] = ratio_rows(experiment, store)
    else:
        data = dataset(experiment, store)
        sections["methods"] = final_rows(data)
        if experiment.head.published:
            sections["published"] = published_rows(data, experiment.head.published)
    if form == "json":
        plain = {name: [plain_row(row) for row in rows] for name, rows in sections.items()}
        click.echo(json.dumps({"experiment": experiment.name} | plain, indent=2))
        return
    for name, rows in sections.items():
        emit(rows, form, title=f"{experiment.title}: {TITLES[name]}")
        if form == "csv":
            break  # one table per file
