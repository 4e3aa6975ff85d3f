"""`colme plot`: draw the figures of an experiment."""

from __future__ import annotations

from pathlib import Path

import click

from colme.cli.output import emit, format_option, say
from colme.cli.parameters import EXPERIMENT, FIGURE, FOLDER, Number, Texts, option, results_option, source_of, switch


@click.command("plot")
@click.argument("experiment", type=EXPERIMENT)
@click.argument("figures", nargs=-1, type=FIGURE)
@results_option
@option("--into", "Folder to write to (default: plots, beside the runs).", type=FOLDER)
@option("--width", "Width of the figures: 84mm, 8.4cm, 3.3in or 240pt.", metavar="LENGTH")
@option("--font-size", "Size of the letters.", type=Number(1, 1000), metavar="POINTS")
@option("--font", "Font of the letters, such as 'Times New Roman' or serif.", metavar="FAMILY")
@switch("--no-title", "Leave out the title, for a figure with a caption.")
@format_option
def command(
    experiment: str, figures: Texts, results: str, into: str | None, width: str | None,
    font_size: float | None, font: str | None, no_title: bool, form: str,
) -> None:  # fmt: skip
    """Draw figures of an experiment as SVG and PDF, with the CSV behind each.

    EXPERIMENT is a folder of results, a name (what was run last under it), or a TOML file. Without FIGURES, the figures
    of the report are drawn; `colme list figures` lists all. The figures that
    `colme report` wrote are left alone.

    \b
    Examples:
      colme plot results/cl_colme
      colme plot cl_colme mse density --into paper/figures
      colme plot cl_colme mse --width 84mm --font-size 8 --font serif --no-title
    """
    from colme.lab.figures import draw, save_figures, subject_of
    from colme.lab.plots._style import Paper, drawn_for
    from colme.lab.plots.output import parse_width

    inches = None if width is None else parse_width(width)
    subject = subject_of(source_of(experiment, results), results)
    with drawn_for(Paper(inches, font_size, font, not no_title)):
        drawings, failed = draw(subject, figures)
    written = save_figures(drawings, Path(into) if into else subject.store.folder / "plots")
    emit([{"file": str(path)} for path in written], form)
    for name, why in failed.items():
        say(f"The figure {name!r} is left out: {why}")
