"""When a census starts, and how many rounds of gossip it takes.

All of it follows from the number of agents, the graph and the step, so agents need not agree on it by messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from colme.errors import MethodError
from colme.gossip import Gossip

if TYPE_CHECKING:
    from colme.census.method import Census


class Schedule(NamedTuple):
    """The timing of censuses."""

    gossip: Gossip
    refresh: float
    sigma: Any
    """The standard deviation of samples, one number or one per agent. None: not known."""

    @classmethod
    def of(cls, method: Census, n_agents: int, n_edges: int, auto_step: float, sigma: Any) -> Schedule:
        """The schedule of a method on a graph; `auto_step`: the largest stable step of consensus, 1 / r if regular."""
        sigma = method.sigma if method.sigma is not None else sigma
        if method.restart and sigma is None:
            raise MethodError(
                "restart=True where sigma is not known: detecting a change requires a known sigma. "
                "Try sigma=... in the method or recording."
            )
        gossip = Gossip.of(n_agents, n_edges, auto_step, method.rounds)
        return cls(gossip, method.refresh, None if method.estimate_sigma else sigma)

    def agents_heard(self, rounds: int, heard: Any) -> Any:
        """Agents heard after so many rounds, at most those reached; `heard` after 1, 2, .. rounds
        (`colme.gossip.agents_heard`), None: all that are reached."""
        reached = self.gossip.agents_reached(rounds)
        return reached if heard is None else np.minimum(reached, heard[min(rounds, len(heard)) - 1])

    def part_heard(self, rounds: int, heard: Any) -> Any:
        """Agents heard, as a part of those reached."""
        return self.agents_heard(rounds, heard) / self.gossip.agents_reached(rounds)

    def starts(self, t: int, last: int) -> bool:
        """Whether a new census starts at step t, if the last one started at step `last` (0: there was none)."""
        return t >= self.refresh * last and (t > 1 or self.sigma is not None)

    def checks_variances(self, t: int, last: int) -> bool:
        """Whether agents check their variances in a census that starts at step t: when t has passed a power of two, and
        in the first census of means."""
        return t.bit_length() > last.bit_length() or not self.bins_means(last)

    def rounds_at(self, t: int) -> int:
        """Rounds of a census that starts at step t."""
        return self.gossip.rounds_from(t) if self.bins_means(t) else 1

    def bins_means(self, t: int) -> bool:
        """Whether a census that starts at step t bins means. If sigma is not known, the first averages variances."""
        return t > 2 or self.sigma is not None
