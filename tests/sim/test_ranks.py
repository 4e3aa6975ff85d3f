"""Ranks of MPI give the bits of one process, end together, and continue what others began."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.in_ranks import METHODS, digests, digests_in_ranks, mpiexec
from tests.support.two_machines import two_machines

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.skipif(not Path(sys.executable).with_name("mpiexec").exists(), reason="no mpiexec here")

EXPERIMENT = """
steps = {steps}
seeds = 1
record = "log"
[scenario]
n_agents = {agents}
means = [0.8, 2.0]
sigma = 2.0
[[methods]]
method = "cl-colme"
clock = "global"
"""


def test_two_ranks_on_one_machine_and_on_two_give_the_bits_of_one_process() -> None:
    names = ["laplacian", "flow", "c", "b", "oracle"]
    plain = digests("complete", names)
    assert digests_in_ranks(2, scenario="complete", methods=names) == plain
    assert digests_in_ranks(2, per_machine=1, scenario="complete", methods=names) == plain


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["complete", "gaps", "continuum"])
@pytest.mark.parametrize(("n_ranks", "per_machine"), [(1, None), (3, None), (4, None), (3, 2), (4, 2), (4, 1)])
def test_every_method_has_the_same_bits_for_any_number_of_ranks_and_machines(
    scenario: str, n_ranks: int, per_machine: int | None
) -> None:
    names = list(METHODS)
    given = {"scenario": scenario, "methods": names}
    assert digests_in_ranks(n_ranks, per_machine, **given) == digests(scenario, names)


@pytest.mark.slow
def test_a_run_that_is_continued_by_another_number_of_ranks_has_the_same_bits(tmp_path: Path) -> None:
    names = ["laplacian", "flow"]
    path = str(tmp_path / "run.npz")
    digests_in_ranks(3, scenario="gaps", methods=names, steps=20, checkpoint=path)
    assert digests_in_ranks(2, 1, scenario="gaps", methods=names, steps=40, checkpoint=path) == digests("gaps", names)
    assert len(list(tmp_path.iterdir())) == 3, "the checkpoint and its two parts: those of the three ranks are gone"


def test_the_results_of_ranks_are_stored_like_any_run(tmp_path: Path) -> None:
    (tmp_path / "big.toml").write_text(EXPERIMENT.format(steps=30, agents=3000))
    for results, ranks in (("alone", ()), ("together", ("--ranks", "2"))):
        command = [sys.executable, "-m", "colme", "run", "big.toml", "-q", "--results", results, *ranks]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("CL-colME") == 1, "one rank prints"
    alone, together = (next(tmp_path.glob(f"{each}/big/runs/*/trace.parquet")) for each in ("alone", "together"))
    assert alone.read_bytes() == together.read_bytes()


@pytest.mark.slow
def test_the_death_of_a_rank_ends_the_job_with_the_command_that_continues_it(tmp_path: Path) -> None:
    (tmp_path / "big.toml").write_text(EXPERIMENT.format(steps=4000, agents=20_000))
    command = [sys.executable, "-m", "colme", "run", "big.toml", "-q", "--checkpoint-every", "0.2", "--ranks", "2"]
    job = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    end = time.monotonic() + 300
    while not list(tmp_path.glob("results/big/work/*/checkpoint.npz")) and time.monotonic() < end:
        time.sleep(0.05)
    victim = subprocess.run(["pgrep", "-n", "-f", "colme run big.toml.*--ranks$"], capture_output=True, text=True)
    os.kill(int(victim.stdout), signal.SIGKILL)
    _, stderr = job.communicate(timeout=300)
    assert job.returncode == 1 and "To continue from the last checkpoint: colme run big.toml" in stderr
    (checkpoint,) = tmp_path.glob("results/big/work/*/checkpoint.npz")
    assert checkpoint.exists()
    again = subprocess.run([*command[:-1], "3"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert again.returncode == 0, again.stderr
    plain = subprocess.run([*command[:-2], "--results", "alone"], cwd=tmp_path, capture_output=True, timeout=600)
    assert plain.returncode == 0
    alone, together = (next(tmp_path.glob(f"{each}/big/runs/*/trace.parquet")) for each in ("alone", "results"))
    assert alone.read_bytes() == together.read_bytes()


@pytest.mark.parametrize(("text", "arguments", "code", "words"), [
    pytest.param(EXPERIMENT.format(steps=5, agents=1500), (), 1,
                 "3 workers share 1500 agents: each must have at least 1024", marks=pytest.mark.slow),
    (EXPERIMENT.format(steps=5, agents=4000) + '[[methods]]\nmethod = "colme"\n', (), 1,
     "colME cannot be shared by threads or ranks: it needs all agents in one place"),
    (EXPERIMENT.format(steps=5, agents=4000), ("--steps", "many"), 2, "steps='many': it must be a whole number"),
    pytest.param("steps = ", (), 2, "big.toml", marks=pytest.mark.slow),
])  # fmt: skip
def test_what_ranks_cannot_do_is_said_once(
    text: str, arguments: tuple[str, ...], code: int, words: str, tmp_path: Path
) -> None:
    (tmp_path / "big.toml").write_text(text)
    done = mpiexec(3, "-m", "colme", "run", "big.toml", "-q", *arguments, "--ranks", cwd=tmp_path)
    assert done.returncode == code and done.stderr.count(words) == 1, done.stderr
    assert "Traceback" not in done.stderr


def test_an_mpi4py_without_an_mpi_gets_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "big.toml").write_text(EXPERIMENT.format(steps=5, agents=4000))
    command = [sys.executable, "-m", "colme", "run", "big.toml", "--ranks"]
    without = os.environ | {"MPI4PY_LIBMPI": "/nonexistent/libmpi.so"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=without)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("Error: mpi4py finds no MPI") and "Try: pip install mpich" in done.stderr


SCRIPT = """
import colme, sys
from mpi4py import MPI
from colme.sim.ranks import RankTeam
import json
given = json.loads(sys.argv[1])
rank = MPI.COMM_WORLD.rank
if "version" in given and rank == 1:
    colme.__version__ = given["version"]
scenario = colme.Scenario(n_agents=3000, means=(0.0, 1.0), sigma=1.0)
try:
    colme.simulate(colme.CLColME(), scenario, steps=5 + given.get("more", 0) * rank, ranks=MPI.COMM_WORLD)
except colme.errors.ColmeError as error:
    print(f"{rank}: {error}", flush=True)
"""


@pytest.mark.parametrize(("given", "words"), [
    ({"version": "0.1"}, "rank 1 colme 0.1"), ({"more": 2}, "rank 1 was called with other arguments than rank 0"),
])  # fmt: skip
def test_ranks_that_differ_are_refused(given: dict[str, object], words: str) -> None:
    done = mpiexec(2, "-c", SCRIPT, json.dumps(given))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(words) == 2, "each rank refuses to begin"


@pytest.mark.network
def test_two_machines_give_the_bits_of_one_process(tmp_path: Path) -> None:
    names = ["laplacian", "flow", "c", "b", "census"]
    given = {"scenario": "complete", "methods": names}
    with two_machines(tmp_path) as machines:
        done = machines.run("-m", "tests.support.in_ranks", json.dumps(given))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == digests("complete", names)
        assert machines.bytes_sent() > 1_000_000, "what neighbors need went through the network"
