"""How patient a node is, derived from what its network is like: every knob has a formula.

    preset   round trip   loss    lease   retry            for
    local        1 ms      0 %    1 s     0.1 .. 0.5 s     one machine
    lan         10 ms      1 %    2 s     0.1 .. 1 s       one building, wired or good radio
    wan        150 ms     20 %    5 s     0.3 .. 2.5 s     links between sites, bad radio

lease         a neighbor from which nothing came for so long is taken for gone. TCP sends a lost packet again after
              0.2 s + 2 round trips, then after twice that, ...: k losses in a row take (2^k - 1) of them. k is such
              that at most 1 % of packets meet more, and a third is added because there are four signs of life per
              lease:  lease = 4/3 (2^k - 1) (0.2 s + 2 rtt), up to the next half second, and at least 1 s, or 2 s off
              one machine (measured: 2 s flaps at 20 % loss and 50 ms each way, twice that does not)
retry         a dialled neighbor that does not answer is dialled again after two round trips (at least 0.1 s), then
              half as long again each time, up to lease / 2: a healed link is used before a lease has passed
freshness     a record counts until it is 5 periods + lease old: five lost records in a row or one lost link, no more
max_neighbors twice those at the start, at least 14, and no more than there are members: neighbors come and go; with
              [join] three times the degree that is wanted
rx_threads    2 more than the neighbors at the start, or those it wants: closing a dead link may hold a thread for ten
              seconds, and two must be free to listen. More threads cost time: 20 instead of 8, a tenth of the process
max_sessions  2 max_neighbors + 2: the old link of a neighbor that restarted lives on for a lease
max_record    twice 128 bytes for the head and intervals and 16 for each item: flows have one per neighbor, the ballots
              of a census at most 1024; twice, so that a later version may say more. For hosts of many agents 60 000,
              a part of a frame: with what zenoh adds it is below its batch of 65 535
max_rate      4 records per period from each neighbor: room for jitter, none for a flood
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from colme.errors import NodeError, one_of


@dataclass(frozen=True)
class Preset:
    """What a network is like: the time there and back in seconds, the share of packets lost, the shortest lease."""

    round_trip: float
    loss: float
    shortest_lease: float

    @property
    def lease(self) -> float:
        losses = math.ceil(math.log(0.01) / math.log(self.loss)) if self.loss > 0 else 0
        resent = 4 / 3 * (2**losses - 1) * (0.2 + 2 * self.round_trip)
        return max(self.shortest_lease, math.ceil(2 * resent) / 2)

    @property
    def first_retry(self) -> float:
        return max(0.1, 2 * self.round_trip)


PRESETS = {
    "local": Preset(0.001, 0.0, 1.0),
    "lan": Preset(0.01, 0.01, 2.0),
    "wan": Preset(0.15, 0.2, 2.0),
}


def preset(name: str) -> Preset:
    one_of(name, PRESETS, "preset", NodeError)
    return PRESETS[name]


def last_retry(lease: float) -> float:
    """The longest pause between two attempts to reach a neighbor, in seconds."""
    return lease / 2


def freshness(period: float, lease: float) -> float:
    """How old the last record of a neighbor may be, in seconds, to count."""
    return 5 * period + lease


def max_neighbors(n_neighbors: int, n_members: int) -> int:
    return min(n_members, max(14, 2 * n_neighbors))


def rx_threads(n_neighbors: int) -> int:
    return n_neighbors + 2


def max_sessions(max_neighbors: int) -> int:
    return 2 * max_neighbors + 2


def max_record(n_items: int) -> int:
    """Bytes of the longest message that is let in."""
    return 2 * (128 + 16 * n_items)


def max_rate(tick_rate: float) -> float:
    """Records per second accepted from a neighbor."""
    return 4 * tick_rate
