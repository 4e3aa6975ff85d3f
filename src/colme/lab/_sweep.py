"""A list is a sweep: from a table of an experiment file to every combination of its values."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from colme.errors import ColmeError, ExperimentError, one_of, shorten


def combinations(table: dict[str, Any], struct: type[msgspec.Struct], path: str) -> list[dict[str, Any]]:
    """Every combination of the values of a table whose keys are the fields of a struct, the last key fastest.

    A list is a sweep, unless the field itself takes a list (`means`): there, a list of lists is."""
    fields = {field.name: field.type for field in msgspec.structs.fields(struct)}
    choices = []
    for key, value in table.items():
        with located(path):
            one_of(key, fields, "key")
        choices.append([(key, each) for each in _values(value, fields[key], f"{path}.{key}".lstrip("."))])
    return [dict(combination) for combination in itertools.product(*choices)]


def _values(value: Any, kind: Any, path: str) -> list[Any]:
    """One value, or several if it is a sweep."""
    try:
        return [_accept(value, kind)]
    except msgspec.ValidationError as error:
        if not isinstance(value, list):
            raise ExperimentError(f"{path}={shorten(value)}: {_reason(error)}.") from None
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
            raise ExperimentError(f"{path}[{i}]={shorten(each)}: {_reason(error)}.") from None
    for i, each in enumerate(swept):
        if each in swept[:i]:
            raise ExperimentError(f"{path}[{i}]={shorten(each)} is twice in the list. Leave one out.")
    return swept


def _accept(value: Any, kind: Any) -> Any:
    """A value as its field takes it; 1e4 is also a whole number."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        if isinstance(value, float) and value.is_integer():
            return msgspec.convert(int(value), kind)
        raise


def _reason(error: msgspec.ValidationError) -> str:
    reason = str(error).split(" - at")[0].replace("`", "").replace("array", "a list")
    return reason[0].lower() + reason[1:]


def convert_fields(values: dict[str, Any], struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Each value as its field takes it; errors tell the path."""
    types = {field.name: field.type for field in msgspec.structs.fields(struct)}
    return {key: convert_field(value, types[key], key) for key, value in values.items()}


def convert_field(value: Any, kind: Any, path: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, inner = str(error).replace("`", "").partition(" - at $")
        raise ExperimentError(f"{path}{inner}: {reason[0].lower()}{reason[1:]}.") from None


@contextlib.contextmanager
def located(path: str) -> Iterator[None]:
    """Errors inside tell where in the file they belong."""
    try:
        yield
    except ColmeError as error:
        message = str(error)
        names_its_key = re.match(r"\w+=", message) is not None
        raise ExperimentError(f"{path}{'.' if names_its_key else ': '}{message}" if path else message) from None
