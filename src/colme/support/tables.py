"""Small tables in HTML, for notebooks and mails: what `_repr_html_` returns.

There are no scripts, no style sheets and no colors of their own, only styles within the tags, which mail programs keep;
so a table is readable on a light and on a dark background. Every text is escaped, and long ones are shortened.
"""

from __future__ import annotations

import bisect
import itertools
import math
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from colme.errors import printable

NAME_LENGTH = 40
"""Width of an agent's name in a sentence or a table, in characters."""
SENTENCE_LENGTH = 600
_LINE = "1px solid rgba(128,128,128,.4)"
_CELL = "padding:2px 10px 2px 0;vertical-align:top"


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


def html_fragment(headline: str, sentences: Iterable[str] = (), table: str = "", note: str = "") -> str:
    """A headline, sentences, a table (`html_table`), and a note below it."""
    parts = [f'<p style="margin:4px 0"><b>{_sentence(headline)}</b></p>']
    parts += [f'<p style="margin:4px 0">{_sentence(each)}</p>' for each in sentences]
    parts += [table] if table else []
    parts += [f'<p style="margin:4px 0;font-size:85%;opacity:.75">{_sentence(note)}</p>'] if note else []
    return "<div>" + "".join(parts) + "</div>"


def html_table(rows: Sequence[dict[str, str]], words: Sequence[str] = ()) -> str:
    """A table of texts, one row each; the columns of `words` are set to the left, the others, numbers, to the right.
    Columns in which all cells are empty are left out."""
    names = [name for name in (rows[0] if rows else ()) if any(row[name] for row in rows)]

    def cell(tag: str, name: str, text: str) -> str:
        style = f"{_CELL};text-align:{'left' if name in words else 'right'};border-bottom:{_LINE}"
        return f'<{tag} style="{style}">{escape(safe_name(text))}</{tag}>'

    head = "".join(cell("th", name, name) for name in names)
    body = "".join("<tr>" + "".join(cell("td", name, row[name]) for name in names) + "</tr>" for row in rows)
    style = "border-collapse:collapse;margin:6px 0"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>' if names else ""


def _sentence(text: str) -> str:
    return escape(safe_name(text, SENTENCE_LENGTH))
