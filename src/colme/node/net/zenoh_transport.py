"""Neighbors over zenoh: peer to peer, no broker, one link per neighbor.

One session listens; every neighbor that this agent dials has a session of its own, for zenoh takes no endpoints later.
So a neighbor can be added at any time, dropping one that was dialled closes its link, and whoever answers a call is
heard only if its certificate is that of the neighbor. One that dials us is dropped by listening no more; its own end
closes the link.

Nothing calls back: mailboxes (the newest record, the 16 newest control messages, the last signs of presence of each
neighbor) are looked into at each tick. Sessions are opened and closed in a thread, for both may take seconds.

Who may become a neighbor by introduction (see `zenoh_door`) and has dialled is a visitor: its control messages are
heard, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import ModuleType
from typing import Any

from colme.errors import NodeError, missing_extra, one_of
from colme.node.config.node_toml import NodeConfig
from colme.node.names import Endpoint, Keys
from colme.node.net import zenoh_settings
from colme.node.net.zenoh_door import Doorman
from colme.node.security.identity import check_identity_apart

CONTROL_ROOM = 16
"""Control messages of a neighbor that wait for a tick; older ones make room, for they are repeated."""
_SIGNS = 8
_CLOSING = 5.0  # seconds that close() waits for links that do not end
_REOPENING = 5.0  # seconds in which a port that was closed must be free again
_LINGER = struct.Struct("ii")
_ZENOH_LINGER = (1, 10)  # what zenoh sets: on, 10 s


class ZenohTransport:
    """A `Transport` over zenoh, open from the start."""

    def __init__(self, config: NodeConfig):
        self.config = config
        if config.tls is not None:
            check_identity_apart(config.name, config.tls)
        self._zenoh = load_zenoh(config.rx_threads)
        self._dialled: dict[str, _Line] = {}
        self._opening: dict[str, Future[_Line]] = {}
        self._present: set[str] = set()
        self._closed = False
        self._doorman = Doorman(config)
        self._accepted: set[str] = set()  # neighbors that dial this agent
        self._reopening: Future[_Line] | None = None
        self._look = True  # who is at the door
        self._listening = _Line(self._zenoh, config, zenoh_settings.listening(config)) if config.listen else None
        self._threads = ThreadPoolExecutor(4, "colme-links")
        for neighbor in config.neighbors:
            self.add(neighbor.name, neighbor.endpoint)

    def add(self, neighbor: str, endpoint: str | None = None) -> None:
        doorman = self._doorman
        if not (doorman.let_in(neighbor) if endpoint is None else doorman.may_answer(neighbor)):
            one_of(neighbor, self.config.everyone, "member", NodeError)
        if neighbor in {*self._opening, *self._dialled, *self._accepted} or self._closed:
            return
        if endpoint is None:
            if not self.config.listen:
                raise NodeError(f"{neighbor!r} has no endpoint, and this agent does not listen: one end must dial. "
                                "Give an endpoint.")  # fmt: skip
            self._accepted.add(neighbor)
            if self._listening is not None:  # else it is being opened anew
                self._listening.add(neighbor)
            return
        self.config.check_endpoint(Endpoint.parse(endpoint))
        settings = zenoh_settings.dialling(self.config, neighbor, endpoint)
        self._opening[neighbor] = self._threads.submit(_Line, self._zenoh, self.config, settings, neighbor)

    def drop(self, neighbor: str) -> None:
        self._settle()
        self._present.discard(neighbor)
        self._accepted.discard(neighbor)
        self._look = True
        opening = self._opening.pop(neighbor, None)
        if opening is not None:
            opening.add_done_callback(_close_opened)
        line = self._dialled.pop(neighbor, None)
        if line is not None:
            self._threads.submit(line.close)
        elif self._listening is not None:
            self._listening.drop(neighbor)

    def publish(self, record: bytes, part: int = 0) -> None:
        if part == 0:
            self._settle()
        for line in self._lines():
            line.publish(record, part)

    def latest(self, neighbor: str, part: int = 0) -> bytes | None:
        line = self._line(neighbor)
        record = None if line is None else line.latest(neighbor, part)
        if record is not None:
            self._present.add(neighbor)  # it spoke after whatever said that it left
        return record

    def send(self, neighbor: str, message: bytes) -> None:
        line = self._line(neighbor)
        if line is not None:
            line.send(neighbor, message)

    def control(self) -> list[tuple[str, bytes]]:
        return [(name, message) for line in self._lines() for name in line.speakers for message in line.control(name)]

    def present(self) -> set[str]:
        for line in self._lines():
            for name in line.boxes:
                for there in line.signs(name):
                    (self._present.add if there else self._present.discard)(name)
                    for part in () if there else range(self.config.parts):
                        line.latest(name, part)  # said before it left, and no sign of its being there
        return set(self._present)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for opening in (*self._opening.values(), *([self._reopening] if self._reopening is not None else [])):
            opening.add_done_callback(_close_opened)
        lines = self._lines()
        self._dialled, self._opening, self._listening = {}, {}, None
        wait([self._threads.submit(line.close) for line in lines], timeout=_CLOSING)
        self._threads.shutdown(wait=False)

    def _line(self, neighbor: str) -> _Line | None:
        """The session over which a neighbor is heard."""
        if neighbor in self._dialled:
            return self._dialled[neighbor]
        accepted = self._listening is not None and neighbor in self._listening.speakers
        return self._listening if accepted else None

    def _lines(self) -> list[_Line]:
        return [*self._dialled.values(), *([self._listening] if self._listening is not None else [])]

    def _settle(self) -> None:
        """Take over the sessions that have been opened meanwhile, and see to new sockets."""
        for neighbor, opening in list(self._opening.items()):
            if opening.done():
                del self._opening[neighbor]
                self._dialled[neighbor] = opening.result()
        changed = [line.changed() for line in self._lines()]
        if any(changed):
            linger_no_more()
        if self.config.join is not None and not self._closed:
            self._look |= any(changed)
            self._open_door()

    def _open_door(self) -> None:
        """See who has come to the session that listens, and open it anew for those who are not in its list."""
        if self._reopening is not None and self._reopening.done():
            self._listening, self._reopening = self._reopening.result(), None
            for neighbor in self._accepted:
                self._listening.add(neighbor)
            self._look = True
        if self._listening is None:
            return
        if self._look:
            self._look = False
            came = self.config.everyone if self.config.tls is None else self._listening.certified()
            self._listening.welcome(self._doorman.at_the_door(came))
        if self._doorman.due(now := time.monotonic()):
            settings = zenoh_settings.listening(self.config, self._doorman.opens(now))
            self._reopening = self._threads.submit(self._reopen, self._listening, settings)
            self._listening = None

    def _reopen(self, old: _Line, settings: dict[str, Any]) -> _Line:
        old.close()
        end = time.monotonic() + _REOPENING
        while True:
            try:
                return _Line(self._zenoh, self.config, settings)
            except NodeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)  # the port may take a moment to be free


class _Line:
    """A zenoh session with all that is declared on it (zenoh undeclares what nobody refers to)."""

    def __init__(self, zenoh: ModuleType, config: NodeConfig, settings: dict[str, Any], neighbor: str | None = None):
        self.zenoh, self.me, self.keys = zenoh, config.name, Keys(config.network)
        self.parts = range(config.parts)
        self.boxes: dict[str, tuple[Any, ...]] = {}  # control, presence and parts of the state of each neighbor
        self.visitors: dict[str, Any] = {}  # control of others
        raw = zenoh.Config()
        for key, value in settings.items():
            raw.insert_json5(key, json.dumps(value))
        try:
            self.session = zenoh.open(raw)
        except zenoh.ZError as error:
            what = f"listen at {', '.join(config.listen)}" if neighbor is None else f"dial {neighbor}"
            reason = re.search(r"([^:]+) \(os error \d+\)", str(error))  # amid lines of its source
            raise NodeError(f"cannot {what}: {reason[1].strip() if reason else error}. Choose another port.") from None
        self._events = self.session.info.declare_transport_events_listener(zenoh.handlers.RingChannel(1), history=True)
        drop = zenoh.CongestionControl.DROP
        self._publishers = [
            self.session.declare_publisher(self.keys.state(self.me, part), congestion_control=drop)
            for part in self.parts
        ]
        self._token = self.session.liveliness().declare_token(self.keys.live(self.me))
        if neighbor is not None:
            self.add(neighbor)

    def add(self, neighbor: str) -> None:
        self._dismiss(neighbor)
        ring, session = self.zenoh.handlers.RingChannel, self.session
        self.boxes[neighbor] = (
            session.declare_subscriber(self.keys.control(neighbor, self.me), ring(CONTROL_ROOM)),
            session.liveliness().declare_subscriber(self.keys.live(neighbor), ring(_SIGNS), history=True),
            *(session.declare_subscriber(self.keys.state(neighbor, part), ring(1)) for part in self.parts),
        )

    @property
    def speakers(self) -> set[str]:
        """All who are heard."""
        return {*self.boxes, *self.visitors}

    def certified(self) -> list[str]:
        """The names in the certificates of those who have a link."""
        return [link.auth_identifier for link in self.session.info.links() if link.auth_identifier is not None]

    def welcome(self, visitors: Iterable[str]) -> None:
        """Hear the control messages of these, too, and of no others but the neighbors."""
        wanted = set(visitors).difference(self.boxes)
        for gone in set(self.visitors).difference(wanted):
            self._dismiss(gone)
        for name in wanted.difference(self.visitors):
            ring = self.zenoh.handlers.RingChannel(CONTROL_ROOM)
            self.visitors[name] = self.session.declare_subscriber(self.keys.control(name, self.me), ring)

    def _dismiss(self, visitor: str) -> None:
        box = self.visitors.pop(visitor, None)
        if box is not None:
            with contextlib.suppress(self.zenoh.ZError):
                box.undeclare()

    def drop(self, neighbor: str) -> None:
        for box in self.boxes.pop(neighbor, ()):
            with contextlib.suppress(self.zenoh.ZError):
                box.undeclare()

    def publish(self, record: bytes, part: int) -> None:
        with contextlib.suppress(self.zenoh.ZError):  # the link has just gone
            self._publishers[part].put(record)

    def send(self, neighbor: str, message: bytes) -> None:
        # DROP here too: BLOCK would wait five seconds for a neighbor that hangs, and then cut it off
        with contextlib.suppress(self.zenoh.ZError):
            self.session.put(
                self.keys.control(self.me, neighbor), message, congestion_control=self.zenoh.CongestionControl.DROP
            )

    def latest(self, neighbor: str, part: int) -> bytes | None:
        found = self.boxes[neighbor][2 + part].try_recv() if neighbor in self.boxes else None
        return None if found is None else bytes(found.payload)

    def control(self, neighbor: str) -> list[bytes]:
        box = self.boxes[neighbor][0] if neighbor in self.boxes else self.visitors[neighbor]
        heard: list[bytes] = []
        while len(heard) < CONTROL_ROOM and (found := box.try_recv()) is not None:  # a flood must not hold the tick
            heard.append(bytes(found.payload))
        return heard

    def signs(self, neighbor: str) -> list[bool]:
        """Whether the neighbor came or went, in order."""
        box = self.boxes[neighbor][1]
        heard: list[bool] = []
        while len(heard) < _SIGNS and (found := box.try_recv()) is not None:
            heard.append(found.kind == self.zenoh.SampleKind.PUT)
        return heard

    def changed(self) -> bool:
        """Whether a link came or went since the last call."""
        return self._events.try_recv() is not None

    def close(self) -> None:
        for publisher in self._publishers:
            with contextlib.suppress(self.zenoh.ZError):
                publisher.undeclare()  # or the session is never freed: zenoh's publishers hold it
        with contextlib.suppress(self.zenoh.ZError):  # it may time out; the links end with their leases
            self.session.close()


def _close_opened(opening: Future[_Line]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def load_zenoh(rx_threads: int) -> ModuleType:
    """zenoh, with enough threads. It reads the variable when its first session opens; one that is set is kept."""
    os.environ.setdefault("ZENOH_RUNTIME", zenoh_settings.runtime(rx_threads))
    try:
        import zenoh
    except ImportError:
        raise missing_extra("eclipse-zenoh", "node", "a node on a network") from None
    return zenoh


def linger_no_more() -> None:
    """Turn SO_LINGER off on zenoh's sockets: with it, closing the link to a neighbor that vanished blocks a thread that
    listens for ten seconds, and two such neighbors silence the healthy ones."""
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                _calm(int(name))


def _calm(descriptor: int) -> None:
    """The same for one descriptor, if it is a socket that lingers as zenoh's do."""
    borrowed = socket.socket(fileno=descriptor)
    try:
        if borrowed.family in (socket.AF_INET, socket.AF_INET6) and borrowed.type == socket.SOCK_STREAM:
            found = borrowed.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.size)
            if _LINGER.unpack(found) == _ZENOH_LINGER:
                borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.pack(0, 0))
    finally:
        borrowed.detach()  # it is zenoh's to close
