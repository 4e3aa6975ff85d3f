"""Times as numbers."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from colme.data.read.columns import Where, decoded, is_text, known_text, numbers
from colme.errors import DataError, shorten

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
READINGS = (
    ("numbers", pa.float64()),
    ("dates", pa.timestamp("us")),
    ("dates with a zone", pa.timestamp("us", "UTC")),
    ("dates", pa.timestamp("ns")),
    ("dates with a zone", pa.timestamp("ns", "UTC")),
)
"""What text may be, tried in this order: microseconds reach further than the ten thousand years of a date."""


class Clock:
    """The times of a column: dates in seconds since the first one, numbers as they are."""

    def __init__(self) -> None:
        self._kind: str | None = None
        self._origin: int | None = None
        self._unit = ""

    def times(self, array: Any, where: Where) -> NDArray[np.float64]:
        """Of a batch; NaN where there is none."""
        array = decoded(array)
        if is_text(array.type):
            array = self._read(known_text(array), where)
        if array.null_count == len(array):
            return np.full(len(array), np.nan)
        kind = array.type
        if pa.types.is_date(kind):
            array = array.cast(pa.timestamp("s" if kind == pa.date32() else "ms"))
        if pa.types.is_timestamp(array.type):
            return self._seconds(array, "dates with a zone" if array.type.tz else "dates", where)
        if pa.types.is_time(kind) or pa.types.is_duration(kind):
            return self._seconds(array, "durations", where)
        if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
            raise DataError(f"{where.column} of {where.source} holds {kind}: times must be numbers or dates. Convert "
                            "them first.")  # fmt: skip
        self._agree("numbers", where)
        return numbers(array, where)

    def _agree(self, kind: str, where: Where) -> None:
        if self._kind not in (None, kind):
            raise DataError(
                f"{where.column} of {where.source} holds {self._kind} and then {kind}: all must be of one kind. "
                "Convert them first."
            )
        self._kind = kind

    def _seconds(self, array: Any, kind: str, where: Where) -> NDArray[np.float64]:
        """Counted in whole ticks before they become floats, which keeps every nanosecond of a month."""
        self._agree(kind, where)
        unit = array.type.unit
        narrow = pa.types.is_time32(array.type)
        whole = array.cast(pa.int32()).cast(pa.int64()) if narrow else array.cast(pa.int64())
        known = np.asarray(whole.is_valid())
        ticks = whole.fill_null(0).to_numpy()
        if self._origin is None:
            self._origin, self._unit = int(ticks[np.argmax(known)]), unit
        if unit != self._unit:  # only batches from several places differ
            origin = self._origin / PER_SECOND[self._unit]
            return np.where(known, ticks / PER_SECOND[unit] - origin, np.nan)
        return np.where(known, (ticks - self._origin) / PER_SECOND[unit], np.nan)

    def _read(self, text: Any, where: Where) -> Any:
        """Text as whatever the whole batch can be read as."""
        allowed = [target for kind, target in READINGS if self._kind in (None, kind)]
        for target in allowed:
            with contextlib.suppress(pa.ArrowException):
                return text.cast(target)
        first = text.drop_null()[:1]
        begun = [target for target in allowed if _fits(first, target)] or allowed
        i = next((i for i in range(len(text)) if not any(_fits(text[i : i + 1], target) for target in begun)), 0)
        kinds = {kind for kind, target in READINGS if target in begun and _fits(first, target)}
        rule = " or ".join(sorted(kinds)) + ", as the first is" if kinds else self._kind or "numbers or dates"
        raise DataError(f"{where.at(i)} is {shorten(text[i].as_py())}: times must be {rule}. Write dates like "
                        "2024-03-01 or 2024-03-01 12:30:00, all of them with a zone or none.")  # fmt: skip


def _fits(text: Any, target: Any) -> bool:
    try:
        text.cast(target)
    except pa.ArrowException:
        return False
    return True
