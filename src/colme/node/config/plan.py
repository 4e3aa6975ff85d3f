"""Configurations for a fleet, from a list of hosts: who talks to whom, who dials, keys and certificates.

    # name   address[:port], or - for one that nobody can dial (behind NAT)
    pi-1     192.168.1.11
    pi-2     192.168.1.12:7500
    pi-3     -
    pi-4     relay.example:7501 via relay.example:7460      # behind NAT too, and reached through a relay

becomes a folder with one subfolder per agent, to be copied to its device, and the authority, to be kept:

    fleet/authority/ca.key ca.pem
    fleet/pi-1/node.toml ca.pem pi-1.pem pi-1.key
    ...
    fleet/relay/relay.toml ca.pem relay.pem relay.key     # if there is one
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from colme.errors import NodeError, missing_extra, shorten
from colme.graphs import Graph, random_regular_graph
from colme.method import Method
from colme.node.config.node_toml import NodeConfig
from colme.node.core import Core
from colme.node.hosts.plan import Crowd
from colme.node.names import Endpoint, bracketed, check_name
from colme.node.net.relay import PORT as RELAY_PORT
from colme.node.net.relay import RelayConfig

PORT = 7447
AUTHORITY = "authority"
_DRAWS = 1000  # graphs to try


class Host(NamedTuple):
    """An agent and where others can dial it; address=None: nowhere. `via` is host:port of the relay that listens there
    for it."""

    name: str
    address: str | None
    port: int = PORT
    via: str | None = None


def read_hosts(path: str | Path) -> tuple[Host, ...]:
    """The list of hosts in a text file."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise NodeError(f"cannot read {path}: {reason}. Name a file with a line per agent: name address.") from None
    hosts = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if len(words) not in (0, 2) and not (len(words) == 4 and words[2] == "via"):
            raise NodeError(f"{path}, line {number}: {shorten(line.strip())} must be a name and an address. "
                            "Try: pi-1 192.168.1.11")  # fmt: skip
        if words:
            hosts.append(_host(words[0], words[1], f"{path}, line {number}: address", *words[3:]))
    return tuple(hosts)


def plan(
    hosts: Sequence[Host],
    folder: str | Path,
    *,
    method: Method,
    network: str = "colme",
    preset: str = "lan",
    tick_rate: float = 10.0,
    degree: int | None = None,
    graph: Graph | None = None,
    seed: int = 0,
    days: int | None = None,
    agents: int | None = None,
    replace: bool = True,
    admit: str = "members",
) -> Path:
    """Write the folder of a fleet, whole or not at all.

    degree  neighbors of each agent (default: 6, or fewer where there are few agents)
    graph   who talks to whom, instead; agents are numbered as in `hosts`
    seed    of the graph
    days    for which certificates are good (default: a year)
    agents  many on each host, neighbors across hosts at random: a file that lists them goes into each folder
    replace neighbors that are lost, by introduction; without, agents have the neighbors of the graph and no others
    admit   "members" of the fleet as neighbors, or whoever has a certificate of its authority ("certified")
    """
    target = Path(folder)
    if target.exists():
        raise NodeError(f"{target} exists: a plan is not overwritten, for it holds keys. Choose another folder.")
    check_hosts(hosts)
    if agents is not None and graph is not None:
        raise NodeError(f"agents={agents} and graph={graph}: the graph of many agents is drawn. Leave one out.")
    crowd = None if agents is None else Crowd([host.name for host in hosts], agents, method, degree=degree, seed=seed)
    if crowd is not None:
        degree, graph = None, crowd.between_hosts
    edges = [(hosts[a], hosts[b]) for a, b in _graph(hosts, degree, graph, seed).edges()]
    tables = {host.name: _table(host, hosts, edges, method) for host in hosts}
    if crowd is not None:
        for table in tables.values():
            table |= crowd.table
    elif replace and not method.baseline:
        for i, host in enumerate(hosts):
            tables[host.name]["join"] = _join(host, [*hosts[i + 1 :], *hosts[:i]], len(edges), admit)
    if admit == "certified" and "join" not in tables[hosts[0].name]:
        raise NodeError("admit='certified': newcomers come to agents that find neighbors themselves, not to those of "
                        "agents=..., replace=False or Local(). Leave one out.")  # fmt: skip
    for name, table in tables.items():
        table |= {"name": name, "network": network, "preset": preset, "tick_rate": float(tick_rate)}
        config = NodeConfig.parse(table)
    _check_method(config, crowd)
    for via, name in relays(hosts).items():
        RelayConfig.parse(_relay_table(via, name, hosts))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))  # readable by its owner only
    except OSError as error:
        raise NodeError(f"cannot write {target}: {error.strerror}. Choose a folder that is writable.") from None
    try:
        _write(draft, hosts, tables, network, days)
        if crowd is not None:
            crowd.write(draft)
        os.rename(draft, target)
    except OSError as error:
        raise NodeError(f"cannot write {target}: {error.strerror}. Choose a folder with room.") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _check_method(config: NodeConfig, crowd: Crowd | None) -> None:
    """Refuse what the agents would refuse when they start."""
    sigma = getattr(config.method, "sigma", None)
    known: dict[str, Any] = {"n_agents": config.n_agents, "degree": config.degree, "sigma": sigma}
    if crowd is None:
        Core(config.method, config.name, (), **known)
        return
    from colme.node.hosts.host import HostCore

    HostCore(config.method, config.name, crowd.graphs[-1], **known)


def check_hosts(hosts: Sequence[Host]) -> None:
    """Refuse two agents of one name or at one place."""
    if not hosts:
        raise NodeError("there is no host: a fleet has at least one agent. Add a line: pi-1 192.168.1.11")
    names = {AUTHORITY, *relays(hosts).values()}
    places: set[tuple[str, int]] = set()
    for host in hosts:
        check_name(host.name, "name")
        if host.name in names:
            raise NodeError(f"agent {host.name!r} is taken: every agent has a name of its own. Rename it.")
        names.add(host.name)
        if host.address is not None:
            place = (host.address, host.port)
            if place in places:
                where = f"{bracketed(host.address)}:{host.port}"
                raise NodeError(f"agent {host.name!r} listens at {where}, as another does. Give it another port.")
            places.add(place)


def _host(name: str, text: str, where: str, via: str | None = None) -> Host:
    check_name(name, "name")
    if text == "-" and via is None:
        return Host(name, None)
    place = _place(text, PORT, where)
    if via is not None:
        relay = _place(via, RELAY_PORT, where)
        via = f"{bracketed(relay.host)}:{relay.port}"
    return Host(name, place.host, place.port, via)


def _place(text: str, port: int, where: str) -> Endpoint:
    """host or host:port."""
    bare = text.startswith("[") and text.endswith("]")  # an IPv6 address without a port
    try:
        return Endpoint.parse(f"tls/{text}:{port}" if bare or ":" not in text else f"tls/{text}")
    except NodeError:
        raise NodeError(f"{where}={shorten(text)}: it must be a host, host:port or -. Try 192.168.1.11:7447.") from None


def _graph(hosts: Sequence[Host], degree: int | None, graph: Graph | None, seed: int) -> Graph:
    """The graph given, or a random one that is connected and whose edges can all be dialled."""
    n = len(hosts)
    if graph is not None:
        if degree is not None:
            raise NodeError(f"degree={degree} and graph={graph}: a graph has its degrees. Leave one out.")
        if graph.n_agents != n:
            raise NodeError(f"the graph has {graph.n_agents} agents and the list {n}: they must be the same.")
        _check_dialled(hosts, graph)
        return graph
    if degree is None:
        degree = min(6, n - 1)
        degree -= n * degree % 2
    for draw in range(_DRAWS):
        found = random_regular_graph(n, degree, rng=seed + draw)
        if found.components().max() == 0 and _undialled(hosts, found) is None:
            return found
    _check_dialled(hosts, found)
    raise NodeError(f"degree={degree}: {n} agents would not all be connected. Try degree={min(n - 1, degree + 2)}.")


def _undialled(hosts: Sequence[Host], graph: Graph) -> tuple[Host, Host] | None:
    """Two neighbors neither of whom can be dialled."""
    pairs = ((hosts[a], hosts[b]) for a, b in graph.edges())
    return next((pair for pair in pairs if pair[0].address is None and pair[1].address is None), None)


def _check_dialled(hosts: Sequence[Host], graph: Graph) -> None:
    pair = _undialled(hosts, graph)
    if pair is not None:
        raise NodeError(f"{pair[0].name!r} and {pair[1].name!r} would be neighbors, and nobody can dial either: one "
                        "end must listen. Try another graph, or give one an address.")  # fmt: skip


def _table(host: Host, hosts: Sequence[Host], edges: list[tuple[Host, Host]], method: Method) -> dict[str, Any]:
    """The file of one agent. Of two neighbors the later in the list dials, unless the earlier must."""
    neighbors = []
    for pair in edges:
        if host in pair:
            other = pair[pair[0] == host]
            earlier, later = pair
            dialler = later if earlier.address is not None else earlier
            neighbors.append({"name": other.name} | ({"endpoint": _endpoint(other)} if host == dialler else {}))
    table: dict[str, Any] = {
        "n_agents": len(hosts),
        "n_edges": max(1, len(edges)),
        "members": [other.name for other in hosts if other != host],
        "method": method_table(method),
        "tls": {"ca": "ca.pem", "certificate": f"{host.name}.pem", "key": f"{host.name}.key"},
        "neighbors": neighbors,
    }
    if host.via is not None:  # the same port on loopback: it is nobody else's, even on one machine
        relay = {"address": host.via, "name": relays(hosts)[host.via]}
        return table | {"listen": [str(Endpoint("tls", "127.0.0.1", host.port))], "relay": relay}
    return table if host.address is None else table | {"listen": [_endpoint(host)]}


def relays(hosts: Sequence[Host]) -> dict[str, str]:
    """The names of the relays, by their addresses."""
    every = list(dict.fromkeys(host.via for host in hosts if host.via is not None))
    return {via: "relay" if len(every) == 1 else f"relay-{i}" for i, via in enumerate(every, 1)}


def _relay_table(via: str, name: str, hosts: Sequence[Host]) -> dict[str, Any]:
    """The file of a relay."""
    return {
        "name": name,
        "listen": f"0.0.0.0:{Endpoint.parse(f'tls/{via}').port}",
        "tls": {"ca": "ca.pem", "certificate": f"{name}.pem", "key": f"{name}.key"},
        "agents": {host.name: host.port for host in hosts if host.via == via},
    }


def _join(host: Host, others: Sequence[Host], n_edges: int, admit: str) -> dict[str, Any]:
    """How an agent finds neighbors: as many as agents have in the mean, and the next of the list for a seed."""
    seed = next((host for host in others if host.address is not None), None)
    table: dict[str, Any] = {"degree": max(1, round(2 * n_edges / (len(others) + 1))), "admit": admit}
    if host.via is not None:
        table["advertise"] = _endpoint(host)  # at the relay: it listens on loopback
    return table if seed is None else table | {"seed": seed.name, "endpoint": _endpoint(seed)}


def _endpoint(host: Host) -> str:
    assert host.address is not None
    return str(Endpoint("tls", host.address, host.port))


def method_table(method: Method) -> dict[str, Any]:
    """A method as a table: its tag, and what is not as by default."""
    plain: dict[str, Any] = msgspec.to_builtins(method)
    defaults = {field.encode_name: field.default for field in msgspec.structs.fields(method)}
    return {key: value for key, value in plain.items() if key == "method" or value != defaults.get(key)}


def _write(
    draft: Path, hosts: Sequence[Host], tables: dict[str, dict[str, Any]], network: str, days: int | None
) -> None:
    from colme.node.security import keys

    keys.make_authority(draft / AUTHORITY, network)
    good_for = keys.DAYS if days is None else days
    for host in hosts:
        own = draft / host.name
        places = [] if host.address is None else [host.address]
        keys.make_certificate(draft / AUTHORITY, host.name, places, folder=own, days=good_for)
        (own / "node.toml").write_bytes(to_toml(tables[host.name]))
        own.chmod(0o700)
    for via, name in relays(hosts).items():
        own = draft / name  # its certificate holds no host, so that it cannot answer in an agent's place
        keys.make_certificate(draft / AUTHORITY, name, [], folder=own, days=good_for)
        (own / "relay.toml").write_bytes(to_toml(_relay_table(via, name, hosts)))
        own.chmod(0o700)


def to_toml(table: dict[str, Any]) -> bytes:
    first = ("name", "network", "preset", "tick_rate", "listen")
    ordered = {key: table[key] for key in (*first, *table) if key in table}
    try:
        return msgspec.toml.encode(ordered)
    except ImportError:
        raise missing_extra("tomli-w", "node", "writing configurations") from None
