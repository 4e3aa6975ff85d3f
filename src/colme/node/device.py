"""An agent on a device: core, transport and store, called in the order that makes crashes harmless. It has no clock."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from colme.errors import NodeError, whole
from colme.node.core import Core
from colme.node.membership.introductions import Introductions
from colme.node.net.transport import Transport
from colme.node.store import AgentStore


class Resumable(Protocol):
    """A source of samples with a position that can be saved."""

    def position(self) -> bytes | None:
        """How far it has been read; None if it cannot resume."""

    def resume(self, position: bytes) -> None:
        """Continue from a saved position."""


class Device:
    """Reads the transport, ticks the core, saves what must survive a crash, and only then sends.

    save_every     ticks between saves: a crash loses at most the samples of so many ticks and of the current one
    source         where the samples come from: its position is saved in one transaction with the state of the agent
    introductions  how the agent finds further neighbors, if it may
    """

    many: ClassVar[bool] = False
    """Whether this device runs many agents."""

    def __init__(
        self, core: Core, transport: Transport, store: AgentStore | None = None, *, save_every: int = 20,
        source: Resumable | None = None, introductions: Introductions | None = None,
    ):  # fmt: skip
        self.core, self.transport, self.store, self.source = core, transport, store, source
        self.introductions = introductions
        self.save_every = whole(save_every, "save_every", "save_every=20", NodeError)
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

    def tick(self, now: float, sample: float = float("nan")) -> None:
        """One step; see `Core.tick`."""
        core, transport = self.core, self.transport
        records = {b: raw for b in (*core.neighbors, *core.voters) if (raw := transport.latest(b)) is not None}
        control, introductions = transport.control(), self.introductions
        if introductions is not None:
            control = introductions.receive(core, now, control)
        record, messages = core.tick(now, sample, records, control)
        if introductions is not None:
            messages = messages + introductions.send(core, now)
            core.urgent |= introductions.urgent
        if core.urgent or core.epoch % self.save_every == 0:
            self.save()
        if introductions is not None:
            self._connect(introductions)
        transport.publish(record)
        for name, message in messages:
            transport.send(name, message)
        busy = () if introductions is None else introductions.requests
        for name in core.gone(now):
            if name not in busy:
                transport.drop(name)

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

    def feed(self, now: float, samples: list[Any]) -> None:
        """One tick with the samples that arrived since the last."""
        first, *more = samples or [float("nan")]
        for sample in more:
            self.core.observe(sample)
        self.tick(now, first)

    def save(self) -> None:
        """Write the state of the agent to the store, with the source's position and the address book."""
        if self.store is None:
            return
        rows = [(self.core.name, self.core.epoch, self.core.state())]
        position = None if self.source is None else self.source.position()
        if position is not None:
            rows.append((self._source_name, self.core.epoch, position))
        if self.introductions is not None:
            rows.append((self._address_book_name, self.core.epoch, self.introductions.state()))
        self.store.save_all(rows)

    @property
    def _source_name(self) -> str:
        return f"{self.core.name}/samples"  # not the name of an agent: names contain no slash

    @property
    def _address_book_name(self) -> str:
        return f"{self.core.name}/book"
