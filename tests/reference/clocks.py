"""The clock alpha(t) of C-colME and CL-colME (METHODS section 8).

    alpha_a = k / (k + 1),   k = t - L_a + 1

L_a is the step at which the clock of a last restarted, at first 2, so that without cuts alpha = (t-1)/t.

harmonic   L_a = 2 always
own        L_a = max(t, 2) when a loses an edge at t
global     L_a = max(t, 2) for every a when any edge is cut at t
gossip     L_a(t) = max( own last cut up to t, L_b(t-1) over the neighbors b kept after the pruning of t )
constant   alpha is given, from t = 2 on
"""

from .common import Array

CLOCKS = ("harmonic", "own", "global", "gossip", "constant")


def check(clock: str, alpha: float | None) -> None:
    """Refuse an unknown clock, and an alpha where there must be none or none where there must be one."""
    if clock not in CLOCKS:
        raise ValueError(f"clock must be one of {CLOCKS}, not {clock!r}")
    if (clock == "constant") != (alpha is not None):
        raise ValueError("alpha belongs to the constant clock, and only to it")


def own_last_cut(t: int, own: list[int], before: Array, after: Array) -> list[int]:
    """For every agent the last step at which it lost an edge (2 if it lost none, or lost it at t = 1)."""
    new = list(own)
    for a in range(len(own)):
        for b in range(len(own)):
            if before[a, b] and not after[a, b]:
                new[a] = max(t, 2)
    return new


def restarts(
    clock: str, t: int, previous: list[int], own: list[int], before: Array, after: Array, count: Array
) -> list[int]:
    """L(t) from L(t-1) (`previous`), the own last cuts up to t, the graph before and after pruning, and n(t).

    In the gossip clock an absent agent (n = 0) stays at 2 and so has nothing to relay.
    """
    agents = len(previous)
    if clock == "own":
        return list(own)
    if clock == "global":
        return [max(t, 2)] * agents if (before != after).any() else list(previous)
    if clock == "gossip":
        new = []
        for a in range(agents):
            heard = [own[a]]
            for b in range(agents):
                if after[a, b]:
                    heard.append(previous[b])  # noqa: PERF401
            absent = count[a] == 0
            new.append(2 if absent else max(heard))
        return new
    return [2] * agents


def rate(clock: str, t: int, restart: int, alpha: float | None) -> float:
    """alpha_a(t)."""
    if clock == "constant":
        assert alpha is not None
        return alpha if t >= 2 else 0.0
    k = t - restart + 1
    return k / (k + 1)
