"""Timings as runs of an experiment: stored, resumed and told like others. Nothing here asserts seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colme import lab
from colme.errors import ExperimentError, RunError
from colme.lab.pages.experiment_page import html_of
from colme.lab.plots.figures import draw
from colme.lab.plots.subject import subject_of
from colme.lab.results import experiment_of, store_of
from colme.lab.timing_runs import ratio_frame, ratio_rows, timing_tables

KEPT, REBUILT = "C-colME, weights kept", "C-colME, weights rebuilt"


def experiment(**changes: Any) -> dict[str, Any]:
    return {
        "steps": 120,
        "degree": 6,
        "timing": {"repeats": 2, "budget": 100},
        "scenario": {"n_agents": [100, 300], "means": [0.0, 2.0], "sigma": 1.0},
        "methods": [
            {"method": "cl-colme", "level": "agent", "clock": "global"},
            {"method": "c-colme", "label": KEPT, "level": "agent", "clock": "global"},
            {"method": "c-colme", "label": REBUILT, "level": "agent", "clock": "global", "rebuild": True},
        ],
    } | changes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("timing")
    lab.run(experiment(), results=results)
    return results / "experiment"


def test_ratios_are_told_for_every_size_part_and_method(folder: Path) -> None:
    data = lab.load(folder)
    assert dict(data.sizes) == {"n_agents": 2, "part": 2, "method": 3}
    assert data.attrs["missing"] == 0
    assert (data["ratio"].sel({"method": "CL-colME"}) == 1).all()
    assert (data["low"] <= data["median"]).all() and (data["median"] <= data["high"]).all()
    assert (data["ns_per_agent_step"].sel(part="kernel") < data["ns_per_agent_step"].sel(part="end to end")).all()


def test_whole_run_ratios_are_ratios_of_sums(folder: Path) -> None:
    asked, store = experiment_of(folder), store_of(folder)
    rows = {(row["agents"], row["part"], row["method"]): row for row in ratio_rows(asked, store)}
    for planned, repeats in timing_tables(asked, store).items():
        assert len(repeats) == 2
        total = {
            label: sum(t["seconds"][(t["method"] == label) & (t["part"] == "end to end")].sum() for t in repeats)
            for label in planned.methods
        }
        found = rows[planned.setting.scenario.n_agents, "end to end", REBUILT]
        assert found["ratio"] == pytest.approx(total[REBUILT] / total["CL-colME"])
        assert found["repeats"] == 2


def test_repeats_have_their_own_chunks(folder: Path) -> None:
    frame = ratio_frame(experiment_of(folder), store_of(folder))
    counts = frame.groupby(["n_agents", "part", "method"])["chunk"].agg(["count", "nunique"])
    assert (counts["count"] == counts["nunique"]).all()
    assert np.allclose(frame["ratio"][frame["method"] == "CL-colME"], 1.0)


def test_a_timing_that_is_there_is_not_measured_again(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("run.json")}
    lab.run(folder)
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("run.json")} and len(before) == 2


def test_no_repeat_begins_beyond_the_budget(tmp_path: Path) -> None:
    table = experiment(timing={"repeats": 50, "budget": 1e-9})
    table["scenario"]["n_agents"] = 100
    data = lab.run(table, results=tmp_path)
    assert (data["repeats"] == 1).all()


def test_the_page_of_a_timing(folder: Path) -> None:
    subject = subject_of(experiment_of(folder), store_of(folder))
    drawings, failed = draw(subject)
    assert [each.name for each in drawings] == ["timing"] and not failed
    for name in ("mse", "density", "graph", "time"):
        with pytest.raises(RunError, match=f"a timing records no errors: the figure '{name}' needs them"):
            draw(subject, (name,))
    page = html_of(subject, drawings, failed)
    assert "Over whole runs, C-colME, weights kept takes" in page and "Times relative to CL-colME" in page


def test_two_methods_need_two_labels() -> None:
    table = experiment()
    del table["methods"][1]["label"], table["methods"][2]["label"]
    with pytest.raises(ExperimentError, match=r"two methods are called 'C-colME'.* Label them"):
        lab.Experiment.parse(table)


def test_what_was_not_measured_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no finished timing"):
        lab.load(lab.Experiment.parse(experiment()), results=tmp_path)
