"""`colme watch`: a simulation in the browser, while it runs."""

from __future__ import annotations

import threading
from typing import Any

import click

from colme.cli.fields import SectionedCommand, field_flags
from colme.cli.output import live_page
from colme.cli.parameters import EXPERIMENT, METHOD, SEED, Texts, Whole, option, results_option, source_of, switch
from colme.lab.quick import DEFAULTS, flags_experiment
from colme.lab.watch import WatchSession, experiment_to_watch, watched_run
from colme.live.broadcast import Broadcast


@click.command("watch", cls=SectionedCommand)
@click.argument("experiment", type=EXPERIMENT, required=False)
@option("-m", "--method", "methods",
        "A method; repeat for a second one (default: the experiment's, or cl-colme and local).",
        type=METHOD, multiple=True, metavar="NAME")  # fmt: skip
@option("--seed", "The seed (default: the experiment's first one, or 0).", type=SEED, metavar="N")
@option("--port", "The port; 0: a free one.", type=Whole(0, 65535), default=0, metavar="N")
@option("--open/--no-open", "opens", "Open a browser (default: if the address is printed to a terminal).", default=None)
@results_option
@switch("-q", "--quiet", "Print the address and nothing else.")
@field_flags
def command(
    experiment: str | None, methods: Texts, seed: int | None, port: int, opens: bool | None, results: str,
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
    if experiment is None:
        made = flags_experiment(methods or DEFAULTS["methods"], [seed or 0], changes)
    else:
        changes |= {} if seed is None else {"seeds": [seed]}
        made = experiment_to_watch(source_of(experiment, results, shipped_first=True), methods, changes)
    run = watched_run(made, chosen=experiment is None or bool(methods))
    session = WatchSession(run, Broadcast())
    about = "" if quiet else f"{run.about} Open the address in a browser. Ctrl-C ends it.".strip()
    with live_page(session.broadcast, session.control, port=port, opens=opens, about=about), session:
        threading.Event().wait()
