"""Flow updating: consensus by flows along edges that conserve the mean, for `CLColME(consensus="flow")`.

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

from collections.abc import Hashable
from typing import Any, ClassVar

import msgspec

from colme.consensus import agreed_flow, next_flow, with_flows
from colme.method import Place, Round
from colme.methods.intervals import PARTED, AgentIntervals, IntervalAgent, IntervalMethod, parted


class FlowMessage(msgspec.Struct, frozen=True):
    """The message to one neighbor: the intervals now, the estimate of the last step, the total flow from it."""

    intervals: AgentIntervals
    estimate: Any
    flow: float


class FlowAgent(IntervalAgent):
    """Per-agent form."""

    saved: ClassVar[tuple[str, ...]] = (*IntervalAgent.saved, "flows", "unaware")

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
