"""A relay carries bytes to agents that cannot be dialled: to those alone, as they are, and not without bound."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from colme.cli.relay_command import command
from colme.errors import NodeError
from colme.node.config.node_toml import NodeConfig
from colme.node.config.tables import Limits
from colme.node.net import relay as relay_module
from colme.node.net import splice
from colme.node.net import tunnel as tunnel_module
from colme.node.net.relay import Relay, RelayConfig
from colme.node.security.keys import make_certificate
from tests.support.node_fleet import config, free_port, make_keys, tls, until
from tests.support.node_relay import connect, relay_config, running, tunnel

GREETING = b"\x16\x03"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_keys(tmp_path_factory.mktemp("keys"))
    make_keys(folder / "rogue")
    for authority in (folder, folder / "rogue"):
        make_certificate(authority / "authority", "relay", [], folder=authority / "relay")
    return folder


@pytest.fixture
def inner() -> Iterator[socket.socket]:
    """The listener of an agent, on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        yield listener


@pytest.fixture
def carried(keys: Path, inner: socket.socket, request: pytest.FixtureRequest) -> Iterator[Relay]:
    """A relay that ann has called, with two links at most."""
    patience = getattr(request, "param", 10.0)
    settings = relay_config(keys, {"ann": free_port(), "bob": free_port()}, max_links=2, patience=patience)
    with running(settings) as relay, tunnel(keys, "ann", settings, inner.getsockname()[1]):
        until(lambda: "ann" in relay.present)
        yield relay


def link(relay: Relay, inner: socket.socket) -> tuple[socket.socket, socket.socket]:
    """A caller, and what ann hears of it, past the greeting."""
    caller = connect(relay.config.agents["ann"])
    caller.sendall(GREETING)
    end, _ = inner.accept()
    end.settimeout(10)
    assert read(end, 2) == GREETING
    return caller, end


def read(line: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (chunk := line.recv(size - len(found))):
        found += chunk
    return found


def closed(line: socket.socket) -> bool:
    with contextlib.suppress(ConnectionResetError):
        return line.recv(1) == b""
    return True


def test_bytes_pass_both_ways_as_they_are_and_ends_end_one_by_one(carried: Relay, inner: socket.socket) -> None:
    caller, end = link(carried, inner)
    sent = os.urandom(3_000_000)
    thread = threading.Thread(target=caller.sendall, args=(sent,))
    thread.start()
    assert read(end, len(sent)) == sent
    thread.join()
    caller.shutdown(socket.SHUT_WR)  # it has nothing more to say, but hears
    assert end.recv(1) == b""
    end.sendall(sent[:100_000])
    end.close()
    assert read(caller, 200_000) == sent[:100_000]
    caller.close()
    until(lambda: len(carried.links) == 0 and carried.links_of["ann"] == 0)
    assert carried.links.carried == len(sent) + 100_000


def test_who_does_not_read_stops_the_other_instead_of_filling_memory(carried: Relay, inner: socket.socket) -> None:
    caller, end = link(carried, inner)
    caller.settimeout(0.5)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 1 << 28:
            sent += caller.send(bytes(1 << 16))
    waiting = [len(each.ends[1].transport._buffer) for each in carried.links.open]  # type: ignore[union-attr]
    assert max(waiting) <= splice.ROOM + splice.CHUNK
    assert read(end, sent) == bytes(sent)  # and nothing is lost
    caller.close()
    end.close()


def test_one_end_that_breaks_breaks_the_other(carried: Relay, inner: socket.socket) -> None:
    for first in (0, 1):
        ends = link(carried, inner)
        ends[first].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        ends[first].close()
        assert closed(ends[1 - first])
        ends[1 - first].close()
    until(lambda: len(carried.links) == 0)


def test_there_are_no_more_links_than_allowed_and_an_agent_that_is_away_has_none(
    carried: Relay, inner: socket.socket
) -> None:
    ends = [link(carried, inner) for _ in range(2)]
    ports = carried.config.agents
    for port, reason in ((ports["ann"], "full"), (ports["bob"], "absent")):
        with connect(port) as third:
            third.sendall(GREETING)
            assert closed(third) and carried.refused[reason] == 1
    for each in ends[0]:
        each.close()
    until(lambda: carried.links_of["ann"] == 1)
    more = link(carried, inner)
    for each in (*ends[1], *more):
        each.close()


@pytest.mark.parametrize("carried", [2.0], indirect=True)
def test_strangers_do_not_trouble_the_agent(carried: Relay, inner: socket.socket) -> None:
    """Port scanners, the silent, and those who guess tokens."""
    public, own = carried.config.agents["ann"], carried.config.place.port
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100):
        with connect(public) as line:
            line.sendall(words)
            assert closed(line)
    assert carried.refused["greeting"] == 2
    for words, reason in (
        (os.urandom(200), "hello"),
        (splice.MAGIC + b"x" + bytes(splice.TOKEN), "hello"),
        (splice.MAGIC + splice.DATA + os.urandom(splice.TOKEN), "token"),
        (splice.MAGIC + splice.CONTROL + bytes(splice.TOKEN) + os.urandom(500), "certificate"),
    ):
        before = carried.refused[reason]
        with connect(own) as line:
            line.sendall(words)
            assert closed(line)
            until(lambda reason=reason, before=before: carried.refused[reason] == before + 1)  # type: ignore[misc]
    silent = [connect(port) for port in (public, own) for _ in range(2)]
    silent.append(connect(own))
    silent[-1].sendall(splice.MAGIC + splice.CONTROL + splice.NO_TOKEN)  # and then no TLS
    until(lambda: carried.refused["slow"] == 5)
    assert all(closed(line) for line in silent)
    for line in silent:
        line.close()
    inner.settimeout(0.2)
    with pytest.raises(TimeoutError):
        inner.accept()
    inner.settimeout(10)
    for each in link(carried, inner):
        each.close()


def test_a_crowd_at_the_door_does_not_keep_others_out(carried: Relay, inner: socket.socket) -> None:
    crowd = [connect(carried.config.agents["ann"]) for _ in range(2 * relay_module.WAITING)]
    for each in link(carried, inner):
        each.close()
    for line in crowd:
        line.close()


def call_in(relay: Relay, keys: Path, name: str | None) -> bytes:
    """What an agent with these keys hears when it calls in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(tls(keys.parent if keys.name == "rogue" else keys, "ann").ca)
    if name is not None:
        context.load_cert_chain(tls(keys, name).certificate, tls(keys, name).key)
    line = connect(relay.config.place.port)
    line.sendall(splice.MAGIC + splice.CONTROL + splice.NO_TOKEN)
    try:
        with context.wrap_socket(line, server_hostname="relay") as inside:
            return inside.recv(1)
    except OSError:
        return b""


def test_only_agents_on_the_list_with_a_certificate_of_the_fleet_are_let_in(carried: Relay, keys: Path) -> None:
    assert call_in(carried, keys, "bob") == splice.WELCOME
    assert call_in(carried, keys, "cid") == b"" and carried.refused["stranger"] == 1
    for who, name in ((keys / "rogue", "bob"), (keys, None)):
        before = carried.refused["certificate"]
        assert call_in(carried, who, name) == b""
        until(lambda before=before: carried.refused["certificate"] == before + 1)  # type: ignore[misc]
    assert "ann" in carried.present


def test_an_agent_believes_only_its_relay(keys: Path, inner: socket.socket) -> None:
    """Neither the relay of another authority, nor an agent that answers in its place."""
    port = free_port()
    for files, name in ((keys / "rogue", "relay"), (keys, "bob")):
        fake = RelayConfig(listen=f"127.0.0.1:{free_port()}", agents={"ann": port}, tls=tls(files, name), name=name)
        true = relay_config(keys, {"ann": port}, listen=fake.listen)
        with running(fake) as relay, tunnel(keys, "ann", true, inner.getsockname()[1]) as (made, said):
            until(lambda said=said: said)  # type: ignore[misc]
            assert "its certificate is not that of 'relay'" in said[0] and not made.connected and not relay.present


def test_a_relay_that_dies_is_called_again_and_a_second_call_replaces_the_first(
    keys: Path, inner: socket.socket
) -> None:
    settings = relay_config(keys, {"ann": free_port()})
    with tunnel(keys, "ann", settings, inner.getsockname()[1]) as (made, said):
        until(lambda: said)
        assert said == [f"no relay at {settings.listen}: Connection refused. It is called again."]
        for _ in range(2):
            with running(settings) as relay:
                until(lambda: made.connected)
                for each in link(relay, inner):
                    each.close()
                with tunnel(keys, "ann", settings, inner.getsockname()[1]) as (again, _):
                    until(lambda again=again: again.connected and not made.connected)  # type: ignore[misc]
            until(lambda: not made.connected)
        assert made.status() == {"relay": settings.listen, "relay_connected": False, "relayed_links": 0}


def test_silent_links_are_ended(keys: Path, inner: socket.socket) -> None:
    settings = relay_config(keys, {"ann": free_port()}, idle=1.5)
    with running(settings) as relay, tunnel(keys, "ann", settings, inner.getsockname()[1]) as (made, _):
        until(lambda: made.connected)
        caller, end = link(relay, inner)
        began = time.monotonic()
        assert closed(caller) and closed(end) and time.monotonic() - began > 1.0
        caller.close()
        end.close()


def test_an_agent_and_a_relay_that_hear_nothing_of_each_other_part(
    keys: Path, inner: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splice, "SILENCE", 0.5)  # the agent beats every 5 s, so that both ends miss it
    settings = relay_config(keys, {"ann": free_port()})
    with running(settings), tunnel(keys, "ann", settings, inner.getsockname()[1]) as (_, said):
        until(lambda: sum("reached through" in each for each in said) == 2, 20.0)
        assert "does not answer" in said[1] or "died" in said[1]


def test_noise_leaves_nothing_behind(carried: Relay, inner: socket.socket) -> None:
    """No descriptor and no link, whatever was said and wherever it stopped."""
    rng = random.Random(7)
    starts = (b"", GREETING, splice.MAGIC, splice.MAGIC + splice.CONTROL, splice.MAGIC + splice.DATA)
    before = len(os.listdir("/proc/self/fd"))
    inner.settimeout(0.01)
    for _ in range(200):
        with connect(rng.choice([carried.config.place.port, carried.config.agents["ann"]])) as line:
            with contextlib.suppress(OSError):  # it may have been sent away already
                line.sendall(rng.choice(starts) + rng.randbytes(rng.randrange(100)))
            if rng.random() < 0.5:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        with contextlib.suppress(TimeoutError):
            inner.accept()[0].close()

    def quiet() -> bool:
        with contextlib.suppress(TimeoutError):
            inner.accept()[0].close()
        return len(carried.links) == 0 and len(os.listdir("/proc/self/fd")) <= before

    until(quiet, 30.0)
    assert sum(carried.refused.values()) > 50
    inner.settimeout(10)
    for each in link(carried, inner):
        each.close()


def test_a_tunnel_takes_no_more_calls_than_the_agent_takes_links(keys: Path, inner: socket.socket) -> None:
    settings = relay_config(keys, {"ann": free_port()}, patience=2.0)
    with (
        running(settings) as relay,
        tunnel(keys, "ann", settings, inner.getsockname()[1], limits=Limits(max_sessions=1)) as (made, _),
    ):
        until(lambda: made.connected)
        ends = link(relay, inner)
        with connect(settings.agents["ann"]) as second:
            second.sendall(GREETING)
            assert closed(second) and relay.refused["slow"] == 1
        for each in ends:
            each.close()


BAD: dict[str, tuple[dict[str, object], str]] = {
    "nobody": ({"agents": {}}, r"a relay serves somebody. Add \[agents\]"),
    "port": ({"agents": {"ann": 70000}}, r"agents.ann=70000: it must be a port, 1 to 65535. Try 7501"),
    "twice": ({"agents": {"ann": 7501, "bob": 7501}}, r"agents.bob=7501: it is that of ann. Give it another"),
    "own": ({"agents": {"ann": 7460}}, r"agents.ann=7460: it is that of the relay itself"),
    "listen": ({"listen": "7460"}, r"listen='7460': it must be host:port. Try '0.0.0.0:7460'"),
    "idle": ({"idle": 0.0}, r"idle=0.0: it must be positive"),
    "key": ({"lisen": "x"}, r"unknown key 'lisen'.* Did you mean 'listen'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_configurations_are_refused(case: str, tmp_path: Path) -> None:
    fields, sentence = BAD[case]
    table = {"agents": {"ann": 7501}, "tls": {"ca": "a", "certificate": "b", "key": "c"}} | fields
    with pytest.raises(NodeError, match=sentence):
        RelayConfig.parse(table, folder=tmp_path)


def test_a_relay_needs_its_keys_and_its_ports(keys: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = relay_config(keys, {"ann": taken.getsockname()[1]})
        with pytest.raises(NodeError, match=r"cannot listen at 127.0.0.1:\d+: Address already in use. Choose another"):
            Relay(settings, lambda _: None)
    for host in ("nowhere.invalid", "a" * 70):
        nowhere = msgspec.structs.replace(settings, listen=f"{host}:7460")
        with pytest.raises(NodeError, match=rf"cannot listen at {host}:7460: [A-Za-z ]+\. Choose another host or port"):
            Relay(nowhere, lambda _: None)
    with pytest.raises(NodeError, match=r"is the certificate of 'bob': it must be that of 'relay'"):
        Relay(RelayConfig(agents={"ann": free_port()}, tls=tls(keys, "bob")), lambda _: None)
    with pytest.raises(NodeError, match=r"agent 'ann' has no relay"):
        tunnel_module.Tunnel(config("ann", keys=keys, port=free_port()), lambda _: None)


def test_what_a_node_must_have_to_be_relayed() -> None:
    table = {
        "name": "ann", "method": {"method": "local"}, "listen": ["tls/127.0.0.1:7447"], "relay": {"address": "r:1"},
        "tls": {"ca": "a", "certificate": "b", "key": "c"},
    }  # fmt: skip
    assert NodeConfig.parse(table).inner is not None
    bare = {key: value for key, value in table.items() if key != "tls"} | {"listen": ["tcp/127.0.0.1:7447"]}
    for wrong, sentence in (
        (table | {"relay": {"address": "relay"}}, r"relay: address='relay': it must be host:port. Try 'relay.example:"),
        (table | {"relay": {"address": "r:1", "name": "a b"}}, r"name='a b'"),
        (table | {"listen": ["tls/10.0.0.1:7447"]}, r"relay.address='r:1': what a relay carries is TLS for a listener"),
        (bare, r"relay.address='r:1': what a relay carries is TLS.* Add \[tls\]"),
    ):
        with pytest.raises(NodeError, match=sentence):
            NodeConfig.parse(wrong)


def test_the_command_refuses_what_contradicts(tmp_path: Path) -> None:
    for arguments, words in (
        (["--config", "x", "--agent", "ann=1"], "--config says it all"),
        (["--agent", "ann"], "'ann' is no name and port. Try pi-4=7501"),
        (["--ca", "x", "--key", "y"], "--certificate, --agent missing: a relay has keys and agents. Give them, or"),
    ):
        done = CliRunner().invoke(command, arguments)
        assert done.exit_code == 2 and words in done.output
