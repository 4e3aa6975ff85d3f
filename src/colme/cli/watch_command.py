"""`colme watch`: a simulation in the browser, while it runs."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import webbrowser
from collections.abc import Iterator
from typing import Any

import click

from colme.cli.fields import SectionedCommand, field_flags
from colme.cli.output import say
from colme.cli.parameters import EXPERIMENT, METHOD, SEED, absolute_graphs, known_source, results_option
from colme.lab.quick import DEFAULTS, flags_experiment
from colme.lab.watch import WatchSession
from colme.lab.watched_run import experiment_to_watch, watched_run
from colme.live.broadcast import Broadcast
from colme.live.server import LiveServer


@click.command("watch", cls=SectionedCommand)
@click.argument("experiment", type=EXPERIMENT, required=False)
@click.option("-m", "--method", "methods", type=METHOD, multiple=True, metavar="NAME",
              help="A method; repeat for a second one (default: the experiment's, or cl-colme and local).")  # fmt: skip
@click.option("--seed", type=SEED, metavar="N", help="The seed (default: the experiment's first one, or 0).")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="The port (default: a free one).")
@click.option("--open/--no-open", "opens", default=None,
              help="Open a browser (default: if the address is printed to a terminal).")  # fmt: skip
@results_option
@click.option("-q", "--quiet", is_flag=True, help="Print the address and nothing else.")
@field_flags
def command(
    experiment: str | None, methods: tuple[str, ...], seed: int | None, port: int, opens: bool | None, results: str,
    quiet: bool, changes: dict[str, Any],
) -> None:  # fmt: skip
    """Watch a simulation in the browser while it runs: estimates, edges and errors, step by step.

    Without an experiment, the flags alone say what runs, as for `colme simulate`. Two methods run side by side on the
    same samples. On the page a run can be paused, and restarted with other values. The address, which is printed, is
    for this machine alone and holds a secret; Ctrl-C ends it. Nothing is stored.

    \b
    Examples:
      colme watch cl_colme
      colme watch --method cl-colme --method census --n-agents 2000 --means 0,1
      colme watch my.toml --method c-colme --sigma 0.5 --port 8050 --no-open
    """
    changes = absolute_graphs(changes)
    if experiment is None:
        made = flags_experiment(methods or DEFAULTS["methods"], [seed or 0], changes, name="watch")
    else:
        changes |= {} if seed is None else {"seeds": [seed]}
        made = experiment_to_watch(known_source(experiment, results), methods, changes)
    run = watched_run(made, chosen=experiment is None or bool(methods))
    broadcast = Broadcast()
    session = WatchSession(run, broadcast)
    with _until_signal() as stopped, LiveServer(broadcast, session.control, port=port) as server, session:
        click.echo(server.url)
        sys.stdout.flush()
        if not quiet:
            say(" ".join([run.about, "Open the address in a browser. Ctrl-C ends it."]).strip())
        if sys.stdout.isatty() if opens is None else opens:
            webbrowser.open(server.url)
        while not stopped.wait(0.5):  # in turns, for on Windows no signal interrupts a wait
            pass


@contextlib.contextmanager
def _until_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set: the normal end, so there is no error."""
    stopped = threading.Event()
    before: dict[int, Any] = {
        number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
