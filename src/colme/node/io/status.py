"""Status of a running node: its report and status as dictionaries, the server that answers on a local socket and for
Prometheus, and the client, `ask`."""

from __future__ import annotations

import contextlib
import json
import math
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec

from colme.errors import NodeError
from colme.node.device import Device
from colme.node.gateway import Gateway
from colme.node.io.sockets import Spare, listen_tcp, listen_unix, remove

Status = dict[str, Any]
_MOST_CLIENTS = 8  # connections for metrics at once; the oldest is closed for a new one
_MOST_REQUEST = 4096  # bytes
_LARGEST_STATUS = 1 << 20  # bytes
_PAUSE = 1.0  # seconds for which no client is accepted after there was no descriptor for one


def report_of(device: Device) -> Status:
    """The estimate and what belongs to it, for one line."""
    core = device.core
    if isinstance(core, Gateway):
        return {
            "name": core.name,
            "agents": core.n_local,
            "tick": core.epoch,
            "samples": core.n_samples,
            **dict.fromkeys(("mean", "radius", "estimate", "lower", "upper")),
            "level": core.level,
            "trust": core.trust,
            "neighbors": len(core.neighbors),
            "cut": 0,
        }
    radius = getattr(core.inner, "radius", None)
    lower, upper = core.interval
    return {
        "name": core.name,
        "tick": core.epoch,
        "samples": core.n_samples,
        "mean": _finite(core.mean),
        "radius": None if radius is None else _finite(radius),
        "estimate": _finite(core.estimate),
        "lower": _finite(lower),
        "upper": _finite(upper),
        "level": core.level,
        "trust": core.trust,
        "neighbors": len(core.neighbors),
        "cut": len(core.cuts.edges),
    }


def reports_of(device: Device) -> list[Status]:
    """What goes to the sink: the report of an agent, or those of a gateway's local agents with new samples."""
    core = device.core
    if not isinstance(core, Gateway):
        return [report_of(device)]
    new = core.newly_sampled()
    if not len(new):
        return []
    columns = (core.agent.count[1:], core.mean, core.estimate, *core.interval, core.weights, *core.groups)
    return [
        {"name": core.names[i], "gateway": core.name, "tick": core.epoch, "samples": n, "mean": mean,
         "estimate": estimate, "lower": _finite(lower), "upper": _finite(upper), "level": core.level,
         "trust": trust, "group": group, "probability": probability}
        for i, n, mean, estimate, lower, upper, trust, group, probability in zip(
            new.tolist(), *(column[new].tolist() for column in columns), strict=True
        )
    ]  # fmt: skip


def status_of(device: Device, now: float) -> Status:
    """Everything there is to know about a running node."""
    core, introductions = device.core, device.introductions
    readings = core.readings if isinstance(core, Gateway) else device.readings
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
                "refused": dict(core.refused.senders.get(name, {})),
                "why": None if name in fresh else _why(device, name),
            }
        )
    return report_of(device) | {
        "method": msgspec.to_builtins(core.method),
        "incarnation": core.incarnation,
        "fresh": len(fresh),
        "refused": dict(core.refused),
        "refused_by": sorted(core.refused_by),
        "refused_from": {sender: dict(counts) for sender, counts in core.refused.senders.items()},
        "readings_outside": 0 if readings is None else readings.outside,
        "readings_wild": 0 if readings is None else readings.outliers,
        "cut_names": sorted(core.cuts.edges),
        "cut_rows": [
            {
                "name": name,
                "why": cut_edge.why,
                "tick": cut_edge.epoch,
                "times": cut_edge.times,
                "known": cut_edge.known,
                "reconsidered_at_samples": cut_edge.wanted,
            }
            for name, cut_edge in sorted(core.cuts.edges.items())
        ],
        "revived": sorted(core.cuts.revived),
        "forgotten": core.cuts.forgotten,
        "neighbor_rows": rows,
        "link_failures": {name: dict(counts) for name, counts in getattr(device.transport, "failures", {}).items()},
        "links": getattr(device.transport, "links", dict)(),
        "surplus_links": dict(getattr(device.transport, "surplus", {})),
        "recycled": getattr(device.transport, "recycled", 0),
        "asked": [] if introductions is None else sorted(introductions.requests),
        "known": 0 if introductions is None else len(introductions.address_book.endpoints),
    }


def _why(device: Device, name: str) -> str | None:
    """Why a neighbor is silent."""
    reason = device.why_silent(name)
    return None if reason is None else reason.sentence


def ask(path: str, *, timeout: float = 5.0) -> Status:
    """The status of the node that listens at this socket, all of it within `timeout` seconds."""
    raw, until = b"", time.monotonic() + timeout
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(timeout)
            line.connect(path)
            while len(raw) < _LARGEST_STATUS and (chunk := line.recv(65536)):
                raw += chunk
                line.settimeout(max(until - time.monotonic(), 1e-3))
        found = msgspec.json.decode(raw, type=Status)
    except TimeoutError:
        raise NodeError(f"the node at {path} does not answer. Restart it.") from None
    except OSError as error:
        raise NodeError(f"no node answers at {path}: {error.strerror or error}. Start it: colme node run.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NodeError(f"what answers at {path} is not a node. Name the configuration of a node.") from None
    return found


def request(path: str, line: str, *, timeout: float = 5.0) -> str | None:
    """The answer of the node that listens for requests at this socket; None if none is running."""
    raw = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(timeout)
            client.connect(path)
            client.sendall(line.encode() + b"\n")
            while len(raw) < _LARGEST_STATUS and (chunk := client.recv(65536)):
                raw += chunk
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except OSError as error:
        raise NodeError(f"the node at {path} does not answer ({error}). Restart it.") from None
    return raw.decode(errors="replace").strip()


def metrics(status: Status) -> str:
    """Prometheus' text format."""
    name, expires = status["name"], status.get("certificate_expires")
    surplus = sum(status.get("surplus_links", {}).values())
    kinds = (
        ("estimate", "gauge", "The collaborative estimate.", status["estimate"]),
        ("lower", "gauge", "The lower end of the interval of the true mean.", status.get("lower")),
        ("upper", "gauge", "Its upper end.", status.get("upper")),
        ("mean", "gauge", "The mean of the agent's own samples.", status["mean"]),
        ("trust", "gauge", "The weight of the neighbors' part in the estimate.", status.get("trust")),
        ("radius", "gauge", "Half the width of the interval around the mean.", status["radius"]),
        ("agents", "gauge", "Local agents of a gateway.", status.get("agents")),
        ("samples_total", "counter", "Samples seen.", status["samples"]),
        ("ticks_total", "counter", "Ticks, including those before restarts.", status["tick"]),
        ("late_ticks_total", "counter", "Ticks skipped since the start.", status.get("late")),
        ("bad_lines_total", "counter", "Lines of samples that are not numbers.", status.get("bad_lines")),
        ("readings_outside_total", "counter", "Readings outside of the range.", status.get("readings_outside")),
        ("readings_wild_total", "counter", "Wild readings that do not count.", status.get("readings_wild")),
        ("dropped_lines_total", "counter", "Estimates that could not be delivered.", status.get("dropped_lines")),
        ("incarnation", "gauge", "Higher with every start.", status["incarnation"]),
        ("neighbors", "gauge", "Neighbors whose edge is not cut.", status["neighbors"]),
        ("fresh_neighbors", "gauge", "Neighbors with a fresh record.", status["fresh"]),
        ("cut_neighbors", "gauge", "Neighbors whose edge is cut.", status["cut"]),
        ("certificate_expiry_timestamp_seconds", "gauge", "When the certificate expires.", expires),
        ("surplus_links_total", "counter", "Links closed because one agent had too many.", surplus),
        ("recycled_total", "counter", "How often all links were renewed: memory had grown.", status.get("recycled")),
    )
    lines = []
    for what, kind, words, value in kinds:
        if value is not None:
            lines += [f"# HELP colme_{what} {words}", f"# TYPE colme_{what} {kind}"]
            lines.append(f'colme_{what}{{agent="{_escaped(name)}"}} {value:.17g}')
    refused = {"": dict(status["refused"])} | status.get("refused_from", {})
    for counts in list(refused.values())[1:]:  # what remains is of agents that were forgotten, and own samples
        for reason, count in counts.items():
            refused[""][reason] -= count
    lines += _by_neighbor("refused_total", "Records and messages refused, by their sender.", name, refused)
    failures = status.get("link_failures", {})
    lines += _by_neighbor("link_failures_total", "Probes of a silent neighbor, by what they found.", name, failures)
    return "\n".join(lines) + "\n"


def _by_neighbor(what: str, words: str, agent: str, counts: dict[str, dict[str, int]]) -> list[str]:
    """Lines of a counter by neighbor and reason; those without a neighbor have none in their labels."""
    lines = [f"# HELP colme_{what} {words}", f"# TYPE colme_{what} counter"]
    for neighbor, reasons in sorted(counts.items()):
        for reason, count in sorted(reasons.items()):
            labels = {"agent": agent, "neighbor": neighbor, "reason": reason}
            text = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items() if value)
            if count:
                lines.append(f"colme_{what}{{{text}}} {count}")
    return lines


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class StatusServer:
    """Answers requests between ticks, in the thread of the loop. It never waits for a client."""

    def __init__(self, *, path: str | None = None, metrics: str | None = None, requests: str | None = None):
        self._selector = selectors.DefaultSelector()
        self._path, self._requests = path, None
        self.answer: Callable[[str], str] = lambda request: "this node takes no requests."
        self._clients: dict[socket.socket, bytes] = {}
        self._open: list[socket.socket] = []
        self._spare = Spare()
        self._paused: dict[socket.socket, tuple[float, Callable[..., None]]] = {}  # until when
        woken, self.wakeup = socket.socketpair()
        for end in (woken, self.wakeup):
            end.setblocking(False)
        self._open += [woken, self.wakeup]
        self._selector.register(woken, selectors.EVENT_READ, self._wake)
        try:
            if path is not None:
                self._add(listen_unix(path), self._send_status)
            if requests is not None:
                self._add(listen_unix(requests), self._accept_request)
                self._requests = requests
            if metrics is not None:
                self._add(listen_tcp(metrics, "metrics"), self._accept_metrics)
        except NodeError:
            self.close()
            raise

    def wait(self, seconds: float, status: Callable[[], Status]) -> None:
        """Wait until the time is over, a client was answered, or a byte was sent to `wakeup`."""
        if self._paused:
            now = time.monotonic()
            self._resume(now)
            seconds = min([seconds, *(until - now for until, _ in self._paused.values())])
        for key, _ in self._selector.select(max(seconds, 0.0)):
            key.data(key.fileobj, status)
        self._spare.take()

    def close(self) -> None:
        for each in (*self._open, *self._clients):
            each.close()
        self._spare.close()
        self._selector.close()
        if self._path is not None and len(self._open) > 2:  # the socket at the path is this server's
            remove(self._path)
        if self._requests is not None:
            remove(self._requests)

    def _add(self, listener: socket.socket, answer: Callable[..., None]) -> None:
        self._open.append(listener)
        self._selector.register(listener, selectors.EVENT_READ, answer)

    def _wake(self, woken: socket.socket, status: Callable[[], Status]) -> None:
        with contextlib.suppress(OSError):
            woken.recv(64)

    def _accept(self, listener: socket.socket) -> socket.socket | None:
        """The next client; None if there is none. Without a descriptor for it, even in reserve, the listener is left
        alone for a moment: it would be ready again at once."""
        try:
            return self._spare.accept(listener)
        except OSError:
            key = self._selector.unregister(listener)
            self._paused[listener] = (time.monotonic() + _PAUSE, key.data)
            return None

    def _resume(self, now: float) -> None:
        for listener, (until, answer) in list(self._paused.items()):
            if now >= until:
                del self._paused[listener]
                self._selector.register(listener, selectors.EVENT_READ, answer)

    def _send_status(self, listener: socket.socket, status: Callable[[], Status]) -> None:
        client = self._accept(listener)
        if client is not None:
            _send(client, json.dumps(status()).encode() + b"\n")

    def _accept_metrics(self, listener: socket.socket, status: Callable[[], Status]) -> None:
        self._accept_client(listener, self._send_metrics)

    def _accept_request(self, listener: socket.socket, status: Callable[[], Status]) -> None:
        self._accept_client(listener, self._send_answer)

    def _accept_client(self, listener: socket.socket, answer: Callable[..., None]) -> None:
        client = self._accept(listener)
        if client is None:
            return
        if len(self._clients) >= _MOST_CLIENTS:
            self._close_client(next(iter(self._clients)))
        self._clients[client] = b""
        self._selector.register(client, selectors.EVENT_READ, answer)

    def _send_answer(self, client: socket.socket, status: Callable[[], Status]) -> None:
        """Answer a request, one line."""
        if (request := self._read(client, b"\n")) is not None:
            self._close_client(client, self.answer(request.decode(errors="replace").strip()).encode() + b"\n")

    def _send_metrics(self, client: socket.socket, status: Callable[[], Status]) -> None:
        if (request := self._read(client, b"\r\n\r\n")) is None:
            return
        known = request.startswith(b"GET /metrics ")
        body = metrics(status()).encode() if known else b"Try /metrics\n"
        head = (
            f"HTTP/1.1 {'200 OK' if known else '404 Not Found'}\r\nContent-Type: text/plain; version=0.0.4\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._close_client(client, head.encode() + body)

    def _read(self, client: socket.socket, end: bytes) -> bytes | None:
        """What a client has sent, if that is all it will send: up to `end`, or as much as is read at most."""
        if client not in self._clients:  # closed for a client that came at the same moment
            return None
        try:
            chunk = client.recv(_MOST_REQUEST)
        except BlockingIOError:
            return None
        except OSError:
            chunk = b""
        request = self._clients[client] + chunk
        if chunk and end not in request and len(request) < _MOST_REQUEST:
            self._clients[client] = request
            return None
        return request

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
