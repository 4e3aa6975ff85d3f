"""Columns of tables in memory: labels, values and times from dicts, data frames and arrays.

This is the one place that knows how to take a column out of a dict or a data frame, what counts as missing, and how
dates become seconds. `colme.online` reads everything through `as_events`; `colme.data` opens tables with `open_table`
and reads the cells as Arrow arrays, which it also has for files (`colme.data.read`). Nothing here needs Arrow, so
`learn_many` works with NumPy alone.

Messages count rows from 1: row 1 is the first data row.
"""

from __future__ import annotations

import datetime
import math
import numbers
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from colme.errors import ColumnError, DataError, SampleError, missing_extra, nearest, shorten
from colme.support.arrays import Array, Floats, Integers, Mask

Label = str | int
Labels = list[Label] | Integers
"""The labels of many rows; an array where they are whole numbers close to each other."""
TABLE = "the table"
"""The name of a table without a name of its own, in messages."""
_LARGEST = 1e150
"""Bound on samples: their squares must be finite, too."""
_CLOSE = 8
"""Whole numbers count as close if their range is below this many times their number."""


def row_name(i: int) -> str:
    """The row with index i (from 0), as messages name it: row 1 is the first data row."""
    return f"row {int(i) + 1:,}"


# tables


class MemoryTable(NamedTuple):
    """A table in memory: the names of its columns, and a function that returns one of them.

    A column of a dict is whatever the dict holds; a column of a data frame is a narwhals series."""

    names: list[Any]
    column: Callable[[Any], Any]


def open_table(table: Any) -> MemoryTable | None:
    """A dict of arrays or a data frame (pandas, polars, pyarrow: any that narwhals knows); None if it is neither."""
    if isinstance(table, Mapping):
        return MemoryTable(list(table), table.__getitem__)
    try:
        import narwhals
    except ImportError:
        if type(table).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow"):
            raise missing_extra("narwhals", "data", "reading data frames") from None
        return None
    try:
        frame = narwhals.from_native(table, pass_through=True)
    except ValueError:  # pandas allows two columns of one name, narwhals does not
        names = list(table.columns)
        check_columns([name for name in names if names.count(name) > 1], names)
        raise
    if isinstance(frame, narwhals.LazyFrame):
        frame = frame.collect()
    return MemoryTable(list(frame.columns), frame.get_column) if isinstance(frame, narwhals.DataFrame) else None


def check_columns(wanted: Sequence[Hashable], there: Sequence[Hashable], table: str = TABLE) -> None:
    """Refuse a column that is missing, with the nearest name as the remedy, or that occurs twice."""
    for column in wanted:
        if there.count(column) == 1:
            continue
        if column in there:
            raise ColumnError(
                f"{table} has {there.count(column)} columns {column!r}: column names must be unique. Rename "
                "all but one."
            )
        listed = [repr(each) for each in there[:8]] + ([f"{len(there) - 8} more"] if len(there) > 8 else [])
        names = {str(each): each for each in there}
        close = nearest(column, names)
        remedy = f"Did you mean {names[close]!r}?" if close is not None else "Choose one of these."
        raise ColumnError(f"{table} has no column {column!r}: it has {', '.join(listed) or 'none'}. {remedy}")


def check_lengths(columns: Mapping[Any, Any]) -> int:
    """The number of rows of columns that must all be of the same length."""
    lengths = {len(each) for each in columns.values()}
    if len(lengths) != 1:
        listed = ", ".join(f"{name!r} has {len(each)}" for name, each in columns.items())
        raise DataError(f"columns differ in length: {listed}. Give one value per row and column.")
    return lengths.pop()


def is_missing(value: Any) -> bool:
    """Whether a cell holds no value: None, NaN, NaT or pandas' NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    differs = value != value
    return isinstance(differs, bool | np.bool_) and bool(differs)


# single values


def as_label(agent: Any, where: str = "") -> Label:
    """A label as text or a whole number; anything else is refused."""
    if type(agent) in (str, int):
        return agent
    if isinstance(agent, str):
        return str(agent)
    if isinstance(agent, numbers.Integral) and not isinstance(agent, bool | np.bool_):
        return int(agent)
    if isinstance(agent, float | np.floating) and float(agent).is_integer():
        return int(agent)  # pandas turns whole numbers into floats where some are missing
    raise SampleError(f"agent {shorten(agent)}{where}: it must be text or a whole number. Try str(agent).")


def as_value(value: Any, where: str = "") -> float:
    """A sample as a finite number; anything else is refused."""
    number = _as_number(value, "sample", where)
    if not abs(number) < _LARGEST:
        raise SampleError(f"sample {number}{where}: it must be finite, and below {_LARGEST:g}. Leave it out, or try "
                          "another unit.")  # fmt: skip
    return number


def as_time(time: Any, where: str = "") -> float:
    """Seconds, from a number or a date. A date without a time zone is taken as UTC."""
    if is_missing(time):
        raise SampleError(f"time {shorten(time)}{where}: it must be finite. Give every sample a time.")
    if isinstance(time, datetime.datetime) and time.tzinfo is not None:
        time = time.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(time, datetime.date):
        time = np.datetime64(time)
    elif isinstance(time, datetime.timedelta):
        time = np.timedelta64(time)
    if isinstance(time, np.datetime64 | np.timedelta64):
        return _as_times(np.array([time])).item()
    number = _as_number(time, "time", where, "a number or a date. Try datetime.fromisoformat(...)")
    if not math.isfinite(number):
        raise SampleError(f"time {time}{where}: it must be finite. Give every sample a time.")
    return number


# whole columns


def columns_of(table: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """The named columns of a dict of arrays or of a data frame, by role; roles without a name (None) are left out."""
    frame = open_table(table)
    if frame is None:
        raise SampleError(
            f"{shorten(table)} is not a table: learn_many takes a data frame, a dict of arrays, or agent= and value= "
            "arrays. Try learn_many({'agent': ..., 'value': ...})."
        )
    asked = {role: name for role, name in names.items() if name is not None}
    check_columns(list(asked.values()), frame.names)
    found = {role: frame.column(name) for role, name in asked.items()}
    return found if isinstance(table, Mapping) else {role: series.to_numpy() for role, series in found.items()}


def as_events(agent: Any, value: Any, time: Any) -> tuple[Labels, Floats, Floats | None]:
    """Labels, values and times (None if `time` is None) of all rows that have a value; every row is checked."""
    values, labels = _as_values(value), _as_column(agent, "agent")
    times = None if time is None else _as_times(time)
    check_lengths({"agent": labels, "value": values} | ({} if times is None else {"time": times}))
    there = ~np.isnan(values)
    if not there.all():
        labels, values = labels[there], values[there]
        times = None if times is None else times[there]
    if times is not None and not np.isfinite(times).all():
        row = row_name(np.flatnonzero(there)[np.argmin(np.isfinite(times))])
        raise SampleError(f"the time in {row} is missing or infinite: every sample needs one. Leave the row out.")
    return _as_labels(labels, there), values, times


def _as_labels(column: Array, there: Mask) -> Labels:
    if column.dtype.kind in "iu" and len(column):
        low, high = int(column.min()), int(column.max())
        if high - low < _CLOSE * len(column) and high <= np.iinfo(np.int64).max:
            return column.astype(np.int64)
    found = column.tolist()
    if set(map(type, found)) <= {str, int}:
        return found
    rows = zip(np.flatnonzero(there).tolist(), found, strict=True)
    return [as_label(label, f" in {row_name(row)}") for row, label in rows]


def _as_column(values: Any, name: str) -> Array:
    column = values
    if not isinstance(values, np.ndarray):
        try:
            column = np.asarray(values)
            if column.dtype.kind in "US":
                column = np.asarray(values, object)  # NumPy turns numbers into text in a list that also holds text
        except ValueError:  # rows of unequal length
            column = np.empty((0, 0))
    if isinstance(values, str | bytes) or column.ndim == 0:
        raise SampleError(
            f"{name}={shorten(values)}: it must be a column of a table, or an array. Try {name}=[...], or "
            "learn_many(table)."
        )
    if column.ndim != 1:
        plain = "labels" if name == "agent" else "numbers"
        raise SampleError(f"{name} is not one column: every row must have one entry. Try a list of {plain}.")
    return column


def _as_values(values: Any) -> Floats:
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    column = _as_column(values, "value")
    if column.dtype.kind == "c":
        raise SampleError("the values are complex numbers: they must be real. Try their real part.")
    if column.dtype.kind in "biuf":
        numbers = column.astype(np.float64)
    else:
        numbers = np.array(
            [np.nan if is_missing(x) else _as_number(x, "value", f" in {row_name(i)}") for i, x in enumerate(column)],
            np.float64,
        )
    for row in np.flatnonzero(np.abs(numbers) >= _LARGEST).tolist():  # and infinite ones, but not NaN
        as_value(numbers[row].item(), f" in {row_name(row)}")  # refuses the first
    return numbers


def _as_times(values: Any) -> Floats:
    column = _as_column(values, "time")
    if column.dtype.kind == "M":
        # Microseconds are exact in float64 for 285 years: a date gives the same bits however it comes in
        return np.where(np.isnat(column), np.nan, column.astype("M8[us]").astype(np.int64) / 1e6)
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    if column.dtype.kind == "m":
        return np.where(np.isnat(column), np.nan, column / np.timedelta64(1, "s"))
    found = [np.nan if is_missing(x) else as_time(x, f" in {row_name(i)}") for i, x in enumerate(column)]
    return np.array(found, np.float64)


def _as_number(
    value: Any, name: str, where: str, rule: str = "a number. Turn text into numbers first, or leave it out"
) -> float:  # fmt: skip
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except OverflowError:  # an integer beyond the range of floats
        return math.inf
    except (TypeError, ValueError):
        raise SampleError(f"{name} {shorten(value)}{where}: it must be {rule}.") from None
