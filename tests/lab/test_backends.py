"""Whoever does the runs, the bytes are the same; a run that fails fails alone; and one sees how it goes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from colme import cli, lab
from colme.errors import MissingExtra, RunError
from colme.lab.experiment import Experiment
from colme.lab.runs import progress, runner, worker
from colme.lab.runs.progress import Work, _Watcher, show
from colme.lab.runs.runner import make_plan
from colme.lab.runs.store import RunStore, toml_of
from tests.support.napping import SLOW

TABLE: dict[str, Any] = {
    "scenario": {"n_agents": 50, "means": [0.0, 1.0], "sigma": 0.5, "skip_rate": 0.1},
    "methods": [{"method": "cl-colme"}, {"method": "b-colme"}, {"method": "oracle"}],
    "steps": 60,
    "seeds": 2,
}


def traces(results: Path, name: str = "experiment") -> dict[str, bytes]:
    return {each.parent.name: each.read_bytes() for each in (results / name / "runs").glob("*/trace.parquet")}


def leftovers(results: Path, name: str = "experiment") -> list[str]:
    return sorted(each.name for each in (results / name).iterdir() if each.name not in ("experiment.toml", "runs"))


@pytest.fixture(scope="module")
def sequential(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    results = tmp_path_factory.mktemp("sequential")
    lab.run(TABLE, results=results, jobs=1)
    assert len(traces(results)) == 6
    return traces(results)


# Who does the runs


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_processes_and_threads_give_the_same_bytes(sequential: dict[str, bytes], tmp_path: Path, backend: str) -> None:
    data = lab.run(TABLE, results=tmp_path, jobs=2, backend=backend)
    assert data.attrs["missing"] == 0
    assert traces(tmp_path) == sequential
    assert leftovers(tmp_path) == []


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.slow
def test_a_dask_cluster_is_found_by_its_address(client: Any, sequential: dict[str, bytes], tmp_path: Path) -> None:
    """From another process, by the command line."""
    (tmp_path / "experiment.toml").write_text(toml_of(TABLE))
    done = subprocess.run(
        [sys.executable, "-m", "colme", "run", "experiment.toml", "--backend", "dask", "--scheduler",
         client.scheduler.address], cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert traces(tmp_path / "results") == sequential
    assert leftovers(tmp_path / "results") == []


def test_a_run_that_fails_on_a_cluster_fails_alone(client: Any, faulty: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^breaks: ZeroDivisionError"):
        lab.run(only(faulty, "breaks"), results=tmp_path, backend="dask")
    assert len(traces(tmp_path, "faulty")) == 3


def test_dask_needs_a_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")

    def nobody() -> None:
        raise ValueError("No global client found and no address provided")

    monkeypatch.setattr(distributed, "get_client", nobody)
    with pytest.raises(RunError, match=r"^backend='dask' needs a scheduler: .* Try --scheduler tcp://host:8786\.$"):
        lab.run(TABLE, results=tmp_path, backend="dask")


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("loky", "joblib")])
def test_a_backend_that_is_not_installed_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"needs {package}, which is not installed\. Try: pip install "):
        lab.run(TABLE, results=tmp_path, backend=backend, jobs=2)


@pytest.mark.parametrize(("wrong", "message"), [
    ({"backend": "luky"}, r"unknown backend 'luky': .* Did you mean 'loky'\?"),
    ({"jobs": 0}, r"jobs=0: it must be a whole number from 1 to 1024\. Try jobs=2\."),
    ({"checkpoint_every": 0}, r"checkpoint_every=0: it must be positive and finite\."),
])  # fmt: skip
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        lab.run(TABLE, results=tmp_path, **wrong)
    assert list(tmp_path.iterdir()) == []


# Runs that fail

FAULTY = """
import os
from typing import ClassVar
from colme import CLColME
from colme.errors import MethodError

class Refuses(CLColME, frozen=True, kw_only=True, tag="refuses"):
    label: ClassVar[str] = "refuses"

    def start(self, world, graph):
        raise MethodError("this cannot start: it is too early. Try later.")

class Breaks(CLColME, frozen=True, kw_only=True, tag="breaks"):
    label: ClassVar[str] = "breaks"

    def start(self, world, graph):
        raise ZeroDivisionError("one\\nby nothing")

class Dies(CLColME, frozen=True, kw_only=True, tag="dies"):
    label: ClassVar[str] = "dies"

    def start(self, world, graph):
        os._exit(3)
"""
BROKEN_LINE = FAULTY[: FAULTY.index("raise Zero")].count("\n") + 1
REASONS = {
    "refuses": "this cannot start: it is too early. Try later.",
    "breaks": f"ZeroDivisionError: one by nothing (faulty.py, line {BROKEN_LINE}).",
    "dies": "its process died, perhaps of too little memory. Run fewer at once (-j 1) or fewer agents.",
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module of methods that fail; three runs of a method that does not are planned after them."""
    path = tmp_path_factory.mktemp("faulty") / "faulty.py"
    path.write_text(FAULTY)
    return path


def only(module: Path, *tags: str) -> Experiment:
    methods = [*({"method": tag, "seeds": 1} for tag in tags), {"method": "c-colme"}]
    table = {"scenario": {"n_agents": 10, "means": [0.0]}, "steps": 20, "seeds": 3, "methods": methods}
    return Experiment.parse(table | {"modules": [module.name]}, name="faulty", folder=module.parent)


@pytest.mark.parametrize(("backend", "jobs", "tag"), [
    ("loky", 1, "refuses"), ("loky", 1, "breaks"), ("threading", 2, "refuses"), ("threading", 2, "breaks"),
    ("loky", 2, "refuses"), ("loky", 2, "breaks"), ("loky", 2, "dies"),
])  # fmt: skip
def test_a_run_that_fails_is_a_sentence_and_the_others_are_done(
    faulty: Path, tmp_path: Path, backend: str, jobs: int, tag: str
) -> None:
    with pytest.raises(RunError) as caught:
        lab.run(only(faulty, tag), results=tmp_path, backend=backend, jobs=jobs)
    assert str(caught.value) == f"{tag}: {REASONS[tag]} (1 of 4 runs failed; the others are kept.)"
    assert len(traces(tmp_path, "faulty")) == 3


@pytest.mark.slow
def test_all_failures_of_a_sweep_cost_no_other_run_and_the_exit_code_is_1(faulty: Path, tmp_path: Path) -> None:
    file = faulty.with_name("faulty.toml")
    file.write_text(toml_of(only(faulty, "dies", "breaks", "refuses").table))
    done = subprocess.run(
        [sys.executable, "-m", "colme", "run", str(file), "-j", "2", "-q", "--results", str(tmp_path)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    first, last = done.stderr.splitlines()
    assert first == "faulty: 6 runs to do."
    assert re.fullmatch(r"Error: (dies|breaks|refuses): .* \(3 of 6 runs failed; the others are kept\.\)", last)
    assert len(traces(tmp_path, "faulty")) == 3


def test_workers_that_die_as_soon_as_they_start_are_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are not started for ever."""
    monkeypatch.setattr(runner, "attend", os._exit)
    with pytest.raises(
        RunError, match=r"^a worker process died before its first run\. Run again without .*\(-j 1\)\.$"
    ):
        lab.run(TABLE, results=tmp_path, jobs=2)
    assert traces(tmp_path) == {}


def test_a_module_that_changes_while_its_runs_wait_is_noticed(tmp_path: Path) -> None:
    """Otherwise a run would bear the name of what it is not."""
    module = tmp_path / "mine.py"
    module.write_text(FAULTY)
    plan = make_plan(only(module, "breaks"), results=tmp_path)
    module.write_text(FAULTY.replace("too early", "too late"))
    with pytest.raises(RunError, match=r"^breaks: the module of breaks was changed .* Run again\. \(1 of 4 runs"):
        runner.carry_out(plan, jobs=1)
    assert len(traces(tmp_path, "faulty")) == 3


# How it goes


DEPTH_ONE = """
from colme.methods import Agent, Method

class Echo(Method, frozen=True, kw_only=True, tag="echo"):
    label = "echo"

    def agent(self, place):
        return EchoAgent(place)

class EchoAgent(Agent):
    def step(self, sample):
        self.observe(sample)
        self.estimate = self.mean
        yield {}
"""


def test_before_a_long_run_a_method_without_an_array_form_says_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "echo.py").write_text(DEPTH_ONE)
    methods = "".join(f'[[methods]]\nmethod = "{tag}"\n' for tag in ("echo", "local"))
    small = "[scenario]\nn_agents = 20\nmeans = [0.0]\n"
    (tmp_path / "x.toml").write_text(f'modules = ["echo.py"]\nsteps = 5\nseeds = 3\n{small}{methods}')
    asked = ["run", str(tmp_path / "x.toml"), "--results", str(tmp_path), "-q", "-j", "1", "--force"]
    assert "array form" not in CliRunner().invoke(cli.colme, asked).stderr, "it is short"
    monkeypatch.setattr(worker, "PATIENCE", 0.0)
    said = CliRunner().invoke(cli.colme, asked).stderr
    assert re.search(r"echo has no array form, so one object per agent .*: about \d+ s of computing for 3 runs\. .*"
                     r"depth 2 in docs/write_a_method\.md", " ".join(said.split()))  # fmt: skip
    assert "local has no" not in said


def test_progress_is_told_from_the_beginning_to_the_end(tmp_path: Path) -> None:
    told: list[Work] = []
    table = TABLE | {"scenario": TABLE["scenario"] | {"n_agents": 3000}, "steps": 400}
    lab.run(table, results=tmp_path, jobs=2, backend="threading", progress=told.append)
    done = [each.runs_done for each in told]
    assert done == sorted(done) and done[-1] == 6 and {each.runs for each in told} == {6}
    assert all(0.0 <= each.share <= 1.0 for each in told) and told[-1].share == 1.0
    assert all(0 <= each.running <= 2 for each in told) and told[-1].running == 0
    seconds = [each.seconds for each in told]
    assert seconds == sorted(seconds)
    assert told[-1].steps_per_second * told[-1].seconds == pytest.approx(6 * 400)
    assert told[-1].seconds_left in (None, 0.0)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 100.0
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: self.now))


def say_step(store: RunStore, name: str, step: int) -> None:
    (store.work / name).mkdir(parents=True, exist_ok=True)
    (store.work / name / "progress").write_text(str(step))


def test_speed_and_time_left_know_no_earlier_session_and_no_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier session did 500 of 2 x 1000 steps."""
    clock, store = Clock(monkeypatch), RunStore(tmp_path)
    planned = Experiment.parse(TABLE | {"methods": TABLE["methods"][:1], "steps": 1000}).planned
    say_step(store, planned[0].name, 500)
    watcher = _Watcher(store, planned)
    for _ in range(100):  # 25 s in which kernels are compiled
        clock.now += 0.25
        assert watcher.look() == Work(0, 2, 0, 0.25, 0.0, 0.0, None)
    clock.now += 10
    say_step(store, planned[0].name, 800)
    say_step(store, planned[1].name, 200)
    work = watcher.look()
    assert work == Work(0, 2, 2, 0.5, 50.0, 10.0, pytest.approx(20.0))
    assert str(work) == "0/2 runs, 2 going, 50 steps/s, 20 s left"
    clock.now += 10
    (store.runs / planned[0].name).mkdir(parents=True)
    say_step(store, planned[1].name, 500)
    work = watcher.look()
    assert work == Work(1, 2, 1, 0.75, 50.0, 20.0, pytest.approx(10.0))
    (store.runs / planned[1].name).mkdir()
    clock.now += 10
    assert watcher.look() == Work(2, 2, 0, 1.0, 50.0, 30.0, 0.0)


def test_a_progress_file_that_is_being_written_does_no_harm(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    planned = Experiment.parse(TABLE).planned
    watcher = _Watcher(store, planned)
    say_step(store, planned[0].name, 30)
    (store.work / planned[0].name / "progress").write_text("")
    say_step(store, "of another experiment", 10)
    assert watcher.look().share == 0.0 and watcher.look().running == 0


def test_off_a_terminal_a_line_is_said_at_most_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    with show("sweep") as tell:
        for _ in range(140):  # 35 seconds
            clock.now += 0.25
            tell(Work(1, 8, 2, 0.25, 12345.6, clock.now - 100, 3 * (clock.now - 100)))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "sweep: 1/8 runs, 2 going, 12,346 steps/s, 31 s left",
        "sweep: 1/8 runs, 2 going, 12,346 steps/s, 1 min 2 s left",
        "sweep: 1/8 runs, 2 going, 12,346 steps/s, 1 min 32 s left",
    ]


def on_a_terminal(command: list[str], columns: int) -> tuple[int, str]:
    """Exit code and everything that a terminal of this width was sent."""
    pty = pytest.importorskip("pty")
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment | {"TERM": "xterm-256color"},
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    sent, deadline = bytearray(), time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            sent += data
        return process.wait(timeout=240), sent.decode()
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_terminal_shows_runs_speed_and_time_left(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    file = tmp_path / "cl_colme.toml"
    file.write_text(
        'modules = ["slow.py"]\nsteps = 100\nseeds = 2\n'
        '[scenario]\nn_agents = 10\nmeans = [0.0]\nskip_rate = 0.1\n[[methods]]\nmethod = "slow"\nnap = 0.008\n'
    )
    code, sent = on_a_terminal(
        [sys.executable, "-m", "colme", "run", str(file), "-j", "1", "--results", str(tmp_path)], 80
    )
    assert code == 0, sent
    lines = [line.strip() for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent))]
    bars = [line for line in lines if line.startswith("cl_colme ") and "%" in line]
    assert len(bars) >= 2, "a bar that moves"
    assert all(len(line) <= 80 for line in bars)
    shown = [re.fullmatch(r"cl_colme \S+ +(\d+)% ([01])/2 runs, [01] going, ([\d,]+) steps/s, (\d+) s left", line)
             for line in bars]  # fmt: skip
    seen = [each for each in shown if each]
    assert seen, bars
    shares = [int(each[1]) for each in seen]
    assert shares == sorted(shares) and any("100% 2/2 runs" in line for line in bars)
