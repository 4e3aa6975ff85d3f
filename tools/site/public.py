"""The public names: those that docs/reference/public.md lists. Pages and tests read them from there."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "docs" / "reference" / "public.md"


class Section(NamedTuple):
    """A section of the list, which is a page of the reference."""

    title: str
    about: str
    """The text between the heading and the names."""
    names: tuple[str, ...]
    """With their modules: colme.graphs.from_edges."""

    @property
    def page(self) -> str:
        """The name of its page, without folder and ending."""
        return re.sub(r"\W+", "_", self.title.lower()).strip("_")


def sections(text: str | None = None) -> list[Section]:
    """The sections of the list: `## Title`, a text, and a line "- `module.name`" for each name."""
    found = []
    for part in re.split(r"^## ", text if text is not None else LIST.read_text(encoding="utf-8"), flags=re.M)[1:]:
        title, _, body = part.partition("\n")
        names = tuple(re.findall(r"^- `([\w.]+)`", body, flags=re.M))
        if names:
            about = re.split(r"^- `", body, maxsplit=1, flags=re.M)[0].strip()
            found.append(Section(title.strip(), about, names))
    return found


def public_names() -> list[str]:
    """All of them, in the order of the list."""
    return [name for section in sections() for name in section.names]


def resolve(name: str) -> Any:
    """What a public name stands for."""
    module, _, short = name.rpartition(".")
    return getattr(importlib.import_module(module), short)


def by_short_name() -> dict[str, str]:
    """Last part -> full name; `Result` is enough in a docstring."""
    return {name.rpartition(".")[2]: name for name in reversed(public_names())}


def annotations_of(struct: type[Any]) -> dict[str, str]:
    """Field -> type, as the source has it, of a struct and its parents."""
    found: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        found |= inspect.get_annotations(each)
    return found
