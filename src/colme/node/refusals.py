"""Refusals: how often records and messages were refused, by reason, and by the agent that sent them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

MOST_SENDERS = 64
"""Agents whose refusals are counted one by one. Neighbors come and go: beyond that, the one that was refused longest
ago is forgotten; the counts of all agents together are not."""


class Refusals(Counter[str]):
    """Counts of all agents together, by reason; `senders` has those of each agent."""

    def __init__(self, counts: Mapping[str, int] | None = None):
        super().__init__(counts or {})
        self.senders: dict[str, Counter[str]] = {}

    def note(self, sender: str, reason: str) -> None:
        """Count a record or a message of this agent."""
        self[reason] += 1
        counts = self.senders.pop(sender, Counter())
        counts[reason] += 1
        self.senders[sender] = counts  # the last one
        while len(self.senders) > MOST_SENDERS:
            del self.senders[next(iter(self.senders))]
