"""`colme estimate`: data on stdout, messages on stderr, complete files or none, and errors before the work begins."""

from __future__ import annotations

import csv
import datetime
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.cells import cell_len
from rich.progress import Progress

from colme import cli
from colme.cli import output
from colme.cli.estimate_command import print_agents
from colme.cli.output import row_progress
from colme.data import estimate as estimate_module
from tests.support.made_results import made_result
from tests.support.spreadsheets import write_xlsx

READINGS = "sensor,room,temperature,ts\n" + "".join(
    f"s-{k % 7},{('south', 'north')[k % 2]},{20 + k % 7 + k % 3 / 10},2024-03-{1 + k % 28:02d}\n" for k in range(90)
)
ASKED = ("--agent", "sensor", "--value", "temperature")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `colme.data.estimate.estimate` was called with."""
    calls: list[dict[str, Any]] = []

    def estimate(source: Any, **options: Any) -> Any:
        calls.append({"source": source} | options)
        return real(source, **options)

    real = estimate_module.estimate
    monkeypatch.setattr(estimate_module, "estimate", estimate)
    return calls


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLME_DEBUG", raising=False)
    path = tmp_path / "readings.csv"
    path.write_text(READINGS)
    return path


def call(
    capfd: pytest.CaptureFixture[str], *arguments: str | Path | int, command: str = "estimate"
) -> tuple[int, str, str]:  # fmt: skip
    capfd.readouterr()
    with pytest.raises(SystemExit) as done:
        cli.main([command, *map(str, arguments)])
    out, err = capfd.readouterr()
    assert isinstance(done.value.code, int)
    return done.value.code, out, err


def test_a_table_on_the_screen(file: Path, asked: Any, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capfd, file, *ASKED)
    assert code == 0
    assert "s-3" in out and "estimate" in out and "Collaboration" not in out
    assert "Collaboration does not help here: every agent keeps its own mean." in err
    assert "90 samples from 7 agents" in err
    code, out, err = call(capfd, file, *ASKED, "--format", "json", "-q")
    found = json.loads(out)
    assert code == 0 and err == "" and found["summary"]["method"] == "local" and found["summary"]["drift"] is None
    assert [row["agent"] for row in found["agents"]] == [f"s-{k}" for k in range(7)]


def test_every_flag_arrives(file: Path, asked: list[dict[str, Any]], capfd: pytest.CaptureFixture[str]) -> None:
    file.write_bytes("a;b;v;t;w;g;c\nx;y;1.000,5;01.01.2024;1;u;3\nx;z;2;02.01.2024;1;ü;4\n".encode("latin-1"))
    code, _, err = call(capfd, file, "--agent", "a", "--agent", "b", "--value", "v", "--time", "t", "--weight", "w",
                        "--label", "g", "--covariate", "c", "--covariate", "log n", "--method", "census",
                        "--groups", "3", "--sigma", "2", "--half-life", "7d", "--level", ".8", "--independent",
                        "--seed", "5", "--decimal", ",", "--thousands", ".", "--time-format", "%d.%m.%Y",
                        "--encoding", "latin-1")  # fmt: skip
    assert code == 0, err
    (got,) = asked
    assert callable(got.pop("progress"))
    assert got == dict.fromkeys(("mean", "se", "n", "successes", "trials", "exposure")) | {
        "source": str(file), "agent": ("a", "b"), "value": "v", "time": "t", "weight": "w", "label": "g",
        "covariates": ("c", "log n"), "method": "census", "groups": 3, "sigma": 2.0, "level": 0.8, "seed": 5,
        "independent": True, "half_life": datetime.timedelta(days=7), "decimal": ",", "thousands": ".",
        "time_format": "%d.%m.%Y",
        "encoding": "latin-1", "sheet": None,
    }  # fmt: skip
    for header, flags in (
        ("a,m,se,n", {"mean": "m", "se": "se", "n": "n"}), ("a,y,k", {"successes": "y", "trials": "k"}),
        ("a,y,e", {"value": "y", "exposure": "e"}),
    ):  # fmt: skip
        n = header.count(",")
        file.write_text("\n".join([header, *(f"s{k},{','.join(map(str, range(1 + k, 1 + k + n)))}" for k in range(6))]))
        words = [word for name, column in flags.items() for word in (f"--{name}", column)]
        code, out, err = call(capfd, file, "--agent", "a", *words, "--format", "json")
        assert code == 0, err
        assert {name: asked[-1][name] for name in flags} == flags and len(json.loads(out)["agents"]) == 6


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5min", 90), ("2h", 7200), ("2w", 1209600), ("12", 12)])
def test_half_lives_have_units(
    text: str, seconds: float, file: Path, asked: list[dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = call(capfd, file, *ASKED, "--time", "ts", "--half-life", text, "--format", "json")
    assert code == 0 and json.loads(out)["summary"]["half_life"] == seconds
    assert isinstance(asked[0]["half_life"], float if text == "12" else datetime.timedelta)


def test_a_half_life_of_plain_numbers_has_no_unit(file: Path, asked: Any, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text("sensor,temperature,ts\n" + "".join(f"{k % 5},{k},{k}\n" for k in range(30)))
    code, _, err = call(capfd, file, *ASKED, "--time", "ts", "--half-life", "30d")
    assert code == 1
    assert "a half-life of 2,592,000 seconds, but ts holds plain numbers: it must be a number in their unit." in err
    assert "Leave the unit of the half-life out." in err
    assert call(capfd, file, *ASKED, "--time", "ts", "--half-life", "30")[0] == 0


def test_a_sheet_is_named(file: Path, asked: Any, capfd: pytest.CaptureFixture[str]) -> None:
    rows = [line.split(",") for line in READINGS.splitlines()]
    path = write_xlsx(file.with_name("book.xlsx"), {"cover": [["Report"]], "2024": rows})
    code, out, _ = call(capfd, path, *ASKED, "--sheet", "2024", "--format", "csv")
    assert code == 0 and len(out.splitlines()) == 8
    code, _, err = call(capfd, path, "--sheet", "2024")
    assert code == 2 and "sensor, room, temperature, ts" in err


@pytest.mark.parametrize(("flags", "code", "fragments"), [
    ((), 2, ("--agent and --value must name a column", "sensor, room, temperature, ts",
             "readings.csv --agent COLUMN --value COLUMN")),
    (("--agent", "sensor"), 2, ("--value must name a column", "sensor, room, temperature, ts", "Try")),
    (("--agent", "senser", "--value", "temperature"), 2, ("no column 'senser'", "Did you mean 'sensor'?")),
    (("--agent", "sensor", "--value", "room"), 1, ("room in row 1 of readings.csv is 'south'", "must be a number")),
    ((*ASKED, "-o", "out.xlsx"), 1, ("out.xlsx has an unknown ending", ".parquet .csv .json")),
    ((*ASKED, "--plot", "out.gif"), 1, ("out.gif has an unknown ending", ".svg .pdf .png")),
    ((*ASKED, "--report", "out.pdf"), 1, ("out.pdf has an unknown ending", ".html")),
    ((*ASKED, "-o", "/proc/nowhere/out.csv"), 1, ("cannot write /proc/nowhere/out.csv", "Choose a folder")),
    ((*ASKED, "-o", "readings.csv/out.csv"), 1, ("cannot write readings.csv/out.csv", "Choose a folder")),
    ((*ASKED, "-o", "nodir/out.csv"), 1, ("there is no folder nodir", "Choose a folder that exists")),
    ((*ASKED, "--plot", "nodir/out.svg"), 1, ("there is no folder nodir", "Choose a folder that exists")),
    ((*ASKED, "--report", "nodir/sub/out.html"), 1, ("there is no folder nodir/sub", "Choose a folder that exists")),
    ((*ASKED, "--half-life", "7 fortnights"), 2, ("7 fortnights", "Try 7d")),
    ((*ASKED, "--groups", "0"), 2, ("--groups",)),
    ((*ASKED, "--level", "1"), 2, ("--level", "0<x<1")),
    ((*ASKED, "--sigma", "0"), 2, ("--sigma", "x>0")),
    ((*ASKED, "--half-life", "7d"), 2, ("--half-life needs the time of every sample", "Try --time COLUMN")),
    ((*ASKED, "-o", "readings.csv"), 2, ("readings.csv is the input table", "Choose another name")),
    ((*ASKED, "-o", "o.csv", "-o", "./o.csv"), 2, ("./o.csv is given twice", "Choose another name")),
])  # fmt: skip
def test_what_cannot_be_is_said_before_the_work(
    flags: tuple[str, ...], code: int, fragments: tuple[str, ...], file: Path, asked: list[Any],
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    got, out, err = call(capfd, file, *flags)
    assert got == code and out == ""
    words = " ".join(err.split())
    assert all(fragment in words for fragment in fragments), words
    assert "Traceback" not in err and (not asked or "senser" in flags or "room" in flags)
    assert [path.name for path in file.parent.iterdir()] == ["readings.csv"]


# The printed table

HOSTILE = ["x" * 300, "</script>", "\u202egnp.exe", "\x1b[2Jclear", "日本語" * 30, "two\nlines", "[bold]", ":smile:"]


def write_hostile(path: Path, scale: float = 1.0) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sensor", "temperature"])
        rng = np.random.default_rng(0)
        for k, name in enumerate(HOSTILE):
            writer.writerows((name, scale * (20 + 5 * (k % 2) + rng.normal())) for _ in range(4 if k else 1))


@pytest.mark.parametrize(("width", "scale"), [(80, 1.0), (100, 1234567.0), (160, 1e150), (80, 1e-12)])
def test_a_table_fits_the_terminal_and_breaks_no_number(
    scale: float, width: int, file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hostile(file, scale)
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, err = call(capfd, file, *ASKED, "--method", "shrinkage")
    lines = [line for line in out.splitlines() if line.strip() and "━" not in line]
    assert code == 0 and all(cell_len(line) <= width for line in out.splitlines())
    assert len(lines) == 1 + len(HOSTILE), "each agent has one line"
    head = lines[0].split()
    assert head[:6] == ["agent", "n", "mean", "estimate", "lower", "upper"]
    assert "\x1b" not in out and "\u202e" not in out and "[bold]" in out and ":smile:" in out
    for line in lines[1:]:
        numbers = re.findall(r"(?<= )-?[\d,]+(?:\.\d+)?(?:e[+-]\d+)?(?= |$)", line)
        assert len(numbers) >= 5 and "…" not in line.split("  ", 3)[-1], line
    every = ["agent", "n", "mean", "estimate", "lower", "upper", "borrowed", "flags"]
    hidden = set(every) - set(head)
    assert ("Show all columns with --wide" in err) == bool(hidden) and all(name in err for name in hidden)
    code, wide, err = call(capfd, file, *ASKED, "--method", "shrinkage", "--wide")
    assert code == 0 and "Not shown" not in err and "one sample" in wide
    assert next(line for line in wide.splitlines() if "estimate" in line).split() == every


@pytest.mark.parametrize(("changed", "title"), [
    (True, "The 10 of 12 agents that changed most"), (False, "The first 10 of 12 agents"),
])  # fmt: skip
def test_the_title_says_which_agents_are_shown(changed: bool, title: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = made_result(12)
    if not changed:
        result = msgspec.structs.replace(result, estimate=result.mean)
    print_agents(result, wide=False)
    assert capsys.readouterr().out.strip().splitlines()[0].strip() == title


# Progress


def test_a_bar_comes_with_the_second_second(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    now, seen = [0.0], []
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Progress, "start", lambda bar: None)
    monkeypatch.setattr(Progress, "update", lambda bar, task, **state: seen.append(tuple(state.values())))
    with row_progress(quiet=False) as progress:
        assert progress is not None
        for moment, done, total in ((0.0, 10, 100), (0.9, 20, 100), (1.1, 30, 100), (1.1, 1, 4)):
            now[0] = moment
            progress(done, total)
    assert seen == [(30, 100, "reading rows"), (1, 4, "comparing methods")]
    with row_progress(quiet=True) as progress:
        assert progress is None


def test_moments_of_two_sites_are_estimated_together(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    files = []
    for site in range(2):
        lines = [f"{a},{rng.normal(a % 2 * 3, 1):.3f}" for a in rng.integers(0, 40, 400)]
        (tmp_path / f"{site}.csv").write_text("\n".join(["user,x", *lines]))
        files.append(tmp_path / f"{site}.arrow")
        code, _, err = call(capfd, tmp_path / f"{site}.csv", "--agent", "user", "--value", "x", "-o", files[-1],
                            "--seed", site, command="moments")  # fmt: skip
        assert code == 0 and "Written" in err and "40 agents" in err
    page = tmp_path / "all.html"
    code, out, _ = call(capfd, *files, "--format", "json", "--report", page)
    found = json.loads(out)
    assert code == 0 and found["summary"]["n_samples"] == 800 and found["summary"]["gain"] > 0.3
    assert f"colme estimate {files[0]} {files[1]}" in html.unescape(page.read_text())
    code, _, err = call(capfd, files[0], tmp_path / "1.csv")
    assert code == 2 and "1.csv does not hold moments" in err
    code, _, err = call(capfd, files[0], "--time", "day")
    assert code != 0 and "holds moments of agent='user', value='x'. Leave time out." in err
    files[1].write_bytes(files[1].read_bytes()[:700])  # an upload that broke off
    code, _, err = call(capfd, *files)
    assert code != 0 and "1.arrow cannot be read; it may be truncated" in err
    code, _, err = call(capfd, tmp_path / "0.csv", "--agent", "user", "--value", "x", "-o", tmp_path / "0.txt",
                        command="moments")  # fmt: skip
    assert code != 0 and "it must be one of .arrow" in err


def test_ranks_probabilities_and_explanations_by_command(
    file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    asked = ("--top", 2, "--above", 22, "--above", "-1.5", "--explain", "s-3")
    code, out, err = call(capfd, file, *ASKED, *asked)
    assert code == 0
    assert "The 2 of 7 agents that most probably have the 2 largest means" in out
    rows = [line.split() for line in out.splitlines() if line.strip().startswith("s-")]
    assert [row[0] for row in rows] == ["s-6", "s-5"]  # means 26 and 25, and little noise
    for name in ("above 22", "above -1.5", "rank", "rank lower", "rank upper", "top 2"):
        assert f" {name} " in out
    assert "s-3 has 13 samples with a mean of 23" in " ".join(err.split())
    code, out, _ = call(capfd, file, *ASKED, *asked, "--format", "csv", "-o", "out.json", "-q", "--report", "page.html")
    page = (file.parent / "page.html").read_text()
    assert code == 0 and "--top 2 --above 22 --above -1.5 --explain s-3" in page
    assert all(f'scope="col">{name}</th>' in page for name in ("rank", "rank_lower", "top_2", "above_22"))
    read = list(csv.DictReader(io.StringIO(out)))
    assert {row["agent"]: round(float(row["rank"])) for row in read} == {f"s-{k}": 7 - k for k in range(7)}
    assert sum(float(row["top_2"]) for row in read) == pytest.approx(2.0)
    assert all(0.0 <= float(row["above_22"]) <= 1.0 and float(row["above_-1.5"]) == 1.0 for row in read)
    assert json.loads((file.parent / "out.json").read_text())["agents"][0].keys() == read[0].keys()


def test_questions_that_have_no_answer_are_refused_by_command(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capfd, file, *ASKED, "--explain", "s-99")
    assert code == 1 and "there is no agent 's-99'" in err
    assert call(capfd, file, *ASKED, "--top", 0)[0] == 2
    assert call(capfd, file, *ASKED, "--above", "nan")[0] == 2
    (file.parent / "single.csv").write_text("a,v\nx,1\ny,2\n")
    code, _, err = call(capfd, file.parent / "single.csv", "--agent", "a", "--value", "v", "--top", 1)
    assert code == 1 and "noise of a sample is not known" in err


def test_without_a_terminal_there_is_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    with row_progress(quiet=False) as progress:
        assert progress is not None
        for second in range(25):
            now[0] = float(second)
            progress(1000 * second, 30_000 if second > 15 else None)
    assert capfd.readouterr().err.splitlines() == ["reading rows: 11,000", "reading rows: 22,000 of 30,000"]
