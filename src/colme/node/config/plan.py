"""Plan a fleet: from a list of hosts, write the configuration, key and certificate of every agent.

The list is a text file:

    # name   where other agents dial it: host or host:port, or - if it cannot be dialed (behind NAT)
    pi-1     192.168.1.11
    pi-2     192.168.1.12:7500
    pi-3     -
    pi-4     hub.example:7501 listen 127.0.0.1:7447     # behind NAT; a tunnel forwards hub.example:7501

The result is a folder with one subfolder per agent, to be copied to its device, and the authority, which stays:

    fleet/authority/ca.key ca.pem
    fleet/pi-1/node.toml ca.pem pi-1.pem pi-1.key firewall.nft limits.conf
    ...
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from colme.errors import NodeError, missing_extra, one_of, shorten
from colme.graphs import Graph, from_edges, random_regular_graph
from colme.method import Method
from colme.node.config import firewall
from colme.node.config.node_toml import NodeConfig
from colme.node.config.presets import default_degree
from colme.node.config.tables import SOURCES, Samples
from colme.node.gateway import core_of
from colme.node.names import AUTHORITY, Endpoint, bracketed, check_file_name, check_name

PORT = 7447
_DRAWS = 1000  # graphs to try


RARELY = 60.0
"""Seconds between two reports, and two saves, of the local agents of a gateway: a save of ten thousand is 3 MB."""


class Host(NamedTuple):
    """An agent and where others dial it (address=None: it cannot be dialed). `listen` is host:port where the agent
    itself listens, if a tunnel or a router forwards that address to it."""

    name: str
    address: str | None
    port: int = PORT
    listen: str | None = None


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
        if len(words) not in (0, 2) and not (len(words) == 4 and words[2] == "listen"):
            raise NodeError(f"{path}, line {number}: {shorten(line.strip())} must be a name and an address. "
                            "Try: pi-1 192.168.1.11")  # fmt: skip
        if words:
            hosts.append(_host(words[0], words[1], f"{path}, line {number}: address", *words[3:]))
    return tuple(hosts)


def read_samples(text: str) -> Samples:
    """A source of samples and its address, as one word: file:readings.txt, mqtt:127.0.0.1:1883/greenhouse/{name}."""
    source, _, address = text.partition(":")
    one_of(source, SOURCES, "source", NodeError)
    return Samples(source=source, address=address)


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
    modules: Sequence[str | Path] = (),
    samples: Samples | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Path:
    """Write the folder of a fleet, whole or not at all.

    degree  neighbors of each agent (default: 6, or fewer if there are few agents or few that can be dialed; if those
            are fewer than half, degrees are unequal: agents that cannot be dialed are connected to those that can)
    graph   the graph of neighbors, instead of a random one; agents are numbered as in `hosts`
    seed    seed of the random graph
    days    validity of the certificates (default: a year)
    agents  every node is a gateway, with up to so many local agents
    replace whether lost neighbors are replaced by introduction; if not, agents keep the neighbors of the graph
    admit   which agents may become neighbors: "members" of the fleet, or all "certified" by its authority
    modules Python files with methods of your own; a copy goes into each folder
    samples where agents get samples (default: stdin); {name} in the address stands for the name of each
    say     is called with a sentence if the agents have unequal numbers of neighbors
    """
    target = Path(folder)
    if target.exists():
        raise NodeError(f"{target} exists: a plan holds keys and is not overwritten. Choose another folder.")
    check_hosts(hosts)
    chosen = _graph(hosts, degree, graph, seed)
    if graph is None and (unequal := _explain_degrees(hosts, chosen)):
        say(unequal)
    edges = [(hosts[a], hosts[b]) for a, b in chosen.edges()]
    tables = {host.name: _table(host, hosts, edges, method) for host in hosts}
    if agents is not None:
        for table in tables.values():
            table |= {"gateway": {"agents": agents}, "limits": {"max_ballots": agents}, "report_every": RARELY,
                      "save_every": max(1, round(RARELY * tick_rate)), "sync_every": 10 * RARELY}  # fmt: skip
    if replace and not method.baseline:
        for i, host in enumerate(hosts):
            tables[host.name]["join"] = _join(host, [*hosts[i + 1 :], *hosts[:i]], len(edges), admit)
    if admit == "certified" and "join" not in tables[hosts[0].name]:
        raise NodeError("admit='certified': only agents that find neighbors at run time admit newcomers, not those of "
                        "replace=False or Local(). Leave one out.")  # fmt: skip
    for name, table in tables.items():
        table |= {"name": name, "network": network, "preset": preset, "tick_rate": float(tick_rate)}
        if samples is not None and samples.source != "stdin":
            table["samples"] = {"source": samples.source, "address": samples.address.replace("{name}", name)}
        config = NodeConfig.parse(table | {"modules": [str(Path(each).absolute()) for each in modules]})
        if modules:
            table["modules"] = _module_names(modules)
    core_of(config)  # refuses what the agents would refuse at their start
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))  # readable by its owner only
    except OSError as error:
        raise NodeError(f"cannot write {target}: {error.strerror}. Choose a folder that is writable.") from None
    try:
        _write(draft, hosts, tables, network, days)
        if unknown := _write_firewall(draft, hosts, newcomers=admit == "certified"):
            say(unknown)
        for host in hosts:
            for each in modules:
                shutil.copyfile(each, draft / host.name / Path(each).name)
        os.rename(draft, target)
    except OSError as error:
        raise NodeError(f"cannot write {target}: {error.strerror}. Choose a folder with room.") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _module_names(modules: Sequence[str | Path]) -> list[str]:
    """The names of the files in the folder of an agent."""
    names = [Path(each).name for each in modules]
    for name, count in Counter(names).items():
        if count > 1:
            raise NodeError(f"{count} modules are called {name}: they go into one folder. Rename one.")
    return names


def check_hosts(hosts: Sequence[Host]) -> None:
    """Refuse two agents with one name or one address."""
    if not hosts:
        raise NodeError("the list of hosts is empty: a fleet has at least one agent. Add a line: pi-1 192.168.1.11")
    names: set[str] = set()
    places: set[tuple[str, int]] = set()
    for host in hosts:
        check_file_name(host.name)
        if host.name in names:
            raise NodeError(f"agent {host.name!r} is taken: names are unique. Rename it.")
        names.add(host.name)
        if host.address is not None:
            place = (host.address, host.port)
            if place in places:
                where = f"{bracketed(host.address)}:{host.port}"
                raise NodeError(f"agent {host.name!r} has the address {where}, as another has. Give it another port.")
            places.add(place)


def _host(name: str, text: str, where: str, listen: str | None = None) -> Host:
    check_name(name, "name")
    if text == "-" and listen is None:
        return Host(name, None)
    place = _place(text, where)
    if listen is not None:
        own = _place(listen, where)
        listen = f"{bracketed(own.host)}:{own.port}"
    return Host(name, place.host, place.port, listen)


def _place(text: str, where: str) -> Endpoint:
    """host or host:port."""
    bare = text.startswith("[") and text.endswith("]")  # an IPv6 address without a port
    try:
        return Endpoint.parse(f"tls/{text}:{PORT}" if bare or ":" not in text else f"tls/{text}")
    except NodeError:
        raise NodeError(f"{where}={shorten(text)}: it must be a host, host:port or -. Try 192.168.1.11:7447.") from None


def _graph(hosts: Sequence[Host], degree: int | None, graph: Graph | None, seed: int) -> Graph:
    """The graph given, or a random one that is connected and whose edges can all be dialed: regular, unless fewer than
    half of the agents can be dialed."""
    n = len(hosts)
    if graph is not None:
        if degree is not None:
            raise NodeError(f"degree={degree} and graph={graph}: a graph has its degrees. Leave one out.")
        if graph.n_agents != n:
            raise NodeError(f"the graph has {graph.n_agents} agents and the list {n}: they must be the same.")
        _check_dialable(hosts, graph)
        return graph
    wanted = default_degree(n) if degree is None else degree
    for draw in range(_DRAWS):
        found = random_regular_graph(n, wanted, rng=seed + draw)
        if found.components().max() == 0 and _undialable(hosts, found) is None:
            return found
    n_dialable = sum(host.address is not None for host in hosts)
    if n <= 2 * n_dialable < 2 * n:
        smaller = range(min(wanted, n_dialable), 0, -1) if degree is None else [wanted]
        for each in smaller:
            if each <= n_dialable and n * each % 2 == 0 and (found_regular := _regular_graph(hosts, each, seed)):
                return found_regular
    if degree is None and n_dialable:
        return _graph_around_dialable(hosts, wanted, seed)
    _check_dialable(hosts, found, "Give" if degree is None else "Leave the degree out, give")
    raise NodeError(f"degree={wanted}: {n} agents would not all be connected. Try degree={min(n - 1, wanted + 2)}.")


def _regular_graph(hosts: Sequence[Host], degree: int, seed: int) -> Graph | None:
    """A random connected graph of equal degrees without an edge between two agents that cannot be dialed, which are at
    most half of all; None if none is found.

    Each of them is connected to `degree` dialable agents, evenly, so that what these lack differs by at most one; a
    graph with such degrees exists, and Havel's and Hakimi's algorithm finds it. Switching pairs of edges then makes it
    random."""
    dialable = [i for i, host in enumerate(hosts) if host.address is not None]
    others = [i for i, host in enumerate(hosts) if host.address is None]
    lacking = dict.fromkeys(dialable, degree)
    edges: list[tuple[int, int]] = []
    for k, other in enumerate(others):
        for j in range(degree):
            near = dialable[(k * degree + j) % len(dialable)]
            edges.append((near, other))
            lacking[near] -= 1
    while any(lacking.values()):
        first, *rest = sorted(lacking, key=lambda i: -lacking[i])
        if lacking[rest[lacking[first] - 1]] < 1:
            return None
        for near in rest[: lacking[first]]:
            edges.append((first, near))
            lacking[near] -= 1
        lacking[first] = 0
    hidden, rng = set(others), np.random.default_rng(seed)
    for _ in range(_DRAWS):
        _switch_edges(edges, hidden, rng)
        found = from_edges([(min(edge), max(edge)) for edge in edges], len(hosts))
        if found.components().max() == 0:
            return found
    return None


def _switch_edges(edges: list[tuple[int, int]], hidden: set[int], rng: np.random.Generator) -> None:
    """Replace pairs of edges a-b, c-d by a-d, c-b many times, where that gives no double edge, no loop and no edge
    between two hidden agents; degrees do not change."""
    there = {frozenset(edge) for edge in edges}
    for i, j, flip in rng.integers(0, [len(edges), len(edges), 2], (10 * len(edges), 3)).tolist():
        (a, b), (c, d) = edges[i], edges[j][::-1] if flip else edges[j]
        new = frozenset((a, d)), frozenset((c, b))
        if len({a, b, c, d}) == 4 and not any(each in there or each <= hidden for each in new):
            there -= {frozenset((a, b)), frozenset((c, d))}
            there.update(new)
            edges[i], edges[j] = (a, d), (c, b)


def _explain_degrees(hosts: Sequence[Host], graph: Graph) -> str:
    """Why the agents of a random graph have unequal numbers of neighbors; empty if they have equal ones."""
    low, high = int(graph.degrees.min()), int(graph.degrees.max())
    if low == high:
        return ""
    hidden = sum(host.address is None for host in hosts)
    return (
        f"Agents have {low} to {high} neighbors: {hidden} of {len(hosts)} cannot be dialed, and can only be connected "
        "to the others. With addresses for at least half of the agents, all would have equally many."
    )


def _graph_around_dialable(hosts: Sequence[Host], degree: int, seed: int) -> Graph:
    """A connected graph for fleets with too few dialable agents for a regular one: a random regular graph of the
    dialable agents, and each other agent connected to `degree` of them (or to all), evenly."""
    dialable = [i for i, host in enumerate(hosts) if host.address is not None]
    others = [i for i, host in enumerate(hosts) if host.address is None]
    core = _graph([hosts[i] for i in dialable], None, None, seed)
    edges = [(dialable[a], dialable[b]) for a, b in core.edges()]
    order = np.random.default_rng(seed).permutation(dialable).tolist()
    each = min(degree, len(order))
    for k, other in enumerate(others):
        edges += [(order[(k * each + j) % len(order)], other) for j in range(each)]
    return from_edges([(min(edge), max(edge)) for edge in edges], len(hosts))


def _undialable(hosts: Sequence[Host], graph: Graph) -> tuple[Host, Host] | None:
    """Two neighbors neither of which can be dialed, if there are any."""
    pairs = ((hosts[a], hosts[b]) for a, b in graph.edges())
    return next((pair for pair in pairs if pair[0].address is None and pair[1].address is None), None)


def _check_dialable(hosts: Sequence[Host], graph: Graph, remedy: str = "Give") -> None:
    pair = _undialable(hosts, graph)
    if pair is not None:
        raise NodeError(f"{pair[0].name!r} and {pair[1].name!r} would be neighbors, and neither can be dialed: one "
                        f"must have an address. {remedy} one of them an address, or forward a port to it: "
                        "see docs/howto/behind_nat.md.")  # fmt: skip


def _table(host: Host, hosts: Sequence[Host], edges: list[tuple[Host, Host]], method: Method) -> dict[str, Any]:
    """The configuration of one agent. It dials every neighbor that can be dialed."""
    neighbors = []
    for pair in edges:
        if host in pair:
            other = pair[pair[0] == host]
            neighbors.append({"name": other.name} | ({"endpoint": _endpoint(other)} if other.address else {}))
    table: dict[str, Any] = {
        "n_agents": len(hosts),
        "n_edges": max(1, len(edges)),
        "members": [other.name for other in hosts if other != host],
        "method": method_table(method),
        "tls": {"ca": "ca.pem", "certificate": f"{host.name}.pem", "key": f"{host.name}.key"},
        "neighbors": neighbors,
    }
    if host.address is None:
        return table
    return table | {"listen": [_endpoint(host) if host.listen is None else f"tls/{host.listen}"]}


def _join(host: Host, others: Sequence[Host], n_edges: int, admit: str) -> dict[str, Any]:
    """The [join] table of an agent: the mean degree, and the next dialable agent of the list as the seed."""
    seed = next((host for host in others if host.address is not None), None)
    table: dict[str, Any] = {"degree": max(1, round(2 * n_edges / (len(others) + 1))), "admit": admit}
    if host.listen is not None:
        table["advertise"] = _endpoint(host)
    return table if seed is None else table | {"seed": seed.name, "endpoint": _endpoint(seed)}


def _endpoint(host: Host) -> str:
    assert host.address is not None
    return str(Endpoint("tls", host.address, host.port))


def method_table(method: Method) -> dict[str, Any]:
    """A method as a table: its tag, the fields that differ from their defaults, and whether it has a guard."""
    plain: dict[str, Any] = msgspec.to_builtins(method)
    defaults = {field.encode_name: field.default for field in msgspec.structs.fields(method)}
    return {key: value for key, value in plain.items() if key in ("method", "guard") or value != defaults.get(key)}


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


def _write_firewall(draft: Path, hosts: Sequence[Host], *, newcomers: bool) -> str:
    """Write the firewall rules of every agent that listens; return a sentence about addresses that are not known."""
    listening = {
        host.name: host.port if host.listen is None else Endpoint.parse(f"tls/{host.listen}").port
        for host in hosts if host.address is not None
    }  # fmt: skip
    return firewall.write(draft, hosts, listening, newcomers=newcomers)


def to_toml(table: dict[str, Any]) -> bytes:
    first = ("name", "network", "preset", "tick_rate", "listen")
    ordered = {key: table[key] for key in (*first, *table) if key in table}
    try:
        return msgspec.toml.encode(ordered)
    except ImportError:
        raise missing_extra("tomli-w", "node", "writing configurations") from None
