"""`TableFormat`: how a table is written, where the table cannot say so itself."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from colme.errors import DataError, one_of, shorten

DECIMALS = (".", ",")
THOUSANDS = (".", ",", " ", "'")
_SOME_TIME = datetime.datetime(2024, 12, 31, 12, 30, 45, tzinfo=datetime.UTC)


class TableFormat(NamedTuple):
    """How a table is written.

    decimal      the decimal sign of numbers in text
    thousands    the sign between groups of three digits in text; None: there is none
    time_format  how dates in text are written, as in `datetime.strptime`; None: like 2024-03-01 12:30:00
    encoding     of a text file; None: UTF-8
    sheet        of a spreadsheet; None: the first one that is not empty
    """

    decimal: str = "."
    thousands: str | None = None
    time_format: str | None = None
    encoding: str | None = None
    sheet: str | None = None

    def checked(self) -> TableFormat:
        """The format itself; one that cannot be is refused."""
        one_of(self.decimal, DECIMALS, "decimal sign", DataError)
        if self.thousands is not None:
            one_of(self.thousands, THOUSANDS, "sign of thousands", DataError)
        if self.thousands == self.decimal:
            other = DECIMALS[self.decimal == "."]
            raise DataError(
                f"thousands={self.thousands!r} is the decimal sign, too: they must differ. Try decimal={other!r} "
                f"(--decimal {other})."
            )
        if self.time_format is not None and not _is_time_format(self.time_format):
            raise DataError(
                f"time_format={shorten(self.time_format)}: it must be a format of strptime. Try time_format='%d.%m.%Y "
                "%H:%M'."
            )
        if self.encoding is not None and not _is_encoding(self.encoding):
            raise DataError(
                f"encoding={shorten(self.encoding)}: it must be the name of an encoding. Try encoding='latin-1'."
            )
        return self


PLAIN = TableFormat()
"""UTF-8, decimal points, dates like 2024-03-01."""


def _is_time_format(form: object) -> bool:
    try:
        return "%" in form and bool(datetime.datetime.strptime(_SOME_TIME.strftime(form), form))  # type: ignore[operator, arg-type]
    except (TypeError, ValueError):
        return False


def _is_encoding(name: object) -> bool:
    try:
        return bool("a".encode(name))  # type: ignore[arg-type]
    except (LookupError, TypeError, ValueError):
        return False
