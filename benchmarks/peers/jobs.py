"""Every peer on every trial. A finished job is a line in results/peers/records.jsonl, so that an interrupted run goes on."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

import colme
from benchmarks.peers import lme4
from benchmarks.peers.estimators import PEERS, Samples, installed
from benchmarks.peers.tables import IN_TIME, SHUFFLED, TABLES
from benchmarks.peers.trials import Trial

SEEDS = 30
BUDGET = 30.0
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
    for value in (rng.normal(agent % 2, 1.0), rng.normal(5.0 * (agent % 4), 1.0), (rng.random(400) < 0.3).astype(float)):
        for times in (None, np.tile(np.arange(10.0), 40)):
            for peer in peers:
                PEERS[peer].fit(Samples(agent, value, 40, times))


class Journal:
    """Finished jobs, in a file. A line that an interruption cut off is dropped."""

    def __init__(self, path: Path, versions: Versions) -> None:
        self.path = path
        self.records: dict[Job, Record] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        if len(lines) > 1:
            old = msgspec.json.decode(lines[0], type=Versions)
            if old != versions:
                raise SystemExit(f"{path} was made with {_words(old)}, but here is {_words(versions)}. Add --fresh to start anew.")
            self.records = {each.job: each for each in map(msgspec.json.Decoder(Record).decode, filter(None, lines[1:-1]))}
            with path.open("r+b") as file:
                file.truncate(sum(len(line) + 1 for line in lines[:-1]))
        else:
            path.write_bytes(msgspec.json.encode(versions) + b"\n")
        self.file = path.open("ab")

    def add(self, record: Record) -> None:
        self.records[record.job] = record
        self.file.write(msgspec.json.encode(record) + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())


def _words(versions: Versions) -> str:
    peers = ", ".join(f"{name} {version}" for name, version in versions.peers.items() if version)
    return f"colme {versions.colme}, {versions.seeds} seeds, {peers or 'no peers'}"


def versions_here(seeds: int) -> Versions:
    return Versions(colme.__version__, installed(), seeds)


def run(journal: Journal, tables: list[str], peers: list[str], seeds: int, tell: Tell) -> None:
    """Do what is missing."""
    jobs = list(planned(tables, peers, seeds))
    spent: dict[tuple[str, str, str], float] = {}
    warm = False
    for number, (name, together) in enumerate(itertools.groupby(jobs, lambda job: job[:4])):
        table, order, n, seed = name
        due = list(together)
        for job in due:
            if job in journal.records:
                _spend(spent, journal.records[job])
        missing = [job for job in due if job not in journal.records and spent.get(_account(job), 0.0) < BUDGET]
        if not missing:
            continue
        if not warm:
            tell("compiling")
            warm_up(peers)
            warm = True
        words = f"{n} samples each, seed {seed}" if n else f"seed {seed}"
        tell(f"{table}, {order}, {words} (job {number * len(peers) + 1} of {len(jobs)})")
        trial = TABLES[table].trial(order, n, seed)
        for job in missing:
            record = perform(job, trial)
            journal.add(record)
            _spend(spent, record)


def _account(job: Job) -> tuple[str, str, str]:
    return job.table, job.order, job.peer


def _spend(spent: dict[tuple[str, str, str], float], record: Record) -> None:
    spent[_account(record.job)] = spent.get(_account(record.job), 0.0) + record.cpu
