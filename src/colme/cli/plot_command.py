"""colme plot"""

from __future__ import annotations

from pathlib import Path

import click

from colme.cli.output import emit, format_option, say
from colme.cli.parameters import EXPERIMENT, FIGURE, results_option, source_of


@click.command("plot")
@click.argument("experiment", type=EXPERIMENT)
@click.argument("figures", nargs=-1, type=FIGURE)
@results_option
@click.option("--into", type=click.Path(file_okay=False), help="The folder (default: figures, beside the runs).")
@format_option
def command(experiment: str, figures: tuple[str, ...], results: str, into: str | None, form: str) -> None:
    """Draw figures of an experiment: SVG, PDF, and the CSV behind each.

    EXPERIMENT is a folder of results, the name of one (what was run last), or a TOML file (exactly that). Without
    names, the figures of its report are drawn; `colme list figures` says which there are.

    \b
    Examples:
      colme plot results/cl_colme
      colme plot cl_colme mse density --into paper/figures
    """
    from colme.lab.plots.figures import draw, save_figures, subject_of
    from colme.lab.results import experiment_of, store_of

    source = source_of(experiment, results)
    asked, store = experiment_of(source), store_of(source, results)
    drawings, failed = draw(subject_of(asked, store), figures)
    written = save_figures(drawings, Path(into) if into else store.folder / "figures")
    emit([{"file": str(path)} for path in written], form)
    for name, why in failed.items():
        say(f"The figure {name!r} is left out: {why}")
