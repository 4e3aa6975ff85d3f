"""A list is a sweep: from a table of an experiment file to every combination of its values."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any, get_args

import msgspec

from colme.errors import ColmeError, ExperimentError, one_of, shorten


def combinations(
    table: dict[str, Any], struct: type[msgspec.Struct], paths: dict[str, str], others: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """Every combination of the values of a table whose keys are the fields of a struct, the last key fastest.
    `paths` says in which table of the file each key is; `others` are keys that could have stood there too.

    A list is a sweep, unless the field itself takes a list (`means`): there, a list of lists is."""
    fields = {field.name: field.type for field in msgspec.structs.fields(struct)}
    choices = []
    for key, value in table.items():
        with located(paths[key]):
            one_of(key, (*fields, *others), "key")
        choices.append([(key, each) for each in _values(value, fields[key], f"{paths[key]}.{key}".lstrip("."))])
    return [dict(combination) for combination in itertools.product(*choices)]


def _values(value: Any, kind: Any, path: str) -> list[Any]:
    """One value, or several if it is a sweep."""
    try:
        return [_accept(value, kind)]
    except msgspec.ValidationError as error:
        if not isinstance(value, list):
            raise ExperimentError(f"{path}={shorten(value)}: {_reason(error)}") from None
    if not value:
        raise ExperimentError(f"{path}=[]: a sweep needs at least one value. Leave the key out for its default.")
    swept = []
    for i, each in enumerate(value):
        try:
            if isinstance(each, list) and len(each) == 1:  # [2.0] is 2.0 where the field takes a number too
                with contextlib.suppress(msgspec.ValidationError):
                    swept.append(_accept(each[0], kind))
                    continue
            swept.append(_accept(each, kind))
        except msgspec.ValidationError as error:
            raise ExperimentError(f"{path}[{i}]={shorten(each)}: {_reason(error)}") from None
    for i, each in enumerate(swept):
        if each in swept[:i]:
            raise ExperimentError(f"{path}[{i}]={shorten(each)} is twice in the list. Leave one out.")
    return swept


def sweep_place(value: Any, struct: type[msgspec.Struct], key: str, chosen: Any) -> str:
    """ "[2]" for the third value of a sweep, "" for the value of a field that is not swept."""
    kind = next(field.type for field in msgspec.structs.fields(struct) if field.name == key)
    every = _values(value, kind, key)
    return f"[{every.index(chosen)}]" if len(every) > 1 else ""


def _accept(value: Any, kind: Any) -> Any:
    """A value as its field takes it; 1e4 is also a whole number."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        if isinstance(value, float) and value.is_integer():
            with contextlib.suppress(msgspec.ValidationError):
                return msgspec.convert(int(value), kind)
        raise


_WORDS = {
    "int": "a whole number", "float": "a number", "str": "a word", "bool": "true or false", "array": "a list",
    "object": "a table", "null": "nothing",
}  # fmt: skip
_EXAMPLES = {"int": "10", "float": "0.5", "str": '"..."', "bool": "true", "array": "[1.0, 2.0]", "object": "{ ... }"}


def _reason(error: msgspec.ValidationError) -> str:
    """The rule and the remedy, in words."""
    reason = str(error).split(" - at")[0].replace("`", "")
    match = re.fullmatch(r"Expected (.*), got (.*)", reason)
    if match is None:
        return f"{reason[0].lower()}{reason[1:].rstrip('.')}. See: colme simulate --help."
    kinds = [kind for kind in match[1].split(" | ") if kind != "null"]
    wanted = " or ".join(_WORDS.get(kind, kind) for kind in kinds)
    got = "a fraction" if match[2] == "float" else _WORDS.get(match[2], match[2])
    return f"it must be {wanted}, not {got}. Try {_EXAMPLES.get(kinds[0], kinds[0])}."


def convert_fields(values: dict[str, Any], struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Each value as its field takes it; errors tell the path."""
    types = {field.name: field.type for field in msgspec.structs.fields(struct)}
    return {key: convert_field(value, types[key], key) for key, value in values.items()}


def convert_field(value: Any, kind: Any, path: str) -> Any:
    _check_keys(value, kind, path)
    try:
        return _accept(value, kind)
    except msgspec.ValidationError as error:
        inner = str(error).replace("`", "").partition(" - at $")[2]
        if isinstance(error.__cause__, ColmeError):  # a rule of the struct itself, which says all
            raise ExperimentError(f"{path}{inner}: {error.__cause__}") from None
        found = value
        with contextlib.suppress(KeyError, ValueError):  # msgspec writes [...] for the keys of a free table
            for step in re.findall(r"[^.\[\]]+|\.\.\.", inner):
                found = found[int(step)] if isinstance(found, list) else found[step]
        raise ExperimentError(f"{path}{inner}={shorten(found)}: {_reason(error)}") from None


def _check_keys(value: Any, kind: Any, path: str) -> None:
    """The keys of tables inside a field, for msgspec does not say which one was meant."""
    for inner in (kind, *get_args(kind)):
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            every = [(path, value)] if isinstance(value, dict) else []
            every += [(f"{path}[{i}]", each) for i, each in enumerate(value)] if isinstance(value, list) else []
            for where, each in every:
                for key in each if isinstance(each, dict) else ():
                    with located(where):
                        one_of(key, inner.__struct_fields__, "key")


@contextlib.contextmanager
def located(path: str) -> Iterator[None]:
    """Errors inside tell where they belong: in a table of the file, or (path ends in ": ") in which file."""
    try:
        yield
    except ColmeError as error:
        message = str(error)
        if path and not path.endswith(": "):
            path += "." if re.match(r"\w+(\[\d+\])?=", message) else ": "  # a message may begin with its key
        raise ExperimentError(f"{path}{message}") from None
