"""The consensus kernel: many steps of pruning, restarting clocks, averaging and measuring errors in one call.

`run_steps` makes step after step until a full check of the edges is needed (`colme._core.edges`). Numbers of
equations are those of `methods/cl_colme.py`, and of `methods/c_colme.py` or `methods/consensus.py` where it says
so.

It is compiled as one kernel because at a few thousand agents calling several kernels per step from Python costs as much
as drawing the samples. What a run does not have (weights, flows, gossip, gaps) is None, and the code for it is
compiled away. numba does so only where an argument is None, so functions that ask take the field, not its group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core.edges import CUT, ISOLATED, LOST, WRONG, block_of, bucket, check_candidates, slack_needed
from colme._core.jit import CHUNK, LANES, add_eight, chunk_like, equation, helper, inlined, kernel, read_eight
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
from colme.metrics import ISOLATED_AGENTS, LOST_EDGES, N_ERRORS, WRONG_EDGES, add_errors, errors_of
from colme.support.arrays import Array, Floats

f64, u32, u64 = np.float64, np.uint32, np.uint64


class Steps(NamedTuple):
    """The steps to make, one row each."""

    means: Floats
    """(steps, agents): the local means."""
    displacements: Floats
    """The largest distance of a mean from the reference means."""
    radii: Floats
    """The common radius of all intervals."""


class EstimateArrays(NamedTuple):
    """The estimates of all agents."""

    own: Floats
    """As each own agent holds its own."""
    heard: Array
    """As the neighbors hear them, of the step before, of all visible agents."""
    spare: Array
    """Those of this step are written here; the two change places after every step."""


class Averaging(NamedTuple):
    """How the estimates of the neighbors enter."""

    weights: Array | None
    """Metropolis' weight of each slot; None: all weights are one."""
    rebuild: bool
    """Compute all weights anew, instead of those that changed."""
    flows: Floats | None
    """The flow on each slot, for flow updating; None: estimates are blended as the clock says."""
    step: float
    """The step size b."""
    gaps: bool | None
    """True if some agent may have no sample yet; None if that cannot be."""
    like: Array
    """Any array of the type in which an agent adds up what its neighbors tell."""


class ClockState(NamedTuple):
    """What changes of the clocks from step to step (`colme.consensus.Restarts`)."""

    restarts: NDArray[np.int32] | None
    """Rows of last restarts, by visible agent, changed in place; None: all agents have the same."""
    common: int
    """The last restart, where all agents have the same."""
    turn: int
    """The row of `restarts` that holds those of now; the other is what agents told before."""
    settled: bool
    """Gossip changed nothing at the last step."""


class Target(NamedTuple):
    """What errors are measured against."""

    truth: Floats
    """The true means, or `NOT_KNOWN`."""
    tolerance: float
    """Errors beyond it are counted."""
    page: int
    """Agents of a page."""
    pages: Floats
    """Gets the sums of each page (`colme.metrics.add_errors`)."""


@equation
def add_neighbor(pull: Any, own: Any, neighbor: Any, weights: Any, flows: Any, step: Any, gaps: Any, k: Any) -> Any:
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
def restart_of(restarts: Any, turn: Any, a: Any, common: Any) -> Any:
    """The last restart that the agent of index a knows of, or that of all agents."""
    if restarts is None:
        return common
    return restarts[turn, a]


@equation
def next_restart(heard: Any, mine: Any, cut_now: Any, t: Any, mean: Any) -> Any:
    """The latest restart that an agent knows of. A cut is one. An agent without a sample neither hears nor tells."""
    latest = max(heard, mine)
    if cut_now:
        latest = max(latest, t)
    return latest if mean == mean else START


@helper
def add_told(table, block, width, heard, own, told, sums, i, weights, flows, step, gaps):
    """Add to sums[i:] what the neighbors of the rows of a block told, the first `width` of each, where the agents of
    these rows told own[i:]. `told` is room for a chunk of numbers."""
    k = u64(table.offsets[block])
    if weights is None and flows is None and gaps is None:
        for _ in range(width):
            for lane in range(u64(0), u64(LANES), u64(8)):
                add_eight(sums, own, i + u64(lane), heard, table.pairs, (k + u64(lane)) >> u64(1))  # (4)
            k += u64(LANES)
    else:
        for first in range(u64(0), width, u64(CHUNK // LANES)):  # as many as there is room for
            some = min(u64(CHUNK // LANES), width - u64(first))
            for slot in range(u64(0), some << u64(6), u64(8)):
                read_eight(told, u64(slot), heard, u64(0), table.slots, k + u64(slot))
            for j in range(some):
                for lane in range(u64(LANES)):  # (4), C-colME: (5), flow: (3)
                    sums[i + u64(lane)] = add_neighbor(
                        sums[i + u64(lane)], own[i + u64(lane)], told[(u64(j) << u64(6)) + u64(lane)],
                        weights, flows, step, gaps, k + u64(lane),
                    )  # fmt: skip
                k += u64(LANES)


@helper
def hear_restarts(table, block, width, restarts, turn, latest, i):
    """latest[i:] = the latest restart of which the rows of a block hear from their neighbors, where restarts are
    gossip."""
    if restarts is not None:
        told, before, k = chunk_like(restarts), restarts[1 - turn], u64(table.offsets[block])
        for lane in range(u64(LANES)):
            latest[i + u64(lane)] = START
        for first in range(u64(0), width, u64(CHUNK // LANES)):  # as many as there is room for
            some = min(u64(CHUNK // LANES), width - u64(first))
            for slot in range(u64(0), some << u64(6), u64(8)):
                read_eight(told, u64(slot), before, u64(0), table.slots, k + u64(slot))
            for j in range(some):
                for lane in range(u64(LANES)):
                    known = u32(told[(u64(j) << u64(6)) + u64(lane)])
                    latest[i + u64(lane)] = max(latest[i + u64(lane)], known)
            k += some << u64(6)


@helper
def gossip_restarts(restarts, turn, latest, row_of, cut_now, t, mean, base, size, own_start):
    """Where restarts are gossip: what the agents of a chunk know next. Returns whether any agent learned something."""
    news = False
    if restarts is not None:
        for i in range(size):
            a = base + u64(i)
            told = restarts[1 - turn, own_start + a]
            heard = np.int32(latest[u64(row_of[a])])
            restarts[turn, own_start + a] = next_restart(heard, told, cut_now[a], t, mean[a])
            news |= restarts[turn, own_start + a] != told
    return news


@inlined
def average(table, how, clock, restarts, heard, spare, estimate, mean, t, common, turn, listen, target):
    """y <- (1 - alpha) X + alpha (y + step * pull) for every own agent, or X + sum of flows, in place; what is heard
    next goes to `spare`, and the errors to the pages of `target`.

    With `listen`, agents hear of the neighbors' restarts of the step before, restarts[1 - turn], and make
    restarts[turn] from them; else restarts[turn] stand. Returns whether any was news."""
    offsets, step = table.offsets, how.step
    n, own_start, n_blocks = u64(mean.size), u64(table.own_start), u64(offsets.size - 1)
    new, latest = chunk_like(mean), chunk_like(table.slots)
    own, told = chunk_like(heard), chunk_like(heard)
    sums, pull = chunk_like(how.like), chunk_like(how.like)
    target.pages[:] = 0.0
    news = False
    all_plain = t > 1 and how.gaps is None and table.tally[ISOLATED] == 0
    for chunk in range((n + u64(CHUNK - 1)) >> u64(10)):
        base = u64(chunk) << u64(10)
        first_block = base >> u64(6)
        last_block = min(n_blocks, first_block + u64(CHUNK // LANES))
        n_rows = (last_block - first_block) << u64(6)
        for i in range(u64(0), n_rows, u64(8)):
            read_eight(own, u64(i), heard, own_start + base, table.order, base + u64(i))
        for i in range(n_rows):
            sums[i] = 0.0
        for block in range(first_block, last_block):
            _, _, _, width = block_of(offsets, block, n)
            width = width if t > 1 else u64(0)  # before the first step no agent has told anything
            i = (block - first_block) << u64(6)
            add_told(table, block, width, heard, own, told, sums, i, how.weights, how.flows, step, how.gaps)
            if listen:
                hear_restarts(table, block, width, restarts, turn, latest, i)
        for i in range(u64(0), n_rows, u64(8)):
            read_eight(pull, u64(i), sums, u64(0), table.row_of, base + u64(i))
        size = min(u64(CHUNK), n - base)
        if listen:
            news |= gossip_restarts(
                restarts, turn, latest, table.row_of, table.cut_now, t, mean, base, size, own_start
            )  # fmt: skip
        if how.flows is not None:
            for i in range(size):
                new[i] = with_flows(mean[base + u64(i)], f64(pull[i]))  # flow: (4)
        else:
            for i in range(size if all_plain else u64(0)):
                a = base + u64(i)
                alpha = clock_rate(clock, t, restart_of(restarts, turn, own_start + a, common))
                new[i] = blend(mean[a], estimate[a], f64(pull[i]), alpha, step)  # (5), C-colME: (6)
            for i in range(u64(0) if all_plain else size):
                a = base + u64(i)
                alpha = clock_rate(clock, t, restart_of(restarts, turn, own_start + a, common))
                new[i] = next_estimate(mean[a], estimate[a], f64(pull[i]), alpha, step, table.degree[own_start + a])
        for i in range(size):
            estimate[base + u64(i)] = new[i]
            spare[own_start + base + u64(i)] = new[i]
        add_errors(target.pages[base // u64(target.page)], new, target.truth, base, size, target.tolerance)
    return news


@helper
def update_weights(table, weights, rebuild, any_cut):
    """Weights that fit the degrees after a cut, if there are weights."""
    if weights is not None:
        if rebuild:
            build_weights(table, weights)
        elif any_cut:
            mend_weights(table, weights)


@helper
def update_flows(table, flows, any_cut):
    """No flow on edges that were cut, if there are flows."""
    if flows is not None and any_cut:
        return_flows(table, flows)


@helper
def restart_cut(restarts, cut_now, own_start, t):
    """Restart the agents that lost an edge, where every agent has a clock of its own."""
    if restarts is not None:
        for a in range(u64(cut_now.size)):
            if cut_now[a]:
                restarts[0, u64(own_start) + u64(a)] = t


@kernel
def run_steps(
    table, candidates, checks_left, how, clock, clock_state, estimates, target, steps, row, t, pruned, out
):  # fmt: skip
    """Make steps t, t + 1, .. with rows row, row + 1, .. of `steps`, until a full check of the edges is needed.

    table        the graph, a `NeighborTable`; pruned in place
    candidates   edges that may be parted soon (`Candidates`)
    checks_left  how many of them may be checked until a full check costs less
    how          of `Averaging`; weights and flows are changed in place
    clock        a `colme.consensus.Clock`
    clock_state  of `ClockState`, before the first of these steps
    estimates    of `EstimateArrays`; changed in place, `heard` and `spare` change places after every step
    target       of `Target`
    steps        of `Steps`
    row, t       the first row, and its step
    pruned       the edges are pruned for the first of these steps already
    out          the errors, wrong and lost edges and isolated agents of the own agents, in the columns of their metrics

    Returns (rows done, checks left) and what changed of the `ClockState`: common, turn, settled."""
    tally, cut_now = table.tally, table.cut_now
    heard, spare = estimates.heard, estimates.spare
    restarts, common, turn, settled = clock_state.restarts, clock_state.common, clock_state.turn, clock_state.settled
    done = 0
    for i in range(row, steps.means.shape[0]):
        if not pruned:
            needed = slack_needed(steps.displacements[i], candidates.threshold, steps.radii[i])
            if not 0.0 <= needed < candidates.skin or checks_left <= 0.0:
                break
            if tally[CUT] > 0:
                cut_now[:] = 0
                tally[CUT] = 0
            n_edges = candidates.ends[bucket(needed, candidates.skin)]
            checks_left -= n_edges
            check_candidates(table, steps.means[i], steps.radii[i], candidates.edges, n_edges)
        pruned = False
        any_cut, now = tally[CUT] > 0, max(t, START)
        update_weights(table, how.weights, how.rebuild, any_cut)
        update_flows(table, how.flows, any_cut)
        if any_cut:
            common = now if clock.common else common
            if not clock.gossip:
                restart_cut(restarts, cut_now, table.own_start, now)
        listen = clock.gossip and (any_cut or not settled or how.gaps is not None)
        turn = 1 - turn if listen else turn
        news = average(
            table, how, clock, restarts, heard, spare, estimates.own, steps.means[i], t, common, turn, listen, target
        )  # fmt: skip
        settled = not news
        heard, spare = spare, heard
        errors = errors_of(target.pages)
        for k in range(N_ERRORS):
            out[i, k] = errors[k]
        out[i, WRONG_EDGES], out[i, LOST_EDGES] = 0.5 * tally[WRONG], 0.5 * tally[LOST]
        out[i, ISOLATED_AGENTS] = tally[ISOLATED]
        done += 1
        t += 1
    return done, checks_left, common, turn, settled
