"""Backoff: repeat what is not acknowledged after 1, 2, 4, ... ticks.

Everything in the node that repeats on its own schedule uses it: notices of cut edges, membership requests, and searches
for peers; in seconds instead of ticks, new sessions for neighbors that stay silent. Links that are down are redialed by
zenoh and by the MQTT client, which have their own (`zenoh_settings`).
"""

from __future__ import annotations

import msgspec

LONGEST = 64
"""Ticks between two repetitions, at most, unless said otherwise."""
_MOST_TRIES = 62  # 2^62 ticks is forever


class Backoff(msgspec.Struct):
    """Waiting times in ticks that double with every try.

    longest   the longest wait
    tries     so far
    left      ticks left until the next try is due, for `due`
    """

    longest: int = LONGEST
    tries: int = 0
    left: int = 0

    def next_wait(self) -> int:
        """Count a try, and return how long to wait before the next."""
        wait = min(2**self.tries, self.longest)
        self.tries = min(self.tries + 1, _MOST_TRIES)
        return wait

    def due(self) -> bool:
        """Whether to try at this tick. Call it once per tick."""
        due = self.left == 0
        if due:
            self.left = self.next_wait()
        self.left -= 1
        return due

    def reset(self) -> None:
        self.tries = self.left = 0
