"""Frozen configurations: what a user types, checked at once, and printed back as one would type it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np

from colme.errors import ColmeError, one_of, shorten


class _Spelling(msgspec.StructMeta):
    """A misspelt field is answered with the nearest one."""

    refusal: type[ColmeError]

    def __call__(cls, *arguments: Any, **fields: Any) -> Any:
        for name in fields:
            one_of(name, cls.__struct_fields__, f"field of {cls.__name__}", cls.refusal)
        return super().__call__(*arguments, **fields)


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=_Spelling):
    """A struct whose fields take NumPy's numbers, arrays and lists for plain ones, and refuse other types."""

    refusal: ClassVar[type[ColmeError]] = ColmeError
    """What a field of the wrong type raises."""

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            value = plain(getattr(self, field.name))
            try:
                value = msgspec.convert(value, field.type)
            except msgspec.ValidationError as error:
                reason = str(error).split(" - at")[0].replace("`", "")
                raise self.refusal(
                    f"{field.name}={shorten(value)}: {reason[0].lower()}{reason[1:]}. "
                    f"See help(colme.{type(self).__name__})."
                ) from None
            msgspec.structs.force_setattr(self, field.name, value)

    def __repr__(self) -> str:
        named = ((field, getattr(self, field.name)) for field in msgspec.structs.fields(self))
        shown = [f"{field.name}={value!r}" for field, value in named if field.required or value != field.default]
        return f"{type(self).__name__}({', '.join(shown)})"


def plain(value: Any) -> Any:
    """Python's own numbers and tuples for NumPy's."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(plain(each) for each in value)
    return value
