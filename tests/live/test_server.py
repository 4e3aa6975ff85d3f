"""The server of live views: found by those who have the address, and by no page of another site; slow viewers and
strange requests cost nobody else anything."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from colme.errors import ColmeError, RunError
from colme.live import server as module
from colme.live.broadcast import Broadcast
from colme.live.messages import end, pack
from colme.live.page import asset
from colme.live.server import MOST_BODY, MOST_VIEWERS, LiveServer
from tests.support.live_viewer import PATIENCE, LiveViewer, ask, post, wait_until

START = pack({"kind": "start", "run": 1})


def frame(t: int, size: int = 0) -> bytes:
    return pack({"kind": "frame", "t": t}, {"mean": np.zeros(size)} if size else {})


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
def live(control: Obedient) -> Iterator[LiveServer]:
    with LiveServer(Broadcast(), control) as server:
        yield server


@pytest.fixture
def impatient(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> LiveServer:
    """A server that waits a tenth of a second."""
    monkeypatch.setattr(module._Handler, "timeout", 0.1)
    return live


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


def test_the_page_and_its_parts_are_served(live: LiveServer) -> None:
    for name, file, kind in (
        ("", "live.html", "text/html"), ("live.js", "live.js", "text/javascript"), ("live.css", "live.css", "text/css"),
        ("stream.js", "stream.js", "text/javascript"),
    ):  # fmt: skip
        answer = ask(live.url, name)
        assert answer.status == 200 and answer.body.decode() == asset(file)
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"


def test_an_address_without_its_last_slash_leads_to_the_page(live: LiveServer) -> None:
    answer = ask(live.url.removesuffix("/"))
    assert answer.status == 308 and answer.headers["location"] == f"/{live.token}/"


def test_the_page_that_comes_with_colme_has_no_script_or_style_of_its_own() -> None:
    page = asset("live.html")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page)
    assert set(re.findall(r'(?:src|href)="([^"]+)"', page)) == {"stream.js", "live.css", "data:,"}


# Who is let in


@pytest.mark.parametrize("name", ["", "live.js", "frames", "control"])
@pytest.mark.parametrize("token", ["", "/wrong", "/{token}x", "/{short}", "/%00", "//"])
def test_nothing_is_found_without_the_token(live: LiveServer, name: str, token: str) -> None:
    path = token.format(token=live.token, short=live.token[:-1])
    answer = ask(f"http://127.0.0.1:{live.port}{path}/", name)
    assert answer.status == 404 and "the address must have the token" in answer.error


def test_it_listens_on_this_machine_alone(live: LiveServer) -> None:
    assert live.url.startswith(f"http://127.0.0.1:{live.port}/")
    assert live._server.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil:{port}", ""]
)
def test_a_name_that_was_rebound_to_this_machine_is_refused(live: LiveServer, host: str) -> None:
    answer = ask(live.url, Host=host.format(port=live.port))
    assert answer.status == 403 and "is not this server" in answer.error
    assert ask(live.url, Host=f"localhost:{live.port}").status == 200


@pytest.mark.parametrize(
    "path",
    ["../cli/fields.py", "server.py", "%2e%2e/live/server.py", "..%2flive.js", "live.js/../server.py", "/etc/passwd",
     "./live.js", "live.js%00", "..\\server.py", "live.js/", "live.html", "control"],
)  # fmt: skip
def test_no_path_leads_to_another_file(live: LiveServer, path: str) -> None:
    answer = ask(live.url, path)
    assert answer.status == 404 and "there is no page" in answer.error


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
        assert not [each for each in headers if each.startswith("access-control")], "other sites can read nothing"


# Commands


def test_a_command_is_obeyed(live: LiveServer, control: Obedient) -> None:
    answer = post(live.url, {"command": "pause"})
    assert answer.status == 200 and json.loads(answer.body) == {} and control.commands == [{"command": "pause"}]


JSON = {"Content_Type": "application/json"}
NO_COMMAND = "it must be an object of JSON"
REFUSED: dict[str, tuple[bytes, dict[str, str], int, str]] = {  # body, headers, status, words
    "text": (b"{}", {"Content_Type": "text/plain"}, 415, "it must be application/json"),
    "form": (b"{}", {"Content_Type": "application/x-www-form-urlencoded"}, 415, "it must be application/json"),
    "parts": (b"{}", {"Content_Type": "multipart/form-data"}, 415, "it must be application/json"),
    "no type": (b"{}", {}, 415, "it must be application/json"),
    "huge": (b"{}", JSON | {"Content_Length": str(MOST_BODY + 1)}, 413, "at most 65,536 are allowed"),
    "nothing": (b"", JSON, 400, NO_COMMAND),
    "torn": (b"{", JSON, 400, NO_COMMAND),
    "list": (b"[]", JSON, 400, NO_COMMAND),
    "null": (b"null", JSON, 400, NO_COMMAND),
    "deep": (b"[" * 60_000, JSON, 400, NO_COMMAND),
    "no text": (b"\xff", JSON, 400, NO_COMMAND),
    "long number": (b'{"command": ' + b"9" * 6000 + b"}", JSON, 400, NO_COMMAND),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_command_is_refused(live: LiveServer, control: Obedient, case: str) -> None:
    body, headers, status, words = REFUSED[case]
    answer = ask(live.url, "control", method="POST", body=body, **headers)
    assert answer.status == status and words in answer.error and control.commands == []


def test_what_control_raises_is_read_by_the_viewer(live: LiveServer) -> None:
    for command, status, said in (
        ("jump", 400, "unknown command: it must be pause. Try pause."),
        ("fall", 500, "RuntimeError: over. This is a bug in colme."),
    ):
        answer = post(live.url, {"command": command})
        assert answer.status == status and answer.error == said


def test_nothing_but_control_takes_commands(live: LiveServer) -> None:
    with LiveServer(Broadcast()) as uncontrolled:
        for server, name in ((live, "frames"), (live, "live.js"), (live, "other"), (uncontrolled, "control")):
            answer = ask(server.url, name, method="POST", body=b"{}", **JSON)
            assert answer.status == 404 and "nothing to control" in answer.error


@pytest.mark.parametrize("length", ["", "-1", "1" * 30, "+2"])
def test_a_body_without_a_plain_length_is_refused(live: LiveServer, control: Obedient, length: str) -> None:
    line = f"Content-Length: {length}\r\n" if length else "Transfer-Encoding: chunked\r\n"
    request = (
        f"POST /{live.token}/control HTTP/1.1\r\nHost: 127.0.0.1:{live.port}\r\n"
        f"Content-Type: application/json\r\n{line}\r\n"
    )
    with said(live, request) as connection:
        assert b" 411 " in everything(connection).splitlines()[0]
    assert control.commands == []


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


def test_a_viewer_who_leaves_or_never_reads_makes_room(impatient: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALIVE_SECONDS", 0.05)
    impatient.broadcast.publish(START)
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_VIEWERS - 1):
            stack.enter_context(LiveViewer(impatient.url))
        deaf = stack.enter_context(said(impatient, asks_for_frames(impatient)))
        assert deaf.recv(1) == b"H"
        answer = ask(impatient.url, "frames")
        assert answer.status == 503 and f"{MOST_VIEWERS} viewers are here" in answer.error
        impatient.broadcast.publish(frame(1, 2_000_000))

        def is_free() -> bool:
            with LiveViewer(impatient.url) as viewer:
                return viewer.status == 200

        wait_until(is_free)


# Connections


@pytest.mark.parametrize("text", ["", "GET /", "GET / HTTP/1.1\r\nHost: ", "POST", "a body"])
def test_a_request_that_never_arrives_is_cut_off(impatient: LiveServer, control: Obedient, text: str) -> None:
    if text == "a body":
        text = asks_for_frames(impatient).replace("GET", "POST").replace("frames", "control")
        text = text.removesuffix("\r\n") + 'Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{"command"'
    with said(impatient, text) as connection:
        everything(connection)  # it ends
    assert control.commands == []


def test_garbage_is_no_traceback(live: LiveServer, capfd: pytest.CaptureFixture[str]) -> None:
    for text in ("\x16\x03\x01\r\n\r\n", "GET\r\n\r\n", "G" * 70_000, f"GET /{'a' * 70_000} HTTP/1.1\r\n\r\n", "\r\n"):
        with contextlib.suppress(ConnectionError), said(live, text) as connection:
            connection.shutdown(socket.SHUT_WR)
            everything(connection)
    assert ask(live.url).status == 200
    assert capfd.readouterr() == ("", "")


def test_stopping_ends_the_streams_and_frees_the_port() -> None:
    before = set(threading.enumerate())
    live = LiveServer(Broadcast()).__enter__()
    live.broadcast.publish(START)
    with LiveViewer(live.url) as viewer:
        viewer.message()
        live.stop()
        events = list(iter(viewer.event, {}))
    assert events[-1]["event"] == "ended"
    wait_until(lambda: set(threading.enumerate()) <= before)
    with LiveServer(Broadcast(), port=live.port) as again:
        assert again.port == live.port


def test_a_port_that_cannot_be_opened_is_refused_with_a_sentence(live: LiveServer) -> None:
    with pytest.raises(RunError, match=rf"port={live.port} cannot be opened: .*in use\. Choose another one"):
        LiveServer(Broadcast(), port=live.port)


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
