"""`Result` and `Summary`: the estimates of all agents, and what was found about the table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.confidence import check_probability
from colme.data.fit import FLAGS, Candidate
from colme.data.fit.posterior import AgentPosteriors, interval
from colme.data.read.table import Names
from colme.data.report.questions import (
    Difference,
    Prediction,
    Ranking,
    bound,
    named,
    order_of,
    plain,
    same_labels,
    told_covariates,
)
from colme.errors import ColmeError, UnknownAgent, nearest, one_of, shorten, whole
from colme.support.arrays import Array, Floats, Integers, Mask
from colme.support.tables import frame_of

if TYPE_CHECKING:
    from colme.data.fit.population import AgentPopulation

_NODES = 1000
"""Quantiles of one agent's posterior that stand for it in a difference."""
_DRAWS, _FEWEST, _RANKS = 1000, 100, 40_000_000
"""Draws for a ranking: so many, but not more than so many ranks of all agents together, and never fewer than this."""
_BLOCK = 4096
"""Agents whose ranks are sorted at a time."""
COLUMNS = ("agent", "n", "mean", "estimate", "lower", "upper", "group", "probability", "borrowed", "flags")


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about a table as a whole, and how the estimates were made.

    >>> import colme
    >>> stores = {"store": list("aaabbbccc"), "sales": [9.0, 10.0, 11.0, 9.5, 10.0, 10.5, 14.0, 15.0, 16.0]}
    >>> result = colme.estimate(stores, agent="store", value="sales", method="shrinkage")
    >>> result.summary.method, result.summary.n_agents, result.summary.n_samples, round(result.summary.sigma, 2)
    ('shrinkage', 3, 9, 0.87)

    See also: Result, estimate
    """

    method: str
    """The name of the method, as `estimate` takes it."""
    variance: str
    """The variances that it uses: "pooled" or "moderated"."""
    why: str
    gain: float
    """1 - error / error of the local means, for all samples, by cross-validation; at most 1."""
    gain_se: float
    candidates: tuple[Candidate, ...]
    folds: str
    """The folds of the cross-validation: "random" or "forward" (time order)."""
    level: float
    """The level of the intervals."""
    stretch: float
    """The factor by which standard errors were multiplied, as cross-validation asked for; the median over agents."""
    n_agents: int
    n_samples: int
    n_groups: int | None
    """None: groups were not searched for."""
    groups_sentence: str
    sigma: float
    """Standard deviation of a sample within agents; NaN if no agent has two samples."""
    tau: float
    """Standard deviation of the true means between agents; NaN if it cannot be estimated."""
    n_half: float
    """Samples from which on an agent's own mean is as accurate as the prediction from the population: sigma^2 / tau^2;
    NaN if unknown."""
    autocorrelation: float
    """Correlation of consecutive samples of an agent; NaN without time."""
    effective_share: float
    """The number of independent samples that one sample is worth, from how much early and late means differ; 1 without
    time."""
    drift: float
    """Share of agents whose early and late samples differ beyond chance; NaN without time."""
    count_correlation: float
    """Correlation of log n with the mean; NaN if all counts are equal."""
    faulty: tuple[str, ...]
    """The first few agents that look faulty."""
    dominant: tuple[str, ...]
    """The first few agents with a dominant sample."""
    zero_variance: int
    """The number of agents with two or more samples, all equal."""
    flagged: dict[str, int]
    """The number of agents with each flag."""
    half_life: float | None
    log_n: bool = False
    """Whether the logarithm of the counts is a covariate."""
    covariates: tuple[str, ...] = ()
    """The columns that are covariates; of those that were given, `auto` uses the ones that help."""
    notes: tuple[str, ...]


class Result(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One row per agent, and a summary.

    agent         its label; if several columns identify it, `parts` has its label in each of them
    n, mean       the number of its samples and their mean
    estimate      the estimate of its mean
    lower, upper  the interval that should contain the true mean with probability `level`, on average over agents
    group         its group (-1: none), with `probability`
    borrowed      the weight of other agents in the estimate, 0 to 1
    flags         what is unusual about it: bit i stands for FLAGS[i]
    group_names   the names of known groups, by number
    posterior     the distribution of each agent's true mean, which answers questions such as `rank`
    population    the distribution of the mean of an agent that is not in the table, which answers `predict`
    answers       further columns: answers that were asked for

    >>> import colme
    >>> stores = {"store": list("aaabbbccc"), "sales": [9.0, 10.0, 11.0, 9.5, 10.0, 10.5, 14.0, 15.0, 16.0]}
    >>> result = colme.estimate(stores, agent="store", value="sales", method="shrinkage")
    >>> [round(float(each), 2) for each in (result.estimate[0], result.lower[0], result.upper[0])]
    [10.07, 9.11, 11.04]
    >>> sorted(result.to_columns())[:4]
    ['agent', 'borrowed', 'estimate', 'flags']

    See also: estimate, Summary, Prediction, Difference, Ranking
    """

    agent: Array
    n: Integers
    mean: Floats
    estimate: Floats
    lower: Floats
    upper: Floats
    group: Integers
    probability: Floats
    borrowed: Floats
    flags: NDArray[np.uint8]
    summary: Summary
    names: Names
    posterior: AgentPosteriors
    parts: tuple[Array, ...] = ()
    group_names: tuple[Any, ...] = ()
    population: AgentPopulation | None = None
    answers: dict[str, Array] = {}

    def flagged(self, flag: str) -> Mask:
        """Whether each agent has a flag."""
        one_of(flag, FLAGS, "flag")
        return np.asarray(self.flags >> FLAGS.index(flag) & 1, bool)

    def flag_names(self) -> Array:
        """The names of the flags of each agent, separated by commas."""
        names = [", ".join(flag for i, flag in enumerate(FLAGS) if mask >> i & 1) for mask in range(1 << len(FLAGS))]
        return np.array(names, object)[self.flags]

    def to_columns(self) -> dict[str, Array]:
        """Every column of the result, flags by name. If several columns identify the agent, they follow `agent`."""
        columns = {name: self.flag_names() if name == "flags" else getattr(self, name) for name in COLUMNS}
        agent = {"agent": columns.pop("agent")}
        return agent | dict(zip(self.part_names(), self.parts, strict=True)) | columns | self.answers

    def part_names(self) -> list[str]:
        """The names of `parts` in files and frames: those of the table's columns. A name that another column has gets
        agent_ in front: a column n of the table is agent_n."""
        names = list(map(str, self.names.agent)) if self.parts else []
        found: list[str] = []
        for name in names:
            free = name
            while free in COLUMNS or free in self.answers or free in found or (free != name and free in names):
                free = f"agent_{free}"
            found.append(free)
        return found

    def to_frame(self, backend: str = "pandas") -> Any:
        """The columns as a pandas or polars data frame, or a pyarrow table."""
        return frame_of(self.to_columns(), backend)

    def predict(
        self, agent: Any = None, *, group: Any = None, covariates: Mapping[str, float] | None = None,
        level: float | None = None,
    ) -> Prediction:  # fmt: skip
        """What to expect of an agent's mean. An agent of the table has its estimate and interval; any other agent has
        the mean of the population and an interval for the mean of one agent, drawn at random from it.

        agent       its label, or a tuple of its labels; None: a new agent
        group       of a new agent: the name of a known group, or the number of a group that was found
        covariates  of a new agent, by name. What is not told is that of an agent of the table, drawn at random
        level       of the interval; None: that of the result
        """
        level = self._level(level)
        place = None if agent is None else self._position(agent)
        if place is not None:
            estimate, lower, upper = (float(each[place]) for each in (self.estimate, self.lower, self.upper))
            if level != self.summary.level and math.isfinite(upper - lower):
                tails = np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])
                lower, upper = self._known_posterior().quantile(tails, np.array([place, place])).tolist()
                lower, upper = min(lower, estimate), max(upper, estimate)
            return Prediction(plain(self.agent[place]), estimate, lower, upper, level, False)
        if self.population is None:
            raise ColmeError(f"{named(agent)} is not in the table, and {self._alone}: nothing is "
                             "known about other agents. Ask for an agent of the table.")  # fmt: skip
        number = None if group is None else self._group_number(group)
        told = told_covariates(covariates, self.population.names, self.names.covariates)
        return Prediction(plain(agent), *self.population.predict(level, number, told), level, True)

    def rank(
        self, k: int = 1, *, largest: bool = True, level: float | None = None, draws: int | None = None, seed: int = 0
    ) -> Ranking:
        """The ranks of all agents by their true means: expected rank, interval, probability of being among the first k.

        largest  rank 1 is the largest mean; False: the smallest
        draws    from the posteriors of all agents, taken as independent; None: 1000, or fewer for more than 40 000
                 agents (400 for 100 000), so that their ranks take 160 MB
        seed     of the draws: the same seed gives the same ranking
        """
        level, posterior, k = self._level(level), self._known_posterior(), whole(k, "k", "k=10")
        there = np.flatnonzero(posterior.row >= 0)
        n = len(there)
        if draws is None:
            draws = max(min(_DRAWS, _RANKS // n), _FEWEST)
        draws, rng = whole(draws, "draws", "draws=1000"), np.random.default_rng(whole(seed, "seed", "seed=0", low=0))
        ranks, number = np.empty((draws, n), np.int32), np.arange(1, n + 1, dtype=np.int32)
        for each in ranks:
            drawn = posterior.draw(rng)[there]
            each[order_of(-drawn if largest else drawn, rng)] = number
        expected, top = np.full((2, len(self.agent)), np.nan)
        lower, upper = np.zeros((2, len(self.agent)), np.int64)
        first = math.floor(draws * (0.5 - 0.5 * level))
        for begin in range(0, n, _BLOCK):
            some = there[begin : begin + _BLOCK]
            block = np.sort(ranks[:, begin : begin + _BLOCK], axis=0)
            expected[some], top[some] = block.mean(axis=0), (block <= k).mean(axis=0)
            lower[some], upper[some] = block[first], block[draws - 1 - first]
        return Ranking(self.agent, self.estimate, expected, lower, upper, top, k, level, draws)

    def top(self, k: int, **options: Any) -> Ranking:
        """The k agents that are most probably among the first k, the most probable one first. Options: as `rank`."""
        ranking = self.rank(k, **options)
        order = np.lexsort((ranking.expected, -ranking.top))[: ranking.k]
        order = order[~np.isnan(ranking.expected[order])]
        some = {name: values[order] for name, values in ranking.to_columns().items()}
        return msgspec.structs.replace(ranking, **some)

    def probability_above(self, value: Any) -> Floats:
        """The probability of each agent's true mean being above a value, or above its own of several values."""
        return 1.0 - self._known_posterior().cdf(bound(value, "value", len(self.agent)))

    def probability_between(self, low: Any, high: Any) -> Floats:
        """The probability of each agent's true mean being above `low` and at most `high`; either may be infinite."""
        posterior, n = self._known_posterior(), len(self.agent)
        low, high = bound(low, "low", n), bound(high, "high", n)
        if not (low <= high).all():
            a = int(np.argmin(low <= high))
            raise ColmeError(f"low={low[a]:g} and high={high[a]:g}: the low end must not be above the high one. "
                             "Exchange them.")  # fmt: skip
        return np.maximum(posterior.cdf(high) - posterior.cdf(low), 0.0)

    def difference(self, agent: Any, other: Any, *, level: float | None = None) -> Difference:
        """How much larger the mean of one agent is than that of another: estimate, interval, and the probability that
        it is larger. Posteriors of different agents are taken as independent."""
        level, posterior = self._level(level), self._known_posterior()
        a, b = (self._known_position(each) for each in (agent, other))
        if a == b:
            raise ColmeError(f"{named(agent)} twice: a difference needs two agents. Choose another one.")
        for each in (a, b):
            if math.isnan(self.estimate[each]):
                raise ColmeError(f"{named(self.agent[each])} has no samples: it must have one. Choose another agent.")
        estimate = float(self.estimate[a]) - float(self.estimate[b])
        nodes = posterior.quantile((np.arange(_NODES) + 0.5) / _NODES, np.full(_NODES, b))

        def cdf(distance: Floats) -> Floats:
            return np.array([posterior.cdf(nodes + each, np.full(_NODES, a)).mean() for each in distance])

        width = posterior.unit * math.hypot(*(float(posterior.error[posterior.row[each]]) for each in (a, b)))
        lower, upper = interval(level, cdf, estimate, width)
        one, two = (plain(self.agent[each]) for each in (a, b))
        return Difference(one, two, estimate, lower, upper, level, 1.0 - float(cdf(np.zeros(1))[0]))

    def explain(self, agent: Any) -> str:
        """An agent's estimate in a few sentences: what its own samples say, what others say, and their weights."""
        from colme.data.report.sentences import explanation  # which imports this module

        return explanation(self, self._known_position(agent))

    def _level(self, level: float | None) -> float:
        if level is None:
            return self.summary.level
        check_probability("level", level)
        return float(level)

    @property
    def _alone(self) -> str:
        """Why agents cannot learn from each other."""
        return self.summary.why.split(". ")[0]

    def _known_posterior(self) -> AgentPosteriors:
        """The posteriors; there are none if the noise of samples is not known."""
        if not np.isfinite(self.posterior.scale).all():
            raise ColmeError(f"the noise of a sample is not known, as {self._alone}: without it there are no "
                             "probabilities. If you know the standard deviation of a sample, pass it as sigma "
                             "(--sigma).")  # fmt: skip
        return self.posterior

    def _position(self, agent: Any) -> int | None:
        """Where an agent is in the arrays; None if it is not in the table."""
        several = isinstance(agent, list | tuple)
        if isinstance(agent, dict | set | np.ndarray) or (several and len(agent) != len(self.parts)):
            columns = f"a tuple of its {len(self.parts)} labels" if self.parts else "its label"
            raise ColmeError(f"agent={shorten(agent)}: an agent is named by {columns}. Ask for one agent at a time.")
        pairs = zip(self.parts, agent, strict=True) if several else ((self.agent, agent),)
        same = np.logical_and.reduce([same_labels(column, label) for column, label in pairs])
        return int(np.argmax(same)) if same.any() else None

    def _known_position(self, agent: Any) -> int:
        """Where an agent is; an agent that is not in the table is refused."""
        place = self._position(agent)
        if place is None:
            near = nearest(agent, map(str, self.agent[:10_000].tolist()))
            remedy = "Check its spelling." if near is None else f"Did you mean {shorten(near)}?"
            raise UnknownAgent(f"there is no agent {shorten(plain(agent))}: it must be one of the table's. {remedy}")
        return place

    def _group_number(self, group: Any) -> int:
        """The number of a group, by its name if groups are known."""
        if self.group_names:
            names = list(map(str, self.group_names))
            one_of(str(group), names, "group")
            return names.index(str(group))
        n = self.summary.n_groups or 0
        if n == 0:
            raise ColmeError(f"group={shorten(group)}, but {self.summary.groups_sentence}: there is no group to "
                             "predict for. Leave it out.")  # fmt: skip
        number = whole(group, "group", "group=0", low=0)
        if number >= n:
            raise ColmeError(f"group={number}, but there are {n} groups: they are numbered from 0. Try group={n - 1}.")
        return number

    def __repr__(self) -> str:
        s = self.summary
        found = f"{s.method}: gain {s.gain:.0%}, {s.groups_sentence}"
        return f"<Result: {s.n_agents} agents, {s.n_samples} samples, {found}>"

    def _repr_html_(self) -> str:
        from colme.data.report.output import result_html  # which imports this module

        return result_html(self)
