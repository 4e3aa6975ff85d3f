"""What a node says in a status or a report, as far as it can be used.

Both come from a process that may be of another version, or may lie. A value that is missing, of another type or out of
range is unknown; of long lists and names the first part is used. Nothing that a node says raises an error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

LONGEST_KEY = 192
"""Characters of a name that tell agents apart: those of a gateway, a slash, and those of its local agent."""
MOST_NEIGHBORS = 2000
"""Neighbors of one node that are looked at, and as many cut edges."""
_LARGEST = 1e300  # the difference of two numbers is finite
_LARGEST_COUNT = 2**53  # the largest whole number of JavaScript
_MOST_REASONS = 1000
_COUNTERS = ("samples", "neighbors", "fresh", "cut", "bad_lines", "late", "incarnation")


class Hearsay(NamedTuple):
    """What a node last heard of a neighbor."""

    fresh: bool
    age: float
    samples: int | None
    mean: float
    estimate: float
    incarnation: int | None


@dataclass(frozen=True, slots=True)
class Statement:
    """What a node says about itself and its edges. Numbers that are not known are NaN, counters None.

    agents   local agents, if it is a gateway
    gateway  the name of its gateway, if it is a local agent of one
    """

    mean: float
    estimate: float
    lower: float
    upper: float
    radius: float
    level: float
    trust: float
    counters: dict[str, int | None]
    agents: int | None
    gateway: str | None
    group: int | None
    neighbors: dict[str, Hearsay]
    cut: frozenset[str]

    @classmethod
    def parse(cls, status: dict[str, Any], *, most_neighbors: int = MOST_NEIGHBORS) -> Statement:
        """From a status or a report, whatever it holds."""
        refused = status.get("refused")
        if isinstance(refused, dict):  # counts by reason; in the lines of `colme node watch` they are summed
            refused = sum(number or 0 for number in map(_whole, islice(refused.values(), _MOST_REASONS)))
        cut = (key_of(each) for each in _first(status.get("cut_names"), most_neighbors))
        return cls(
            mean=_number(status.get("mean")),
            estimate=_number(status.get("estimate")),
            lower=_number(status.get("lower")),
            upper=_number(status.get("upper")),
            radius=_number(status.get("radius")),
            level=_number(status.get("level")),
            trust=_number(status.get("trust")),
            counters={key: _whole(status.get(key)) for key in _COUNTERS} | {"refused": _whole(refused)},
            agents=_whole(status.get("agents")),
            gateway=key_of(status.get("gateway")),
            group=_whole(status.get("group")),
            neighbors=dict(_hearsays(_first(status.get("neighbor_rows"), most_neighbors))),
            cut=frozenset(each for each in cut if each is not None),
        )


class Answer(NamedTuple):
    """What a node has said, and how many seconds ago; None if it does not answer."""

    name: str
    statement: Statement | None
    age: float = 0.0


def key_of(name: Any) -> str | None:
    """The name by which an agent is known, of bounded length; None if it is not a name."""
    return name[:LONGEST_KEY] if isinstance(name, str) and name else None


def _first(values: Any, n: int) -> list[Any]:
    return values[:n] if isinstance(values, list) else []


def _hearsays(rows: list[Any]) -> list[tuple[str, Hearsay]]:
    found = []
    for row in rows:
        name = key_of(row.get("name")) if isinstance(row, dict) else None
        if name is not None:
            age = _number(row.get("age"))
            heard = Hearsay(
                row.get("fresh") is True, age if age >= 0 else math.nan, _whole(row.get("samples")),
                _number(row.get("mean")), _number(row.get("estimate")), _whole(row.get("incarnation")),
            )  # fmt: skip
            found.append((name, heard))
    return found


def _number(value: Any) -> float:
    """NaN for what is not a number, or is too large to be drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        return math.nan
    return float(value)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_COUNT:
        return None
    return value
