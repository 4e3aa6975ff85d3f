"""`colme.estimate` and hostile tables: every answer is a sound result, or one sentence with a remedy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import colme
from colme.data.fit.cross_validation import ESTIMATORS
from colme.data.report.output import json_of, parquet_of
from colme.data.report.result import Result
from colme.data.report.sentences import headline, number_format, sentences
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


def test_packed_columns_are_read() -> None:
    ends, values = pa.array([len(FRAME) // 2, len(FRAME)], pa.int32()), pa.array([1.0, 2.0])
    table = pa.table({"a": pa.array(COLUMNS["a"]).dictionary_encode(),
                      "v": pa.RunEndEncodedArray.from_arrays(ends, values)})  # fmt: skip
    assert colme.estimate(table, agent="a", value="v").mean.tolist() == [1.0] * 6 + [2.0] * 6


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
