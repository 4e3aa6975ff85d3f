"""Admission: which agents the listening session accepts messages from.

The access list of a zenoh session is fixed when it opens. So a newcomer with a valid certificate is put on a waiting
list, and the session is opened again with a longer access list. Agents that had dialed dial again, within their first
retry. Newcomers that come at about the same time are admitted together, at most once every two leases.
"""

from __future__ import annotations

from collections.abc import Iterable

from colme.errors import NodeError
from colme.node.config.node_toml import NodeConfig
from colme.node.names import check_name


class Admission:
    """Which agents are admitted, and when to reopen the listening session. It reads no clock."""

    def __init__(self, config: NodeConfig):
        self.config = config
        self.members = frozenset(config.peers)
        self.admitted: set[str] = set()  # on the access list of the open session, besides the members
        self.waiting: set[str] = set()  # to be on the next one
        self._earliest = 0.0

    def may_speak(self, name: str) -> bool:
        """Whether the agent is on the access list."""
        return name in self.members or name in self.admitted

    def may_dial(self, name: str) -> bool:
        """Whether the agent may be dialed. Only the owner of this name is heard on that link."""
        return name in self.members or (self.config.admits_certified and _is_name(name))

    def admit(self, name: str) -> bool:
        """Whether the agent may speak, now or after the session has been reopened."""
        if self.may_speak(name) or name in self.waiting:
            return True
        room = self.config.join is not None and len(self.admitted) + len(self.waiting) < self.config.join.max_members
        if not (room and self.may_dial(name)) or name == self.config.name:
            return False
        self.waiting.add(name)
        return True

    def visitors(self, certified: Iterable[str]) -> set[str]:
        """Of the agents with a link, those that may speak now; the others are admitted later or never."""
        return {name for name in certified if self.admit(name) and self.may_speak(name)}

    def due(self, now: float) -> bool:
        """Whether to reopen the session."""
        return bool(self.waiting) and now >= self._earliest

    def reopen(self, now: float) -> set[str]:
        """Note that the session is reopened; return the agents to admit besides the members."""
        self.admitted |= self.waiting
        self.waiting = set()
        self._earliest = now + 2 * self.config.lease
        return self.admitted


def _is_name(name: str) -> bool:
    try:
        check_name(name, "name")
    except NodeError:
        return False
    return True
