"""`engine_moments`: let the engine that holds a lazy frame aggregate it: DuckDB, Polars, Ibis or Spark, by narwhals.

What comes back is one row per agent: count, mean, variance, extremes and a sum of cubes. These are split into random
folds by thinning (`colme.data.thinning`). With time, the engine itself puts the samples of each agent into five periods
and adds up the squared differences of successive ones; one row per agent and period comes back.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._core.columns import TABLE, check_columns
from colme.data.moments import N_FOLDS, AgentMoments, FoldMoments, are_binary, resolution_of
from colme.data.read.arrow_columns import Where, encoder_of
from colme.data.read.reader import rows_left_out
from colme.data.read.table import Names
from colme.data.thinning import thinned, thinned_successes
from colme.errors import ColmeError, DataError, missing_extra

try:
    import narwhals as nw
except ImportError:
    raise missing_extra("narwhals", "data", "reading data frames") from None

Floats = NDArray[np.float64]
_HEAD = 10_000
"""Rows that tell the resolution of the samples and a value near all of them."""
_LARGEST = 1e100
"""Bound on values: engines add up their cubes."""
VALUE, TIME, WEIGHT, FOLD = "colme_value", "colme_time", "colme_weight", "colme_fold"


def lazy_frame(source: Any) -> nw.LazyFrame[Any] | None:
    """A narwhals lazy frame for a lazy frame or relation of any engine; None for everything else."""
    if isinstance(source, str | os.PathLike | Mapping):
        return None
    try:
        found = nw.from_native(source, pass_through=True)
    except ValueError:  # two columns of one name, which reading the table refuses
        return None
    return found if isinstance(found, nw.LazyFrame) else None


def engine_moments(frame: nw.LazyFrame[Any], names: Names, *, seed: int) -> AgentMoments:
    """The moments of a lazy frame, aggregated where it is. Agents are in order of their labels."""
    try:
        return _Query(frame, names).moments(seed)
    except ColmeError:
        raise
    except Exception as error:  # every engine has exceptions of its own
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"{frame.implementation.name.capitalize()} cannot aggregate the frame: {first[:160].rstrip('.')}. Collect "
            "it first (frame.collect()), or merge partial_moments of its parts."
        ) from error


class _Query:
    """The columns that are needed, under names of our own, and the aggregations."""

    def __init__(self, frame: nw.LazyFrame[Any], names: Names):
        self.names = names
        self.agents: tuple[Any, ...] = names.agent if isinstance(names.agent, tuple) else (names.agent,)
        schema = frame.collect_schema()
        wanted = [*self.agents, names.value, *(each for each in (names.time, names.weight) if each is not None)]
        check_columns(wanted, list(schema.names()))
        if names.label is not None or names.covariates:
            raise DataError("a lazy frame is aggregated by its engine, which does not take label or covariates. "
                            "Collect it first: frame.collect().")  # fmt: skip
        self.keys = [f"colme_agent_{i}" for i in range(len(self.agents))]
        number = _number(schema, names.value)
        columns = [nw.col(each).alias(key) for each, key in zip(self.agents, self.keys, strict=True)]
        columns.append(number.alias(VALUE))
        if names.time is not None:
            columns.append(nw.col(names.time).alias(TIME))
        if names.weight is not None:
            columns.append(nw.when(~number.is_null()).then(_number(schema, names.weight)).alias(WEIGHT))
        self.frame = frame.select(*columns)

    def moments(self, seed: int) -> AgentMoments:
        head = np.asarray(self.frame.select(VALUE).head(_HEAD).collect("pyarrow")[VALUE].to_numpy(), np.float64)
        head = head[np.isfinite(head)]
        near = float(head.mean()) if len(head) else 0.0
        frame, keys = self._usable(), self.keys
        if self.names.time is not None:
            frame, keys = self._periods(frame), [*keys, FOLD]
        found = self._aggregated(frame, keys, near)
        encoder = encoder_of(len(self.agents))
        arrays = [found[key].combine_chunks() for key in self.keys]
        code = encoder.codes(arrays, [Where(TABLE, each) for each in self.agents])
        parts = encoder.parts(text=False) if len(self.agents) > 1 else []
        return self._arranged(found, code, encoder.labels(text=False), parts, near, seed, resolution_of(head))

    def _usable(self) -> nw.LazyFrame[Any]:
        """Rows with a weight and a time, if these are given; the aggregation counts rows without agent or value."""
        frame = self.frame
        if self.names.weight is not None:
            frame = frame.filter((nw.col(WEIGHT) > 0.0) | nw.col(VALUE).is_null())
        if self.names.time is not None:
            frame = frame.filter(~nw.col(TIME).is_null()).filter(~nw.col(VALUE).is_null())
        return frame

    def _periods(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """With the period of each sample, and half the squared difference from the sample before."""
        order = [TIME, VALUE]  # samples of the same time are ordered by value, in every engine

        def before(column: str) -> nw.Expr:
            return nw.col(column).shift(1).over(*self.keys, order_by=order)

        places = [(nw.col(VALUE).cum_count().over(*self.keys, order_by=order) - 1).alias("colme_i"),
                  nw.len().over(*self.keys).alias("colme_size"), before(VALUE).alias("colme_before")]  # fmt: skip
        half: Any = 0.5
        if self.names.weight is not None:
            places.append(before(WEIGHT).alias("colme_weight_before"))
            half = (nw.col(WEIGHT) ** -1.0 + nw.col("colme_weight_before") ** -1.0) ** -1.0
        frame = frame.with_columns(*places)
        i, size = nw.col("colme_i"), nw.col("colme_size")
        # the number of periods that have ended, written without a division, which engines round differently
        ended = sum((nw.when(N_FOLDS * i >= k * size).then(nw.lit(1)).otherwise(nw.lit(0)) for k in range(1, N_FOLDS)),
                    nw.lit(0))  # fmt: skip
        return frame.with_columns(
            nw.when(size >= N_FOLDS).then(ended).otherwise(i + N_FOLDS - size).alias(FOLD),
            ((nw.col(VALUE) - nw.col("colme_before")) ** 2 * half).alias("successive"),
        )

    def _aggregated(self, frame: nw.LazyFrame[Any], keys: list[str], near: float) -> Any:
        value = nw.col(VALUE)
        away = value - near
        frame = frame.with_columns((away * away * away).alias("colme_cube"))  # engines take long for powers
        columns = {
            "rows": nw.len(), "n": value.count(), "mean": value.mean(), "variance": value.var(), "low": value.min(),
            "high": value.max(), "cube": nw.col("colme_cube").sum(),
        }  # fmt: skip
        if self.names.time is not None:
            columns["successive"] = nw.col("successive").sum()
        if self.names.weight is not None:
            weight = nw.col(WEIGHT)
            frame = frame.with_columns((weight * value).alias("colme_product"))
            frame = frame.with_columns(weight.sum().over(*keys).alias("colme_total"),
                                       nw.col("colme_product").sum().over(*keys).alias("colme_sum"))  # fmt: skip
            frame = frame.with_columns((nw.col("colme_sum") * nw.col("colme_total") ** -1.0).alias("colme_mean"))
            frame = frame.with_columns((weight * (value - nw.col("colme_mean")) ** 2).alias("colme_square"))
            columns |= {"weight": weight.sum(), "mean": nw.col("colme_mean").max(),
                        "square": nw.col("colme_square").sum()}  # fmt: skip
        return frame.group_by(*keys).agg(**columns).collect("pyarrow").to_native()

    def _arranged(
        self, found: Any, code: NDArray[np.int64], labels: NDArray[Any], parts: list[NDArray[Any]], near: float,
        seed: int, resolution: float,
    ) -> AgentMoments:  # fmt: skip
        """Agents in order of their labels."""
        rank = np.empty(len(labels), np.int64)
        order = np.argsort(labels.astype(str) if labels.dtype == object else labels, kind="stable")
        rank[order] = np.arange(len(labels))
        columns = {name: _column(found, name) for name in found.column_names if name not in self.keys}
        known = code >= 0
        left_out = {"agent": int(columns["rows"][~known].sum())}
        if not known.all():
            code, columns = code[known], {name: column[known] for name, column in columns.items()}
        left_out["value"] = int(columns["rows"].sum() - columns["n"].sum())
        if not columns["n"].any():
            raise DataError(f"no row of {TABLE} can be used: each needs an agent and a value. Check the names of the "
                            "columns.")  # fmt: skip
        if not _finite(columns):
            raise DataError(f"{self.names.value} of {TABLE} has infinite values, or values above {_LARGEST:g}: an "
                            "engine cannot add up their cubes. Leave them out, or divide by a unit.")  # fmt: skip
        folds = columns[FOLD].astype(np.int64) if FOLD in columns else np.zeros(len(code), np.int64)
        shape = (len(labels), N_FOLDS if FOLD in columns else 1)

        def placed(values: Floats, empty: float = 0.0) -> Floats:
            out = np.full(shape, empty)
            out[rank[code], folds] = np.nan_to_num(values)
            return out

        n = placed(columns["n"])
        weight = placed(columns["weight"]) if "weight" in columns else n
        mean = placed(columns["mean"])
        square = placed(columns["square"] if "square" in columns else columns["variance"] * (columns["n"] - 1.0))
        moments = FoldMoments(n.astype(np.int64), weight, weight, n, mean, square)
        low = placed(columns["low"], math.inf).min(axis=1)
        high = placed(columns["high"], -math.inf).max(axis=1)
        successive = placed(columns["successive"]).sum(axis=1) if FOLD in columns else None
        law = ""
        if successive is None:
            every = moments.merged([0])
            law = "binomial" if self.names.weight is None and are_binary(every) else ""
            moments = _folded(every, law, placed(columns["cube"])[:, 0], near, seed)
        made = AgentMoments(
            labels[order], moments, low, high, successive, resolution, 1.0, None, None,
            tuple(rows_left_out(left_out, self.names)), self.names, tuple(part[order] for part in parts), law,
        )  # fmt: skip
        there = n.sum(axis=1) > 0.0
        return made if there.all() else made.select(there)


def _folded(every: FoldMoments, law: str, cube: Floats, near: float, seed: int) -> FoldMoments:
    """The samples of each agent in random folds, by thinning."""
    if law:
        return thinned_successes(every.n, np.rint(np.nan_to_num(every.mean) * every.n).astype(np.int64), seed)
    return thinned(every, seed, _skewness(every, cube, near))


def _number(schema: Any, name: str) -> nw.Expr:
    """A column of numbers, null where it is NaN."""
    kind = schema[name]
    if not (kind.is_numeric() or kind == nw.Boolean):
        raise DataError(f"{name} of {TABLE} holds {kind}: it must hold numbers. Cast it in the query.")
    column = nw.col(name).cast(nw.Float64)
    return nw.when(~column.is_nan()).then(column) if kind.is_float() else column


def _column(found: Any, name: str) -> Floats:
    return np.asarray(found[name].to_numpy(), np.float64)


def _finite(columns: dict[str, Floats]) -> bool:
    there = columns["n"] > 0
    far = np.maximum(np.abs(columns["low"][there]), np.abs(columns["high"][there]))
    return bool((far < _LARGEST).all() and np.isfinite(columns["cube"][there]).all())


def _skewness(every: FoldMoments, cube: Floats, near: float) -> float:
    """Of all samples around the means of their agents, from sums of cubes around one value."""
    away = np.nan_to_num(every.mean) - near
    around = cube - 3.0 * away * every.square - every.n * away**3
    some = every.n > 2
    n = every.n[some].astype(np.float64)
    variance = float(every.square.sum()) / max(float(every.freedom.sum()), 1e-300)
    if not some.any() or variance <= 0.0:
        return 0.0
    third = float(around[some].sum()) / float(((n - 1.0) * (n - 2.0) / n).sum())
    return third / variance**1.5
