"""What an agent must keep to go on after a restart, as bytes: see `colme.support.saved`."""

from __future__ import annotations

from typing import Any

import msgspec

from colme.errors import CheckpointError, shorten
from colme.support.saved import from_bytes as from_bytes
from colme.support.saved import from_plain as thaw
from colme.support.saved import to_bytes as to_bytes
from colme.support.saved import to_plain as freeze

__all__ = ["check_same", "freeze", "from_bytes", "thaw", "to_bytes"]


def check_same(saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse a state that another agent saved, or one with another method or another value of `wanted`."""
    for key, value in wanted.items():
        found = saved.get(key)
        if found != value and not (key == "method" and _same_method(found, value)):
            raise CheckpointError(
                f"the store holds {shorten(saved.get(key))} for the {key} where {shorten(value)} starts. "
                "Use another store."
            )


def _same_method(saved: Any, wanted: str) -> bool:
    """The fields of the saved method are those of the other one; an older version had fewer."""
    try:
        fields = msgspec.json.decode(saved)
        return bool(fields and msgspec.json.decode(wanted) | fields == msgspec.json.decode(wanted))
    except (TypeError, msgspec.DecodeError):
        return False
