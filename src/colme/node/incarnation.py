"""Incarnations: the number by which neighbors tell the present life of an agent from earlier ones.

Neighbors refuse records of an incarnation that is lower than one they have heard; so each start needs a higher one than
all before, also if the store was lost or is an old copy. It is

    max(stored + 1, Unix seconds)

and is on the disk before anything is said. That fails only if both fail: the store is lost or old, *and* the clock is
behind, as on a board without a battery-backed clock before it is set. The agent is then refused, and must learn it: a
neighbor answers with the newest mark (incarnation, epoch) that it has heard from this agent (`OLD` in `messages/wire`).
If that is newer than anything this life has sent, somebody used the name later than the store knows: the agent itself,
before the store was lost. So it continues one above.

How far can a liar push it? To `highest(clock)`, ten years from now, and not further, however many messages it sends:
the bound does not depend on the agent's own incarnation. There it does no harm. Later starts add one each; and wherever
a liar can have pushed the agent at any time before, honest neighbors may bring it up to the same place after its store
was lost, since the bound moves with the clock. 2^32 - 1, the last incarnation, is out of reach until 2096. How often an
agent moves is limited by a `Backoff`, because every move is a write to the disk.

A clock before `RELEASE` is certainly wrong, so the bound is never less than ten years from then. Off loopback
certificates are not valid in 1970: links open once the clock is set, and the bound is then the right one.

What is left: an agent whose clock was once more than ten years ahead, and that lost its store after that, is refused
for good, and says so.
"""

from __future__ import annotations

RELEASE = 1_767_225_600
"""Unix seconds of 2026-01-01, when this was written: no correct clock is behind it."""
SLACK = 10 * 365 * 86_400
"""Seconds that a known incarnation may be ahead of the clock."""


def lowest(clock: float) -> int:
    """The lowest incarnation of an agent that starts at this time, in Unix seconds. A clock that is too far ahead does
    not count."""
    seconds = int(clock) if 0.0 <= clock < 2**32 else 0
    return max(seconds, 1) if seconds <= 2**32 - 1 - SLACK else 1


def highest(clock: float) -> int:
    """The highest incarnation that an agent takes from the word of a neighbor."""
    return min(max(int(clock), RELEASE) + SLACK, 2**32 - 2)
