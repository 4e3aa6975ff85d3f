"""Introductions: how agents find neighbors and replace lost ones, by membership messages to agents that may not be
neighbors yet. No I/O and no clock: a `Device` drives it beside a `Core`.

From the perspective of agent a, which wants r neighbors:

(1) it knows some peers by name and endpoint (`AddressBook`). Now and then it asks a neighbor for more. The answer lists
    some neighbors of that neighbor and other entries of its address book, at random. So address books mix, and an agent
    that knows one peer soon knows many
(2) while it has fewer than r live neighbors, it invites a peer from its address book and sends its intervals. Half of
    the time it prefers a peer that one of its own neighbors has as a neighbor: that one is likely of the same class
(3) b accepts if it has room, up to 3 r neighbors, and if the intervals overlap well, |X_a - X_b| <= (R_a + R_b) / 2, so
    that the edge will not be cut soon, which would restart clocks. Both answers list further peers
(4) a adds b as a neighbor when it receives the acceptance. b added a, and saved it, before it sent the acceptance
(5) a neighbor that stays silent is invited again. One that rejects is removed, and so is, after `patience`, one that
    was never heard. So an edge that only one end knows of does not last
(6) a peer whose edge is cut is not invited (the core reconsiders cuts), one that rejected or did not answer not soon.
    Requests become rarer while they yield nothing
(7) if it has had more than r live neighbors for a while, it asks one that it met, the one that it knows for the
    shortest time, to release the edge. b agrees if it, too, has more than r, and if the graph stays connected: a
    neighbor of both remains, or both have all their first neighbors. b no longer has a as a neighbor from then on; a
    repeats the request until it has the answer

A neighbor that left, or was silent for longer than `patience`, no longer counts towards r but stays a neighbor, since
it may return. It is removed only if its place is needed. Removing is not cutting: the two may become neighbors again,
and flows even out.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Container, Iterable, Mapping

import msgspec

from colme.errors import CheckpointError, NodeError, whole
from colme.methods.intervals import AgentIntervals, IntervalAgent, parted
from colme.node.backoff import LONGEST, Backoff
from colme.node.config.presets import DEGREE, max_degree
from colme.node.core import Core
from colme.node.messages.membership import (
    ACCEPT,
    FIND_PEERS,
    INVITE,
    KEEP,
    LEAVE,
    MEMBERSHIP,
    MOST_PEERS,
    PEERS,
    REJECT,
    RELEASE,
    RELEASED,
    MembershipMessage,
    pack_membership,
    unpack_membership,
)
from colme.node.messages.wire import CUT, WireError, unpack_control  # fmt: skip
from colme.support.saved import from_bytes, to_bytes

MIX = 128
"""Ticks between two requests to a neighbor for peers, on average."""
LATER = 1024
"""Ticks before a peer that rejected, or did not answer, is invited again."""
CALM = 256
"""Ticks without a new, lost or cut neighbor before a surplus edge is released: classes may still be separating, and
neighbors that restart may come back."""
_NEVER = 2**62
_ANSWERS = {FIND_PEERS: (PEERS,), INVITE: (ACCEPT, REJECT), RELEASE: (RELEASED, KEEP)}
_RAREST = 2**12  # ticks between two requests for peers, while they yield nothing new
_PACE = 4  # ticks between two reviews, while no request is open
ROOM = 64
"""Entries of an address book. A few dozen random ones are enough to find agents all over a large network."""
_MOST_AVOIDED = 4096
"""Names that are remembered as not worth inviting; beyond that, the oldest is forgotten."""


class AddressBook:
    """Names and endpoints. When it is full, a new name replaces a random one.

    admits   admits(name, endpoint): whether this peer may be dialed there
    """

    def __init__(self, me: str, admits: Callable[[str, str | None], bool], rng: random.Random):
        self.me, self.admits, self.rng = me, admits, rng
        self.endpoints: dict[str, str] = {}
        self.neighbor_of: dict[str, str] = {}  # the agent that says that it is its neighbor
        self._avoided: dict[str, int] = {}  # until this tick

    def add(self, name: str, endpoint: str | None, told_by: str, kept: Container[str]) -> bool:
        """Add a peer; True if it is new. Only the peer itself can replace its endpoint."""
        if endpoint is None or name == self.me or not self.admits(name, endpoint):
            return False
        new = name not in self.endpoints
        if new and len(self.endpoints) >= ROOM:
            others = [each for each in self.endpoints if each not in kept]
            if not others:
                return False
            self.remove(self.rng.choice(others))
        if new or told_by == name:
            self.endpoints[name] = endpoint
        return new

    def remove(self, name: str) -> None:
        self.endpoints.pop(name, None)
        self.neighbor_of.pop(name, None)

    def avoid(self, name: str, until: int) -> None:
        """Do not pick this peer before this tick."""
        self._avoided.pop(name, None)
        while len(self._avoided) >= _MOST_AVOIDED:
            del self._avoided[next(iter(self._avoided))]
        self._avoided[name] = until

    def avoid_nobody(self) -> None:
        self._avoided.clear()

    def pick(self, tick: int, without: Iterable[str], kept: Container[str]) -> str | None:
        """A random peer to invite; half of the time one that a kept neighbor has as a neighbor, if there is any."""
        taken = set(without)
        open_ = [b for b in self.endpoints if b not in taken and self._avoided.get(b, 0) <= tick]
        near = [b for b in open_ if self.neighbor_of.get(b) in kept]
        if near and self.rng.random() < 0.5:
            open_ = near
        return self.rng.choice(open_) if open_ else None

    def sample(self, n: int, among: Iterable[str]) -> list[tuple[str, str | None]]:
        """Up to n of these names, at random, with their endpoints."""
        known = [b for b in among if b in self.endpoints]
        return [(b, self.endpoints[b]) for b in self.rng.sample(known, min(n, len(known)))]


class Request(msgspec.Struct):
    """An open request to a peer, repeated until it is answered."""

    kind: int
    token: int
    until: float  # time at which it is given up, in seconds
    endpoint: str | None = None  # where the peer is dialed, if it is not a neighbor
    backoff: Backoff = msgspec.field(default_factory=Backoff)


class Introductions:
    """The membership of one agent.

    degree     neighbors that it wants
    endpoint   where other agents can dial it; None: nowhere
    seeds      endpoints of peers that it may always ask; `known`: endpoints of other peers
    replace    whether to replace lost neighbors; if not, the search ends once it has had `degree` of them
    patience   seconds of silence after which a neighbor no longer counts
    answer_in  seconds that an answer may take: a peer may have to be dialed, or to admit this agent first
    admits     admits(name, endpoint): whether this peer may be dialed there; endpoint None: whether it may dial us
    """

    def __init__(
        self, name: str, *, degree: int = DEGREE, endpoint: str | None = None, seeds: Mapping[str, str] | None = None,
        known: Mapping[str, str] | None = None, replace: bool = True, patience: float = 180.0, answer_in: float = 12.0,
        admits: Callable[[str, str | None], bool] = lambda name, endpoint: True, rng: random.Random | None = None,
    ):  # fmt: skip
        self.name, self.endpoint, self.seeds = name, endpoint, dict(seeds or {})
        self.degree = whole(degree, "degree", f"degree={DEGREE}", NodeError)
        self.most = max_degree(degree)
        self.replace, self.patience, self.answer_in = replace, patience, answer_in
        self.rng = random.Random() if rng is None else rng
        self.address_book = AddressBook(name, admits, self.rng)
        for each, place in {**self.seeds, **(known or {})}.items():
            self.address_book.add(each, place, each, ())
        self.introduced: dict[str, str | None] = {}  # neighbors found at run time, and where this end dials them
        self.requests: dict[str, Request] = {}
        self.left: dict[str, float] = {}  # when a neighbor said that it leaves
        self.urgent = False  # something must be saved before any message is sent
        self.to_add: list[tuple[str, str | None]] = []  # peers that the transport should add
        self.to_drop: list[str] = []  # and those that it should drop
        self.ticks = 0
        self._since: dict[str, float] = {}  # when a neighbor was added
        self._answers: dict[str, MembershipMessage] = {}
        self._complete = False
        self._forgotten = 0
        self._new = bool(self.seeds)  # a newcomer asks for peers first, lest the seed be everyone's neighbor
        self._in_vain = self._next_try = self._next_ask = 0
        self._asking_backoff = Backoff(longest=_RAREST)
        self._next_mix = self.rng.randrange(MIX)
        self._first: frozenset[str] | None = None  # neighbors that it was configured with
        self._last_neighbors: list[str] = []
        self._calm_since = self._next_release = 0  # ticks
        self._released: dict[str, float] = {}  # former neighbors whose link is kept until then, for their repetitions

    def counting(self, core: Core, now: float) -> list[str]:
        """Neighbors that count: neither silent for longer than `patience` nor gone."""
        return [
            b for b in core.neighbors if self._silence(core, b, now) <= self.patience and not self._has_left(core, b)
        ]

    def _silence(self, core: Core, name: str, now: float) -> float:
        """Seconds since the neighbor was last heard, or since it was added."""
        since, heard = self._since.setdefault(name, now), core.last_heard(name)
        return now - (since if heard is None else max(since, heard.at))

    def _has_left(self, core: Core, name: str) -> bool:
        heard = core.last_heard(name)
        return name in self.left and (heard is None or heard.at <= self.left[name])

    # Received messages

    def receive(self, core: Core, now: float, control: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """Handle the membership messages among these control messages; return the others, which are the core's."""
        self.urgent, self._answers = False, {}
        if self._first is None:
            self._first = frozenset(b for b in (*core.neighbors, *core.cuts.edges) if b not in self.introduced)
        rest = []
        for name, raw in control:
            if raw[: len(MEMBERSHIP)] != MEMBERSHIP:
                rest.append((name, raw))
                self._cut_by_stranger(core, now, name, raw)
                continue
            try:
                message = unpack_membership(raw)
            except WireError as error:
                core.refused.note(name, error.reason)
                continue
            if message.kind in (FIND_PEERS, INVITE):
                self._receive_request(core, now, name, message)
            elif message.kind == RELEASE:
                agreed = self._release(core, now, name, message)
                self._answers[name] = MembershipMessage(RELEASED if agreed else KEEP, message.token)
            elif message.kind == LEAVE:
                if name in core.neighbors:
                    self.left[name] = now
                self._remove_address(name)
            else:
                self._receive_answer(core, now, name, message)
        return rest

    def _cut_by_stranger(self, core: Core, now: float, name: str, raw: bytes) -> None:
        """Note the cut of an edge that this end does not know, or no longer knows, so that the other end can stop
        repeating it."""
        with contextlib.suppress(WireError):
            if name not in core.neighbors and unpack_control(raw).kind == CUT:
                core.cuts.note_cut(name, now)
                self.urgent = True

    def _receive_request(self, core: Core, now: float, name: str, message: MembershipMessage) -> None:
        if len(message.agents) != 1 or message.agents[0][0] != name or name == self.name:
            core.refused.note(name, "sense")
            return
        self.address_book.add(*message.agents[0], name, core.neighbors)
        if message.kind == INVITE:
            kind = ACCEPT if self._accept(core, now, name, message.intervals) else REJECT
            self._answers[name] = self._answer(core, now, name, kind, message.token)
        elif name not in self._answers:
            self._answers[name] = self._answer(core, now, name, PEERS, message.token)

    def _accept(self, core: Core, now: float, name: str, theirs: AgentIntervals) -> bool:
        """Whether the peer is a neighbor, already or from now on."""
        if name in core.neighbors:
            self.left.pop(name, None)
            return True
        if not _understands(core, theirs) or name in core.cuts.edges:
            return False
        if not core.cuts.close_to(theirs):
            self.address_book.avoid(name, _NEVER if _parted(core, theirs) else self.ticks + LATER)
            return False
        if len(core.neighbors) + len(self._invited(core)) >= self.most and not self._make_room(core, now):
            return False
        return self._add(core, now, name)

    def _receive_answer(self, core: Core, now: float, name: str, message: MembershipMessage) -> None:
        request = self.requests.get(name)
        if request is None or request.token != message.token or message.kind not in _ANSWERS[request.kind]:
            core.refused.note(name, "old")
            return
        if request.kind == RELEASE:
            self._end(core, name)
            if message.kind == RELEASED:
                self._remove(core, name)
            return
        for i, (other, endpoint) in enumerate(message.agents):
            if self.address_book.add(other, endpoint, name, core.neighbors):
                self._asking_backoff.reset()
                self._next_ask = self.ticks
            if i < message.near and other in self.address_book.endpoints:
                self.address_book.neighbor_of[other] = name
        apart = not _understands(core, message.intervals) or _parted(core, message.intervals)
        if message.kind == PEERS:
            self._end(core, name)
        elif message.kind == REJECT or (apart and name not in core.neighbors):
            self._in_vain += 1
            self.address_book.avoid(name, _NEVER if apart else self.ticks + LATER)
            self._remove(core, name)
        elif name not in core.neighbors and self._add(core, now, name):
            self._in_vain = 0

    def _add(self, core: Core, now: float, name: str) -> bool:
        """Add a neighbor; False if its edge was cut before."""
        if not core.add_neighbor(name) or name not in core.neighbors:
            return False
        request = self.requests.pop(name, None)
        # the address book may have lost the endpoint of a peer that was invited
        self.introduced[name] = self.address_book.endpoints.get(name) if request is None else request.endpoint
        if request is None:
            self.to_add.append((name, self.introduced[name]))  # it has dialed; if the link is lost, both ends dial
        self._since[name] = now
        self._released.pop(name, None)
        self.left.pop(name, None)
        self.urgent = True
        return True

    def take_back(self, name: str, endpoint: str | None, now: float) -> None:
        """A neighbor is back whose edge was cut."""
        self.introduced[name], self._since[name] = endpoint, now
        self.urgent = True

    def _answer(self, core: Core, now: float, asker: str, kind: int, token: int) -> MembershipMessage:
        near = self.address_book.sample(MOST_PEERS // 2, (b for b in self.counting(core, now) if b != asker))
        taken = {asker, *(name for name, _ in near)}
        rest = self.address_book.sample(
            MOST_PEERS - len(near), (b for b in self.address_book.endpoints if b not in taken)
        )
        return MembershipMessage(kind, token, () if kind == PEERS else _intervals(core), (*near, *rest), len(near))

    # Sent messages

    def send(self, core: Core, now: float) -> list[tuple[str, bytes]]:
        """The messages to send after the core's tick."""
        self.ticks += 1
        if self.requests or self.ticks % _PACE == 0:
            self._review(core, now)
        messages = [(name, pack_membership(message)) for name, message in self._answers.items()]
        return messages + [(name, pack_membership(message)) for name, message in self._due_requests(core, now)]

    def _review(self, core: Core, now: float) -> None:
        kept = set(core.neighbors)
        if core.cuts.forgotten != self._forgotten:  # its mean is another one: peers that were far from it may be close
            self._forgotten = core.cuts.forgotten
            self.address_book.avoid_nobody()
        for name in [b for b in {**self.introduced, **self._since} if b not in kept]:  # cut, or removed
            if (
                name not in core.cuts.edges or core.cuts.edges[name].known
            ):  # else it must hear of the cut, also after a restart
                self.introduced.pop(name, None)
            self._since.pop(name, None)
            self._end(core, name)
        self.left = {b: at for b, at in self.left.items() if b in kept and self._has_left(core, b)}
        for name in [b for b, until in self._released.items() if now >= until]:
            del self._released[name]
            if name not in self.requests:
                self.to_drop.append(name)
        self._check_requests(core, now)
        self._find_neighbors(core, now)
        self._ask_for_release(core, now)

    def leave_messages(self, core: Core) -> list[tuple[str, bytes]]:
        """The messages to send when this agent leaves the network."""
        return [(name, pack_membership(MembershipMessage(LEAVE))) for name in core.neighbors]

    def _check_requests(self, core: Core, now: float) -> None:
        """(5)"""
        for name, request in list(self.requests.items()):
            if name in core.neighbors:
                if request.kind != INVITE and now >= request.until:
                    self._end(core, name)
            elif now >= request.until or (name in core.cuts.edges and request.kind == INVITE):
                self._in_vain += request.kind == INVITE
                self.address_book.avoid(name, self.ticks + LATER)
                self._remove_address(name)
                self._end(core, name)
        for name in core.neighbors:
            quiet, heard = self._silence(core, name, now), core.last_heard(name)
            if quiet <= core.stale_after or self._has_left(core, name):
                if name in self.requests and self.requests[name].kind == INVITE:
                    self._end(core, name)
            elif heard is None and name in self.introduced and quiet > self.patience:
                self._remove(core, name)
            elif name not in self.requests:
                self._begin(INVITE, name, now)

    def _find_neighbors(self, core: Core, now: float) -> None:
        """(1), (2)"""
        counting, asking = self.counting(core, now), self._invited(core)
        self._complete |= len(counting) >= self.degree
        missing = self.degree - len(counting) - len(asking)
        if missing > 0 and (self.replace or not self._complete) and self.ticks >= self._next_try:
            taken = {*core.neighbors, *core.cuts.edges, *self.requests}
            name = None if self._new else self.address_book.pick(self.ticks, taken, counting)
            if name is not None and (len(core.neighbors) + len(asking) < self.most or self._make_room(core, now)):
                self._dial_and_begin(INVITE, name, now)
                self._next_try = self.ticks + min(1 + self._in_vain // 4, LONGEST)
            elif name is None and self.ticks >= self._next_ask:
                self._ask_for_peers(core, now, counting)
                self._next_ask = self.ticks + self._asking_backoff.next_wait()
        if self.ticks >= self._next_mix:
            self._next_mix = self.ticks + self.rng.randrange(MIX // 2, 2 * MIX)
            if free := [b for b in core.fresh(now) if b not in self.requests]:
                self._begin(FIND_PEERS, self.rng.choice(free), now)

    # Surplus edges

    def _live(self, core: Core, now: float) -> list[str]:
        """Neighbors that are heard and have not said that they leave."""
        return [b for b in core.fresh(now) if not self._has_left(core, b)]

    def _has_first(self, live: list[str]) -> bool:
        """Whether all neighbors that it was configured with are among these. If they are for all agents, the graph is
        connected, because the graph of a plan is, whatever edges were added by introductions."""
        return bool(self._first) and set(live).issuperset(self._first or ())

    def _ask_for_release(self, core: Core, now: float) -> None:
        """(7), of one neighbor at a time."""
        if core.neighbors != self._last_neighbors:
            self._last_neighbors, self._calm_since = core.neighbors, self.ticks
        if self.ticks < max(self._calm_since + CALM, self._next_release) or self._releasing is not None:
            return
        live = self._live(core, now)
        met = [b for b in live if b in self.introduced and b not in self.requests]
        if len(live) <= self.degree or not self.replace or not met:
            return
        self._next_release = self.ticks + self.rng.randrange(CALM // 4, CALM)  # not all agents at once
        newest = sorted(met, key=lambda b: self._since.get(b, 0.0))[len(met) // 2 :]
        self._begin(RELEASE, self.rng.choice(newest), now)

    @property
    def _releasing(self) -> str | None:
        """The neighbor that was asked to release its edge."""
        return next((b for b, request in self.requests.items() if request.kind == RELEASE), None)

    def _release(self, core: Core, now: float, name: str, message: MembershipMessage) -> bool:
        """Whether the edge to a neighbor that asks for it is released, now or before.

        The graph stays connected: a neighbor of both remains one, because neither end agrees to another release while
        its own request is open, and an edge is released by agreement of its ends only. Edges to first neighbors are
        never released."""
        if name not in core.neighbors:
            return True
        live = [b for b in self._live(core, now) if b != name]
        if self._releasing not in (None, name) or name not in self.introduced or len(live) < self.degree:
            return False
        common = any(other in live for other, _ in message.agents)
        if not common and not (message.near and self._has_first(live)):
            return False
        core.remove_neighbor(name)
        self.introduced.pop(name)
        self.requests.pop(name, None)
        self._released[name] = now + self.answer_in  # its link is kept for so long
        self.urgent = True
        return True

    def _ask_for_peers(self, core: Core, now: float, counting: list[str]) -> None:
        """Ask for peers: a neighbor, or else a seed, or else any known peer, even one whose edge was cut."""
        self._new = False
        if free := [b for b in counting if b not in self.requests]:
            self._begin(FIND_PEERS, self.rng.choice(free), now)
            if self._asking_backoff.tries < 3:  # neighbors first; if they know no new peers, a seed may
                return
        others = [b for b in self.seeds or self.address_book.endpoints if b not in {*counting, *self.requests}]
        if others:
            self._dial_and_begin(FIND_PEERS, self.rng.choice(others), now)

    def _invited(self, core: Core) -> list[str]:
        """Peers that were invited and are not neighbors yet."""
        kept = core.neighbors
        return [b for b, request in self.requests.items() if request.kind == INVITE and b not in kept]

    def _due_requests(self, core: Core, now: float) -> list[tuple[str, MembershipMessage]]:
        asked = []
        for name, request in self.requests.items():
            if request.backoff.due():
                intervals = _intervals(core) if request.kind == INVITE else ()
                own: tuple[tuple[str, str | None], ...] = ((self.name, self.endpoint),)
                near = 0
                if request.kind == RELEASE:
                    live = [b for b in self._live(core, now) if b != name]
                    first = [b for b in live if self._has_first(live) and b in (self._first or ())][:MOST_PEERS]
                    rest = [b for b in live if b not in first]
                    near, room = len(first), min(len(rest), MOST_PEERS - len(first))
                    own = tuple((b, None) for b in (*first, *self.rng.sample(rest, room)))
                asked.append((name, MembershipMessage(request.kind, request.token, intervals, own, near)))
        return asked

    def _begin(self, kind: int, name: str, now: float, endpoint: str | None = None) -> None:
        self.requests[name] = Request(kind, self.rng.getrandbits(32), now + self.answer_in, endpoint)

    def _dial_and_begin(self, kind: int, name: str, now: float) -> None:
        """The same for a peer that is not a neighbor and must be dialed first."""
        endpoint = self.address_book.endpoints.get(name) or self.seeds[name]
        self._begin(kind, name, now, endpoint)
        self.to_add.append((name, endpoint))

    def _end(self, core: Core, name: str) -> None:
        """Close the request. The link to a peer is dropped unless it is a neighbor or must hear of a cut."""
        asked = self.requests.pop(name, None) is not None
        if asked and name not in core.neighbors and name not in core.cuts.edges:
            self.to_drop.append(name)

    def _remove_address(self, name: str) -> None:
        if name not in self.seeds:
            self.address_book.remove(name)

    def _remove(self, core: Core, name: str) -> None:
        if name in core.neighbors:
            core.remove_neighbor(name)
            self.urgent = True
            self.to_drop.append(name)
        self._end(core, name)

    def _make_room(self, core: Core, now: float) -> bool:
        """Remove the neighbor that was silent for longest among those that no longer count."""
        counting = self.counting(core, now)
        gone = [b for b in core.neighbors if b not in counting]
        if gone:
            self._remove(core, max(gone, key=lambda b: self._silence(core, b, now)))
        return bool(gone)

    # Saved state

    def state(self) -> bytes:
        return to_bytes({"book": self.address_book.endpoints, "met": self.introduced})

    def restore(self, raw: bytes, core: Core) -> None:
        """Make introduced neighbors neighbors again. Call it before the core's own state is restored."""
        saved = from_bytes(raw)
        try:
            book, met = dict(saved["book"]), dict(saved["met"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the saved state of {self.name!r} is torn ({error}). Use another store.") from None
        for name, endpoint in book.items():
            self.address_book.add(name, endpoint, self.name, ())
        for name, endpoint in met.items():
            if self.address_book.admits(name, endpoint) and core.add_neighbor(name):
                self.introduced[name] = endpoint
                self.to_add.append((name, endpoint))


def _intervals(core: Core) -> AgentIntervals:
    """The intervals of the agent; none if its method cuts no edges."""
    return getattr(core.inner, "intervals", ())


def _understands(core: Core, theirs: AgentIntervals) -> bool:
    """Whether these intervals can be compared with the agent's."""
    agent = core.inner
    return agent.understands(theirs) if isinstance(agent, IntervalAgent) else not theirs


def _parted(core: Core, theirs: AgentIntervals) -> bool:
    return parted(_intervals(core), theirs, getattr(core.inner, "test", None))
