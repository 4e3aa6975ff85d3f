"""What an agent must keep to go on after a restart, as bytes: MessagePack of numbers, texts and arrays, no pickle."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from colme.errors import CheckpointError, shorten


def freeze(holder: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """These attributes as plain values."""
    return {name: _plain(getattr(holder, name)) for name in names}


def thaw(holder: Any, names: tuple[str, ...], values: dict[str, Any]) -> None:
    """Set the attributes that `freeze` read."""
    for name in names:
        value = values[name]
        if isinstance(value, dict) and "parts" in value:
            part = getattr(holder, name)
            thaw(part, part.saved, value["parts"])
        else:
            setattr(holder, name, _lively(value))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"type": value.dtype.str, "shape": list(value.shape), "bytes": value.tobytes()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return {"tuple": [_plain(each) for each in value]}
    if isinstance(value, dict):
        return {"items": [[key, _plain(each)] for key, each in value.items()]}
    if hasattr(value, "saved"):
        return {"parts": freeze(value, value.saved)}
    return value


def _lively(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(map(_lively, value["tuple"]))
    if "items" in value:
        return {key: _lively(each) for key, each in value["items"]}
    return np.frombuffer(value["bytes"], value["type"]).reshape(value["shape"]).copy()


def to_bytes(values: dict[str, Any]) -> bytes:
    return msgspec.msgpack.encode(values)


def from_bytes(raw: bytes) -> dict[str, Any]:
    try:
        return msgspec.msgpack.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError:
        raise CheckpointError("the saved state of the agent is torn. Delete the store and start anew.") from None


def check_same(saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """A state can only be gone on from by who saved it, with the same method and the rest of `wanted`."""
    for key, value in wanted.items():
        if saved.get(key) != value:
            raise CheckpointError(
                f"the store holds {shorten(saved.get(key))} for the {key} where {shorten(value)} starts. "
                "Use another store."
            )
