"""Message adapters: how the messages of each method's agents become records, and records messages.

`say` puts an agent's state into a record's body, `said` makes a message of one: so the messages that agents exchange in
lockstep, and those that devices exchange without a common tick, are the same bytes. A method names its adapter
(`Method.message_adapter`); `AnyAdapter` serves methods that have none of their own.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Final

import msgspec
import numpy as np

from colme.census.histogram import plausible
from colme.census.method import CensusAgent, HistogramMessage
from colme.errors import MethodError, NodeError
from colme.method import Agent, Method, Place, named
from colme.methods.consensus import ConsensusAgent, Hello
from colme.methods.flow import FlowAgent, Loan
from colme.methods.intervals import PARTED
from colme.node.asynchronous_census import Poll, RollingCensus
from colme.node.messages.wire import (
    LARGEST,
    MOST_ITEMS,
    AnyBody,
    Body,
    Exchange,
    HelloBody,
    LoansBody,
    Record,
    VotesBody,
    name_hash,
)
from colme.node.security.trust import LENT, PULL, SURPRISE, Restarts, near, own_interval

SILENCE: Final = object()
"""No message: not even the one that says that an edge is cut."""


NOVICE = 16
"""Who has so many times fewer samples is not leaned on, for it would weigh as much as those who know; it leans on them.
Flows, which remember nothing, need nothing of the kind."""


class Adapter:
    """Local: nothing is said but the head of a record."""

    once: ClassVar[bool] = False
    """A record is used at one tick only, not as long as it is fresh."""
    cuts: ClassVar[bool] = False
    """Edges can be given up."""
    hears_cuts: ClassVar[bool] = True
    """Its agents understand `PARTED`; others just lose the neighbor."""
    saved: ClassVar[tuple[str, ...]] = ()
    """What a device must keep beside the agent's own."""

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
        """In the order in which they are added up."""
        return getattr(self.agent, "neighbors", [])

    def meet(self, name: str) -> None:
        """A new neighbor."""
        if hasattr(self.agent, "neighbors"):
            self.agent.neighbors = sorted({*self.agent.neighbors, name})

    def forget(self, name: str) -> None:
        """A neighbor no more."""
        if hasattr(self.agent, "neighbors"):
            self.agent.neighbors = [b for b in self.agent.neighbors if b != name]

    def resume(self, names: list[str]) -> None:
        """After a restart, with these neighbors: not those that are saved but no longer wanted."""
        if hasattr(self.agent, "neighbors"):
            self.agent.neighbors = list(names)

    def state(self) -> Body:
        """What the neighbors should hear now, between two ticks."""
        return None

    def say(self, outbox: Mapping[Hashable, Any]) -> Body:
        """What they hear in one exchange of a step."""
        return None

    def sent(self, outbox: Mapping[Hashable, Any], exchange: int) -> None:
        """What the agent wanted to send in this exchange of a step, without a common tick."""

    def said(self, record: Record, exchange: int) -> Any:
        """The message to me in a record, in this exchange of a step; or SILENCE."""
        return SILENCE

    def heard(self, record: Record, t: int) -> Record | None:
        """Make sense of a record without a common tick, when it is heard at my step t; None if it makes none."""
        return record

    def believed(self, inbox: dict[str, Any]) -> dict[str, Any]:
        """What I believe of the messages in an exchange, without a common tick; see `colme.node.security.trust`."""
        return inbox

    def after(self, used: Mapping[str, Record], cut: bool) -> None:
        """A tick is over that used these records, and cut an edge or did not."""


class ConsensusAdapter(Adapter):
    """CL-colME and C-colME. Steps of others mean nothing without a common tick, so restarts of clocks are counted: a
    restart is news if its generation is, and happened as many of my ticks ago as the sender says of its own."""

    cuts: ClassVar[bool] = True
    saved: ClassVar[tuple[str, ...]] = ("restarts",)
    agent: ConsensusAgent

    def __init__(self, agent: Agent):
        super().__init__(agent)
        self.restarts = Restarts()

    @classmethod
    def device_agent(cls, method: Any, place: Place) -> Agent:
        check_device_step(method, round(1.0 / place.auto_step))
        return super().device_agent(method, place)

    def state(self) -> Body:
        return HelloBody(self.agent.intervals, float(self.agent.estimate), self.agent.restart, self.restarts.generation)

    def say(self, outbox: Mapping[Hashable, Any]) -> Body:
        hello = next(iter(outbox.values()))
        if not isinstance(hello, Hello):
            return None  # degrees, which every head tells
        return HelloBody(hello.intervals, float(hello.estimate), hello.restart)

    def said(self, record: Record, exchange: int) -> Any:
        if exchange == 1:
            return record.degree
        body = record.body
        if not isinstance(body, HelloBody):
            return SILENCE
        return Hello(body.intervals, self.agent.place.exchange(body.estimate), body.restart)

    def heard(self, record: Record, t: int) -> Record | None:
        body = record.body
        if not isinstance(body, HelloBody) or len(body.intervals) != self.agent.n_intervals:
            return None
        estimate = body.estimate if record.count * NOVICE >= self.agent.count else math.nan
        generation, restart = self.restarts.told(body.generation, max(record.epoch - body.restart, 0), t)
        told = HelloBody(body.intervals, estimate, restart, generation)
        return msgspec.structs.replace(record, body=told)

    def believed(self, inbox: dict[str, Any]) -> dict[str, Any]:
        agent, number = self.agent, self.agent.place.exchange
        center, radius = own_interval(agent)
        most = PULL * (1.0 - agent.clock.rate(agent.t, agent.restart)) * radius
        out = {}
        for b, hello in inbox.items():
            if isinstance(hello, Hello):
                estimate = near(near(float(hello.estimate), float(agent.estimate), most), center, radius)
                hello = Hello(hello.intervals, number(estimate), hello.restart)
            out[b] = hello
        return out

    def after(self, used: Mapping[str, Record], cut: bool) -> None:
        agent = self.agent
        told = [record.body for record in used.values() if isinstance(record.body, HelloBody)]
        self.restarts.after([(body.generation, body.restart) for body in told], agent.t, cut)
        agent.estimate = near(agent.estimate, *own_interval(agent))


class FlowAdapter(Adapter):
    """CL-colME by flows: what each neighbor has lent stands in the same record, so it fits the estimate beside it."""

    once: ClassVar[bool] = True
    cuts: ClassVar[bool] = True
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

    def meet(self, name: str) -> None:
        self.agent.flows = dict(sorted({name: 0.0, **self.agent.flows}.items(), key=lambda item: str(item[0])))

    def forget(self, name: str) -> None:
        self.agent.flows.pop(name, None)

    def resume(self, names: list[str]) -> None:
        self.agent.flows = {b: self.agent.flows.get(b, 0.0) for b in names}

    def state(self) -> Body:
        flows = {name_hash(b): flow for b, flow in self.agent.flows.items()}
        return LoansBody(self.agent.intervals, float(self.agent.estimate), flows)

    def say(self, outbox: Mapping[Hashable, Any]) -> Body:
        loans = {name_hash(b): math.nan if loan is PARTED else loan.flow for b, loan in outbox.items()}
        told = next((loan for loan in outbox.values() if loan is not PARTED), None)
        if told is None:
            return LoansBody(self.agent.intervals, float(self.agent.estimate), loans)
        return LoansBody(told.intervals, float(told.estimate), loans)

    def said(self, record: Record, exchange: int) -> Any:
        body = record.body
        if not isinstance(body, LoansBody) or self.me not in body.flows:
            return SILENCE
        flow = body.flows[self.me]
        return PARTED if math.isnan(flow) else Loan(body.intervals, self.agent.place.exchange(body.estimate), flow)

    def heard(self, record: Record, t: int) -> Record | None:
        body = record.body
        fits = isinstance(body, LoansBody) and len(body.intervals) == self.agent.n_intervals
        return record if fits else None

    def believed(self, inbox: dict[str, Any]) -> dict[str, Any]:
        number = self.agent.place.exchange
        center, radius = own_interval(self.agent)
        out = {}
        for b, loan in inbox.items():
            if loan is not PARTED:
                estimate = near(float(loan.estimate), center, radius)
                loan = Loan(loan.intervals, number(estimate), near(loan.flow, 0.0, LENT * radius))
            out[b] = loan
        return out

    def after(self, used: Mapping[str, Record], cut: bool) -> None:
        agent = self.agent
        center, radius = own_interval(agent)
        agent.flows = {b: near(flow, 0.0, LENT * radius) for b, flow in agent.flows.items()}
        agent.estimate = near(agent.estimate, center, radius)


class CensusAdapter(Adapter):
    """The census: votes, and which census they are for."""

    agent: CensusAgent

    @classmethod
    def device_agent(cls, method: Any, place: Place) -> Agent:
        return RollingCensus(method, place)

    @classmethod
    def most_items(cls, max_neighbors: int) -> int:
        return MOST_ITEMS

    def resume(self, names: list[str]) -> None:
        super().resume(names)
        self.agent.resume()  # type: ignore[attr-defined]  # only devices ask

    def state(self) -> Body:
        poll: Poll = self.agent.poll  # type: ignore[attr-defined]  # only devices ask
        return VotesBody(poll.census, poll.began, poll.since, poll.round, poll.codes, poll.values, poll.before)

    def say(self, outbox: Mapping[Hashable, Any]) -> Body:
        message: HistogramMessage = next(iter(outbox.values()))
        return VotesBody(0, 0, 0, 0, message.codes, message.masses, np.zeros_like(message.masses))

    def said(self, record: Record, exchange: int) -> Any:
        body = record.body
        if not isinstance(body, VotesBody):
            return SILENCE
        values, before = (each.astype(self.agent.place.exchange) for each in (body.values, body.before))
        if not isinstance(self.agent, RollingCensus):
            return HistogramMessage(body.codes, values, record.degree)
        return Poll(
            body.codes, values, before, record.degree, body.census, body.began, body.since, body.round, record.epoch
        )

    def heard(self, record: Record, t: int) -> Record | None:
        body = record.body
        fits = isinstance(body, VotesBody) and all(plausible(body.codes, each) for each in (body.values, body.before))
        return record if fits else None

    def after(self, used: Mapping[str, Record], cut: bool) -> None:
        agent = self.agent
        agent.estimate = near(agent.estimate, agent.current_mean, SURPRISE * math.sqrt(agent.noise))


class AnyAdapter(Adapter):
    """Any method: messages of numbers, texts, lists and dictionaries, as MessagePack.

    A message is accepted only if it has the structure of the agent's own last one: the same nesting, lengths, keys and
    types, and no number beyond `LARGEST`. It is then used as it is: nothing here bounds what a false number can do."""

    cuts: ClassVar[bool] = True
    hears_cuts: ClassVar[bool] = False

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

    def state(self) -> Body:
        return AnyBody(self.told)

    def say(self, outbox: Mapping[Hashable, Any]) -> Body:
        self.sent(outbox, 0)
        return AnyBody(self.told)

    def sent(self, outbox: Mapping[Hashable, Any], exchange: int) -> None:
        messages = {name_hash(b): _plain(message) for b, message in outbox.items()}
        common = next(iter(messages.values()), None)
        alike = all(message == common for message in messages.values())
        del self.told[exchange:], self.shapes[exchange:]
        self.told.append((common, {}) if alike else (None, messages))
        self.shapes.append([_shape(message) for message in messages.values()])

    def said(self, record: Record, exchange: int) -> Any:
        body, place = record.body, exchange - record.turn  # where there are barriers, each exchange has a record
        if not isinstance(body, AnyBody) or not 0 <= place < min(len(body.exchanges), len(self.shapes)):
            return SILENCE
        common, own = body.exchanges[place]
        message = own.get(self.me, common)
        return message if _shape(message) in self.shapes[place] else SILENCE

    def heard(self, record: Record, t: int) -> Record | None:
        return record if isinstance(record.body, AnyBody) else None


def _plain(message: Any) -> Any:
    """A message as MessagePack returns it: lists for tuples, plain numbers for NumPy's."""
    if isinstance(message, np.generic):
        return message.item()
    if isinstance(message, np.ndarray | list | tuple):
        return [_plain(each) for each in message]
    if isinstance(message, dict):
        return {str(key): _plain(each) for key, each in message.items()}
    return message


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
    adapter: Adapter = _adapter_class(method)(agent)
    return adapter


def device_agent(method: Method, place: Place) -> tuple[Agent, Adapter]:
    """The agent of a method for a device, where there is no common tick, and its adapter."""
    kind = _adapter_class(method)
    agent = kind.device_agent(method, place)
    return agent, kind(agent)


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
    """Without a common tick a step b of consensus must be at most 1 / degree: then estimates lean towards averages of
    what was heard, however old, and flows are stable at any delay (docs/developer/node.md)."""
    step = method.step_size(1.0 / degree)
    if not method.metropolis and step * degree > 1.0 + 1e-9:
        raise MethodError(
            f"step={step:g} with up to {degree} neighbors: without a common tick it must be at most 1 / degree. "
            "Try step='auto'."
        )
