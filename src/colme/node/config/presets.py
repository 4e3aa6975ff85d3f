"""Presets: timeouts and limits of a node, derived from what its network is like. Every setting has a formula.

    preset   round trip   loss    lease   retry            for
    local        1 ms      0 %    1 s     0.1 .. 0.5 s     one machine
    lan         10 ms      1 %    2 s     0.1 .. 0.5 s     one building, wired or good radio
    wan        150 ms     20 %    5 s     0.3 .. 0.5 s     links between sites, bad radio

degree        6 neighbors per agent, or fewer in a small network
lease         a neighbor that sent nothing for this long is considered gone. TCP resends a lost packet after 0.2 s + 2
              round trips, then after twice that, and so on: k losses in a row take (2^k - 1) times as long. k is such
              that at most 1 % of packets are lost more often, and a third is added because there are four keep-alives
              per lease:  lease = 4/3 (2^k - 1) (0.2 s + 2 rtt), rounded up to half a second, and at least 1 s, or 2 s
              off one machine (measured: 2 s flaps at 20 % loss and 50 ms each way, 4 s does not)
attempt       opening a link may take 2 s + 5 round trips: it has six or seven, and may lose a SYN (1 s) and another
              packet or two. After that it begins anew, because TCP waits for twice as long after each loss
retry         a neighbor that does not answer is dialed again after two round trips (at least 0.1 s), then after 1.5
              times as long each time, up to 0.5 s; after long silence up to lease / 2. A neighbor that is not heard for
              half the freshness is dialed by two sessions, then by three, at different moments, and by both ends. With
              20 % loss one attempt after the other takes 3 s or more in half of the cases, six at a time in a few of a
              hundred
head start    of two agents that can both be dialed the lesser name waits for 5 first retries before it dials
freshness     a record counts until it is 5 periods + lease old: it survives five lost records in a row or one lost link
max_neighbors twice the neighbors at the start, at least 14, and at most the members of the network; with [join] three
              times the degree. A newcomer brings `degree` edges, so when all agents come one by one the mean degree is
              twice `degree`; with room for no more than that, only the last to come would have any room
rx_threads    2 more than the neighbors at the start (or the degree), at most 256: closing a dead link may hold a thread
              for ten seconds, and two must be free to receive. More threads cost time: 20 instead of 8, a tenth of the
              process
max_sessions  4 max_neighbors + 2: each may try to open three, and the old link of one that restarted lives on for a
              lease
max_record    twice (128 bytes for the head and intervals + 16 for each item): flows have one item per neighbor, the
              histogram of a census at most 1024; twice, so that a later version may add fields.
max_rate      4 records per period from each neighbor: room for jitter, none for a flood
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from colme.errors import NodeError, one_of

DEGREE = 6
"""Neighbors that an agent has by default."""
MOST_THREADS = 256
"""Threads that receive, at most: as many tasks as the unit of systemd allows."""
TICK_RATES = (1e-5, 1000.0)
"""Records per second, at least (one a day) and at most (a step takes 0.1 ms)."""
SECONDS = (0.001, 1e7)
"""Seconds that a setting may say, at least and at most (four months)."""
ATTEMPTS = 3
"""Links that an agent tries to open to a neighbor that it does not hear."""
MOST_LINKS = 2 * ATTEMPTS
"""Links that one agent may have at another: those that it tries to open, and as many that its last process left."""


def default_degree(n_agents: int) -> int:
    """The degree of a random regular graph on so many agents; n_agents x degree must be even."""
    degree = min(DEGREE, n_agents - 1)
    return degree - n_agents * degree % 2


def max_degree(degree: int) -> int:
    """Neighbors that an agent accepts if it wants `degree`."""
    return 3 * degree


@dataclass(frozen=True)
class Preset:
    """What a network is like: round-trip time in seconds, share of packets lost, and the shortest lease in seconds."""

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

    @property
    def attempt(self) -> float:
        return 2.0 + 5 * self.round_trip

    @property
    def head_start(self) -> float:
        return 5 * self.first_retry


PRESETS = {
    "local": Preset(0.001, 0.0, 1.0),
    "lan": Preset(0.01, 0.01, 2.0),
    "wan": Preset(0.15, 0.2, 2.0),
}


def preset(name: str) -> Preset:
    one_of(name, PRESETS, "preset", NodeError)
    return PRESETS[name]


def last_retry(lease: float, patience: int = 1) -> float:
    """The longest wait between two attempts to dial a neighbor, in seconds."""
    return min(0.5 * patience, lease / 2)


def freshness(period: float, lease: float) -> float:
    """The age in seconds up to which the last record of a neighbor counts."""
    return 5 * period + lease


def max_neighbors(n_neighbors: int, n_members: int) -> int:
    return min(n_members, max(14, 2 * n_neighbors))


def rx_threads(n_neighbors: int) -> int:
    return min(n_neighbors + 2, MOST_THREADS)


def max_sessions(max_neighbors: int) -> int:
    return (ATTEMPTS + 1) * max_neighbors + 2


def max_record(n_items: int) -> int:
    """Size in bytes of the longest message that is accepted."""
    return 2 * (128 + 16 * n_items)


def max_rate(tick_rate: float) -> float:
    """Records per second accepted from a neighbor."""
    return 4 * tick_rate
