"""Plain text as Markdown: escaped, and lists of definitions."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SPECIAL = re.compile(r"([\\*_\[\]#])")


def escaped(text: str) -> str:
    """Text that Markdown shows as it is; what stands in backticks stays code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a lonely backtick
        return _plain(text).replace("`", "\\`")
    return "`".join(part if i % 2 else _plain(part) for i, part in enumerate(parts))


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text).replace("<", "&lt;")


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of (term, description), both Markdown on one line."""
    lines = [f"{term}\n:   {description or '—'}\n" for term, description in pairs]
    return "\n".join(lines)


def code(text: str, language: str = "text") -> str:
    """A block of code."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"
