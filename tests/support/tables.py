"""Tables made of arrays, for the tests of `colme.data`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


def noise(rng: np.random.Generator, law: str, n: int) -> NDArray[np.float64]:
    """n samples of variance 1 and mean 0: normal, t(3) or lognormal."""
    if law == "lognormal":
        return np.asarray((np.exp(rng.normal(size=n)) - np.exp(0.5)) / np.sqrt((np.e - 1.0) * np.e))
    return np.asarray(rng.standard_t(3, n) / np.sqrt(3.0) if law == "t(3)" else rng.normal(size=n))


def noisy(
    rng: np.random.Generator, law: str, means: ArrayLike, n: ArrayLike, sigma: float = 1.0, **parts: Any
) -> Table:
    """As `drawn`, with another law of noise; "0/1": the means are probabilities."""
    mean = np.asarray(means, np.float64)
    each = list(zip(mean, np.broadcast_to(n, mean.shape), strict=True))
    if law == "0/1":
        return table_of([rng.binomial(1, m, k) for m, k in each], **parts)
    return table_of([m + sigma * noise(rng, law, k) for m, k in each], **parts)


RATES = {"agent": "a", "successes": "y", "trials": "n"}
COUNTS = {"agent": "a", "value": "y", "exposure": "n"}


def rates(rng: np.random.Generator, truth: Any) -> dict[str, Any]:
    """Agents with 5 to 29 trials; `RATES` are their columns."""
    n = rng.integers(5, 30, len(truth))
    return {"a": np.arange(len(truth)), "y": rng.binomial(n, truth), "n": n}


def counts(rng: np.random.Generator, truth: Any) -> dict[str, Any]:
    """Agents with exposures from 0.5 to 5; `COUNTS` are their columns."""
    n = rng.uniform(0.5, 5.0, len(truth))
    return {"a": np.arange(len(truth)), "y": rng.poisson(truth * n), "n": n}
