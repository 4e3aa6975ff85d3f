"""The file of a node: who it is, what it runs, whom it may speak to, in TOML.

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
    endpoint = "tls/192.168.1.11:7447"     # this agent dials; without an endpoint it is dialled
    [[neighbors]]
    name = "pi-4"

Paths are relative to the file. Off loopback nothing is said or heard without TLS.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from colme._core.configuration import Configuration
from colme._core.fields import convert_fields, located, read_toml
from colme.errors import ColmeError, NodeError, one_of, positive, shorten, whole
from colme.methods import METHODS, Method
from colme.node.config import presets
from colme.node.config.tables import Estimates, HostTable, Limits, Neighbor, Samples, Tls, Via, check_keys
from colme.node.hosts.frame import MOST_BYTES
from colme.node.membership.join import Join
from colme.node.messages.adapters import most_items
from colme.node.messages.membership import MOST_LETTER
from colme.node.names import Endpoint, check_name, is_unspecified


class NodeConfig(Configuration, frozen=True, kw_only=True):
    """A node, read and checked. Make one with `NodeConfig.read(path)` or by its fields.

    name       who it is
    network    agents of another network are not heard
    method     what it runs
    preset     what the network is like: local, lan or wan
    tick_rate  records per second
    listen     endpoints at which others can dial it
    neighbors  whom it starts with
    members    who may become a neighbor; neighbors are members anyway
    tls        its identity; needed off loopback
    samples    where its samples come from
    estimates  where its estimates go
    relay      through which others reach it, where they cannot dial it
    store      where its state is kept (default: the name, with .sqlite)
    n_agents   agents of the network (default: its members and itself)
    n_edges    edges of the network (default: its own)
    origin     is subtracted from all samples; near the data, and the same everywhere
    report_every  seconds between two lines about the estimate
    save_every    ticks between two saves: what a crash may forget
    limits     knobs
    host       many agents in this process; its name is then that of the host, and its neighbors are hosts
    join       how it finds further neighbors; left out: it has those of the file
    """

    refusal: ClassVar[type[ColmeError]] = NodeError

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
    relay: Via | None = None
    store: str = ""
    n_agents: int | None = None
    n_edges: int | None = None
    origin: float = 0.0
    report_every: float = 1.0
    save_every: int = 20
    limits: Limits = Limits()
    host: HostTable | None = None
    join: Join | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.name, "name")
        check_name(self.network, "network")
        if not isinstance(self.method, Method):
            raise NodeError(f"method={shorten(self.method)}: it must be a method. Try colme.CLColME().")
        one_of(self.preset, presets.PRESETS, "preset", NodeError)
        positive(self.tick_rate, "tick_rate", "tick_rate = 10.0", NodeError)
        positive(self.report_every, "report_every", "report_every = 1.0", NodeError)
        whole(self.save_every, "save_every", "save_every = 20", NodeError)
        if not math.isfinite(self.origin):
            raise NodeError(f"origin={self.origin}: it must be finite. Try origin = 0.0.")
        for field in ("n_agents", "n_edges"):
            if getattr(self, field) is not None:
                whole(getattr(self, field), field, f"{field} = 5", NodeError)
        for i, member in enumerate(self.members):
            check_name(member, f"members[{i}]")
        self._check_neighbors()
        for i, endpoint in enumerate(self.listen):
            self._check_endpoint(endpoint, f"listen[{i}]")
        if self.relay is not None and (self.tls is None or self.inner is None):
            raise NodeError(
                f"relay.address={shorten(self.relay.address)}: what a relay carries is TLS for a listener on loopback. "
                "Add [tls] and listen = ['tls/127.0.0.1:7447']."
            )
        if self.join is not None:
            self._check_join(self.join)

    def _check_join(self, join: Join) -> None:
        if self.host is not None:
            raise NodeError("[host] and [join]: a host has the neighbors of its file. Leave [join] out.")
        if self.method.baseline:
            raise NodeError(f"join with method={self.method!r}: it has no neighbors. Leave [join] out.")
        if join.admit == "certified" and self.tls is None:
            raise NodeError("join.admit='certified': without keys nobody proves a name. Add [tls], or admit members.")
        if join.seed == self.name:
            raise NodeError(f"join.seed={self.name!r}: that is this agent itself. Name another, or none.")
        if self.limits.max_neighbors is not None and self.limits.max_neighbors < join.most:
            raise NodeError(
                f"limits.max_neighbors={self.limits.max_neighbors} with join.degree={join.degree}: an agent that wants "
                f"so many takes up to {join.most}. Leave it out, or choose a smaller degree."
            )
        for field in ("endpoint", "advertise"):
            if getattr(join, field) is not None:
                self._check_endpoint(getattr(join, field), f"join.{field}")
        if self.relay is not None and join.advertise is None and Endpoint.parse(self.listen[0]).loopback:
            raise NodeError(
                f"[relay] and [join] with listen={self.listen[0]!r}: others find this agent at its port on the relay, "
                "and must be told. Add advertise = 'tls/relay.example:7501' to [join]."
            )
        if self.advertised is not None and is_unspecified(Endpoint.parse(self.advertised).host):
            raise NodeError(f"{self.advertised!r}: nobody can dial that. Add advertise = 'tls/host:port' to [join].")

    def _check_neighbors(self) -> None:
        seen = {self.name}
        for i, neighbor in enumerate(self.neighbors):
            where = f"neighbors[{i}]"
            if neighbor.name in seen:
                rule = "an agent is no neighbor of itself" if neighbor.name == self.name else "list each once"
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
        """Off loopback only with TLS; where there are keys, they are used."""
        if endpoint.protocol == "tls" and self.tls is None:
            raise NodeError(f"{where}={str(endpoint)!r}: TLS needs keys. Add [tls], see: colme node keys.")
        if endpoint.protocol == "tcp" and self.tls is not None:
            raise NodeError(f"{where}={str(endpoint)!r}: this agent has keys, so all of it is TLS. Try 'tls/...'.")
        if endpoint.protocol == "tcp" and not endpoint.loopback:
            raise NodeError(f"{where}={str(endpoint)!r}: off loopback everything is TLS. Try 'tls/...', and add [tls].")

    @classmethod
    def read(cls, path: str | Path) -> NodeConfig:
        """From a TOML file."""
        path = Path(path)
        table = read_toml(path, NodeError, "Try: colme node plan.")
        with located(f"{path}: ", NodeError):
            return cls.parse(table, folder=path.parent)

    @classmethod
    def parse(cls, table: dict[str, Any], *, folder: Path | str = ".") -> NodeConfig:
        """From a table of the same form as the file; paths become those from the folder."""
        check_keys(table, cls, "node", {"name": 'name = "pi-3"', "method": "[method]"})
        rest = {key: value for key, value in table.items() if key != "method"}
        fields = convert_fields(rest, cls, NodeError)
        home = Path(folder)
        fields["store"] = str(home / (fields.get("store") or f"{table['name']}.sqlite"))
        if "tls" in fields:
            fields["tls"] = fields["tls"].within(home)
        if "samples" in fields and fields["samples"].source in ("file", "unix"):
            address = str(home / fields["samples"].address)
            fields["samples"] = Samples(source=fields["samples"].source, address=address)
        if "estimates" in fields and fields["estimates"].to == "file":
            fields["estimates"] = Estimates(to="file", address=str(home / fields["estimates"].address))
        if "host" in fields:
            files = {
                key: str(home / value) for key in ("agents", "estimates") if (value := getattr(fields["host"], key))
            }
            fields["host"] = msgspec.structs.replace(fields["host"], **files)
        return cls(method=method_of(table["method"]), **fields)

    @property
    def everyone(self) -> tuple[str, ...]:
        """All who may speak to this agent, in order."""
        names = {*self.members, *(neighbor.name for neighbor in self.neighbors)}
        if self.join is not None and self.join.seed is not None:
            names.add(self.join.seed)
        return tuple(sorted(names - {self.name}))

    @property
    def inner(self) -> Endpoint | None:
        """Where it listens on loopback: what a relay carries ends there."""
        places = (Endpoint.parse(text) for text in self.listen)
        return next((place for place in places if place.loopback), None)

    @property
    def advertised(self) -> str | None:
        """Where others can dial it."""
        chosen = None if self.join is None else self.join.advertise
        return chosen or (self.listen[0] if self.listen else None)

    @property
    def admits_certified(self) -> bool:
        """Whether a certificate is enough to speak to this agent."""
        return self.join is not None and self.join.admit == "certified"

    def admits(self, name: str, endpoint: str | None) -> bool:
        """Whether somebody of whom it was told may be dialled there, or (None) dial this agent."""
        if name == self.name or not (self.admits_certified or name in self.everyone):
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
        """Where the running node answers those who ask for its status: beside its store."""
        return str(Path(self.store).with_suffix(".sock"))

    @property
    def degree(self) -> int:
        """The largest in the network, as far as this agent can tell."""
        if self.host is not None:
            own = 1  # its file of agents tells more
        else:
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
    def parts(self) -> int:
        """Of a state on the wire."""
        return 1 if self.host is None else self.host.parts

    @property
    def max_record(self) -> int:
        if self.host is not None:
            return self.limits.max_record or MOST_BYTES
        n_items = most_items(self.method, self.max_neighbors)
        letter = 0 if self.join is None else MOST_LETTER
        return self.limits.max_record or max(presets.max_record(n_items), letter)

    @property
    def max_rate(self) -> float:
        return self.limits.max_rate or presets.max_rate(self.tick_rate)

    @property
    def max_neighbors(self) -> int:
        if self.limits.max_neighbors is None and self.join is not None:
            return max(self.join.most, len(self.neighbors))
        return self.limits.max_neighbors or presets.max_neighbors(len(self.neighbors), len(self.everyone))

    @property
    def rx_threads(self) -> int:
        usual = max(len(self.neighbors), 0 if self.join is None else self.join.degree)
        return self.limits.rx_threads or presets.rx_threads(usual)

    @property
    def max_sessions(self) -> int:
        return self.limits.max_sessions or presets.max_sessions(self.max_neighbors)


def method_of(table: Any, known: Iterable[type[Method]] = METHODS) -> Method:
    """A method from its table, as experiment files have it."""
    if not isinstance(table, dict) or "method" not in table:
        raise NodeError(f"method={shorten(table)}: it is a table that says which. Write [method], method = 'cl-colme'.")
    by_tag = {str(kind.__struct_config__.tag): kind for kind in known}
    with located("method", NodeError):
        one_of(table["method"], by_tag, "method", NodeError)
        kind = by_tag[table["method"]]
        fields = {key: value for key, value in table.items() if key != "method"}
        for key in fields:
            one_of(key, kind.__struct_fields__, "key", NodeError)
        return kind(**convert_fields(fields, kind, NodeError))
