"""`colme report`: write an HTML page about an experiment."""

from __future__ import annotations

from pathlib import Path

import click

from colme.cli.output import emit, format_option, say
from colme.cli.parameters import EXPERIMENT, FILE, option, results_option, source_of, switch


@click.command("report")
@click.argument("experiment", type=EXPERIMENT)
@results_option
@option("-o", "--output", "File to write (default: report.html beside the runs).", type=FILE)
@option("--figures/--no-figures", "Also write each figure as SVG, PDF and CSV.", default=True)
@option("--live/--no-live", "Play a run in the page (up to 3 MB).", default=True)
@switch("--open", "show", "Open the page in a browser.")
@format_option
def command(
    experiment: str, results: str, output: str | None, figures: bool, live: bool, show: bool, form: str
) -> None:
    """Write one self-contained HTML page about an experiment, and its figures.

    EXPERIMENT is a folder of results, a name (what was run last under it), or a TOML file. The page works offline and
    prints well.

    \b
    Examples:
      colme report results/cl_colme
      colme report cl_colme -o page.html --open
    """
    from colme.lab.experiment_page import write_report
    from colme.lab.figures import save_figures, subject_of

    subject = subject_of(source_of(experiment, results), results)
    page, drawings = write_report(subject, Path(output) if output else None, live=live)
    written = [page, *(save_figures(drawings, subject.store.folder / "figures") if figures else [])]
    emit([{"file": str(path)} for path in written], form)
    say(f"Open {page} in a browser.")
    if show:
        click.launch(str(page.resolve()))
