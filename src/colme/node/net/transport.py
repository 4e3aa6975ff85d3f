"""What an agent needs of a network: to tell its neighbors the newest it knows, and to hear the newest they said."""

from __future__ import annotations

from typing import Protocol


class Transport(Protocol):
    """One agent's door to its neighbors. It carries bytes and never blocks.

    Who is at the other end is for the transport to know: what `latest(n)` and `control()` ascribe to n was said by n,
    as far as the transport can tell (by certificate off loopback)."""

    def publish(self, record: bytes, part: int = 0) -> None:
        """The newest state, to all neighbors. It may get lost: the next one follows at the next tick. That of a host of
        many agents has parts."""

    def latest(self, neighbor: str, part: int = 0) -> bytes | None:
        """The newest record (part of a state) heard from a neighbor since the last call; None if there is none."""

    def send(self, neighbor: str, message: bytes) -> None:
        """A control message (a cut, an introduction, a flow). It may get lost: the core repeats it until it is
        acknowledged."""

    def control(self) -> list[tuple[str, bytes]]:
        """Control messages heard since the last call: (from, message), oldest first for each neighbor."""

    def present(self) -> set[str]:
        """Neighbors that seem to be there. A hint: the age of the last record decides."""

    def add(self, neighbor: str, endpoint: str | None = None) -> None:
        """A new neighbor: dial its endpoint, or (None) wait until it dials."""

    def drop(self, neighbor: str) -> None:
        """Hear and tell this neighbor no more."""

    def close(self) -> None:
        """Leave. Nothing can be said or heard afterwards; a second call does nothing."""
