"""Every peer on every trial. A finished job is a line in results/peers/records.jsonl: an interrupted run goes on."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

import colme
from benchmarks.peers import lme4
from benchmarks.peers.estimators import PEERS, Samples, installed
from benchmarks.peers.tables import IN_TIME, SHUFFLED, TABLES
from benchmarks.peers.trials import Trial

SEEDS = 30
BUDGET = 40.0
"""CPU seconds after which a peer gets no further seeds of a table in an order. It always has one fit."""
Tell = Callable[[str], None]


class Job(NamedTuple):
    """One peer on one trial."""

    table: str
    order: str
    n: int
    seed: int
    peer: str


class Record(msgspec.Struct, frozen=True):
    """What came of a job."""

    job: Job
    n_agents: int
    failure: str = ""
    error: float | None = None
    """Mean squared error, without the noise of the targets; None after a failure."""
    losses: list[float] = []
    """The same for each agent, in time order only, where there is one draw."""
    covered: float | None = None
    width: float | None = None
    cpu: float = 0.0
    remark: str = ""


class Versions(msgspec.Struct, frozen=True):
    """The first line: records of other versions are not continued."""

    colme: str
    peers: dict[str, str]
    seeds: int


def planned(tables: list[str], peers: list[str], seeds: int) -> Iterator[Job]:
    """All jobs. Jobs of one trial follow each other, and all n have the same seeds, if the budget ends them."""
    for table in tables:
        for order in (SHUFFLED, IN_TIME):
            counts = TABLES[table].counts(order)
            for seed in range(seeds if order == SHUFFLED else 1):
                for n in counts:
                    for peer in peers:
                        yield Job(table, order, n, seed, peer)


def perform(job: Job, trial: Trial) -> Record:
    """Fit and score. An exception of the peer's package is a result, too."""
    fit = PEERS[job.peer].fit
    started, lme4.Spent.seconds = time.process_time(), 0.0
    try:
        found = fit(trial.samples)
    except Exception as error:
        return Record(job, trial.samples.n_agents, f"{type(error).__name__}: {error}"[:100],
                      cpu=time.process_time() - started)  # fmt: skip
    cpu = time.process_time() - started + lme4.Spent.seconds
    losses = trial.losses(found.estimate)
    if not np.isfinite(losses).all():
        return Record(job, trial.samples.n_agents, "an estimate is not a number", cpu=cpu)
    width = None if found.lower is None or found.upper is None else float((found.upper - found.lower).mean())
    return Record(
        job, trial.samples.n_agents, "", float(losses.mean()),
        [float(f"{each:.6g}") for each in losses] if job.order == IN_TIME else [],
        trial.covered(found), width, cpu, found.remark,
    )  # fmt: skip


def warm_up(peers: list[str]) -> None:
    """Import, compile and start R before anything is timed."""
    rng = np.random.default_rng(0)
    agent = np.repeat(np.arange(40), 10)
    for value in (
        rng.normal(agent % 2, 1.0),
        rng.normal(5.0 * (agent % 4), 1.0),
        (rng.random(400) < 0.3).astype(float),
    ):
        for times in (None, np.tile(np.arange(10.0), 40)):
            for peer in peers:
                PEERS[peer].fit(Samples(agent, value, 40, times))


Line = TypeVar("Line", bound=msgspec.Struct)


class Journal(Generic[Line]):
    """What is finished, line by line in a file. A line that an interruption cut off is dropped."""

    def __init__(self, path: Path, versions: Versions, kind: type[Line]) -> None:
        self.path, self.done = path, list[Line]()
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        if whole:
            old = msgspec.json.decode(whole[0], type=Versions)
            if old != versions:
                raise SystemExit(
                    f"{path} was made with {_words(old)}, but here is {_words(versions)}. Add --fresh to start anew."
                )
            self.done = [msgspec.json.decode(line, type=kind) for line in whole[1:]]
            with path.open("r+b") as file:
                file.truncate(sum(len(line) + 1 for line in whole))
        else:
            path.write_bytes(msgspec.json.encode(versions) + b"\n")

    def add(self, line: Line) -> None:
        self.done.append(line)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")


def _words(versions: Versions) -> str:
    peers = ", ".join(f"{name} {version}" for name, version in versions.peers.items() if version)
    return f"colme {versions.colme}, {versions.seeds} seeds, {peers or 'no peers'}"


def versions_here(seeds: int) -> Versions:
    return Versions(colme.__version__, installed(), seeds)


def run(journal: Journal[Record], tables: list[str], peers: list[str], seeds: int, tell: Tell) -> None:
    """Do what is missing."""
    jobs = list(planned(tables, peers, seeds))
    done = {record.job: record for record in journal.done}
    spent: Counter[tuple[str, str, str]] = Counter()  # CPU seconds by table, order and peer
    warm = False
    for number, (name, together) in enumerate(itertools.groupby(jobs, lambda job: job[:4])):
        table, order, n, seed = name
        trial = None
        for job in together:
            if job not in done:
                if spent[table, order, job.peer] >= BUDGET:
                    continue
                if not warm:
                    tell("compiling")
                    warm_up(peers)
                    warm = True
                if trial is None:
                    words = f"{n} samples each, seed {seed}" if n else f"seed {seed}"
                    tell(f"{table}, {order}, {words} (job {number * len(peers) + 1:,} of {len(jobs):,})")
                    trial = TABLES[table].trial(order, n, seed)
                done[job] = perform(job, trial)
                journal.add(done[job])
            spent[table, order, job.peer] += done[job].cpu  # type: ignore[assignment]
