"""`colme estimate` as it is typed: a process of its own, from files and pipes to files and pipes."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
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


def test_from_a_pipe_to_a_pipe(tmp_path: Path) -> None:
    done = colme(tmp_path, "-", *COLUMNS, "--format", "csv", "-q", input=TABLE)
    assert done.returncode == 0 and done.stderr == "" and len(done.stdout.splitlines()) == 21
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("arguments", "text", "code", "words"), [
    (("-", "--agent", "senser", "--value", "celsius"), TABLE, 2, "Did you mean 'sensor'?"),
    (("-", *COLUMNS), TABLE + "s1,warm\n", 1, "celsius in row 121 of stdin is 'warm'"),
    (("-", *COLUMNS), "", 1, "stdin is empty"),
])  # fmt: skip
def test_exit_codes(arguments: tuple[str, ...], text: str, code: int, words: str, tmp_path: Path) -> None:
    done = colme(tmp_path, *arguments, "-o", "o.csv", input=text)
    assert done.returncode == code and words in done.stderr and done.stdout == "" and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "colme", "estimate", "-", *COLUMNS, "-o", "o.csv", "--report", "o.html"]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(TABLE)  # and no end: it waits for more
    process.stdin.flush()
    time.sleep(8.0)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == "" and "Traceback" not in err
    assert not list(tmp_path.iterdir())
