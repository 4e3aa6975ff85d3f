"""`perform`: do one run in whatever process it was given to. Warm up, run, store."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from colme._core import random
from colme._core.jit import LANES
from colme._core.team import ALONE, Team
from colme.confidence import FEWEST_SAMPLES
from colme.errors import CheckpointError, ColmeError, ExperimentError, RunError
from colme.lab.planning import Planned
from colme.lab.runs.progress import duration
from colme.lab.runs.store import RunStore, parquet, versions
from colme.methods import Method
from colme.methods.registry import methods_by_name
from colme.metrics import METRICS
from colme.scenario import Scenario
from colme.sim.ranks import RankTeam, mpi
from colme.sim.run import Interrupted, Progress, Run
from colme.sim.sampling import Sampler
from colme.sim.spec import RunSpec
from colme.support.tables import arrow_table

BEAT = 0.25
"""Seconds between two signs of life of a run."""


class Task(NamedTuple):
    """A run as it is passed to a worker, on this machine or on another that sees the same folders."""

    name: str
    configuration: dict[str, Any]
    folder: str
    modules: tuple[str, ...]
    checkpoint_every: float
    stop_file: str
    parent: int | None
    """The process that waits for the run, if it is the worker's parent; a worker left alone gives up."""
    anew: bool = False
    """Start from the first step even if there is a checkpoint."""
    graph_file: str = ""
    """The path of the graph file, if the graph comes from one."""


class RunOutcome(NamedTuple):
    """How a run ended: it failed if there is a reason."""

    name: str
    reason: str = ""


_busy = threading.Lock()
"""Held by a worker process while it performs a task."""


def attend(parent: int) -> None:
    """The first thing a worker process does: ignore Ctrl-C, which reaches all processes of the terminal and which the
    parent handles, and end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end_with_the_parent() -> None:
        while os.getppid() == parent:
            time.sleep(BEAT)
        with _busy:  # the run notices too, and saves what it has
            os._exit(1)

    threading.Thread(target=end_with_the_parent, daemon=True).start()


def perform(task: Task, team: Any = ALONE) -> RunOutcome:
    """Do one run, unless it is complete by now. Never raises: an error becomes the outcome.

    team    ranks that share the run, of which this is the first (`colme.lab.runs.worker`)"""
    with _busy if task.parent is not None else contextlib.nullcontext():
        try:
            _perform(task, team)
        except Interrupted:
            pass
        except ColmeError as error:
            return RunOutcome(task.name, str(error))
        except Exception as error:  # a user's own method may raise anything; the other runs must go on
            if team.size > 1:
                abort(team, error)
            return RunOutcome(task.name, _reason(error))
        return RunOutcome(task.name)


def _reason(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory. Run fewer at once (-j 1) or fewer agents."
    place = traceback.extract_tb(error.__traceback__)[-1]
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{words} ({Path(place.filename).name}, line {place.lineno})."


def _perform(task: Task, team: Any) -> None:
    store, stop, told_at = RunStore(task.folder), threading.Event(), 0.0

    def should_stop() -> bool:
        alone = task.parent is not None and os.getppid() != task.parent
        return alone or os.path.exists(task.stop_file)

    def tell(news: Progress) -> None:
        """Write down how far the run is, and stop it when it should."""
        nonlocal told_at
        now = time.monotonic()
        if now - told_at >= BEAT:
            told_at = now
            with contextlib.suppress(OSError):  # a full disk matters only when there is something to store
                (folder / "progress").write_text(str(news.step))
            if should_stop():
                stop.set()

    if should_stop():
        raise Interrupted
    with store.claim(task.name, should_stop) as folder:
        if not store.is_complete(task.name):
            checkpoint = folder / "checkpoint.npz"
            if task.anew:
                checkpoint.unlink(missing_ok=True)
            if team.size > 1:
                team.comm.bcast((task, str(checkpoint)))
            head, trace = run_spec(task, checkpoint, tell, stop, team)
            store.write(task.name, head, trace)
        store.release(task.name)


def run_spec(
    task: Task, checkpoint: Path, tell: Callable[[Progress], None] | None, stop: threading.Event, team: Team = ALONE
) -> tuple[dict[str, Any], Any]:
    """(run.json, trace) of a run, continued from its checkpoint if there is one."""
    spec = decode_spec(task.configuration, task.modules, task.graph_file)
    started = time.perf_counter()
    warm_up(spec.method, spec.source, spec.precision)
    parquet()  # its first import takes seconds
    warm = time.perf_counter() - started
    wall, cpu = time.perf_counter(), time.thread_time()
    prepare = functools.partial(Run, [spec], team=team, checkpoint=checkpoint, checkpoint_every=task.checkpoint_every)
    try:
        run = prepare()
    except CheckpointError:  # damaged, or of another version: start from the first step
        if team.rank == 0:
            checkpoint.unlink(missing_ok=True)
        run = prepare()
    first = run.world.t
    (trace,) = run.go(tell, stop, final=False)
    timings = {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.thread_time() - cpu,
        "steps": spec.steps - first,
        "warm_up_seconds": warm,
    } | ({"workers": team.size} if team.size > 1 else {})
    columns = {"t": trace.t} | {name: getattr(trace, name) for name in METRICS}
    head = {"configuration": task.configuration, "versions": versions(), "timings": timings}
    return head, arrow_table(columns).replace_schema_metadata({"colme run": task.name})


def decode_spec(configuration: dict[str, Any], modules: tuple[str, ...], graph_file: str = "") -> RunSpec:
    """A spec from its plain form, with the files that it refers to."""
    known = methods_by_name((Path(each) for each in modules), ExperimentError)
    fields = dict(configuration["method"])
    method, module = known[fields.pop("method")]
    if module != configuration.get("module"):
        raise RunError(f"the module of {method.label} was changed while its runs were waiting. Run again.")
    others = {"method": method(**fields)} | ({"graph": graph_file} if graph_file else {})
    spec = RunSpec.from_plain(configuration, **others)
    if spec.plain()["graph"] != configuration["graph"]:
        raise RunError(f"the graph file {Path(graph_file).name} was changed while its runs were waiting. Run again.")
    return spec


@contextlib.contextmanager
def ranks_team() -> Iterator[RankTeam | None]:
    """The team of all ranks for the first one, which leads; None for the others, once all work is done."""
    team = RankTeam(mpi().COMM_WORLD)
    if team.rank > 0:
        follow(team)
        yield None
        return
    try:
        yield team
    finally:
        team.comm.bcast(None)


def follow(team: RankTeam) -> None:
    """Share the runs that the leader hands out, until it says that there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the leader stops the run
    while (message := team.comm.bcast(None)) is not None:
        task, checkpoint = message
        try:
            run_spec(task, Path(checkpoint), None, threading.Event(), team)
        except (ColmeError, Interrupted):
            continue  # the leader has it, too, and says so
        except Exception as error:
            abort(team, error)


def abort(team: RankTeam, error: BaseException) -> NoReturn:
    """End all ranks, after an error that only one of them has."""
    again = "Run the same command to continue from the last checkpoint."
    print(f"Error: rank {team.rank}: {_reason(error)} {again}", file=sys.stderr, flush=True)
    team.comm.Abort(1)
    raise SystemExit(1)


def launch(ranks: int, arguments: Sequence[str]) -> int:
    """Start colme with these arguments in so many ranks on this machine; returns the exit code."""
    mpi_folder = Path(sys.executable).parent
    found = shutil.which("mpiexec", path=f"{mpi_folder}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise RunError("there is no mpiexec: ranks need an MPI. Try: pip install mpich, or load your cluster's module.")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # mpiexec gets it too, and tells the ranks
    try:
        return subprocess.run([found, "-n", str(ranks), sys.executable, "-m", "colme", *arguments]).returncode
    finally:
        signal.signal(signal.SIGINT, before)


FEW = 256
"""Number of agents in the warm-up."""
STEPS = 12
PATIENCE = 60.0
"""Seconds from which on the time of a method without an array form is told."""


@functools.lru_cache(maxsize=1024)
def warm_up(method: Method, scenario: Scenario, precision: str = "mixed") -> None:
    """Run the first few agents of the same scenario for a few steps, with the types that the whole will have."""
    change_at = max(FEWEST_SAMPLES) if method.needs_moments else STEPS // 2
    n_steps = change_at + STEPS // 2
    run = Run([RunSpec(method=method, source=scenario, steps=n_steps, precision=precision).with_fewer_agents(FEW)])
    random.words(0, random.ASSIGN, 0, n=random.FEW + 1)  # a kernel that only many agents need
    # In small parts, step by step: then a change of the means lasts.
    run.sampler = Sampler(run.stream, run.world, run.recorder.steps, LANES)
    for t in range(1, n_steps + 1):
        run.step(t)
        if t == change_at:
            # So far no edge may have been cut. Moving half of the means far away makes sure that some are.
            run.world.mean[::2] += 1e9 * (1.0 + np.nanmax(np.abs(run.world.mean), initial=0.0))
            if run.world.moments is not None:  # and noisier
                run.world.moments.second[::2] *= 1e18
                run.world.moments.fourth[::2] *= 1e36
    edges = run.states[0].edges
    edges.groups(edges.graph())


def slow_methods(planned: Iterable[Planned]) -> list[str]:
    """A sentence for every method without an array form whose runs take long: one object per agent runs it."""
    found: dict[str, list[Planned]] = {}
    for each in planned:
        if type(each.spec.method).start is Method.start:
            found.setdefault(each.label, []).append(each)
    sentences = []
    for label, runs in found.items():
        full = runs[0].spec
        warm_up(full.method, full.source, full.precision)
        few = RunSpec(method=full.method, source=full.source, steps=STEPS).with_fewer_agents(FEW)
        run, started = Run([few]), time.perf_counter()
        run.go(None, threading.Event())
        seconds = (time.perf_counter() - started) / (few.source.n_agents * STEPS) * sum(each.size for each in runs)
        if seconds > PATIENCE:
            sentences.append(
                f"{label} has no array form, so one object per agent runs it: about {duration(seconds)} of computing "
                f"for {len(runs)} run{'s' * (len(runs) > 1)}. An array form is much faster: see depth 2 in "
                "docs/write_a_method.md."
            )
    return sentences
