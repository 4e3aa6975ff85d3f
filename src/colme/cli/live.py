"""Rows that change, on a terminal; lines anywhere else."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence

import click

from colme.cli.output import plain_row, table_of
from colme.lab._text import Row, text_of

Show = Callable[[Sequence[Row]], None]


@contextlib.contextmanager
def live_rows(*, lines: bool = False) -> Iterator[Show]:
    """A function that shows rows in place of those before; with `lines`, as JSON lines."""
    if lines:
        yield lambda rows: click.echo("\n".join(json.dumps(plain_row(row)) for row in rows))
    elif not sys.stdout.isatty():
        yield lambda rows: click.echo("\n".join(_line(row) for row in rows))
    else:
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(highlight=False, markup=False), auto_refresh=False) as live:
            yield lambda rows: live.update(table_of(rows), refresh=True)


def _line(row: Row) -> str:
    return "  ".join(f"{key.replace('_', ' ')} {text_of(value)}" for key, value in row.items())
