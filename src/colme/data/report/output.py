"""`save_result`: write a result to Parquet, CSV or JSON, completely or not at all."""

from __future__ import annotations

import io
import math
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from colme.data.report.result import Result
from colme.errors import DataError, missing_extra
from colme.support.files import check_writable, write_whole

ENDINGS = (".parquet", ".csv", ".json")
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a cell begins with that a spreadsheet takes for a formula (OWASP, CSV injection)."""


def check_ending(path: Path, endings: tuple[str, ...] = ENDINGS) -> None:
    """Refuse a file that could not be written, before the work begins."""
    if path.suffix.lower() not in endings:
        raise DataError(f"{path.name} has an unknown ending: it must be one of {' '.join(endings)}. Rename it.")
    check_writable(path)


def save_result(result: Result, path: str | os.PathLike[str], *, escape_formulas: bool = False) -> Path:
    """Write all agents to a Parquet, CSV or JSON file, by its ending. Parquet and JSON also hold the summary.

    escape_formulas  in CSV, for spreadsheets: see `csv_of`"""
    target = Path(path)
    check_ending(target)
    if target.suffix.lower() == ".csv":
        content = csv_of(result, escape_formulas=escape_formulas)
    else:
        content = {".parquet": parquet_of, ".json": json_of}[target.suffix.lower()](result)
    write_whole(target, content)
    return target


def json_of(result: Result) -> bytes:
    """{"summary": ..., "agents": [...]}; NaN and infinity, which JSON does not have, are null."""
    columns = {name: values.tolist() for name, values in result.to_columns().items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    whole = {"summary": msgspec.to_builtins(result.summary), "agents": rows}
    return msgspec.json.format(msgspec.json.encode(_finite(whole)), indent=2) + b"\n"


def csv_of(result: Result, *, escape_formulas: bool = False) -> bytes:
    """One row per agent.

    Names are written as they are, so that they can be read back. With `escape_formulas`, a name that begins like a
    formula (=, +, -, @, or a tab or line break before one) gets an apostrophe in front, and a spreadsheet shows it
    instead of computing it."""
    pyarrow, table = _arrow(result)
    from pyarrow import csv

    if escape_formulas:
        table = pyarrow.table(
            [_escaped(column) for column in table.columns], [_escape(each) for each in table.column_names]
        )

    buffer = io.BytesIO()
    csv.write_csv(table, buffer, csv.WriteOptions(quoting_style="needed", quoting_header="needed"))
    return buffer.getvalue()


def _escape(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text


def _escaped(column: Any) -> Any:
    """A column of text, escaped; any other as it is."""
    import pyarrow
    from pyarrow import compute

    text = column.combine_chunks()
    if pyarrow.types.is_dictionary(text.type):
        text = text.dictionary_decode()
    if not (pyarrow.types.is_string(text.type) or pyarrow.types.is_large_string(text.type)):
        return column
    return compute.replace_substring_regex(text, f"^[{re.escape(''.join(FORMULA))}]", "'\\0")


def parquet_of(result: Result) -> bytes:
    """One row per agent, and the summary as JSON under the key "colme" of the metadata."""
    pyarrow, table = _arrow(result)
    from pyarrow import parquet

    summary = msgspec.json.encode(_finite(msgspec.to_builtins(result.summary)))
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table.replace_schema_metadata({"colme": summary}), sink, compression="zstd")
    return bytes(sink.getvalue())


def _arrow(result: Result) -> tuple[Any, Any]:
    try:
        import pyarrow
    except ImportError:
        raise missing_extra("pyarrow", "data", "writing results") from None
    return pyarrow, pyarrow.table({name: pyarrow.array(values) for name, values in result.to_columns().items()})


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
