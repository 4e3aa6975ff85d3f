"""What C-colME and CL-colME share: pruning by intervals, the clock, the messages. They differ in how they average.

Flow updating: consensus by flows along edges that conserve the mean, for `CLColME(consensus="flow")`.

From the perspective of agent a, at step t, after it observed x_a(t) and updated its local mean X_a:

(1) it sends every neighbor j its interval, its estimate y_a(t-1), and F_aj(t-1): the total flow from j so far
(2) it drops the neighbors whose interval does not overlap its own, and F with them: their total flow is undone at once
(3) it updates the flow from each kept neighbor it hears:    F_aj <- (F_aj - F_ja) / 2 + b (y_j - y_a)
(4) its estimate is its own mean plus all flows:             y_a = X_a + sum over kept j of F_aj

Both ends work with the same two estimates, so F_ja = -F_aj to the bit, (F_aj - F_ja) / 2 is F_aj, and the mean of all
estimates is the mean of all local means at every step, whatever is cut. For all agents at once
(`colme._core.consensus_kernel`): y(t) = y(t-1) + X(t) - X(t-1) - b L y(t-1), as long as nothing is cut.
There is no clock: a cut leaves nothing behind that must be forgotten. Without edges, and at the first sample, (4) gives
y_a = X_a; before it y_a is NaN, and flows to and from an agent without an estimate do not change.

On a network that loses messages
    Flows are sent as totals, not as changes, so the next message repairs what a lost one left behind. An agent that
    hears nothing leaves its flow as it is. After an exchange that only one end heard, F_aj + F_ja is not zero; the next
    one that both hear sets both to the same midpoint, and one that a single end hears halves the difference. So a node
    needs no common tick: it uses the newest message of a neighbor, once, and drops older ones.
    An edge is cut at both ends. An agent that still hears from a neighbor it has cut answers PARTED until that stops,
    and an agent that hears PARTED cuts too. On a perfect network both cut at the same step and PARTED is never sent.

Reference: P. Jesus, C. Baquero, P. S. Almeida, "Fault-tolerant aggregation by flow updating", DAIS 2009. There an agent
adopts the other end's flow; when messages cross, the two ends would only swap their disagreement, so here both take the
midpoint.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar

import msgspec
import numpy as np

from colme._core.consensus_kernel import Averaging, ClockState, EstimateArrays, Steps, Target, run_steps
from colme.consensus import START, Clock, Restarts, agreed_flow, clock_of, clock_rate, next_flow, with_flows
from colme.graphs import Graph
from colme.method import EVERYONE, Inbox, Place, Round, World
from colme.methods.intervals import PARTED, AgentIntervals, IntervalAgent, IntervalMethod, PruningState, parted
from colme.metrics import (
    ISOLATED_AGENTS,
    LOST_EDGES,
    N_ERRORS,
    N_SUMS,
    NOT_KNOWN,
    NUMBERS,
    OF_METHOD,
    WRONG_EDGES,
    all_errors_of,
)  # fmt: skip
from colme.support.arrays import Array, Floats, Mask


class ConsensusMethod(IntervalMethod, frozen=True, kw_only=True):
    """A method that averages with its kept neighbors' estimates.

    clock     how alpha(t) restarts: "gossip" (no global knowledge), "global" (reproduces the papers), "own", "harmonic"
              or "constant"
    alpha     for the constant clock; 1: pure descent, without a pull to the own mean, from the first samples on
    """

    shared = True
    metropolis = False
    """Neighbors are weighed by Metropolis' weights, not all alike."""

    clock: str = "gossip"
    alpha: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        clock_of(self.clock, self.alpha)

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
        return None if self.clock_rule.common else "colme.node.messages.adapters:ConsensusAdapter"

    @property
    def clock_rule(self) -> Clock:
        """What the clock does, in every form of the method."""
        return clock_of(self.clock, self.alpha)


class ConsensusState(PruningState):
    """Array form: edges, clock, estimates in float64 (`estimate`) and as the neighbors hear them (`heard`)."""

    saved: ClassVar[tuple[str, ...]] = ("edges", "restarts", "estimate", "own_heard")

    step_size = 1.0
    weights: Array | None = None
    """Weight of each slot of the neighbor table; None: all are one."""
    flows: Floats | None = None
    """Flow on each slot of the neighbor table; None: Laplacian or Metropolis consensus, with a clock."""

    def __init__(self, method: ConsensusMethod, world: World, graph: Graph):
        super().__init__(method, world, graph)
        self.restarts = Restarts(method.clock_rule, world.hood)
        self.heard: Array = world.hood.array(world.exchange)  # nothing is heard before all is written once
        self.spare: Array = world.hood.array(world.exchange)
        self._pages = np.zeros((world.hood.n_pages, N_SUMS))
        self.edges.tighten()

    @property
    def own_heard(self) -> Array:
        """What the neighbors hear of the own agents."""
        return self.world.hood.mine(self.heard)

    def restored(self) -> None:
        known = self.restarts.known
        self.world.hood.refresh(self.heard, *([] if known is None else known))
        self.rows_moved()

    def last_graph(self) -> Graph:
        self.heard = self.spare = self.heard[:0].copy()
        return self.edges.last_graph()

    @property
    def numbers(self) -> float:  # type: ignore[override]
        """Numbers per message: interval and estimate, the restart (gossip), the degree (weights)."""
        return self.radii.numbers + 1.0 + self.restarts.clock.gossip + (self.weights is not None)

    def step(self, world: World) -> None:
        self.advance(world, world.mean[None, :], np.ones(1, np.bool_), np.empty((1, len(OF_METHOD))))

    def advance(self, world: World, means: Floats, recorded: Mask, out: Floats) -> None:
        if world.team.size > 1:
            self._advance_together(world, means, out)
        else:
            self._advance(world, means, out)
        for column, n in ((WRONG_EDGES, self.edges.n_wrong), (LOST_EDGES, self.edges.n_right)):
            out[:, column] = out[:, column] / n if n else 0.0
        if not world.classes_known:
            out[:, [WRONG_EDGES, LOST_EDGES]] = np.nan
        out[:, NUMBERS] = self.numbers

    def _advance(self, world: World, means: Floats, out: Floats) -> None:
        """In a plain run, all steps until a full check of the edges is needed are made by one kernel."""
        edges, done, pruned = self.edges, 0, False
        radii = self.radii.over(world, len(means))
        equal = np.zeros(len(means)) if radii is None else radii
        while done < len(means):
            if pruned or edges.version == world.reference.version > 0:
                done += self.average(world, means, done, equal, out, pruned=pruned)
            if done < len(means):
                if radii is None:
                    self.prune_by(world, means[done], done)
                else:
                    edges.check_all(means[done], means, done, radii.item(done), world.reference, world.t)
                pruned = True

    def _advance_together(self, world: World, means: Floats, out: Floats) -> None:
        """One step of a team, whose workers wait for each other twice: for all cuts, and for all estimates."""
        self.prune(world)
        self.average(world, means, 0, np.zeros(1), out, pruned=True)
        restarts, team = self.restarts, world.team
        unsettled = team.any(not restarts.settled)  # waits, so that all see what was averaged
        restarts.settled = not unsettled
        self.edges.refresh(self.heard, *([] if restarts.known is None else [restarts.known[restarts.turn]]))
        if world.recorded:
            out[0, :N_ERRORS] = all_errors_of(team.gather(self._pages))
            out[0, [WRONG_EDGES, LOST_EDGES, ISOLATED_AGENTS]] = self.edges.counts()

    def average(
        self, world: World, means: Floats, row: int, radii: Floats,
        out: Floats, *, pruned: bool,
    ) -> int:  # fmt: skip
        """Make steps from this row on, and return how many; see `colme._core.consensus_kernel`."""
        edges, restarts, shared = self.edges, self.restarts, world.team.size > 1
        truth = NOT_KNOWN if world.truth is None or (shared and not world.recorded) else world.truth
        displacements = np.zeros(1) if shared else world.reference.displacements(means, world.t)
        rebuild = shared and edges.any_cut  # a worker does not see which neighbors at others lost an edge
        if edges.tighten(self.flows):
            self.rows_moved()
        done, edges.checks_left, restarts.common, restarts.turn, restarts.settled = run_steps(
            edges.table, edges.candidates, edges.checks_left,
            Averaging(
                self.weights, rebuild, self.flows, self.step_size, world.gaps,
                self.heard[:0] if self.flows is None else self.flows[:0],
            ),
            restarts.clock, ClockState(restarts.known, restarts.common, restarts.turn, restarts.settled),
            EstimateArrays(self.estimate, self.heard, self.spare),
            Target(truth, world.tolerance, world.hood.page, self._pages),
            Steps(means, displacements, radii), row, world.t + row, pruned, out,
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

    saved = (*IntervalAgent.saved, "neighbors", "restart")
    needs_degrees = False
    """Ask the kept neighbors for their degrees after pruning: a second exchange in the same step."""

    def __init__(self, method: ConsensusMethod, place: Place):
        super().__init__(method, place)
        self.neighbors = list(place.neighbors)
        self.clock = method.clock_rule
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
        alpha = float(clock_rate(self.clock, self.t, self.restart))
        self.average({b: message.estimate for b, message in told.items()}, degrees, own, alpha)

    def _parts(self, mine: AgentIntervals, message: ConsensusMessage | None) -> bool:
        """The neighbor's interval does not overlap mine; or it has found so itself and says so, as devices do."""
        return message is PARTED or parted(mine, message.intervals, self.test)

    def _tick(self, cut: bool, told: dict[Hashable, ConsensusMessage]) -> Round:
        now = max(self.t, START)
        if self.clock.common:
            cut = any((yield {EVERYONE: cut}).values())
        if self.clock.gossip:
            latest = [message.restart for message in told.values()]
            self.restart = max([self.restart, *latest, *([now] if cut else [])]) if self.count else START
        elif self.clock.own and cut:
            self.restart = now

    @abstractmethod
    def average(self, heard: dict[Hashable, Any], degrees: Inbox, own: Any, alpha: float) -> None:
        """Set `estimate` from what the kept neighbors sent (`own`: what this agent sent to them)."""


class FlowMessage(msgspec.Struct, frozen=True):
    """The message to one neighbor: the intervals now, the estimate of the last step, the total flow from it."""

    intervals: AgentIntervals
    estimate: Any
    flow: float


class FlowAgent(IntervalAgent):
    """Per-agent form of flow updating."""

    saved = (*IntervalAgent.saved, "flows", "unaware")

    def __init__(self, method: IntervalMethod, place: Place, step_size: float):
        super().__init__(method, place)
        self.step_size = step_size
        self.flows: dict[Hashable, float] = dict.fromkeys(place.neighbors, 0.0)
        self.unaware: list[Hashable] = []  # neighbors that were cut and still sent messages at the step before

    def step(self, sample: float) -> Round:
        self.observe(sample)
        mine, own = self.intervals, self.place.exchange(self.estimate)
        messages = {b: FlowMessage(mine, own, flow) for b, flow in self.flows.items()}
        inbox = yield {**messages, **dict.fromkeys(self.unaware, PARTED)}  # (1)
        self.unaware = [b for b, message in inbox.items() if b not in self.flows and message is not PARTED]
        for b in filter(inbox.__contains__, messages):
            message = inbox[b]
            if message is PARTED or parted(mine, message.intervals, self.test):
                del self.flows[b]  # (2)
            else:
                agreed = agreed_flow(self.flows[b], message.flow)
                self.flows[b] = float(next_flow(agreed, own, message.estimate, self.step_size, True))  # (3)
        total = 0.0
        for flow in self.flows.values():  # one by one: sum() rounds differently in newer Pythons
            total += flow
        self.estimate = with_flows(self.mean, total)  # (4)
