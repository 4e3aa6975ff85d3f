"""Tables as people have them: signs in numbers, formats of dates, encodings, yes and no, JSON lines, spreadsheets."""

from __future__ import annotations

import datetime
import gzip
import io
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from colme.data.read import json_lines, sheets
from colme.data.read.json_lines import open_json_lines
from colme.data.read.table import Table, read_table
from colme.data.read.text_stream import TextStream
from colme.data.read.times import strptime
from colme.errors import DataError, MissingExtra
from tests.support.spreadsheets import Formula, write_ods, write_xlsx

ASKED: dict[str, Any] = {"agent": "a", "value": "v"}
NEW_YEAR = datetime.datetime(2024, 1, 1)
NOON = datetime.datetime(2024, 1, 1, 12)


def read(folder: Path, name: str, content: str | bytes, **options: Any) -> Table:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(path, **(ASKED | options))


def refused(make: Callable[[], object]) -> str:
    """The sentence: what was got and the rule, then the remedy."""
    with pytest.raises(DataError) as caught:
        make()
    message = str(caught.value)
    assert "\n" not in message and len(message) < 350 and message[-1] in ".?"
    assert len(re.split(r"[.?] (?=[A-Z])", message)) == 2, message
    return message


# Signs in numbers


@pytest.mark.parametrize(("cells", "numbers", "options"), [
    (("12,5", "-3", "+,5", "1e3"), (12.5, -3, 0.5, 1000), {"decimal": ","}),
    (("1.234.567,5", "999", "1234", ""), (1234567.5, 999, 1234), {"decimal": ",", "thousands": "."}),
    (("1 234,5", "1\u00a0234", "1\u202f234"), (1234.5, 1234, 1234), {"decimal": ",", "thousands": " "}),
    (("1'234.5", "1\u2019234"), (1234.5, 1234), {"thousands": "'"}),
    (("1,234.5", "NA", "-1,234,567"), (1234.5, -1234567), {"thousands": ","}),
])  # fmt: skip
def test_numbers_have_the_signs_that_are_named(
    cells: tuple[str, ...], numbers: tuple[float, ...], options: dict[str, str], tmp_path: Path
) -> None:
    table = read(tmp_path, "t.csv", "a;v\n" + "".join(f"x;{cell}\n" for cell in cells), **options)
    assert table.value.tolist() == list(numbers)


@pytest.mark.parametrize("header", ["a;v;w, km, h", "a\tv\tw, km, h", 'a|v|"w,,;;"'])
def test_a_decimal_comma_does_not_separate_columns(header: str, tmp_path: Path) -> None:
    row = header[1].join(("x", "1,5", "2,5"))
    assert read(tmp_path, "t.csv", f"{header}\n{row}\n", decimal=",").value.tolist() == [1.5]


@pytest.mark.parametrize(("content", "options", "fragments"), [
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
])  # fmt: skip
def test_other_signs_are_refused_with_the_option(
    content: str, options: dict[str, str], fragments: tuple[str, ...], tmp_path: Path
) -> None:
    message = refused(lambda: read(tmp_path, "t.csv", content, **options))
    assert all(fragment in message for fragment in fragments), message


# Dates


def test_dates_have_the_format_that_is_named(tmp_path: Path) -> None:
    content = "a,v,t\nx,1,31.12.2024 18:30\nx,2,01.01.2025 00:00\nx,3,\n"
    table = read(tmp_path, "t.csv", content, time="t", time_format="%d.%m.%Y %H:%M")
    assert table.time is not None and table.time.tolist() == [0, 5.5 * 3600] and table.dates


def test_dates_with_time_zones_are_instants(tmp_path: Path) -> None:
    content = "a,v,t\nx,1,2024-12-31 10:00 +0100\nx,2,2024-12-31 10:00 +0000\n"
    table = read(tmp_path, "t.csv", content, time="t", time_format="%Y-%m-%d %H:%M %z")
    assert table.time is not None and table.time.tolist() == [0, 3600]


FORMATS = (
    "%d.%m.%Y %H:%M",
    "%m/%d/%y",
    "%Y%m%d%H%M%S",
    "%d %b %Y",
    "%m/%d/%Y %I:%M %p",
    "%Y-%j",
    "%H:%M",
    "%d.%m",
    "%A %d %B %Y",
)


@pytest.mark.parametrize("form", FORMATS)
def test_dates_are_parsed_as_python_parses_them(form: str) -> None:
    """Also those with a character changed, added or left out, most of which are not dates."""
    rng = random.Random(form)
    cells = ["31.02.2024 10:00", "29.02", "20240229235960", "12/31/2024 00:30 PM", ""]
    for _ in range(1000):
        moment = datetime.datetime(1000, 1, 1) + datetime.timedelta(seconds=rng.randrange(9000 * 365 * 86400))
        cell = moment.strftime(form)
        k = rng.randrange(len(cell))
        sign = rng.choice("0123456789 ./:x-+")
        cells.append(
            rng.choice((cell, cell[:k] + sign + cell[k + 1 :], cell[:k] + sign + cell[k:], cell[:k] + cell[k + 1 :]))
        )

    def expected(cell: str) -> datetime.datetime | None:
        try:
            return datetime.datetime.strptime(cell, form)
        except ValueError:
            return None

    assert strptime(pa.array(cells), form).to_pylist() == list(map(expected, cells))


@pytest.mark.parametrize(("cell", "options", "fragments"), [
    ("31.02.2024", {"time_format": "%d.%m.%Y"}, ("t in row 2 of t.csv is '31.02.2024'", "fit the format '%d.%m.%Y'")),
    ("1700000000", {"time_format": "%d.%m.%Y"}, ("is '1700000000'", "fit the format")),
    ("05.01.2024", {}, ("numbers or dates", "time_format='%d.%m.%Y %H:%M' (--time-format)")),
    ("05.01.2024", {"time_format": "dd.mm.yyyy"}, ("time_format='dd.mm.yyyy'", "a format of strptime", "Try")),
    ("05.01.2024", {"time_format": "%Q"}, ("time_format='%Q'", "a format of strptime", "Try")),
    ("05.01.2024", {"time_format": "%d.%m.%Y", "time": None}, ("needs a column of times", "Try time=... (--time)")),
])  # fmt: skip
def test_a_date_that_does_not_fit_is_refused(
    cell: str, options: dict[str, Any], fragments: tuple[str, ...], tmp_path: Path
) -> None:
    content = f"a,v,t\nx,1,04.01.2024\nx,1,{cell}\n"
    message = refused(lambda: read(tmp_path, "t.csv", content, **({"time": "t"} | options)))
    assert all(fragment in message for fragment in fragments), message


def test_a_time_format_is_for_text() -> None:
    table = {"a": [1], "v": [1.0], "t": [1700000000]}
    message = refused(lambda: read_table(table, **ASKED, time="t", time_format="%d.%m.%Y"))
    assert "t of the table holds int64" in message and "Leave time_format (--time-format) out" in message


# Encodings


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8-sig", "utf-8"])
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl"])
def test_text_may_have_any_encoding(encoding: str, ending: str, tmp_path: Path) -> None:
    text = '{"a": "Köln", "v": 1}\r\n' if ending == "jsonl" else "a;v\r\nKöln;1\r\n"
    content = text.encode(encoding)
    table = read(
        tmp_path, f"t.{ending}", gzip.compress(content) if ending.endswith("gz") else content, encoding=encoding
    )
    assert table.labels.tolist() == ["Köln"] and table.value.tolist() == [1]


@pytest.mark.parametrize(("content", "encoding", "fragments"), [
    ("a;v\nKöln;1\n".encode("latin-1"), None, ("is not UTF-8 text in line 2", "Try encoding='latin-1' (--encoding")),
    ("ä;v\nx;1\n".encode("latin-1"), None, ("in line 1", "Try encoding='latin-1'")),
    ("a;v\n5 €;1\n".encode("cp1252"), None, ("in line 2", "Try encoding='cp1252' (--encoding cp1252)")),
    ("a;v\nx;1\n".encode("utf-16"), None, ("is not UTF-8 text", "Try encoding='utf-16' (--encoding utf-16)")),
    ("a;v\nx;1\n".encode("utf-16-be"), None, ("Try encoding='utf-16-be'",)),
    (b"a;v\n\x81;1\n", "cp1252", ("is not cp1252 text", "Try another encoding")),
    (b"a;v\nx;1\n", "utf-16", ("is not utf-16 text", "Leave the encoding out")),
    (b"a;v\nx;1\n", "latin-99", ("encoding='latin-99'", "the name of an encoding", "Try")),
    (b"a\0;v\nx;1\n", None, ("is not UTF-8 text", "Write it again")),
])  # fmt: skip
def test_an_encoding_that_does_not_fit_is_refused_with_a_likely_one(
    content: bytes, encoding: str | None, fragments: tuple[str, ...], tmp_path: Path
) -> None:
    message = refused(lambda: read(tmp_path, "t.csv", content, encoding=encoding))
    assert all(fragment in message for fragment in fragments), message


# Yes and no


@pytest.mark.parametrize("words", [("yes", "No"), ("TRUE", "false"), ("y", "N"), ("t", "F"), ("Yes", "f")])
def test_yes_and_no_count_as_1_and_0(words: tuple[str, str], tmp_path: Path) -> None:
    table = read(tmp_path, "t.csv", f"a,v\nx,{words[0]}\nx,{words[1]}\nx,\n")
    assert table.value.tolist() == [1, 0] and table.notes[0] == "Yes and no in v count as 1 and 0."


def _batches(*columns: list[Any]) -> Any:
    return iter([{"a": [1] * len(column), "v": column} for column in columns])


@pytest.mark.parametrize(("columns", "got", "rule"), [
    ((["yes", "no", "1"],), "row 3 of the table is '1'", "yes or no, as in the rows before"),
    ((["1", "no"],), "row 2 of the table is 'no'", "a number, as in the rows before"),
    ((["yes", "maybe"],), "row 2 of the table is 'maybe'", "yes or no"),
    ((["yes"], ["2"]), "row 2 of the table is '2'", "yes or no, as in the rows before"),
    ((["yes"], [None, 2.5]), "row 3 of the table is '2.5'", "yes or no, as in the rows before"),
    (([1, 2], [True]), "row 3 of the table is 'True'", "a number, as in the rows before"),
    (([True, False], [2]), "row 3 of the table is '2'", "yes or no, as in the rows before"),
    (([1, 2], ["yes"]), "row 3 of the table is 'yes'", "a number, as in the rows before"),
])  # fmt: skip
def test_a_column_of_two_kinds_is_refused_with_the_row(columns: tuple[list[Any], ...], got: str, rule: str) -> None:
    message = refused(lambda: read_table(_batches(*columns), **ASKED))
    assert got in message and rule in message


# JSON lines


def test_json_lines_are_a_table(tmp_path: Path) -> None:
    lines = ('{"a": "x", "v": 1, "t": "2024-01-01T12:00:00Z"}', "", '{"t": "2024-01-01T11:00:00Z", "a": "x", "v": 2.5}',
             '{"a": "y", "v": NaN}', '{"a": "y"}', '{"v": 3, "more": [1]}')  # fmt: skip
    content = "\ufeff" + "\r\n".join(lines)
    for name, data in (("t.jsonl", content.encode()), ("t.ndjson.gz", gzip.compress(content.encode()))):
        table = read(tmp_path, name, data, time="t")
        assert table.labels.tolist() == ["x"] and table.value.tolist() == [2.5, 1]
        assert table.time is not None and table.time.tolist() == [-3600, 0]
        assert table.notes[:2] == ("1 row without a was left out.", "2 rows without v were left out.")


def test_json_lines_may_hold_true_and_false_and_whole_labels(tmp_path: Path) -> None:
    table = read(tmp_path, "t.jsonl", '{"a": 7, "v": true}\n{"a": 7, "v": false}')
    assert table.labels.tolist() == [7] and table.value.tolist() == [1, 0]


@pytest.mark.parametrize(("line", "fragments"), [
    ("[1, 2]", ("row 12 of t.jsonl is '[1, 2]'", "every line must be one JSON object", "Write it like")),
    ('{"a": "x"', ("row 12 of t.jsonl is", "every line must be one JSON object")),
    ("\0", ("t.jsonl is not UTF-8 text", "Write it again")),
    ('{"a":' + "[" * 100_000, ("row 12 of t.jsonl is", "every line must be one JSON object")),
    ('{"a": "x", "v": [1]}', ("v in row 12 of t.jsonl is [1]", "flat", "choose another column")),
    ('{"a": {"b": 1}, "v": 1}', ("a in row 12 of t.jsonl is {'b': 1}", "flat", "choose another column")),
    ('{"a": "x", "v": 1e999}', ("v in row 12 of t.jsonl is inf", "finite")),
    ('{"a": "x", "v": true}', ("v in row 12 of t.jsonl is 'True'", "a number, as in the rows before")),
    ('{"a": "x", "v": "warm"}', ("v in row 12 of t.jsonl is 'warm'", "a number")),
    ('{"a": 7, "v": 1}', ("a of t.jsonl holds text and then numbers", "one kind")),
])  # fmt: skip
def test_a_bad_line_is_refused_with_its_row(
    line: str, fragments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is in a block of its own, so that kinds differ between batches."""
    before = '{"a": "x", "v": 1}\n' * 11
    monkeypatch.setattr(json_lines, "BLOCK", len(before) - 10)
    message = refused(lambda: read(tmp_path, "t.jsonl", before + line))
    assert all(fragment in message for fragment in fragments), message


# Spreadsheets

ROWS = [["a", "v", "t"], ["x", 1, NOON], ["x", 2.5, NEW_YEAR], ["y", None, NOON]]
WRITERS: dict[str, Callable[..., Path]] = {"xlsx": write_xlsx, "ods": write_ods}


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("above", [0, 3])
def test_a_sheet_is_a_table(ending: str, above: int, tmp_path: Path) -> None:
    """Its header is the first row that is not empty; midnight is a time like any other."""
    path = WRITERS[ending](tmp_path / f"t.{ending}", {"one": [[]] * above + ROWS})
    table = read_table(path, **ASKED, time="t")
    assert table.labels.tolist() == ["x"] and table.value.tolist() == [2.5, 1] and table.dates
    assert table.time is not None and np.diff(table.time).tolist() == [43200]


@pytest.mark.parametrize("ending", WRITERS)
def test_a_sheet_is_chosen_by_name(ending: str, tmp_path: Path) -> None:
    sheets = {"empty": [], "one": ROWS, "two": [["a", "v"], [7, True]]}
    path = WRITERS[ending](tmp_path / f"t.{ending}", sheets)
    first, second = read_table(path, **ASKED), read_table(path, **ASKED, sheet="two")
    assert first.labels.tolist() == ["x"] and f"Of the 3 sheets of {path.name}, 'one' was read." in first.notes
    assert second.labels.tolist() == [7] and second.value.tolist() == [1]
    assert "Did you mean 'two'?" in refused(lambda: read_table(path, **ASKED, sheet="tow"))
    assert "sheet 'empty' of" in refused(lambda: read_table(path, **ASKED, sheet="empty"))


def test_formulas_have_the_result_that_was_stored(tmp_path: Path) -> None:
    cells = [Formula("1+2", 3), Formula("1/0", "#DIV/0!"), Formula("1+3"), 4]
    table = read_table(write_xlsx(tmp_path / "t.xlsx", {"s": [["a", "v"], *(["x", cell] for cell in cells)]}), **ASKED)
    assert table.value.tolist() == [3, 4] and table.notes == ("2 rows without v were left out.",)


@pytest.mark.parametrize(("rows", "merged", "options", "fragments"), [
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
])  # fmt: skip
def test_a_sheet_that_is_not_a_table_is_refused(
    rows: Any, merged: tuple[str, ...], options: dict[str, Any], fragments: tuple[str, ...], tmp_path: Path
) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", {"s": rows}, merged=merged)
    message = refused(lambda: read_table(path, **ASKED, **options))
    assert all(fragment in message for fragment in fragments), message


def test_text_among_numbers_has_the_signs_that_are_named(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", {"s": [["a", "v"], ["x", 3.5], ["x", "1.234,5"], ["x", "n/a"]]})
    assert read_table(path, **ASKED, decimal=",", thousands=".").value.tolist() == [3.5, 1234.5]


def test_merged_cells_of_columns_that_are_not_read_do_not_matter(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", {"s": ROWS}, merged=["C2:C3"])
    assert read_table(path, **ASKED).value.tolist() == [1, 2.5]


def test_the_reader_of_spreadsheets_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(MissingExtra, match=r"reading spreadsheets needs python-calamine.*'\.\[excel\]'"):
        read_table(write_xlsx(tmp_path / "t.xlsx", {"s": ROWS}), **ASKED)


# Files that are not what their endings say, or that are odd


@pytest.mark.parametrize(("name", "content", "fragments"), [
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
    ("t.csv", b"a,v," + b"x" * 200_000 + b"\nx,1,2\n", ("the first line of t.csv is not a header",)),
])  # fmt: skip
def test_a_file_of_another_kind_is_refused(
    name: str, content: bytes, fragments: tuple[str, ...], tmp_path: Path
) -> None:
    message = refused(lambda: read(tmp_path, name, content))
    assert all(fragment in message for fragment in fragments), message


class Endless(io.RawIOBase):
    """The same bytes for ever, after a beginning; a reader that takes more than 256 MB of them fails."""

    def __init__(self, begin: bytes, again: bytes):
        self.begin, self.again, self.left = begin, again, 1 << 28

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        self.left -= size
        assert self.left > 0, "it was read on and on"
        piece = (self.begin + self.again * (size // len(self.again) + 1))[:size]
        self.begin = b""
        buffer[:size] = piece
        return size


@pytest.mark.parametrize(("begin", "again", "fragments"), [
    (b"", b"a", ("the first row of stdin has more than 4 MB", "it must be a header", "Check for a quotation mark")),
    (b"", b",", ("the first row of stdin has more than 4 MB",)),
    (b"", b"\n", ("the first row of stdin has more than 4 MB",)),
    (b'a,"v', b"v\n", ("the first row of stdin has more than 4 MB",)),
    (b"a,v\nx,", b"1", ("stdin has a row of more than 16 MB", "rows must be shorter")),
    (b'a,v\nx,"', b"1\n", ("stdin has a row of more than 16 MB", "Check for a quotation mark")),
], ids=str)  # fmt: skip
def test_a_line_without_end_is_refused_early(
    begin: bytes, again: bytes, fragments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = SimpleNamespace(buffer=io.BufferedReader(Endless(begin, again), 1 << 16))
    monkeypatch.setattr(sys, "stdin", stdin)
    message = refused(lambda: read_table("-", **ASKED))
    assert all(fragment in message for fragment in fragments), message


def test_an_object_without_end_is_refused_early() -> None:
    text = TextStream(io.BufferedReader(Endless(b'{"a": "', b"x"), 1 << 16), "t.jsonl")
    assert "t.jsonl has a line of more than 16 MB" in refused(lambda: open_json_lines(text))


def test_a_spreadsheet_that_unpacks_to_gigabytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", {"s": [*ROWS, *([["x", 1]] * 2000)]})
    assert len(read_table(path, **ASKED).value) > 2000
    monkeypatch.setattr(sheets, "MOST_UNPACKED", path.stat().st_size // 2)
    assert "Save the table as CSV or Parquet" in refused(lambda: read_table(path, **ASKED))


@pytest.mark.parametrize("content", [
    b"\xef\xbb\xbfa,v\r\nx,1\r\n", b"a,v\nx,1", b'"a","v"\n"x","1"\n', b"PAR1,a,v\n0,x,1\n", b"a,v,w\nx,1,\"p,\nq\"\n",
])  # fmt: skip
def test_odd_files_are_read(content: bytes, tmp_path: Path) -> None:
    table = read(tmp_path, "t.csv", content)
    assert table.labels.tolist() == ["x"] and table.value.tolist() == [1]


@pytest.mark.parametrize("option", ["encoding", "sheet"])
def test_options_without_a_meaning_are_refused(option: str) -> None:
    message = refused(lambda: read_table({"a": [1], "v": [1]}, **ASKED, **{option: "latin-1"}))
    assert f"{option}='latin-1' for the table: it is only for" in message
