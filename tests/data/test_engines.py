"""Engines that aggregate lazy frames: the same moments as in memory, and the same estimates on every engine."""

from __future__ import annotations

import datetime
import functools
import sys
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from colme.data.estimate import estimate
from colme.data.moments import AgentMoments, moments_of
from colme.data.read.engines import engine_moments, lazy_frame
from colme.data.read.table import Names, read_table
from colme.errors import ColmeError

START = datetime.datetime(2024, 2, 28)


def rows(seed: int = 0, n_agents: int = 300) -> dict[str, Any]:
    """Three classes of agents with 1 to 29 samples, some without value, agent, time or weight."""
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 30, n_agents)
    agent = np.repeat(np.arange(n_agents), n)
    value = rng.normal(size=len(agent)) + 1e4 + agent % 3 * 4.0
    value[[5, 70]] = np.nan
    names = [None if i == 99 else f"u{a}" for i, a in enumerate(agent)]
    times = rng.permutation(len(agent)).astype(float)
    weight = rng.uniform(0.5, 2.0, len(agent))
    weight[[7, 8]] = 0.0, np.nan
    day = [None if i == 80 else START + datetime.timedelta(seconds=60.0 * t) for i, t in enumerate(times)]
    return {"agent": names, "x": value, "t": times, "day": day, "w": weight, "part": agent % 2}


def duckdb_of(table: Any) -> Any:
    duckdb = pytest.importorskip("duckdb")
    return duckdb.from_arrow(table)


def ibis_of(table: Any) -> Any:
    return pytest.importorskip("ibis").memtable(table)


@functools.cache
def spark_session() -> tuple[Any, Any]:
    """A session on a Spark Connect server of this process (Sail, which needs no Java), and the server."""
    server = pytest.importorskip("pysail.spark").SparkConnectServer()
    server.start(background=True)
    main = sys.modules["__main__"]
    main.__file__ = getattr(main, "__file__", __file__)  # without one, as in a worker of xdist, pyspark sees doctests
    sql = pytest.importorskip("pyspark.sql")
    address = f"sc://localhost:{server.listening_address[1]}"
    return sql.SparkSession.builder.remote(address).getOrCreate(), server


def spark_of(table: Any) -> Any:
    return spark_session()[0].createDataFrame(table)


ENGINES = {
    "polars": lambda table: pl.from_arrow(table).lazy(),  # type: ignore[union-attr]
    "duckdb": duckdb_of,
    "ibis": pytest.param(ibis_of, marks=pytest.mark.slow, id="ibis"),
    "spark": pytest.param(spark_of, marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")],
                          id="spark"),
}  # fmt: skip
engines = pytest.mark.parametrize(
    "engine", [each if not callable(each) else pytest.param(each, id=name) for name, each in ENGINES.items()]
)


def arrow(table: dict[str, Any]) -> Any:
    return pa.table({name: pa.array(column) for name, column in table.items()})


def in_memory(table: Any, names: Names, half_life: float | None = None) -> AgentMoments:
    options = {name: part for name, part in names._asdict().items() if part is not None}
    found = moments_of(read_table(table, **options), half_life=half_life)
    return found.select(np.argsort(found.labels.astype(str)))


@engines
@pytest.mark.parametrize(("time", "half_life"), [(None, None), ("t", None), ("t", 900.0), ("day", 3600.0)])
@pytest.mark.parametrize("weight", [None, "w"])
def test_moments_are_those_in_memory(
    engine: Any, time: str | None, half_life: float | None, weight: str | None
) -> None:
    table = arrow(rows())
    names = Names("agent", "x", time, weight)
    frame = lazy_frame(engine(table))
    assert frame is not None
    if time == "day" and frame.implementation.name in ("IBIS", "PYSPARK_CONNECT"):
        with pytest.raises(ColmeError, match=r"cannot aggregate the frame: 'total_microseconds' is not implemented"):
            engine_moments(frame, names, seed=0, half_life=half_life)
        return
    found = engine_moments(frame, names, seed=0, half_life=half_life)
    expected = in_memory(table, names, half_life)
    assert set(found.notes) == {note for note in expected.notes if "left out" in note}
    assert found.labels.tolist() == expected.labels.tolist()
    for folds in [slice(None)] if time is None else [slice(None), [0], [2, 4]]:
        one, other = found.folds.merged(folds), expected.folds.merged(folds)
        for part in ("n", "weight", "spread", "decay", "mean"):
            np.testing.assert_allclose(getattr(one, part), getattr(other, part), rtol=1e-9)
        np.testing.assert_allclose(one.square, other.square, rtol=1e-9, atol=1e-7)  # values around 1e4, variance 1
    np.testing.assert_array_equal(found.low, expected.low)
    np.testing.assert_array_equal(found.high, expected.high)
    if time is not None:
        np.testing.assert_allclose(found.successive, expected.successive, rtol=1e-9, atol=1e-9)


@engines
def test_the_estimates_are_those_of_polars_and_near_those_of_rows(engine: Any) -> None:
    table = arrow(rows())
    one = estimate(engine(table), agent="agent", value="x", seed=0)
    same = estimate(pl.from_arrow(table).lazy(), agent="agent", value="x", seed=0)  # type: ignore[union-attr]
    eager = estimate(table, agent="agent", value="x", seed=0)
    assert one.summary.method == same.summary.method == eager.summary.method == "census"
    np.testing.assert_allclose(one.estimate, same.estimate, rtol=1e-9)
    order = np.argsort(eager.agent.astype(str))
    np.testing.assert_allclose(one.estimate, eager.estimate[order], rtol=1e-9)  # folds only choose
    assert abs(one.summary.gain - eager.summary.gain) < 4.0 * (one.summary.gain_se + eager.summary.gain_se)
    assert "2 rows without x were left out." in one.summary.notes
    assert "1 row without agent was left out." in one.summary.notes


@engines
def test_time_order_gives_the_same_result_as_in_memory(engine: Any) -> None:
    table = arrow(rows(1))
    one = estimate(engine(table), agent="agent", value="x", time="t")
    eager = estimate(table, agent="agent", value="x", time="t")
    order = np.argsort(eager.agent.astype(str))
    np.testing.assert_allclose(one.estimate, eager.estimate[order], rtol=1e-9)
    assert one.summary.gain == pytest.approx(eager.summary.gain, abs=1e-6) and one.summary.folds == "forward"


@engines
@pytest.mark.parametrize("time", [None, "t"])
def test_known_groups_and_covariates_are_those_in_memory(engine: Any, time: str | None) -> None:
    data = rows(2)
    number = np.array([-1 if name is None else int(name[1:]) for name in data["agent"]])
    data["site"] = [None if a < 0 or a % 7 == 0 else f"site {a % 3}" for a in number]
    data["age"] = np.where(number % 11 == 0, np.nan, number + 0.5 * (np.arange(len(number)) % 2))
    table, names = arrow(data), Names("agent", "x", time, "w", "site", ("age",))
    frame = lazy_frame(engine(table))
    assert frame is not None
    found, expected = engine_moments(frame, names, seed=0), in_memory(table, names)
    assert found.label is not None and expected.label is not None and found.covariates is not None
    for one, other in zip(found.label, expected.label, strict=True):
        assert (one < 0 and other < 0) or found.group_names[one] == expected.group_names[other]
    np.testing.assert_allclose(found.covariates, expected.covariates, rtol=1e-12)
    assert set(found.notes) == {note for note in expected.notes if "left out" in note or "without age" in note}


@engines
def test_two_columns_identify_an_agent(engine: Any) -> None:
    found = estimate(engine(arrow(rows())), agent=["agent", "part"], value="x")
    assert list(found.to_columns())[:3] == ["agent", "agent_agent", "part"]
    assert found.agent[0] == f"{found.parts[0][0]} / {found.parts[1][0]}"


@engines
def test_zeros_and_ones_are_split_as_such(engine: Any) -> None:
    rng = np.random.default_rng(5)
    agent = np.repeat(np.arange(400), 20)
    table = arrow({"agent": agent, "x": (rng.random(len(agent)) < 0.05 + 0.3 * (agent % 2)).astype(np.int8)})
    frame = lazy_frame(engine(table))
    assert frame is not None
    folds = engine_moments(frame, Names("agent", "x"), seed=0).folds
    ones = folds.mean * folds.n
    np.testing.assert_allclose(ones, np.rint(ones), atol=1e-9)


N = len(rows()["x"])
FOURTH = np.arange(N) == 3
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"other": list(map(str, range(N)))}, {"label": "other"},
     r"other of u\d+ is \d+ and \d+: an agent can have only one label"),
    ({"below": np.where(FOURTH, -1.0, 1.0)}, {"weight": "below"}, r"below of the table is negative or above 1e\+30 in"),
    ({"endless": np.where(FOURTH, np.inf, 1.0)}, {"covariates": ["w", "endless"]},
     "endless of the table has infinite values: covariates must be finite"),
    ({}, {"half_life": 3.0}, "half_life needs the time of every sample"),
    ({}, {"time": "t", "half_life": datetime.timedelta(minutes=1)}, "a half-life of 60 seconds, but t holds plain"),
    ({}, {"time": "agent", "half_life": 3.0}, "half_life with agent of the table, which holds String"),
    ({"x": ["a"] * N}, {}, "x of the table holds String: it must hold numbers"),
    ({"x": np.where(FOURTH, np.inf, 0.0)}, {}, "infinite values, or values above 1e"),
    ({"x": np.full(N, np.nan)}, {}, "no row of the table can be used"),
    ({}, {"value": "y"}, "has no column 'y'"),
]  # fmt: skip


@engines
@pytest.mark.parametrize(("columns", "options", "words"), REFUSED)
def test_frames_that_make_no_sense_are_refused(
    engine: Any, columns: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ColmeError, match=words):
        estimate(engine(arrow(rows() | columns)), **{"agent": "agent", "value": "x"} | options)
