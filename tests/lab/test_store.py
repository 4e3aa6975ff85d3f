"""A run is complete or not there; what is torn is done again; and a run says what made it, not on whose machine."""

from __future__ import annotations

import errno
import getpass
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import colme
from colme import lab
from colme.errors import RunError
from colme.lab.experiment import Experiment
from colme.lab.runs.runner import carry_out, make_plan
from colme.lab.runs.store import RunStore
from colme.sim.run import Interrupted
from tests.support.compiling import FORBID
from tests.support.power_cut import fail_at

TABLE: dict[str, Any] = {
    "scenario": {"n_agents": 20, "means": [0.0, 1.0], "sigma": 0.5},
    "methods": [{"method": "cl-colme"}, {"method": "local"}],
    "steps": 40,
    "seeds": 2,
}


def run(results: Path, **options: Any) -> Any:
    return lab.run(TABLE, results=results, jobs=1, **options)


def contents(results: Path) -> dict[str, bytes]:
    """Every file of the experiment."""
    folder = results / "experiment"
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def traces(results: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(results).items() if name.endswith(".parquet")}


@pytest.fixture
def finished(tmp_path: Path) -> RunStore:
    run(tmp_path)
    return RunStore(tmp_path / "experiment")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("undisturbed")
    run(results)
    return results


# A torn folder


def truncate(path: Path, length: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:length] if length >= 0 else data[: len(data) + length])


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def other_run(folder: Path) -> None:
    """The files of another run under this name."""
    other = next(each for each in folder.parent.iterdir() if each != folder)
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "trace truncated": lambda folder: truncate(folder / "trace.parquet", -1),
    "trace empty": lambda folder: truncate(folder / "trace.parquet", 0),
    "trace flipped": lambda folder: flip(folder / "trace.parquet", 100),
    "trace missing": lambda folder: (folder / "trace.parquet").unlink(),
    "json missing": lambda folder: (folder / "run.json").unlink(),
    "json empty": lambda folder: truncate(folder / "run.json", 0),
    "json truncated": lambda folder: truncate(folder / "run.json", 200),
    "json is not JSON": lambda folder: (folder / "run.json").write_bytes(b"\xff\x00 rubbish"),
    "json is a list": lambda folder: (folder / "run.json").write_text("[]"),
    "json is of nothing": lambda folder: (folder / "run.json").write_text("{}"),
    "another hash": lambda folder: replace(folder / "run.json", '"trace": "', '"trace": "0'),
    "another name": lambda folder: replace(folder / "run.json", f'"name": "{folder.name}"', '"name": "other"'),
    "another format": lambda folder: replace(folder / "run.json", "colme run 1", "colme run 0"),
    "another run": other_run,
    "empty folder": lambda folder: (shutil.rmtree(folder), folder.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_torn_run_is_noticed_and_done_again_and_no_other(
    finished: RunStore, undisturbed: Path, tmp_path: Path, damage: Callable[[Path], Any]
) -> None:
    torn = sorted(finished.runs.iterdir())[1]
    before = contents(tmp_path)
    damage(torn)
    plan = make_plan(TABLE, results=tmp_path)
    assert plan.torn == [torn.name] == [each.name for each in plan.missing] and plan.n_runs == 4
    assert lab.load(finished.folder).attrs["missing"] == 1
    assert run(tmp_path).attrs["missing"] == 0
    after = contents(tmp_path)
    assert {name for name in after if after[name] != before[name]} <= {f"runs/{torn.name}/run.json"}
    assert after.keys() == before.keys() and traces(tmp_path) == traces(undisturbed)


# Killed while writing

KILLED = """
import os, sys
from pathlib import Path
from colme import lab
from colme.lab.runs import store

def die(*arguments, **options):
    os._exit(9)

def dies_after(honest):
    def last(*arguments, **options):
        honest(*arguments, **options)
        os._exit(9)
    return last

def kill_while(moment):
    if moment == "writing the trace":
        store.parquet().write_table = dies_after(store.parquet().write_table)
    elif moment == "flushing":
        store.flush = die
    elif moment == "moving":
        Path.rename = die
    elif moment == "tidying up":
        store.RunStore.release = die

table = {table}
for moment in {moments}:
    if os.fork() == 0:
        kill_while(moment)
        lab.run(table, results=Path(sys.argv[1]) / moment, jobs=1)
        os._exit(0)
    print(moment, os.waitstatus_to_exitcode(os.wait()[1]), sep="=")
"""
MOMENTS = ("writing the trace", "flushing", "moving", "tidying up")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results for each moment, in which the first run was killed at that moment."""
    folder = tmp_path_factory.mktemp("killed")
    script = KILLED.format(table=TABLE, moments=MOMENTS)
    done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == [f"{moment}=9" for moment in MOMENTS], done.stderr
    return folder


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_writing_it_leaves_all_or_nothing(
    killed: Path, undisturbed: Path, tmp_path: Path, moment: str
) -> None:
    shutil.copytree(killed / moment, tmp_path, dirs_exist_ok=True)
    plan = make_plan(TABLE, results=tmp_path)
    assert plan.torn == [] and len(plan.missing) == (3 if moment == "tidying up" else 4)
    assert len(list(plan.store.work.iterdir())) == 1, "what was begun lies there"
    run(tmp_path)
    assert contents(tmp_path).keys() == contents(undisturbed).keys(), "something was left behind"
    assert not plan.store.work.exists()
    assert traces(tmp_path) == traces(undisturbed)


def test_what_a_killed_process_left_of_complete_runs_is_removed_and_the_work_on_other_runs_is_kept(
    finished: RunStore, tmp_path: Path
) -> None:
    """Other runs may be those of another version of the experiment, or somebody else's."""
    name = next(finished.runs.iterdir()).name
    (finished.work / name / "whole-1").mkdir(parents=True)
    (finished.work / name / "checkpoint.npz").touch()
    (finished.work / "stop-forgotten").touch()
    os.utime(finished.work / "stop-forgotten", (0, 0))
    (finished.work / "0123456789abcdef").mkdir()
    (finished.work / "stop-of-somebody").touch()
    run(tmp_path)
    assert sorted(each.name for each in finished.work.iterdir()) == ["0123456789abcdef", "stop-of-somebody"]


# One process at a time


def test_a_run_is_claimed_by_one_at_a_time_even_when_its_folder_is_removed_meanwhile(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    mine, over = threading.Event(), threading.Event()

    def second() -> None:
        with store.claim("run") as folder:
            assert folder.exists()
            mine.set()
            over.wait(10)

    thread = threading.Thread(target=second)
    with store.claim("run"):
        thread.start()
        assert not mine.wait(0.3), "two have it"
        store.release("run")
    try:
        assert mine.wait(10), "the second waits for a lock that nobody holds"
        with pytest.raises(Interrupted), store.claim("run", iter([False, False, True]).__next__):
            pass
    finally:
        over.set()
        thread.join()
    with store.claim("run", lambda: True):
        pass


def test_a_run_that_somebody_finished_meanwhile_is_not_done_again(tmp_path: Path) -> None:
    plan = make_plan(TABLE, results=tmp_path)
    run(tmp_path)
    before = contents(tmp_path)
    assert len(plan.missing) == 4
    carry_out(plan, jobs=1)
    assert contents(tmp_path) == before


def test_a_file_system_without_locks_will_do(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> NoReturn:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    run(tmp_path)
    assert traces(tmp_path) == traces(undisturbed) and contents(tmp_path).keys() == contents(undisturbed).keys()


# Places that cannot be written


def fail(*arguments: Any, **options: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("broken", ["pyarrow.parquet.write_table", "pathlib.Path.rename", "numpy.savez"])
def test_a_full_disk_is_one_sentence_and_costs_no_finished_run(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    with pytest.MonkeyPatch.context() as one_run:
        one_run.setitem(TABLE, "seeds", 1)
        run(tmp_path)
    before = contents(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(RunError, match="No space left on device") as caught:
        patch.setattr(broken, fail)
        run(tmp_path)
    assert re.fullmatch(r"CL-colME: [^\n]*room[^\n]* \(2 of 2 runs failed; the others are kept\.\)", str(caught.value))
    after = contents(tmp_path)
    assert all(after[name] == before[name] for name in before if name != "experiment.toml")
    run(tmp_path)
    assert traces(tmp_path) == traces(undisturbed) and contents(tmp_path).keys() == contents(undisturbed).keys()


# What a run says about itself


def test_a_run_tells_what_made_it(finished: RunStore) -> None:
    planned = {each.name: each for each in Experiment.parse(TABLE).planned}
    for folder in finished.runs.iterdir():
        head = json.loads((folder / "run.json").read_text())
        assert list(head) == ["format", "name", "configuration", "versions", "timings", "trace"]
        assert head["name"] == folder.name
        assert head["configuration"] == json.loads(json.dumps(planned[folder.name].configuration))
        assert head["trace"] == hashlib.sha256((folder / "trace.parquet").read_bytes()).hexdigest()
        assert head["versions"]["colme"] == colme.__version__
        assert {"python", "numpy", "numba", "pyarrow", "system", "machine"} <= head["versions"].keys()
        assert head["timings"].keys() == {"seconds", "cpu_seconds", "steps", "warm_up_seconds"}
        assert head["timings"]["steps"] == 40 and head["timings"]["cpu_seconds"] > 0
        table = finished.read_trace(folder.name)
        assert table["t"].to_pylist() == list(range(1, 41))
        assert table.schema.metadata == {b"colme run": folder.name.encode()}


def test_nothing_is_told_about_the_machine_and_its_user(finished: RunStore, tmp_path: Path) -> None:
    private = {socket.gethostname(), getpass.getuser(), os.getcwd(), str(Path.home()), str(tmp_path), sys.prefix}
    everything = contents(tmp_path)
    assert len(everything) == 9
    for name, data in everything.items():
        for word in private:
            found = re.search(rb"(?<![\w.-])" + re.escape(word.encode()) + rb"(?![\w.-])", data)
            assert not found, f"{name} holds {word}"


def test_a_name_follows_from_what_determines_the_run_and_from_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(table: dict[str, Any]) -> list[str]:
        return [each.name for each in Experiment.parse(table).planned]

    first = names(TABLE)
    assert len(set(first)) == 4 and all(re.fullmatch(r"[0-9a-f]{16}", name) for name in first)
    shuffled = {key: TABLE[key] for key in reversed(TABLE)} | {"title": "another", "figures": []}
    shuffled["scenario"] = dict(reversed(TABLE["scenario"].items())) | {"means": [0, 1]}
    shuffled["methods"] = [{"label": "ours"} | each for each in TABLE["methods"]]
    assert names(shuffled) == first
    assert names(TABLE | {"seeds": 3})[:4] == first, "more seeds leave the runs as they are"
    monkeypatch.setattr(colme, "__version__", "999")
    assert not set(names(TABLE)) & set(first)


# Checkpoints that are not whole


class PowerCut(Exception):
    """What stops the runs below."""


@pytest.fixture
def stopped(tmp_path: Path) -> RunStore:
    """All runs have a checkpoint at step 29."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RunError, match=r"PowerCut.* \(4 of 4 runs failed"):
        fail_at(patch, 30, PowerCut)
        run(tmp_path, checkpoint_every=1e-9)
    return RunStore(tmp_path / "experiment")


def steps_done(store: RunStore) -> list[int]:
    return [json.loads(each.read_text())["timings"]["steps"] for each in sorted(store.runs.glob("*/run.json"))]


@pytest.mark.parametrize("damage", ["truncated", "empty", "rubbish", "of another run"])
def test_a_torn_checkpoint_is_thrown_away(stopped: RunStore, undisturbed: Path, tmp_path: Path, damage: str) -> None:
    first, second, *_ = sorted(stopped.work.glob("*/checkpoint.npz"))
    if damage == "of another run":
        shutil.copy(second, first)
    elif damage == "rubbish":
        first.write_bytes(b"PK\x03\x04 rubbish" * 99)
    else:
        truncate(first, -30 if damage == "truncated" else 0)
    run(tmp_path)
    assert steps_done(stopped) == [40, 11, 11, 11]
    assert traces(tmp_path) == traces(undisturbed)


# Nothing is compiled while the clock of a run goes. In a fresh process, where nothing is compiled yet.

TIMED = (
    FORBID
    + """
from colme import lab
from colme.lab.runs import worker

honest_warm_up = worker.warm_up

def warm_up(*arguments):  # what follows is timed
    forbid(False)
    honest_warm_up(*arguments)
    forbid()

worker.warm_up = warm_up
lab.run(json.loads(sys.argv[1]), results=sys.argv[2], jobs=1)
print("compiled" if compiled_before else "nothing")
"""
)


@pytest.mark.parametrize("all_kinds", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nothing_is_compiled_while_a_run_is_timed(all_kinds: bool, tmp_path: Path) -> None:
    consensus: list[dict[str, Any]] = [
        {"method": "cl-colme", "clock": ["gossip", "global", "own"], "level": ["agent", "edge"]},
        {"method": "c-colme", "clock": ["gossip", "global"]},
        {"method": "b-colme"}, {"method": "local"}, {"method": "oracle"},
    ]  # fmt: skip
    square: list[dict[str, Any]] = [{"method": "colme", "weights": ["simple", "soft"]}]
    scenarios: list[dict[str, Any]] = [
        {"n_agents": 130},
        {"n_agents": 130, "skip_rate": 0.3, "late_share": 0.3, "late_step": 25},
        {"n_agents": 130, "sigma": [0.4, 0.5], "shift_step": 30, "shift_means": [1.0, 0.0]},
        {"n_agents": 2**14 + 64},
        {"n_agents": 2**14 + 64, "skip_rate": 0.1, "distribution": "student"},
        {"n_agents": 3},
    ]
    methods = [
        each | {"scenario": scenario, "precision": precision, "label": f"{each['method']} {number} {precision}"}
        for precision in ("mixed", "double")
        for number, scenario in enumerate(scenarios)
        for each in (consensus + square if scenario["n_agents"] < 1000 else consensus)
    ]
    methods += [
        {"method": "cl-colme", "graph": graph, "degree": 6, "label": graph}
        for graph in ("gnp", "ring", "small-world", "complete")
    ]
    if not all_kinds:
        methods = [{"method": "cl-colme"}, {"method": "c-colme", "scenario": {"skip_rate": 0.3}}, {"method": "b-colme"}]
    table = {"scenario": {"n_agents": 130, "means": [0.0, 1.0], "sigma": 0.5}, "steps": 40, "methods": methods}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", TIMED, json.dumps(table), str(tmp_path)],
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "compiled\n", "a warm-up that compiles nothing proves nothing"
