"""A gateway: a node with many local agents, which casts one ballot for each of them in every census.

The local agents are the sensors behind it, meters on a bus for example, which have a name and samples, and nothing
else. In equation (2) of `colme.census.method` the histogram of a gateway is the sum of those of its local agents:

    z(0) = sum over local agents a of the unit mass of X_a, split between the two bins around it

and everything after that is as on any node: the rounds, the messages, whose size does not depend on the number of local
agents, joining, trust and the store. From the histogram a gateway fits the mixture once, and each local agent gets its
own posterior mean, interval and group from it. Likewise the guard: a gateway hands in the sums of all its local agents.
With one local agent it sends and estimates, bit for bit, what a node without [gateway] does.

Averages are per node, so a histogram has the mass of the ballots of a node, on average, and a node counts as many
agents behind it (`colme.census.histogram.ballots_in`). `max_ballots` is how many a node may cast: the ballots of a
gateway with more local agents are scaled down to it, and a record with more is refused.

Arrays of local agents have one row more, the first: that of an agent without samples, which learns like all others what
a census says about the population. A new local agent starts as a copy of it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from colme.census import posterior_numpy
from colme.census.method import Census
from colme.census.posterior import posterior_interval, posteriors
from colme.errors import NodeError, positive, whole
from colme.method import Place, Round
from colme.node.census import AsynchronousCensusAgent, RoundMessage
from colme.node.config.node_toml import NodeConfig
from colme.node.core import FEWEST, Core
from colme.node.messages.adapters import CensusAdapter
from colme.node.messages.wire import LARGEST, Record
from colme.node.readings import LocalReadings
from colme.node.security.trust import SURPRISE
from colme.noise import add_square, own_weight, student
from colme.support.arrays import Floats, Integers

KERNELS = 16
"""Up to so many local agents, posteriors are those of kernels, which run as plain Python on a device."""
MOST_PER_TICK = 32
"""Samples of one local agent that a tick takes; more wait for the next."""
MOST_WAITING = 20_000
"""Samples that wait, beyond which the source is not read: a burst of one local agent hardly delays the others."""
REVIEW = 64
"""Ticks between two looks for local agents to forget."""

NamedSample = tuple[str, float]
"""A sample, with the name of the local agent that it is from."""


class GatewayAgent(AsynchronousCensusAgent):
    """The local agents of a gateway, in arrays: row 0 is the agent that new ones are copies of."""

    mean: Floats  # type: ignore[assignment]
    count: Integers  # type: ignore[assignment]
    estimate: Floats  # type: ignore[assignment]
    variance: Any

    def __init__(self, method: Census, place: Place):
        super().__init__(method, place)
        self.mean, self.estimate = np.full((2, 1), np.nan)
        self.count, self.group = np.zeros((2, 1), np.int64)
        self.own_weight = np.ones(1)
        self.probability = np.zeros(1)

    @property
    def goes_alone(self) -> bool:
        return int((self.count > 0).sum()) > 1

    @property
    def own_mean(self) -> Any:
        return self.mean if self.detector is None else self.detector.mean.copy()

    @property
    def own_count(self) -> Any:
        return self.count if self.detector is None else self.detector.count.copy()

    @property
    def noise(self) -> Any:
        return self.sampling.of_means()

    def observe(self, sample: Any) -> None:
        """Equation (1) for all: the sample of each, NaN where there is none."""
        self.t += 1
        new = ~np.isnan(sample)
        n = self.count + new
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = np.where(n == 1, sample, self.mean + (sample - self.mean) * (1.0 / n))
        self.mean, self.count = np.where(new, moved, self.mean), n
        self._note_means()

    def step(self, sample: Any) -> Round:
        self.observe(sample)
        inbox: dict[Hashable, RoundMessage] = yield dict.fromkeys(self.neighbors, self.round_message)
        self.advance({b: inbox[b] for b in self.neighbors if b in inbox})
        self._find_posteriors()

    def _start_census(self) -> None:
        super()._start_census()
        self.sampling.earlier[0, 2] = self.sampling.earlier[:, 2].max()  # to learn like those that were there
        binned = self.channels != self.channels[0]  # row 0 is not
        ballots = int((binned | (self.sampling.count > 1)).sum())  # those with two samples cast their variance
        if ballots > self.place.max_ballots:
            self.masses *= self.place.exchange(self.place.max_ballots / ballots)

    def _find_posteriors(self) -> None:
        """Equation (5), for all."""
        fitted = self._fit() if self.rounds > 0 and not self.completed else self.fitted
        if not self.has_posterior.any():
            self.estimate, self.variance, self.own_weight = self.own_mean.copy(), self.noise, np.ones(len(self.mean))
            return
        few = len(self.mean) <= KERNELS + 1
        found = (posteriors if few else posterior_numpy.posteriors)(self.own_mean, self.noise, fitted.prior)
        self.own_weight = own_weight(found.variance, self.noise)
        self.estimate, self.variance, self.group, self.probability = (
            found.estimate, found.variance * self.sampling.stretch(self.own_weight) ** 2,
            found.group.astype(np.int64), found.probability,
        )  # fmt: skip

    @property
    def has_posterior(self) -> Any:
        """Whether the estimate of each is that of a census."""
        if not self.neighbors and not self.goes_alone:
            return np.zeros(len(self.mean), bool)
        row = self.used.row
        return (row >= 0) & (self.used.n_components[np.maximum(row, 0)] > 0)

    def interval(self, level: float) -> Any:
        few = len(self.mean) <= KERNELS + 1
        find = posterior_interval if few else posterior_numpy.posterior_interval
        lower, upper = find(level, self.own_mean, self.noise, self.used.prior)
        return self._stretched(lower), self._stretched(upper)

    def resume(self) -> None:
        super().resume()
        n = len(self.mean)
        self.channels, self.binned = np.full(n, self.channels[0]), self.sampling.factor.copy()
        self.group, self.probability = np.zeros(n, np.int64), np.zeros(n)
        if self.sampling.variance is not None:
            self.sampling.variance = np.broadcast_to(self.sampling.variance[0], n)
        self.variance = self.noise

    def rearrange(self, rows: Integers) -> None:
        """Keep these rows, in this order; row 0 where an agent is new."""
        each = "mean", "count", "estimate", "variance", "own_weight", "group", "probability", "channels", "binned"
        take(self, each, rows)
        take(self.sampling, self.sampling.saved, rows)
        self.sampling.earlier[1:][rows[1:] == 0] = 0.0
        if self.sampling.variance is not None:
            take(self.sampling, ("variance",), rows)
        if self.detector is not None:
            take(self.detector, self.detector.saved, rows)
        for fitted in {id(each): each for each in (self.fitted, self.used)}.values():
            take(fitted, ("row", "frame"), rows)


def take(thing: Any, names: tuple[str, ...], rows: Integers) -> None:
    """Take these rows of arrays that have one row per local agent."""
    for name in names:
        setattr(thing, name, np.atleast_1d(getattr(thing, name))[rows])


class GatewayAdapter(CensusAdapter):
    """The messages of a gateway are those of any node in a census."""

    agent: GatewayAgent

    @classmethod
    def device_agent(cls, method: Any, place: Place) -> GatewayAgent:
        return GatewayAgent(method, place)

    def end_tick(self, fresh: Any, cut: bool) -> None:
        agent = self.agent
        most = SURPRISE * np.sqrt(agent.noise)
        with np.errstate(invalid="ignore"):
            near = np.clip(agent.estimate, agent.own_mean - most, agent.own_mean + most)
        agent.estimate = np.where(most < np.inf, near, agent.estimate)

    def interval(self, level: float, variance: Any) -> Any:
        """As of any census, for each local agent."""
        agent = self.agent
        n = np.maximum(agent.own_count, 1)
        radius = student(level, n - 1.0) * np.sqrt(variance * agent.factors.high_of_own / n)
        ends = agent.interval(level)
        sides = agent.estimate - radius, agent.estimate + radius
        return tuple(np.where(agent.has_posterior, end, side) for end, side in zip(ends, sides, strict=True))


class Gateway(Core):
    """The core of a gateway.

    most_agents   local agents at the same time; the samples of further ones are refused
    forget_after  seconds without a sample after which a local agent is forgotten
    Other arguments are those of `Core`."""

    many = True
    agent: Any
    square: Any
    freedom: Any
    _SAVED = (*Core._SAVED, "names", "waiting")

    def __init__(self, *args: Any, most_agents: int = 10000, forget_after: float = math.inf, **options: Any):
        super().__init__(*args, **options)
        self.most_agents = whole(most_agents, "agents", "agents = 10000", NodeError)
        self.forget_after = math.inf if forget_after == math.inf else positive(
            forget_after, "forget", "forget = 604800.0", NodeError
        )  # fmt: skip
        self.names: list[str] = []  # of the local agents, which are rows 1, 2, ..
        self.waiting: list[NamedSample] = []  # samples beyond those that a tick takes
        self.square, self.freedom = np.zeros(1), np.zeros(1, np.int64)
        self.readings: LocalReadings | None = None  # which readings count as samples; None: all
        self._rows: dict[str, int] = {}
        self._seen = np.zeros(1)  # when the last sample of each came; NaN: before the start
        self._reported = np.zeros(1, np.int64)  # samples at the last report

    @property
    def busy(self) -> bool:
        return len(self.waiting) > MOST_WAITING

    @property
    def n_local(self) -> int:
        """Local agents."""
        return len(self.names)

    @property
    def estimate(self) -> Any:
        """Of each local agent; `mean` and `interval` likewise."""
        return self.agent.estimate[1:] + self.origin

    @property
    def mean(self) -> Any:
        return self.agent.mean[1:] + self.origin

    @property
    def interval(self) -> Any:
        lower, upper = map(np.asarray, self.adapter.interval(self.level, self._variance))
        return lower[1:] + self.origin, upper[1:] + self.origin

    @property
    def groups(self) -> Any:
        """(the most probable group of each local agent, its probability); -1 where there is none yet."""
        inner = self.inner
        return np.where(inner.has_posterior, inner.group, -1)[1:], inner.probability[1:]

    @property
    def n_samples(self) -> int:
        return int(self.agent.count.sum())

    def arrange(self, samples: list[NamedSample], now: float) -> list[Any]:  # type: ignore[override]
        """The samples of a tick, as arrays with at most one sample of each local agent. New names are admitted, and
        agents without samples for long are forgotten."""
        if self.epoch % REVIEW == 0:
            self._forget(now)
        samples = self.waiting + samples
        self.waiting = []
        if not samples:
            return [np.full(len(self._seen), np.nan)]
        names, numbers = zip(*samples, strict=True)
        if new := [name for name in dict.fromkeys(names) if name not in self._rows]:
            self._admit(new, now)
        rows, values = np.array([self._rows.get(name, 0) for name in names]), np.array(numbers)
        known = rows > 0
        if not known.all():
            self.refused["agents"] += len(rows) - int(known.sum())
            rows, values = rows[known], values[known]
            if not len(rows):
                return [np.full(len(self._seen), np.nan)]
        order = np.argsort(rows, kind="stable")
        rows, values = rows[order], values[order]
        place = np.arange(len(rows)) - np.searchsorted(rows, rows)  # which sample of its agent it is
        self._seen[rows] = now
        late = place >= MOST_PER_TICK
        self.waiting = [
            (self.names[row - 1], x) for row, x in zip(rows[late].tolist(), values[late].tolist(), strict=True)
        ]
        layers: list[Any] = []
        for k in range(min(int(place.max()) + 1, MOST_PER_TICK)):
            layer = np.full(len(self._seen), np.nan)
            layer[rows[place == k]] = values[place == k]
            layers += [layer] if self.readings is None else self.readings.admit(layer, self.names)
        return layers

    def _admit(self, names: list[str], now: float) -> None:
        new = names[: max(self.most_agents - self.n_local, 0)]
        if new:
            self._rearrange(np.concatenate([np.arange(self.n_local + 1), np.zeros(len(new), np.int64)]))
            self._seen[-len(new) :] = now
            self._name([*self.names, *new])

    def _forget(self, now: float) -> None:
        self._seen[np.isnan(self._seen)] = now  # the time begins anew with every start
        kept = np.flatnonzero(now - self._seen[1:] <= self.forget_after)
        if len(kept) < self.n_local:
            self._rearrange(np.concatenate([[0], kept + 1]))
            self._name([self.names[i] for i in kept])

    def _name(self, names: list[str]) -> None:
        self.names = names
        self._rows = {name: row for row, name in enumerate(names, 1)}

    def _rearrange(self, rows: Integers) -> None:
        self.inner.rearrange(rows)
        if self.dependence is not None:
            self.dependence.rearrange(rows)
            self._tell_factors(math.nan)
        take(self, ("square", "freedom", "_seen", "_reported"), rows)
        if self.readings is not None:
            self.readings.rearrange(rows)
        if self.agent is not self.inner:
            judged = ("mean", "estimate", "variance", "count", "square", "lag", "first", "judges", "each")
            take(self.agent.judgment, judged, rows)
            self.agent.judgment.factors = self.agent.factors
            take(self.agent, ("mean", "count", "estimate"), rows)

    @property
    def weights(self) -> Any:
        """lambda of each local agent; None: there is no guard."""
        if self.agent is self.inner:
            return np.full(self.n_local, None)
        return np.broadcast_to(self.agent.judgment.weights, self.n_local + 1)[1:]

    def newly_sampled(self) -> Integers:
        """Places of the local agents with samples since the last call."""
        new = np.flatnonzero(self.agent.count[1:] > self._reported[1:])
        self._reported = self.agent.count.copy()
        return new

    @property
    def _variance(self) -> Any:
        enough = self.freedom >= np.maximum(np.minimum(self.inner.own_count - 1, FEWEST), 1)
        return np.where(enough, self.square / np.maximum(self.freedom, 1), np.inf)

    def _checked(self, sample: Any) -> Any:
        x = sample - self.origin
        wrong = np.abs(x) > LARGEST
        if wrong.any():
            self.refused["sample"] += int(wrong.sum())
        return np.where(wrong, np.nan, x)

    def _add_square(self, before: Any, count: Any) -> None:
        n, mean = self.inner.own_count, self.inner.own_mean
        changed, new = n < count, (n > np.maximum(count, 1))
        with np.errstate(invalid="ignore"):
            square = add_square(self.square, mean, before, n)
        self.square = np.where(changed, 0.0, np.where(new, square, self.square))
        self.freedom = np.where(changed, 0, self.freedom + new)

    def record(self) -> Record:
        """The head has all samples of the gateway: their number, and their mean."""
        seen = self.agent.count > 0
        count, mean, n, average = self.agent.count[seen], self.agent.mean[seen], self.n_samples, math.nan
        if n:
            average = float(mean[0] + (count * (mean - mean[0])).sum() / n)
        body, sums = self.adapter.body(), None if self.dependence is None else self.dependence.body
        return Record(self.incarnation, self.agent.t, n, average, len(self.neighbors), body, sums=sums)

    def restore(self, raw: bytes) -> None:
        super().restore(raw)
        n = len(self.names) + 1
        self._name(self.names)
        if self.dependence is not None and len(self.dependence.count) != n:  # its samples were known to be independent
            self.dependence.rearrange(np.zeros(n, np.int64))
        self.waiting = [(str(name), float(x)) for name, x in self.waiting]
        self._seen, self._reported = np.full(n, np.nan), np.zeros(n, np.int64)
        if self.readings is not None:
            self.readings.rearrange(np.zeros(n, np.int64))


def core_of(config: NodeConfig, *, incarnation: int = 1) -> Core:
    """The agent of a configuration, or its gateway."""
    names = [each.name for each in config.neighbors]
    known: dict[str, Any] = {
        "n_agents": config.n_agents or len(config.peers) + 1, "degree": config.degree,
        "sigma": getattr(config.method, "sigma", None), "origin": config.origin, "level": config.level,
        "stale_after": config.freshness, "max_ballots": config.max_ballots, "independent": config.independent,
        "incarnation": incarnation,
    }  # fmt: skip
    if config.gateway is None:
        return Core(config.method, config.name, names, **known)
    known |= {"most_agents": config.gateway.agents, "forget_after": config.gateway.forget}
    return Gateway(config.method, config.name, names, **known)
