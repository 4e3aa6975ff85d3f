"""What a running node tells of itself, to whoever connects to its socket, and as Prometheus' text."""

from __future__ import annotations

import contextlib
import json
import math
import selectors
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from colme.errors import NodeError
from colme.node.device import Device
from colme.node.net.sockets import accept, listen_tcp, listen_unix, remove

Status = dict[str, Any]
_MOST_CLIENTS = 8  # of the metrics, at once; who is slow makes room
_MOST_REQUEST = 4096  # bytes
_LARGEST_STATUS = 1 << 20  # bytes


def report_of(device: Device) -> Status:
    """The estimate in one line."""
    if device.many:
        from colme.node.hosts.status import report_of_host

        return report_of_host(device)
    core = device.core
    intervals = getattr(core.agent, "intervals", None)
    return {
        "name": core.name,
        "tick": core.epoch,
        "samples": core.agent.count,
        "mean": _finite(core.mean),
        "radius": None if intervals is None else _finite(intervals[0][1]),
        "estimate": _finite(core.estimate),
        "neighbors": len(core.neighbors),
        "cut": len(core.partings),
    }


def status_of(device: Device, now: float) -> Status:
    """All there is to know."""
    if device.many:
        from colme.node.hosts.status import status_of_host

        return status_of_host(device, now)
    core, met = device.core, device.introductions
    fresh, present = set(core.fresh(now)), device.transport.present()
    rows = []
    for name in core.neighbors:
        heard = core.last_heard(name)
        body = None if heard is None else heard.record.body
        estimate = getattr(body, "estimate", None)
        rows.append(
            {
                "name": name,
                "fresh": name in fresh,
                "present": name in present,
                "met": met is not None and name in met.met,
                "age": None if heard is None else now - heard.at,
                "incarnation": None if heard is None else heard.record.incarnation,
                "samples": None if heard is None else heard.record.count,
                "mean": None if heard is None else _finite(heard.record.mean + core.origin),
                "estimate": None if estimate is None else _finite(estimate + core.origin),
            }
        )
    return report_of(device) | {
        "method": msgspec.to_builtins(core.method),
        "incarnation": core.incarnation,
        "fresh": len(fresh),
        "refused": dict(core.refused),
        "cut_names": sorted(core.partings),
        "neighbor_rows": rows,
        "asked": [] if met is None else sorted(met.errands),
        "known": 0 if met is None else len(met.book.endpoints),
    }


def ask(path: str, *, timeout: float = 5.0) -> Status:
    """The status of the node that listens at this socket."""
    raw = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(timeout)
            line.connect(path)
            while len(raw) < _LARGEST_STATUS and (chunk := line.recv(65536)):
                raw += chunk
        found = msgspec.json.decode(raw, type=Status)
    except TimeoutError:
        raise NodeError(f"the node at {path} does not answer: it hangs. Restart it.") from None
    except OSError as error:
        raise NodeError(f"no node answers at {path}: {error.strerror or error}. Start it: colme node run.") from None
    except msgspec.DecodeError:
        raise NodeError(f"what answers at {path} is no node. Name the configuration of a node.") from None
    return found


def metrics(status: Status) -> str:
    """Prometheus' text format."""
    name = status["name"]
    kinds = (
        ("estimate", "gauge", "The collaborative estimate.", status["estimate"]),
        ("mean", "gauge", "The mean of the agent's own samples.", status["mean"]),
        ("radius", "gauge", "Half the width of the interval around the mean.", status["radius"]),
        ("samples_total", "counter", "Samples seen.", status["samples"]),
        ("ticks_total", "counter", "Ticks, those before restarts included.", status["tick"]),
        ("late_ticks_total", "counter", "Ticks that were skipped since the start.", status.get("late")),
        ("bad_lines_total", "counter", "Lines of samples that were no numbers.", status.get("bad_lines")),
        ("dropped_lines_total", "counter", "Estimates that nobody took.", status.get("dropped_lines")),
        ("incarnation", "gauge", "Starts of this agent.", status["incarnation"]),
        ("neighbors", "gauge", "Neighbors that are believed.", status["neighbors"]),
        ("fresh_neighbors", "gauge", "Neighbors that were heard lately.", status["fresh"]),
        ("cut_neighbors", "gauge", "Neighbors that were given up.", status["cut"]),
    )
    lines = []
    for what, kind, words, value in kinds:
        if value is not None:
            lines += [f"# HELP colme_{what} {words}", f"# TYPE colme_{what} {kind}"]
            lines.append(f'colme_{what}{{agent="{name}"}} {value:.17g}')
    lines += ["# HELP colme_refused_total Records and messages refused.", "# TYPE colme_refused_total counter"]
    refused = sorted(status["refused"].items())
    lines += [f'colme_refused_total{{agent="{name}",reason="{reason}"}} {count}' for reason, count in refused]
    return "\n".join(lines) + "\n"


class Desk:
    """Answers those who ask, between ticks and in the same thread. Nobody can make it wait."""

    def __init__(self, *, path: str | None = None, metrics: str | None = None):
        self._selector = selectors.DefaultSelector()
        self._path = path
        self._clients: dict[socket.socket, bytes] = {}
        self._open: list[socket.socket] = []
        bell, self.ring = socket.socketpair()
        for end in (bell, self.ring):
            end.setblocking(False)
        self._open += [bell, self.ring]
        self._selector.register(bell, selectors.EVENT_READ, self._rung)
        try:
            if path is not None:
                self._add(listen_unix(path), self._tell)
            if metrics is not None:
                self._add(listen_tcp(metrics, "metrics"), self._welcome)
        except NodeError:
            self.close()
            raise

    def wait(self, seconds: float, status: Callable[[], Status]) -> None:
        """Until the time is over, or somebody was answered, or the bell rang."""
        for key, _ in self._selector.select(max(seconds, 0.0)):
            key.data(key.fileobj, status)

    def close(self) -> None:
        for each in (*self._open, *self._clients):
            each.close()
        self._selector.close()
        if self._path is not None and len(self._open) > 2:  # the socket is ours
            remove(self._path)

    def _add(self, listener: socket.socket, answer: Callable[..., None]) -> None:
        self._open.append(listener)
        self._selector.register(listener, selectors.EVENT_READ, answer)

    def _rung(self, bell: socket.socket, status: Callable[[], Status]) -> None:
        with contextlib.suppress(OSError):
            bell.recv(64)

    def _tell(self, listener: socket.socket, status: Callable[[], Status]) -> None:
        client = accept(listener)
        if client is not None:
            _send(client, json.dumps(status()).encode() + b"\n")

    def _welcome(self, listener: socket.socket, status: Callable[[], Status]) -> None:
        client = accept(listener)
        if client is None:
            return
        if len(self._clients) >= _MOST_CLIENTS:
            self._dismiss(next(iter(self._clients)))
        self._clients[client] = b""
        self._selector.register(client, selectors.EVENT_READ, self._answer)

    def _answer(self, client: socket.socket, status: Callable[[], Status]) -> None:
        if client not in self._clients:  # it made room for somebody who came at the same moment
            return
        try:
            chunk = client.recv(_MOST_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        request = self._clients[client] + chunk
        if chunk and b"\r\n\r\n" not in request and len(request) < _MOST_REQUEST:
            self._clients[client] = request
            return
        known = request.startswith(b"GET /metrics ")
        body = metrics(status()).encode() if known else b"Try /metrics\n"
        head = (
            f"HTTP/1.1 {'200 OK' if known else '404 Not Found'}\r\nContent-Type: text/plain; version=0.0.4\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._dismiss(client, head.encode() + body)

    def _dismiss(self, client: socket.socket, words: bytes = b"") -> None:
        self._selector.unregister(client)
        del self._clients[client]
        _send(client, words)


def _send(client: socket.socket, words: bytes) -> None:
    """All that fits into the socket's buffer, which holds many times a status; and goodbye."""
    with contextlib.suppress(OSError):
        client.send(words)
    client.close()


def _finite(value: float) -> float | None:
    """NaN and infinity are no JSON."""
    return float(value) if math.isfinite(value) else None
