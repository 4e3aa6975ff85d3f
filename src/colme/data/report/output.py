"""`save_result`: write a result to Parquet, CSV or JSON, completely or not at all."""

from __future__ import annotations

import io
import math
import os
from pathlib import Path
from typing import Any

import msgspec

from colme._core.files import check_writable, write_whole
from colme.data.report.result import Result
from colme.errors import DataError, missing_extra

ENDINGS = (".parquet", ".csv", ".json")


def check_ending(path: Path, endings: tuple[str, ...] = ENDINGS) -> None:
    """Refuse a file that could not be written, before the work begins."""
    if path.suffix.lower() not in endings:
        raise DataError(f"{path.name} has an unknown ending: it must be one of {' '.join(endings)}. Rename it.")
    check_writable(path)


def save_result(result: Result, path: str | os.PathLike[str]) -> Path:
    """Write all agents to a Parquet, CSV or JSON file, by its ending. Parquet and JSON also hold the summary."""
    target = Path(path)
    check_ending(target)
    make = {".parquet": parquet_of, ".csv": csv_of, ".json": json_of}[target.suffix.lower()]
    write_whole(target, make(result))
    return target


def json_of(result: Result) -> bytes:
    """{"summary": ..., "agents": [...]}; NaN and infinity, which JSON does not have, are null."""
    columns = {name: values.tolist() for name, values in result.to_columns().items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    whole = {"summary": msgspec.to_builtins(result.summary), "agents": rows}
    return msgspec.json.format(msgspec.json.encode(_finite(whole)), indent=2) + b"\n"


def csv_of(result: Result) -> bytes:
    """One row per agent."""
    _, table = _arrow(result)
    from pyarrow import csv

    buffer = io.BytesIO()
    csv.write_csv(table, buffer, csv.WriteOptions(quoting_style="needed", quoting_header="needed"))
    return buffer.getvalue()


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
