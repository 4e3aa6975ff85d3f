"""The posterior over partitions, by listing them: contiguous ones, or all; dense, one partition after the other."""

from __future__ import annotations

import functools
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


@functools.cache
def listed(n: int, partitions) -> tuple[list[tuple[int, ...]], Array]:
    """All classes that are in some partition, and which partition (row) has which."""
    every_one = [set(map(tuple, blocks)) for blocks in partitions(n)]
    blocks = sorted(set().union(*every_one))
    return blocks, np.array([[float(block in one) for block in blocks] for one in every_one])


def posterior(x: Array, v: Array, partitions=contiguous) -> dict[str, Array]:
    """Posterior means, variances, weights of all means in each, and the probabilities that two agents share a mean."""
    order = np.argsort(x)
    x, v, n = x[order], v[order], len(x)
    blocks, held = listed(n, partitions)
    inside = np.array([[float(i in block) for i in range(n)] for block in blocks])
    found = [(part, v + within * n / (1 / v).sum()) for within, part in WITHIN]
    classes = [each for part, noise in found for each in with_classes(x, noise, part, blocks, held)]
    plain = list(without_classes(x, v))
    top = max(each[0].max() for each in (*classes, *plain))
    total = sum(np.exp(each[0] - top).sum() for each in plain)
    total += sum(np.exp(each[0] - top) @ inside[:, 0] for each in classes)  # one class of each partition has agent 0
    weights, shares, square = np.zeros((n, n)), np.zeros((n, n)), np.zeros(n)
    for log_p, its_weights, its_variances, noise in classes:
        p = np.exp(log_p - top) / total * inside.T  # of each class, for its agents
        kept = v / noise  # of the distance of a true mean from that of its class
        weights += kept[:, None] * (p @ its_weights) + np.diag((1 - kept) * p.sum(axis=1))
        shares += p @ inside
        mean = kept[:, None] * (its_weights @ x) + ((1 - kept) * x)[:, None]
        square += (p * (np.outer(kept**2, its_variances) + ((1 - kept) * v)[:, None] + mean**2)).sum(axis=1)
    for log_p, its_weights, its_variances, shared in plain:
        p = np.exp(log_p - top) / total
        weights, shares = weights + p * its_weights, shares + p * shared
        square += p * (its_variances + (its_weights @ x) ** 2)
    estimate, back = weights @ x, np.argsort(order)
    np.fill_diagonal(shares, 1.0)
    return {"estimate": estimate[back], "variance": (square - estimate**2)[back], "weights": weights[back][:, back],
            "alike": shares[back][:, back]}  # fmt: skip


def prior_of(x: Array, v: Array) -> tuple[Array, float, Array, float, float]:
    """Weights of the means in m, m, the spreads, the range that m may have, and the probability of classes."""
    n, noise, middle = len(x), len(x) / (1 / v).sum(), (x / v).sum() / (1 / v).sum()
    between = max(((x - middle) ** 2 / v).sum() / (1 / v).sum() - noise, 0.0)
    pull = 1 / (v + between) / (1 / (v + between)).sum()
    least, widest = (LEAST * (1 + FEW / (n - 1) ** 2)) ** 2 * noise, max(np.ptp(x) ** 2, noise)
    return pull, float(pull @ x), np.geomspace(least, widest, SPREADS), widest, CLASSES * (n - 2) / (n - 1)


def with_classes(
    x: Array, v: Array, part: float, blocks: list[tuple[int, ...]], held: Array
) -> Iterator[tuple[Array, ...]]:  # fmt: skip
    """For each spread of class means, and every class: its log probability, summed over partitions that have it, the
    weights of all means in its own, and its posterior variance; and v."""
    n, (pull, m, spreads, _, classes) = len(x), prior_of(x, v)
    base = math.log(max(part * classes, 1e-12) / SPREADS) + math.lgamma(ALPHA) - math.lgamma(ALPHA + n)
    for s in spreads:
        logs, weights, variances = np.empty(len(blocks)), np.zeros((len(blocks), n)), np.empty(len(blocks))
        for size in range(1, n + 1):  # all classes of one size at once
            which = np.array([k for k, block in enumerate(blocks) if len(block) == size])
            b = np.array([blocks[k] for k in which])
            covariance, away = v[b][:, :, None] * np.eye(size) + s, x[b] - m
            solved = np.linalg.solve(covariance, np.stack([away, np.full(b.shape, s)], axis=-1))
            square = (away * solved[:, :, 0]).sum(axis=1) + np.linalg.slogdet(2 * math.pi * covariance)[1]
            logs[which] = -0.5 * square + math.log(ALPHA) + math.lgamma(size)
            pulled = solved[:, :, 1]
            weights[which[:, None], b] = pulled
            weights[which] += np.outer(1 - pulled.sum(axis=1), pull)
            variances[which] = s - s * pulled.sum(axis=1)
        log_p = base + held @ logs  # of each partition
        with np.errstate(divide="ignore"):
            each = np.logaddexp.reduce(log_p[:, None] + np.log(held), axis=0)
        yield each, weights, variances, v


def without_classes(x: Array, v: Array) -> Iterator[tuple[Any, Array, Array, Array]]:
    """For each spread, zero among them: log probability, weights, posterior variances, and who shares a mean."""
    n, (_, _, spreads, widest, classes) = len(x), prior_of(x, v)
    for k, s in enumerate([0.0, *spreads]):
        w = 1 / (v + s)
        log_p = math.log((1 - classes) / (SPREADS + 1)) - 0.5 * math.log(w.sum() * widest)
        log_p += 0.5 * (np.log(w / (2 * math.pi)).sum() - (w * (x - w @ x / w.sum()) ** 2).sum())
        left = v / (v + s)
        weights = np.diag(1 - left) + np.outer(left, w / w.sum())
        yield np.array(log_p), weights, left * s + left**2 / w.sum(), np.full((n, n), float(k == 0))


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
