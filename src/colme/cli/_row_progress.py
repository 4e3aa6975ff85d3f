"""Progress of `colme estimate` on stderr: a bar on a terminal after one second, elsewhere a line every ten seconds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from colme.cli.output import say

PATIENCE = 1.0
"""Seconds before the bar appears."""
SAY_EVERY = 10.0


class RowProgress:
    """Called with (done, total): first for rows that are read, then for the splits of the cross-validation."""

    def __init__(self, bar: Callable[[], Any] | None):
        self._make_bar = bar
        self._bar: Any = None
        self._task: Any = None
        self._begun = self._said = time.monotonic()
        self._done, self._what = -1, "reading rows"

    def __call__(self, done: int, total: int | None) -> None:
        if done < self._done:
            self._what = "comparing methods"
        self._done, now = done, time.monotonic()
        if self._make_bar is None:
            if now - self._said > SAY_EVERY:
                self._said = now
                say(f"{self._what}: {done:,}" + (f" of {total:,}" if total else ""))
            return
        if self._bar is None and now - self._begun >= PATIENCE:
            self._bar = self._make_bar()
            self._bar.start()
            self._task = self._bar.add_task(self._what)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, description=self._what)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextlib.contextmanager
def row_progress(quiet: bool) -> Iterator[RowProgress | None]:
    """A function to report progress to, or None if `quiet`."""
    if quiet:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True)

    def bar() -> Any:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("[bold]{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(),
                   TimeRemainingColumn())  # fmt: skip
        return Progress(*columns, console=console, transient=True)

    progress = RowProgress(bar if console.is_terminal else None)
    try:
        yield progress
    finally:
        progress.stop()
