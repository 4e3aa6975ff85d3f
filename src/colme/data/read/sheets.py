"""`open_sheet`: a sheet of a spreadsheet (.xlsx, .ods) as a table whose header is the first row that is not empty."""

from __future__ import annotations

import contextlib
import datetime
import zipfile
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

from colme.data.read import batches
from colme.data.read.arrow_columns import EXACT, as_array
from colme.data.read.batches import Batch, BatchSource
from colme.data.read.file_errors import damaged, empty
from colme.data.read.format import TableFormat
from colme.errors import DataError, missing_extra, one_of, shorten
from colme.support.columns import row_name

MOST_UNPACKED = 1 << 30
"""Bytes of a spreadsheet without its compression; a million rows of ten columns have about 0.4 GB."""


def open_sheet(path: Path, form: TableFormat) -> BatchSource:
    """The sheet that is named, or the first one that is visible and not empty."""
    sheet = form.sheet
    try:
        import python_calamine as calamine
    except ImportError:
        raise missing_extra("python-calamine", "excel", "reading spreadsheets") from None
    _check_size(path)
    try:
        book = calamine.load_workbook(path)
        names = [each.name for each in book.sheets_metadata
                 if each.visible == calamine.SheetVisibleEnum.Visible and each.typ == calamine.SheetTypeEnum.WorkSheet
                ]  # fmt: skip
        if sheet is not None:
            one_of(sheet, book.sheet_names, "sheet", DataError)
        found = [book.get_sheet_by_name(sheet)] if sheet is not None else map(book.get_sheet_by_name, names)
        content = next((each for each in found if each.height), None)
    except calamine.PasswordError:
        raise DataError(f"{path.name} has a password: a table must not. Save it without one.") from None
    except calamine.CalamineError as error:
        raise damaged(path.name, error) from None
    if content is None:
        raise empty(path.name if sheet is None else f"sheet {sheet!r} of {path.name}")
    several = sheet is None and len(names) > 1
    notes = [f"Of the {len(names)} sheets of {path.name}, {content.name!r} was read."] if several else []
    return _Sheet(content, f"sheet {content.name!r} of {path.name}", form.decimal).source(*notes)


def _check_size(path: Path) -> None:
    """Refuse an archive that says that it unpacks to more than any sheet needs."""
    with contextlib.suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(path) as archive:
        size = sum(each.file_size for each in archive.infolist())
        if size > MOST_UNPACKED:
            raise DataError(f"{path.name} unpacks to {size >> 20:,} MB: spreadsheets may have {MOST_UNPACKED >> 20:,}. "
                            "Save the table as CSV or Parquet.")  # fmt: skip


class _Sheet:
    """The rows of a sheet below its header."""

    def __init__(self, content: Any, name: str, decimal: str):
        self.name, self.decimal = name, decimal
        rows = list(content.iter_rows())
        self.top = next(k for k, row in enumerate(rows) if any(cell != "" for cell in row))
        self.left = content.start[1]
        self.header = [_text(cell).strip() for cell in rows[self.top]]
        self.rows = rows[self.top + 1 :]
        self.merged = content.merged_cell_ranges or []
        self._check_header()

    def source(self, *notes: str) -> BatchSource:
        columns = [name for name in self.header if name]
        return BatchSource(self.name, columns, self._batches, lambda done: len(self.rows), notes=notes)

    def _check_header(self) -> None:
        named = [name for name in self.header if name]
        got = None
        if any(first[0] <= self.top <= last[0] for first, last in self.merged):
            got = "has merged cells"
        elif len(named) == 1 and len(self.header) > 1:
            got = f"is only {shorten(named[0])}"
        if got is not None:
            raise DataError(
                f"the first row of {self.name} {got}: it must hold one name for each column. Delete the rows above "
                "the names, and unmerge their cells."
            )

    def _batches(self, wanted: Sequence[Hashable]) -> Iterator[Batch]:
        places = {column: self.header.index(str(column)) for column in wanted}
        for column, place in places.items():
            self._check_merged(column, self.left + place)
        whole = {column: self._column([row[place] for row in self.rows]) for column, place in places.items()}
        for k in range(0, len(self.rows), batches.BATCH_ROWS):
            yield {column: cells.slice(k, batches.BATCH_ROWS) for column, cells in whole.items()}

    def _check_merged(self, column: Hashable, place: int) -> None:
        for (first_row, first), (last_row, last) in self.merged:
            if first <= place <= last and last_row > self.top:
                raise DataError(
                    f"{column} in {row_name(first_row - self.top - 1)} of {self.name} is part of a merged cell: every "
                    "row needs cells of its own. Unmerge the cells, and fill each of them."
                )

    def _column(self, cells: list[Any]) -> Any:
        """The cells of a column; those that are empty or hold an error are missing."""
        known = [None if cell == "" else cell for cell in cells]
        kinds = {type(cell) for cell in known if cell is not None}
        if kinds == {datetime.date, datetime.datetime}:  # midnight is a date, and Arrow would make all of them dates
            known = [_moment(cell) for cell in known]
        elif len(kinds) > 1:
            known = [None if cell is None else _text(cell, self.decimal) for cell in known]
        return as_array(known)


def _moment(cell: Any) -> Any:
    return datetime.datetime.combine(cell, datetime.time()) if type(cell) is datetime.date else cell


def _text(cell: Any, decimal: str = ".") -> str:
    """A cell as it would be typed; a spreadsheet has no whole numbers, only floats."""
    if not isinstance(cell, float):
        return str(cell)
    return str(int(cell)) if cell.is_integer() and abs(cell) < EXACT else repr(cell).replace(".", decimal)
