"""`combinations`: every combination of the values in a table of an experiment file, where a list is a sweep."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable
from typing import Any

import msgspec

from colme.errors import ExperimentError, one_of, shorten
from colme.support import structs
from colme.support.structs import accept, reason_of


def combinations(
    table: dict[str, Any], struct: type[msgspec.Struct], paths: dict[str, str], others: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """Every combination of the values of a table whose keys are the fields of a struct, the last key fastest.
    `paths` says in which table of the file each key is; `others` are further keys that are allowed there.

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
        return [accept(value, kind)]
    except msgspec.ValidationError as error:
        if not isinstance(value, list):
            raise ExperimentError(f"{path}={shorten(value)}: {reason_of(error)}") from None
    if not value:
        raise ExperimentError(f"{path}=[]: a sweep needs at least one value. Leave the key out for its default.")
    swept = []
    for i, each in enumerate(value):
        try:
            if isinstance(each, list) and len(each) == 1:  # [2.0] is 2.0 where the field takes a number too
                with contextlib.suppress(msgspec.ValidationError):
                    swept.append(accept(each[0], kind))
                    continue
            swept.append(accept(each, kind))
        except msgspec.ValidationError as error:
            raise ExperimentError(f"{path}[{i}]={shorten(each)}: {reason_of(error)}") from None
    for i, each in enumerate(swept):
        if each in swept[:i]:
            raise ExperimentError(f"{path}[{i}]={shorten(each)} is twice in the list. Leave one out.")
    return swept


def sweep_place(value: Any, struct: type[msgspec.Struct], key: str, chosen: Any) -> str:
    """ "[2]" for the third value of a sweep, "" for the value of a field that is not swept."""
    kind = next(field.type for field in msgspec.structs.fields(struct) if field.name == key)
    every = _values(value, kind, key)
    return f"[{every.index(chosen)}]" if len(every) > 1 else ""


def located(path: str) -> contextlib.AbstractContextManager[None]:
    """Errors raised inside name the place in the experiment file."""
    return structs.located(path, ExperimentError)


def convert_fields(values: dict[str, Any], struct: type[msgspec.Struct]) -> dict[str, Any]:
    return structs.convert_fields(values, struct, ExperimentError)


def convert_field(value: Any, kind: Any, path: str) -> Any:
    return structs.convert_field(value, kind, path, ExperimentError)
