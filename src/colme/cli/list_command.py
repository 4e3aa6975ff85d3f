"""`colme list`: list methods, experiments, figures or runs."""

from __future__ import annotations

import click

from colme.cli.output import emit, format_option, wide_option
from colme.cli.parameters import EXPERIMENT, SPARE_OF_RUNS, results_option, source_of
from colme.support.tables import Row

WHAT = ("methods", "experiments", "figures", "runs")


@click.command("list")
@click.argument("what", type=click.Choice(WHAT))
@click.argument("experiment", required=False, type=EXPERIMENT)
@results_option
@wide_option
@format_option
def command(what: str, experiment: str | None, results: str, wide: bool, form: str) -> None:
    """List methods, experiments, figures, or the runs of an experiment.

    \b
    Examples:
      colme list methods
      colme list experiments
      colme list runs cl_colme --format json
    """
    if what != "runs":
        rows = {"methods": _methods, "experiments": _experiments, "figures": _figures}[what]()
    elif experiment is None:
        raise click.UsageError("the experiment is missing: name one. Try: colme list runs cl_colme")
    else:
        from colme.lab.runs.runner import make_plan, plan_rows

        plan = make_plan(source_of(experiment, results), results=results)
        if plan.missing:
            plan.refused = plan.experiment.cannot_run()
        rows = plan_rows(plan)
    emit(rows, form, spare=("fields", "file", "class", *SPARE_OF_RUNS), wide=wide)


def _methods() -> list[Row]:
    from colme.methods import METHODS

    return [
        {"name": str(each.__struct_config__.tag), "label": each.label, "class": f"colme.{each.__name__}",
         "what": _first_line(each.__doc__), "fields": ", ".join(each.__struct_fields__)}
        for each in METHODS
    ]  # fmt: skip


def _experiments() -> list[Row]:
    from colme.lab.experiment import Experiment, shipped_experiments

    rows = []
    for path in shipped_experiments():
        experiment = Experiment.read(path)
        runs = len({each.name for each in experiment.planned})
        rows.append({"name": path.stem, "runs": runs, "title": experiment.title, "file": str(path)})
    return rows


def _figures() -> list[Row]:
    from colme.lab.figures import FIGURES

    return [{"name": name, "shows": _first_line(make.__doc__)} for name, make in FIGURES.items()]


def _first_line(doc: str | None) -> str:
    return (doc or "").strip().splitlines()[0]
