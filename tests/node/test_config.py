"""node.toml: what it holds, what is refused and with which sentence, and the formula of every setting."""

from __future__ import annotations

import contextlib
import copy
import math
import tomllib
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import colme
from colme.errors import ColmeError, NodeError
from colme.lab.experiment import Experiment
from colme.node.config import node_toml as module
from colme.node.config.node_toml import NodeConfig, method_of
from colme.node.config.plan import method_table
from colme.node.config.tables import Join, Limits, Neighbor, Samples, Tls
from colme.node.gateway import core_of
from colme.node.names import Endpoint, check_name, is_loopback

# the example in the docstring is the one that is tested
EXAMPLE = "\n".join(line[4:] for line in (module.__doc__ or "").splitlines() if line.startswith("    "))


def table() -> dict[str, Any]:
    return tomllib.loads(EXAMPLE)


def test_the_example_is_read(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(EXAMPLE)
    node = NodeConfig.read(path)
    assert node.name == "pi-3" and node.method == colme.CLColME(sigma=2.0, guard=True)
    assert node.neighbors == (Neighbor(name="pi-1", endpoint="tls/192.168.1.11:7447"), Neighbor(name="pi-4"))
    assert node.peers == ("pi-1", "pi-4") and (node.n_agents, node.n_edges) == (5, 5)
    assert node.store == str(tmp_path / "pi-3.sqlite")  # paths are relative to the file
    assert node.tls == Tls(**{key: str(tmp_path / name) for key, name in table()["tls"].items()})
    assert eval(repr(node), vars(module) | vars(colme.methods)) == node


def changed(changes: dict[str, Any], tree: dict[str, Any]) -> dict[str, Any]:
    """A table in which something deep inside is set, or taken out (None)."""
    for path, value in changes.items():
        *outer, last = [int(word) if word.isdigit() else word for word in path.split(".")]
        inner: Any = tree
        for word in outer:
            inner = inner.setdefault(word, {}) if isinstance(word, str) else inner[word]
        inner.pop(last) if value is None else inner.__setitem__(last, value)
    return tree


ALONE = {"tls": None, "listen": None, "neighbors": None}
BAD: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "misspelt key": ({"netwrok": "x"}, ("unknown key 'netwrok'", "Did you mean 'network'?")),
    "no name": ({"name": None}, ("name is missing", 'Add name = "pi-3"')),
    "no method": ({"method": None}, ("method is missing", "Add [method]")),
    "method is a word": ({"method": "local"}, ("method='local'", "it must be a table", "Write [method]")),
    "unknown method": ({"method.method": "cl-colm"}, ("method: unknown method", "Did you mean 'cl-colme'?")),
    "misspelt field": ({"method.delt": 0.1}, ("method: unknown key 'delt'", "Did you mean 'delta'?")),
    "wrong type": ({"method.delta": "x"}, ("method.delta='x'", "must be a number")),
    "out of range": ({"method.delta": 2.0}, ("method.delta=2.0", "between 0 and 1", "Try delta=0.1")),
    "name with a slash": ({"name": "a/b"}, ("name='a/b'", "letters, digits", "Try 'pi-3'")),
    "name that is a wildcard": ({"neighbors.0.name": "*"}, ("neighbors[0]", "name='*'", "Try 'pi-3'")),
    "member": ({"members": ["pi-1", "$*"]}, ("members[1]='$*'", "Try 'pi-3'")),
    "unknown preset": ({"preset": "lam"}, ("unknown preset 'lam'", "Did you mean 'lan'?")),
    "no ticks": ({"tick_rate": 0.0}, ("tick_rate=0.0", "a number from 1e-05 to 1000", "Try tick_rate = 10.0")),
    "no edges": ({"n_edges": 0}, ("n_edges=0", "a whole number from 1")),
    "level": ({"level": 90.0}, ("level=90.0", "it must be between 0 and 1. Try level = 0.9.")),
    "endpoint": ({"neighbors.0.endpoint": "pi-1"}, ("neighbors[0]", "endpoint='pi-1'", "protocol/host:port")),
    "port": ({"listen": ["tls/pi-3:70000"]}, ("listen[0]='tls/pi-3:70000'", "protocol/host:port")),
    "no port": ({"neighbors.0.endpoint": "tls/pi-1:0"}, ("endpoint='tls/pi-1:0'", "protocol/host:port")),
    "options in an endpoint": (
        {"neighbors.0.endpoint": "tls/pi-1:7447#verify_name_on_connect=false"}, ("neighbors[0]", "host:port"),
    ),
    "another protocol": ({"listen": ["udp/10.0.0.1:7447"]}, ("listen[0]", "with protocol tls, or tcp")),
    "plain beside keys": ({"listen": ["tcp/127.0.0.1:7447"]}, ("listen[0]", "all its links use TLS")),
    "no keys": ({"tls": None}, ("neighbors[0].endpoint", "TLS needs keys", "Add [tls]")),
    "a key is missing": ({"tls.key": None}, ("tls", "key is missing. Add it.")),
    "itself": ({"neighbors.0.name": "pi-3"}, ("neighbors[0].name='pi-3'", "not its own neighbor")),
    "twice": ({"neighbors.1.name": "pi-1"}, ("neighbors[1].name='pi-1'", "once")),
    "nobody dials": ({"listen": None}, ("neighbors[1] has no endpoint", "one end must dial")),
    # samples and estimates
    "misspelt source": ({"samples.source": "stdinn"}, ("samples", "'stdinn'", "Did you mean 'stdin'?")),
    "address of stdin": ({"samples.address": "x"}, ("samples", "address='x': stdin has no address. Leave it out")),
    "file without a name": ({"samples.source": "file"}, ("address='': file needs one. Try address = 'readings.txt'",)),
    "empty range": (
        {"samples.least": 5.0, "samples.most": 5.0},
        ("least=5 with most=5", "no reading would count. Choose least below most."),
    ),
    "range that is no number": ({"samples.least": math.nan}, ("no reading would count",)),
    "wild": ({"samples.wild": "sometimes"}, ("unknown wild 'sometimes'",)),
    "misspelt sink": ({"estimates.to": "stdoutt"}, ("unknown sink 'stdoutt'", "Did you mean 'stdout'")),
    "estimates without a name": (
        {"estimates.to": "file"}, ("address='': file needs one. Try address = 'estimates.jsonl'",),
    ),
    "address of stdout": ({"estimates.address": "x"}, ("address='x': stdout has no address. Leave it out",)),
    # limits
    "misspelt limit": ({"limits.leese": 1.0}, ("limits: unknown key 'leese'", "Did you mean 'lease'?")),
    "lease": ({"limits.lease": -1.0}, ("limits", "lease=-1.0", "a number from 0.001 to 1e+07", "Try lease = 2.0")),
    "tiny records": ({"limits.max_record": 10}, ("limits", "max_record=10", "a whole number from 64")),
    # joining
    "no endpoint of a seed": ({"join.seed": "pi-1"}, ("they go together. Add endpoint",)),
    "no seed": ({"join.endpoint": "tls/a:1"}, ("they go together. Add seed",)),
    "admit": ({"join.admit": "everybody"}, ("unknown admit 'everybody'",)),
    "room": (
        {"join.degree": 4, "limits.max_neighbors": 11}, ("max_neighbors=11 with join.degree=4", "up to 12."),
    ),
    "certified without keys": (ALONE | {"join.admit": "certified"}, ("names are proved by certificates",)),
    "seed is itself": (
        {"join.seed": "pi-3", "join.endpoint": "tls/192.168.1.11:1"}, ("that is this agent itself",),
    ),
    "plain seed": (
        ALONE | {"join.seed": "pi-1", "join.endpoint": "tcp/192.0.2.1:1"},
        ("join.endpoint", "off loopback TLS is required"),
    ),
    "nobody to join": (
        ALONE | {"join": {}, "method": {"method": "local"}}, ("it has no neighbors. Leave [join] out",),
    ),
    "no address to dial": (
        {"join": {}, "listen": ["tls/0.0.0.0:7447"]}, ("cannot be dialed. Add advertise",),
    ),
    # gateways
    "gateway of another method": ({"gateway": {}}, ("many local agents vote in a census. Try method = 'census'",)),
    "unknown key of a gateway": ({"gateway.estimates": "x.csv"}, ("gateway: unknown key 'estimates'",)),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_told_with_its_place_and_a_remedy(name: str) -> None:
    changes, fragments = BAD[name]
    with pytest.raises(NodeError) as caught:
        core_of(NodeConfig.parse(changed(changes, table())))
    message = str(caught.value)
    position = 0
    for fragment in fragments:
        assert fragment in message[position:], message
        position = message.index(fragment, position)
    assert "\n" not in message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match=r"cannot read .*none.toml: No such file"):
        NodeConfig.read(tmp_path / "none.toml")
    with pytest.raises(NodeError, match=r"/dev/zero has more than 16 MB: it must be smaller"):
        NodeConfig.read("/dev/zero")
    path = tmp_path / "node.toml"
    path.write_text("name = ")
    with pytest.raises(NodeError, match=r"node.toml is not TOML: .*Mend that line"):
        NodeConfig.read(path)
    path.write_text(EXAMPLE.replace("pi-1", "a/b"))
    with pytest.raises(NodeError, match=r"node.toml: neighbors\[0\]: name='a/b'"):
        NodeConfig.read(path)


def numbers(struct: type[msgspec.Struct], prefix: str = "") -> dict[str, dict[str, Any]]:
    """Every field of node.toml that is a number, with what else its table needs."""
    found: dict[str, dict[str, Any]] = {}
    fields = msgspec.structs.fields(struct)
    for field in fields:
        kinds = {field.type, *get_args(field.type)}
        if kinds & {int, float}:
            found[f"{prefix}{field.name}"] = {each.name: "x" for each in fields if each.required and prefix}
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                found |= numbers(kind, f"{prefix}{field.name}.")
    return found


RANGE = {"samples.least", "samples.most"}  # any number, or none
NUMBERS = {field: more for field, more in numbers(NodeConfig).items() if field not in RANGE}
assert {"tick_rate", "level", "limits.rx_threads", "join.degree"} <= set(NUMBERS)


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308, 10**30, 2**63, -1, -(10**30)])
def test_every_number_of_the_file_has_bounds(field: str, value: float) -> None:
    if field == "origin" and abs(value) <= 1e30:
        return  # the only one that may be negative, and large
    wrong = table()
    if "." in field:
        wrong.setdefault(field.partition(".")[0], {}).update(NUMBERS[field])
    changed({field: value}, wrong)
    with pytest.raises(NodeError, match=field.rpartition(".")[2]) as caught:
        NodeConfig.parse(wrong)
    assert "\n" not in str(caught.value)


DEEP = {
    "lists": "x = " + "[" * 100_000 + "]" * 100_000,
    "inline tables": "x = " + "{a = " * 100_000 + "1" + "}" * 100_000,
    "dotted keys": ".".join(["a"] * 100_000) + " = 1",
    "a header": "[" + ".".join(["a"] * 100_000) + "]",
    "quoted keys": ".".join(["'a b'", '"c"'] * 50_000) + " = 1",
    "an inline table": "x = { " + " . ".join(["a"] * 100_000) + " = 1 }",
    "a method": "[method]\nmethod = " + "[" * 40 + "]" * 40,
}


@pytest.mark.parametrize("kind", DEEP)
def test_a_file_that_is_nested_deeply_gets_one_sentence(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(DEEP[kind])
    for read in (NodeConfig.read, Experiment.read):
        with pytest.raises(ColmeError, match=r"nested more than 32 deep: none needs so many. Try: colme ") as caught:
            read(path)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


PLAIN = {
    True: ("127.0.0.1:7447", "localhost:7447", "[::1]:7447", "127.8.8.8:1"),
    False: ("0.0.0.0:7447", "[::]:7447", "192.168.1.3:7447", "pi-3:7447", "localhost.evil.example:7447"),
}


@pytest.mark.parametrize("ok", PLAIN)
def test_without_tls_only_loopback(ok: bool) -> None:
    for place in PLAIN[ok]:
        endpoint = f"tcp/{place}"
        for how in ({"listen": (endpoint,)}, {"neighbors": (Neighbor(name="bob", endpoint=endpoint),)}):
            refused = contextlib.nullcontext() if ok else pytest.raises(NodeError, match="off loopback TLS is required")
            with refused:
                NodeConfig(name="ann", method=colme.Local(), **how)


def test_endpoints_and_names() -> None:
    assert str(Endpoint.parse("tls/[fe80::1]:7447")) == "tls/[fe80::1]:7447"
    assert Endpoint.parse("tls/[fe80::1]:7447").host == "fe80::1"
    assert is_loopback("::1") and not is_loopback("10.0.0.1")
    for good in ("pi-3", "a", "Sensor_7.roof", "x" * 63):
        check_name(good, "name")
    for bad in ("", "-a", "a/b", "a*", "a$b", "a#b", "a b", "ä", "x" * 64, "a\n", "@x", ".."):
        with pytest.raises(NodeError):
            check_name(bad, "name")


def node(**fields: Any) -> NodeConfig:
    return NodeConfig(**{"name": "ann", "method": colme.Local(), "listen": ("tcp/127.0.0.1:7447",)} | fields)


def test_limits_set_by_hand_count() -> None:
    own = Limits(lease=3.0, freshness=9.0, max_record=100, max_rate=7.0, rx_threads=5, max_sessions=8, max_neighbors=4,
                 max_ballots=100)  # fmt: skip
    for field in own.__struct_fields__:
        assert getattr(node(limits=own), field) == getattr(own, field)


def test_who_joins_says_where_it_is_and_whom_it_admits() -> None:
    keys = Tls(ca="c", certificate="p", key="k")
    method = colme.CLColME(sigma=1.0)
    join = Join(degree=4, admit="certified")
    found = node(method=method, listen=("tls/192.168.1.13:7447",), tls=keys, join=join)
    assert found.max_neighbors == found.degree == 12  # room for three times the neighbors that are wanted
    assert found.advertised == "tls/192.168.1.13:7447"
    assert found.admits("anybody", "tls/192.168.1.14:7447") and found.admits("anybody", None)
    for name, endpoint in ((found.name, "tls/a:1"), ("x", "tcp/127.0.0.1:1"), ("x", "tls/a:1?key=2"), ("x", "")):
        assert not found.admits(name, endpoint)
    closed = node(method=method, listen=(), join=Join(seed="pi-1", endpoint="tcp/127.0.0.1:1"), members=("pi-2",))
    assert closed.peers == ("pi-1", "pi-2") and closed.advertised is None and not closed.admits("pi-2", None)
    assert closed.admits("pi-2", "tcp/127.0.0.1:2") and not closed.admits("pi-9", "tcp/127.0.0.1:2")


def test_methods_have_a_guard_unless_the_file_says_otherwise() -> None:
    for fields, guard in (({}, True), ({"guard": False}, False)):
        method = {"method": "cl-colme", "sigma": 2.0} | fields
        node: Any = NodeConfig.parse({"name": "a", "listen": ["tcp/127.0.0.1:7447"], "method": method})
        assert node.method.guard is guard
        assert method_of(method_table(node.method)) == node.method  # as plans write it
    assert method_of({"method": "local"}) == colme.Local()
    assert method_of({"method": "colme", "sigma": 1.0}) == colme.ColME(sigma=1.0)  # which is refused as a whole later


def test_the_newcomer_in_the_documentation_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "node.md").read_text(encoding="utf-8")
    text = page.partition("$ cat pi-9/node.toml")[2].partition("```")[0]
    found = NodeConfig.parse(tomllib.loads(text))
    assert found.join is not None and found.join.seed == "pi-1" and found.admits_certified
    assert found.peers == ("pi-1",) and found.advertised == "tls/192.168.1.19:7447"


def test_paths_of_samples_and_stores_are_relative_to_the_file() -> None:
    wanted = copy.deepcopy(table()) | {"samples": {"source": "file", "address": "log.txt"}, "store": "/var/x.sqlite"}
    found = NodeConfig.parse(wanted, folder="/etc/colme")
    assert found.samples == Samples(source="file", address="/etc/colme/log.txt") and found.store == "/var/x.sqlite"
    wanted["samples"] = {"source": "mqtt", "address": "10.0.0.1:1883/greenhouse/7"}
    assert NodeConfig.parse(wanted, folder="/etc/colme").samples.address == "10.0.0.1:1883/greenhouse/7"
