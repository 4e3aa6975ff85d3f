"""`text_of`: values as text in the cells of a table. `parse_word`: text that people type, as a value."""

from __future__ import annotations

import re
from typing import Any

from colme.errors import printable

Row = dict[str, Any]


def text_of(value: Any) -> str:
    """The text of a value in a cell."""
    if value is None or value != value:
        return "-"
    if value in (float("inf"), float("-inf")):
        return "never"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:,}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e6:
        return f"{value:.0f}"
    if isinstance(value, float) and 1e3 <= abs(value) < 1e6:
        return f"{value:.0f}"
    if isinstance(value, float):
        return f"{value:.3g}" if value == 0 or 1e-3 <= abs(value) < 1e3 else f"{value:.2e}"
    return ", ".join(map(text_of, value)) if isinstance(value, list | tuple) else printable(value)


def parse_word(word: str) -> Any:
    """A number, a truth value or a string."""
    word = word.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for number in (int, float):
        try:
            return number(word.replace("_", "")) if not re.search(r"[^\d_eE.+-]", word) else word
        except ValueError:
            continue
    return word
