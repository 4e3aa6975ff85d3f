"""A table read from anywhere is the same table, and whatever is wrong with one is said in a sentence with a remedy."""

from __future__ import annotations

import datetime
import gzip
import io
import math
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import narwhals
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colme.data.read import batches, row_buffer
from colme.data.read.table import Table, read_table
from colme.errors import DataError

Rows = list[tuple[Any, Any, Any, Any]]
"""(agent, value, time, weight)"""
COLUMNS = ("who", "x", "when", "w")
ASKED = {"agent": "who", "value": "x", "time": "when", "weight": "w"}


def naive(rows: Rows, *, by_time: bool = True) -> dict[Any, list[tuple[float, float, float]]]:
    """The slowest possible reading: agent -> its (time, value, weight) in order."""
    found: dict[Any, list[tuple[float, float, float]]] = {}
    for who, x, when, w in rows:
        if who is None:
            continue
        mine = found.setdefault(who, [])
        if x is not None and when is not None and w:
            mine.append((when, x, w))
    if by_time:
        for mine in found.values():
            mine.sort(key=lambda row: row[0])
    return {who: mine for who, mine in found.items() if mine}


def as_dict(table: Table) -> dict[Any, list[tuple[float, float, float]]]:
    assert table.time is not None and table.weight is not None
    columns = [column.tolist() for column in (table.time, table.value, table.weight)]
    every = list(zip(*columns, strict=True))
    return {who: every[table.start[a] : table.start[a + 1]] for a, who in enumerate(table.labels.tolist())}


def arrow_of(rows: Rows) -> pa.Table:
    kind = pa.int64() if all(who is None or isinstance(who, int) for who, *_ in rows) else pa.string()
    kinds = (kind, pa.float64(), pa.float64(), pa.float64())
    return pa.table({name: pa.array([row[k] for row in rows], kinds[k]) for k, name in enumerate(COLUMNS)})


def text_of(rows: Rows, separator: str = ",") -> str:
    def cell(value: Any) -> str:
        if value is None:
            return ""
        return '"' + value.replace('"', '""') + '"' if isinstance(value, str) else repr(value)

    lines = [separator.join(COLUMNS), *(separator.join(map(cell, row)) for row in rows)]
    return "\n".join(lines) + "\n"


def _parquet(rows: Rows, folder: Path) -> Any:
    pq.write_table(arrow_of(rows), folder / "t.parquet", row_group_size=7)
    return folder / "t.parquet"


def _folder(rows: Rows, folder: Path) -> Any:
    half = len(rows) // 2
    into = folder / "parts"
    (into / "deep").mkdir(parents=True)
    pq.write_table(arrow_of(rows).slice(0, half), into / "a.parquet")
    pq.write_table(arrow_of(rows).slice(half), into / "deep" / "b.parquet")
    return into


def _file(name: str, content: Callable[[Rows], bytes]) -> Callable[[Rows, Path], Any]:
    def make(rows: Rows, folder: Path) -> Path:
        (folder / name).write_bytes(content(rows))
        return folder / name

    return make


def _ipc(rows: Rows, folder: Path) -> Any:
    with pa.ipc.new_stream(str(folder / "t.arrow"), arrow_of(rows).schema) as writer:
        writer.write_table(arrow_of(rows), max_chunksize=5)
    return folder / "t.arrow"


def _feather(rows: Rows, folder: Path) -> Any:
    pyarrow.feather.write_feather(arrow_of(rows), str(folder / "t.feather"))
    return str(folder / "t.feather")


def _stream(rows: Rows, _: Path) -> Iterator[Any]:
    """Batches of every kind in turn."""
    makers: list[Callable[[pa.Table], Any]] = [
        lambda part: part, lambda part: part.to_batches()[0] if part.num_rows else part, pa.Table.to_pandas,
        pl.from_arrow, lambda part: {name: part[name].to_pylist() for name in part.schema.names},
    ]  # fmt: skip
    whole = arrow_of(rows)
    return (makers[k % len(makers)](whole.slice(3 * k, 3)) for k in range(1 + whole.num_rows // 3))


MAKERS: dict[str, Callable[[Rows, Path], Any]] = {
    "csv": _file("t.csv", lambda rows: text_of(rows).encode()),
    "csv with semicolons": _file("t.csv", lambda rows: text_of(rows, ";").encode()),
    "csv with a mark": _file("t.CSV", lambda rows: b"\xef\xbb\xbf" + text_of(rows).replace("\n", "\r\n").encode()),
    "csv.gz": _file("t.csv.gz", lambda rows: gzip.compress(text_of(rows).encode())),
    "tsv": _file("t.tsv", lambda rows: text_of(rows, "\t").encode()),
    "parquet": _parquet,
    "folder": _folder,
    "arrow stream": _ipc,
    "feather": _feather,
    "pyarrow": lambda rows, _: arrow_of(rows),
    "record batches": lambda rows, _: arrow_of(rows).to_reader(max_chunksize=4),
    "pandas": lambda rows, _: arrow_of(rows).to_pandas(),
    "pandas objects": lambda rows, _: pd.DataFrame(rows, columns=list(COLUMNS), dtype=object),
    "polars": lambda rows, _: pl.from_arrow(arrow_of(rows)),
    "lazy": lambda rows, _: pl.from_arrow(arrow_of(rows)).lazy(),  # type: ignore[union-attr]
    "narwhals": lambda rows, _: narwhals.from_native(arrow_of(rows)),
    "dict": lambda rows, _: {name: [row[k] for row in rows] for k, name in enumerate(COLUMNS)},
    "batches": _stream,
}

numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 3))
cells = st.tuples(
    st.none() | numbers, st.none() | st.integers(0, 5).map(float), st.none() | st.sampled_from([0.0, 0.5, 1.0, 3.0])
)
text = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=3).filter(
    lambda word: not re.fullmatch(r"-?\d+", word) and word.strip() == word
)
whose = st.sampled_from([st.none() | st.integers(-2, 5), st.none() | text])


@st.composite
def tables(draw: st.DrawFn) -> Rows:
    who = draw(whose)
    rows: Rows = draw(st.lists(st.tuples(who, cells).map(lambda row: (row[0], *row[1])), max_size=40))
    return [("a" if any(isinstance(row[0], str) for row in rows) else 1, 2.5, 3.0, 1.0), *rows]


@pytest.mark.parametrize("form", MAKERS)
@settings(max_examples=25)
@given(rows=tables(), memory=st.sampled_from([1, 200, 1 << 30]))
def test_reading_is_what_a_plain_loop_does(form: str, rows: Rows, memory: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(batches, "BATCH_ROWS", 5)
        patch.setattr(row_buffer, "CHUNK_ROWS", 4)
        table = read_table(MAKERS[form](rows, Path(folder)), memory=memory, **ASKED)
        assert as_dict(table) == naive(rows)
        assert list(table.labels) == list(naive(rows))  # in order of first appearance
        assert isinstance(table.value, np.memmap) == (memory < len(table.value) * 28)
        del table


def test_without_a_time_the_order_of_the_rows_stays() -> None:
    table = read_table({"who": [2, 1, 2, 1, 2], "x": [5, 4, 3, 2, 1]}, agent="who", value="x")
    assert table.labels.tolist() == [2, 1] and table.value.tolist() == [5, 3, 1, 4, 2]
    assert table.start.tolist() == [0, 3, 5] and table.n_agents == 2
    assert table.time is table.weight is table.label is table.covariates is None and table.notes == ()


def test_stdin_is_csv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"who,x\na,1\nb,2\na,3\n")))
    assert read_table("-", agent="who", value="x").value.tolist() == [1, 3, 2]


@pytest.mark.parametrize("values", [
    [True, False, True], [1, 0, 1], [Decimal("1.0"), Decimal("0"), Decimal("1")], ["1", " 0 ", "+1"],
    ["1e0", "-0", ".1e1"], np.array([1, 0, 1], np.uint8), pd.Categorical(["1", "0", "1"]), [1, "0", 1.0],
])  # fmt: skip
def test_whatever_is_a_number_is_a_number(values: Any) -> None:
    table = read_table({"who": ["a", "a", "a"], "x": values}, agent="who", value="x")
    assert table.value.tolist() == [1.0, 0.0, 1.0]


DAY = datetime.date(2024, 3, 1)
NOON = datetime.datetime(2024, 3, 1, 12)
ZONE = datetime.timezone(datetime.timedelta(hours=2))


@pytest.mark.parametrize("times", [
    [1, 0, 3], [1.5, 0.5, 3.5], ["1", "0", "3"],
    [DAY + datetime.timedelta(k) for k in (1, 0, 3)],
    [NOON + datetime.timedelta(k) for k in (1, 0, 3)],
    [(NOON + datetime.timedelta(k)).replace(tzinfo=ZONE) for k in (1, 0, 3)],
    [datetime.time(k) for k in (1, 0, 3)], [datetime.timedelta(k) for k in (1, 0, 3)],
    ["2024-03-02", "2024-03-01", "2024-03-04"],
    ["2024-03-02 12:30", "2024-03-01 12:30:00", "2024-03-04T12:30:00.5"],
    ["2024-03-02T12:30:00Z", "2024-03-02T12:30:00+01:00", "2024-03-04T00:00:00Z"],
    ["2024-03-02 12:00:00.000000002", "2024-03-02 12:00:00.000000001", "2024-03-02 12:00:00.000000003"],
    pd.to_datetime(["2024-03-02", "2024-03-01", "2024-03-04"]).astype("datetime64[ns]"),
    pd.Categorical(["2024-03-02", "2024-03-01", "2024-03-04"]),
])  # fmt: skip
def test_times_of_every_kind_put_samples_in_order(times: Any) -> None:
    table = read_table({"who": ["a"] * 3, "x": [2, 1, 3], "when": times}, agent="who", value="x", time="when")
    assert table.value.tolist() == [1, 2, 3] or len(set(table.time.tolist())) < 3  # type: ignore[union-attr]
    assert "1 agent were not in order of when and were sorted" in table.notes[0]


def test_dates_become_seconds() -> None:
    table = read_table({"a": [1, 1], "x": [1, 2], "t": ["2024-03-02", "2024-03-01"]}, agent="a", value="x", time="t")
    assert table.time is not None and np.diff(table.time).tolist() == [86400.0]


def test_several_columns_make_one_label() -> None:
    columns = {"species": ["DM", "DM", None, "PP", "DM"], "plot": [1, 2, 1, 1, 1], "year": [7, 7, 7, 7, 7]}
    table = read_table(columns | {"x": [1, 2, 3, 4, 5]}, agent=("species", "plot", "year"), value="x")
    assert table.labels.tolist() == ["DM / 1 / 7", "DM / 2 / 7", "PP / 1 / 7"]
    assert table.value.tolist() == [1, 5, 2, 4]
    assert table.notes == ("1 row without species or plot or year was left out.",)


@pytest.mark.parametrize(("labels", "expected"), [
    (["7", "8", "7"], [7, 8]), (["07", "8", "07"], ["07", "8"]), ([7.0, 8.0, 7.0], [7, 8]),
    ([7.5, 8.0, 7.5], ["7.5", "8.0"]), ([True, False, True], ["True", "False"]),
    ([DAY, datetime.date(2024, 3, 2), DAY], ["2024-03-01", "2024-03-02"]),
    ([b"a", b"b", b"a"], ["a", "b"]), ([1, "b", 1], ["1", "b"]),
])  # fmt: skip
def test_labels_of_every_kind(labels: Any, expected: list[Any], tmp_path: Path) -> None:
    if isinstance(labels[0], str):
        (tmp_path / "t.csv").write_text("\n".join(["who,x", *(f"{who},1" for who in labels)]))
        assert read_table(tmp_path / "t.csv", agent="who", value="x").labels.tolist() == expected
    else:
        assert read_table({"who": labels, "x": [1, 2, 3]}, agent="who", value="x").labels.tolist() == expected


def test_categories_that_nobody_has_are_no_agents() -> None:
    frame = pd.DataFrame({"who": pd.Categorical(["b", "a"], categories=["z", "a", "b"]), "x": [1, 2]})
    table = read_table(frame, agent="who", value="x")
    assert table.labels.tolist() == ["b", "a"] and table.notes == ()


def test_known_labels_and_covariates_are_those_of_agents() -> None:
    columns = {"who": list("abca"), "x": [1, 2, 3, 4], "kind": [None, "v", None, "u"], "age": [1.0, 5.0, None, 3.0]}
    table = read_table(columns, agent="who", value="x", label="kind", covariates="age")
    assert table.label is not None and table.label.tolist() == [1, 0, -1]
    assert table.covariates is not None and table.covariates.tolist() == [[2.0], [5.0], [3.5]]
    assert table.notes == ("1 agent without age got the mean of the other agents.",)


def test_what_is_left_out_is_said() -> None:
    columns = {
        "who": ["a", None, "a", "a", "b", "c", "a"], "x": [1.0, 1.0, math.nan, 2.0, None, 3.0, 4.0],
        "t": [1, 1, 1, None, 1, 1, 1], "w": [1, 1, 1, 1, 1, 0, 2],
    }  # fmt: skip
    table = read_table(columns, agent="who", value="x", time="t", weight="w")
    assert table.labels.tolist() == ["a"] and table.value.tolist() == [1, 4]
    assert table.notes == (
        "1 row without who was left out.", "2 rows without x were left out.", "1 row without t was left out.",
        "1 row without a weight above 0 was left out.", "2 agents without a sample were left out: b, c.",
        "1 row has the same t as another row of the agent; these stay in the order of the rows.",
    )  # fmt: skip


def test_progress_tells_rows_and_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_ROWS", 10)
    rows: Rows = [(k % 7, float(k), float(k), 1.0) for k in range(95)]
    for form, known in (("pandas", True), ("parquet", True), ("record batches", False)):
        told: list[tuple[int, int | None]] = []
        read_table(MAKERS[form](rows, tmp_path), progress=lambda *now: told.append(now), **ASKED)  # noqa: B023
        assert told[-1] == (95, 95 if known else None)
        assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_the_folder_here_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tables").mkdir()
    monkeypatch.chdir(tmp_path / "tables")
    with pytest.raises(DataError, match="the folder tables contains no Parquet file"):
        read_table(".", agent="sensor", value="temperature")


def test_an_error_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(row_buffer, "CHUNK_ROWS", 10)

    def batches() -> Iterator[dict[str, Any]]:
        for k in range(50):
            yield {"who": [k] * 10, "x": [math.inf if k == 40 else 1.0] * 10}

    with pytest.raises(DataError, match="row 401 "):
        read_table(batches(), agent="who", value="x", memory=100)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cause", ["value", "file"])
def test_an_error_ends_the_thread_that_reads_ahead(
    cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(batches, "BATCH_ROWS", 50)
    path = tmp_path / "t.parquet"
    values = np.arange(1000.0)
    values[120] = math.inf if cause == "value" else 0.0
    pq.write_table(pa.table({"who": np.arange(1000) % 7, "x": values}), path, row_group_size=100, compression="none",
                   use_dictionary=False, write_page_checksum=True)  # fmt: skip
    if cause == "file":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    with pytest.raises(DataError, match="row 121 of t.parquet is inf" if cause == "value" else "t.parquet") as caught:
        read_table(path, agent="who", value="x")
    assert caught.tb is not None  # the traceback keeps the reader alive
    assert not [each for each in threading.enumerate() if each.name.startswith("colme")]


def test_no_room_for_a_temporary_file_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    with pytest.raises(DataError, match=r"do not fit into memory.* Set TMPDIR to a folder with room\."):
        read_table({"who": [1, 2], "x": [1, 2]}, agent="who", value="x", memory=1)
