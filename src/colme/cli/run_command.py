"""`colme run`: run an experiment file."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from colme._core.team import ALONE, Team
from colme.cli.fields import SectionedCommand, field_flags
from colme.cli.output import emit, format_option, say, wide_option
from colme.cli.parameters import (
    EXPERIMENT,
    MOST_JOBS,
    SPARE_OF_RUNS,
    Number,
    Whole,
    option,
    parse_seeds,
    results_option,
    source_of,
    switch,
)
from colme.lab.experiment import Experiment
from colme.lab.results import dataset, experiment_of, is_results
from colme.lab.runs.runner import BACKENDS, RunPlan, Stopped, carry_out, make_plan, plan_rows
from colme.lab.runs.store import RunStore
from colme.lab.runs.worker import launch, ranks_team, slow_methods
from colme.metrics import spare_metrics
from colme.support.tables import json_of

SPARE = (*spare_metrics(1), "seconds", "seeds", "time_ratio", *spare_metrics(2))
"""Columns that a table leaves out first where the terminal is narrow."""


@click.command("run", cls=SectionedCommand)
@click.argument("experiment", type=EXPERIMENT)
@results_option
@option("-j", "--jobs", "Runs at once (default: number of cores).", type=Whole(1, MOST_JOBS), metavar="N")
@option("--seeds", "Number of seeds, or a list of seeds.", type=parse_seeds, metavar="N|A,B,...")
@switch("--dry-run", "List the runs without doing them.")
@switch("--force", "Do all runs again.")
@option("--backend", "Where to run: processes here, threads, or a cluster that sees the same folder.",
        type=click.Choice(BACKENDS), default="loky")  # fmt: skip
@option("--scheduler", "Address of a dask scheduler, such as tcp://host:8786.", metavar="ADDRESS")
@option("--ranks",
        "Share every run among ranks of MPI: N on this machine, or without N those that mpiexec or srun have "
        "started.",
        is_flag=False, flag_value=0, type=Whole(0, 10**6), metavar="[N]")  # fmt: skip
@option("--checkpoint-every", "Time between two checkpoints of a long run.",
        type=Number(min=0, min_open=True), default=30.0, metavar="SECONDS")  # fmt: skip
@switch("-q", "--quiet", "Do not show progress.")
@wide_option
@format_option
@field_flags
@click.pass_context
def command(
    context: click.Context, /, experiment: str, results: str, seeds: Any, dry_run: bool, force: bool, ranks: int | None,
    quiet: bool, wide: bool, form: str, changes: dict[str, Any], **options: Any,
) -> None:  # fmt: skip
    """Run an experiment: a TOML file, or the name of one that comes with colme.

    Only missing runs are done, in parallel. Ctrl-C is safe at any moment, and so is a crash: run the same command again
    to continue. Results are stored in results/NAME, one folder per run.

    The flags of the sections below change fields of the file; several values (--level agent,edge) make a sweep. A
    combination that cannot run, such as a step that is not stable on its graph, is skipped.

    \b
    Examples:
      colme run cl_colme
      colme run experiments/clocks.toml -j 8 --results /data/results
      colme run my.toml --n-agents 1000,10000 --seeds 3 --dry-run
      colme run big.toml --ranks 4
      mpiexec -n 64 colme run big.toml --ranks
    """
    if ranks:
        _launch(ranks, experiment)
    team = ALONE if ranks is None else context.with_resource(ranks_team())
    if team is None:
        return
    source = source_of(experiment, results, shipped_first=True)
    asked = experiment_of(source, changes | ({} if seeds is None else {"seeds": seeds}))
    if asked.head.expected and changes:
        asked = asked.without_expected()
        say("Expected numbers are not shown: they hold for the unchanged file.")
    if is_results(source):
        results = str(Path(source).resolve().parent)
    plan = make_plan(asked, results=results, force=force)
    for sentence in plan.check():
        say(sentence)
    if dry_run:
        emit(plan_rows(plan), form, title=f"{asked.title}: {len(plan.missing)} of {plan.n_runs} runs to do",
             spare=SPARE_OF_RUNS, wide=wide)  # fmt: skip
        return
    _announce(plan, team)
    try:
        carry_out(plan, progress=not quiet, team=team, **options)
    except Stopped:
        left = sum(not plan.store.is_complete(each.name) for each in plan.missing)
        raise KeyboardInterrupt(
            f"Interrupted: {left} of {plan.n_runs} runs are left. Run the same command to continue."
        ) from None
    _show_results(asked, plan.store, form, wide=wide)
    say(f"Results are in {plan.store.folder}. To see them: colme report {shlex.quote(str(plan.store.folder))}")


def _launch(ranks: int, experiment: str) -> None:
    """Start the ranks with the arguments of this process, and end as they end."""
    given = sys.argv[1:]
    code = launch(ranks, [*given, "--ranks"])  # the last one counts: the ranks are there
    if code not in (0, 1, 2, 130):
        how = f"signal {-code if code < 0 else code}" if code < 0 or code in (9, 15, 137, 143) else f"code {code}"
        again = shlex.join(["colme", *given])
        say(f"Error: the ranks of {experiment} ended with {how}: one of them was killed, or had too little memory. "
            f"Finished runs are kept. To continue from the last checkpoint: {again}")  # fmt: skip
        code = 1
    sys.exit(code)


def _announce(plan: RunPlan, team: Team) -> None:
    done = plan.n_runs - len(plan.missing) - len(plan.refused)
    if plan.torn:
        say(f"{len(plan.torn)} damaged run(s) will be done again: {', '.join(plan.torn[:3])}")
    if not plan.missing:
        say(f"All {done} runs are done. --force does them again.")
        return
    say(f"{plan.experiment.title}: {len(plan.missing)} runs to do" + (f", {done} are done." if done else "."))
    if team.size > 1:
        say(f"{team.size} ranks share each run. If one of them dies, run the same command to continue.")
    for sentence in slow_methods(plan.missing):
        say(sentence)


def _show_results(experiment: Experiment, store: RunStore, form: str, *, wide: bool = False) -> None:
    """Print the final errors, and measured beside expected."""
    from colme.lab.rows import expected_rows, final_rows, with_statistic

    data = dataset(experiment, store)
    methods, expected = final_rows(data), expected_rows(data, experiment.head.expected)
    if form == "json":
        rows = {"experiment": experiment.name, "methods": methods} | ({"expected": expected} if expected else {})
        click.echo(json_of(rows), nl=False)
        return
    title = f"{experiment.title}: medians over the seeds at the last step"
    emit(methods, form, title=title, spare=SPARE, wide=wide)
    if expected and form == "table":  # a CSV file holds one table
        emit([with_statistic(row) for row in expected], form, title=f"{experiment.title}: measured beside expected",
             spare=("low", "high", "source"), wide=wide)  # fmt: skip
