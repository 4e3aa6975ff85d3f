"""How a census works, in four panels: one agent's bins, its histogram round by round, the mixture, the posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from msgspec.structs import replace

from colme.census.histogram import Bins
from colme.census.posterior import posterior_quantiles, posteriors
from colme.errors import ColmeError
from colme.lab.plots._style import BLACK, BLUE, GREY, ORANGE, SKY, VERMILION, canvas
from colme.sim.run import Run
from colme.sim.spec import RunSpec
from colme.support.arrays import Floats


@dataclass(frozen=True)
class ExplainedCensus:
    """One census, as agent 0 sees it."""

    t: int
    """The step at which it started."""
    mean: float
    """Its local mean at that step."""
    sigma_of_mean: float
    center: Floats
    width: float
    masses: Floats
    """(rounds + 1, bins): its own histogram, from its own mean alone to the last round."""
    population: Floats
    """The histogram of all local means."""
    weight: Floats
    location: Floats
    spread: Floats
    """The standard deviation of each component, uncertainty included."""
    own: Floats
    """Possible local means, over the range of all agents."""
    estimate: Floats
    """The posterior mean for each of them."""
    lower: Floats
    upper: Floats
    """The ends of the 90 % interval for each of them."""

    def table(self) -> pd.DataFrame:
        """The histograms: one row per round and bin."""
        rounds, bins = self.masses.shape
        return pd.DataFrame({
            "round": np.repeat(np.arange(rounds), bins), "center": np.tile(self.center, rounds),
            "mass": self.masses.ravel(), "population": np.tile(self.population, rounds),
        })  # fmt: skip


def explain_census(spec: RunSpec) -> ExplainedCensus:
    """The last census that ends within this run, as agent 0 sees it."""
    steps, method = spec.steps, replace(spec.method, guard=False)  # a guard changes no census
    run = Run([replace(spec, method=method, record=(steps,))])
    state: Any = run.states[0]
    found, current = None, None
    for t in range(1, steps + 1):
        began = state.began
        run.step(t)
        if state.began != began:  # a new one, after its first round
            current = (t, state.codes, state.previous.copy(), run.world.mean.copy(), [state.previous[0].copy()])
        if current is not None and state.began == current[0]:
            current[-1].append(state.masses[0].copy())
            if state.rounds < 0:
                found, current = current, None
    if found is None:
        raise ColmeError(f"no census ends within {steps} steps. Try steps=150.")
    began, codes, contributions, means, masses = found
    bins = Bins.of(codes, state.unit)
    main_grid = np.bincount(bins.grid[~np.isnan(bins.center)]).argmax()  # agents of similar noise share one grid
    kept = np.flatnonzero(~np.isnan(bins.center) & (bins.grid == main_grid))
    prior, _ = state.summary()
    row, noise = max(int(prior.row[0]), 0), float(state.noise[0]) * run.world.t / began
    k = int(prior.n_components[row])
    left, right = np.nanquantile(means, [0.0005, 0.9995])
    own = np.linspace(left, right, 400)
    one = prior._replace(row=np.full(400, row))
    estimate = posteriors(own, np.full(400, noise), one).estimate
    ends = np.empty((2, 400))
    for end, tail in zip(ends, (0.05, 0.95), strict=True):
        posterior_quantiles(tail, own, np.full(400, noise), one, end)
    origin = run.stream.origin
    return ExplainedCensus(
        began, float(means[0]) + origin, noise**0.5, bins.center[kept] + origin,
        float(np.sqrt(bins.squared_width[kept[0]])), np.array(masses, float)[:, kept],
        contributions[:, kept].mean(axis=0, dtype=float),
        prior.weight[row, :k].copy(), prior.location[row, :k] + origin, np.sqrt(prior.variance[row, :k]), own + origin,
        estimate + origin, ends[0] + origin, ends[1] + origin,
    )  # fmt: skip


def plot_census(found: ExplainedCensus, part: str, ax: Axes | None = None) -> Axes:
    """One of the four panels: "bins", "rounds", "mixture" or "posterior"."""
    with canvas(ax) as ax:
        ax.set_title(_DRAW[part](ax, found))
        ax.set_xlabel("local mean")
        ax.set_ylabel("estimate" if part == "posterior" else "mass")
        ax.legend(loc="upper left" if part == "posterior" else "upper right", fontsize="small")
    return ax


def _bars(ax: Axes, found: ExplainedCensus, masses: Floats, color: str, alpha: float, label: str) -> None:
    ax.bar(found.center, masses, found.width, color=color, alpha=alpha, linewidth=0, label=label)


def _bins(ax: Axes, found: ExplainedCensus) -> str:
    population = found.population / found.population.max()
    _bars(ax, found, population, GREY, 0.35, "all agents, not to scale")
    _bars(ax, found, found.masses[0], VERMILION, 1.0, "this agent's mass")
    ax.axvline(found.mean, ymax=1.05 / 1.8, color=BLACK, linewidth=0.8, label="this agent's mean")
    ax.set_ylim(0, 1.8)  # room for the legend
    return f"1. Linear binning: unit mass on the two bins\naround an agent's own mean at step {found.t}"


def _rounds(ax: Axes, found: ExplainedCensus) -> str:
    _bars(ax, found, found.population, GREY, 0.35, "all agents")
    last = len(found.masses) - 1
    for rounds, color in zip(sorted({2, (last + 2) // 2, last}), (ORANGE, SKY, BLUE), strict=False):
        name = f"after {rounds} rounds"
        ax.step(found.center, found.masses[rounds], where="mid", color=color, linewidth=1.2, label=name)
    ax.set_ylim(0, 2.2 * found.population.max())
    return "2. Consensus on histograms:\nthis agent's histogram after some rounds"


def _mixture(ax: Axes, found: ExplainedCensus) -> str:
    _bars(ax, found, found.masses[-1], GREY, 0.35, "this agent's histogram")
    x = np.linspace(found.center[0], found.center[-1], 600)
    variance = found.spread**2 + found.sigma_of_mean**2
    density = np.exp(-0.5 * (x[:, None] - found.location) ** 2 / variance) / np.sqrt(2.0 * np.pi * variance)
    components = found.width * found.weight * density
    names = ["its components", *[None] * (len(found.weight) - 1)]
    ax.plot(x, components, color=VERMILION, linewidth=1.0, label=names)
    for location in found.location:
        ax.axvline(location, ymax=1.1 / 1.8, color=VERMILION, linewidth=0.7, linestyle=(0, (2, 2)))
    ax.plot(x, components.sum(axis=1), color=BLACK, linewidth=1.2, label="mixture, with sampling noise")
    ax.set_ylim(0, 1.8 * found.masses[-1].max())
    k = len(found.weight)
    number = "one component" if k == 1 else f"{k} components"
    return f"3. A mixture of {number}, each with\na weight, a location and perhaps a spread"


def _posterior(ax: Axes, found: ExplainedCensus) -> str:
    ax.fill_between(found.own, found.lower, found.upper, color=BLUE, alpha=0.16, linewidth=0, label="90 % interval")
    ax.plot(found.own, found.own, color=GREY, linewidth=0.8, linestyle=(0, (1, 1)), label="local mean")
    ax.plot(found.own, found.estimate, color=BLUE, linewidth=1.4, label="posterior mean")
    y = np.interp(found.mean, found.own, found.estimate)
    ax.plot([found.mean, found.mean], [found.mean, y], color=VERMILION, linewidth=1.4)
    ax.plot([found.mean], [y], "o", color=VERMILION, markersize=4, label="this agent")
    return "4. The estimate: the posterior mean,\ngiven the agent's own mean"


_DRAW = {"bins": _bins, "rounds": _rounds, "mixture": _mixture, "posterior": _posterior}
PARTS = tuple(_DRAW)
