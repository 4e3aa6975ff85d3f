"""An agent on a device: core, transport and store, in the order that makes crashes harmless. It still has no clock."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from colme.errors import NodeError, whole
from colme.node.core import Core
from colme.node.membership.introductions import Introductions
from colme.node.net.transport import Transport
from colme.node.store import Store


class Reading(Protocol):
    """Something that samples are read from, and that can go on where it was."""

    def position(self) -> bytes | None:
        """How far it has been read; None: it cannot go back."""

    def resume(self, position: bytes) -> None:
        """Go on there."""


class Device:
    """Reads the door, ticks the core, saves what must not be forgotten, and only then speaks.

    save_every   ticks between saves: a crash forgets at most the samples of so many, and of the one under way
    reading      where the samples come from: its position is saved with what was learned, all or nothing
    introductions  how it finds neighbors, if it may have others than it begins with
    """

    many: ClassVar[bool] = False
    """Runs a host of many agents."""

    def __init__(
        self, core: Core, transport: Transport, store: Store | None = None, *, save_every: int = 20,
        reading: Reading | None = None, introductions: Introductions | None = None,
    ):  # fmt: skip
        self.core, self.transport, self.store, self.reading = core, transport, store, reading
        self.introductions = introductions
        self.save_every = whole(save_every, "save_every", "save_every=20", NodeError)
        if store is not None:
            saved = store.start(core.name, at_least=core.incarnation)
            core.incarnation = saved.incarnation
            if introductions is not None and (known := store.start(self._book_name).state) is not None:
                introductions.restore(known, core)
                self._connect(introductions)
            if saved.state is not None:
                core.restore(saved.state)
            if reading is not None:
                position = store.start(self._reading_name).state
                if position is not None:
                    reading.resume(position)

    def tick(self, now: float, sample: float = float("nan")) -> None:
        """One step; see `Core.tick`."""
        core, door = self.core, self.transport
        records = {b: raw for b in core.neighbors if (raw := door.latest(b)) is not None}
        control, met = door.control(), self.introductions
        if met is not None:
            control = met.listen(core, now, control)
        record, messages = core.tick(now, sample, records, control)
        if met is not None:
            messages = messages + met.speak(core, now)
            core.urgent |= met.urgent
        if core.urgent or core.epoch % self.save_every == 0:
            self.save()
        if met is not None:
            self._connect(met)
        door.publish(record)
        for name, message in messages:
            door.send(name, message)
        busy = () if met is None else met.errands
        for name in core.gone(now):
            if name not in busy:
                door.drop(name)

    def leave(self) -> None:
        """Say goodbye, so that nobody waits for this agent."""
        if self.introductions is not None:
            for name, message in self.introductions.goodbye(self.core):
                self.transport.send(name, message)

    def _connect(self, met: Introductions) -> None:
        for name in met.hangups:
            self.transport.drop(name)
        for name, endpoint in met.calls:
            self.transport.add(name, endpoint)
        met.hangups, met.calls = [], []

    def feed(self, now: float, samples: list[Any]) -> None:
        """A tick with the samples that came since the last."""
        first, *more = samples or [float("nan")]
        for sample in more:
            self.core.observe(sample)
        self.tick(now, first)

    def save(self) -> None:
        """What must survive, on the disk."""
        if self.store is None:
            return
        rows = [(self.core.name, self.core.epoch, self.core.state())]
        position = None if self.reading is None else self.reading.position()
        if position is not None:
            rows.append((self._reading_name, self.core.epoch, position))
        if self.introductions is not None:
            rows.append((self._book_name, self.core.epoch, self.introductions.state()))
        self.store.save_all(rows)

    @property
    def _reading_name(self) -> str:
        return f"{self.core.name}/samples"  # no agent's: names have no slash

    @property
    def _book_name(self) -> str:
        return f"{self.core.name}/book"
