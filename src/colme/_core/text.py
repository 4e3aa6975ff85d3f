"""Names from the user's data, as they are shown."""

from __future__ import annotations

import bisect
import itertools
import unicodedata

from colme.errors import printable

NAME_LENGTH = 40
"""Width of an agent's name in a sentence or a table, in characters."""


def safe_name(name: object, length: int = NAME_LENGTH) -> str:
    """A name from the user's data, `printable`; long ones end in "…". East Asian wide characters count as two."""
    text = printable(str(name)[: length + 1])  # every character counts: what comes later is not shown
    ends = list(itertools.accumulate(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text))
    return text if not ends or ends[-1] <= length else text[: bisect.bisect_right(ends, length - 1)] + "…"
