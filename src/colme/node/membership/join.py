"""The [join] table of a node: whether, and how, it comes to have other neighbors than those in its file."""

from __future__ import annotations

from typing import ClassVar

from colme._core.structs import Configuration
from colme.errors import ColmeError, NodeError, one_of, positive, whole
from colme.node.names import Endpoint, check_name

ROOM = 3
"""Times `degree` that an agent takes. Who comes brings `degree` edges: when all came one by one, that is a mean of
twice `degree`, and with no more room than that only the last who came would have any."""


class Join(Configuration, frozen=True, kw_only=True):
    """Neighbors by introduction (see colme.node.membership.introductions). `degree` must be the same everywhere.

    seed         whom it asks first, and whenever nobody else knows anybody
    endpoint     where to dial the seed
    degree       neighbors that it wants; it takes up to three times as many
    advertise    where others can dial it (default: where it listens, if it does)
    replace      neighbors that it loses
    admit        who may come: "members" of the file, or whoever has a certificate of the authority: "certified"
    max_members  how many it lets in that are not in the file
    patience     seconds of silence after which a neighbor is replaced (default: 60 times the freshness)
    """

    refusal: ClassVar[type[ColmeError]] = NodeError

    seed: str | None = None
    endpoint: str | None = None
    degree: int = 6
    advertise: str | None = None
    replace: bool = True
    admit: str = "members"
    max_members: int = 1000
    patience: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.seed is None) != (self.endpoint is None):
            missing = "endpoint = 'tls/192.168.1.11:7447'" if self.endpoint is None else "seed = 'pi-1'"
            raise NodeError(f"seed={self.seed!r} with endpoint={self.endpoint!r}: they go together. Add {missing}.")
        if self.seed is not None:
            check_name(self.seed, "seed")
        for field in ("endpoint", "advertise"):
            if getattr(self, field) is not None:
                Endpoint.parse(getattr(self, field), field)
        whole(self.degree, "degree", "degree = 6", NodeError)
        one_of(self.admit, ("members", "certified"), "admit", NodeError)
        whole(self.max_members, "max_members", "max_members = 1000", NodeError)
        if self.patience is not None:
            positive(self.patience, "patience", "patience = 300.0", NodeError)

    @property
    def most(self) -> int:
        """Neighbors that it takes."""
        return ROOM * self.degree
