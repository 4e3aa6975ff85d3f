"""`open_file`: a table in a file (CSV, TSV, Parquet, Arrow), read batch by batch.

Text files give text for every column. Cells become numbers, labels or times where they are needed
(`colme.data.read.arrow_columns`, `colme.data.read.times`), so that an error can name the row."""

from __future__ import annotations

import csv
import io
import itertools
import os
import sys
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

from colme.data.read import batches
from colme.data.read.batches import MISSING, Batch, BatchSource
from colme.data.read.batches import pyarrow as pa
from colme.errors import DataError, nearest, shorten

BLOCK = 1 << 24
"""Bytes of text read at a time."""
PARQUET, ARROW, TEXT = (".parquet", ".pq"), (".arrow", ".feather", ".ipc"), (".csv", ".tsv", ".tab", ".txt")
COMPRESSED = (".gz", ".bz2", ".zst")
"""Compression suffixes, allowed after those of text files."""
SEPARATORS = (",", ";", "\t", "|")


def open_file(source: str | os.PathLike[str]) -> BatchSource:
    """A file by its ending, a folder of Parquet files, or "-", which is CSV from stdin."""
    if source == "-":
        return _open_text(sys.stdin.buffer, "stdin", ".csv", None)
    path = Path(source)
    try:
        if not str(source):
            raise FileNotFoundError
        if path.is_dir():
            return _open_folder(path)
        last = path.suffix.lower()
        ending = Path(path.stem).suffix.lower() if last in COMPRESSED else last
        if ending not in (*PARQUET, *ARROW, *TEXT) or (last in COMPRESSED and ending not in TEXT):
            known = " ".join((*TEXT, *PARQUET, *ARROW))
            raise DataError(
                f"{path.name} has an unknown ending: it must be one of {known} (text may be compressed: "
                f"{' '.join(COMPRESSED)}). Rename or convert it."
            )
        size = path.stat().st_size
        if size == 0:
            raise _empty(path.name)
        if ending in PARQUET:
            return _open_parquet(path)
        if ending in ARROW:
            return _open_arrow(path)
        stream = io.BufferedReader(pa.input_stream(str(path), compression="detect"), 1 << 20)
        return _open_text(stream, path.name, ending, None if last in COMPRESSED else size)
    except FileNotFoundError:
        folder = path.parent
        close = nearest(path.name, [each.name for each in folder.iterdir()]) if folder.is_dir() else None
        remedy = f"Did you mean {close!r}?" if close else "Check the path."
        raise DataError(f"there is no file {str(source)!r}. {remedy}") from None
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path.name, error) from None


def _open_parquet(path: Path) -> BatchSource:
    from pyarrow.parquet import ParquetFile

    file = ParquetFile(path, memory_map=True, page_checksum_verification=True)

    def read(wanted: Sequence[Hashable]) -> Iterator[Batch]:
        return _guarded(file.iter_batches(batches.BATCH_ROWS, columns=list(wanted)), wanted, path.name)

    return BatchSource(path.name, file.schema_arrow.names, read, lambda done: file.metadata.num_rows)


def _open_folder(path: Path) -> BatchSource:
    from pyarrow import dataset

    folder = path.name or path.resolve().name or str(path)  # "." has no name of its own
    files = sorted(str(each) for ending in PARQUET for each in path.rglob(f"*{ending}"))
    if not files:
        raise DataError(f"the folder {folder} contains no Parquet file: it must contain some. Name a file instead.")
    data = dataset.dataset(files, format="parquet", partitioning="hive", partition_base_dir=str(path))
    n_rows = data.count_rows()

    def read(wanted: Sequence[Hashable]) -> Iterator[Batch]:
        return _guarded(data.to_batches(columns=list(wanted), batch_size=batches.BATCH_ROWS), wanted, folder)

    return BatchSource(folder, data.schema.names, read, lambda done: n_rows)


def _open_arrow(path: Path) -> BatchSource:
    content = pa.memory_map(str(path))
    try:
        file = pa.ipc.open_file(content)
        pieces: Any = (file.get_batch(k) for k in range(file.num_record_batches))
    except pa.ArrowInvalid:  # the other of Arrow's two formats
        content.seek(0)
        file = pieces = pa.ipc.open_stream(content)
    return BatchSource(
        path.name, file.schema.names, lambda wanted: _guarded(pieces, wanted, path.name), lambda done: None
    )


def _guarded(pieces: Iterator[Any], wanted: Sequence[Hashable], name: str) -> Iterator[Batch]:
    """The wanted columns of each batch; Arrow's errors about a damaged file become one sentence."""
    try:
        for batch in pieces:
            yield {column: batch.column(column) for column in wanted}
    except (OSError, pa.ArrowException) as error:
        raise _damaged(name, error) from None


def _open_text(stream: Any, name: str, ending: str, size: int | None) -> BatchSource:
    """`size`: the bytes of the file, if known."""
    header, separator = _header(stream, name, ending)

    def total(done: int) -> int | None:
        place = stream.tell() if size else 0
        return max(done, round(done * size / place)) if size and place else None

    return BatchSource(
        name, header, lambda wanted: _text_batches(stream, name, header, separator, wanted), total, text=True
    )


def _header(stream: Any, name: str, ending: str) -> tuple[list[str], str]:
    """The column names in the first line, and the separator; a quoted name may span several lines."""
    text = ""
    for line in itertools.takewhile(bool, iter(stream.readline, b"")):
        try:
            text += line.decode("utf-8-sig" if not text else "utf-8")
        except UnicodeDecodeError:
            raise _not_utf8(name) from None
        if text.strip() and text.count('"') % 2 == 0:
            break
    if not text.strip():
        raise _empty(name)
    separator = "\t" if ending in (".tsv", ".tab") else max(SEPARATORS, key=text.count)
    try:
        names = next(csv.reader(io.StringIO(text.strip("\r\n")), delimiter=separator))
    except csv.Error as error:
        raise DataError(f"the first line of {name} is not a header: {_reason(error)}. Save it with line feeds at "
                        "the ends of lines.") from None  # fmt: skip
    return [each.strip() for each in names], separator


def _text_batches(
    stream: Any, name: str, header: list[str], separator: str, wanted: Sequence[Hashable]
) -> Iterator[Batch]:
    from pyarrow import csv as arrow_csv

    numbered = [f"{k}" for k in range(len(header))]  # columns that are not read may share a name
    places = {column: numbered[header.index(str(column))] for column in wanted}
    columns = list(places.values())
    bad: list[Any] = []

    def refuse(row: Any) -> str:
        bad.append(row)
        return "error"

    try:
        reader = arrow_csv.open_csv(
            stream,
            arrow_csv.ReadOptions(column_names=numbered, block_size=BLOCK, use_threads=False),
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
                f"row {bad[0].number:,} of {name} has {got} cells, {shorten(bad[0].text)}: it must have {rule}, like "
                "the header. Correct it, or put text in quotes."
            ) from None
        if "Empty CSV" in str(error):
            return
        if "UTF8" in str(error):
            raise _not_utf8(name) from None
        raise _damaged(name, error) from None


def _empty(name: str) -> DataError:
    return DataError(f"{name} is empty: a table needs columns and rows. Write it again.")


def _not_utf8(name: str) -> DataError:
    return DataError(f"{name} is not valid UTF-8: text files must be. Save it as UTF-8.")


def _damaged(name: str, error: Exception) -> DataError:
    return DataError(f"{name} cannot be read; it may be truncated: {_reason(error)}. Write it again.")


def _reason(error: Exception) -> str:
    """The reason that a library gives, fit for the middle of a sentence."""
    words = getattr(error, "strerror", None) or str(error)
    return shorten(words.splitlines()[0].split(". ")[0].rstrip(".")).strip("'\"")
