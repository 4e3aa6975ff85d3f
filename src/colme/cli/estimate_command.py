"""colme estimate"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from colme.cli._row_progress import row_progress
from colme.cli.output import emit, format_option, say

if TYPE_CHECKING:
    from colme.data.report.result import Result

SHOWN = 10
"""Agents on the screen."""
SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A number, in units of the time column, or one with a unit."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(s|min|h|d|w)?\s*", str(value))
        if match is None or float(match[1]) == 0:
            self.fail(f"{value!r} is no duration. Try 7d, 12h, 30min, 90s, or a number in units of the times.")
        return float(match[1]) * SECONDS.get(match[2], 1)


@click.command("estimate")
@click.argument("file", type=click.Path())
@click.option("--agent", multiple=True, metavar="COLUMN", help="Whose sample a row is; again for several columns.")
@click.option("--value", metavar="COLUMN", help="The samples.")
@click.option("--time", metavar="COLUMN", help="When: dates or numbers. Later samples then judge earlier ones.")
@click.option("--weight", metavar="COLUMN", help="For how many samples one counts.")
@click.option("--label", metavar="COLUMN", help="Known groups, one per agent.")
@click.option("--covariate", "covariates", multiple=True, metavar="COLUMN",
              help="What may tell of an agent's mean; again for more. 'log n': how many samples it has.")  # fmt: skip
@click.option("--method", default="auto", show_default=True, metavar="NAME",
              help="auto (by cross-validation), local, pooled, shrinkage, census, one-hop, cl-colme.")  # fmt: skip
@click.option("--groups", type=click.IntRange(min=1), metavar="N", help="Groups at most (default: as many as show).")
@click.option("--sigma", type=click.FloatRange(min=0, min_open=True), metavar="NUMBER",
              help="Standard deviation of a sample, if it is known.")  # fmt: skip
@click.option("--half-life", type=Duration(), metavar="TIME", help="A sample counts half after so long: 7d, 12h, ...")
@click.option("--level", type=click.FloatRange(0, 1, True, True), default=0.9, show_default=True, metavar="SHARE",
              help="Of the intervals.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random folds.")
@click.option("-o", "--output", "outputs", multiple=True, type=click.Path(dir_okay=False), metavar="FILE",
              help="Write all agents: .parquet, .csv or .json; again for more.")  # fmt: skip
@click.option("--plot", type=click.Path(dir_okay=False), metavar="FILE", help="Draw them: .svg, .pdf or .png.")
@click.option("--report", type=click.Path(dir_okay=False), metavar="FILE", help="Write a page: .html.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no words, only data.")
@format_option
@click.pass_context
def command(
    context: click.Context, /, file: str, agent: tuple[str, ...], value: str | None, outputs: tuple[str, ...],
    plot: str | None, report: str | None, quiet: bool, form: str, **options: Any,
) -> None:  # fmt: skip
    """Estimate every agent's mean from a table of samples, better than its own samples can.

    FILE is CSV or TSV (also .gz), Parquet (also a folder), Arrow, or - for CSV from stdin: a row per sample, in any
    order. Agents that are alike learn from each other; whether that helps is cross-validated, and if it does not,
    everyone keeps its own mean. Rows without a value are left out and counted.

    \b
    Examples:
      colme estimate readings.parquet --agent sensor --value temperature
      colme estimate readings.csv --agent sensor --value temperature --time ts --half-life 30d
      colme estimate flights.csv --agent carrier --agent dest --value arr_delay -o routes.csv --report routes.html
      colme estimate sales.csv --agent store --value revenue --covariate area --covariate "log n" --plot stores.svg
      zcat log.csv.gz | colme estimate - --agent user --value seconds --format json | jq .summary
    """
    from colme.data.report import output

    if not agent or value is None:
        raise _missing(file, agent, value)
    if options["half_life"] is not None and options["time"] is None:
        raise click.UsageError("--half-life needs to know when samples were taken. Try --time COLUMN.")
    _check_targets(file, [path for path in (*outputs, plot, report) if path is not None])
    for path in outputs:
        output.check_ending(Path(path))
    _check_pictures(plot, report)
    from colme.data.estimate import estimate

    with row_progress(quiet) as progress:
        result: Result = estimate(
            file, agent=agent if len(agent) > 1 else agent[0], value=value, progress=progress, **options
        )
    written = [output.save_result(result, path) for path in outputs]
    if plot is not None:
        from colme.lab import plots

        written.append(plots.write_figure(plots.plot_estimates(result), plot))
    if report is not None:
        from colme.lab.pages.estimate_page import write_estimate_page

        written.append(write_estimate_page(result, report, command=_typed(context)))
    if not quiet:
        _tell(result)
    if form == "json":
        click.echo(output.json_of(result), nl=False)
    elif form == "csv":
        click.echo(output.csv_of(result), nl=False)
    else:
        emit(_rows(result), form, title=_title(result))
    if written and not quiet:
        say("Written: " + ", ".join(map(str, written)))


def _missing(file: str, agent: tuple[str, ...], value: str | None) -> click.UsageError:
    """Which columns there are, for whoever did not name them."""
    from colme.data.read.sources import open_source

    wanted = [flag for flag, given in (("--agent", agent), ("--value", value)) if not given]
    names = [] if file == "-" else open_source(file).columns or []
    more = ", ..." if len(names) > 20 else ""
    there = f" The columns of {Path(file).name} are {', '.join(names[:20])}{more}." if names else ""
    flags = " ".join(f"{flag} COLUMN" for flag in wanted)
    return click.UsageError(f"{' and '.join(wanted)} must name a column.{there} Try: colme estimate {file} {flags}")


def _check_targets(file: str, targets: list[str]) -> None:
    """The table itself is nothing to write to, and one file cannot hold two things."""
    taken = {Path(file).resolve(): "the table itself"} if file != "-" else {}
    for target in targets:
        place = Path(target).resolve()
        if place in taken:
            raise click.UsageError(f"{target} is {taken[place]}: it would be overwritten. Choose another name.")
        taken[place] = "written twice"


def _check_pictures(plot: str | None, report: str | None) -> None:
    """What would fail after the work fails now."""
    from colme.data.report.output import check_ending

    if plot is None and report is None:
        return
    from colme.lab import plots  # says so if matplotlib is not there

    for path, endings in ((plot, plots.PICTURES), (report, (".html", ".htm"))):
        if path is not None:
            check_ending(Path(path), endings)


def _tell(result: Result) -> None:
    """The honest words."""
    from rich.console import Console
    from rich.table import Table

    from colme.data.report.sentences import headline, sentences

    wide = None if sys.stderr.isatty() else 110
    console = Console(stderr=True, highlight=False, markup=False, width=wide)
    console.print(headline(result), style="bold")
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for topic, words in sentences(result).items():
        table.add_row(topic, words)
    for note in result.summary.notes:
        table.add_row("Note", note)
    console.print(table)


def _title(result: Result) -> str:
    n = len(result.agent)
    return f"The {SHOWN} of {n:,} agents that changed most" if n > SHOWN else ""


def _rows(result: Result) -> list[dict[str, Any]]:
    from colme.data.report.sentences import decimals, most_changed

    digits, flags = decimals(result), result.flag_words()
    chosen = most_changed(result, SHOWN)
    columns = {name: getattr(result, name)[chosen] for name in ("mean", "estimate", "lower", "upper")}
    text = {name: [f"{each:,.{digits}f}" for each in values] for name, values in columns.items()}
    width = max((len(each) for cells in text.values() for each in cells), default=0)
    return [
        {"agent": str(result.agent[a]), "n": int(result.n[a])}
        | {name: cells[k].rjust(width) for name, cells in text.items()}
        | {"group": int(result.group[a]) if result.group[a] >= 0 else None}
        | {"borrowed": round(float(result.borrowed[a]), 2), "flags": str(flags[a])}
        for k, a in enumerate(chosen)
    ]


def _typed(context: click.Context) -> str:
    """The command line that made the page."""
    words = ["colme", "estimate", str(context.params["file"])]
    for option in context.command.params:
        given = context.params.get(option.name or "")
        if isinstance(option, click.Option) and not option.is_flag and given != option.get_default(context):
            for each in given if isinstance(given, tuple) else (given,):
                words += [option.opts[-1] if len(option.opts) > 1 else option.opts[0], str(each)]
    return shlex.join(words)
