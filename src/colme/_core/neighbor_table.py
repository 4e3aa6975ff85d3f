"""The neighbor table: the layout in which kernels read a graph that loses edges.

A slot is one entry of the table: the place of one neighbor of one agent among the visible agents, which in a plain run
is its number (`colme._core.team.Neighborhood`). A table has rows for the own agents of one worker. Rows are stored in
blocks of 64; a block holds the first neighbors of its 64 rows, then their second ones, and so on, and is as wide as the
largest degree in it:

    neighbor number j of row 64 B + l   ->   slots[offsets[B] + 64 j + l]

A slot that is empty or cut points to its own agent, whose difference to itself is zero: no kernel asks whether an edge
is alive, and cutting writes two numbers. The neighbors of an agent never change their order, so neither does a sum's
rounding.

Row a is agent a at first. When many edges are cut, `tighten` drops their slots and sorts the rows of each chunk of 1024
agents by degree, so that blocks become as narrow as their agents' degrees: row i then belongs to the agent at place
order[i] of its chunk, whose row is at places[..] of the chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import CHUNK, LANES, equation, helper, kernel
from colme.graphs import Graph

u16, u32, u64 = np.uint16, np.uint32, np.uint64

WRONG, LOST, ISOLATED, CUT = range(4)
"""The tally of the own agents: ends of living edges between classes, ends of cut edges within a class, agents without
an edge, and edges cut at this step."""


class NeighborTable(NamedTuple):
    """The arrays of one graph, as kernels take them; kernels change them in place."""

    at: Any
    """The place of the first own agent among the visible ones; that of agent a is at + a."""
    slots: NDArray[np.uint32]
    """Places of neighbors; an agent's own place where an edge is cut or missing."""
    pairs: NDArray[np.uint64]
    """The same memory, two slots per number."""
    offsets: NDArray[np.int64]
    """Where each block begins in `slots`; one more for the end of the last."""
    order: NDArray[np.uint16]
    """The agent of each row, counted within its chunk."""
    places: NDArray[np.uint16]
    """The row of each agent, counted within its chunk."""
    degree: NDArray[Any]
    """Living neighbors of each visible agent."""
    cut_now: NDArray[np.uint8]
    """1 for own agents that lost an edge at this step."""
    tally: NDArray[np.int64]
    """Counts of edges, see WRONG, LOST, ISOLATED, CUT."""
    class_: NDArray[Any]
    """The true class of each visible agent, for the tally."""


@equation
def block_of(offsets: Any, block: Any, n: Any) -> Any:
    """(first row, rows, first slot, width) of a block."""
    start = u64(block) << u64(6)
    first = u64(offsets[block])
    return start, min(u64(64), n - start), first, (u64(offsets[block + u64(1)]) - first) >> u64(6)


@equation
def agent_at(order: Any, row: Any) -> Any:
    """The agent of a row."""
    return (row >> u64(10) << u64(10)) + u64(order[row])


@kernel
def _lay_out(indptr, indices, at, offsets, slots, class_):
    """Fill the slots; returns how many neighbors are of another class."""
    n, wrong = u64(indptr.size - 1), 0
    for block in range(u64(offsets.size - 1)):
        start, _, first, width = block_of(offsets, block, n)
        for lane in range(u64(64)):
            a, degree, k = start + u64(lane), u64(0), u64(0)
            if a < n:
                k = u64(indptr[a])
                degree = u64(indptr[a + u64(1)]) - k
            for j in range(degree):
                b = indices[k + u64(j)]
                wrong += int(class_[u64(at) + a] != class_[b])
                slots[first + (u64(j) << u64(6)) + u64(lane)] = b
            for j in range(degree, width):
                slots[first + (u64(j) << u64(6)) + u64(lane)] = u32(u64(at) + a)
    return wrong


@kernel
def tighten(at, slots, offsets, order, places, degree, flows):
    """Drop the slots of cut edges, in place: rows sorted by degree, the largest first, within each chunk. Flows, where
    there are any, stay with their slots. Degrees are those of the own agents, the first of which is at place `at`."""
    n, n_rows = u64(degree.size), u64(order.size)
    old_first = u64(0)
    for chunk in range((n_rows + u64(CHUNK - 1)) >> u64(10)):
        base = u64(chunk) << u64(10)
        end = min(n_rows, base + u64(CHUNK))
        first_block, last_block = base >> u64(6), end >> u64(6)
        old = slots[old_first : u64(offsets[last_block])].copy()
        if flows is not None:
            old_flows = flows[old_first : u64(offsets[last_block])].copy()
        old_offsets = offsets[first_block : last_block + u64(1)].copy()
        old_offsets[0] = old_first
        old_places = places[base:end].copy()
        _sort_rows(order, places, degree, base, end, n)
        for block in range(first_block, last_block):
            first, width = u64(offsets[block]), u64(0)
            for lane in range(u64(64)):
                a = agent_at(order, (block << u64(6)) + u64(lane))
                if a < n:
                    width = max(width, u64(degree[a]))
            for lane in range(u64(64)):
                a = agent_at(order, (block << u64(6)) + u64(lane))
                row = u64(old_places[a - base])
                _, _, old_start, old_width = block_of(old_offsets, row >> u64(6), n)
                k = u64(0)
                for j in range(old_width):
                    place = old_start - old_first + (u64(j) << u64(6)) + (row & u64(63))
                    b = old[place]
                    if b != u32(u64(at) + a):
                        slots[first + (k << u64(6)) + u64(lane)] = b
                        if flows is not None:
                            flows[first + (k << u64(6)) + u64(lane)] = old_flows[place]
                        k += u64(1)
                for j in range(k, width):
                    slots[first + (u64(j) << u64(6)) + u64(lane)] = u32(u64(at) + a)
                    if flows is not None:
                        flows[first + (u64(j) << u64(6)) + u64(lane)] = 0.0
            if block + u64(1) == last_block:
                old_first = u64(offsets[last_block])
            offsets[block + u64(1)] = first + (width << u64(6))


@helper
def _sort_rows(order, places, degree, base, end, n):
    """Largest degree first, agents of equal degree by number; rows beyond the last agent stay at the end."""
    most = u64(0)
    for a in range(base, min(end, n)):
        most = max(most, u64(degree[a]))
    starts = np.zeros(most + u64(2), np.int64)
    for a in range(base, min(end, n)):
        starts[most - u64(degree[a]) + u64(1)] += 1
    for d in range(most + u64(1)):
        starts[d + u64(1)] += starts[d]
    for a in range(base, end):
        place = a - base
        if a < n:
            d = most - u64(degree[a])
            place = u64(starts[d])
            starts[d] += 1
        order[base + place] = u16(a - base)
        places[a] = u16(place)


@helper
def cut(table, a, b):
    """Cut the edge between the agents at places a and b at those of its ends that are own agents, and keep the tally.

    Where only one is, another worker cuts the other end: it compares the same two means."""
    slots, degree, tally, class_ = table.slots, table.degree, table.tally, table.class_
    at, n = u64(table.at), u64(table.cut_now.size)
    for end, other in ((a, b), (b, a)):
        own = end - at
        if own >= n:  # also where end < at: these numbers have no sign
            continue
        row = agent_at(table.places, own)
        _, _, first, width = block_of(table.offsets, row >> u64(6), n)
        for j in range(width):
            k = first + (u64(j) << u64(6)) + (row & u64(63))
            if slots[k] == u32(other):
                slots[k] = u32(end)
        degree[end] -= 1
        table.cut_now[own] = 1
        tally[ISOLATED] += int(degree[end] == 0)
        if class_[a] != class_[b]:
            tally[WRONG] -= 1
        else:
            tally[LOST] += 1
    tally[CUT] += 1


@kernel
def _compress(at, slots, offsets, places, indptr, indices, of_slots, of_edges):
    """The living edges, agent by agent; if slots have values, also those. The indices may be written over the slots: a
    chunk of rows is never longer than its slots."""
    n = u64(indptr.size - 1)
    for chunk in range((n + u64(CHUNK - 1)) >> u64(10)):
        base = u64(chunk) << u64(10)
        end = min(n, base + u64(CHUNK))
        begin = u64(offsets[base >> u64(6)])
        old = slots[begin : u64(offsets[(end + u64(63)) >> u64(6)])].copy()
        for a in range(base, end):
            row = agent_at(places, u64(a))
            _, _, first, width = block_of(offsets, row >> u64(6), n)
            k = u64(indptr[a])
            for j in range(width):
                place = first + (u64(j) << u64(6)) + (row & u64(63))
                b = old[place - begin]
                if b != u32(u64(at) + u64(a)):
                    indices[k] = b
                    if of_slots is not None:
                        of_edges[k] = of_slots[place]
                    k += u64(1)


def compress(
    at: int, slots: NDArray[Any], offsets: NDArray[Any], places: NDArray[Any], degree: NDArray[Any], *,
    in_place: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:  # fmt: skip
    """The living edges as compressed rows, by own agent: indptr, and the places of neighbors; written over the slots,
    if these are not needed any more."""
    indptr = _row_ends(degree)
    indices = slots[: indptr[-1]] if in_place else np.empty(indptr[-1], np.uint32)
    _compress(at, slots, offsets, places, indptr, indices, None, None)
    return indptr, indices


def compress_values(
    at: int, slots: NDArray[Any], offsets: NDArray[Any], places: NDArray[Any], degree: NDArray[Any],
    values: NDArray[np.float64],
) -> NDArray[np.float64]:  # fmt: skip
    """The values of slots, in the order of `compress`."""
    indptr = _row_ends(degree)
    out = np.empty(indptr[-1])
    _compress(at, slots, offsets, places, indptr, np.empty(len(out), np.uint32), values, out)
    return out


def _row_ends(degree: NDArray[Any]) -> NDArray[np.int64]:
    """Where the rows of agents with these degrees begin; one more for the end of the last."""
    indptr = np.zeros(degree.size + 1, np.int64)
    np.cumsum(degree, out=indptr[1:])
    return indptr


@kernel
def lay_out_values(indptr, values, offsets, out):
    """Values of edges, agent by agent, at the slots of a table whose row a is agent a."""
    n = u64(indptr.size - 1)
    out[:] = 0.0
    for a in range(n):
        _, _, first, _ = block_of(offsets, u64(a) >> u64(6), n)
        for k in range(u64(indptr[a + u64(1)] - indptr[a])):
            out[first + (u64(k) << u64(6)) + (u64(a) & u64(63))] = values[u64(indptr[a]) + u64(k)]


def lay_out(graph: Graph, at: int, class_: NDArray[Any]) -> tuple[NDArray[np.uint32], NDArray[np.int64], int]:
    """(slots, offsets) of the rows of a graph, row a for own agent a, and how many neighbors are of another class."""
    n_blocks = -(-graph.n_agents // LANES)
    width = np.maximum.reduceat(graph.degrees, np.arange(n_blocks) * LANES) if n_blocks else np.empty(0, np.int64)
    offsets = np.concatenate([[0], np.cumsum(width * LANES)]).astype(np.int64)
    slots = np.empty(offsets[-1], np.uint32)
    wrong = _lay_out(graph.indptr, graph.indices, at, offsets, slots, class_)
    return slots, offsets, wrong


def first_order(n_agents: int) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """(order, places) of a table whose row a is agent a."""
    order = np.resize(np.arange(CHUNK, dtype=np.uint16), -(-n_agents // LANES) * LANES)
    return order, order.copy()
