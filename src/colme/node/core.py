"""The core of a node: one agent of any method, on a network without a common tick.

It does no I/O and reads no clock: `tick` receives the time and the bytes that arrived, and returns the bytes to send.
From the perspective of agent a, at one of its own ticks:

(1) it reads the records that arrived. A record that is older than one it has, or invalid in any field, is refused and
    counted
(2) its method makes one step. The last record of each neighbor is its message in every exchange of that step, as long
    as it is fresh. A neighbor without a fresh record has no weight, but is never cut for its silence
(3) neighbors whose edge the step has cut are told so, with backoff, until they acknowledge it
(4) its new record goes to all neighbors, and to the agents of cut edges that still vote on the guard's weight

An agent whose record is refused as old is told which newer one there is (`OLD`), so that it can move its incarnation
above that (`colme.node.device`); the caller does so. An agent that has been started tells its neighbors
(`STARTED`), and one that holds the edge as cut answers so, in case the other end has lost the store that knew.

An edge is cut at both ends: an agent that is told of a cut cuts the edge, too. The caller saves `state()` before it
sends the messages of a tick that is `urgent`, so after a crash neither end can have forgotten a cut that the other
relies on. A crash loses the samples since the last save, and never counts one twice. `cuts` says when a cut is
reconsidered.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from colme.dependence import tell_factors
from colme.errors import CheckpointError, NodeError, positive, shorten, whole
from colme.methods import Method, Place
from colme.methods.intervals import PARTED
from colme.node.backoff import Backoff
from colme.node.cuts import Cuts
from colme.node.dependence import AsynchronousDependence
from colme.node.messages.adapters import WRONG_SHAPE, Nothing, device_agent, without_guard
from colme.node.messages.wire import (
    CUT,
    CUT_HEARD,
    LARGEST,
    OLD,
    STARTED,
    Control,
    Record,
    WireError,
    pack,
    pack_control,
    unpack,
    unpack_control,
)  # fmt: skip
from colme.noise import add_square
from colme.support.saved import from_bytes, from_plain, to_bytes, to_plain

SILENT = 60
"""An agent of a cut edge that was not heard for this many times `stale_after` no longer votes."""
FEWEST = 8
"""Degrees of freedom of a sample variance, if it is not from all samples: after a detected change."""
OVERTAKEN = 2
"""Records in a row that are older than one before, as on a network that reorders them, before their sender is told."""
GREETINGS = 6
"""How often an agent tells a neighbor that it has been started, once that was heard (before, it goes on). There is no
answer unless the edge is cut; all of six get lost with probability .2^6 at 20 % loss."""

MOST_SENDERS = 64
"""Agents whose refusals are counted one by one. Neighbors come and go: beyond that, the one that was refused longest
ago is forgotten; the counts of all agents together are not."""


class Refusals(Counter[str]):
    """Counts of all agents together, by reason; `senders` has those of each agent."""

    def __init__(self, counts: Mapping[str, int] | None = None):
        super().__init__(counts or {})
        self.senders: dict[str, Counter[str]] = {}

    def note(self, sender: str, reason: str) -> None:
        """Count a record or a message of this agent."""
        self[reason] += 1
        counts = self.senders.pop(sender, Counter())
        counts[reason] += 1
        self.senders[sender] = counts  # the last one
        while len(self.senders) > MOST_SENDERS:
            del self.senders[next(iter(self.senders))]


class Heard(msgspec.Struct):
    """The newest record of a neighbor, and when it was received."""

    record: Record
    at: float


class Core:
    """One agent. (`colme.node.gateway.Gateway` has many.)

    method       any that has a message adapter: its agents exchange messages with neighbors only
    name         name of this agent; `neighbors`: those that it starts with
    n_agents     agents in the network; `degree`: the largest degree in it (default: this agent's own)
    sigma, width, kurtosis   what is known of the samples, as in a recording; `unit`: a scale that all agents share
    origin       subtracted from all samples; it must be the same everywhere, and near the data
    level        of the interval around the estimate
    stale_after  age in seconds from which the record of a neighbor no longer counts
    incarnation  higher with every start, see `colme.node.device`
    max_ballots  that a node may cast in a census: more than one where there are gateways
    independent  whether the samples of an agent are known to be independent
    """

    many: ClassVar[bool] = False
    """Whether there are many local agents."""
    waiting: Any = ()
    """Samples that wait for the next tick."""

    def __init__(
        self, method: Method, name: str, neighbors: Iterable[str], *, n_agents: int, degree: int | None = None,
        sigma: float | None = None, width: float | None = None, kurtosis: float = 3.0, unit: float | None = None,
        origin: float = 0.0, level: float = 0.9, stale_after: float = 3.0, incarnation: int = 1,
        max_ballots: int = 1, independent: bool = False,
    ):  # fmt: skip
        names = tuple(sorted(set(neighbors)))
        if name in names:
            raise NodeError(f"{name!r} is among its own neighbors: neighbors are other agents. Leave it out.")
        most = max(len(names), 1) if degree is None else whole(degree, "degree", "degree=6", NodeError)
        whole(n_agents, "n_agents", "n_agents=20", NodeError)
        if len(names) > most or len(names) >= n_agents:
            raise NodeError(
                f"{len(names)} neighbors of {name!r}: there can be at most degree={most} and fewer than "
                f"n_agents={n_agents}. Correct one of them."
            )
        place = Place(
            agent=name, neighbors=names, n_agents=n_agents, n_edges=max(n_agents * most // 2, 1), auto_step=1.0 / most,
            sigma=sigma, width=width, kurtosis=kurtosis, unit=unit or sigma or 1.0, max_degree=most,
            max_ballots=whole(max_ballots, "max_ballots", "max_ballots=10000", NodeError), independent=independent,
        )  # fmt: skip
        self.method, self.name, self.origin, self.level = method, name, origin, level
        self.stale_after = positive(stale_after, "stale_after", "stale_after=3.0", NodeError)
        self.incarnation = whole(incarnation, "incarnation", "incarnation=1", NodeError)
        self.agent, self.adapter = device_agent(method, place, gateway=self.many)
        learns = method.learns_dependence and not independent
        self.dependence = AsynchronousDependence(place) if learns else None
        self.square, self.freedom = 0.0, 0  # the sum of squared deviations of the samples, and its degrees of freedom
        self.refused = Refusals()
        self.urgent = False  # something must be saved before any message is sent
        self.marks: dict[str, tuple[int, int, int]] = {}  # age mark of the newest record of each agent
        self.cuts = Cuts(self)
        self.refused_by: dict[str, int] = {}  # neighbors that refuse its records as old, and the incarnation they know
        self._old: dict[str, Backoff] = {}  # neighbors whose records are refused as old
        self._greetings: dict[str, Backoff] | None = None  # neighbors that are told of the start
        self.heard: dict[str, Heard] = {}
        self._n_links = len(names)
        self._began = math.inf  # time of the first tick

    @property
    def neighbors(self) -> list[str]:
        """Neighbors whose edge is not cut, in the order of summation."""
        return list(self.adapter.neighbors)

    @property
    def voters(self) -> list[str]:
        """Agents of cut edges that still vote on the guard's weight."""
        return [b for b, cut_edge in self.cuts.edges.items() if cut_edge.linked]

    @property
    def estimate(self) -> float:
        return float(self.agent.estimate) + self.origin

    @property
    def mean(self) -> float:
        return float(self.agent.mean) + self.origin

    @property
    def interval(self) -> tuple[float, float]:
        """An interval for the true mean, around the estimate; NaN where there is none: without a guard, methods that
        average estimates know nothing of their errors."""
        if not self.adapter.has_interval:
            return math.nan, math.nan
        lower, upper = self.adapter.interval(self.level, self._variance)
        return lower + self.origin, upper + self.origin

    @property
    def _variance(self) -> float:
        """The variance of the samples; infinite before it is known."""
        enough = self.freedom >= max(min(self.inner.own_count - 1, FEWEST), 1)
        return self.square / self.freedom if enough else math.inf

    @property
    def inner(self) -> Any:
        """The agent of the method itself, without a guard around it."""
        return getattr(self.agent, "inner", self.agent)

    @property
    def trust(self) -> float | None:
        """The weight that the guard gives the collaborative estimate; None: there is no guard."""
        return getattr(self.agent, "trust", None)

    @property
    def epoch(self) -> int:
        """Ticks so far, including those before restarts."""
        return self.agent.t

    def last_heard(self, name: str) -> Heard | None:
        """The newest record of a neighbor, and when it was received."""
        return self.heard.get(name)

    def fresh(self, now: float) -> list[str]:
        """Neighbors with a fresh record."""
        return [b for b in self.neighbors if self._is_fresh(b, now)]

    def _is_fresh(self, name: str, now: float) -> bool:
        return name in self.heard and now - self.heard[name].at <= self.stale_after

    def add_neighbor(self, name: str) -> bool:
        """Add a neighbor; False if the edge to it is cut."""
        if name == self.name or name in self.cuts.edges:
            return False
        self.adapter.add_neighbor(name)
        return True

    def remove_neighbor(self, name: str) -> None:
        """Remove a neighbor without cutting the edge: it may be added again."""
        self.adapter.remove_neighbor(name)
        self.heard.pop(name, None)

    @property
    def busy(self) -> bool:
        """Whether so many samples wait that the source is not to be read."""
        return False

    @property
    def n_samples(self) -> int:
        return int(self.agent.count)

    def arrange(self, samples: list[float], now: float) -> list[float]:
        """The samples since the last tick, one by one: the first is that of the tick, others are observed before it."""
        return samples or [math.nan]

    def observe(self, sample: float) -> None:
        """Add a sample beyond the one of the tick."""
        mean, count, x = self.inner.own_mean, self.inner.own_count, self._checked(sample)
        if self.dependence is not None:
            self.dependence.observe(x, count)
            self._tell_factors(x)
        self.adapter.observe(x)
        self._add_square(mean, count)

    def tick(
        self, now: float, sample: float, records: Mapping[str, bytes], control: Iterable[tuple[str, bytes]] = ()
    ) -> tuple[bytes, list[tuple[str, bytes]]]:
        """Make one step.

        now       time in seconds, non-decreasing
        sample    NaN if there is none
        records   newest record of each neighbor that sent one, as bytes
        control   control messages since the last tick, (sender, bytes)

        Returns the record to publish and the control messages to send."""
        self.urgent, self.cuts.returned = False, []
        self._began = min(self._began, now)
        if self._greetings is None:
            self._greetings = {b: Backoff() for b in self.neighbors} if self.adapter.cuts else {}
        control, answers_about_edges = self.cuts.hear(control, now)
        heard = (*self.neighbors, *self.voters)
        new = {b for b in heard if b in records and self._hear(b, records[b], now)}  # (1)
        old = {b for b in self._old if b in records}
        answers, parted = self._listen(control, now)
        before, mean, count = self.neighbors, self.inner.own_mean, self.inner.own_count
        fresh = {b: self.heard[b].record for b in self.fresh(now) if b not in parted}
        used = {b: record for b, record in fresh.items() if b in new} if self.adapter.once else fresh
        x = self._checked(sample)
        if self.dependence is not None:
            heard_sums = fresh | {b: self.heard[b].record for b in self.voters if self._is_fresh(b, now)}
            self.dependence.step(self.agent.t + 1, x, count, dict(sorted(heard_sums.items())), len(heard))
            self._tell_factors(x)
        self._step(x, used, parted)  # (2)
        self._add_square(mean, count)
        lost = set(before).difference(self.neighbors)
        self.adapter.end_tick(fresh, bool(lost))
        for b in sorted(lost):
            self.cuts.edges[b] = self.cuts.new(b, now, known=b in parted, linked=self.adapter.votes)
            if b not in parted:
                self.cuts.edges[b].why = self.cuts.reason(b)
            self.urgent = True
        self._release_voters(now)
        fresh |= {b: self.heard[b].record for b in self.voters if self._is_fresh(b, now)}
        self.adapter.vote(fresh, len(self.neighbors) + len(self.voters))
        messages = answers + self._tell_old(old) + self._greet() + answers_about_edges
        return pack(self.record()), messages + self._tell_cuts() + self.cuts.ask()  # (3), (4)

    def record(self) -> Record:
        """The agent's current state as a record."""
        agent, degree = self.agent, len(self.adapter.neighbors)
        body, sums = self.adapter.body(), None if self.dependence is None else self.dependence.body
        return Record(self.incarnation, agent.t, agent.count, float(agent.mean), degree, body, sums=sums)

    def _tell_factors(self, sample: Any) -> None:
        """Tell the agent, which is about to observe this sample."""
        if self.dependence is not None:
            tell_factors(self.agent, self.dependence.factors(self.inner.own_count + (sample == sample)))

    def _checked(self, sample: float) -> float:
        x = float(sample) - self.origin
        if math.isnan(x) or abs(x) <= LARGEST:
            return x
        self.refused["sample"] += 1
        return math.nan

    def _add_square(self, before: float, count: int) -> None:
        """Note how the own mean moved from `before`, the mean of `count` samples."""
        n = self.inner.own_count
        if n < count:  # a change was detected
            self.square, self.freedom = 0.0, 0
        elif n > max(count, 1):
            self.square, self.freedom = add_square(self.square, self.inner.own_mean, before, n), self.freedom + 1

    def _hear(self, name: str, raw: bytes, now: float) -> bool:
        """Take in a record; True if it is valid and newer than the last one of this neighbor."""
        try:
            record = unpack(raw)
        except WireError as error:
            self.refused.note(name, error.reason)
            return False
        mark = self.marks.get(name, (0, 0, 0))
        if record.age_mark <= mark:
            self.refused.note(name, "old")
            if record.age_mark[:2] < mark[:2]:  # not one that arrived twice
                self._old.setdefault(name, Backoff(left=OVERTAKEN))
            return False
        self._old.pop(name, None)
        if not self.adapter.votes:
            record = without_guard(record)
        if name in self.cuts.edges:
            sense = self.adapter.accept_vote(record)
        else:
            sense = self.adapter.accept(record, self.agent.t + 1)  # the step that is about to begin
        if sense is None:
            self.refused.note(name, "sense")
            return False
        self.marks[name] = record.age_mark
        if name not in self.heard and self._greetings and name in self._greetings:
            self._greetings[name] = Backoff()
        self.heard[name] = Heard(sense, now)
        return True

    def _listen(self, control: Iterable[tuple[str, bytes]], now: float) -> tuple[list[tuple[str, bytes]], set[str]]:
        """(acknowledgments to send, neighbors that have cut the edge)."""
        parted, heard = set(), set()
        for name, raw in control:
            try:
                message = unpack_control(raw)
            except WireError as error:
                self.refused.note(name, error.reason)
                continue
            cut_edge = self.cuts.edges.get(name)
            stranger = cut_edge is None and name not in self.adapter.neighbors
            if message.kind == OLD and not stranger:
                self._hear_old(name, message)
                continue
            if (
                message.kind == CUT
                and (message.incarnation, message.epoch) <= self.cuts.revived.get(name, (0, 0, 0))[:2]
            ):
                self.refused.note(name, "old")  # of the cut before, which was reconsidered
                continue
            if stranger or not self.adapter.cuts:
                self.refused.note(name, "stranger")
            elif message.kind == STARTED:
                if cut_edge is not None and not cut_edge.again:
                    cut_edge.again, cut_edge.backoff = True, Backoff()
                continue
            elif message.kind == CUT:
                heard.add(name)
                if cut_edge is None:
                    parted.add(name)
            elif cut_edge is None:
                self.refused.note(name, "sense")  # an acknowledgment of a cut that was never sent
            if cut_edge is not None:
                self.urgent |= not cut_edge.known
                cut_edge.known, cut_edge.again, cut_edge.at = True, False, now
        return [(name, self._message(CUT_HEARD)) for name in sorted(heard)], parted

    def _hear_old(self, name: str, message: Control) -> None:
        """Note that a neighbor knows a record of this agent which is newer than all that this life has sent. Otherwise
        the message only crossed the next record."""
        if (message.incarnation, message.epoch) > (self.incarnation, self.agent.t):
            self.refused_by[name] = message.incarnation

    def _tell_old(self, names: set[str]) -> list[tuple[str, bytes]]:
        """Tell these neighbors which newer record of theirs there is."""
        return [
            (name, pack_control(Control(OLD, *self.marks[name][:2])))
            for name in sorted(names) if self._old[name].due()
        ]  # fmt: skip

    def _greet(self) -> list[tuple[str, bytes]]:
        """Tell the neighbors that this agent has been started."""
        told, greetings = [], self._greetings or {}
        for name, backoff in list(greetings.items()):
            if name not in self.adapter.neighbors or (name in self.heard and backoff.tries == GREETINGS):
                del greetings[name]
            elif backoff.due():
                told.append((name, self._message(STARTED)))
        return told

    def _step(self, sample: float, used: Mapping[str, Record], parted: set[str]) -> None:
        if not self.adapter.hears_cuts:
            for b in parted:
                self.adapter.remove_neighbor(b)
        inbox: Any = None  # the first send of a generator must be None; later ones deliver the inbox
        step, exchange = self.agent.step(sample), 0
        try:
            while True:
                self.adapter.record_outbox(step.send(inbox), exchange)
                inbox = {b: self.adapter.decode(record, exchange) for b, record in used.items()}
                for b, message in inbox.items():
                    if message is WRONG_SHAPE:
                        self.refused.note(b, "shape")
                inbox = {b: message for b, message in inbox.items() if not isinstance(message, Nothing)}
                inbox = self.adapter.bounded(inbox)
                if exchange == 0 and self.adapter.hears_cuts:
                    inbox |= dict.fromkeys(parted, PARTED)
                exchange += 1
        except StopIteration:
            pass

    def _tell_cuts(self) -> list[tuple[str, bytes]]:
        told = []
        for name, cut_edge in sorted(self.cuts.edges.items()):
            if cut_edge.known and not cut_edge.again:
                continue
            if cut_edge.backoff.due():
                told.append((name, self._message(CUT)))
        return told

    def _message(self, kind: int) -> bytes:
        return pack_control(Control(kind, self.incarnation, self.agent.t))

    def _release_voters(self, now: float) -> None:
        """Keep as many agents of cut edges, the last ones, as there were more neighbors at the start, and none that is
        silent."""
        last = {b: max(self.heard[b].at if b in self.heard else -math.inf, self.cuts.edges[b].at) for b in self.voters}
        room = max(self._n_links - len(self.neighbors), 0)
        kept = self.voters[max(len(last) - room, 0) :]
        for b in self.voters:
            silent = now - max(last[b], self._began) > SILENT * self.stale_after
            self.cuts.edges[b].linked = b in kept and not silent
        self.heard = {b: heard for b, heard in self.heard.items() if b not in self.cuts.edges or b in self.voters}

    def gone(self, now: float) -> list[str]:
        """Agents that the transport can drop: both ends know of the cut and have not mentioned it for a while, and the
        agent does not vote."""
        return [
            b for b, cut_edge in self.cuts.edges.items()
            if cut_edge.known and now - cut_edge.at > self.stale_after and not cut_edge.linked
            and not self.cuts.is_due(cut_edge)
        ]  # fmt: skip

    # Saved state

    _SAVED: ClassVar[tuple[str, ...]] = ("marks", "square", "freedom")

    @property
    def _identity(self) -> dict[str, Any]:
        """What must be equal for a saved state to be restored."""
        return {"name": self.name, "method": repr(self.method), "origin": self.origin}

    def state(self) -> bytes:
        return to_bytes(
            self._identity
            | {
                "gateway": self.many,
                "core": to_plain(self, self._SAVED),
                "agent": to_plain(self.agent, self.agent.saved),
                "adapter": to_plain(self.adapter, self.adapter.saved),
                "cuts": self.cuts.state(),
                "dependence": None if self.dependence is None else to_plain(self.dependence, self.dependence.saved),
            }
        )

    def restore(self, raw: bytes) -> None:
        """Continue from a saved state. Neighbors are those that this core was created with, less the cut ones."""
        saved, names = from_bytes(raw), self.neighbors
        if saved.get("gateway", False) != self.many:
            now, before = ("a gateway", "a node with one agent")[:: 1 if self.many else -1]
            raise CheckpointError(
                f"the store is that of {before}, and {self.name!r} is {now}. Use another store, or change [gateway]."
            )
        for key, value in self._identity.items():
            if saved.get(key) != value:
                raise CheckpointError(
                    f"the store holds {shorten(saved.get(key))} for the {key} where {shorten(value)} starts. "
                    "Use another store."
                )
        try:
            from_plain(self, self._SAVED, saved["core"])
            from_plain(self.agent, self.agent.saved, saved["agent"])
            from_plain(self.adapter, self.adapter.saved, saved["adapter"])
            self.cuts.restore(saved["cuts"], names)
            if self.dependence is not None and saved.get("dependence") is not None:
                from_plain(self.dependence, self.dependence.saved, saved["dependence"])
                self.dependence.resume()
                self._tell_factors(math.nan)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"the saved state of {self.name!r} is torn ({error}). Use another store.") from None
        self.adapter.resume([b for b in names if b not in self.cuts.edges])
