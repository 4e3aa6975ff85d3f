"""How agents come to be neighbors, and are replaced: letters between agents that may be strangers. No I/O, no clock.

From the perspective of agent a that wants r neighbors:

(1) it knows some others by name and endpoint (`Book`). Now and then it asks a neighbor for more, who names some of its
    own neighbors and others of its book, at random: so books mix, and who knows one agent soon knows many
(2) while it has fewer than r neighbors that live, it asks somebody of its book to be its neighbor, and tells its
    intervals; those first, half of the time, whom a kept neighbor calls its own: they are likely twins
(3) b says yes if it has room, up to 3 r, and if their intervals overlap well (|X_a - X_b| <= (R_a + R_b) / 2): then
    neither has to be cut soon, which would restart clocks. Both answers come with names of others
(4) it takes b for a neighbor when it hears the yes; b did when it said so, and saved it before it said so
(5) a neighbor from which nothing comes is asked again: one that says no is forgotten, and so is, after long, one that
    was never heard. So an edge that only one end knows of does not last
(6) who was cut is never asked again, who said no or nothing not soon; questions become rarer while they are in vain

A neighbor that says goodbye, or was silent for long (`patience`), does not count, but remains one: it may return. Only
if there is no room left is one of them forgotten. Forgetting is not a cut: both may meet again, and flows even out.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Mapping

import msgspec

from colme.errors import CheckpointError, NodeError, whole
from colme.methods.intervals import AgentIntervals, parted
from colme.node.core import SLOWEST, Core
from colme.node.membership.address_book import Book
from colme.node.membership.join import ROOM
from colme.node.messages.membership import (
    ASK,
    BYE,
    LETTER,
    MEET,
    MOST_NAMES,
    NAMES,
    NO,
    YES,
    Letter,
    pack_letter,
    unpack_letter,
)
from colme.node.messages.wire import CUT, WireError, unpack_control  # fmt: skip
from colme.node.state import from_bytes, to_bytes

OVERLAP = 0.5
"""Share of both radii within which strangers must be. Radii are some 4 deviations of a mean, so twins are."""
MIX = 128
"""Ticks between two questions to neighbors for names."""
LATER = 1024
"""Ticks before somebody who did not want to, or did not answer, is asked again."""
_NEVER = 2**62
_RAREST = 12  # 2^12 ticks between two questions for names, while they are in vain
_PACE = 4  # ticks between two looks around, while nothing happens


class Errand(msgspec.Struct):
    """A question, repeated until it is answered."""

    kind: int
    token: int
    until: float  # seconds, when it is given up
    endpoint: str | None = None  # where it is dialled, if it is for a stranger
    wait: int = 0  # ticks until it is asked again
    asked: int = 0  # times


class Introductions:
    """Beside a `Core`, driven by a `Device`.

    degree     neighbors that it wants
    endpoint   where others can dial it; None: nowhere
    seeds      whom it may always ask for names, and `known`: others that it knows, by endpoint
    replace    neighbors that are lost; else none are looked for once it has had enough of them
    patience   seconds of silence after which a neighbor does not count any more
    answer_in  seconds that a question may take: others may have to be dialled, or to open their door first
    admits     whether somebody may be dialled at an endpoint; None: whether it may dial this agent
    """

    def __init__(
        self, name: str, *, degree: int = 6, endpoint: str | None = None, seeds: Mapping[str, str] | None = None,
        known: Mapping[str, str] | None = None, replace: bool = True, patience: float = 180.0, answer_in: float = 12.0,
        admits: Callable[[str, str | None], bool] = lambda name, endpoint: True, rng: random.Random | None = None,
    ):  # fmt: skip
        self.name, self.endpoint, self.seeds = name, endpoint, dict(seeds or {})
        self.degree = whole(degree, "degree", "degree=6", NodeError)
        self.most = ROOM * degree
        self.replace, self.patience, self.answer_in = replace, patience, answer_in
        self.rng = random.Random() if rng is None else rng
        self.book = Book(name, admits, self.rng)
        for each, place in {**self.seeds, **(known or {})}.items():
            self.book.note(each, place, each, ())
        self.met: dict[str, str | None] = {}  # neighbors that were not there from the start; where this end dials them
        self.errands: dict[str, Errand] = {}
        self.left: dict[str, float] = {}  # when they said goodbye
        self.urgent = False  # something must be saved before anybody is told
        self.calls: list[tuple[str, str | None]] = []  # whom the transport should add
        self.hangups: list[str] = []  # and drop
        self.ticks = 0
        self._since: dict[str, float] = {}  # when a neighbor was met
        self._answers: dict[str, Letter] = {}
        self._complete = False
        self._new = bool(self.seeds)  # who comes asks first, lest everybody be the seed's neighbor
        self._in_vain = self._asked_in_vain = 0
        self._next_try = self._next_ask = 0
        self._next_mix = self.rng.randrange(MIX)

    def counting(self, core: Core, now: float) -> list[str]:
        """Neighbors that live, as far as this agent knows."""
        return [b for b in core.neighbors if self._quiet(core, b, now) <= self.patience and not self._gone(core, b)]

    def _quiet(self, core: Core, name: str, now: float) -> float:
        """For how long nothing was heard."""
        since, heard = self._since.setdefault(name, now), core.last_heard(name)
        return now - (since if heard is None else max(since, heard.at))

    def _gone(self, core: Core, name: str) -> bool:
        heard = core.last_heard(name)
        return name in self.left and (heard is None or heard.at <= self.left[name])

    # What others write

    def listen(self, core: Core, now: float, control: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """Read the letters among these messages; the others are for the core."""
        self.urgent, self._answers = False, {}
        rest = []
        for name, raw in control:
            if raw[: len(LETTER)] != LETTER:
                rest.append((name, raw))
                self._cut_by_stranger(core, now, name, raw)
                continue
            try:
                letter = unpack_letter(raw)
            except WireError as error:
                core.refused[error.reason] += 1
                continue
            if letter.kind in (ASK, MEET):
                self._asked(core, now, name, letter)
            elif letter.kind == BYE:
                if name in core.neighbors:
                    self.left[name] = now
                self._strike(name)
            else:
                self._answered(core, now, name, letter)
        return rest

    def _cut_by_stranger(self, core: Core, now: float, name: str, raw: bytes) -> None:
        """An edge of which this end did not know, or no longer, is cut all the same: the other can stop telling."""
        with contextlib.suppress(WireError):
            if name not in core.neighbors and unpack_control(raw).kind == CUT:
                core.part(name, now)
                self.urgent = True

    def _asked(self, core: Core, now: float, name: str, letter: Letter) -> None:
        if len(letter.agents) != 1 or letter.agents[0][0] != name or name == self.name:
            core.refused["sense"] += 1
            return
        self.book.note(*letter.agents[0], name, core.neighbors)
        if letter.kind == MEET:
            kind = YES if self._welcome(core, now, name, letter.intervals) else NO
            self._answers[name] = self._names(core, now, name, kind, letter.token)
        elif name not in self._answers:
            self._answers[name] = self._names(core, now, name, NAMES, letter.token)

    def _welcome(self, core: Core, now: float, name: str, theirs: AgentIntervals) -> bool:
        """Whether it is a neighbor, now or already."""
        if name in core.neighbors:
            self.left.pop(name, None)
            return True
        mine = _intervals(core)
        if len(mine) != len(theirs) or name in core.partings:
            return False
        if not _close(mine, theirs):
            self.book.shun(name, _NEVER if parted(mine, theirs) else self.ticks + LATER)
            return False
        if len(core.neighbors) + len(self._asking(core)) >= self.most and not self._make_room(core, now):
            return False
        return self._add(core, now, name)

    def _answered(self, core: Core, now: float, name: str, letter: Letter) -> None:
        errand = self.errands.get(name)
        if errand is None or errand.token != letter.token or (errand.kind == ASK) != (letter.kind == NAMES):
            core.refused["old"] += 1
            return
        for i, (other, endpoint) in enumerate(letter.agents):
            if self.book.note(other, endpoint, name, core.neighbors):
                self._asked_in_vain, self._next_ask = 0, self.ticks
            if i < letter.near and other in self.book.endpoints:
                self.book.via[other] = name
        mine = _intervals(core)
        apart = len(mine) != len(letter.intervals) or parted(mine, letter.intervals)
        if letter.kind == NAMES:
            self._end(core, name)
        elif letter.kind == NO or (apart and name not in core.neighbors):
            self._in_vain += 1
            self.book.shun(name, _NEVER if apart else self.ticks + LATER)
            self._forget(core, name)
        elif name not in core.neighbors and self._add(core, now, name):
            self._in_vain = 0

    def _add(self, core: Core, now: float, name: str) -> bool:
        """A new neighbor."""
        if not core.meet(name) or name not in core.neighbors:
            return False
        errand = self.errands.pop(name, None)
        self.met[name] = None if errand is None else errand.endpoint  # the book may have lost it meanwhile
        if errand is None:
            self.calls.append((name, None))
        self._since[name] = now
        self.left.pop(name, None)
        self.urgent = True
        return True

    def _names(self, core: Core, now: float, asker: str, kind: int, token: int) -> Letter:
        near = self.book.sample(MOST_NAMES // 2, (b for b in self.counting(core, now) if b != asker))
        taken = {asker, *(name for name, _ in near)}
        rest = self.book.sample(MOST_NAMES - len(near), (b for b in self.book.endpoints if b not in taken))
        return Letter(kind, token, () if kind == NAMES else _intervals(core), (*near, *rest), len(near))

    # What this agent writes

    def speak(self, core: Core, now: float) -> list[tuple[str, bytes]]:
        """After the core's tick: letters to send."""
        self.ticks += 1
        if self.errands or self.ticks % _PACE == 0:
            self._look_around(core, now)
        letters = [(name, pack_letter(letter)) for name, letter in self._answers.items()]
        return letters + [(name, pack_letter(letter)) for name, letter in self._questions(core)]

    def _look_around(self, core: Core, now: float) -> None:
        kept = set(core.neighbors)
        for name in [b for b in {**self.met, **self._since} if b not in kept]:  # cut, or forgotten
            if name not in core.partings or core.partings[name].known:  # else it must be told, also after a restart
                self.met.pop(name, None)
            self._since.pop(name, None)
            self._end(core, name)
        self.left = {b: at for b, at in self.left.items() if b in kept and self._gone(core, b)}
        self._tend(core, now)
        self._seek(core, now)

    def goodbye(self, core: Core) -> list[tuple[str, bytes]]:
        """To say when leaving."""
        return [(name, pack_letter(Letter(BYE))) for name in core.neighbors]

    def _tend(self, core: Core, now: float) -> None:
        """(5)"""
        for name, errand in list(self.errands.items()):
            if name in core.neighbors:
                if errand.kind == ASK and now >= errand.until:
                    self._end(core, name)
            elif now >= errand.until or (name in core.partings and errand.kind == MEET):
                self._in_vain += errand.kind == MEET
                self.book.shun(name, self.ticks + LATER)
                self._strike(name)
                self._end(core, name)
        for name in core.neighbors:
            quiet, heard = self._quiet(core, name, now), core.last_heard(name)
            if quiet <= core.stale_after or self._gone(core, name):
                if name in self.errands and self.errands[name].kind == MEET:
                    self._end(core, name)
            elif heard is None and name in self.met and quiet > self.patience:
                self._forget(core, name)
            elif name not in self.errands:
                self._begin(MEET, name, now)

    def _seek(self, core: Core, now: float) -> None:
        """(1), (2)"""
        counting, asking = self.counting(core, now), self._asking(core)
        self._complete |= len(counting) >= self.degree
        missing = self.degree - len(counting) - len(asking)
        if missing > 0 and (self.replace or not self._complete) and self.ticks >= self._next_try:
            taken = {*core.neighbors, *core.partings, *self.errands}
            name = None if self._new else self.book.pick(self.ticks, taken, counting)
            if name is not None and (len(core.neighbors) + len(asking) < self.most or self._make_room(core, now)):
                self._call(MEET, name, now)
                self._next_try = self.ticks + min(1 + self._in_vain // 4, SLOWEST)
            elif name is None and self.ticks >= self._next_ask:
                self._ask(core, now, counting)
                self._next_ask = self.ticks + 2**self._asked_in_vain
                self._asked_in_vain = min(self._asked_in_vain + 1, _RAREST)
        if self.ticks >= self._next_mix:
            self._next_mix = self.ticks + self.rng.randrange(MIX // 2, 2 * MIX)
            if free := [b for b in core.fresh(now) if b not in self.errands]:
                self._begin(ASK, self.rng.choice(free), now)

    def _ask(self, core: Core, now: float, counting: list[str]) -> None:
        """For names: a neighbor, or else a seed, or else anybody, also whom it cut."""
        self._new = False
        if free := [b for b in counting if b not in self.errands]:
            self._begin(ASK, self.rng.choice(free), now)
            if self._asked_in_vain < 3:  # neighbors first; if they know nobody, the seed may
                return
        others = [b for b in self.seeds or self.book.endpoints if b not in {*counting, *self.errands}]
        if others:
            self._call(ASK, self.rng.choice(others), now)

    def _asking(self, core: Core) -> list[str]:
        """Strangers that have been asked to be neighbors."""
        kept = core.neighbors
        return [b for b, errand in self.errands.items() if errand.kind == MEET and b not in kept]

    def _questions(self, core: Core) -> list[tuple[str, Letter]]:
        asked = []
        for name, errand in self.errands.items():
            if errand.wait == 0:
                intervals = _intervals(core) if errand.kind == MEET else ()
                asked.append((name, Letter(errand.kind, errand.token, intervals, ((self.name, self.endpoint),))))
                errand.wait = min(2**errand.asked, SLOWEST)
                errand.asked = min(errand.asked + 1, SLOWEST)
            errand.wait -= 1
        return asked

    def _begin(self, kind: int, name: str, now: float, endpoint: str | None = None) -> None:
        self.errands[name] = Errand(kind, self.rng.getrandbits(32), now + self.answer_in, endpoint)

    def _call(self, kind: int, name: str, now: float) -> None:
        """The same for a stranger, who must be dialled first."""
        endpoint = self.book.endpoints.get(name) or self.seeds[name]
        self._begin(kind, name, now, endpoint)
        self.calls.append((name, endpoint))

    def _end(self, core: Core, name: str) -> None:
        """No more questions; who is no neighbor, and need not be told of a cut, is no longer spoken to."""
        asked = self.errands.pop(name, None) is not None
        if asked and name not in core.neighbors and name not in core.partings:
            self.hangups.append(name)

    def _strike(self, name: str) -> None:
        if name not in self.seeds:
            self.book.strike(name)

    def _forget(self, core: Core, name: str) -> None:
        if name in core.neighbors:
            core.forget(name)
            self.urgent = True
            self.hangups.append(name)
        self._end(core, name)

    def _make_room(self, core: Core, now: float) -> bool:
        """Forget who was silent for longest, if it does not count any more."""
        counting = self.counting(core, now)
        gone = [b for b in core.neighbors if b not in counting]
        if gone:
            self._forget(core, max(gone, key=lambda b: self._quiet(core, b, now)))
        return bool(gone)

    # What survives a restart

    def state(self) -> bytes:
        return to_bytes({"book": self.book.endpoints, "met": self.met})

    def restore(self, raw: bytes, core: Core) -> None:
        """Before the core's own state is restored: neighbors that were met are neighbors again."""
        saved = from_bytes(raw)
        try:
            book, met = dict(saved["book"]), dict(saved["met"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the saved state of {self.name!r} is torn ({error}). Use another store.") from None
        for name, endpoint in book.items():
            self.book.note(name, endpoint, self.name, ())
        for name, endpoint in met.items():
            if self.book.admits(name, endpoint) and core.meet(name):
                self.met[name] = endpoint
                self.calls.append((name, endpoint))


def _intervals(core: Core) -> AgentIntervals:
    """What is compared; nothing, where agents do not part."""
    return getattr(core.agent, "intervals", ())


def _close(mine: AgentIntervals, theirs: AgentIntervals) -> bool:
    """Whether intervals still touch when they are shorter."""
    return not parted(*([(center, OVERLAP * radius) for center, radius in each] for each in (mine, theirs)))  # type: ignore[arg-type]
