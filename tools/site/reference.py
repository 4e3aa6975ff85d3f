"""Reference pages from what the program itself knows: its commands, and the structs behind its files."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

import click
import msgspec

from colme.cli import colme
from colme.cli.fields import SECTIONS, FieldOption, field_docs
from colme.lab.experiment import Expected, Head
from colme.lab.figures import FIGURES
from colme.methods import METHODS
from colme.metrics import METRICS
from colme.node.config.node_toml import NodeConfig
from colme.node.config.tables import Estimates, GatewayTable, Join, Limits, Neighbor, Samples, Tls
from colme.scenario import Scenario
from colme.sim.spec import Setup
from tools.site.markdown import code, definitions, escaped
from tools.site.public import annotations_of

_SHARED = ("run", "simulate", "watch")
"""Commands with a flag for every field of scenario, set-up and methods; the flags are listed once."""


def command_line() -> str:
    """Every command: usage, what it does, examples, arguments and options."""
    context = click.Context(colme, info_name="colme", max_content_width=100, show_default=True)
    parts = [_help(colme.help or ""), _options(colme, context)]
    shared = None
    for name in colme.list_commands(context):
        command = colme.get_command(context, name)
        assert command is not None
        parts.extend(_command(command, context, name, 2))
        shared = shared or (command if name in _SHARED else None)
    assert shared is not None
    parts.append("## Flags of fields\n")
    parts.append(
        "`colme run`, `colme simulate` and `colme watch` have a flag for every field of an "
        "[experiment file](experiment_file.md). Several values, separated by commas, make a sweep.\n"
    )
    for section in SECTIONS:
        options = [each for each in shared.params if isinstance(each, FieldOption) and each.section == section]
        parts += [f"### {section.split(' (')[0]} flags\n", _option_list(options, context)]
    return "\n".join(parts)


def _command(command: click.Command, parent: click.Context, name: str, level: int) -> Iterable[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{'#' * level} {context.command_path}\n"
    yield code(" ".join([context.command_path, *command.collect_usage_pieces(context)]))
    yield _help(command.help or command.short_help or "")
    yield _options(command, context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            assert below is not None
            if not below.hidden:
                yield from _command(below, context, each, level + 1)


def _help(text: str) -> str:
    """The help of a command as Markdown. A block that begins with \\b keeps its lines: a heading and examples."""
    blocks = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text).replace("\f", "")):
        if block.startswith("\b"):
            lines = block.splitlines()[1:]
            if lines and not lines[0].startswith(" ") and len(lines) > 1:
                blocks.append(escaped(lines[0]))
                lines = lines[1:]
            blocks.append(code(inspect.cleandoc("\n" + "\n".join(lines)), "console" if _is_console(lines) else "text"))
        else:
            blocks.append(escaped(" ".join(block.split())))
    return "\n\n".join(blocks) + "\n"


def _is_console(lines: list[str]) -> bool:
    return all("colme" in line for line in lines)


def _options(command: click.Command, context: click.Context) -> str:
    options = [each for each in command.get_params(context) if not isinstance(each, FieldOption)]
    note = ""
    if any(isinstance(each, FieldOption) for each in command.params):
        note = "\nAlso the [flags of fields](#flags-of-fields).\n"
    return _option_list(options, context) + note


def _option_list(options: Iterable[click.Parameter], context: click.Context) -> str:
    records = [record for each in options if (record := each.get_help_record(context)) is not None]
    return definitions((f"`{flags}`", escaped(" ".join(words.split()))) for flags, words in records if words)


def experiment_file() -> str:
    """The keys of an experiment file, table by table."""
    tags = ", ".join(f"[`{tag(each)}`](#{tag(each)})" for each in METHODS)
    parts = [
        "## Top of the file\n", _fields(Head, without=("expected",)),
        "## Set-up\n", "Also at the top of the file.\n", _fields(Setup),
        "## `[scenario]`\n", _fields(Scenario),
        "## `[[cases]]`\n",
        "Several scenarios in one experiment. A case has a name, `case`, and keys of `[scenario]` and of the set-up "
        "that it changes.\n",
        "## `[[methods]]`\n",
        definitions([
            ("`method`", f"its tag: {tags}, or that of a method of your own (`modules`). Required"),
            ("`label`", "its name in tables and figures. Default: that of the method"),
            ("`cases`", "the names of the cases in which it runs. Default: all"),
            ("`scenario.KEY`, `seeds`, and the keys of the set-up", "other values for this method alone"),
        ]),
        "The other keys are the fields of the method.\n",
    ]  # fmt: skip
    for each in METHODS:
        fields = _fields(each)
        parts += [f"### {tag(each)}\n", escaped(inspect.cleandoc(each.__doc__ or "").split("\n\n")[0]) + "\n",
                  fields or "No keys.\n"]  # fmt: skip
    parts += [
        "## `[[expected]]`\n", _fields(Expected),
        "## Figures\n", "Names for `figures`: " + ", ".join(f"`{name}`" for name in FIGURES) + ".\n",
        "## Metrics\n", "Names for `metric`: " + ", ".join(f"`{name}`" for name in METRICS)
        + ", and `time_ratio`, `worst_ratio` and `mean_coverage`, which are explained at `metric`.\n",
    ]  # fmt: skip
    return "\n".join(parts)


def node_file() -> str:
    """The keys of node.toml, table by table."""
    tables = ("method", "neighbors", "tls", "samples", "estimates", "limits", "gateway", "join")
    parts = ["## Top of the file\n", _fields(NodeConfig, without=tables)]
    parts.append("## `[method]`\n")
    parts.append(
        '`method = "cl-colme"` and its fields, as in [an experiment file](experiment_file.md#methods). Without the key '
        "`guard`, a method that can have a guard has one.\n"
    )
    for table in (Neighbor, Tls, Samples, Estimates, Join, GatewayTable, Limits):
        first = inspect.cleandoc(table.__doc__ or "").split("\n\n")[0]
        heading, _, about = " ".join(first.split()).partition(": ")
        about = re.sub(r" \(see colme[\w.]*\)", "", about)
        parts += [f"## `{heading}`\n", escaped(about[0].upper() + about[1:]) + "\n", _fields(table)]
    return "\n".join(parts)


def tag(method: type[Any]) -> str:
    """How files call a method."""
    return str(method.__struct_config__.tag)


def _fields(struct: type[Any], without: tuple[str, ...] = ()) -> str:
    docs = field_docs(struct)
    kinds = annotations_of(struct)
    pairs = []
    for field in msgspec.structs.fields(struct):
        if field.name not in without:
            words = escaped(docs[field.name].rstrip("."))
            pairs.append((f"`{field.name}`", f"{words}. {_kind(kinds[field.name])}{_default(field)}"))
    return definitions(pairs)


_KINDS = {
    "int": "whole number", "float": "number", "str": "text", "bool": "true or false",
    "dict[str, bool | int | float | str | tuple[float, ...]]": "table",
    "tuple[float, ...]": "list of numbers", "tuple[int, ...]": "list of whole numbers",
    "tuple[str, ...]": "list of text",
}  # fmt: skip


def _kind(annotation: str) -> str:
    whole = _KINDS.get(annotation)
    words = [whole] if whole else [_KINDS[each] for each in re.split(r" \| (?![^\[]*\])", annotation) if each != "None"]
    text = " or ".join(words)
    return f"*{text[0].upper()}{text[1:]}*"


def _default(field: Any) -> str:
    if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
        return ", required."
    if field.default is None or field.default is msgspec.NODEFAULT or field.default in ("", ()):
        return "."
    return f", default `{toml(field.default)}`."


def toml(value: Any) -> str:
    """A value as a file would hold it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    return str(value)
