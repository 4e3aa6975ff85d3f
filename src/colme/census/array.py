"""The census for all agents at once: when it is taken, the votes of everybody, and what is known of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import equation
from colme.census.change_detection import Followed
from colme.census.histogram import Bins, cast, cast_variance, common_variance, disagreement, share_votes
from colme.census.posterior import Tribes, below, posterior, quantiles
from colme.errors import MethodError
from colme.graphs import Graph
from colme.method import Posterior, State, World
from colme.spectrum import stable_step

if TYPE_CHECKING:
    from colme.census.method import Census

AGREE = 0.05
"""Agents share a fit if their census is off the average one by less than this share of its sampling variance. Others
start from it and refine it."""
MODERATION = 4.0
"""Degrees of freedom that the common variance is worth beside an agent's own."""


@equation
def add_square(square: Any, mean: Any, before: Any, n: Any) -> Any:
    """Sum of squared deviations after the n-th sample moved the mean (Welford, from the means alone)."""
    return square + n * (n - 1.0) * ((mean - before) * (mean - before))


@equation
def variance_of_mean(square: Any, n: Any, common: Any) -> Any:
    """An agent's own variance, moderated by the common one, over n."""
    return (MODERATION * common + square) / (MODERATION + n - 1.0) / n


class Plan(NamedTuple):
    """When censuses begin, how long they take, and how many agents they count; everybody can work it out."""

    n_agents: int
    degree: float
    """Mean degree."""
    regular: bool
    rounds: int
    refresh: float
    sigma: Any
    """None: not known."""

    @classmethod
    def of(cls, method: Census, n_agents: int, n_edges: int, auto_step: float, sigma: Any) -> Plan:
        degree = 2.0 * n_edges / n_agents
        regular = degree > 2.0 and abs(auto_step * degree - 1.0) < 1e-9
        rounds = method.rounds
        if isinstance(rounds, str):
            rounds = math.ceil(math.log(max(n_agents, 2) / 0.6) / math.log(max(degree - 1.0, 1.5))) + 1
            rounds = min(rounds if regular else 2 * rounds, 40)
        sigma = method.sigma if method.sigma is not None else sigma
        if method.restart and sigma is None:
            raise MethodError(
                "restart=True where sigma is not known: a change is told from noise by a known sigma. "
                "Try sigma=... in the method or recording."
            )
        return cls(n_agents, degree, regular, rounds, method.refresh, None if method.estimate_sigma else sigma)

    @property
    def momentum(self) -> float:
        """The best one if disagreement shrinks by a factor x per round without: 2 / (1 + sqrt(1 - x^2)). On random
        regular graphs x = 2 sqrt(r - 1) / r, so it is r / (r - 1); elsewhere x is taken halfway from there to 1."""
        if self.degree <= 2.0:
            return 1.0
        x = 2.0 * math.sqrt(self.degree - 1.0) / self.degree
        x = x if self.regular else 0.5 * (1.0 + x)
        return 2.0 / (1.0 + math.sqrt(1.0 - x * x))

    def begins(self, t: int, last: int) -> bool:
        """Whether a new census begins at step t if the last began at this step (0: there was none)."""
        return t >= self.refresh * last and (t > 1 or self.sigma is not None)

    def rounds_at(self, t: int) -> int:
        """Rounds of a census that begins at step t; the first are short, for at first means move quickly."""
        return min(self.rounds, 2 + t // 3) if self.has_ballots(t) else 1

    def has_ballots(self, t: int) -> bool:
        """Whether a census that begins at step t counts means: where sigma is not known, the first counts variances."""
        return t > 2 or self.sigma is not None

    def counted(self, rounds: int) -> float:
        """How many agents a census stands for after so many rounds."""
        reached = max(0.6 * (self.degree - 1.0) ** rounds, rounds) if self.degree > 1.0 else 1.0
        return min(float(self.n_agents), reached + 1.0)


class Variances:
    """Of everybody's samples, where sigma is not known: each agent's own, moderated by the common one."""

    saved: ClassVar[tuple[str, ...]] = ("square", "common", "mean", "count")

    def __init__(self, n_agents: int):
        self.square = np.zeros(n_agents)  # sums of squared deviations
        self.common = np.full(n_agents, np.nan)  # what each agent knows of everybody's
        self.mean, self.count = np.full(n_agents, np.nan), np.zeros(n_agents, np.int64)

    def observe(self, world: World) -> None:
        """A step: the squares follow from how the means moved."""
        count = world.counts
        new = np.flatnonzero((count > 1) & (count > self.count))
        self.square[new] = add_square(self.square[new], world.mean[new], self.mean[new], count[new])
        self.mean[:], self.count[:] = world.mean, count

    def ballots(self) -> tuple[NDArray[np.int64], Any, Any]:
        """Who has a variance, and what they say of it."""
        voters = np.flatnonzero(self.count > 1)
        return voters, *cast_variance(self.square[voters], self.count[voters])

    def of_means(self) -> NDArray[np.float64]:
        """The variance of every local mean; infinite where it is not known."""
        known = (self.count > 0) & ~np.isnan(self.common)
        out = np.full(len(self.square), np.inf)
        out[known] = variance_of_mean(self.square[known], self.count[known], self.common[known])
        return out


class CensusState(State):
    """Array form: the votes of all agents, one row each, in columns for all bins that anybody uses."""

    saved: ClassVar[tuple[str, ...]] = (
        "began", "rounds", "codes", "votes", "before", "grid", "done", *Tribes._fields, "variances", "followed", "sent",
    )  # fmt: skip

    def __init__(self, method: Census, world: World, graph: Graph):
        super().__init__(method, world)
        n = world.n_agents
        self._graph, self._world, self._own = graph, world, method.fits == "own"
        self.plan = Plan.of(method, n, graph.n_edges, stable_step(graph), world.sigma)
        self.unit = world.unit if self.plan.sigma is not None else 1.0
        self.weights: NDArray[Any] = slot_weights(graph, self.plan).astype(world.exchange)
        self.alone = graph.degrees == 0
        self.began, self.rounds = 0, -1  # -1 rounds: no census is under way
        self.done = False  # whether any census of means is
        self.codes = np.empty(0, np.int64)
        self.votes: NDArray[Any] = np.empty((n, 0), world.exchange)
        self.before = self.votes
        self.grid = np.full(n, -1)  # on which one everybody voted; -1: on none
        self._keep(Tribes.unknown(n))
        self.sent = 0.0  # numbers, to each neighbor
        self.variances = Variances(n) if self.plan.sigma is None else None
        self.followed = Followed(n) if method.restart else None
        self._known: tuple[int, Tribes, Any] | None = None

    def _keep(self, tribes: Tribes) -> None:
        for name, value in zip(Tribes._fields, tribes, strict=True):
            setattr(self, name, value)

    def step(self, world: World) -> None:
        self._known = None
        if self.variances is not None:
            self.variances.observe(world)
        if self.followed is not None:
            self.followed.observe(world.mean, world.counts, self.plan.sigma)
        if self.rounds < 0 and self.plan.begins(world.t, self.began):
            self._vote(world)
        if self.rounds >= 0:
            graph = self._graph
            self.sent += share_votes(
                graph.indptr, graph.indices, self.weights, self.votes, self.before,
                world.exchange(self.plan.momentum), self.rounds == 0, world.arrived(len(graph.indices)),
            )  # fmt: skip
            self.votes, self.before = self.before, self.votes
            self.rounds += 1
            if self.rounds >= self.plan.rounds_at(self.began):
                self._keep(self._fit())
                if self.variances is not None:
                    self.variances.common = common_variance(self.codes, self.votes, self.variances.common)
                self.done = self.plan.has_ballots(self.began)
                self.rounds = -1

    def _vote(self, world: World) -> None:
        """Everybody with a sample casts a ballot."""
        n, mean, noise = world.n_agents, self.mean, self.noise
        voting = ~np.isnan(mean) & (noise > 0.0) & (noise < np.inf)
        voters = np.flatnonzero(voting if self.followed is None else voting & ~self.followed.in_doubt)
        ballots = [(voters, *cast(mean[voters], noise[voters], self.unit))]
        if self.variances is not None:
            ballots.append(self.variances.ballots())
        self.codes = np.unique(np.concatenate([codes.ravel() for _, codes, _ in ballots]))
        self.votes, self.before = (np.zeros((n, len(self.codes)), world.exchange) for _ in range(2))
        for voters, codes, values in ballots:
            self.votes[voters[:, None], np.searchsorted(self.codes, codes)] = values
        self.grid = np.full(n, -1)
        voters, codes, _ = ballots[0]
        self.grid[voters] = Bins.of(self.codes, self.unit).width[np.searchsorted(self.codes, codes[:, 0])]
        self.began, self.rounds = world.t, 0

    @property
    def mean(self) -> NDArray[np.float64]:
        """Local means, since the last change where agents watch for changes."""
        return self._world.mean if self.followed is None else self.followed.mean

    @property
    def noise(self) -> NDArray[np.float64]:
        """The variance of every local mean; infinite where it is not known."""
        if self.variances is not None:
            return self.variances.of_means()
        count = self._world.n_samples if self.followed is None else self.followed.count
        with np.errstate(divide="ignore"):
            return np.broadcast_to(np.square(self.plan.sigma) / count, self._world.n_agents)

    def _fit(self) -> Tribes:
        """What the census under way says."""
        counted, n = self.plan.counted(self.rounds), self._world.n_agents
        bins = Bins.of(self.codes, self.unit)
        if self._own:
            return Tribes.of_voters(self.votes, bins, counted, n, np.arange(n), self.grid)
        average, off = self.votes.mean(axis=0, dtype=np.float64), np.empty(n)
        disagreement(self.votes, average, bins.center, counted, off)
        differ = np.flatnonzero(off > AGREE)
        rows = np.concatenate([average[None].astype(self.votes.dtype), self.votes[differ]])
        row = np.zeros(n, np.int64)
        row[differ] = np.arange(1, len(rows))
        return Tribes.of_voters(rows, bins, counted, n, row, self.grid, alike=True)

    def known(self) -> tuple[Tribes, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """(tribes, estimate, group, probability) as of now."""
        t, n = self._world.t, self._world.n_agents
        if self._known is None or self._known[0] != t:
            tribes = Tribes(*(getattr(self, name) for name in Tribes._fields))
            if self.rounds > 0 and not self.done:  # better than nothing
                tribes = self._fit()
            tribes = tribes._replace(fit=np.where(self.alone, -1, tribes.fit))
            out = np.empty(n), np.zeros(n, np.int64), np.empty(n)
            posterior(self.mean, self.noise, *tribes, *out)
            self._known = t, tribes, out
        return self._known[1], *self._known[2]

    @property
    def estimate(self) -> NDArray[np.float64]:  # type: ignore[override]
        return self.known()[1]

    @property
    def numbers(self) -> float:  # type: ignore[override]
        """Sent to each neighbor per step so far."""
        return self.sent / max(self._world.t, 1)

    @property
    def n_groups(self) -> float:  # type: ignore[override]
        """Tribes that agents know of, on average."""
        tribes = self.known()[0]
        return float(tribes.n_tribes[np.maximum(tribes.fit, 0)].mean())

    def posterior(self, level: float) -> Posterior:
        lower, upper = np.empty((2, self._world.n_agents))
        for end, tail in ((lower, 0.5 - 0.5 * level), (upper, 0.5 + 0.5 * level)):
            quantiles(tail, self.mean, self.noise, *self.known()[0].prior, end)
        return Posterior(self.known()[3], lower, upper)

    def coverage(self, truth: NDArray[np.float64], level: float) -> float:
        out = np.empty(len(truth))
        below(truth, self.mean, self.noise, *self.known()[0].prior, out)
        out = out[~np.isnan(out)]
        return float((np.abs(out - 0.5) <= 0.5 * level).mean()) if len(out) else math.nan

    def groups(self, graph: Graph) -> NDArray[np.int64]:
        return self.known()[2]

    def graph(self) -> Graph:
        """Neighbors that find themselves in the same group."""
        a, b = self._ends
        same = self.groups(self._graph)[a] == self.groups(self._graph)[b]
        counts = np.bincount(a[same], minlength=self._graph.n_agents)
        return Graph(np.concatenate([[0], np.cumsum(counts)]), self._graph.indices[same], check=False)

    @property
    def _ends(self) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        return np.repeat(np.arange(self._graph.n_agents), self._graph.degrees), self._graph.indices

    @property
    def wrong_share(self) -> float:  # type: ignore[override]
        return self._among(strangers=True)

    @property
    def lost_share(self) -> float:  # type: ignore[override]
        return self._among(strangers=False)

    def _among(self, *, strangers: bool) -> float:
        """Among edges between classes, those whose ends share a group; among edges within, those whose do not."""
        a, b = self._ends
        group, class_ = self.known()[2], self._world.class_
        which = (class_[a] != class_[b]) == strangers
        return float(((group[a] == group[b]) == strangers)[which].mean()) if which.any() else 0.0

    @property
    def isolated(self) -> int:
        return int(self.alone.sum())


def slot_weights(graph: Graph, plan: Plan) -> NDArray[np.float64]:
    """The weight of every neighbor in W."""
    if plan.regular:
        return np.full(len(graph.indices), 1.0 / plan.degree)
    degree = graph.degrees
    return np.asarray(1.0 / (np.maximum(np.repeat(degree, degree), degree[graph.indices]) + 1.0), np.float64)
