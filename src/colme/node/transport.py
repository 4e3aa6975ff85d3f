"""One agent's door to its neighbors. Whoever carries bytes between devices has this form."""

from __future__ import annotations

from typing import Protocol


class Transport(Protocol):
    """Carries bytes, and looks into none of them. No method ever blocks."""

    def publish(self, record: bytes) -> None:
        """My newest state, to all neighbors. It may get lost: the next one makes up for it."""

    def latest(self, neighbor: str) -> bytes | None:
        """The newest record that this neighbor published, heard since the last call; None if there is none."""

    def send(self, neighbor: str, message: bytes) -> None:
        """A control message to one neighbor. It may get lost: the core repeats it until it is acknowledged."""

    def control(self) -> list[tuple[str, bytes]]:
        """The control messages heard since the last call: (from whom, message)."""

    def present(self) -> set[str]:
        """Neighbors that seem to be there: a hint, on which nothing may depend."""

    def add(self, neighbor: str, endpoint: str | None = None) -> None:
        """A new neighbor, and where it listens if this end is to dial."""

    def drop(self, neighbor: str) -> None:
        """No longer a neighbor: nothing goes to it or is heard from it."""

    def close(self) -> None:
        """Leave the network."""
