"""`simulate`: check the arguments, then run the seeds in parallel threads."""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any, Unpack, overload

import msgspec
import numpy as np

from colme._core.jit import warn_if_broken
from colme.errors import RunError, one_of, positive, shorten, whole
from colme.methods import Method
from colme.recording import Recording
from colme.scenario import Scenario, check_seed
from colme.sim.run import Interrupted, Progress, Run, on_interrupt
from colme.sim.spec import RunFields, RunSpec
from colme.sim.threads import run_threads
from colme.sim.trace import Trace, Traces
from colme.support.arrays import Floats
from colme.support.files import PathLike, check_writable

Source = Scenario | Recording | Floats


class Options(RunFields, total=False):
    """The keywords of `simulate`, for type checkers: those of a run, and how it is carried out."""

    progress: Callable[[Progress], None] | bool | None
    checkpoint: PathLike | None
    checkpoint_every: float
    n_jobs: int | None
    threads: int | None
    ranks: Any


@overload
def simulate(method: Method, source: Source, *, seeds: None = None, **options: Unpack[Options]) -> Trace: ...
@overload
def simulate(
    method: Method | Sequence[Method], source: Source, *, seeds: Iterable[int], **options: Unpack[Options]
) -> Traces: ...
@overload
def simulate(method: Sequence[Method], source: Source, *, seeds: None = None, **options: Unpack[Options]) -> Traces: ...
def simulate(
    method: Method | Sequence[Method],
    source: Source,
    *,
    seeds: Iterable[int] | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
    checkpoint: PathLike | None = None,
    checkpoint_every: float = 60.0,
    n_jobs: int | None = None,
    threads: int | None = None,
    ranks: Any = None,
    **fields: Unpack[RunFields],
) -> Trace | Traces:
    """Run one or more methods on a scenario, or on your own array of samples (steps, agents).

    One method and one seed give a `Trace`; several methods or `seeds=` give `Traces`. All methods of a seed see the
    same samples and begin on the same graph.

    method            a method, or a list of them
    source            a `Scenario`, a `Recording`, or an array (steps, agents)
    seed, seeds       decide samples and graph: one seed (default 0), or several
    degree            of the random regular graph (default 10, or what so few agents allow)
    graph             another graph, of colme or networkx; a function of an rng that makes one for each seed; a file; or
                      "regular", "gnp", "ring", "small-world", "complete"
    rewire            share of the edges of a small world that are moved to a random agent
    steps             how long to run (default 1000, or all steps of a recording)
    tolerance         `error_rate` is the share of agents with |estimate - mean| > tolerance
    record            which steps to record: "all", "log", every k-th (an int), or a list of steps
    precision         "mixed": neighbors hear float32, all else is float64; "double": float64 throughout
    progress          a function of `Progress`, called about ten times a second; True shows a bar
    checkpoint        a file (with `seeds`: a folder) that is written every `checkpoint_every` seconds, on Ctrl-C and at
                      the end. If it exists, the run continues from it, also to more steps than it had.
    n_jobs            seeds run at once (default: the cores, over `threads`)
    threads           threads that share each run (default 1): worth it from about 100,000 agents on
    ranks             a communicator of mpi4py whose ranks share each run, all of them calling `simulate` with the same
                      arguments. They all get the metrics; the first one the final state of all agents, each other one
                      that of its own. The results have the same bits for any number of threads and ranks

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> trace = colme.simulate(colme.CLColME(), scenario, steps=200, seed=0)
    >>> f"{trace.mse[-1]:.1e} together, {trace.local_mse[-1]:.1e} alone"
    '3.4e-05 together, 1.3e-03 alone'
    >>> traces = colme.simulate([colme.CLColME(), colme.Local()], scenario, steps=20, seeds=range(3))
    >>> len(traces)
    6

    See also: Scenario, Recording, Trace, Traces, CollaborativeMean
    """
    for name in fields:
        one_of(name, inspect.signature(simulate).parameters, "option of simulate", RunError)
    methods = [method] if isinstance(method, Method) else list(method) if isinstance(method, Sequence) else []
    if not methods or not all(isinstance(each, Method) for each in methods):
        raise RunError(f"method={shorten(method)}: it must be a method or a list of them. Try colme.CLColME().")
    if checkpoint_every != 0:
        positive(checkpoint_every, "checkpoint_every", "checkpoint_every=60", RunError)
    if threads is not None:
        threads = whole(threads, "threads", "threads=2", RunError, high=1024)
        if ranks is not None:
            raise RunError(f"threads={threads} with ranks: one of them shares a run. Start more ranks instead.")
    if n_jobs is not None:
        n_jobs = whole(n_jobs, "n_jobs", "n_jobs=2", RunError, high=1024)
    warn_if_broken()
    if isinstance(source, np.ndarray):
        source = Recording(source)
    specs = [
        [RunSpec(method=each, source=source, **{**fields, "seed": seed}) for each in methods]  # type: ignore[arg-type]
        for seed in _seeds(fields.get("seed"), seeds)
    ]
    folder = None if checkpoint is None else _checkpoint_folder(Path(checkpoint), seeds is not None)
    runs = [
        partial(Run, of_seed, checkpoint_every=checkpoint_every,
                checkpoint=folder / f"seed-{of_seed[0].seed}.npz" if folder and seeds is not None else folder)
        for of_seed in specs
    ]  # fmt: skip
    n_steps = specs[0][0].steps * len(runs)
    if ranks is not None:
        results = _run_in_ranks(runs, progress, n_steps, ranks)
    else:
        n_jobs = min(len(runs), n_jobs or max(1, available_cores() // (threads or 1)))
        with _reporter(progress, n_steps) if progress else contextlib.nullcontext() as tell:
            results = _run_all(runs, tell, n_jobs, threads or 1)
    if seeds is None and isinstance(method, Method):
        return results[0][0]
    return Traces([of_seed[m] for m in range(len(methods)) for of_seed in results])


def _signature() -> inspect.Signature:
    """With the fields of a run one by one, as help() shows it."""
    written = inspect.signature(simulate)
    *first, _ = written.parameters.values()
    types = {name: known.__forward_arg__ for name, known in RunFields.__annotations__.items()}
    fields = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=types[each.name])
        for each in msgspec.structs.fields(RunSpec)
        if each.name in types
    ]
    return written.replace(parameters=[*first, *fields])


simulate.__signature__ = _signature()  # type: ignore[attr-defined]


def _run_in_ranks(
    runs: list[partial[Run]], progress: Callable[[Progress], None] | bool | None, n_steps: int, ranks: Any
) -> list[list[Trace]]:
    """One seed after the other, each shared by all ranks; the first one reports progress."""
    from colme.sim.ranks import RankTeam

    team, stop = RankTeam(ranks), threading.Event()
    reporter = _reporter(progress, n_steps) if progress and team.rank == 0 else contextlib.nullcontext()
    with reporter as tell, on_interrupt(stop.set):
        try:
            return [run(team=team).go(tell, stop) for run in runs]
        except Interrupted:
            raise KeyboardInterrupt from None


def _run_all(
    runs: list[partial[Run]], tell: Callable[[Progress], None] | None, n_jobs: int, threads: int
) -> list[list[Trace]]:
    """Runs live in worker threads even when there is one: Ctrl-C then only reaches this thread, which asks the runs to
    stop between two steps, so that a checkpoint is never taken halfway."""
    # errors of configuration surface here, before any thread starts
    ready = [runs[0]()] if threads == 1 else []
    stop = threading.Event()

    def work(run: partial[Run]) -> list[Trace]:
        if stop.is_set():
            raise Interrupted
        if threads > 1:
            return run_threads(threads, lambda team: run(team=team).go(tell if team.rank == 0 else None, stop))
        return (ready.pop() if run is runs[0] else run()).go(tell, stop)

    with ThreadPoolExecutor(max_workers=n_jobs) as pool:
        futures = [pool.submit(work, run) for run in runs]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        except KeyboardInterrupt:
            stop.set()
            wait(futures)
            raise
        if any(future.exception() is not None for future in done):
            stop.set()
    failures = [future.exception() for future in futures if future.exception() is not None]
    for failure in failures:
        if not isinstance(failure, Interrupted):  # the runs that were stopped because of it say nothing new
            raise failure  # type: ignore[misc]
    return [future.result() for future in futures]


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _seeds(seed: int | None, seeds: Iterable[int] | None) -> list[int]:
    if seeds is None:
        return [0 if seed is None else seed]
    if seed is not None or not isinstance(seeds, Iterable):
        raise RunError(f"seed={seed}, seeds={shorten(seeds)}: give one seed, or several as seeds=range(10).")
    every = [check_seed(each) for each in seeds]
    if not every or len(set(every)) < len(every):
        raise RunError(f"seeds={shorten(every)}: there must be at least one seed, each once. Try seeds=range(10).")
    return every


def _checkpoint_folder(path: Path, many: bool) -> Path:
    if many and path.is_file():
        raise RunError(f"checkpoint={path}: with seeds= it must be a folder, and this is a file. Try {path}.d.")
    if not many and path.is_dir():
        raise RunError(f"checkpoint={path}: it must be a file, and this is a folder. Try {path / 'run.npz'}.")
    file = path / "seed.npz" if many else path
    check_writable(file)  # better to know now than at the first save
    file.parent.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def _reporter(progress: Callable[[Progress], None] | bool, total: int) -> Iterator[Callable[[Progress], None]]:
    """The progress callback, never called twice at once; True becomes a bar on stderr."""
    lock = threading.Lock()
    with contextlib.nullcontext(progress) if callable(progress) else _bar(total) as report:

        def tell(news: Progress) -> None:
            with lock:
                report(news)

        yield tell


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"), TimeRemainingColumn()
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task, done = bar.add_task("", total=total), dict[int, int]()

        def report(news: Progress) -> None:
            done[news.seed] = news.step
            bar.update(task, completed=sum(done.values()))

        yield report
