"""Gateways on a memory network, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.methods import Method
from colme.node.device import Device
from colme.node.gateway import Gateway
from colme.node.messages.wire import HistogramBody, Record, pack, unpack
from colme.node.net.memory import MemoryNetwork
from tests.support.nodes import PERIOD


class Gateways:
    """Gateways that all know each other, with so many local agents each, called 0, 1, ..

    lies    by the number of a gateway: what it makes of its records before it sends them"""

    def __init__(
        self, method: Method, sizes: list[int], network: MemoryNetwork | None = None, *,
        lies: dict[int, Callable[[Record], Record]] | None = None, stores: dict[str, Any] | None = None, **known: Any,
    ):  # fmt: skip
        self.network = MemoryNetwork() if network is None else network
        self.names = [f"gateway-{i}" for i in range(len(sizes))]
        self.sizes, self.periods = sizes, 0
        options = {"n_agents": len(sizes), "max_ballots": max(sizes), "stale_after": 20 * PERIOD} | known
        options.setdefault("degree", max(len(sizes) - 1, 1))
        self.devices = []
        for i, name in enumerate(self.names):
            others = [each for each in self.names if each != name]
            core = Gateway(method, name, others, **options)
            self.devices.append(Device(core, self.network.join(name, others), (stores or {}).get(name)))
            if i in (lies or {}):
                self._lie(self.devices[i], (lies or {})[i])

    def _lie(self, device: Device, lie: Callable[[Record], Record]) -> None:
        tell = device.transport.publish
        device.transport.publish = lambda raw: tell(pack(lie(unpack(raw))))  # type: ignore[method-assign]

    @property
    def cores(self) -> list[Any]:
        return [device.core for device in self.devices]

    def tick(self, samples: list[NDArray[np.float64]]) -> None:
        """One sample of every local agent; NaN: none."""
        for i, (device, row) in enumerate(zip(self.devices, samples, strict=True)):
            self.network.run_until((self.periods + (i + 0.5) / len(self.devices)) * PERIOD)
            device.feed(self.network.now, [(str(a), x) for a, x in enumerate(row.tolist()) if x == x])
        self.periods += 1


def bins_of(record: Record, **fields: Any) -> Record:
    """A record with other fields in its histogram, guarded or not."""
    import msgspec

    body: Any = record.body
    inner = getattr(body, "inner", body)
    assert isinstance(inner, HistogramBody)
    other = msgspec.structs.replace(inner, **fields)
    body = msgspec.structs.replace(body, inner=other) if inner is not body else other
    return msgspec.structs.replace(record, body=body)
