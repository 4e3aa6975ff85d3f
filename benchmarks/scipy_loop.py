"""The baseline: CL-colME and C-colME as a careful researcher writes them, vectorised with NumPy and SciPy's CSR.

Honest: matrices are rebuilt only at steps that cut an edge, normals come from NumPy's fastest generator, and the same
metrics are recorded at every step.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

NAMES = ("mse", "error_rate", "local_mse", "local_error_rate", "oracle_mse", "wrong_edges", "lost_edges", "isolated")


def run(
    edges: NDArray[np.int64], truth: NDArray[np.float64], *, n_steps: int, sigma: float, gamma: float,
    step: float | None, tolerance: float = 0.1, seed: int = 0, samples: NDArray[np.float64] | None = None,
) -> dict[str, NDArray[np.float64]]:  # fmt: skip
    """step=None runs C-colME, a number CL-colME with that b. The clock is global. `samples` (steps, agents) replaces
    the normals."""
    n = len(truth)
    rng = np.random.Generator(np.random.SFC64(seed))
    a, b = edges[:, 0].copy(), edges[:, 1].copy()
    classes, class_ = np.unique(truth, return_inverse=True)
    size = np.bincount(class_)
    n_wrong = int((truth[a] != truth[b]).sum())
    wrong, lost = n_wrong, 0
    degree = np.bincount(np.concatenate([a, b]), minlength=n)

    def matrix() -> sparse.csr_array:
        rows, columns = np.concatenate([a, b]), np.concatenate([b, a])
        if step is None:
            weight = 1.0 / (np.maximum(degree[a], degree[b]) + 1.0)
        else:
            weight = np.full(len(a), step)
        own = 1.0 - np.bincount(rows, np.concatenate([weight, weight]), minlength=n)
        diagonal = np.arange(n)
        return sparse.csr_array(
            (np.concatenate([weight, weight, own]),
             (np.concatenate([rows, diagonal]), np.concatenate([columns, diagonal]))), shape=(n, n),
        )  # fmt: skip

    out = {name: np.empty(n_steps) for name in NAMES}
    weights = matrix()
    mean, estimate, restart = np.zeros(n), np.zeros(n), 2
    for t in range(1, n_steps + 1):
        sample = truth + sigma * rng.standard_normal(n) if samples is None else samples[t - 1]
        mean += (sample - mean) / t
        radius = sigma * math.sqrt(2.0 / t * (1.0 + 1.0 / t) * math.log(math.sqrt(t + 1.0) / gamma))
        cut = np.abs(mean[a] - mean[b]) > 2.0 * radius
        if cut.any():
            wrong -= int((truth[a[cut]] != truth[b[cut]]).sum())
            a, b = a[~cut], b[~cut]
            lost = len(edges) - n_wrong - (len(a) - wrong)
            degree = np.bincount(np.concatenate([a, b]), minlength=n)
            weights = matrix()
            restart = max(t, 2)
        k = t - restart + 1
        alpha = k / (k + 1.0)
        estimate = (1.0 - alpha) * mean + alpha * (weights @ estimate)
        np.copyto(estimate, mean, where=degree == 0)
        error, own = estimate - truth, mean - truth
        pooled = np.bincount(class_, mean) / size - classes
        out["mse"][t - 1], out["local_mse"][t - 1] = error @ error / n, own @ own / n
        out["error_rate"][t - 1] = np.count_nonzero(np.abs(error) > tolerance) / n
        out["local_error_rate"][t - 1] = np.count_nonzero(np.abs(own) > tolerance) / n
        out["oracle_mse"][t - 1] = (size * pooled * pooled).sum() / n
        out["wrong_edges"][t - 1] = wrong / max(1, n_wrong)
        out["lost_edges"][t - 1] = lost / max(1, len(edges) - n_wrong)
        out["isolated"][t - 1] = np.count_nonzero(degree == 0)
    return out
