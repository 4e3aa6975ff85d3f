"""A table of agents as named arrays, for one file; see `colme.support.files`."""

from __future__ import annotations

import numpy as np

from colme.online import kernel
from colme.online.agents import AgentTable
from colme.support.arrays import Array
from colme.support.columns import Label

FORMAT = "colme online 1"
_COLUMNS = {
    "agents": ("MEAN", "RADIUS", "ESTIMATE", "STAMP", "WEIGHT", "WEIGHT_2", "SQUARE", "TIME"),
    "numbers": ("COUNT", "RESTART", "CUT", "HEARD", "DEGREE"),
    "snapshots": ("THEN_MEAN", "THEN_ESTIMATE", "THEN_WEIGHT", "THEN_TIME", "THEN_SQUARE", "THEN_FREEDOM", "THEN_OWN"),
    "counters": ("EVENTS", "PRESENT", "ARRIVED", "LAST_CUT"),
    "pool": ("SQUARES", "FREEDOM"),
}
"""Arrays that are saved column by column, under the names that `colme.online.kernel` gives to the columns."""
_WHOLE = ("roster", "places", "neighbors", "batches")
_TEXT, _NUMBER, _FREE = range(3)
"""Kinds of labels; a free slot has none."""


def _views(table: AgentTable) -> dict[str, Array]:
    """The parts of a table that are saved, by name; filling them fills the table."""
    n = len(table.labels)
    found: dict[str, Array] = {}
    for name, columns in _COLUMNS.items():
        array = getattr(table, name)
        if array is not None:
            array = array[:n].T if array.ndim == 2 else array.reshape(-1, 1)
            found |= {f"{name}.{each.lower().removeprefix('then_')}": array[getattr(kernel, each)] for each in columns}
    return found | {name: getattr(table, name)[:n] for name in _WHOLE if getattr(table, name) is not None}


def pack(table: AgentTable) -> dict[str, Array]:
    """The agents as arrays; labels are concatenated text."""
    raw = [("" if label is None else str(label)).encode("utf-8", "surrogatepass") for label in table.labels]
    kinds = [_FREE if label is None else _NUMBER if isinstance(label, int) else _TEXT for label in table.labels]
    return _views(table) | {
        "labels.kind": np.array(kinds, np.uint8), "labels.size": np.array([len(each) for each in raw], np.int64),
        "labels.text": np.frombuffer(b"".join(raw), np.uint8), "labels.free": np.array(table.free, np.int64),
        "labels.order": np.fromiter(table.index.values(), np.int64, len(table.index)),
    }  # fmt: skip


def unpack(table: AgentTable, arrays: dict[str, Array]) -> None:
    """Fill an empty table with what `pack` returned. Raises KeyError or ValueError where it cannot."""
    text, end = arrays["labels.text"].tobytes(), 0
    for size, kind in zip(arrays["labels.size"].tolist(), arrays["labels.kind"].tolist(), strict=True):
        start, end = end, end + size
        table.labels.append(_label(text[start:end], kind))
    table.free = arrays["labels.free"].tolist()
    for slot in arrays["labels.order"].tolist():
        table.index[table.labels[slot]] = slot
    if table.neighbors is not None:  # a given graph decides how many there are
        table.neighbors = np.empty((0, arrays["neighbors"].shape[1]), np.int32)
    table.reserve()
    for name, view in _views(table).items():
        found = arrays[name]
        if found.dtype != view.dtype or found.shape != view.shape:
            raise ValueError(f"{name} has shape {found.shape} and type {found.dtype}")
        view[...] = found
    if table.counters[kernel.PRESENT] != len(table.index):
        raise ValueError("the roster is not that of the labels")


def _label(raw: bytes, kind: int) -> Label | None:
    text = raw.decode("utf-8", "surrogatepass")
    return None if kind == _FREE else int(text) if kind == _NUMBER else text
