"""A model in one file: its configuration as JSON, everything else as arrays; see `colme._core.files`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme._core.columns import Label
from colme.errors import CheckpointError
from colme.methods import CColME, Census, CLColME, Local
from colme.online.agents import Crowd, lines
from colme.online.kernel import PRESENT

FORMAT = "colme online 1"
Known = Local | Census | CLColME | CColME
"""Methods that can be in a file."""


def pack(crowd: Crowd) -> dict[str, NDArray[Any]]:
    """The crowd as arrays. Labels are text one after the other; a label that is a number has kind 1, a free slot 2."""
    n = len(crowd.labels)
    text = ["" if label is None else str(label) for label in crowd.labels]
    raw = [each.encode("utf-8", "surrogatepass") for each in text]
    kinds = [2 if label is None else int(isinstance(label, int)) for label in crowd.labels]
    arrays = {name: getattr(crowd, name)[:n] for name in crowd.arrays if getattr(crowd, name) is not None}
    return arrays | {
        "book": crowd.book, "pool": crowd.pool, "free": np.array(crowd.free, np.int64),
        "label_kinds": np.array(kinds, np.uint8), "label_sizes": np.array([len(each) for each in raw], np.int64),
        "label_text": np.frombuffer(b"".join(raw), np.uint8),
        "index": np.fromiter(crowd.index.values(), np.int64, len(crowd.index)),
    }  # fmt: skip


def unpack(crowd: Crowd, arrays: dict[str, NDArray[Any]], path: Path) -> None:
    """Fill an empty crowd with what `pack` made."""
    try:
        text, ends = arrays["label_text"].tobytes(), np.cumsum(arrays["label_sizes"]).tolist()
        labels = [_label(text[start:end], kind) for start, end, kind in zip([0, *ends], ends,
                  arrays["label_kinds"].tolist(), strict=False)]  # fmt: skip
        crowd.labels, crowd.free = labels, arrays["free"].tolist()
        for slot in arrays["index"].tolist():
            crowd.index[labels[slot]] = slot
        for name in (*crowd.arrays, "book", "pool"):
            empty = getattr(crowd, name)
            if empty is not None:
                found = arrays[name]
                if found.dtype != empty.dtype or found.shape[1:] != empty.shape[1:] or len(found) < len(empty):
                    raise ValueError(f"{name} has shape {found.shape} and type {found.dtype}")
                own = lines(found.shape, found.dtype)
                own[...] = found
                setattr(crowd, name, own)
        if any(len(getattr(crowd, name)) != len(labels) for name in ("agents", "numbers", "roster", "places")):
            raise ValueError("there are not as many labels as agents")
        if crowd.book[PRESENT] != len(crowd.index):
            raise ValueError("the roster is not that of the labels")
    except (KeyError, ValueError, IndexError) as error:
        raise CheckpointError(f"{path.name} is torn: {error}. Delete it and start anew.") from None


def _label(raw: bytes, kind: int) -> Label | None:
    text = raw.decode("utf-8", "surrogatepass")
    return None if kind == 2 else int(text) if kind == 1 else text


def method_of(head: Any, path: Path) -> Known:
    """The method that a head names."""
    try:
        return msgspec.convert(head, Known)
    except (msgspec.ValidationError, ValueError) as error:
        raise CheckpointError(f"{path.name} has a method that is not known: {error}. Upgrade colme.") from None
