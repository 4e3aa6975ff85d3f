"""Address book: the peers that an agent knows, and their endpoints. Bounded, so that no peer can fill it."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterable

ROOM = 64
"""Entries. A few dozen random ones are enough to find agents all over a large network."""
_MOST_AVOIDED = 4096
"""Names that are remembered as not worth inviting; beyond that, the oldest is forgotten."""


class AddressBook:
    """Names and endpoints. When it is full, a new name replaces a random one.

    admits   admits(name, endpoint): whether this peer may be dialed there
    """

    def __init__(self, me: str, admits: Callable[[str, str | None], bool], rng: random.Random):
        self.me, self.admits, self.rng = me, admits, rng
        self.endpoints: dict[str, str] = {}
        self.neighbor_of: dict[str, str] = {}  # the agent that says that it is its neighbor
        self._avoided: dict[str, int] = {}  # until this tick

    def add(self, name: str, endpoint: str | None, told_by: str, kept: Container[str]) -> bool:
        """Add a peer; True if it is new. Only the peer itself can replace its endpoint."""
        if endpoint is None or name == self.me or not self.admits(name, endpoint):
            return False
        new = name not in self.endpoints
        if new and len(self.endpoints) >= ROOM:
            others = [each for each in self.endpoints if each not in kept]
            if not others:
                return False
            self.remove(self.rng.choice(others))
        if new or told_by == name:
            self.endpoints[name] = endpoint
        return new

    def remove(self, name: str) -> None:
        self.endpoints.pop(name, None)
        self.neighbor_of.pop(name, None)

    def avoid(self, name: str, until: int) -> None:
        """Do not pick this peer before this tick."""
        self._avoided.pop(name, None)
        while len(self._avoided) >= _MOST_AVOIDED:
            del self._avoided[next(iter(self._avoided))]
        self._avoided[name] = until

    def avoid_nobody(self) -> None:
        self._avoided.clear()

    def pick(self, tick: int, without: Iterable[str], kept: Container[str]) -> str | None:
        """A random peer to invite; half of the time one that a kept neighbor has as a neighbor, if there is any."""
        taken = set(without)
        open_ = [b for b in self.endpoints if b not in taken and self._avoided.get(b, 0) <= tick]
        near = [b for b in open_ if self.neighbor_of.get(b) in kept]
        if near and self.rng.random() < 0.5:
            open_ = near
        return self.rng.choice(open_) if open_ else None

    def sample(self, n: int, among: Iterable[str]) -> list[tuple[str, str | None]]:
        """Up to n of these names, at random, with their endpoints."""
        known = [b for b in among if b in self.endpoints]
        return [(b, self.endpoints[b]) for b in self.rng.sample(known, min(n, len(known)))]
