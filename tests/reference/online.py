"""CL-colME event by event: dense matrices and plain Python, for a given graph.

An event (a, x): a counts x; drops every neighbor b with |X_a - X_b| > R_a + R_b, where R_b is what b had at its own
last event; works out alpha = k / (k + 1), k its own samples since its clock restarted; and leans towards its kept
neighbors,

    y_a <- (1 - alpha) X_a + alpha (y_a - b (L y)_a),

with L of the graph that is left, between those who have an estimate.
"""

import math
from collections.abc import Iterator

import numpy as np

from .common import Array, laplace_radius
from .cuts import any_counts, precision
from .guard import filtered, first_belief, read

QUARTER = 0.25  # agents with less than this part of the mean number of samples have a weight of their own


def online(
    events: list[tuple[int, float]], adjacency: Array, *, sigma: float, gamma: float, step: float, clock: str,
    cut: str = "intervals",
) -> Iterator[tuple[Array, Array]]:  # fmt: skip
    """Estimates and adjacency after each event; with cut="difference", gamma is the alpha of rule F."""
    n = len(adjacency)
    graph = np.array(adjacency, bool)
    samples: list[list[float]] = [[] for _ in range(n)]
    radius = [math.inf] * n
    last_cut, news, restart = [0] * n, [0] * n, [2] * n
    cut_anywhere = 0
    y = np.full(n, np.nan)

    for number, (a, x) in enumerate(events, start=1):
        samples[a].append(x)
        count = len(samples[a])
        mean = [float(np.mean(s)) if s else math.nan for s in samples]
        radius[a] = laplace_radius(count, sigma, gamma)

        for b in range(n):
            if not (graph[a, b] and samples[b]):
                continue
            apart = abs(mean[a] - mean[b]) > radius[a] + radius[b]
            if cut == "difference":
                v_a, v_b = (sigma**2 / len(samples[each]) for each in (a, b))
                apart = (mean[a] - mean[b]) ** 2 > any_counts(v_a, v_b, precision(sigma, sigma), gamma)
            if apart:
                graph[a, b] = graph[b, a] = False
                last_cut[a] = last_cut[b] = cut_anywhere = number

        known = {
            "harmonic": [0],
            "own": [last_cut[a]],
            "global": [last_cut[a], cut_anywhere],
            "gossip": [last_cut[a], *(news[b] for b in range(n) if graph[a, b])],
        }[clock]
        if max(known) > news[a]:
            news[a] = max(known)
            restart[a] = max(count, 2)
        k = count - restart[a] + 1
        alpha = k / (k + 1)

        if math.isnan(y[a]) or not graph[a].any():
            y[a] = mean[a]
            yield y.copy(), graph
            continue
        speaks = ~np.isnan(y)
        edges = (graph & np.outer(speaks, speaks)).astype(float)
        laplacian = np.diag(edges.sum(axis=1)) - edges
        pull = -float(laplacian[a] @ np.where(speaks, y, 0.0))
        y[a] = (1 - alpha) * mean[a] + alpha * (y[a] + step * pull)
        yield y.copy(), graph


def guarded(
    events: list[tuple[int, float]], estimates: list[Array], *, trusting: bool, given: int = 0
) -> tuple[Array, list[tuple[int, float, float]]]:
    """The guarded estimates after the last event; and per vote its event, and lambda of newcomers and of others.

    estimates[i] are all agents' after event i, NaN without a sample. `given`: agents of a graph, which are there before
    their first sample; 0: agents come with it. What a vote keeps is judged at the next one by the mean of the samples
    that came in between, one judgment per agent; sums are multiplied by the harmonic mean of their numbers, weighted
    by d^2, so that they are those of so many samples.

    A vote is due when as many samples came as there are agents, and a twentieth of all; or a fifth more agents.
    """
    n = len(estimates[0])
    samples: list[list[float]] = [[] for _ in range(n)]
    beliefs = [first_belief(trusting), first_belief(trusting)]  # of newcomers and of others
    weight = [read(beliefs[0], trusting), read(beliefs[1], trusting)]
    learned, judged = [1.0, 1.0], [1.0, 1.0]  # events at the vote that learned it, and at the vote that it judged
    kept: dict[int, tuple[int, float, float]] = {}  # samples, mean and estimate of each agent at the last vote
    few, vote, agents_then = 0.0, 1, 1
    before = 1.0
    votes = []

    def now(event: int) -> list[float]:
        aged = [w if w == 1 else w * since / event for w, since in zip(weight, judged, strict=True)]
        return aged if beliefs[0].judged else [min(aged), aged[1]]

    for event, (a, x) in enumerate(events, start=1):
        samples[a].append(x)
        agents = given or sum(1 for s in samples if s)
        if event < vote and agents < agents_then:
            continue

        # once for newcomers, once for others
        for young in (True, False):
            k, d, g = [], [], []
            for b, (count, X, y) in kept.items():
                new = samples[b][count:]
                if new and (count < few) == young:
                    k.append(len(new))
                    d.append(y - X)
                    g.append((float(np.mean(new)) - X) * (y - X))
            squares = np.square(d)
            if not squares.sum() > 0:
                continue
            c = squares.sum() / (squares / k).sum()
            A, D, Q = c * sum(g), c * float(squares.sum()), c * c * float(np.square(g).sum())
            i = 0 if young else 1
            u = math.log(event / (learned[i] if beliefs[i].judged else before))
            beliefs[i] = filtered(beliefs[i], min(A, D + math.sqrt(Q)), D, Q, u)
            weight[i], learned[i], judged[i] = read(beliefs[i], trusting), event, before

        kept = {b: (len(s), float(np.mean(s)), float(estimates[event - 1][b])) for b, s in enumerate(samples) if s}
        few = QUARTER * event / agents
        before = event
        vote = event + max(agents, math.ceil(event / 20))
        agents_then = max(math.ceil(1.2 * agents), agents + 1)
        votes.append((event, *now(event)))

    X = np.array([np.mean(s) if s else math.nan for s in samples])
    y = estimates[len(events) - 1]
    count = np.array([len(s) for s in samples])
    lam = np.where(count < few, *now(len(events)))
    return np.where(lam == 1, y, X + lam * (y - X)), votes
