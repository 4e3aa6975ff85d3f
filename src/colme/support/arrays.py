"""The types of arrays, by what they hold, and where the parts of an array begin."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Array = NDArray[Any]


def row_ends(sizes: Array) -> Integers:
    """Where rows of these sizes begin, one after the other; one more for the end of the last."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
