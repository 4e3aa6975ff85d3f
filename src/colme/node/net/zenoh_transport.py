"""The transport over zenoh: peer to peer, without a broker, one link per neighbor.

One session listens. Every neighbor that this agent dials has a session of its own, because zenoh accepts no endpoints
after a session is open. So a neighbor can be added at any time, dropping one that was dialed closes its link, and the
answering side is heard only if its certificate is that of the neighbor. A neighbor that dialed us is dropped by
unsubscribing from it; its own end closes the link.

Where both ends can be dialed, both dial, so that a link comes back by whichever way is open first. A neighbor that is
not heard is dialed by several sessions at different moments: on a bad network most of the time until a link is open is
spent waiting for TCP to send a lost packet again. (If the neighbor has closed its link, its process has ended, and one
session is enough.) When the neighbor is heard, the other sessions are closed, and of two links the end with the lesser
name closes its own, until it does not hear the neighbor. (If only the lesser one gets through, the other end stops
dialing after a while.)

There are no callbacks: mailboxes (per neighbor the newest record, the 16 newest control messages, the last changes of
presence) are polled at each tick. Sessions are opened and closed in threads, because both may take seconds.

zenoh dials again when a link breaks, unless it breaks at the very moment in which it opened, before zenoh has noted
that it must; then that session never has a link again. So a dialed neighbor that stays silent gets new sessions.

A visitor is an agent that has dialed and may become a neighbor by introduction (see `admission`): only its control
messages are heard.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import ModuleType
from typing import Any

from colme.errors import NodeError, missing_extra, one_of
from colme.node.backoff import Backoff
from colme.node.config import presets
from colme.node.config.node_toml import NodeConfig
from colme.node.io.sockets import listening_remedy
from colme.node.names import Endpoint, KeyExpressions
from colme.node.net import zenoh_settings
from colme.node.net.admission import Admission
from colme.node.security.identity import check_identity_apart
from colme.node.security.probe import Reason, why_silent_apart

CONTROL_ROOM = 16
"""Control messages of a neighbor that wait for a tick. When it is full the oldest is dropped: senders repeat them."""
SILENCE = 10
"""A neighbor that was silent for so many times `freshness` is dialed by new sessions; then twice as long, ..."""
PROBE = 10.0
"""Seconds of silence after which a dialed neighbor is probed, to say why; then twice as long, ..."""
GROWTH = 64.0
"""MiB by which the process may grow before all links are closed and opened again: zenoh keeps some 1.4 kB for every
declaration that an access list denies, until the link ends."""
_LOOK_AT_MEMORY = 10.0  # seconds
_OTHER_LINK = 3  # periods without a record on the link that is used before one on the other link counts
_SIGNS = 8
_CLOSING = 5.0  # seconds that close() waits for links to end
_REOPENING = 5.0  # seconds within which a closed port must be free again
_M_ARENA_MAX = -8  # of malloc.h
_LINGER = struct.Struct("ii")
_ZENOH_LINGER = (1, 10)  # what zenoh sets: on, 10 s


class ZenohTransport:
    """A `Transport` over zenoh, open from the start.

    expires   when the certificate of this agent does, in seconds since 1970; None: it has none
    """

    def __init__(self, config: NodeConfig):
        self.config = config
        self.expires = None if config.tls is None else check_identity_apart(config.name, config.tls)
        self._zenoh = load_zenoh(config.rx_threads)
        self._dialed: dict[str, _Dialed] = {}
        self._used: dict[str, tuple[_Session, float]] = {}  # per neighbor: the session that is read, and since when
        self._closed = False
        self._admission = Admission(config)
        self._accepted: set[str] = set()  # neighbors that may dial this agent
        self._reopening: Future[_Session] | None = None
        self._links_changed = True  # of the listening session: visitors may have come or gone
        self._came: dict[str, int] = {}  # links of the listening session, by their addresses, in order
        self._numbers = itertools.count(1)
        self.surplus: Counter[str] = Counter()  # links closed because an agent had too many, by agent
        self.failures: dict[str, Counter[str]] = {}  # why dialed neighbors were silent, by neighbor and reason
        self._probe: tuple[str, Future[Reason | None]] | None = None
        self.recycled = 0  # how often all links were closed, because the process had grown
        self._grown_from, self._look_at_memory = math.inf, time.monotonic() + _LOOK_AT_MEMORY
        self._listening = _Session(self._zenoh, config, zenoh_settings.listening(config)) if config.listen else None
        self._threads = ThreadPoolExecutor(4, "colme-links")
        for neighbor in config.neighbors:
            self.add(neighbor.name, neighbor.endpoint)

    def add(self, neighbor: str, endpoint: str | None = None) -> None:
        admission = self._admission
        if not (admission.admit(neighbor) if endpoint is None else admission.may_dial(neighbor)):
            one_of(neighbor, self.config.peers, "member", NodeError)
        if neighbor in {*self._dialed, *self._accepted} or self._closed:
            return
        if endpoint is None:
            if not self.config.listen:
                raise NodeError(f"{neighbor!r} has no endpoint, and this agent does not listen: one end must dial. "
                                "Give an endpoint.")  # fmt: skip
            self._accept(neighbor)
            return
        self.config.check_endpoint(Endpoint.parse(endpoint))
        if self.config.listen and admission.may_speak(neighbor):
            self._accept(neighbor)
        self._dialed[neighbor] = _Dialed(endpoint, self.config, neighbor)
        self._dial(neighbor)

    def _accept(self, neighbor: str) -> None:
        """Hear a neighbor that dials this agent."""
        self._accepted.add(neighbor)
        if self._listening is not None:  # else it is being reopened
            self._listening.add(neighbor)

    def _dial(self, neighbor: str) -> None:
        """Open sessions that dial a neighbor, as far as they are needed, and close the others."""
        dialed = self._dialed[neighbor]
        dialed.settle()
        wanted = dialed.wanted(may_dial_us=neighbor in self._accepted)
        if wanted == 0 or dialed.due():
            self._hang_up(dialed)
        elif wanted == 1 and dialed.sessions:
            self._hang_up(dialed, keep=dialed.heard_at if dialed.heard_at in dialed.sessions else dialed.sessions[0])
        if len(dialed.sessions) + len(dialed.opening) < wanted:
            settings = zenoh_settings.dialing(self.config, neighbor, dialed.endpoint, patience=dialed.patience)
            dialed.opening.append(self._threads.submit(_Session, self._zenoh, self.config, settings, neighbor))

    def _hang_up(self, dialed: _Dialed, keep: _Session | None = None) -> None:
        """Close the sessions that dial a neighbor, except for one."""
        for opening in dialed.opening:
            opening.add_done_callback(_close_opened)
        for session in dialed.sessions:
            if session is not keep:
                self._threads.submit(session.close)
        dialed.opening, dialed.sessions = [], [session for session in dialed.sessions if session is keep]

    def drop(self, neighbor: str) -> None:
        self._settle()
        self._accepted.discard(neighbor)
        self._used.pop(neighbor, None)
        self.failures.pop(neighbor, None)
        self._links_changed = True
        dialed = self._dialed.pop(neighbor, None)
        if dialed is not None:
            self._hang_up(dialed)
        if self._listening is not None and neighbor in self._listening.boxes:
            self._listening.drop(neighbor)
            if self.config.join is None:  # else visitors are found by their links
                self._listening.hear_visitors({*self._listening.visitors, neighbor})  # it may have forgotten a cut

    def publish(self, record: bytes) -> None:
        self._settle()
        for session in self._sessions():
            session.publish(record)

    def latest(self, neighbor: str) -> bytes | None:
        found = None
        for session in self._sessions_of(neighbor):
            record = session.latest(neighbor)
            if record is None:
                continue
            now = time.monotonic()
            self._heard(neighbor, session)
            used, at = self._used.get(neighbor, (session, now))
            # with two links each record arrives twice, and the second time it may be an old one
            if used is session or now - at > _OTHER_LINK * self.config.period or used not in self._sessions():
                found, self._used[neighbor] = record, (session, now)
        return found

    def send(self, neighbor: str, message: bytes) -> None:
        for session in self._sessions_of(neighbor):
            session.send(neighbor, message)

    def control(self) -> list[tuple[str, bytes]]:
        messages: dict[tuple[str, bytes], None] = {}  # each once, although there may be two links
        for session in self._sessions():
            for name in session.speakers:
                for message in session.control(name):
                    messages[name, message] = None
                    self._heard(name, session)
        return list(messages)

    def present(self) -> set[str]:
        return {name for session in self._sessions() for name in session.present()}

    def why_silent(self, neighbor: str) -> Reason | None:
        dialed = self._dialed.get(neighbor)
        if dialed is not None:
            return dialed.why
        if neighbor not in self._accepted:
            return None
        return Reason("waiting", f"{neighbor} dials this agent and has not. Look at what it says there.")

    def links(self) -> dict[str, int]:
        """Links at the listening session, by the agent in their certificate."""
        return {} if self._listening is None else dict(Counter(self._listening.certified()))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        dialing = [opening for dialed in self._dialed.values() for opening in dialed.opening]
        for opening in (*dialing, *([self._reopening] if self._reopening is not None else [])):
            opening.add_done_callback(_close_opened)
        sessions = self._sessions()
        self._dialed, self._listening = {}, None
        wait([self._threads.submit(session.close) for session in sessions], timeout=_CLOSING)
        self._threads.shutdown(wait=False)

    def _sessions_of(self, neighbor: str) -> list[_Session]:
        """The sessions at which a neighbor is heard: those that dial it, and the one that listens."""
        dialing = self._dialed[neighbor].sessions if neighbor in self._dialed else []
        accepted = self._listening is not None and neighbor in (*self._accepted, *self._listening.visitors)
        return [*dialing, *([self._listening] if accepted and self._listening is not None else [])]

    def _sessions(self) -> list[_Session]:
        dialing = [session for dialed in self._dialed.values() for session in dialed.sessions]
        return [*dialing, *([self._listening] if self._listening is not None else [])]

    def _heard(self, neighbor: str, session: _Session) -> None:
        if neighbor in self._dialed:
            self._dialed[neighbor].heard(session, dialed_us=session is self._listening)

    def _settle(self) -> None:
        """Open and close sessions where that is due, and disable SO_LINGER on new sockets."""
        for neighbor in self._dialed:
            self._dial(neighbor)
        self._probe_silent()
        changed = [session.changed() for session in self._sessions()]
        if any(changed):
            disable_linger()
            self._close_surplus_links()
        self._links_changed |= any(changed)
        if not self._closed:
            self._recycle_if_grown()
            self._reopen_if_due()

    def _probe_silent(self) -> None:
        """Find out why neighbors are silent, one after another, in a thread: a probe takes seconds."""
        if self._probe is not None and self._probe[1].done():
            (neighbor, probe), self._probe = self._probe, None
            if neighbor in self._dialed and (reason := probe.result()) is not None:
                self._dialed[neighbor].why = reason
                self.failures.setdefault(neighbor, Counter())[reason.word] += 1
        if self._probe is None and not self._closed:
            for neighbor, dialed in self._dialed.items():
                if dialed.probe_due():
                    probe = Future[Reason | None]()
                    self._probe = (neighbor, probe)
                    arguments = (probe, neighbor, dialed.endpoint, self.config.tls)
                    # a daemon, and not of the pool: the process may end while it waits for an answer
                    threading.Thread(target=_run_probe, args=arguments, name="colme-probe", daemon=True).start()
                    break

    def _close_surplus_links(self) -> None:
        """Close the oldest links of an agent that has more of them than it needs: else one agent could use up all
        `max_sessions`, and the others could not dial this one."""
        if self._listening is None:
            return
        links = self._listening.session.info.links()
        self._came = {link.dst: self._came.get(link.dst) or next(self._numbers) for link in links}
        by_name: dict[str, list[str]] = {}
        for link in sorted(links, key=lambda link: self._came[link.dst]):
            if link.auth_identifier is not None:
                by_name.setdefault(link.auth_identifier, []).append(link.dst)
        for name, addresses in by_name.items():
            for address in addresses[: -presets.MOST_LINKS]:
                self.surplus[name] += shut_down(address)

    def _reopen_if_due(self) -> None:
        """Hear visitors of the listening session, and reopen it for newcomers that are not on its access list."""
        if self._reopening is not None and self._reopening.done():
            self._listening, self._reopening = self._reopening.result(), None
            for neighbor in {*self._accepted, *filter(self._admission.may_speak, self._dialed)}:
                self._accept(neighbor)
            self._links_changed = True
        if self._listening is None or self.config.join is None:
            return
        if self._links_changed:
            self._links_changed = False
            came = self.config.peers if self.config.tls is None else self._listening.certified()
            self._listening.hear_visitors(self._admission.visitors(came))
        if self._admission.due(now := time.monotonic()):
            self._admission.reopen(now)
            self._reopen_listening()

    def _reopen_listening(self) -> None:
        assert self._listening is not None
        settings = zenoh_settings.listening(self.config, self._admission.admitted)
        self._reopening = self._threads.submit(self._reopen, self._listening, settings)
        self._listening = None

    def _recycle_if_grown(self) -> None:
        """Close all links, and open them again, if the process has grown much since they were opened."""
        now = time.monotonic()
        if now < self._look_at_memory or self._reopening is not None:
            return
        self._look_at_memory = now + _LOOK_AT_MEMORY
        resident = _resident()
        self._grown_from = min(self._grown_from, resident)
        if resident > self._grown_from + GROWTH:
            self.recycled += 1
            self._grown_from = math.inf  # what has grown and is not zenoh's is there to stay
            for dialed in self._dialed.values():
                self._hang_up(dialed)
            if self._listening is not None:
                self._reopen_listening()
            self._threads.submit(_trim)

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


class _Dialed:
    """A neighbor that this agent dials: the sessions that do so, and how many there should be."""

    def __init__(self, endpoint: str, config: NodeConfig, neighbor: str):
        preset = presets.preset(config.preset)
        self.endpoint, self._leads = endpoint, config.name > neighbor
        self.opening: list[Future[_Session]] = []
        self.sessions: list[_Session] = []
        self.heard_at: _Session | None = None  # the session at which the neighbor was heard last
        self.failed, self._not_before = "", -math.inf  # why no session could be opened, and when to try again
        self._quiet, self._stagger = config.freshness / 2, preset.attempt / presets.ATTEMPTS
        self._name, self._lease = neighbor, config.lease
        self._ended: bool | None = None  # whether its process has ended: then there is no loss to be outwitted
        self._wait, self._backoff = SILENCE * config.freshness, Backoff()
        self._last = time.monotonic()  # when it was heard
        self._due = self._last + self._wait * self._backoff.next_wait()
        self._dialed_us = self._last - self._quiet + preset.head_start  # it has a moment to do so
        self._answered = self._last  # when it was heard at a session that dials it
        self.why: Reason | None = None  # it was silent when it was last probed
        self._probes, self._next_probe = Backoff(), self._last + PROBE

    def heard(self, session: _Session, *, dialed_us: bool) -> None:
        """It was heard at a session: one that dials it, or the one at which it dials this agent."""
        self._backoff.reset()
        self.heard_at, self._last = session, time.monotonic()
        self._due = self._last + self._wait * self._backoff.next_wait()
        self.why, self._next_probe = None, self._last + PROBE
        self._probes.reset()
        if dialed_us:
            self._dialed_us = self._last
        else:
            self._answered = self._last

    def settle(self) -> None:
        """Take over sessions that were opened meanwhile."""
        done = [opening for opening in self.opening if opening.done()]
        self.opening = [opening for opening in self.opening if not opening.done()]
        for opening in done:
            try:
                self.sessions.append(opening.result())
            except NodeError as error:  # there are no descriptors, for example
                self.failed, self._not_before = str(error), time.monotonic() + self._wait

    def wanted(self, *, may_dial_us: bool) -> int:
        """The number of sessions to dial it with."""
        now = time.monotonic()
        spare = may_dial_us and now - self._dialed_us <= self._quiet  # it has a link of its own
        if now < self._not_before or (spare and not (self._leads and now - self._answered <= self._wait)):
            return 0
        silence = now - self._last - self._quiet
        if silence <= 0:
            self._ended = None
            return 1
        if self._ended is None:  # a link that is gone before its lease is over was closed by the other end
            self._ended = (
                self._quiet < self._lease and self.heard_at is not None and not self.heard_at.has_link(self._name)
            )
        if self._ended and now - self._last < self._wait:
            return 1
        return min(2 + int(silence / self._stagger), presets.ATTEMPTS)

    @property
    def patience(self) -> int:
        """How many times as long as usual opening a link may take: a slow machine or network may need it."""
        return 2 ** max(self._backoff.tries - 1, 0)

    def probe_due(self) -> bool:
        """Whether to find out why it is silent."""
        now = time.monotonic()
        if now < self._next_probe:
            return False
        self._next_probe = now + PROBE * self._probes.next_wait()
        return True

    def due(self) -> bool:
        """Whether to replace all sessions, because it has been silent for long."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + self._wait * self._backoff.next_wait()
        return True


class _Session:
    """A zenoh session with everything declared on it (zenoh undeclares what is no longer referenced)."""

    def __init__(self, zenoh: ModuleType, config: NodeConfig, settings: dict[str, Any], neighbor: str | None = None):
        self.zenoh, self.me, self.keys = zenoh, config.name, KeyExpressions(config.network)
        self.boxes: dict[str, tuple[Any, Any, Any]] = {}  # per neighbor: control messages, presence, records
        self.visitors: dict[str, Any] = {}  # control messages of visitors
        self._present: set[str] = set()
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
        self._publisher = self.session.declare_publisher(self.keys.state(self.me), congestion_control=drop)
        self._token = self.session.liveliness().declare_token(self.keys.live(self.me))
        if neighbor is not None:
            self.add(neighbor)

    def add(self, neighbor: str) -> None:
        self._drop_visitor(neighbor)
        ring, session = self.zenoh.handlers.RingChannel, self.session
        self.boxes[neighbor] = (
            session.declare_subscriber(self.keys.control(neighbor, self.me), ring(CONTROL_ROOM)),
            session.liveliness().declare_subscriber(self.keys.live(neighbor), ring(_SIGNS), history=True),
            session.declare_subscriber(self.keys.state(neighbor), ring(1)),
        )

    @property
    def speakers(self) -> set[str]:
        """Neighbors and visitors."""
        return {*self.boxes, *self.visitors}

    def certified(self) -> list[str]:
        """The names in the certificates of the links."""
        return [link.auth_identifier for link in self.session.info.links() if link.auth_identifier is not None]

    def has_link(self, neighbor: str) -> bool:
        """Whether there is a link to the neighbor; True if that is not known."""
        try:
            links = self.session.info.links()
        except self.zenoh.ZError:  # closed
            return True
        return any(link.auth_identifier in (None, neighbor) for link in links)

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
        self._present.discard(neighbor)
        for box in self.boxes.pop(neighbor, ()):
            with contextlib.suppress(self.zenoh.ZError):
                box.undeclare()

    def publish(self, record: bytes) -> None:
        with contextlib.suppress(self.zenoh.ZError):  # the link is down
            self._publisher.put(record)

    def send(self, neighbor: str, message: bytes) -> None:
        # DROP here, too: BLOCK would wait five seconds for a neighbor that hangs, and then close its link
        with contextlib.suppress(self.zenoh.ZError):
            self.session.put(
                self.keys.control(self.me, neighbor), message, congestion_control=self.zenoh.CongestionControl.DROP
            )

    def latest(self, neighbor: str) -> bytes | None:
        found = self.boxes[neighbor][2].try_recv() if neighbor in self.boxes else None
        if found is None:
            return None
        self._present.add(neighbor)  # it sent this after whatever said that it left
        return bytes(found.payload)

    def control(self, neighbor: str) -> list[bytes]:
        box = self.boxes[neighbor][0] if neighbor in self.boxes else self.visitors[neighbor]
        heard: list[bytes] = []
        while len(heard) < CONTROL_ROOM and (found := box.try_recv()) is not None:  # a flood must not block the tick
            heard.append(bytes(found.payload))
        return heard

    def present(self) -> set[str]:
        """Neighbors that have a link to this session."""
        for name, (_, signs, *records) in self.boxes.items():
            for _ in range(_SIGNS):
                if (found := signs.try_recv()) is None:
                    break
                if found.kind == self.zenoh.SampleKind.PUT:
                    self._present.add(name)
                    continue
                self._present.discard(name)
                for box in records:
                    box.try_recv()  # sent before it left: no sign of presence
        return self._present

    def changed(self) -> bool:
        """Whether a link was opened or closed since the last call."""
        return self._events.try_recv() is not None

    def close(self) -> None:
        with contextlib.suppress(self.zenoh.ZError):
            self._publisher.undeclare()  # else the session is never freed: zenoh's publishers refer to it
        with contextlib.suppress(self.zenoh.ZError):  # it may time out; the links then end with their leases
            self.session.close()


def _close_opened(opening: Future[_Session]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _resident() -> float:
    """Memory of this process, in MiB; 0 where it cannot be read."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return 0.0


def _trim() -> None:
    """Return freed memory to the system: glibc keeps what was freed between blocks that are used."""
    time.sleep(1.0)  # after the links have ended
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)


def _run_probe(probe: Future[Reason | None], neighbor: str, endpoint: str, files: Any | None) -> None:
    try:
        probe.set_result(why_silent_apart(neighbor, endpoint, files))
    except Exception:  # a probe only explains: whatever happens to it, the agent goes on
        probe.set_result(None)


def load_zenoh(rx_threads: int) -> ModuleType:
    """Import zenoh with enough threads. It reads ZENOH_RUNTIME when its first session opens; a given value is kept.

    glibc would give each of these threads an arena of its own, and what one of them allocates and another frees leaves
    gaps in both: a process grew by .5 to 1.2 MiB with eleven restarts of neighbors, with one arena by 0 to .3."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    os.environ.setdefault("ZENOH_RUNTIME", zenoh_settings.runtime(rx_threads))
    try:
        import zenoh
    except ImportError:
        raise missing_extra("eclipse-zenoh", "node", "a node on a network") from None
    return zenoh


def disable_linger() -> None:
    """Disable SO_LINGER on zenoh's sockets. With it, closing the link to a neighbor that vanished blocks a receiving
    thread for ten seconds, and two such neighbors block all receiving."""
    for descriptor in _descriptors():
        with contextlib.suppress(OSError):
            _disable_linger_on(descriptor)


def shut_down(address: str) -> int:
    """Shut down the sockets of this process that are connected to protocol/host:port; how many there were. zenoh has no
    call that closes a link; it notices."""
    try:
        place = Endpoint.parse(address.partition("?")[0].partition("#")[0])
    except NodeError:
        return 0
    return sum(_shut_down(descriptor, (place.host, place.port)) for descriptor in _descriptors())


def _shut_down(descriptor: int, peer: tuple[str, int]) -> bool:
    try:
        borrowed = socket.socket(fileno=descriptor)
    except OSError:
        return False
    try:
        if borrowed.family not in (socket.AF_INET, socket.AF_INET6) or borrowed.getpeername()[:2] != peer:
            return False
        borrowed.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    finally:
        borrowed.detach()
    return True


def _descriptors() -> list[int]:
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(folder)]
    return []


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
