"""Hashed codes against a dict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import colme
from colme.data.read import label_codes
from colme.data.read.arrow_columns import LabelEncoder, Where
from colme.errors import DataError

WHERE = [Where("the table", "agent")]
texts = st.one_of(
    st.none(), st.text(max_size=6), st.text("ab", max_size=20),  # of which many begin or end alike
    st.sampled_from(["", "a", "b", "ab", "ä", "a" * 300, "\x00"]),
)  # fmt: skip
whole = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3))


def by_dict(batches: list[list[Any]]) -> list[list[int]]:
    code_of: dict[Any, int] = {}
    return [[-1 if x in (None, "") else code_of.setdefault(x, len(code_of)) for x in batch] for batch in batches]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(texts, max_size=20), max_size=5), st.booleans())
def test_texts_get_the_codes_of_a_dict(batches: list[list[str | None]], large: bool) -> None:
    encoder = LabelEncoder()
    kind = pa.large_string() if large else pa.string()
    found = [encoder.codes([pa.array(["x", *batch], kind).slice(1)], WHERE).tolist() for batch in batches]
    assert found == by_dict(batches)
    labels = encoder.labels(text=False).tolist()
    assert labels == list(dict.fromkeys(x for batch in batches for x in batch if x))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(whole, max_size=20), max_size=5))
def test_whole_numbers_get_the_codes_of_a_dict(batches: list[list[int | None]]) -> None:
    encoder = LabelEncoder()
    found = [encoder.codes([pa.array(batch, pa.int64())], WHERE).tolist() for batch in batches]
    assert found == by_dict(batches) and len(encoder) == max(map(max, (b for b in found if b)), default=-1) + 1


def test_whole_numbers_and_then_floats_are_the_same_labels() -> None:
    encoder = LabelEncoder()
    assert encoder.codes([pa.array([5, 7])], WHERE).tolist() == [0, 1]
    assert encoder.codes([pa.array([7.0, None, 9.0])], WHERE).tolist() == [1, -1, 2]
    assert encoder.codes([pa.array([9], pa.int8())], WHERE).tolist() == [2]
    assert encoder.labels(text=False).tolist() == [5, 7, 9]


def test_many_labels_grow_the_table() -> None:
    rng = np.random.default_rng(0)
    encoder, code_of = LabelEncoder(), {}
    for _ in range(4):
        batch = [f"sensor-{i}" for i in rng.integers(0, 20_000, 9000)]
        assert encoder.codes([pa.array(batch)], WHERE).tolist() == [code_of.setdefault(x, len(code_of)) for x in batch]
    assert encoder.labels(text=False).tolist() == list(code_of)


@pytest.mark.parametrize("labels", [[4, 7, 9, 7, 1], ["a", "b", "a longer text", "b", "c"], [0.5, 1.5, 2.5, 0.5, 3.5]])
def test_more_labels_than_codes_are_refused(labels: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert label_codes.MOST == 2**31 - 1
    monkeypatch.setattr(label_codes, "MOST", 3)
    encoder = LabelEncoder()
    assert encoder.codes([pa.array(labels[:4])], WHERE).tolist() in ([0, 1, 2, 1], [0, 1, 2, 0])
    with pytest.raises(DataError, match=r"agent of the table has more than 3 different labels: .* Estimate parts of"):
        encoder.codes([pa.array(labels[4:])], WHERE)
    with pytest.raises(DataError, match="more than 3 different labels"):
        colme.estimate({"agent": labels, "x": [1.0] * len(labels)}, agent="agent", value="x")
