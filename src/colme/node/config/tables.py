"""The tables of node.toml, each with its own rules; `config` has those that hold between them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from colme._core.configuration import Configuration
from colme.errors import ColmeError, NodeError, one_of, positive, shorten, whole
from colme.node.hosts.frame import MOST_PARTS
from colme.node.names import Endpoint, check_name, host_and_port, is_loopback

SOURCES = ("stdin", "file", "tcp", "unix", "zenoh", "mqtt")
OUTLETS = ("stdout", "file", "zenoh", "mqtt")


def _check_address(address: str, kind: str, without: str, example: str) -> None:
    """All kinds but one need an address."""
    if (kind == without) != (address == ""):
        rule = f"{without} has no address" if address else f"{kind} needs one"
        remedy = "Leave it out" if address else f"Try address = {example!r}"
        raise NodeError(f"address={shorten(address)}: {rule}. {remedy}.")


class Neighbor(Configuration, frozen=True, kw_only=True):
    """An agent to talk to.

    name      its common name
    endpoint  where to dial it; left out: it dials this agent
    """

    refusal: ClassVar[type[ColmeError]] = NodeError

    name: str
    endpoint: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.name, "name")
        if self.endpoint is not None:
            Endpoint.parse(self.endpoint)


class Tls(Configuration, frozen=True, kw_only=True):
    """Files of the agent's identity (see colme.node.security.keys).

    ca           certificates of the authorities to trust
    certificate  of this agent
    key          of this agent, readable by its owner only
    """

    refusal: ClassVar[type[ColmeError]] = NodeError

    ca: str
    certificate: str
    key: str

    def within(self, folder: Path) -> Tls:
        """The same files, named from this folder."""
        return Tls(ca=str(folder / self.ca), certificate=str(folder / self.certificate), key=str(folder / self.key))


class Samples(Configuration, frozen=True, kw_only=True):
    """Where samples come from: one number per line or message.

    source   stdin, file (one that grows), tcp or unix (a socket to listen on), zenoh or mqtt (a key to subscribe to)
    address  a path, host:port, a key, or host:port/topic
    """

    refusal: ClassVar[type[ColmeError]] = NodeError

    source: str = "stdin"
    address: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self.source, SOURCES, "source", NodeError)
        _check_address(self.address, self.source, "stdin", "readings.txt")
        if self.source == "tcp":
            host = host_and_port(self.address, "address", "127.0.0.1:7000").host
            if not is_loopback(host):
                raise NodeError(
                    f"address={shorten(self.address)}: a socket for samples has no TLS, so it must be on loopback. "
                    "Try 127.0.0.1, or a zenoh key."
                )


class HostTable(Configuration, frozen=True, kw_only=True):
    """Many agents in one process: those of this host.

    agents     a file that lists their neighbors, see colme.node.hosts.graph
    estimates  a file that gets all estimates at each report, as CSV; left out: none
    parts      of the frames that hosts of this network send, on all hosts the same
    """

    refusal: ClassVar[type[ColmeError]] = NodeError

    agents: str
    estimates: str = ""
    parts: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.parts, "host.parts", "parts = 10", NodeError)
        if self.parts > MOST_PARTS:
            raise NodeError(f"host.parts={self.parts}: there can be {MOST_PARTS} at most. Use more hosts.")


class Limits(Configuration, frozen=True, kw_only=True):
    """Knobs that the preset would set (formulas: see colme.node.config.presets).

    lease         seconds of silence after which a neighbor is taken for gone
    freshness     seconds for which a record counts
    max_record    bytes; longer messages are dropped before they are looked at
    max_rate      records per second accepted from a neighbor
    max_neighbors how many neighbors it may come to have
    rx_threads    threads that listen
    max_sessions  links accepted
    """

    refusal: ClassVar[type[ColmeError]] = NodeError

    lease: float | None = None
    freshness: float | None = None
    max_record: int | None = None
    max_rate: float | None = None
    max_neighbors: int | None = None
    rx_threads: int | None = None
    max_sessions: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, example in (("lease", 2.0), ("freshness", 5.0), ("max_rate", 40.0)):
            if getattr(self, field) is not None:
                positive(getattr(self, field), field, f"{field} = {example}", NodeError)
        for field, low in (("max_record", 64), ("max_neighbors", 1), ("rx_threads", 2), ("max_sessions", 1)):
            if getattr(self, field) is not None:
                whole(getattr(self, field), field, f"{field} = {4 * low}", NodeError, low=low)


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
        _check_address(self.address, self.to, "stdout", "estimates.jsonl")
