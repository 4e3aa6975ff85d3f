"""Runs that are each shared by all ranks of MPI. The first rank leads: it plans, shows progress and stores the results,
as it would alone. The others follow: they wait for a run, share it, and wait for the next one."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from colme.errors import ColmeError, RunError
from colme.lab.runs.perform import Task, run_spec
from colme.sim.ranks import RankTeam, mpi
from colme.sim.run import Interrupted


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


def hand_out(team: RankTeam, task: Task, checkpoint: Path) -> None:
    """Tell the followers which run comes next."""
    team.comm.bcast((task, str(checkpoint)))


def abort(team: RankTeam, error: BaseException) -> NoReturn:
    """End all ranks, after an error that only one of them has."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    words = "there is not enough memory" if isinstance(error, MemoryError) else f"{type(error).__name__}: {error}"
    sys.stderr.write(f"Error: rank {team.rank}: {words} ({Path(place.filename).name}, line {place.lineno}). "
                     "Run the same command to continue from the last checkpoint.\n")  # fmt: skip
    sys.stderr.flush()
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


def command_of(arguments: Sequence[Any]) -> str:
    """A command as it is typed."""
    import shlex

    return shlex.join(["colme", *map(str, arguments)])
