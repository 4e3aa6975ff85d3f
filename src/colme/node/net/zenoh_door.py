"""Who stands at the door of the session that listens: members of which nobody knows yet whether they will be neighbors,
and strangers with a good certificate.

The access list of a session is fixed when it opens. So a stranger that is to be let in is remembered, and the session
is opened again with a longer list: those who had dialled dial again, which they do within the first retry. Strangers
that come at about the same time are let in together, no more often than every two leases.
"""

from __future__ import annotations

from collections.abc import Iterable

from colme.errors import NodeError
from colme.node.config.node_toml import NodeConfig
from colme.node.names import check_name


class Doorman:
    """Whom to hear, and when to open the door anew. It reads no clock."""

    def __init__(self, config: NodeConfig):
        self.config = config
        self.members = frozenset(config.everyone)
        self.admitted: set[str] = set()  # in the list of the session that is open
        self.waiting: set[str] = set()  # to be in the next one
        self._earliest = 0.0

    def may_speak(self, name: str) -> bool:
        """Whether it is in the list."""
        return name in self.members or name in self.admitted

    def may_answer(self, name: str) -> bool:
        """Whether it may be dialled: then nobody but the owner of this name is heard on that link."""
        return name in self.members or (self.config.admits_certified and _is_name(name))

    def let_in(self, name: str) -> bool:
        """Whether it may speak, now or when the door has been opened again."""
        if self.may_speak(name) or name in self.waiting:
            return True
        room = self.config.join is not None and len(self.admitted) + len(self.waiting) < self.config.join.max_members
        if not (room and self.may_answer(name)) or name == self.config.name:
            return False
        self.waiting.add(name)
        return True

    def at_the_door(self, certified: Iterable[str]) -> set[str]:
        """Of those with a link those who may speak; the others are let in later, or never."""
        return {name for name in certified if self.let_in(name) and self.may_speak(name)}

    def due(self, now: float) -> bool:
        """Whether to open the door anew."""
        return bool(self.waiting) and now >= self._earliest

    def opens(self, now: float) -> set[str]:
        """It is opened anew, for these besides the members."""
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
