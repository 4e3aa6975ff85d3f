"""The command line: data on stdout, words on stderr, exit codes that scripts can trust, nothing heavy at the start."""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import colme
from colme import cli
from colme._core import jit
from colme.cli import COMMANDS
from colme.cli.fields import FieldOption, field_docs, parse_word
from colme.cli.output import emit, say
from colme.lab import doctor
from colme.lab.experiment import Experiment, shipped_experiments
from colme.lab.figures import FIGURES
from colme.methods import METHODS
from colme.metrics import METRICS
from colme.scenario import Scenario
from colme.sim.spec import Setup
from tests.support.flags import FLAGS, NEEDS, sample_of

ROOT = Path(__file__).parents[2]
SMALL = """
title = "Two methods"
figures = ["mse"]
seeds = 2
steps = 20
degree = 4
[scenario]
n_agents = 24
means = [0.0, 3.0]
sigma = 0.5
[[methods]]
method = "cl-colme"
level = ["agent", "edge"]
[[methods]]
method = "local"
[[expected]]
method = "CL-colME"
where.level = "edge"
t = 10
value = 0.5
source = "nowhere"
"""
HEAVY = ("numpy", "numba", "rich", "xarray", "pandas", "matplotlib", "pyarrow", "joblib", "scipy", "networkx")


class Calls:
    """`colme` in this process: (exit code, stdout, stderr)."""

    def __init__(self, capsys: pytest.CaptureFixture[str]):
        self.capsys = capsys

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as done:
            cli.main([str(each) for each in arguments])
        out, err = self.capsys.readouterr()
        assert isinstance(done.value.code, int)
        return done.value.code, out, err


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Calls:
    monkeypatch.chdir(tmp_path)
    for name in ("COLME_DEBUG", "COLME_RESULTS"):
        monkeypatch.delenv(name, raising=False)
    return Calls(capsys)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def process(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """`colme` as people call it."""
    command = [sys.executable, "-m", "colme", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=os.environ | environment)


def rows_of(out: str) -> list[dict[str, Any]]:
    found = json.loads(out)
    assert isinstance(found, list) and found
    return found


# A field is a flag


@pytest.mark.parametrize("command", ["run", "simulate"])
def test_every_field_is_a_flag_with_words_about_it(command: str, call: Calls) -> None:
    code, out, err = call(command, "--help")
    assert code == 0 and err == ""
    found = cli.colme.get_command(click.Context(cli.colme), command)
    assert found is not None
    options = {each.name: each for each in found.params if isinstance(each, FieldOption)}
    assert set(options) == set(FLAGS)
    for name, (struct, field) in FLAGS.items():
        flag = f"--{name.replace('_', '-')}"
        assert re.search(rf"^  {flag} \S+", out, re.M), f"{flag} is not in the help of {command}"
        words = field_docs(struct)[field]
        assert len(words.split()) >= 3, f"{flag} has no words"
        assert (options[name].help or "").startswith(words)
        assert " ".join(words.split())[:20] in " ".join(out.split())


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_plans_the_runs_that_the_key_in_the_file_would(name: str, call: Calls, tmp_path: Path) -> None:
    struct, field = FLAGS[name]
    tag = str(struct.__struct_config__.tag) if struct in METHODS else "census"
    scenario: dict[str, Any] = {"n_agents": 24, "means": [0.0, 1.0]}
    entry: dict[str, Any] = {"method": tag}
    (entry if struct in METHODS else scenario).update(NEEDS.get(name, {}))
    table: dict[str, Any] = {"steps": 20, "scenario": scenario, "methods": [entry]}

    def text() -> str:
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items() if key not in ("scenario", "methods")]
        for head, part in (("[scenario]", scenario), ("[[methods]]", entry)):
            lines += [head, *(f"{key} = {json.dumps(value)}" for key, value in part.items())]
        return "\n".join(lines)

    path = tmp_path / "x.toml"
    path.write_text(text())
    before = [each.name for each in Experiment.read(path).planned]
    given = sample_of(name)
    code, out, err = call("run", path, "--dry-run", "--format", "json", f"--{name.replace('_', '-')}", given)
    assert code == 0 and err == ""
    flagged = [row["run"] for row in rows_of(out)]
    words = [parse_word(word) for word in given.split(",")]
    (table if struct is Setup else scenario if struct is Scenario else entry)[field] = (
        words if len(words) > 1 else words[0]
    )
    path.write_text(text())
    written = [each.name for each in Experiment.read(path).planned]
    assert flagged == written and flagged != before


def planned(call: Calls, path: Path, *flags: str) -> list[dict[str, Any]]:
    code, out, err = call("run", path, "--dry-run", "--format", "json", *flags)
    assert code == 0, err
    return rows_of(out)


def test_commas_are_a_sweep_and_so_is_a_flag_given_again(call: Calls, small: Path) -> None:
    assert {row["agents"] for row in planned(call, small, "--n-agents", "20,30")} == {20, 30}
    assert {row["agents"] for row in planned(call, small, "--n-agents", "20", "--n-agents", "3e1")} == {20, 30}
    assert len(planned(call, small, "--delta", "0.1,0.2,0.3")) == 2 * (3 * 2 + 1)
    assert len(planned(call, small, "--level", "edge", "--seeds", "3,5,8")) == 3 * 2
    assert {row["seed"] for row in planned(call, small, "--seeds", "3,5,8")} == {3, 5, 8}
    assert {row["seed"] for row in planned(call, small, "--seeds", "3")} == {0, 1, 2}


def test_commas_are_a_list_where_the_field_takes_one(call: Calls, small: Path) -> None:
    def names(*flags: str) -> set[str]:
        return {row["run"] for row in planned(call, small, *flags)}

    def of(**changes: Any) -> set[str]:
        return {each.name for each in Experiment.read(small, changes).planned}

    assert names("--means", "0,1") == of(means=[0.0, 1.0])
    assert names("--means", "0,1", "--means", "0,2") == of(means=[[0.0, 1.0], [0.0, 2.0]])
    assert names("--means", "5") == of(means=[5.0])
    assert names("--sigma", "1,2") == of(sigma=[1.0, 2.0])
    assert names("--sigma", "1", "--sigma", "2") == of(sigma=[[1.0], [2.0]])
    assert names("--record", "5,10") == of(record=[5, 10])
    assert names("--record", "all,log") == of(record=["all", "log"])


# Data on stdout, words on stderr


def test_run_prints_data_and_says_words_then_does_nothing_then_all_again(
    call: Calls, tmp_path: Path, small: Path
) -> None:
    """First in a process of its own, as a script would."""
    results = tmp_path / "results"
    first = process("run", small, "--results", results, "--format", "json", "-j", "1", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert found["experiment"] == "small" and set(found) == {"experiment", "methods", "expected"}
    assert [(row["method"], row["level"]) for row in found["methods"]] == [
        ("CL-colME", "agent"), ("CL-colME", "edge"), ("local", None),
    ]  # fmt: skip
    (expected,) = found["expected"]
    assert expected["expected"] == 0.5 and expected["measured"] > 0
    assert "Two methods: 6 runs to do." in first.stderr and f"Results are in {results / 'small'}" in first.stderr
    assert not re.search(r"[{}\[\]]|0\.\d{4}", first.stderr), "data among the words"
    files = {path: path.stat().st_mtime_ns for path in results.rglob("run.json")}
    assert len(files) == 6

    code, out, err = call("run", small, "--results", results, "--format", "json")
    assert code == 0 and out == first.stdout
    assert "All 6 runs are done." in err
    assert {path: path.stat().st_mtime_ns for path in files} == files

    code, out, err = call("run", small, "--results", results, "--format", "json", "--force", "-j", "1", "-q")
    assert code == 0 and "6 runs to do" in err
    assert all(path.stat().st_mtime_ns > before for path, before in files.items())
    again = json.loads(out)
    for name in ("mse", "error_rate", "wrong_edges"):
        assert [row[name] for row in again["methods"]] == [row[name] for row in found["methods"]]
    assert {path.name for path in tmp_path.iterdir()} == {"results", "small.toml"}, "nothing else is written"
    code, out, err = call("run", small, "--results", results, "--seeds", "1", "--n-agents", "30", "-q", "-j", "1")
    assert code == 0 and "Expected numbers are not shown" in err and "beside expected" not in out


def test_every_format_has_the_same_numbers(call: Calls, small: Path) -> None:
    outs = {}
    for form in ("json", "csv", "table"):
        code, outs[form], err = call("run", small, "-j", "1", "--format", form, "--wide")
        assert code == 0 and "Results are in results/small" in err
    rows = json.loads(outs["json"])["methods"]
    table = list(csv.DictReader(io.StringIO(outs["csv"])))
    assert [float(row["mse"]) for row in table] == [row["mse"] for row in rows]
    assert list(table[0]) == list(rows[0])
    for row in rows:
        assert re.search(rf"{row['method']} .* {row['level'] or '-'} .* {row['mse']:.3g} ", outs["table"])
    assert "nowhere" in outs["table"], "measured beside expected"


def test_dry_run_says_what_would_be_done_and_does_nothing(call: Calls, small: Path, tmp_path: Path) -> None:
    code, out, err = call("run", small, "--dry-run", "--format", "json")
    rows = rows_of(out)
    assert code == 0 and err == "" and len(rows) == 6 and {row["state"] for row in rows} == {"to do"}
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]
    assert call("run", small, "-q", "-j", "1", "--seeds", "1")[0] == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    rows = rows_of(call("run", small, "--dry-run", "--format", "json")[1])
    assert sorted(row["state"] for row in rows) == ["done"] * 3 + ["to do"] * 3
    assert {row["state"] for row in rows if row["seed"] == 0} == {"done"}
    rows = rows_of(call("run", small, "--dry-run", "--force", "--format", "json")[1])
    assert {row["state"] for row in rows} == {"to do"}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert "3 of 6 runs to do" in call("run", small, "--dry-run")[1]


def test_flags_of_a_run_are_kept_with_its_results(call: Calls, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLME_RESULTS", "elsewhere")
    assert {row["state"] for row in rows_of(call("list", "runs", small, "--format", "json")[1])} == {"to do"}
    assert not Path("elsewhere").exists()
    assert call("run", small, "-q", "-j", "1", "--n-agents", "20", "--seeds", "1")[0] == 0
    kept = tomllib.loads(Path("elsewhere/small/experiment.toml").read_text())
    assert kept["scenario"]["n_agents"] == 20 and kept["seeds"] == 1 and not Path("results").exists()
    rows = rows_of(call("list", "runs", "elsewhere/small", "--format", "json")[1])
    assert {(row["agents"], row["state"]) for row in rows} == {(20, "done")}
    code, out, err = call("report", "smal")
    assert code == 2 and out == "" and "unknown experiment 'smal'" in err and "Did you mean 'small'?" in err


def test_a_folder_of_results_can_be_run_again_where_it_lies(call: Calls, small: Path, tmp_path: Path) -> None:
    assert call("run", small, "-q", "-j", "1", "--results", tmp_path / "far")[0] == 0
    gone = next((tmp_path / "far" / "small" / "runs").iterdir())
    shutil.rmtree(gone)
    code, _, err = call("run", tmp_path / "far" / "small", "-q", "-j", "1")
    assert code == 0 and gone.exists(), err
    assert not (tmp_path / "results").exists()


# simulate


def test_simulate_prints_medians_over_the_seeds(call: Calls) -> None:
    code, out, err = call("simulate", "--method", "cl-colme", "--method", "local", "--n-agents", "24", "--means", "0,3",
                          "--sigma", "0.5", "--steps", "30", "--seeds", "3", "-q", "--format", "json")  # fmt: skip
    assert code == 0 and err == ""
    scenario = colme.Scenario(n_agents=24, means=(0.0, 3.0), sigma=0.5)
    traces = colme.simulate([colme.CLColME(), colme.Local()], scenario, steps=30, seeds=range(3))
    rows = rows_of(out)
    assert [row["method"] for row in rows] == ["CL-colME", "local"]
    for row, method in zip(rows, (colme.CLColME(), colme.Local()), strict=True):
        assert row["seeds"] == 3 and row["t"] == 30
        for name in METRICS:
            wanted = np.median([getattr(trace, name)[-1] for trace in traces.select(method=method)])
            assert row[name] == wanted or (row[name] is None and np.isnan(wanted))


def test_simulate_sweeps_and_traces(call: Calls) -> None:
    code, out, _ = call("simulate", "--method", "cl-colme", "--n-agents", "20,24", "--level", "agent,edge", "--steps",
                        "30", "--record", "10", "--seeds", "4,7", "--trace", "-q", "--format", "csv")  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and len(rows) == 2 * 2 * 2 * 3
    found = {(row["n_agents"], row["level"], row["seed"], row["t"]) for row in rows}
    assert found == {(n, level, seed, t) for n in ("20", "24") for level in ("agent", "edge") for seed in ("4", "7")
                     for t in ("10", "20", "30")}  # fmt: skip
    scenario = colme.Scenario(n_agents=24, means=(0.0, 1.0), sigma=1.0)
    trace = colme.simulate(colme.CLColME(level="agent"), scenario, steps=30, seed=7)
    (one,) = [
        row for row in rows if (row["n_agents"], row["level"], row["seed"], row["t"]) == ("24", "agent", "7", "20")
    ]
    assert float(one["mse"]) == trace.at(20)["mse"]


# report and plot (what they draw is tested elsewhere)


def test_plot_and_report_print_the_files_they_wrote(call: Calls, small: Path) -> None:
    assert call("run", small, "-q", "-j", "1")[0] == 0
    code, out, err = call("plot", "small", "mse", "--into", "drawn", "--format", "json")
    files = [Path(row["file"]) for row in rows_of(out)]
    assert code == 0 and {path.suffix for path in files} == {".svg", ".pdf", ".csv"} and err == ""
    assert all(path.parent == Path("drawn") and path.stat().st_size > 100 for path in files)
    code, out, err = call("report", "results/small", "-o", "page.html", "--no-figures", "--format", "json")
    assert code == 0 and rows_of(out) == [{"file": "page.html"}] and "Open page.html in a browser." in err
    assert "Two methods" in Path("page.html").read_text()
    reported = [Path(row["file"]) for row in rows_of(call("report", "small", "--format", "json")[1])]
    before = [path.read_bytes() for path in reported]
    assert call("plot", "small", "--width", "84mm")[0] == 0
    assert [path.read_bytes() for path in reported] == before, "the figures of a report stay"


def test_plot_of_no_such_figure_or_nothing_run_is_refused(call: Calls, small: Path) -> None:
    code, out, err = call("plot", small)
    assert (
        code == 1 and out == "" and err.startswith("Error: results/small has no finished run of small. Try: colme run")
    )
    assert call("run", small, "-q", "-j", "1", "--seeds", "1")[0] == 0
    code, out, err = call("plot", "results/small", "msee")
    assert code != 0 and out == "" and "Did you mean 'mse'?" in err
    assert call("run", small, "-q", "-j", "1")[0] == 0
    code, out, err = call("plot", "small", "parameter")
    assert code == 1 and out == "" and "no number is swept: the figure 'parameter' needs one." in err


# list, doctor, version


def test_lists_say_what_there_is(call: Calls) -> None:
    lists = {}
    for what in ("methods", "experiments", "figures"):
        code, out, err = call("list", what, "--format", "json")
        lists[what] = {row["name"]: row for row in rows_of(out)}
        assert code == 0 and err == "" and len(call("list", what, "--wide")[1].splitlines()) > 5
    assert list(lists["methods"]) == [str(each.__struct_config__.tag) for each in METHODS]
    for row in lists["methods"].values():
        assert getattr(colme, row["class"].removeprefix("colme.")).label == row["label"] and row["what"]
    assert list(lists["experiments"]) == [path.stem for path in shipped_experiments()]
    assert lists["experiments"]["cl_colme"]["runs"] == 60
    assert all(row["title"] and Path(row["file"]).exists() for row in lists["experiments"].values())
    assert list(lists["figures"]) == list(FIGURES) and all(row["shows"] for row in lists["figures"].values())


def test_doctor_finds_all_well(call: Calls, tmp_path: Path) -> None:
    code, out, err = call("doctor", "--results", tmp_path / "not there", "--format", "json")
    rows = {row["check"]: row for row in rows_of(out)}
    assert code == 0, rows
    assert "All checks passed." in err and all(row["ok"] for row in rows.values())
    assert rows["colme"]["found"] == colme.__version__ and rows["numpy"]["found"] == np.__version__
    assert {"python", "numba", "compiled kernels", "cores", "folder results", "simulation"} <= set(rows)
    assert re.search(r"\d+ in .* MB", rows["compiled kernels"]["found"])
    assert not list(tmp_path.iterdir()), "a doctor leaves nothing behind"


def test_doctor_counts_kernels_and_says_how_to_install_an_extra(
    call: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one/a.nbc", "one/a.nbi", "two/b.nbc"):
        (tmp_path / "cache" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cache" / name).write_bytes(b"kernel")
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(doctor, "extras", lambda: {"mqtt": ["no-such-package"]})
    rows = {row["check"]: row for row in rows_of(call("doctor", "--format", "json")[1])}
    assert rows["compiled kernels"]["found"].startswith("2 in ")
    advice = "To use it: pip install '.[mqtt]' in a checkout of colme, or the wheel with [mqtt]"
    assert rows["extra mqtt"]["remedy"] == advice
    readme = (ROOT / "README.md").read_text()
    assert "pip install '.[" in readme and "in a checkout of" in readme  # the same advice


def test_a_column_without_content_is_left_out_without_a_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    for remedy, said in (("", ""), ("help", "Not shown: remedy.")):
        emit([{"check": "x" * 36, "remedy": remedy}], "table", spare=("remedy",), wide=False)
        err = capsys.readouterr().err
        assert err.startswith(said) if said else err == ""


def test_doctor_finds_folders_that_cannot_be_written(
    call: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for cache in (file, file / "below"):
        monkeypatch.setenv("COLME_CACHE_DIR", str(cache))
        code, out, err = call("doctor", "--results", file / "results", "--format", "json")
        wrong = {row["check"]: row["remedy"] for row in rows_of(out) if not row["ok"]}
        assert code == 1 and set(wrong) == {"compiled kernels", "folder results"}
        assert "COLME_CACHE_DIR" in wrong["compiled kernels"] and "--results" in wrong["folder results"]
        assert re.search(r"2 of \d+ checks failed", err)
    for arguments in ((), ("--compile",)):
        code, out, err = call("doctor", *arguments)
        assert code == 1 and "Set COLME_CACHE_DIR" in out + err
    monkeypatch.setattr(jit, "HAVE_NUMBA", False)
    code, out, err = call("doctor", "--compile")
    assert code == 1 and "COLME_NUMBA=0 switches it off" in err


@pytest.mark.slow
def test_kernels_are_compiled_ahead_once(call: Calls) -> None:
    call("doctor", "--compile")
    code, out, err = call("doctor", "--compile")
    assert code == 0 and out == ""
    assert "kernels for: estimate" in err and err.endswith("All kernels were compiled already.\n")
    before = jit.n_compiled()
    for method in ("cl-colme", "census"):
        assert call("simulate", "--method", method, "--n-agents", 300, "--means", "0,1", "--steps", 30)[0] == 0
    assert jit.n_compiled() == before


# Mistakes, and exit codes


def commands(command: click.Command = cli.colme, path: str = "colme") -> Iterator[tuple[str, click.Command]]:
    """Every command, with what is typed for it."""
    yield path, command
    for name in command.list_commands(click.Context(command)) if isinstance(command, click.Group) else ():
        inner = command.get_command(click.Context(command), name)
        assert inner is not None
        yield from commands(inner, f"{path} {name}")


@pytest.mark.parametrize("path", [path for path, _ in commands()])
def test_every_command_teaches_in_80_columns(path: str, call: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = call(*path.split()[1:], "--help")
    assert code == 0 and err == "" and out.startswith(f"Usage: {path} ") and max(map(len, out.splitlines())) <= 80
    assert len(re.findall(rf"{path}\b", out)) >= 2, "the usage line and an example"
    assert "..." not in out.partition("Commands:")[2], "summaries are whole"


def test_colme_alone_explains_itself(call: Calls) -> None:
    code, out, err = call()
    assert code == 0 and err == "" and out == call("--help")[1] == call("-h")[1]
    assert "Collaborative mean estimation" in out
    for name, words in COMMANDS.items():
        assert re.search(rf"^  {name} +{words.split()[0]}", out, re.M)
    assert call("--version") == (0, f"colme {colme.__version__}\n", "")


USAGE: dict[str, tuple[list[str], str]] = {
    "no such command": (["rnu"], r"unknown command 'rnu': it must be one of .*Did you mean 'run'\?"),
    "no such flag": (["simulate", "--n-agent", "3"], r"No such option.*--n-agents"),
    "no experiment": (["run"], r"Missing argument 'EXPERIMENT'"),
    "no such experiment": (["run", "cl_colm"], r"unknown experiment 'cl_colm'.* Did you mean 'cl_colme'\?"),
    "no such file": (["run", "no.toml"], r"cannot read no\.toml: No such file"),
    "no such format": (["list", "methods", "--format", "xml"], r"'xml' is not one of 'table', 'json', 'csv'"),
    "nothing to list": (["list"], r"Missing argument"),
    "no runs to list": (["list", "runs"], r"Try: colme list runs cl_colme"),
    "unstable": (["run", "cl_colme", "--step", "5", "--n-agents", "100"], r"CL-colME: step=5 is not stable"),
    "no such shell": (["completion", "tcsh"], r"'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    "no seeds": (
        ["simulate", "--seeds", "many"],
        r"'many' is neither a number nor a list of numbers\. Try 10, or 3,5,8\.",
    ),
    "no jobs": (["run", "small.toml", "-j", "0"], r"0 is not in the range 1<=x<=1024"),
    "no backend": (["run", "small.toml", "--backend", "slurm"], r"'slurm' is not one of"),
    "no value": (["simulate", "--level", ""], r"empty value"),
    "word for a number": (
        ["run", "small.toml", "--n-agents", "few"],
        r"small\.toml: scenario\.n_agents='few': it must be",
    ),
    "rule": (["simulate", "--steps", "0"], r"steps=0: .*from 1 to 1000000000\. Try steps=2000\."),
    "no such level": (["simulate", "--level", "agnet"], r"'agnet'.* Did you mean 'agent'\?"),
    "nobody's field": (["run", "small.toml", "--depth", "3"], r"depth=3: none of the methods .*has it"),
    "no such method": (["simulate", "--method", "cl-colm"], r"unknown method 'cl-colm'.* Did you mean 'cl-colme'\?"),
    "no such graph": (["simulate", "--n-agents", "5", "--degree", "3"], r"3-regular graph on 5 agents does not exist"),
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_exits_with_2_one_sentence_and_no_data(case: str, call: Calls, small: Path) -> None:
    arguments, said = USAGE[case]
    code, out, err = call(*arguments)
    assert code == 2 and out == "" and "Traceback" not in err
    assert re.search(rf"^Error: .*{said}", err, re.M), err
    assert not Path("results").exists()


def test_a_failure_exits_with_1_and_says_what_to_do(call: Calls, small: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = call("run", small, "--results", tmp_path / "file" / "below")
    said = r"^Error: cannot write .*: Not a directory\. Choose a folder .* writable\.$"
    assert code == 1 and out == "" and re.search(said, err, re.M)
    code, out, err = call("run", small, "--backend", "dask")
    assert code == 1 and out == "" and re.search(r"Error: backend='dask' needs .*\. Try", err)
    assert call("run", small, "--checkpoint-every", "-1")[0] in (1, 2)


def test_a_traceback_only_with_debug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own: the interpreter prints it, and with it goes the exit code."""
    plain = process("run", "no.toml", cwd=tmp_path)
    assert plain.returncode == 2 and plain.stdout == "" and len(plain.stderr.splitlines()) == 1
    assert plain.stderr.startswith("Error: cannot read no.toml")
    debug = process("run", "no.toml", "--debug", cwd=tmp_path)
    assert debug.returncode not in (0, 130) and debug.stdout == ""
    assert "Traceback (most recent call last)" in debug.stderr
    assert "ExperimentError: cannot read no.toml" in debug.stderr
    for arguments in (["--debug", "run", "no.toml"], ["run", "--debug", "no.toml"], ["run", "no.toml"]):
        with pytest.raises(colme.errors.ExperimentError):
            cli.main(arguments)
        monkeypatch.setenv("COLME_DEBUG", "1")


def test_a_reader_who_has_read_enough_is_no_failure_worth_a_word() -> None:
    command = f"{sys.executable} -m colme list methods --format json | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.stdout == "[\n" and done.stderr == ""


# Start-up


@pytest.mark.parametrize("arguments", [["--help"], [], ["--version"], ["completion", "bash"], ["rnu"]])
def test_what_needs_nothing_heavy_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom colme.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


# Completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str, call: Calls) -> None:
    code, out, err = call("completion", shell)
    assert code == 0 and f"_COLME_COMPLETE={shell}_complete" in out
    assert err == "" or shutil.which(shell) is None  # click says so if it cannot ask the shell for its version


COMPLETIONS: dict[str, tuple[set[str], set[str]]] = {  # what is typed, what must be offered, what must not
    "colme r": ({"run", "report"}, {"list"}),
    "colme run cl": ({"cl_colme", "clocks"}, {"tmlr22"}),
    "colme simulate --n-a": ({"--n-agents"}, {"--means"}),
    "colme simulate --method c": ({"cl-colme", "c-colme", "colme"}, {"local"}),
    "colme list e": ({"experiments"}, {"methods"}),
    "colme list runs cl": ({"cl_colme", "clocks"}, {"tmlr22"}),
}


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What bash offers: the script is asked as bash asks it, in an empty folder."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    folder = tmp_path_factory.mktemp("bash")
    (folder / "empty").mkdir()
    program = folder / "colme"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from colme.cli import main; main()" "$@"\n')
    program.chmod(0o755)
    lines = ["compopt() { :; }", 'eval "$(colme completion bash)"']
    for typed in COMPLETIONS:
        words = typed.split(" ")
        lines.append(f"COMP_WORDS=({' '.join(words)}) COMP_CWORD={len(words) - 1} COMPREPLY=()")
        lines += ["_colme_completion colme", 'echo "${COMPREPLY[@]}"']
    environment = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, cwd=folder / "empty", env=environment
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return dict(zip(COMPLETIONS, (set(line.split()) for line in done.stdout.split("\n")), strict=False))


@pytest.mark.parametrize("typed", COMPLETIONS)
def test_bash_completes(typed: str, bash: dict[str, set[str]]) -> None:
    offered, withheld = COMPLETIONS[typed]
    assert offered <= bash[typed] and not withheld & bash[typed]


def test_report_by_name_is_what_ran_last_and_by_file_is_the_file(call: Calls, tmp_path: Path) -> None:
    for folder, n_agents in (("a", 40), ("b", 50)):
        (tmp_path / folder).mkdir()
        text = f"steps = 5\nfigures = ['mse']\n[scenario]\nn_agents = {n_agents}\nmeans = [0.0]\n"
        (tmp_path / folder / "x.v2.toml").write_text(text + "[[methods]]\nmethod = 'cl-colme'\n")
        assert call("run", f"{folder}/x.v2.toml", "-q")[0] == 0
    page = tmp_path / "results" / "x.v2" / "report.html"
    assert call("report", "x.v2", "--no-figures")[0] == 0
    assert "n_agents = 50" in page.read_text()
    assert call("report", "a/x.v2.toml", "--no-figures")[0] == 0
    assert "n_agents = 40" in page.read_text()
    assert "done" in call("list", "runs", "x.v2")[1]


# Combinations that cannot run


def test_an_unstable_combination_of_a_sweep_is_skipped_with_a_sentence(call: Calls, small: Path) -> None:
    flags = ("--level", "edge", "--step", "0.1,5", "-q", "-j", "1")
    code, out, err = call("run", small, *flags, "--dry-run", "--format", "json")
    assert code == 0 and [row["state"] for row in rows_of(out) if row["step"] == 5] == ["cannot run"] * 2
    code, out, err = call("run", small, *flags, "--format", "json")
    assert code == 0, err
    assert re.search(r"^2 of 6 runs are skipped: CL-colME: step=5 is not stable on this graph: .*\.$", err, re.M)
    assert {(row["method"], row["step"]) for row in json.loads(out)["methods"]} == {("CL-colME", 0.1), ("local", None)}
    assert call("report", "small", "--no-figures")[0] == 0
    page = Path("results/small/report.html").read_text()
    assert "Skipped: CL-colME: step=5 is not stable" in page and "runs are missing" not in page
    assert "<footer>4 runs. " in page
    states = {
        (row["method"], row["step"]): row["state"]
        for row in rows_of(call("list", "runs", "small", "--format", "json")[1])
    }
    assert states == {("CL-colME", 0.1): "done", ("CL-colME", 5): "cannot run", ("local", None): "done"}
    code, out, err = call("simulate", "-q", "--n-agents", "24", "--steps", "5", "--step", "0.1,5", "--format", "json")
    assert code == 0 and "Skipped: CL-colME: step=5 is not stable" in err
    assert [(row["method"], row["step"]) for row in rows_of(out)] == [("CL-colME", 0.1), ("local", None)]


# Own graphs


def test_a_graph_from_a_file_is_a_flag_relative_to_the_current_folder(call: Calls, small: Path, tmp_path: Path) -> None:
    ring = [f"{a} {(a + 1) % 24}" for a in range(24)]
    Path("ring.edges").write_text("# a ring\n" + "\n".join(ring))
    flags = ("--n-agents", "24", "--steps", "20", "-q", "--format", "json")
    named = rows_of(call("simulate", *flags, "--graph", "ring", "--degree", "2")[1])
    given = rows_of(call("simulate", *flags, "--graph", "ring.edges")[1])
    assert [row["isolated"] for row in given] == [row["isolated"] for row in named]
    assert call("run", small, "-q", "-j", "1", "--graph", "ring.edges")[0] == 0
    Path("ring.edges").unlink()
    assert call("report", "small", "--no-figures")[0] == 0, "the results have a copy of the graph"
    code, _, err = call("simulate", "--graph", "no.edges")
    assert code == 2 and "there is no such file. Check the path." in err
    page = Path("results/small/report.html").read_text()
    assert "copy the folder results/small/graphs (it holds ring.edges) beside it" in page
    Path("again/graphs").mkdir(parents=True)
    Path("again/graphs/ring.edges").write_bytes(Path("results/small/graphs/ring.edges").read_bytes())
    (printed,) = [each for each in re.findall("<pre>(.*?)</pre>", page, re.S) if "[scenario]" in each]
    Path("again/small.toml").write_text(html.unescape(printed))
    code, _, err = call("run", "again/small.toml", "-q")
    assert code == 0 and "All 6 runs are done." in err, "the printed file asks for the same runs"


# Tables on a narrow terminal


@pytest.mark.parametrize("arguments", [
    ["run", "small.toml", "-q", "-j", "1"], ["run", "small.toml", "--dry-run"], ["list", "runs", "small.toml"],
    ["list", "methods"], ["list", "experiments"], ["list", "figures"], ["doctor"],
    ["simulate", "-q", "--n-agents", "24", "--steps", "5", "--clock", "gossip,global", "--level", "agent,edge"],
])  # fmt: skip
def test_a_table_fits_80_columns_and_breaks_no_number(
    arguments: list[str], call: Calls, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = call(*arguments)
    assert code == 0 and out and max(map(len, out.splitlines())) <= 80
    assert not re.search(r"\S{81}", out)
    rows = [line for line in out.splitlines() if line.strip()]
    assert not any(re.fullmatch(r"[\d.e+-]{1,3}", line.strip()) for line in rows), "a number was broken"
    if arguments[0] != "doctor":
        code, wide, err = call(*arguments, "--wide")
        assert code == 0 and "Not shown" not in err and max(map(len, wide.splitlines())) >= max(map(len, rows))


def test_messages_on_a_terminal_break_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = "Error: nothing is here, and " + "this/is/a/path/" * 4 + " is too long.\n  indented " + "word " * 10 + "end"
    say(text)
    assert capsys.readouterr().err == text + "\n", "not on a terminal: as it is"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    say(text)
    lines = capsys.readouterr().err.splitlines()
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    assert all(len(line) <= 40 or " " not in line for line in lines) and lines[-1].startswith("  ")
    with pytest.raises(SystemExit):
        cli.main(["run", "cl_colm"])
    assert all(len(line) <= 40 for line in capsys.readouterr().err.splitlines())


# A figure for a paper


def test_plot_fits_a_figure_to_a_column(call: Calls, small: Path) -> None:
    assert call("run", small, "-q", "-j", "1", "--seeds", "1")[0] == 0
    look = ("--width", "84mm", "--font-size", "7", "--font", "serif", "--no-title")
    code, _, err = call("plot", "small", "mse", *look, "--into", "paper")
    assert code == 0 and err == ""
    head = Path("paper/mse.svg").read_text()[:400]
    found = re.search(r'width="([\d.]+)pt"', head)
    assert found is not None and float(found[1]) == pytest.approx(84 / 25.4 * 72, abs=0.1)
    for wrong, said in (("84km", "width='84km': it must be a length"), ("1mm", "between 1in and 20in")):
        code, _, err = call("plot", "small", "mse", "--width", wrong)
        assert code == 1 and said in err
    code, _, err = call("plot", "small", "mse", "--font", "No Such Font")
    assert code == 1 and "font='No Such Font' is not installed" in err


# Numbers and texts from outside


NUMBERS = ("integer", "float", "integer range", "float range")
NUMERIC = {
    f"{path} {param.opts[-1]}".removeprefix("colme "): param
    for path, command in commands() for param in command.params
    if isinstance(param, click.Option) and param.type.name in NUMBERS
}  # fmt: skip
ANY_FINITE = ("estimate --above", "estimate --sigma", "run --checkpoint-every", "node plan --tick-rate")
"""These have no upper bound here; the library has its own."""


@pytest.mark.parametrize("option", NUMERIC)
def test_every_number_of_the_command_line_has_bounds(option: str) -> None:
    """Neither NaN nor infinity nor 100 000 threads."""
    assert {"run --jobs", "simulate --jobs", "node demo --n-agents", "estimate --level"} <= set(NUMERIC)
    param, kept = NUMERIC[option], option in ANY_FINITE
    words = ["nan", "inf", "-inf", *([] if kept else ["1e308", "9" * 30, "-1"])]
    for word in [*words, *(["100000"] if option.endswith(("--jobs", "--n-agents")) else [])]:
        with pytest.raises(click.BadParameter) as caught:
            param.type.convert(word, param, None)
        assert "\n" not in caught.value.message


EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u2066\r\n\x00\ud800"


@pytest.mark.parametrize("wide", [True, False])
def test_tables_and_messages_print_no_control_characters(wide: bool, capfd: pytest.CaptureFixture[str]) -> None:
    emit([{"name": EVIL, EVIL: 1, "several": [EVIL, "b"]}], "table", title=EVIL, wide=wide)
    say(f"cannot read {EVIL}: no.\nA second line.")
    out, err = capfd.readouterr()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out + err)
    assert "�[2J" in out and "�[2J" in err and err.endswith("��: no.\nA second line.\n")
    emit([{"name": EVIL[:-1]}], "json")
    emit([{"name": EVIL[:-1]}], "csv")
    first, _, second = capfd.readouterr().out.partition("]\n")  # as they are
    assert json.loads(first + "]") == [{"name": EVIL[:-1]}]
    assert EVIL[:14] in second


def test_an_error_about_an_evil_file_name_is_printable(call: Calls, tmp_path: Path) -> None:
    code, _, err = call("node", "status", "-c", str(tmp_path / "\x1b[2Jx\u202e\nError: y.toml"))
    assert code == 1 and "\x1b" not in err and "\u202e" not in err and "�[2Jx� Error: y.toml" in err
    assert err.count("\n") == 1


def test_a_package_that_is_missing_is_named_with_its_extra(tmp_path: Path) -> None:
    arguments = ["estimate", "sales.csv", "--agent", "shop", "--value", "amount"]
    script = f"import sys; sys.modules['pyarrow'] = None; from colme.cli import main; main({arguments})"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "colme estimate needs pyarrow, which is not installed. Try: pip install '.[data]'" in done.stderr
