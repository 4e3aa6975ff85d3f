"""Whatever is wrong with a table or a question to it is said in a sentence with a remedy."""

from __future__ import annotations

import datetime
import gzip
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from colme.data.estimate import estimate
from colme.errors import ColmeError, ColumnError
from tests.support.spreadsheets import write_xlsx

DAY = datetime.date(2024, 3, 1)
NEW_YEAR, NOON = datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 12)
Row = tuple[Any, dict[str, Any], tuple[str, ...]]
"""(a table or a function of a folder that makes one, options, words of the sentence in their order)"""


def _write(name: str, content: str | bytes) -> Callable[[Path], Any]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return folder / name

    return make


def _stream(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=5)


def _compressed(table: pa.Table, path: Path) -> None:
    path.write_bytes(gzip.compress(table.to_pandas().to_csv(index=False).encode()))


def _cut(name: str, write: Callable[[pa.Table, Path], None]) -> Callable[[Path], Any]:
    def make(folder: Path) -> Path:
        path = folder / name
        write(pa.table({"sensor": ["a"] * 5000, "temperature": np.arange(5000.0)}), path)
        path.write_bytes(path.read_bytes()[:-20])
        return path

    return make


def _dict(**columns: Any) -> Callable[[Path], Any]:
    return lambda folder: {"sensor": ["a", "b", "a"], "temperature": [1.0, 2.0, 3.0]} | columns


READINGS = "sensor,temperature,ts\n"
SENSORS: dict[str, Row] = {
    "misspelt column": (
        _dict(), {"value": "temprature"}, ("no column 'temprature'", "'sensor', 'temperature'", "mean 'temperature'?"),
    ),
    "column in capitals": (_dict(), {"agent": "SENSOR"}, ("no column 'SENSOR'", "mean 'sensor'?")),
    "column like no other": (_dict(), {"time": "zzz"}, ("no column 'zzz'", "it has 'sensor'", "Choose one of these")),
    "column twice": (_write("t.csv", "sensor,temperature,sensor\na,1,b\n"), {}, ("2 columns 'sensor'", "Rename")),
    "pandas column twice": (
        lambda folder: pd.DataFrame([[1, 2.0, 3.0]], columns=["sensor", "temperature", "temperature"]), {},
        ("2 columns 'temperature'", "Rename"),
    ),
    "agent is nothing": (_dict(), {"agent": None}, ("agent=None", "must be the name of a column", "Try")),
    "value is a list": (_dict(), {"value": ["a"]}, ("value=['a']", "must be the name of a column", "Try")),
    "text among numbers": (
        _write("t.csv", READINGS + "a,1,2\nb,2,3\na,warm,4\n"), {},
        ("temperature in row 3 of t.csv is 'warm'", "must be a number", "Correct it"),
    ),
    "dates as values": (_dict(temperature=[DAY] * 3), {}, ("temperature of the table holds date32", "hold numbers")),
    "infinite value": (
        _dict(temperature=[1.0, math.inf, 2.0]), {}, ("temperature in row 2", "is inf", "finite", "Leave the row out"),
    ),
    "no value at all": (
        _dict(temperature=[None, math.nan, None]), {}, ("no row", "3 of 3 have no temperature", "another column"),
    ),
    "no agent at all": (_dict(sensor=[None] * 3), {}, ("no row", "3 of 3 have no sensor", "another column")),
    "no time at all": (_dict(ts=[None] * 3), {"time": "ts"}, ("no row", "3 of 3 have no ts", "leave it out")),
    "times of no kind": (
        _dict(ts=["2024-03-01", "3/4/2024", "2024-03-01"]), {"time": "ts"},
        ("ts in row 2 of the table is '3/4/2024'", "must be dates, like the first one", "Write dates like 2024-03-01"),
    ),
    "times of two kinds": (
        lambda folder: ({"sensor": [1], "temperature": [1], "ts": [time]} for time in (DAY, 7)),
        {"time": "ts"}, ("ts of the table holds dates and then numbers", "one kind", "Convert"),
    ),
    "infinite time": (_dict(ts=[1.0, math.inf, 2.0]), {"time": "ts"}, ("ts in row 2", "is inf", "finite", "Leave")),
    "negative weight": (_dict(w=[1, 1, -2]), {"weight": "w"}, ("w in row 3", "is -2", "not be negative", "leave")),
    "infinite weight": (_dict(w=[1, math.inf, 2]), {"weight": "w"}, ("w in row 2", "is inf", "finite", "leave")),
    "no weight above 0": (_dict(w=[0] * 3), {"weight": "w"}, ("no row", "3 of 3 have no weight above 0", "than w")),
    "two labels": (
        _dict(kind=list("uuv")), {"label": "kind"}, ("kind in row 3", "is v, but a had u before", "only one label"),
    ),
    "empty covariate": (_dict(age=[None] * 3), {"covariates": ["age"]}, ("age of the table has no numbers", "Leave")),
    "lists as agents": (_dict(sensor=[[1], [2], [3]]), {}, ("sensor of the table holds list", "text or a number")),
    "empty file": (_write("t.csv", ""), {}, ("t.csv is empty", "columns and rows", "Write it again")),
    "blank file": (_write("t.csv", "\n\n"), {}, ("t.csv is empty", "columns and rows", "Write it again")),
    "empty parquet": (_write("t.parquet", ""), {}, ("t.parquet is empty", "columns and rows", "Write it again")),
    "header only": (_write("t.csv", READINGS), {}, ("t.csv has no rows", "at least one", "Write it again")),
    "no rows": (_dict(sensor=[], temperature=[]), {}, ("the table has no rows", "at least one", "Write it again")),
    "no batches": (lambda folder: iter([]), {}, ("the table has no rows", "at least one", "Write it again")),
    "cells too many": (
        _write("t.csv", READINGS + "a,1,2\na,1,2,3\n"), {}, ("row 2 of t.csv has 4 cells", "must have 3", "Correct it"),
    ),
    "cut parquet": (_cut("t.parquet", pq.write_table), {}, ("t.parquet cannot be read", "truncated", "Write")),
    "cut arrow": (_cut("t.arrow", _stream), {}, ("t.arrow cannot be read", "may be truncated")),
    "cut csv.gz": (_cut("t.csv.gz", _compressed), {}, ("t.csv.gz cannot be read", "truncated", "Write")),
    "no such file": (lambda folder: folder / "nothing.csv", {}, ("there is no file", "nothing.csv", "Check the path")),
    "almost such a file": (
        lambda folder: _write("readings.csv", "x")(folder).with_name("reading.csv"), {},
        ("reading.csv", "mean 'readings.csv'?"),
    ),
    "folder without tables": (lambda folder: folder, {}, ("contains no Parquet file", "Name a file")),
    "a number": (lambda folder: 7, {}, ("7 is not a table", "a data frame, a dict", "Try a path")),
    "a list of rows": (lambda folder: [("a", 1.0)], {}, ("('a', 1.0) is not a table", "Try a path")),
    "unequal lengths": (_dict(temperature=[1.0]), {}, ("differ in length", "'temperature' has 1", "one value per row")),
}  # fmt: skip


def changed(**columns: Any) -> Any:
    return FRAME.assign(**columns)


FRAME = pd.DataFrame({"a": np.repeat(["s0", "s1", "s2", "s3"], 6), "v": np.arange(24.0) % 7})
FRAMES: dict[str, Row] = {
    "beyond numbers": (changed(v=1.7e308), {}, ("v in row 1", "below 1e",)),
    "complex": (changed(v=FRAME.v + 1j), {}, ("must be a number",)),
    "periods as agents": (changed(a=pd.period_range("2020", periods=len(FRAME), freq="D")), {}, ("Turn it into text",)),
    "periods as times": (changed(t=pd.period_range("2020", periods=len(FRAME), freq="D")), {"time": "t"},
                         ("times must be numbers or dates",)),
    "zones now and then": (changed(t=["2024-03-01 12:00" + "+01:00" * (k == 0) for k in range(len(FRAME))]),
                           {"time": "t"}, ("t in row 2", "must be dates with a time zone, like the first one",)),
    "numbers as names": (pd.DataFrame({0: FRAME.a, 1: FRAME.v}), {"agent": "0", "value": 1}, ("Did you mean 0?",)),
    "a weight beyond measure": (changed(w=1e300), {"weight": "w"}, ("weights must lie between",)),
    "no weight at all": (changed(w=np.nan), {"weight": "w"}, ("have no w",)),
    "no label at all": (changed(g=None), {"label": "g"}, ("has no label: a column of known groups needs some",)),
    "a covariate that is no name": (FRAME, {"covariates": 3}, ("no column 3",)),
    "a half-life without time": (FRAME, {"half_life": 3.0}, ("no time was given",)),
    "sigma of another world": (FRAME, {"sigma": 1e300}, ("must be their standard deviation. Check its unit",)),
    "level 0": (FRAME, {"level": 0}, ("level=0:", "Try level=0.9",)),
    "level 1": (FRAME, {"level": 1}, ("level=1",)),
    "level None": (FRAME, {"level": None}, ("level=None",)),
    "no groups": (FRAME, {"groups": 0}, ("groups=0",)),
    "an unknown method": (FRAME, {"method": "shrinkag"}, ("Did you mean 'shrinkage'?",)),
    "a column": (FRAME.v, {}, ("is not a table",)),
    "a column of polars": (pl.from_pandas(FRAME)["v"], {}, ("is not a table",)),
    "numbers for columns": ({"a": 1, "v": 2}, {}, ("column 'a' is 1: it must be a list",)),
    "text for a column": ({"a": "xyz", "v": [1, 2, 3]}, {}, ("column 'a' is 'xyz'",)),
    "a matrix for a column": ({"a": [1, 2], "v": np.ones((2, 2))}, {}, ("a one-dimensional array",)),
    "rows that are dicts": (FRAME.to_dict("records"), {}, ("make a data frame of them first",)),
    "the empty name": ("", {}, ("there is no file ''",)),
    "sigma below 0": (FRAME, {"sigma": -1.0}, ("sigma=-1.0", "positive", "Try")),
    "a seed below 0": (FRAME, {"seed": -1}, ("seed=-1", "at least 0", "Try")),
}  # fmt: skip
SIGNS = [
    ("a;v\nx;12,5\n", {}, ("v in row 1 of t.csv is '12,5'", "a number", "Try decimal=',' (--decimal ,).")),
    ("a;v\nx;1.234,5\n", {}, ("Try decimal=',' and thousands='.' (--decimal , --thousands .).",)),
    ("a;v\nx;1,234\n", {}, ("Try thousands=',' (--thousands ,) or decimal=',' (--decimal ,).",)),
    ("a;v\nx;1,5\nx;12.5\n", {"decimal": ","}, ("row 2 of t.csv is '12.5'", "a number like 1234,5", "decimal='.'")),
    ("a;v\nx;1.23\n", {"decimal": ",", "thousands": "."}, ("is '1.23'", "like 1.234,5")),
    ("a;v\nx;1\n", {"thousands": "."}, ("thousands='.' is the decimal sign, too", "differ", "Try decimal=','")),
    ("a;v\nx;1\n", {"thousands": "|"}, ("unknown sign of thousands '|'", "must be one of", "Try")),
    ("a;v\nx;1\n", {"decimal": ";"}, ("unknown decimal sign ';'", "must be one of", "Try")),
    ('a,v\nx,"1,234"\n', {"thousands": ","}, ("thousands=',' separates the columns of t.csv, too", "Save it")),
    ("a,v,w\nx,12,5\n", {"decimal": ","}, ("decimal=',' separates the columns of t.csv, too", "Save it")),
]  # fmt: skip
DATES = [
    ("31.02.2024", {"time_format": "%d.%m.%Y"}, ("t in row 2 of t.csv is '31.02.2024'", "fit the format '%d.%m.%Y'")),
    ("1700000000", {"time_format": "%d.%m.%Y"}, ("is '1700000000'", "fit the format")),
    ("05.01.2024", {}, ("numbers or dates", "time_format='%d.%m.%Y %H:%M' (--time-format)")),
    ("05.01.2024", {"time_format": "dd.mm.yyyy"}, ("time_format='dd.mm.yyyy'", "a format of strptime", "Try")),
    ("05.01.2024", {"time_format": "%Q"}, ("time_format='%Q'", "a format of strptime", "Try")),
    ("05.01.2024", {"time_format": "%d.%m.%Y", "time": None}, ("needs a column of times", "Try time=... (--time)")),
]  # fmt: skip
ENCODINGS = [
    ("a;v\nKöln;1\n".encode("latin-1"), None, ("is not UTF-8 text in line 2", "Try encoding='latin-1' (--encoding")),
    ("ä;v\nx;1\n".encode("latin-1"), None, ("in line 1", "Try encoding='latin-1'")),
    ("a;v\n5 €;1\n".encode("cp1252"), None, ("in line 2", "Try encoding='cp1252' (--encoding cp1252)")),
    ("a;v\nx;1\n".encode("utf-16"), None, ("is not UTF-8 text", "Try encoding='utf-16' (--encoding utf-16)")),
    ("a;v\nx;1\n".encode("utf-16-be"), None, ("Try encoding='utf-16-be'",)),
    (b"a;v\n\x81;1\n", "cp1252", ("is not cp1252 text", "Try another encoding")),
    (b"a;v\nx;1\n", "utf-16", ("is not utf-16 text", "Leave the encoding out")),
    (b"a;v\nx;1\n", "latin-99", ("encoding='latin-99'", "the name of an encoding", "Try")),
    (b"a\0;v\nx;1\n", None, ("is not UTF-8 text", "Write it again")),
]  # fmt: skip
KINDS = [
    ((["yes", "no", "1"],), ("row 3 of the table is '1'", "yes or no, as in the rows before")),
    ((["1", "no"],), ("row 2 of the table is 'no'", "a number, as in the rows before")),
    ((["yes", "maybe"],), ("row 2 of the table is 'maybe'", "yes or no")),
    ((["yes"], ["2"]), ("row 2 of the table is '2'", "yes or no, as in the rows before")),
    ((["yes"], [None, 2.5]), ("row 3 of the table is '2.5'", "yes or no, as in the rows before")),
    (([1, 2], [True]), ("row 3 of the table is 'True'", "a number, as in the rows before")),
    (([True, False], [2]), ("row 3 of the table is '2'", "yes or no, as in the rows before")),
    (([1, 2], ["yes"]), ("row 3 of the table is 'yes'", "a number, as in the rows before")),
]  # fmt: skip
ROWS = [["a", "v", "t"], ["x", 1, NOON], ["x", 2.5, NEW_YEAR], ["y", None, NOON]]
SHEETS = [
    (ROWS, ("A1:B1",), {}, ("the first row of sheet 's' of t.xlsx has merged cells", "one name for each", "unmerge")),
    ([["Report", None, None], *ROWS], (), {}, ("is only 'Report'", "one name for each column", "Delete the rows")),
    (ROWS, ("A2:A3",), {}, ("a in row 1 of sheet 's' of t.xlsx is part of a merged cell", "Unmerge")),
    ([[], [], *ROWS], ("A5:A6",), {}, ("a in row 2 of sheet 's' of t.xlsx is part of a merged cell", "Unmerge")),
    ([["a", "v"]], (), {}, ("sheet 's' of t.xlsx has no rows", "at least one")),
    ([], (), {}, ("t.xlsx is empty", "columns and rows")),
    ([["a", "v"], ["x", 1], ["x", "12,5"]], (), {}, ("v in row 2", "is '12,5'", "Try decimal=','")),
    ([["a", "v"], ["x", True], ["x", 3]], (), {}, ("v in row 2", "is '3'", "yes or no, as in the rows before")),
    ([["a", "v"], ["x", NOON]], (), {}, ("v of sheet 's' of t.xlsx holds timestamp", "must hold numbers")),
    (ROWS, (), {"encoding": "latin-1"}, ("encoding='latin-1' for t.xlsx", "only for text files", "Leave it out")),
    (ROWS, (), {"time": "t", "time_format": "%d"}, ("t of sheet 's' of t.xlsx holds timestamp", "for dates in text")),
]  # fmt: skip
FILES = [
    ("t.parquet", b"a,v\nx,1\n", ("t.parquet is text", "the two must agree", "to end in .csv")),
    ("t.xlsx", b"a,v\nx,1\n", ("t.xlsx is text", "to end in .csv")),
    ("t.csv.gz", b"a,v\nx,1\n", ("t.csv.gz is text", "to end in .csv")),
    ("t.csv", gzip.compress(b"a,v\nx,1\n", mtime=0), ("t.csv is compressed", "to end in .csv.gz")),
    ("t.csv", b"PK\3\4\0\0", ("t.csv is a spreadsheet or another archive", "to end in .xlsx")),
    ("t.csv", b"PAR1\x15\4", ("t.csv is a Parquet file", "to end in .parquet")),
    ("t.xlsx", b"\xd0\xcf\x11\xe0\0\0", ("an old spreadsheet, or one with a password", "to end in .xlsx")),
    ("t.xlsx", b"PK\3\4\0\0", ("t.xlsx cannot be read", "Write it again")),
    ("t.jsonl", b"a,v\nx,1\n", ("row 1 of t.jsonl is 'a,v'", "one JSON object")),
    ("t.json", b"[]", ("t.json has an unknown ending", ".jsonl", "Rename or convert it")),
    ("t.csv", b"a,v\nx,1\0\n", ("v in row 1 of t.csv is '1\\x00'", "a number")),
    ("t.csv", b"a,v\rx,1\rx,2\r", ("the first line of t.csv",)),
    ("t.csv", b"a,v," + b"x" * 200_000 + b"\nx,1,2\n", ("the first line of t.csv is not a header",)),
]  # fmt: skip
SUMMARIES = [
    ({"m": [1.0, 2.0], "se": [0.1, 0.0]}, {"mean": "m", "se": "se"}, ("se in row 2", "is 0: a standard error")),
    ({"m": [1.0], "se": [0.1], "n": [0]}, {"mean": "m", "se": "se", "n": "n"}, ("n in row 1", "at least one sample",)),
    ({"m": [1.0], "se": [0.1], "n": [2.5]}, {"mean": "m", "se": "se", "n": "n"}, ("must be a whole number",)),
    ({"y": [3], "n": [2]}, {"successes": "y", "trials": "n"}, ("is 3: it must be at most the number of trials, 2",)),
    ({"y": [-1], "n": [2]}, {"successes": "y", "trials": "n"}, ("must not be negative",)),
    ({"y": [-1], "n": [2]}, {"value": "y", "exposure": "n"}, ("must not be negative",)),
    ({"y": [1.5], "n": [2]}, {"value": "y", "exposure": "n"}, ("must be a whole number",)),
    ({"y": [1], "n": [0.0]}, {"value": "y", "exposure": "n"}, ("an exposure must be above 0",)),
    ({"y": [1], "n": [2]}, {"successes": "y"}, ("successes='y' needs trials, too",)),
    ({"m": [1], "se": [2]}, {"se": "se"}, ("se='se' needs mean, too",)),
    ({"m": [1], "se": [2]}, {"n": "m"}, ("n='m' needs the mean and its standard error",)),
    ({"m": [1], "se": [2]}, {"exposure": "m"}, ("needs the column of counts",)),
    ({"m": [1], "se": [2]}, {"mean": "m", "se": "se", "value": "m"}, ("mean and value were given",)),
    ({"m": [1], "se": [2]}, {"mean": "m", "se": "se", "successes": "m", "trials": "m"}, ("mean and successes were",)),
    ({"m": [1], "se": [2]}, {"mean": "m", "se": "se", "sigma": 2.0}, ("sigma=2.0 with mean='m': summaries have no",)),
]  # fmt: skip


def _sheet(rows: Any, merged: tuple[str, ...]) -> Callable[[Path], Any]:
    return lambda folder: write_xlsx(folder / "t.xlsx", {"s": rows}, merged=merged)


ASKED: dict[str, Any] = {"agent": "a", "value": "v"}
REFUSED: list[Row] = [
    *((make, {"agent": "sensor", "value": "temperature"} | options, words)
      for make, options, words in SENSORS.values()),
    *((table, ASKED | options, words) for table, options, words in FRAMES.values()),
    *((_write("t.csv", content), ASKED | options, words) for content, options, words in SIGNS),
    *((_write("t.csv", f"a,v,t\nx,1,04.01.2024\nx,1,{cell}\n"), ASKED | {"time": "t"} | options, words)
      for cell, options, words in DATES),
    *((_write("t.csv", content), ASKED | {"encoding": encoding}, words) for content, encoding, words in ENCODINGS),
    *((iter([{"a": [1] * len(each), "v": each} for each in columns]), ASKED, words) for columns, words in KINDS),
    *((_sheet(rows, merged), ASKED | options, words) for rows, merged, options, words in SHEETS),
    *((_write(name, content), ASKED, words) for name, content, words in FILES),
    *(({"a": np.arange(len(next(iter(table.values()))))} | table, {"agent": "a"} | columns, words)
      for table, columns, words in SUMMARIES),
    *(({"a": [1], "v": [1]}, ASKED | {name: "latin-1"}, (f"{name}='latin-1' for the table: it is only for",))
      for name in ("encoding", "sheet")),
    ({"a": [1], "v": [1.0], "t": [1700000000]}, ASKED | {"time": "t", "time_format": "%d.%m.%Y"},
     ("t of the table holds int64", "Leave time_format (--time-format) out")),
]  # fmt: skip


@pytest.mark.parametrize(("source", "options", "words"), REFUSED)
def test_what_cannot_be_estimated_is_answered_with_what_was_got_the_rule_and_the_remedy(
    source: Any, options: dict[str, Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(ColmeError) as caught:
        estimate(source(tmp_path) if callable(source) else source, **options)
    message, place = str(caught.value), 0
    for word in words:
        place = message.find(word, place)
        assert place >= 0, f"{word!r} is missing, or too early, in: {message}"
    assert "\n" not in message and len(message) < 400 and message[-1] in ".?'"
    assert len(re.split(r"[.?] (?=[A-Z])", message)) == 2, f"not a sentence and a remedy: {message}"
    of_column = any(each in message for each in ("no column", "2 columns", "the name of a column"))
    assert isinstance(caught.value, ColumnError) == of_column
