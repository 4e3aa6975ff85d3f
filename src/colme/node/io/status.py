"""Status of a running node: its report and status as dictionaries, the server that answers on a local socket and for
Prometheus, and the client, `ask`."""

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
from colme.node.io.sockets import accept, listen_tcp, listen_unix, remove

Status = dict[str, Any]
_MOST_CLIENTS = 8  # connections for metrics at once; the oldest is closed for a new one
_MOST_REQUEST = 4096  # bytes
_LARGEST_STATUS = 1 << 20  # bytes


def report_of(device: Device) -> Status:
    """The estimate and what belongs to it, for one line."""
    if device.many:
        from colme.node.hosts.status import report_of_host

        return report_of_host(device)
    core = device.core
    radius = getattr(core.inner, "radius", None)
    lower, upper = core.interval
    return {
        "name": core.name,
        "tick": core.epoch,
        "samples": core.agent.count,
        "mean": _finite(core.mean),
        "radius": None if radius is None else _finite(radius),
        "estimate": _finite(core.estimate),
        "lower": _finite(lower),
        "upper": _finite(upper),
        "level": core.level,
        "trust": core.trust,
        "neighbors": len(core.neighbors),
        "cut": len(core.cut_edges),
    }


def status_of(device: Device, now: float) -> Status:
    """Everything there is to know about a running node."""
    if device.many:
        from colme.node.hosts.status import status_of_host

        return status_of_host(device, now)
    core, introductions = device.core, device.introductions
    fresh, present = set(core.fresh(now)), device.transport.present()
    rows = []
    for name in core.neighbors:
        heard = core.last_heard(name)
        body = None if heard is None else heard.record.body
        estimate = getattr(getattr(body, "inner", body), "estimate", None)
        rows.append(
            {
                "name": name,
                "fresh": name in fresh,
                "present": name in present,
                "met": introductions is not None and name in introductions.introduced,
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
        "cut_names": sorted(core.cut_edges),
        "neighbor_rows": rows,
        "asked": [] if introductions is None else sorted(introductions.requests),
        "known": 0 if introductions is None else len(introductions.address_book.endpoints),
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
        raise NodeError(f"the node at {path} does not answer. Restart it.") from None
    except OSError as error:
        raise NodeError(f"no node answers at {path}: {error.strerror or error}. Start it: colme node run.") from None
    except msgspec.DecodeError:
        raise NodeError(f"what answers at {path} is not a node. Name the configuration of a node.") from None
    return found


def metrics(status: Status) -> str:
    """Prometheus' text format."""
    name = status["name"]
    kinds = (
        ("estimate", "gauge", "The collaborative estimate.", status["estimate"]),
        ("lower", "gauge", "The lower end of the interval of the true mean.", status.get("lower")),
        ("upper", "gauge", "Its upper end.", status.get("upper")),
        ("mean", "gauge", "The mean of the agent's own samples.", status["mean"]),
        ("trust", "gauge", "The weight of the neighbors' part in the estimate.", status.get("trust")),
        ("radius", "gauge", "Half the width of the interval around the mean.", status["radius"]),
        ("samples_total", "counter", "Samples seen.", status["samples"]),
        ("ticks_total", "counter", "Ticks, including those before restarts.", status["tick"]),
        ("late_ticks_total", "counter", "Ticks skipped since the start.", status.get("late")),
        ("bad_lines_total", "counter", "Lines of samples that are not numbers.", status.get("bad_lines")),
        ("dropped_lines_total", "counter", "Estimates that could not be delivered.", status.get("dropped_lines")),
        ("incarnation", "gauge", "How often this agent has been started.", status["incarnation"]),
        ("neighbors", "gauge", "Neighbors whose edge is not cut.", status["neighbors"]),
        ("fresh_neighbors", "gauge", "Neighbors with a fresh record.", status["fresh"]),
        ("cut_neighbors", "gauge", "Neighbors whose edge is cut.", status["cut"]),
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


class StatusServer:
    """Answers requests between ticks, in the thread of the loop. It never waits for a client."""

    def __init__(self, *, path: str | None = None, metrics: str | None = None):
        self._selector = selectors.DefaultSelector()
        self._path = path
        self._clients: dict[socket.socket, bytes] = {}
        self._open: list[socket.socket] = []
        woken, self.wakeup = socket.socketpair()
        for end in (woken, self.wakeup):
            end.setblocking(False)
        self._open += [woken, self.wakeup]
        self._selector.register(woken, selectors.EVENT_READ, self._wake)
        try:
            if path is not None:
                self._add(listen_unix(path), self._send_status)
            if metrics is not None:
                self._add(listen_tcp(metrics, "metrics"), self._accept_metrics)
        except NodeError:
            self.close()
            raise

    def wait(self, seconds: float, status: Callable[[], Status]) -> None:
        """Wait until the time is over, a client was answered, or a byte was sent to `wakeup`."""
        for key, _ in self._selector.select(max(seconds, 0.0)):
            key.data(key.fileobj, status)

    def close(self) -> None:
        for each in (*self._open, *self._clients):
            each.close()
        self._selector.close()
        if self._path is not None and len(self._open) > 2:  # the socket at the path is this server's
            remove(self._path)

    def _add(self, listener: socket.socket, answer: Callable[..., None]) -> None:
        self._open.append(listener)
        self._selector.register(listener, selectors.EVENT_READ, answer)

    def _wake(self, woken: socket.socket, status: Callable[[], Status]) -> None:
        with contextlib.suppress(OSError):
            woken.recv(64)

    def _send_status(self, listener: socket.socket, status: Callable[[], Status]) -> None:
        client = accept(listener)
        if client is not None:
            _send(client, json.dumps(status()).encode() + b"\n")

    def _accept_metrics(self, listener: socket.socket, status: Callable[[], Status]) -> None:
        client = accept(listener)
        if client is None:
            return
        if len(self._clients) >= _MOST_CLIENTS:
            self._close_client(next(iter(self._clients)))
        self._clients[client] = b""
        self._selector.register(client, selectors.EVENT_READ, self._send_metrics)

    def _send_metrics(self, client: socket.socket, status: Callable[[], Status]) -> None:
        if client not in self._clients:  # closed for a client that came at the same moment
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
        self._close_client(client, head.encode() + body)

    def _close_client(self, client: socket.socket, words: bytes = b"") -> None:
        self._selector.unregister(client)
        del self._clients[client]
        _send(client, words)


def _send(client: socket.socket, words: bytes) -> None:
    """Send what fits into the socket's buffer, which holds many times a status, and close."""
    with contextlib.suppress(OSError):
        client.send(words)
    client.close()


def _finite(value: float) -> float | None:
    """None for NaN and infinity, which JSON does not have."""
    return float(value) if math.isfinite(value) else None
