"""The baseline: CL-colME as loops that anybody writes first and compiles with numba.

Neighbors in compressed rows, every edge looked at in every step, samples from NumPy's generator, the same metrics at
every step. Nothing foolish, nothing clever.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

NAMES = ("mse", "error_rate", "local_mse", "local_error_rate", "oracle_mse", "wrong_edges", "lost_edges", "isolated")


@numba.njit(cache=True)
def observe(mean, sample, t):
    for a in range(len(mean)):
        mean[a] += (sample[a] - mean[a]) / t


@numba.njit(cache=True)
def prune(indptr, indices, alive, degree, class_, mean, radius):
    """Cut at both ends what is too far apart; returns the directed edges cut between classes, and within."""
    wrong, lost = 0, 0
    for a in range(len(mean)):
        for k in range(indptr[a], indptr[a + 1]):
            b = indices[k]
            if alive[k] and abs(mean[a] - mean[b]) > 2.0 * radius:
                alive[k] = False
                degree[a] -= 1
                if class_[a] != class_[b]:
                    wrong += 1
                else:
                    lost += 1
    return wrong, lost


@numba.njit(cache=True)
def average(indptr, indices, alive, degree, mean, old, new, alpha, step):
    for a in range(len(mean)):
        if degree[a] == 0:
            new[a] = mean[a]
            continue
        pull = 0.0
        for k in range(indptr[a], indptr[a + 1]):
            if alive[k]:
                pull += old[indices[k]] - old[a]
        new[a] = (1.0 - alpha) * mean[a] + alpha * (old[a] + step * pull)


@numba.njit(cache=True)
def judge(mean, estimate, truth, class_, class_truth, degree, tolerance, out):
    """The eight metrics but for the two of edges."""
    n = len(mean)
    total, size = np.zeros(len(class_truth)), np.zeros(len(class_truth))
    out[:] = 0.0
    for a in range(n):
        error, own = estimate[a] - truth[a], mean[a] - truth[a]
        out[0] += error * error / n
        out[2] += own * own / n
        if abs(error) > tolerance:
            out[1] += 1.0 / n
        if abs(own) > tolerance:
            out[3] += 1.0 / n
        total[class_[a]] += mean[a]
        size[class_[a]] += 1.0
        if degree[a] == 0:
            out[7] += 1.0
    for c in range(len(class_truth)):
        out[4] += size[c] * (total[c] / size[c] - class_truth[c]) ** 2 / n


def run(
    edges: NDArray[np.int64], truth: NDArray[np.float64], *, n_steps: int, sigma: float, gamma: float, step: float,
    tolerance: float = 0.1, seed: int = 0, samples: NDArray[np.float64] | None = None,
) -> dict[str, NDArray[np.float64]]:  # fmt: skip
    """CL-colME with that b and a global clock. `samples` (steps, agents) replaces the normals."""
    n = len(truth)
    rng = np.random.Generator(np.random.SFC64(seed))
    ends = np.concatenate([edges, edges[:, ::-1]])
    ends = ends[np.argsort(ends[:, 0], kind="stable")]
    degree = np.bincount(ends[:, 0], minlength=n)
    indptr, indices = np.concatenate([[0], np.cumsum(degree)]), ends[:, 1].copy()
    alive = np.ones(len(indices), np.bool_)
    class_truth, class_ = np.unique(truth, return_inverse=True)
    n_wrong = int((class_[edges[:, 0]] != class_[edges[:, 1]]).sum())
    wrong, lost, restart = n_wrong, 0, 2
    mean, estimate, spare = np.zeros(n), np.zeros(n), np.zeros(n)
    out = np.empty((n_steps, len(NAMES)))
    for t in range(1, n_steps + 1):
        observe(mean, truth + sigma * rng.standard_normal(n) if samples is None else samples[t - 1], t)
        radius = sigma * math.sqrt(2.0 / t * (1.0 + 1.0 / t) * math.log(math.sqrt(t + 1.0) / gamma))
        cut_wrong, cut_right = prune(indptr, indices, alive, degree, class_, mean, radius)
        if cut_wrong or cut_right:
            wrong, lost, restart = wrong - cut_wrong // 2, lost + cut_right // 2, max(t, 2)
        k = t - restart + 1
        average(indptr, indices, alive, degree, mean, estimate, spare, k / (k + 1.0), step)
        estimate, spare = spare, estimate
        judge(mean, estimate, truth, class_, class_truth, degree, tolerance, out[t - 1])
        out[t - 1, 5], out[t - 1, 6] = wrong / max(1, n_wrong), lost / max(1, len(edges) - n_wrong)
    return dict(zip(NAMES, out.T, strict=True))
