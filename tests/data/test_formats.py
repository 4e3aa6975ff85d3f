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


# Yes and no


@pytest.mark.parametrize("words", [("yes", "No"), ("TRUE", "false"), ("y", "N"), ("t", "F"), ("Yes", "f")])
def test_yes_and_no_count_as_1_and_0(words: tuple[str, str], tmp_path: Path) -> None:
    table = read(tmp_path, "t.csv", f"a,v\nx,{words[0]}\nx,{words[1]}\nx,\n")
    assert table.value.tolist() == [1, 0] and table.notes[0] == "Yes and no in v count as 1 and 0."


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
