"""How a census works, in four pictures: a ballot, the votes of one agent round by round, the tribes, the posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from colme.census.histogram import Bins
from colme.census.posterior import posterior, quantiles
from colme.errors import ColmeError
from colme.lab.plots._style import BLACK, BLUE, GREY, ORANGE, SKY, VERMILION, canvas
from colme.methods import Census
from colme.scenario import Scenario
from colme.sim.prepare import prepare_run

PARTS = ("ballot", "rounds", "tribes", "posterior")


@dataclass(frozen=True)
class Explained:
    """One census of one agent."""

    t: int
    """When it began."""
    agent: int
    mean: float
    """Of the agent, at the beginning of the census."""
    sigma_of_mean: float
    center: NDArray[np.float64]
    width: float
    votes: NDArray[np.float64]
    """(rounds + 1, bins): the agent's own, from its ballot to the end."""
    everybody: NDArray[np.float64]
    """The histogram of all ballots."""
    share: NDArray[np.float64]
    place: NDArray[np.float64]
    spread: NDArray[np.float64]
    """Of the tribes; a standard deviation, doubts included."""
    own: NDArray[np.float64]
    """Possible means of an agent, .."""
    estimate: NDArray[np.float64]
    """.. what it would estimate, .."""
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    """.. and between which ends its true mean would lie with probability 90 %."""

    def table(self) -> pd.DataFrame:
        """The votes: one row per round and bin."""
        rounds, bins = self.votes.shape
        return pd.DataFrame({
            "round": np.repeat(np.arange(rounds), bins), "center": np.tile(self.center, rounds),
            "votes": self.votes.ravel(), "everybody": np.tile(self.everybody, rounds),
        })  # fmt: skip


def explain_census(
    method: Census, scenario: Scenario, *, degree: int | None = None, graph: Any = None, steps: int = 150,
    seed: int = 0, agent: int = 0,
) -> Explained:  # fmt: skip
    """The last census that ends before this step, as one agent sees it."""
    run = prepare_run([method], scenario, steps=steps, seed=seed, degree=degree, graph=graph, record=[steps])
    state: Any = run.states[0]
    found, current = None, None
    for t in range(1, steps + 1):
        began = state.began
        run.step(t)
        if state.began != began:  # a new one, after its first round
            current = (t, state.codes, state.before.copy(), run.world.mean.copy(), [state.before[agent].copy()])
        if current is not None and state.began == current[0]:
            current[-1].append(state.votes[agent].copy())
            if state.rounds < 0:
                found, current = current, None
    if found is None:
        raise ColmeError(f"no census ends within {steps} steps. Try steps=150.")
    began, codes, ballots, means, votes = found
    bins = Bins.of(codes, state.unit)
    widest = np.bincount(bins.width[~np.isnan(bins.center)]).argmax()  # agents of like noise share one grid
    kept = np.flatnonzero(~np.isnan(bins.center) & (bins.width == widest))
    tribes = state.known()[0]
    row, noise = max(int(tribes.fit[agent]), 0), float(state.noise[agent]) * run.world.t / began
    k = int(tribes.n_tribes[row])
    left, right = np.nanquantile(means, [0.0005, 0.9995])
    own = np.linspace(left, right, 400)
    out = np.empty(400), np.zeros(400, np.int64), np.empty(400)
    one = tribes._replace(fit=np.full(400, row))
    posterior(own, np.full(400, noise), *one, *out)
    ends = np.empty((2, 400))
    for end, tail in zip(ends, (0.05, 0.95), strict=True):
        quantiles(tail, own, np.full(400, noise), *one.prior, end)
    origin = run.stream.origin
    return Explained(
        began, agent, float(means[agent]) + origin, noise**0.5, bins.center[kept] + origin,
        float(np.sqrt(bins.square[kept[0]])), np.array(votes, float)[:, kept],
        ballots[:, kept].mean(axis=0, dtype=float),
        tribes.share[row, :k].copy(), tribes.place[row, :k] + origin, np.sqrt(tribes.width[row, :k]), own + origin,
        out[0] + origin, ends[0] + origin, ends[1] + origin,
    )  # fmt: skip


def plot_census(found: Explained, part: str, ax: Axes | None = None) -> Axes:
    """One of the four pictures: "ballot", "rounds", "tribes" or "posterior"."""
    with canvas(ax) as ax:
        _DRAW[part](ax, found)
    return ax


def _bars(ax: Axes, found: Explained, votes: NDArray[np.float64], color: str, alpha: float, label: str) -> None:
    ax.bar(found.center, votes, found.width, color=color, alpha=alpha, linewidth=0, label=label)


def _common(ax: Axes, title: str) -> None:
    ax.set_title(title)
    ax.set_xlabel("mean")


def _ballot(ax: Axes, found: Explained) -> None:
    _bars(ax, found, found.everybody / found.everybody.max(), GREY, 0.35, "what nobody sees: all ballots")
    _bars(ax, found, found.votes[0], VERMILION, 1.0, "the ballot of one agent")
    ax.axvline(found.mean, color=BLACK, linewidth=0.8)
    ax.set_ylabel("votes")
    ax.set_ylim(0, 1.35)
    ax.legend(loc="upper right", fontsize="small")
    _common(ax, f"1. A ballot: one vote on the two bins\naround one's own mean (t = {found.t})")


def _rounds(ax: Axes, found: Explained) -> None:
    _bars(ax, found, found.everybody, GREY, 0.35, "all ballots")
    last = len(found.votes) - 1
    for rounds, color in zip(sorted({2, (last + 2) // 2, last}), (ORANGE, SKY, BLUE), strict=False):
        ax.step(
            found.center, found.votes[rounds], where="mid", color=color, linewidth=1.2, label=f"after {rounds} rounds"
        )
    ax.set_ylim(0, 2.2 * found.everybody.max())
    ax.set_ylabel("share of votes")
    ax.legend(loc="upper right", fontsize="small")
    _common(ax, "2. The census: consensus on votes,\nas this agent sees it")


def _tribes(ax: Axes, found: Explained) -> None:
    _bars(ax, found, found.votes[-1], GREY, 0.35, "census")
    x = np.linspace(found.center[0], found.center[-1], 600)
    total = np.zeros(len(x))
    for share, place, spread in zip(found.share, found.place, found.spread, strict=True):
        variance = spread**2 + found.sigma_of_mean**2
        one = share * found.width * np.exp(-0.5 * (x - place) ** 2 / variance) / np.sqrt(2.0 * np.pi * variance)
        total += one
        ax.plot(x, one, color=VERMILION, linewidth=1.0)
        ax.axvline(place, color=VERMILION, linewidth=0.7, linestyle=(0, (2, 2)))
    ax.plot(x, total, color=BLACK, linewidth=1.2, label="all tribes, blurred by the noise")
    ax.set_ylim(0, 1.35 * found.votes[-1].max())
    ax.set_ylabel("share of votes")
    ax.legend(loc="upper right", fontsize="small")
    tribes = "one tribe explains" if len(found.share) == 1 else f"{len(found.share)} tribes explain"
    _common(ax, f"3. {tribes[0].upper()}{tribes[1:]} the census;\neach has a share, a place, perhaps a spread")


def _posterior(ax: Axes, found: Explained) -> None:
    ax.fill_between(found.own, found.lower, found.upper, color=BLUE, alpha=0.16, linewidth=0, label="90 % interval")
    ax.plot(found.own, found.own, color=GREY, linewidth=0.8, linestyle=(0, (1, 1)), label="alone")
    ax.plot(found.own, found.estimate, color=BLUE, linewidth=1.4, label="posterior mean")
    y = np.interp(found.mean, found.own, found.estimate)
    ax.plot([found.mean, found.mean], [found.mean, y], color=VERMILION, linewidth=1.4)
    ax.plot([found.mean], [y], "o", color=VERMILION, markersize=4, label="this agent")
    ax.set_ylabel("estimate")
    ax.legend(loc="upper left", fontsize="small")
    _common(ax, "4. The estimate: the posterior mean\nof one's own mean")
    ax.set_xlabel("one's own mean")


_DRAW = {"ballot": _ballot, "rounds": _rounds, "tribes": _tribes, "posterior": _posterior}
