"""Values of a file as the fields of a struct take them; a refusal tells the path of what it refuses."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from colme.errors import ColmeError, one_of, shorten


def read_toml(path: Path, refusal: type[ColmeError], remedy: str) -> dict[str, Any]:
    """The table in a TOML file; the remedy is for one that cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise refusal(f"cannot read {path}: {error.strerror}. {remedy}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise refusal(f"{path} is not TOML: {error}. Mend that line.") from None


def accept(value: Any, kind: Any) -> Any:
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


def reason_of(error: msgspec.ValidationError) -> str:
    """The rule and the remedy, in words."""
    reason = str(error).split(" - at")[0].replace("`", "")
    match = re.fullmatch(r"Expected (.*), got (.*)", reason)
    if missing := re.fullmatch(r"Object missing required field (.*)", reason):
        return f"{missing[1]} is missing. Add it."
    if match is None:
        return f"{reason[0].lower()}{reason[1:].rstrip('.')}. See: colme simulate --help."
    kinds = [kind for kind in match[1].split(" | ") if kind != "null"]
    wanted = " or ".join(_WORDS.get(kind, kind) for kind in kinds)
    got = "a fraction" if match[2] == "float" else _WORDS.get(match[2], match[2])
    return f"it must be {wanted}, not {got}. Try {_EXAMPLES.get(kinds[0], kinds[0])}."


def convert_fields(values: dict[str, Any], struct: type[msgspec.Struct], refusal: type[ColmeError]) -> dict[str, Any]:
    """Each value as its field takes it; errors tell the path."""
    types = {field.name: field.type for field in msgspec.structs.fields(struct)}
    return {key: convert_field(value, types[key], key, refusal) for key, value in values.items()}


def convert_field(value: Any, kind: Any, path: str, refusal: type[ColmeError]) -> Any:
    _check_keys(value, kind, path, refusal)
    try:
        return accept(value, kind)
    except msgspec.ValidationError as error:
        inner = str(error).replace("`", "").partition(" - at $")[2]
        if isinstance(error.__cause__, ColmeError):  # a rule of the struct itself, which says all
            raise refusal(f"{path}{inner}: {error.__cause__}") from None
        found = value
        with contextlib.suppress(KeyError, ValueError):  # msgspec writes [...] for the keys of a free table
            for step in re.findall(r"[^.\[\]]+|\.\.\.", inner):
                found = found[int(step)] if isinstance(found, list) else found[step]
        raise refusal(f"{path}{inner}={shorten(found)}: {reason_of(error)}") from None


def _check_keys(value: Any, kind: Any, path: str, refusal: type[ColmeError]) -> None:
    """The keys of tables inside a field, for msgspec does not say which one was meant."""
    for inner in (kind, *get_args(kind)):
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            every = [(path, value)] if isinstance(value, dict) else []
            every += [(f"{path}[{i}]", each) for i, each in enumerate(value)] if isinstance(value, list) else []
            for where, each in every:
                for key in each if isinstance(each, dict) else ():
                    with located(where, refusal):
                        one_of(key, inner.__struct_fields__, "key")


@contextlib.contextmanager
def located(path: str, refusal: type[ColmeError]) -> Iterator[None]:
    """Errors inside tell where they belong: in a table of the file, or (path ends in ": ") in which file."""
    try:
        yield
    except ColmeError as error:
        message = str(error)
        if path and not path.endswith(": "):
            path += "." if re.match(r"\w+(\[\d+\])?=", message) else ": "  # a message may begin with its key
        raise refusal(f"{path}{message}") from None
