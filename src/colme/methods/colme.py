"""colME: collaborative mean estimation in which any agent may query any other.

From the perspective of agent a, which remembers of every agent l the mean and count (X_al, n_al) it last heard:

(1) it observes x_a(t) and updates its own mean:             X_a <- X_a + (x_a - X_a) / n_a
(2) it finds its optimistic class:                           C_a = {l: |X_a - X_al| <= R(n_a) + R(n_al)}
(3) it queries the next agent in turn (among C_a if restricted) and (4) stores the answer (X_l, n_l)
(5) it computes C_a again
(6) it pools:                                                y_a = sum of w n_al X_al / sum of w n_al over l in C_a

Agents not heard yet have an infinite interval: they are in C_a, with n = 0. The weights w compare intervals:

    simple      w = 1
    soft        w = |I_a and I_l| / |I_a or I_l|
    aggressive  the same if |I_a and I_l| >= min(R_a, R_l), else 0

O(N) memory and time per agent: the reason for the graph methods. The array form stores N^2 pairs, so it refuses more
than `MAX_AGENTS` agents, or fewer where several statistics are compared: then C_a contains the agents all of whose
remembered intervals overlap a's, and w compares the intervals of the mean, with w = 1 as long as one is infinite.

Differences from the paper
    `queries` agents can be queried per step (the AAAI-25 comparison queries r). In turn means a+1, a+2, ... modulo N.
    If C_a = {a}, no agent is queried. Intersections and unions of intervals are taken literally.

Reference: M. Asadi, A. Bellet, O.-A. Maillard, M. Tommasi, "Collaborative algorithms for online personalized mean
estimation", TMLR 2022, arXiv:2208.11530, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from colme._core.edges import Edges
from colme._core.jit import at, equation, helper, kernel
from colme.confidence import too_far
from colme.errors import MethodError, one_of
from colme.graphs import Graph
from colme.method import Agent, Place, Round, State, World
from colme.methods.intervals import AgentIntervals, IntervalAgent, IntervalMethod, MomentRadii, parted
from colme.support.arrays import Floats

WEIGHTS = ("simple", "soft", "aggressive")
MAX_AGENTS = 13_000
"""2 GiB at PAIR bytes per pair."""
PAIR, MORE = 13, 16
"""Bytes per remembered agent, and per statistic where several are compared."""
BLOCK = 64
"""Agents whose samples are summed before they are added to the sum over all."""
TOTAL, WEIGHT, SLACK, MEAN, RADIUS = range(5)
"""What is kept of a block: its sums, and own mean and radius at the last look."""
MARGIN = 1e-12
"""Relative: far more than float64 rounds off a difference."""

u64 = np.uint64


class ColME(IntervalMethod, frozen=True, kw_only=True, tag="colme"):
    """Query agents in turn and pool those whose last known interval overlaps the own one.

    weights     of the pooled agents: "simple" (1), "soft" (how much the intervals overlap) or "aggressive" (soft,
                but 0 for a small overlap)
    restricted  query only agents that are not excluded yet
    queries     agents queried per step

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> trace = colme.simulate(ColME(queries=5), scenario, steps=200, seed=0)
    >>> f"{trace.mse[-1]:.1e} instead of {trace.local_mse[-1]:.1e}"
    '2.7e-05 instead of 1.3e-03'

    See also: BColME, CLColME
    """

    label = "colME"
    color = "#E69F00"
    paper = """@article{asadi2022collaborative,
  title   = {Collaborative algorithms for online personalized mean estimation},
  author  = {Asadi, M. and Bellet, A. and Maillard, O.-A. and Tommasi, M.},
  journal = {Transactions on Machine Learning Research},
  note    = {arXiv:2208.11530},
  year    = {2022},
}"""
    irrevocable = False
    by_name = True

    level: str = "population"
    weights: str = "simple"
    restricted: bool = True
    queries: int = 1

    def __post_init__(self) -> None:
        if self.cut != "intervals":
            raise MethodError(
                f"cut={self.cut!r}: colME's classes and weights are made of intervals. Leave cut out, or try CLColME()."
            )
        super().__post_init__()
        one_of(self.weights, WEIGHTS, "weights", MethodError)
        if self.guard:
            raise MethodError(
                "guard=True with colME: its agents query others by name, and a guard averages over neighbors. "
                "Try BColME, CColME, CLColME or Census, or guard=False."
            )
        if self.queries < 1:
            raise MethodError(f"queries={self.queries}: an agent queries at least one other per step. Try queries=1.")
        if self.weights != "simple" and "mean" not in self.statistics:
            raise MethodError(
                f"weights={self.weights!r} with statistics={self.statistics}: they compare intervals of the mean. "
                "Try weights='simple', or add 'mean'."
            )

    def check(self, n_agents: int, graph: Graph) -> None:
        super().check(n_agents, graph)
        pair = PAIR + (MORE * len(self.statistics) if self.needs_moments else 0)
        most = int(MAX_AGENTS * math.sqrt(PAIR / pair))
        if n_agents > most:
            raise MethodError(
                f"colME on {n_agents} agents needs {pair * n_agents**2 / 2**30:.0f} GiB: every agent remembers every "
                f"other ({pair} N^2 bytes), so at most {most} agents are allowed. Try CLColME or fewer agents."
            )

    def start(self, world: World, graph: Graph) -> ColState:
        return ColState(self, world, graph)

    def agent(self, place: Place) -> Agent:
        return ColAgent(self, place)


@equation
def interval_weight(mean_a: Any, radius_a: Any, mean_b: Any, radius_b: Any, weights: Any) -> Any:
    """w for two intervals that touch; `weights` counts 0 simple, 1 soft, 2 aggressive."""
    if weights == 0 or radius_a + radius_b == math.inf:
        return 1.0
    both = min(mean_a + radius_a, mean_b + radius_b) - max(mean_a - radius_a, mean_b - radius_b)
    if both <= 0.0 or (weights == 2 and both < min(radius_a, radius_b)):
        return 0.0
    return both / (2.0 * radius_a + 2.0 * radius_b - both)


@helper
def own_radius(mine, n, unit, sigma, a):
    """R(n) of agent a; where several statistics are compared, the radius of the first."""
    if mine is None:
        return at(sigma, a) * unit[n]
    return mine[0, 1, a]


@helper
def its_radius_of(known, n, unit, sigma, a, b):
    """The same of what a remembers of b."""
    if known is None:
        return at(sigma, b) * unit[n]
    return known[a, b, 0, 1]


@helper
def parted_from(own, radius, its_mean, its_radius, mine, known, a, b):
    """What a remembers of b parts from its own: the mean or, where several are compared, any statistic."""
    if mine is None:
        return too_far(own, its_mean, radius, its_radius)
    for i in range(mine.shape[0]):
        if too_far(mine[i, 0, a], known[a, b, i, 0], mine[i, 1, a], known[a, b, i, 1]):
            return True
    return False


@helper
def remember(mine, known, a, b):
    """The intervals that b tells a, where several statistics are compared."""
    if mine is not None:
        for i in range(mine.shape[0]):
            known[a, b, i, 0], known[a, b, i, 1] = mine[i, 0, b], mine[i, 1, b]


@kernel
def ask(known_mean, known_count, known, sums, cursor, mean, count, mine, unit, sigma, restricted, queries):
    """Equations (2) to (4): the next `queries` agents in turn tell their mean and count, and their intervals `mine`
    where several statistics are compared."""
    n = mean.size
    for a in range(n):
        if at(count, a) == 0:
            continue
        radius, left, last = own_radius(mine, at(count, a), unit, sigma, a), queries, cursor[a]
        for k in range(1, n + 1):
            b = last + k if last + k < n else last + k - n
            if b == a:
                continue
            if restricted:
                its_radius = its_radius_of(known, known_count[a, b], unit, sigma, a, b)
                if parted_from(mean[a], radius, known_mean[a, b], its_radius, mine, known, a, b):  # (2)
                    continue
            cursor[a] = b  # (3)
            known_count[a, b] = at(count, b)  # (4)
            known_mean[a, b] = mean[b] if known_count[a, b] > 0 else 0.0
            remember(mine, known, a, b)
            sums[a, b // BLOCK, SLACK] = 0.0
            left -= 1
            if left == 0:
                break


@helper
def look(known_mean, known_count, known, sums, members, own, radius, mine, unit, sigma, weights, class_, a, block):
    """Equations (5) and (6) for one block of agents."""
    n, first = u64(class_.size), block * u64(BLOCK)
    total = weight = 0.0
    slack = np.inf if weights == 0 and mine is None else 0.0
    inside = alike = 0
    for b in range(first, min(n, first + u64(BLOCK))):
        n_b, its_mean = known_count[a, b], known_mean[a, b]
        its_radius = its_radius_of(known, u64(n_b), unit, sigma, a, b)
        if n_b > 0:  # the unseen stay inside
            apart, reach = abs(own - its_mean), radius + its_radius
            spare = abs(apart - reach) - MARGIN * (apart + reach)
            slack = spare if spare < slack else slack
        if not parted_from(own, radius, its_mean, its_radius, mine, known, a, b):  # (5)
            inside += 1
            alike += int(class_[a] == class_[b])
            if n_b > 0:
                w = interval_weight(own, radius, its_mean, its_radius, weights)
                total += w * n_b * its_mean  # (6)
                weight += w * n_b
    members[a, block, 0], members[a, block, 1] = inside, alike
    sums[a, block, SLACK], sums[a, block, MEAN] = slack, own
    sums[a, block, RADIUS] = radius if radius < np.inf else 0.0
    sums[a, block, TOTAL], sums[a, block, WEIGHT] = total, weight


@kernel
def pool(
    known_mean, known_count, known, sums, members, mean, count, mine, unit, sigma, weights, class_, own_interval,
    estimate,
):  # fmt: skip
    """Equations (5) and (6). Returns the sizes of all C_a together, of one class, and how many are {a}.

    With simple weights, the sums over a block of agents change only if one of them is queried, enters or leaves. The
    slack, the least that any of them is away from that, tells for how long they cannot."""
    included = alike = alone = 0
    for a in range(u64(mean.size)):
        own, radius = mean[a], own_radius(mine, u64(at(count, a)), unit, sigma, a)
        own_interval[a, 0], own_interval[a, 1] = own, radius
        total, weight = at(count, a) * own, float(at(count, a))
        others = -1  # among its members it finds itself
        for block in range(u64(sums.shape[1])):
            moved = abs(own - sums[a, block, MEAN]) + abs(radius - sums[a, block, RADIUS])
            if not moved < sums[a, block, SLACK]:  # also if something is NaN
                look(
                    known_mean, known_count, known, sums, members, own, radius, mine, unit, sigma, weights, class_, a,
                    block,
                )  # fmt: skip
            total += sums[a, block, TOTAL]
            weight += sums[a, block, WEIGHT]
            others += members[a, block, 0]
            alike += members[a, block, 1]
        included += others
        if at(count, a) > 0:
            estimate[a] = own if others == 0 else total / weight
            alone += int(others == 0)
    return included, alike - mean.size, alone


@helper
def includes(known_mean, known_count, known, own_interval, mine, unit, sigma, a, b):
    """(5) as it was at the last step."""
    its_radius = its_radius_of(known, known_count[a, b], unit, sigma, a, b)
    return not parted_from(own_interval[a, 0], own_interval[a, 1], known_mean[a, b], its_radius, mine, known, a, b)


@kernel
def mutual(known_mean, known_count, known, own_interval, mine, unit, sigma):
    """The pairs of agents that are in each other's class C, as compressed rows."""
    n = known_count.shape[0]
    both = np.zeros((n, n), np.bool_)
    for a in range(n):
        for b in range(a):
            if includes(known_mean, known_count, known, own_interval, mine, unit, sigma, a, b):
                both[a, b] = both[b, a] = includes(
                    known_mean, known_count, known, own_interval, mine, unit, sigma, b, a
                )  # fmt: skip
    indptr = np.zeros(n + 1, np.int64)
    for a in range(n):
        indptr[a + 1] = indptr[a] + both[a].sum()
    indices = np.empty(indptr[n], np.uint32)
    k = 0
    for a in range(n):
        for b in range(n):
            if both[a, b]:
                indices[k] = b
                k += 1
    return indptr, indices


class ClassPairs(Edges):
    """The pairs of agents of which one has the other in its class C, in place of edges."""

    saved = ("wrong", "lost", "isolated")
    isolated = 0

    def __init__(self, state: ColState):
        super().__init__(state.world.hood)
        self._state, n = state, state.world.n_agents
        within = int((np.bincount(state.class_).astype(np.int64) ** 2).sum())
        self._n_wrong, self._n_right = n * n - within, within - n
        self.wrong, self.lost = self._n_wrong, 0

    def count(self, included: int, alike: int, alone: int) -> None:
        """Of all classes C together: their members but for the agents themselves, those of one true class, and how many
        are {a}."""
        self.wrong, self.lost, self.isolated = included - alike, self._n_right - alike, alone

    @property
    def wrong_share(self) -> float:
        return self.wrong / self._n_wrong if self._n_wrong else 0.0

    @property
    def lost_share(self) -> float:
        return self.lost / self._n_right if self._n_right else 0.0

    def graph(self) -> Graph:
        """Pairs of agents that are in each other's class C."""
        state = self._state
        unit = state.radii.bound.table(int(state.known_count.max()))
        rows = mutual(
            state.known_mean, state.known_count, state.known, state.own_interval, state.mine, unit, state.radii.sigma
        )  # fmt: skip
        return Graph(*rows, check=False)


class ColState(State):
    saved = (
        "estimate", "known_mean", "known_count", "known", "own_interval", "mine", "cursor", "edges",
    )  # fmt: skip

    def __init__(self, method: ColME, world: World, graph: Graph):
        super().__init__(method, world)
        n, self.class_ = world.n_agents, world.class_
        self.radii = method.radii(world, graph)
        self.estimate = np.full(n, np.nan)
        self.known_mean, self.known_count = np.zeros((n, n)), np.zeros((n, n), np.int32)
        self.known: Floats | None = None
        """Intervals that a remembers of b, (a, b, statistic, center and radius), where several statistics are compared.
        """
        self.mine: Floats | None = None  # own intervals at the last step, (statistic, 2, agent)
        if method.needs_moments:
            self.known = np.full((n, n, len(method.statistics), 2), np.inf)
            self.mine = np.full((len(method.statistics), 2, n), np.inf)
        # Sums over blocks of agents. Not saved: without slack they are computed anew.
        n_blocks = -(-n // BLOCK)
        self.sums, self.members = np.zeros((n, n_blocks, 5)), np.zeros((n, n_blocks, 2), np.int32)
        self.own_interval = np.full((n, 2), np.inf)  # (mean, radius) of every agent at the last step
        self.cursor = np.arange(n)
        self.edges: ClassPairs = ClassPairs(self)

    def step(self, world: World) -> None:
        method: ColME = self.method  # type: ignore[assignment]
        unit, sigma = self.radii.bound.table(world.t), self.radii.sigma
        count = world.n_samples
        if isinstance(self.radii, MomentRadii):
            self.mine = self.radii.table_of(world)
        known = self.known_mean, self.known_count, self.known, self.sums
        ask(*known, self.cursor, world.mean, count, self.mine, unit, sigma, method.restricted, method.queries)
        counts = pool(
            *known, self.members, world.mean, count, self.mine, unit, sigma, WEIGHTS.index(method.weights), self.class_,
            self.own_interval, self.estimate,
        )  # fmt: skip
        self.edges.count(*counts)

    @property
    def radius(self) -> Any:
        return self.radii.around_means(self.world)


class ColAgent(IntervalAgent):
    def __init__(self, method: ColME, place: Place):
        super().__init__(method, place)
        self.method = method
        self.known: dict[Hashable, tuple[float, int, AgentIntervals]] = {}  # (mean, count, intervals) last heard
        self.cursor = place.agent

    def _inside(self, b: Hashable, mine: AgentIntervals) -> bool:
        return b not in self.known or not parted(mine, self.known[b][2])

    def _in_turn(self) -> Iterator[int]:
        n = self.place.n_agents
        return (b for k in range(1, n + 1) if (b := (self.cursor + k) % n) != self.place.agent)

    def step(self, sample: float) -> Round:
        self.observe(sample)
        mine = self.intervals
        turn = [b for b in self._in_turn() if not self.method.restricted or self._inside(b, mine)]  # (2)
        asked = turn[: self.method.queries] if self.count else []
        if asked:
            self.cursor = asked[-1]
        askers = yield dict.fromkeys(asked, "your mean?")  # (3)
        answers = yield dict.fromkeys(askers, (self.mean, self.count, mine))
        for b, (mean, count, theirs) in answers.items():  # (4)
            if count > 0:
                self.known[b] = (mean, count, theirs)
        if self.count == 0:
            return
        total, weight = self.count * self.mean, float(self.count)
        members = self.place.n_agents - 1 - len(self.known)
        for block in range(0, self.place.n_agents, BLOCK):
            block_total = block_weight = 0.0
            for b in range(block, block + BLOCK):
                if b in self.known and self._inside(b, mine):  # (5)
                    members += 1
                    mean, count, theirs = self.known[b]
                    w = interval_weight(*mine[0], *theirs[0], WEIGHTS.index(self.method.weights))
                    block_total += w * count * mean  # (6)
                    block_weight += w * count
            total += block_total
            weight += block_weight
        self.estimate = self.mean if members == 0 else total / weight
