"""A table as it comes: batches of rows, of which only some columns are read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from colme.errors import ColumnError, missing_extra, nearest

try:
    import pyarrow as pyarrow
except ImportError:
    raise missing_extra("pyarrow", "data", "reading tables") from None

BATCH = 1 << 19
"""Rows at a time."""
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "#N/A")
"""Texts that stand for no value. In quotes they are text, except in columns of numbers."""

Batch = dict[Hashable, Any]
"""Column -> pyarrow.Array."""


class Source(NamedTuple):
    """Where a table comes from.

    name     in sentences
    columns  all there are; None if every batch must be asked
    batches  those of the wanted columns
    total    rows in all, as far as that is known after so many of them
    text     whether every column is text, of which the meaning has to be found
    """

    name: str
    columns: list[Any] | None
    batches: Callable[[Sequence[Hashable]], Iterator[Batch]]
    total: Callable[[int], int | None]
    text: bool = False

    def read(self, wanted: Sequence[Hashable]) -> Iterator[Batch]:
        """The batches, if all that is wanted is there."""
        if self.columns is not None:
            check_columns(wanted, self.columns, self.name)
        return self.batches(wanted)


def check_columns(wanted: Sequence[Hashable], there: Sequence[Hashable], name: str) -> None:
    """Refuse a column that is not there, with the nearest name as the remedy."""
    for column in wanted:
        if there.count(column) == 1:
            continue
        if column in there:
            raise ColumnError(f"{name} has {there.count(column)} columns {column!r}: each must have a name of its own. "
                              "Rename all but one.")  # fmt: skip
        words = [repr(each) for each in there[:8]] + ([f"{len(there) - 8} more"] if len(there) > 8 else [])
        names = {str(each): each for each in there}
        close = nearest(column, names)
        remedy = f"Did you mean {names[close]!r}?" if close is not None else "Choose one of these."
        raise ColumnError(f"{name} has no column {column!r}: it has {', '.join(words) or 'none'}. {remedy}")
