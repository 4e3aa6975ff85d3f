"""An agent of any method on a network without a common tick. It does no I/O and reads no clock: `tick` is told both.

From the perspective of agent a, at one of its own ticks:

(1) it reads what it was told: records that are older than one it knows, or wrong in any field, are refused and counted
(2) its method makes one step. What each neighbor said last is its message in every exchange of that step, as long as it
    is fresh; a neighbor that was not heard lately weighs nothing, but is never given up for its silence
(3) neighbors that the step gave up are told so, again and again, until they say that they know
(4) its new state goes to all neighbors

An edge is cut by both ends: who hears that it is cut, cuts it too. Whoever drives a core saves `state()` before
it tells anybody of a cut (`urgent`), so no crash can make an end forget what the other relies on. A crash forgets the
samples since the last save, and never counts one twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from colme.errors import CheckpointError, NodeError, positive, whole
from colme.methods import Method, Place
from colme.methods.intervals import PARTED
from colme.node.messages.adapters import SILENCE, device_agent
from colme.node.messages.wire import (
    CUT,
    CUT_HEARD,
    LARGEST,
    Control,
    Record,
    WireError,
    pack,
    pack_control,
    unpack,
    unpack_control,
)  # fmt: skip
from colme.node.state import check_same, freeze, from_bytes, thaw, to_bytes

SLOWEST = 64
"""Ticks between two repetitions of what nobody acknowledges; they double until then."""


class Heard(msgspec.Struct):
    """A neighbor's newest record, and when it was heard."""

    record: Record
    at: float


class Parting(msgspec.Struct):
    """An edge that is cut, as this end knows."""

    known: bool = False  # by the other end
    wait: int = 0  # ticks until it is told again
    told: int = 0  # times
    at: float = -math.inf  # when the other end last spoke of it


class Core:
    """One agent.

    method       any with a message adapter: its agents only talk to neighbors
    name         of this agent, and the `neighbors` that it begins with
    n_agents     of the whole network; `degree`: the largest in it (default: this agent's own)
    sigma, width, kurtosis   what is known of the samples, as in a recording; `unit`: a scale that all agents know
    origin       is subtracted from all samples; it must be the same everywhere, and near the data
    stale_after  seconds after which a neighbor that was not heard weighs nothing
    incarnation  starts of this agent so far, see `Store.start`
    """

    def __init__(
        self, method: Method, name: str, neighbors: Iterable[str], *, n_agents: int, degree: int | None = None,
        sigma: float | None = None, width: float | None = None, kurtosis: float = 3.0, unit: float | None = None,
        origin: float = 0.0, stale_after: float = 3.0, incarnation: int = 1,
    ):  # fmt: skip
        names = tuple(sorted(set(neighbors)))
        if name in names:
            raise NodeError(f"{name!r} is among its own neighbors: an agent talks to others. Leave it out.")
        most = max(len(names), 1) if degree is None else whole(degree, "degree", "degree=6", NodeError)
        whole(n_agents, "n_agents", "n_agents=20", NodeError)
        if len(names) > most or len(names) >= n_agents:
            raise NodeError(
                f"{len(names)} neighbors of {name!r}: there can be at most degree={most} and fewer than "
                f"n_agents={n_agents}. Correct one of them."
            )
        place = Place(
            agent=name, neighbors=names, n_agents=n_agents, n_edges=max(n_agents * most // 2, 1), auto_step=1.0 / most,
            sigma=sigma, width=width, kurtosis=kurtosis, unit=unit or sigma or 1.0,
        )  # fmt: skip
        self.method, self.name, self.origin = method, name, origin
        self.stale_after = positive(stale_after, "stale_after", "stale_after=3.0", NodeError)
        self.incarnation = whole(incarnation, "incarnation", "incarnation=1", NodeError)
        self.agent, self._adapter = device_agent(method, place)
        self.refused: Counter[str] = Counter()
        self.urgent = False  # something must be saved before anybody is told
        self.marks: dict[str, tuple[int, int, int]] = {}  # of the newest record of everybody
        self.partings: dict[str, Parting] = {}
        self._heard: dict[str, Heard] = {}

    @property
    def neighbors(self) -> list[str]:
        """Not given up, in the order in which they are added up."""
        return list(self._adapter.neighbors)

    @property
    def estimate(self) -> float:
        return float(self.agent.estimate) + self.origin

    @property
    def mean(self) -> float:
        return float(self.agent.mean) + self.origin

    @property
    def epoch(self) -> int:
        """Ticks so far, those of former incarnations included."""
        return self.agent.t

    def last_heard(self, name: str) -> Heard | None:
        """The newest record of a neighbor, and when it came."""
        return self._heard.get(name)

    def fresh(self, now: float) -> list[str]:
        """Neighbors that were heard lately."""
        return [b for b in self.neighbors if b in self._heard and now - self._heard[b].at <= self.stale_after]

    def meet(self, name: str) -> bool:
        """A new neighbor, unless it was given up before."""
        if name == self.name or name in self.partings:
            return False
        self._adapter.meet(name)
        return True

    def part(self, name: str, now: float) -> None:
        """Never to be met: who is no neighbor here says that it has cut the edge."""
        self.partings.setdefault(name, Parting(known=True, at=now))

    def forget(self, name: str) -> None:
        """A neighbor no more, though it was not given up: it may be met again."""
        self._adapter.forget(name)
        self._heard.pop(name, None)

    def observe(self, sample: float) -> None:
        """One more sample than one per tick."""
        t = self.agent.t
        self.agent.observe(self._checked(sample))
        self.agent.t = t

    def tick(
        self, now: float, sample: float, records: Mapping[str, bytes], control: Iterable[tuple[str, bytes]] = ()
    ) -> tuple[bytes, list[tuple[str, bytes]]]:
        """One step at time `now` (seconds, never falling) with a sample (NaN: none), the newest bytes of each neighbor
        and the control messages since the last. Returns the record to publish and control messages to send."""
        self.urgent = False
        new = [b for b in self.neighbors if b in records and self._hear(b, records[b], now)]  # (1)
        answers, parted = self._listen(control, now)
        spoken = new if self._adapter.once else self.fresh(now)
        before = self.neighbors
        used = {b: self._heard[b].record for b in spoken if b not in parted}
        self._step(self._checked(sample), used, parted)  # (2)
        lost = set(before).difference(self.neighbors)
        self._adapter.after(used, bool(lost))
        for b in lost:
            self.partings[b] = Parting(known=b in parted, at=now)
            self._heard.pop(b, None)
            self.urgent = True
        return pack(self.record()), answers + self._tell_partings()  # (3), (4)

    def record(self) -> Record:
        """My state now."""
        agent, degree = self.agent, len(self._adapter.neighbors)
        return Record(self.incarnation, agent.t, agent.count, float(agent.mean), degree, self._adapter.state())

    def _checked(self, sample: float) -> float:
        x = float(sample) - self.origin
        if math.isnan(x) or abs(x) <= LARGEST:
            return x
        self.refused["sample"] += 1
        return math.nan

    def _hear(self, name: str, raw: bytes, now: float) -> bool:
        """Whether these bytes are a newer record of this neighbor."""
        try:
            record = unpack(raw)
        except WireError as error:
            self.refused[error.reason] += 1
            return False
        if record.age_mark <= self.marks.get(name, (0, 0, 0)):
            self.refused["old"] += 1
            return False
        sense = self._adapter.heard(record, self.agent.t + 1)  # the step that begins now
        if sense is None:
            self.refused["sense"] += 1
            return False
        self.marks[name] = record.age_mark
        self._heard[name] = Heard(sense, now)
        return True

    def _listen(self, control: Iterable[tuple[str, bytes]], now: float) -> tuple[list[tuple[str, bytes]], set[str]]:
        """(answers, neighbors that say that the edge between us is cut)."""
        parted, heard = set(), set()
        for name, raw in control:
            try:
                message = unpack_control(raw)
            except WireError as error:
                self.refused[error.reason] += 1
                continue
            parting = self.partings.get(name)
            if not self._adapter.cuts or (parting is None and name not in self._adapter.neighbors):
                self.refused["stranger"] += 1
            elif message.kind == CUT:
                heard.add(name)
                if parting is None:
                    parted.add(name)
            elif parting is None:
                self.refused["sense"] += 1  # nobody said that this edge is cut
            if parting is not None:
                self.urgent |= not parting.known
                parting.known, parting.at = True, now
        return [(name, self._message(CUT_HEARD)) for name in sorted(heard)], parted

    def _step(self, sample: float, used: Mapping[str, Record], parted: set[str]) -> None:
        if not self._adapter.hears_cuts:
            for b in parted:
                self._adapter.forget(b)
        inbox: Any = None  # the first send of a generator must be None; later ones deliver the inbox
        step, exchange = self.agent.step(sample), 0
        try:
            while True:
                self._adapter.sent(step.send(inbox), exchange)
                inbox = {b: self._adapter.said(record, exchange) for b, record in used.items()}
                inbox = {b: message for b, message in inbox.items() if message is not SILENCE}
                inbox = self._adapter.believed(inbox)
                if exchange == 0 and self._adapter.hears_cuts:
                    inbox |= dict.fromkeys(parted, PARTED)
                exchange += 1
        except StopIteration:
            pass

    def _tell_partings(self) -> list[tuple[str, bytes]]:
        told = []
        for name, parting in sorted(self.partings.items()):
            if parting.known:
                continue
            if parting.wait == 0:
                told.append((name, self._message(CUT)))
                parting.wait = min(2**parting.told, SLOWEST)
                parting.told = min(parting.told + 1, SLOWEST)
            parting.wait -= 1
        return told

    def _message(self, kind: int) -> bytes:
        return pack_control(Control(kind, self.incarnation, self.agent.t))

    def gone(self, now: float) -> list[str]:
        """Whom the transport can drop: both ends know of the cut, and the other has been quiet about it for a while."""
        return [b for b, parting in self.partings.items() if parting.known and now - parting.at > self.stale_after]

    # What survives a restart

    _SAVED: ClassVar[tuple[str, ...]] = ("marks",)

    @property
    def _identity(self) -> dict[str, Any]:
        """What must be the same for a state to make sense."""
        return {"name": self.name, "method": msgspec.json.encode(self.method).decode(), "origin": self.origin}

    def state(self) -> bytes:
        return to_bytes(
            self._identity
            | {
                "core": freeze(self, self._SAVED),
                "agent": freeze(self.agent, self.agent.saved),
                "adapter": freeze(self._adapter, self._adapter.saved),
                "partings": {name: parting.known for name, parting in self.partings.items()},
            }
        )

    def restore(self, raw: bytes) -> None:
        """Go on from a saved state. Neighbors are those this core was made with, less those given up."""
        saved, names = from_bytes(raw), self.neighbors
        check_same(saved, self._identity)
        try:
            thaw(self, self._SAVED, saved["core"])
            thaw(self.agent, self.agent.saved, saved["agent"])
            adapter = "adapter" if "adapter" in saved else "dialect"  # as 0.6.0 called it
            thaw(self._adapter, self._adapter.saved, saved[adapter])
            self.partings = {name: Parting(known=known) for name, known in saved["partings"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"the saved state of {self.name!r} is torn ({error}). Use another store.") from None
        self._adapter.resume([b for b in names if b not in self.partings])
