"""Tables of node.toml about what is beside the network of agents: who gets the estimates, and which relay to use."""

from __future__ import annotations

from typing import ClassVar

from colme._configuration import Configuration
from colme.errors import ColmeError, NodeError, one_of, shorten
from colme.node.names import Endpoint, check_name, host_and_port

OUTLETS = ("stdout", "file", "zenoh", "mqtt")


class Estimates(Configuration, frozen=True, kw_only=True):
    """Where estimates go, as JSON lines.

    to       stdout, file (a line is added), zenoh or mqtt (a key to publish on)
    address  a path, protocol/host:port/key, or host:port/topic
    """

    refusal: ClassVar[type[ColmeError]] = NodeError

    to: str = "stdout"
    address: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self.to, OUTLETS, "outlet", NodeError)
        if (self.to == "stdout") != (self.address == ""):
            rule = "stdout has no address" if self.address else f"{self.to} needs one"
            remedy = "Leave it out" if self.address else "Try address = 'estimates.jsonl'"
            raise NodeError(f"address={shorten(self.address)}: {rule}. {remedy}.")


class Via(Configuration, frozen=True, kw_only=True):
    """The relay through which this agent is reached (see colme.node.relay).

    address  host:port of the relay
    name     the common name of its certificate
    """

    refusal: ClassVar[type[ColmeError]] = NodeError

    address: str
    name: str = "relay"
    _EXAMPLE: ClassVar[str] = "relay.example:7460"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.name, "name")
        host_and_port(self.address, "address", self._EXAMPLE)

    @property
    def place(self) -> Endpoint:
        return host_and_port(self.address, "address", self._EXAMPLE)
