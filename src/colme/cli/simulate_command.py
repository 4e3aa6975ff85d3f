"""`colme simulate`: simulate methods from flags alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from colme.cli.fields import SectionedCommand, field_flags
from colme.cli.output import emit, format_option, say, wide_option
from colme.cli.parameters import FILE, METHOD, MOST_JOBS, Texts, Whole, option, parse_seeds, switch
from colme.lab.planning import Planned
from colme.lab.quick import DEFAULTS, last_rows, simulate_flags, trace_rows
from colme.lab.watch import feed_of, fitting_messages, shown_together
from colme.live.page import write_page
from colme.metrics import spare_metrics
from colme.support.files import check_writable

SPARE = (*spare_metrics(1), "seeds", *spare_metrics(2))
"""Columns that a narrow terminal leaves out first."""


@click.command("simulate", cls=SectionedCommand)
@option("-m", "--method", "methods", "A method; repeat for more (default: cl-colme and local; see colme list methods).",
        type=METHOD, multiple=True, metavar="NAME")  # fmt: skip
@option("--seeds", "Number of seeds, or a list of seeds.", type=parse_seeds, default="1", metavar="N|A,B,...")
@option("-j", "--jobs", "Seeds at once (default: number of cores).", type=Whole(1, MOST_JOBS), metavar="N")
@option("--threads", "Threads that share each seed, for 100,000 agents and more (default: 1).",
        type=Whole(1, MOST_JOBS), metavar="N")  # fmt: skip
@switch("--trace", "Print every recorded step, not only the last one.")
@option("--live", "Also write a page that plays the run of the first seed: estimates, graph, errors.", type=FILE)
@option("--frames", "Moments in that page (default: up to 120, as fit into 3 MB).",
        type=Whole(2, 1000), metavar="N")  # fmt: skip
@switch("-q", "--quiet", "Do not show progress.")
@wide_option
@format_option
@field_flags
def command(
    methods: Texts, seeds: Any, jobs: int | None, threads: int | None, trace: bool, live: str | None,
    frames: int | None, quiet: bool, wide: bool, form: str, changes: dict[str, Any],
) -> None:  # fmt: skip
    """Simulate methods from flags alone and print their errors.

    All methods see the same samples and start on the same graphs. Every field of a scenario, of the set-up and of a
    method is a flag; several values (--level agent,edge) make a sweep. A combination that cannot run is skipped.
    Nothing is stored: for that, write an experiment file and use `colme run`.

    \b
    Examples:
      colme simulate --method cl-colme --method c-colme --means 1.2,2 --seeds 10
      colme simulate --steps 500 --delta 0.01,0.1 --format csv
      colme simulate --n-agents 100 --graph sensors.edges --steps 500
      colme simulate --n-agents 1000000 --steps 100 --record 10 --threads 2
      colme simulate --method cl-colme --method census --live page.html
      colme simulate --clock gossip,global --record 100 --trace --format csv
    """
    if frames is not None and live is None:
        raise click.UsageError(f"--frames {frames} is for a page that plays a run. Add --live page.html.")
    if live is not None:
        check_writable(Path(live))
    traces = simulate_flags(methods or DEFAULTS["methods"], seeds, changes, jobs=jobs, threads=threads,
                            progress=not quiet, say=say)  # fmt: skip
    emit(trace_rows(traces) if trace else last_rows(traces), form, spare=SPARE, wide=wide)
    if live is not None:
        _write_live(Path(live), [planned for planned, found in traces if found], frames)


def _write_live(path: Path, planned: list[Planned], frames: int | None) -> None:
    if not planned:
        say(f"{path} is not written: no combination could run.")
        return
    shown = shown_together(planned)
    if len(shown) < len(planned):
        names = ", ".join(each.label for each in shown)
        say(f"The page shows {len(shown)} of {len(planned)} combinations, the first ones on the same samples: {names}.")
    feed = feed_of(shown, frames=frames, title=", ".join(dict.fromkeys(each.label for each in shown)))
    messages = fitting_messages(feed) if frames is None else feed.messages()
    page = write_page(path, messages, title=feed.title)
    size = f"{page.stat().st_size / 1e6:.1f} MB"
    say(f"{page} ({size}) plays the run of seed {shown[0].spec.seed}. Open it in a browser.")
