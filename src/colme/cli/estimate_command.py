"""`colme estimate`: read a table, estimate, print, and write files, a figure and a page."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from colme.cli.output import format_option, row_progress, say, say_left_out, wide_option
from colme.cli.parameters import FILE, PATH, SEED, Number, Texts, Whole, option, switch
from colme.data.read.format import DECIMALS, THOUSANDS, TableFormat
from colme.errors import RunError, printable
from colme.support.tables import csv_of, print_table

if TYPE_CHECKING:
    from colme.data.report.result import Result

SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}


def duration(text: str) -> float | datetime.timedelta:
    """A number in units of the time column, or a timedelta if it has a unit."""
    if match := re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(s|min|h|d|w)?\s*", text):
        number, unit = float(match[1]), match[2]
        with contextlib.suppress(OverflowError):
            return datetime.timedelta(seconds=number * SECONDS[unit]) if unit else number
    raise click.BadParameter(f"{text!r} is not a duration. Try 7d, 12h, 30min, 90s, or a number in units of the times.")


_FORMAT = (
    option("--decimal", "Decimal sign of numbers in text: --decimal , for 12,5.",
           type=click.Choice(DECIMALS), default=".", metavar="SIGN"),
    option("--thousands", "Sign between groups of three digits: --thousands . for 1.234; or , or ' ' or \"'\".",
           type=click.Choice(THOUSANDS), metavar="SIGN"),
    option("--encoding", "Encoding of a text file (default: UTF-8): --encoding latin-1, cp1252, utf-16, ...",
           metavar="NAME"),
    option("--sheet", "Sheet of a spreadsheet (default: the first one that is not empty).", metavar="NAME"),
)  # fmt: skip
_COLUMNS = {
    "--value": "Column of samples: numbers, or yes and no.",
    "--time": "Column of times: dates or numbers. Methods are then compared by how well earlier samples predict later "
    "ones.",
    "--weight": "Column of weights: a sample of weight w counts as w samples.",
    "--mean": "Column of means, for a table of summaries; with --se.",
    "--se": "Column of the standard errors of these means.",
    "--n": "Column of the numbers of samples behind these means, if known.",
    "--successes": "Column of successes, for a table of rates; with --trials.",
    "--trials": "Column of trials.",
    "--exposure": "Column of exposures (person-years, hours, area) if --value counts events.",
    "--label": "Column of known groups, one per agent.",
}


def table_format_options(command: Any) -> Any:
    """Options that say how a table is written."""
    for each in reversed(_FORMAT):
        command = each(command)
    return command


def _column_options(command: Any) -> Any:
    for flag, words in reversed(_COLUMNS.items()):
        command = option(flag, words, metavar="COLUMN")(command)
    return command


@click.command("estimate")
@click.argument("files", type=PATH, nargs=-1, required=True, metavar="FILE...")
@option("--agent", "Column that identifies the agent; repeat for several columns.", multiple=True, metavar="COLUMN")
@_column_options
@option("--covariate", "covariates",
        "Column that may predict an agent's mean; repeat for more. 'log n' is the logarithm of its number of "
        "samples.",
        multiple=True, metavar="COLUMN")  # fmt: skip
@option("--method",
        "auto (by cross-validation), local, pooled, shrinkage, close, census, partition, one-hop or cl-colme.",
        default="auto", metavar="NAME")  # fmt: skip
@option("--groups", "Largest number of groups to report (default: no limit; 1: do not search for groups).",
        type=Whole(1, 10**6), metavar="N")  # fmt: skip
@option("--sigma", "Standard deviation of a sample, if known.", type=Number(min=0, min_open=True), metavar="NUMBER")
@option("--half-life",
        "The weight of a sample halves in this time: 7d, 12h, 30min, 90s for dates; a plain number if the times are "
        "plain numbers.",
        type=duration, metavar="TIME")  # fmt: skip
@option("--level", "Level of the intervals.", type=Number(0, 1, True, True), default=0.9, metavar="SHARE")
@option("--above", "Add the probability that an agent's mean is above this number, as a column; repeat for more.",
        multiple=True, type=Number(), metavar="NUMBER")  # fmt: skip
@option("--top",
        "Add the expected rank of every agent (1: the largest mean), its interval, and the probability of being "
        "among the first K, as columns, and show these K.",
        type=Whole(1, 10**9), metavar="K")  # fmt: skip
@option("--explain", "Explain the estimate of this agent in a few sentences; repeat for more.",
        multiple=True, metavar="AGENT")  # fmt: skip
@switch("--independent", "The samples of an agent are independent: do not look in their order for dependence.")
@option("--seed", "Seed of the random folds.", type=SEED, default=0)
@option("--time-format", "How dates in text are written: --time-format '%d.%m.%Y %H:%M' for 31.12.2024 18:30.",
        metavar="FORMAT")  # fmt: skip
@table_format_options
@option("-o", "--output", "outputs", "Write all agents to a .parquet, .csv or .json file; repeat for more files.",
        multiple=True, type=FILE)  # fmt: skip
@switch("--escape-formulas", "In CSV, for spreadsheets: an apostrophe before names that begin like a formula.")
@option("--plot", "Write a figure: .svg, .pdf or .png.", type=FILE)
@option("--report", "Write a page: .html.", type=FILE)
@switch("-q", "--quiet", "Print only data: no progress and no messages.")
@wide_option
@format_option
@click.pass_context
def command(
    context: click.Context, /, files: Texts, agent: Texts, value: str | None,
    above: tuple[float, ...], top: int | None, explain: Texts, outputs: Texts, plot: str | None,
    report: str | None, quiet: bool, wide: bool, form: str, escape_formulas: bool, **options: Any,
) -> None:  # fmt: skip
    """Estimate every agent's mean from a table of samples, with those of other agents where that helps.

    FILE is CSV, TSV or JSON lines (also compressed: .gz), Parquet (also a folder), Arrow, a spreadsheet (.xlsx, .ods),
    or - for CSV from stdin: one row per sample, in any order. Values are numbers, or yes and no. Similar agents learn
    from each other. Cross-validation measures whether that helps; if it shows no gain, every agent keeps its own mean,
    except in small tables where it cannot tell: these use shrinkage. Rows without a value are left out and counted.
    Files of `colme moments` are merged, and need no --agent and --value.

    \b
    Examples:
      colme estimate readings.parquet --agent sensor --value temperature
      colme estimate log.csv --agent user --value x --time at --half-life 30d
      colme estimate flights.csv --agent carrier --agent dest \\
          --value arr_delay -o routes.csv --report routes.html
      colme estimate sales.csv --agent store --value revenue --covariate area \\
          --covariate "log n" --top 10 --above 5000 --explain "Main St"
      colme estimate trials.csv --agent study --mean effect --se se
      colme estimate batting.csv --agent player --successes hits --trials at_bats
      colme estimate claims.csv --agent region --value claims --exposure years
      colme estimate umsatz.csv --agent Filiale --value Umsatz \\
          --decimal , --thousands . --encoding latin-1
      colme estimate north.arrow south.arrow  # written by colme moments
      zcat log.csv.gz | colme estimate - --agent user --value x --format json
    """
    from colme.data.report import output

    file = files[0]
    merged = _are_moments(files)
    summaries = options["mean"] is not None or options["successes"] is not None
    if not merged and (not agent or (value is None and not summaries)):
        raise _missing(file, agent, value, TableFormat(*(options[name] for name in TableFormat._fields)))
    if options["half_life"] is not None and options["time"] is None:
        raise click.UsageError("--half-life needs the time of every sample. Try --time COLUMN.")
    targets: list[tuple[str | None, tuple[str, ...]]] = [(path, output.ENDINGS) for path in outputs]
    if plot is not None or report is not None:
        from colme.lab import plots  # fails with a hint if matplotlib is missing

        targets += [(plot, plots.PICTURES), (report, (".html", ".htm"))]
    check_targets(files, targets)
    from colme.data.estimate import estimate
    from colme.data.read.batches import pyarrow

    pyarrow.enable_signal_handlers(False)  # Arrow's own would lose a Ctrl-C that comes while it opens a table
    try:
        with row_progress(quiet) as progress:
            source, columns = list(files) if merged else file, agent if len(agent) > 1 else "".join(agent) or None
            result: Result = estimate(source, agent=columns, value=value, progress=progress, **options)
    except KeyboardInterrupt:
        if file != "-":
            raise
        say("Interrupted.")
        os._exit(130)  # a thread of Arrow may be reading stdin, and would crash the interpreter as that shuts down
    explained = [result.explain(each) for each in explain]
    if above or top is not None:
        from colme.data.report.questions import with_answers

        result = with_answers(result, above, top)
    written = [output.save_result(result, path, escape_formulas=escape_formulas) for path in outputs]
    if plot is not None:
        written.append(plots.write_figure(plots.plot_estimates(result), plot))
    if report is not None:
        from colme.lab.estimate_page import write_estimate_page

        typed = shlex.join(["colme", *context.obj]) + (" < table.csv" if file == "-" else "")
        written.append(write_estimate_page(result, report, command=typed))
    if not quiet:
        _print_sentences(result, explained)
    else:
        for each in explained:  # it was asked for
            say(each)
    if form == "json":
        click.echo(output.json_of(result), nl=False)
    elif form == "csv":
        click.echo(csv_of(result.to_columns(), escape_formulas=escape_formulas), nl=False)
    else:
        left_out = print_agents(result, wide=wide, top=top)
        say_left_out(() if quiet else left_out)
    if written and not quiet:
        say("Written: " + ", ".join(map(str, written)))


def _missing(file: str, agent: Texts, value: str | None, form: TableFormat) -> click.UsageError:
    """The error for a missing --agent or --value, with the columns of the file."""
    from colme.data.read.sources import open_source

    wanted = [flag for flag, given in (("--agent", agent), ("--value", value)) if not given]
    source = None if file == "-" else open_source(file, form.checked())
    names = (source and source.columns) or []
    more = ", ..." if len(names) > 20 else ""
    there = f" The columns of {source.name} are {', '.join(names[:20])}{more}." if source and names else ""
    flags = " ".join(f"{flag} COLUMN" for flag in wanted)
    example = f"colme estimate {shlex.quote(file)} {flags}"
    return click.UsageError(f"{' and '.join(wanted)} must name a column.{there} Try: {example}")


def _are_moments(files: Texts) -> bool:
    """Whether the files hold moments; several files must."""
    from colme.data.partials import read_moments_file

    found = [read_moments_file(file) is not None for file in files]
    if len(files) > 1 and not all(found):
        other = files[found.index(False)]
        raise click.UsageError(
            f"{other} does not hold moments: several files must be written by colme moments. Try one table, a folder "
            f"of Parquet files, or: colme moments {shlex.quote(other)} --agent COLUMN --value COLUMN -o part.arrow"
        )
    return all(found)


def check_targets(files: Texts, targets: Iterable[tuple[str | None, tuple[str, ...]]]) -> None:
    """Refuse, before the work, to overwrite the table, to write two outputs to one file, or to write to a folder that
    does not exist.

    targets  files to write, None if there is none, with the endings that they may have
    """
    from colme.data.report.output import check_ending

    taken = {Path(file).resolve(): "the input table" for file in files if file != "-"}
    for target, endings in targets:
        if target is None:
            continue
        check_ending(Path(target), endings)
        place = Path(target).resolve()
        if place in taken:
            raise click.UsageError(f"{target} is {taken[place]} and would be overwritten. Choose another name.")
        if not place.parent.is_dir():
            raise RunError(
                f"cannot write {target}: there is no folder {Path(target).parent}. Choose a folder that exists, or "
                "create it first."
            )
        taken[place] = "given twice"


def print_agents(result: Result, *, wide: bool, top: int | None = None) -> list[str]:
    """Print the agents that changed most, or the first if none changed; returns the columns that did not fit.

    wide  all columns, however long the lines become
    top   print the agents that are most probably among the first so many, if the result has their ranks
    """
    from colme.data.report.output import LISTED, agent_rows
    from colme.data.report.sentences import any_changed, most_changed

    n, agents, title = len(result.agent), most_changed(result, LISTED), ""
    if top is not None:
        agents = np.lexsort((result.answers["rank"], -result.answers[f"top_{top}"]))[:top].tolist()
        title = f"The {top:,} of {n:,} agents that most probably have the {top:,} largest means" if top < n else ""
    elif n > LISTED:
        title = f"The {LISTED} of {n:,} agents that changed most"
        title = title if any_changed(result) else f"The first {LISTED} of {n:,} agents"
    rows = agent_rows(result, agents)
    bounds = ("rank_lower", "rank_upper")
    asked = [name for name in result.answers if name not in bounds]
    spare: list[tuple[tuple[str, ...], int]] = [((name,), 28) for name in ("probability", "borrowed", "flags")]
    spare += [(("group",), 12), (("lower", "upper"), 12)]
    if asked:
        spare += [(names, 12) for names in (bounds, ("mean",), ("n",), *((name,) for name in reversed(asked)))]
    return print_table(rows, title, spare=spare, wide=wide, words=("agent", "flags"), cut="agent")


def _print_sentences(result: Result, explained: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from colme.data.report.sentences import headline, sentences

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 110
    console.print(printable(headline(result)), style="bold")
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    notes = (("Note", note) for note in result.summary.notes)
    for topic, sentence in (*sentences(result).items(), *notes, *(("Explanation", each) for each in explained)):
        table.add_row(topic, printable(sentence))
    console.print(table)
