"""The kernels of eight runs side by side on one graph: agent a of run k at place 8 a + k of every array.

A neighbor's index, and the line of the cache that holds its eight estimates, then serve eight runs. Whether a run keeps
an edge is a bit of the edge's byte. Everything else is arithmetic on long arrays. Sums are taken in the same order as
in a run alone, so the bits are the same.
"""

from __future__ import annotations

import numpy as np

from colme._core.jit import LANES, chunk_like, helper, kernel, lanes_like, wide_vectors
from colme._core.lazy_pruning import bucket, slack_needed
from colme._core.neighbor_table import CUT, ISOLATED, LOST, WRONG
from colme._core.random import VALUE, box_muller, philox
from colme._core.simd import ABREAST, lean_on_rows
from colme.confidence import too_far
from colme.consensus import START, blend, clock_rate, next_estimate
from colme.metrics import METRICS, OF_METHOD
from colme.samples import running_mean

u8, u32, u64, f32, f64 = np.uint8, np.uint32, np.uint64, np.float32, np.float64

ROOM = LANES * ABREAST
"""Places of a block."""
MSE, RATE, TALLY, LOCAL_MSE, LOCAL_RATE, ORACLE = 0, 1, 2, *range(len(OF_METHOD), len(METRICS))
"""Columns of the metrics: those of the method, then those of the run."""


@helper
def cut_abreast(indptr, indices, masks, degree, tally, class_, a, b):
    """Cut the edge between two places, of the same run."""
    k = a % u64(ABREAST)
    for end, other in ((a, b), (b, a)):
        agent, neighbor = end // u64(ABREAST), u32(other // u64(ABREAST))
        for e in range(u64(indptr[agent]), u64(indptr[agent + u64(1)])):
            if indices[e] == neighbor:
                masks[e] = masks[e] & u8(u64(0xFF) ^ (u64(1) << k))
        degree[end] -= u32(1)
        tally[k, ISOLATED] += int(degree[end] == 0)
    if class_[a] != class_[b]:
        tally[k, WRONG] -= 1
    else:
        tally[k, LOST] += 1
    tally[k, CUT] += 1


@kernel
def look_at_all_abreast(
    indptr, indices, masks, degree, tally, mean, radius, class_, near, far, reference, found
):  # fmt: skip
    """As `colme._core.lazy_pruning` does for one run; places are found instead of agents."""
    n_found, room = u64(0), u64(found.shape[0])
    near = f32(near)  # what is far is near, too
    complete = True
    for agent in range(u64(indptr.size - 1)):
        for e in range(u64(indptr[agent]), u64(indptr[agent + u64(1)])):
            neighbor, mask = u64(indices[e]), u32(masks[e])
            if neighbor < agent:
                continue
            if n_found + u64(ABREAST) > room:
                n_found, complete = u64(0), False
            a, b, is_near = u64(agent) * u64(ABREAST), neighbor * u64(ABREAST), u32(0)
            for k in range(u64(ABREAST)):
                is_near |= u32(abs(reference[a + k] - reference[b + k]) > near) << u32(k)
            if is_near & mask == u32(0):
                continue
            for k in range(u64(ABREAST)):
                if (is_near & mask) >> u32(k) & u32(1):
                    found[n_found, 0], found[n_found, 1] = u32(a + k), u32(b + k)
                    n_found += u64(1)
                    if too_far(mean[a + k], mean[b + k], radius, radius):
                        cut_abreast(indptr, indices, masks, degree, tally, class_, a + k, b + k)
    return n_found, complete


@kernel
def draw_block(block, t, counters, key0, key1, words, noise):
    """Standard normals of a block's places at step t. In two loops, for each fits the registers."""
    wide_vectors()
    quarter, half, rest = u64(ROOM // 4), u64(ROOM // 2), u64(3 * ROOM // 4)
    for i in range(quarter):
        w0, w1, w2, w3 = philox(counters[i] + (u64(block) << u64(4)), t, VALUE, 0, key0[i], key1[i])
        words[i], words[i + quarter], words[i + half], words[i + rest] = w0, w1, w2, w3
    for i in range(quarter):
        noise[i], noise[i + quarter] = box_muller(words[i], words[i + quarter])
        noise[i + half], noise[i + rest] = box_muller(words[i + half], words[i + rest])


@helper
def true_means(class_, class_truth, start, size, truth):
    """The true means of a block's places, from their classes: one byte to read instead of eight."""
    for i in range(size):
        truth[i] = class_truth[0]
    for c in range(u64(1), u64(class_truth.size)):
        its = class_truth[c]
        for i in range(size):
            truth[i] = its if class_[start + u64(i)] == u8(c) else truth[i]


@helper
def add_errors(new, truth, size, tolerance, square, beyond):
    """Squared errors place by place, and errors beyond the tolerance run by run (every eighth of 64 lanes)."""
    for row in range((size + u64(63)) >> u64(6)):
        start = u64(row) << u64(6)
        for lane in range(min(u64(64), size - start)):
            error = new[start + u64(lane)] - truth[start + u64(lane)]
            square[start + u64(lane)] += error * error
            beyond[lane] += 1 if abs(error) > tolerance else 0


@helper
def sum_up(square, beyond, k, n):
    """(mean of the squares, share beyond) of run k."""
    squares, many = 0.0, 0
    for lane in range(u64(LANES)):
        squares += square[lane * u64(ABREAST) + k]
    for i in range(u64(LANES // ABREAST)):
        many += beyond[i * u64(ABREAST) + k]
    return squares / n, many / n


@kernel
def march_abreast(
    indptr, indices, masks, degree, tally, class_, class_size, class_truth, sigma, counters, key0, key1, mean, estimate,
    heard, spare, reference, t, first, last, pruned, drift, radii, listed, ends, threshold, skin, looks, everybody,
    restart, fixed, step, tolerance, end, out,
):  # fmt: skip
    """Steps t to last, until a full look is needed. The means are those of step t; each step makes those of the next on
    its way, except the step `end`. Step 0 makes those of step 1 only. Rows of `radii`, and of `out` with the metrics of
    every run, are those of the steps first, first + 1, ..

    Returns (the next step to do, looks left, drift of the means)."""
    n, n_classes = u64(indptr.size - 1), u64(class_truth.size)
    pull, noise, new, truth = chunk_like(heard), chunk_like(heard), chunk_like(mean), chunk_like(mean)
    square, local_square = chunk_like(mean), chunk_like(mean)
    totals = np.empty(n_classes * u64(ROOM))
    beyond, local_beyond = lanes_like(indptr), lanes_like(indptr)
    most, alpha, words = lanes_like(mean), chunk_like(mean), chunk_like(indices)
    while t <= last:
        if t > 0 and not pruned:
            needed = slack_needed(drift, threshold, radii[t - first])
            if not 0.0 <= needed < skin or looks <= 0.0:
                break
            tally[:, CUT] = 0
            n_listed = ends[bucket(needed, skin)]
            looks -= n_listed
            for q in range(n_listed):
                a, b = u64(listed[q, 0]), u64(listed[q, 1])
                if too_far(mean[a], mean[b], radii[t - first], radii[t - first]):
                    cut_abreast(indptr, indices, masks, degree, tally, class_, a, b)
                    listed[q, 0] = listed[q, 1]
        pruned = False
        plain, averaging, going_on = t > 1, t > 0, t < end
        for k in range(u64(ABREAST)):
            if everybody and tally[k, CUT] > 0:
                restart[k] = max(t, START)
            plain &= tally[k, ISOLATED] == 0
            for i in range(u64(LANES)):
                alpha[i * u64(ABREAST) + k] = fixed if fixed >= 0.0 else clock_rate(t, restart[k])
        for i in range(u64(ROOM)):
            square[i] = local_square[i] = 0.0
        for i in range(n_classes * u64(ROOM)):
            totals[i] = 0.0
        for lane in range(u64(LANES)):
            beyond[lane] = local_beyond[lane] = 0
            most[lane] = 0.0
        for block in range((n + u64(63)) >> u64(6)):
            agent = u64(block) << u64(6)
            agents = min(u64(64), n - agent)
            start, size = agent * u64(ABREAST), agents * u64(ABREAST)
            true_means(class_, class_truth, start, size, truth)
            if averaging:
                for lane in range(agents):
                    edge, until = u64(indptr[agent + u64(lane)]), u64(indptr[agent + u64(lane) + u64(1)])
                    place = u64(lane) * u64(ABREAST)
                    lean_on_rows(heard, start + place, indices, masks, edge, until, pull, place)
                for i in range(size if plain else u64(0)):
                    p = start + u64(i)
                    new[i] = blend(mean[p], estimate[p], f64(pull[i]), alpha[i], step)
                for i in range(u64(0) if plain else size):
                    p = start + u64(i)
                    new[i] = next_estimate(mean[p], estimate[p], f64(pull[i]), alpha[i], step, degree[p])
                for i in range(size):
                    estimate[start + u64(i)] = new[i]
                    spare[start + u64(i)] = new[i]
                add_errors(new, truth, size, tolerance, square, beyond)
        for block in range((n + u64(63)) >> u64(6)):
            agent = u64(block) << u64(6)
            agents = min(u64(64), n - agent)
            start, size = agent * u64(ABREAST), agents * u64(ABREAST)
            true_means(class_, class_truth, start, size, truth)
            if going_on:
                draw_block(block, t + 1, counters, key0, key1, words, noise)
                for i in range(size):
                    new[i] = running_mean(mean[start + u64(i)], truth[i] + sigma * f64(noise[i]), t + 1)
                for i in range(size):
                    mean[start + u64(i)] = new[i]
                for row in range((size + u64(63)) >> u64(6)):
                    base = u64(row) << u64(6)
                    for lane in range(min(u64(64), size - base)):
                        moved = abs(new[base + u64(lane)] - reference[start + base + u64(lane)])
                        most[lane] = moved if moved > most[lane] else most[lane]
                add_errors(new, truth, size, tolerance, local_square, local_beyond)
                for c in range(n_classes):
                    for i in range(size):
                        mine = class_[start + u64(i)] == u8(c)
                        totals[c * u64(ROOM) + u64(i)] += new[i] if mine else 0.0
        if going_on:
            drift = 0.0
            for lane in range(u64(LANES)):
                drift = max(drift, most[lane])
        for k in range(u64(ABREAST)):
            if averaging:
                row = t - first
                out[row, k, MSE], out[row, k, RATE] = sum_up(square, beyond, k, n)
                for i in range(CUT):
                    out[row, k, TALLY + i] = tally[k, i]
            if going_on:
                row = t + 1 - first
                out[row, k, LOCAL_MSE], out[row, k, LOCAL_RATE] = sum_up(local_square, local_beyond, k, n)
                error = 0.0
                for c in range(n_classes):
                    pooled, members = 0.0, class_size[k, c]
                    for lane in range(u64(LANES)):
                        pooled += totals[c * u64(ROOM) + lane * u64(ABREAST) + k]
                    if members > 0.0:
                        error += members * (pooled / members - class_truth[c]) ** 2
                out[row, k, ORACLE] = error / n
        if averaging:
            heard, spare = spare, heard
        t += 1
    return t, looks, drift
