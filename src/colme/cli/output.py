"""`emit` prints data on stdout (table, JSON, CSV); `say` prints messages on stderr."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from colme.cli.messages import say as say
from colme.errors import printable
from colme.lab.text import Row, text_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FORMATS = ("table", "json", "csv")
LEAST_TEXT = 12
"""Characters below which a column of text is not squeezed, if its text is longer."""

format_option = click.option(
    "--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="Format of the output."
)
wide_option = click.option("--wide", is_flag=True, help="Show all columns of a table, however wide it becomes.")


def emit(rows: Sequence[Row], form: str, *, title: str = "", spare: Sequence[str] = (), wide: bool = True) -> None:
    """Print rows of data as a table, as JSON or as CSV.

    A table that is not `wide` leaves out columns until it fits into the terminal: those that `spare` names, in this
    order, as many as necessary. JSON and CSV have all columns."""
    if form == "json":
        click.echo(json.dumps([plain_row(row) for row in rows], indent=2))
    elif form == "csv":
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        click.echo(buffer.getvalue(), nl=False, color=True)  # else click would take escape sequences out of names
    elif rows:
        _print_table(rows, title, spare, wide)
    else:
        say("Nothing to show.")


def _print_table(rows: Sequence[Row], title: str, spare: Sequence[str], wide: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if wide:
        console.width = max(console.width, _width(console, rows))
    left_out: list[str] = []
    for name in () if wide else spare:
        if _width(console, rows) <= console.width:
            break
        if name in rows[0]:
            if any(row[name] not in ("", None) for row in rows):
                left_out.append(name)
            rows = [{key: value for key, value in row.items() if key != name} for row in rows]
    console.print(table_of(rows, title))
    if left_out:
        say(f"Not shown: {', '.join(name.replace('_', ' ') for name in left_out)}. Show all columns with --wide.")


def _width(console: Console, rows: Sequence[Row]) -> int:
    """Columns of a terminal that the table takes if no line of it is broken."""
    return console.measure(table_of(rows), options=console.options.update(width=10_000)).maximum


def table_of(rows: Sequence[Row], title: str = "") -> Table:
    """At least one row as a rich.table.Table. Numbers are never broken into two lines; text is, between words."""
    from rich import box
    from rich.table import Table

    table = Table(title=printable(title) or None, box=box.SIMPLE_HEAVY, padding=(0, 1), title_justify="left")
    for name in rows[0]:
        number = any(isinstance(row[name], int | float) for row in rows)
        table.add_column(
            printable(name.replace("_", " ")), justify="right" if number else "left", overflow="fold", no_wrap=number,
            min_width=None if number else min(max(len(text_of(row[name])) for row in rows), LEAST_TEXT),
        )  # fmt: skip
    for row in rows:
        table.add_row(*(text_of(value) for value in row.values()))
    return table


def plain_row(row: Row) -> Row:
    """The row with null for NaN and infinity, which JSON does not have."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
