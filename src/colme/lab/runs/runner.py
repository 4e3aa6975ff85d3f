"""`run`: do the missing runs of an experiment in parallel, and show progress.

joblib passes the runs to processes on this machine (loky) or to a cluster (dask) whose machines see the same
folder. Results and progress come back through the folder alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colme._core.team import ALONE, Team
from colme.errors import MissingExtra, RunError, missing_extra, one_of, positive, whole
from colme.lab.experiment import Experiment
from colme.lab.planning import Planned
from colme.lab.results import ExperimentSource, axes_of, dataset, opened
from colme.lab.runs.progress import Work, show, watch
from colme.lab.runs.store import RunStore, parquet
from colme.lab.runs.worker import RunOutcome, Task, attend, perform
from colme.sim.graph_files import is_graph_file
from colme.sim.run import check_team, on_interrupt
from colme.sim.simulation import available_cores
from colme.support.files import write_whole

BACKENDS = ("loky", "threading", "dask")
GRAPHS, MODULES = "graphs", "modules"
"""The folders for copies of graph files and modules, among the results."""


@dataclass
class RunPlan:
    """The runs of an experiment and which of them are missing."""

    experiment: Experiment
    store: RunStore
    missing: list[Planned] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    """Names of runs whose folder is damaged; they are done again."""
    refused: dict[str, str] = field(default_factory=dict)
    """Name -> reason, for combinations of a sweep that cannot run (see `Experiment.check`). Known after `check`."""
    force: bool = False

    def check(self) -> list[str]:
        """Take out of `missing` what cannot run; returns a sentence for every reason. A method that cannot run at all
        is an error."""
        if self.missing:
            self.refused = self.experiment.check()
            self.missing = [each for each in self.missing if each.name not in self.refused]
        counts = Counter(self.refused.values())
        return [f"{runs} of {self.n_runs} runs are skipped: {reason}" for reason, runs in counts.items()]

    @property
    def n_runs(self) -> int:
        return len({each.name for each in self.experiment.planned})


class Stopped(KeyboardInterrupt):
    """The user pressed Ctrl-C. Finished runs are kept, the others have a checkpoint.

    >>> from colme import lab
    >>> issubclass(lab.Stopped, KeyboardInterrupt)
    True

    See also: run
    """


def run(
    source: ExperimentSource,
    *,
    results: str | os.PathLike[str] = "results",
    jobs: int | None = None,
    backend: str = "loky",
    scheduler: str | None = None,
    force: bool = False,
    checkpoint_every: float = 30.0,
    progress: Callable[[Work], None] | bool = False,
) -> Any:
    """Run what is missing of an experiment and return all of it as an xarray.Dataset (see `load`).

    source      a TOML file, the name of an experiment that comes with colme, a table, or an `Experiment`
    results     the folder in which every experiment has a folder of its own
    jobs        number of runs at once (default: the number of cores)
    backend     "loky" (processes here), "threading", or "dask" for a cluster, whose address is `scheduler`
    force       do all runs again
    checkpoint_every
                seconds between two checkpoints of a long run
    progress    True shows a bar; a function is called with `Work` a few times a second

    Ctrl-C is safe at any moment, and so is kill -9: run again to continue, with the same results bit for bit.
    Combinations of a sweep that cannot run (a step that is not stable on its graph) are left out with a warning.

    >>> import tempfile
    >>> from colme import lab
    >>> table = {
    ...     "seeds": 2, "steps": 50, "record": "log", "scenario": {"n_agents": 50, "means": [0.0, 1.0]},
    ...     "methods": [{"method": "cl-colme"}, {"method": "local"}],
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = lab.run(table, results=folder, jobs=1)
    >>> data.mse.dims, data.method.values.tolist()
    (('method', 'seed', 't'), ['CL-colME', 'local'])

    See also: load, summary, report, Experiment
    """
    plan = make_plan(source, results=results, force=force)
    for sentence in plan.check():
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)
    carry_out(plan, jobs=jobs, backend=backend, scheduler=scheduler, checkpoint_every=checkpoint_every,
              progress=progress)  # fmt: skip
    return dataset(plan.experiment, plan.store)


def make_plan(source: ExperimentSource, *, results: str | os.PathLike[str] = "results", force: bool = False) -> RunPlan:
    """The runs that are missing; nothing is run or written."""
    plan = RunPlan(*opened(source, results), force=force)
    for name, each in {each.name: each for each in plan.experiment.planned}.items():
        if force or not plan.store.is_complete(name):
            plan.missing.append(each)
            if (plan.store.runs / name).exists() and not force:
                plan.torn.append(name)
    return plan


def plan_rows(plan: RunPlan) -> list[dict[str, Any]]:
    """The runs of an experiment and whether each is done."""
    states = {each.name: "to do" for each in plan.missing} | dict.fromkeys(plan.refused, "cannot run")
    swept = [name for name in axes_of(plan.experiment.planned) if name != "n_agents"]
    return [
        {"run": each.name, "method": each.label, "configuration": repr(each.spec.method)}
        | {name: each.spec.parameters().get(name) for name in swept}
        | {"agents": each.spec.source.n_agents, "steps": each.spec.steps, "seed": each.spec.seed,
           "state": states.get(each.name, "done")}
        for each in plan.experiment.planned
    ]  # fmt: skip


def carry_out(
    plan: RunPlan,
    *,
    jobs: int | None = None,
    backend: str = "loky",
    scheduler: str | None = None,
    checkpoint_every: float = 30.0,
    progress: Callable[[Work], None] | bool = False,
    team: Team = ALONE,
) -> None:
    """Do the missing runs; with a team of ranks, one after the other, each shared by all of them."""
    one_of(backend, BACKENDS, "backend", RunError)
    jobs = available_cores() if jobs is None else whole(jobs, "jobs", "jobs=2", RunError, high=1024)
    positive(checkpoint_every, "checkpoint_every", "checkpoint_every=30", RunError)
    parquet()
    if team.size > 1:  # refuse, before any work, what ranks cannot share
        for each in plan.missing:
            check_team([each.spec], team)
    store = plan.store
    if plan.missing:
        store.prepare()
    copies = _remember(plan) if store.folder.exists() else {}
    if not plan.missing:
        store.tidy()
        return
    modules = tuple(copies[str(path)] for path in plan.experiment.modules)
    for each in plan.missing:
        if plan.force or not store.is_complete(each.name):  # another process may have done it by now
            store.remove(each.name)
    parallel = team.size == 1 and (backend == "dask" or (jobs > 1 and len(plan.missing) > 1))
    stop_file = store.work / f"stop-{secrets.token_hex(4)}"
    tasks = [
        Task(
            each.name, each.configuration, str(store.folder.resolve()), modules, checkpoint_every,
            str(stop_file.resolve()), os.getpid() if parallel and backend == "loky" else None, plan.force,
            copies.get(each.spec.graph_file, ""),
        )
        for each in plan.missing
    ]  # fmt: skip
    interrupted = threading.Event()

    def ask() -> None:
        """The first Ctrl-C asks the runs to save and stop; the second one stops at once."""
        if interrupted.is_set():
            raise Stopped
        interrupted.set()
        with contextlib.suppress(OSError):
            stop_file.touch()

    with _display(progress, plan), on_interrupt(ask):
        try:
            if parallel:
                outcomes = _hand_out(tasks, min(jobs, len(tasks)), backend, scheduler)
            else:
                outcomes = [perform(task, team) for task in tasks]
        finally:
            stop_file.unlink(missing_ok=True)
    if interrupted.is_set():
        raise Stopped
    store.tidy()
    if failed := [each for each in outcomes if each.reason]:
        label = next(each.label for each in plan.missing if each.name == failed[0].name)
        others = f" ({len(failed)} of {len(outcomes)} runs failed; the others are kept.)" if len(outcomes) > 1 else ""
        raise RunError(f"{label}: {failed[0].reason}{others}")


def _hand_out(tasks: list[Task], jobs: int, backend: str, scheduler: str | None) -> list[RunOutcome]:
    try:
        import joblib
    except ImportError:
        raise missing_extra("joblib", "lab", "running in parallel") from None
    if backend == "loky":
        return _hand_to_processes(tasks, jobs)
    with joblib.parallel_config(backend=backend, **(_dask_options(scheduler) if backend == "dask" else {})):
        workers = joblib.Parallel(n_jobs=jobs if backend == "threading" else -1, batch_size=1)
        done: list[RunOutcome] = workers(joblib.delayed(perform)(task) for task in tasks)
    return done


def _hand_to_processes(tasks: list[Task], jobs: int) -> list[RunOutcome]:
    """To processes on this machine. If one dies, its run fails, and no other."""
    done: list[RunOutcome] = []

    def left() -> list[Task]:
        names = {each.name for each in done}
        return [task for task in tasks if task.name not in names]

    while not _survive(left(), jobs, done):
        begun = [task for task in left() if (Path(task.folder) / "work" / task.name).exists()]
        if not begun:
            raise RunError("a worker process died before its first run. Run again without workers (-j 1).")
        for task in begun:  # one at a time, to see which it was
            if not _survive([task], 2, done):
                reason = "its process died, perhaps of too little memory. Run fewer at once (-j 1) or fewer agents."
                done.append(RunOutcome(task.name, reason))
    return done


def _survive(tasks: list[Task], jobs: int, done: list[RunOutcome]) -> bool:
    """Have worker processes do the tasks; False if one of them died. What was done until then is done."""
    import joblib

    options = {"inner_max_num_threads": 1, "initializer": attend, "initargs": (os.getpid(),)}
    with joblib.parallel_config(backend="loky", **options):
        workers = joblib.Parallel(n_jobs=jobs, batch_size=1, return_as="generator_unordered")
        try:
            with _block_interrupts():  # the processes inherit it, and so Ctrl-C does not hit them while they start
                outcomes = workers(joblib.delayed(perform)(task) for task in tasks)
            done.extend(outcomes)
        except joblib.externals.loky.process_executor.BrokenProcessPool:
            return False
    return True


@contextlib.contextmanager
def _block_interrupts() -> Iterator[None]:
    """Ctrl-C waits until the block ends."""
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # older Pythons, when they start it, let Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _dask_options(scheduler: str | None) -> dict[str, Any]:
    try:
        import distributed
    except ImportError:
        raise MissingExtra(
            "backend='dask' needs distributed, which is not installed. Try: pip install distributed"
        ) from None
    if scheduler is None:
        with contextlib.suppress(ValueError):
            distributed.get_client()
            return {}
        raise RunError("backend='dask' needs a scheduler: there is no client. Try --scheduler tcp://host:8786.")
    return {"scheduler_host": scheduler}


def _remember(plan: RunPlan) -> dict[str, str]:
    """Store the experiment file with its results, and copies of the files that it refers to: the results can be read
    without the originals. Returns file -> path of its copy."""
    copies = {}
    for original, kept in kept_files(plan.experiment).items():
        copy = (plan.store.folder / kept).resolve()
        if copy != Path(original).resolve():
            write_whole(copy, Path(original).read_bytes())  # another session may be reading it
        copies[original] = str(copy)
    plan.store.save_experiment(with_kept_files(plan.experiment))
    return copies


def kept_files(experiment: Experiment) -> dict[str, str]:
    """Graph file or module -> its copy, relative to the results. Of two modules of one name, one has a number."""
    graphs = (each.spec.graph_file for each in experiment.planned)
    kept = {file: f"{GRAPHS}/{Path(file).name}" for file in graphs if file}
    for path in experiment.modules:
        name, number = path.name, 2
        while f"{MODULES}/{name}" in kept.values():
            name, number = f"{path.stem}_{number}{path.suffix}", number + 1
        kept[str(path)] = f"{MODULES}/{name}"
    return kept


def with_kept_files(experiment: Experiment) -> dict[str, Any]:
    """The table of an experiment with the copies of its graph files and modules in place of the originals."""
    table, copies = experiment.table, kept_files(experiment)
    if experiment.modules:
        table = table | {"modules": [copies[str(path)] for path in experiment.modules]}

    def kept(graph: Any) -> Any:
        if isinstance(graph, list):
            return [kept(each) for each in graph]
        return f"{GRAPHS}/{Path(graph).name}" if is_graph_file(graph) else graph

    def changed(part: dict[str, Any]) -> dict[str, Any]:
        return part | ({"graph": kept(part["graph"])} if "graph" in part else {})

    lists = {key: [changed(each) for each in table[key]] for key in ("methods", "cases") if key in table}
    return changed(table) | lists


@contextlib.contextmanager
def _display(progress: Callable[[Work], None] | bool, plan: RunPlan) -> Iterator[None]:
    shown = show(plan.experiment.name) if progress is True else contextlib.nullcontext(progress)
    with shown as tell, watch(plan.store, plan.missing, tell) if tell else contextlib.nullcontext():
        yield
