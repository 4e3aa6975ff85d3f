"""The Transport protocol: send the newest record to all neighbors, and receive the newest record of each."""

from __future__ import annotations

from typing import Protocol

from colme.node.security.probe import Reason


class Transport(Protocol):
    """The connection of one agent to its neighbors. It carries bytes and never blocks.

    The transport authenticates senders: what `latest(n)` and `control()` attribute to n was sent by n (off loopback,
    by the owner of n's certificate)."""

    def publish(self, record: bytes) -> None:
        """Send the newest record to all neighbors. It may get lost: the next one follows at the next tick."""

    def latest(self, neighbor: str) -> bytes | None:
        """The newest record received from a neighbor since the last call; None if there is none."""

    def send(self, neighbor: str, message: bytes) -> None:
        """Send a control message (a cut or a membership message). It may get lost: the sender repeats it until it is
        acknowledged."""

    def control(self) -> list[tuple[str, bytes]]:
        """Control messages received since the last call, (sender, message), oldest first for each sender."""

    def present(self) -> set[str]:
        """Neighbors that seem to be connected. This is a hint; the age of the last record decides."""

    def why_silent(self, neighbor: str) -> Reason | None:
        """Why a neighbor is not heard, as far as that is known; None if it is heard, or not known."""

    def add(self, neighbor: str, endpoint: str | None = None) -> None:
        """Add a neighbor: dial its endpoint, or wait until it dials (None)."""

    def drop(self, neighbor: str) -> None:
        """Stop exchanging records with this neighbor. If it dials, its control messages are heard all the same."""

    def close(self) -> None:
        """Close all links. Afterwards nothing is sent or received; a second call does nothing."""
