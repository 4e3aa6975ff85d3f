"""Flow updating: consensus that lends instead of leaning, for `CLColME(consensus="flow")`.

From the perspective of agent a, at step t, after it observed x_a(t) and updated its local mean X_a:

(1) it tells every neighbor j its interval, its estimate y_a(t-1), and F_aj(t-1): all that j has lent to it so far
(2) it drops the neighbors whose interval parts from its own, and F with them: what crossed the edge is back at once
(3) to and from each kept neighbor that it hears flows:      F_aj <- (F_aj - F_ja) / 2 + b (y_j - y_a)
(4) its estimate is its own mean and what it was lent:       y_a = X_a + sum over kept j of F_aj

Both ends work with the same two estimates, so F_ja = -F_aj to the bit, (F_aj - F_ja) / 2 is F_aj, and the mean of all
estimates is the mean of all local means at every step, whatever is cut. For all agents at once
(`colme._core.consensus_kernel`): y(t) = y(t-1) + X(t) - X(t-1) - b L y(t-1), as long as nothing is cut.
There is no clock: a cut leaves nothing behind
that would have to be forgotten. Without edges, and with the first sample, (4) says y_a = X_a; before it y_a is NaN, and
whoever hears that, or says it, lets its flow stand.

On a network that loses messages
    Flows are told as totals, not as changes, so the next message repairs what a lost one left behind. Whoever hears
    nothing leaves its flow as it is. After an exchange that only one end heard, F_aj + F_ja is not zero; the next one
    that both hear sets both to the same middle, and one that a single end hears halves it but for what flows now. So a
    node needs no common tick: it uses the newest message of a neighbor, once, and drops older ones.
    Cutting is for both ends. Who still hears from somebody whom it cut answers PARTED until that ends, and who hears
    PARTED cuts too. On a perfect network both cut at the same step and nobody says it.

Reference: P. Jesus, C. Baquero, P. S. Almeida, "Fault-tolerant aggregation by flow updating", DAIS 2009. There an agent
adopts the other end's flow; when messages cross, both would only swap what they disagree on, so here they meet midway.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

import msgspec

from colme.consensus import agreed_flow, next_flow, with_flows
from colme.method import Place, Round
from colme.methods.intervals import PARTED, AgentIntervals, IntervalAgent, IntervalMethod, parted


class Loan(msgspec.Struct, frozen=True):
    """What one neighbor needs to hear: my intervals now, my estimate of the last step, all that it has lent me."""

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
        self.unaware: list[Hashable] = []  # whom I cut, and still heard from at the step before

    def step(self, sample: float) -> Round:
        self.observe(sample)
        mine, own = self.intervals, self.place.exchange(self.estimate)
        loans = {b: Loan(mine, own, flow) for b, flow in self.flows.items()}
        inbox = yield {**loans, **dict.fromkeys(self.unaware, PARTED)}  # (1)
        self.unaware = [b for b, loan in inbox.items() if b not in self.flows and loan is not PARTED]
        for b in filter(inbox.__contains__, loans):
            loan = inbox[b]
            if loan is PARTED or parted(mine, loan.intervals):
                del self.flows[b]  # (2)
            else:
                agreed = agreed_flow(self.flows[b], loan.flow)
                self.flows[b] = float(next_flow(agreed, own, loan.estimate, self.step_size, True))  # (3)
        lent = 0.0
        for flow in self.flows.values():  # one by one: sum() rounds differently in newer Pythons
            lent += flow
        self.estimate = with_flows(self.mean, lent)  # (4)
