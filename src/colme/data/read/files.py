"""Tables in files, read a piece at a time. Files of text give text for every column: what it means is decided where it
is needed (`colme.data.read.columns`), with the number of the row in hand."""

from __future__ import annotations

import csv
import io
import itertools
import os
import sys
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

from colme.data.read import batches as table_batches
from colme.data.read.batches import MISSING, Batch, Source
from colme.data.read.batches import pyarrow as pa
from colme.errors import DataError, nearest, shorten

BLOCK = 1 << 24
"""Bytes of text at a time."""
PARQUET, ARROW, TEXT = (".parquet", ".pq"), (".arrow", ".feather", ".ipc"), (".csv", ".tsv", ".tab", ".txt")
PACKED = (".gz", ".bz2", ".zst")
"""Endings that may follow those of text."""
SEPARATORS = (",", ";", "\t", "|")


def open_file(source: str | os.PathLike[str]) -> Source:
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
        ending = Path(path.stem).suffix.lower() if last in PACKED else last
        if ending not in (*PARQUET, *ARROW, *TEXT) or (last in PACKED and ending not in TEXT):
            known = " ".join((*TEXT, *PARQUET, *ARROW))
            raise DataError(
                f"{path.name} has an unknown ending: it must be one of {known} (text may also be packed: "
                f"{' '.join(PACKED)}). Rename or convert it."
            )
        size = path.stat().st_size
        if size == 0:
            raise _empty(path.name)
        if ending in PARQUET:
            return _open_parquet(path)
        if ending in ARROW:
            return _open_arrow(path)
        stream = io.BufferedReader(pa.input_stream(str(path), compression="detect"), 1 << 20)
        return _open_text(stream, path.name, ending, None if last in PACKED else size)
    except FileNotFoundError:
        folder = path.parent
        close = nearest(path.name, [each.name for each in folder.iterdir()]) if folder.is_dir() else None
        remedy = f"Did you mean {close!r}?" if close else "Check the path."
        raise DataError(f"there is no file {str(source)!r}. {remedy}") from None
    except (OSError, pa.ArrowException) as error:
        raise _torn(path.name, error) from None


def _open_parquet(path: Path) -> Source:
    from pyarrow.parquet import ParquetFile

    file = ParquetFile(path, memory_map=True, page_checksum_verification=True)

    def batches(wanted: Sequence[Hashable]) -> Iterator[Batch]:
        return _guarded(file.iter_batches(table_batches.BATCH, columns=list(wanted)), wanted, path.name)

    return Source(path.name, file.schema_arrow.names, batches, lambda done: file.metadata.num_rows)


def _open_folder(path: Path) -> Source:
    from pyarrow import dataset

    files = sorted(str(each) for ending in PARQUET for each in path.rglob(f"*{ending}"))
    if not files:
        raise DataError(f"the folder {path.name} holds no Parquet file: a folder must. Name the file in it.")
    data = dataset.dataset(files, format="parquet", partitioning="hive", partition_base_dir=str(path))
    n_rows = data.count_rows()

    def batches(wanted: Sequence[Hashable]) -> Iterator[Batch]:
        return _guarded(data.to_batches(columns=list(wanted), batch_size=table_batches.BATCH), wanted, path.name)

    return Source(path.name, data.schema.names, batches, lambda done: n_rows)


def _open_arrow(path: Path) -> Source:
    content = pa.memory_map(str(path))
    try:
        file = pa.ipc.open_file(content)
        pieces: Any = (file.get_batch(k) for k in range(file.num_record_batches))
    except pa.ArrowInvalid:  # the other of Arrow's two formats
        content.seek(0)
        file = pieces = pa.ipc.open_stream(content)
    return Source(path.name, file.schema.names, lambda wanted: _guarded(pieces, wanted, path.name), lambda done: None)


def _guarded(batches: Iterator[Any], wanted: Sequence[Hashable], name: str) -> Iterator[Batch]:
    """Arrow's many complaints about a file that is not whole, as one."""
    try:
        for batch in batches:
            yield {column: batch.column(column) for column in wanted}
    except (OSError, pa.ArrowException) as error:
        raise _torn(name, error) from None


def _open_text(stream: Any, name: str, ending: str, size: int | None) -> Source:
    """`size`: bytes in all, if that is known."""
    header, separator = _header(stream, name, ending)

    def total(done: int) -> int | None:
        read = stream.tell() if size else 0
        return max(done, round(done * size / read)) if size and read else None

    return Source(name, header, lambda wanted: _text_batches(stream, name, header, separator, wanted), total, text=True)


def _header(stream: Any, name: str, ending: str) -> tuple[list[str], str]:
    """The names in the first line, and what separates them; lines go on while a quote is open."""
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
        rule = "names no columns, each line must end in a line feed"
        raise DataError(f"the first line of {name} {rule}: {_reason(error)}. Save it anew.") from None
    return [each.strip() for each in names], separator


def _text_batches(
    stream: Any, name: str, header: list[str], separator: str, wanted: Sequence[Hashable]
) -> Iterator[Batch]:
    from pyarrow import csv as arrow_csv

    numbered = [f"{k}" for k in range(len(header))]  # the names of columns that nobody wants may be the same
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
                f"row {bad[0].number:,} of {name} has {got} cells, {shorten(bad[0].text)}: it must have {rule}, as the "
                "header. Repair it, or put text in quotes."
            ) from None
        if "Empty CSV" in str(error):
            return
        if "UTF8" in str(error):
            raise _not_utf8(name) from None
        raise _torn(name, error) from None


def _empty(name: str) -> DataError:
    return DataError(f"{name} is empty: a table needs columns and rows. Check how it was written.")


def _not_utf8(name: str) -> DataError:
    return DataError(f"{name} is not text in UTF-8: a table of text must be. Save it as UTF-8.")


def _torn(name: str, error: Exception) -> DataError:
    return DataError(f"{name} cannot be read, perhaps it is cut short: {_reason(error)}. Check how it was written.")


def _reason(error: Exception) -> str:
    """What a library said, fit for the middle of a sentence."""
    words = getattr(error, "strerror", None) or str(error)
    return shorten(words.splitlines()[0].split(". ")[0].rstrip(".")).strip("'\"")
