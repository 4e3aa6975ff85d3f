"""A result as files and in sentences: complete, and honest."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from colme.data.report.output import json_of, save_result
from colme.data.report.result import Summary
from colme.data.report.sentences import headline, most_changed, number_format, sentences
from colme.errors import DataError, RunError
from colme.support.tables import csv_of
from tests.support.made_results import made_result


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_a_saved_result_is_the_result(ending: str, tmp_path: Path) -> None:
    import pandas as pd

    result = made_result(50)
    path = save_result(result, tmp_path / f"r.{ending}")
    if ending == "json":
        found = pd.DataFrame(json.loads(path.read_text())["agents"])
    else:
        found = pd.read_csv(path, keep_default_na=False) if ending == "csv" else pd.read_parquet(path)
    expected = result.to_frame()
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, check_exact=True)
    if ending == "parquet":
        assert json.loads(pq.read_metadata(path).metadata[b"colme"])["method"] == "census"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_json_has_every_field_of_the_summary_and_null_for_what_is_no_number() -> None:
    found = json.loads(json_of(made_result(3, groups=False, n_half=math.inf)))
    assert set(found["summary"]) == set(Summary.__struct_fields__)
    assert found["summary"]["n_half"] is None and found["agents"][0]["probability"] is None


def test_labels_with_commas_and_quotes_survive_csv() -> None:
    result = made_result(2)
    result.agent[:] = ['a "b", c', "d\ne"]
    assert [row["agent"] for row in csv.DictReader(io.StringIO(csv_of(result.to_columns()).decode()))] == [
        'a "b", c',
        "d\ne",
    ]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.csv"
    path.write_text("old")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(RunError, match="No space left on device"):
        save_result(made_result(3), path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(DataError, match="unknown ending"):
        save_result(made_result(3), tmp_path / "r.txt")


ALONE = "no agent's samples vary, so every mean is exact"
NO_GAIN = "nothing gains more than its standard error"
HEADLINES: list[tuple[dict[str, Any], str]] = [
    ({}, "Collaboration helps: 69% less error"),
    ({"method": "local", "why": NO_GAIN}, "Collaboration does not help here"),
    ({"method": "local", "why": "local was requested"}, "Every agent keeps its own mean: local was requested."),
    ({"method": "local", "why": ALONE, "candidates": ()}, f"Every agent keeps its own mean: {ALONE}."),
    ({"gain": 0.15, "gain_se": 0.1}, "Collaboration seems to help: 15% less error"),
    ({"gain": -0.232, "gain_se": 0.183}, "Collaboration seems to hurt: 23% more error"),
    ({"method": "pooled", "gain": -2.5, "gain_se": 0.5}, "Collaboration hurts: 250% more error"),
    ({"gain": -0.01}, "Collaboration makes little difference: 1.0% more error"),
    ({"gain": 1e-4, "gain_se": 1e-5}, "Collaboration does not help here: the same error as the agents' own means ("),
    ({"gain": 1e-4, "gain_se": 0.03}, "Collaboration makes little difference: the same error as the agents' own"),
    ({"gain": 1.57, "gain_se": 1.47}, "Collaboration seems to help, but the gain is too uncertain to quantify"),
    ({"method": "shrinkage", "gain": 0.0, "gain_se": 0.0, "candidates": ()}, "Whether collaboration helps is unknown"),
]


@pytest.mark.parametrize(("changes", "words"), HEADLINES)
def test_the_headline_is_honest(changes: dict[str, Any], words: str) -> None:
    result = made_result(9, **changes)
    assert headline(result).startswith(words)
    unknown = changes.get("method") in ("local", "shrinkage")
    assert ("Gain" in sentences(result)) is not unknown


@pytest.mark.parametrize(("changes", "topic", "words"), [
    ({"autocorrelation": 0.4, "effective_share": 0.5}, "Autocorrelation", "correlated (0.40): one sample is worth 0.5"),
    ({"autocorrelation": 0.01}, "Autocorrelation", "hardly correlated"),
    ({"autocorrelation": -0.4}, "Autocorrelation", "negatively correlated"),
    ({"drift": 0.25}, "Drift", "25% of the agents drift"),
    ({"drift": 0.0}, "Drift", "agree within chance"),
    ({"count_correlation": -0.7}, "Counts", "have smaller means (correlation -0.70)"),
    ({"faulty": ("a", "b"), "flagged": {"faulty": 9}}, "Faulty-looking", "9 agents look faulty: a, b and 7 more."),
    ({"faulty": ("a",), "flagged": {"faulty": 1}}, "Faulty-looking", "1 agent looks faulty: a."),
    ({"dominant": ("a",)}, "Dominant samples", "One sample dominates the mean of 1 agent: a."),
    ({"zero_variance": 2}, "Zero variance", "2 agents have samples that are all equal."),
    ({"n_half": math.inf}, "n_half", "do not differ beyond noise"),
    ({"n_half": 0.0264}, "n_half", "says more about an agent than the overall mean does (n_half = 0.026)"),
    ({"n_half": 63.4}, "n_half", "From about 63 samples on, an agent's own mean is as accurate as what the population"),
    ({"n_half": 1.04}, "n_half", "From about 1 sample on,"),
    ({"n_half": 1.04}, "n_half", "predicts for it; no agent has fewer."),
    ({"n_half": 2.46}, "n_half", "From about 2.5 samples on,"),
    ({"n_half": 1234567.8}, "n_half", "From about 1,234,568 samples on,"),
    ({"method": "pooled", "gain": -2.5, "gain_se": 0.5}, "Gain", "250% more error"),
    ({"gain": 1e-4, "gain_se": 1e-5}, "Gain", "The same error as the local means (standard error 0.0%), by cross-"),
    ({"gain": 1.57, "gain_se": 1.47}, "Gain", "100% less error than the local means (standard error 147%)"),
    ({"folds": "forward"}, "Gain", "predicting later samples from earlier ones"),
])  # fmt: skip
def test_each_finding_has_its_sentence(changes: dict[str, Any], topic: str, words: str) -> None:
    found = sentences(made_result(100, **changes))
    assert words in found[topic]
    assert all(each.endswith(".") and (each[0].isupper() or each[0].isdigit()) for each in found.values())


def test_topics_without_news_are_left_out() -> None:
    assert list(sentences(made_result(100))) == ["Table", "Method", "Gain", "Groups", "n_half"]
    assert "Counts" not in sentences(made_result(100, count_correlation=0.05))


def test_numbers_have_the_digits_that_matter() -> None:
    result = made_result(40)
    assert number_format(result) == ",.2f"  # radii of about 0.6
    for radius, form in ((300.0, ",.0f"), (0.0, ",.3f")):
        ends = {"lower": result.estimate - radius, "upper": result.estimate + radius}
        assert number_format(msgspec.structs.replace(result, **ends)) == form
    for scale, shift, form in ((1e12, 0.0, ".3e"), (1e-9, 0.0, ".3e"), (3600.0, 1.7e9, ",.0f"), (1e-3, 1.7e9, ",.5f"),
                               (1e9, 1e13, ".6e"), (0.0, 1e13, ".4e")):  # fmt: skip
        columns = {name: shift + getattr(result, name) * scale for name in ("mean", "estimate", "lower", "upper")}
        assert number_format(msgspec.structs.replace(result, **columns)) == form
    change = np.abs(result.estimate - result.mean)
    assert change[most_changed(result, 3)].tolist() == sorted(change, reverse=True)[:3]


def test_the_median_number_of_samples_may_lie_between_two() -> None:
    for n, words in (([2, 1], "1 to 2 each (median 1.5)."), ([1, 2000, 3000], "1 to 3,000 each (median 2,000).")):
        result = msgspec.structs.replace(made_result(len(n)), n=np.array(n))
        assert sentences(result)["Table"].endswith(words)
