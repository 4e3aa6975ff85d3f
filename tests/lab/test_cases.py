"""Several scenarios in one experiment: [[cases]]."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import colme
from colme import lab
from colme.errors import ExperimentError
from colme.lab.experiment import Experiment
from colme.lab.rows import case_rows

TABLE: dict[str, Any] = {
    "seeds": 2, "steps": 30, "degree": 4, "figures": ["relative"],
    "scenario": {"n_agents": 40, "means": [0.0, 2.0], "sigma": 1.0},
    "cases": [
        {"case": "two"},
        {"case": "three", "means": [0.0, 1.0, 4.0], "steps": 20},
        {"case": "lossy", "loss": 0.3},
    ],
    "methods": [
        {"method": "census"}, {"method": "cl-colme", "cases": ["two", "three"]}, {"method": "local"},
        {"method": "bayes"},
    ],
}  # fmt: skip


def test_every_case_is_the_scenario_with_its_changes() -> None:
    planned = Experiment.parse(TABLE).planned
    found = {(each.label, each.spec.source.case) for each in planned}
    assert ("CL-colME", "lossy") not in found and len(found) == 11 and len(planned) == 22
    for each in planned:
        scenario = each.spec.source
        assert scenario.means == ((0.0, 1.0, 4.0) if scenario.case == "three" else (0.0, 2.0))
        assert scenario.loss == (0.3 if scenario.case == "lossy" else 0.0)
        assert each.spec.steps == (20 if scenario.case == "three" else 30)


def test_the_case_is_the_only_dimension_that_cases_make(tmp_path: Path) -> None:
    data = lab.run(Experiment.parse(TABLE, name="cases"), results=tmp_path, jobs=1)
    assert dict(data.sizes) == {"method": 4, "case": 3, "seed": 2, "t": 30}
    alone = colme.simulate(
        colme.Census(), colme.Scenario(n_agents=40, means=(0.0, 2.0), sigma=1.0, loss=0.3), degree=4, steps=30, seed=1
    )
    assert np.array_equal(data["mse"].sel({"method": "census", "case": "lossy", "seed": 1}), alone.mse)
    rows = case_rows(data)
    assert [(row["case"], row["method"]) for row in rows if row["case"] == "lossy"] == [
        ("lossy", "census"), ("lossy", "local"), ("lossy", "Bayes bound"),
    ]  # fmt: skip
    local = next(row for row in rows if row["method"] == "local")
    assert local["worst / local"] == 1.0 and local["coverage"] is None and local["numbers"] == 0.0
    census = next(row for row in rows if row["method"] == "census" and row["case"] == "two")
    mean = data.sel({"method": "census", "case": "two"}).mean("seed")
    assert census["worst / local"] == pytest.approx(float((mean["mse"] / mean["local_mse"]).max()))
    assert census["numbers"] == pytest.approx(float(mean["numbers"][-1]))
    text = Path(lab.report(Experiment.parse(TABLE, name="cases"), results=str(tmp_path))).read_text()
    assert "Every method in every case" in text and 'id="relative"' in text
    worst = max(row["worst / local"] for row in rows if row["method"] == "census")
    headline = re.search(r'<p class="headline">(.*?)</p>', text)
    assert headline and re.fullmatch(
        rf"The largest mean squared error in any case at any step, relative to that of the local means: "
        rf".*{worst:.2f} for census.*",
        headline[1],
    )
    assert "for local" not in headline[1] and "Bayes" not in headline[1], "they do not collaborate"


def test_a_flag_changes_all_cases() -> None:
    planned = Experiment.parse(TABLE, changes={"steps": 12, "n_agents": 24}).planned
    assert {each.spec.steps for each in planned} == {12}
    assert {each.spec.source.n_agents for each in planned} == {24}


@pytest.mark.parametrize(("change", "words"), [
    ({"cases": []}, "they are tables"),
    ({"cases": [{"means": [1.0]}]}, r"cases\[0\].*every case needs a name of its own"),
    ({"cases": [{"case": "a"}, {"case": "a"}]}, r"cases\[0\].*every case needs a name of its own"),
    ({"cases": [{"case": "a", "meanz": [1.0]}]}, r"cases\[0\].*meanz.*Did you mean 'means'"),
    ({"cases": [{"case": "a", "loss": 2.0}]}, r"case 'a'\.loss=2"),
    ({"methods": [{"method": "census", "cases": ["too"]}]}, r"methods\[0\].*'too'.*Did you mean 'two'"),
], ids=str)  # fmt: skip
def test_bad_cases_are_refused_where_they_are(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentError, match=words):
        Experiment.parse(TABLE | change)


def test_a_method_that_does_not_tolerate_loss_is_skipped_where_messages_are_lost() -> None:
    everywhere = TABLE | {"methods": [{"method": "census"}, {"method": "cl-colme"}]}
    experiment = Experiment.parse(everywhere)
    refused = experiment.check()
    assert {each.spec.source.case for each in experiment.planned if each.name in refused} == {"lossy"}
    assert set(refused.values()) == {
        "CL-colME: loss=0.3: CL-colME is simulated on perfect networks only. "
        "Try loss=0, or a method that tolerates loss: Census()."
    }


def test_a_list_of_names_stands_for_an_expected_number_each() -> None:
    entry = {"method": ["census", "local"], "t": 20, "value": 0.1, "where": {"case": ["two", "three"], "sigma": 1.0}}
    found = Experiment.parse(TABLE | {"expected": [entry]}).head.expected
    assert [(each.method, each.where) for each in found] == [
        (method, {"case": case, "sigma": 1.0}) for method in ("census", "local") for case in ("two", "three")
    ]
    with pytest.raises(ExperimentError, match=r"expected\[1\].*'lokal'"):
        Experiment.parse(TABLE | {"expected": [entry | {"method": ["census", "lokal"], "where": {}}]})
