"""Adverse worlds: named, seeded samples, graphs and told scales. The docstring of each says what it attacks.

`WORLDS` maps names to functions of a seed. Noise has the standard deviation 1 unless said otherwise. The truth is the
expectation of an agent's sample at a step, (N,) or, where it changes, (T, N). `target` is what the error, relative
to local means, should not exceed at any step from 3 on: 1.05, or 1.15 after a sudden change and for 3 to 50 agents, or
None where the guard's assumption (samples independent in time and between agents) is broken on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import colme

Array = np.ndarray
Rng = np.random.Generator


@dataclass(frozen=True)
class World:
    """Input of one run: samples (T, N) with NaN where an agent has none, the truth, and what agents are told."""

    samples: Array
    truth: Array
    graph: colme.Graph
    sigma: float | Array | None
    classes: Array | None = None
    loss: float = 0.0
    target: float | None = 1.05
    end_target: float | None = None
    """What the relative error should not exceed at any step from 500 on, where that is asked for."""

    def recording(self) -> colme.Recording:
        """The samples as a source for `colme.simulate`."""
        if self.truth.ndim == 1:
            made = colme.Recording(self.samples, means=self.truth, classes=self.classes, sigma=self.sigma)
        else:
            made = Moving(self.samples, self.truth, self.sigma)
        made.loss = self.loss
        return made


class Moving(colme.Recording):
    """A recording whose true means change."""

    def __init__(self, samples: Array, truth: Array, sigma: float | Array | None) -> None:
        super().__init__(samples, means=truth[0], classes=np.arange(samples.shape[1]), sigma=sigma)
        first = super().truth(1)  # sources speak in units of an origin of their own
        assert first is not None
        self.moving = truth - (truth[0] - first)

    def truth(self, t: int) -> Array:
        return self.moving[t - 1]

    def steady_until(self, t: int) -> float:
        """The truth may change at each step."""
        return t + 1


WORLDS: dict[str, Callable[[int], World]] = {}


def world(make: Callable[[Rng], World]) -> Callable[[Rng], World]:
    """Add a world under the name of its function."""

    def seeded(seed: int) -> World:
        return make(np.random.default_rng([seed, *map(ord, make.__name__)]))

    seeded.__doc__ = make.__doc__
    WORLDS[make.__name__] = seeded
    return make


# Graphs


def regular(rng: Rng, agents: int, degree: int = 10) -> colme.Graph:
    return colme.graphs.random_regular_graph(agents, degree, rng=rng)


def joined(edges: list[tuple[int, int]], agents: int) -> colme.Graph:
    """A simple graph of these edges; loops and repetitions are dropped."""
    return colme.graphs.from_edges(sorted({(min(e), max(e)) for e in edges if e[0] != e[1]}), agents)


def hubs(rng: Rng, agents: int, centers: int) -> colme.Graph:
    """Every agent has one or two of a few hubs as its only neighbors; the hubs are joined to each other."""
    edges = [(a, b) for a in range(centers) for b in range(a)]
    edges += [
        (a, int(b)) for a in range(centers, agents) for b in rng.choice(centers, rng.integers(1, 3), replace=False)
    ]
    return joined(edges, agents)


def preferential(rng: Rng, agents: int, links: int) -> colme.Graph:
    """Each new agent is joined to `links` old ones, drawn in proportion to their degrees."""
    ends = list(range(links))
    edges = []
    for a in range(links, agents):
        chosen = {ends[i] for i in rng.integers(len(ends), size=links)}
        edges += [(a, b) for b in chosen]
        ends += [*chosen, *[a] * len(chosen)]
    return joined(edges, agents)


def barbell(rng: Rng, agents: int, bridge: int, degree: int = 10) -> colme.Graph:
    """Two random regular halves, joined by one path of `bridge` agents."""
    half = (agents - bridge) // 2
    edges = [(int(a), int(b)) for a, b in regular(rng, half, degree).edges()]
    start = agents - half
    edges += [(start + int(a), start + int(b)) for a, b in regular(rng, half, degree).edges()]
    edges += [(a, a + 1) for a in range(half - 1, start)]
    return joined(edges, agents)


def communities(rng: Rng, agents: int, bridges: int, degree: int = 10) -> colme.Graph:
    """Two random regular halves (the first and the last agents), joined by so many random edges."""
    half = agents // 2
    edges = [(shift + int(a), shift + int(b)) for shift in (0, half) for a, b in regular(rng, half, degree).edges()]
    edges += [(int(rng.integers(half)), half + int(rng.integers(half))) for _ in range(bridges)]
    return joined(edges, 2 * half)


def bipartite(rng: Rng, agents: int, degree: int) -> colme.Graph:
    """Edges only between even and odd agents: unions of random matchings."""
    odd = np.arange(1, agents, 2)
    return joined(
        [(int(b) - 1, int(a)) for _ in range(degree) for a, b in zip(odd, rng.permutation(odd), strict=True)], agents
    )


# Truth


def in_classes(rng: Rng, sizes: list[int], means: list[float]) -> tuple[Array, Array]:
    """The class and the mean of each agent, placed at random."""
    classes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return classes, np.asarray(means, dtype=float)[classes]


# Laws of noise


@world
def laplace_on_preferential_graph(rng: Rng) -> World:
    """Attacks the count of agents heard: degrees from 3 to about 60, with Laplace noise and unequal classes."""
    classes, truth = in_classes(rng, [210, 90], [0.0, 1.0])
    samples = truth + rng.laplace(scale=math.sqrt(0.5), size=(300, 300))
    return World(samples, truth, preferential(rng, 300, 3), 1.0, classes)


@world
def student_25(rng: Rng) -> World:
    """Attacks normal likelihoods: t(2.5) noise has a variance (told) but no third moment; three classes."""
    classes, truth = in_classes(rng, [100, 100, 100], [0.0, 2.0, 4.0])
    return World(truth + rng.standard_t(2.5, size=(300, 300)), truth, regular(rng, 300), math.sqrt(5), classes)


@world
def exponential_noise_and_means(rng: Rng) -> World:
    """Attacks symmetry: skewed noise, skewed continuum of means."""
    truth = rng.exponential(0.7, size=300)
    return World(truth + rng.exponential(size=(300, 300)) - 1, truth, regular(rng, 300), 1.0)


@world
def rare_spikes(rng: Rng) -> World:
    """Attacks means and sample variances: 1 sample of 300 has 40 times the deviation; told the deviation without."""
    classes, truth = in_classes(rng, [150, 150], [0.0, 1.0])
    scale = np.where(rng.random((300, 300)) < 1 / 300, 40.0, 1.0)
    return World(truth + scale * rng.normal(size=(300, 300)), truth, regular(rng, 300), 1.0, classes)


@world
def rare_defects(rng: Rng) -> World:
    """Attacks sub-Gaussian scales: 0/1 samples with p = .004, .02, .08; told Hoeffding's 1/2, 2 to 8 times too much."""
    classes, truth = in_classes(rng, [150, 100, 50], [0.004, 0.02, 0.08])
    return World((rng.random((300, 300)) < truth).astype(float), truth, regular(rng, 300), 0.5, classes)


@world
def poisson_counts(rng: Rng) -> World:
    """Attacks one noise for all: counts with means .3, 3 and 12 have deviations .5, 1.7 and 3.5; told 2."""
    classes, truth = in_classes(rng, [120, 120, 60], [0.3, 3.0, 12.0])
    return World(rng.poisson(truth, size=(300, 300)).astype(float), truth, regular(rng, 300), 2.0, classes)


@world
def noise_grows_with_the_mean(rng: Rng) -> World:
    """Attacks the independence of mean and variance: gamma samples of deviation mean / 2; told nothing."""
    truth = np.exp(rng.normal(size=300))
    return World(truth * rng.gamma(4, 0.25, size=(300, 300)), truth, regular(rng, 300), None)


@world
def coin_of_five(rng: Rng) -> World:
    """Attacks the histogram: noise is +5 or -5, so early means form a lattice that looks like classes. Told 5."""
    classes, truth = in_classes(rng, [150, 150], [0.0, 1.5])
    return World(truth + 5.0 * rng.choice([-1.0, 1.0], size=(300, 300)), truth, regular(rng, 300), 5.0, classes)


@world
def rounded_readings(rng: Rng) -> World:
    """Attacks bins and variances: readings with noise .3 (told) are rounded to whole numbers; many never change."""
    place = rng.uniform(0, 4, size=300)
    samples = np.round(place + 0.3 * rng.normal(size=(300, 300)))
    whole = np.arange(-4, 9)
    cdf = np.vectorize(lambda z: 0.5 * math.erfc(-z / math.sqrt(2)))
    upper, lower = (whole[:, None] + 0.5 - place) / 0.3, (whole[:, None] - 0.5 - place) / 0.3
    truth = (whole[:, None] * (cdf(upper) - cdf(lower))).sum(axis=0)
    return World(samples, truth, regular(rng, 300), 0.3)


# Scales of the noise


@world
def sensors_of_many_qualities(rng: Rng) -> World:
    """Attacks weights: deviations from .1 to 10 by agent, told truly; two classes."""
    classes, truth = in_classes(rng, [150, 150], [0.0, 1.0])
    sigma = np.exp(rng.uniform(math.log(0.1), math.log(10), size=300))
    return World(truth + sigma * rng.normal(size=(300, 300)), truth, regular(rng, 300), sigma, classes)


@world
def qualities_untold(rng: Rng) -> World:
    """Attacks the told scale: deviations from .3 to 3 by agent, told 1 for all; a continuum of means."""
    truth = 0.5 * rng.normal(size=300)
    sigma = np.exp(rng.uniform(math.log(0.3), math.log(3), size=300))
    return World(truth + sigma * rng.normal(size=(300, 300)), truth, regular(rng, 300), 1.0)


@world
def told_half_on_barbell(rng: Rng) -> World:
    """Attacks confidence and mixing: told half the deviation, two halves joined by a path; a continuum of means."""
    truth = rng.uniform(-1, 1, size=240)
    return World(truth + rng.normal(size=(300, 240)), truth, barbell(rng, 240, 10), 0.5)


@world
def told_triple_on_ring(rng: Rng) -> World:
    """Attacks confidence and mixing: told three times the deviation, on a ring; exponential means."""
    truth = rng.exponential(size=200)
    return World(truth + rng.normal(size=(300, 200)), truth, colme.graphs.ring_lattice_graph(200, 4), 3.0)


@world
def told_double_in_communities(rng: Rng) -> World:
    """Attacks consensus: each of two weakly joined communities is a class; told twice the deviation."""
    classes = np.repeat([0, 1], 125)
    truth = np.array([0.0, 1.0])[classes]
    return World(truth + rng.normal(size=(300, 250)), truth, communities(rng, 250, 3), 2.0, classes)


# Graphs


@world
def every_edge_is_wrong(rng: Rng) -> World:
    """Attacks neighbors: bipartite, the two sides are the two classes, so no two neighbors have the same mean."""
    classes = np.arange(300) % 2
    truth = np.array([0.0, 0.8])[classes]
    return World(truth + rng.normal(size=(300, 300)), truth, bipartite(rng, 300, 6), 1.0, classes)


@world
def four_hubs(rng: Rng) -> World:
    """Attacks relays: agents talk to one or two of four hubs only, and hubs have a mean of their own."""
    classes, truth = in_classes(rng, [150, 146], [0.0, 1.0])
    classes, truth = np.append([2] * 4, classes), np.append([5.0] * 4, truth)
    return World(truth + rng.normal(size=(300, 300)), truth, hubs(rng, 300, 4), 1.0, classes)


@world
def sparse_with_isolated_agents(rng: Rng) -> World:
    """Attacks the count of agents: G(n, p) of mean degree 2.5, 8 % of the agents without any neighbor."""
    classes, truth = in_classes(rng, [200, 100], [0.0, 1.0])
    graph = colme.graphs.gnp_random_graph(300, 2.5 / 300, rng=rng)
    return World(truth + rng.normal(size=(300, 300)), truth, graph, 1.0, classes)


@world
def lossy_hubs(rng: Rng) -> World:
    """Attacks lost messages: every third is lost, on a graph with six hubs; for methods that tolerate loss."""
    classes, truth = in_classes(rng, [180, 60], [0.0, 1.5])
    return World(truth + rng.normal(size=(300, 240)), truth, hubs(rng, 240, 6), 1.0, classes, loss=0.33)


# Shapes of classes


@world
def ninety_nine_one(rng: Rng) -> World:
    """Attacks small classes: 90, 9 and 1 %, the smallest far away and the others near."""
    classes, truth = in_classes(rng, [270, 27, 3], [0.0, 0.7, 4.0])
    return World(truth + rng.normal(size=(300, 300)), truth, regular(rng, 300), 1.0, classes)


@world
def fifty_classes_of_six(rng: Rng) -> World:
    """Attacks the number of components: 50 classes, 8 deviations apart, of 6 agents each."""
    classes, truth = in_classes(rng, [6] * 50, [8.0 * k for k in range(50)])
    return World(truth + rng.normal(size=(300, 300)), truth, regular(rng, 300), 1.0, classes)


@world
def indistinguishable_twins(rng: Rng) -> World:
    """Attacks merging: two classes .001 deviations apart count as one; a third is 1 apart. Laplace, told double."""
    classes, truth = in_classes(rng, [100, 100, 100], [0.0, 0.001, 1.0])
    samples = truth + rng.laplace(scale=math.sqrt(0.5), size=(300, 300))
    return World(samples, truth, regular(rng, 300), 2.0, classes)


def faulty(rng: Rng, offset: float) -> World:
    classes, truth = in_classes(rng, [1, 500, 499], [offset, 0.0, 1.0])
    samples = truth + rng.normal(size=(600, 1000))
    return World(samples, truth, regular(rng, 1000), 1.0, classes, end_target=0.01)


@world
def faulty_at_100(rng: Rng) -> World:
    """Attacks the range: one sensor of 1000 is 100 deviations off."""
    return faulty(rng, 100.0)


@world
def faulty_at_million(rng: Rng) -> World:
    """Attacks the range and the origin: one sensor of 1000 is a million deviations off."""
    return faulty(rng, 1e6)


@world
def faulty_sensors_join(rng: Rng) -> World:
    """Attacks the range later on: two sensors of 300 join at step 120, a thousand deviations below and above."""
    classes, truth = in_classes(rng, [1, 149, 149, 1], [-1000.0, 0.0, 1.0, 1000.0])
    samples = truth + rng.normal(size=(300, 300))
    samples[:119, np.abs(truth) > 500] = np.nan
    return World(samples, truth, regular(rng, 300), 1.0, classes)


@world
def far_from_zero(rng: Rng) -> World:
    """Attacks rounding: two classes 1 apart at a billion, where a float32 has steps of 64."""
    classes, truth = in_classes(rng, [150, 150], [1e9, 1e9 + 1])
    return World(truth + rng.normal(size=(300, 300)), truth, regular(rng, 300), 1.0, classes)


@world
def stuck_sensors(rng: Rng) -> World:
    """Attacks variances of zero: a fifth of the agents report one constant each; told 1 for all."""
    classes, truth = in_classes(rng, [120, 120, 60], [0.0, 1.5, 0.5])
    stuck = np.flatnonzero(classes == 2)
    truth[stuck] = np.linspace(-1, 2, stuck.size)
    samples = truth + rng.normal(size=(300, 300))
    samples[:, stuck] = truth[stuck]
    return World(samples, truth, regular(rng, 300), 1.0)


# Time


@world
def gaps_and_joiners(rng: Rng) -> World:
    """Attacks counts: agents miss 0 to 95 % of their samples, a third joins between steps 50 and 250; Laplace noise."""
    classes, truth = in_classes(rng, [150, 100, 50], [0.0, 1.0, 3.0])
    samples = truth + rng.laplace(scale=math.sqrt(0.5), size=(300, 300))
    samples[rng.random((300, 300)) < rng.uniform(0, 0.95, size=300)] = np.nan
    for a in rng.choice(300, 100, replace=False):
        samples[: rng.integers(50, 250), a] = np.nan
    return World(samples, truth, regular(rng, 300), 1.0, classes)


@world
def new_class_arrives(rng: Rng) -> World:
    """Attacks what was learned: at step 150 the agents double, and all of the new ones have another mean."""
    classes = np.arange(300) % 2
    truth = np.array([0.0, 2.0])[classes]
    samples = truth + rng.normal(size=(300, 300))
    samples[:149, classes == 1] = np.nan
    return World(samples, truth, regular(rng, 300), 1.0, classes, target=1.15)


@world
def a_fifth_shifts(rng: Rng) -> World:
    """Attacks memory: at step 100 a fifth of the agents of either class move by 3 deviations."""
    _, before = in_classes(rng, [150, 150], [0.0, 1.0])
    truth = np.tile(before, (300, 1))
    truth[99:, rng.choice(300, 60, replace=False)] += 3.0
    return World(truth + rng.normal(size=(300, 300)), truth, regular(rng, 300), 1.0, target=1.15)


@world
def classes_exchange_members(rng: Rng) -> World:
    """Attacks memory unseen by a histogram: at step 150 half of each class changes to the other; told double."""
    classes, before = in_classes(rng, [150, 150], [0.0, 1.5])
    truth = np.tile(before, (300, 1))
    for k in (0, 1):
        truth[149:, rng.choice(np.flatnonzero(classes == k), 75, replace=False)] = 1.5 * (1 - k)
    return World(truth + rng.normal(size=(300, 300)), truth, regular(rng, 300), 2.0, target=1.15)


@world
def one_class_drifts(rng: Rng) -> World:
    """Attacks steady means: one class moves from 0 to 3 in 300 steps, through the other one at 1.5."""
    classes, before = in_classes(rng, [150, 150], [0.0, 1.5])
    truth = np.where(classes == 0, np.linspace(0, 3, 300)[:, None], before)
    return World(truth + rng.normal(size=(300, 300)), truth, regular(rng, 300), 1.0)


def autoregressive(rng: Rng, shape: tuple[int, int], phi: float) -> Array:
    """AR(1) noise of deviation 1."""
    noise = rng.normal(size=shape)
    for t in range(1, shape[0]):
        noise[t] = phi * noise[t - 1] + math.sqrt(1 - phi**2) * noise[t]
    return noise


@world
def positive_autocorrelation(rng: Rng) -> World:
    """Attacks independence in time: AR(.7). Local means are sqrt(5.7) times worse than they claim; told 1."""
    classes, truth = in_classes(rng, [150, 150], [0.0, 1.0])
    return World(truth + autoregressive(rng, (300, 300), 0.7), truth, regular(rng, 300), 1.0, classes, target=None)


@world
def negative_autocorrelation(rng: Rng) -> World:
    """Attacks the judge: AR(-.4), so the next sample says that collaboration is better than it is."""
    truth = 0.5 * rng.normal(size=300)
    return World(truth + autoregressive(rng, (300, 300), -0.4), truth, regular(rng, 300), 1.0, target=None)


# Dependence between agents


@world
def common_shocks(rng: Rng) -> World:
    """Attacks independence between agents: half of the variance is a shock common to all agents at a step."""
    classes, truth = in_classes(rng, [150, 150], [0.0, 1.0])
    noise = math.sqrt(0.5) * (rng.normal(size=(300, 300)) + rng.normal(size=(300, 1)))
    return World(truth + noise, truth, regular(rng, 300), 1.0, classes, target=None)


@world
def copies_of_thirty(rng: Rng) -> World:
    """Attacks the number of independent agents: 300 agents are ten copies each of 30, with a continuum of means."""
    source = np.repeat(np.arange(30), 10)
    truth = rng.normal(size=30)[source]
    samples = truth + rng.normal(size=(300, 30))[:, source]
    return World(samples, truth, regular(rng, 300), 1.0, target=None)


# Few agents


@world
def dozen_in_three_classes(rng: Rng) -> World:
    """Attacks what needs many agents: 12 in three classes, told 1.5 of 1."""
    classes, truth = in_classes(rng, [5, 4, 3], [0.0, 1.0, 3.0])
    return World(truth + rng.normal(size=(300, 12)), truth, regular(rng, 12, 4), 1.5, classes, target=1.15)


@world
def thirty_exponential(rng: Rng) -> World:
    """Attacks what needs many agents: 30 exponential means, Laplace noise, told nothing."""
    truth = rng.exponential(size=30)
    samples = truth + rng.laplace(scale=math.sqrt(0.5), size=(300, 30))
    return World(samples, truth, regular(rng, 30, 6), None, target=1.15)


@world
def ten_with_one_astray(rng: Rng) -> World:
    """Attacks what needs many agents: 9 equal agents and one 50 deviations off."""
    classes, truth = in_classes(rng, [9, 1], [0.0, 50.0])
    return World(truth + rng.normal(size=(300, 10)), truth, colme.graphs.complete_graph(10), 1.0, classes, target=1.15)


# Dependent samples: each agent starts in stationarity, so the truth is the expectation at every step


def on_off(rng: Rng, steps: int, up: Array, down: Array) -> Array:
    """(T, N) of 0 and 1 that switch with the probabilities up and down; a share up / (up + down) of ones."""
    on = rng.random(up.size) < up / (up + down)
    path = np.empty((steps, up.size))
    for t in range(steps):
        path[t] = on
        on = rng.random(up.size) < np.where(on, 1 - down, up)
    return path


@world
def random_telegraph(rng: Rng) -> World:
    """Attacks 0/1 samples: variances are m (1 - m), but states last 5 to 20 steps. Told .5. No target: dependent."""
    classes, up = in_classes(rng, [80, 80, 40], [0.0125, 0.05, 0.2])
    down = np.full(200, 0.05)
    return World(on_off(rng, 300, up, down), up / (up + down), regular(rng, 200), 0.5, classes, target=None)


@world
def thermostats(rng: Rng) -> World:
    """Attacks 1 / n: hysteresis cycles of 8 to 40 steps around 19, 20 or 21; told nothing.

    No target: over whole cycles means are far better than independent ones, over parts of one far worse.
    """
    classes, truth = in_classes(rng, [60, 60, 30], [19.0, 20.0, 21.0])
    phase = (rng.random(150) + np.arange(250)[:, None] / rng.uniform(8, 40, size=150)) % 1.0
    heats = rng.uniform(0.1, 0.9, size=150)  # the share of a cycle; either way all heights are equally likely
    height = np.where(phase < heats, phase / heats, (1 - phase) / (1 - heats))
    samples = truth + 2 * height - 1 + 0.1 * rng.normal(size=(250, 150))
    return World(samples, truth, regular(rng, 150), None, classes, target=None)


@world
def tides(rng: Rng) -> World:
    """Attacks the next sample as a judge: periods of 12 and 12.42 beat, nearly in phase at all ports. Told 1.

    No target: dependent in time and between agents.
    """
    truth = 0.3 * rng.normal(size=120)
    lag = 0.5 * rng.normal(size=120)
    waves = [np.cos(2 * np.pi * (np.arange(400)[:, None] / p + rng.random()) + lag) for p in (12.0, 12.42)]
    samples = truth + waves[0] + 0.6 * waves[1] + 0.3 * rng.normal(size=(400, 120))
    return World(samples, truth, regular(rng, 120), 1.0, target=None)


@world
def bursts(rng: Rng) -> World:
    """Attacks quiet beginnings: rare bursts of about 8 steps, of exponential height. Told 1. No target: dependent."""
    classes, up = in_classes(rng, [150, 100], [0.005, 0.03])
    down = np.full(250, 1 / 8)
    on = on_off(rng, 300, up, down)
    height = np.empty_like(on)
    for t in range(300):
        height[t] = np.where(on[t - 1] * (t > 0) == 1, height[t - 1], rng.exponential(4.0, size=250))
    truth = 4.0 * up / (up + down)
    return World(on * height + rng.normal(size=on.shape), truth, regular(rng, 250), 1.0, classes, target=None)


@world
def slow_drift(rng: Rng) -> World:
    """Attacks variances from samples: AR(.99) of deviation .5 below noise 1. Told nothing. No target: dependent."""
    classes, truth = in_classes(rng, [60, 40], [0.0, 1.0])
    samples = truth + 0.5 * autoregressive(rng, (400, 100), 0.99) + rng.normal(size=(400, 100))
    return World(samples, truth, regular(rng, 100), None, classes, target=None)


# Independent samples, promises at stake


@world
def qualities_mixed_up(rng: Rng) -> World:
    """Attacks told scales: deviations .5 and 3, told by agent, but to the wrong agents; a uniform continuum."""
    truth = rng.uniform(-1, 1, size=200)
    sigma = rng.choice([0.5, 3.0], size=200)
    return World(truth + sigma * rng.normal(size=(200, 200)), truth, regular(rng, 200), rng.permutation(sigma))


@world
def skewed_untold(rng: Rng) -> World:
    """Attacks variances of few samples: gamma noise of shape .1, a mean and a variance that come late; told nothing."""
    classes, truth = in_classes(rng, [100, 80], [0.0, 1.0])
    noise = (rng.gamma(0.1, size=(250, 180)) - 0.1) / math.sqrt(0.1)
    return World(truth + noise, truth, regular(rng, 180), None, classes)


@world
def zero_inflated_counts(rng: Rng) -> World:
    """Attacks variance as a function of the mean: counts, 0 to 90 % of them replaced by 0, have the mean 1 or 2."""
    classes, truth = in_classes(rng, [150, 100], [1.0, 2.0])
    share = rng.choice([0.1, 0.4, 1.0], size=250)
    counts = (rng.random((250, 250)) < share) * rng.poisson(truth / share, size=(250, 250))
    return World(counts.astype(float), truth, regular(rng, 250), None, classes)


@world
def classes_with_a_spread(rng: Rng) -> World:
    """Attacks point masses: classes 1.5 apart that have spreads of 0, .1 and .3 within; intervals must notice."""
    group, center = in_classes(rng, [80, 80, 80], [0.0, 1.5, 3.0])
    truth = center + np.array([0.0, 0.1, 0.3])[group] * rng.normal(size=240)
    return World(truth + rng.normal(size=(400, 240)), truth, regular(rng, 240), 1.0)


@world
def noisy_few_among_precise(rng: Rng) -> World:
    """Attacks one scale for all: 285 agents of deviation .1 at 0 and .2, 15 of 5 at 1; told the root mean square."""
    classes, truth = in_classes(rng, [150, 135, 15], [0.0, 0.2, 1.0])
    sigma = np.array([0.1, 0.1, 5.0])[classes]
    told = float(np.sqrt(np.mean(sigma**2)))
    return World(truth + sigma * rng.normal(size=(150, 300)), truth, regular(rng, 300), told, classes)


@world
def hubs_join_late(rng: Rng) -> World:
    """Attacks relays: three hubs, between which all news travels, have no sample before step 60; a continuum."""
    truth = rng.uniform(0, 2, size=200)
    samples = truth + rng.normal(size=(200, 200))
    samples[:59, :3] = np.nan
    return World(samples, truth, hubs(rng, 200, 3), 1.0)


@world
def eighty_pairs(rng: Rng) -> World:
    """Attacks the number of components: 80 classes of two, between 0 and 60, some near each other; told double."""
    truth = rng.permutation(np.repeat(rng.uniform(0, 60, size=80), 2))
    return World(truth + rng.normal(size=(250, 160)), truth, regular(rng, 160), 2.0)


@world
def heavy_tails_on_a_lattice(rng: Rng) -> World:
    """Attacks bins and tails: means on a lattice .75 apart, binomial; t(3) noise of deviation 1.7, told 1."""
    classes = rng.binomial(6, 0.5, size=220)
    truth = 0.75 * classes
    return World(truth + rng.standard_t(3, size=(300, 220)), truth, regular(rng, 220), 1.0, classes)


@world
def noise_gets_loud(rng: Rng) -> World:
    """Attacks what was learned of sigma: deviation .3 up to step 30, then 2; told nothing; few and near means."""
    classes, truth = in_classes(rng, [80, 60], [0.0, 0.4])
    sigma = np.where(np.arange(200) < 30, 0.3, 2.0)[:, None]
    return World(truth + sigma * rng.normal(size=(200, 140)), truth, regular(rng, 140), None, classes)


@world
def trickle_of_strangers(rng: Rng) -> World:
    """Attacks newcomers: from step 20 on an agent joins every other step, each .1 above the one before it."""
    truth = np.append(np.zeros(60), 2.0 + 0.1 * np.arange(60))
    samples = truth + rng.normal(size=(160, 120))
    for k in range(60):
        samples[: 20 + 2 * k, 60 + k] = np.nan
    return World(samples, truth, regular(rng, 120), 1.0, target=1.15)


# Fleets: what someone has on a shelf


@world
def three_on_a_desk(rng: Rng) -> World:
    """Attacks everything that averages over agents: three, two of them in the same room; sigma told truly."""
    classes, truth = in_classes(rng, [2, 1], [20.0, 21.0])
    return World(truth + rng.normal(size=(200, 3)), truth, colme.graphs.complete_graph(3), 1.0, classes, target=1.15)


@world
def five_thermometers(rng: Rng) -> World:
    """Attacks sigma from samples: a ring of five, AR(.3) noise .25 in steps of 1/16, offsets .1; told nothing.

    No target: dependent in time.
    """
    truth = 21 + 0.1 * rng.normal(size=5)
    samples = np.round(16 * (truth + 0.25 * autoregressive(rng, (300, 5), 0.3))) / 16
    return World(samples, truth, colme.graphs.ring_lattice_graph(5, 2), None, target=None)


@world
def six_balconies(rng: Rng) -> World:
    """Attacks the judge: a ring of six shares a weather that lasts (AR(.5), a fifth of the variance). Told 1.

    No target: dependent in time and between agents.
    """
    classes, truth = in_classes(rng, [4, 2], [0.0, 1.0])
    noise = math.sqrt(0.8) * rng.normal(size=(300, 6)) + math.sqrt(0.2) * autoregressive(rng, (300, 1), 0.5)
    return World(truth + noise, truth, colme.graphs.ring_lattice_graph(6, 2), 1.0, classes, target=None)


@world
def star_with_a_warm_gateway(rng: Rng) -> World:
    """Attacks the center: seven agents hear only a gateway, 3 warmer than both of their classes; told 1 of .4."""
    classes, truth = np.array([2, 0, 0, 0, 0, 1, 1, 1]), np.array([3.0, 0, 0, 0, 0, 0.5, 0.5, 0.5])
    star = joined([(0, a) for a in range(1, 8)], 8)
    return World(truth + 0.4 * rng.normal(size=(250, 8)), truth, star, 1.0, classes, target=1.15)


@world
def dozen_with_two_latecomers(rng: Rng) -> World:
    """Attacks few judges: 12 in two classes, t(4) noise, told nothing; one of each class joins at step 50."""
    classes = np.arange(12) % 2
    truth = 1.5 * classes
    samples = truth + rng.standard_t(4, size=(200, 12))
    samples[:49, :2] = np.nan
    return World(samples, truth, colme.graphs.complete_graph(12), None, classes, target=1.15)
