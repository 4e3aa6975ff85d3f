"""`simulate`: check the arguments, then run the seeds in parallel threads."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import warn_if_broken
from colme._core.team import ALONE, Team
from colme.errors import RunError, one_of, positive, shorten, whole
from colme.graphs import Graph
from colme.methods import Method
from colme.recording import Recording
from colme.scenario import Scenario, check_seed
from colme.sim.engine import Interrupted, Progress, Run
from colme.sim.prepare import EXCHANGE, GraphSource, first_graph, prepare_run
from colme.sim.recorder import Record, recorded_steps
from colme.sim.threads import run_threads
from colme.sim.trace import RunArguments, Trace, Traces

Source = Scenario | Recording | NDArray[np.float64]


class Options(TypedDict, total=False):
    """The keywords of `simulate`, for type checkers."""

    degree: int | None
    graph: GraphSource | None
    graph_seed: int | None
    steps: int | None
    seed: int | None
    tolerance: float
    record: Record
    precision: str
    smoothness: bool
    progress: Callable[[Progress], None] | bool | None
    checkpoint: str | os.PathLike[str] | None
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
    degree: int | None = None,
    graph: GraphSource | None = None,
    graph_seed: int | None = None,
    steps: int | None = None,
    seed: int | None = None,
    seeds: Iterable[int] | None = None,
    tolerance: float = 0.1,
    record: Record = "all",
    precision: str = "mixed",
    smoothness: bool = False,
    progress: Callable[[Progress], None] | bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    n_jobs: int | None = None,
    threads: int | None = None,
    ranks: Any = None,
    **unknown: Any,
) -> Trace | Traces:
    """Run one or more methods on a scenario, or on your own array of samples (steps, agents).

    One method and one seed give a `Trace`; several methods or `seeds=` give `Traces`. All methods of a seed see the
    same samples and begin on the same graph.

    method            a method, or a list of them
    source            a `Scenario`, a `Recording`, or an array (steps, agents)
    seed, seeds       decide samples and graph: one seed (default 0), or several
    degree            of the random regular graph (default 10, or what so few agents allow)
    graph             another graph, or a function of an rng that makes one for each seed
    graph_seed        make one graph from this seed and use it for all seeds
    steps             how long to run (default 1000, or all steps of a recording)
    tolerance         `error_rate` is the share of agents with |estimate - mean| > tolerance
    record            which steps to record: "all", "log", every k-th (an int), or a list of steps
    precision         "mixed": neighbors hear float32, all else is float64; "double": float64 throughout
    smoothness        also record the mean squared difference of neighbors' estimates (`colme.spectrum.smoothness`); it
                      takes a pass over the graph at each recorded step
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
    for name in unknown:
        one_of(name, (*Options.__annotations__, "seeds"), "option of simulate", RunError)
    methods = [method] if isinstance(method, Method) else list(method) if isinstance(method, Sequence) else []
    if not methods or not all(isinstance(each, Method) for each in methods):
        raise RunError(f"method={shorten(method)}: it must be a method or a list of them. Try colme.CLColME().")
    one_of(precision, EXCHANGE, "precision", RunError)
    tolerance = positive(tolerance, "tolerance", "tolerance=0.1", RunError)
    checkpoint_every = (
        0.0
        if checkpoint_every == 0
        else positive(checkpoint_every, "checkpoint_every", "checkpoint_every=60", RunError)
    )
    if threads is not None:
        threads = whole(threads, "threads", "threads=2", RunError, high=1024)
        if ranks is not None:
            raise RunError(f"threads={threads} with ranks: one of them shares a run. Start more ranks instead.")
    if n_jobs is not None:
        n_jobs = whole(n_jobs, "n_jobs", "n_jobs=2", RunError, high=1024)
    if graph is not None and degree is not None:
        raise RunError(f"degree={degree} and graph={graph!r} are both given: a graph has its degrees. Leave one out.")
    if graph_seed is not None and isinstance(graph, Graph):
        raise RunError(
            f"graph_seed={graph_seed!r} and graph={graph!r} are both given: it is one already. Leave one out."
        )
    if not (graph is None or isinstance(graph, Graph) or callable(graph)):
        raise RunError(
            f"graph={shorten(graph)}: it must be a colme.Graph or a function of an rng that makes one. "
            "Try colme.graphs.from_networkx(graph) or colme.graphs.from_edges(edges)."
        )
    if isinstance(source, np.ndarray):
        source = Recording(source)
    elif not isinstance(source, Scenario | Recording):
        raise RunError(
            f"source={shorten(source)}: samples come from a Scenario, a Recording or an array (steps, agents). "
            "Try numpy.asarray(...)."
        )
    warn_if_broken()
    n_steps = _n_steps(source, steps)
    all_seeds = _seeds(seed, seeds)
    recorded_steps(record, n_steps)  # refused before a folder is made
    folder = _checkpoint_folder(checkpoint, seeds is not None)
    arguments = RunArguments(source, degree, graph, graph_seed, tolerance, precision)
    if graph_seed is not None:
        graph, degree = first_graph(graph, degree, source.n_agents, check_seed(graph_seed, "graph_seed")), None

    def prepare(one_seed: int, team: Team = ALONE) -> Run:
        run = prepare_run(
            methods, source, degree=degree, graph=graph, steps=n_steps, seed=one_seed, tolerance=tolerance,
            record=record, precision=precision, smoothness=bool(smoothness), checkpoint_every=checkpoint_every,
            checkpoint=folder / f"seed-{one_seed}.npz" if folder and seeds is not None else folder, team=team,
        )  # fmt: skip
        run.arguments = arguments
        return run

    if ranks is not None:
        results = _run_in_ranks(prepare, all_seeds, progress, n_steps, ranks)
    else:
        n_jobs = min(len(all_seeds), n_jobs or max(1, available_cores() // (threads or 1)))
        with _reporter(progress, n_steps * len(all_seeds)) as tell:
            results = _run_all(prepare, all_seeds, tell, n_jobs, threads or 1)
    if seeds is None and isinstance(method, Method):
        return results[0][0]
    return Traces([results[s][m] for m in range(len(methods)) for s in range(len(all_seeds))])


def _run_in_ranks(
    prepare: Callable[[int, Team], Run], seeds: list[int], progress: Callable[[Progress], None] | bool | None,
    n_steps: int, ranks: Any,
) -> list[list[Trace]]:  # fmt: skip
    """One seed after the other, each shared by all ranks; the first one reports progress."""
    from colme.sim.ranks import RankTeam, stop_on_interrupt

    team = RankTeam(ranks)
    with _reporter(progress if team.rank == 0 else None, n_steps * len(seeds)) as tell, stop_on_interrupt() as stop:
        try:
            return [prepare(seed, team).go(tell, stop) for seed in seeds]
        except Interrupted:
            raise KeyboardInterrupt from None


def _run_all(
    prepare: Callable[..., Run], seeds: list[int], tell: Callable[[Progress], None] | None, n_jobs: int, threads: int
) -> list[list[Trace]]:  # fmt: skip
    """Runs live in worker threads even when there is one: Ctrl-C then only reaches this thread, which asks the runs to
    stop between two steps, so that a checkpoint is never taken halfway."""
    # errors of configuration surface here, before any thread starts
    ready = {seeds[0]: prepare(seeds[0])} if threads == 1 else {}
    stop = threading.Event()

    def work(seed: int) -> list[Trace]:
        if stop.is_set():
            raise Interrupted
        if threads > 1:
            return run_threads(threads, lambda team: prepare(seed, team).go(tell if team.rank == 0 else None, stop))
        run = ready.pop(seed, None) or prepare(seed)
        return run.go(tell, stop)

    with ThreadPoolExecutor(max_workers=n_jobs) as pool:
        futures = [pool.submit(work, seed) for seed in seeds]
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


def _n_steps(source: Scenario | Recording, steps: int | None) -> int:
    longest = None if isinstance(source, Scenario) else source.n_steps
    n_steps = (longest or 1000) if steps is None else whole(steps, "steps", "steps=2000", RunError)
    if n_steps >= 2**31:
        raise RunError(f"steps={steps}: a run has fewer than 2^31 steps. Try steps=100_000.")
    if longest is not None and n_steps > longest:
        raise RunError(f"steps={steps}: the recording has {longest} steps. Ask for at most that many.")
    return n_steps


def _seeds(seed: int | None, seeds: Iterable[int] | None) -> list[int]:
    if seeds is None:
        return [check_seed(0 if seed is None else seed)]
    if seed is not None or not isinstance(seeds, Iterable):
        raise RunError(f"seed={seed}, seeds={shorten(seeds)}: give one seed, or several as seeds=range(10).")
    every = [check_seed(each) for each in seeds]
    if not every or len(set(every)) < len(every):
        raise RunError(f"seeds={shorten(every)}: there must be at least one seed, each once. Try seeds=range(10).")
    return every


def _checkpoint_folder(checkpoint: str | os.PathLike[str] | None, many: bool) -> Path | None:
    if checkpoint is None:
        return None
    path = Path(checkpoint)
    if many and path.is_file():
        raise RunError(f"checkpoint={path}: with seeds= it must be a folder, and this is a file. Try {path}.d.")
    if not many and path.is_dir():
        raise RunError(f"checkpoint={path}: it must be a file, and this is a folder. Try {path / 'run.npz'}.")
    folder = path if many else path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # better to know now than at the first save
    except OSError as error:
        raise RunError(f"cannot write in {folder}: {error.strerror}. Choose a folder that is writable.") from None
    return path


@contextlib.contextmanager
def _reporter(
    progress: Callable[[Progress], None] | bool | None, total: int
) -> Iterator[Callable[[Progress], None] | None]:
    """The progress callback, never called twice at once; True becomes a bar on stderr."""
    lock = threading.Lock()
    if progress is None or progress is False:
        yield None
    elif callable(progress):
        report = progress

        def tell(news: Progress) -> None:
            with lock:
                report(news)

        yield tell
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        done: dict[int, int] = {}
        columns = (
            TextColumn("simulating"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeRemainingColumn(),
        )
        with Bar(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=total)

            def advance(news: Progress) -> None:
                with lock:
                    done[news.seed] = news.step
                    bar.update(task, completed=sum(done.values()))

            yield advance
