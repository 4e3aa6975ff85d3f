"""Schedules of loss, delay, duplication, reordering, crashes and restarts: invariants hold throughout, and both ends of
every edge agree when the trouble is over."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import colme
from colme.graphs import random_regular_graph
from colme.node.backoff import LONGEST
from colme.node.core import GREETINGS, OVERTAKEN, Core
from colme.node.device import Device, highest_incarnation, lowest_incarnation
from colme.node.messages import wire
from colme.node.net.memory import MemoryNetwork
from colme.node.store import AgentStore, open_store
from colme.samples import running_mean
from tests.support.nodes import PERIOD, Fleet, network_of, schedules

N, SIGMA, TROUBLE, SAVE_EVERY = 6, 0.5, 40, 5
CALM = 2 * LONGEST + 20
"""Ticks until the last repetition of a cut is heard, and answered, and flows are even again."""


class Troubled(Fleet):
    """A fleet with stores, and what somebody outside knows about each agent: every sample that it was given and has not
    forgotten, how many of them are saved, and its incarnation."""

    def __init__(self, method: Any, folder: Path, network: MemoryNetwork):
        self.given: dict[str, list[float]] = {}
        self.saved: dict[str, int] = {}
        self.incarnation: dict[str, int] = {}
        super().__init__(method, random_regular_graph(N, 3, rng=1), network, sigma=SIGMA, folder=folder,
                         save_every=SAVE_EVERY)  # fmt: skip

    def start(self, name: str, store: Any = None, **options: Any) -> Device:
        device = super().start(name)
        lost = len(self.given.setdefault(name, [])) - self.saved.setdefault(name, 0)
        assert lost <= SAVE_EVERY, "a crash forgets more than it may"
        del self.given[name][self.saved[name] :]
        assert device.core.incarnation == self.incarnation.get(name, 0) + 1
        self.incarnation[name] = device.core.incarnation
        self.watch(device)
        return device

    def watch(self, device: Device) -> None:
        """See to it that whatever is accepted was said by the sender that lives now, or lived before, and in order; and
        note what is saved."""
        hear, marks, store, name = device.core._hear, dict(device.core.marks), device.store, device.core.name
        assert store is not None
        save_all = store.save_all

        def checked(sender: str, raw: bytes, now: float) -> bool:
            accepted = hear(sender, raw, now)
            if accepted:
                record = wire.unpack(raw)
                assert record.age_mark > marks.get(sender, (0, 0, 0)), "something older was accepted"
                assert record.incarnation <= self.incarnation[sender], "nobody has said that yet"
                marks[sender] = record.age_mark
            return accepted

        def save(*what: Any) -> None:
            save_all(*what)
            self.saved[name] = len(self.given[name])

        device.core._hear = checked  # type: ignore[method-assign]
        store.save_all = save  # type: ignore[method-assign]

    def survives(self, device: Device, now: float, sample: float, dies: str | None) -> bool:
        self.given[device.core.name].append(sample)
        return super().survives(device, now, sample, dies)

    def after_tick(self) -> None:
        """Each sample that is not forgotten is counted once."""
        for name, device in self.devices.items():
            mean = math.nan
            for count, sample in enumerate(self.given[name], start=1):
                mean = running_mean(mean, sample, count)
            agent = device.core.agent
            assert agent.count == len(self.given[name])
            assert agent.mean == mean or (math.isnan(mean) and math.isnan(agent.mean))


METHODS = [colme.CLColME(), colme.CLColME(consensus="flow"), colme.CColME()]


@pytest.mark.parametrize("n", [4, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_schedules_of_trouble(method: Any, n: int) -> None:
    @settings(max_examples=n, deadline=None, derandomize=True)
    @given(schedule=schedules(TROUBLE, N))
    def survived(schedule: dict[str, Any]) -> None:
        run_schedule(method, schedule)

    survived()


def run_schedule(method: Any, schedule: dict[str, Any]) -> None:
    """Loss, delay, duplication and crashes, then calm: no sample counts twice, and both ends of each edge agree."""
    with tempfile.TemporaryDirectory() as folder:
        fleet = Troubled(method, Path(folder), network_of(schedule))
        truth = schedule["gap"] * (np.arange(N) % 2)
        rows = truth + SIGMA * np.random.default_rng(schedule["seed"]).standard_normal((TROUBLE, N))
        fleet.suffer(rows, schedule["deaths"])
        for _ in range(CALM):
            fleet.tick(math.nan)
        fleet.after_tick()
        assert fleet.one_sided == 0, "the ends of an edge do not agree that it is cut"
        if method.conserves and getattr(method, "consensus", "") == "flow":
            # flows are computed from estimates that were heard as float32
            assert abs(fleet.imbalance) < 1e-6 * (1.0 + schedule["gap"])
        assert sum(core.refused["sense"] + core.refused["value"] for core in fleet.cores) == 0
        for name in fleet.names:
            fleet.stop(name)


TODAY = 1_790_000_000.0
"""Unix seconds of some day in 2026."""


class Restarts(Fleet):
    """A fleet whose first agent has a store and a clock, and can be stopped and started."""

    def __init__(self, folder: Path, method: Any = None, network: MemoryNetwork | None = None):
        graph = random_regular_graph(N, 3, rng=1)
        super().__init__(method or colme.CLColME(), graph, network or MemoryNetwork(), sigma=SIGMA)
        self.folder, self.path, self.name, self.said = folder, folder / "node.db", self.names[0], list[str]()
        self.devices[self.name].transport.close()
        self.back(TODAY)

    def back(self, clock: float) -> Device:
        """Start the agent, as `colme node run` does."""
        core = Core(
            self.method, self.name, self.neighbors[self.name], **self.known, incarnation=lowest_incarnation(clock)
        )
        transport = self.network.join(self.name, self.neighbors[self.name])
        store = open_store(self.path)
        device = Device(core, transport, store, say=self.said.append, clock=lambda: clock)
        self.devices[self.name] = device
        return device

    def stop(self) -> None:
        device = self.devices[self.name]
        device.save()
        device.transport.close()
        assert device.store is not None
        device.store.close()

    def live(self, n_ticks: int) -> None:
        for _ in range(n_ticks):
            self.tick(0.0)

    def heard(self) -> bool:
        """Whether all neighbors have heard the present life of the agent."""
        wanted = self.devices[self.name].core.incarnation
        heard = [self.devices[b].core.last_heard(self.name) for b in self.neighbors[self.name]]
        return all(each is not None and each.record.incarnation == wanted for each in heard)


def backup(path: Path) -> None:
    shutil.copy(path.with_name("backup"), path)


def deleted(path: Path) -> None:
    path.unlink()


def corrupted(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[1024:2048] = bytes(255 - byte for byte in raw[1024:2048])
    path.write_bytes(raw)


@pytest.mark.parametrize("lose", [backup, deleted, corrupted])
@pytest.mark.parametrize("clock", [TODAY + 300, 0.0], ids=["clock is right", "clock at 1970"])
def test_an_agent_without_its_newest_store_is_heard(tmp_path: Path, lose: Any, clock: float) -> None:
    """At once if its clock is right; otherwise after neighbors have told it which incarnation they know. The second
    start afterwards needs neither."""
    fleet = Restarts(tmp_path)
    fleet.live(30)
    fleet.stop()
    shutil.copy(fleet.path, tmp_path / "backup")
    fleet.back(TODAY + 100)
    fleet.live(30)
    fleet.stop()
    fleet.back(TODAY + 200)
    fleet.live(30)
    assert fleet.heard()
    fleet.stop()
    lose(fleet.path)
    device = fleet.back(clock)
    fleet.live(2)
    if clock:
        assert fleet.heard() and fleet.said == []
    else:
        assert not fleet.heard()
        fleet.live(OVERTAKEN + 3)
        assert fleet.heard() and device.core.incarnation == TODAY + 201
        (sentence,) = fleet.said
        assert f"refused the records of {fleet.name} as old" in sentence and str(device.core.incarnation) in sentence
    fleet.stop()
    fleet.back(0.0)
    fleet.live(2)
    assert fleet.heard() and len(fleet.said) <= 1
    assert all(not core.refused_by for core in fleet.cores)


def test_without_samples_there_is_little_to_save(tmp_path: Path) -> None:
    """Only what is urgent, or what the store would sync."""
    now = [0.0]
    store = AgentStore(tmp_path / "node.db", sync_every=60.0, clock=lambda: now[0])
    device = Device(Core(colme.CLColME(), "a", ["b"], n_agents=2, sigma=SIGMA), MemoryNetwork().join("a", ["b"]), store,
                    save_every=10)  # fmt: skip
    saved = []
    for k in range(1, 1001):
        now[0] = 0.1 * k
        device.tick(now[0], 1.0 if k in (5, 123) else math.nan)
        row = store.load("a")
        assert row is not None
        saved += [row.epoch] if row.epoch not in saved else []
    assert saved == [0, 10, 130, 600]
    device.feed(100.0, [1.0, 2.0])
    device.feed(100.1, [])
    for _ in range(8):
        device.tick(100.2)
    assert store.load("a").epoch == 1010  # type: ignore[union-attr]


def told_old(fleet: Restarts, name: str, incarnation: int, epoch: int = 0) -> None:
    """The agent is told by this one that its records are older than these."""
    message = wire.pack_control(wire.Control(wire.OLD, incarnation, epoch))
    fleet.devices[fleet.name].transport.messages.append((name, message))  # type: ignore[attr-defined]


def test_a_liar_cannot_use_up_incarnations(tmp_path: Path) -> None:
    """It may push the agent to a bound that moves with the clock. What is beyond is told once and ignored. An honest
    neighbor is believed all the same, also after the store was lost where the liar had pushed it."""
    fleet = Restarts(tmp_path)
    core, (liar, *_), limit = fleet.devices[fleet.name].core, fleet.neighbors[fleet.name], highest_incarnation(TODAY)
    for known, becomes in ((2**32 - 2, TODAY), (limit + 1, TODAY), (limit, limit + 1), (limit + 1, limit + 1)):
        for _ in range(20):
            told_old(fleet, liar, known, 2**62)
            fleet.tick(0.0)
        assert core.incarnation == becomes
    assert len(fleet.said) == 2 and "far ahead of the clock" in fleet.said[0] and core.refused_by == {liar: limit + 1}
    assert fleet.heard()
    fleet.stop()
    deleted(fleet.path)
    fleet.back(TODAY + 60)
    fleet.live(OVERTAKEN + 5)
    assert fleet.heard() and fleet.devices[fleet.name].core.incarnation == limit + 2


def test_a_liar_cannot_make_the_agent_write_at_every_tick(tmp_path: Path) -> None:
    """Each move of the incarnation is a write to the disk: there are at most so many after 1, 2, 4, ... 512 ticks."""
    fleet = Restarts(tmp_path)
    device, liar = fleet.devices[fleet.name], fleet.neighbors[fleet.name][0]
    for _ in range(1000):
        told_old(fleet, liar, device.core.incarnation + 1)
        device.tick(fleet.network.now)
    assert 2 <= len(fleet.said) <= 10


def test_strangers_and_late_words_move_no_incarnation(tmp_path: Path) -> None:
    fleet = Restarts(tmp_path)
    device = fleet.devices[fleet.name]
    fleet.live(5)
    stranger = next(name for name in fleet.names if name not in {fleet.name, *fleet.neighbors[fleet.name]})
    friend = fleet.neighbors[fleet.name][0]
    for name, incarnation, epoch in ((stranger, int(TODAY) + 9, 0), (friend, int(TODAY), 5), (friend, 7, 2**40)):
        told_old(fleet, name, incarnation, epoch)
    fleet.live(3)
    assert device.core.incarnation == TODAY and device.core.refused_by == {} and fleet.said == []
    assert device.core.refused == {"stranger": 1}


def test_nobody_is_told_that_it_is_old_on_a_network_that_reorders(tmp_path: Path) -> None:
    network = MemoryNetwork(seed=2, delay=(0.0, 1.9 * PERIOD), duplication=0.3)
    fleet = Restarts(tmp_path, network=network)
    said = []
    for device in fleet.devices.values():
        send = device.transport.send
        device.transport.send = lambda name, message, send=send: (said.append(message), send(name, message))  # type: ignore[method-assign,misc]
    fleet.live(200)
    assert sum(core.refused["old"] for core in fleet.cores) > 100
    assert {wire.unpack_control(message).kind for message in said} == {wire.STARTED}
    assert len(said) <= N * 3 * (GREETINGS + 2)  # two before it was heard


@pytest.mark.parametrize(
    "method", [colme.CLColME(), colme.CLColME(consensus="flow"), colme.CLColME(guard=True)], ids=repr
)
@pytest.mark.parametrize("lose", [backup, deleted])
def test_a_cut_that_a_lost_store_knew_is_known_again(tmp_path: Path, method: Any, lose: Any) -> None:
    """The other end still holds it, and answers so: the edge ends at both ends, and neither repeats itself for ever."""
    fleet = Restarts(tmp_path, method)
    fleet.stop()
    shutil.copy(fleet.path, tmp_path / "backup")
    fleet.back(TODAY + 1)
    far = 9.0 * (np.arange(N) == 0)
    rng = np.random.default_rng(1)
    friends = fleet.neighbors[fleet.name]
    for _ in range(CALM):
        fleet.tick(far + SIGMA * rng.standard_normal(N))
    assert fleet.devices[fleet.name].core.neighbors == [] and fleet.one_sided == 0
    fleet.stop()
    lose(fleet.path)
    core = fleet.back(TODAY + 2).core
    assert core.neighbors == sorted(friends)
    fleet.network.loss = 0.3
    for _ in range(CALM):  # without a sample, so that it cannot find out by itself
        fleet.tick(math.nan)
    assert core.neighbors == [] and sorted(core.cuts.edges) == sorted(friends) and fleet.one_sided == 0
    assert not any(cut_edge.again for each in fleet.cores for cut_edge in each.cuts.edges.values())
    fleet.network.loss = 0.0
    fleet.network.settle()
    sent = fleet.network.sent
    before = {name: list(device.transport.neighbors) for name, device in fleet.devices.items()}  # type: ignore[attr-defined]
    fleet.tick(math.nan)
    assert fleet.network.sent - sent == sum(map(len, before.values()))  # records only
