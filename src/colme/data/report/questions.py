"""Questions to a result: `predict`, `rank`, `difference` and probabilities, from the posteriors of its agents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.confidence import check_probability
from colme.data.moments import Floats, Integers, Mask
from colme.errors import ColmeError, UnknownAgent, nearest, one_of, shorten, whole
from colme.support.tables import frame_of

if TYPE_CHECKING:
    from colme.data.fit.posterior import AgentPosteriors
    from colme.data.report.result import Result

_NODES = 1000
"""Quantiles of one agent's posterior that stand for it in a difference."""
_DRAWS, _FEWEST, _RANKS = 1000, 100, 40_000_000
"""Draws for a ranking: so many, but not more than so many ranks of all agents together, and never fewer than this."""
_BLOCK = 4096
"""Agents whose ranks are sorted at a time."""


class Prediction(msgspec.Struct, frozen=True):
    """What to expect of one agent's mean: its estimate, or that of a new agent, with an interval of this level.

    >>> import colme
    >>> stores = {"store": list("aaabbbccc"), "sales": [9.0, 10.0, 11.0, 9.5, 10.0, 10.5, 14.0, 15.0, 16.0]}
    >>> result = colme.estimate(stores, agent="store", value="sales", method="shrinkage")
    >>> new = result.predict("d")
    >>> new.new, round(new.estimate, 1), new.lower < new.estimate < new.upper
    (True, 11.7, True)

    See also: Result, Difference, Ranking
    """

    agent: Any
    estimate: float
    lower: float
    upper: float
    level: float
    new: bool
    """Whether the agent is not in the table."""


class Difference(msgspec.Struct, frozen=True):
    """How much larger the mean of `agent` is than that of `other`, with an interval of this level.

    >>> import colme
    >>> stores = {"store": list("aaabbbccc"), "sales": [9.0, 10.0, 11.0, 9.5, 10.0, 10.5, 14.0, 15.0, 16.0]}
    >>> result = colme.estimate(stores, agent="store", value="sales", method="shrinkage")
    >>> difference = result.difference("c", "a")
    >>> round(difference.estimate, 1), difference.probability > 0.99
    (4.8, True)

    See also: Result, Prediction, Ranking
    """

    agent: Any
    other: Any
    estimate: float
    lower: float
    upper: float
    level: float
    probability: float
    """Of the mean of `agent` being larger."""


class Ranking(msgspec.Struct, frozen=True, eq=False):
    """The ranks of agents by their true means; rank 1 is the largest, or the smallest if that was asked for.

    expected      the expected rank; NaN for an agent without a sample
    lower, upper  the interval that contains the rank with probability `level`; 0 for an agent without a sample
    top           the probability of being among the first k
    draws         how many draws from the posterior these come from: the standard error of a probability p is
                  sqrt(p (1 - p) / draws)

    >>> import colme
    >>> stores = {"store": list("aaabbbccc"), "sales": [9.0, 10.0, 11.0, 9.5, 10.0, 10.5, 14.0, 15.0, 16.0]}
    >>> result = colme.estimate(stores, agent="store", value="sales", method="shrinkage")
    >>> ranking = result.rank(k=1)
    >>> ranking.expected.round(1).tolist(), ranking.top.round(2).tolist()
    ([2.5, 2.5, 1.0], [0.0, 0.0, 1.0])

    See also: Result, Prediction, Difference
    """

    agent: NDArray[Any]
    estimate: Floats
    expected: Floats
    lower: Integers
    upper: Integers
    top: Floats
    k: int
    level: float
    draws: int

    def to_columns(self) -> dict[str, NDArray[Any]]:
        """One column per array."""
        return {name: getattr(self, name) for name in ("agent", "estimate", "expected", "lower", "upper", "top")}

    def to_frame(self, backend: str = "pandas") -> Any:
        """The columns as a pandas or polars data frame, or a pyarrow table."""
        return frame_of(self.to_columns(), backend)

    def __repr__(self) -> str:
        return f"<Ranking: {len(self.agent)} agents, k={self.k}, {self.draws} draws>"


def predict(
    result: Result, agent: Any, group: Any, covariates: Mapping[str, float] | None, level: float | None
) -> Prediction:  # fmt: skip
    """See `Result.predict`."""
    level = _level(result, level)
    place = None if agent is None else position(result, agent)
    if place is not None:
        lower, upper = interval_of(result, place, level)
        return Prediction(_label(result, place), float(result.estimate[place]), lower, upper, level, False)
    population = result.population
    if population is None:
        raise ColmeError(f"{_named(agent)} is not in the table, and {_alone(result)}: nothing is known about other "
                         "agents. Ask for an agent of the table.")  # fmt: skip
    code = None if group is None else _group(result, group)
    told = _told(covariates, population.names, result.names.covariates)
    return Prediction(_plain(agent), *population.predict(level, code, told), level, True)


def interval_of(result: Result, place: int, level: float) -> tuple[float, float]:
    """The interval of an agent of the table: that of the result, or one of another level."""
    lower, upper, estimate = (float(each[place]) for each in (result.lower, result.upper, result.estimate))
    if level == result.summary.level or not math.isfinite(upper - lower):
        return lower, upper
    tails = np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])
    lower, upper = posterior_of(result).quantile(tails, np.array([place, place])).tolist()
    return min(lower, estimate), max(upper, estimate)


def difference(result: Result, agent: Any, other: Any, level: float | None) -> Difference:
    """See `Result.difference`."""
    level, posterior = _level(result, level), posterior_of(result)
    a, b = known_position(result, agent), known_position(result, other)
    if a == b:
        raise ColmeError(f"{_named(agent)} twice: a difference needs two agents. Choose another one.")
    there = _estimate_of(result, a), _estimate_of(result, b)
    share = (np.arange(_NODES) + 0.5) / _NODES
    nodes = posterior.quantile(share, np.full(_NODES, b))

    def cdf(distance: Floats) -> Floats:
        return np.array([posterior.cdf(nodes + each, np.full(_NODES, a)).mean() for each in distance])

    from colme.data.fit.posterior import quantiles

    estimate = there[0] - there[1]
    tails = np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])
    width = posterior.unit * math.hypot(*(float(posterior.error[posterior.row[each]]) for each in (a, b)))
    lower, upper = quantiles(cdf, tails, np.full(2, estimate), np.full(2, width)).tolist()
    larger = 1.0 - float(cdf(np.zeros(1))[0])
    return Difference(_label(result, a), _label(result, b), estimate, min(lower, estimate), max(upper, estimate), level,
                      larger)  # fmt: skip


def rank(result: Result, k: int, *, largest: bool, level: float | None, draws: int | None, seed: int) -> Ranking:
    """See `Result.rank`."""
    level, posterior, k = _level(result, level), posterior_of(result), whole(k, "k", "k=10")
    there = np.flatnonzero(posterior.row >= 0)
    n = len(there)
    if draws is None:
        draws = max(min(_DRAWS, _RANKS // n), _FEWEST)
    draws, rng = whole(draws, "draws", "draws=1000"), np.random.default_rng(whole(seed, "seed", "seed=0", low=0))
    ranks, number = np.empty((draws, n), np.int32), np.arange(1, n + 1, dtype=np.int32)
    for each in ranks:
        drawn = posterior.draw(rng)[there]
        each[_order(-drawn if largest else drawn, rng)] = number
    expected, top = np.full((2, len(result.agent)), np.nan)
    lower, upper = np.zeros((2, len(result.agent)), np.int64)
    first = math.floor(draws * (0.5 - 0.5 * level))
    for begin in range(0, n, _BLOCK):
        some = there[begin : begin + _BLOCK]
        block = np.sort(ranks[:, begin : begin + _BLOCK], axis=0)
        expected[some], top[some] = block.mean(axis=0), (block <= k).mean(axis=0)
        lower[some], upper[some] = block[first], block[draws - 1 - first]
    return Ranking(result.agent, result.estimate, expected, lower, upper, top, k, level, draws)


def _order(values: Floats, rng: np.random.Generator) -> Integers:
    """The order of values; equal ones at random."""
    order = np.argsort(values)
    found = values[order]
    return order if (found[1:] != found[:-1]).all() else np.lexsort((rng.random(len(values)), values))


def top(ranking: Ranking) -> Ranking:
    """The k agents that are most probably among the first k, the most probable one first."""
    order = np.lexsort((ranking.expected, -ranking.top))[: ranking.k]
    order = order[~np.isnan(ranking.expected[order])]
    some = {name: values[order] for name, values in ranking.to_columns().items()}
    return msgspec.structs.replace(ranking, **some)


def between(result: Result, low: Any, high: Any) -> Floats:
    """The probability of each agent's mean being above `low` and at most `high`."""
    posterior = posterior_of(result)
    low, high = (_bound(each, name, len(result.agent)) for each, name in ((low, "low"), (high, "high")))
    if not (low <= high).all():
        a = int(np.argmin(low <= high))
        raise ColmeError(f"low={low[a]:g} and high={high[a]:g}: the low end must not be above the high one. Exchange "
                         "them.")  # fmt: skip
    return np.maximum(posterior.cdf(high) - posterior.cdf(low), 0.0)


def above(result: Result, value: Any) -> Floats:
    """The probability of each agent's mean being above the value."""
    return 1.0 - posterior_of(result).cdf(_bound(value, "value", len(result.agent)))


def with_answers(result: Result, values: Sequence[float] = (), k: int | None = None) -> Result:
    """The result with further columns: above_C, the probability of a mean above each of these values; and rank,
    rank_lower, rank_upper and top_K, if k is given."""
    columns: dict[str, NDArray[Any]] = {f"above_{each:.15g}": above(result, each) for each in values}
    if k is not None:
        found = result.rank(k)
        columns |= {"rank": found.expected, "rank_lower": found.lower, "rank_upper": found.upper, f"top_{k}": found.top}
    return msgspec.structs.replace(result, answers=result.answers | columns)


def posterior_of(result: Result) -> AgentPosteriors:
    """The posteriors, if there are any."""
    found = result.posterior
    if found is None:
        raise ColmeError("this result has no posteriors, only intervals: probabilities are those of a result of "
                         "estimate. Make it with colme.estimate.")  # fmt: skip
    if not found.known:
        raise ColmeError(f"the noise of a sample is not known, as {_alone(result)}: without it there are no "
                         "probabilities. If you know the standard deviation of a sample, pass it as sigma "
                         "(--sigma).")  # fmt: skip
    return found


def position(result: Result, agent: Any) -> int | None:
    """Where an agent is in the arrays of a result; None if it is not in the table."""
    several = isinstance(agent, list | tuple)
    if isinstance(agent, dict | set | np.ndarray) or (several and len(agent) != len(result.parts)):
        columns = f"a tuple of its {len(result.parts)} labels" if result.parts else "its label"
        raise ColmeError(f"agent={shorten(agent)}: an agent is named by {columns}. Ask for one agent at a time.")
    pairs = zip(result.parts, agent, strict=True) if several else ((result.agent, agent),)
    same = np.logical_and.reduce([_equal(column, label) for column, label in pairs])
    return int(np.argmax(same)) if same.any() else None


def known_position(result: Result, agent: Any) -> int:
    """Where an agent is; an agent that is not in the table is refused."""
    place = position(result, agent)
    if place is None:
        near = nearest(agent, map(str, result.agent[:10_000].tolist()))
        remedy = "Check its spelling." if near is None else f"Did you mean {shorten(near)}?"
        raise UnknownAgent(f"there is no agent {shorten(_plain(agent))}: it must be one of the table's. {remedy}")
    return place


def _equal(column: NDArray[Any], label: Any) -> Mask:
    """Which labels are this one, or read like it."""
    if column.dtype != object and isinstance(label, int | float | np.number) and not isinstance(label, bool):
        return np.asarray(column == label)
    text = str(label)
    return np.fromiter((str(each) == text for each in column.tolist()), bool, len(column))


def _label(result: Result, place: int) -> Any:
    return result.agent[place : place + 1].tolist()[0]


def _estimate_of(result: Result, place: int) -> float:
    found = float(result.estimate[place])
    if math.isnan(found):
        raise ColmeError(f"{_named(_label(result, place))} has no samples: it must have one. Choose another agent.")
    return found


def _group(result: Result, group: Any) -> int:
    """The number of a group, by its name if groups are known."""
    if result.group_names:
        names = list(map(str, result.group_names))
        one_of(str(group), names, "group")
        return names.index(str(group))
    n = result.summary.n_groups or 0
    if n == 0:
        raise ColmeError(f"group={shorten(group)}, but {result.summary.groups_sentence}: there is no group to predict "
                         "for. Leave it out.")  # fmt: skip
    number = whole(group, "group", "group=0", low=0)
    if number >= n:
        raise ColmeError(f"group={number}, but there are {n} groups: they are numbered from 0. Try group={n - 1}.")
    return number


def _told(
    covariates: Mapping[str, float] | None, used: tuple[str, ...], given: tuple[str, ...]
) -> dict[str, float]:  # fmt: skip
    """The covariates of a new agent, checked; without those that were given, but do not tell the mean."""
    told = {}
    for name, value in dict(covariates or {}).items():
        one_of(name, tuple(dict.fromkeys((*used, *given))), "covariate")
        number = math.nan if isinstance(value, bool | str) else float(value)
        if not math.isfinite(number):
            raise ColmeError(f"{name}={shorten(value)}: a covariate must be a finite number. Leave it out if it is not "
                             "known.")  # fmt: skip
        if name in used:
            told[name] = number
    return told


def _bound(value: Any, name: str, n: int) -> Floats:
    """A number, or one for each agent."""
    try:
        found = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    if isinstance(value, bool | str) or found.shape not in ((), (n,)) or np.isnan(found).any():
        raise ColmeError(f"{name}={shorten(value)}: it must be a number, or one for each of {n} agents. Try "
                         f"{name}=1.0.")  # fmt: skip
    return np.broadcast_to(found, (n,))


def _level(result: Result, level: float | None) -> float:
    if level is None:
        return result.summary.level
    check_probability("level", level)
    return float(level)


def _alone(result: Result) -> str:
    """Why agents cannot learn from each other."""
    return result.summary.why.split(". ")[0]


def _named(agent: Any) -> str:
    return "the new agent" if agent is None else f"agent {shorten(_plain(agent))}"


def _plain(agent: Any) -> Any:
    """A label as Python has it, not NumPy."""
    return agent.item() if isinstance(agent, np.generic) else agent
