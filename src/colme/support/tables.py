"""The one writer of tables: rows or columns as text for a terminal, HTML, CSV, JSON, Parquet and data frames.

Names come from the user's data and are hostile until shown otherwise: terminals and pages get them `printable` and
escaped; files keep them as they are. rich, pyarrow and pandas are imported by the functions that need them, because a
running device must not load them.
"""

from __future__ import annotations

import bisect
import contextlib
import importlib
import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import msgspec

from colme.errors import ColmeError, missing_extra, one_of, printable

if TYPE_CHECKING:
    from rich.table import Table

Row = dict[str, Any]
Columns = Mapping[str, Any]

NAME_LENGTH = 40
"""Width of an agent's name in a sentence or a table, in characters."""
SENTENCE_LENGTH = 600
LEAST_TEXT = 12
"""Characters below which a column of text is not squeezed, if its text is longer."""
PIPE_WIDTH = 160
"""Characters of a line where there is no terminal."""
BACKENDS = ("pandas", "polars", "pyarrow")
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a cell begins with that a spreadsheet takes for a formula (OWASP, CSV injection)."""
_LINE = "1px solid rgba(128,128,128,.4)"
_CELL = "padding:2px 10px 2px 0;vertical-align:top"


# Cells


def safe_name(name: object, length: int = NAME_LENGTH) -> str:
    """A name from the user's data, `printable`; long ones end in "…". East Asian wide characters count as two."""
    text = printable(str(name)[: length + 1])  # every character counts: what comes later is not shown
    ends = list(itertools.accumulate(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text))
    return text if not ends or ends[-1] <= length else text[: bisect.bisect_right(ends, length - 1)] + "…"


def number(value: Any, style: str = "") -> str:
    """A number in a table: four significant digits, or in a format; empty if it is not known."""
    if isinstance(value, int):
        return f"{value:,}"
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:{style}}" if style else f"{value:.4g}"


def interval(lower: float, upper: float, style: str = "") -> str:
    """An interval in a table; empty if an end is not known."""
    if math.isnan(lower) or math.isnan(upper):
        return ""
    return f"{number(lower, style)} to {number(upper, style)}"


def text_of(value: Any) -> str:
    """A value of any kind in a cell."""
    if value is None or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if math.isinf(value):
            return "never"
        if abs(value) < 1e6 and (value.is_integer() or abs(value) >= 1e3):
            return f"{value:,.0f}"
        return f"{value:.3g}" if 1e-3 <= abs(value) < 1e3 else f"{value:.2e}"
    return ", ".join(map(text_of, value)) if isinstance(value, list | tuple) else printable(value)


def parse_word(word: str) -> Any:
    """What somebody typed: a number, a truth value or a string."""
    word = word.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if re.fullmatch(r"[\d_eE.+-]+", word):
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                return kind(word.replace("_", ""))
    return word


def _is_number(rows: Sequence[Row], name: str) -> bool:
    return any(isinstance(row[name], int | float) for row in rows)


# Terminal


def terminal_table(
    rows: Sequence[Row], title: str = "", *, words: Sequence[str] | None = None, cut: str = "", room: int | None = None
) -> Table:
    """At least one row as a rich.table.Table. Numbers are never broken into two lines; text is, between words.

    words  the columns of text (default: those without a number)
    cut    a column of names: a name that is longer than `room` ends in "…"
    """
    from rich import box
    from rich.table import Table

    table = Table(title=printable(title) or None, box=box.SIMPLE_HEAVY, padding=(0, 1), title_justify="left")
    for name in rows[0]:
        text = name in words if words is not None else not _is_number(rows, name)
        least = min(max(len(text_of(row[name])) for row in rows), LEAST_TEXT) if text and name != cut else None
        table.add_column(
            printable(name.replace("_", " ")), justify="left" if text else "right", no_wrap=not text or name == cut,
            overflow="ellipsis" if name == cut else "fold", min_width=least, max_width=room if name == cut else None,
        )  # fmt: skip
    for row in rows:
        table.add_row(*map(text_of, row.values()))
    return table


def print_table(
    rows: Sequence[Row], title: str = "", *, spare: Iterable[tuple[Sequence[str], int]] = (), wide: bool = True,
    words: Sequence[str] | None = None, cut: str = "",
) -> list[str]:  # fmt: skip
    """Print at least one row on stdout; returns the columns that did not fit, and are not empty.

    spare  (columns, least) to leave out, in this order, until no line is broken and `least` characters are left for the
           names in the column `cut`, if they are that long
    wide   leave out nothing, however long the lines become
    """
    import shutil

    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    console.width = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns

    def needed(room: int | None) -> int:
        table = terminal_table(rows, words=words, cut=cut, room=room)
        return console.measure(table, options=console.options.update(width=10_000)).maximum

    left_out: list[str] = []
    for names, least in () if wide else spare:
        if needed(least) <= console.width:
            break
        there = [name for name in names if name in rows[0]]
        left_out += [name for name in there if any(row[name] not in ("", None) for row in rows)]
        rows = [{key: value for key, value in row.items() if key not in there} for row in rows]
    if wide:
        console.width = max(console.width, needed(None))
    room = max(console.width - needed(1) + 1, 8) if cut else None
    console.print(terminal_table(rows, title, words=words, cut=cut, room=room))
    return left_out


# HTML


def html_fragment(headline: str, sentences: Iterable[str] = (), table: str = "", note: str = "") -> str:
    """A headline, sentences, a table (`html_table`), and a note below it, for notebooks and mails: what `_repr_html_`
    returns. There are no scripts, style sheets or colors of its own, only styles within the tags, which mail programs
    keep; so it is readable on a light and on a dark background. Long texts are shortened."""
    parts = [f'<p style="margin:4px 0"><b>{_sentence(headline)}</b></p>']
    parts += [f'<p style="margin:4px 0">{_sentence(each)}</p>' for each in sentences]
    parts += [table] if table else []
    parts += [f'<p style="margin:4px 0;font-size:85%;opacity:.75">{_sentence(note)}</p>'] if note else []
    return "<div>" + "".join(parts) + "</div>"


def html_table(rows: Sequence[dict[str, str]], words: Sequence[str] = ()) -> str:
    """A table of texts for `html_fragment`; the columns of `words` are set to the left, the others, numbers, to the
    right. Columns in which all cells are empty are left out."""
    names = [name for name in (rows[0] if rows else ()) if any(row[name] for row in rows)]

    def cell(tag: str, name: str, text: str) -> str:
        style = f"{_CELL};text-align:{'left' if name in words else 'right'};border-bottom:{_LINE}"
        return f'<{tag} style="{style}">{escape(safe_name(text))}</{tag}>'

    heads = {name: name for name in names}
    return _html(cell, heads, rows, ' style="border-collapse:collapse;margin:6px 0"') if names else ""


def page_table(
    rows: Sequence[Row], words: Sequence[str] = (), *, names: Mapping[str, str] | None = None,
    meanings: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """A table for a page with a style sheet: columns of numbers have the class "number", those of `words`, which are
    broken into lines, "words".

    names     column -> its heading
    meanings  column -> what the heading says when pointed at
    """
    if not rows:
        return ""

    def cell(tag: str, name: str, text: str) -> str:
        kind = "number" if _is_number(rows, name) else "words" if name in words and tag == "td" else ""
        marks = f' class="{kind}"' if kind else ""
        marks += f' title="{escape(meanings[name])}"' if tag == "th" and meanings and name in meanings else ""
        return f"<{tag}{marks}>{escape(text)}</{tag}>"

    heads = {name: (names or {}).get(name, name.replace("_", " ")) for name in rows[0]}
    return f'<div class="wide">{_html(cell, heads, rows)}</div>'


def _html(cell: Callable[[str, str, str], str], heads: Row, rows: Sequence[Row], marks: str = "") -> str:
    """The lines of a table, of cells that `cell` makes of a tag, the name of a column and a text."""

    def line(tag: str, row: Row) -> str:
        return f"<tr>{''.join(cell(tag, name, text_of(row[name])) for name in heads)}</tr>"

    lines = "".join(line("td", row) for row in rows)
    return f"<table{marks}><thead>{line('th', heads)}</thead><tbody>{lines}</tbody></table>"


def _sentence(text: str) -> str:
    return escape(safe_name(text, SENTENCE_LENGTH))


# Files


def csv_of_rows(rows: Sequence[Row]) -> str:
    """A few rows of any values as CSV."""
    import csv
    import io

    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def csv_of(columns: Columns, *, escape_formulas: bool = False) -> bytes:
    """Columns, of millions of rows, as CSV.

    Names are written as they are, so that they can be read back. With `escape_formulas`, a name that begins like a
    formula (=, +, -, @, or a tab or line break before one) gets an apostrophe in front, and a spreadsheet shows it
    instead of computing it."""
    table = arrow_table(columns)
    import pyarrow
    from pyarrow import csv

    if escape_formulas:
        names = [f"'{name}" if name.startswith(FORMULA) else name for name in table.column_names]
        table = pyarrow.table([_escaped(column) for column in table.columns], names)
    sink = pyarrow.BufferOutputStream()
    csv.write_csv(table, sink, csv.WriteOptions(quoting_style="needed", quoting_header="needed"))
    return bytes(sink.getvalue())


def _escaped(column: Any) -> Any:
    """A column of text, escaped; any other as it is."""
    import pyarrow
    from pyarrow import compute

    if not pyarrow.types.is_string(column.type):
        return column
    return compute.replace_substring_regex(column, f"^[{re.escape(''.join(FORMULA))}]", "'\\0")


def parquet_of(columns: Columns, summary: Any = None) -> bytes:
    """Columns as Parquet, with a summary as JSON under the key "colme" of the metadata."""
    table = arrow_table(columns)
    import pyarrow
    from pyarrow import parquet

    if summary is not None:
        table = table.replace_schema_metadata({"colme": json_line(summary)})
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def arrow_table(columns: Columns) -> Any:
    """Columns as a pyarrow.Table."""
    try:
        import pyarrow
    except ImportError:
        raise missing_extra("pyarrow", "data", "writing results") from None
    return pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})


def json_line(value: Any) -> bytes:
    """A value as JSON on one line: NaN and infinity are null."""
    return msgspec.json.encode(value, enc_hook=lambda number: number.item())  # NumPy's numbers


def json_of(value: Any) -> bytes:
    """Rows, or a table of them, as JSON."""
    return msgspec.json.format(json_line(value), indent=2) + b"\n"


def frame_of(columns: Columns, backend: str) -> Any:
    """Columns as a pandas or polars data frame, or a pyarrow table."""
    one_of(backend, BACKENDS, "backend", ColmeError)
    try:
        frames = importlib.import_module(backend)
    except ImportError as error:
        raise missing_extra(backend, "data", f"a {backend} frame") from error
    if backend == "pandas":
        return frames.DataFrame(dict(columns))
    table = arrow_table(columns)
    return frames.from_arrow(table) if backend == "polars" else table
