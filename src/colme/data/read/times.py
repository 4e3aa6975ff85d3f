"""`TimeColumn`: a column of dates or numbers as seconds or plain numbers."""

from __future__ import annotations

import contextlib
import datetime
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from colme.data.read.arrow_columns import Where, decoded, is_text, known_text
from colme.data.read.numbers import NumberColumn, Signs
from colme.errors import DataError, shorten
from colme.support.arrays import Floats

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
FORMATS = (
    ("numbers", pa.float64()),
    ("dates", pa.timestamp("us")),
    ("dates with a time zone", pa.timestamp("us", "UTC")),
    ("dates", pa.timestamp("ns")),
    ("dates with a time zone", pa.timestamp("ns", "UTC")),
)
"""Types that text is tried as, in this order: microseconds cover all years up to 9999, nanoseconds do not."""
ARROW_DIRECTIVES = "%YymdjHIMSpbBaA"
"""Directives of formats that Arrow parses, too."""


class TimeColumn:
    """The times of one column over all batches: dates in seconds since the first one, numbers unchanged."""

    def __init__(self, signs: Signs, time_format: str | None = None) -> None:
        self._signs, self._format = signs, time_format
        self._kind: str | None = None
        self._origin: int | None = None
        self._unit = ""

    @property
    def numeric(self) -> bool:
        """Whether the times are plain numbers, whose unit is not known."""
        return self._kind == "numbers"

    def times(self, array: Any, where: Where) -> Floats:
        """The times of a batch; NaN where one is missing."""
        array = decoded(array)
        if is_text(array.type):
            array = (self._parsed if self._format is None else self._by_format)(known_text(array), where)
        elif self._format is not None and array.null_count < len(array):
            raise DataError(f"{where.column} of {where.source} holds {array.type}: a time format is for dates in text. "
                            "Leave time_format (--time-format) out.")  # fmt: skip
        if array.null_count == len(array):
            return np.full(len(array), np.nan)
        kind = array.type
        if pa.types.is_date(kind):
            array = array.cast(pa.timestamp("s" if kind == pa.date32() else "ms"))
        if pa.types.is_timestamp(array.type):
            return self._seconds(array, "dates with a time zone" if array.type.tz else "dates", where)
        if pa.types.is_time(kind) or pa.types.is_duration(kind):
            return self._seconds(array, "durations", where)
        if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
            raise DataError(f"{where.column} of {where.source} holds {kind}: times must be numbers or dates. Convert "
                            "them first.")  # fmt: skip
        self._check_kind("numbers", where)
        return NumberColumn(self._signs).numbers(array, where)

    def _check_kind(self, kind: str, where: Where) -> None:
        if self._kind not in (None, kind):
            raise DataError(
                f"{where.column} of {where.source} holds {self._kind} and then {kind}: all times must be of one kind. "
                "Convert them first."
            )
        self._kind = kind

    def _seconds(self, array: Any, kind: str, where: Where) -> Floats:
        """Subtracted as integers before they become floats, which keeps every nanosecond within a month."""
        self._check_kind(kind, where)
        unit = array.type.unit
        narrow = pa.types.is_time32(array.type)
        whole = array.cast(pa.int32()).cast(pa.int64()) if narrow else array.cast(pa.int64())
        known = np.asarray(whole.is_valid())
        ticks = whole.fill_null(0).to_numpy()
        if self._origin is None:
            self._origin, self._unit = int(ticks[np.argmax(known)]), unit
        if unit != self._unit:  # only batches from different sources differ
            origin = self._origin / PER_SECOND[self._unit]
            return np.where(known, ticks / PER_SECOND[unit] - origin, np.nan)
        return np.where(known, (ticks - self._origin) / PER_SECOND[unit], np.nan)

    def _by_format(self, text: Any, where: Where) -> Any:
        """Text in the format that was given."""
        form = str(self._format)
        found = strptime(text, form)
        wrong = np.asarray(pc.and_(text.is_valid(), found.is_null()))
        if wrong.any():
            i = int(np.argmax(wrong))
            raise DataError(f"{where.at(i)} is {shorten(text[i].as_py())}: times must fit the format {form!r}. Correct "
                            "it, or try another time_format (--time-format).")  # fmt: skip
        return found

    def _parsed(self, text: Any, where: Where) -> Any:
        """Text as the first type that the whole batch can be parsed as."""
        allowed = [target for kind, target in FORMATS if self._kind in (None, kind)]
        for target in allowed:
            with contextlib.suppress(pa.ArrowException):
                return self._cast(text, target)
        first = text.drop_null()[:1]
        begun = [target for target in allowed if self._fits(first, target)] or allowed
        i = next((i for i in range(len(text)) if not any(self._fits(text[i : i + 1], target) for target in begun)), 0)
        kinds = {kind for kind, target in FORMATS if target in begun and self._fits(first, target)}
        rule = " or ".join(sorted(kinds)) + ", like the first one" if kinds else self._kind or "numbers or dates"
        raise DataError(f"{where.at(i)} is {shorten(text[i].as_py())}: times must be {rule}. Write dates like "
                        "2024-03-01 12:30:00, all of them with a time zone or none of them, or give their format, such "
                        "as time_format='%d.%m.%Y %H:%M' (--time-format).")  # fmt: skip

    def _cast(self, text: Any, target: Any) -> Any:
        return (self._signs.plain(text) if pa.types.is_floating(target) else text).cast(target)

    def _fits(self, text: Any, target: Any) -> bool:
        try:
            self._cast(text, target)
        except pa.ArrowException:
            return False
        return True


def strptime(text: Any, form: str) -> Any:
    """Timestamps of text in a format, null where a cell does not fit: what `datetime.strptime` gives.

    Arrow parses much faster, but it takes the 31st of February for the 2nd of March and does not mind missing blanks
    and digits. So Python parses, each text once, what Arrow does not write again as it was."""
    kind = pa.timestamp("us", "UTC" if "%z" in form else None)
    if set(re.findall("%(.)", form)) <= set(ARROW_DIRECTIVES):
        whole = pc.strptime(text, format=form, unit="s", error_is_null=True)
        sure = pc.equal(pc.strftime(whole, format=form), text).fill_null(False)
        found = whole.cast(kind, safe=False)
    else:
        found, sure = pa.nulls(len(text), kind), pa.array(np.zeros(len(text), bool))
    rest = text.filter(pc.invert(sure)).dictionary_encode()
    parsed = pa.array([_moment(cell, form) for cell in rest.dictionary.to_pylist()], kind)
    return pc.replace_with_mask(found, pc.invert(sure), parsed.take(rest.indices))


def _moment(cell: str, form: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.strptime(cell, form)
    except (ValueError, OverflowError):
        return None
