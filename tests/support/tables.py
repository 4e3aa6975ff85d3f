"""Tables made of arrays, for the tests of `colme.data`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from colme.data.read.table import Names, Table


def table_of(samples: Sequence[ArrayLike], *, timed: bool = False, **parts: Any) -> Table:
    """samples[a] are those of agent a, in order."""
    arrays = [np.asarray(each, np.float64) for each in samples]
    start = np.concatenate([[0], np.cumsum([len(each) for each in arrays])]).astype(np.int64)
    value = np.concatenate(arrays) if arrays else np.empty(0)
    time = np.concatenate([np.arange(len(each), dtype=np.float64) for each in arrays]) if timed else None
    table = Table(np.array([f"a{i}" for i in range(len(arrays))]), start, value, time, None, None, None, (),
                  Names("agent", "value"))  # fmt: skip
    return table._replace(**parts)


def drawn(rng: np.random.Generator, means: ArrayLike, n: ArrayLike, sigma: float = 1.0, **parts: Any) -> Table:
    """Normal samples: n of each agent, or n[a] of agent a."""
    mean = np.asarray(means, np.float64)
    counts = np.broadcast_to(n, mean.shape)
    return table_of([rng.normal(m, sigma, k) for m, k in zip(mean, counts, strict=True)], **parts)
