"""`engine_moments`: let the engine that holds a lazy frame aggregate it: DuckDB, Polars, Ibis or Spark, by narwhals.

What comes back is one row per agent: count, mean, variance, extremes and a sum of cubes. These are split into random
folds by thinning (`colme.data.thinning`). With time, the engine itself puts the samples of each agent into five periods
and adds up the squared differences of successive ones; one row per agent and period comes back. Known groups, and with
time or weights the numbers of rows that cannot be used, are asked for in queries of their own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from colme.data.moments import N_FOLDS, OLDEST, AgentMoments, FoldMoments, are_binary, resolution_of
from colme.data.read.arrow_columns import Where, encoder_of
from colme.data.read.reader import HEAVIEST, mean_covariates, no_label, rows_left_out
from colme.data.read.table import Names, unit_unknown
from colme.data.thinning import refolded
from colme.errors import ColmeError, DataError, missing_extra
from colme.support.arrays import Array, Floats, Integers
from colme.support.columns import TABLE, check_columns

try:
    import narwhals as nw
except ImportError:
    raise missing_extra("narwhals", "data", "reading data frames") from None

_HEAD = 10_000
"""Rows that tell the resolution of the samples and a value near all of them."""
_LARGEST = 1e100
"""Bound on values: engines add up their cubes."""
VALUE, TIME, WEIGHT, LABEL, FOLD = "colme_value", "colme_time", "colme_weight", "colme_label", "colme_fold"
DECAY, MASS = "colme_decay", "colme_mass"
"""g, and g p, of `colme.data.moments`."""


def lazy_frame(source: Any) -> nw.LazyFrame[Any] | None:
    """A narwhals lazy frame for a lazy frame or relation of any engine; None for everything else."""
    if isinstance(source, str | os.PathLike | Mapping):
        return None
    try:
        found = nw.from_native(source, pass_through=True)
    except ValueError:  # two columns of one name, which reading the table refuses
        return None
    return found if isinstance(found, nw.LazyFrame) else None


def engine_moments(
    frame: nw.LazyFrame[Any], names: Names, *, seed: int, half_life: float | None = None, in_seconds: bool = False
) -> AgentMoments:
    """The moments of a lazy frame, aggregated where it is. Agents are in order of their labels.

    in_seconds  the half-life was given with a unit, so times must be dates"""
    try:
        return _Query(frame, names, half_life, in_seconds).moments(seed)
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

    def __init__(
        self, frame: nw.LazyFrame[Any], names: Names, half_life: float | None = None, in_seconds: bool = False
    ):  # fmt: skip
        self.names, self.half_life = names, half_life
        self.agents: tuple[Any, ...] = names.agent if isinstance(names.agent, tuple) else (names.agent,)
        schema = frame.collect_schema()
        single = [each for each in (names.time, names.weight, names.label) if each is not None]
        check_columns([*self.agents, names.value, *single, *names.covariates], list(schema.names()))
        self.keys = [f"colme_agent_{i}" for i in range(len(self.agents))]
        number = _number(schema, names.value)
        columns = [nw.col(each).alias(key) for each, key in zip(self.agents, self.keys, strict=True)]
        columns.append(number.alias(VALUE))
        if names.time is not None:
            columns.append(nw.col(names.time).alias(TIME))
        if names.weight is not None:
            columns.append(_number(schema, names.weight).alias(WEIGHT))
        if names.label is not None:
            columns.append(nw.col(names.label).alias(LABEL))
        self.covariates = [f"colme_covariate_{k}" for k in range(len(names.covariates))]
        for name, ours in zip(names.covariates, self.covariates, strict=True):
            columns.append(nw.when(~number.is_null()).then(_number(schema, name)).alias(ours))
        self.frame = frame.select(*columns)
        self.dates = names.time is not None and isinstance(schema[names.time], nw.Date | nw.Datetime)
        if half_life is not None and names.time is not None:
            self._check_half_life(schema[names.time], in_seconds)

    def _check_half_life(self, kind: Any, in_seconds: bool) -> None:
        if not (self.dates or kind.is_numeric()):
            raise DataError(f"half_life with {self.names.time} of {TABLE}, which holds {kind}: times must be numbers "
                            "or dates. Cast it in the query.")  # fmt: skip
        if in_seconds and not self.dates:
            raise unit_unknown(self.half_life, self.names.time)

    def moments(self, seed: int) -> AgentMoments:
        head = np.asarray(self.frame.select(VALUE).head(_HEAD).collect("pyarrow")[VALUE].to_numpy(), np.float64)
        head = head[np.isfinite(head)]
        near = float(head.mean()) if len(head) else 0.0
        left_out = self._left_out()
        frame, keys = self._usable(), self.keys
        if self.names.time is not None:
            frame, keys = self._periods(frame), [*keys, FOLD]
        found = self._aggregated(frame, keys, near)
        encoder = encoder_of(len(self.agents))
        code = self._codes(encoder, found)
        labels = encoder.labels(text=False)
        parts = encoder.parts(text=False) if len(self.agents) > 1 else []
        made, cube = self._arranged(found, code, labels, parts, *self._groups(encoder, len(labels)), left_out)
        made = made._replace(resolution=resolution_of(head))
        if made.successive is not None:
            return made
        every = made.folds.merged([0])
        within = self.names.weight is None and bool((made.low >= 0.0).all() and (made.high <= 1.0).all())
        law = "binomial" if within and are_binary(every) else ""
        return made._replace(law=law, folds=refolded(every, law, seed, _skewness(every, cube, near)))

    def _codes(self, encoder: Any, found: Any) -> Integers:
        """The agents of these rows."""
        arrays = [found[key].combine_chunks() for key in self.keys]
        codes: Integers = encoder.codes(arrays, [Where(TABLE, each) for each in self.agents])
        return codes

    def _usable(self) -> nw.LazyFrame[Any]:
        """Rows with a weight and a time, if these are given; the aggregation counts rows without agent or value."""
        frame = self.frame
        if self.names.weight is not None:
            frame = frame.filter((nw.col(WEIGHT) > 0.0) | nw.col(VALUE).is_null())
        if self.names.time is not None:
            frame = frame.filter(~nw.col(TIME).is_null()).filter(~nw.col(VALUE).is_null())
        return frame

    def _left_out(self) -> dict[str, int] | None:
        """How many rows cannot be used, by what they lack first; None if the aggregation counts them."""
        if self.names.time is None and self.names.weight is None:
            return None
        no_agent = sum((nw.col(key).is_null().cast(nw.Int64) for key in self.keys), nw.lit(0)) > 0
        lacks = {"agent": no_agent, "value": nw.col(VALUE).is_null()}
        if self.names.time is not None:
            lacks["time"] = nw.col(TIME).is_null()
        if self.names.weight is not None:
            weight = nw.col(WEIGHT)
            lacks |= {"weight": weight.is_null(), "zero": weight == 0.0, "wrong": (weight < 0.0) | (weight > HEAVIEST)}
        reason: Any = nw.lit(len(lacks))
        for i, lack in reversed(list(enumerate(lacks.values()))):
            reason = nw.when(lack).then(nw.lit(i)).otherwise(reason)
        counted = self.frame.select(reason.alias("reason")).group_by("reason").agg(rows=nw.len()).collect("pyarrow")
        names = [*lacks, "none"]
        found = dict.fromkeys(lacks, 0)
        found |= {names[int(i)]: int(n) for i, n in zip(counted["reason"], counted["rows"], strict=True)}
        found.pop("none", None)
        if wrong := found.pop("wrong", 0):
            raise DataError(f"{self.names.weight} of {TABLE} is negative or above {HEAVIEST:g} in {wrong:,} rows: "
                            "weights must not be. Leave these rows out in the query.")  # fmt: skip
        return found

    def _groups(self, encoder: Any, n_agents: int) -> tuple[Integers | None, tuple[Any, ...]]:
        """(known group of each agent, by its code, and -1 without one; the names of the groups)."""
        if self.names.label is None:
            return None, ()
        label = nw.col(LABEL)
        query = self.frame.filter(~label.is_null()).group_by(*self.keys).agg(low=label.min(), high=label.max())
        found = query.sort(*self.keys).collect("pyarrow").to_native()
        code, groups = self._codes(encoder, found), encoder_of(1)
        where = [Where(TABLE, self.names.label)]
        low, high = (groups.codes([found[name].combine_chunks()], where) for name in ("low", "high"))
        names = groups.labels(text=False)
        for i in np.flatnonzero((low != high) & (code >= 0))[:1]:
            agent = encoder.labels(text=False)[code[i]]
            both = f"{names[low[i]]!s:.40} and {names[high[i]]!s:.40}"
            raise DataError(f"{self.names.label} of {agent!s:.40} is {both}: an agent can have only one label. Correct "
                            "it, or leave the column out.")  # fmt: skip
        group = np.full(n_agents, -1)
        there = (code >= 0) & (code < n_agents)  # others have no sample
        group[code[there]] = low[there]
        if not (group >= 0).any():
            raise no_label(self.names.label, TABLE)
        return group, tuple(names.tolist())

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
        if self.half_life is not None:
            places.append(nw.col(TIME).max().over(*self.keys).alias("colme_last"))
        frame = frame.with_columns(*places)
        i, size = nw.col("colme_i"), nw.col("colme_size")
        # the number of periods that have ended, written without a division, which engines round differently
        ended = sum((nw.when(N_FOLDS * i >= k * size).then(nw.lit(1)).otherwise(nw.lit(0)) for k in range(1, N_FOLDS)),
                    nw.lit(0))  # fmt: skip
        frame = frame.with_columns(
            nw.when(size >= N_FOLDS).then(ended).otherwise(i + N_FOLDS - size).alias(FOLD),
            ((nw.col(VALUE) - nw.col("colme_before")) ** 2 * half).alias("successive"),
        )
        return frame if self.half_life is None else self._decaying(frame, self.half_life)

    def _decaying(self, frame: nw.LazyFrame[Any], half_life: float) -> nw.LazyFrame[Any]:
        """With the decay of each sample."""
        age: Any = nw.col("colme_last") - nw.col(TIME)
        if self.dates:
            age = age.dt.total_microseconds() * 1e-6
        frame = frame.with_columns((age * (1.0 / half_life)).alias("colme_age"))
        age = nw.col("colme_age")
        age = nw.when(age < OLDEST).then(age).otherwise(nw.lit(OLDEST))
        return frame.with_columns((age * -math.log(2.0)).exp().alias(DECAY))

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
        factors = [nw.col(name) for name, there in ((WEIGHT, self.names.weight), (DECAY, self.half_life)) if there]
        if factors:
            frame = frame.with_columns(
                nw.when(~value.is_null()).then(math.prod(factors[1:], start=factors[0])).alias(MASS)
            )
            mass = nw.col(MASS)
            frame = frame.with_columns((mass * value).alias("colme_product"))
            frame = frame.with_columns(mass.sum().over(*keys).alias("colme_total"),
                                       nw.col("colme_product").sum().over(*keys).alias("colme_sum"))  # fmt: skip
            frame = frame.with_columns((nw.col("colme_sum") * nw.col("colme_total") ** -1.0).alias("colme_mean"))
            frame = frame.with_columns((mass * (value - nw.col("colme_mean")) ** 2).alias("colme_square"))
            columns |= {"weight": mass.sum(), "mean": nw.col("colme_mean").max(),
                        "square": nw.col("colme_square").sum()}  # fmt: skip
        if self.half_life is not None:
            frame = frame.with_columns((nw.col(MASS) * nw.col(DECAY)).alias("colme_spread"))
            columns |= {"spread": nw.col("colme_spread").sum(), "decay": nw.col(DECAY).sum()}
        for each in self.covariates:
            columns |= {f"{each}_n": nw.col(each).count(), f"{each}_sum": nw.col(each).sum()}
        return frame.group_by(*keys).agg(**columns).collect("pyarrow").to_native()

    def _arranged(
        self, found: Any, code: Integers, labels: Array, parts: list[Array],
        group: Integers | None, group_names: tuple[Any, ...], left_out: dict[str, int] | None,
    ) -> tuple[AgentMoments, Floats]:  # fmt: skip
        """(moments of agents in order of their labels, in periods or in one fold; sums of cubes)."""
        columns = {name: _column(found, name) for name in found.column_names if name not in self.keys}
        known = code >= 0
        if left_out is None:
            left_out = {"agent": int(columns["rows"][~known].sum())}
            left_out["value"] = int((columns["rows"] - columns["n"])[known].sum())
        if not known.all():
            code, columns = code[known], {name: column[known] for name, column in columns.items()}
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
            out[code, folds] = np.nan_to_num(values)
            return out

        n = placed(columns["n"])
        weight = placed(columns["weight"]) if "weight" in columns else n
        spread, decay = (placed(columns[name]) if name in columns else usual
                         for name, usual in (("spread", weight), ("decay", n)))  # fmt: skip
        square = placed(columns["square"] if "square" in columns else columns["variance"] * (columns["n"] - 1.0))
        moments = FoldMoments(n.astype(np.int64), weight, spread, decay, placed(columns["mean"]), square)
        low = placed(columns["low"], math.inf).min(axis=1)
        high = placed(columns["high"], -math.inf).max(axis=1)
        successive = placed(columns["successive"]).sum(axis=1) if FOLD in columns else None
        order = np.argsort(labels.astype(str) if labels.dtype == object else labels, kind="stable")
        order = order[n.sum(axis=1)[order] > 0.0]
        made = AgentMoments(
            labels, moments, low, high, successive, 0.0, 1.0, group, None,
            tuple(rows_left_out(left_out, self.names)), self.names, tuple(parts), group_names=group_names,
            forward=successive is not None,
        ).select(order)  # fmt: skip
        if self.covariates:
            for name, each in zip(self.names.covariates, self.covariates, strict=True):
                if not np.isfinite(columns[f"{each}_sum"][columns[f"{each}_n"] > 0.0]).all():
                    raise DataError(f"{name} of {TABLE} has infinite values: covariates must be finite. Leave these "
                                    "rows out in the query.")  # fmt: skip
            total, number = (
                np.stack([placed(columns[f"{each}_{what}"]).sum(axis=1)[order] for each in self.covariates], axis=1)
                for what in ("sum", "n")
            )
            found, notes = mean_covariates(total, number, self.names.covariates, TABLE)
            made = made._replace(covariates=found, notes=(*made.notes, *notes))
        return made, placed(columns["cube"]).sum(axis=1)[order]


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
