"""The census: our own method, in dense matrices.

    z(1) = W z(0),   z(k+1) = c (W z(k) - z(k-1)) + z(k-1),   y_a = posterior mean of a's own mean under its z

Columns of z are bins ("bin", e, k) of center k h and width h = 2^e unit, noise channels ("noise", e), and, where sigma
is not known, ("variance",) and ("variances",): the sum of sample variances, and how many agents have one. Where sigma
is known, ("ratio",), ("ratios",) and ("ratio^2",) now and then: the sum of sample variances over sigma^2, their number,
and the sum of their squares. (Where it is not known: over the average variance.) And if these vary by more than those
of normal samples, ("product", 0) and so on: what a regression of variances on means takes, see `variance_products`.

A known sigma is checked from step 2 on, in the census of step 1, and the check goes on in that of step 3. An agent with
less than eight samples that sees a smaller one, by two standard errors, uses it at once.
"""

import math
from dataclasses import replace

import numpy as np

from .c_colme import metropolis
from .common import Array, Result, initial_graph, per_agent, running_means
from .mixture import Function, Histogram, Prior, fit_prior

Column = tuple[str] | tuple[str, int] | tuple[str, int, int]
Masses = dict[Column, float]


def bin_mean(x: float, noise: float, unit: float) -> Masses:
    """A unit mass on the two bins around x, by nearness, and the noise in units of h^2."""
    e = math.floor(math.log2(0.84 * math.sqrt(noise) / unit))
    h = unit * 2.0**e
    y = min(max(x / h, -(2.0**40)), 2.0**40)
    k = math.floor(y)
    return {("noise", e): noise / h**2, ("bin", e, k): 1.0 - (y - k), ("bin", e, k + 1): y - k}


def is_regular(A: Array) -> bool:
    """Whether W = A / r: all degrees are r > 2 and no component is bipartite."""
    degree = A.sum(axis=1)
    r = degree[0]
    return bool(r > 2 and (degree == r).all() and np.linalg.eigvalsh(A.astype(float))[0] > 1e-9 - r)


def sums_of_squares(samples: Array) -> Array:
    """(T, N): squared deviations of the samples so far from their mean."""
    out = np.zeros(samples.shape)
    for i in range(len(samples)):
        for a in range(samples.shape[1]):
            seen = samples[: i + 1, a]
            seen = seen[~np.isnan(seen)]
            out[i, a] = ((seen - seen.mean()) ** 2).sum() if len(seen) else 0.0
    return out


class WatchedAgent:
    """One agent that watches for changes of its mean: a two-sided CUSUM against the mean of the samples before the sum
    began to rise; on alarm (a sum beyond 28) it begins anew. Every mean is computed from the samples again."""

    def __init__(self, sigma: float):
        self.sigma, self.samples = sigma, list[float]()
        self.sums = {1: 0.0, -1: 0.0}
        self.rising = {1: 0, -1: 0}  # samples since the sum was zero

    def observe(self, x: float) -> None:
        alarm = False
        for sign in (1, -1):
            before = self.samples[: len(self.samples) - self.rising[sign]]
            if len(before) < 30:
                continue
            allowed = 0.15 + 2.0 / math.sqrt(len(before))
            z = min(sign * (x - sum(before) / len(before)) / self.sigma, 4.0)
            total = self.sums[sign] + z - allowed
            self.sums[sign], self.rising[sign] = (total, self.rising[sign] + 1) if total > 0.0 else (0.0, 0)
            alarm = alarm or total > 28.0
        if alarm:
            self.samples = []
            self.sums, self.rising = {1: 0.0, -1: 0.0}, {1: 0, -1: 0}
        self.samples.append(x)

    @property
    def suspected(self) -> bool:
        return max(self.sums.values()) > 12.0


def variance_products(first: Array, then: Array, frame: tuple[float, float], variance: float) -> list[float]:
    """The products of instruments (1, z, z2), of the first samples, with (1, y, y2, r), of those since: means relative
    to the frame, their squares without bias, and the sample variance. And r^2, z^2, z z2, z2^2; the covariance and
    variance of the errors of means and variances; and what skewness and kurtosis are the averages of, and a product of
    clipped numbers, with its square, that shows whether there is a skewness."""
    center, scale = frame
    n1, n2 = len(first), len(then)
    u, y = (first.mean() - center) / scale, (then.mean() - center) / scale
    r = min(then.var(ddof=1) / variance, 100.0)
    clip = np.clip
    z, z2 = clip(u, -1, 1), clip(u**2 - first.var(ddof=1) / n1 / scale**2, -2, 2)
    y = clip(y, -4, 4)
    y2 = clip(y**2 - r * variance / n2 / scale**2, -16, 16)
    d = clip((then.mean() - first.mean()) / scale, -4, 4)
    table = np.outer([1.0, z, z2], [1.0, y, y2, r])
    moved = (then.mean() - first.mean()) / math.sqrt(variance)
    third, fourth = clip((r - 1) * moved * n2, -1e4, 1e4), min((r - 1) ** 2 * (n2 - 1), 1e6)
    both = clip((r - 1) * math.sqrt((n2 - 1) / 2), -3, 3) * clip(moved / math.sqrt(1 / n1 + 1 / n2), -3, 3)
    return [
        *table.ravel(), r**2, z**2, z * z2, z2**2, d * r, d**2 * n1 / (n1 + n2), third, fourth, both, both**2,
    ]  # fmt: skip


def skewness(P: Array, heard: float) -> tuple[float, float] | None:
    """(skewness, excess kurtosis) by averages of products; None if too few agents have some."""
    if P[0] <= 0.0 or heard * P[0] < 30.0:
        return None
    third, fourth, both, square = P[18:] / P[0]
    doubt = 4.0 * square / (heard * P[0])
    return third * (1.0 - min(doubt / max(both**2, doubt), 1.0)), max(fourth - 2.0, 0.0)


def variance_function(P: Array, heard: float, frame: tuple[float, float]) -> tuple[Function | None, bool]:
    """The function that averages of products show, if they do; and whether errors of means and variances are related as
    the function says."""
    share = P[0]
    if share <= 0.0 or heard * share < 30.0:
        return None, False
    P = P / share
    table, n = P[:12].reshape(3, 4), heard * share
    means = table[:, 0]  # of 1, z, z2
    average = table[0]  # of 1, y, y2, r
    cov = table - np.outer(means, average)  # of (1, z, z2) with (1, y, y2, r)
    zz = np.array([[P[13], P[14]], [P[14], P[15]]]) - np.outer(means[1:], means[1:])
    rr = P[12] - average[3] ** 2
    if not (rr > 0.0 and average[3] > 0.0 and np.linalg.det(zz) > 0.0):
        return None, False
    explained = [cov[1, 3] ** 2 / zz[0, 0] / rr, cov[1:, 3] @ np.linalg.solve(zz, cov[1:, 3]) / rr]
    first, second = n * explained[0], n * (explained[1] - explained[0])
    straight = cov[1, 1] > 0.05 * zz[0, 0]
    rest = np.array([-zz[0, 1] / zz[0, 0], 1.0])  # z2 without z
    bent = bool(second > 9.0 and rest @ cov[1:, 2] > 0.05 * (rest @ zz @ rest))
    if not ((first > 16.0 and straight) or (second > 25.0 and bent)):
        return None, False
    size = 3 if bent else 2
    a, b, c = [*np.linalg.solve(table[:size, :size], table[:size, 3]), 0.0][:3]
    slope = cov[1, 3] / cov[1, 1]
    skewed = bool(first > 16.0 and straight and P[16] / P[17] / slope > 0.5)
    return Function(*frame, *(float(each) / average[3] for each in (a, b, c))), skewed


def parts_heard(W: Array, momentum: float, regular: bool, reached: list[float]) -> Array:
    """(rounds, agents): one over the sum of the squared weights with which others enter an agent's masses, as a part of
    those reached. On a regular graph all agents are alike, and if nearly as many are heard as reached, all are."""
    agents = len(W)
    full = W + np.diag(1.0 - W.sum(axis=1))
    before, now, out = np.eye(agents), full, []
    for _ in reached:
        squares = (now**2).sum(axis=1)
        out.append(np.clip(1.0 / (np.full(agents, squares.mean()) if regular else squares), 1.0, agents))
        before, now = now, momentum * (full @ now - before) + before
    part = np.array(out) / np.array(reached)[:, None]
    return np.ones_like(part) if regular and (part >= 0.7).all() else np.minimum(part, 1.0)


def fitted(
    masses: Array, columns: list[Column], unit: float, reached: float, agents: int, grid: int | None, part: float = 1.0,
    times: float = 1.0, function: Function | None = None, worth: float = 1.0,
) -> Prior | None:  # fmt: skip
    """The prior that one row of masses gives an agent of this grid: that of all bins, unless the bins of its grid have
    another mean than the mixture of all. `times`: of the noise that was binned; `worth`: the part of agents that
    count."""
    prior = fitted_to_all(masses, columns, unit, reached, agents, part, times, function, worth)
    if grid is None and prior is not None and not prior.few:  # an agent that was not binned may be of a new class
        bins = histogram(masses, columns, unit, reached, agents, times, function)
        assert bins is not None
        return replace(prior, outliers=max(prior.outliers, 0.01 / (4.0 * math.sqrt(bins.variance))))
    if grid is None or prior is None or function is not None:
        return prior
    total = sum(max(v, 0.0) for v, column in zip(masses, columns, strict=True) if column[0] == "bin")
    own = [column[0] == "bin" and column[1] == grid for column in columns]
    mass = float(np.maximum(masses[own], 0.0).sum())
    if mass <= 1e-8 or mass == total:
        return prior
    h = unit * 2.0**grid
    centers = np.array([column[2] * h for column, mine in zip(columns, own, strict=True) if mine])
    off = np.maximum(masses[own], 0.0) @ centers / mass - prior.w @ prior.m
    variance = prior.w @ (prior.variance + (prior.m - prior.w @ prior.m) ** 2)
    variance += max(float(masses[columns.index(("noise", grid))]), 0.0) * h**2 / mass
    if off**2 <= 20.0 * variance / (min(reached, agents * total) * mass / total):
        return prior
    alone = np.where([column[1:2] == (grid,) for column in columns], masses, 0.0)
    return fitted_to_all(alone, columns, unit, reached * mass / total, agents, part, times, None, worth) or prior


def fitted_to_all(
    masses: Array, columns: list[Column], unit: float, reached: float, agents: int, part: float, times: float,
    function: Function | None, worth: float,
) -> Prior | None:  # fmt: skip
    """The prior that one row of masses gives; None where it stands for less than one agent."""
    bins = histogram(masses, columns, unit, reached, agents, times, function)
    if bins is None:
        return None
    total = sum(max(float(v), 0.0) for v, column in zip(masses, columns, strict=True) if column[0] == "bin")
    n_effective = min(reached, agents * total)
    bins = replace(bins, n=worth * bins.n)
    prior = fit_prior(bins, small=n_effective < min(500.0, 0.99 * agents * total), heard=part)
    return replace(prior, outliers=prior.outliers * bins.total / n_effective)


def histogram(
    masses: Array, columns: list[Column], unit: float, reached: float, agents: int, times: float = 1.0,
    function: Function | None = None,
) -> Histogram | None:  # fmt: skip
    """The bins of one row of masses; None where it stands for less than one agent."""
    bins = [(j, *column[1:]) for j, column in enumerate(columns) if column[0] == "bin"]
    on_grid: dict[int, float] = {}
    for j, e, _ in bins:
        on_grid[e] = on_grid.get(e, 0.0) + max(float(masses[j]), 0.0)
    total = sum(on_grid.values())
    n_effective = min(reached, agents * total)
    if n_effective < 1.0:
        return None
    rows = []
    for j, e, k in bins:
        if masses[j] > 1e-8:
            h = unit * 2.0**e
            noise = max(float(masses[columns.index(("noise", e))]) / max(on_grid[e], 1e-8), 1.0)
            rows.append((k * h, n_effective * masses[j] / total, h**2 * (times * noise + 1 / 6), h**2 * times * noise))
    return Histogram(*np.array(rows).T, function)


def census(
    samples: Array,
    adjacency: Array,
    *,
    sigma: float | Array | None,
    refresh: float = 1.2,
    rounds: int | None = None,
    heard: Array | None = None,
    restart: bool = False,
) -> Result:
    """Run the census. sigma None: not known. heard: (T, N, N), whether a hears b at step t; the grid begins at 0.
    restart: agents watch for changes, and contribute no mean while they suspect one."""
    steps, agents = samples.shape
    A = initial_graph(adjacency, agents)
    mean, count = running_means(samples)
    suspected = np.zeros(samples.shape, bool)
    squares = sums_of_squares(samples)
    watching = [WatchedAgent(float(s)) for s in per_agent(sigma, agents)] if restart else []
    scale = None if sigma is None else per_agent(sigma, agents)
    unit = 1.0 if scale is None else max(scale)

    # the schedule
    degree = A.sum() / agents
    regular = is_regular(A)
    enough = math.ceil(math.log(max(agents, 2) / 0.6) / math.log(max(degree - 1, 1.5))) + 1
    enough = min(enough if regular else 2 * enough, 40)
    rounds = enough if rounds is None else rounds
    W = A / degree if regular else metropolis(A, np.ones(agents, bool)) * A
    momentum = 1.0
    if degree > 2:
        rate = 2.0 * math.sqrt(degree - 1) / degree  # at which disagreement fades on random regular graphs
        rate = rate if regular else (1.0 + rate) / 2.0
        momentum = 2.0 / (1.0 + math.sqrt(1.0 - rate**2))

    def reached(k: int) -> float:
        return min(float(agents), 1.0 + (max(0.6 * (degree - 1) ** k, k) if degree > 1 else 1.0))

    part = parts_heard(W, momentum, regular, [reached(k + 1) for k in range(max(rounds, enough))])

    def fit(a: int, t: int) -> Prior | None:
        return fitted(
            z[a], columns, unit, reached(done_rounds), agents, grid[a], part[done_rounds - 1, a],
            factor[a] / binned[a], function[a], worth(a, t),
        )  # fmt: skip

    def worth(a: int, t: int) -> float:
        gamma, kappa = (4.0, 6.0) if uneven[a] and least[a] > 4.0 else (skew[a], excess[a])
        return 1.0 / (1.0 + (kappa / 2.0 + told_by[a] * gamma**2 / 18.0) / max(count[t - 1, a], 1))

    def noise(a: int, t: int) -> float:
        n = count[t - 1, a]
        if n == 0:
            return math.inf
        if scale is not None:
            return float(scale[a] ** 2 * factor[a] / n)
        if math.isnan(common[a]):
            return math.inf
        if function[a] is not None:
            return common[a] / n
        m = max(least[a], min(2.0 * abs(skew[a]) * math.sqrt(told_by[a] * n), 60.0))
        return float((m * common[a] + squares[t - 1, a]) / (m + n - 1.0) / n)

    def ratio_of(a: int, t: int) -> Masses:
        """What an agent that knows a variance says of it in a check."""
        average = common[a] if scale is None else scale[a] ** 2
        if count[t - 1, a] < 2 or math.isnan(average):
            return {}
        r = min(squares[t - 1, a] / (count[t - 1, a] - 1.0) / average, 100.0)
        binary: Masses = {("binary",): 1.0} if set(seen[a]) <= {0.0, 1.0} else {}
        return {("ratio",): r, ("ratios",): 1.0, ("ratio^2",): r**2} | binary

    def checked(a: int) -> tuple[float, float, float, float, float] | None:
        """(average r, its variance between agents, how many agents, agents heard, the scale it suggests)."""
        if ("ratio",) not in columns:
            return None
        r, told, r2 = (float(z[a, columns.index((name,))]) for name in ("ratio", "ratios", "ratio^2"))
        k = done_rounds + (1 if early and began > 1 else 0)
        hears = part[k - 1, a] * reached(k)
        if told <= 1e-8 or r <= 0.0 or r**2 * 0.999 > told * r2 or told * hears < 8.0:
            return None
        average, normal = r / told, 2.0 / max(earlier[a] - 1.0, 1.0)
        spread = max(r2 / told - average**2, 0.0)
        errors = 2.0 if average < 1.0 and earlier[a] < 8 else 4.0
        fits = abs(average - 1.0) <= max(errors * math.sqrt(max(spread, normal) / (told * hears)), 0.03)
        fits = fits or (average >= 1.0 and spread >= (normal + 0.25) * average**2)
        return average, spread, told * hears, hears, 1.0 if fits else min(max(average, 1e-4), 100.0)

    common = [math.nan] * agents
    factor = np.ones(agents)  # of sigma^2, where samples contradict it
    function: list[Function | None] = [None] * agents  # of the mean, which the variance is
    uneven = [False] * agents  # sample variances vary by more than those of normal samples
    least, skew, excess, told_by = ([each] * agents for each in (15.0, 0.0, 0.0, 0.0))
    binned = factor.copy()  # when means were binned
    early = False  # the check of step 2 is under way
    earlier = [0] * agents  # samples at the last check
    frames = [(0.0, 0.0)] * agents  # of the last finished census, and of the one that is checked
    frame = list(frames)
    seen: list[list[float]] = [[] for _ in range(agents)]
    grid: list[int | None] = [None] * agents
    columns: list[Column] = []
    z = before = np.zeros((agents, 0))
    under_way, began, ever_done, done_rounds = False, 0, False, 0
    finished: list[Prior | None] = [None] * agents
    estimate = np.full((steps, agents), math.nan)
    for t in range(1, steps + 1):
        X = mean[t - 1]
        for a, agent in enumerate(watching):
            agent.sigma = scale[a] * math.sqrt(factor[a])
            if not np.isnan(samples[t - 1, a]):
                agent.observe(float(samples[t - 1, a]))
            X[a] = np.mean(agent.samples) if agent.samples else np.nan
            count[t - 1, a], suspected[t - 1, a] = len(agent.samples), agent.suspected
            squares[t - 1, a] = np.square(np.array(agent.samples) - X[a]).sum()
            if len(agent.samples) < earlier[a]:
                earlier[a] = 0
        for a in range(agents):
            if not np.isnan(samples[t - 1, a]):
                seen[a] = list(watching[a].samples) if restart else [*seen[a], float(samples[t - 1, a])]

        # a new census
        if not under_way and t >= refresh * began and (t > 1 or scale is not None):
            contributions: list[Masses] = []
            for a in range(agents):
                mine: Masses = {}
                grid[a] = None
                if 0.0 < noise(a, t) < math.inf and not suspected[t - 1, a]:
                    mine |= bin_mean(X[a], noise(a, t), unit)
                    grid[a] = next(column[1] for column in mine if column[0] == "noise")
                if scale is None and count[t - 1, a] > 1:
                    mine |= {("variance",): squares[t - 1, a] / (count[t - 1, a] - 1.0), ("variances",): 1.0}
                checks = math.floor(math.log2(t)) > (math.floor(math.log2(began)) if began else -1)
                checks = (checks or (scale is None and began == 2)) and not early
                if early:  # the check of step 2 goes on
                    names = ("ratio", "ratios", "ratio^2", "binary")
                    mine |= {(name,): float(z[a, columns.index((name,))]) for name in names if (name,) in columns}
                if checks and (found := ratio_of(a, t)):
                    mine |= found
                    first, then = np.array(seen[a][: earlier[a]]), np.array(seen[a][earlier[a] :])
                    if uneven[a] and frames[a][1] > 0.0 and len(first) > 1 and len(then) > 1:
                        variance = common[a] if scale is None else scale[a] ** 2
                        each = variance_products(first, then, frames[a], variance)
                        mine |= {("product", k): value for k, value in enumerate(each)}
                if checks:
                    earlier[a], frame[a] = len(seen[a]), frames[a]
                contributions.append(mine)
            every = {column for each in contributions for column in each}
            columns = sorted(every)  # bins from fine to coarse, from left to right
            z = np.array([[each.get(column, 0.0) for column in columns] for each in contributions])
            under_way, began, done_rounds, binned = True, t, 0, factor.copy()
        elif t == 2 and under_way and scale is not None:
            early = True
            told = [ratio_of(a, t) for a in range(agents)]
            names = sorted({column for each in told for column in each})
            z = np.hstack([z, np.array([[each.get(column, 0.0) for column in names] for each in told])])
            before, columns = np.hstack([before, np.zeros((agents, len(names)))]), [*columns, *names]
            earlier, frame = [len(each) for each in seen], list(frames)

        # a round of consensus
        if under_way:
            now = W if heard is None else W * heard[t - 1]
            value = now @ z + (1.0 - now.sum(axis=1))[:, None] * z
            if done_rounds > 0:
                value = momentum * (value - before) + before
            z, before = np.where(np.abs(value) > 1e-8, value, 0.0), z
            done_rounds += 1
            first = scale is None and began == 2  # of variances only
            if done_rounds >= (1 if first else min(rounds, 2 + began // 3)):
                for a in range(agents):
                    if (found_here := checked(a)) is None or (early and began == 1):
                        continue
                    average, spread, n_told, hears, suggested = found_here
                    found, skewed, P = None, False, np.zeros(22)
                    if ("product", 0) in columns:
                        P = np.array([z[a, columns.index(("product", k))] for k in range(22)])
                        found, skewed = variance_function(P, hears, frame[a])
                    function[a] = found if skewed or scale is not None else None
                    freedom = max(earlier[a] - 1.0, 1.0)
                    error = math.sqrt((2.0 + 12.0 / freedom) / max(n_told, 1.0))
                    uneven[a] = bool(spread > 2.0 / freedom * average**2 * (1.25 + 2.0 * error))
                    moments = skewness(P, hears)
                    (skew[a], excess[a]), told_by[a] = moments or (0.0, 0.0), n_told
                    if moments is not None or not uneven[a]:
                        least[a] = 4.0
                    share = n_told / hears
                    binary = ("binary",) in columns and z[a, columns.index(("binary",))] >= (1.0 - 1e-6) * share
                    if scale is not None:
                        plain = function[a] is None and not binary
                        factor[a] = suggested if plain else min(max(average, 1e-4), 100.0)
                    if binary:  # m (1 - m)
                        sums = [z[a, columns.index((name,))] for name in ("variance", "variances") if scale is None]
                        variance = factor[a] * scale[a] ** 2 if scale is not None else sums[0] / sums[1]
                        if variance > 0.0:
                            function[a] = Function(0.0, 1.0, 0.0, 1.0 / variance, -1.0 / variance)
                finished = [fit(a, t) for a in range(agents)]
                for a in range(agents):
                    bins = histogram(z[a], columns, unit, reached(done_rounds), agents)
                    frames[a] = (0.0, 0.0) if bins is None else (bins.mean, 2.0 * math.sqrt(bins.variance))
                if ("variance",) in columns:
                    total, n_told = z[:, columns.index(("variance",))], z[:, columns.index(("variances",))]
                    for a in range(agents):
                        if n_told[a] > 1e-8 and total[a] > 0.0:
                            common[a] = total[a] / n_told[a]
                under_way, ever_done, early = False, not first, early and began == 1
            elif scale is not None:
                for a in range(agents):
                    found_here = checked(a)
                    if found_here is None or function[a] is not None:
                        continue
                    if earlier[a] < 8 and found_here[4] < min(factor[a], 1.0):
                        factor[a] = found_here[4]
                        finished[a] = fit(a, t)

        # the posterior mean under the last census, or the one under way if there is none
        known = finished
        if under_way and not ever_done:
            known = [fit(a, t) for a in range(agents)]
        for a in range(agents):
            prior = known[a]
            if prior is None or not A[a].any() or math.isnan(X[a]):
                estimate[t - 1, a] = X[a]
            else:
                estimate[t - 1, a] = prior.posterior_mean(X[a], noise(a, t))
    return Result(mean, count, estimate, np.array([A] * steps))
