"""`MeanEncoder` beside scikit-learn's `TargetEncoder`: errors and CPU time; alone: python -m benchmarks.encoder."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import TargetEncoder

from colme.sklearn import MeanEncoder

ROWS, KEYS, ROUNDS = 100_000, 10_000, 3
Floats = NDArray[np.float64]


def worlds(rng: np.random.Generator) -> dict[str, tuple[NDArray[np.int64], Floats, Floats]]:
    """Keys of rows, targets, true means of keys."""
    key = rng.integers(KEYS, size=ROWS)
    odd = np.arange(KEYS) % 2 == 1
    groups, normal = np.where(odd, 1.0, -1.0), rng.standard_normal(KEYS)
    rates = np.where(odd, 0.3, 0.6)
    noise = 2.0 * rng.standard_normal(ROWS)
    return {
        "two groups": (key, groups[key] + noise, groups), "normal": (key, normal[key] + noise, normal),
        "rates of two groups": (key, (rng.random(ROWS) < rates[key]).astype(float), rates),
    }  # fmt: skip


def measured(encoder: Any, key: NDArray[np.int64], y: Floats, truth: Floats) -> list[float]:
    """Errors in training and after it, CPU seconds of fit and of fit_transform."""
    fit, both = [], []
    for _ in range(ROUNDS):
        start = time.process_time()
        encoder.fit(key[:, None], y)
        middle = time.process_time()
        trained = encoder.fit_transform(key[:, None], y)[:, 0]
        fit.append(middle - start)
        both.append(time.process_time() - middle)
    applied = encoder.transform(np.arange(KEYS)[:, None])[:, 0]
    errors = [np.sqrt(np.mean((trained - truth[key]) ** 2)), np.sqrt(np.mean((applied - truth) ** 2))]
    return [*errors, min(fit), min(both)]


def main() -> None:
    print(f"{ROWS:,} rows of {KEYS:,} keys    error in training, after it    fit    fit_transform (CPU seconds)")
    for name, world in worlds(np.random.default_rng(1)).items():
        for encoder in (MeanEncoder(), TargetEncoder()):
            trained, applied, fit, both = measured(encoder, *world)
            print(f"{name:20} {type(encoder).__name__:14} {trained:.3f} {applied:.3f}  {fit:.2f} {both:.2f}")


if __name__ == "__main__":
    main()
