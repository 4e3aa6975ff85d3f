"""`field_flags`: one command-line flag for every field of scenario, set-up and methods, named like the TOML key."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from colme.cli.parameters import Texts
from colme.errors import shorten
from colme.methods import METHODS, Method
from colme.scenario import Scenario
from colme.sim.graph_files import is_graph_file
from colme.sim.spec import Setup, flat_name
from colme.support.tables import parse_word

SECTIONS: dict[str, tuple[type[Any], ...]] = {
    "Scenario": (Scenario,),
    "Set-up": (Setup,),
    "Methods (a flag applies to the methods that have the field)": METHODS,
}
"""The structs whose fields are flags, by the title of their section in `--help`."""


class FieldOption(click.Option):
    """A flag for a field; given twice, or with several values, it is a sweep."""

    section = ""


class SectionedCommand(click.Command):
    """`--help` with the flags of fields in sections of their own."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for section in ("Options", *SECTIONS):
            mine = [each for each in self.get_params(context) if getattr(each, "section", "Options") == section]
            found = [record for each in mine if (record := each.get_help_record(context)) is not None]
            if found:
                with formatter.section(section):
                    formatter.write_dl(found)


def field_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every field of scenario, set-up and methods; the command receives `changes`, field -> value."""
    options: list[FieldOption] = []
    kinds: dict[str, Any] = {}
    for section, structs in SECTIONS.items():
        homes: dict[str, list[tuple[type[Any], Any]]] = {}
        for struct in structs:
            for field in msgspec.structs.fields(struct):
                name = flat_name(field.name) if issubclass(struct, Method) else field.name
                homes.setdefault(name, []).append((struct, field))
        for name, owners in homes.items():
            struct, field = owners[0]
            option = FieldOption(
                [f"--{name.replace('_', '-')}", name], metavar=_metavar(field.type), multiple=True,
                help=field_docs(struct).get(field.name, "") + _default([each.default for _, each in owners]),
            )  # fmt: skip
            option.section, kinds[name] = section, field.type
            options.append(option)

    @functools.wraps(command)
    def wrapped(**values: Any) -> Any:
        given = {name: values.pop(name) for name in kinds}
        changes = {name: parse_flag(name, texts, kinds[name]) for name, texts in given.items() if texts}
        return command(changes=changes, **values)

    wrapped.__click_params__ = options[::-1] + getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    return wrapped


def parse_flag(name: str, texts: Texts, kind: Any) -> Any:
    """The value as a TOML file would hold it: commas make a list, and a repeated flag makes a sweep."""
    every = [[parse_word(word) for word in text.split(",")] for text in texts]
    if takes_list(kind) and len(every) > 1:
        return every
    words = [word for each in every for word in each]
    if "" in words:
        raise click.BadParameter(f"{shorten(','.join(texts))} has an empty value.", param_hint=f"--{name}")
    if name == "graph":  # a path on the command line is relative to the current folder, one in a file to the file
        words = [str(Path(word).absolute()) if is_graph_file(str(word)) else word for word in words]
    return words[0] if len(words) == 1 and not only_list(kind) else words


def takes_list(kind: Any) -> bool:
    return "tuple" in str(kind)


def only_list(kind: Any) -> bool:
    return str(kind).startswith("tuple")


def _default(defaults: list[Any]) -> str:
    """The default of the field, where it is the same for all its owners."""
    first = defaults[0]
    if first in (None, msgspec.NODEFAULT) or any(each != first for each in defaults):
        return ""
    words = first if isinstance(first, tuple) else (first,)
    return f"  [{','.join(str(each).lower() if isinstance(each, bool) else str(each) for each in words)}]"


def _metavar(kind: Any) -> str:
    text = str(kind)
    if only_list(kind):
        return "A,B,..."
    if "bool" in text:
        return "true|false"
    lists = "|A,B,..." if takes_list(kind) else ""
    return "WORD" if kind is str else ("NUMBER|WORD" if "str" in text else "NUMBER") + lists


def field_docs(struct: type[Any]) -> dict[str, str]:
    """Field -> its description in the docstring of the struct or its parents ("name   description", aligned)."""
    docs: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        name = None
        for line in inspect.cleandoc(each.__doc__ or "").splitlines():  # Python 3.13 takes the indentation away
            if match := re.match(r"(\w+)\s{2,}(\S.*)", line):
                name, words = match.groups()
                docs[name] = words
            elif name is not None and line.startswith(" ") and line.strip():
                docs[name] += " " + line.strip()
            else:
                name = None
    return docs
