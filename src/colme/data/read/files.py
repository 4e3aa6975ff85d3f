"""`open_file`: a table in a file (CSV, TSV, Parquet, Arrow; JSON lines, spreadsheets), read batch by batch.

CSV gives text for every column. Cells become numbers, labels or times where they are needed
(`colme.data.read.numbers`, `arrow_columns`, `times`), so that an error can name the row."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import sys
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from colme.data.read import batches
from colme.data.read.batches import MISSING, Batch, BatchSource
from colme.data.read.batches import pyarrow as pa
from colme.data.read.file_errors import damaged, empty, reason
from colme.data.read.format import PLAIN, TableFormat
from colme.data.read.json_lines import open_json_lines
from colme.data.read.sheets import open_sheet
from colme.data.read.text_stream import TextStream
from colme.errors import DataError, nearest, shorten

BLOCK = 1 << 24
"""Bytes of text read at a time."""
LONGEST_HEADER = 1 << 22
"""Bytes of the longest header: compressed, a line of gigabytes takes a megabyte."""
MOST_HEADER_LINES = 10_000
BUFFER = 1 << 20
"""Bytes of a column of a Parquet file read at a time."""
PARQUET, ARROW, SHEETS = (".parquet", ".pq"), (".arrow", ".feather", ".ipc"), (".xlsx", ".xlsm", ".ods")
TEXT, JSON_LINES = (".csv", ".tsv", ".tab", ".txt"), (".jsonl", ".ndjson")
COMPRESSED = (".gz", ".bz2", ".zst")
"""Compression suffixes, allowed after those of text files."""
BLANK = b" \t\r\n\v\f" + codecs.BOM_UTF8
SEPARATORS = (",", ";", "\t", "|")
CONTENTS = {
    b"PAR1": ("a Parquet file", PARQUET, ".parquet"),
    b"ARROW1": ("an Arrow file", ARROW, ".arrow"),
    b"PK\3\4": ("a spreadsheet or another archive", SHEETS, ".xlsx"),
    b"\xd0\xcf\x11\xe0": ("an old spreadsheet, or one with a password", (), ".xlsx"),
    b"\x1f\x8b": ("compressed", (".gz",), ".csv.gz"),
    b"BZh": ("compressed", (".bz2",), ".csv.bz2"),
    b"\x28\xb5\x2f\xfd": ("compressed", (".zst",), ".csv.zst"),
}
"""The first bytes of a file -> (what it is, the endings that fit, the one to suggest)."""


def open_file(source: str | os.PathLike[str], form: TableFormat = PLAIN) -> BatchSource:
    """A file by its ending, a folder of Parquet files, or "-", which is CSV from stdin."""
    if source == "-":
        check_unused(form, "stdin", "sheet")
        return _open_csv(TextStream(sys.stdin.buffer, "stdin", encoding=form.encoding), ".csv", form)
    path = Path(source)
    try:
        if not str(source):
            raise FileNotFoundError
        if path.is_dir():
            check_unused(form, path.name, "encoding", "sheet")
            return _open_folder(path)
        last = path.suffix.lower()
        ending = Path(path.stem).suffix.lower() if last in COMPRESSED else last
        if ending not in (*PARQUET, *ARROW, *SHEETS, *TEXT, *JSON_LINES) or (
            last in COMPRESSED and ending not in (*TEXT, *JSON_LINES)
        ):
            known = " ".join((*TEXT, *JSON_LINES, *PARQUET, *ARROW, *SHEETS))
            raise DataError(
                f"{path.name} has an unknown ending: it must be one of {known} (text may be compressed: "
                f"{' '.join(COMPRESSED)}). Rename or convert it."
            )
        size = path.stat().st_size
        if size == 0:
            raise empty(path.name)
        _check_content(path, last)
        check_unused(form, path.name, *(["encoding"] if ending not in (*TEXT, *JSON_LINES) else []),
                     *(["sheet"] if ending not in SHEETS else []))  # fmt: skip
        if ending in PARQUET:
            return _open_parquet(path)
        if ending in ARROW:
            return _open_arrow(path)
        if ending in SHEETS:
            return open_sheet(path, form)

        def reopen() -> Any:
            return pa.input_stream(str(path), compression="detect")

        text = TextStream(reopen(), path.name, encoding=form.encoding, size=None if last in COMPRESSED else size,
                          reopen=reopen)  # fmt: skip
        return open_json_lines(text) if ending in JSON_LINES else _open_csv(text, ending, form)
    except FileNotFoundError:
        folder = path.parent
        close = nearest(path.name, [each.name for each in folder.iterdir()]) if folder.is_dir() else None
        remedy = f"Did you mean {close!r}?" if close else "Check the path."
        raise DataError(f"there is no file {str(source)!r}. {remedy}") from None
    except (OSError, pa.ArrowException) as error:
        raise damaged(path.name, error) from None


def check_unused(form: TableFormat, name: str, *fields: str) -> None:
    """Refuse fields of the format that have no meaning for this kind of table."""
    meant = {"encoding": "text files", "sheet": "spreadsheets"}
    for field in fields:
        value = getattr(form, field)
        if value is not None:
            raise DataError(f"{field}={shorten(value)} for {name}: it is only for {meant[field]}. Leave it out.")


def _check_content(path: Path, last: str) -> None:
    """Refuse a file whose first bytes say that it is of another kind than its last ending says."""
    with path.open("rb") as file:
        head = file.read(64)
    text = _is_text(head)
    found = next((each for start, each in CONTENTS.items() if not text and head.startswith(start)), None)
    if text and any(last in endings for _, endings, _ in CONTENTS.values()):
        found = ("text", (), ".csv")
    if found is not None and last not in found[1]:
        raise DataError(f"{path.name} is {found[0]}, not what its ending says: the two must agree. Rename it, or save "
                        f"it, to end in {found[2]}.")  # fmt: skip


def _is_text(head: bytes) -> bool:
    """Whether bytes are UTF-8 without control characters; the last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return not any(byte < 9 or 13 < byte < 32 for byte in head)


def _open_parquet(path: Path) -> BatchSource:
    from pyarrow.parquet import ParquetFile

    # a memory map, or reading whole column chunks, would count as memory of this process: up to the size of the file
    file = ParquetFile(path, buffer_size=BUFFER, pre_buffer=False, page_checksum_verification=True)

    def read(wanted: Sequence[Hashable]) -> Iterator[Batch]:
        pieces = file.iter_batches(batches.BATCH_ROWS, columns=list(wanted))
        several = file.metadata.num_rows > batches.BATCH_ROWS
        return _guarded(_read_ahead(pieces) if several else pieces, wanted, path.name)

    return BatchSource(path.name, file.schema_arrow.names, read, lambda done: file.metadata.num_rows)


def _open_folder(path: Path) -> BatchSource:
    from pyarrow import dataset

    folder = path.name or path.resolve().name or str(path)  # "." has no name of its own
    files = sorted(str(each) for ending in PARQUET for each in path.rglob(f"*{ending}"))
    if not files:
        raise DataError(f"the folder {folder} contains no Parquet file: it must contain some. Name a file instead.")
    data = dataset.dataset(files, format="parquet", partitioning="hive", partition_base_dir=str(path))
    n_rows = data.count_rows()
    buffered = dataset.ParquetFragmentScanOptions(use_buffered_stream=True, buffer_size=BUFFER, pre_buffer=False)

    def read(wanted: Sequence[Hashable]) -> Iterator[Batch]:
        pieces = data.to_batches(
            columns=list(wanted), batch_size=batches.BATCH_ROWS, batch_readahead=2, fragment_readahead=1,
            fragment_scan_options=buffered,
        )  # fmt: skip
        return _guarded(pieces, wanted, folder)

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


def _read_ahead(pieces: Iterator[Any]) -> Iterator[Any]:
    """The same batches; while one is worked on, a thread reads the next."""
    with ThreadPoolExecutor(1, "colme-read") as thread:
        coming = thread.submit(next, pieces, None)
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, pieces, None)
            yield batch


def _guarded(pieces: Iterator[Any], wanted: Sequence[Hashable], name: str) -> Iterator[Batch]:
    """The wanted columns of each batch; Arrow's errors about a damaged file become one sentence."""
    try:
        for batch in pieces:
            yield {column: batch.column(column) for column in wanted}
    except (OSError, pa.ArrowException) as error:
        raise damaged(name, error) from None


def _open_csv(text: TextStream, ending: str, form: TableFormat) -> BatchSource:
    header, separator, size = _header(text, ending, form)
    return BatchSource(
        text.name, header, lambda wanted: _csv_batches(text, size, header, separator, wanted), text.total, text=True
    )


def _header(text: TextStream, ending: str, form: TableFormat) -> tuple[list[str], str, int]:
    """The column names in the first row, the separator, and the bytes up to the next row."""
    try:
        row = _first_row(text)
        first = row.decode("utf-8-sig")
    except UnicodeError:
        raise text.not_decoded() from None
    if "\0" in first:
        raise text.not_decoded()
    if not first.strip():
        raise empty(text.name)
    separator = "\t" if ending in (".tsv", ".tab") else _separator(first, text.name, form)
    try:
        names = next(csv.reader(io.StringIO(first.strip("\r\n")), delimiter=separator))
    except csv.Error as error:
        raise DataError(f"the first line of {text.name} is not a header: {reason(error)}. Save it with line feeds at "
                        "the ends of lines.") from None  # fmt: skip
    return [each.strip() for each in names], separator, len(row)


def _first_row(text: TextStream) -> bytes:
    """The first line that is not empty, with the lines after it that a quoted name spans."""
    lines: list[bytes] = []
    room, quotes, blank = LONGEST_HEADER, 0, True
    while line := text.stream.readline(room + 1):
        lines.append(line)
        room, quotes, blank = room - len(line), quotes + line.count(b'"'), blank and not line.strip(BLANK)
        if room < 0 or len(lines) > MOST_HEADER_LINES:
            raise DataError(f"the first row of {text.name} has more than {LONGEST_HEADER >> 20} MB or "
                            f"{MOST_HEADER_LINES:,} lines: it must be a header. Check for a quotation mark that is not "
                            "closed, and for line feeds.")  # fmt: skip
        if not blank and quotes % 2 == 0:
            break
    return b"".join(lines)


def _separator(header: str, name: str, form: TableFormat) -> str:
    """The most frequent separator outside quotes; a sign in numbers cannot be it, for 1,5 would be two cells."""
    bare = re.sub('"[^"]*"', "", header)
    signs = {"decimal": form.decimal, "thousands": form.thousands}
    found = max(SEPARATORS, key=lambda each: (each in bare and each not in signs.values(), bare.count(each)))
    for option, sign in signs.items():
        if sign == found and found in bare:
            raise DataError(f"{option}={sign!r} separates the columns of {name}, too: the two must differ. Save it "
                            "with semicolons or tabs between columns, or leave the option out.")  # fmt: skip
    return found


def _csv_batches(
    text: TextStream, start: int, header: list[str], separator: str, wanted: Sequence[Hashable]
) -> Iterator[Batch]:
    from pyarrow import csv as arrow_csv

    numbered = [f"{k}" for k in range(len(header))]  # columns that are not read may share a name
    places = {column: numbered[header.index(str(column))] for column in wanted}
    columns = list(places.values())
    bad: list[Any] = []
    rest, reader = text.rest(start), None

    def refuse(row: Any) -> str:
        bad.append(row)
        return "error"

    try:
        reader = arrow_csv.open_csv(
            rest,
            arrow_csv.ReadOptions(column_names=numbered, block_size=BLOCK, use_threads=False),
            arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=refuse),
            arrow_csv.ConvertOptions(
                include_columns=columns, column_types=dict.fromkeys(columns, pa.string()), null_values=MISSING,
                strings_can_be_null=True, quoted_strings_can_be_null=False,
            ),
        )  # fmt: skip
        for batch in reader:
            yield {column: batch.column(place) for column, place in places.items()}
    except UnicodeError:
        raise text.not_decoded() from None
    except (OSError, pa.ArrowException) as error:
        if bad:
            got, rule = bad[0].actual_columns, bad[0].expected_columns
            raise DataError(
                f"row {bad[0].number:,} of {text.name} has {got} cells, {shorten(bad[0].text)}: it must have {rule}, "
                f"like the header. Correct it, or put cells with {separator!r} in quotes."
            ) from None
        if "Empty CSV" in str(error):
            return
        if "UTF8" in str(error):
            raise text.not_decoded() from None
        if "straddling" in str(error):
            raise DataError(f"{text.name} has a row of more than {BLOCK >> 20} MB: rows must be shorter. Check for a "
                            "quotation mark that is not closed.") from None  # fmt: skip
        raise damaged(text.name, error) from None
    finally:
        rest = reader = None
        text.stop()
