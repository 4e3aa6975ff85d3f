"""`open_source`: a table from wherever it is: a file, a data frame, a dict of arrays, or an iterator of these."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from colme.data.read import batches
from colme.data.read.arrow_columns import as_array
from colme.data.read.batches import Batch, BatchSource
from colme.data.read.batches import pyarrow as pa
from colme.data.read.files import check_unused, open_file
from colme.data.read.format import PLAIN, TableFormat
from colme.errors import DataError, shorten
from colme.support.columns import TABLE, check_lengths, open_table


def open_source(source: Any, form: TableFormat = PLAIN) -> BatchSource:
    """A file, a folder of Parquet files, "-" (CSV from stdin), a frame, a dict of arrays, or an iterator of these."""
    if isinstance(source, str | os.PathLike):
        return open_file(source, form)
    check_unused(form, TABLE, "encoding", "sheet")
    found = _open_in_memory(source)
    if found is not None:
        return found
    if not hasattr(source, "__iter__"):
        raise _not_a_table(source)
    return BatchSource(TABLE, None, lambda wanted: _chain(iter(source), wanted), lambda done: None)


def _open_in_memory(table: Any) -> BatchSource | None:
    """A table in memory; None if it is not one."""
    if isinstance(table, pa.Table | pa.RecordBatch):
        return _sliced(table.schema.names, lambda name: as_array(table.column(name)))
    if isinstance(table, pa.RecordBatchReader):
        return BatchSource(TABLE, table.schema.names, lambda wanted: _of_reader(table, wanted), lambda done: None)
    frame = open_table(table)
    if frame is not None:
        convert = _of_dict if isinstance(table, Mapping) else _of_series
        return _sliced(frame.names, lambda name: convert(frame.column(name), name))
    if hasattr(table, "__arrow_c_stream__"):
        try:
            return _open_in_memory(pa.RecordBatchReader.from_stream(table))
        except pa.ArrowException:  # a single column
            raise _not_a_table(table) from None
    return None


def _sliced(columns: list[Any], column: Callable[[Any], Any]) -> BatchSource:
    """Whole columns, cut into batches."""
    n_rows: int | None = None

    def read(wanted: Sequence[Hashable]) -> Iterator[Batch]:
        nonlocal n_rows
        whole = {name: column(name) for name in wanted}
        n_rows = check_lengths(whole)
        for k in range(0, n_rows, batches.BATCH_ROWS):
            yield {name: each.slice(k, batches.BATCH_ROWS) for name, each in whole.items()}

    return BatchSource(TABLE, columns, read, lambda done: n_rows)


def _of_reader(reader: Any, wanted: Sequence[Hashable]) -> Iterator[Batch]:
    for batch in reader:
        yield {name: batch.column(name) for name in wanted}


def _chain(tables: Iterator[Any], wanted: Sequence[Hashable]) -> Iterator[Batch]:
    for table in tables:
        found = None if isinstance(table, str) else _open_in_memory(table)
        if found is None:
            raise _not_a_table(table)
        yield from found.read(wanted)


def _of_series(series: Any, _: Hashable) -> Any:
    try:
        return as_array(series.to_arrow())
    except (pa.ArrowException, TypeError, ValueError):  # objects of several types
        return as_array(series.to_list())


def _of_dict(column: Any, name: Hashable) -> Any:
    if isinstance(column, str | bytes) or not hasattr(column, "__iter__") or getattr(column, "ndim", 1) != 1:
        raise DataError(
            f"column {name!r} is {shorten(column)}: it must be a list or a one-dimensional array. If the rows are "
            "dicts, make a data frame of them first."
        )
    return as_array(column)


def _not_a_table(thing: object) -> DataError:
    return DataError(
        f"{shorten(thing)} is not a table: it must be a file, a data frame, a dict of arrays or an iterator of these. "
        "Try a path to a CSV or Parquet file."
    )
