"""A sweep that was stopped, by whatever and whenever, goes on to the same bits, and leaves nothing else behind."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colme import lab
from colme.errors import RunError
from colme.lab.experiment import Experiment
from colme.lab.runs.runner import make_plan
from colme.lab.runs.store import RunStore
from tests.support.live_viewer import wait_until
from tests.support.napping import SLOW
from tests.support.power_cut import fail_at

SWEEP = """
modules = ["slow.py"]
seeds = 10
steps = 800
record = 20
[scenario]
n_agents = 60
means = [0.0, 1.0]
sigma = 0.5
skip_rate = 0.1
[[methods]]
method = "slow"
[[methods]]
method = "c-colme"
"""
STEPS = 800


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiment file."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "slow.py").write_text(SLOW)
    (folder / "sweep.toml").write_text(SWEEP)
    return folder / "sweep.toml"


@pytest.fixture(scope="module")
def undisturbed(sweep: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the whole sweep, which nobody interrupted."""
    results = tmp_path_factory.mktemp("undisturbed")
    lab.run(sweep, results=results, backend="threading", jobs=20)
    return results / "sweep"


class Sweep:
    """`colme run` in a session of its own, as in a terminal of its own."""

    def __init__(self, file: Path, results: Path, *flags: str, nap: float):
        self.words_file = results / f"words-{time.monotonic_ns()}"
        self.data_file = self.words_file.with_suffix(".data")
        with open(self.words_file, "w") as words, open(self.data_file, "w") as data:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "colme", "run", str(file), "--results", str(results), "-q", *flags],
                stdout=data, stderr=words, start_new_session=True, env={**os.environ, "NAP": str(nap)},
            )  # fmt: skip

    def send(self, signal_number: int, to: str) -> None:
        """To the process that was started, or to its workers as well, as a terminal does."""
        (os.killpg if to == "group" else os.kill)(self.process.pid, signal_number)

    def end(self) -> int:
        return self.process.wait(timeout=240)

    @property
    def words(self) -> str:
        return self.words_file.read_text()

    def members(self) -> list[str]:
        """The living processes of the session."""
        listed = subprocess.run(["ps", "-eww", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True)
        rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
        return [args for group, state, args in rows if group == str(self.process.pid) and not state.startswith("Z")]

    def clean_up(self) -> None:
        if self.members():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def start(sweep: Path, tmp_path: Path) -> Iterator[Callable[..., Sweep]]:
    """Starts a sweep in `tmp_path`, whose slow runs take eight seconds or so; none outlives the test."""
    started: list[Sweep] = []

    def start(*flags: str, file: Path = sweep, nap: float = 0.01) -> Sweep:
        started.append(Sweep(file, tmp_path, *flags, nap=nap))
        return started[-1]

    yield start
    for each in started:
        each.clean_up()


def traces_of_progress(results: Path) -> dict[str, float]:
    """Everything that grows while a sweep goes on, with the time of its last change."""
    found = {}
    for pattern in ("runs/*", "work/*/progress", "work/*/checkpoint.npz"):
        for each in (results / "sweep").glob(pattern):
            try:
                found[str(each)] = each.stat().st_mtime_ns
            except FileNotFoundError:  # just now
                continue
    return found


def wait_for_progress(sweep: Sweep, results: Path, before: dict[str, float]) -> None:
    wait_until(lambda: traces_of_progress(results) != before or sweep.process.poll() is not None)


def assert_same_runs(results: Path, undisturbed: Path, n_runs: int) -> None:
    """Every run is there, has the same trace to the last bit and the same description but for its times; and there is
    nothing but runs."""
    ours, theirs = results / "sweep" / "runs", undisturbed / "runs"
    names = sorted(each.name for each in ours.iterdir())
    assert len(names) == n_runs and set(names) <= {each.name for each in theirs.iterdir()}
    for name in names:
        assert sorted(each.name for each in (ours / name).iterdir()) == ["run.json", "trace.parquet"]
        assert (ours / name / "trace.parquet").read_bytes() == (theirs / name / "trace.parquet").read_bytes()
        mine, other = (json.loads((runs / name / "run.json").read_text()) for runs in (ours, theirs))
        assert mine.pop("timings") != other.pop("timings"), "no two runs take equally long"
        assert mine == other
    assert sorted(each.name for each in (results / "sweep").iterdir()) == ["experiment.toml", "modules", "runs"]


def assert_nothing_is_torn(results: Path, sweep: Path) -> None:
    assert make_plan(sweep, results=results).torn == []


# Kill -9


@pytest.mark.slow
def test_killed_twenty_times_at_random_moments_the_sweep_ends_in_the_same_bits(
    sweep: Path, undisturbed: Path, tmp_path: Path, start: Callable[..., Sweep]
) -> None:
    """Every fifth one is killed before it has done anything."""
    moments = random.Random(20)
    for number in range(20):
        workers, to = ("1", "main") if number % 2 else ("2", "main" if number % 4 else "group")
        before = traces_of_progress(tmp_path)
        sweeping = start("-j", workers, "--checkpoint-every", "0.1")
        if number % 5 == 4:
            time.sleep(moments.uniform(0.0, 1.0))
        else:
            wait_for_progress(sweeping, tmp_path, before)
            time.sleep(moments.uniform(0.0, 0.6))
        if sweeping.process.poll() is None:
            sweeping.send(signal.SIGKILL, to)
        assert sweeping.end() in (-signal.SIGKILL, 0) and "Traceback" not in sweeping.words
        assert_nothing_is_torn(tmp_path, sweep)
    last = start("-j", "2", nap=0.0)
    assert last.end() == 0, last.words
    assert_same_runs(tmp_path, undisturbed, 20)
    resumed = [each["timings"]["steps"] < STEPS for each in heads(tmp_path)]
    assert any(resumed), "runs were begun anew that had a checkpoint"


def heads(results: Path) -> list[dict[str, Any]]:
    return [json.loads(each.read_text()) for each in sorted((results / "sweep" / "runs").glob("*/run.json"))]


@pytest.mark.slow
def test_orphaned_workers_end_and_do_not_disturb_the_next_sweep(
    sweep: Path, undisturbed: Path, tmp_path: Path, start: Callable[..., Sweep]
) -> None:
    orphaned = start("-j", "2", "--seeds", "2")
    wait_for_slow_runs(sweep, tmp_path)
    orphaned.send(signal.SIGKILL, "main")
    assert orphaned.end() == -signal.SIGKILL
    lab.run(Experiment.read(sweep, {"seeds": 2}), results=tmp_path, backend="threading", jobs=4)  # at once
    assert_same_runs(tmp_path, undisturbed, 4)
    resumed = [each["timings"]["steps"] < STEPS for each in heads(tmp_path) if "nap" in each["configuration"]["method"]]
    assert resumed == [True, True], "an orphan writes its checkpoint before it ends"
    wait_until(lambda: not orphaned.members())


def wait_for_slow_runs(sweep: Path, results: Path, n_runs: int = 2) -> None:
    """Until so many of them say how far they are."""
    slow = {each.name for each in Experiment.read(sweep).planned if each.label == "slow"}
    wait_until(lambda: len(slow & RunStore(results / "sweep").steps_done().keys()) == n_runs)


# Ctrl-C


@pytest.mark.parametrize(("to", "jobs"), [("main", 1), ("group", 2), pytest.param("main", 2, marks=pytest.mark.slow)])
def test_ctrl_c_keeps_what_is_done_and_saves_what_is_going_on(
    sweep: Path, undisturbed: Path, tmp_path: Path, start: Callable[..., Sweep], to: str, jobs: int
) -> None:
    going = start("-j", str(jobs), "--seeds", "2")
    wait_for_slow_runs(sweep, tmp_path, jobs)
    going.send(signal.SIGINT, to)
    assert going.end() == 130
    left = len(make_plan(Experiment.read(sweep, {"seeds": 2}), results=tmp_path).missing)
    assert f"Interrupted: {left} of 4 runs are left. Run the same command to continue." in going.words.splitlines()
    assert left >= 2 and "Traceback" not in going.words and going.data_file.read_text() == ""
    wait_until(lambda: not going.members())
    assert_nothing_is_torn(tmp_path, sweep)
    finished = {each.name for each in (tmp_path / "sweep" / "runs").iterdir()}
    before = {name: (tmp_path / "sweep" / "runs" / name / "run.json").read_bytes() for name in finished}
    saved = {each.parent.name: step_of(each) for each in (tmp_path / "sweep" / "work").glob("*/checkpoint.npz")}
    assert len(saved) == jobs and all(0 < step < STEPS for step in saved.values())
    assert [each.name for each in (tmp_path / "sweep" / "work").iterdir() if each.is_file()] == []
    lab.run(Experiment.read(sweep, {"seeds": 2}), results=tmp_path, backend="threading", jobs=4)
    assert_same_runs(tmp_path, undisturbed, 4)
    for head in heads(tmp_path):
        if head["name"] in before:
            assert before[head["name"]] == (tmp_path / "sweep" / "runs" / head["name"] / "run.json").read_bytes()
        else:
            assert head["timings"]["steps"] == STEPS - saved.get(head["name"], 0)


def step_of(checkpoint: Path) -> int:
    with np.load(checkpoint, allow_pickle=False) as file:
        return int(file["t"])


@pytest.mark.slow
def test_ctrl_c_while_the_workers_start_is_a_sentence(
    sweep: Path, undisturbed: Path, tmp_path: Path, start: Callable[..., Sweep]
) -> None:
    going = start("-j", "2", "--seeds", "2")
    wait_until(lambda: sum("popen_loky" in each for each in going.members()) == 2)
    going.send(signal.SIGINT, "group")
    assert going.end() == 130
    assert re.search(r"^Interrupted: [2-4] of 4 runs are left\. ", going.words, re.M)
    assert "Traceback" not in going.words
    lab.run(Experiment.read(sweep, {"seeds": 2}), results=tmp_path, backend="threading", jobs=4)
    assert_same_runs(tmp_path, undisturbed, 4)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["2", "1"])
def test_the_second_ctrl_c_stops_at_once(sweep: Path, tmp_path: Path, start: Callable[..., Sweep], jobs: str) -> None:
    """Where the first cannot be heard: in a step that takes an hour."""
    stuck, sign = sweep.with_name("stuck.toml"), tmp_path / "napping"
    slow = f'method = "slow"\nnap = 3600.0\nsign = "{sign}"'
    stuck.write_text(SWEEP.replace("seeds = 10", "seeds = 2").replace('method = "slow"', slow))
    going = start("-j", jobs, file=stuck)
    wait_until(sign.exists)
    going.send(signal.SIGINT, "group")
    wait_until(lambda: list((tmp_path / "stuck" / "work").glob("stop-*")))
    assert going.process.poll() is None
    going.send(signal.SIGINT, "group")
    assert going.end() == 130
    assert re.search(r"^Interrupted: [2-4] of 4 runs are left\. ", going.words, re.M)
    assert "Traceback" not in going.words
    wait_until(lambda: not going.members())
    assert list((tmp_path / "stuck" / "work").glob("stop-*")) == []


# Two at once


@pytest.mark.slow
def test_two_sweeps_of_the_same_experiment_at_once_do_each_run_once(
    undisturbed: Path, tmp_path: Path, start: Callable[..., Sweep]
) -> None:
    both = [start("-j", "2", "--seeds", "2", "--checkpoint-every", "0.1", nap=0.002) for _ in range(2)]
    for each in both:
        assert each.end() == 0, each.words
        assert "Traceback" not in each.words
    assert_same_runs(tmp_path, undisturbed, 4)
    assert all(each["timings"]["steps"] == STEPS for each in heads(tmp_path)), "one continued what the other was doing"


# What is done, and what is begun anew


@pytest.mark.parametrize(("force", "steps"), [(False, 201), (True, 400)])
def test_a_checkpoint_is_continued_unless_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool, steps: int
) -> None:
    table = {"scenario": {"n_agents": 20, "means": [0.0, 1.0]}, "methods": [{"method": "c-colme"}], "steps": 400}
    fail_at(monkeypatch, 200, PowerCut)
    with pytest.raises(RunError, match="PowerCut"):
        lab.run(table, results=tmp_path, checkpoint_every=1e-9)
    monkeypatch.undo()
    lab.run(table, results=tmp_path, force=force)
    (head,) = (json.loads(each.read_text()) for each in tmp_path.glob("experiment/runs/*/run.json"))
    assert head["timings"]["steps"] == steps


class PowerCut(Exception):
    """What stops a run in the test above."""
