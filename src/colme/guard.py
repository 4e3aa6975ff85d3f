"""The guard: a weight between an agent's own mean X and its collaborative estimate y, learned from unused samples.

A guarded agent reports X + lambda (y - X), with one lambda in [0, 1] for all agents. Let d = y - X at step t, and x the
sample of step t + 1. Given all that happened up to t, the expectation of x is the true mean, so g = (x - X) d has the
expectation (mean - X) d, whatever the law of the noise, and over all agents

    squared error of X + lambda d  -  squared error of X  =  lambda^2 D - 2 lambda A,    D = sum of d^2,  A = sum of g,

in expectation. From the perspective of agent a, at step t:

(1) when its sample x arrives, it judges the step before:    A_a += g,  D_a += d^2,  Q_a += g^2
    (newcomers do not, if the method is trusted from the start)
(2) it hands its sums in, begins new ones, and averages them with its neighbors for some rounds (`colme.gossip`)
(3) the averages, times the number of agents heard, are the likelihood of lambda:
                                                             p(lambda) *= exp(-(lambda^2 D - 2 lambda A) / (2 Q / D))
    on a grid of weights; before, a part of each probability moves to the neighbors on the grid, and a part to zero
(4) lambda is 1 if p(1) >= 1/2, else the mean of p, reduced for the age of the evidence and, for methods that are
    not trusted from the start, in the first steps

Intervals of a method that has them are widened if they claim too little. With the variance (x - X)^2 / (n + 1) that a
sample shows of the mean X of the n samples before it, summed to V, the squared error that can be shown is
R = V - 2 lambda A + lambda^2 D. If it exceeds the claimed one, C, by two of its standard errors, intervals are widened
by sqrt(R / C).

Where samples depend on each other (`colme.dependence`), x has the covariance c sigma^2 with X, so that g misses
(1 - w) c sigma^2, where w is the weight of X in y; it is added. What x shows of the variance of X is multiplied by what
makes it right.

The method itself is not touched: y is what it would be without a guard. Trust is lost in one vote, by the part that
falls to zero, and regained step by step. What holds, and for whom (the average over agents, not each class), is in
docs/guard.md.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, ClassVar

import numpy as np

from colme._core.jit import at, equation, helper, kernel, lanes_like, select, slp_kernel
from colme._core.normal import exponential
from colme._core.team import Neighborhood, Team
from colme.consensus import stable_step
from colme.gossip import Gossip, SumsMessage, agents_heard, consensus_round, line_room, mean_over_agents
from colme.graphs import Graph
from colme.method import Agent, Intervals, Method, Place, Posterior, Round, State, World
from colme.noise import INDEPENDENT, student
from colme.support.arrays import Floats, Mask

u64 = np.uint64

GRID = np.array([0.0, 0.03, 0.1, 0.3, 0.6, 1.0])
"""The weights that lambda may have."""
TRUSTING, WARY = (0.8, 0.05), (0.1, 0.6)
"""Probabilities of lambda = 1 and lambda = 0 before anything was judged; the rest is even."""
MOVE, FALL = 0.3, 0.1
"""Rates, per e-fold of the step, at which probability moves to neighbors on the grid, and falls to zero."""
MEMORY = 15
"""Votes whose surprise is remembered."""
MEDIAN, SURPRISING = 0.455, 3.0
"""The median of a squared standard normal; surprises beyond this multiple of it temper the likelihood."""
HESITATION = 8
"""Up to this step a wary guard halves its weights: the first votes have heard few agents."""
EARLY = 32
"""Up to this step, averages that are still under way count, too."""
SUMS, INTERVAL_SUMS = 3, 5
"""Numbers that are averaged: A, D, Q, and for intervals also V and C."""
NEWCOMER = 0.25
"""Agents whose samples began in the last part of the time do not judge a trusted method (the census, which is careful
with newcomers itself): what they gain or lose is not what others do."""
FORGET = 4.0
"""Rate, per e-fold of the step, at which the sums behind the width of intervals are forgotten."""
_TINY = 1e-300


class GuardedMethod(Method, frozen=True, kw_only=True):
    """A method with neighbors whose estimates can be guarded.

    guard     report X + lambda (y - X), with a weight lambda that the agents learn from their next samples. It limits
              what a wrong assumption of the method costs on average over agents (docs/guard.md)
    """

    trusting: ClassVar[bool] = False
    """The guard believes the method until it sees harm; else only what it has seen to help."""
    has_intervals: ClassVar[bool] = False
    """Its states have a posterior, and the guard sees to its width."""
    patience: ClassVar[float] = 1.0
    """Of the guard: doubt without evidence grows so many times more slowly, and the odds of the weight one are so many
    times larger at first."""
    partitioned: ClassVar[int] = 0
    """Agents up to which an online model sums over partitions (`colme.methods.partition`)."""
    guard_refresh: ClassVar[float] = 1.0
    """Sums are handed in again when t is this many times the step at which they last were."""

    guard: bool = False

    @property
    def learns_dependence(self) -> bool:
        return self.guard

    def guarded_agent(self, place: Place) -> Agent:
        agent = super().guarded_agent(place)
        return GuardedAgent(self, agent) if self.guard else agent


class TrustFilter:
    """The probabilities of each weight, and what they were learned from, for one agent or all."""

    saved = ("probability", "total", "surprises", "votes")

    def __init__(self, n_agents: int, *, trusting: bool, patience: float = 1.0):
        one, zero = TRUSTING if trusting else WARY
        self.trusting, self.patience = trusting, patience
        self.probability = np.full((n_agents, len(GRID)), (1.0 - one - zero) / len(GRID))
        self.probability[:, -1] += one
        self.probability[:, 0] += zero
        if patience != 1.0:
            self.probability[:, -1] *= patience
            self.probability /= self.probability.sum(axis=1, keepdims=True)
        self.total = np.zeros((n_agents, 2))  # all D and all Q so far
        self.surprises = np.full((n_agents, MEMORY), MEDIAN, np.float32)
        self.votes = 0  # learned from

    def learn(self, sums: Floats, log_time: float, trust: Floats, *, keep: bool) -> None:
        """Equations (3) and (4): trust[a] = lambda after these sums over all agents heard, `log_time` after the last.
        They are remembered if `keep`."""
        slot = self.votes % MEMORY
        passed = log_time / self.patience
        _learn_weights(sums, passed, self.probability, self.total, self.surprises, slot, self.trusting, keep, trust)
        self.votes += keep


@slp_kernel
def _learn_weights(sums, log_time, probability, total, surprises, slot, trusting, keep, trust):
    p, moved, now, remembered = lanes_like(total), lanes_like(total), lanes_like(total), np.empty(MEMORY)
    move, fall = 0.5 * (1.0 - math.exp(-MOVE * log_time)), 1.0 - math.exp(-FALL * log_time)
    last = GRID.size - 1
    for a in range(sums.shape[0]):
        A, D, Q = sums[a, 0], sums[a, 1], sums[a, 2]
        judged = D > 0.0 and Q > 0.0
        if not judged:
            A = D = Q = 0.0
        noise = max((total[a, 1] + Q) / max(total[a, 0] + D, _TINY), Q / max(D, _TINY), _TINY)
        mean = square = 0.0
        for i in range(GRID.size):
            now[i] = probability[a, i]
            mean += now[i] * GRID[i]
            square += now[i] * GRID[i] * GRID[i]
        surprise = MEDIAN
        if judged:
            surprise = (A - mean * D) ** 2 / max(noise * D + (square - mean * mean) * D * D, _TINY)
        beyond = 0
        for i in range(MEMORY):
            remembered[i] = surprise if i == slot else surprises[a, i]
            beyond += 1 if remembered[i] > SURPRISING * MEDIAN else 0
        temper = _median(remembered) / MEDIAN if beyond > MEMORY // 2 else 1.0
        least = np.inf
        for i in range(GRID.size):
            below, above = now[max(i - 1, 0)], now[min(i + 1, last)]
            moved[i] = (1.0 - fall) * ((1.0 - 2.0 * move) * now[i] + move * below + move * above)
            p[i] = (GRID[i] * GRID[i] * D - 2.0 * GRID[i] * A) / (2.0 * temper * noise)
            least = min(least, p[i])
        moved[0] += fall
        everything = mean = 0.0
        for i in range(GRID.size):
            p[i] = max(moved[i], _TINY) * exponential(max(least - p[i], -700.0))
            everything += p[i]
        for i in range(GRID.size):
            p[i] /= everything
            mean += p[i] * GRID[i]
        believed = trusting or judged or total[a, 0] > 0.0
        trust[a] = (1.0 if p[last] >= 0.5 else mean) if believed else 0.0
        if keep:
            for i in range(GRID.size):
                probability[a, i] = p[i]
            surprises[a, slot] = surprise
            total[a, 0] += D
            total[a, 1] += Q


@helper
def _median(values):
    """Of an odd number of values, which are sorted."""
    for i in range(1, values.size):
        value, j = values[i], i
        while j > 0 and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value
    return values[values.size // 2]


@equation
def judged_sums(away: Any, mean: Any, count: Any, estimate: Any, variance: Any, factor: Any, lag: Any) -> Any:
    """What a sample so far away from the mean of those before it adds to A, D, Q, V and C, given their number, the
    estimate, its claimed variance, and what dependence makes of V and A; NaN without a sample, or before there is a
    mean."""
    d = estimate - mean
    g, shown = away * d + lag, factor * (away * away / (count + 1.0))
    return g, d * d, g * g, shown, select(abs(variance) < np.inf, variance, shown)


@equation
def aged(weight: Any, since: Any, t: Any) -> Any:
    """A weight below one may be falling as 1 / t: reduce it at step t for evidence from step `since`."""
    return select(weight < 1.0, weight * (max(since - 1, 1) / t), weight)


@equation
def blended(own: Any, other: Any, trust: Any) -> Any:
    """own + trust (other - own): the other itself, without rounding, where it is trusted."""
    return select(trust == 1.0, other, own + trust * (other - own))


@equation
def guarded_estimate(mean: Any, estimate: Any, trust: Any) -> Any:
    """What a guarded agent reports: without a sample of its own, the estimate."""
    return select(mean == mean, blended(mean, estimate, trust), estimate)


@equation
def widening_factor(A: Any, D: Any, Q: Any, V: Any, C: Any, trust: Any, n_heard: Any) -> Any:
    """The factor by which intervals must be widened, at least 1, by recent sums over so many agents."""
    D, Q, V, C = np.maximum(D, 0.0), np.maximum(Q, 0.0), np.maximum(V, 0.0), np.maximum(C, 0.0)
    shown = V - 2.0 * trust * A + trust * trust * D
    claimed = (1.0 - trust) * np.sqrt(V) + trust * np.sqrt(C)
    claimed = claimed * claimed
    error = np.sqrt(2.0 / n_heard * (V * V) + 4.0 * (trust * trust) * Q)
    too_narrow = shown - claimed > 2.0 * error
    return np.sqrt(select(too_narrow, shown / np.maximum(claimed, _TINY), 1.0))


class Judgment:
    """Equations (1) to (4) for one agent or all, except the messages: own sums, their average, and the weights."""

    saved: ClassVar[tuple[str, ...]] = (
        "filter", "own", "now", "before", "mean", "estimate", "variance", "count", "square", "lag", "first", "judges",
        "window", "recent", "learned", "trust", "began", "last", "rounds",
    )  # fmt: skip

    def __init__(self, method: GuardedMethod, gossip: Gossip, heard: Floats, n_agents: int):
        self.gossip, self.heard, self.refresh = gossip, heard, method.guard_refresh
        self.filter = TrustFilter(n_agents, trusting=method.trusting, patience=method.patience)
        self.has_intervals = method.has_intervals
        n_sums = INTERVAL_SUMS if method.has_intervals else SUMS
        self.own, self.now, self.before = np.zeros((3, n_agents, n_sums))  # own sums; z(k), z(k - 1) of the average
        self.mean, self.estimate, self.variance = np.full((3, n_agents), np.nan)  # X, y and its claimed variance
        self.count = np.zeros(n_agents, np.int64)  # samples behind X
        self.square = np.zeros(n_agents)  # their squared deviations from it
        self.first = np.zeros(n_agents, np.int64)  # the step of the first one
        self.judges = np.zeros(n_agents, bool)  # whether that is long enough ago
        self.window = np.zeros((n_agents, n_sums))  # sums over all agents heard, of about the last quarter of the steps
        self.recent = self.window.copy()  # the same, with an average that is still under way
        self.learned = np.full(n_agents, 1.0 if method.trusting else 0.0)  # lambda after the last vote
        self.trust = self.learned.copy()  # lambda now
        self.began = 0  # the step at which sums were last handed in
        self.last = 1  # that of the sums that were last learned from
        self.rounds = -1  # rounds done of the average under way; -1: none is
        self.lag = np.zeros(n_agents)  # covariance of the next sample with the part of X that y leaves out
        self.factors = INDEPENDENT

    def observe(self, sample: Any) -> None:
        """Equation (1), when the samples of a step arrive (NaN: none)."""
        away = sample - self.mean
        sums = judged_sums(away, self.mean, self.count, self.estimate, self.variance, self.factors.shown, self.lag)
        known = ~np.isnan(sums[0])
        self._add(known & self.judges, np.stack(sums[: self.own.shape[1]], axis=-1))
        shown = away * away / (self.count + 1.0)
        self.square = np.where(known, self.square + self.count * shown, self.square)

    def _add(self, judged: Mask, sums: Floats) -> None:
        self.own[judged] += sums[judged]

    def starts(self, t: int) -> bool:
        """Equation (2): hand in the own sums if it is time to. Returns whether step t has a round of gossip."""
        if self.rounds < 0 and t >= 2 and t >= self.refresh * self.began:
            self.now[:], self.before[:], self.own[:] = self.own, 0.0, 0.0
            self.began, self.rounds = t, 0
        return self.rounds >= 0

    def end_round(self, t: int) -> None:
        """Equations (3) and (4), after a round of gossip."""
        self.rounds += 1
        done = self.rounds >= self.gossip.rounds_from(self.began)
        since, found = self.last, self.learned
        if done or t <= EARLY:
            since, found = self.began, np.empty_like(self.trust)
            self._learn(found, keep=done)
        if done:
            self.rounds, self.last, self.learned[:] = -1, self.began, found
        self._read(found, since, t)

    def _learn(self, found: Floats, *, keep: bool) -> None:
        """Learn from the sums over all agents that were heard so far."""
        sums = self.now * self.heard[self.rounds - 1][:, None]
        self.filter.learn(sums, math.log(self.began / self.last), found, keep=keep)
        self.recent = self.window if keep else self.window.copy()
        self.recent *= (self.last / self.began) ** FORGET
        self.recent += sums

    def end_step(self, form: State | Agent, t: int, *, gossiped: bool) -> None:
        """Keep what the next samples will judge: the means and estimates of the method, in either form."""
        self.square[np.asarray(form.own_count) < self.count] = 0.0  # these began anew, at a detected change
        self.first[(self.count == 0) & (np.asarray(form.own_count) > 0)] = t
        self.judges = (t + 1 - self.first > NEWCOMER * t) | (not self.filter.trusting)
        self.mean[:], self.count[:] = form.own_mean, form.own_count
        self.estimate[:], self.variance[:] = form.estimate, form.variance
        self._end_step(form, t, gossiped=gossiped)

    def _end_step(self, form: State | Agent, t: int, *, gossiped: bool) -> None:
        if self.factors is INDEPENDENT:
            self.lag[:] = 0.0
        else:
            factors, left_out = self.factors, 1.0 - np.minimum(form.own_weight, 1.0)
            of_own = factors.next * factors.high_of_own / factors.high
            self.lag[:] = left_out * of_own * (self.square / np.maximum(self.count - 1.0, 1.0))
        if not gossiped:
            self._read(self.learned, self.last, t)

    def _read(self, weight: Floats, since: int, t: int) -> None:
        """lambda at step t, by this weight, which was learned from evidence of step `since`."""
        hesitates = t <= HESITATION and not self.filter.trusting
        self.trust[:] = aged(0.5 * weight if hesitates else weight, since, t)

    @property
    def _n_heard(self) -> Floats:
        """Agents heard in an average."""
        return self.heard[-1]

    def widening(self) -> Floats:
        """The factor by which intervals must be widened, at least 1."""
        A, D, Q, V, C = self.recent.T
        return np.asarray(widening_factor(A, D, Q, V, C, self.trust, self._n_heard))

    def interval(self, lower: Any, upper: Any, level: float) -> tuple[Floats, Floats]:
        """The method's interval, moved to the guarded estimate, blended with the own mean's (Student's) and widened."""
        trust, own = self.weights, self._own_reach(level)
        factor, estimate = self.widening(), self.guarded
        below = factor * (own + trust * (self.estimate - lower))
        above = factor * (own + trust * (upper - self.estimate))
        return estimate - below, estimate + above

    def _own_reach(self, level: float) -> Floats:
        """The part of Student's interval of the own mean that enters half of an interval of this level."""
        n, trust = self.count.astype(np.float64), self.weights
        error = np.sqrt(self.factors.high_of_own * self.square / np.maximum(n - 1.0, 1.0) / np.maximum(n, 1.0))
        own = np.where(n > 1.0, (1.0 - trust) * student(level, n - 1.0) * error, np.inf)
        return np.where(trust < 1.0, own, 0.0)

    def points_to_hold(self, truth: Floats, level: float) -> tuple[Any, Any]:
        """Two points for each agent. The truth lies in the interval of `interval` if the lower end of the method's own
        interval is at most the first point, and the upper end at least the second."""
        away, own = (truth - self.guarded) / self.widening(), self._own_reach(level)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.estimate + (away + own) / self.weights, self.estimate + (away - own) / self.weights

    @property
    def weights(self) -> Floats:
        """lambda, as each agent uses it."""
        return self.trust

    @property
    def guarded(self) -> Floats:
        """The estimates that guarded agents report."""
        return np.asarray(guarded_estimate(self.mean, self.estimate, self.weights))


class ArrayJudgment(Judgment):
    """The judgment of all agents of an array: the same equations, in kernels."""

    def __init__(self, method: GuardedMethod, gossip: Gossip, heard: Floats, hood: Neighborhood):
        super().__init__(method, gossip, heard, hood.n_own)
        n_sums = self.own.shape[1]
        self.own = np.zeros((n_sums, hood.n_own)).T  # each sum of all agents together: they are added to at every step
        self.seen, self.seen_before = (line_room(hood, n_sums, np.float64) for _ in range(2))
        """z(k) and z(k - 1) of all visible agents."""
        self._mine = slice(hood.own_start, hood.own_start + hood.n_own), slice(n_sums)
        self.now, self.before = self.seen[self._mine], self.seen_before[self._mine]
        self.believed = method.trusting  # all agents trust the method
        self._factor: Floats | None = None  # of the present sums, if all do

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy: its averages are views of its own room again."""
        vars(self).update(state)
        self.now, self.before = self.seen[self._mine], self.seen_before[self._mine]

    def swap(self) -> None:
        """After a round: what was `before` is what was averaged now."""
        self.now, self.before, self.seen, self.seen_before = self.before, self.now, self.seen_before, self.seen

    def observe(self, sample: Any) -> None:
        _judge(
            sample, self.mean, self.count, self.estimate, self.variance, self.factors.shown, self.lag,
            self.judges, self.own.T, self.square,
        )  # fmt: skip

    def end_step(self, form: State | Agent, t: int, *, gossiped: bool) -> None:
        _keep(
            form.own_mean, form.own_count, form.estimate, form.variance, t, self.filter.trusting, self.mean, self.count,
            self.estimate, self.variance, self.square, self.first, self.judges,
        )  # fmt: skip
        self._end_step(form, t, gossiped=gossiped)

    def _learn(self, found: Floats, *, keep: bool) -> None:
        self._factor = None
        super()._learn(found, keep=keep)

    def _read(self, weight: Floats, since: int, t: int) -> None:
        super()._read(weight, since, t)
        self.believed = bool((self.trust == 1.0).all())

    def widening(self) -> Floats:
        if not self.believed:
            return super().widening()
        if self._factor is None:
            self._factor = super().widening()
        return self._factor

    @property
    def changes_intervals(self) -> bool:
        """Whether `interval` is another one than the method's."""
        return not self.believed or bool((self.widening() != 1.0).any())

    @property
    def guarded(self) -> Floats:
        return self.estimate if self.believed else super().guarded


@kernel
def _judge(sample, mean, count, estimate, variance, factor, lag, judges, own, square):
    """`Judgment.observe`; own[i] = sum i of all agents."""
    for a in range(u64(mean.size)):
        away = sample[a] - mean[a]
        g, dd, gg, shown, claimed = judged_sums(
            away, mean[a], count[a], estimate[a], variance[a], at(factor, a), lag[a]
        )
        known = g == g
        square[a] += count[a] * (away * away / (count[a] + 1.0)) if known else 0.0
        judged = known and judges[a]
        own[0, a] += g if judged else 0.0
        own[1, a] += dd if judged else 0.0
        own[2, a] += gg if judged else 0.0
        if own.shape[0] > SUMS:
            own[3, a] += shown if judged else 0.0
            own[4, a] += claimed if judged else 0.0


@kernel
def _keep(
    own_mean, own_count, own_estimate, own_variance, t, trusting, mean, count, estimate, variance, square, first, judges
):
    """`Judgment.end_step`: what the method has now (own_..), and what is kept of it for the next samples."""
    for a in range(u64(mean.size)):
        n = at(own_count, a)
        square[a] = 0.0 if n < count[a] else square[a]  # it began anew, at a detected change
        first[a] = t if count[a] == 0 and n > 0 else first[a]
        judges[a] = not trusting or t + 1 - first[a] > NEWCOMER * t
        mean[a], count[a] = own_mean[a], n
        estimate[a], variance[a] = own_estimate[a], at(own_variance, a)


class GuardedState(State):
    """Array form: the state of a method, and the guard around it."""

    saved = ("inner", "judgment", "sent")

    def __init__(self, method: GuardedMethod, inner: State, world: World, graph: Graph):
        super().__init__(method, world)
        hood, whole, n = world.hood, graph.whole, world.n_agents
        gossip = Gossip.of(whole.n_agents, whole.n_edges, stable_step(whole))
        self.inner, self.edges = inner, inner.edges
        self._graph, self._edge_weights = graph, gossip.weights(graph, hood)
        heard = np.broadcast_to(agents_heard(graph, gossip, hood), (gossip.rounds, n))
        self.judgment = ArrayJudgment(method, gossip, heard, hood)
        self.sent = 0  # numbers, to each neighbor
        if inner.posterior is not None:
            self.posterior = GuardedPosterior(inner.posterior, self.judgment, hood.team)

    def restored(self) -> None:
        self.inner.restored()
        self.judgment.believed = bool((self.judgment.trust == 1.0).all())
        self.judgment.factors = self.world.factors
        self.world.hood.refresh(self.judgment.seen.reshape(-1))

    def step(self, world: World) -> None:
        judgment = self.judgment
        judgment.observe(world.newest)
        judgment.factors = world.factors
        self.inner.step(world)
        gossiped = judgment.starts(world.t)
        judgment.end_step(self.inner, world.t, gossiped=gossiped)
        if gossiped:
            self._average(world)
            self.sent += judgment.own.shape[1]
            judgment.end_round(world.t)

    def _average(self, world: World) -> None:
        """A round of gossip, whose result all workers see."""
        judgment, graph, hood = self.judgment, self._graph, world.hood
        if judgment.rounds == 0:
            hood.refresh(judgment.seen.reshape(-1))
        consensus_round(
            graph.indptr, graph.indices, self._edge_weights, hood.own_start, judgment.seen, judgment.seen_before,
            judgment.gossip.momentum, judgment.rounds == 0, world.arrived(len(graph.indices)), 0.0,
        )  # fmt: skip
        judgment.swap()
        hood.refresh(judgment.seen.reshape(-1))

    @property
    def estimate(self) -> Floats:  # type: ignore[override]
        return self.judgment.guarded

    @property
    def own_mean(self) -> Floats:
        return self.inner.own_mean

    @property
    def trust(self) -> float:  # type: ignore[override]
        """lambda, on average over agents."""
        if not self.world.team.any(not self.judgment.believed):
            return 1.0
        return float(mean_over_agents(self.judgment.trust, self.world.hood))

    @property
    def numbers(self) -> float:  # type: ignore[override]
        return self.inner.numbers + self.sent / max(self.world.t, 1)

    @property
    def radius(self) -> Any:
        return self.inner.radius

    def last_graph(self) -> Graph:
        return self.inner.last_graph()


class GuardedPosterior(Posterior):
    """The posteriors of a guarded method: its own, and intervals as wide as the guard finds necessary."""

    def __init__(self, inner: Posterior, judgment: ArrayJudgment, team: Team):
        self._inner, self._judgment, self._team = inner, judgment, team

    def intervals(self, level: float) -> Intervals:
        found = self._inner.intervals(level)
        return Intervals(found.probability, *self._judgment.interval(found.lower, found.upper, level))

    def cdf(self, value: Floats) -> Floats:
        return self._inner.cdf(value)

    def held(self, truth: Floats, level: float) -> tuple[Mask, Mask]:
        judgment = self._judgment
        if not judgment.has_intervals or not self._team.any(judgment.changes_intervals):
            return self._inner.held(truth, level)
        lowest, highest = (self.cdf(points) for points in judgment.points_to_hold(truth, level))
        known = ~np.isnan(judgment.mean)
        return known & (lowest >= 0.5 - 0.5 * level) & (highest <= 0.5 + 0.5 * level), known


class GuardedAgent(Agent):
    """Per-agent form: the agent of a method, and the guard around it. The sums go to all neighbors, also those that the
    method no longer uses."""

    saved = (*Agent.saved, "inner", "judgment")

    def __init__(self, method: GuardedMethod, inner: Agent):
        place = inner.place
        super().__init__(place)
        gossip = Gossip.of(place.n_agents, place.n_edges, place.auto_step)
        heard = place.heard or tuple(gossip.agents_reached(k + 1) for k in range(gossip.rounds))
        self.inner = inner
        self.judgment = Judgment(method, gossip, np.array(heard[: gossip.rounds])[:, None], 1)

    @property
    def neighbors(self) -> list[Any]:
        """The neighbors that the method still uses."""
        return list(getattr(self.inner, "neighbors", self.place.neighbors))

    def step(self, sample: float) -> Round:
        judgment = self.judgment
        judgment.observe(np.array([sample]))
        judgment.factors = self.factors
        yield from self.inner.step(sample)
        self.t, self.count, self.mean = self.inner.t, self.inner.count, self.inner.mean
        gossiped = judgment.starts(self.t)
        judgment.end_step(self.inner, self.t, gossiped=gossiped)
        if gossiped:
            neighbors = self.place.neighbors
            inbox = yield dict.fromkeys(neighbors, SumsMessage(judgment.now[0].copy(), len(neighbors)))
            self._average({b: inbox[b] for b in neighbors if b in inbox})
            judgment.end_round(self.t)
        self.estimate = judgment.guarded.item()

    def _average(self, heard: dict[Hashable, SumsMessage]) -> None:
        judgment = self.judgment
        value = judgment.gossip.round_of_one(
            judgment.now[0], judgment.before[0], ((each.degree, each.sums) for each in heard.values()),
            len(self.place.neighbors), first=judgment.rounds == 0,
        )  # fmt: skip
        judgment.before[0], judgment.now[0] = judgment.now[0], value
