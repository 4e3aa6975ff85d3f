"""Spreadsheets made cell by cell, as spreadsheet programs write them."""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

Rows = Sequence[Sequence[Any]]
DAY_0 = datetime.datetime(1899, 12, 30)
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
STYLES = (
    f'<styleSheet xmlns="{MAIN}"><fonts count="1"><font/></fonts><fills count="1"><fill/></fills><borders count="1">'
    '<border/></borders><cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="22" applyNumberFormat="1"/></cellXfs>'
    "</styleSheet>"
)


class Formula(str):
    """A formula with the result that the program stored, such as 3 or #DIV/0!; None: it stored none."""

    result: float | str | None

    def __new__(cls, text: str, result: float | str | None = None) -> Formula:
        made = super().__new__(cls, text)
        made.result = result
        return made


def write_xlsx(path: Path, sheets: Mapping[str, Rows], *, merged: Sequence[str] = ()) -> Path:
    """A workbook; `merged` are ranges like A1:B1 of its first sheet. None is an empty cell."""
    listed = range(1, len(sheets) + 1)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("[Content_Types].xml", f'<Types xmlns="{PACKAGE}/content-types"></Types>')
        file.writestr("_rels/.rels", _relations({"rId1": ("officeDocument", "xl/workbook.xml")}))
        names = "".join(f'<sheet name={quoteattr(name)} sheetId="{k}" r:id="rId{k}"/>' for k, name in
                        zip(listed, sheets, strict=True))  # fmt: skip
        file.writestr("xl/workbook.xml", f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>{names}</sheets>'
                      "</workbook>")  # fmt: skip
        parts = {f"rId{k}": ("worksheet", f"worksheets/sheet{k}.xml") for k in listed}
        file.writestr("xl/_rels/workbook.xml.rels", _relations(parts | {"rId99": ("styles", "styles.xml")}))
        file.writestr("xl/styles.xml", STYLES)
        for k, rows in zip(listed, sheets.values(), strict=True):
            body = "".join(f'<row r="{i}">{"".join(_cell(i, j, cell) for j, cell in enumerate(row))}</row>'
                           for i, row in enumerate(rows, 1))  # fmt: skip
            joined = "".join(f'<mergeCell ref="{each}"/>' for each in merged) if k == 1 and merged else ""
            body = f"<sheetData>{body}</sheetData>" + (f"<mergeCells>{joined}</mergeCells>" if joined else "")
            file.writestr(f"xl/worksheets/sheet{k}.xml", f'<worksheet xmlns="{MAIN}">{body}</worksheet>')
    return path


def _relations(parts: Mapping[str, tuple[str, str]]) -> str:
    made = "".join(f'<Relationship Id="{key}" Type="{OFFICE}/{kind}" Target="{target}"/>' for key, (kind, target) in
                   parts.items())  # fmt: skip
    return f'<Relationships xmlns="{PACKAGE}/relationships">{made}</Relationships>'


def _cell(i: int, j: int, cell: Any) -> str:
    at = f'r="{chr(ord("A") + j)}{i}"'
    if cell is None:
        return ""
    if isinstance(cell, Formula):
        kind = "" if not isinstance(cell.result, str) else ' t="e"' if cell.result.startswith("#") else ' t="str"'
        value = "" if cell.result is None else f"<v>{escape(str(cell.result))}</v>"
        return f"<c {at}{kind}><f>{escape(cell)}</f>{value}</c>"
    if isinstance(cell, bool):
        return f'<c {at} t="b"><v>{cell:d}</v></c>'
    if isinstance(cell, datetime.datetime):
        return f'<c {at} s="1"><v>{(cell - DAY_0) / datetime.timedelta(days=1)!r}</v></c>'
    if isinstance(cell, str):
        return f'<c {at} t="inlineStr"><is><t>{escape(cell)}</t></is></c>'
    return f"<c {at}><v>{cell!r}</v></c>"


def write_ods(path: Path, sheets: Mapping[str, Rows]) -> Path:
    """An OpenDocument spreadsheet of text, numbers, truth values and dates."""
    space = "urn:oasis:names:tc:opendocument:xmlns"
    body = "".join(
        f"<table:table table:name={quoteattr(name)}>"
        + "".join(f"<table:table-row>{''.join(map(_ods_cell, row))}</table:table-row>" for row in rows)
        + "</table:table>"
        for name, rows in sheets.items()
    )
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        file.writestr("META-INF/manifest.xml", f'<manifest:manifest xmlns:manifest="{space}:manifest:1.0"/>')
        file.writestr("content.xml", (
            f'<office:document-content xmlns:office="{space}:office:1.0" xmlns:table="{space}:table:1.0" '
            f'xmlns:text="{space}:text:1.0"><office:body><office:spreadsheet>{body}</office:spreadsheet></office:body>'
            "</office:document-content>"
        ))  # fmt: skip
    return path


def _ods_cell(cell: Any) -> str:
    if cell is None:
        return "<table:table-cell/>"
    kind, value = "float", f'office:value="{cell}"'
    if isinstance(cell, bool):
        kind, value = "boolean", f'office:boolean-value="{str(cell).lower()}"'
    elif isinstance(cell, datetime.datetime):
        kind, value = "date", f'office:date-value="{cell.isoformat()}"'
    elif isinstance(cell, str):
        kind, value = "string", ""
    shown = f"<text:p>{escape(str(cell))}</text:p>"
    return f'<table:table-cell office:value-type="{kind}" {value}>{shown}</table:table-cell>'
