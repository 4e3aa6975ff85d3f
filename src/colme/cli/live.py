"""Rows that change, on a terminal; lines anywhere else."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Protocol

import click

from colme.cli.output import plain_row, table_of
from colme.lab._text import Row, text_of


class Show(Protocol):
    def __call__(self, rows: Sequence[Row], summary: Row | None = None) -> None:
        """Show rows in place of those before. With a summary, that is the title, and all that plain lines say."""


@contextlib.contextmanager
def live_rows(*, lines: bool = False, words: bool = False) -> Iterator[Show]:
    """A live table on a terminal, else a line per row; `lines`: JSON lines; `words`: on stderr, for data follows."""
    stream = sys.stderr if words else sys.stdout
    if lines or not stream.isatty():

        def say(rows: Sequence[Row], summary: Row | None = None) -> None:
            for row in rows if summary is None else [summary]:
                click.echo(json.dumps(plain_row(row)) if lines else _line(row), file=stream)

        yield say
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=stream, highlight=False, markup=False), auto_refresh=False) as live:

        def update(rows: Sequence[Row], summary: Row | None = None) -> None:
            live.update(table_of(rows, _line(summary or {})), refresh=True)

        yield update


def _line(row: Row) -> str:
    return "  ".join(f"{key.replace('_', ' ')} {text_of(value)}" for key, value in row.items())
