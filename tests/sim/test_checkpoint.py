"""A run that was stopped, by whatever, continues as if nothing had happened; a file that is not whole is refused."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import colme
from colme.errors import CheckpointError, RunError
from colme.graphs import ring_lattice_graph
from colme.methods import Method
from colme.sim.run import Progress, Run
from tests.support.power_cut import fail_at
from tests.support.same_bits import assert_same_bits

SCENARIO = colme.Scenario(n_agents=40, means=(0.0, 1.25), sigma=0.5)
GAPS = colme.Scenario(n_agents=40, means=(0.0, 1.25), sigma=0.5, skip_rate=0.3, late_share=0.3, late_step=25)
SHIFT = colme.Scenario(n_agents=40, means=(0.0, 1.25), sigma=0.5, shift_step=30, shift_means=(2.0, -1.0))
CL = colme.CLColME(delta=0.1)
METHODS: list[Method] = [
    colme.Local(), colme.Oracle(), colme.ColME(delta=0.1), colme.BColME(delta=0.1), colme.CColME(delta=0.1), CL,
    colme.CLColME(delta=0.1, clock="global", step=0.1), colme.CLColME(delta=0.1, clock="own"),
    colme.CLColME(delta=0.1, consensus="flow"),
]  # fmt: skip


class PowerCut(Exception):
    """What stops a run in the tests below."""


def step_of(path: Path) -> int:
    with np.load(path, allow_pickle=False) as file:
        return int(file["t"])


def run_until(step: int, *arguments: Any, seed: int | None = None, **options: Any) -> None:
    """Simulate, and fail at this step (of this seed, or of all)."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(PowerCut):
        fail_at(patch, step, PowerCut, seed)
        colme.simulate(*arguments, **options)


# Resuming


@pytest.mark.parametrize("scenario", [SCENARIO, GAPS, SHIFT], ids=["complete", "gaps", "shift"])
@pytest.mark.parametrize("cut_at", [2, 29, 60])
def test_an_interrupted_run_resumes_bit_for_bit(tmp_path: Path, scenario: colme.Scenario, cut_at: int) -> None:
    path = tmp_path / "run.npz"
    whole = colme.simulate(METHODS, scenario, degree=6, steps=60)
    run_until(cut_at, METHODS, scenario, degree=6, steps=60, checkpoint=path, checkpoint_every=0)
    assert step_of(path) == cut_at - 1
    resumed = colme.simulate(METHODS, scenario, degree=6, steps=60, checkpoint=path)
    for one, other in zip(resumed, whole, strict=True):
        assert_same_bits(one, other)


@pytest.mark.parametrize("source", ["array", "recording"])
def test_a_run_on_your_own_samples_resumes(tmp_path: Path, source: str) -> None:
    values = np.random.default_rng(4).normal(size=(50, 12))
    values[:9, 3] = np.nan
    samples = values if source == "array" else colme.Recording(values, means=np.zeros(12), sigma=1.0)
    method = colme.Local() if source == "array" else CL
    run_until(30, method, samples, checkpoint=tmp_path / "run.npz", checkpoint_every=0)
    resumed = colme.simulate(method, samples, checkpoint=tmp_path / "run.npz")
    assert_same_bits(resumed, colme.simulate(method, samples))


def test_resuming_does_not_run_again_what_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.npz"
    run_until(31, CL, SCENARIO, steps=60, checkpoint=path, checkpoint_every=0)
    steps: list[int] = []
    honest = Run.advance

    def advance(self: Run, first: int, last: int) -> None:
        honest(self, first, last)
        steps.extend(range(first, self.world.t + 1))

    monkeypatch.setattr(Run, "advance", advance)
    finished = colme.simulate(CL, SCENARIO, steps=60, checkpoint=path)
    assert steps == list(range(31, 61))
    again = colme.simulate(CL, SCENARIO, steps=60, checkpoint=path)
    assert len(steps) == 30, "a finished run was run again"
    assert_same_bits(again, finished)


@pytest.mark.parametrize("record", ["all", "log", 7, 10, [3, 20, 21]], ids=str)
@pytest.mark.parametrize("steps", [(23, 60), (30, 31), (20, 33, 59)], ids=str)
def test_more_steps_than_before_equal_one_long_run(tmp_path: Path, record: Any, steps: tuple[int, ...]) -> None:
    """Also where the first run recorded a step only because it ended there."""
    if isinstance(record, list):
        record = [step for step in record if step <= steps[0]]
    path = tmp_path / "run.npz"
    for n_steps in steps:
        trace = colme.simulate([CL, colme.Local()], GAPS, steps=n_steps, record=record, checkpoint=path)
        whole = colme.simulate([CL, colme.Local()], GAPS, steps=n_steps, record=record)
        for one, other in zip(trace, whole, strict=True):
            assert_same_bits(one, other)


def test_an_interrupted_run_can_be_ended_where_it_stopped(tmp_path: Path) -> None:
    """Step 25 is on no grid, so nobody recorded it."""
    path = tmp_path / "run.npz"
    run_until(26, CL, SHIFT, steps=60, record=7, checkpoint=path, checkpoint_every=0)
    ended = colme.simulate(CL, SHIFT, steps=25, record=7, checkpoint=path)
    assert ended.t.tolist() == [7, 14, 21, 25]
    assert_same_bits(ended, colme.simulate(CL, SHIFT, steps=25, record=7))


def test_fewer_steps_than_the_checkpoint_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    colme.simulate(CL, SCENARIO, steps=30, checkpoint=path)
    with pytest.raises(CheckpointError, match=r"at step 30, beyond steps=29\. Ask for"):
        colme.simulate(CL, SCENARIO, steps=29, checkpoint=path)


# One file, or a folder with a file for each seed


def test_one_seed_has_one_file_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "run.npz"
    colme.simulate([CL, colme.Local()], SCENARIO, steps=5, checkpoint=str(path))
    assert [each.name for each in path.parent.iterdir()] == ["run.npz"] and step_of(path) == 5


def test_seeds_resume_each_from_its_own_file_and_new_seeds_start(tmp_path: Path) -> None:
    run_until(20, CL, SCENARIO, seed=1, steps=40, seeds=[0, 1], n_jobs=1, checkpoint=tmp_path, checkpoint_every=0)
    assert step_of(tmp_path / "seed-0.npz") == 40 and step_of(tmp_path / "seed-1.npz") == 19
    resumed = colme.simulate(CL, SCENARIO, steps=40, seeds=[2, 1, 0], checkpoint=tmp_path)
    for one, other in zip(resumed, colme.simulate(CL, SCENARIO, steps=40, seeds=[2, 1, 0]), strict=True):
        assert_same_bits(one, other)


def test_a_file_where_a_folder_is_needed_and_the_reverse_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(RunError, match="must be a folder, and this is a file"):
        colme.simulate(CL, SCENARIO, steps=5, seeds=[0], checkpoint=file)
    with pytest.raises(RunError, match=r"must be a file, and this is a folder\. Try .*run\.npz"):
        colme.simulate(CL, SCENARIO, steps=5, checkpoint=tmp_path)


# Another run


def other_scenario(**changes: Any) -> colme.Scenario:
    return colme.Scenario(**({"n_agents": 40, "means": (0.0, 1.25), "sigma": 0.5} | changes))


@pytest.mark.parametrize(("field", "changes"), [
    ("methods", {"method": colme.CLColME(delta=0.2)}),
    ("methods", {"method": colme.CColME(delta=0.1)}),
    ("methods", {"method": [CL, colme.Local()]}),
    ("source", {"source": other_scenario(sigma=0.6)}),
    ("source", {"source": other_scenario(n_agents=42)}),
    ("source", {"source": other_scenario(means=(0.0, 1.0))}),
    ("source", {"source": np.zeros((30, 40)), "method": colme.CLColME(delta=0.1, sigma=0.5)}),
    ("degree", {"degree": 8}),
    ("degree", {"degree": None, "graph": ring_lattice_graph(40, 6)}),
    ("seed", {"seed": 1}),
    ("tolerance", {"tolerance": 0.2}),
    ("record", {"record": "log"}),
    ("precision", {"precision": "double"}),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path: Path, field: str, changes: dict[str, Any]) -> None:
    path = tmp_path / "run.npz"
    first: dict[str, Any] = {"method": CL, "source": SCENARIO, "degree": 6, "steps": 20, "checkpoint": path}
    if "method" in changes and field != "methods":
        first["method"] = changes["method"]
    colme.simulate(first.pop("method"), first.pop("source"), **first)
    before = path.read_bytes()
    second: dict[str, Any] = {"method": CL, "source": SCENARIO} | first | changes
    with pytest.raises(CheckpointError, match=rf"run\.npz belongs to another run: its {field}\b.*delete it"):
        colme.simulate(second.pop("method"), second.pop("source"), **second)
    assert path.read_bytes() == before


@pytest.mark.parametrize("changes", [
    {"values": np.ones((20, 6))}, {"sigma": 0.9}, {"means": np.ones(6)}, {"classes": [0, 0, 1, 1, 1, 1]},
    {"width": 3.0},
], ids=lambda changes: next(iter(changes)))  # fmt: skip
def test_a_checkpoint_of_another_recording_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    """What is known about the samples decides the run as much as the samples."""
    known: dict[str, Any] = {"values": np.random.default_rng(0).normal(size=(20, 6)), "sigma": 1.0}
    path = tmp_path / "run.npz"
    colme.simulate(CL, colme.Recording(**known), steps=10, checkpoint=path)
    colme.simulate(CL, colme.Recording(**known), steps=12, checkpoint=path)
    with pytest.raises(CheckpointError, match=r"another run: its source\b"):
        colme.simulate(CL, colme.Recording(**(known | changes)), steps=20, checkpoint=path)


def test_a_saved_trace_is_no_checkpoint(tmp_path: Path) -> None:
    colme.simulate(CL, SCENARIO, steps=5).save(tmp_path / "run.npz")
    with pytest.raises(CheckpointError, match="holds 'colme trace 1' where 'colme checkpoint 1' is needed"):
        colme.simulate(CL, SCENARIO, steps=5, checkpoint=tmp_path / "run.npz")


def test_a_scenario_written_with_lists_or_integers_is_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    colme.simulate(CL, colme.Scenario(n_agents=6, means=(0.0, 3.0), sigma=1.0), steps=4, checkpoint=path)
    same = colme.Scenario(n_agents=6, means=[0, 3], sigma=1)
    assert colme.simulate(CL, same, steps=8, checkpoint=path).t[-1] == 8


# Files that are not whole


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    path = tmp_path / "run.npz"
    colme.simulate(CL, colme.Scenario(n_agents=8, means=(0.0, 2.0)), steps=5, checkpoint=path)
    return path


def resume(path: Path) -> colme.Trace:
    return colme.simulate(CL, colme.Scenario(n_agents=8, means=(0.0, 2.0)), steps=9, checkpoint=path)


def test_a_torn_file_is_refused_with_a_remedy_and_not_touched(finished: Path) -> None:
    data = finished.read_bytes()
    lengths = {0, 1, 3, 4, 30, len(data) - 1, len(data) - 21, len(data) - 22, *range(0, len(data), 197)}
    for length in sorted(lengths):
        finished.write_bytes(data[:length])
        with pytest.raises(CheckpointError, match=r"run\.npz is torn or is not .* Check the path"):
            resume(finished)
        assert finished.read_bytes() == data[:length], "a file that could not be read was written over"


def test_rubbish_alone_or_behind_a_torn_file_is_refused(finished: Path) -> None:
    data, noise = finished.read_bytes(), np.random.default_rng(0).bytes(4096)
    for length in (0, 30, len(data) // 2):
        for rubbish in (b"not a checkpoint\n", bytes(4096), b"PK\x05\x06" + bytes(18), noise):
            finished.write_bytes(data[:length] + rubbish)
            with pytest.raises(CheckpointError, match="Check the path, or name another file"):
                resume(finished)
            assert finished.read_bytes() == data[:length] + rubbish


def test_a_flipped_byte_is_noticed_or_changes_nothing(finished: Path) -> None:
    """In strides, closer ones in the table of contents at the end; never another error, never other numbers."""
    wanted = resume_copy(finished, finished.read_bytes())
    data = finished.read_bytes()
    contents = data.index(b"PK\x01\x02")
    refused = 0
    for position in [*range(0, contents, 61), *range(contents, len(data), 5)]:
        damaged = bytearray(data)
        damaged[position] ^= 0x21
        try:
            trace = resume_copy(finished, bytes(damaged))
        except CheckpointError:
            refused += 1
        else:
            assert_same_bits(trace, wanted)
    assert refused > 100


def resume_copy(path: Path, data: bytes) -> colme.Trace:
    copy = path.with_name("copy.npz")
    copy.write_bytes(data)
    return resume(copy)


@pytest.mark.parametrize(
    "arrays", [{"a": np.zeros(3)}, {"head": np.zeros(3)}, {"head": np.frombuffer(b"[]", np.uint8)}], ids=str
)
def test_a_foreign_npz_is_refused(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "run.npz", **arrays)
    with pytest.raises(CheckpointError, match="Check the path, or name another file"):
        resume(tmp_path / "run.npz")


def test_files_hold_no_pickle(tmp_path: Path) -> None:
    for number, method in enumerate(METHODS):
        for scenario in (SCENARIO, GAPS):
            path = tmp_path / f"{number}.npz"
            path.unlink(missing_ok=True)
            colme.simulate(method, scenario, steps=5, checkpoint=path)
            with np.load(path, allow_pickle=False) as file:
                assert all(file[name].dtype.kind in "biuf" for name in file.files), method


# Writing is all or nothing


def test_a_folder_that_cannot_be_written_is_one_sentence_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(colme.ColmeError, match=r"Permission denied\. Choose a folder .* writable\.$"):
        colme.simulate(CL, SCENARIO, steps=5, checkpoint=tmp_path / "run.npz")


@pytest.mark.parametrize("options", [{}, {"seeds": [0, 1]}], ids=["file", "folder"])
def test_a_folder_that_cannot_be_made_is_one_sentence_and_a_remedy(tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(colme.ColmeError, match=r"folder") as caught:
        colme.simulate(CL, SCENARIO, steps=5, checkpoint=tmp_path / "file" / "below" / "run.npz", **options)
    assert "\n" not in str(caught.value)


# Signals

CHILD = """
import json, signal, sys, time
import colme
from colme.sim.run import Run

signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have it ignored
options = json.loads(sys.argv[1])
advance = Run.advance

def slow_advance(self, first, last):  # by one step, for there are gaps
    time.sleep(0.05)
    advance(self, first, last)

Run.advance = slow_advance  # so that a quick machine is not done before the signal comes
scenario = colme.Scenario(n_agents=40, means=(0.0, 1.25), sigma=0.5, skip_rate=0.1)
colme.simulate([colme.CLColME(delta=0.1), colme.BColME(delta=0.1)], scenario, degree=6, steps=600, record="log",
               progress=lambda news: print(news.seed, news.step, flush=True), **options)
"""
CHILD_SCENARIO = colme.Scenario(n_agents=40, means=(0.0, 1.25), sigma=0.5, skip_rate=0.1)
CHILD_METHODS: list[Method] = [colme.CLColME(delta=0.1), colme.BColME(delta=0.1)]


def child(**options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, json.dumps(options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_a_step(process: subprocess.Popen[str], *seeds: int) -> None:
    """Until it has told of a step; of one of each seed, if seeds are given."""
    assert process.stdout is not None and process.stderr is not None
    told = set[int]()
    while not told or not told >= set(seeds):
        line = process.stdout.readline()
        assert line, process.stderr.read()
        told.add(int(line.split()[0]))


def test_ctrl_c_writes_the_checkpoint_and_the_resumed_run_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    with child(checkpoint=str(path)) as process:
        wait_for_a_step(process)
        assert not path.exists(), "the first checkpoint is due after a minute"
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=600)
    assert process.returncode not in (0, None) and "KeyboardInterrupt" in words
    assert [each.name for each in tmp_path.iterdir()] == ["run.npz"]
    assert 0 < step_of(path) < 600
    resumed = colme.simulate(CHILD_METHODS, CHILD_SCENARIO, degree=6, steps=600, record="log", checkpoint=path)
    for one, other in zip(resumed, whole_run(), strict=True):
        assert_same_bits(one, other)


def test_ctrl_c_stops_all_seeds_and_each_resumes(tmp_path: Path) -> None:
    with child(checkpoint=str(tmp_path), seeds=[0, 1, 2], n_jobs=2) as process:
        wait_for_a_step(process, 0, 1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=600)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["seed-0.npz", "seed-1.npz"], "the third never began"
    assert all(0 < step_of(each) < 600 for each in tmp_path.iterdir())
    options: dict[str, Any] = {"degree": 6, "steps": 600, "record": "log", "seeds": [0, 1, 2]}
    resumed = colme.simulate(CHILD_METHODS, CHILD_SCENARIO, checkpoint=tmp_path, **options)
    for one, other in zip(resumed, colme.simulate(CHILD_METHODS, CHILD_SCENARIO, **options), strict=True):
        assert_same_bits(one, other)


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_killed_at_random_moments_the_run_ends_in_the_same_bits(tmp_path: Path, kills: int) -> None:
    """It writes after every step, so that some of the kills fall into a write."""
    path = tmp_path / "run.npz"
    rng = np.random.default_rng()
    reached = [0]
    for _ in range(kills):
        with child(checkpoint=str(path), checkpoint_every=0) as process:
            if path.exists():
                wait_for_a_step(process)  # it tells where it goes on from
            wait_for_a_step(process)
            wait_for_a_step(process)  # what it told before is saved by now
            time.sleep(rng.uniform(0.0, 0.2))
            process.kill()
            process.communicate(timeout=600)
        assert process.returncode == -signal.SIGKILL
        reached.append(step_of(path))
    assert reached == sorted(set(reached)) and reached[-1] < 600, "every try must have gone on, and none to the end"
    told: list[Progress] = []
    resumed = colme.simulate(
        CHILD_METHODS, CHILD_SCENARIO, degree=6, steps=600, record="log", checkpoint=path, progress=told.append
    )
    assert told[0].step == reached[-1]
    for one, other in zip(resumed, whole_run(), strict=True):
        assert_same_bits(one, other)


def whole_run() -> colme.Traces:
    return colme.simulate(CHILD_METHODS, CHILD_SCENARIO, degree=6, steps=600, record="log")
