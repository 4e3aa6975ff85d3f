"""The posterior over partitions, by listing them: contiguous ones, or all; dense, one partition after the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray
SPREADS, LEAST, FEW, ALPHA, CLASSES, MODERATION, GROWTH = 5, 0.62, 1.6, 0.7, 0.18, 15.0, 1.05 * (1 - 1e-6)
WITHIN = (0.0, 0.75), (1.0, 0.15), (8.0, 0.1)  # variance in a class, in sampling variances, and its probability


def contiguous(n: int) -> Iterator[list[list[int]]]:
    """All partitions of 0 .. n - 1 into runs."""
    for cuts in itertools.product((False, True), repeat=n - 1):
        blocks = [[0]]
        for i, cut in enumerate(cuts, 1):
            blocks = [*blocks, [i]] if cut else [*blocks[:-1], [*blocks[-1], i]]
        yield blocks


def every(n: int) -> Iterator[list[list[int]]]:
    """All partitions."""
    if n == 0:
        yield []
        return
    for blocks in every(n - 1):
        for k in range(len(blocks)):
            yield [*blocks[:k], [*blocks[k], n - 1], *blocks[k + 1 :]]
        yield [*blocks, [n - 1]]


def normal_log_density(x: Array, mean: float, covariance: Array) -> float:
    away = x - mean
    return float(
        -0.5 * (away @ np.linalg.solve(covariance, away) + np.linalg.slogdet(2 * math.pi * covariance)[1])
    )  # fmt: skip


def posterior(x: Array, v: Array, partitions=contiguous) -> dict[str, Array]:
    """Posterior means, variances, weights of all means in each, and the probabilities that two agents share a mean."""
    order = np.argsort(x)
    x, v, n = x[order], v[order], len(x)
    found = [
        each for within, part in WITHIN for each in models(x, v, within * n / (1 / v).sum(), part, partitions)
    ]  # fmt: skip
    p = np.exp(np.array([each[0] for each in found]) - max(each[0] for each in found))
    p /= p.sum()
    weights, variance, shares = (sum(q * each[k] for q, each in zip(p, found, strict=True)) for k in (1, 2, 3))
    means = np.array([each[1] @ x for each in found])
    estimate = p @ means
    variance = variance + p @ (means - estimate) ** 2
    back = np.argsort(order)
    np.fill_diagonal(shares, 1.0)
    return {"estimate": estimate[back], "variance": variance[back], "weights": weights[back][:, back],
            "alike": shares[back][:, back]}  # fmt: skip


def models(x: Array, own: Array, within: float, part: float, partitions=contiguous) -> list[tuple[Any, ...]]:
    """(log probability, weights of all means, posterior variances, who shares) of every partition and spread of class
    means, and without a variance in classes of the models without classes."""
    n, v = len(x), own + within
    kept = own / v  # of the distance of a true mean from that of its class
    noise = n / (1 / v).sum()
    middle = (x / v).sum() / (1 / v).sum()
    between = max(((x - middle) ** 2 / v).sum() / (1 / v).sum() - noise, 0.0)
    pull = 1 / (v + between) / (1 / (v + between)).sum()
    m = float(pull @ x)
    least, widest = (LEAST * (1 + FEW / (n - 1) ** 2)) ** 2 * noise, max(np.ptp(x) ** 2, noise)
    spreads, classes = np.geomspace(least, widest, SPREADS), CLASSES * (n - 2) / (n - 1)
    found: list[tuple[Any, ...]] = []
    for s in spreads:
        for blocks in partitions(n):
            log_p = math.log(max(part * classes, 1e-12) / SPREADS) + math.lgamma(ALPHA) - math.lgamma(ALPHA + n)
            weights, variance, shares = np.zeros((n, n)), np.zeros(n), np.zeros((n, n))
            for block in blocks:
                b = np.array(block)
                covariance = np.diag(v[b]) + s
                log_p += normal_log_density(x[b], m, covariance) + math.log(ALPHA) + math.lgamma(len(b))
                pulled = np.linalg.solve(covariance, np.full(len(b), s))
                for i in block:
                    weights[i, b] += pulled
                    weights[i] += (1 - pulled.sum()) * pull
                    variance[i], shares[i, b] = s - s * pulled.sum(), 1.0
            weights = kept[:, None] * weights + np.diag(1 - kept)
            found.append((log_p, weights, kept**2 * variance + (1 - kept) * own, shares))
    if within > 0.0:
        return found
    for k, s in enumerate([0.0, *spreads]):
        w = 1 / (v + s)
        log_p = math.log((1 - classes) / (SPREADS + 1)) - 0.5 * math.log(w.sum() * widest)
        log_p += 0.5 * (np.log(w / (2 * math.pi)).sum() - (w * (x - w @ x / w.sum()) ** 2).sum())
        left = v / (v + s)
        weights = np.diag(1 - left) + np.outer(left, w / w.sum())
        found.append((log_p, weights, left * s + left**2 / w.sum(), np.full((n, n), float(k == 0))))
    return found


def partition(samples: Array, adjacency: Array, *, sigma: float | Array | None) -> Array:
    """Estimates (steps, agents): each agent keeps the weights of its last sum until precisions have grown."""
    steps, n = samples.shape
    out, kept = np.full((steps, n), math.nan), [None] * n
    for t in range(steps):
        seen = samples[: t + 1]
        count = (~np.isnan(seen)).sum(axis=0)
        mean = np.array([np.mean(c[~np.isnan(c)]) if k else math.nan for c, k in zip(seen.T, count, strict=True)])
        square = np.array([((c[~np.isnan(c)] - x) ** 2).sum() for c, x in zip(seen.T, mean, strict=True)])
        for a in np.flatnonzero(count):
            who = [b for b in range(n) if (b == a or adjacency[a, b]) and count[b]]
            precision = count / np.broadcast_to(1.0 if sigma is None else np.square(sigma), n)
            now = (who, precision[who].sum(), precision[a])
            if kept[a] is None or now[0] != kept[a][0] or max(
                now[1] / kept[a][1], kept[a][1] / now[1], now[2] / kept[a][2]
            ) >= GROWTH:  # fmt: skip
                if sigma is None:
                    freedom = (count[who] - 1).sum()
                    average = square[who].sum() / freedom if freedom else math.inf
                    v = (MODERATION * average + square) / (MODERATION + count - 1) / np.maximum(count, 1)
                    v *= max(freedom, 3) / (max(freedom, 3) - 2)
                else:
                    v = 1 / np.maximum(precision, 1e-300)
                alone = len(who) < 2 or not np.isfinite(v[a])
                weights = np.eye(n)[a][who] if alone else posterior(mean[who], v[who])["weights"][who.index(a)]
                kept[a] = (*now, weights)
            out[t, a] = kept[a][3] @ mean[who]
    return out
