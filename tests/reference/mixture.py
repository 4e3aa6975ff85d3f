"""The mixture that fits a histogram, and the posterior of one mean under it, in plain matrices (bins x components).

A bin has a center c, a count n and a noise variance v; a component has a weight w, a location m and a spread tau^2:

    c ~ sum over i of w_i N(m_i, tau_i^2 + v),     score = log-likelihood - (ln N + 3) components - (ln N / 2) spreads

The search: the best single component; the non-parametric mixture, divided at its valleys; then one merge at a time.

A variance function changes v from component to component: of the part s of v that is due to samples, a component at m
has q(m) + curvature tau^2 instead of 1, but at least q'(m)^2 s.
"""

import math
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
TINY = 1e-300


@dataclass(frozen=True)
class Function:
    """q(m) = a + b u + c u^2 with u = (m - center) / scale, at most four in size; between .02 and 50."""

    center: float
    scale: float
    a: float
    b: float
    c: float

    def factor(self, m: Array, tau2: Array | float, s: Array) -> Array:
        """(noises s) x (locations m): of the noise s in a component at m."""
        u = np.clip((m - self.center) / self.scale, -4.0, 4.0)
        q = np.clip(np.polyval([self.c, self.b, self.a], u) + self.c * tau2 / self.scale**2, 0.02, 50.0)
        slope = np.polyval([2.0 * self.c, self.b], u) / self.scale
        return np.maximum(q, slope**2 * np.asarray(s)[..., None])


@dataclass(frozen=True)
class Histogram:
    """Bins of centers c, counts n and noise variances v, of which s are due to samples; and the variance function."""

    c: Array
    n: Array
    v: Array
    s: Array | None = None
    function: Function | None = None

    def noise(self, m: Array, tau2: Array | float) -> Array:
        """bins x components: the noise at locations m."""
        if self.function is None or self.s is None:
            return np.repeat(self.v[:, None], len(m), axis=1)
        return (self.v - self.s)[:, None] + self.function.factor(m, tau2, self.s) * self.s[:, None]

    @property
    def finest(self) -> float:
        """The smallest noise, each bin's at its center."""
        return float(self.noise(self.c, 0.0).diagonal().min())

    @property
    def total(self) -> float:
        return float(self.n.sum())

    @property
    def mean(self) -> float:
        return float(self.n @ self.c) / self.total

    @property
    def variance(self) -> float:
        return float(self.n @ (self.c - self.mean) ** 2) / self.total


@dataclass(frozen=True)
class Mixture:
    """Weights, locations, spreads, and which components may have a spread."""

    w: Array
    m: Array
    tau2: Array
    wide: Array

    def __len__(self) -> int:
        return len(self.w)

    def sorted(self) -> "Mixture":
        order = np.argsort(self.m, kind="stable")
        return Mixture(self.w[order], self.m[order], self.tau2[order], self.wide[order])


def normal(distance: Array, variance: Array) -> Array:
    """The density without 1 / sqrt(2 pi), cut off at eight deviations."""
    e = distance**2 / variance
    return np.where(e < 64.0, np.exp(-0.5 * e) / np.sqrt(variance), 0.0)


def densities(bins: Histogram, mix: Mixture) -> Array:
    return normal(bins.c[:, None] - mix.m, bins.noise(mix.m, mix.tau2) + mix.tau2)


def log_likelihood(bins: Histogram, mix: Mixture) -> float:
    return float(bins.n @ np.log(densities(bins, mix) @ mix.w + TINY))


def score(bins: Histogram, mix: Mixture) -> float:
    ln = math.log(max(bins.total, 3.0))
    return log_likelihood(bins, mix) - (ln + 3.0) * len(mix) - 0.5 * ln * int(mix.wide.sum())


def em(bins: Histogram, mix: Mixture, rounds: int) -> Mixture:
    """Expectation and maximization: weights, locations by precision, spreads by the excess of squares."""
    w, m, tau2 = mix.w, mix.m, mix.tau2
    for _ in range(rounds):
        v = bins.noise(m, tau2)
        joint = w * normal(bins.c[:, None] - m, v + tau2)
        r = bins.n[:, None] * joint / (joint.sum(axis=1, keepdims=True) + TINY)
        precision = 1.0 / (v + tau2)
        d = bins.c[:, None] - m
        heavy, squares = (r * precision).sum(axis=0), (r * precision**2).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            move = np.where(heavy > 0.0, (r * precision * d).sum(axis=0) / heavy, 0.0)
            excess = (r * precision**2 * (d**2 - v)).sum(axis=0) / squares
        w = r.sum(axis=0) / bins.total
        m = m + move
        tau2 = np.where(mix.wide & (squares > 0.0), np.maximum(excess, 0.0), 0.0)
    return Mixture(w, m, tau2, mix.wide)


def toggle_spreads(bins: Histogram, mix: Mixture) -> tuple[Mixture, float]:
    """Each component in turn gets a spread, or loses it, where that improves the score."""
    best = score(bins, mix)
    for i in range(len(mix)):
        wide, tau2 = mix.wide.copy(), mix.tau2.copy()
        wide[i] = not wide[i]
        tau2[i] = 0.25 * bins.finest if wide[i] else 0.0
        other = em(bins, Mixture(mix.w, mix.m, tau2, wide), 25)
        if score(bins, other) > best:
            mix, best = other, score(bins, other)
    return mix, best


def by_moments(bins: Histogram) -> Mixture:
    """One component: the mean, and the variance in excess of the noise."""
    left = bins.variance - float(bins.n @ bins.v) / bins.total
    return Mixture(np.ones(1), np.array([bins.mean]), np.array([max(0.0, left)]), np.ones(1, bool))


def non_parametric(bins: Histogram) -> tuple[Array, Array, float]:
    """Weights of atoms half a deviation apart, by at most 200 rounds of expectation and maximization. If there were
    more than 160 between the first bin and the last, only those within four of a bin are used.

    The third value is the log-likelihood that no mixture of these atoms exceeds: l + N ln(largest growth), as the
    logarithm is concave."""
    low, high = bins.c.min(), bins.c.max()
    half = 0.5 * math.sqrt(bins.finest)
    atoms = np.linspace(low, high, n) if (n := int((high - low) / half) + 2) <= 160 else low + half * np.array(
        sorted({math.floor((c - low) / half + 0.5) + j for c in bins.c for j in range(-4, 5)})
    )  # fmt: skip
    w = np.full(len(atoms), 1.0 / len(atoms))
    like = normal(bins.c[:, None] - atoms, bins.noise(atoms, 0.0))
    value = 0.0
    for _ in range(200):
        f = like @ w + TINY
        growth = (bins.n / f) @ like / bins.total
        value = float(bins.n @ np.log(f)) + bins.total * math.log(growth.max())
        w = w * growth
        if growth.max() < 1.0 + 1e-3:
            break
    return atoms, w, value


def group_atoms(atoms: Array, w: Array, total: float, gap: float) -> Mixture:
    """One component per hill between two valleys or gaps; hills of less than 0.3 agents are dropped."""
    valleys = [
        g for g in range(1, len(w))
        if atoms[g] - atoms[g - 1] > gap or (w[g] > w[g - 1] and (g == 1 or w[g - 1] <= w[g - 2]))
    ]  # fmt: skip
    starts = [0, *valleys]
    mass, moment = np.add.reduceat(w, starts), np.add.reduceat(w * atoms, starts)
    kept = mass * total > 0.3
    if not kept.any():
        kept[-1] = True
    assert kept.sum() <= 40
    k = int(kept.sum())
    return Mixture(mass[kept] / mass[kept].sum(), moment[kept] / mass[kept], np.zeros(k), np.zeros(k, bool))


def merged(mix: Mixture, i: int, wider: bool) -> Mixture:
    """Components i and i + 1 as one with the same mean and, if wider, the same variance."""
    pair = slice(i, i + 2)
    w, m = mix.w[pair], mix.m[pair]
    both = max(float(w.sum()), TINY)
    middle = float(w @ m) / both
    across = float(w @ (mix.tau2[pair] + (m - middle) ** 2)) / both

    def replaced(values: Array, one: float | bool) -> Array:
        return np.concatenate([values[:i], [one], values[i + 2 :]])

    return Mixture(
        replaced(mix.w, both), replaced(mix.m, middle), replaced(mix.tau2, across if wider else 0.0),
        replaced(mix.wide, wider).astype(bool),
    )  # fmt: skip


def one_fewer(bins: Histogram, mix: Mixture) -> tuple[Mixture, float]:
    """The best merge among the three pairs that are cheapest to merge, with a spread or without."""
    mix = mix.sorted()
    w, m, tau2 = mix.w, mix.m, mix.tau2
    weight = w[:-1] * w[1:] / np.maximum(w[:-1] + w[1:], TINY)
    cost = weight * np.diff(m) ** 2 / (bins.finest + tau2[:-1] + tau2[1:])
    best, value = mix, -math.inf
    for i in np.argsort(cost, kind="stable")[:3]:
        for wider in (False, True):
            other = em(bins, merged(mix, int(i), wider), 12)
            if score(bins, other) > value:
                best, value = other, score(bins, other)
    return best, value


def search(bins: Histogram) -> Mixture:
    """The mixture with the best score."""
    best = by_moments(bins)
    if bins.total < 3.0 or np.ptp(bins.c) == 0.0:
        return best
    best, best_score = toggle_spreads(bins, em(bins, best, 8))
    atoms, weights, bound = non_parametric(bins)
    if bound + 2.0 - 2.0 * (math.log(max(bins.total, 3.0)) + 3.0) < best_score:
        return best  # no two components can score better
    mix = em(bins, group_atoms(atoms, weights, bins.total, 4.0 * math.sqrt(bins.finest)), 30)
    value = score(bins, mix)
    while len(mix) > 1:
        if value > best_score or len(mix) <= 4:
            other, other_score = toggle_spreads(bins, em(bins, mix, 40))
            if other_score > best_score:
                best, best_score = other, other_score
        if len(mix) == 2:
            break
        mix, value = one_fewer(bins, mix)
    return em(bins, best, 20).sorted()


def information(bins: Histogram, mix: Mixture, wide: Array) -> Array:
    """Of locations, spreads of the wide and weights (but the last): sum over bins of n grad(log f) grad(log f)^T."""
    p = densities(bins, mix)
    f = (p @ mix.w + TINY)[:, None]
    d, q = bins.c[:, None] - mix.m, bins.noise(mix.m, mix.tau2) + mix.tau2
    slopes = np.hstack([mix.w * p * d / q, (mix.w * p * 0.5 * (d**2 / q - 1.0) / q)[:, wide], p[:, :-1] - p[:, -1:]])
    return (slopes / f).T @ (bins.n[:, None] * slopes / f)


def variances(bins: Histogram, mix: Mixture, wide: Array) -> Array:
    """Diagonal of the inverse of the information."""
    matrix = information(bins, mix, wide)
    matrix = matrix + np.diag(1e-9 * matrix.diagonal() + TINY)
    scale = np.sqrt(matrix.diagonal())
    return np.linalg.inv(matrix / scale / scale[:, None]).diagonal() / scale**2


def added_variance(bins: Histogram, mix: Mixture) -> Array:
    """What uncertainty adds to the spread of each component: the variance of its location, and its expected spread in
    excess of the fitted one."""
    k = len(mix)
    out = variances(bins, mix, mix.tau2 > 0.0)[:k].copy()
    error = np.sqrt(variances(bins, mix, np.ones(k, bool))[k : 2 * k])
    if k == 1:  # expected information instead of observed: sum of n / (2 (v + tau^2)^2), bins of density zero left out
        there = densities(bins, mix)[:, 0] > 1e-290
        v = bins.noise(mix.m, mix.tau2)[:, 0] + mix.tau2
        error = 1.0 / np.sqrt((there * bins.n / 2.0 / v**2).sum(keepdims=True))
    mean_noise = float((bins.n * bins.v).sum() / bins.total)
    everything, true = bins.variance, bins.variance - mean_noise
    large = (mix.w * bins.total >= 5.0) | (mix.w >= 0.05)
    if large.any() and not large.all():  # smaller components are outliers
        w, m = mix.w[large] / mix.w[large].sum(), mix.m[large]
        true = float(w @ (mix.tau2[large] + (m - w @ m) ** 2))
        everything = true + mean_noise
    for i in range(k if everything > 0.0 else 0):
        e, tau2 = min(float(error[i]), everything), float(mix.tau2[i])
        not_noise = max(true, e)
        v = bins.noise(mix.m, mix.tau2)[:, i]
        belongs = normal(bins.c - mix.m[i], v) * mix.w[i] / (densities(bins, mix) @ mix.w + TINY)
        slope = float((bins.n * belongs * ((bins.c - mix.m[i]) ** 2 / v - 1.0) / v).sum()) / 2.0
        z = min(max(tau2 / e if tau2 > 0.0 else slope * e, -6.0), 6.0)
        # likelihood of a spread x: N(x; z e, e^2), x > 0; prior: uniform up to what is not noise, or (unless there is
        # only one component, or this one has a spread and overlaps others) zero
        upper = 0.5 * math.erfc(-z / math.sqrt(2.0))
        bump = math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
        r = normal(bins.c - mix.m[i], v + tau2) * mix.w[i] / (densities(bins, mix) @ mix.w + TINY)
        overlaps = float(error[i]) ** 2 * float((bins.n * r / (v + tau2) ** 2).sum()) / 2.0 > 1.05
        odds = math.inf if k == 1 or (tau2 > 0.0 and overlaps) else e / not_noise * upper / bump
        out[i] += 1.0 / (1.0 + 1.0 / odds) * max(e * (z + bump / upper), tau2) - tau2
    return out


@dataclass(frozen=True)
class Prior:
    """Components of weights w, locations m and variances (uncertainty included), a uniform density of outliers, and the
    variance function."""

    w: Array
    m: Array
    variance: Array
    outliers: float
    function: Function | None = None
    few: bool = False
    """Of few agents: one more than 2.5 deviations away is pulled no more than one at 2.5."""

    def posterior_mean(self, x: float, average_noise: float) -> float:
        noise = np.full(len(self.m), average_noise)
        if self.function is not None and average_noise < math.inf:
            noise = self.function.factor(self.m, self.variance, np.array(average_noise)) * average_noise
        p = np.append(self.w * normal(x - self.m, noise + self.variance), self.outliers * math.sqrt(2.0 * math.pi))
        p = p / p.sum()
        kept = self.variance / (self.variance + noise)
        away = x - self.m
        pull = (1.0 - kept) * away
        if self.few:
            pull = (1.0 - kept) * np.clip(away, *(k * np.sqrt(self.variance + noise) for k in (-2.5, 2.5)))
        return float(p @ np.append(x - pull, x))


def fit_prior(bins: Histogram, *, small: bool, heard: float = 1.0) -> Prior:
    """The prior that a histogram gives; `small`: one of few agents, which gives a single component; `heard`: the part
    of the counts that standard errors count on."""
    few = small
    if bins.function is not None and bins.s is not None:
        # means so skewed that components may be parts of one: a squared skewness q'^2 s / q above .4
        middle, u = np.array([bins.mean]), np.clip((bins.mean - bins.function.center) / bins.function.scale, -4.0, 4.0)
        slope = (bins.function.b + 2.0 * bins.function.c * u) / bins.function.scale
        q = bins.function.factor(middle, 0.0, np.zeros(1)).item()
        small = small or slope**2 * float(bins.n @ bins.s) / bins.total > 0.4 * q
    mix = by_moments(bins) if small else search(bins)
    reach = max(float(np.ptp(bins.c)), math.sqrt(float(bins.v[0])))
    known = mix.tau2 + added_variance(Histogram(bins.c, heard * bins.n, bins.v, bins.s, bins.function), mix)
    return Prior(mix.w, mix.m, known, 0.1 / bins.total / reach, bins.function, few)
