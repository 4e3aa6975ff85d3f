"""Whom an agent knows of, and where they are: bounded, and no single teller can fill it."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterable

ROOM = 64
"""Entries. A book of a few dozen, drawn at random, is enough to find agents all over a large network."""
_SHUNNED = 4096
"""Names that are remembered as not worth asking; more, and the oldest is asked again."""


class Book:
    """Names and endpoints. When it is full a new name takes the place of a random one.

    admits   whether somebody of this name may be dialled at this endpoint
    """

    def __init__(self, me: str, admits: Callable[[str, str | None], bool], rng: random.Random):
        self.me, self.admits, self.rng = me, admits, rng
        self.endpoints: dict[str, str] = {}
        self.via: dict[str, str] = {}  # of whom it is a neighbor, as that one says
        self._shunned: dict[str, int] = {}  # until which tick

    def note(self, name: str, endpoint: str | None, told_by: str, kept: Container[str]) -> bool:
        """Write a name down; whether it is new. An endpoint is replaced by nobody but its owner."""
        if endpoint is None or name == self.me or not self.admits(name, endpoint):
            return False
        new = name not in self.endpoints
        if new and len(self.endpoints) >= ROOM:
            others = [each for each in self.endpoints if each not in kept]
            if not others:
                return False
            self.strike(self.rng.choice(others))
        if new or told_by == name:
            self.endpoints[name] = endpoint
        return new

    def strike(self, name: str) -> None:
        self.endpoints.pop(name, None)
        self.via.pop(name, None)

    def shun(self, name: str, until: int) -> None:
        """Do not ask it before this tick."""
        self._shunned.pop(name, None)
        while len(self._shunned) >= _SHUNNED:
            del self._shunned[next(iter(self._shunned))]
        self._shunned[name] = until

    def pick(self, tick: int, without: Iterable[str], kept: Container[str]) -> str | None:
        """Somebody to ask, at random; of those whom a kept neighbor calls its neighbors half of the time."""
        taken = set(without)
        open_ = [b for b in self.endpoints if b not in taken and self._shunned.get(b, 0) <= tick]
        near = [b for b in open_ if self.via.get(b) in kept]
        if near and self.rng.random() < 0.5:
            open_ = near
        return self.rng.choice(open_) if open_ else None

    def sample(self, n: int, among: Iterable[str]) -> list[tuple[str, str | None]]:
        """Up to n of these names, at random, with their endpoints."""
        known = [b for b in among if b in self.endpoints]
        return [(b, self.endpoints[b]) for b in self.rng.sample(known, min(n, len(known)))]
