"""Questions to a result: `predict`, `rank`, `difference` and probabilities, from the posteriors of its agents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from colme.errors import ColmeError, one_of, shorten
from colme.support.arrays import Array, Floats, Integers, Mask
from colme.support.tables import frame_of

if TYPE_CHECKING:
    from colme.data.report.result import Result


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

    agent: Array
    estimate: Floats
    expected: Floats
    lower: Integers
    upper: Integers
    top: Floats
    k: int
    level: float
    draws: int

    def to_columns(self) -> dict[str, Array]:
        """One column per array."""
        return {name: getattr(self, name) for name in ("agent", "estimate", "expected", "lower", "upper", "top")}

    def to_frame(self, backend: str = "pandas") -> Any:
        """The columns as a pandas or polars data frame, or a pyarrow table."""
        return frame_of(self.to_columns(), backend)

    def __repr__(self) -> str:
        return f"<Ranking: {len(self.agent)} agents, k={self.k}, {self.draws} draws>"


def order_of(values: Floats, rng: np.random.Generator) -> Integers:
    """The order of values; equal ones at random."""
    order = np.argsort(values)
    found = values[order]
    return order if (found[1:] != found[:-1]).all() else np.lexsort((rng.random(len(values)), values))


def with_answers(result: Result, values: Sequence[float] = (), k: int | None = None) -> Result:
    """The result with further columns: above_C, the probability of a mean above each of these values; and rank,
    rank_lower, rank_upper and top_K, if k is given."""
    columns: dict[str, Array] = {f"above_{each:.15g}": result.probability_above(each) for each in values}
    if k is not None:
        found = result.rank(k)
        columns |= {"rank": found.expected, "rank_lower": found.lower, "rank_upper": found.upper, f"top_{k}": found.top}
    return msgspec.structs.replace(result, answers=result.answers | columns)


def told_covariates(
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


def same_labels(column: Array, label: Any) -> Mask:
    """Which labels are this one, or read like it."""
    if column.dtype != object and isinstance(label, int | float | np.number) and not isinstance(label, bool):
        return column == label
    text = str(label)
    return np.fromiter((str(each) == text for each in column.tolist()), bool, len(column))


def bound(value: Any, name: str, n: int) -> Floats:
    """A number, or one for each agent."""
    try:
        found = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    if isinstance(value, bool | str) or found.shape not in ((), (n,)) or np.isnan(found).any():
        raise ColmeError(f"{name}={shorten(value)}: it must be a number, or one for each of {n} agents. Try "
                         f"{name}=1.0.")  # fmt: skip
    return np.broadcast_to(found, (n,))


def named(agent: Any) -> str:
    return "the new agent" if agent is None else f"agent {shorten(plain(agent))}"


def plain(agent: Any) -> Any:
    """A label as Python has it, not NumPy."""
    return agent.item() if isinstance(agent, np.generic) else agent
