"""Averages over all agents by gossip: rounds of consensus with momentum on a vector of numbers that each agent holds.

    z(1) = W z(0),   z(k+1) = c (W z(k) - z(k-1)) + z(k-1)

After enough rounds every agent's z is the average of all z(0). W = A / r on a regular graph (r > 2, not bipartite),
with momentum c = 1 + 1 / (r - 1), the best one on random regular graphs. On other graphs W is the Metropolis matrix,
with the momentum of a slower consensus. A neighbor whose message is lost is replaced by the agent itself.

The rounds, W and c follow from the number of agents and the graph, so agents need not agree on them by messages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from colme._core import random
from colme._core.jit import LINE, at, lanes_like, per_line, prefetch, slp_kernel
from colme._core.team import Neighborhood
from colme.consensus import metropolis_weight
from colme.graphs import Graph
from colme.spectrum import metropolis_weights
from colme.support.arrays import Array, Floats

u64 = np.uint64

AHEAD, FAR = 2, 2**20
"""Agents ahead of the present one whose neighbors' rows are loaded already, if all rows have more bytes than this."""
EXACT = 256
"""Agents up to which `agents_heard` follows every agent's weight instead of random signs."""
PROBES = 64
"""Random signs per agent of a larger irregular graph."""
REGULAR_PROBES = 4096
"""Random signs in total, at least, on a regular graph, where all agents are alike."""
EXPANDER = 0.7
"""A regular graph whose agents hear this part of what those of a random one do counts as a random one."""


class SumsMessage(NamedTuple):
    """What an agent sends in a round: its z, and its degree."""

    sums: Array
    degree: int


class Gossip(NamedTuple):
    """Rounds of consensus among `n_agents` on a graph of mean degree `degree`."""

    n_agents: int
    degree: float
    regular: bool
    """Whether W = A / r: the graph is regular of degree r > 2 and not bipartite."""
    rounds: int
    """Rounds until z is the average over all agents."""

    @classmethod
    def of(cls, n_agents: int, n_edges: int, auto_step: float, rounds: int | str = "auto") -> Gossip:
        """`auto_step`: the largest stable step of consensus, 1 / r if regular (`colme.consensus.stable_step`)."""
        degree = 2.0 * n_edges / n_agents
        regular = degree > 2.0 and abs(auto_step * degree - 1.0) < 1e-9
        gossip = cls(n_agents, degree, regular, 0)
        return gossip._replace(rounds=gossip.enough_rounds if isinstance(rounds, str) else rounds)

    @property
    def enough_rounds(self) -> int:
        """Rounds until all agents are reached, on a random graph."""
        rounds = math.ceil(math.log(max(self.n_agents, 2) / 0.6) / math.log(max(self.degree - 1.0, 1.5))) + 1
        return min(rounds if self.regular else 2 * rounds, 40)

    @property
    def momentum(self) -> float:
        """The optimal c: 2 / (1 + sqrt(1 - x^2)), if disagreement shrinks by a factor x per round without momentum.
        On random regular graphs x = 2 sqrt(r - 1) / r, so c = r / (r - 1); on other graphs x is taken to be halfway
        from there to 1."""
        if self.degree <= 2.0:
            return 1.0
        x = 2.0 * math.sqrt(self.degree - 1.0) / self.degree
        x = x if self.regular else 0.5 * (1.0 + x)
        return 2.0 / (1.0 + math.sqrt(1.0 - x * x))

    def rounds_from(self, t: int) -> int:
        """Rounds of an average that starts at step t. The first ones are short, because means still move quickly."""
        return min(self.rounds, 2 + t // 3)

    def agents_reached(self, rounds: int) -> float:
        """How many agents' numbers are in z after so many rounds on a random graph: .6 (degree - 1)^rounds + 1 at
        most."""
        reached = max(0.6 * (self.degree - 1.0) ** rounds, rounds) if self.degree > 1.0 else 1.0
        return min(float(self.n_agents), reached + 1.0)

    def round_of_one(
        self, now: Array, before: Array, heard: Iterable[tuple[int, Array]], own_degree: int,
        *, first: bool,
    ) -> Array:  # fmt: skip
        """`consensus_round` for one agent: z after a round in which it hears the degrees and the z of neighbors."""
        number = now.dtype.type
        own, total = number(1.0), np.zeros_like(now)
        for degree, values in heard:
            weight = number(1.0 / self.degree if self.regular else metropolis_weight(own_degree, degree))
            own -= weight
            total += weight * values
        value = total + own * now
        return value if first else number(self.momentum) * (value - before) + before

    def weights(self, graph: Graph, hood: Neighborhood, dtype: Any = np.float64) -> Any:
        """The weight of every neighbor in W, in the order of graph.indices; one number if all are the same."""
        if self.regular:
            return dtype(1.0 / self.degree)
        return metropolis_weights(graph, hood.seen("degree", graph.degrees)).astype(dtype)


def sum_over_agents(own: Array, hood: Neighborhood) -> Any:
    """The sum over all agents of numbers or rows of numbers, of which a worker has those of its own agents: the same
    bits for any number of workers (`colme._core.team`)."""
    sums, whole = np.zeros((hood.n_pages, *own.shape[1:])), len(own) // hood.page
    pages = own[: whole * hood.page].reshape(whole, hood.page, *own.shape[1:])
    pages.sum(axis=1, dtype=np.float64, out=sums[:whole])
    if whole < hood.n_pages:
        sums[whole] = own[whole * hood.page :].sum(axis=0, dtype=np.float64)
    return hood.team.gather(sums).sum(axis=0)


def mean_over_agents(own: Array, hood: Neighborhood) -> Any:
    """The mean, as `sum_over_agents`."""
    return sum_over_agents(own, hood) / hood.n_agents


def line_room(hood: Neighborhood, n_columns: int, dtype: Any) -> Array:
    """Zeros for `consensus_round`, (visible agents, at least so many columns): each row is some whole lines."""
    width = line_width(n_columns, dtype)
    return hood.lines(width * np.dtype(dtype).itemsize // 8).view(dtype).reshape(hood.n_visible, width)


def line_width(n_columns: int, dtype: Any) -> int:
    """So many columns, and as many more as fill the last line of the cache."""
    per_line = LINE // np.dtype(dtype).itemsize
    return -(-n_columns // per_line) * per_line


@slp_kernel
def consensus_round(indptr, indices, weights, own_start, now, before, momentum, first, heard, negligible):
    """One round for all own agents: momentum (W z - before) + before, or W z in the first round. The result is written
    over `before`. Returns how many numbers were sent, over all edges in both directions.

    indptr, indices  the rows of the own agents: indices[indptr[a]:indptr[a + 1]] are those of a's neighbors
    weights          the weight of each of these neighbors in W, or one number for all
    own_start        the index of the first own agent; 0 in a plain run
    now, before      (visible agents, columns), of `line_room`: z after the last round and after the one before it
    momentum, first  c; whether this is the first round
    heard            for each neighbor, whether its message arrived, or None if all did. A neighbor that is not heard is
                     replaced by the agent itself
    negligible       numbers up to this size are set to zero and not sent"""
    number, n, n_columns = now.dtype.type, u64(indptr.size - 1), u64(now.shape[1])
    width, far = u64(per_line(now)), now.size * now.itemsize > FAR
    total = lanes_like(now)
    sent = 0
    for a in range(n):
        row, begin, end = u64(own_start) + u64(a), u64(indptr[a]), u64(indptr[u64(a) + u64(1)])
        if far:
            soon = min(u64(a) + u64(AHEAD), n - u64(1))
            for j in range(u64(indptr[soon]), u64(indptr[soon + u64(1)])):
                for line in range(n_columns // width):
                    prefetch(now, (u64(indices[j]), u64(line) * width))
        occupied = 0
        for line in range(n_columns // width):
            column, own = u64(line) * width, number(1.0)
            for c in range(per_line(now)):
                total[c] = number(0.0)
            for j in range(begin, end):
                if heard is not None and not heard[j]:
                    continue
                weight, b = at(weights, j), u64(indices[j])
                own -= weight
                for c in range(per_line(now)):  # unrolled, for its length is known while compiling
                    total[c] += weight * now[b, column + u64(c)]
            for c in range(per_line(now)):
                mine = now[row, column + u64(c)]
                occupied += 1 if mine != number(0.0) else 0
                value = total[c] + own * mine
                if not first:
                    old = before[row, column + u64(c)]
                    value = momentum * (value - old) + old
                total[c] = value if abs(value) > negligible else number(0.0)
            for c in range(per_line(now)):
                before[row, column + u64(c)] = total[c]
        sent += occupied * (end - begin)
    return sent


def agents_heard(graph: Graph, gossip: Gossip, hood: Neighborhood | None = None) -> Floats:
    """How many agents each agent hears of in k = 1, 2, .. rounds (at least `gossip.enough_rounds`), (rounds, agents):
    one over the sum of the squared weights with which their numbers enter its z. On a star that is few however many
    rounds there are.

    Random signs, averaged like any other numbers, have that sum for their variance. Agents of a regular graph are taken
    to be alike, (rounds, 1), and a regular graph that hears nearly as fast as a random one to be one."""
    hood = Neighborhood(graph.n_agents) if hood is None else hood
    n = hood.n_agents
    exact = n <= EXACT
    if exact:
        start = np.eye(hood.n_own, n, hood.first)
    else:
        n_probes = -(-REGULAR_PROBES // n) if gossip.regular else PROBES
        words = [random.words(0, random.PROBE, k, first=hood.first, n=hood.n_own) for k in range(n_probes)]
        start = np.where(np.stack(words, axis=1) >> np.uint32(31) == 0, 1.0, -1.0)
    n_columns, own = start.shape[1], slice(hood.own_start, hood.own_start + hood.n_own)
    now, before = (line_room(hood, n_columns, np.float64) for _ in range(2))
    now[own, :n_columns] = start
    hood.refresh(now.reshape(-1))
    weights, squares = gossip.weights(graph, hood), []
    rounds = max(gossip.rounds, gossip.enough_rounds)
    for k in range(rounds):
        consensus_round(
            graph.indptr, graph.indices, weights, hood.own_start, now, before, gossip.momentum, k == 0, None, 0.0
        )
        now, before = before, now
        hood.refresh(now.reshape(-1))
        square = np.square(now[own, :n_columns])
        squares.append(square.sum(axis=1) if exact else square.mean(axis=1))
    each = np.array(squares)
    if gossip.regular:
        each = np.array([[mean_over_agents(row, hood)] for row in each])
    heard = np.clip(1.0 / np.maximum(each, 1e-300), 1.0, float(n))
    if gossip.regular:
        random_graph = np.array([[gossip.agents_reached(k + 1)] for k in range(rounds)])
        if (heard >= EXPANDER * random_graph).all():
            return random_graph
    return heard
