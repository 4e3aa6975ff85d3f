"""Tables in memory are read by one place: `learn_many` and `estimate` agree on columns, rows and missing values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import colme
from colme.errors import ColmeError, ColumnError
from colme.methods import Local
from colme.support.columns import check_columns, is_missing, open_table, row_name

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

TABLE = {"agent": ["a", "b", "a", "a"], "value": [1.0, 2.0, None, 4.0]}


def refused(table: Any, **columns: str) -> list[str]:
    """The messages of both."""
    names = {"agent": "agent", "value": "value"} | columns
    found = []
    for learn in (lambda: colme.estimate(table, **names), lambda: colme.CollaborativeMean().learn_many(table, **names)):
        with pytest.raises(ColmeError) as error:
            learn()
        found.append(str(error.value))
    return found


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame], ids=["dict", "pandas", "polars"])
def test_both_read_the_same_samples(make: Any) -> None:
    model = colme.CollaborativeMean(Local())
    model.learn_many(make(TABLE))
    result = colme.estimate(make(TABLE), agent="agent", value="value", method="local")
    assert (
        dict(model.mean_) == dict(zip(result.agent.tolist(), result.mean.tolist(), strict=True)) == {"a": 2.5, "b": 2}
    )


@pytest.mark.parametrize(("value", "row"), [(["warm", 1.0, 2.0], "row 1"), ([1.0, 2.0, np.inf], "row 3")])
def test_both_count_rows_from_one(value: list[Any], row: str) -> None:
    for message in refused({"agent": ["a", "b", "a"], "value": value}):
        assert f"in {row}" in message


def test_both_say_the_same_of_a_missing_column() -> None:
    one, other = refused(TABLE, value="valu")
    assert one == other == "the table has no column 'valu': it has 'agent', 'value'. Did you mean 'value'?"
    one, other = refused(pd.DataFrame([[1, 2, 3]], columns=["agent", "value", "value"]))
    assert one == other


def test_both_refuse_columns_of_different_lengths() -> None:
    one, other = refused({"agent": ["a", "b"], "value": [1.0]})
    assert one == other == "columns differ in length: 'agent' has 2, 'value' has 1. Give one value per row and column."


def test_frames_of_every_kind_are_opened_and_nothing_else() -> None:
    for table in (TABLE, pd.DataFrame(TABLE), pl.DataFrame(TABLE), pl.DataFrame(TABLE).lazy()):
        frame = open_table(table)
        assert frame is not None and frame.names == ["agent", "value"] and list(frame.column("agent")) == list("abaa")
    for thing in (3, "agent", [1, 2], np.ones(3), pd.Series([1.0])):
        assert open_table(thing) is None
    check_columns(["a"], ["a", "b"])
    with pytest.raises(ColumnError, match="it has none"):
        check_columns(["a"], [])


def test_missing_values_and_names_of_rows() -> None:
    assert all(map(is_missing, (None, np.nan, float("nan"), pd.NA, pd.NaT, np.datetime64("NaT"))))
    assert not any(map(is_missing, (0, "", "NA", False, np.inf)))
    assert row_name(0) == "row 1" and row_name(9999) == "row 10,000"
