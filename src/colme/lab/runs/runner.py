"""`run`: do what is missing, in parallel, and say how it goes.

joblib carries the runs to processes on this machine (loky), or to a cluster (dask, ray) whose machines see the same
folder. The folder is also the only channel back: finished runs are in it, and those that go on say how far they are.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colme._core.files import write_whole
from colme.errors import MissingExtra, RunError, missing_extra, one_of, positive, whole
from colme.lab.experiments.experiment import Experiment
from colme.lab.experiments.planning import Planned
from colme.lab.results import Source, axes_of, dataset, experiment_of, is_results, store_of
from colme.lab.runs.perform import Outcome, Task, attend, perform
from colme.lab.runs.progress import Work, show, watch
from colme.lab.runs.store import Store, parquet
from colme.sim.simulation import available_cores

BACKENDS = ("loky", "threading", "dask", "ray")


@dataclass
class Plan:
    """What an experiment asks for and what of it is missing."""

    experiment: Experiment
    store: Store
    missing: list[Planned] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    force: bool = False

    @property
    def n_runs(self) -> int:
        return len({each.name for each in self.experiment.planned})


class Stopped(KeyboardInterrupt):
    """The user pressed Ctrl-C; what was finished is kept, what was not is at its last checkpoint."""


def run(
    source: Source,
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
    results     the folder under which the experiment has its own
    jobs        runs at once (default: the cores)
    backend     "loky" (processes here), "threading", or "dask" or "ray" for a cluster; `scheduler` is dask's address
    force       do all runs again
    progress    True shows a bar; a function is told `Work` a few times a second

    Ctrl-C is safe at any moment, and so is kill -9: run again and it goes on, to the same bits.
    """
    plan = make_plan(source, results=results, force=force)
    carry_out(plan, jobs=jobs, backend=backend, scheduler=scheduler, checkpoint_every=checkpoint_every,
              progress=progress)  # fmt: skip
    return dataset(plan.experiment, plan.store)


def make_plan(source: Source, *, results: str | os.PathLike[str] = "results", force: bool = False) -> Plan:
    """What there is to do, without doing it."""
    experiment = experiment_of(source)
    plan = Plan(experiment, store_of(source if is_results(source) else experiment, results), force=force)
    for each in {each.name: each for each in experiment.planned}.values():
        if force or not plan.store.is_complete(each.name):
            plan.missing.append(each)
            if (plan.store.runs / each.name).exists() and not force:
                plan.torn.append(each.name)
    return plan


def plan_rows(plan: Plan) -> list[dict[str, Any]]:
    """The runs of an experiment and which of them are there."""
    missing = {each.name for each in plan.missing}
    own = {name for method in plan.experiment.methods for name in method.__struct_fields__}
    swept = [name for name in axes_of(plan.experiment.planned) if name not in own and name != "n_agents"]
    return [
        {"run": each.name, "method": each.label, "configuration": repr(each.setting.method)}
        | {name: each.setting.parameters()[name] for name in swept}
        | {"agents": each.setting.scenario.n_agents, "steps": each.setting.setup.steps, "seed": each.setting.seed,
           "state": "to do" if each.name in missing else "there"}
        for each in plan.experiment.planned
    ]  # fmt: skip


def carry_out(
    plan: Plan,
    *,
    jobs: int | None = None,
    backend: str = "loky",
    scheduler: str | None = None,
    checkpoint_every: float = 30.0,
    progress: Callable[[Work], None] | bool = False,
) -> None:
    """Do what is missing."""
    one_of(backend, BACKENDS, "backend", RunError)
    jobs = available_cores() if jobs is None else whole(jobs, "jobs", "jobs=2", RunError)
    positive(checkpoint_every, "checkpoint_every", "checkpoint_every=30", RunError)
    parquet()
    store = plan.store
    if not plan.missing:
        if store.folder.exists():
            _remember(plan)
        store.tidy()
        return
    plan.experiment.check()
    store.prepare()
    modules = _remember(plan)
    for each in plan.missing:
        if plan.force or not store.is_complete(each.name):  # somebody else may have been faster
            store.remove(each.name)
    alone = plan.experiment.head.timing is not None  # nothing else may run beside a timing
    parallel = not alone and (backend in ("dask", "ray") or (jobs > 1 and len(plan.missing) > 1))
    stop_file = store.work / f"stop-{secrets.token_hex(4)}"
    tasks = [
        Task(
            each.name, each.configuration, str(store.folder.resolve()), modules, checkpoint_every,
            str(stop_file.resolve()), os.getpid() if parallel and backend == "loky" else None, plan.force,
        )
        for each in plan.missing
    ]  # fmt: skip
    with _display(progress, plan), _stop_on_interrupt(stop_file) as interrupted:
        try:
            if parallel:
                outcomes = _hand_out(tasks, jobs, backend, scheduler)
            else:
                outcomes = [perform(task) for task in tasks]
        finally:
            stop_file.unlink(missing_ok=True)
    if interrupted.is_set():
        raise Stopped
    store.tidy()
    _report_failures(outcomes, plan)


def _hand_out(tasks: list[Task], jobs: int, backend: str, scheduler: str | None) -> list[Outcome]:
    try:
        import joblib
    except ImportError:
        raise missing_extra("joblib", "lab", "running in parallel") from None
    if backend == "loky":
        return _hand_to_processes(tasks, jobs)
    options = _dask_options(scheduler) if backend == "dask" else {}
    if backend == "ray":
        _register_ray()
    with joblib.parallel_config(backend=backend, **options):
        workers = joblib.Parallel(n_jobs=jobs if backend == "threading" else -1, batch_size=1)
        done: list[Outcome] = workers(joblib.delayed(perform)(task) for task in tasks)
    return done


def _hand_to_processes(tasks: list[Task], jobs: int) -> list[Outcome]:
    """To processes on this machine. If one dies, its run fails, and no other."""
    done: list[Outcome] = []
    while not _survive(_left(tasks, done), jobs, done):
        begun = [task for task in _left(tasks, done) if (Path(task.folder) / "work" / task.name).exists()]
        if not begun:
            raise RunError("a worker process died before its first run. Run again without workers (-j 1).")
        for task in begun:  # one at a time, to see which it was
            if not _survive([task], 2, done):
                reason = "its process died, perhaps of too little memory. Run fewer at once (-j 1) or fewer agents."
                done.append(Outcome(task.name, "failed", reason))
    return done


def _left(tasks: list[Task], done: list[Outcome]) -> list[Task]:
    names = {each.name for each in done}
    return [task for task in tasks if task.name not in names]


def _survive(tasks: list[Task], jobs: int, done: list[Outcome]) -> bool:
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
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
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


def _register_ray() -> None:
    try:
        from ray.util.joblib import register_ray
    except ImportError:
        raise MissingExtra("backend='ray' needs ray, which is not installed. Try: pip install ray") from None
    register_ray()


def _remember(plan: Plan) -> tuple[str, ...]:
    """Keep the experiment as it was asked for last, for reports; returns where its modules are."""
    modules = _keep_modules(plan)
    table = plan.experiment.table
    if modules:
        table = table | {"modules": [f"modules/{Path(each).name}" for each in modules]}
    plan.store.save_experiment(table)
    return modules


def _keep_modules(plan: Plan) -> tuple[str, ...]:
    """The user's own methods are copied into the results: these stay readable without the place they came from."""
    folder = plan.store.folder / "modules"
    kept = []
    for path in plan.experiment.modules:
        target = folder / path.name
        number = 2
        while str(target.resolve()) in kept:  # of another folder
            target, number = folder / f"{path.stem}_{number}{path.suffix}", number + 1
        if target.resolve() != path.resolve():
            write_whole(target, path.read_bytes())  # another session may be reading it
        kept.append(str(target.resolve()))
    return tuple(kept)


def _report_failures(outcomes: list[Outcome], plan: Plan) -> None:
    failed = [each for each in outcomes if each.state == "failed"]
    if not failed:
        return
    label = next(each.label for each in plan.missing if each.name == failed[0].name)
    others = f" ({len(failed)} of {len(outcomes)} runs failed; the others are kept.)" if len(outcomes) > 1 else ""
    raise RunError(f"{label}: {failed[0].reason}{others}")


@contextlib.contextmanager
def _display(progress: Callable[[Work], None] | bool, plan: Plan) -> Iterator[None]:
    if progress is False:
        yield
        return
    tell = show(plan.experiment.name) if progress is True else contextlib.nullcontext(progress)
    with tell as report, watch(plan.store, plan.missing, report):
        yield


@contextlib.contextmanager
def _stop_on_interrupt(stop_file: Path) -> Iterator[threading.Event]:
    """The first Ctrl-C asks the runs to save and stop; the second one stops at once."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: Any) -> None:
        if interrupted.is_set():
            raise Stopped
        interrupted.set()
        with contextlib.suppress(OSError):
            stop_file.touch()

    signal.signal(signal.SIGINT, ask)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
