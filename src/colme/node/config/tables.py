"""The tables of node.toml: one class per table, with the rules that hold within it.

`node_toml` puts them together and checks the rules that hold between them."""

from __future__ import annotations

import math
from pathlib import Path

from colme.errors import NodeError, one_of, positive, shorten, whole
from colme.node.config.presets import DEGREE, MOST_THREADS, SECONDS, TICK_RATES, max_degree
from colme.node.names import Endpoint, check_name
from colme.node.readings import WILD
from colme.support.structs import Configuration

SOURCES = ("stdin", "file", "mqtt")
MOST_AGENTS = 1_000_000
"""Local agents of a gateway."""
SINKS = ("stdout", "file", "mqtt")


MOST_NEIGHBORS = 9999


def _seconds(value: float, field: str, example: float) -> None:
    low, high = SECONDS
    positive(value, field, f"{field} = {example}", NodeError, low=low, high=high)


def _check_address(address: str, kind: str, without: str, example: str) -> None:
    """Every kind but `without` needs an address."""
    if (kind == without) != (address == ""):
        rule = f"{without} has no address" if address else f"{kind} needs one"
        remedy = "Leave it out" if address else f"Try address = {example!r}"
        raise NodeError(f"address={shorten(address)}: {rule}. {remedy}.")


class Neighbor(Configuration, frozen=True, kw_only=True):
    """[[neighbors]]: an agent to exchange records with.

    name      its name, which is the common name of its certificate
    endpoint  where to dial it; if left out, it dials this agent
    """

    refusal = NodeError

    name: str
    endpoint: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.name, "name")
        if self.endpoint is not None:
            Endpoint.parse(self.endpoint)


class Tls(Configuration, frozen=True, kw_only=True):
    """[tls]: the files that prove the agent's identity (see colme.node.security.keys).

    ca           certificates of the authorities to trust
    certificate  of this agent
    key          of this agent, readable by its owner only
    """

    refusal = NodeError

    ca: str
    certificate: str
    key: str

    def within(self, folder: Path) -> Tls:
        """The same files, named from this folder."""
        return Tls(ca=str(folder / self.ca), certificate=str(folder / self.certificate), key=str(folder / self.key))


class Samples(Configuration, frozen=True, kw_only=True):
    """[samples]: where samples come from, one number per line or message.

    source   stdin, file (that grows), or mqtt (a topic to subscribe to)
    address  a path, or host:port/topic
    least    the smallest reading that counts as a sample; smaller ones are counted and reported
    most     the largest one
    wild     "drop": a single reading that is 50 times further off than any before it does not count, either (see
             colme.node.readings); "keep": it does
    """

    refusal = NodeError

    source: str = "stdin"
    address: str = ""
    least: float = -math.inf
    most: float = math.inf
    wild: str = "drop"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self.source, SOURCES, "source", NodeError)
        _check_address(self.address, self.source, "stdin", "readings.txt")
        one_of(self.wild, WILD, "wild", NodeError)
        if not self.least < self.most:
            raise NodeError(
                f"least={self.least:g} with most={self.most:g}: no reading would count. Choose least below most."
            )


class Join(Configuration, frozen=True, kw_only=True):
    """[join]: how an agent finds further neighbors (see colme.node.membership).

    seed         the agent that it asks first, and whenever no other peer is known
    endpoint     where to dial the seed
    degree       neighbors that it wants; it accepts up to three times as many. The same for all agents of a network
    advertise    where other agents can dial it (default: where it listens, if it does)
    replace      whether to replace neighbors that are lost
    admit        which agents may become neighbors: the "members" in the file, or all "certified" by the authority
    max_members  agents that it admits although they are not in the file
    patience     seconds of silence after which a neighbor is replaced (default: 60 times the freshness)
    """

    refusal = NodeError

    seed: str | None = None
    endpoint: str | None = None
    degree: int = DEGREE
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
        whole(self.degree, "degree", f"degree = {DEGREE}", NodeError, high=MOST_NEIGHBORS // 3)
        one_of(self.admit, ("members", "certified"), "admit", NodeError)
        whole(self.max_members, "max_members", "max_members = 1000", NodeError, high=10**6)
        if self.patience is not None:
            _seconds(self.patience, "patience", 300.0)

    @property
    def most(self) -> int:
        """Neighbors that it accepts."""
        return max_degree(self.degree)


class GatewayTable(Configuration, frozen=True, kw_only=True):
    """[gateway]: this node has many local agents (see colme.node.gateway). Samples are lines `name value`.

    agents  local agents at the same time, at most; the samples of further ones are refused
    forget  seconds without a sample after which a local agent is forgotten
    """

    refusal = NodeError

    agents: int = 10_000
    forget: float = 604_800.0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.agents, "agents", "agents = 10000", NodeError, high=MOST_AGENTS)
        positive(self.forget, "forget", "forget = 604800.0", NodeError, low=1.0, high=1e10)


class Limits(Configuration, frozen=True, kw_only=True):
    """[limits]: settings that the preset would choose (formulas: see colme.node.config.presets).

    lease          seconds of silence after which a neighbor is considered gone
    freshness      seconds for which a record counts
    max_record     bytes; longer messages are dropped unread
    max_rate       records per second accepted from a neighbor
    max_neighbors  most neighbors that it may have
    max_ballots    that a node may cast in a census, this one included; the same on all nodes of a network with gateways
    rx_threads     threads that receive
    max_sessions   most links that it accepts
    """

    refusal = NodeError

    lease: float | None = None
    freshness: float | None = None
    max_record: int | None = None
    max_rate: float | None = None
    max_neighbors: int | None = None
    rx_threads: int | None = None
    max_sessions: int | None = None
    max_ballots: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, example in (("lease", 2.0), ("freshness", 5.0)):
            if getattr(self, field) is not None:
                _seconds(getattr(self, field), field, example)
        if self.max_rate is not None:
            low, high = TICK_RATES
            positive(self.max_rate, "max_rate", "max_rate = 40.0", NodeError, low=low, high=1000 * high)
        for field, least, most in (
            ("max_record", 64, 2**24), ("max_neighbors", 1, MOST_NEIGHBORS), ("rx_threads", 2, MOST_THREADS),
            ("max_sessions", 1, 10 * MOST_NEIGHBORS), ("max_ballots", 1, MOST_AGENTS),
        ):  # fmt: skip
            if getattr(self, field) is not None:
                whole(getattr(self, field), field, f"{field} = {4 * least}", NodeError, low=least, high=most)


class Estimates(Configuration, frozen=True, kw_only=True):
    """[estimates]: where estimates go, as JSON lines.

    to       stdout, file (lines are appended), or mqtt (a topic to publish on)
    address  a path, or host:port/topic
    """

    refusal = NodeError

    to: str = "stdout"
    address: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self.to, SINKS, "sink", NodeError)
        _check_address(self.address, self.to, "stdout", "estimates.jsonl")
