"""Many steps of consensus in one go: prune, clock, average, judge, step after step, while no full look is needed.

Numbers of equations are those of `methods/cl_colme.py`, and of `methods/c_colme.py` or `methods/_flow.py` where it says
so.

Compiled as one kernel, because at a few thousand agents calling kernels from Python costs as much as the samples. What
a run does not have (weights, flows, gossip, gaps, a truth) is None, and compiled away.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colme._core.jit import CHUNK, LANES, chunk_like, equation, helper, kernel, lanes_like
from colme._core.lazy_pruning import bucket, cut_listed, slack_needed
from colme._core.neighbor_table import CUT, ISOLATED, LOST, WRONG, block_of, two_slots
from colme.consensus import (
    START,
    add_pull,
    add_weighted_pull,
    blend,
    build_weights,
    clock_rate,
    mend_weights,
    next_estimate,
    next_flow,
    return_flows,
    with_flows,
)  # fmt: skip

u64 = np.uint64


@equation
def lean(pull: Any, own: Any, neighbor: Any, weights: Any, flows: Any, step: Any, k: Any, gaps: Any) -> Any:
    """`add_pull`, or where slots have weights `add_weighted_pull` with that of slot k; where they have flows, that of
    slot k becomes its `next_flow` and is added."""
    if flows is not None:
        flow = next_flow(flows[k], own, neighbor, step, gaps)
        flows[k] = flow
        return pull + flow
    if weights is None:
        return add_pull(pull, own, neighbor, gaps)
    return add_weighted_pull(pull, own, neighbor, weights[k], gaps)


@equation
def hear(latest: Any, restarts: Any, turn: Any, b: Any, listen: Any) -> Any:
    """The later of the restarts that I know of and that neighbor b told of a step ago, where restarts are gossip."""
    if restarts is None:
        return latest
    return max(latest, restarts[1 - turn, b]) if listen else latest


@equation
def restart_of(restarts: Any, turn: Any, a: Any, common: Any) -> Any:
    """Agent a's last restart as far as it knows, or everybody's."""
    if restarts is None:
        return common
    return restarts[turn, a]


@equation
def gossiped(heard: Any, mine: Any, cut_now: Any, t: Any, mean: Any) -> Any:
    """The latest restart I know of; a cut is one, and who has no sample yet neither hears nor tells."""
    latest = max(heard, mine)
    if cut_now:
        latest = max(latest, t)
    return latest if mean == mean else START


@helper
def walk(
    pairs, first, width, heard, weights, flows, step, restarts, turn, listen, gaps, order, row, base, zero, pull,
    latest,
):  # fmt: skip
    """What the agents of four rows hear from their neighbors: pull and latest, by the agents' places in the chunk. Four
    at a time, for their sums need not wait for each other, and one load brings two slots."""
    one, two, three = u64(1), u64(2), u64(3)
    i0, i1, i2, i3 = u64(order[row]), u64(order[row + one]), u64(order[row + two]), u64(order[row + three])
    own0, own1, own2, own3 = heard[base + i0], heard[base + i1], heard[base + i2], heard[base + i3]
    sum0 = sum1 = sum2 = sum3 = zero
    last0 = last1 = last2 = last3 = START
    k = first + (row & u64(63))
    for _ in range(width):
        b0, b1 = two_slots(pairs[k >> one])
        b2, b3 = two_slots(pairs[(k >> one) + one])
        sum0 = lean(sum0, own0, heard[b0], weights, flows, step, k, gaps)  # (4), C-colME: (5), flow: (3)
        sum1 = lean(sum1, own1, heard[b1], weights, flows, step, k + one, gaps)
        sum2 = lean(sum2, own2, heard[b2], weights, flows, step, k + two, gaps)
        sum3 = lean(sum3, own3, heard[b3], weights, flows, step, k + three, gaps)
        last0, last1 = hear(last0, restarts, turn, b0, listen), hear(last1, restarts, turn, b1, listen)
        last2, last3 = hear(last2, restarts, turn, b2, listen), hear(last3, restarts, turn, b3, listen)
        k += u64(64)
    pull[i0], pull[i1], pull[i2], pull[i3] = sum0, sum1, sum2, sum3
    latest[i0], latest[i1], latest[i2], latest[i3] = last0, last1, last2, last3


@helper
def spread(restarts, turn, latest, cut_now, t, mean, start, size, base):
    """Where restarts are gossip: what the agents of a block know next. Returns whether it is news to anybody."""
    news = False
    if restarts is not None:
        for lane in range(size):
            a = start + u64(lane)
            told = restarts[1 - turn, a]
            restarts[turn, a] = gossiped(latest[a - base], told, cut_now[a], t, mean[a])
            news |= restarts[turn, a] != told
    return news


@helper
def judge(new, truth, tolerance, start, size, square):
    """Where the truth is known: adds the squared errors of a block. Returns how many are beyond the tolerance, and how
    many have an estimate."""
    beyond = present = 0
    if truth is not None:
        for lane in range(size):
            error = new[lane] - truth[start + u64(lane)]
            there = error == error
            square[lane] += error * error if there else 0.0
            beyond += 1 if abs(error) > tolerance else 0
            present += 1 if there else 0
    return beyond, present


@helper
def average(
    pairs, offsets, order, weights, flows, degree, cut_now, tally, heard, spare, mean, estimate, t, common, restarts,
    turn, listen, fixed, step, gaps, truth, tolerance,
):  # fmt: skip
    """y <- (1 - alpha) X + alpha (y + step * pull) for every agent, or X + sum of flows, in place; what is heard next
    goes to `spare`.

    Who listens hears of the neighbors' restarts of the step before, restarts[1 - turn], and makes restarts[turn] from
    them; else restarts[turn] stand. Returns whether any was news, the mean squared error and the error rate."""
    n, n_blocks = u64(mean.size), u64(offsets.size - 1)
    pull, latest, new, square = chunk_like(mean), chunk_like(offsets), lanes_like(mean), lanes_like(mean)
    zero = heard.dtype.type(0)  # sums are of the type that is heard
    for lane in range(u64(LANES)):
        square[lane] = 0.0
    news, beyond, present = False, 0, 0
    all_plain = t > 1 and gaps is None and tally[ISOLATED] == 0
    for chunk in range((n + u64(CHUNK - 1)) >> u64(10)):
        base = u64(chunk) << u64(10)
        first_block = base >> u64(6)
        last_block = min(n_blocks, first_block + u64(CHUNK // LANES))
        for block in range(first_block, last_block):
            start, size, first, width = block_of(offsets, block, n)
            width = width if t > 1 else u64(0)  # before the first step nobody said anything
            for quad in range((size + u64(3)) >> u64(2)):
                row = start + (u64(quad) << u64(2))
                walk(
                    pairs, first, width, heard, weights, flows, step, restarts, turn, listen, gaps, order, row, base,
                    zero, pull, latest,
                )  # fmt: skip
        for block in range(first_block, last_block):
            start = u64(block) << u64(6)
            size = min(u64(64), n - start)
            if listen:
                news |= spread(restarts, turn, latest, cut_now, t, mean, start, size, base)
            if flows is not None:
                for lane in range(size):
                    a = start + u64(lane)
                    new[lane] = with_flows(mean[a], pull[a - base])  # flow: (4)
            else:
                for lane in range(size if all_plain else u64(0)):
                    a = start + u64(lane)
                    alpha = fixed if fixed >= 0.0 else clock_rate(t, restart_of(restarts, turn, a, common))
                    new[lane] = blend(mean[a], estimate[a], pull[a - base], alpha, step)  # (5), C-colME: (6)
                for lane in range(u64(0) if all_plain else size):
                    a = start + u64(lane)
                    alpha = fixed if fixed >= 0.0 else clock_rate(t, restart_of(restarts, turn, a, common))
                    new[lane] = next_estimate(mean[a], estimate[a], pull[a - base], alpha, step, degree[a])
            for lane in range(size):
                estimate[start + u64(lane)] = new[lane]
                spare[start + u64(lane)] = new[lane]
            more_beyond, more = judge(new, truth, tolerance, start, size, square)
            beyond, present = beyond + more_beyond, present + more
    squares = 0.0
    for lane in range(u64(LANES)):
        squares += square[lane]
    if present == 0:
        return news, np.nan, np.nan
    return news, squares / present, beyond / present


@helper
def keep_weights(slots, offsets, order, places, degree, cut_now, any_cut, weights, rebuild):
    """Weights that fit the degrees after a cut, if there are weights."""
    if weights is not None:
        if rebuild:
            build_weights(slots, offsets, order, degree, weights)
        elif any_cut:
            mend_weights(slots, offsets, places, degree, cut_now, weights)


@helper
def keep_flows(slots, offsets, places, cut_now, any_cut, flows):
    """No flow on edges that were cut, if there are flows."""
    if flows is not None and any_cut:
        return_flows(slots, offsets, places, cut_now, flows)


@helper
def restart_cut(restarts, cut_now, t):
    """Those who were cut restart, where everybody has a clock of its own."""
    if restarts is not None:
        for a in range(cut_now.size):
            if cut_now[a]:
                restarts[0, a] = t


@kernel
def march(
    pairs, slots, offsets, order, places, degree, cut_now, tally, class_, weights, rebuild, flows, heard, spare,
    estimate, means, row, t, pruned, drifts, radii, listed, ends, threshold, skin, looks, everybody, common, restarts,
    gossip, turn, settled, fixed, step, gaps, truth, tolerance, out,
):  # fmt: skip
    """Steps t, t + 1, .. with the means of rows row, row + 1, .. until a full look is needed. `pruned`: the first of
    them is pruned already. out[row] = mean squared error, error rate, and the tally.

    Returns (rows done, looks left, common restart, turn and whether settled of the gossip)."""
    done = 0
    for i in range(row, means.shape[0]):
        if not pruned:
            needed = slack_needed(drifts[i], threshold, radii[i])
            if not 0.0 <= needed < skin or looks <= 0.0:
                break
            if tally[CUT] > 0:
                cut_now[:] = 0
                tally[CUT] = 0
            n_listed = ends[bucket(needed, skin)]
            looks -= n_listed
            cut_listed(slots, offsets, places, degree, cut_now, tally, means[i], radii[i], class_, listed, n_listed)
        pruned = False
        any_cut, now = tally[CUT] > 0, max(t, START)
        keep_weights(slots, offsets, order, places, degree, cut_now, any_cut, weights, rebuild)
        keep_flows(slots, offsets, places, cut_now, any_cut, flows)
        if any_cut:
            common = now if everybody else common
            if not gossip:
                restart_cut(restarts, cut_now, now)
        listen = gossip and (any_cut or not settled or gaps is not None)
        turn = 1 - turn if listen else turn
        news, mse, error_rate = average(
            pairs, offsets, order, weights, flows, degree, cut_now, tally, heard, spare, means[i], estimate, t, common,
            restarts, turn, listen, fixed, step, gaps, truth, tolerance,
        )  # fmt: skip
        settled = not news
        heard, spare = spare, heard
        out[i, 0], out[i, 1] = mse, error_rate
        out[i, 2], out[i, 3], out[i, 4] = tally[WRONG], tally[LOST], tally[ISOLATED]
        done += 1
        t += 1
    return done, looks, common, turn, settled
