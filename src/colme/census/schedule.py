"""When a census starts, how many rounds it takes, with which momentum, and how many agents it reaches.

All of it follows from the number of agents, the graph and the step, so agents need not agree on it by messages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from colme.errors import MethodError

if TYPE_CHECKING:
    from colme.census.method import Census


class Schedule(NamedTuple):
    """The timing of censuses in a population of `n_agents` on a graph of mean degree `degree`."""

    n_agents: int
    degree: float
    regular: bool
    """Whether W = A / r: the graph is regular of degree r > 2 and not bipartite."""
    rounds: int
    """Rounds of consensus per census, once censuses have their full length."""
    refresh: float
    sigma: Any
    """The standard deviation of samples, one number or one per agent. None: not known."""

    @classmethod
    def of(cls, method: Census, n_agents: int, n_edges: int, auto_step: float, sigma: Any) -> Schedule:
        """The schedule of a method on a graph; `auto_step`: the largest stable step of consensus, 1 / r if regular."""
        degree = 2.0 * n_edges / n_agents
        regular = degree > 2.0 and abs(auto_step * degree - 1.0) < 1e-9
        rounds = method.rounds
        if isinstance(rounds, str):
            rounds = math.ceil(math.log(max(n_agents, 2) / 0.6) / math.log(max(degree - 1.0, 1.5))) + 1
            rounds = min(rounds if regular else 2 * rounds, 40)
        sigma = method.sigma if method.sigma is not None else sigma
        if method.restart and sigma is None:
            raise MethodError(
                "restart=True where sigma is not known: detecting a change requires a known sigma. "
                "Try sigma=... in the method or recording."
            )
        return cls(n_agents, degree, regular, rounds, method.refresh, None if method.estimate_sigma else sigma)

    @property
    def momentum(self) -> float:
        """The optimal c of equation (3): 2 / (1 + sqrt(1 - x^2)), if disagreement shrinks by a factor x per round
        without momentum. On random regular graphs x = 2 sqrt(r - 1) / r, so c = r / (r - 1); on other graphs x is
        taken to be halfway from there to 1."""
        if self.degree <= 2.0:
            return 1.0
        x = 2.0 * math.sqrt(self.degree - 1.0) / self.degree
        x = x if self.regular else 0.5 * (1.0 + x)
        return 2.0 / (1.0 + math.sqrt(1.0 - x * x))

    def starts(self, t: int, last: int) -> bool:
        """Whether a new census starts at step t, if the last one started at step `last` (0: there was none)."""
        return t >= self.refresh * last and (t > 1 or self.sigma is not None)

    def rounds_at(self, t: int) -> int:
        """Rounds of a census that starts at step t. The first ones are short, because means still move quickly."""
        return min(self.rounds, 2 + t // 3) if self.bins_means(t) else 1

    def bins_means(self, t: int) -> bool:
        """Whether a census that starts at step t bins means. If sigma is not known, the first averages variances."""
        return t > 2 or self.sigma is not None

    def agents_reached(self, rounds: int) -> float:
        """How many agents' means a histogram represents after so many rounds: .6 (degree - 1)^rounds + 1 at most."""
        reached = max(0.6 * (self.degree - 1.0) ** rounds, rounds) if self.degree > 1.0 else 1.0
        return min(float(self.n_agents), reached + 1.0)
