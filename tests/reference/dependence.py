"""How much wider dependence between samples makes the variance of their mean: docs/methods.md, read sample by sample.

Nothing is streamed, tabulated or pruned: batches are cut out of the samples, every shape is evaluated wherever it is
asked for, and equation (2) is a sum over octaves.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.special import digamma, polygamma

from .common import Array

SIZES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]


def shapes() -> list[tuple[float, str, float, float]]:
    """(prior probability, family, its two parameters)."""
    found = [(0.95, "arma", 0.0, 1.0)]
    phis = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99)
    positive = [("white", phi, share) for phi in phis for share in (1.0, 0.9, 0.7, 0.5, 0.3, 0.15, 0.07)]
    positive += [("arma", 0.0, f) for f in (1.15, 1.3, 1.5, 1.8)]
    negative = [("arma", 0.0, f) for f in (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.12, 0.07, 0.03)]
    negative += [("arma", phi, (1 + phi) / (1 - phi)) for phi in (-0.2, -0.35, -0.5, -0.65, -0.8)]
    negative += [("arma", phi, f) for phi in (0.5, 0.8) for f in (0.7, 0.5, 0.3, 0.15, 0.06)]
    periods = (3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40, 48, 56, 68, 80)
    cycles = [("cycle", p, share) for p in periods for share in (0.1, 0.25, 0.5, 0.75, 0.93)]
    long = [("long", d / 20, share) for d in range(1, 10) for share in (1.0, 0.6, 0.3)]
    for part, family in ((0.45, positive), (0.25, negative), (0.2, cycles), (0.1, long)):
        found += [(0.05 * part / len(family), *each) for each in family]
    return found


def factor(family: str, p: float, q: float, b: float) -> float:
    """F_b = b V_b / sigma^2."""
    if family == "white":
        return 1 - q + q * factor("arma", p, (1 + p) / (1 - p), b)
    if family == "cycle":
        return 1 - q + q * b * (math.sin(math.pi * b / p) / (b * math.sin(math.pi / p))) ** 2
    if family == "long":
        return 1 - q + q * b ** (2 * p)
    power = abs(p) ** b * (math.cos(math.pi * b) if p < 0 else 1.0)
    return 1 + (q - 1) * (b * (1 - p) - 1 + power) / (b * (1 - p))


def difference(shape: tuple[str, float, float], b: float) -> float:
    """Equation (1)."""
    return max(2 * factor(*shape, b) - factor(*shape, 2 * b), 0.01)


def pooled(samples: Array, typical: float | None = None) -> dict[str, Array | float]:
    """Equation (3), of samples (steps, agents) without gaps."""
    n, agents = samples.shape
    A, B = np.zeros(len(SIZES)), np.zeros(len(SIZES))
    total = squares = deviations = 0.0
    for a in range(agents):
        x = samples[:, a]
        variance = float(x.var(ddof=1))
        w = 1.0 if typical is None else min(variance / typical**2, 4.0)
        total, squares, deviations = total + w, squares + w * w, deviations + math.sqrt(variance)
        for i, b in enumerate(SIZES):
            means = [x[k * b : (k + 1) * b].mean() for k in range(n // b)]
            for one, two in itertools.pairwise(means):
                A[i] += w * b / 2 * (one - two) ** 2 / variance
                B[i] += w
    return {"A": A, "B": B, "w": total, "w2": squares, "s": deviations, "n": agents}


def factors(sums: dict[str, Array | float], n: float) -> tuple[float, float, float, float] | None:
    """(low, high, low of own, high of own) for a mean of n samples, equations (4) to (7), before low looks ahead; None
    where independence is not less probable than .8."""
    A, B = np.asarray(sums["A"]), np.asarray(sums["B"])
    use = [i for i in range(len(SIZES)) if A[i] > 0 and B[i] > 0]
    sizes, k = np.array([SIZES[i] for i in use], float), len(use)
    y, t, before = np.zeros(k), np.zeros(k), 1.0
    for j, i in enumerate(use):
        freedom = 2 / 3 * B[i] * float(sums["w"]) / float(sums["w2"])
        q = (freedom * A[i] / B[i] + 0.5 * min(before, 1.0)) / (freedom + 0.5)
        h = (freedom + 0.5) / 2
        y[j], t[j], before = math.log(q) - digamma(h) + math.log(h), math.sqrt(polygamma(1, h)), q
    log = np.log2(sizes)
    noise = np.array([[t[i] * t[j] * math.exp(-1.05 * abs(log[i] - log[j])) for j in range(k)] for i in range(k)])
    every: list[
        tuple[float, tuple[str, float, float], Array]
    ] = []  # log weight, shape, what multiplies min(log, log b)
    for number, (prior, *shape) in enumerate(shapes()):
        predicted = np.array([math.log(difference(shape, b)) for b in sizes])  # type: ignore[arg-type]
        for walk, chance in ((0.0, 0.6), (0.05, 0.3), (0.5, 0.1)):
            if number == 0 and walk > 0:
                continue
            C = noise + walk * np.minimum.outer(log, log) + (0.05**2 * np.eye(k) if walk else 0.0)
            inverse, one = np.linalg.inv(C), np.ones(k)
            c = one @ inverse @ (y - predicted) / (one @ inverse @ one)
            rest = y - predicted - c
            evidence = rest @ inverse @ rest + math.log(np.linalg.det(C)) + math.log(one @ inverse @ one)
            weight = math.log(prior * (1.0 if number == 0 else chance)) - evidence / 2
            every.append((weight, tuple(shape), walk * inverse @ rest))  # type: ignore[arg-type]
    top = max(weight for weight, _, _ in every)
    mass = sum(math.exp(weight - top) for weight, _, _ in every)
    if math.exp(every[0][0] - top) / mass >= 0.8:
        return None
    geometric, harmonic = np.zeros(2), np.zeros(2)
    for weight, each, pull in every:
        p = math.exp(weight - top) / mass

        def r(b: float, each: tuple[str, float, float] = each, pull: Array = pull) -> float:
            return difference(each, b) * math.exp(min(float(pull @ np.minimum(log, math.log2(b))), 12.0))

        def F(b: float, each: tuple[str, float, float] = each, pull: Array = pull) -> float:
            octaves = 12  # beyond them, r has the shape's own factor
            rest = factor(*each, b * 2**octaves) * math.exp(
                min(float(pull @ np.minimum(log, math.log2(b) + octaves)), 12)
            )
            return sum(0.5 ** (j + 1) * r(b * 2**j) for j in range(octaves)) + 0.5**octaves * rest

        one_sample = F(1.0)
        f = min(F(n) / one_sample, 0.97 * n)
        g = f * (n - 1) / (n - f)
        rise = math.log(f / (r(n / 2) / one_sample))
        trust = min(max((math.log(2.4) - rise) / (math.log(2.4) - math.log(1.8)), 0.0), 1.0)
        for i, value in enumerate((f, g)):
            geometric[i] += p * math.log(value)
            harmonic[i] += p / math.exp(min(math.log(value), 0.0) + trust * max(math.log(value), 0.0))
    high, low = np.exp(geometric), np.minimum(1 / harmonic, np.exp(geometric))
    return float(low[0]), float(high[0]), float(low[1]), float(high[1])
