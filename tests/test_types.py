"""What a user's type checker sees: no `Any` in place of methods, models and results. pyright is stricter than mypy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import colme

pytest.importorskip("basedpyright")

RIGHT = """
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import colme
from colme.data.partials import merge_moments
from colme.data.report.result import Result, Summary
from colme.online import CollaborativeMean

assert_type(colme.CLColME(sigma=2.0), colme.CLColME)
assert_type(colme.CLColME(level="edge", guard=True).sigma, float | None)
assert_type(colme.Census(), colme.Census)
assert_type(colme.Local(), colme.Local)
assert_type(colme.Oracle(), colme.Oracle)
assert_type(colme.Bayes(), colme.Bayes)
assert_type(colme.ColME(), colme.ColME)
assert_type(colme.BColME(), colme.BColME)
assert_type(colme.CColME(), colme.CColME)
assert_type(colme.methods.CLColME(), colme.CLColME)
scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=1.0)
assert_type(scenario, colme.Scenario)
assert_type(colme.simulate(colme.CLColME(), scenario, seed=0), colme.Trace)
assert_type(colme.simulate(colme.Local(), scenario, steps=9, record="log", graph="ring", degree=2), colme.Trace)
assert_type(colme.simulate([colme.CLColME(), colme.Local()], scenario, seeds=range(3)), colme.Traces)

result = colme.estimate({"a": [1, 2], "x": [1.0, 2.0]}, agent="a", value="x")
assert_type(result, Result)
assert_type(result.estimate, NDArray[np.float64])
assert_type(result.summary, Summary)
assert_type(result.summary.gain, float)
merge_moments([])

model = colme.CollaborativeMean(colme.Census(), sigma=1.0, background=True)
assert_type(model, CollaborativeMean)
assert_type(colme.online.CollaborativeMean(), CollaborativeMean)
model.learn_one("a", 1.0)
assert_type(model.estimate_["a"], float)
assert_type(model.interval_["a"], tuple[float, float])
assert_type(model.count_["a"], int)
assert_type(CollaborativeMean.load("model.npz"), CollaborativeMean)
try:
    pass
except colme.errors.SampleError:
    pass
except colme.ColmeError as error:
    assert_type(error, colme.ColmeError)
"""
WRONG = """
import colme

colme.CLColME(sigma="2")
colme.CLColME(nonsense=1)
colme.Scenario(n_agents=3)
colme.simulate(colme.Local(), colme.Scenario(n_agents=3, means=(0.0,)), tolerance="x")
colme.simulate(colme.Local(), colme.Scenario(n_agents=3, means=(0.0,)), tolerence=0.1)
colme.nothing
colme.CollaborativeMean("census")
colme.estimate("a.csv", agent="a", value="x").means
"""


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """The lines that pyright refuses in strict mode, and why, for each script."""
    folder = tmp_path_factory.mktemp("scripts")
    scripts = {"right.py": RIGHT, "wrong.py": WRONG}
    for name, script in scripts.items():
        (folder / name).write_text(script, encoding="utf-8")
    sources = str(Path(colme.__file__).parents[1])
    settings = {"typeCheckingMode": "strict", "include": list(scripts), "extraPaths": [sources]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "-p", str(folder), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    found: dict[str, dict[int, str]] = {name: {} for name in scripts}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            found[Path(each["file"]).name][each["range"]["start"]["line"]] = each["message"]
    return found


def test_what_is_right_is_typed_in_strict_mode(refused: dict[str, dict[int, str]]) -> None:
    assert refused["right.py"] == {}


def test_what_is_wrong_is_refused(refused: dict[str, dict[int, str]]) -> None:
    wrong = {line for line, text in enumerate(WRONG.split("\n")) if text.startswith("colme.")}
    assert set(refused["wrong.py"]) == wrong
