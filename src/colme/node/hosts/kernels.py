"""Kernels of a host: one tick of all its agents. Numbers of equations are those of `methods/cl_colme.py`, and of
`methods/c_colme.py` or `methods/flow.py` where it says so; the equations are the simulator's own.

Arrays hold the agents of the host first, then the ghosts: agents of other hosts, as last received. The neighbors of
agent a are slots[indptr[a]:indptr[a+1]], in the order of summation; a slot that is cut holds a itself. `use` says which
agents count at this tick: all of the host, and ghosts with fresh state. The values of ghosts are bounded, see
`security/trust`, unless all hosts tick `together`: then it is the simulator's step, to the bit.
"""

from __future__ import annotations

import numpy as np

from colme._core.jit import at, helper, kernel
from colme.confidence import apart, fourth_moment_radius, laplace_radius, standard_error
from colme.consensus import (
    START,
    add_pull,
    add_weighted_pull,
    agreed_flow,
    clock_rate,
    metropolis_weight,
    next_estimate,
    next_flow,
    with_flows,
)  # fmt: skip
from colme.node.security.trust import MAX_FLOW, MAX_PULL, MOST_GENERATIONS, near
from colme.samples import running_mean

f32, f64 = np.float32, np.float64

GOSSIP, OWN, STILL = range(3)
"""How clocks restart: as heard of, at own cuts, never."""


@kernel
def observe(agents, values, count, mean, radius, spread, scale, gamma, kurtosis, fourth):
    """(1), sample by sample, the radii that follow, and standard errors where agents compare these (`spread`). There is
    no table of radii: it would grow with the counts."""
    for i in range(agents.size):
        a = agents[i]
        count[a] += 1
        mean[a] = running_mean(mean[a], values[i], count[a])
        if fourth:
            unit = fourth_moment_radius(count[a], 1.0, gamma, kurtosis)
        else:
            unit = laplace_radius(count[a], 1.0, gamma)
        radius[a] = at(scale, a) * unit
        if spread is not None:
            spread[a] = standard_error(count[a], at(scale, a))


@helper
def sever_end(slots, degree, cut_now, flows, a, k):
    slots[k] = a
    degree[a] -= 1
    cut_now[a] = True
    if flows is not None:
        flows[k] = 0.0


@helper
def sever(slots, backs, degree, cut_now, flows, a, k):
    """Cut slot k of agent a, and the other end if that is here."""
    b = slots[k]
    sever_end(slots, degree, cut_now, flows, a, k)
    if backs[k] >= 0:
        sever_end(slots, degree, cut_now, flows, b, backs[k])


@kernel
def sever_all(rows, slots, backs, degree, cut_now, flows, which):
    """Cut these slots, which live."""
    for i in range(which.size):
        sever(slots, backs, degree, cut_now, flows, rows[which[i]], which[i])


@kernel
def prune(indptr, slots, backs, use, mean, spread, test, degree, cut_now, flows):
    """(2), see `colme.confidence.apart`; returns how many edges were cut."""
    n_cut = 0
    for a in range(indptr.size - 1):
        for k in range(indptr[a], indptr[a + 1]):
            b = slots[k]
            if use[b] and apart(mean[a], mean[b], spread[a], spread[b], test):
                sever(slots, backs, degree, cut_now, flows, a, k)
                n_cut += 1
    return n_cut


@kernel
def lean(
    indptr, slots, use, heard, spare, mean, radius, estimate, degree, weighted, cut_now, clock, fixed, restart,
    generation, ceiling, news, together, step, t,
):  # fmt: skip
    """(3) to (5), or C-colME's (3) to (6). What is heard next goes to `spare`, what is known next of restarts and how
    many there were to the two rows of `news`.

    Restarts on this host are told by its own ticks. A ghost's counts only if its generation is news, and not above the
    `ceiling` of what is believed."""
    n = indptr.size - 1
    zero, now, doubts = heard.dtype.type(0), max(t, START), mean.size > n and not together
    for a in range(n):
        own, pull, latest, newest = heard[a], zero, START, generation[a]
        most = MAX_PULL * (1.0 - (fixed if fixed >= 0.0 else clock_rate(t, restart[a]))) * radius[a]
        for k in range(indptr[a], indptr[a + 1]):
            b = slots[k]
            if b == a or not use[b]:
                continue
            said, doubted = heard[b], doubts and b >= n
            if doubted:
                said = f32(near(near(f64(said), f64(own), most), mean[a], radius[a]))
            if weighted:
                weight = f32(metropolis_weight(degree[a], degree[b]))  # C-colME: (4)
                pull = add_weighted_pull(pull, own, said, weight, True)  # C-colME: (5)
            else:
                pull = add_pull(pull, own, said, True)  # (4)
            if not doubted or generation[a] < generation[b] <= ceiling:
                latest = max(latest, restart[b])
                newest = max(newest, generation[b])
        known = restart[a]
        if clock == GOSSIP:
            known = max(known, latest)
            mine = cut_now[a] and now > known
            if cut_now[a]:
                known = max(known, now)
            if mean[a] != mean[a]:
                known = START
            news[1, a] = min(newest + (1 if mine else 0), MOST_GENERATIONS)
        elif clock == OWN and cut_now[a]:
            known = now
        news[0, a] = known
        alpha = fixed if fixed >= 0.0 else clock_rate(t, known)  # (3)
        estimate[a] = next_estimate(mean[a], estimate[a], f64(pull), alpha, step, degree[a])  # (5), C-colME: (6)
        if doubts:
            estimate[a] = near(estimate[a], mean[a], radius[a])
        spare[a] = estimate[a]


@kernel
def lend(indptr, slots, use, heard, spare, mean, radius, estimate, flows, theirs, together, step):
    """Flow: (3) and (4). What a ghost holds of an edge is in `theirs`, NaN if it did not say."""
    n = indptr.size - 1
    doubts = mean.size > n and not together
    for a in range(n):
        own, lent = heard[a], 0.0
        for k in range(indptr[a], indptr[a + 1]):
            b = slots[k]
            if b == a:
                continue
            if b < n:  # the other end holds the same with the other sign, to the bit
                flows[k] = next_flow(flows[k], own, heard[b], step, True)
            else:
                most = MAX_FLOW * radius[a]
                if use[b] and theirs[k] == theirs[k]:
                    said, flow = heard[b], theirs[k]
                    if doubts:
                        said, flow = f32(near(f64(said), mean[a], radius[a])), near(flow, 0.0, most)
                    flows[k] = next_flow(agreed_flow(flows[k], flow), own, said, step, True)
                if doubts:
                    flows[k] = near(flows[k], 0.0, most)
            lent += flows[k]
        estimate[a] = with_flows(mean[a], lent)
        if doubts:
            estimate[a] = near(estimate[a], mean[a], radius[a])
        spare[a] = estimate[a]
