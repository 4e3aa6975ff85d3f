"""What comes in: labels, values and times from arrays, dicts of arrays and data frames, checked before anything is
learned."""

from __future__ import annotations

import datetime
import math
import numbers
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from colme.errors import SampleError, missing_extra, one_of, shorten
from colme.online.agents import Label, Labels

_LARGEST = 1e150
"""Squares of samples must be numbers, too."""
_CLOSE = 8
"""Whole numbers are close to each other if they lie within so many times their number."""


def as_label(agent: Any, where: str = "") -> Label:
    """Text or a whole number, or a refusal."""
    if type(agent) in (str, int):
        return agent
    if isinstance(agent, str):
        return str(agent)
    if isinstance(agent, numbers.Integral) and not isinstance(agent, bool | np.bool_):
        return int(agent)
    if isinstance(agent, float | np.floating) and float(agent).is_integer():
        return int(agent)  # what a column of whole numbers becomes where some are missing
    raise SampleError(f"agent {shorten(agent)}{where}: it must be text or a whole number. Try str(agent).")


def as_value(value: Any) -> float:
    """A finite number, or a refusal."""
    number = _as_number(value, "sample", "")
    if not abs(number) < _LARGEST:
        if math.isnan(number):
            raise SampleError("sample nan: it must be a number. Leave missing samples out.")
        _refuse_size(number, "")
    return number


def as_time(time: Any, where: str = "") -> float:
    """Seconds, from a number or a date, or a refusal. A date without a time zone is taken as UTC."""
    if _is_missing(time):
        raise SampleError(f"time {shorten(time)}{where}: it must be finite. Give every sample a time.")
    if isinstance(time, datetime.timedelta | np.timedelta64):
        return float(np.timedelta64(time) / np.timedelta64(1, "s"))
    if isinstance(time, datetime.datetime):
        aware = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
        time = np.datetime64(aware.astimezone(datetime.UTC).replace(tzinfo=None))
    elif isinstance(time, datetime.date):
        time = np.datetime64(time)
    if isinstance(time, np.datetime64):
        number = _seconds(np.array([time])).item()
    else:
        number = _as_number(time, "time", where, "a number or a date. Try datetime.fromisoformat(...)")
    if not math.isfinite(number):
        raise SampleError(f"time {time}{where}: it must be finite. Give every sample a time.")
    return number


def columns_of(frame: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """The named columns of a dict of arrays or of a data frame (pandas, polars, pyarrow: whatever narwhals knows)."""
    if isinstance(frame, Mapping):
        there, take = list(frame), frame.__getitem__
    else:
        try:
            import narwhals
        except ImportError:
            raise missing_extra("narwhals", "data", "learning from a data frame") from None
        try:
            native = narwhals.from_native(frame)
        except ValueError:
            raise SampleError("the table has several columns of the same name: each must have one of its own. Rename "
                              "all but one.") from None  # fmt: skip
        except TypeError:
            raise SampleError(
                f"{shorten(frame)} is no table: learn_many takes a data frame, a dict of arrays, or agent= and value= "
                "arrays. Try learn_many({'agent': ..., 'value': ...})."
            ) from None
        if isinstance(native, narwhals.LazyFrame):
            native = native.collect()
        there = native.columns

        def take(name: str) -> Any:
            return native[name].to_numpy()

    found = {}
    for role, name in names.items():
        if name is not None:
            one_of(name, there, f"column for {role}", SampleError)
            found[role] = take(name)
    return found


def as_events(
    agent: Any, value: Any, time: Any
) -> tuple[Labels, NDArray[np.float64], NDArray[np.float64] | None]:  # fmt: skip
    """Labels, values and times of all rows that have a value; all of them are checked."""
    values, labels = _as_values(value), _as_column(agent, "agent")
    times = None if time is None else _as_times(time)
    for name, column in (("agent", labels), ("time", times)):
        if column is not None and len(column) != len(values):
            raise SampleError(f"{name} has {len(column)} rows and value has {len(values)}: they must have as many. "
                              "Check how they were read.")  # fmt: skip
    there = ~np.isnan(values)
    if not there.all():
        labels, values = labels[there], values[there]
        times = None if times is None else times[there]
    if times is not None and not np.isfinite(times).all():
        row = _row(there, int(np.argmin(np.isfinite(times))))
        raise SampleError(f"the time in row {row} is missing or infinite: every sample needs one. Leave the row out.")
    return _as_labels(labels, there), values, times


def _as_labels(column: NDArray[Any], there: NDArray[np.bool_]) -> Labels:
    if column.dtype.kind in "iu" and len(column):
        low, high = int(column.min()), int(column.max())
        if high - low < _CLOSE * len(column) and high <= np.iinfo(np.int64).max:
            return column.astype(np.int64)
    found = column.tolist()
    if set(map(type, found)) <= {str, int}:
        return found
    return [as_label(label, f" in row {_row(there, i)}") for i, label in enumerate(found)]


def _as_column(values: Any, name: str) -> NDArray[Any]:
    column = values
    if not isinstance(values, np.ndarray):
        try:
            column = np.asarray(values)
            if column.dtype.kind in "US":
                column = np.asarray(values, object)  # NumPy makes text of the numbers in a list that also has text
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


def _as_values(values: Any) -> NDArray[np.float64]:
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    column = _as_column(values, "value")
    if column.dtype.kind == "c":
        raise SampleError("the values are complex numbers: they must be real. Try their real part.")
    if column.dtype.kind in "biuf":
        numbers = column.astype(np.float64)
    else:
        numbers = np.array(
            [np.nan if _is_missing(x) else _as_number(x, "value", f" in row {i}") for i, x in enumerate(column)],
            np.float64,
        )
    too_large = np.abs(numbers) >= _LARGEST  # and infinite ones, but not NaN
    if too_large.any():
        row = int(np.argmax(too_large))
        _refuse_size(numbers[row].item(), f" in row {row}")
    return numbers


def _as_times(values: Any) -> NDArray[np.float64]:
    column = _as_column(values, "time")
    if column.dtype.kind == "M":
        return _seconds(column)
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    if column.dtype.kind == "m":
        return np.where(np.isnat(column), np.nan, column / np.timedelta64(1, "s"))
    found = [np.nan if _is_missing(x) else as_time(x, f" in row {i}") for i, x in enumerate(column)]
    return np.array(found, np.float64)


def _seconds(times: NDArray[Any]) -> NDArray[np.float64]:
    """Since 1970. Microseconds are whole float64 numbers for 285 years, so a date has the same bits on every way."""
    microseconds = times.astype("M8[us]").astype(np.int64)
    return np.where(np.isnat(times), np.nan, microseconds / 1e6)


def _is_missing(value: Any) -> bool:
    return value is None or (value != value) is True or type(value).__name__ in ("NAType", "NaTType")


def _as_number(
    value: Any, name: str, where: str, rule: str = "a number. Turn text into numbers first, or leave it out"
) -> float:  # fmt: skip
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except OverflowError:  # a whole number without end
        return math.inf
    except (TypeError, ValueError):
        raise SampleError(f"{name} {shorten(value)}{where}: it must be {rule}.") from None


def _refuse_size(number: float, where: str) -> NoReturn:
    raise SampleError(f"sample {number}{where}: it must be finite, and below {_LARGEST:g}. Leave it out, or try "
                      "another unit.")  # fmt: skip


def _row(there: NDArray[np.bool_], i: int) -> int:
    """The row of the i-th that is there."""
    return int(np.flatnonzero(there)[i])
