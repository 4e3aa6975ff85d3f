"""An extension of griffe, which reads the sources for mkdocstrings: docstrings of this house become Markdown.

It also gives structs the signature that msgspec makes, and the descriptions of all their fields, inherited ones
included.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import griffe
import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # griffe loads this file by its path

from colme.cli.fields import field_docs
from colme.support.structs import Configuration
from tools.site.docstrings import Names, as_markdown
from tools.site.public import annotations_of, public_names, resolve


class HouseStyle(griffe.Extension):
    """Rewrites the docstrings of everything that is loaded; structs get their signature."""

    def __init__(self) -> None:
        self._names = Names.public()
        self._structs = _configurations()

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        self._visit(pkg)

    def _visit(self, item: Any) -> None:
        for member in list(item.members.values()):
            if member.is_alias:
                continue
            if member.is_class:
                self._class(member)
            elif member.is_function:
                member.overloads = None  # for type checkers; the signature says the same in one piece
                self._docstring(member)
            else:
                self._docstring(member)
            if member.is_class or member.is_module:
                self._visit(member)

    def _docstring(self, member: Any) -> None:
        if member.docstring is not None:
            member.docstring.value = as_markdown(member.docstring.value, self._names, _owner(member))

    def _class(self, found: Any) -> None:
        """The docstring of a class; for a struct, also the signature that msgspec makes and all its fields."""
        fields = None
        kind = self._structs.get(found.path)
        if kind is not None:
            docs = field_docs(kind)
            fields = [(field.name, docs.get(field.name, "")) for field in msgspec.structs.fields(kind)]
            found.set_member("__init__", _constructor(kind))
        if found.docstring is not None:
            found.docstring.value = as_markdown(found.docstring.value, self._names, _owner(found), fields)


def _configurations() -> dict[str, type[Any]]:
    """Where it is defined -> struct, of the public structs that users make."""
    kinds = [resolve(name) for name in public_names()]
    return {f"{each.__module__}.{each.__qualname__}": each for each in kinds
            if isinstance(each, type) and issubclass(each, Configuration) and msgspec.structs.fields(each)}  # fmt: skip


def _owner(member: Any) -> str:
    return next((name for name in public_names() if name.rpartition(".")[2] == member.name), member.path)


def _constructor(kind: type[Any]) -> griffe.Function:
    """The signature of a struct: its fields by keyword, with their types and defaults."""
    self_ = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    parameters = [self_]
    annotations = annotations_of(kind)
    for field in msgspec.structs.fields(kind):
        default = None if field.default is msgspec.NODEFAULT else repr(field.default)
        if field.default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = f"{field.default_factory.__name__}()"
        parameters.append(
            griffe.Parameter(
                field.name,
                kind=griffe.ParameterKind.keyword_only,
                annotation=annotations[field.name],
                default=default,
            )
        )
    return griffe.Function("__init__", parameters=griffe.Parameters(*parameters))
