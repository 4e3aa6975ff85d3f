"""`colme estimate` as it is typed: a process of its own, from files and pipes to files and pipes."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import gzip
import io
import json
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

RNG = np.random.default_rng(3)
ROWS = [(f"s{k % 20}", 20.0 + 5.0 * (k % 2) + RNG.normal()) for k in range(120)]
TABLE = "sensor,celsius\n" + "".join(f"{sensor},{x}\n" for sensor, x in ROWS)
COLUMNS = ("--agent", "sensor", "--value", "celsius")


def colme(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "colme", "estimate", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, **options)


def test_a_table_becomes_every_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "readings.csv").write_text(TABLE)
    names = ("o.parquet", "o.csv", "o.json", "o.svg", "o.html")
    done = colme(tmp_path, "readings.csv", *COLUMNS, "--format", "json", "-o", "o.parquet", "-o", "o.csv",
                 "-o", "o.json", "--plot", "o.svg", "--report", "o.html")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {each.name for each in tmp_path.iterdir()} == {"readings.csv", *names}
    agents = json.loads(done.stdout)["agents"]
    assert json.loads((tmp_path / "o.json").read_text())["agents"] == agents
    assert pq.read_table(tmp_path / "o.parquet").to_pylist() == agents
    rows = list(csv.DictReader(io.StringIO((tmp_path / "o.csv").read_text())))
    assert [float(row["estimate"]) for row in rows] == [row["estimate"] for row in agents]
    assert "Collaboration helps" in done.stderr and "2 groups" in done.stderr and "Traceback" not in done.stderr
    assert all(name in done.stderr for name in names)
    page = (tmp_path / "o.html").read_text()
    assert "celsius by sensor" in page and "colme estimate readings.csv --agent sensor --value celsius" in page
    assert (tmp_path / "o.svg").read_text().startswith("<?xml")


def test_names_that_are_formulas_are_kept_unless_spreadsheets_are_meant(tmp_path: Path) -> None:
    names = ["=cmd()", "+1", "-1-1", "@SUM(A1)", "plain", "a=b", "\t=1", "\uff1d1", "'", '=HYPERLINK("x","y")']
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("=who", "v"), *((name, x) for x in (1.0, 2.0, -3.5) for name in names)])
    arguments = ("t.csv", "--agent", "=who", "--value", "v", "--method", "local", "-q", "--format", "csv")
    plain = colme(tmp_path, *arguments, "-o", "kept.csv")
    safe = colme(tmp_path, *arguments, "-o", "safe.csv", "-o", "safe.json", "--escape-formulas")
    assert plain.returncode == safe.returncode == 0, safe.stderr

    def read(text: str) -> list[list[str]]:
        return list(csv.reader(io.StringIO(text)))

    with (tmp_path / "kept.csv").open(newline="") as kept, (tmp_path / "safe.csv").open(newline="") as escaped:
        kept_rows, safe_rows = read(kept.read()), read(escaped.read())
    assert kept_rows == read(plain.stdout) and safe_rows == read(safe.stdout)
    assert sorted(row[0] for row in kept_rows[1:]) == sorted(names)
    expected = [name if name in ("plain", "a=b", "'") else f"'{name}" for name in names]
    assert sorted(row[0] for row in safe_rows[1:]) == sorted(expected) and safe_rows[0][0] in ("agent", "'=who")
    assert [row[1:] for row in safe_rows] == [row[1:] for row in kept_rows]  # numbers below zero stay numbers
    assert {row["agent"] for row in json.loads((tmp_path / "safe.json").read_text())["agents"]} == set(names)


def test_a_row_of_gigabytes_ends_with_one_sentence(tmp_path: Path) -> None:
    """Arrow reads ahead in a thread: as the process ended, it aborted the interpreter."""
    with gzip.open(tmp_path / "t.csv.gz", "wb", 1) as file:
        file.write(b"sensor,celsius\ns," + b"1" * (1 << 20))
        for _ in range(100):
            file.write(b"1" * (1 << 20))
    done = colme(tmp_path, "t.csv.gz", *COLUMNS)
    assert done.returncode == 1 and done.stderr.startswith("Error: t.csv.gz has a row of more than 16 MB")
    assert done.stderr.count("\n") == 1


def test_from_a_pipe_to_a_pipe(tmp_path: Path) -> None:
    done = colme(tmp_path, "-", *COLUMNS, "--format", "csv", "-q", input=TABLE)
    assert done.returncode == 0 and done.stderr == "" and len(done.stdout.splitlines()) == 21
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("arguments", "text", "code", "words"), [
    (("-", *COLUMNS), TABLE + "s1,warm\n", 1, "celsius in row 121 of stdin is 'warm'"),
    (("-", *COLUMNS), "", 1, "stdin is empty"),
])  # fmt: skip
def test_exit_codes(arguments: tuple[str, ...], text: str, code: int, words: str, tmp_path: Path) -> None:
    done = colme(tmp_path, *arguments, "-o", "o.csv", input=text)
    assert done.returncode == code and words in done.stderr and done.stdout == "" and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def unread(pipe: Any) -> int:
    """Bytes in a pipe that its reader has not taken yet."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])


def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "colme", "estimate", "-", *COLUMNS, "-o", "o.csv", "--report", "o.html"]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(TABLE)
    process.stdin.flush()
    until = time.monotonic() + 600
    while unread(process.stdin) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    rows = TABLE.partition("\n")[2] * 500
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(BrokenPipeError):  # rows go on: while Arrow waits for input it does not look at signals
        while process.poll() is None and time.monotonic() < until:
            process.stdin.write(rows)
            process.stdin.flush()
    out, err = process.communicate(timeout=600)
    assert process.returncode == 130 and out == "" and "Traceback" not in err
    assert not list(tmp_path.iterdir())
