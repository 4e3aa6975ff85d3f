"""Models in files: the same bits afterwards, never half-written, and refused when anything is wrong with them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colme
from colme import CColME, Census, CLColME, CollaborativeMean, Local
from colme.errors import CheckpointError
from colme.graphs import random_regular_graph
from colme.support import files
from tests.online.test_model import assert_same, two_classes

METHODS = (Local(), Census(), CLColME(level="agent"), CColME(level="agent", sigma=1.0))


def learned(method: colme.methods.Method, **extra: Any) -> CollaborativeMean:
    model = CollaborativeMean(method, degree=4, **extra)
    agent, value = two_classes(40, 1500)
    model.learn_many(agent=[f"{a}" if a % 3 else int(a) for a in agent], value=value, time=np.arange(1500))
    for leaver in (3, "4", 6):
        model.forget(leaver)
    return model


def test_given_graphs_and_odd_labels(tmp_path: Path) -> None:
    graph = random_regular_graph(20, 5, rng=0)
    model = CollaborativeMean(CLColME(gamma=0.3, sigma=1.0), graph=graph)
    agent, value = two_classes(20, 900)
    model.learn_many(agent=agent[:500], value=value[:500])
    model.save(tmp_path / "model.npz")
    again = CollaborativeMean.load(tmp_path / "model.npz")
    for each in (model, again):
        each.learn_many(agent=agent[500:], value=value[500:])
    assert_same(model, again)
    odd = CollaborativeMean(Local())
    labels = ["", "é\n\x00", "12", 12, -(10**30), "\ud800", "x" * 1000]
    odd.learn_many(agent=labels, value=np.arange(7))
    odd.save(tmp_path / "odd.npz")
    assert CollaborativeMean.load(tmp_path / "odd.npz").mean_ == dict(zip(labels, range(7), strict=True))


def test_an_empty_model(tmp_path: Path) -> None:
    for method in METHODS:
        CollaborativeMean(method).save(tmp_path / "empty.npz")
        again = CollaborativeMean.load(tmp_path / "empty.npz")
        again.learn_one("a", 1.0)
        assert again.estimate_ == {"a": 1.0}


def test_killed_while_saving(tmp_path: Path) -> None:
    """A process that does nothing but save is killed at any moment: the file is always a whole one."""
    path = tmp_path / "model.npz"
    code = (
        "import sys, numpy as np, colme\n"
        "model = colme.CollaborativeMean(colme.Local())\n"
        "model.learn_many(agent=np.arange(20_000), value=np.arange(20_000.0))\n"
        "while True:\n"
        "    model.learn_one(0, 0.0)\n"
        "    model.save(sys.argv[1])\n"
        "    print(flush=True)\n"
    )
    counts = []
    for pause in (0.0, 0.003, 0.011):
        process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        time.sleep(pause)
        process.kill()
        process.communicate()
        model = CollaborativeMean.load(path)
        assert model.n_agents == 20_000
        counts.append(model.count_[0])
    assert min(counts) >= 4  # its first sample and three saved ones


def test_damage_is_found(tmp_path: Path) -> None:
    """Any byte of any array may be damaged: it is refused, or it is still the same."""
    path, torn = tmp_path / "model.npz", tmp_path / "torn.npz"
    model = learned(Census())
    model.save(path)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(0, len(good), 60).tolist():
        torn.write_bytes(good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :])
        try:
            assert_same(CollaborativeMean.load(torn), model)
        except CheckpointError as error:
            assert "torn" in str(error) or "is needed" in str(error) or "later version" in str(error)
            refused += 1
    assert refused >= 40  # most places matter


LACKING = [
    "numbers.count",
    "roster",
    "labels.order",
    "labels.text",
    "neighbors",
    "rule.mixture.weight",
    "method",
    "fields",
]


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    with pytest.raises(CheckpointError, match="there is no file"):
        CollaborativeMean.load(path)
    scenario = colme.Scenario(n_agents=4, means=(0.0,), sigma=1.0)
    colme.simulate(Local(), scenario, degree=2, steps=2).save(path)
    with pytest.raises(CheckpointError, match="holds 'colme trace 1' where 'colme online 1' is needed"):
        CollaborativeMean.load(path)
    with pytest.raises(CheckpointError, match="cannot write"):
        CollaborativeMean(Local()).save(tmp_path / "nowhere" / "model.npz")


@pytest.mark.parametrize("lost", LACKING)
def test_files_that_lack_something(lost: str, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    learned(Census() if lost.startswith("rule") else CLColME()).save(path)
    head, arrays = files.read_arrays(path, "colme online 1")
    head.pop(lost, None)
    arrays.pop(lost, None)
    files.write_arrays(path, "colme online 1", head, arrays)
    with pytest.raises(CheckpointError, match=r"model.npz is torn: .* Delete it and start anew\."):
        CollaborativeMean.load(path)
