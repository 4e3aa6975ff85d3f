"""Tables from wherever they are, a batch of rows at a time, only the columns that are wanted.

A batch is a dict of Arrow arrays, one per column. Files of text give text for every column: what it means is decided
where it is needed (`colme.data._columns`), with the number of the row in hand.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import os
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from colme.errors import ColumnError, DataError, missing_extra, nearest, shorten

try:
    import pyarrow as pa
except ImportError:
    raise missing_extra("pyarrow", "data", "reading tables") from None

BATCH = 1 << 19
"""Rows at a time."""
BLOCK = 1 << 24
"""Bytes of text at a time."""
PARQUET, ARROW, TEXT = (".parquet", ".pq"), (".arrow", ".feather", ".ipc"), (".csv", ".tsv", ".tab", ".txt")
PACKED = (".gz", ".bz2", ".zst")
"""Endings that may follow those of text."""
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "#N/A")
"""Texts that stand for no value. In quotes they are text, except in columns of numbers."""

Batch = dict[Hashable, Any]
"""Column -> pyarrow.Array."""


class Source(NamedTuple):
    """Where a table comes from: its name in sentences, its batches, how many rows there are as far as that is known
    after so many of them, and whether it is all text."""

    name: str
    batches: Iterator[Batch]
    total: Callable[[int], int | None]
    text: bool = False


def open_source(source: Any, wanted: Sequence[Hashable]) -> Source:
    """A file, a folder of Parquet files, "-" (CSV from stdin), a frame, a dict of arrays, or an iterator of these."""
    if isinstance(source, str | os.PathLike):
        return _open_path(source, wanted)
    found = _one(source, wanted)
    if found is not None:
        n_rows, batches = found
        return Source("the table", batches, lambda done: n_rows)
    if not hasattr(source, "__iter__"):
        raise _no_table(source)
    return Source("the table", _each(iter(source), wanted), lambda done: None)


def columns_of(source: Any) -> list[str]:
    """The names of the columns."""
    names: list[str] = []
    with contextlib.suppress(_Seen):
        open_source(source, _Ask(names))
    return names


def check_columns(wanted: Sequence[Hashable], there: Sequence[Hashable], name: str) -> None:
    """Refuse a column that is not there, with the nearest name as the remedy."""
    if isinstance(wanted, _Ask):
        wanted.names[:] = map(str, there)
        raise _Seen
    for column in wanted:
        if there.count(column) == 1:
            continue
        if column in there:
            raise ColumnError(f"{name} has {there.count(column)} columns {column!r}: each must have a name of its own. "
                              "Rename all but one.")  # fmt: skip
        words = [repr(each) for each in there[:8]] + ([f"{len(there) - 8} more"] if len(there) > 8 else [])
        close = nearest(column, map(str, there))
        remedy = f"Did you mean {close!r}?" if close is not None else "Choose one of these."
        raise ColumnError(f"{name} has no column {column!r}: it has {', '.join(words) or 'none'}. {remedy}")


class _Seen(Exception):
    """The columns are known: nothing needs to be read."""


class _Ask(tuple[Hashable, ...]):
    """Wanted: only the names."""

    names: list[str]

    def __new__(cls, names: list[str]) -> _Ask:
        made = super().__new__(cls)
        made.names = names
        return made


# Things in memory


def _one(thing: Any, wanted: Sequence[Hashable]) -> tuple[int | None, Iterator[Batch]] | None:
    """The rows and batches of one table in memory; None if it is no table."""
    if isinstance(thing, Mapping):
        check_columns(wanted, list(thing), "the table")
        return _slices({name: as_array(thing[name]) for name in wanted})
    if isinstance(thing, pa.Table | pa.RecordBatch):
        check_columns(wanted, thing.schema.names, "the table")
        return _slices({name: as_array(thing.column(name)) for name in wanted})
    if isinstance(thing, pa.RecordBatchReader):
        check_columns(wanted, thing.schema.names, "the table")
        return None, ({name: batch.column(name) for name in wanted} for batch in thing)
    frame = _narwhal(thing)
    if frame is not None:
        check_columns(wanted, _names(frame), "the table")
        return _slices({name: _column(frame, name) for name in wanted})
    if hasattr(thing, "__arrow_c_stream__"):
        return _one(pa.RecordBatchReader.from_stream(thing), wanted)
    return None


def _narwhal(thing: Any) -> Any:
    """A frame of any library that narwhals knows."""
    try:
        import narwhals
    except ImportError:
        if type(thing).__module__.partition(".")[0] in ("pandas", "polars"):
            raise missing_extra("narwhals", "data", "reading frames") from None
        return None
    try:
        frame = narwhals.from_native(thing, pass_through=True)
    except ValueError:
        names = list(thing.columns)
        check_columns([name for name in names if names.count(name) > 1], names, "the table")
        raise
    if isinstance(frame, narwhals.LazyFrame):
        frame = frame.collect()
    return frame if isinstance(frame, narwhals.DataFrame) else None


def _names(frame: Any) -> list[Any]:
    return list(frame.columns)


def _column(frame: Any, name: Any) -> Any:
    series = frame.get_column(name)
    try:
        return as_array(series.to_arrow())
    except (pa.ArrowException, TypeError, ValueError):  # objects of several kinds
        return as_array(series.to_list())


def _slices(columns: Batch) -> tuple[int, Iterator[Batch]]:
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        words = ", ".join(f"{name!r} has {len(column)}" for name, column in columns.items())
        raise DataError(f"columns differ in length: {words}. Give one value per row and column.")
    (n_rows,) = lengths
    places = range(0, n_rows, BATCH)
    return n_rows, ({name: each.slice(k, BATCH) for name, each in columns.items()} for k in places)


def _each(things: Iterator[Any], wanted: Sequence[Hashable]) -> Iterator[Batch]:
    for thing in things:
        found = None if isinstance(thing, str) else _one(thing, wanted)
        if found is None:
            raise _no_table(thing)
        yield from found[1]


def _no_table(thing: object) -> DataError:
    return DataError(
        f"{shorten(thing)} is no table: it must be a file, a frame, a dict of arrays or an iterator of these. "
        "Try a path to a CSV or Parquet file."
    )


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


# Files


def _open_path(source: str | os.PathLike[str], wanted: Sequence[Hashable]) -> Source:
    if source == "-":
        return _open_text(io.BufferedReader(sys.stdin.buffer), "stdin", ".csv", wanted, lambda: None)
    path = Path(source)
    try:
        if path.is_dir():
            return _open_folder(path, wanted)
        ending = Path(path.stem).suffix.lower() if path.suffix.lower() in PACKED else path.suffix.lower()
        if ending not in (*PARQUET, *ARROW, *TEXT):
            known = " ".join((*TEXT, *PARQUET, *ARROW))
            raise DataError(f"{path.name} has an unknown ending: it must be one of {known} (text may also be packed: "
                            f"{' '.join(PACKED)}). Rename or convert it.")  # fmt: skip
        if path.stat().st_size == 0:
            raise DataError(f"{path.name} is empty: a table needs columns and rows. Check how it was written.")
        if ending in PARQUET:
            return _open_parquet(path, wanted)
        if ending in ARROW:
            return _open_arrow(path, wanted)
        stream = io.BufferedReader(pa.input_stream(str(path), compression="detect"), 1 << 20)
        size = None if path.suffix.lower() in PACKED else path.stat().st_size
        return _open_text(stream, path.name, ending, wanted, lambda: size)
    except FileNotFoundError:
        folder = path.parent
        close = nearest(path.name, [each.name for each in folder.iterdir()]) if folder.is_dir() else None
        remedy = f"Did you mean {close!r}?" if close else "Check the path."
        raise DataError(f"there is no file {str(path)!r}. {remedy}") from None
    except (OSError, pa.ArrowException) as error:
        raise _torn(path.name, error) from None


def _open_parquet(path: Path, wanted: Sequence[Hashable]) -> Source:
    from pyarrow.parquet import ParquetFile

    file = ParquetFile(path, memory_map=True)
    check_columns(wanted, file.schema_arrow.names, path.name)
    batches = file.iter_batches(BATCH, columns=list(wanted))
    return Source(path.name, _guarded(batches, wanted, path.name), lambda done: file.metadata.num_rows)


def _open_folder(path: Path, wanted: Sequence[Hashable]) -> Source:
    from pyarrow import dataset

    files = sorted(str(each) for ending in PARQUET for each in path.rglob(f"*{ending}"))
    if not files:
        raise DataError(f"the folder {path.name} holds no Parquet file: a folder must. Name the file in it.")
    data = dataset.dataset(files, format="parquet", partitioning="hive", partition_base_dir=str(path))
    check_columns(wanted, data.schema.names, path.name)
    batches = data.to_batches(columns=list(wanted), batch_size=BATCH)
    n_rows = data.count_rows()
    return Source(path.name, _guarded(batches, wanted, path.name), lambda done: n_rows)


def _open_arrow(path: Path, wanted: Sequence[Hashable]) -> Source:
    content = pa.memory_map(str(path))
    try:
        file = pa.ipc.open_file(content)
        batches: Any = (file.get_batch(k) for k in range(file.num_record_batches))
    except pa.ArrowInvalid:
        content.seek(0)
        file = batches = pa.ipc.open_stream(content)
    check_columns(wanted, file.schema.names, path.name)
    return Source(path.name, _guarded(batches, wanted, path.name), lambda done: None)


def _guarded(batches: Iterator[Any], wanted: Sequence[Hashable], name: str) -> Iterator[Batch]:
    """Arrow's many complaints about a file that is not whole, as one."""
    try:
        for batch in batches:
            yield {column: batch.column(column) for column in wanted}
    except (OSError, pa.ArrowException) as error:
        raise _torn(name, error) from None


def _open_text(
    stream: Any, name: str, ending: str, wanted: Sequence[Hashable], size: Callable[[], int | None]
) -> Source:
    header, separator = _header(stream, name, ending)
    check_columns(wanted, header, name)
    numbered = [f"{k}" for k in range(len(header))]  # the names of columns that nobody wants may be the same
    places = {column: numbered[header.index(str(column))] for column in wanted}

    def total(done: int) -> int | None:
        n_bytes = size()
        read = stream.tell() if n_bytes else 0
        return max(done, round(done * n_bytes / read)) if n_bytes and read else None

    return Source(name, _text_batches(stream, name, numbered, places, separator), total, text=True)


def _header(stream: Any, name: str, ending: str) -> tuple[list[str], str]:
    """The names in the first line, and what separates them; lines go on while a quote is open."""
    text = ""
    for line in itertools.takewhile(bool, iter(stream.readline, b"")):
        try:
            text += line.decode("utf-8-sig" if not text else "utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{name} is not text in UTF-8: a table of text must be. Save it as UTF-8.") from None
        if text.strip() and text.count('"') % 2 == 0:
            break
    if not text.strip():
        raise DataError(f"{name} is empty: a table needs columns and rows. Check how it was written.")
    counts = {each: text.count(each) for each in ("\t", ",", ";", "|")}
    separator = "\t" if ending in (".tsv", ".tab") else max(counts, key=lambda each: counts[each])
    if not counts[separator]:
        separator = ","
    return [each.strip() for each in next(csv.reader(io.StringIO(text.strip("\r\n")), delimiter=separator))], separator


def _text_batches(
    stream: Any, name: str, header: list[str], places: Mapping[Hashable, str], separator: str
) -> Iterator[Batch]:
    from pyarrow import csv as arrow_csv

    columns = list(dict.fromkeys(places.values()))
    bad: list[Any] = []

    def refuse(row: Any) -> str:
        bad.append(row)
        return "error"

    try:
        reader = arrow_csv.open_csv(
            stream,
            arrow_csv.ReadOptions(column_names=header, block_size=BLOCK, use_threads=False),
            arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=refuse),
            arrow_csv.ConvertOptions(
                include_columns=columns, column_types=dict.fromkeys(columns, pa.string()), null_values=MISSING,
                strings_can_be_null=True, quoted_strings_can_be_null=False,
            ),
        )  # fmt: skip
        for batch in reader:
            yield {column: batch.column(place) for column, place in places.items()}
    except (OSError, pa.ArrowException) as error:
        if bad:
            got, rule = bad[0].actual_columns, bad[0].expected_columns
            raise DataError(
                f"row {bad[0].number:,} of {name} has {got} cells, {shorten(bad[0].text)}: it must have {rule}, as the "
                "header. Repair it, or put text in quotes."
            ) from None
        if "Empty CSV" in str(error):
            return
        if "UTF8" in str(error):
            raise DataError(f"{name} is not text in UTF-8: a table of text must be. Save it as UTF-8.") from None
        raise _torn(name, error) from None


def _torn(name: str, error: Exception) -> DataError:
    return DataError(f"{name} cannot be read, perhaps it is cut short: {_reason(error)}. Check how it was written.")


def _reason(error: Exception) -> str:
    """What a library said, fit for the middle of a sentence."""
    words = getattr(error, "strerror", None) or str(error)
    return shorten(words.splitlines()[0].split(". ")[0].rstrip(".")).strip("'\"")
