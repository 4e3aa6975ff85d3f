"""An agent on a device: core, transport and store, called in the order that makes crashes harmless. It has no clock,
but for the bound on incarnations.

An incarnation is the number by which neighbors tell the present life of an agent from earlier ones.

Neighbors refuse records of an incarnation that is lower than one they have heard; so each start needs a higher one than
all before, also if the store was lost or is an old copy. It is

    max(stored + 1, Unix seconds)

and is on the disk before anything is said. That fails only if both fail: the store is lost or old, *and* the clock is
behind, as on a board without a battery-backed clock before it is set. The agent is then refused, and must learn it: a
neighbor answers with the newest mark (incarnation, epoch) that it has heard from this agent (`OLD` in `messages/wire`).
If that is newer than anything this life has sent, somebody used the name later than the store knows: the agent itself,
before the store was lost. So it continues one above.

How far can a liar push it? To `highest_incarnation(clock)`, ten years from now, and not further, however many messages
it sends: the bound does not depend on the agent's own incarnation. There it does no harm. Later starts add one each;
and wherever a liar can have pushed the agent at any time before, honest neighbors may bring it up to the same place
after its store was lost, since the bound moves with the clock. 2^32 - 1, the last incarnation, is out of reach until
2096. How often an agent moves is limited by a `Backoff`, because every move is a write to the disk.

A clock before `RELEASE` is certainly wrong, so the bound is never less than ten years from then. Off loopback
certificates are not valid in 1970: links open once the clock is set, and the bound is then the right one.

What is left: an agent whose clock was once more than ten years ahead, and that lost its store after that, is refused
for good, and says so.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from colme.errors import NodeError, whole
from colme.node.backoff import Backoff
from colme.node.core import Core
from colme.node.membership import Introductions
from colme.node.net.transport import Transport
from colme.node.readings import ReadingFilter
from colme.node.security.probe import Reason
from colme.node.store import AgentStore

RAREST_MOVE = 4096
"""Ticks between two moves of the incarnation on the word of neighbors, in the long run."""
RELEASE = 1_767_225_600
"""Unix seconds of 2026-01-01, when this was written: no correct clock is behind it."""
SLACK = 10 * 365 * 86_400
"""Seconds that a known incarnation may be ahead of the clock."""


def lowest_incarnation(clock: float) -> int:
    """The lowest incarnation of an agent that starts at this time, in Unix seconds. A clock that is too far ahead does
    not count."""
    seconds = int(clock) if 0.0 <= clock < 2**32 else 0
    return max(seconds, 1) if seconds <= 2**32 - 1 - SLACK else 1


def highest_incarnation(clock: float) -> int:
    """The highest incarnation that an agent takes from the word of a neighbor."""
    return min(max(int(clock), RELEASE) + SLACK, 2**32 - 2)


class Resumable(Protocol):
    """A source of samples with a position that can be saved."""

    def position(self) -> bytes | None:
        """How far it has been read; None if it cannot resume."""

    def resume(self, position: bytes) -> None:
        """Continue from a saved position."""


class Device:
    """Reads the transport, ticks the core, saves what must survive a crash, and only then sends.

    save_every     ticks between saves, if there are new samples: the death of the process loses at most the samples of
                   so many ticks and of the current one. For power cuts see `AgentStore`
    source         where the samples come from: its position is saved in one transaction with the state of the agent
    introductions  how the agent finds further neighbors, if it may
    say            takes messages for people
    clock          Unix seconds, for the bound on incarnations
    readings       which readings count as samples (default: all numbers); a gateway has `Gateway.readings`
    endpoints      where the neighbors that it starts with are dialed; None: they dial
    """

    def __init__(
        self, core: Core, transport: Transport, store: AgentStore | None = None, *, save_every: int = 20,
        source: Resumable | None = None, introductions: Introductions | None = None,
        say: Callable[[str], None] = lambda text: None, clock: Callable[[], float] = time.time,
        readings: ReadingFilter | None = None, endpoints: Mapping[str, str | None] | None = None,
    ):  # fmt: skip
        self.core, self.transport, self.store, self.source = core, transport, store, source
        self.introductions, self.readings, self.endpoints = introductions, readings, dict(endpoints or {})
        self._reopened: set[str] = set()  # links to agents of cut edges that are being reconsidered
        self.save_every = whole(save_every, "save_every", "save_every=20", NodeError)
        self._say, self._clock, self._moves, self._told = say, clock, Backoff(longest=RAREST_MOVE), False
        self._unsaved = False  # there are samples since the last save
        if store is not None:
            saved = store.start(core.name, at_least=core.incarnation)
            core.incarnation = saved.incarnation
            if introductions is not None and (known := store.start(self._address_book_name).state) is not None:
                introductions.restore(known, core)
                self._connect(introductions)
            if saved.state is not None:
                core.restore(saved.state)
            if source is not None:
                position = store.start(self._source_name).state
                if position is not None:
                    source.resume(position)
            if readings is not None and (seen := store.start(self._readings_name).state) is not None:
                readings.restore(seen)

    def tick(self, now: float, sample: float = float("nan")) -> None:
        """One step; see `Core.tick`."""
        core, transport = self.core, self.transport
        records = {b: raw for b in (*core.neighbors, *core.voters) if (raw := transport.latest(b)) is not None}
        control, introductions = transport.control(), self.introductions
        if introductions is not None:
            control = introductions.receive(core, now, control)
        self._unsaved |= not np.all(np.isnan(sample))
        record, messages = core.tick(now, sample, records, control)
        if core.refused_by:
            self._move_incarnation()
        if introductions is not None:
            for name in core.cuts.returned:
                introductions.take_back(name, self._endpoint(name), now)
            messages = messages + introductions.send(core, now)
            core.urgent |= introductions.urgent
        if core.urgent or (core.epoch % self.save_every == 0 and self._worth_saving):
            self.save()
        if introductions is not None:
            self._connect(introductions)
        self._reopen_links()
        transport.publish(record)
        for name, message in messages:
            transport.send(name, message)
        busy = () if introductions is None else introductions.requests
        for name in core.gone(now):
            self._reopened.discard(name)
            if name not in busy:
                transport.drop(name)

    def _move_incarnation(self) -> None:
        """Continue above the incarnation that neighbors know, if that can be true."""
        core, limit = self.core, highest_incarnation(self._clock())
        known = {name: number for name, number in core.refused_by.items() if number <= limit}
        if not known:
            name, number = next(iter(core.refused_by.items()))
            if not self._told:
                self._say(
                    f"{name} refuses the records of {core.name} as old: it knows incarnation {number}, far ahead of "
                    "the clock. If the clock of this device is behind, set it; else give the agent another name."
                )
            self._told = True
        elif self._moves.due():
            name = max(known, key=known.__getitem__)
            before, core.incarnation = core.incarnation, known[name] + 1
            if self.store is not None:
                core.incarnation = self.store.start(core.name, at_least=core.incarnation).incarnation
            core.refused_by.clear()
            self._say(
                f"{name} refused the records of {core.name} as old: its store was lost or is an older copy, or another "
                f"device has this name. It continues as incarnation {core.incarnation} (before: {before})."
            )

    @property
    def _worth_saving(self) -> bool:
        """Whether there is more to save than the number of the tick."""
        return self._unsaved or (self.store is not None and self.store.due)

    def leave(self) -> None:
        """Tell the neighbors that this agent leaves, so that they replace it at once."""
        if self.introductions is not None:
            for name, message in self.introductions.leave_messages(self.core):
                self.transport.send(name, message)

    def _connect(self, introductions: Introductions) -> None:
        for name in introductions.to_drop:
            self.transport.drop(name)
        for name, endpoint in introductions.to_add:
            self.transport.add(name, endpoint)
        introductions.to_drop, introductions.to_add = [], []

    def _endpoint(self, name: str) -> str | None:
        known = {} if self.introductions is None else self.introductions.address_book.endpoints
        return self.endpoints.get(name) or known.get(name)

    def _reopen_links(self) -> None:
        """Open links to the agents of cut edges that are to be reconsidered: they may have been dropped."""
        for name in {*self.core.cuts.due(), *self.core.cuts.returned} - self._reopened:
            self._reopened.add(name)
            with contextlib.suppress(NodeError):  # nowhere to dial it, and it cannot dial this agent
                self.transport.add(name, self._endpoint(name))

    def feed(self, now: float, samples: list[Any]) -> None:
        """One tick with the readings that arrived since the last."""
        if self.readings is not None:
            samples = self.readings.admit(samples)
        first, *more = self.core.arrange(samples, now)
        for sample in more:
            self.core.observe(sample)
            self._unsaved = True
        self.tick(now, first)

    def why_silent(self, name: str) -> Reason | None:
        """Why a neighbor is not heard, if that is known: its records are refused, or what the transport found."""
        refused = self.core.refused.senders.get(name, Counter[str]())["sense"]
        if refused and name in self.transport.present():
            return Reason("sense", f"its records are refused ({refused} so far): they are of another method, guard or "
                          "rule for cuts, or have more ballots than max_ballots allows here. Use the same on all nodes "
                          "of a network.")  # fmt: skip
        return self.transport.why_silent(name)

    def forgive(self, name: str) -> str:
        """Reconsider the cut of the edge to this agent, and say what happens."""
        if not self.core.cuts.forgive(name):
            known = ", ".join(sorted(self.core.cuts.edges)) or "none"
            return f"{self.core.name} has no cut edge to {name!r}; it has: {known}."
        self.save()
        return (
            f"{self.core.name} asks {name} to reconsider the cut. The edge returns if {name} answers and the intervals "
            "of both overlap well now; else it stays cut. See: colme node status --format json."
        )

    def save(self) -> None:
        """Write the state of the agent to the store, with the source's position and the address book."""
        if self.store is None:
            return
        rows = [(self.core.name, self.core.epoch, self.core.state())]
        position = None if self.source is None else self.source.position()
        if position is not None:
            rows.append((self._source_name, self.core.epoch, position))
        if self.readings is not None:
            rows.append((self._readings_name, self.core.epoch, self.readings.state()))
        if self.introductions is not None:
            rows.append((self._address_book_name, self.core.epoch, self.introductions.state()))
        self.store.save_all(rows, self.core.urgent)
        self._unsaved = False

    @property
    def _source_name(self) -> str:
        return f"{self.core.name}/samples"  # not the name of an agent: names contain no slash

    @property
    def _readings_name(self) -> str:
        return f"{self.core.name}/readings"

    @property
    def _address_book_name(self) -> str:
        return f"{self.core.name}/book"
