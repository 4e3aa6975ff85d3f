"""Configurations as frozen structs: what users type in Python or write in a file, checked at once.

`Configuration` is the parent of every one. The functions below it read tables from TOML and convert their values to the
fields of a struct; a refusal names the path of the value that it refuses.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import msgspec
import numpy as np

from colme.errors import ColmeError, Refusal, one_of, shorten

Table = dict[str, Any]
"""Keys and values, as TOML has them."""
MOST_LEVELS = 32
"""Tables and lists in each other, at most, in a file of TOML."""
MOST_BYTES = 1 << 24
"""Of a file of TOML."""
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){200}""")
"""A dotted key of so many parts, for which tomllib needs time and memory by the square of their number."""


class _Spelling(msgspec.StructMeta):
    """A misspelt field is refused with the nearest one as a suggestion."""

    refusal: Refusal

    if not TYPE_CHECKING:  # type checkers would take its signature for that of every struct

        def __call__(cls, *arguments: Any, **fields: Any) -> Any:
            for name in fields:
                one_of(name, cls.__struct_fields__, f"field of {cls.__name__}", cls.refusal)
            return super().__call__(*arguments, **fields)


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=_Spelling):
    """A frozen struct that is checked when it is made, and whose repr is what one would type.

    Fields take NumPy's numbers, arrays and lists for plain ones, and refuse other types."""

    refusal: ClassVar[Refusal] = ColmeError
    """What a field of the wrong type raises."""

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            value = plain(getattr(self, field.name))
            try:
                value = msgspec.convert(value, field.type)
            except msgspec.ValidationError as error:
                reason = _complaint(error)
                raise self.refusal(
                    f"{field.name}={shorten(value)}: {reason[0].lower()}{reason[1:]}. "
                    f"See help(colme.{type(self).__name__})."
                ) from None
            msgspec.structs.force_setattr(self, field.name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.changed.items())})"

    @property
    def changed(self) -> Table:
        """The fields that differ from their default."""
        named = ((field, getattr(self, field.name)) for field in msgspec.structs.fields(self))
        return {field.name: value for field, value in named if field.required or value != field.default}


def plain(value: Any) -> Any:
    """A value of NumPy as Python's own numbers and tuples."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(plain(each) for each in value)
    return value


def read_toml(path: Path, refusal: Refusal, remedy: str) -> Table:
    """The table in a TOML file; the remedy is for one that cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise refusal(f"{path} has more than {MOST_BYTES >> 20} MB: it must be smaller. {remedy}")
        text = content.decode()
        found = None if _LONG_KEY.search(text) else tomllib.loads(text.replace("\r\n", "\n"))
    except OSError as error:
        raise refusal(f"cannot read {path}: {error.strerror}. {remedy}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise refusal(f"{path} is not TOML: {error}. Mend that line.") from None
    except RecursionError:
        found = None
    if found is None or _is_deep(found):
        raise refusal(f"{path} has tables or lists nested more than {MOST_LEVELS} deep: none needs so many. {remedy}")
    return found


def _is_deep(table: Table) -> bool:
    """Whether tables and lists are nested deeper than any field needs; whatever walks through them may recurse."""
    level: list[Any] = [table]
    for _ in range(MOST_LEVELS):
        below = (each.values() if isinstance(each, dict) else each for each in level)
        level = [inner for each in below for inner in each if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def accept(value: Any, kind: Any) -> Any:
    """A value converted to the type of its field; 1e4 is also a whole number."""
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


def _complaint(error: msgspec.ValidationError) -> str:
    """What msgspec says, but where."""
    return str(error).split(" - at")[0].replace("`", "")


def reason_of(error: msgspec.ValidationError) -> str:
    """msgspec's complaint as a rule and a remedy."""
    reason = _complaint(error)
    match = re.fullmatch(r"Expected (.*), got (.*)", reason)
    if missing := re.fullmatch(r"Object missing required field (.*)", reason):
        return f"{missing[1]} is missing. Add it."
    if match is None:
        return f"{reason[0].lower()}{reason[1:].rstrip('.')}. See: colme simulate --help."
    kinds = [kind for kind in match[1].split(" | ") if kind != "null"]
    wanted = " or ".join(_WORDS.get(kind, kind) for kind in kinds)
    got = "a fraction" if match[2] == "float" else _WORDS.get(match[2], match[2])
    return f"it must be {wanted}, not {got}. Try {_EXAMPLES.get(kinds[0], kinds[0])}."


def convert_fields(values: Table, struct: type[msgspec.Struct], refusal: Refusal) -> Table:
    """Values from a file, each converted to the type of its field; errors name the path."""
    types = {field.name: field.type for field in msgspec.structs.fields(struct)}
    return {key: convert_field(value, types[key], key, refusal) for key, value in values.items()}


def convert_field(value: Any, kind: Any, path: str, refusal: Refusal) -> Any:
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


def _check_keys(value: Any, kind: Any, path: str, refusal: Refusal) -> None:
    """Check the keys of tables inside a field: msgspec would not suggest the nearest one."""
    structs = [each for each in (kind, *get_args(kind)) if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    tables = {f"{path}[{i}]": each for i, each in enumerate(value)} if isinstance(value, list) else {path: value}
    for where, table in tables.items() if structs else ():
        for key in table if isinstance(table, dict) else ():
            with located(where, refusal):
                one_of(key, structs[0].__struct_fields__, "key")


@contextlib.contextmanager
def located(path: str, refusal: Refusal) -> Iterator[None]:
    """Errors raised inside begin with where they belong: a table of the file, or (path ends in ": ") the file."""
    try:
        yield
    except ColmeError as error:
        message = str(error)
        if path and not path.endswith(": "):
            path += "." if re.match(r"\w+(\[\d+\])?=", message) else ": "  # a message may begin with its key
        raise refusal(f"{path}{message}") from None
