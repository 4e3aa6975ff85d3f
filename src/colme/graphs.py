"""Graphs: which agents can talk to each other, and generators of such graphs.

A `Graph` is simple and undirected; agents are 0..n_agents-1. The neighbors of an agent have an order (it decides the
order of floating-point sums, hence the bits), and every generator takes `rng`: a NumPy Generator or a whole number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colme._core.jit import kernel, prefetch
from colme._core.regular_graph import random_regular_rows
from colme._core.team import ALONE, Neighborhood, Team
from colme.errors import GraphError, shorten, whole
from colme.support.arrays import Array, Integers, Mask

u64 = np.uint64

AHEAD = 12
"""Agents between the one that is looked at and the one whose neighbors are fetched into the cache."""

Rng: TypeAlias = "np.random.Generator | int | None"  # in quotes: a device need not load numpy.random, 7 MB


def row_ends(sizes: Array) -> Integers:
    """Where rows of these sizes begin, one after the other; one more for the end of the last."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


class Graph:
    """A simple undirected graph in compressed rows: the neighbors of a are indices[indptr[a]:indptr[a+1]].

    >>> graph = from_edges([(0, 1), (1, 2), (3, 4)])
    >>> graph, graph.neighbors(1).tolist(), graph.components().tolist()
    (Graph(n_agents=5, n_edges=3), [0, 2], [0, 0, 0, 1, 1])

    See also: from_edges, from_networkx, random_regular_graph, spectrum
    """

    __slots__ = ("indices", "indptr")

    def __init__(self, indptr: ArrayLike, indices: ArrayLike, *, check: bool = True):
        """Rows are checked to be those of a simple undirected graph, unless the caller knows (`from_edges` is the
        ordinary way to a graph)."""
        self.indptr: Integers = np.asarray(indptr, np.int64)
        self.indices: NDArray[np.uint32] = np.asarray(indices, np.uint32)
        if check:
            self._check()

    def _check(self) -> None:
        n = len(self.indptr) - 1
        if n < 1 or self.indptr[0] != 0 or self.indptr[-1] != len(self.indices) or (np.diff(self.indptr) < 0).any():
            raise GraphError(
                "indptr does not cut indices into rows: it must rise from 0 to their number. Try from_edges."
            )
        a, b = self.owners, self.indices.astype(np.int64)
        there, back = np.sort(a * n + b), np.sort(b * n + a)
        if (b >= n).any() or (a == b).any() or (np.diff(there) == 0).any() or not np.array_equal(there, back):
            raise GraphError(
                "the rows are not those of a simple undirected graph: no loops, no repetitions, and b is a neighbor of "
                "a wherever a is one of b. Try from_edges."
            )

    def __repr__(self) -> str:
        return f"Graph(n_agents={self.n_agents}, n_edges={self.n_edges})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return self.n_agents == other.n_agents and np.array_equal(self.edges(), other.edges())

    __hash__ = None  # type: ignore[assignment]

    @property
    def n_agents(self) -> int:
        return len(self.indptr) - 1

    @property
    def n_edges(self) -> int:
        return len(self.indices) // 2

    @property
    def whole(self) -> Graph | GraphTotals:
        """The whole graph, of which this may be a part: its n_agents, n_edges and max_degree."""
        return self

    @property
    def degrees(self) -> Integers:
        return np.diff(self.indptr)

    @property
    def owners(self) -> Integers:
        """For each entry of `indices`, the agent whose neighbor it is."""
        return np.repeat(np.arange(self.n_agents), self.degrees)

    @property
    def max_degree(self) -> int:
        return int(self.degrees.max(initial=0))

    @property
    def bipartite(self) -> bool:
        """Some component has edges, is bipartite, and all its agents have the maximal degree."""
        return has_bipartite_component(self.indptr, self.indices)

    def neighbors(self, agent: int) -> NDArray[np.uint32]:
        return self.indices[self.indptr[agent] : self.indptr[agent + 1]]

    def edges(self) -> Integers:
        """(n_edges, 2), each edge once as (low, high), sorted."""
        a, b = self.owners, self.indices.astype(np.int64)
        pairs = np.stack([a, b], axis=1)[a < b]
        return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]

    def adjacency(self) -> Mask:
        """The dense adjacency matrix (for small graphs)."""
        dense = np.zeros((self.n_agents, self.n_agents), bool)
        dense[self.owners, self.indices] = True
        return dense

    def components(self) -> Integers:
        """The connected component of every agent, numbered 0, 1, ... by their first agent."""
        n = self.n_agents
        component = np.empty(n, np.int64)
        _find_components(self.indptr, self.indices, component, np.zeros(n, np.uint8), np.empty(n + 1, np.uint32))
        return component

    def kept(self, mask: Mask) -> Graph:
        """The rows without the neighbors where the mask is False; it treats both directions of an edge alike."""
        ends = row_ends(mask)
        return Graph(ends[self.indptr], self.indices[mask], check=False)

    def relabel(self, new_name: ArrayLike) -> Graph:
        """The same graph where agent a is called new_name[a]; every agent keeps the order of its neighbors."""
        names = np.asarray(new_name, np.int64)
        if not np.array_equal(np.sort(names), np.arange(self.n_agents)):
            raise GraphError(
                f"new names {shorten(names)} are not a permutation of 0..{self.n_agents - 1}: every name must occur "
                "once. Try rng.permutation(n_agents)."
            )
        old = np.argsort(names)
        indptr = row_ends(self.degrees[old])
        take = np.repeat(self.indptr[old] - indptr[:-1], self.degrees[old]) + np.arange(len(self.indices))
        return Graph(indptr, names[self.indices[take]].astype(np.uint32), check=False)


class GraphTotals(NamedTuple):
    """What the workers of a team know about their whole graph."""

    n_agents: int
    n_edges: int
    max_degree: int
    bipartite: bool


class GraphPart(Graph):
    """The rows of one worker's own agents (`colme._core.team`), with the places of their neighbors in its arrays."""

    __slots__ = ("whole",)
    whole: GraphTotals

    def __init__(self, indptr: ArrayLike, indices: ArrayLike, totals: GraphTotals):
        super().__init__(indptr, indices, check=False)
        self.whole = totals

    def components(self) -> Integers:
        """None: they cannot be told from a part."""
        return np.empty(0, np.int64)


@kernel
def _find_components(indptr, indices, component, known, queue):
    """The component of every agent, by searches in breadth: agents to look at are known some time before, so their rows
    can be fetched into the cache. known is 0 before; queue has room for one agent more than there are."""
    found = 0
    for root in range(u64(component.size)):
        if known[root] != 0:
            continue
        known[root], queue[0] = 1, root
        done, size = u64(0), u64(1)
        while done < size:
            prefetch(indptr, (u64(queue[min(done + u64(2 * AHEAD), size - u64(1))]),))
            soon = u64(indptr[u64(queue[min(done + u64(AHEAD), size - u64(1))])])
            prefetch(indices, (min(soon, u64(max(indices.size, 1) - 1)),))
            a = u64(queue[done])
            done += u64(1)
            component[a] = found
            for k in range(u64(indptr[a]), u64(indptr[a + u64(1)])):
                b = u64(indices[k])
                queue[size] = b  # write always, count if it is new: no branch for the processor to guess
                size += u64(known[b] == 0)
                known[b] = 1
        found += 1


def has_bipartite_component(indptr: Integers, indices: NDArray[np.uint32], team: Team = ALONE) -> bool:
    """`Graph.bipartite`, which the first worker of a team on one machine finds out for all."""
    found = False
    if team.rank == 0:
        degrees = np.diff(indptr)
        most = degrees.max(initial=0)
        known = (degrees != most).view(np.uint8)
        found = most > 0 and _search(indptr, indices, known, np.empty(len(degrees), np.uint32))
    return bool(team.any(found))


@kernel
def _search(indptr, indices, known, queue):
    """Whether some component is bipartite and consists of unknown agents (known: 0).

    A search from an unknown agent ends at an odd cycle or at a known agent; then all agents that it has seen are known
    (1). Meanwhile 2 and 3 are their sides. A large random graph has an odd cycle that the first search finds after
    about sqrt(n) agents; most later ones end at once, so what they look at first is fetched into the cache."""
    last = u64(max(indices.size, 1) - 1)
    for root in range(u64(known.size)):
        soon = u64(indptr[min(root + u64(AHEAD), u64(known.size - 1))])
        prefetch(known, (u64(indices[min(soon, last)]),))
        if known[root] != 0:
            continue
        known[root], queue[0] = 2, root
        size, done, bipartite = 1, 0, True
        while bipartite and done < size:
            a = queue[done]
            done += 1
            other = 5 - known[a]
            for k in range(indptr[a], indptr[a + 1]):
                b = indices[k]
                if known[b] == 0:
                    known[b], queue[size] = other, b
                    size += 1
                elif known[b] != other:
                    bipartite = False
                    break
        if bipartite:
            return True
        for i in range(size):
            known[queue[i]] = 1
    return False


@kernel
def _scatter(low, high, indptr):
    """Neighbors of each agent in the order of the edge list."""
    indices = np.empty(indptr[-1], np.uint32)
    position = indptr[:-1].copy()
    for e in range(low.size):
        a, b = low[e], high[e]
        indices[position[a]] = np.uint32(b)
        position[a] += 1
        indices[position[b]] = np.uint32(a)
        position[b] += 1
    return indices


def _from_pairs(n_agents: int, low: Integers, high: Integers) -> Graph:
    degrees = np.bincount(low, minlength=n_agents) + np.bincount(high, minlength=n_agents)
    indptr = row_ends(degrees)
    return Graph(indptr, _scatter(low, high, indptr), check=False)


def from_edges(edges: ArrayLike | Iterable[tuple[int, int]], n_agents: int | None = None) -> Graph:
    """A graph from a list of edges (a, b); n_agents defaults to the largest name + 1.

    edges     pairs of agents, or an array (edges, 2)
    n_agents  how many agents; those without an edge need it

    >>> from_edges([(0, 1), (1, 2)], n_agents=4).degrees.tolist()
    [1, 2, 1, 0]

    See also: Graph, from_networkx
    """
    if not isinstance(edges, Iterable):
        raise GraphError(f"edges={shorten(edges)}: they must be pairs of agents. Try [(0, 1), (1, 2)].")
    raw = np.asarray(edges if isinstance(edges, np.ndarray) else list(edges))
    if raw.size == 0 and n_agents is None:
        raise GraphError("there is no edge and no n_agents: the number of agents is not known. Try n_agents=10.")
    if raw.size == 0:
        raw = np.empty((0, 2), np.int64)
    if raw.ndim != 2 or raw.shape[1] != 2 or raw.dtype.kind not in "iu":
        raise GraphError(
            f"edges have shape {raw.shape} and type {raw.dtype}: they must be pairs of whole numbers. "
            "Try [(0, 1), (1, 2)]."
        )
    pairs = raw.astype(np.int64)
    n = _check_agents(int(pairs.max(initial=-1)) + 1 if n_agents is None else n_agents)
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    repeated = np.ones(len(pairs), bool)
    repeated[np.unique(low * n + high, return_index=True)[1]] = False
    for wrong, reason in (
        ((low < 0) | (high >= n), f"names an agent that does not exist: agents are 0..{n - 1}. Try a larger n_agents."),
        (low == high, "is a loop: an agent is no neighbor of itself. Leave loops out."),
        (repeated, "is given twice: list every edge once."),
    ):
        if wrong.any():
            a, b = pairs[np.argmax(wrong)].tolist()
            raise GraphError(f"edge ({a}, {b}) {reason}")
    return _from_pairs(n, low, high)


def from_networkx(graph: Any) -> Graph:
    """A graph from networkx; its nodes must be 0..n-1 (see networkx.convert_node_labels_to_integers).

    graph  an undirected graph of networkx

    >>> import networkx as nx
    >>> from_networkx(nx.cycle_graph(5))
    Graph(n_agents=5, n_edges=5)

    See also: Graph, from_edges
    """
    n = graph.number_of_nodes()
    if set(graph.nodes) != set(range(n)):
        raise GraphError(f"nodes must be named 0..{n - 1}. Try networkx.convert_node_labels_to_integers(graph) first.")
    if graph.is_directed() or graph.is_multigraph():
        raise GraphError("the graph is directed or has parallel edges: it must be simple. Try networkx.Graph(graph).")
    return from_edges(np.array(graph.edges, np.int64).reshape(-1, 2), n)


DEFAULT_DEGREE = 10
"""Neighbors per agent where no other degree is asked for."""


def default_degree(n_agents: int) -> int:
    """`DEFAULT_DEGREE`, or the largest degree below it that a regular graph of so few agents can have."""
    degree = min(DEFAULT_DEGREE, n_agents - 1)
    return degree - n_agents * degree % 2


def random_regular_graph(n_agents: int, degree: int, *, rng: Rng = None) -> Graph:
    """A random simple graph in which all agents have the same degree: uniform up to a bias that vanishes with n.

    n_agents  how many agents
    degree    neighbors of each agent; n_agents x degree must be even
    rng       a NumPy Generator or a whole number; None: drawn anew

    >>> random_regular_graph(100, 10, rng=0).max_degree
    10

    See also: Graph, gnp_random_graph, stable_step
    """
    n_agents, degree = _check_regular(n_agents, degree)
    rows = random_regular_rows(n_agents, degree, _key(rng))
    return Graph(np.arange(n_agents + 1, dtype=np.int64) * degree, rows.reshape(-1), check=False)


def random_regular_part(degree: int, key: int, hood: Neighborhood) -> GraphPart:
    """The rows of a worker's own agents in `random_regular_graph(n_agents, degree, rng=key)`. The workers of a machine
    make the graph together, in one array."""
    n_agents, degree = _check_regular(hood.n_agents, degree)
    team = hood.team.local
    rows = random_regular_rows(n_agents, degree, key, team)
    indptr = team.zeros((n_agents + 1,), np.int64)
    if team.rank == 0:
        indptr[:] = np.arange(0, n_agents * degree + 1, degree) if degree else 0
    team.wait()
    bipartite = has_bipartite_component(indptr, rows.reshape(-1), team)
    own = rows[hood.own].reshape(-1)
    if team.size < hood.team.size:  # each machine has made the whole graph and keeps a part
        own = own.copy()
    totals = GraphTotals(n_agents, n_agents * degree // 2, degree, bipartite)
    return GraphPart(np.arange(hood.n_own + 1, dtype=np.int64) * degree, own, totals)


def _check_regular(n_agents: Any, degree: Any) -> tuple[int, int]:
    n_agents, degree = _check_agents(n_agents), whole(degree, "degree", "degree=0", GraphError, low=0)
    if degree >= n_agents:
        raise GraphError(
            f"a {degree}-regular graph on {n_agents} agents does not exist: the degree must be between 0 and n-1 "
            f"(n={n_agents}, d={degree}). Try degree={n_agents - 1}."
        )
    if n_agents * degree % 2:
        raise GraphError(
            f"a {degree}-regular graph on {n_agents} agents does not exist: n*d must be even "
            f"(n={n_agents}, d={degree}). Try n={n_agents + 1} or d={degree + 1}."
        )
    return n_agents, degree


def gnp_random_graph(n_agents: int, p: float, *, rng: Rng = None) -> Graph:
    """Every pair is an edge with probability p, independently (Erdos-Renyi), by geometric jumps between edges.

    n_agents  how many agents
    p         the probability of an edge; the mean degree is p (n_agents - 1)
    rng       a NumPy Generator or a whole number; None: drawn anew

    >>> graph = gnp_random_graph(1000, 0.01, rng=0)
    >>> round(float(graph.degrees.mean()))
    10

    See also: Graph, random_regular_graph, watts_strogatz_graph
    """
    _check_agents(n_agents)
    _check_probability("p", p)
    n_pairs = n_agents * (n_agents - 1) // 2
    generator = _generator(rng)
    if p <= 0 or n_pairs == 0:
        return from_edges([], n_agents)
    if p >= 1:
        return complete_graph(n_agents)
    chosen, last = [], -1
    while last < n_pairs:
        expected = (n_pairs - last) * p
        jumps = generator.geometric(p, size=int(expected + 4 * np.sqrt(expected) + 16))
        chosen.append(last + np.cumsum(np.minimum(jumps, n_pairs + 1), dtype=np.int64))
        last = int(chosen[-1][-1])
    pair = np.concatenate(chosen)
    pair = pair[pair < n_pairs]
    # pair number k = high (high - 1) / 2 + low; the square root may be off by one at large numbers
    high = ((1 + np.sqrt(1 + 8 * pair.astype(float))) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > pair
    high += high * (high + 1) // 2 <= pair
    return _from_pairs(n_agents, pair - high * (high - 1) // 2, high)


def ring_lattice_graph(n_agents: int, degree: int) -> Graph:
    """Agents on a ring, each joined to its degree/2 nearest on both sides.

    n_agents  how many agents
    degree    neighbors of each agent, an even number

    >>> sorted(ring_lattice_graph(8, 4).neighbors(0).tolist())
    [1, 2, 6, 7]

    See also: Graph, watts_strogatz_graph
    """
    low, high = _ring(n_agents, degree)
    return _from_pairs(n_agents, low, high)


def watts_strogatz_graph(n_agents: int, degree: int, p: float, *, rng: Rng = None) -> Graph:
    """A small world: a ring lattice in which every edge moves one end to a random agent with probability p.

    n_agents  how many agents
    degree    neighbors of each agent in the lattice, an even number
    p         the probability with which an edge is moved
    rng       a NumPy Generator or a whole number; None: drawn anew

    >>> watts_strogatz_graph(100, 4, 0.1, rng=0)
    Graph(n_agents=100, n_edges=200)

    See also: Graph, ring_lattice_graph, random_regular_graph
    """
    _check_probability("p", p)
    low, high = _ring(n_agents, degree)
    generator = _generator(rng)
    moved = np.flatnonzero(generator.random(len(low)) < p)
    if 2 * degree >= n_agents or n_agents < 64:
        return _rewire_one_by_one(n_agents, low, high, moved, generator)
    redraw = moved
    while len(redraw):
        high[redraw] = generator.integers(n_agents, size=len(redraw))
        key = np.minimum(low, high) * n_agents + np.maximum(low, high)
        # a moved edge yields to an unmoved one, and of two moved edges the later one is drawn again
        is_moved = np.zeros(len(low), bool)
        is_moved[moved] = True
        order = np.lexsort((is_moved, key))
        repeated = np.zeros(len(low), bool)
        repeated[order[1:]] = key[order[1:]] == key[order[:-1]]
        redraw = np.flatnonzero(repeated | (low == high))
    return _from_pairs(n_agents, np.minimum(low, high), np.maximum(low, high))


def _rewire_one_by_one(n: int, low: Integers, high: Integers, moved: Integers, generator: np.random.Generator) -> Graph:
    """The same on a dense or small graph, where drawing again could go on for ever: an edge moves if there is room."""
    taken = np.eye(n, dtype=bool)
    taken[low, high] = taken[high, low] = True
    for e in moved:
        a, free = low[e], np.flatnonzero(~taken[low[e]])
        if len(free):
            b = generator.choice(free)
            taken[a, high[e]] = taken[high[e], a] = False
            taken[a, b] = taken[b, a] = True
            high[e] = b
    return _from_pairs(n, low, high)


def complete_graph(n_agents: int) -> Graph:
    """The graph in which every two agents are neighbors.

    n_agents  how many agents

    >>> complete_graph(5)
    Graph(n_agents=5, n_edges=10)

    See also: Graph, random_regular_graph
    """
    if _check_agents(n_agents) > 2**15:
        raise GraphError(f"n_agents={n_agents}: a complete graph has n^2/2 edges, too many beyond 32768 agents. "
                         "Try random_regular_graph(n_agents, 10).")  # fmt: skip
    low, high = np.triu_indices(n_agents, 1)
    return _from_pairs(n_agents, low, high)


def _ring(n_agents: int, degree: int) -> tuple[Integers, Integers]:
    n_agents, degree = _check_agents(n_agents), whole(degree, "degree", "degree=0", GraphError, low=0)
    if degree % 2 or degree >= n_agents:
        raise GraphError(
            f"a ring lattice of degree {degree} on {n_agents} agents does not exist: the degree must be even and "
            f"below n. Try degree={min(degree + degree % 2, (n_agents - 1) // 2 * 2)}."
        )
    low = np.tile(np.arange(n_agents, dtype=np.int64), degree // 2)
    return low, (low + np.repeat(np.arange(1, degree // 2 + 1), n_agents)) % n_agents


def _check_agents(n: Any) -> int:
    return whole(n, "n_agents", "n_agents=1000", GraphError, high=2**32 - 1)


def _check_probability(name: str, p: Any) -> None:
    if not isinstance(p, int | float | np.number) or not 0 <= p <= 1:
        raise GraphError(f"{name}={p}: it must be a probability between 0 and 1. Try {name}=0.1.")


def _key(rng: Rng) -> int:
    if isinstance(rng, int | np.integer):
        return int(rng) & 0xFFFFFFFFFFFFFFFF
    return int(np.random.default_rng(rng).integers(2**64, dtype=np.uint64))


def _generator(rng: Rng) -> np.random.Generator:
    return np.random.default_rng(_key(rng) if isinstance(rng, int | np.integer) else rng)
