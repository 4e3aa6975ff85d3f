"""colme run"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from colme.cli.fields import SectionedCommand, field_flags
from colme.cli.output import emit, format_option, say
from colme.cli.parameters import EXPERIMENT, known_source, parse_seeds, results_option
from colme.cli.results_output import show_results
from colme.lab.results import experiment_of, is_results
from colme.lab.runs.runner import BACKENDS, Plan, Stopped, carry_out, make_plan, plan_rows


@click.command("run", cls=SectionedCommand)
@click.argument("experiment", type=EXPERIMENT)
@results_option
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Runs at once (default: the cores).")
@click.option("--seeds", metavar="N|A,B,...", help="How many seeds, or which.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--force", is_flag=True, help="Do all runs again.")
@click.option("--backend", type=click.Choice(BACKENDS), default="loky", show_default=True,
              help="Who does the runs: processes here, threads, or a cluster that sees the folder.")  # fmt: skip
@click.option("--scheduler", metavar="ADDRESS", help="Of a dask cluster, such as tcp://host:8786.")
@click.option("--checkpoint-every", type=float, default=30.0, show_default=True, metavar="SECONDS",
              help="A long run can be resumed from its last checkpoint.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@format_option
@field_flags
def command(
    experiment: str, results: str, jobs: int | None, seeds: str | None, dry_run: bool, force: bool, backend: str,
    scheduler: str | None, checkpoint_every: float, quiet: bool, form: str, changes: dict[str, Any],
) -> None:  # fmt: skip
    """Run an experiment: a TOML file, or one that comes with colme by its name.

    Only what is missing is done, in parallel. Ctrl-C is safe at any moment, and so is a crash: run the same command
    again and it goes on where it was. Results are under results/NAME, a folder per run.

    A flag below changes a field of the file; with commas (--level agent,edge) it is a sweep.

    \b
    Examples:
      colme run cl_colme
      colme run experiments/clocks.toml -j 8 --results /data/results
      colme run my.toml --n-agents 1000,10000 --seeds 3 --dry-run
    """
    if seeds is not None:
        changes |= {"seeds": parse_seeds(seeds)}
    source = known_source(experiment, results)
    asked = experiment_of(source, changes)
    if asked.head.published and set(changes) - {"seeds"}:
        asked = asked.without_published()
        say("Published numbers are left out: they are for the file as it is.")
    if is_results(source):
        results = str(Path(source).resolve().parent)
    plan = make_plan(asked, results=results, force=force)
    if dry_run:
        asked.check()
        emit(plan_rows(plan), form, title=f"{asked.title}: {len(plan.missing)} of {plan.n_runs} runs to do")
        return
    _announce(plan)
    try:
        carry_out(plan, jobs=jobs, backend=backend, scheduler=scheduler, checkpoint_every=checkpoint_every,
                  progress=not quiet)  # fmt: skip
    except Stopped:
        left = sum(not plan.store.is_complete(each.name) for each in plan.missing)
        raise KeyboardInterrupt(
            f"Interrupted: {left} of {plan.n_runs} runs are left. Run the same command to go on."
        ) from None
    show_results(asked, plan.store, form)
    say(f"Results: {plan.store.folder}. A page about them: colme report {shlex.quote(str(plan.store.folder))}")


def _announce(plan: Plan) -> None:
    done = plan.n_runs - len(plan.missing)
    if plan.torn:
        say(f"{len(plan.torn)} torn run(s) will be done again: {', '.join(plan.torn[:3])}")
    if not plan.missing:
        say(f"All {done} runs are there; nothing to do (--force does them again).")
    else:
        say(f"{plan.experiment.title}: {len(plan.missing)} runs to do" + (f", {done} are there." if done else "."))
