"""The compiled loop over events: what one sample of one agent changes.

The state of an agent is two rows, `agents[a]` and `numbers[a]`; its neighbors are
`neighbors[a, :numbers[a, DEGREE]]`. Neighbors see what it wrote there at its own last event.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from colme._core.jit import equation, helper, kernel
from colme._core.random import LINK, philox
from colme.confidence import (
    DifferenceTest,
    apart,
    effective_number,
    fourth_moment_radius,
    laplace_radius,
    standard_error,
)
from colme.consensus import (
    START,
    add_pull,
    add_weighted_pull,
    clock_rate,
    metropolis_weight,
    next_estimate,
)
from colme.dependence import add_to_batches, add_to_sums, factor_at
from colme.noise import add_square, variance_of_mean
from colme.samples import running_mean

u64 = np.uint64

MEAN, RADIUS, ESTIMATE, STAMP, WEIGHT, WEIGHT_2, SQUARE, TIME = range(8)
"""Columns of `agents`. RADIUS: what neighbors compare, for difference tests the standard error of the mean. STAMP: the
event of the last restart that the agent knows of. WEIGHT, WEIGHT_2: sums of the samples' weights and of their squares.
SQUARE: weighted sum of squared deviations."""
COUNT, RESTART, CUT, HEARD, DEGREE = range(5)
"""Columns of `numbers`. COUNT: own samples. RESTART: the own sample at which its clock restarted. CUT: the event at
which it last lost a neighbor to pruning. HEARD: its last event."""
EVENTS, PRESENT, ARRIVED, LAST_CUT = range(4)
"""Entries of `counters`: events so far, agents now, agents ever, the last event that cut an edge."""
SQUARES, FREEDOM = range(2)
"""Entries of `pool`: squared deviations of all agents together, and their degrees of freedom."""
THEN_MEAN, THEN_ESTIMATE, THEN_WEIGHT, THEN_TIME, THEN_SQUARE, THEN_FREEDOM, THEN_OWN = range(7)
"""Columns of `snapshots`: what an agent had at the last vote; the estimate without a guard. THEN_OWN: the weight of the
own mean in the estimate."""
LOW, HIGH, LOW_OF_OWN, HIGH_OF_OWN = range(4)
"""Rows of `factors`, those of `colme.noise.Factors`."""
MIN_FREEDOM = 30.0
"""Degrees of freedom that all agents together must have before an estimated sigma may cut an edge."""
TRIES = 4
"""Agents that a new agent asks per neighbor that it looks for, at most."""


class Parameters(NamedTuple):
    """What `learn_events` needs to know of a method; the defaults are those of a method without neighbors."""

    gamma: float = 1.0
    """The level of the intervals or difference tests."""
    shared: bool = False
    """gamma is divided by the number of agents so far."""
    kurtosis: float = -1.0
    """Of the fourth-moment bound; negative: Laplace's bound."""
    step: float = 0.0
    """The step of the consensus."""
    metropolis: bool = False
    """Neighbors are weighed by Metropolis' weights."""
    degree: int = 0
    """Neighbors that an agent looks for; 0: the graph is given."""


@equation
def effective(weight: Any, weight_2: Any) -> Any:
    """The effective number of samples, (sum w)^2 / sum w^2: n itself without forgetting."""
    return weight * weight / weight_2


@helper
def freedom_of(row):
    """Degrees of freedom of the agent's own variance, and its squared deviations on their scale."""
    if row[WEIGHT] == 0.0:
        return 0.0, 0.0
    n = effective(row[WEIGHT], row[WEIGHT_2])
    return n - 1.0, row[SQUARE] * (row[WEIGHT] / row[WEIGHT_2])


@helper
def scale_of(row, sigma, pool, least):
    """The known sigma; else the agent's own, moderated by that of all; infinite as long as all together have less than
    `least` degrees of freedom."""
    if sigma == sigma:
        return sigma
    if pool[FREEDOM] < least or row[WEIGHT] == 0.0:
        return np.inf
    freedom, square = freedom_of(row)
    n = freedom + 1.0
    return math.sqrt(max(0.0, variance_of_mean(square, n, pool[SQUARES] / pool[FREEDOM]) * n))


@equation
def test_of(root: Any, level: Any) -> Any:
    """The difference test at this level; None where root is, so that intervals are compared."""
    if root is None:
        return None
    return DifferenceTest(root, -2.0 * math.log(level))


@helper
def spread_of(n, scale, level, kurtosis, test, factors, independent):
    """What an agent of n samples tells its neighbors: a radius, by Laplace's bound or with a kurtosis by the one for
    heavy tails, or the standard error where there is a test."""
    if test is not None:
        return standard_error(effective_number(n, factor_at(factors[HIGH], n), independent), scale)
    if scale == np.inf:
        return np.inf
    if kurtosis > 0.0:
        return fourth_moment_radius(n, scale, level, kurtosis)
    return laplace_radius(n, scale, level)


@kernel
def fill_spreads(agents, which, sigma, pool, least, level, kurtosis, root, factors, independent, out):
    """out[i] = what agent which[i] tells its neighbors; `least` as in `scale_of`, others as in `learn_events`."""
    test = test_of(root, level)
    for i in range(which.size):
        row = agents[which[i]]
        if row[WEIGHT] == 0.0:
            out[i] = np.inf
        else:
            n = effective(row[WEIGHT], row[WEIGHT_2])
            out[i] = spread_of(n, scale_of(row, sigma, pool, least), level, kurtosis, test, factors, independent)


@helper
def keep(row, estimate, own, snapshot):
    """What the samples up to the next vote judge; `own`: the weight of the own mean in the estimate."""
    snapshot[THEN_OWN] = own
    snapshot[THEN_MEAN], snapshot[THEN_ESTIMATE] = row[MEAN], estimate
    snapshot[THEN_WEIGHT], snapshot[THEN_TIME] = row[WEIGHT], row[TIME]
    snapshot[THEN_SQUARE], snapshot[THEN_FREEDOM] = row[SQUARE], row[WEIGHT] - row[WEIGHT_2] / row[WEIGHT]


@helper
def kept_part(row, snapshot, half_life):
    """The part of a sample's weight at the snapshot that is left."""
    if half_life > 0.0:
        return 0.5 ** ((row[TIME] - snapshot[THEN_TIME]) / half_life)
    return 1.0


@kernel
def keep_estimates(agents, judges, snapshots):
    """Snapshots of these agents."""
    for i in range(judges.size):
        keep(agents[judges[i]], agents[judges[i], ESTIMATE], 0.0, snapshots[judges[i]])


@kernel
def count_samples(agents, present):
    """(the number of samples of all agents present, the mean of 1 / their numbers of samples)."""
    total = inverse = 0.0
    n = 0
    for i in range(present.size):
        row = agents[present[i]]
        if row[WEIGHT] > 0.0:
            total += row[WEIGHT]
            inverse += row[WEIGHT_2] / (row[WEIGHT] * row[WEIGHT])
            n += 1
    return total, inverse / max(n, 1)


@kernel
def sum_batches(agents, numbers, batches, present, typical, sums):
    """Add what all agents contribute to the sums of dependence (`colme.dependence`)."""
    for i in range(present.size):
        a = present[i]
        freedom, square = freedom_of(agents[a])
        if numbers[a, COUNT] > 2 and freedom > 0.0:
            add_to_sums(batches[a], numbers[a, COUNT], square / freedom, typical, sums)


@kernel
def sum_pool(agents, which, pool):
    """Compute the pooled squared deviations and degrees of freedom of these agents from scratch."""
    pool[SQUARES] = pool[FREEDOM] = 0.0
    for i in range(which.size):
        freedom, square = freedom_of(agents[which[i]])
        pool[FREEDOM] += freedom
        pool[SQUARES] += square


@kernel
def first_backwards(slots, times, latest):
    """The first event that is earlier than one before it of the same agent; -1 if there is none. `latest` has the time
    of the last event of each agent, and is updated."""
    for i in range(slots.size):
        if times[i] < latest[slots[i]]:
            return i
        latest[slots[i]] = times[i]
    return -1


@helper
def _observe(row, sample, time, half_life, pool):
    """The local mean, its weight and its squared deviations after a new sample."""
    freedom, square = freedom_of(row)
    kept = 1.0
    if half_life > 0.0 and row[WEIGHT] > 0.0:
        kept = 0.5 ** ((time - row[TIME]) / half_life)
    before = row[MEAN]
    row[WEIGHT] = kept * row[WEIGHT] + 1.0
    row[WEIGHT_2] = kept * kept * row[WEIGHT_2] + 1.0
    row[MEAN] = running_mean(before, sample, row[WEIGHT])
    row[SQUARE] *= kept
    if row[WEIGHT] > 1.0:
        row[SQUARE] = add_square(row[SQUARE], row[MEAN], before, row[WEIGHT])
    row[TIME] = time
    freedom_now, square_now = freedom_of(row)
    pool[FREEDOM] += freedom_now - freedom
    pool[SQUARES] += square_now - square


@helper
def _place_of(neighbors, numbers, a, b):
    """The position of b among a's neighbors; -1: it is none."""
    for j in range(numbers[a, DEGREE]):
        if neighbors[a, j] == b:
            return j
    return -1


@helper
def _drop(neighbors, numbers, a, j):
    """Remove the j-th neighbor from a's row; the others keep their order."""
    numbers[a, DEGREE] -= 1
    for i in range(j, numbers[a, DEGREE]):
        neighbors[a, i] = neighbors[a, i + 1]


@helper
def unlink(neighbors, numbers, a, j):
    """End the edge between a and its j-th neighbor, at both ends."""
    b = neighbors[a, j]
    _drop(neighbors, numbers, a, j)
    _drop(neighbors, numbers, b, _place_of(neighbors, numbers, b, a))


@kernel
def unlink_all(neighbors, numbers, a):
    """End all edges of an agent that leaves."""
    while numbers[a, DEGREE] > 0:
        unlink(neighbors, numbers, a, numbers[a, DEGREE] - 1)


@kernel
def unlink_pair(neighbors, numbers, a, b):
    """End the edge between a and b."""
    unlink(neighbors, numbers, a, _place_of(neighbors, numbers, a, b))


@kernel
def link(neighbors, numbers, agents, a, b, test):
    """Add an edge, unless it exists, one of the two has no room, or their intervals do not overlap (with a test: their
    means differ). Returns whether it was added."""
    width = neighbors.shape[1]
    if a == b or numbers[a, DEGREE] >= width or numbers[b, DEGREE] >= width:
        return False
    if apart(agents[a, MEAN], agents[b, MEAN], agents[a, RADIUS], agents[b, RADIUS], test):
        return False
    if _place_of(neighbors, numbers, a, b) >= 0:
        return False
    neighbors[a, numbers[a, DEGREE]] = b
    neighbors[b, numbers[b, DEGREE]] = a
    numbers[a, DEGREE] += 1
    numbers[b, DEGREE] += 1
    return True


@helper
def _prune(neighbors, numbers, agents, counters, a, test):
    """Equation (2): end the edges to agents whose interval does not overlap a's, or whose mean differs."""
    j = 0
    while j < numbers[a, DEGREE]:
        b = neighbors[a, j]
        if apart(agents[a, MEAN], agents[b, MEAN], agents[a, RADIUS], agents[b, RADIUS], test):
            unlink(neighbors, numbers, a, j)
            numbers[a, CUT] = numbers[b, CUT] = counters[LAST_CUT] = counters[EVENTS]
        else:
            j += 1


@helper
def _find_neighbors(neighbors, numbers, agents, roster, counters, a, wanted, tries, key_0, key_1, test):
    """Ask random agents to become neighbors, until a has as many as wanted or has asked `tries` agents."""
    event, n = u64(counters[EVENTS]), u64(counters[PRESENT])
    for number in range(tries):
        if numbers[a, DEGREE] >= wanted or n == u64(0):
            break
        word, _, _, _ = philox(event & u64(0xFFFFFFFF), event >> u64(32), LINK, number, key_0, key_1)
        link(neighbors, numbers, agents, a, roster[(u64(word) * n) >> u64(32)], test)


@helper
def _rate(neighbors, numbers, agents, counters, a, clock):
    """Equation (3): alpha, after a has learned of its neighbors' restarts."""
    stamp = agents[a, STAMP]
    if clock.own:
        stamp = max(stamp, float(numbers[a, CUT]))
    if clock.common:
        stamp = max(stamp, float(counters[LAST_CUT]))
    if clock.gossip:
        for j in range(numbers[a, DEGREE]):
            stamp = max(stamp, agents[neighbors[a, j], STAMP])
    if stamp > agents[a, STAMP]:
        agents[a, STAMP], numbers[a, RESTART] = stamp, max(numbers[a, COUNT], START)
    restart = numbers[a, RESTART]
    # no more steps since the restart than the effective number of samples: forgotten ones are not averaged
    n = effective(agents[a, WEIGHT], agents[a, WEIGHT_2])
    return clock_rate(clock, min(float(numbers[a, COUNT]), restart - 1 + n), restart)


@helper
def _average(neighbors, numbers, agents, a, alpha, step, metropolis):
    """Equations (4) and (5)."""
    own, degree, pull = agents[a, ESTIMATE], numbers[a, DEGREE], 0.0
    for j in range(degree):
        b = neighbors[a, j]
        if metropolis:
            weight = metropolis_weight(degree, numbers[b, DEGREE])
            pull = add_weighted_pull(pull, own, agents[b, ESTIMATE], weight, True)
        else:
            pull = add_pull(pull, own, agents[b, ESTIMATE], True)
    agents[a, ESTIMATE] = next_estimate(agents[a, MEAN], own, pull, alpha, step, degree)


@kernel
def learn_events(
    slots, values, times, agents, numbers, roster, places, counters, pool, neighbors, batches, half_life, sigma,
    parameters, clock, root, factors, stops, key_0, key_1,
):  # fmt: skip
    """Event by event: agent slots[i] sees values[i] at times[i] (None: times do not matter). Returns how many events
    were learned: all, or those until there are stops[0] events or stops[1] agents.

    agents .. pool  as described at the top of this file, updated in place
    neighbors       None: only samples are counted
    batches         of the dependence between samples (`colme.dependence`); None: they are independent
    half_life       of a sample's weight, in the unit of times; negative: nothing is forgotten
    sigma           the known scale of a sample; NaN: estimated
    parameters      of the method
    clock           a `colme.consensus.Clock`
    root            of the difference test, see `colme.confidence.DifferenceTest`; None: intervals are compared
    factors         of the variances of means (`colme.dependence.learn`)
    stops           events and agents at which to stop for a vote
    key_0, key_1    the seed of the random choice of neighbors
    """
    degree = parameters.degree
    for i in range(slots.size):
        a = slots[i]
        row = agents[a]
        counters[EVENTS] += 1
        numbers[a, COUNT] += 1
        numbers[a, HEARD] = counters[EVENTS]
        is_new = places[a] < 0
        if is_new:
            counters[ARRIVED] += 1
        _observe(row, values[i], 0.0 if times is None else times[i], half_life, pool)  # (1)
        if batches is not None:
            add_to_batches(batches[a], numbers[a, COUNT], values[i])
        if neighbors is not None:
            level = parameters.gamma / counters[ARRIVED] if parameters.shared else parameters.gamma
            n = effective(row[WEIGHT], row[WEIGHT_2])
            test = test_of(root, level)
            scale = scale_of(row, sigma, pool, MIN_FREEDOM)
            row[RADIUS] = spread_of(n, scale, level, parameters.kurtosis, test, factors, batches is None)
            _prune(neighbors, numbers, agents, counters, a, test)
            if degree > 0:
                half = (degree + 1) // 2
                wanted, tries = (half, TRIES * half) if is_new else (degree, 1)
                _find_neighbors(neighbors, numbers, agents, roster, counters, a, wanted, tries, key_0, key_1, test)
            alpha = _rate(neighbors, numbers, agents, counters, a, clock)
            _average(neighbors, numbers, agents, a, alpha, parameters.step, parameters.metropolis)
        if is_new:
            roster[counters[PRESENT]], places[a] = a, counters[PRESENT]
            counters[PRESENT] += 1
        if counters[EVENTS] >= stops[0] or counters[PRESENT] >= stops[1]:
            return i + 1
    return slots.size
