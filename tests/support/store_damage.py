"""Damage to the store of a node, drawn from a seed: flipped bits and truncations in any of its files, as on a worn-out
card."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np

import colme
from colme.errors import CheckpointError
from colme.graphs import random_regular_graph
from colme.node.core import Core
from colme.node.device import Device
from colme.node.membership import Introductions
from colme.node.net.memory import MemoryNetwork
from colme.node.store import AgentStore, open_store
from tests.support.nodes import Fleet

NAME = "agent-000"
METHOD = colme.CLColME(sigma=1.0, cut="difference", guard=True)


class Position:
    """The position in a file of samples."""

    def __init__(self) -> None:
        self.place = b'{"device":2049,"inode":1311,"offset":0}'

    def position(self) -> bytes | None:
        return self.place

    def resume(self, position: bytes) -> None:
        self.place = position


def device_with(store: AgentStore) -> Device:
    """An agent on this store, alone on a network, with neighbors to find and samples to resume."""
    neighbors = [f"agent-{a:03d}" for a in range(1, 7)]
    core = Core(METHOD, NAME, neighbors, n_agents=20, degree=6, sigma=1.0)
    meet = Introductions(NAME, degree=6, rng=random.Random(0))
    return Device(core, MemoryNetwork().join(NAME, neighbors), store, source=Position(), introductions=meet)


def saved_in(device: Device) -> tuple[Any, ...]:
    """All that a device has from its store."""
    assert device.introductions is not None and device.source is not None
    return device.core.state(), device.introductions.state(), device.source.position()


def write_store(folder: Path, *, killed: bool) -> tuple[Any, ...]:
    """Write a store `node.db` with the state of an agent after 60 ticks with six neighbors, some of them cut, as a
    stopped or a killed process leaves it; return what an agent has from it."""
    fleet = Fleet(METHOD, random_regular_graph(8, 6, rng=1), MemoryNetwork(), sigma=1.0)
    samples = np.random.default_rng(0).normal(size=(60, 8)) + 4.0 * (np.arange(8) % 3 == 0)
    fleet.run(samples)
    folder.mkdir(exist_ok=True)
    store = AgentStore(folder / "node.db")
    device = device_with(store)
    assert device.introductions is not None
    for a in range(7, 20):
        device.introductions.address_book.add(f"agent-{a:03d}", f"tls/192.168.1.{a}:7447", NAME, ())
    device.core.restore(fleet.devices[NAME].core.state())
    assert device.core.cuts.edges and device.core.neighbors
    for k in range(4):
        assert isinstance(device.source, Position)
        device.source.place = b'{"device":2049,"inode":1311,"offset":%d}' % (8000 + k)
        device.core.observe(0.5)
        device.save()
        if k == 1:
            store.sync()
    if not killed:
        store.close()
    copy = folder.with_name(f"{folder.name}-copy")
    shutil.copytree(folder, copy)
    again = AgentStore(copy / "node.db")
    found = saved_in(device_with(again))
    again.close()
    assert b"8003" in found[2]
    return found


def damaged(from_: Path, to: Path, rng: random.Random) -> str:
    """Copy a store and damage one of its files, larger ones more often; what was done."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(from_, to)
    files = sorted(path for path in to.iterdir() if path.stat().st_size)
    path = rng.choices(files, [each.stat().st_size for each in files])[0]
    size = path.stat().st_size
    if rng.random() < 0.1:
        size = rng.randrange(size)
        os.truncate(path, size)
        return f"{path.name} truncated to {size}"
    raw, bit = bytearray(path.read_bytes()), rng.randrange(8 * size)
    raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)
    return f"bit {bit % 8} of byte {bit // 8} of {path.name} flipped"


def outcome(folder: Path, whole: tuple[Any, ...]) -> str:
    """What becomes of an agent that starts on this store: `same`; with a message, `set aside` or `torn` (it continues
    from an older save); `refused`; or `different`, which must not be. Anything but a CheckpointError is raised."""
    try:
        store = open_store(folder / "node.db")
    except CheckpointError:
        return "refused"
    aside = sorted(path.name for path in folder.iterdir() if ".corrupt-" in path.name)
    try:
        found = saved_in(device_with(store))
    except CheckpointError:
        return "refused"
    finally:
        store.close()
    if aside:
        return "set aside" if f"set aside as {aside[0]}" in store.warnings[0] else "different"
    if found == whole:
        return "same"
    older = found[2] is not None and any(b"%d" % offset in found[2] for offset in (8001, 8002))
    return "torn" if older and any("torn" in warning for warning in store.warnings) else "different"
