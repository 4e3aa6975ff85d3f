"""Message adapters: how the messages of each method's agents become records, and records messages.

`encode` and `body` put what an agent sends into the body of a record, `decode` makes a message of one. The messages
that agents exchange in lockstep, and those that devices exchange without a common tick, are the same bytes. A method
names its adapter (`Method.message_adapter`); `AnyAdapter` serves methods that have none of their own.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Final, cast

import msgspec
import numpy as np

from colme.census.histogram import plausible
from colme.census.method import CensusAgent, HistogramMessage
from colme.confidence import MEAN
from colme.consensus import clock_rate
from colme.errors import MethodError, NodeError, shorten
from colme.gossip import SumsMessage
from colme.guard import INTERVAL_SUMS, GuardedAgent, GuardedMethod
from colme.method import Agent, Method, Place, named
from colme.methods.consensus import ConsensusAgent, ConsensusMessage, FlowAgent, FlowMessage
from colme.methods.intervals import PARTED, IntervalAgent
from colme.node.census import AsynchronousCensusAgent, RoundMessage
from colme.node.guard import AsynchronousGuardedAgent, AsynchronousJudgment, like
from colme.node.messages.wire import (
    LARGEST,
    MOST_ITEMS,
    AnyBody,
    Body,
    ConsensusBody,
    Exchange,
    FlowBody,
    GuardedBody,
    HistogramBody,
    Record,
    name_hash,
)
from colme.node.rounds import SumsRound
from colme.node.security.trust import (
    MAX_FLOW,
    MAX_PULL,
    SLACK,
    SURPRISE,
    HeardRestarts,
    claimed_radius,
    near,
    own_interval,
)
from colme.noise import student


class Nothing:
    """No message in a record."""


NO_MESSAGE: Final = Nothing()
"""No message; `PARTED`, the message that an edge is cut, is another one."""
WRONG_SHAPE: Final = Nothing()
"""A message that has another structure than the agent's own ones."""
NOVICE = 16
"""The estimate of a neighbor with so many times fewer samples is not used: it would weigh as much as a precise one. The
neighbor uses this agent's. Flows need no such rule: they do not remember."""


class Adapter:
    """Local: a record has no body. The parent of the other adapters."""

    once: ClassVar[bool] = False
    """A record is used at one tick only, not as long as it is fresh."""
    cuts: ClassVar[bool] = False
    """Edges can be cut."""
    hears_cuts: ClassVar[bool] = True
    """Its agents understand `PARTED`; others just lose the neighbor."""
    has_interval: ClassVar[bool] = True
    """`interval` holds what it says, whether or not the method's assumptions do."""
    votes: ClassVar[bool] = False
    """Agents vote, also those whose edge is cut."""
    gateway: ClassVar[str | None] = None
    """The adapter of a node with many local agents, as module:class."""
    saved: ClassVar[tuple[str, ...]] = ()
    """What a device must save beside the agent's own state."""

    def __init__(self, agent: Agent):
        self.agent: Any = agent

    @classmethod
    def device_agent(cls, method: Any, place: Place) -> Agent:
        """The agent of a method for a device, where there is no common tick."""
        return method.agent(place)

    @classmethod
    def most_items(cls, max_neighbors: int) -> int:
        """Items in a record, at most: see `colme.node.messages.wire`."""
        return max_neighbors

    @property
    def neighbors(self) -> list[Any]:
        """The agent's neighbors, in the order of summation."""
        return getattr(self.agent, "neighbors", [])

    def observe(self, sample: float) -> None:
        """A sample between two ticks: no step begins."""
        t = self.agent.t
        self.agent.observe(sample)
        self.agent.t = t

    def add_neighbor(self, name: str) -> None:
        """Add a neighbor."""
        if hasattr(self.agent, "neighbors"):
            self.agent.neighbors = sorted({*self.agent.neighbors, name})

    def remove_neighbor(self, name: str) -> None:
        """Remove a neighbor."""
        if hasattr(self.agent, "neighbors"):
            self.agent.neighbors = [b for b in self.agent.neighbors if b != name]

    def resume(self, names: list[str]) -> None:
        """Resume after a restart with these neighbors, which may be fewer than those that were saved."""
        if hasattr(self.agent, "neighbors"):
            self.agent.neighbors = list(names)

    def body(self) -> Body:
        """The body of the agent's record between two ticks."""
        return None

    def encode(self, outbox: Mapping[Hashable, Any]) -> Body:
        """The body of the record for one exchange of a step, in lockstep."""
        return None

    def record_outbox(self, outbox: Mapping[Hashable, Any], exchange: int) -> None:
        """Note what the agent sends in this exchange of a step, without a common tick."""

    def decode(self, record: Record, exchange: int) -> Any:
        """The message to this agent in a record, in this exchange of a step; or NO_MESSAGE."""
        return NO_MESSAGE

    def accept(self, record: Record, t: int) -> Record | None:
        """A record received at own step t, translated to own time; None: it does not fit this method."""
        return record

    def accept_vote(self, record: Record) -> Record | None:
        """A record of an agent that only votes; None: it does not fit."""
        return None

    def bounded(self, inbox: dict[str, Any]) -> dict[str, Any]:
        """The messages of an exchange, clipped to what can be trusted; see `colme.node.security.trust`."""
        return inbox

    def end_tick(self, fresh: Mapping[str, Record], cut: bool) -> None:
        """After a tick; `fresh`: the records that counted; `cut`: whether it cut an edge."""

    def interval(self, level: float, variance: float) -> tuple[float, float]:
        """An interval for the true mean, at this level. Default: Student's interval of the own mean, from the variance
        of its samples, moved to the estimate."""
        n, estimate = max(self.agent.own_count, 1), float(self.agent.estimate)
        radius = student(level, np.array(n - 1.0)).item() * math.sqrt(variance * self.agent.factors.high_of_own / n)
        return estimate - radius, estimate + radius

    def vote(self, fresh: Mapping[str, Record], degree: int) -> None:
        """After a tick: vote on the weight of the estimate, with the records of some of `degree` agents."""


class ConsensusAdapter(Adapter):
    """CL-colME and C-colME. The steps of other agents mean nothing without a common tick, so restarts of clocks have
    generations: a restart is new if its generation is, and happened as many own ticks ago as its sender reports."""

    cuts = True
    has_interval = False
    saved = ("restarts",)
    agent: ConsensusAgent

    def __init__(self, agent: Agent):
        super().__init__(agent)
        self.restarts = HeardRestarts()

    @classmethod
    def device_agent(cls, method: Any, place: Place) -> Agent:
        check_device_step(method, round(1.0 / place.auto_step))
        return super().device_agent(method, place)

    def body(self) -> Body:
        return ConsensusBody(
            self.agent.intervals, float(self.agent.estimate), self.agent.restart, self.restarts.generation
        )

    def encode(self, outbox: Mapping[Hashable, Any]) -> Body:
        message = next(iter(outbox.values()))
        if not isinstance(message, ConsensusMessage):
            return None  # degrees, which are in the head of every record
        return ConsensusBody(message.intervals, float(message.estimate), message.restart)

    def decode(self, record: Record, exchange: int) -> Any:
        if exchange == 1:
            return record.degree
        body = record.body
        if not isinstance(body, ConsensusBody):
            return NO_MESSAGE
        return ConsensusMessage(body.intervals, self.agent.place.exchange(body.estimate), body.restart)

    def accept(self, record: Record, t: int) -> Record | None:
        body = record.body
        if not isinstance(body, ConsensusBody) or not _fits(self.agent, record, body):
            return None
        estimate = body.estimate if record.count * NOVICE >= self.agent.count else math.nan
        generation, restart = self.restarts.told(body.generation, max(record.epoch - body.restart, 0), t)
        told = ConsensusBody(body.intervals, estimate, restart, generation)
        return msgspec.structs.replace(record, body=told)

    def bounded(self, inbox: dict[str, Any]) -> dict[str, Any]:
        agent, number = self.agent, self.agent.place.exchange
        center, radius = own_interval(agent)
        most = MAX_PULL * (1.0 - clock_rate(agent.clock, agent.t, agent.restart)) * radius
        out = {}
        for b, message in inbox.items():
            if isinstance(message, ConsensusMessage):
                estimate = near(near(float(message.estimate), float(agent.estimate), most), center, radius)
                message = ConsensusMessage(message.intervals, number(estimate), message.restart)
            out[b] = message
        return out

    def end_tick(self, fresh: Mapping[str, Record], cut: bool) -> None:
        agent = self.agent
        told = [record.body for record in fresh.values() if isinstance(record.body, ConsensusBody)]
        self.restarts.after([(body.generation, body.restart) for body in told], agent.t, cut)
        agent.estimate = near(agent.estimate, *own_interval(agent))


class FlowAdapter(Adapter):
    """CL-colME by flows: the flows of all edges are in one record, so they fit the estimate beside them."""

    once = True
    cuts = True
    has_interval = False
    agent: FlowAgent

    def __init__(self, agent: FlowAgent):
        super().__init__(agent)
        self.me = name_hash(agent.place.agent)

    @classmethod
    def device_agent(cls, method: Any, place: Place) -> Agent:
        check_device_step(method, round(1.0 / place.auto_step))
        return super().device_agent(method, place)

    @property
    def neighbors(self) -> list[Any]:
        return list(self.agent.flows)

    def add_neighbor(self, name: str) -> None:
        self.agent.flows = dict(sorted({name: 0.0, **self.agent.flows}.items(), key=lambda item: str(item[0])))

    def remove_neighbor(self, name: str) -> None:
        self.agent.flows.pop(name, None)

    def resume(self, names: list[str]) -> None:
        self.agent.flows = {b: self.agent.flows.get(b, 0.0) for b in names}

    def body(self) -> Body:
        flows = {name_hash(b): flow for b, flow in self.agent.flows.items()}
        return FlowBody(self.agent.intervals, float(self.agent.estimate), flows)

    def encode(self, outbox: Mapping[Hashable, Any]) -> Body:
        flows = {name_hash(b): math.nan if message is PARTED else message.flow for b, message in outbox.items()}
        told = next((message for message in outbox.values() if message is not PARTED), None)
        if told is None:
            return FlowBody(self.agent.intervals, float(self.agent.estimate), flows)
        return FlowBody(told.intervals, float(told.estimate), flows)

    def decode(self, record: Record, exchange: int) -> Any:
        body = record.body
        if not isinstance(body, FlowBody) or self.me not in body.flows:
            return NO_MESSAGE
        flow = body.flows[self.me]
        return (
            PARTED if math.isnan(flow) else FlowMessage(body.intervals, self.agent.place.exchange(body.estimate), flow)
        )

    def accept(self, record: Record, t: int) -> Record | None:
        body = record.body
        fits = isinstance(body, FlowBody) and _fits(self.agent, record, body)
        return record if fits else None

    def bounded(self, inbox: dict[str, Any]) -> dict[str, Any]:
        number = self.agent.place.exchange
        center, radius = own_interval(self.agent)
        out = {}
        for b, message in inbox.items():
            if message is not PARTED:
                estimate = near(float(message.estimate), center, radius)
                message = FlowMessage(message.intervals, number(estimate), near(message.flow, 0.0, MAX_FLOW * radius))
            out[b] = message
        return out

    def end_tick(self, fresh: Mapping[str, Record], cut: bool) -> None:
        agent = self.agent
        center, radius = own_interval(agent)
        agent.flows = {b: near(flow, 0.0, MAX_FLOW * radius) for b, flow in agent.flows.items()}
        agent.estimate = near(agent.estimate, center, radius)


class CensusAdapter(Adapter):
    """The census: bin masses, and the census and round they belong to."""

    gateway = "colme.node.gateway:GatewayAdapter"
    agent: CensusAgent

    @classmethod
    def device_agent(cls, method: Any, place: Place) -> Agent:
        return AsynchronousCensusAgent(method, place)

    @classmethod
    def most_items(cls, max_neighbors: int) -> int:
        return MOST_ITEMS

    def resume(self, names: list[str]) -> None:
        super().resume(names)
        self.agent.resume()  # type: ignore[attr-defined]  # only on devices

    def body(self) -> Body:
        message: RoundMessage = self.agent.round_message  # type: ignore[attr-defined]  # only on devices
        return HistogramBody(
            message.number, message.began, message.since, message.round, message.codes, message.values, message.before
        )

    def encode(self, outbox: Mapping[Hashable, Any]) -> Body:
        message: HistogramMessage = next(iter(outbox.values()))
        return HistogramBody(0, 0, 0, 0, message.codes, message.masses, np.zeros_like(message.masses))

    def decode(self, record: Record, exchange: int) -> Any:
        body = record.body
        if not isinstance(body, HistogramBody):
            return NO_MESSAGE
        values, before = (each.astype(self.agent.place.exchange) for each in (body.values, body.before))
        if not isinstance(self.agent, AsynchronousCensusAgent):
            return HistogramMessage(body.codes, values, record.degree)
        return RoundMessage(
            body.codes, values, before, record.degree, body.census, body.began, body.since, body.round, record.epoch
        )

    def accept(self, record: Record, t: int) -> Record | None:
        body = record.body
        fits = isinstance(body, HistogramBody) and all(
            plausible(body.codes, each, self.agent.place.max_ballots) for each in (body.values, body.before)
        )
        return record if fits else None

    def end_tick(self, fresh: Mapping[str, Record], cut: bool) -> None:
        agent = self.agent
        agent.estimate = near(agent.estimate, agent.own_mean, SURPRISE * math.sqrt(agent.noise))

    def interval(self, level: float, variance: float) -> tuple[float, float]:
        """Between the quantiles of the posterior; before the first census Student's, as sigma is not checked yet."""
        agent: AsynchronousCensusAgent = self.agent  # type: ignore[assignment]  # only on devices
        return agent.interval(level) if agent.has_posterior else super().interval(level, variance)


class AnyAdapter(Adapter):
    """Any method: messages of numbers, texts, lists and dictionaries, as MessagePack.

    A message is accepted only if it has the structure of the agent's own last one: the same nesting, lengths, keys and
    types, and no number beyond `LARGEST`. It is then used as it is: nothing here bounds what a false number can do."""

    cuts = True
    hears_cuts = False
    has_interval = False

    def __init__(self, agent: Agent):
        super().__init__(agent)
        if not hasattr(agent, "neighbors"):
            raise NodeError(
                f"{type(agent).__name__} keeps no list of its neighbors, and a node must know them. "
                "Set self.neighbors = list(place.neighbors) in it."
            )
        self.me = name_hash(agent.place.agent)
        self.told: list[Exchange] = []
        self.shapes: list[list[Any]] = []

    @classmethod
    def most_items(cls, max_neighbors: int) -> int:
        return MOST_ITEMS

    def body(self) -> Body:
        return AnyBody(self.told)

    def encode(self, outbox: Mapping[Hashable, Any]) -> Body:
        self.record_outbox(outbox, 0)
        return AnyBody(self.told)

    def record_outbox(self, outbox: Mapping[Hashable, Any], exchange: int) -> None:
        messages = {name_hash(b): _plain(message) for b, message in outbox.items()}
        common = next(iter(messages.values()), None)
        alike = all(message == common for message in messages.values())
        del self.told[exchange:], self.shapes[exchange:]
        self.told.append((common, {}) if alike else (None, messages))
        self.shapes.append([_shape(message) for message in messages.values()])

    def decode(self, record: Record, exchange: int) -> Any:
        body, place = record.body, exchange - record.turn  # where there are barriers, each exchange has a record
        if not isinstance(body, AnyBody) or not 0 <= place < min(len(body.exchanges), len(self.shapes)):
            return NO_MESSAGE
        common, own = body.exchanges[place]
        message = own.get(self.me, common)
        return message if _shape(message) in self.shapes[place] else WRONG_SHAPE

    def accept(self, record: Record, t: int) -> Record | None:
        return record if isinstance(record.body, AnyBody) else None


class GuardedAdapter(Adapter):
    """The adapter of any method, for its agents with a guard around them."""

    votes = True
    saved = ("inner",)

    def __init__(self, agent: GuardedAgent, inner: Adapter):
        super().__init__(agent)
        self.inner, self.n_sums = inner, agent.judgment.own.shape[1]
        self.once, self.cuts, self.hears_cuts = inner.once, inner.cuts, inner.hears_cuts  # type: ignore[misc]

    @property
    def neighbors(self) -> list[Any]:
        return self.inner.neighbors

    def add_neighbor(self, name: str) -> None:
        self.inner.add_neighbor(name)

    def remove_neighbor(self, name: str) -> None:
        self.inner.remove_neighbor(name)

    def resume(self, names: list[str]) -> None:
        self.inner.resume(names)
        self.agent.resume()

    def observe(self, sample: float) -> None:
        t = self.agent.t
        self.agent.observe(sample)
        self.agent.t = self.agent.inner.t = t

    def body(self) -> Body:
        message: SumsRound = self.agent.judgment.message
        return GuardedBody(
            self.inner.body(), message.number, message.began, message.since, message.round,  # type: ignore[arg-type]
            message.degree, _all_sums(message.values), _all_sums(message.before),
        )  # fmt: skip

    def encode(self, outbox: Mapping[Hashable, Any]) -> Body:
        message = next(iter(outbox.values()))
        if isinstance(message, SumsMessage):
            return GuardedBody(None, 0, 0, 0, 0, message.degree, _all_sums(message.sums), np.zeros(INTERVAL_SUMS))
        return self.inner.encode(outbox)

    def record_outbox(self, outbox: Mapping[Hashable, Any], exchange: int) -> None:
        self.inner.record_outbox(outbox, exchange)

    def decode(self, record: Record, exchange: int) -> Any:
        body = record.body
        if not isinstance(body, GuardedBody):
            return self.inner.decode(record, exchange)
        if not isinstance(self.agent, AsynchronousGuardedAgent):
            return SumsMessage(body.values[: self.n_sums], body.degree)
        return self.inner.decode(without_guard(record), exchange)

    def accept(self, record: Record, t: int) -> Record | None:
        """A neighbor without a guard is heard, but does not vote."""
        told, body = self.inner.accept(without_guard(record), t), record.body
        if told is None or not isinstance(body, GuardedBody):
            return told
        return msgspec.structs.replace(told, body=msgspec.structs.replace(body, inner=told.body))

    def accept_vote(self, record: Record) -> Record | None:
        return record if isinstance(record.body, GuardedBody) else None

    def bounded(self, inbox: dict[str, Any]) -> dict[str, Any]:
        return self.inner.bounded(inbox)

    def end_tick(self, fresh: Mapping[str, Record], cut: bool) -> None:
        self.inner.end_tick({b: without_guard(record) for b, record in fresh.items()}, cut)

    def vote(self, fresh: Mapping[str, Record], degree: int) -> None:
        heard = {}
        for b, record in sorted(fresh.items()):
            body = record.body
            if not isinstance(body, GuardedBody):
                degree -= 1
                continue
            values, before = body.values[: self.n_sums], body.before[: self.n_sums]
            heard[b] = SumsRound(
                values, before, body.degree, body.vote, body.began, body.since, body.round, record.epoch
            )
        self.agent.vote(heard, degree)

    def interval(self, level: float, variance: float) -> tuple[float, float]:
        """The method's interval, guarded: see `colme.guard.Judgment.interval`."""
        judgment: AsynchronousJudgment = self.agent.judgment
        square = judgment.square.copy()
        judgment.square[:] = variance * np.maximum(self.agent.inner.own_count - 1, 1)
        with np.errstate(over="ignore", invalid="ignore"):  # infinite ends of no weight
            lower, upper = judgment.interval(*self.inner.interval(level, variance), level)
        judgment.square[:] = square  # finite
        return like(self.agent.mean, lower), like(self.agent.mean, upper)


def _fits(agent: IntervalAgent, record: Record, body: ConsensusBody | FlowBody) -> bool:
    """An honest agent could have sent this: its intervals can be compared with the agent's, the mean of its samples is
    a number, and its estimate and flows are within its own bounds."""
    if not agent.understands(body.intervals):
        return False
    statistics = agent.statistics or [MEAN]
    if record.count > 0 and MEAN in statistics and math.isnan(body.intervals[statistics.index(MEAN)][0]):
        return False
    most = SLACK * claimed_radius(agent, record.count, body.intervals)
    flows = body.flows.values() if isinstance(body, FlowBody) else ()
    return not (abs(body.estimate - record.mean) > most or any(abs(flow) > MAX_FLOW * most for flow in flows))


def _all_sums(sums: Any) -> Any:
    """As many sums as a record has; the missing ones are zero."""
    return np.concatenate([sums, np.zeros(INTERVAL_SUMS - len(sums))])


def without_guard(record: Record) -> Record:
    """The record of a guarded agent, as that of the agent inside; others as they are."""
    body = record.body
    return msgspec.structs.replace(record, body=body.inner) if isinstance(body, GuardedBody) else record


def _plain(message: Any) -> Any:
    """A message as MessagePack returns it: lists for tuples, plain numbers for NumPy's."""
    if isinstance(message, np.generic):
        return message.item()
    if isinstance(message, np.ndarray | list | tuple):
        return [_plain(each) for each in message]
    if isinstance(message, dict):
        return {str(key): _plain(each) for key, each in message.items()}
    if message is None or isinstance(message, bool | int | float | str):
        return message
    raise NodeError(
        f"a message holds {shorten(message)}: on a node it must consist of numbers, texts, lists and dictionaries. "
        "Convert it, or name a message_adapter."
    )


def _shape(message: Any) -> Any:
    """The structure of a message; no two messages with a number out of range have the same."""
    if isinstance(message, list):
        return [_shape(each) for each in message]
    if isinstance(message, dict):
        return {key: _shape(each) for key, each in message.items()}
    if isinstance(message, int | float) and not isinstance(message, bool):
        return "number" if message != message or abs(message) <= LARGEST or abs(message) == math.inf else object()
    return type(message).__name__


def adapter_of(method: Method, agent: Agent) -> Adapter:
    """The adapter for an agent of this method, or a refusal."""
    kind = _adapter_class(method)
    return GuardedAdapter(agent, kind(agent.inner)) if isinstance(agent, GuardedAgent) else kind(agent)


def device_agent(method: Method, place: Place, *, gateway: bool = False) -> tuple[Agent, Adapter]:
    """The agent of a method for a device, where there is no common tick, and its adapter; or those of a gateway."""
    kind = _adapter_class(method)
    if gateway:
        if kind.gateway is None:
            raise NodeError(f"[gateway] with {method!r}: many local agents vote in a census. Try method = 'census'.")
        kind = named(kind.gateway)
    agent = kind.device_agent(method, place)
    if not getattr(method, "guard", False):
        return agent, kind(agent)
    guarded = AsynchronousGuardedAgent(cast(GuardedMethod, method), agent)
    return guarded, GuardedAdapter(guarded, kind(agent))


def most_items(method: Method, max_neighbors: int) -> int:
    """Items in a record of this method, at most."""
    return _adapter_class(method).most_items(max_neighbors)


def _adapter_class(method: Method) -> type[Adapter]:
    if method.message_adapter is None:
        raise NodeError(
            f"{method!r} cannot run on a node: its agents must talk to others than their neighbors, or step together. "
            "Try CLColME(), CColME(), Census() or Local()."
        )
    kind: type[Adapter] = named(method.message_adapter)
    return kind


def check_device_step(method: Any, degree: int) -> None:
    """Without a common tick, the step b of the consensus must be at most 1 / degree: then estimates are averages of
    what was received, however old, and flows are stable at any delay (docs/developer/node.md)."""
    step = method.step_size(1.0 / degree)
    if not method.metropolis and step * degree > 1.0 + 1e-9:
        raise MethodError(
            f"step={step:g} with up to {degree} neighbors: without a common tick it must be at most 1 / degree. "
            "Try step='auto'."
        )
