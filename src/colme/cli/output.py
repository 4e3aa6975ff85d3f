"""Data on stdout, words on stderr."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from colme.lab.text import Row, text_of

if TYPE_CHECKING:
    from rich.table import Table

FORMATS = ("table", "json", "csv")

format_option = click.option(
    "--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print the data."
)


def say(text: str) -> None:
    """Words, for people."""
    click.echo(text, err=True)


def emit(rows: Sequence[Row], form: str, *, title: str = "") -> None:
    """Rows of data, for people or for programs."""
    if form == "json":
        click.echo(json.dumps([plain_row(row) for row in rows], indent=2))
    elif form == "csv":
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        click.echo(buffer.getvalue(), nl=False)
    else:
        _print_table(rows, title)


def _print_table(rows: Sequence[Row], title: str) -> None:
    from rich.console import Console

    if not rows:
        say("Nothing to show.")
        return
    wide = None if sys.stdout.isatty() else 160
    Console(width=wide, highlight=False, markup=False).print(table_of(rows, title))


def table_of(rows: Sequence[Row], title: str = "") -> Table:
    """Rows, at least one, as a table of rich."""
    from rich import box
    from rich.table import Table

    table = Table(title=title or None, box=box.SIMPLE_HEAVY, padding=(0, 1), title_justify="left")
    for name in rows[0]:
        number = any(isinstance(row[name], int | float) for row in rows)
        table.add_column(name.replace("_", " "), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(text_of(value) for value in row.values()))
    return table


def plain_row(row: Row) -> Row:
    """NaN and infinity are no JSON."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
