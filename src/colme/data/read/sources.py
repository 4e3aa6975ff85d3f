"""Tables from wherever they are: files, frames of any library, dicts of arrays, iterators of all these."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from colme.data.read import batches as table_batches
from colme.data.read.batches import Batch, Source, check_columns
from colme.data.read.batches import pyarrow as pa
from colme.data.read.files import open_file
from colme.errors import DataError, missing_extra, shorten

NAME = "the table"
"""What has no name of its own."""


def open_source(source: Any) -> Source:
    """A file, a folder of Parquet files, "-" (CSV from stdin), a frame, a dict of arrays, or an iterator of these."""
    if isinstance(source, str | os.PathLike):
        return open_file(source)
    found = _open_one(source)
    if found is not None:
        return found
    if not hasattr(source, "__iter__"):
        raise _no_table(source)
    return Source(NAME, None, lambda wanted: _each(iter(source), wanted), lambda done: None)


def _open_one(thing: Any) -> Source | None:
    """One table in memory; None if it is none."""
    if isinstance(thing, Mapping):
        return _in_memory(list(thing), lambda name: as_array(_listed(thing[name], name)))
    if isinstance(thing, pa.Table | pa.RecordBatch):
        return _in_memory(thing.schema.names, lambda name: as_array(thing.column(name)))
    if isinstance(thing, pa.RecordBatchReader):
        return Source(NAME, thing.schema.names, lambda wanted: _of_reader(thing, wanted), lambda done: None)
    frame = _narwhal(thing)
    if frame is not None:
        return _in_memory(list(frame.columns), lambda name: _column(frame, name))
    if hasattr(thing, "__arrow_c_stream__"):
        try:
            return _open_one(pa.RecordBatchReader.from_stream(thing))
        except pa.ArrowException:  # one column
            raise _no_table(thing) from None
    return None


def _in_memory(columns: list[Any], column: Callable[[Any], Any]) -> Source:
    n_rows: int | None = None

    def batches(wanted: Sequence[Hashable]) -> Iterator[Batch]:
        nonlocal n_rows
        whole = {name: column(name) for name in wanted}
        lengths = {len(each) for each in whole.values()}
        if len(lengths) != 1:
            words = ", ".join(f"{name!r} has {len(each)}" for name, each in whole.items())
            raise DataError(f"columns differ in length: {words}. Give one value per row and column.")
        (n_rows,) = lengths
        for k in range(0, n_rows, table_batches.BATCH):
            yield {name: each.slice(k, table_batches.BATCH) for name, each in whole.items()}

    return Source(NAME, columns, batches, lambda done: n_rows)


def _of_reader(reader: Any, wanted: Sequence[Hashable]) -> Iterator[Batch]:
    for batch in reader:
        yield {name: batch.column(name) for name in wanted}


def _each(things: Iterator[Any], wanted: Sequence[Hashable]) -> Iterator[Batch]:
    for thing in things:
        found = None if isinstance(thing, str) else _open_one(thing)
        if found is None:
            raise _no_table(thing)
        yield from found.read(wanted)


def _narwhal(thing: Any) -> Any:
    """A frame of any library that narwhals knows, or None."""
    try:
        import narwhals
    except ImportError:
        if type(thing).__module__.partition(".")[0] in ("pandas", "polars"):
            raise missing_extra("narwhals", "data", "reading frames") from None
        return None
    try:
        frame = narwhals.from_native(thing, pass_through=True)
    except ValueError:  # pandas allows two columns of a name, narwhals does not
        names = list(thing.columns)
        check_columns([name for name in names if names.count(name) > 1], names, NAME)
        raise
    if isinstance(frame, narwhals.LazyFrame):
        frame = frame.collect()
    return frame if isinstance(frame, narwhals.DataFrame) else None


def _column(frame: Any, name: Any) -> Any:
    series = frame.get_column(name)
    try:
        return as_array(series.to_arrow())
    except (pa.ArrowException, TypeError, ValueError):  # objects of several kinds
        return as_array(series.to_list())


def _listed(column: Any, name: Hashable) -> Any:
    """A column of a dict, or a refusal."""
    if isinstance(column, str | bytes) or not hasattr(column, "__iter__") or getattr(column, "ndim", 1) != 1:
        raise DataError(
            f"column {name!r} is {shorten(column)}: it must be a list or an array of one dimension. Of rows that are "
            "dicts, make a frame first."
        )
    return column


def as_array(column: Any) -> Any:
    """One Arrow array; values of several kinds become text."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    if isinstance(column, pa.Array):
        return column
    try:
        made = pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):
        made = pa.array([None if each is None or each != each else str(each) for each in column], pa.string())
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def _no_table(thing: object) -> DataError:
    return DataError(
        f"{shorten(thing)} is no table: it must be a file, a frame, a dict of arrays or an iterator of these. "
        "Try a path to a CSV or Parquet file."
    )
