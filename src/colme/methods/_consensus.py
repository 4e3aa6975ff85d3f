"""What C-colME and CL-colME share: prune by intervals, keep a clock, tell the neighbors. They differ in averaging."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.confidence import too_far
from colme.consensus import START, Clock, check_clock
from colme.graphs import Graph
from colme.methods._base import EVERYONE, Inbox, Place, Round, World
from colme.methods._intervals import IntervalAgent, IntervalMethod, PruningState


class ConsensusMethod(IntervalMethod, frozen=True, kw_only=True):
    """A method that averages with its kept neighbors' estimates.

    clock     how alpha(t) restarts: "gossip" (no global knowledge), "global" (reproduces the papers), "own", "harmonic"
              or "constant"
    alpha     for the constant clock
    """

    conserves: ClassVar[bool] = True

    clock: str = "gossip"
    alpha: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clock(self.clock, self.alpha)


class ConsensusState(PruningState, ABC):
    """Array form: edges, clock, estimates in float64 (`estimate`) and as the neighbors hear them (`heard`)."""

    saved: ClassVar[tuple[str, ...]] = ("edges", "clock", "estimate", "heard")

    def __init__(self, method: ConsensusMethod, world: World, graph: Graph):
        super().__init__(method, world, graph)
        self.clock = Clock(method.clock, world.n_agents, method.alpha)
        self.heard: NDArray[Any] = np.full(world.n_agents, np.nan, world.exchange)
        self.spare = np.empty_like(self.heard)

    def step(self, world: World) -> None:
        self.prune(world)
        self.clock.tick(world.t, self.edges, world.mean, complete=world.count is None)
        self.average(world)
        self.heard, self.spare = self.spare, self.heard

    @abstractmethod
    def average(self, world: World) -> None:
        """Set `estimate` and `spare` (what will be heard next) from `heard`."""


class Hello(msgspec.Struct, frozen=True):
    """What a neighbor needs to hear: my interval now, my estimate of the last step, my clock's last restart."""

    mean: float
    radius: float
    estimate: Any
    restart: int


class ConsensusAgent(IntervalAgent):
    """Per-agent form."""

    needs_degrees: ClassVar[bool] = False
    """Ask the kept neighbors for their degrees after the pruning: a second exchange in the same step."""

    def __init__(self, method: ConsensusMethod, place: Place):
        super().__init__(method, place)
        self.neighbors = list(place.neighbors)
        self.clock = Clock(method.clock, 1, method.alpha)
        self.restart = START

    def step(self, sample: float) -> Round:
        self.observe(sample)
        radius = self.radius
        own = self.place.exchange(self.estimate)
        hello = Hello(self.mean, radius, own, self.restart)
        inbox = yield dict.fromkeys(self.neighbors, hello)
        kept = [
            b
            for b in self.neighbors
            if b not in inbox or not too_far(self.mean, inbox[b].mean, radius, inbox[b].radius)
        ]
        cut = len(kept) < len(self.neighbors)
        self.neighbors = kept
        told: dict[Hashable, Hello] = {b: inbox[b] for b in kept if b in inbox}
        yield from self._tick(cut, told)
        degrees = (yield dict.fromkeys(kept, len(kept))) if self.needs_degrees else {}
        alpha = self.clock.rate(self.t, self.restart)
        self.average({b: hello.estimate for b, hello in told.items()}, degrees, own, alpha)

    def _tick(self, cut: bool, told: dict[Hashable, Hello]) -> Round:
        now = max(self.t, START)
        name = self.clock.name
        if name == "global":
            cut = any((yield {EVERYONE: cut}).values())
        if name == "gossip":
            latest = [hello.restart for hello in told.values()]
            self.restart = max([self.restart, *latest, *([now] if cut else [])]) if self.count else START
        elif name in ("own", "global") and cut:
            self.restart = now

    @abstractmethod
    def average(self, heard: dict[Hashable, Any], degrees: Inbox, own: Any, alpha: float) -> None:
        """Set `estimate` from what the kept neighbors said (`own`: what they heard from me)."""
