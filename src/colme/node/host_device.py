"""A host of many agents on a network: `Device`, for a `HostCore`."""

from __future__ import annotations

from typing import Any

from colme.errors import NodeError
from colme.node.device import Device
from colme.node.host import NO_SAMPLES, HostCore, Samples
from colme.node.store import Store
from colme.node.transport import Transport

PATIENCE = 5
"""Ticks between two saves because of cuts: when many edges part, nearly every tick cuts one, and a save takes longer than
a tick of all agents."""


class HostDevice(Device):
    """Reads what other hosts said, ticks all agents, saves what must not be forgotten, and only then speaks.

    parts   of the frames that the hosts of this network send (default: as many as this one's)
    """

    core: HostCore  # type: ignore[assignment]

    def __init__(
        self, core: HostCore, transport: Transport, store: Store | None = None, *, parts: int | None = None,
        **options: Any,
    ):  # fmt: skip
        super().__init__(core, transport, store, **options)  # type: ignore[arg-type]
        self.parts = core.links.n_parts if parts is None else parts
        if core.links.n_parts > self.parts:
            raise NodeError(
                f"host.parts={self.parts}: the frames of {core.name!r} have {core.links.n_parts} parts. "
                f"Set parts = {core.links.n_parts} on all hosts."
            )
        self._last_save = core.epoch

    def tick(self, now: float, samples: Samples = NO_SAMPLES) -> None:  # type: ignore[override]
        """One step; see `HostCore.tick`."""
        core, door = self.core, self.transport
        heard = [
            (host, raw) for host in core.graph.hosts for part in range(self.parts)
            if (raw := door.latest(host, part)) is not None
        ]  # fmt: skip
        frame = core.tick(now, samples, heard, door.control())
        if core.epoch - self._last_save >= (PATIENCE if core.urgent else self.save_every):
            self.save()
        for part, record in enumerate(frame):
            door.publish(record, part)
        for host, message in core.messages():
            door.send(host, message)

    def save(self) -> None:
        super().save()
        self.core.saved()
        self._last_save = self.core.epoch
