"""Cuts that are not for ever: what an agent knows of a cut edge, and when it is reconsidered.

A cut is reconsidered when the agent has four times the samples that it had at the cut (4^k times at the k-th cut):

(1) its samples from before the cut and those since are compared, as the means of two agents would be. If they differ,
    something was wrong with the first ones (a fault of the sensor, a change), and the agent forgets them
(2) it asks the other end, with its intervals, some times with backoff. That agrees if it has four times its own
    samples, too, and if the intervals overlap well (`close_to`): the edge is back at both ends, saved before the answer
    is sent. Else it stays cut, and both count anew

One reading of -999 would otherwise isolate an agent for good. Why wrong edges hardly ever return is in
docs/developer/node.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from colme.confidence import apart, standard_error
from colme.consensus import START
from colme.methods.intervals import AgentIntervals, IntervalAgent, parted
from colme.node.backoff import Backoff
from colme.node.messages.wire import (
    AGREE,
    ASK,
    EDGE,
    FORGIVE,
    KEEP,
    EdgeMessage,
    WireError,
    pack_edge,
    unpack_edge,
)
from colme.node.security.trust import PAUSE, near, own_interval
from colme.support.saved import from_bytes, from_plain, to_bytes, to_plain

if TYPE_CHECKING:
    from colme.node.core import Core

MORE = 4
"""Times the samples of a cut at which it is reconsidered: their standard error is then half. At the k-th time the agent
has 4^k times as many, so that it asks rarely, and a wrong edge hardly ever returns. An edge that was cut k times waits
for 4^k times the samples: a neighbor that lies just within the limits has few lives."""
MOST_TIMES = 16
"""Cuts after which these do not grow any more, lest numbers do."""
RAREST_ASK = 2**12
"""Ticks between two questions about a cut that nobody answers."""
OVERLAP = 0.5
"""Share of both radii within which two means must be to become neighbors, or to become so again. Radii are some 4
standard deviations of a mean, so two agents of one class pass."""


class CutEdge(msgspec.Struct):
    """A cut edge, as this end knows it."""

    known: bool = False  # to the other end
    again: bool = False  # the other end has been started, and may have forgotten it
    at: float = -math.inf  # when the other end last mentioned it
    linked: bool = False  # the other end is still heard, because it votes
    backoff: Backoff = msgspec.field(default_factory=Backoff)  # until the other end acknowledges it
    why: str = "told by the other end"
    epoch: int = 0  # own ticks when it was cut
    count: int = 0  # own samples then, or when it was last reconsidered
    mean: float = math.nan  # of these
    times: int = 1  # how often it was cut
    forgiven: bool = False  # at the request of a person: reconsider it now
    denied: int = 0  # such requests, because the intervals did not overlap well
    asks: int = 0  # so far
    pace: Backoff = msgspec.field(default_factory=lambda: Backoff(longest=RAREST_ASK))  # of asking

    @property
    def wanted(self) -> int:
        """Own samples at which it is reconsidered."""
        return MORE ** min(self.times, MOST_TIMES) * max(self.count, 1)

    saved = ("known", "why", "epoch", "count", "mean", "times", "forgiven")


def forgive_saved(raw: bytes, name: str) -> bytes | None:
    """A saved state that reconsiders the cut of the edge to this agent when it is restored; None if there is none."""
    saved = from_bytes(raw)
    if name not in saved["cuts"]["edges"]:
        return None
    saved["cuts"]["edges"][name]["forgiven"] = True
    return to_bytes(saved)


class Cuts:
    """The cut edges of a core, and when it reconsiders them.

    edges      by the name of the other end
    revived    edges that are back: the other end's incarnation and epoch, and how often it was cut
    returned   those of the last tick
    forgotten  how often the agent forgot its first samples
    """

    def __init__(self, core: Core):
        self._core = core
        self.edges: dict[str, CutEdge] = {}
        self.revived: dict[str, tuple[int, int, int]] = {}
        self.returned: list[str] = []
        self.forgotten = 0

    def state(self) -> dict[str, Any]:
        """What must survive a restart."""
        return {
            "edges": {name: to_plain(cut_edge, CutEdge.saved) for name, cut_edge in self.edges.items()},
            "revived": {name: list(each) for name, each in self.revived.items()},
            "forgotten": self.forgotten,
        }

    def restore(self, saved: dict[str, Any], neighbors: list[str]) -> None:
        """Continue from a saved state.

        neighbors: those that the core was created with"""
        votes = self._core.adapter.votes
        self.edges = {name: CutEdge(linked=votes and name in neighbors) for name in saved["edges"]}
        for name, cut_edge in self.edges.items():
            from_plain(cut_edge, CutEdge.saved, saved["edges"][name])
        self.revived = {name: (each[0], each[1], each[2]) for name, each in saved["revived"].items()}
        self.forgotten = saved["forgotten"]

    def note_cut(self, name: str, now: float) -> None:
        """Note that an agent which is not a neighbor has cut the edge, so that it is not added."""
        if name not in self.edges:
            self.edges[name] = self.new(name, now, known=True)

    def new(self, name: str, now: float, **known: Any) -> CutEdge:
        """An edge that is cut now, with what is known of it."""
        times = 1 + self.revived.pop(name, (0, 0, 0))[2]
        count, mean = self._core.inner.own_count, float(self._core.inner.own_mean)
        return CutEdge(at=now, epoch=self._core.agent.t, count=count, mean=mean, times=times, **known)

    def forgive(self, name: str) -> bool:
        """Reconsider the cut of the edge to this agent now; False if there is none."""
        if name not in self.edges:
            return False
        cut_edge = self.edges[name]
        cut_edge.forgiven, cut_edge.asks = True, 0
        cut_edge.pace.reset()
        self._forget_if_changed(cut_edge)
        return True

    def due(self) -> list[str]:
        """Cut edges that this end is ready to reconsider: there must be a link to the other end."""
        return [b for b, cut_edge in self.edges.items() if self.is_due(cut_edge)]

    def is_due(self, cut_edge: CutEdge) -> bool:
        """Whether this end is ready to reconsider the cut."""
        enough = self._core.inner.own_count >= cut_edge.wanted
        return self._core.adapter.cuts and cut_edge.known and (cut_edge.forgiven or enough)

    def close_to(self, theirs: AgentIntervals) -> bool:
        """Whether these intervals overlap the agent's well: they would still touch with centers 1 / OVERLAP times as
        far apart."""
        agent = self._core.inner
        mine, theirs = (
            tuple((center / OVERLAP, spread) for center, spread in each)
            for each in (getattr(agent, "intervals", ()), theirs)
        )  # fmt: skip
        return not parted(mine, theirs, getattr(agent, "test", None))

    def hear(
        self, control: Iterable[tuple[str, bytes]], now: float
    ) -> tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]:
        """(the other control messages, answers to edge messages): equation (2)."""
        rest, answers = [], {}
        for name, raw in control:
            if raw[: len(EDGE)] != EDGE:
                rest.append((name, raw))
                continue
            try:
                message = unpack_edge(raw)
            except WireError as error:
                self._core.refused.note(name, error.reason)
                continue
            understands = getattr(self._core.inner, "understands", lambda _: False)
            if not self._core.adapter.cuts or not understands(message.intervals):
                self._core.refused.note(name, "sense")
            elif name in self.edges:
                self.edges[name].at = now
                answer = self._answer_edge(name, self.edges[name], message)
                if answer is not None:
                    answers[name] = answer
            elif name in self._core.adapter.neighbors:
                if message.kind in (ASK, FORGIVE):
                    answers[name] = AGREE  # it did not hear of it, or forgot it in a crash
            else:
                self._core.refused.note(name, "stranger")
        return rest, [(name, self._edge_message(kind)) for name, kind in sorted(answers.items())]

    def _answer_edge(self, name: str, cut_edge: CutEdge, message: EdgeMessage) -> int | None:
        ready = self.is_due(cut_edge)
        if message.kind == FORGIVE:  # not more often than a tenth of the time, lest a neighbor make clocks restart
            ready |= cut_edge.known and self._core.inner.own_count >= PAUSE * cut_edge.count
        if message.kind in (ASK, FORGIVE):
            if not ready:
                return None  # it asks again, and this end will ask it
            room = len(self._core.neighbors) < self._core.inner.place.max_degree
            if room and self.close_to(message.intervals):
                self._revive(name, cut_edge, message)
                return AGREE
            self._keep(cut_edge)
            return KEEP
        if message.kind == AGREE and cut_edge.asks and self.close_to(message.intervals):
            self._revive(name, cut_edge, message)
        elif message.kind == AGREE:
            cut_edge.known = False  # the other end has it back, and this one has not: tell it of the cut again
            self._keep(cut_edge)
        elif cut_edge.asks:
            self._keep(cut_edge)
        return None

    def _revive(self, name: str, cut_edge: CutEdge, message: EdgeMessage) -> None:
        del self.edges[name]
        self._core.heard.pop(name, None)
        self.revived[name] = (message.incarnation, message.epoch, cut_edge.times)
        self._core.adapter.add_neighbor(name)
        self.returned.append(name)
        self._core.urgent = True

    def _keep(self, cut_edge: CutEdge) -> None:
        """It stays cut, and is reconsidered when there are four times the samples of now."""
        cut_edge.count, cut_edge.mean = self._core.inner.own_count, float(self._core.inner.own_mean)
        cut_edge.denied += cut_edge.forgiven
        cut_edge.forgiven, cut_edge.asks = False, 0
        cut_edge.pace.reset()

    def ask(self) -> list[tuple[str, bytes]]:
        """Questions about the cuts that are due."""
        asked = []
        for name in self.due():
            cut_edge = self.edges[name]
            if cut_edge.asks == 0:
                self._forget_if_changed(cut_edge)
            if cut_edge.pace.due():
                cut_edge.asks += 1
                asked.append((name, self._edge_message(FORGIVE if cut_edge.forgiven else ASK)))
        return asked

    def _edge_message(self, kind: int) -> bytes:
        return pack_edge(EdgeMessage(kind, self._core.incarnation, self._core.agent.t, self._core.inner.intervals))

    def _forget_if_changed(self, cut_edge: CutEdge) -> None:
        """Equation (1). Not where other statistics than the mean are compared: their moments cannot be taken apart."""
        agent, first = self._core.inner, cut_edge.count
        n = agent.count - first
        if not isinstance(agent, IntervalAgent) or agent.statistics or first == 0 or n <= 0:
            return
        mean = agent.mean + (agent.mean - cut_edge.mean) * (first / n)
        if agent.test is None:
            before, since = (agent.scale * agent.bound.radius(count) for count in (first, n))
        else:
            before, since = (float(standard_error(count, agent.scale)) for count in (first, n))
        if not apart(cut_edge.mean, mean, before, since, agent.test):
            return
        agent.mean, agent.count = mean, n
        agent.estimate = near(agent.estimate, *own_interval(agent))
        if hasattr(agent, "restart"):
            agent.restart = max(agent.t, START)
        self.forgotten += 1
        self._core.square, self._core.freedom, self._core.urgent = 0.0, 0, True
        for each in self.edges.values():  # all of them were made with samples that no longer count
            each.count, each.mean = 0, math.nan

    def reason(self, name: str) -> str:
        """Why this end has cut an edge, in words."""
        heard = self._core.heard.get(name)
        if heard is None:
            return "the method has cut it"
        record, theirs = heard.record, heard.record.mean + self._core.origin
        return (
            f"means differ: {self._core.mean:.6g} of {self._core.inner.own_count} samples here, {theirs:.6g} of "
            f"{record.count} there"
        )
