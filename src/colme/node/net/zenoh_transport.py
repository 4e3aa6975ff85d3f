"""The transport over zenoh: peer to peer, without a broker, one link per neighbor.

One session listens. Every neighbor that this agent dials has a session of its own, because zenoh accepts no endpoints
after a session is open. So a neighbor can be added at any time, dropping one that was dialed closes its link, and the
answering side is heard only if its certificate is that of the neighbor. A neighbor that dialed us is dropped by
unsubscribing from it; its own end closes the link.

There are no callbacks: mailboxes (per neighbor the newest record, the 16 newest control messages, the last changes of
presence) are polled at each tick. Sessions are opened and closed in threads, because both may take seconds.

zenoh dials again when a link breaks, unless it breaks at the very moment in which it opened, before zenoh has noted
that it must; then that session never has a link again. So a dialed neighbor that stays silent gets a new session.

A visitor is an agent that has dialed and may become a neighbor by introduction (see `admission`): only its control
messages are heard.
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
from colme.node.backoff import Backoff
from colme.node.config.node_toml import NodeConfig
from colme.node.io.sockets import listening_remedy
from colme.node.names import Endpoint, KeyExpressions
from colme.node.net import zenoh_settings
from colme.node.net.admission import Admission
from colme.node.security.identity import check_identity_apart

CONTROL_ROOM = 16
"""Control messages of a neighbor that wait for a tick. When it is full the oldest is dropped: senders repeat them."""
SILENCE = 10
"""A neighbor that was silent for so many times `freshness` is dialed by a new session; then twice as long, ..."""
_SIGNS = 8
_CLOSING = 5.0  # seconds that close() waits for links to end
_REOPENING = 5.0  # seconds within which a closed port must be free again
_LINGER = struct.Struct("ii")
_ZENOH_LINGER = (1, 10)  # what zenoh sets: on, 10 s


class ZenohTransport:
    """A `Transport` over zenoh, open from the start."""

    def __init__(self, config: NodeConfig):
        self.config = config
        if config.tls is not None:
            check_identity_apart(config.name, config.tls)
        self._zenoh = load_zenoh(config.rx_threads)
        self._dialed: dict[str, _Session] = {}
        self._watches: dict[str, _Watch] = {}  # of the neighbors that are dialed
        self._opening: dict[str, Future[_Session]] = {}
        self._present: set[str] = set()
        self._closed = False
        self._admission = Admission(config)
        self._accepted: set[str] = set()  # neighbors that dial this agent
        self._reopening: Future[_Session] | None = None
        self._links_changed = True  # of the listening session: visitors may have come or gone
        self._listening = _Session(self._zenoh, config, zenoh_settings.listening(config)) if config.listen else None
        self._threads = ThreadPoolExecutor(4, "colme-links")
        for neighbor in config.neighbors:
            self.add(neighbor.name, neighbor.endpoint)

    def add(self, neighbor: str, endpoint: str | None = None) -> None:
        admission = self._admission
        if not (admission.admit(neighbor) if endpoint is None else admission.may_dial(neighbor)):
            one_of(neighbor, self.config.peers, "member", NodeError)
        if neighbor in {*self._opening, *self._dialed, *self._accepted} or self._closed:
            return
        if endpoint is None:
            if not self.config.listen:
                raise NodeError(f"{neighbor!r} has no endpoint, and this agent does not listen: one end must dial. "
                                "Give an endpoint.")  # fmt: skip
            self._accepted.add(neighbor)
            if self._listening is not None:  # else it is being reopened
                self._listening.add(neighbor)
            return
        self.config.check_endpoint(Endpoint.parse(endpoint))
        self._watches[neighbor] = _Watch(endpoint, SILENCE * self.config.freshness)
        self._dial(neighbor)

    def _dial(self, neighbor: str) -> None:
        settings = zenoh_settings.dialing(self.config, neighbor, self._watches[neighbor].endpoint)
        self._opening[neighbor] = self._threads.submit(_Session, self._zenoh, self.config, settings, neighbor)

    def drop(self, neighbor: str) -> None:
        self._settle()
        self._present.discard(neighbor)
        self._accepted.discard(neighbor)
        self._watches.pop(neighbor, None)
        self._links_changed = True
        opening = self._opening.pop(neighbor, None)
        if opening is not None:
            opening.add_done_callback(_close_opened)
        session = self._dialed.pop(neighbor, None)
        if session is not None:
            self._threads.submit(session.close)
        elif self._listening is not None:
            self._listening.drop(neighbor)

    def publish(self, record: bytes, part: int = 0) -> None:
        if part == 0:
            self._settle()
        for session in self._sessions():
            session.publish(record, part)

    def latest(self, neighbor: str, part: int = 0) -> bytes | None:
        session = self._session_of(neighbor)
        record = None if session is None else session.latest(neighbor, part)
        if record is not None:
            self._present.add(neighbor)  # it sent this after whatever said that it left
            self._heard(neighbor)
        return record

    def send(self, neighbor: str, message: bytes) -> None:
        session = self._session_of(neighbor)
        if session is not None:
            session.send(neighbor, message)

    def control(self) -> list[tuple[str, bytes]]:
        messages = [
            (name, message)
            for session in self._sessions()
            for name in session.speakers
            for message in session.control(name)
        ]
        for name, _ in messages:
            self._heard(name)
        return messages

    def present(self) -> set[str]:
        for session in self._sessions():
            for name in session.boxes:
                for there in session.signs(name):
                    (self._present.add if there else self._present.discard)(name)
                    for part in () if there else range(self.config.parts):
                        session.latest(name, part)  # sent before it left: no sign of presence
        return set(self._present)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for opening in (*self._opening.values(), *([self._reopening] if self._reopening is not None else [])):
            opening.add_done_callback(_close_opened)
        sessions = self._sessions()
        self._dialed, self._opening, self._listening = {}, {}, None
        wait([self._threads.submit(session.close) for session in sessions], timeout=_CLOSING)
        self._threads.shutdown(wait=False)

    def _session_of(self, neighbor: str) -> _Session | None:
        """The session that serves a neighbor."""
        if neighbor in self._dialed:
            return self._dialed[neighbor]
        accepted = self._listening is not None and neighbor in self._listening.speakers
        return self._listening if accepted else None

    def _sessions(self) -> list[_Session]:
        return [*self._dialed.values(), *([self._listening] if self._listening is not None else [])]

    def _heard(self, neighbor: str) -> None:
        if neighbor in self._watches:
            self._watches[neighbor].reset()

    def _settle(self) -> None:
        """Take over sessions that were opened meanwhile, dial silent neighbors anew, and disable SO_LINGER on new
        sockets."""
        for neighbor, opening in list(self._opening.items()):
            if opening.done():
                del self._opening[neighbor]
                self._dialed[neighbor] = opening.result()
        for neighbor in [b for b in self._dialed if not self._closed and self._watches[b].due()]:
            self._threads.submit(self._dialed.pop(neighbor).close)
            self._dial(neighbor)
        changed = [session.changed() for session in self._sessions()]
        if any(changed):
            disable_linger()
        if self.config.join is not None and not self._closed:
            self._links_changed |= any(changed)
            self._reopen_if_due()

    def _reopen_if_due(self) -> None:
        """Hear visitors of the listening session, and reopen it for newcomers that are not on its access list."""
        if self._reopening is not None and self._reopening.done():
            self._listening, self._reopening = self._reopening.result(), None
            for neighbor in self._accepted:
                self._listening.add(neighbor)
            self._links_changed = True
        if self._listening is None:
            return
        if self._links_changed:
            self._links_changed = False
            came = self.config.peers if self.config.tls is None else self._listening.certified()
            self._listening.hear_visitors(self._admission.visitors(came))
        if self._admission.due(now := time.monotonic()):
            settings = zenoh_settings.listening(self.config, self._admission.reopen(now))
            self._reopening = self._threads.submit(self._reopen, self._listening, settings)
            self._listening = None

    def _reopen(self, old: _Session, settings: dict[str, Any]) -> _Session:
        old.close()
        end = time.monotonic() + _REOPENING
        while True:
            try:
                return _Session(self._zenoh, self.config, settings)
            except NodeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)  # the port may take a moment to become free


class _Watch:
    """When to dial a silent neighbor anew: after `wait` seconds of silence, then after twice as long, and so on."""

    def __init__(self, endpoint: str, wait: float):
        self.endpoint, self._wait, self._backoff = endpoint, wait, Backoff()
        self.reset()

    def reset(self) -> None:
        """It was heard."""
        self._backoff.reset()
        self._at = time.monotonic() + self._wait * self._backoff.next_wait()

    def due(self) -> bool:
        now = time.monotonic()
        if now < self._at:
            return False
        self._at = now + self._wait * self._backoff.next_wait()
        return True


class _Session:
    """A zenoh session with everything declared on it (zenoh undeclares what is no longer referenced)."""

    def __init__(self, zenoh: ModuleType, config: NodeConfig, settings: dict[str, Any], neighbor: str | None = None):
        self.zenoh, self.me, self.keys = zenoh, config.name, KeyExpressions(config.network)
        self.parts = range(config.parts)
        self.boxes: dict[str, tuple[Any, ...]] = {}  # per neighbor: control messages, presence, parts of the record
        self.visitors: dict[str, Any] = {}  # control messages of visitors
        raw = zenoh.Config()
        for key, value in settings.items():
            raw.insert_json5(key, json.dumps(value))
        try:
            self.session = zenoh.open(raw)
        except zenoh.ZError as error:
            found = re.search(r"([^:]+) \(os error (\d+)\)", str(error))  # the rest are lines of zenoh's source
            reason, number = (found[1].strip(), int(found[2])) if found else (str(error), None)
            if neighbor is not None:
                raise NodeError(f"cannot dial {neighbor}: {reason}. Check its endpoint in node.toml.") from None
            where = ", ".join(config.listen)
            raise NodeError(f"cannot listen at {where}: {reason}. {listening_remedy(number)}") from None
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
        self._drop_visitor(neighbor)
        ring, session = self.zenoh.handlers.RingChannel, self.session
        self.boxes[neighbor] = (
            session.declare_subscriber(self.keys.control(neighbor, self.me), ring(CONTROL_ROOM)),
            session.liveliness().declare_subscriber(self.keys.live(neighbor), ring(_SIGNS), history=True),
            *(session.declare_subscriber(self.keys.state(neighbor, part), ring(1)) for part in self.parts),
        )

    @property
    def speakers(self) -> set[str]:
        """Neighbors and visitors."""
        return {*self.boxes, *self.visitors}

    def certified(self) -> list[str]:
        """The names in the certificates of the links."""
        return [link.auth_identifier for link in self.session.info.links() if link.auth_identifier is not None]

    def hear_visitors(self, visitors: Iterable[str]) -> None:
        """Hear the control messages of these agents, besides the neighbors, and of no others."""
        wanted = set(visitors).difference(self.boxes)
        for gone in set(self.visitors).difference(wanted):
            self._drop_visitor(gone)
        for name in wanted.difference(self.visitors):
            ring = self.zenoh.handlers.RingChannel(CONTROL_ROOM)
            self.visitors[name] = self.session.declare_subscriber(self.keys.control(name, self.me), ring)

    def _drop_visitor(self, visitor: str) -> None:
        box = self.visitors.pop(visitor, None)
        if box is not None:
            with contextlib.suppress(self.zenoh.ZError):
                box.undeclare()

    def drop(self, neighbor: str) -> None:
        for box in self.boxes.pop(neighbor, ()):
            with contextlib.suppress(self.zenoh.ZError):
                box.undeclare()

    def publish(self, record: bytes, part: int) -> None:
        with contextlib.suppress(self.zenoh.ZError):  # the link is down
            self._publishers[part].put(record)

    def send(self, neighbor: str, message: bytes) -> None:
        # DROP here, too: BLOCK would wait five seconds for a neighbor that hangs, and then close its link
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
        while len(heard) < CONTROL_ROOM and (found := box.try_recv()) is not None:  # a flood must not block the tick
            heard.append(bytes(found.payload))
        return heard

    def signs(self, neighbor: str) -> list[bool]:
        """Changes of presence, in order: True if the neighbor appeared, False if it disappeared."""
        box = self.boxes[neighbor][1]
        heard: list[bool] = []
        while len(heard) < _SIGNS and (found := box.try_recv()) is not None:
            heard.append(found.kind == self.zenoh.SampleKind.PUT)
        return heard

    def changed(self) -> bool:
        """Whether a link was opened or closed since the last call."""
        return self._events.try_recv() is not None

    def close(self) -> None:
        for publisher in self._publishers:
            with contextlib.suppress(self.zenoh.ZError):
                publisher.undeclare()  # else the session is never freed: zenoh's publishers refer to it
        with contextlib.suppress(self.zenoh.ZError):  # it may time out; the links then end with their leases
            self.session.close()


def _close_opened(opening: Future[_Session]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def load_zenoh(rx_threads: int) -> ModuleType:
    """Import zenoh with enough threads. It reads ZENOH_RUNTIME when its first session opens; a given value is kept."""
    os.environ.setdefault("ZENOH_RUNTIME", zenoh_settings.runtime(rx_threads))
    try:
        import zenoh
    except ImportError:
        raise missing_extra("eclipse-zenoh", "node", "a node on a network") from None
    return zenoh


def disable_linger() -> None:
    """Disable SO_LINGER on zenoh's sockets. With it, closing the link to a neighbor that vanished blocks a receiving
    thread for ten seconds, and two such neighbors block all receiving."""
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                _disable_linger_on(int(name))


def _disable_linger_on(descriptor: int) -> None:
    """The same for one descriptor, if it is a socket with zenoh's SO_LINGER."""
    borrowed = socket.socket(fileno=descriptor)
    try:
        if borrowed.family in (socket.AF_INET, socket.AF_INET6) and borrowed.type == socket.SOCK_STREAM:
            found = borrowed.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.size)
            if _LINGER.unpack(found) == _ZENOH_LINGER:
                borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.pack(0, 0))
    finally:
        borrowed.detach()  # it is zenoh's to close
