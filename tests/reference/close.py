"""Normal means whose spread depends on the count, by brute force: a dense grid of the level and the slope of log tau^2.

The likelihood is the restricted one: the prior mean, a line in log n, is integrated over. The slope has a standard
normal prior."""

from __future__ import annotations

import math

import numpy as np


def log_likelihood(mean, noise, scale, level, slope):
    """Restricted, with log tau^2 = level + slope scale; one agent after the other."""
    total = np.zeros((2, 2))
    pull = np.zeros(2)
    for x, v, s in zip(mean, noise, scale, strict=True):
        row = np.array([1.0, s])
        w = 1.0 / (v + math.exp(level + slope * s))
        total += w * np.outer(row, row)
        pull += w * x * row
    line = np.linalg.solve(total, pull)
    log = -0.5 * math.log(np.linalg.det(total))
    for x, v, s in zip(mean, noise, scale, strict=True):
        whole = v + math.exp(level + slope * s)
        log -= 0.5 * (math.log(whole) + (x - line[0] - line[1] * s) ** 2 / whole)
    return log, line


def most_likely(mean, noise, scale, start, width=4.0, points=9, rounds=12):
    """(level, slope, line): the largest value on a grid around the last one, which is then halved."""
    best = (start, 0.0)
    for _ in range(rounds):
        offsets = np.linspace(-width, width, points)
        tried = [(best[0] + a, best[1] + b) for a in offsets for b in offsets]
        best = max(tried, key=lambda at: log_likelihood(mean, noise, scale, *at)[0] - 0.5 * at[1] ** 2)
        width *= 0.4
    return *best, log_likelihood(mean, noise, scale, *best)[1]


def posterior_mean(x, v, place, tau, points=20001):
    """By a sum over a dense grid of the true mean."""
    half = 12.0 * (tau + math.sqrt(v))
    grid = np.linspace(min(x, place) - half, max(x, place) + half, points)
    log = -0.5 * (grid - place) ** 2 / tau**2 - 0.5 * (x - grid) ** 2 / v
    density = np.exp(log - log.max())
    return float(grid @ density / density.sum())
