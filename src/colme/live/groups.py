"""Numbers of groups that stay the same from frame to frame, so that colors do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

OTHERS = 255
"""The number of an agent whose group is too small to have a color."""
MOST_GROUPS = 24


class GroupNumbers:
    """Groups, largest first, get the number that most of their agents had before, or the smallest free one.

    Agents may be added at the end. A number below 0 is no group."""

    def __init__(self) -> None:
        self._before: NDArray[np.uint8] | None = None

    def renumber(self, groups: NDArray[np.int64]) -> NDArray[np.uint8]:
        names, places, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        least = max(2, len(groups) // 500)
        new = np.full(len(sizes), OTHERS, np.uint8)
        taken: set[int] = set()
        sizes[names < 0] = 0
        for group in np.argsort(-sizes, kind="stable")[:MOST_GROUPS].tolist():
            if sizes[group] == 0 or (sizes[group] < least and len(groups) > MOST_GROUPS):
                break
            new[group] = self._number(places == group, taken)
            taken.add(int(new[group]))
        found = new[places]
        self._before = found
        return found

    def _number(self, members: NDArray[np.bool_], taken: set[int]) -> int:
        if self._before is not None and len(self._before) <= len(members):
            votes = np.bincount(self._before[members[: len(self._before)]], minlength=256)[:OTHERS]
            for number in np.argsort(-votes, kind="stable").tolist():
                if votes[number] == 0:
                    break
                if number not in taken:
                    return int(number)
        return next(number for number in range(MOST_GROUPS) if number not in taken)
