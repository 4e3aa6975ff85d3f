"""Coverage, width and error of the online census in many worlds: python -m tests.online.measure [words] [--seeds=4].

Each line: the coverage of 90 % intervals after 10, 20, 50, 100, 200 and 300 samples per agent, the width relative to
that of an interval around the own mean with the true noise (mean over these stages), and the largest squared error
relative to local means, each a mean over seeds. `<` marks a coverage below .87. Agents have their samples in a random
order. Constants were chosen with seeds 0 to 3 of `TUNED` and of the other worlds with 0/1 samples or counts; seeds from
200 on, and the rest of the worlds, confirm.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme import CollaborativeMean
from tests.adverse.worlds import WORLDS as ADVERSE

Floats = NDArray[np.float64]
Rng = np.random.Generator
STAGES = (10, 20, 50, 100, 200, 300)


class Stream(NamedTuple):
    """Samples in the order in which they come."""

    truth: Floats
    agent: NDArray[np.int64]
    value: Floats
    variance: Floats
    """The true variance of a sample of each agent."""
    sigma: float | None = None


def classes(*means: float, n: int = 300) -> Callable[[Rng], Floats]:
    return lambda rng: rng.permutation(np.array(means)[np.arange(n) * len(means) // n])


def gaussian(spread: float, n: int = 300) -> Callable[[Rng], Floats]:
    return lambda rng: spread * rng.standard_normal(n)


def uniform(width: float, n: int = 300) -> Callable[[Rng], Floats]:
    return lambda rng: width * rng.random(n)


def normal(rng: Rng, mean: Floats) -> Floats:
    return mean + rng.standard_normal(len(mean))


def lognormal(rng: Rng, mean: Floats) -> Floats:
    """Of deviation 1 and skewness 6.2."""
    scale = math.exp(0.5) * math.sqrt(math.e - 1.0)
    return mean + (np.exp(rng.standard_normal(len(mean))) - math.exp(0.5)) / scale


def exponential(rng: Rng, mean: Floats) -> Floats:
    return mean + rng.exponential(size=len(mean)) - 1.0


def student(freedom: float) -> Callable[[Rng, Floats], Floats]:
    return lambda rng, mean: mean + rng.standard_t(freedom, len(mean)) / math.sqrt(freedom / (freedom - 2.0))


def coins(rng: Rng, mean: Floats) -> Floats:
    return (rng.random(len(mean)) < mean).astype(float)


def poisson(rng: Rng, mean: Floats) -> Floats:
    return rng.poisson(mean).astype(float)


def stream(
    truth: Callable[[Rng], Floats], draw: Callable[[Rng, Floats], Floats] = normal, *, sigma: float | None = None,
    counts: str = "equal", own_scale: float = 1.0,
) -> Callable[[int], Stream]:  # fmt: skip
    """Counts are equal, random, or of a power law; deviations differ by a factor of up to own_scale either way."""

    def make(seed: int) -> Stream:
        rng = np.random.default_rng([seed, 77])
        mean = truth(rng)
        n = len(mean)
        scale = np.exp(rng.uniform(-1.0, 1.0, n) * math.log(own_scale))
        if counts == "equal":
            agent = np.argsort(rng.random((STAGES[-1], n)), axis=1).ravel()
        else:
            share = rng.pareto(1.0, n) + 0.1 if counts == "power" else np.ones(n)
            agent = np.append(rng.permutation(n), rng.choice(n, STAGES[-1] * n - n, p=share / share.sum()))
        value = draw(rng, mean[agent])
        value = mean[agent] + scale[agent] * (value - mean[agent])
        many = np.repeat(mean, 2000)
        variance = scale**2 * ((draw(rng, many) - many) ** 2).reshape(n, -1).mean(axis=1)
        return Stream(mean, agent, value, variance, sigma)

    return make


def adverse(name: str) -> Callable[[int], Stream]:
    """A world of tests.adverse.worlds with a constant truth and one told sigma."""

    def make(seed: int) -> Stream:
        world = ADVERSE[name](seed)
        rng = np.random.default_rng(seed)
        order = np.argsort(rng.random(world.samples.shape), axis=1)
        value = np.take_along_axis(world.samples, order, axis=1)
        there = ~np.isnan(value)
        variance = np.nanmean((world.samples - world.truth) ** 2, axis=0)
        sigma = None if world.sigma is None or np.ndim(world.sigma) else float(world.sigma)
        return Stream(world.truth, order[there], value[there], variance, sigma)

    return make


TUNED: dict[str, Callable[[int], Stream]] = {
    "two classes": stream(classes(0.0, 0.4), sigma=1.0),
    "two classes, estimated": stream(classes(0.0, 0.4)),
    "gaussian": stream(gaussian(0.4), sigma=1.0),
    "gaussian, estimated": stream(gaussian(0.4)),
    "gaussian .2": stream(gaussian(0.2)),
    "uniform": stream(uniform(2.5)),
    "ten classes": stream(classes(*(0.5 * np.arange(10)))),
    "told double": stream(classes(0.0, 0.4), sigma=2.0),
    "told double, uniform": stream(uniform(2.5), sigma=2.0),
    "told half": stream(gaussian(0.4), sigma=0.5),
    "lognormal classes": stream(classes(0.0, 0.4), lognormal),
    "lognormal classes, told": stream(classes(0.0, 0.4), lognormal, sigma=1.0),
    "lognormal gaussian": stream(gaussian(0.4), lognormal),
    "t(2.1) classes": stream(classes(0.0, 0.4), student(2.1)),
    "t(2.1) classes, told": stream(classes(0.0, 0.4), student(2.1), sigma=1.0),
    "coins .02 .1": stream(classes(0.02, 0.1), coins),
    "coins .02 .1, told .5": stream(classes(0.02, 0.1), coins, sigma=0.5),
    "coins .2 .6": stream(classes(0.2, 0.6), coins),
    "coins, uniform": stream(uniform(1.0), coins),
    "power counts, classes": stream(classes(0.0, 0.4), counts="power"),
    "power counts, gaussian": stream(gaussian(0.4), counts="power"),
    "random counts, gaussian": stream(gaussian(0.4), counts="random"),
    "own scales, classes": stream(classes(0.0, 0.4), own_scale=3.0),
    "own scales, gaussian": stream(gaussian(0.4), own_scale=3.0),
    "poisson 1 2": stream(classes(1.0, 2.0), poisson),
    "5000 agents, classes": stream(classes(0.0, 0.4, n=5000)),
    "50 agents, gaussian": stream(gaussian(0.4, n=50)),
}
OTHERS: dict[str, Callable[[int], Stream]] = {
    "three classes 60 30 10": stream(classes(*[0.0] * 6, *[0.6] * 3, 1.5)),
    "exponential classes": stream(classes(0.0, 0.6), exponential),
    "exponential uniform": stream(uniform(2.0), exponential),
    "t(3) gaussian": stream(gaussian(0.6), student(3.0)),
    "coins .05 .3": stream(classes(0.05, 0.3), coins),
    "coins, narrow": stream(lambda rng: rng.beta(8.0, 12.0, 400), coins),
    "coins, power counts": stream(lambda rng: rng.beta(2.0, 6.0, 400), coins, counts="power"),
    "poisson gamma": stream(lambda rng: rng.gamma(4.0, 0.5, 400), poisson),
    "lognormal uniform, 1000": stream(uniform(1.5, n=1000), lognormal),
    "lognormal, power counts": stream(gaussian(0.5), lognormal, counts="power"),
    "power counts, uniform": stream(uniform(2.0, n=500), counts="power"),
    "power counts, own scales": stream(gaussian(0.5), counts="power", own_scale=2.0),
    "told triple, gaussian": stream(gaussian(0.5), sigma=3.0),
    "20 agents, gaussian": stream(gaussian(0.5, n=20)),
    "5000 agents, gaussian": stream(gaussian(0.3, n=5000)),
}
CONSTANT = (
    "laplace_on_preferential_graph", "student_25", "exponential_noise_and_means", "rare_spikes", "rare_defects",
    "poisson_counts", "noise_grows_with_the_mean", "coin_of_five", "rounded_readings", "sensors_of_many_qualities",
    "qualities_untold", "told_triple_on_ring", "ninety_nine_one", "fifty_classes_of_six", "indistinguishable_twins",
    "faulty_at_100", "faulty_at_million", "faulty_sensors_join", "far_from_zero", "stuck_sensors", "gaps_and_joiners",
    "new_class_arrives", "dozen_in_three_classes", "thirty_exponential", "ten_with_one_astray",
)  # fmt: skip
"""Adverse worlds whose truth is constant and whose assumptions are not broken on purpose."""
WORLDS = TUNED | OTHERS | {name: adverse(name) for name in CONSTANT}


def follow(world: Stream, model: CollaborativeMean | None = None) -> Floats:
    """At each stage: coverage, width over that of the local interval, squared errors of estimates and local means."""
    model = CollaborativeMean(sigma=world.sigma) if model is None else model
    n, done, out = len(world.truth), 0, []
    for stage in STAGES:
        stop = min(stage * n, len(world.agent))
        model.learn_many(agent=world.agent[done:stop], value=world.value[done:stop])
        done = stop
        known = model.to_columns()
        here = np.array(known["agent"])
        truth, local = world.truth[here], 2.0 * 1.645 * np.sqrt(world.variance[here] / known["n"])
        covered = (known["lower"] - 1e-9 <= truth) & (truth <= known["upper"] + 1e-9)
        width = (known["upper"] - known["lower"]).mean() / local.mean()
        squares = [((known[name] - truth) ** 2).mean() for name in ("estimate", "mean")]
        out.append([covered.mean(), width, *squares])
    return np.array(out)


def main(arguments: list[str]) -> None:
    seeds, first = 4, 0
    words = [word for word in arguments if not word.startswith("--")]
    for option in arguments:
        if option.startswith("--seeds="):
            seeds = int(option.split("=")[1])
        if option.startswith("--first="):
            first = int(option.split("=")[1])
    groups = {"tuned": TUNED, "others": OTHERS, "adverse": dict.fromkeys(CONSTANT)}
    for name, make in WORLDS.items():
        if words and not any(word in name or name in groups.get(word, ()) for word in words):
            continue
        seen = np.mean([follow(make(seed)) for seed in range(first, first + seeds)], axis=0)
        coverage = " ".join(f"{share:.2f}" for share in seen[:, 0])
        worst = (seen[:, 2] / seen[:, 3]).max()
        mark = "" if seen[:, 0].min() >= 0.87 else "  <"
        print(f"{name:30} {coverage}   width {seen[:, 1].mean():.2f}   error {worst:.3f}{mark}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
