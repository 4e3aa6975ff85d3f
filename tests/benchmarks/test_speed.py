"""The benchmark of speed: its goals, its files and its page, on made results; the C++ program is a made one, too."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from benchmarks import __main__ as program
from benchmarks import cpp_program, machine, regression, report, results, side_by_side
from benchmarks.goals import GOALS
from benchmarks.measuring import Measured, Times
from benchmarks.methods import RunTime
from benchmarks.results import Baseline, Results
from benchmarks.sizes import Cost

DOCS = Path(__file__).parents[2] / "docs"
AMD, INTEL = "AMD EPYC, family 25 model 17", "Intel(R) Xeon(R) Platinum 8481C, family 6 model 143"


def made(processor: str, day: str, version: str = "0.12.0", **rows: float) -> Results:
    """Results of a machine, with these rows."""
    facts = {"processor": processor, "cores": "2", "colme": version, "measured": day}
    sizes = [Cost(5000, 10, 2.0, "by vectors", 8.0, 40.0, 90.0), Cost(100_000, 5, 5.0, "by vectors", 9.0, None, None)]
    runs = [RunTime("local", 200, 10, 0.001), RunTime("local", 1000, 10, 0.002)]
    return Results(facts, (0.9, 1.1), {key: Measured.once(value) for key, value in rows.items()}, sizes, runs)


# goals


def test_a_goal_is_met_by_the_number_that_is_printed() -> None:
    assert (GOALS["census"].words(79.96), GOALS["census"].met(79.96)) == ("80.0 ns", "floor")
    assert (GOALS["online_rate"].met(0.5e6), GOALS["online_rate"].met(0.49e6)) == ("floor", "below")


def test_every_row_is_measured_by_one_part() -> None:
    parts = program.parts_of(quick=False, huge=True, simulator=Path("simulator"))
    measured = [row for part in parts for row in part.rows]
    assert sorted(measured) == sorted(GOALS)


def test_a_slower_census_is_noticed() -> None:
    baseline = Baseline({}, {"census_scipy": 1.0, "census_memory": 400.0})
    slower = {"census": Measured.once(999.0), "census_scipy": Measured.once(0.7), "census_memory": Measured.once(500.0)}
    lost, rest = regression.compare(slower, baseline, lambda part: {})
    assert [words.split(",")[0] for words in lost] == ["SciPy CSR loop of CL-colME"]
    assert len(rest) == 1


# files and page


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results and pages go here."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(report, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(program, "ROOT", tmp_path)
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    return tmp_path


def save(*many: Results) -> None:
    for each in many:
        results.write(results.results_path(each.family), each)


def test_a_run_replaces_the_results_of_its_own_family_only(folder: Path) -> None:
    save(
        made(AMD, "2026-01-01", scipy=14.0), made(INTEL, "2026-02-01", scipy=30.0), made(AMD, "2026-03-01", scipy=17.0)
    )
    assert sorted(path.name for path in folder.glob("*.json")) == ["results_amd.json", "results_intel.json"]
    assert [each.table["scipy"].value for each in results.read_all_results()] == [17.0, 30.0]  # the newest first


def test_the_check_reads_the_results_of_this_machines_family(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(made(AMD, "2026-03-01", scipy=17.0), made(INTEL, "2026-02-01", scipy=30.0))
    monkeypatch.setattr(machine, "processor", lambda: "Intel(R) Core(TM) i7, family 6 model 1")
    assert results.read_results().table["scipy"].value == 30.0
    monkeypatch.setattr(machine, "processor", lambda: "aarch64")
    with pytest.raises(
        SystemExit, match=r"benchmarks/results_aarch64\.json does not exist\. Run: python -m benchmarks"
    ):
        results.read_results()


def test_the_page_has_a_column_for_each_machine() -> None:
    newest = made(AMD, "2026-03-01", scipy=17.0, census=39.0)
    older = made(INTEL, "2026-02-01", "0.11.0", scipy=19.0, cpp_cl=200.0)
    lines = report.page([newest, older]).splitlines()
    assert f"| processor | {AMD} | {INTEL} |" in lines
    assert "| measured | 2026-03-01 | 2026-02-01 |" in lines
    assert f"| what | floor | aim | {AMD}, colme 0.12.0 | {INTEL}, colme 0.11.0 |" in lines
    row = {line.split(" | ")[0][2:]: line for line in lines if line.startswith("| ")}
    assert row["SciPy CSR loop, by CL-colME"].endswith("| **17.0x**, floor | **19.0x**, below |")
    assert row[GOALS["census"].what].endswith("| **39.0 ns**, aim |  |")
    assert row[GOALS["cpp_cl"].what].endswith("|  | **200x**, floor |")
    assert GOALS["huge_setup"].what not in row  # measured nowhere
    assert lines.count(f"{INTEL}, colme 0.11.0:") == 2  # its sizes and methods


def test_the_page_warns_of_results_from_a_busy_machine() -> None:
    quiet, busy = made(AMD, "2026-03-01"), made(INTEL, "2026-02-01")
    busy = Results(busy.machine, (1.0, 3.9), busy.table, busy.sizes, busy.methods)
    page = " ".join(report.page([quiet, busy]).split())
    assert page.count("was not quiet") == 1
    assert f"{INTEL}, colme 0.12.0: The machine was not quiet" in page


def test_the_page_is_that_of_the_results() -> None:
    """Remedy: python -m benchmarks --draw."""
    assert (DOCS / "speed.md").read_text(encoding="utf-8") == report.page(results.read_all_results())


def test_draw_writes_the_page_and_the_figures_from_the_results(folder: Path) -> None:
    save(made(AMD, "2026-03-01", scipy=17.0), made(INTEL, "2026-02-01", scipy=19.0))
    done = CliRunner().invoke(program.command, ["--draw"], standalone_mode=False)
    assert done.exception is None
    assert INTEL in (folder / "docs" / "speed.md").read_text()
    assert {path.name for path in (folder / "docs" / "figures").iterdir()} == {"speed_size.svg", "speed_methods.svg"}


# the C++ program

HEAD = "alg,graph,seed,n,int_avg_deg,sigma,alpha,up_to,epsilon,delta,init_s,alg_s"
ROW = "consensus,gnr,111,10000,10,2.000000,0.500000,10,0.100000,0.100000,{graph},{algorithm}"
STEP = "{alg},111,{n},10,2.000000,0.500000,1,0.100000,0.100000,{t}"
FAKE = """#!{python}
import sys, time
with open("preliminary.csv", "w") as file:
    print("alg,seed,n,int_avg_deg,sigma,alpha,up_to,epsilon,delta,iter", file=file)
    for t in range({steps}):
        print("{step}".replace("<t>", str(t)), file=file)
until = time.process_time() + {cpu}
while time.process_time() < until:
    pass
if {row!r}:
    with open("time.csv", "w") as file:
        print({head!r}, file=file)
        print({row!r}, file=file)
    time.sleep(600)
sys.exit(3)
"""


def build(folder: Path, content: str) -> Path:
    path = folder / "build" / "simulator"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    path.chmod(0o755)
    return path


def fake(
    folder: Path, *, alg: str = "consensus", n: int = 10_000, steps: int = 2000, row: str | None = "", cpu: float = 0.0
) -> Path:
    """Writes its steps, works, writes the times of a seed (None: fails instead) and goes on with the next one."""
    row = ROW.format(graph=1.0, algorithm=3.0) if row == "" else row
    step = STEP.format(alg=alg, n=n, t="<t>")
    return build(folder, FAKE.format(python=sys.executable, steps=steps, step=step, cpu=cpu, head=HEAD, row=row or ""))


posix = pytest.mark.skipif(os.name != "posix", reason="the made program is a script with #!")


@posix
def test_the_program_is_stopped_after_its_first_seed_and_its_graph_does_not_count(tmp_path: Path) -> None:
    """By its own clock it spends a quarter of its time on the graph."""
    before = os.times()
    seconds = cpp_program.seconds_of_a_seed(fake(tmp_path, cpu=0.3))
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent > 0
    assert seconds == pytest.approx(0.75 * spent, rel=0.01)


@posix
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alg": "belief_propagation_v1"}, "writes alg=belief_propagation_v1: the comparison needs alg=consensus"),
        ({"n": 500}, "writes n=500: the comparison needs n=10000"),
        ({"steps": 100}, "made 100 steps: the comparison needs 2000"),
        ({"row": None}, r"ended with exit code 3 before it wrote the times of a seed to time\.csv"),
    ],
)
def test_another_experiment_is_no_comparison(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(click.ClickException, match=f"{words}.*Experiment 1b - C-ColME"):
        cpp_program.seconds_of_a_seed(fake(tmp_path, **options))


def test_a_wrong_folder_is_told_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(**environment: str) -> str:
        done = CliRunner().invoke(program.command, [], env=environment)
        assert done.exit_code == 2
        return " ".join(done.output.split())

    monkeypatch.setattr(program, "measure_all", pytest.fail)
    missing = tmp_path / "nothing"
    assert f"PEER={missing}: there is no such folder." in told(PEER=str(missing))
    (tmp_path / "simulator").write_text("not executable")
    assert "there is no executable named simulator in this folder. Build it as the README" in told(PEER=str(tmp_path))


# side by side


def test_methods_are_measured_in_turns_on_the_same_work() -> None:
    times = side_by_side.measure(side_by_side.METHODS, 100, 6, steps=130)
    assert list(times) == ["CL-colME", "C-colME"] and {len(each.rounds) for each in times.values()} == {3}
    found = side_by_side.whole_ratio(Times((2.0, 6.0)), Times((1.0, 2.0)))
    assert (found.value, found.low, found.high) == (8 / 3, 2.25, 2.75)
