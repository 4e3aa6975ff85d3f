"""`LiveServer`: the page of a live view and its stream of messages, for browsers on this machine.

The address has a token as its first part: http://127.0.0.1:PORT/TOKEN/. Below it are

    (nothing)              the page; it loads stream.js, live.js and live.css from here
    frames                 the messages of a `Broadcast`, as server-sent events: base64, each with its number as id. A
                           browser that lost the connection comes back with the last id, and gets what it lacks. Every
                           three seconds there is an event `alive`, so that the page can tell a feed that has nothing to
                           show from a connection that is gone.
    control                POST of a command in JSON, where there is something to control

It is the standard library's server with a thread per connection, not an ASGI server: there are a few viewers, all on
this machine, to whom whole messages are copied, and an installation needs no further package. Threads are bounded: a
connection is one request, which must arrive within ten seconds, and connections are counted. Each viewer has a thread
of its own, so one that does not read holds up nobody else; it is dropped when it takes nothing for ten seconds.

Other programs on this machine can reach the port, and so can pages of other sites, as far as the browser lets them.
Hence the token, without which nothing is found; the check of Host, against names that were rebound to 127.0.0.1; the
checks of Origin and Content-Type, against forms of other sites; no CORS headers, so that scripts of other sites read
nothing; and a Content-Security-Policy that lets the page load nothing from elsewhere.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import secrets
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self

from colme.errors import ColmeError, RunError, printable, shorten, whole
from colme.live.broadcast import Broadcast

FOLDER = Path(__file__).parent
"""Where the files of the page are."""
MOST_VIEWERS = 16
MOST_CONNECTIONS = 64
MOST_BODY = 64 << 10
REQUEST_SECONDS = 10.0
"""Within which a request must have arrived."""
SEND_SECONDS = 10.0
"""Within which a viewer must take a piece of a message."""
CLOSE_SECONDS = 2.0
"""For which `stop` waits for threads that still answer; one that obeys a long command ends when it is done."""
ALIVE_SECONDS = 3.0
_LOOK_SECONDS = 0.5
"""After which a thread looks whether its viewer is still there."""
_PIECE = 64 << 10
Control = Callable[[dict[str, Any]], dict[str, Any]]
"""Obeys a command. It returns the answer, or raises a `ColmeError` whose sentence the viewer reads."""

_FILES = {
    "": ("live.html", "text/html; charset=utf-8"),
    "stream.js": ("stream.js", "text/javascript; charset=utf-8"),
    "live.js": ("live.js", "text/javascript; charset=utf-8"),
    "live.css": ("live.css", "text/css; charset=utf-8"),
}
"""Every file that can be asked for: names are looked up here, never joined to a path."""
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
    """A request that is answered with an error."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


class LiveServer:
    """A server on 127.0.0.1 that shows a broadcast to whoever has its `url`.

    broadcast  what is shown
    control    obeys the commands of viewers; None: there is nothing to control
    port       0: a free one
    folder     of the page's files
    """

    def __init__(
        self, broadcast: Broadcast, control: Control | None = None, *, port: int = 0, folder: Path = FOLDER
    ) -> None:
        whole(port, "port", "port=0 for a free one", RunError, low=0, high=65535)
        self.broadcast, self.control, self.folder = broadcast, control, folder
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
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOK_SECONDS,), name="colme live server", daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def start(self) -> Self:
        """Serve, in threads of its own."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End all connections and close the port."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        self.broadcast.wake()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A thread per connection, at most `MOST_CONNECTIONS`; a connection that comes then is closed."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    allow_reuse_address = os.name != "nt"  # on Windows it would let two programs listen on one port

    def __init__(self, live: LiveServer, port: int) -> None:
        self.live = live
        self._lock = threading.Condition()
        self._connections: dict[socket.socket, float | None] = {}
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            welcome = len(self._connections) < MOST_CONNECTIONS
            if welcome:
                self._connections[request] = time.monotonic() + REQUEST_SECONDS
        if welcome:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
            self._lock.notify_all()
        super().shutdown_request(request)

    def arrived(self, request: socket.socket) -> None:
        """The request is complete: its time no longer runs."""
        with self._lock:
            if request in self._connections:
                self._connections[request] = None

    def service_actions(self) -> None:
        """Called twice a second and after every connection: end the requests that take too long to arrive."""
        now = time.monotonic()
        with self._lock:
            late = [each for each, until in self._connections.items() if until is not None and until < now]
        _cut_off(late)

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            _cut_off(list(self._connections))
            self._lock.wait_for(lambda: not self._connections, CLOSE_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # a viewer that is gone is not worth a word


def _cut_off(connections: list[socket.socket]) -> None:
    """Wake the threads that read from these connections or write to them; each closes its own."""
    for each in connections:
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is closed already
            continue


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: _Server
    timeout = REQUEST_SECONDS
    server_version, sys_version = "colme", ""

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, action: Callable[[str], None]) -> None:
        try:
            action(self._name())
        except Refused as refusal:
            self._send(refusal.status, "application/json", json.dumps({"error": str(refusal)}).encode())

    def _name(self) -> str:
        """What is asked for below the token. Nothing is looked at before token and Host are right."""
        live = self.server.live
        path = self.path.partition("?")[0]
        token, slash, name = path.removeprefix("/").partition("/")
        if not path.startswith("/") or not hmac.compare_digest(token.encode(), live.token.encode()):
            raise Refused(404, "there is nothing here: the address must have the token. Open the address as printed.")
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].strip().lower() not in self._own_hosts():
            raise Refused(
                403, f"the host {shorten(', '.join(hosts))} is not this server: it must be 127.0.0.1:{live.port}. "
                "Open the address as printed; a tunnel must have the same port at both ends.",
            )  # fmt: skip
        return name if slash else "/"

    def _own_hosts(self) -> tuple[str, str]:
        return f"127.0.0.1:{self.server.live.port}", f"localhost:{self.server.live.port}"

    def _get(self, name: str) -> None:
        self.server.arrived(self.connection)
        if name == "frames":
            self._stream()
        elif name == "/":  # the token without the slash after it
            self._send(308, "text/plain; charset=utf-8", b"", Location=f"/{self.server.live.token}/")
        elif name == "control":
            raise Refused(405, "GET control: commands are sent by POST. See the page.")
        else:
            self._file(name)

    def _file(self, name: str) -> None:
        if name not in _FILES:
            raise Refused(404, f"there is no {shorten(name)} here. Open the address as printed.")
        file, kind = _FILES[name]
        try:
            content = (self.server.live.folder / file).read_bytes()
        except OSError as error:
            raise Refused(404, f"{file} cannot be read: {error.strerror}. Install colme again.") from None
        self._send(200, kind, content)

    def _post(self, name: str) -> None:
        control = self.server.live.control
        if name != "control" or control is None:
            raise Refused(404 if name not in (*_FILES, "frames") else 405, "there is nothing to control here.")
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
        self._send(400 if "error" in answer else 200, "application/json", json.dumps(answer).encode())

    def _check_origin(self) -> None:
        """Refuse what pages of other sites send. Some browsers say `null` where the page sends no referrer; then
        Sec-Fetch-Site, which scripts cannot set, must say that it is our own page."""
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site")
        own = origin is None or origin in [f"http://{host}" for host in self._own_hosts()]
        if not (own or (origin == "null" and site == "same-origin")) or site not in (None, "same-origin", "none"):
            raise Refused(403, f"the origin {shorten(origin)} is another page: commands come from this one alone.")

    def _command(self) -> dict[str, Any]:
        kind = self.headers.get_content_type() if "Content-Type" in self.headers else "nothing"
        if kind != "application/json":
            raise Refused(415, f"Content-Type {shorten(kind)}: it must be application/json.")
        lengths = self.headers.get_all("Content-Length") or []
        if len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdigit()) or len(lengths[0]) > 18:
            raise Refused(411, "the length of the body is not known: there must be one Content-Length.")
        if int(lengths[0]) > MOST_BODY:
            raise Refused(413, f"the body has {int(lengths[0]):,} bytes: at most {MOST_BODY:,} are allowed.")
        body = self.rfile.read(int(lengths[0]))
        self.server.arrived(self.connection)
        if len(body) < int(lengths[0]):
            raise Refused(400, "the body is torn: it is shorter than its Content-Length.")
        try:
            command = json.loads(body)
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
            self._send_head(200, {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"})
            self.connection.settimeout(SEND_SECONDS)
            self._send_events()
        except OSError:  # the viewer is gone, or does not read
            pass
        finally:
            live.viewer_places.release()

    def _send_events(self) -> None:
        live = self.server.live
        said = self.headers.get("Last-Event-ID", "").strip()
        last = int(said) if said.isascii() and said.isdigit() and len(said) <= 18 else None
        viewer = live.broadcast.viewer(last)
        self._send_pieces(b"retry: 1000\n\n")
        alive = 0.0
        while not live.stopping.is_set():
            if time.monotonic() >= alive:
                self._send_pieces(b"event: alive\ndata: 1\n\n")
                alive = time.monotonic() + ALIVE_SECONDS
            event = live.broadcast.next_event(viewer, _LOOK_SECONDS)
            if event is not None:
                data = base64.b64encode(event.message)
                self._send_pieces(b"id: %d\ndata: %b\n\n" % (event.number, data))
            elif self._is_gone():
                return
        self._send_pieces(b"event: ended\ndata: 1\n\n")

    def _send_pieces(self, data: bytes) -> None:
        """In pieces, because the time that a viewer has is for each."""
        for first in range(0, len(data), _PIECE):
            self.connection.sendall(data[first : first + _PIECE])

    def _is_gone(self) -> bool:
        """Whether the viewer has closed its end; it has nothing else to say."""
        self.connection.settimeout(0)
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        finally:
            self.connection.settimeout(SEND_SECONDS)

    def _send(self, status: int, kind: str, body: bytes, **more: str) -> None:
        self._send_head(status, {"Content-Type": kind, "Content-Length": str(len(body))} | more)
        self.connection.settimeout(SEND_SECONDS)
        self._send_pieces(body)

    def _send_head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (_HEADERS | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses: a method that is not known, a line that is too long."""
        sentence = message or HTTPStatus(code).phrase
        self._send(code, "application/json", json.dumps({"error": printable(sentence)}).encode())

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is logged: addresses hold the token."""
