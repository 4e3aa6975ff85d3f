"""Live tables: rows that are redrawn in place on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Protocol

import click

from colme.cli.output import plain_row, table_of
from colme.lab.text import Row, text_of

_STRIP = (12, 40)
"""Smallest and largest width of the picture in a row, in characters."""
_TABLE = 82
"""Characters of the terminal that are reserved for the other columns."""


class Show(Protocol):
    def __call__(self, rows: Sequence[Row], summary: Row | None = None) -> None:
        """Show rows in place of the last ones. A summary is the title of the table; plain lines show it alone."""


@contextlib.contextmanager
def live_rows(*, lines: bool = False, words: bool = False) -> Iterator[Show]:
    """A live table on a terminal, with means and estimates as points on a line; elsewhere a line per row. `lines`: JSON
    lines; `words`: on stderr, because data follows on stdout."""
    stream = sys.stderr if words else sys.stdout
    if lines or not stream.isatty():

        def say(rows: Sequence[Row], summary: Row | None = None) -> None:
            for row in rows if summary is None else [summary]:
                click.echo(json.dumps(plain_row(row)) if lines else _line(row), file=stream)

        yield say
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream, highlight=False, markup=False)
    with Live(console=console, auto_refresh=False) as live:

        def update(rows: Sequence[Row], summary: Row | None = None) -> None:
            drawn = with_picture(rows, min(console.width - _TABLE, _STRIP[1]))
            live.update(table_of(drawn, _line(summary or {})), refresh=True)

        yield update


def with_picture(rows: Sequence[Row], room: int) -> list[Row]:
    """The rows with a column of `room` characters that shows all means (o) and estimates (#) on one scale."""
    known = [x for row in rows for key in ("mean", "estimate") if (x := row.get(key)) is not None and math.isfinite(x)]
    if not known or room < _STRIP[0]:
        return list(rows)
    low, high = min(known), max(known)

    def strip(row: Row) -> str:
        line = ["."] * room
        for key, sign in (("mean", "o"), ("estimate", "#")):
            x = row.get(key)
            if x is not None and math.isfinite(x):
                line[round((room - 1) * (x - low) / (high - low)) if high > low else room // 2] = sign
        return "".join(line)

    return [{**row, "mean o, estimate #": strip(row)} for row in rows]


def _line(row: Row) -> str:
    return "  ".join(f"{key.replace('_', ' ')} {text_of(value)}" for key, value in row.items())
