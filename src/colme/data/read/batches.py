"""`BatchSource`: a table as batches of rows, of which only the columns that are needed are read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from colme.errors import missing_extra
from colme.support.columns import check_columns

try:
    import pyarrow as pyarrow
except ImportError:
    raise missing_extra("pyarrow", "data", "reading tables") from None

BATCH_ROWS = 1 << 19
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "#N/A")
"""Texts that stand for a missing value. In quotes they are text, except in columns of numbers."""

Batch = dict[Hashable, Any]
"""Column -> pyarrow.Array."""


class BatchSource(NamedTuple):
    """A table that can be read once, batch by batch.

    name     of the table, in messages
    columns  the names of all columns; None if each batch has its own
    batches  returns the batches, with the given columns only
    total    the number of rows in all, if known, given how many were read so far
    text     whether every column is text whose type has to be inferred (CSV)
    notes    what was done to find the table, one sentence each
    """

    name: str
    columns: list[Any] | None
    batches: Callable[[Sequence[Hashable]], Iterator[Batch]]
    total: Callable[[int], int | None]
    text: bool = False
    notes: tuple[str, ...] = ()

    def read(self, wanted: Sequence[Hashable]) -> Iterator[Batch]:
        """The batches with these columns, after checking that all of them exist."""
        if self.columns is not None:
            check_columns(wanted, self.columns, self.name)
        return self.batches(wanted)
