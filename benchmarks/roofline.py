"""The roofline: how fast memory lets anybody average, measured as a sum over randomly chosen float32 numbers.

A step of consensus reads, for each agent, the estimates of its neighbors, and on a random graph they are anywhere. So
no averaging over r neighbors takes less time than r random reads, with their indices read in order. Several plain forms
are tried, as which is fastest depends on the processor and on the size: sums over one to eight agents at a time,
indices loaded two at a time, and whatever vectors the compiler makes of it. Nothing is written, nothing else read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
from numpy.typing import NDArray

import colme
from benchmarks.measuring import Measured, Timed, in_turns, ratio
from benchmarks.workloads import CL, DEGREE, advance, ready
from colme._core.jit import two_halves

f32, u64 = np.float32, np.uint64

plain = numba.njit(nogil=True, error_model="numpy")


@plain
def one_at_a_time(x, indices, pairs):
    total = f32(0)
    for k in range(u64(indices.size)):
        total += x[indices[k]]
    return total


@plain
def two_at_a_time(x, indices, pairs):
    s0 = s1 = f32(0)
    for i in range(u64(indices.size) >> u64(1)):
        k = u64(i) << u64(1)
        s0 += x[indices[k]]
        s1 += x[indices[k + u64(1)]]
    return s0 + s1


@plain
def four_at_a_time(x, indices, pairs):
    s0 = s1 = s2 = s3 = f32(0)
    for i in range(u64(indices.size) >> u64(2)):
        k = u64(i) << u64(2)
        s0 += x[indices[k]]
        s1 += x[indices[k + u64(1)]]
        s2 += x[indices[k + u64(2)]]
        s3 += x[indices[k + u64(3)]]
    return s0 + s1 + s2 + s3


@plain
def eight_at_a_time(x, indices, pairs):
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = f32(0)
    for i in range(u64(indices.size) >> u64(3)):
        k = u64(i) << u64(3)
        s0 += x[indices[k]]
        s1 += x[indices[k + u64(1)]]
        s2 += x[indices[k + u64(2)]]
        s3 += x[indices[k + u64(3)]]
        s4 += x[indices[k + u64(4)]]
        s5 += x[indices[k + u64(5)]]
        s6 += x[indices[k + u64(6)]]
        s7 += x[indices[k + u64(7)]]
    return s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7


@plain
def four_by_pairs(x, indices, pairs):
    s0 = s1 = s2 = s3 = f32(0)
    for i in range(u64(pairs.size) >> u64(1)):
        k = u64(i) << u64(1)
        b0, b1 = two_halves(pairs[k])
        b2, b3 = two_halves(pairs[k + u64(1)])
        s0 += x[b0]
        s1 += x[b1]
        s2 += x[b2]
        s3 += x[b3]
    return s0 + s1 + s2 + s3


@plain
def eight_by_pairs(x, indices, pairs):
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = f32(0)
    for i in range(u64(pairs.size) >> u64(2)):
        k = u64(i) << u64(2)
        b0, b1 = two_halves(pairs[k])
        b2, b3 = two_halves(pairs[k + u64(1)])
        b4, b5 = two_halves(pairs[k + u64(2)])
        b6, b7 = two_halves(pairs[k + u64(3)])
        s0 += x[b0]
        s1 += x[b1]
        s2 += x[b2]
        s3 += x[b3]
        s4 += x[b4]
        s5 += x[b5]
        s6 += x[b6]
        s7 += x[b7]
    return s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7


@numba.njit(nogil=True, error_model="numpy", fastmath=True)
def by_vectors(x, indices, pairs):
    """As the first, but the order of the sum is free, so vector gathers are allowed."""
    total = f32(0)
    for k in range(u64(indices.size)):
        total += x[indices[k]]
    return total


FORMS: tuple[Callable[..., Any], ...] = (
    one_at_a_time, two_at_a_time, four_at_a_time, eight_at_a_time, four_by_pairs, eight_by_pairs, by_vectors,
)  # fmt: skip


def name_of(form: Callable[..., Any]) -> str:
    return form.__name__.replace("_", " ")


class Gather:
    """Random reads along a graph: CPU nanoseconds per agent."""

    def __init__(self, graph: colme.Graph):
        self.n = graph.n_agents
        usable = graph.indices.size // 8 * 8
        self.indices = np.ascontiguousarray(graph.indices[:usable])
        self.pairs = self.indices.view(np.uint64)
        # numbers, not zeros: untouched pages are all the same page, which any cache holds
        self.x: NDArray[np.float32] = np.random.default_rng(0).standard_normal(self.n, np.float32)

    def timed(self, form: Callable[..., Any], passes: int) -> Timed:
        def nanoseconds() -> float:
            started = time.process_time()
            for _ in range(passes):
                form(self.x, self.indices, self.pairs)
            return (time.process_time() - started) * 1e9 / (passes * self.n)

        return nanoseconds

    def fastest(self, rounds: int, passes: int) -> tuple[str, Callable[..., Any], float]:
        """The form that is fastest here: its name, itself, nanoseconds per agent."""
        times = in_turns({name_of(form): self.timed(form, passes) for form in FORMS}, rounds)
        name = min(times, key=lambda each: times[each].best)
        return name, next(form for form in FORMS if name_of(form) == name), times[name].best


def passes_for(n: int) -> int:
    """Passes that a turn takes: about ten milliseconds, and at most a few."""
    return max(1, min(2000, 1_000_000 // n))


class Averaging:
    """The averaging of CL-colME within a run, one row of means for each step: CPU nanoseconds per agent.

    Everything that `run_steps` does is counted: candidate edges, neighbors, estimates, metrics. The displacement of the
    means is known before, as it is when the methods of a run share it."""

    def __init__(self, graph: colme.Graph, steps: int):
        self.n, self.seconds = graph.n_agents, 0.0
        self.run, self.t = ready(CL, graph, steps)
        if self.run.sampler.most != 1:
            raise ValueError(f"{self.n} agents see several steps at once: one row per step needs more of them.")
        self.state = cast(Any, self.run.states[0])
        self._average = self.state.average
        self.state.average = self._timed

    def _timed(self, world: Any, means: Any, *arguments: Any, **options: Any) -> int:
        world.reference.displacements(means, world.t)
        started = time.process_time()
        done: int = self._average(world, means, *arguments, **options)
        self.seconds += time.process_time() - started
        return done

    def timed(self, steps: int) -> Timed:
        def nanoseconds() -> float:
            self.seconds = 0.0
            self.t += steps
            advance(self.run, self.t)
            return self.seconds * 1e9 / (steps * self.n)

        return nanoseconds

    def alive(self) -> float:
        """Share of the edges that live."""
        edges = self.state.edges
        return float(edges.degree.sum() / (2 * edges.n_edges))

    def release(self) -> None:
        """Untie the knot of state and timer, or the arrays would stay."""
        del self.state.average, self._average


def share_of_roofline(graph: colme.Graph, rounds: int, steps: int) -> tuple[Measured, float, float]:
    """(share of the roofline that averaging reaches, nanoseconds per agent of the roofline, of averaging)."""
    gather = Gather(graph)
    _, form, _ = gather.fastest(3, passes_for(gather.n))
    averaging = Averaging(graph, (rounds + 1) * steps)
    times = in_turns({"roofline": gather.timed(form, passes_for(gather.n)), "ours": averaging.timed(steps)}, rounds)
    if averaging.alive() < 0.99:
        raise ValueError(f"{1 - averaging.alive():.0%} of the edges were cut, so less was read than {DEGREE} a step.")
    averaging.release()
    return ratio(times["roofline"], times["ours"]), times["roofline"].best, times["ours"].best
