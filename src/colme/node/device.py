"""An agent on a device: core, transport and store, in the order that makes crashes harmless. It still has no clock."""

from __future__ import annotations

from colme.errors import NodeError, whole
from colme.node.core import Core
from colme.node.store import Store
from colme.node.transport import Transport


class Device:
    """Reads the door, ticks the core, saves what must not be forgotten, and only then speaks.

    save_every   ticks between saves: a crash forgets at most the samples of so many, and of the one under way
    """

    def __init__(self, core: Core, transport: Transport, store: Store | None = None, *, save_every: int = 20):
        self.core, self.transport, self.store = core, transport, store
        self.save_every = whole(save_every, "save_every", "save_every=20", NodeError)
        if store is not None:
            saved = store.start(core.name, at_least=core.incarnation)
            core.incarnation = saved.incarnation
            if saved.state is not None:
                core.restore(saved.state)

    def tick(self, now: float, sample: float = float("nan")) -> None:
        """One step; see `Core.tick`."""
        core, door = self.core, self.transport
        records = {b: raw for b in core.neighbors if (raw := door.latest(b)) is not None}
        record, messages = core.tick(now, sample, records, door.control())
        if core.urgent or core.epoch % self.save_every == 0:
            self.save()
        door.publish(record)
        for name, message in messages:
            door.send(name, message)
        for name in core.gone(now):
            door.drop(name)

    def save(self) -> None:
        if self.store is not None:
            self.store.save(self.core.name, self.core.epoch, self.core.state())
