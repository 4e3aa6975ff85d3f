"""The guard: one weight between the local mean and any method's estimate, judged by samples not used yet.

    judge    when x(t) arrives, with X and y of step t-1:  d = y - X,  g = (x - X) d;  A += g,  D += d^2,  Q += g^2
    gossip   the averages of A, D and Q over the agents by rounds of consensus, one per step; times the number of
             agents heard they are totals
    filter   probabilities of lambda on a grid, after the evidence exp(-(lambda^2 D - 2 lambda A) / (2 sigma^2))
    read     1 if it has at least half of the probability, else the mean, aged by (evidence's step - 1) / t

The guarded estimate is X + lambda (y - X). y is the raw estimate of the method; the guarded one is never judged
and never returned to the method. Everything is in double precision, one agent at a time.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .common import Array

GRID = (0.0, 0.03, 0.1, 0.3, 0.6, 1.0)
MOVE = 0.3  # rate per e-fold of t at which probability moves to the neighbors on the grid
FALL = 0.1  # rate per e-fold of t at which all probability falls to lambda = 0
MEMORY = 15  # squared surprises remembered
TYPICAL = 0.455  # median of chi-squared with one degree of freedom: a typical squared surprise
EXCESSIVE = 3.0  # from this ratio to the typical one on the noise counts as larger than Q / D says
HESITATION = 8  # up to this step a wary guard halves its weights
EARLY = 32  # up to this step the rounds under way count, too

Vote = tuple[float, float, float]


@dataclass(frozen=True)
class Belief:
    """What the filter of one agent remembers between votes."""

    p: tuple[float, ...]
    """Probabilities of the values of GRID."""
    D: float = 0.0
    Q: float = 0.0
    """Sums over all votes that had evidence."""
    surprises: tuple[float, ...] = (TYPICAL,) * MEMORY
    """The last squared surprises, oldest first."""
    judged: bool = False
    """Whether any vote had evidence."""


def first_belief(trusting: bool) -> Belief:
    """Trusting: .8 on lambda = 1 and .05 on 0; wary: .1 and .6. The rest is spread evenly over all six values."""
    at_one, at_zero = (0.8, 0.05) if trusting else (0.1, 0.6)
    p = [(1 - at_one - at_zero) / len(GRID)] * len(GRID)
    p[0] += at_zero
    p[-1] += at_one
    return Belief(tuple(p))


def moved(p: tuple[float, ...], u: float) -> list[float]:
    """The probabilities after log-time u without evidence.

    First a share 1 - exp(-MOVE u) of each moves, half of it to either neighbor; at the two ends of the grid the half
    that has no neighbor stays. Then a share 1 - exp(-FALL u) of everything falls to lambda = 0.
    """
    half = (1 - math.exp(-MOVE * u)) / 2
    last = len(p) - 1
    spread = [0.0] * len(p)
    for i, share in enumerate(p):
        spread[i] += (1 - 2 * half) * share
        spread[max(i - 1, 0)] += half * share
        spread[min(i + 1, last)] += half * share
    fall = 1 - math.exp(-FALL * u)
    fallen = [(1 - fall) * share for share in spread]
    fallen[0] += fall
    return fallen


def filtered(belief: Belief, A: float, D: float, Q: float, u: float) -> Belief:
    """The belief after a vote with these totals, u = ln(t0 of this vote / t0 of the vote before).

    A vote without evidence (D or Q not positive: nothing was judged, y = X everywhere, or momentum overshot) only
    lets time pass, and counts as one typical surprise.
    """
    p = moved(belief.p, u)
    if not (D > 0 and Q > 0):
        return Belief(tuple(p), belief.D, belief.Q, (*belief.surprises[1:], TYPICAL), belief.judged)

    all_D, all_Q = belief.D + D, belief.Q + Q  # this vote included
    sigma2 = max(Q / D, all_Q / all_D)

    # how far A is from what the belief before this vote (and before it moved) predicts, in predicted deviations
    m = sum(share * value for share, value in zip(belief.p, GRID, strict=True))
    v = sum(share * value**2 for share, value in zip(belief.p, GRID, strict=True)) - m**2
    surprise = (A - m * D) ** 2 / (sigma2 * D + v * D**2)
    surprises = (*belief.surprises[1:], surprise)
    ratio = float(np.median(surprises)) / TYPICAL
    temper = ratio if ratio > EXCESSIVE else 1.0

    logs = []
    for share, value in zip(p, GRID, strict=True):
        evidence = -(value**2 * D - 2 * value * A) / (2 * temper * sigma2)
        logs.append(math.log(share) + evidence if share > 0 else -math.inf)
    largest = max(logs)
    weights = [math.exp(log - largest) for log in logs]
    total = sum(weights)
    return Belief(tuple(w / total for w in weights), all_D, all_Q, surprises, True)


def read(belief: Belief, trusting: bool) -> float:
    """The weight that a belief gives, before it ages. Wary and nothing judged yet: 0."""
    if not trusting and not belief.judged:
        return 0.0
    if belief.p[-1] >= 0.5:
        return 1.0
    return sum(share * value for share, value in zip(belief.p, GRID, strict=True))


def aged(weight: float, evidence: int, t: int) -> float:
    """The weight at step t of a vote that began at step `evidence`: below 1 it may be falling as 1 / t."""
    return weight if weight == 1 else weight * max(evidence - 1, 1) / t


def honest(A: float, D: float, Q: float, steps: int) -> bool:
    """Whether sums of at most `steps` judged samples can be these: |A| <= sqrt(steps Q) (Cauchy and Schwarz).

    It is checked where an agent's own sums enter a vote, that is on z(0), which neighbors see in the first round: sums
    that fail count as zeros. `steps` is the number of steps since the vote before began. An average with
    non-negative weights of sums that pass would pass, but with momentum weights may be negative: an honest agent's z(k)
    need not pass, so later rounds cannot be checked in this way. The margin of 1e-9 is for rounding: with one
    judged sample |A| = sqrt(Q) exactly.

    The check does not bound what one agent can do: a forged Q that is large makes the evidence of all others small,
    as 1 / Q, and that of the largest A allowed only as 1 / sqrt(Q) (`test_a_large_forged_q_is_the_limit_of_the_check`).
    """
    return (
        math.isfinite(A)
        and math.isfinite(D)
        and math.isfinite(Q)
        and D >= 0
        and Q >= 0
        and abs(A) <= math.sqrt(steps * Q) * (1 + 1e-9)
    )


def one_round(W: Array, momentum: float, z: Array, before: Array | None) -> Array:
    """z(1) = W z(0); then z(k+1) = c (W z(k) - z(k-1)) + z(k-1) with the momentum c."""
    return W @ z if before is None else momentum * (W @ z - before) + before


def guarded(
    means: Array,
    estimates: Array,
    samples: Array,
    W: Array,
    momentum: float,
    heard: Array,
    *,
    trusting: bool,
    refresh: float,
    rounds: int,
    forge: Callable[[int, list[Vote]], list[Vote]] | None = None,
) -> tuple[Array, Array]:
    """The guarded estimates and the weights lambda, both (T, N); row i belongs to step t = i + 1.

    means, estimates and samples are X(t), the raw y(t) and x(t), all (T, N). NaN: no sample at this step, no sample
    yet (X), no estimate (y). W is the (N, N) matrix of one round, heard[k - 1] the number of agents heard after k
    rounds, never counted as more than N. `forge` (t, own sums) -> sums as sent is for tests of forged votes.
    """
    steps, agents = samples.shape
    first = (~np.isnan(samples)).argmax(axis=0)  # row of the first sample
    own: list[Vote] = [(0.0, 0.0, 0.0)] * agents  # A, D, Q since the last vote began
    beliefs = [first_belief(trusting)] * agents
    began = 0  # step at which the last vote began; 0: none has
    evidence = 1  # step at which the last finished vote began; the first one counts from 1
    done = -1  # rounds made in the vote under way; -1: none is under way
    z = before = np.zeros((agents, 3))
    weights = np.full((steps, agents), math.nan)
    blend = np.full((steps, agents), math.nan)

    for t in range(1, steps + 1):
        # judge X and y of step t-1 by x(t), which neither of them has seen
        if t >= 2:
            for a in range(agents):
                x, X, y = samples[t - 1, a], means[t - 2, a], estimates[t - 2, a]
                if math.isnan(x) or math.isnan(X) or math.isnan(y):
                    continue
                if trusting and t - (first[a] + 1) <= (t - 1) / 4:  # its samples began in the last quarter of the time
                    continue
                d = y - X
                g = (x - X) * d
                A, D, Q = own[a]
                own[a] = (A + g, D + d * d, Q + g * g)

        # a new vote, with what has just been judged; own sums begin anew. No vote begins at the step at which
        # another ends, even with refresh = 1
        if done < 0 and t >= 2 and t >= refresh * began:
            sent = own if forge is None else forge(t, own)
            since = t - max(began, 1)
            z = np.array([vote if honest(*vote, since) else (0.0, 0.0, 0.0) for vote in sent])
            own = [(0.0, 0.0, 0.0)] * agents
            began, done = t, 0

        # one round; the filter is kept at the end of the vote, before it only serves this step (up to EARLY)
        latest = beliefs
        if done >= 0:
            z, before = one_round(W, momentum, z, None if done == 0 else before), z
            done += 1
            ended = done >= min(rounds, 2 + began // 3)
            if ended or t <= EARLY:
                u = math.log(began / evidence)
                h = np.minimum(heard[done - 1], agents)
                latest = [filtered(beliefs[a], *(float(total) for total in h[a] * z[a]), u) for a in range(agents)]
                if ended:
                    beliefs, evidence, done = latest, began, -1

        # a weight rests on the vote under way if its rounds count at this step, else on the last that ended
        rests_on = began if latest is not beliefs else evidence
        for a in range(agents):
            weight = read(latest[a], trusting)
            if t <= HESITATION and not trusting:
                weight /= 2
            weight = aged(weight, rests_on, t)
            X, y = means[t - 1, a], estimates[t - 1, a]
            weights[t - 1, a] = weight
            blend[t - 1, a] = y if weight == 1 else X + weight * (y - X)
    return blend, weights
