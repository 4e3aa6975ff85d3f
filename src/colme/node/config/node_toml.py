"""node.toml, the configuration of a node: its name, method, neighbors, keys, source and sink.

    name = "pi-3"                          # also the common name of its certificate
    network = "greenhouse"
    preset = "lan"                         # local, lan or wan: see colme.node.config.presets
    tick_rate = 10.0                       # records per second
    listen = ["tls/192.168.1.13:7447"]
    n_agents = 5                           # of the whole network, for the level of the intervals
    n_edges = 5
    [method]
    method = "cl-colme"
    sigma = 2.0
    [tls]
    ca = "ca.pem"
    certificate = "pi-3.pem"
    key = "pi-3.key"
    [samples]
    source = "stdin"
    [[neighbors]]
    name = "pi-1"
    endpoint = "tls/192.168.1.11:7447"     # dialed by this agent; without an endpoint the neighbor dials
    [[neighbors]]
    name = "pi-4"

`modules = ["my_method.py"]` lists Python files that define methods of your own; they are executed when the file is
read, with all rights of the process. Paths are relative to the file. Off loopback TLS is required. `tables` has the
tables one by one; this file has the keys outside of tables and the rules that hold between tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from colme.errors import NodeError, one_of, positive, shorten, whole
from colme.methods import Method
from colme.methods.registry import methods_by_name
from colme.node.config import presets
from colme.node.config.tables import Estimates, GatewayTable, Join, Limits, Neighbor, Samples, Tls
from colme.node.messages.adapters import most_items
from colme.node.messages.membership import MOST_MEMBERSHIP_BYTES
from colme.node.names import Endpoint, check_name, is_unspecified
from colme.support.structs import Configuration, convert_fields, located, read_toml


class NodeConfig(Configuration, frozen=True, kw_only=True):
    """The configuration of a node, checked. Make one with `NodeConfig.read(path)` or from its fields.

    name       name of the agent
    network    name of the network; agents of another network are not heard
    method     the method that it runs
    preset     what the network is like: local, lan or wan
    tick_rate  records per second
    listen     endpoints at which other agents can dial it
    neighbors  the neighbors that it starts with
    members    agents that may become neighbors, besides `neighbors`
    tls        files of its identity; required off loopback
    samples    where samples come from
    estimates  where estimates go
    modules    Python files that define methods of your own
    store      file in which its state is saved (default: the name, with .sqlite)
    n_agents   agents in the network (default: its members and itself)
    n_edges    edges in the network (default: its own)
    origin     subtracted from all samples; near the data, and the same everywhere
    level      of the interval around the estimate
    independent   whether the samples of an agent are known to be independent; if not, agents learn together how they
                  depend on each other, and how much less certain their means therefore are
    report_every  seconds between two reports of the estimate
    save_every    ticks between two saves; if the process dies, at most the samples in between are lost
    sync_every    seconds between two saves that survive a power cut, too
    limits     settings that the preset would choose
    gateway    many local agents behind this node
    join       how it finds further neighbors; if left out, it keeps those of the file
    """

    refusal = NodeError

    name: str
    network: str = "colme"
    method: Any
    preset: str = "lan"
    tick_rate: float = 10.0
    listen: tuple[str, ...] = ()
    neighbors: tuple[Neighbor, ...] = ()
    members: tuple[str, ...] = ()
    tls: Tls | None = None
    samples: Samples = Samples()
    estimates: Estimates = Estimates()
    modules: tuple[str, ...] = ()
    store: str = ""
    n_agents: int | None = None
    n_edges: int | None = None
    origin: float = 0.0
    level: float = 0.9
    independent: bool = False
    report_every: float = 1.0
    save_every: int = 20
    sync_every: float = 60.0
    limits: Limits = Limits()
    gateway: GatewayTable | None = None
    join: Join | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.name, "name")
        check_name(self.network, "network")
        if not isinstance(self.method, Method):
            raise NodeError(f"method={shorten(self.method)}: it must be a method. Try colme.CLColME().")
        one_of(self.preset, presets.PRESETS, "preset", NodeError)
        low, high = presets.TICK_RATES
        positive(self.tick_rate, "tick_rate", "tick_rate = 10.0", NodeError, low=low, high=high)
        low, high = presets.SECONDS
        positive(self.report_every, "report_every", "report_every = 1.0", NodeError, low=low, high=high)
        positive(self.sync_every, "sync_every", "sync_every = 60.0", NodeError, low=low, high=high)
        whole(self.save_every, "save_every", "save_every = 20", NodeError, high=10**6)
        if not abs(self.origin) <= 1e30:  # as in messages
            raise NodeError(f"origin={self.origin}: it must be finite and at most 1e30. Try origin = 0.0.")
        if not 0.0 < self.level < 1.0:
            raise NodeError(f"level={self.level}: it must be between 0 and 1. Try level = 0.9.")
        for field in ("n_agents", "n_edges"):
            if getattr(self, field) is not None:
                whole(getattr(self, field), field, f"{field} = 5", NodeError, high=10**12)
        for i, member in enumerate(self.members):
            check_name(member, f"members[{i}]")
        self._check_neighbors()
        for i, endpoint in enumerate(self.listen):
            self._check_endpoint(endpoint, f"listen[{i}]")
        if self.join is not None:
            self._check_join(self.join)

    def _check_join(self, join: Join) -> None:
        if self.method.baseline:
            raise NodeError(f"join with method={self.method!r}: it has no neighbors. Leave [join] out.")
        if join.admit == "certified" and self.tls is None:
            raise NodeError("join.admit='certified': names are proved by certificates. Add [tls], or admit members.")
        if join.seed == self.name:
            raise NodeError(f"join.seed={self.name!r}: that is this agent itself. Name another agent, or none.")
        if self.limits.max_neighbors is not None and self.limits.max_neighbors < join.most:
            raise NodeError(
                f"limits.max_neighbors={self.limits.max_neighbors} with join.degree={join.degree}: an agent that wants "
                f"so many accepts up to {join.most}. Leave it out, or choose a smaller degree."
            )
        for field in ("endpoint", "advertise"):
            if getattr(join, field) is not None:
                self._check_endpoint(getattr(join, field), f"join.{field}")
        if self.advertised is not None and is_unspecified(Endpoint.parse(self.advertised).host):
            raise NodeError(
                f"{self.advertised!r}: that address cannot be dialed. Add advertise = 'tls/host:port' to [join]."
            )

    def _check_neighbors(self) -> None:
        seen = {self.name}
        for i, neighbor in enumerate(self.neighbors):
            where = f"neighbors[{i}]"
            if neighbor.name in seen:
                rule = "an agent is not its own neighbor" if neighbor.name == self.name else "list each once"
                raise NodeError(f"{where}.name={shorten(neighbor.name)}: {rule}. Leave it out.")
            seen.add(neighbor.name)
            if neighbor.endpoint is not None:
                self._check_endpoint(neighbor.endpoint, f"{where}.endpoint")
            elif not self.listen:
                raise NodeError(
                    f"{where} has no endpoint, and this agent does not listen: one end must dial. "
                    "Add an endpoint, or listen."
                )

    def _check_endpoint(self, text: str, where: str) -> None:
        self.check_endpoint(Endpoint.parse(text, where), where)

    def check_endpoint(self, endpoint: Endpoint, where: str = "endpoint") -> None:
        """Refuse an endpoint without TLS off loopback, or if there are keys."""
        if endpoint.protocol == "tls" and self.tls is None:
            raise NodeError(f"{where}={str(endpoint)!r}: TLS needs keys. Add [tls], see: colme node keys.")
        if endpoint.protocol == "tcp" and self.tls is not None:
            raise NodeError(f"{where}={str(endpoint)!r}: this agent has keys, so all its links use TLS. Try 'tls/...'.")
        if endpoint.protocol == "tcp" and not endpoint.loopback:
            raise NodeError(f"{where}={str(endpoint)!r}: off loopback TLS is required. Try 'tls/...', and add [tls].")

    @classmethod
    def read(cls, path: str | Path) -> NodeConfig:
        """Read a TOML file."""
        path = Path(path)
        table = read_toml(path, NodeError, "Try: colme node plan.")
        with located(f"{path}: ", NodeError):
            return cls.parse(table, folder=path.parent)

    @classmethod
    def parse(cls, table: dict[str, Any], *, folder: Path | str = ".") -> NodeConfig:
        """From a table of the same form as the file; paths are taken relative to the folder."""
        for key in table:
            one_of(key, cls.__struct_fields__, "key", NodeError)
        for key, example in (("name", 'name = "pi-3"'), ("method", "[method]")):
            if key not in table:
                raise NodeError(f"{key} is missing: every node has one. Add {example}.")
        rest = {key: value for key, value in table.items() if key != "method"}
        fields = convert_fields(rest, cls, NodeError)
        home = Path(folder)
        fields["store"] = str(home / (fields.get("store") or f"{table['name']}.sqlite"))
        fields["modules"] = tuple(str(home / each) for each in fields.get("modules", ()))
        if "tls" in fields:
            fields["tls"] = fields["tls"].within(home)
        if "samples" in fields and fields["samples"].source == "file":
            address = str(home / fields["samples"].address)
            fields["samples"] = msgspec.structs.replace(fields["samples"], address=address)
        if "estimates" in fields and fields["estimates"].to == "file":
            fields["estimates"] = Estimates(to="file", address=str(home / fields["estimates"].address))
        method = method_of(table["method"], fields["modules"])
        return cls(method=method, **fields)

    @property
    def peers(self) -> tuple[str, ...]:
        """The agents that may speak to this one: members, neighbors and the seed, sorted."""
        names = {*self.members, *(neighbor.name for neighbor in self.neighbors)}
        if self.join is not None and self.join.seed is not None:
            names.add(self.join.seed)
        return tuple(sorted(names - {self.name}))

    @property
    def advertised(self) -> str | None:
        """Where other agents can dial it."""
        chosen = None if self.join is None else self.join.advertise
        return chosen or (self.listen[0] if self.listen else None)

    @property
    def admits_certified(self) -> bool:
        """Whether every agent with a certificate may speak to this one."""
        return self.join is not None and self.join.admit == "certified"

    def admits(self, name: str, endpoint: str | None) -> bool:
        """Whether a peer that others named may be dialed at the endpoint, or (None) may dial this agent."""
        if name == self.name or not (self.admits_certified or name in self.peers):
            return False
        if endpoint is None:
            return bool(self.listen)
        try:
            self._check_endpoint(endpoint, "endpoint")
        except NodeError:
            return False
        return True

    @property
    def socket(self) -> str:
        """The socket at which the running node serves its status, beside its store."""
        return str(Path(self.store).with_suffix(".sock"))

    @property
    def request_socket(self) -> str:
        """The socket at which the running node takes requests."""
        return str(Path(self.store).with_suffix(".request"))

    @property
    def degree(self) -> int:
        """The largest degree in the network, as far as this agent can tell."""
        own = max(1, len(self.neighbors), 0 if self.join is None else self.join.most)
        if self.n_agents is None or self.n_edges is None:
            return own
        return max(own, -(-2 * self.n_edges // self.n_agents))

    @property
    def period(self) -> float:
        """Seconds from tick to tick."""
        return 1 / self.tick_rate

    @property
    def lease(self) -> float:
        return self.limits.lease or presets.preset(self.preset).lease

    @property
    def freshness(self) -> float:
        return self.limits.freshness or presets.freshness(self.period, self.lease)

    @property
    def max_ballots(self) -> int:
        """Ballots that a node may cast in a census."""
        return self.limits.max_ballots or (1 if self.gateway is None else self.gateway.agents)

    @property
    def max_record(self) -> int:
        n_items = most_items(self.method, self.max_neighbors)
        membership = 0 if self.join is None else MOST_MEMBERSHIP_BYTES
        return self.limits.max_record or max(presets.max_record(n_items), membership)

    @property
    def max_rate(self) -> float:
        return self.limits.max_rate or presets.max_rate(self.tick_rate)

    @property
    def max_neighbors(self) -> int:
        if self.limits.max_neighbors is None and self.join is not None:
            return max(self.join.most, len(self.neighbors))
        return self.limits.max_neighbors or presets.max_neighbors(len(self.neighbors), len(self.peers))

    @property
    def rx_threads(self) -> int:
        usual = max(len(self.neighbors), 0 if self.join is None else self.join.degree)
        return self.limits.rx_threads or presets.rx_threads(usual)

    @property
    def max_sessions(self) -> int:
        return self.limits.max_sessions or presets.max_sessions(self.max_neighbors)


def method_of(table: Any, modules: Iterable[str | Path] = ()) -> Method:
    """A method from its table, as experiment files have it, but with a guard if the table does not say otherwise.

    modules  Python files with further methods"""
    if not isinstance(table, dict) or "method" not in table:
        raise NodeError(
            f"method={shorten(table)}: it must be a table with a name. Write [method], method = 'cl-colme'."
        )
    by_tag = {tag: kind for tag, (kind, _) in methods_by_name(map(Path, modules), NodeError).items()}
    with located("method", NodeError):
        one_of(table["method"], by_tag, "method", NodeError)
        kind = by_tag[table["method"]]
        fields = {key: value for key, value in table.items() if key != "method"}
        for key in fields:
            one_of(key, kind.__struct_fields__, "key", NodeError)
        if "guard" in kind.__struct_fields__ and not kind.by_name:
            fields.setdefault("guard", True)
        return kind(**convert_fields(fields, kind, NodeError))
