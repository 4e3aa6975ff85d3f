"""`colme.estimate` and hostile tables: every answer is a sound result, or one sentence with a remedy."""

from __future__ import annotations

import decimal
import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import colme
from colme.data.fit.cross_validation import ESTIMATORS
from colme.data.report.output import json_of, parquet_of
from colme.data.report.result import Result
from colme.data.report.sentences import headline, number_format, sentences
from colme.errors import ColmeError
from colme.support.tables import BACKENDS, csv_of

RNG = np.random.default_rng(0)
N_AGENTS, N = 12, 6
TRUTH = RNG.normal(0.0, 1.0, N_AGENTS).repeat(N)
COLUMNS = {
    "a": np.repeat([f"s{k}" for k in range(N_AGENTS)], N), "v": TRUTH + RNG.normal(0.0, 1.0, N_AGENTS * N),
    "t": np.tile(np.arange(N), N_AGENTS), "g": np.where(TRUTH > 0, "x", "y"), "c": TRUTH, "w": np.ones(N_AGENTS * N),
}  # fmt: skip
FRAME = pd.DataFrame(COLUMNS)


def check_sound(result: Result) -> None:
    """No nonsense, neither in numbers nor in words nor in files."""
    means = result.mean
    assert np.isfinite(result.estimate).all() and not np.isnan([result.lower, result.upper]).any()
    assert (result.lower <= result.estimate).all() and (result.estimate <= result.upper).all()
    assert ((result.probability >= 0) & (result.probability <= 1)).all()
    assert ((result.borrowed >= -1e-9) & (result.borrowed <= 1 + 1e-9)).all()
    slack = 1e-9 * (np.abs(means).max() + np.ptp(means))
    if not result.names.covariates:
        assert (result.estimate >= means.min() - slack).all() and (result.estimate <= means.max() + slack).all()
    assert math.isfinite(result.summary.gain) and math.isfinite(result.summary.gain_se)
    assert headline(result) and all(each.endswith(".") for each in sentences(result).values())
    assert number_format(result) and json_of(result) and csv_of(result.to_columns()) and parquet_of(result)
    for backend in BACKENDS:
        assert len(result.to_frame(backend)) == len(result.agent)


def changed(**columns: Any) -> Any:
    return FRAME.assign(**columns)


SOUND: dict[str, tuple[Any, dict[str, Any]]] = {
    "huge": (changed(v=FRAME.v * 1e299), {}),
    "large": (changed(v=FRAME.v * 1e150), {}),
    "tiny": (changed(v=FRAME.v * 1e-300), {}),
    "denormal": (changed(v=np.where(FRAME.index % 2, 5e-324, 0.0)), {}),
    "far away": (changed(v=FRAME.v + 1e15), {}),
    "one wild sample": (changed(v=np.where(FRAME.index == 5, 1e200, FRAME.v)), {}),
    "another wild sample": (changed(v=np.where(FRAME.index == 5, 1e60, FRAME.v)), {}),
    "a wild sample more": (changed(v=np.where(FRAME.index == 5, 1e40, FRAME.v)), {}),
    "constant beside noisy": (changed(v=np.where(FRAME.a < "s5", 3.0, FRAME.v)), {}),
    "one noisy beside constants": (changed(v=np.where(FRAME.a == "s0", FRAME.v, FRAME.a.str[1:].astype(float))), {}),
    "no variance": (changed(v=1.0), {}),
    "no variance within agents": (changed(v=FRAME.a.str[1:].astype(float)), {}),
    "one sample each": (FRAME.drop_duplicates("a"), {}),
    "one sample each, sigma known": (FRAME.drop_duplicates("a"), {"sigma": 1.0}),
    "one row": (FRAME[:1], {}),
    "one agent": (FRAME[FRAME.a == "s1"], {}),
    "two agents": (FRAME[FRAME.a.isin(["s1", "s2"])], {}),
    "an agent of NaN": (changed(v=np.where(FRAME.a == "s0", np.nan, FRAME.v)), {}),
    "equal times": (changed(t=0), {"time": "t"}),
    "times in disorder": (FRAME[::-1], {"time": "t"}),
    "a half-life shorter than any": (FRAME, {"time": "t", "half_life": 1e-6}),
    "a very long half-life": (FRAME, {"time": "t", "half_life": 1e12}),
    "times without measure": (changed(t=FRAME.t * 1e300), {"time": "t", "half_life": 1.0}),
    "weights of all sizes": (changed(w=10.0 ** RNG.integers(-29, 29, len(FRAME))), {"weight": "w"}),
    "sigma far too large": (FRAME, {"sigma": 1e40}),
    "sigma far too small": (FRAME, {"sigma": 1e-40}),
    "a level of nearly nothing": (FRAME, {"level": 1e-9}),
    "a level of nearly all": (FRAME, {"level": np.float32(0.9999)}),
    "a constant covariate": (changed(c=0.1), {"covariates": "c"}),
    "covariates on a line": (changed(d=2 * FRAME.c + 1), {"covariates": ["c", "d"]}),
    "a covariate known by the label": (changed(c=np.where(FRAME.g == "x", 0.1, 0.3)),
                                       {"covariates": "c", "label": "g"}),
    "a huge covariate": (changed(c=FRAME.c * 1e200), {"covariates": ["c", "log n"]}),
    "more covariates than agents": (
        changed(**{f"x{k}": RNG.normal(size=len(FRAME)) for k in range(20)}),
        {"covariates": [f"x{k}" for k in range(20)]},
    ),
    "a label of its own for each": (FRAME, {"label": "a"}),
    "few known labels": (changed(g=np.where(FRAME.a < "s2", "x", None)), {"label": "g"}),
    "columns named like the output": (FRAME.rename(columns={"a": "estimate", "v": "flags"}),
                                      {"agent": "estimate", "value": "flags"}),
}  # fmt: skip


@pytest.mark.parametrize("method", ["auto", *ESTIMATORS])
@pytest.mark.parametrize("name", SOUND)
def test_a_strange_table_gives_a_sound_result(name: str, method: str) -> None:
    source, options = SOUND[name]
    check_sound(colme.estimate(source, method=method, **{"agent": "a", "value": "v"} | options))


@pytest.mark.parametrize("method", ESTIMATORS)
@pytest.mark.parametrize("exponent", [-900, 400])
def test_the_unit_does_not_matter(method: str, exponent: int) -> None:
    unit = math.ldexp(1.0, exponent)  # changes no digit of a sample
    here, there = (colme.estimate(table, agent="a", value="v", method=method)
                   for table in (FRAME, changed(v=FRAME.v * unit)))  # fmt: skip
    np.testing.assert_allclose(there.estimate / unit, here.estimate, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(there.upper / unit, here.upper, rtol=1e-6, atol=1e-6)
    assert there.summary.sigma / unit == pytest.approx(here.summary.sigma)


def test_a_hundred_thousand_agents_with_one_sample() -> None:
    table = {"a": np.arange(100_000), "v": np.random.default_rng(1).normal(size=100_000)}
    unknown = colme.estimate(table, agent="a", value="v")
    assert np.isinf(unknown.upper).all() and (unknown.estimate == unknown.mean).all()
    assert "no agent has two samples" in unknown.summary.why and "Gain" not in sentences(unknown)
    known = colme.estimate(table, agent="a", value="v", sigma=1.0, method="shrinkage")
    assert np.abs(known.estimate).max() < 0.2  # there is no spread but noise


KINDS: dict[str, Any] = {
    "int": lambda v: pd.Series((v * 10).astype(int)),
    "bool": lambda v: pd.Series(v > 0),
    "Int64 with NA": lambda v: pd.Series((v * 10).round()).astype("Int64").mask(FRAME.index == 2),
    "boolean with NA": lambda v: pd.Series(v > 0).astype("boolean").mask(FRAME.index == 2),
    "decimal": lambda v: pd.Series([decimal.Decimal(str(round(x, 3))) for x in v]),
    "category": lambda v: pd.Series(v.round(1)).astype("category"),
    "objects": lambda v: pd.Series([str(x) if k % 2 else x for k, x in enumerate(v)], dtype=object),
    "string": lambda v: pd.Series(v).astype(str).astype("string"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_every_kind(kind: str) -> None:
    column = KINDS[kind](COLUMNS["v"])
    expected = pd.to_numeric(column.astype(object), errors="coerce").astype(float).groupby(FRAME.a, sort=False).mean()
    frame = changed(v=column)
    mixed = kind == "objects"  # which only pandas has
    for table in [frame] if mixed else [frame, pa.Table.from_pandas(frame), pl.from_pandas(frame)]:
        result = colme.estimate(table, agent="a", value="v", method="local")
        np.testing.assert_allclose(result.mean, expected.to_numpy(), rtol=1e-12)


def test_packed_columns_are_read() -> None:
    ends, values = pa.array([len(FRAME) // 2, len(FRAME)], pa.int32()), pa.array([1.0, 2.0])
    table = pa.table({"a": pa.array(COLUMNS["a"]).dictionary_encode(),
                      "v": pa.RunEndEncodedArray.from_arrays(ends, values)})  # fmt: skip
    assert colme.estimate(table, agent="a", value="v").mean.tolist() == [1.0] * 6 + [2.0] * 6


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "infinite": (changed(v=np.where(FRAME.index == 7, np.inf, FRAME.v)), {}, "v in row 8 .* is inf: .* finite"),
    "beyond numbers": (changed(v=1.7e308), {}, "v in row 1 .* below 1e"),
    "text": (changed(v=["hot" if k == 17 else x for k, x in enumerate(FRAME.v)]), {}, "v in row 18 .* is 'hot'"),
    "complex": (changed(v=FRAME.v + 1j), {}, "must be a number"),
    "dates": (changed(v=pd.Timestamp("2024-01-01")), {}, "holds timestamp.*: it must hold numbers"),
    "periods as agents": (changed(a=pd.period_range("2020", periods=len(FRAME), freq="D")), {}, "Turn it into text"),
    "periods as times": (changed(t=pd.period_range("2020", periods=len(FRAME), freq="D")), {"time": "t"},
                         "times must be numbers or dates"),
    "zones now and then": (changed(t=["2024-03-01 12:00" + "+01:00" * (k == 0) for k in range(len(FRAME))]),
                           {"time": "t"}, "t in row 2 .* must be dates with a time zone, like the first one"),
    "an unknown column": (FRAME, {"agent": "A"}, r"no column 'A': .* Did you mean 'a'\?"),
    "numbers as names": (pd.DataFrame({0: FRAME.a, 1: FRAME.v}), {"agent": "0", "value": 1}, r"Did you mean 0\?"),
    "a negative weight": (changed(w=-1.0), {"weight": "w"}, "w in row 1 .* weights must not be negative"),
    "a weight beyond measure": (changed(w=1e300), {"weight": "w"}, "weights must lie between"),
    "no weight at all": (changed(w=np.nan), {"weight": "w"}, "have no w"),
    "no label at all": (changed(g=None), {"label": "g"}, "has no label: a column of known groups needs some"),
    "two labels": (changed(g=np.where(FRAME.index == 3, "z", "x")), {"label": "g"}, "an agent can have only one label"),
    "no covariate at all": (changed(c=np.nan), {"covariates": "c"}, "has no numbers: a covariate needs some"),
    "a covariate that is no name": (FRAME, {"covariates": 3}, "no column 3"),
    "a half-life without time": (FRAME, {"half_life": 3.0}, "no time was given"),
    "sigma of another world": (FRAME, {"sigma": 1e300}, "must be their standard deviation. Check its unit"),
    "level 0": (FRAME, {"level": 0}, r"level=0: .* Try level=0\.9"),
    "level 1": (FRAME, {"level": 1}, "level=1"),
    "level None": (FRAME, {"level": None}, "level=None"),
    "no groups": (FRAME, {"groups": 0}, "groups=0"),
    "an unknown method": (FRAME, {"method": "shrinkag"}, r"Did you mean 'shrinkage'\?"),
    "no rows": (FRAME[:0], {}, "has no rows"),
    "a column": (FRAME.v, {}, "is not a table"),
    "a column of polars": (pl.from_pandas(FRAME)["v"], {}, "is not a table"),
    "numbers for columns": ({"a": 1, "v": 2}, {}, "column 'a' is 1: it must be a list"),
    "text for a column": ({"a": "xyz", "v": [1, 2, 3]}, {}, "column 'a' is 'xyz'"),
    "a matrix for a column": ({"a": [1, 2], "v": np.ones((2, 2))}, {}, "a one-dimensional array"),
    "rows that are dicts": (FRAME.to_dict("records"), {}, "make a data frame of them first"),
    "the empty name": ("", {}, "there is no file ''"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_in_a_sentence_with_a_remedy(name: str) -> None:
    source, options, words = REFUSED[name]
    with pytest.raises(ColmeError, match=words) as refused:
        colme.estimate(source, **{"agent": "a", "value": "v"} | options)
    text = str(refused.value)
    assert "\n" not in text and text[-1] in ".?'" and len(text) < 400


def test_text_without_line_feeds_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "old.csv"
    path.write_bytes(b"a,v\rx,1\rx,2\r")
    with pytest.raises(ColmeError, match=r"first line of old\.csv"):
        colme.estimate(path, agent="a", value="v")


# Random small tables

values = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: round(x, 3))
tables = st.lists(st.tuples(st.integers(0, 7), values), min_size=1, max_size=40)


def estimated(rows: list[tuple[int, float]], **options: Any) -> Result:
    agent, value = zip(*rows, strict=True)
    return colme.estimate({"a": list(agent), "v": list(value)}, agent="a", value="v", **options)


@settings(max_examples=40, deadline=None)
@given(rows=tables, method=st.sampled_from(["auto", *ESTIMATORS]))
def test_random_tables_give_sound_results(rows: list[tuple[int, float]], method: str) -> None:
    result = estimated(rows, method=method)
    check_sound(result)
    assert result.n.sum() == len(rows)


@settings(max_examples=25, deadline=None)
@given(rows=tables, method=st.sampled_from(["pooled", "shrinkage", "one-hop", "auto"]), exponent=st.integers(-8, 8))
def test_scale_goes_through(rows: list[tuple[int, float]], method: str, exponent: int) -> None:
    unit = math.ldexp(1.0, exponent)
    here, there = estimated(rows, method=method), estimated([(a, v * unit) for a, v in rows], method=method)
    size = 1.0 + max(abs(v) for _, v in rows)
    np.testing.assert_allclose(there.estimate / unit, here.estimate, rtol=0, atol=1e-6 * size)


@settings(max_examples=25, deadline=None)
@given(rows=tables, method=st.sampled_from(["auto", *ESTIMATORS]))
def test_names_do_not_matter_and_rows_of_different_agents_may_change_places(
    rows: list[tuple[int, float]], method: str
) -> None:
    here = estimated(rows, method=method)
    renamed = estimated([(100 - a, v) for a, v in rows], method=method)
    assert renamed.agent.tolist() == [100 - a for a in here.agent.tolist()]
    assert renamed.estimate.tolist() == here.estimate.tolist()
    order = {a: k for k, a in enumerate(here.agent.tolist())}
    sorted_ = estimated(sorted(rows, key=lambda row: order[row[0]]), method=method)
    assert sorted_.estimate.tolist() == here.estimate.tolist()
