"""The neighbor table: the graph as kernels walk it.

Agents stand in blocks of 64; the block's neighbors are stored slot by slot, 64 agents side by side, and a block is as
wide as the largest degree in it:

    neighbor number j of agent a = 64 B + l   ->   slots[offsets[B] + 64 j + l]

A slot that is empty or cut points to its own agent, whose difference to itself is zero: no kernel asks whether an edge
is alive, and cutting writes two numbers. The order of the slots never changes, so neither does a sum's rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colme._jit import LANES, equation, kernel
from colme.graphs import Graph

u32, u64 = np.uint32, np.uint64


@equation
def block_of(offsets, block, n):
    """(first agent, agents, first slot, width) of a block."""
    start = u64(block) << u64(6)
    first = u64(offsets[block])
    return start, min(u64(64), n - start), first, (u64(offsets[block + u64(1)]) - first) >> u64(6)


@kernel
def _lay_out(indptr, indices, offsets, slots):
    n = u64(indptr.size - 1)
    for block in range(u64(offsets.size - 1)):
        start, _, first, width = block_of(offsets, block, n)
        for lane in range(u64(64)):
            a = start + u64(lane)
            degree = u64(0)
            if a < n:
                degree = u64(indptr[a + u64(1)] - indptr[a])
            for j in range(width):
                b = u32(a)
                if u64(j) < degree:
                    b = indices[u64(indptr[a]) + u64(j)]
                slots[first + (u64(j) << u64(6)) + u64(lane)] = b


@equation
def cut(slots, offsets, degree, cut_now, class_, a, b):
    """Cut the edge {a, b} at both ends. Returns what it was: (1, 0, ..) between classes, (0, 1, ..) within one, and how
    many of the two agents are now alone."""
    n = u64(degree.size)
    for end, other in ((a, b), (b, a)):
        _, _, first, width = block_of(offsets, end >> u64(6), n)
        for j in range(width):
            k = first + (u64(j) << u64(6)) + (end & u64(63))
            if slots[k] == u32(other):
                slots[k] = u32(end)
        degree[end] -= u32(1)
        cut_now[end] = 1
    between = int(class_[a] != class_[b])
    return between, 1 - between, int(degree[a] == 0) + int(degree[b] == 0)


@kernel
def compress(slots, offsets, degree):
    """The living edges as compressed rows."""
    n = u64(degree.size)
    indptr = np.zeros(degree.size + 1, np.int64)
    for a in range(n):
        indptr[a + u64(1)] = indptr[a] + degree[a]
    indices = np.empty(indptr[-1], np.uint32)
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for lane in range(size):
            a = start + u64(lane)
            k = u64(indptr[a])
            for j in range(width):
                b = slots[first + (u64(j) << u64(6)) + u64(lane)]
                if b != u32(a):
                    indices[k] = b
                    k += u64(1)
    return indptr, indices


@kernel
def count_wrong(slots, offsets, class_):
    """Directed edges between classes."""
    wrong = 0
    n = u64(class_.size)
    for block in range(u64(offsets.size - 1)):
        start, size, first, width = block_of(offsets, block, n)
        for j in range(width):
            for lane in range(size):
                if class_[slots[first + (u64(j) << u64(6)) + u64(lane)]] != class_[start + u64(lane)]:
                    wrong += 1
    return wrong


def lay_out(graph: Graph) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """(slots, offsets) of a graph."""
    n_blocks = -(-graph.n_agents // LANES)
    width = np.maximum.reduceat(graph.degrees, np.arange(n_blocks) * LANES)
    offsets = np.concatenate([[0], np.cumsum(width * LANES)]).astype(np.int64)
    slots = np.empty(offsets[-1], np.uint32)
    _lay_out(graph.indptr, graph.indices, offsets, slots)
    return slots, offsets
