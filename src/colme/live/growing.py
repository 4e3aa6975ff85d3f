"""What feeds without an end share: places of agents and edges, and numbers of groups, that stay the same."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.live.messages import start
from colme.support.arrays import Integers, Mask

OTHERS = 255
"""The number of an agent whose group is too small to have a color."""
MOST_GROUPS = 24


class GrowingLists:
    """What of a view keeps its place: the lists of agents and edges only grow, because frames refer to places."""

    def __init__(self) -> None:
        self.edges: dict[tuple[int, int], int] = {}
        self.groups = GroupNumbers()
        self._run = secrets.token_hex(8)
        self._sent: tuple[int, int] | None = None  # agents and edges of the last start

    def start(self, names: list[str], **head: Any) -> list[bytes]:
        """A start, if agents or edges were added since the last one."""
        size = len(names), len(self.edges)
        if size == self._sent:
            return []
        self._sent = size
        return [start({"edges": np.array(list(self.edges), np.uint32).reshape(-1)}, run=self._run, names=names, **head)]


class GroupNumbers:
    """Groups, largest first, get the number that most of their agents had before, or the smallest free one, so that
    colors stay.

    Agents may be added at the end. A number below 0 is no group."""

    def __init__(self) -> None:
        self._before = np.empty(0, np.uint8)

    def renumber(self, groups: Integers) -> NDArray[np.uint8]:
        names, places, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        least = 1 if len(groups) <= MOST_GROUPS else max(2, len(groups) // 500)
        new = np.full(len(sizes), OTHERS, np.uint8)
        taken: set[int] = set()
        sizes[names < 0] = 0
        for group in np.argsort(-sizes, kind="stable")[:MOST_GROUPS].tolist():
            if sizes[group] < least:
                break
            new[group] = self._number(places == group, taken)
            taken.add(int(new[group]))
        self._before = new[places]
        return self._before

    def _number(self, members: Mask, taken: set[int]) -> int:
        votes = np.bincount(self._before[members[: len(self._before)]], minlength=256)[:OTHERS]
        wanted = [number for number in np.argsort(-votes, kind="stable").tolist() if votes[number]]
        return next(number for number in (*wanted, *range(MOST_GROUPS)) if number not in taken)
