"""Progress of a sweep: runs, steps per second, time left. It is read from the folder, whatever the backend."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from colme.errors import printable
from colme.lab.planning import Planned
from colme.lab.runs.store import RunStore

LOOK_EVERY = 0.25
SAY_EVERY = 10.0
"""Seconds between two lines where there is no terminal."""


class Work(NamedTuple):
    """How far a sweep is."""

    runs_done: int
    runs: int
    running: int
    share: float
    """Of all the work, in agents times steps."""
    steps_per_second: float
    seconds: float
    """Of work: without the start of processes and the compilation of kernels."""
    seconds_left: float | None

    def __str__(self) -> str:
        if self.running == self.runs_done == 0:
            return f"{self.runs} runs, starting"
        left = "" if self.seconds_left is None else f", {duration(self.seconds_left)} left"
        return f"{self.runs_done}/{self.runs} runs, {self.running} going, {self.steps_per_second:,.0f} steps/s{left}"


class _Watcher:
    """Reads how far the runs are. Its clock stands while no run makes steps: workers start, kernels are compiled."""

    def __init__(self, store: RunStore, planned: Sequence[Planned]):
        self.store, self.planned = store, {each.name: each for each in planned}
        self.looked, self.worked = time.monotonic(), 0.0
        self.done: set[str] = set()
        self.before = self.store.steps_done()  # the steps of an earlier session do not count as speed of this one
        self.steps = dict(self.before)  # the last known ones; a file that is just being written cannot be read

    def look(self) -> Work:
        now, before = time.monotonic(), self.before
        self.steps |= self.store.steps_done()
        fresh = {name for name in self.planned if name not in self.done and (self.store.runs / name).exists()}
        self.done |= fresh
        going = [
            name for name in self.planned
            if name not in self.done and self.steps.get(name, 0) != before.get(name, 0)
        ]  # fmt: skip
        if going or fresh:
            self.worked += now - self.looked
        self.looked = now
        total = finished = gained = steps = 0
        for name, each in self.planned.items():
            step = each.spec.steps if name in self.done else self.steps.get(name, 0)
            made = max(step - before.get(name, 0), 0)
            n_agents = each.spec.source.n_agents
            total += each.size
            finished += n_agents * step
            gained += n_agents * made
            steps += made
        # runs are in the order of their seeds: the methods, slow ones and quick ones, take turns
        left = self.worked * (total - finished) / gained if gained > 0.05 * total and self.worked > 1 else None
        speed = steps / max(self.worked, 1e-9)
        return Work(len(self.done), len(self.planned), len(going), finished / total, speed, self.worked, left)


@contextlib.contextmanager
def watch(store: RunStore, planned: Sequence[Planned], tell: Callable[[Work], None]) -> Iterator[None]:
    """Call `tell` with the progress several times a second until the block ends, and once more then."""
    watcher, over = _Watcher(store, planned), threading.Event()

    def loop() -> None:
        while not over.wait(LOOK_EVERY):
            tell(watcher.look())

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        tell(watcher.look())


@contextlib.contextmanager
def show(name: str) -> Iterator[Callable[[Work], None]]:
    """A bar on a terminal's stderr; elsewhere a line every ten seconds."""
    from rich.console import Console

    console, name = Console(stderr=True), printable(name)
    if not console.is_terminal:
        said = time.monotonic()

        def say(work: Work) -> None:
            nonlocal said
            if time.monotonic() - said > SAY_EVERY:
                said = time.monotonic()
                print(f"{name}: {work}", file=sys.stderr, flush=True)

        yield say
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("[bold]{task.description}"), BarColumn(bar_width=30), TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[words]}"),
    )  # fmt: skip
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(name, total=1.0, words="starting")
        yield lambda work: bar.update(task, completed=work.share, words=str(work))


def duration(seconds: float) -> str:
    """5 s, 1 min 2 s or 3 h 4 min."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
