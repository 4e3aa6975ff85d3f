"""What C-colME and CL-colME share: pruning by intervals, the clock, the messages. They differ in how they average."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme._core.consensus_kernel import Averaging, ClockRule, ClockState, EstimateArrays, Steps, Target, run_steps
from colme._core.jit import LANES
from colme._core.squared_errors import NOT_KNOWN
from colme.consensus import START, Clock, check_clock
from colme.graphs import Graph
from colme.method import EVERYONE, Inbox, Place, Round, World
from colme.methods.intervals import PARTED, AgentIntervals, IntervalAgent, IntervalMethod, PruningState, parted
from colme.metrics import LOST_EDGES, NUMBERS, OF_METHOD, WRONG_EDGES


class ConsensusMethod(IntervalMethod, frozen=True, kw_only=True):
    """A method that averages with its kept neighbors' estimates.

    clock     how alpha(t) restarts: "gossip" (no global knowledge), "global" (reproduces the papers), "own", "harmonic"
              or "constant"
    alpha     for the constant clock; 1: pure descent, without a pull to the own mean, from the first samples on
    """

    metropolis: ClassVar[bool] = False
    """Neighbors are weighed by Metropolis' weights, not all alike."""

    clock: str = "gossip"
    alpha: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clock(self.clock, self.alpha)

    @property
    def conserves(self) -> bool:
        return not self.guard  # which reports less than what was exchanged

    def step_size(self, auto: float) -> float:
        """The step of the consensus, where `auto` is a stable one."""
        return 1.0

    @property
    def online_rule(self) -> str | None:
        return None if self.needs_moments else "colme.online.rules:ConsensusRule"

    @property
    def message_adapter(self) -> str | None:
        """A restart of all clocks at once cannot be sent to neighbors only."""
        return None if self.clock == "global" else "colme.node.messages.adapters:ConsensusAdapter"

    def clock_for(self, n_agents: int) -> Clock:
        """The clock of so many agents, before the first step."""
        return Clock(self.clock, n_agents, self.alpha)


class ConsensusState(PruningState):
    """Array form: edges, clock, estimates in float64 (`estimate`) and as the neighbors hear them (`heard`)."""

    saved: ClassVar[tuple[str, ...]] = ("edges", "clock", "estimate", "heard")

    step_size = 1.0
    weights: NDArray[Any] | None = None
    """Weight of each slot of the neighbor table; None: all are one."""
    rebuild = False
    """Compute all weights anew at every step."""
    flows: NDArray[np.float64] | None = None
    """Flow on each slot of the neighbor table; None: Laplacian or Metropolis consensus, with a clock."""
    stopwatch: AbstractContextManager[Any] = nullcontext()
    """Entered around every averaging; `colme.lab.timing` puts a clock here."""

    def __init__(self, method: ConsensusMethod, world: World, graph: Graph):
        super().__init__(method, world, graph)
        self.clock = method.clock_for(world.n_agents)
        self.heard: NDArray[Any] = np.full(-(-world.n_agents // LANES) * LANES, np.nan, world.exchange)
        self.spare = self.heard.copy()
        self.edges.tighten()

    @property
    def numbers(self) -> float:  # type: ignore[override]
        """Numbers per message: interval and estimate, the restart (gossip), the degree (weights)."""
        return self.radii.numbers + 1.0 + (self.clock.name == "gossip") + (self.weights is not None)

    def step(self, world: World) -> None:
        self.advance(world, world.mean[None, :], np.empty((1, len(OF_METHOD))))

    def advance(self, world: World, means: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        edges, done, pruned = self.edges, 0, False
        radii = self.radii.over(world, len(means))
        equal = np.zeros(len(means)) if radii is None else radii
        while done < len(means):
            if pruned or edges.lazy.version == world.reference.version > 0:
                with self.stopwatch:
                    done += self.average(world, means, done, equal, out, pruned=pruned)
            if done < len(means):
                if radii is None:
                    edges.prune_by(self.radii.intervals(world, means[done], done), test=self.radii.test)
                else:
                    edges.check_all(means, done, radii.item(done), world.reference, world.t)
                pruned = True
        for column, n in ((WRONG_EDGES, edges.n_wrong), (LOST_EDGES, edges.n_right)):
            out[:, column] = out[:, column] / n if n else 0.0
        if not world.classes_known:
            out[:, [WRONG_EDGES, LOST_EDGES]] = np.nan
        out[:, NUMBERS] = self.numbers

    def average(
        self, world: World, means: NDArray[np.float64], row: int, radii: NDArray[np.float64],
        out: NDArray[np.float64], *, pruned: bool,
    ) -> int:  # fmt: skip
        """Make steps from this row on, and return how many; see `colme._core.consensus_kernel`."""
        edges, lazy, clock = self.edges, self.edges.lazy, self.clock
        truth = NOT_KNOWN if world.truth is None else world.truth
        if edges.tighten(self.flows):
            self.rows_moved()
        done, lazy.checks_left, clock.restart, clock.turn, clock.settled = run_steps(
            edges.table, lazy.candidates, lazy.checks_left,
            Averaging(self.weights, self.rebuild, self.flows, self.step_size, world.gaps),
            ClockRule(clock.fixed, clock.name == "global", clock.name == "gossip", clock.known),
            ClockState(clock.restart, clock.turn, clock.settled),
            EstimateArrays(self.estimate, self.heard, self.spare), Target(truth, world.tolerance),
            Steps(means, world.reference.displacements(means, world.t), radii), row, world.t + row, pruned, out,
        )  # fmt: skip
        if done % 2:
            self.heard, self.spare = self.spare, self.heard
        return done

    def rows_moved(self) -> None:
        """The neighbor table has been compacted: its rows are in another order."""


class ConsensusMessage(msgspec.Struct, frozen=True):
    """The message to a neighbor: the intervals now, the estimate of the last step, the clock's last restart."""

    intervals: AgentIntervals
    estimate: Any
    restart: int


class ConsensusAgent(IntervalAgent):
    """Per-agent form."""

    saved: ClassVar[tuple[str, ...]] = (*IntervalAgent.saved, "neighbors", "restart")
    needs_degrees: ClassVar[bool] = False
    """Ask the kept neighbors for their degrees after pruning: a second exchange in the same step."""

    def __init__(self, method: ConsensusMethod, place: Place):
        super().__init__(method, place)
        self.neighbors = list(place.neighbors)
        self.clock = method.clock_for(1)
        self.restart = START

    def step(self, sample: float) -> Round:
        self.observe(sample)
        mine, own = self.intervals, self.place.exchange(self.estimate)
        inbox = yield dict.fromkeys(self.neighbors, ConsensusMessage(mine, own, self.restart))
        kept = [b for b in self.neighbors if b not in inbox or not self._parts(mine, inbox[b])]
        cut = len(kept) < len(self.neighbors)
        self.neighbors = kept
        told: dict[Hashable, ConsensusMessage] = {b: inbox[b] for b in kept if b in inbox}
        yield from self._tick(cut, told)
        degrees = (yield dict.fromkeys(kept, len(kept))) if self.needs_degrees else {}
        alpha = self.clock.rate(self.t, self.restart)
        self.average({b: message.estimate for b, message in told.items()}, degrees, own, alpha)

    def _parts(self, mine: AgentIntervals, message: ConsensusMessage | None) -> bool:
        """The neighbor's interval does not overlap mine; or it has found so itself and says so, as devices do."""
        return message is PARTED or parted(mine, message.intervals, self.test)

    def _tick(self, cut: bool, told: dict[Hashable, ConsensusMessage]) -> Round:
        now = max(self.t, START)
        name = self.clock.name
        if name == "global":
            cut = any((yield {EVERYONE: cut}).values())
        if name == "gossip":
            latest = [message.restart for message in told.values()]
            self.restart = max([self.restart, *latest, *([now] if cut else [])]) if self.count else START
        elif name in ("own", "global") and cut:
            self.restart = now

    @abstractmethod
    def average(self, heard: dict[Hashable, Any], degrees: Inbox, own: Any, alpha: float) -> None:
        """Set `estimate` from what the kept neighbors sent (`own`: what this agent sent to them)."""
