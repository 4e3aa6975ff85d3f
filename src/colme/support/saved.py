"""State that survives a restart: the attributes that an object's `saved` names, read into plain values and put back.

An object lists the names of its attributes in `saved`. A value is a number, a text, a truth value, None, an array, a
list, tuple or dict of these, or another object with `saved`. There are two forms:

Where workers share a run (`colme._core.team`), each saves its own agents, and others may continue. An array then has
one row per own agent, unless `split` of the object, a dictionary, says otherwise for its name:

``COMMON``       the same for all workers
``"degree"``     as many rows per agent as the attribute `degree` says, agent by agent
``"row"``        a pool of rows, to which the attribute `row` of each agent points (-1: to none)

``to_arrays``, ``from_arrays``  flat, for .npz files: {"edges.slots": array, ..}; numbers are arrays without dimensions,
                                attributes that are None are left out, and lists, tuples
                                and dicts are MessagePack as bytes
``to_plain``, ``from_plain``    nested, for MessagePack (``to_bytes``, ``from_bytes``); lists, tuples and dicts are kept
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from colme.errors import CheckpointError
from colme.support.arrays import Array

Plain = dict[str, Any]
"""Names and values that MessagePack knows."""


def to_arrays(thing: Any, prefix: str) -> dict[str, Array]:
    """The saved attributes of an object as arrays, named `prefix.attribute`."""
    arrays: dict[str, Array] = {}
    for name in thing.saved:
        value = getattr(thing, name)
        if value is None:
            continue
        if hasattr(value, "saved"):
            arrays |= to_arrays(value, f"{prefix}.{name}")
        elif isinstance(value, dict | list | tuple):
            arrays[f"{prefix}.{name}"] = np.frombuffer(msgspec.msgpack.encode(_plain(value)), np.uint8)
        else:
            arrays[f"{prefix}.{name}"] = np.asarray(value)
    return arrays


COMMON = "common"


def splits(thing: Any, prefix: str) -> dict[str, str]:
    """How the arrays of `to_arrays` are split among workers, where it is not one row per agent; attributes that an
    array is split by are named as `to_arrays` does."""
    found: dict[str, str] = {}
    for name in thing.saved:
        value = getattr(thing, name)
        if hasattr(value, "saved"):
            found |= splits(value, f"{prefix}.{name}")
            continue
        rule = getattr(thing, "split", {}).get(name)
        if rule is not None:
            found[f"{prefix}.{name}"] = rule if rule == COMMON else f"{prefix}.{rule}"
        elif not isinstance(value, np.ndarray) or value.ndim == 0 or value.size == 0:
            found[f"{prefix}.{name}"] = COMMON
    return found


def from_arrays(thing: Any, prefix: str, arrays: dict[str, Array]) -> None:
    """Put back what `to_arrays` read. Arrays of unchanged shape are filled in place, as others may hold them too.

    Raises KeyError where an array is missing, and ValueError where a value does not fit."""
    for name in thing.saved:
        given = getattr(type(thing), name, None)
        if isinstance(given, property) and given.fset is not None:  # made from other attributes, half of them put back
            if f"{prefix}.{name}" in arrays:
                setattr(thing, name, arrays[f"{prefix}.{name}"])
            continue
        value = getattr(thing, name)
        if value is None:
            continue
        if hasattr(value, "saved"):
            from_arrays(value, f"{prefix}.{name}", arrays)
        elif isinstance(value, np.ndarray):
            kept = arrays[f"{prefix}.{name}"]
            if kept.shape != value.shape:  # some grow and shrink
                setattr(thing, name, kept.astype(value.dtype))
            else:
                value[...] = kept
        elif isinstance(value, dict | list | tuple):
            kept = msgspec.msgpack.decode(arrays[f"{prefix}.{name}"].tobytes())
            setattr(thing, name, _restored(kept, value))
        else:
            setattr(thing, name, arrays[f"{prefix}.{name}"].item())


def to_plain(thing: Any, names: Iterable[str]) -> Plain:
    """These attributes of an object as values that MessagePack knows."""
    return {name: _plain(getattr(thing, name)) for name in names}


def from_plain(thing: Any, names: Iterable[str], values: Plain) -> None:
    """Set the attributes that `to_plain` read. Raises KeyError where one is missing."""
    for name in names:
        setattr(thing, name, _restored(values[name], getattr(thing, name, None)))


def to_bytes(values: Plain) -> bytes:
    """Plain values as MessagePack."""
    return msgspec.msgpack.encode(values)


def from_bytes(raw: bytes) -> Plain:
    """What `to_bytes` wrote."""
    try:
        return msgspec.msgpack.decode(raw, type=Plain)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise CheckpointError("the saved state of the agent is torn. Delete the store and start anew.") from None


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"type": value.dtype.str, "shape": list(value.shape), "bytes": value.tobytes()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return {"tuple": [_plain(each) for each in value]}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {"items": [[key, _plain(each)] for key, each in value.items()]}
    if hasattr(value, "saved"):
        return {"parts": to_plain(value, value.saved)}
    return value


def _restored(value: Any, now: Any = None) -> Any:
    """What `_plain` made plain. `now` is the present value: objects with `saved` in it are updated in place."""
    if isinstance(value, list):
        return [_restored(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(map(_restored, value["tuple"]))
    if "items" in value:
        return {key: _restored(each, now.get(key) if isinstance(now, dict) else None) for key, each in value["items"]}
    if "parts" in value:
        from_plain(now, now.saved, value["parts"])
        return now
    return np.frombuffer(value["bytes"], value["type"]).reshape(value["shape"]).copy()
