"""The server of live views: found by those who have the address, and by no page of another site; slow viewers and
strange requests cost nobody else anything."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colme.errors import ColmeError, RunError
from colme.live import server as module
from colme.live.broadcast import Broadcast
from colme.live.messages import end, pack
from colme.live.server import FOLDER, MOST_BODY, LiveServer
from tests.support.live_viewer import PATIENCE, LiveViewer, ask, post, wait_until

START = pack({"kind": "start", "run": 1})


def frame(t: int, size: int = 0) -> bytes:
    return pack({"kind": "frame", "t": t}, {"mean": np.zeros(size)} if size else {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "live.html").write_text("the page")
    (tmp_path / "live.js").write_text("the renderer")
    (tmp_path / "live.css").write_text("its colors")
    (tmp_path / "stream.js").write_text("the feed")
    (tmp_path / "secret.txt").write_text("the secret")
    return tmp_path


class Obedient:
    """Control that remembers what it was told."""

    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] = []

    def __call__(self, command: dict[str, Any]) -> dict[str, Any]:
        self.commands.append(command)
        if command.get("command") == "fall":
            raise RuntimeError("over")
        if command.get("command") != "pause":
            raise ColmeError("unknown command: it must be pause. Try pause.")
        return {}


@pytest.fixture
def control() -> Obedient:
    return Obedient()


@pytest.fixture
def live(folder: Path, control: Obedient) -> Iterator[LiveServer]:
    with LiveServer(Broadcast(), control, folder=folder) as server:
        yield server


@contextlib.contextmanager
def said(live: LiveServer, text: str) -> Iterator[socket.socket]:
    """A connection over which this was sent."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=PATIENCE) as connection:
        connection.sendall(text.encode())
        yield connection


def asks_for_frames(live: LiveServer) -> str:
    return f"GET /{live.token}/frames HTTP/1.1\r\nHost: 127.0.0.1:{live.port}\r\n\r\n"


def everything(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            found += piece
    return found


# The page


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("", b"the page", "text/html"),
        ("live.js", b"the renderer", "text/javascript"),
        ("live.css", b"its colors", "text/css"),
        ("stream.js", b"the feed", "text/javascript"),
    ],
)
def test_the_page_and_its_parts_are_served(live: LiveServer, name: str, content: bytes, kind: str) -> None:
    answer = ask(live.url, name)
    assert answer.status == 200 and answer.body == content
    assert answer.headers["content-type"] == f"{kind}; charset=utf-8"


def test_an_address_without_its_last_slash_leads_to_the_page(live: LiveServer) -> None:
    answer = ask(live.url.removesuffix("/"))
    assert answer.status == 308 and answer.headers["location"] == f"/{live.token}/"


def test_the_page_that_comes_with_colme_has_no_script_or_style_of_its_own() -> None:
    page = (FOLDER / "live.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page)
    assert set(re.findall(r'(?:src|href)="([^"]+)"', page)) == {"stream.js", "live.css", "data:,"}
    assert (FOLDER / "stream.js").is_file()


# Who is let in


@pytest.mark.parametrize("name", ["", "live.js", "frames", "control"])
@pytest.mark.parametrize("token", ["", "/wrong", "/{token}x", "/{short}", "/%00", "//"])
def test_nothing_is_found_without_the_token(live: LiveServer, name: str, token: str) -> None:
    path = token.format(token=live.token, short=live.token[:-1])
    answer = ask(f"http://127.0.0.1:{live.port}{path}/", name)
    assert answer.status == 404 and "the address must have the token" in answer.error


def test_every_server_has_a_token_of_its_own(folder: Path) -> None:
    servers = [LiveServer(Broadcast(), folder=folder) for _ in range(3)]
    assert len({each.token for each in servers}) == 3 and all(len(each.token) >= 32 for each in servers)
    for each in servers:
        each.stop()


def test_it_listens_on_this_machine_alone(live: LiveServer) -> None:
    assert live.url.startswith(f"http://127.0.0.1:{live.port}/")
    assert live._server.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil:{port}", ""]
)
def test_a_name_that_was_rebound_to_this_machine_is_refused(live: LiveServer, host: str) -> None:
    answer = ask(live.url, Host=host.format(port=live.port))
    assert answer.status == 403 and "the page" not in answer.body.decode()


def test_two_hosts_are_refused(live: LiveServer) -> None:
    own = f"127.0.0.1:{live.port}"
    with said(live, f"GET /{live.token}/ HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\n\r\n") as connection:
        assert b" 403 " in everything(connection).splitlines()[0]


def test_localhost_is_this_machine(live: LiveServer) -> None:
    assert ask(live.url, Host=f"localhost:{live.port}").status == 200


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt", "live.js/../secret.txt", "/etc/passwd",
     "./live.js", "live.js%00", "..\\secret.txt", "live.js/"],
)  # fmt: skip
def test_no_path_leads_to_another_file(live: LiveServer, path: str) -> None:
    answer = ask(live.url, path)
    assert answer.status == 404 and b"the secret" not in answer.body


# What every answer says


def answers(live: LiveServer) -> dict[str, dict[str, str]]:
    with LiveViewer(live.url) as viewer:
        stream = {name.lower(): value for name, value in viewer.answer.getheaders()}
    return {
        "page": ask(live.url).headers,
        "stream": stream,
        "no token": ask(f"http://127.0.0.1:{live.port}/", "").headers,
        "wrong host": ask(live.url, Host="evil.example").headers,
        "unknown method": ask(live.url, method="OPTIONS", Origin="http://evil.example").headers,
        "command": post(live.url, {"command": "pause"}).headers,
        "refusal": post(live.url, {"command": "jump"}).headers,
        "other origin": post(live.url, {"command": "pause"}, Origin="http://evil.example").headers,
    }


def test_every_answer_forbids_all_that_the_page_does_not_need(live: LiveServer) -> None:
    for name, headers in answers(live).items():
        policy = dict(rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
        assert policy == {
            "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self' data:",
            "connect-src": "'self'", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
        }, name  # fmt: skip
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store" and headers["cross-origin-resource-policy"] == "same-origin"


def test_no_answer_lets_other_sites_read_it(live: LiveServer) -> None:
    for headers in answers(live).values():
        assert not [name for name in headers if name.startswith("access-control")]


# Commands


def test_a_command_is_obeyed(live: LiveServer, control: Obedient) -> None:
    answer = post(live.url, {"command": "pause"})
    assert answer.status == 200 and json.loads(answer.body) == {} and control.commands == [{"command": "pause"}]


def test_a_refusal_is_a_sentence(live: LiveServer) -> None:
    answer = post(live.url, {"command": "jump"})
    assert answer.status == 400 and answer.error == "unknown command: it must be pause. Try pause."


def test_a_bug_is_no_silence(live: LiveServer) -> None:
    answer = post(live.url, {"command": "fall"})
    assert answer.status == 500 and answer.error == "RuntimeError: over. This is a bug in colme."


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://127.0.0.1:{port}"}, 200),
        ({"Origin": "http://localhost:{port}", "Sec_Fetch_Site": "same-origin"}, 200),
        ({"Origin": "null", "Sec_Fetch_Site": "same-origin"}, 200),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "https://127.0.0.1:{port}"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://127.0.0.1:{port}", "Sec_Fetch_Site": "cross-site"}, 403),
    ],
)
def test_only_the_own_page_gives_commands(
    live: LiveServer, control: Obedient, headers: dict[str, str], status: int
) -> None:
    given = {name: value.format(port=live.port) for name, value in headers.items()}
    assert post(live.url, {"command": "pause"}, **given).status == status
    assert len(control.commands) == (status == 200)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_form_can_send_is_refused(live: LiveServer, control: Obedient, kind: str) -> None:
    assert post(live.url, {"command": "pause"}, Content_Type=kind).status == 415 and control.commands == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"pause"', b"null", b"[" * 60_000, b"\xff", b'{"command": ' + b"9" * 6000 + b"}"],
    ids=["nothing", "torn", "list", "word", "null", "deep", "no text", "long number"],
)
def test_what_is_no_command_is_refused(live: LiveServer, control: Obedient, body: bytes) -> None:
    answer = post(live.url, body)
    assert answer.status == 400 and "it must be an object of JSON" in answer.error and control.commands == []


def test_a_huge_body_is_refused_before_it_is_read(live: LiveServer, control: Obedient) -> None:
    answer = post(live.url, b"{}", Content_Length=str(MOST_BODY + 1))
    assert answer.status == 413 and control.commands == []


@pytest.mark.parametrize("length", ["", "-1", "two", "1" * 30, "+2"])
def test_a_body_without_a_plain_length_is_refused(live: LiveServer, control: Obedient, length: str) -> None:
    line = f"Content-Length: {length}\r\n" if length else "Transfer-Encoding: chunked\r\n"
    request = (
        f"POST /{live.token}/control HTTP/1.1\r\nHost: 127.0.0.1:{live.port}\r\n"
        f"Content-Type: application/json\r\n{line}\r\n"
    )
    with said(live, request) as connection:
        assert b" 411 " in everything(connection).splitlines()[0]
    assert control.commands == []


def test_nothing_but_control_takes_commands(live: LiveServer) -> None:
    for name, status in (("frames", 405), ("live.js", 405), ("other", 404)):
        assert ask(live.url, name, method="POST", body=b"{}", Content_Type="application/json").status == status
    assert ask(live.url, "control").status == 405


def test_without_controls_there_is_nothing_to_command(folder: Path) -> None:
    with LiveServer(Broadcast(), folder=folder) as live:
        answer = post(live.url, {"command": "pause"})
        assert answer.status == 404 and "nothing to control" in answer.error


# The stream


def test_two_viewers_see_the_same(live: LiveServer) -> None:
    live.broadcast.publish(START)
    live.broadcast.publish(frame(1))
    with LiveViewer(live.url) as one, LiveViewer(live.url) as two:
        for t in range(2, 10):
            live.broadcast.publish(frame(t))
        live.broadcast.publish(end())
        first, second = (viewer.until(lambda told: told.kind == "end") for viewer in (one, two))
    assert [each[:2] for each in first] == [each[:2] for each in second]
    assert [each.head.get("t") for each in first] == [None, *range(1, 10), None]


def test_a_viewer_who_comes_back_gets_what_it_lacks(live: LiveServer) -> None:
    live.broadcast.publish(START)
    for t in range(1, 6):
        live.broadcast.publish(frame(t))
    with LiveViewer(live.url) as viewer:
        last = viewer.until(lambda told: told.head.get("t") == 3)[-1].number
    with LiveViewer(live.url, last) as viewer:
        assert [viewer.message().head["t"] for _ in range(2)] == [4, 5]


@pytest.mark.parametrize("last", ["x", "-1", "", "9" * 40, "1.5"])
def test_a_last_id_that_is_none_counts_for_nothing(live: LiveServer, last: str) -> None:
    live.broadcast.publish(START)
    with LiveViewer(live.url, last) as viewer:
        assert viewer.message().kind == "start"


def test_a_feed_that_has_stalled_is_alive(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALIVE_SECONDS", 0.05)
    live.broadcast.publish(START)
    with LiveViewer(live.url) as viewer:
        viewer.message()
        assert [viewer.event().get("event") for _ in range(3)] == ["alive"] * 3


def test_a_viewer_who_never_reads_holds_up_nobody(live: LiveServer) -> None:
    live.broadcast.publish(START)
    with said(live, asks_for_frames(live)) as deaf, LiveViewer(live.url) as viewer:
        viewer.message()
        published = threading.Thread(target=lambda: [live.broadcast.publish(frame(t, 50_000)) for t in range(1, 301)])
        published.start()
        told = viewer.until(lambda told: told.head["t"] == 300)
        published.join(PATIENCE)
        assert not published.is_alive() and len(told) >= 1
        assert ask(live.url).status == 200
        assert deaf.recv(1) == b"H"  # it was served, too, as far as it listens


def test_a_viewer_who_never_reads_is_dropped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VIEWERS", 1)
    monkeypatch.setattr(module, "SEND_SECONDS", 0.1)
    with LiveServer(Broadcast(), folder=folder) as live, said(live, asks_for_frames(live)) as deaf:
        assert deaf.recv(1) == b"H"
        live.broadcast.publish(START)
        live.broadcast.publish(frame(1, 2_000_000))

        def is_free() -> bool:
            with LiveViewer(live.url) as viewer:
                return viewer.status == 200

        wait_until(is_free)


def test_more_viewers_than_places_are_told_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VIEWERS", 2)
    with LiveServer(Broadcast(), folder=folder) as live, LiveViewer(live.url), LiveViewer(live.url):
        answer = ask(live.url, "frames")
        assert answer.status == 503 and "2 viewers are here" in answer.error


def test_a_viewer_who_leaves_makes_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VIEWERS", 1)
    with LiveServer(Broadcast(), folder=folder) as live:
        LiveViewer(live.url).close()

        def is_free() -> bool:
            with LiveViewer(live.url) as viewer:
                return viewer.status == 200

        wait_until(is_free)


# Connections


@pytest.mark.parametrize(
    "text", ["", "GET /", "GET / HTTP/1.1\r\nHost: ", "POST"], ids=["silent", "line", "header", "post"]
)
def test_a_request_that_never_arrives_is_cut_off(live: LiveServer, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.1)
    with said(live, text) as connection:
        everything(connection)  # it ends


def test_a_body_that_never_arrives_is_cut_off(
    live: LiveServer, control: Obedient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.1)
    request = (
        f"POST /{live.token}/control HTTP/1.1\r\nHost: 127.0.0.1:{live.port}\r\n"
        'Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{"command"'
    )
    with said(live, request) as connection:
        everything(connection)
    assert control.commands == []


def test_connections_are_counted(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 2)
    with said(live, "GET"), said(live, "GET"), said(live, "GET") as third:
        assert everything(third) == b""


def test_garbage_is_no_traceback(live: LiveServer, capfd: pytest.CaptureFixture[str]) -> None:
    for text in ("\x16\x03\x01\r\n\r\n", "GET\r\n\r\n", "G" * 70_000, f"GET /{'a' * 70_000} HTTP/1.1\r\n\r\n", "\r\n"):
        with contextlib.suppress(ConnectionError), said(live, text) as connection:
            connection.shutdown(socket.SHUT_WR)
            everything(connection)
    assert ask(live.url).status == 200
    assert capfd.readouterr() == ("", "")


def test_stopping_ends_the_streams_and_frees_the_port(folder: Path) -> None:
    before = set(threading.enumerate())
    live = LiveServer(Broadcast(), folder=folder).start()
    live.broadcast.publish(START)
    with LiveViewer(live.url) as viewer, said(live, "GET"):
        viewer.message()
        live.stop()
        while viewer.event():
            pass
    wait_until(lambda: set(threading.enumerate()) <= before)
    with LiveServer(Broadcast(), port=live.port, folder=folder) as again:
        assert again.port == live.port


def test_a_server_that_never_started_can_be_stopped(folder: Path) -> None:
    LiveServer(Broadcast(), folder=folder).stop()


def test_a_port_that_is_taken_is_refused_with_a_sentence(live: LiveServer) -> None:
    with pytest.raises(RunError, match=rf"port={live.port} cannot be opened: .*in use\. Choose another one"):
        LiveServer(Broadcast(), port=live.port)


def test_a_port_that_cannot_be_is_refused() -> None:
    with pytest.raises(RunError, match=r"port=70000: it must be a whole number from 0 to 65535"):
        LiveServer(Broadcast(), port=70_000)
