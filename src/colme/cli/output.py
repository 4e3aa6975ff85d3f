"""What commands print: `say` messages on stderr, `emit` data on stdout, `live_rows` a table that is redrawn in place,
`live_page` a page in the browser, `row_progress` how far the reading of a table is. Loads little, because a running
device imports it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from colme.cli.parameters import option, switch
from colme.errors import printable
from colme.support.tables import Row, csv_of_rows, json_line, json_of, print_table, terminal_table, text_of

if TYPE_CHECKING:
    from colme.live.broadcast import Broadcast
    from colme.live.server import Control

FORMATS = ("table", "json", "csv")
_RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
"""Where launchers of MPI tell a process its rank, even one that finds no MPI."""
PATIENCE = 1.0
"""Seconds before the bar of `row_progress` appears."""
SAY_EVERY = 10.0
"""Seconds between two of its lines, where there is no terminal."""
_heard = True

format_option = option("--format", "form", "Format of the output.", type=click.Choice(FORMATS), default="table")
wide_option = switch("--wide", "Show all columns of a table, however wide it becomes.")


def only_first_rank_speaks() -> None:
    """Of processes that share their work as ranks of MPI, let the first one alone print messages."""
    global _heard
    _heard = next((os.environ[name] for name in _RANK if name in os.environ), "0") == "0"


def say(text: str) -> None:
    """Print a message on stderr, its lines `printable`. On a terminal, long lines are broken between words."""
    if not _heard:
        return
    text = "\n".join(map(printable, text.split("\n")))
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(_wrapped(line, width) for line in text.split("\n"))
    click.echo(text, err=True)


def _wrapped(line: str, width: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def emit(rows: Sequence[Row], form: str, *, title: str = "", spare: Sequence[str] = (), wide: bool = True) -> None:
    """Print rows of data as a table, as JSON or as CSV.

    A table that is not `wide` leaves out columns until it fits into the terminal: those that `spare` names, in this
    order, as many as necessary. JSON and CSV have all columns."""
    if form == "json":
        click.echo(json_of(rows), nl=False)
    elif form == "csv":
        click.echo(csv_of_rows(rows), nl=False, color=True)  # else click would take escape sequences out of names
    elif rows:
        say_left_out(print_table(rows, title, spare=[((name,), 0) for name in spare], wide=wide))
    else:
        say("Nothing to show.")


def say_left_out(columns: Sequence[str]) -> None:
    """Name the columns that did not fit, if there are any."""
    if columns:
        say(f"Not shown: {', '.join(name.replace('_', ' ') for name in columns)}. Show all columns with --wide.")


@contextlib.contextmanager
def live_rows(*, lines: bool = False, words: bool = False) -> Iterator[Callable[[Sequence[Row], Row | None], None]]:
    """A function that shows rows in place of the last ones: as a live table on a terminal, else as a line per row. A
    summary is the title of the table; lines show it alone. `lines`: JSON lines; `words`: on stderr, because data
    follows on stdout."""
    stream = sys.stderr if words else sys.stdout
    if lines or not stream.isatty():

        def print_rows(rows: Sequence[Row], summary: Row | None) -> None:
            for row in rows if summary is None else [summary]:
                click.echo(json_line(row) if lines else _line(row), file=stream)

        yield print_rows
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream, highlight=False, markup=False)
    with Live(console=console, auto_refresh=False) as live:

        def redraw(rows: Sequence[Row], summary: Row | None) -> None:
            live.update(terminal_table(rows, _line(summary or {})), refresh=True)

        yield redraw


def _line(row: Row) -> str:
    return "  ".join(f"{key.replace('_', ' ')} {text_of(value)}" for key, value in row.items())


@contextlib.contextmanager
def live_page(
    broadcast: Broadcast, control: Control | None = None, *, port: int, opens: bool | None, about: str
) -> Iterator[None]:
    """Serve the page of a broadcast until Ctrl-C or SIGTERM, its normal end. The address goes to stdout.

    opens  open a browser; None: if stdout is a terminal
    about  words for stderr
    """
    import signal
    import webbrowser

    from colme.live.server import LiveServer

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with LiveServer(broadcast, control, port=port) as server:
            click.echo(server.url)
            sys.stdout.flush()
            if about:
                say(about)
            if sys.stdout.isatty() if opens is None else opens:
                webbrowser.open(server.url)
            yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def row_progress(quiet: bool) -> Iterator[Callable[[int, int | None], None] | None]:
    """A function to call with (done, total), first for rows that are read, then for the splits of the cross-validation;
    None if `quiet`. On stderr: a bar on a terminal after one second, elsewhere a line every ten seconds."""
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("[bold]{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    bar = Progress(*columns, console=console, transient=True)
    task, what, last = bar.add_task("", start=False), "reading rows", -1
    begun = said = time.monotonic()

    def progress(done: int, total: int | None) -> None:
        nonlocal what, last, said
        what = "comparing methods" if done < last else what
        last, now = done, time.monotonic()
        if console.is_terminal and now - begun >= PATIENCE:
            bar.start()
            bar.start_task(task)
            bar.update(task, completed=done, total=total, description=what)
        elif not console.is_terminal and now - said > SAY_EVERY:
            said = now
            say(f"{what}: {done:,}" + (f" of {total:,}" if total else ""))

    try:
        yield progress
    finally:
        if bar.live.is_started:
            bar.stop()
