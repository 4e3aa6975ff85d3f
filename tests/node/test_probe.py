"""Why a neighbor is silent: every reason is told apart, and given in one sentence with a remedy."""

from __future__ import annotations

import re
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from colme.node.security.probe import why_silent, why_silent_apart
from tests.support.node_fleet import Opened, config, free_port, tls, until


@pytest.fixture
def listening(keys: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The endpoint of a TLS server like zenoh's, with the certificate of bob in this folder, that trusts this one's
    authority."""
    certificate, trusted = request.param
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = tls(keys / certificate, "bob")
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(tls(keys / trusted, "bob").ca)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                link, _ = server.accept()
                with link, context.wrap_socket(link, server_side=True) as end:
                    end.recv(1)  # until the probe leaves
            except OSError:
                pass  # refused, or the test has ended

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"tls/127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize(
    ("listening", "own", "word", "sentence"),
    [
        (("", ""), "", "mute", r"bob answers at .* accepts the certificate, but sends no records. Do both list"),
        (("rogue", "rogue"), "", "unknown_ca", r"is not of the authority of this agent .*Use keys of one authority"),
        (("", "rogue"), "", "untrusted", r"bob (does not trust|refuses) the certificate of this agent.*one authority"),
        (("expired", ""), "", "expired", r"certificate of bob has expired.*keys bob --rotate"),
        (("early", ""), "", "not_yet_valid", r"bob is not valid yet: the clock .* is behind.*Set the clock"),
        (("elsewhere", ""), "", "host", r"is not for that host. Make one with: colme node keys bob --host"),
        (("", ""), "expired", "expired", r"for bob the certificate of this agent has expired"),
        (("", ""), "", "name", r"'bob' answers, not 'cid'"),
    ],
    indirect=["listening"],
)  # fmt: skip
def test_tls_that_fails_is_told_apart(listening: str, own: str, word: str, sentence: str, keys: Path) -> None:
    files = tls(keys / own, "bob") if own else tls(keys, "ann")
    found = why_silent("cid" if word == "name" else "bob", listening, files)
    assert found.word == word and re.search(sentence, found.sentence), found


def test_connections_that_fail_are_told_apart(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, port = tls(keys, "ann"), free_port()
    assert why_silent("bob", f"tls/127.0.0.1:{port}", files).word == "refused"
    assert why_silent("bob", "tls/no-such-host.invalid:7447", files).word == "unresolved"
    with socket.create_server(("127.0.0.1", 0)) as server:  # it accepts, and says nothing
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr("colme.node.security.probe.TIMEOUT", 0.1)
        hangs = why_silent("bob", f"tls/{endpoint}", files)
        assert hangs.word == "timeout" and "accepts connections and does not answer" in hangs.sentence
        assert why_silent("bob", f"tcp/{endpoint}", None).word == "mute"

    def fails(error: OSError) -> Any:
        def connect(*_: Any, **__: Any) -> None:
            raise error

        return connect

    for error, word in ((TimeoutError(), "timeout"), (OSError(101, "Network is unreachable"), "unreachable")):
        monkeypatch.setattr(socket, "create_connection", fails(error))
        assert why_silent("bob", "tls/192.0.2.1:7447", files).word == word


def test_a_probe_in_another_process_says_the_same(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, endpoint = tls(keys, "ann"), f"tls/127.0.0.1:{free_port()}"
    here = why_silent("bob", endpoint, files)
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "ssl")
        assert why_silent_apart("bob", endpoint, files) == here
        patch.setattr(sys, "executable", "/no/such/python")
        assert why_silent_apart("bob", endpoint, files) is None


def test_what_zenoh_refuses_is_told_apart(keys: Path, port: int, opened: Opened) -> None:
    """The alerts of zenoh's own TLS, for certificates of bob that ann refuses."""
    opened(config("ann", keys=keys, port=port, neighbors={"bob": None}))
    for own, word, words in (("rogue", "untrusted", "ann does not trust the certificate of this agent"),
                             ("expired", "expired", "for ann the certificate of this agent has expired or is not"),
                             ("early", "expired", "for ann the certificate of this agent has expired or is not"),
                             ("", "mute", "ann answers at")):  # fmt: skip
        files = tls(keys / own, "bob")
        found = why_silent("ann", f"tls/127.0.0.1:{port}", msgspec.structs.replace(files, ca=tls(keys, "ann").ca))
        assert found.word == word and found.sentence.startswith(words), (own, found)


def test_two_authorities_are_noticed_by_the_end_that_dials(
    keys: Path, port: int, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """zenoh itself says nothing: the transport finds out, counts it, and forgets it when the neighbor is heard."""
    monkeypatch.setattr("colme.node.net.zenoh_transport.PROBE", 0.2)
    ann = opened(config("ann", keys=keys, port=port, neighbors={"bob": None}))
    bob = opened(config("bob", keys=keys / "rogue", neighbors={"ann": port}))
    until(lambda: bob.publish(b"") or bob.why_silent("ann"))  # type: ignore[func-returns-value]
    reason = bob.why_silent("ann")
    assert reason is not None and reason.word == "unknown_ca" and bob.failures["ann"]["unknown_ca"] >= 1
    waiting = ann.why_silent("bob")
    assert waiting is not None and waiting.word == "waiting" and ann.why_silent("cid") is None
    bob.drop("ann")
    assert bob.why_silent("ann") is None and bob.failures == {}
