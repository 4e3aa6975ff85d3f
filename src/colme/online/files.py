"""A model in one file: its configuration as JSON, everything else as arrays; see `colme.support.files`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.errors import CheckpointError
from colme.method import Method
from colme.methods import method_from
from colme.online.agents import SNAPSHOT, AgentTable, lines
from colme.online.kernel import PRESENT
from colme.support.columns import Label

FORMAT = "colme online 1"


def pack(table: AgentTable) -> dict[str, NDArray[Any]]:
    """The agents as arrays. Labels are concatenated text; a label that is a number has kind 1, a free slot 2."""
    n = len(table.labels)
    text = ["" if label is None else str(label) for label in table.labels]
    raw = [each.encode("utf-8", "surrogatepass") for each in text]
    kinds = [2 if label is None else int(isinstance(label, int)) for label in table.labels]
    arrays = {name: getattr(table, name)[:n] for name in table.arrays if getattr(table, name) is not None}
    return arrays | {
        "book": table.counters, "pool": table.pool, "free": np.array(table.free, np.int64),
        "label_kinds": np.array(kinds, np.uint8), "label_sizes": np.array([len(each) for each in raw], np.int64),
        "label_text": np.frombuffer(b"".join(raw), np.uint8),
        "index": np.fromiter(table.index.values(), np.int64, len(table.index)),
    }  # fmt: skip


def unpack(table: AgentTable, arrays: dict[str, NDArray[Any]], path: Path) -> None:
    """Fill an empty table with what `pack` returned."""
    try:
        text, ends = arrays["label_text"].tobytes(), np.cumsum(arrays["label_sizes"]).tolist()
        labels = [_label(text[start:end], kind) for start, end, kind in zip([0, *ends], ends,
                  arrays["label_kinds"].tolist(), strict=False)]  # fmt: skip
        table.labels, table.free = labels, arrays["free"].tolist()
        for slot in arrays["index"].tolist():
            table.index[labels[slot]] = slot
        for name, key in (*((name, name) for name in table.arrays), ("counters", "book"), ("pool", "pool")):
            empty = getattr(table, name)
            if empty is not None:
                found = arrays[key] if key in arrays or key != "snapshots" else np.full((len(labels), SNAPSHOT), np.nan)
                if found.dtype != empty.dtype or found.shape[1:] != empty.shape[1:] or len(found) < len(empty):
                    raise ValueError(f"{name} has shape {found.shape} and type {found.dtype}")
                own = lines(found.shape, found.dtype)
                own[...] = found
                setattr(table, name, own)
        if any(len(getattr(table, name)) != len(labels) for name in ("agents", "numbers", "roster", "places")):
            raise ValueError("there are not as many labels as agents")
        if table.counters[PRESENT] != len(table.index):
            raise ValueError("the roster is not that of the labels")
    except (KeyError, ValueError, IndexError) as error:
        raise CheckpointError(f"{path.name} is torn: {error}. Delete it and start anew.") from None


def _label(raw: bytes, kind: int) -> Label | None:
    text = raw.decode("utf-8", "surrogatepass")
    return None if kind == 2 else int(text) if kind == 1 else text


def method_of(head: Any, path: Path) -> Method:
    """The method that a head names."""
    try:
        return method_from(head)
    except ValueError as error:
        raise CheckpointError(f"{path.name} has a method that is not known: {error}. Upgrade colme.") from None
