"""`LiveServer`: the page of a live view and its stream of messages, for browsers on this machine.

The address has a token as its first part: http://127.0.0.1:PORT/TOKEN/. Below it are

    (nothing)              the page; it loads stream.js, live.js and live.css from here
    frames                 the messages of a `Broadcast`, as server-sent events: base64, each with its number as id. A
                           browser that lost the connection comes back with the last id, and gets what it lacks. After
                           two seconds without a message there is an event `alive`, so that the page can tell a feed
                           that has nothing to show from a connection that is gone.
    control                POST of a command in JSON, where there is something to control

It is the standard library's server with a thread per connection, not an ASGI server: there are a few viewers, all on
this machine, to whom whole messages are copied, and an installation needs no further package. A connection is one
request, and is closed when it is silent for ten seconds. Each viewer has a thread of its own, so one that does not read
holds up nobody else; it is dropped when it does not take a message within ten seconds.

Other programs on this machine can reach the port, and so can pages of other sites, as far as the browser lets them.
Hence the token, without which nothing is found; the check of Host, against names that were rebound to 127.0.0.1; the
checks of Origin and Content-Type, against forms of other sites; no CORS headers, so that scripts of other sites read
nothing; and a Content-Security-Policy that lets the page load nothing from elsewhere.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import secrets
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from colme.errors import ColmeError, RunError, printable, shorten
from colme.live.broadcast import Broadcast
from colme.live.page import asset

MOST_VIEWERS = 16
MOST_BODY = 64 << 10
SILENT_SECONDS = 10.0
"""For which a connection may be silent, or not take a message."""
CLOSE_SECONDS = 3.0
"""For which `stop` waits for viewers to hear that the stream has ended."""
ALIVE_SECONDS = 2.0
Control = Callable[[dict[str, Any]], dict[str, Any]]
"""Obeys a command. It returns the answer, or raises a `ColmeError` whose sentence the viewer reads."""

_FILES = {
    "": "text/html",
    "stream.js": "text/javascript",
    "live.js": "text/javascript",
    "live.css": "text/css",
}
"""Every file that can be asked for, live.html by no name: names are looked up here, never joined to a path."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Connection": "close",
}


class Refused(Exception):
    """A request that is answered with an error: its status, and a sentence."""


class LiveServer:
    """A server on 127.0.0.1 that shows a broadcast to whoever has its `url`.

    broadcast  what is shown
    control    obeys the commands of viewers; None: there is nothing to control
    port       0: a free one
    """

    def __init__(self, broadcast: Broadcast, control: Control | None = None, *, port: int = 0) -> None:
        self.broadcast, self.control = broadcast, control
        self.token = secrets.token_urlsafe(24)
        self.stopping = threading.Event()
        self.viewer_places = threading.BoundedSemaphore(MOST_VIEWERS)
        try:
            self._server = _Server(self, port)
        except OSError as error:
            raise RunError(
                f"port={port} cannot be opened: {error.strerror}. Choose another one, or none for a free one."
            ) from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="colme live server", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the streams and close the port."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        self.broadcast.wake()
        self._server.shutdown()
        self._server.server_close()
        deadline = time.monotonic() + CLOSE_SECONDS
        for _ in range(MOST_VIEWERS):  # every place is free: all viewers have left
            self.viewer_places.acquire(timeout=max(deadline - time.monotonic(), 0.0))

    def __exit__(self, *error: object) -> None:
        self.stop()


class _Server(socketserver.ThreadingTCPServer):
    """A thread per connection."""

    daemon_threads = True
    request_queue_size = 64
    allow_reuse_address = True

    def __init__(self, live: LiveServer, port: int) -> None:
        self.live = live
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # a viewer that is gone is not worth a word


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: _Server
    timeout = SILENT_SECONDS
    server_version, sys_version = "colme", ""

    def do_GET(self) -> None:
        try:
            name = self._name()
            if self.command == "GET":
                self._get(name)
            else:
                self._post(name)
        except Refused as refusal:
            status, sentence = refusal.args
            self._send(status, "application/json", json.dumps({"error": sentence}).encode())

    do_POST = do_GET

    def _name(self) -> str:
        """What is asked for below the token. Nothing is looked at before token and Host are right."""
        live = self.server.live
        path = self.path.partition("?")[0]
        token, slash, name = path.removeprefix("/").partition("/")
        if not path.startswith("/") or not hmac.compare_digest(token.encode(), live.token.encode()):
            raise Refused(404, "there is nothing here: the address must have the token. Open the address as printed.")
        host = self.headers.get("Host", "")
        if host.lower() not in self._own_hosts():
            raise Refused(
                403, f"the host {shorten(host)} is not this server: it must be 127.0.0.1:{live.port}. "
                "Open the address as printed; a tunnel must have the same port at both ends.",
            )  # fmt: skip
        return name if slash else "/"

    def _own_hosts(self) -> tuple[str, str]:
        port = self.server.live.port
        return f"127.0.0.1:{port}", f"localhost:{port}"

    def _get(self, name: str) -> None:
        if name == "frames":
            self._stream()
        elif name == "/":  # the token without the slash after it
            self._send(308, "text/plain", Location=f"/{self.server.live.token}/")
        elif name not in _FILES:
            raise Refused(404, f"there is no page {shorten(name)} here. Open the address as printed.")
        else:
            self._send(200, f"{_FILES[name]}; charset=utf-8", asset(name or "live.html").encode())

    def _post(self, name: str) -> None:
        control = self.server.live.control
        if name != "control" or control is None:
            raise Refused(404, "there is nothing to control here. Open the address as printed.")
        self._check_origin()
        command = self._command()
        try:
            answer = control(command)
        except ColmeError as error:
            raise Refused(400, printable(error)) from None
        except MemoryError:
            raise Refused(400, "there is not enough memory. Ask for fewer agents or a smaller degree.") from None
        except Exception as error:
            raise Refused(500, f"{type(error).__name__}: {printable(error)}. This is a bug in colme.") from error
        self._send(200, "application/json", json.dumps(answer).encode())

    def _check_origin(self) -> None:
        """Refuse what pages of other sites send. Some browsers say `null` where the page sends no referrer; then
        Sec-Fetch-Site, which scripts cannot set, must say that it is our own page."""
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site")
        own = origin is None or origin in [f"http://{host}" for host in self._own_hosts()]
        if not (own or (origin == "null" and site == "same-origin")) or site not in (None, "same-origin", "none"):
            raise Refused(403, f"the origin {shorten(origin)} is another page: commands come from this one alone.")

    def _command(self) -> dict[str, Any]:
        kind = self.headers.get_content_type()
        if kind != "application/json":
            raise Refused(415, f"Content-Type {shorten(kind)}: it must be application/json.")
        length = _number(self.headers.get("Content-Length"))
        if length is None:
            raise Refused(411, "the length of the body is not known: there must be a Content-Length.")
        if length > MOST_BODY:
            raise Refused(413, f"the body has {length:,} bytes: at most {MOST_BODY:,} are allowed.")
        try:
            command = json.loads(self.rfile.read(length))
        except (ValueError, RecursionError):
            command = None
        if not isinstance(command, dict):
            raise Refused(400, 'the body is not a command: it must be an object of JSON. Try {"command": "pause"}.')
        return command

    def _stream(self) -> None:
        live = self.server.live
        if not live.viewer_places.acquire(blocking=False):
            raise Refused(503, f"{MOST_VIEWERS} viewers are here: no more are let in. Close another view first.")
        try:
            self._send(200, "text/event-stream", b"retry: 1000\n\n", X_Accel_Buffering="no")
            viewer = live.broadcast.viewer(_number(self.headers.get("Last-Event-ID")))
            while not live.stopping.is_set():
                event = live.broadcast.next_event(viewer, ALIVE_SECONDS)
                if event is None:
                    self.wfile.write(b"event: alive\ndata: 1\n\n")
                else:
                    self.wfile.write(b"id: %d\ndata: %b\n\n" % (event.number, base64.b64encode(event.message)))
            self.wfile.write(b"event: ended\ndata: 1\n\n")
        finally:
            live.viewer_places.release()

    def _send(self, status: int, kind: str, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": kind} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        """With the headers of every answer, also of those in which the standard library refuses a request."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is logged: addresses hold the token."""


def _number(text: str | None) -> int | None:
    """A number in a header; None if it is none."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,18}", text) else None
