"""`colme estimate`: read a table, estimate, print, and write files, a figure and a page."""

from __future__ import annotations

import os
import re
import shlex
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from colme.cli._agent_table import print_agents
from colme.cli._row_progress import row_progress
from colme.cli.output import format_option, say
from colme.errors import RunError

if TYPE_CHECKING:
    from colme.data.report.result import Result

SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A number in units of the time column, or a number with a unit."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(s|min|h|d|w)?\s*", str(value))
        if match is None or float(match[1]) == 0:
            self.fail(f"{value!r} is not a duration. Try 7d, 12h, 30min, 90s, or a number in units of the times.")
        return float(match[1]) * SECONDS.get(match[2], 1)


@click.command("estimate")
@click.argument("file", type=click.Path())
@click.option("--agent", multiple=True, metavar="COLUMN",
              help="Column that identifies the agent; repeat for several columns.")  # fmt: skip
@click.option("--value", metavar="COLUMN", help="Column of samples.")
@click.option("--time", metavar="COLUMN",
              help="Column of times: dates or numbers. Methods are then compared by how well earlier samples predict "
                   "later ones.")  # fmt: skip
@click.option("--weight", metavar="COLUMN", help="Column of weights: a sample of weight w counts as w samples.")
@click.option("--label", metavar="COLUMN", help="Column of known groups, one per agent.")
@click.option("--covariate", "covariates", multiple=True, metavar="COLUMN",
              help="Column that may predict an agent's mean; repeat for more. 'log n' is the logarithm of its number "
                   "of samples.")  # fmt: skip
@click.option("--method", default="auto", show_default=True, metavar="NAME",
              help="auto (by cross-validation), local, pooled, shrinkage, census, one-hop or cl-colme.")  # fmt: skip
@click.option("--groups", type=click.IntRange(min=1), metavar="N",
              help="Largest number of groups to report (default: no limit; 1: do not search for groups).")  # fmt: skip
@click.option("--sigma", type=click.FloatRange(min=0, min_open=True), metavar="NUMBER",
              help="Standard deviation of a sample, if known.")  # fmt: skip
@click.option("--half-life", type=Duration(), metavar="TIME",
              help="The weight of a sample halves in this time: 7d, 12h, ...")  # fmt: skip
@click.option("--level", type=click.FloatRange(0, 1, True, True), default=0.9, show_default=True, metavar="SHARE",
              help="Level of the intervals.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random folds.")
@click.option("-o", "--output", "outputs", multiple=True, type=click.Path(dir_okay=False), metavar="FILE",
              help="Write all agents to a .parquet, .csv or .json file; repeat for more files.")  # fmt: skip
@click.option("--plot", type=click.Path(dir_okay=False), metavar="FILE",
              help="Write a figure: .svg, .pdf or .png.")  # fmt: skip
@click.option("--report", type=click.Path(dir_okay=False), metavar="FILE", help="Write a page: .html.")
@click.option("-q", "--quiet", is_flag=True, help="Print only data: no progress and no messages.")
@click.option("--wide", is_flag=True, help="Show all columns of the table, however wide it becomes.")
@format_option
@click.pass_context
def command(
    context: click.Context, /, file: str, agent: tuple[str, ...], value: str | None, outputs: tuple[str, ...],
    plot: str | None, report: str | None, quiet: bool, wide: bool, form: str, **options: Any,
) -> None:  # fmt: skip
    """Estimate every agent's mean from a table of samples, with those of other agents where that helps.

    FILE is CSV or TSV (also compressed: .gz), Parquet (also a folder), Arrow, or - for CSV from stdin: one row per
    sample, in any order. Similar agents learn from each other. Cross-validation measures whether that helps; if it
    shows no gain, every agent keeps its own mean, except in small tables where it cannot tell: these use shrinkage.
    Rows without a value are left out and counted.

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
        raise click.UsageError("--half-life needs the time of every sample. Try --time COLUMN.")
    _check_targets(file, [path for path in (*outputs, plot, report) if path is not None])
    for path in outputs:
        output.check_ending(Path(path))
    _check_figures(plot, report)
    from colme.data.estimate import estimate
    from colme.data.read.batches import pyarrow

    pyarrow.enable_signal_handlers(False)  # Arrow's own would lose a Ctrl-C that comes while it opens a table
    try:
        with row_progress(quiet) as progress:
            result: Result = estimate(
                file, agent=agent if len(agent) > 1 else agent[0], value=value, progress=progress, **options
            )
    except KeyboardInterrupt:
        if file != "-":
            raise
        say("Interrupted.")
        os._exit(130)  # a thread of Arrow may be reading stdin, and would crash the interpreter as that shuts down
    written = [output.save_result(result, path) for path in outputs]
    if plot is not None:
        from colme.lab import plots

        written.append(plots.write_figure(plots.plot_estimates(result), plot))
    if report is not None:
        from colme.lab.pages.estimate_page import write_estimate_page

        written.append(write_estimate_page(result, report, command=command_line(context)))
    if not quiet:
        _print_sentences(result)
    if form == "json":
        click.echo(output.json_of(result), nl=False)
    elif form == "csv":
        click.echo(output.csv_of(result), nl=False)
    else:
        left_out = print_agents(result, wide=wide)
        if left_out and not quiet:
            say(f"Not shown: {', '.join(left_out)}. Show all columns with --wide.")
    if written and not quiet:
        say("Written: " + ", ".join(map(str, written)))


def _missing(file: str, agent: tuple[str, ...], value: str | None) -> click.UsageError:
    """The error for a missing --agent or --value, with the columns of the file."""
    from colme.data.read.sources import open_source

    wanted = [flag for flag, given in (("--agent", agent), ("--value", value)) if not given]
    source = None if file == "-" else open_source(file)
    names = (source and source.columns) or []
    more = ", ..." if len(names) > 20 else ""
    there = f" The columns of {source.name} are {', '.join(names[:20])}{more}." if source and names else ""
    flags = " ".join(f"{flag} COLUMN" for flag in wanted)
    example = f"colme estimate {shlex.quote(file)} {flags}"
    return click.UsageError(f"{' and '.join(wanted)} must name a column.{there} Try: {example}")


def _check_targets(file: str, targets: list[str]) -> None:
    """Refuse to overwrite the table, to write two outputs to one file, or to write to a folder that does not exist."""
    taken = {Path(file).resolve(): "the input table"} if file != "-" else {}
    for target in targets:
        place = Path(target).resolve()
        if place in taken:
            raise click.UsageError(f"{target} is {taken[place]} and would be overwritten. Choose another name.")
        if not place.parent.is_dir():
            raise RunError(
                f"cannot write {target}: there is no folder {Path(target).parent}. Choose a folder that exists, or "
                "create it first."
            )
        taken[place] = "given twice"


def _check_figures(plot: str | None, report: str | None) -> None:
    """Refuse a figure or page that could not be written, before the work begins."""
    from colme.data.report.output import check_ending

    if plot is None and report is None:
        return
    from colme.lab import plots  # fails with a hint if matplotlib is missing

    for path, endings in ((plot, plots.PICTURES), (report, (".html", ".htm"))):
        if path is not None:
            check_ending(Path(path), endings)


def _print_sentences(result: Result) -> None:
    from rich.console import Console
    from rich.table import Table

    from colme.data.report.sentences import headline, safe_name, sentences

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 110
    console.print(headline(result), style="bold")
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for topic, sentence in sentences(result).items():
        table.add_row(topic, safe_name(sentence, 10_000))
    for note in result.summary.notes:
        table.add_row("Note", safe_name(note, 10_000))
    console.print(table)


def command_line(context: click.Context) -> str:
    """The command with all options that differ from their defaults, quoted for a shell: running it repeats the work."""
    words = ["colme", "estimate"]
    file = str(context.params["file"])
    if not file.startswith("-") or file == "-":
        words.append(file)
    for option in context.command.params:
        given = context.params.get(option.name or "")
        if not isinstance(option, click.Option) or given is None or given == option.get_default(context):
            continue
        flag = option.opts[-1]
        if option.is_flag:
            words.append(flag)
        for each in () if option.is_flag else given if isinstance(given, tuple) else (given,):
            words += [flag, f"{Decimal(repr(each)):f}" if isinstance(option.type, Duration) else str(each)]
    if file.startswith("-") and file != "-":
        words += ["--", file]
    return shlex.join(words) + (" < table.csv  # the table was read from standard input" if file == "-" else "")
