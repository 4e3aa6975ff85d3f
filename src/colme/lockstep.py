"""Agents in lockstep: the per-agent form of a method, driven exchange by exchange, with a barrier after each.

The network is perfect, or loses what a simulation with the same seed loses: the same estimates as the array engine's,
to the bit. `colme.node.net.memory` does the same over bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from colme.consensus import stable_step
from colme.dependence import DependentAgent
from colme.errors import MethodError, shorten
from colme.gossip import Gossip, agents_heard
from colme.graphs import Graph
from colme.method import EVERYONE, Agent, Inbox, Method, NeighborState, Place, World, arrived
from colme.noise import Factors
from colme.support.arrays import Array, Floats, Integers

Outboxes = dict[Any, dict[Hashable, Any]]
Carrier = Callable[[Outboxes, int], Mapping[Any, Inbox]]
"""Brings outboxes, sender by sender, to inboxes, in the exchange of this number within a step."""


def lockstep(
    method: Method,
    samples: Floats,
    graph: Graph,
    *,
    sigma: Any = None,
    width: float | None = None,
    classes: Array | None = None,
    exchange: type = np.float32,
    loss: float = 0.0,
    seed: int = 0,
    independent: bool = False,
) -> Floats:
    """Estimates (steps, agents) of one agent object per agent that exchange messages over the graph, nothing else.

    Every message arrives in the exchange in which it was sent, or never: with loss, the very messages get lost that a
    simulation with this seed loses. Messages to EVERYONE, which no real network could carry or lose, reach all agents
    in the order of their names.

    method    a method with a per-agent form
    samples   (steps, agents); NaN: no sample
    graph     the `Graph` that they start on
    sigma     the scale that the agents know
    width     length of an interval that holds every sample of an agent
    classes   true classes, for the oracle
    exchange  the type in which neighbors hear estimates
    loss      the probability that a message gets lost
    seed      of what gets lost
    independent  whether the samples of an agent are known to be independent

    >>> import colme
    >>> from colme.graphs import complete_graph
    >>> samples = np.array([[1.0, 3.0], [3.0, 5.0]])
    >>> lockstep(colme.CLColME(sigma=1.0), samples, complete_graph(2)).round(2).tolist()
    [[1.0, 3.0], [2.0, 3.0]]

    See also: check_method, Agent, simulate
    """
    agents = agents_of(
        method, graph, sigma=sigma, width=width, classes=classes, exchange=exchange,
        gaps=bool(np.isnan(samples).any()), independent=independent,
    )  # fmt: skip
    estimates = np.empty(samples.shape)
    for t, row in enumerate(samples, start=1):
        step_together(agents, row, deliver(agents, lost_messages(graph, seed, t, loss)))
        estimates[t - 1] = [agent.estimate for agent in agents.values()]
    return estimates


def agents_of(
    method: Method,
    graph: Graph,
    *,
    sigma: Any = None,
    width: float | None = None,
    kurtosis: float = 3.0,
    classes: Array | None = None,
    exchange: type = np.float32,
    names: list[Any] | None = None,
    gaps: bool = True,
    guarded: bool = True,
    independent: bool = False,
) -> dict[Any, Agent]:
    """One agent object per agent of the graph, by name (default: its number), inside its guard if `guarded`; without
    gaps, all have a sample at every step."""

    def make(place: Place) -> Agent:
        agent = method.guarded_agent(place) if guarded else method.agent(place)
        if not guarded or independent or not method.learns_dependence:
            return agent
        return DependentAgent(agent)

    looks = "common" if gaps or np.ndim(sigma) else "equal"
    n, auto_step = graph.n_agents, stable_step(graph)
    names = list(range(n)) if names is None else names
    heard = agents_heard(graph, Gossip.of(n, graph.n_edges, auto_step, method.gossip_rounds))
    heard = np.broadcast_to(heard, (len(heard), n))
    sigmas = np.broadcast_to(np.asarray(np.nan if sigma is None else sigma, float), n)
    return {
        names[a]: make(
            Place(
                agent=names[a], neighbors=tuple(names[b] for b in graph.neighbors(a)), n_agents=n,
                n_edges=graph.n_edges, auto_step=auto_step, sigma=None if sigma is None else float(sigmas[a]),
                width=width, kurtosis=kurtosis, exchange=exchange, unit=1.0 if sigma is None else float(sigmas.max()),
                class_=None if classes is None else int(classes[a]), max_degree=graph.max_degree, looks=looks,
                heard=tuple(heard[:, a].tolist()), independent=independent,
            )
        )
        for a in range(n)
    }  # fmt: skip


def step_together(agents: Mapping[Any, Agent], samples: Iterable[float], carry: Carrier) -> None:
    """One step of all agents, with a barrier after each exchange."""
    rounds = {a: agent.step(float(x)) for (a, agent), x in zip(agents.items(), samples, strict=True)}
    for a, steps in rounds.items():
        if not isinstance(steps, Generator):
            raise MethodError(
                f"{type(agents[a]).__name__}.step returned {shorten(steps)}: it must be a generator with a yield "
                "for every exchange of messages. Try yield {} where there is nothing to send."
            )
    inboxes: Mapping[Any, Inbox | None] = dict.fromkeys(rounds)
    exchange = 0
    while rounds:
        outboxes: Outboxes = {}
        for a in list(rounds):
            try:
                # the first send of a generator must be None; later ones deliver the inbox
                outboxes[a] = rounds[a].send(inboxes[a])  # type: ignore[arg-type]
            except StopIteration:
                del rounds[a]
        inboxes = carry(outboxes, exchange)
        exchange += 1


def lost_messages(graph: Graph, seed: int, t: int, loss: float) -> set[tuple[int, int]]:
    """(from, to) of the messages that get lost at step t."""
    if not loss:
        return set()
    ends = np.stack([graph.indices, graph.owners], axis=1)
    return set(map(tuple, ends[~arrived(seed, t, len(ends), loss)].tolist()))


def deliver(agents: Mapping[Any, Agent], lost: set[tuple[int, int]]) -> Carrier:
    """Carries Python objects from one agent to another, except the lost ones."""

    def carry(outboxes: Outboxes, exchange: int) -> Mapping[Any, Inbox]:
        inboxes: dict[Any, Inbox] = {a: {} for a in agents}
        for a, outbox in outboxes.items():
            for to, message in outbox.items():
                for b in agents if to == EVERYONE else (to,):
                    if to == EVERYONE or (a, b) not in lost:
                        inboxes[b][a] = message
        return inboxes

    return carry


class LockstepState(NeighborState):
    """The array form of a method that has only a per-agent form: one object per agent."""

    saved = (*NeighborState.saved, "agents")

    def __init__(self, method: Method, world: World, graph: Graph):
        super().__init__(method, world, graph)
        self._graph = graph
        self.one_sided = 0  # directed edges that only one end has given up
        self.agents = agents_of(
            method, graph, sigma=world.sigma, width=world.width, kurtosis=world.kurtosis,
            classes=world.class_ if world.classes_known else None, exchange=world.exchange,
            gaps=world.count is not None, guarded=False,
        )  # fmt: skip

    def step(self, world: World) -> None:
        lost = lost_messages(self._graph, world.seed, world.t, world.loss)
        factors = np.broadcast_arrays(*world.factors, self.estimate)[:-1]
        for agent, *each in zip(self.agents.values(), *factors, strict=True):
            agent.factors = Factors(*map(float, each))
        step_together(self.agents, world.newest, deliver(self.agents, lost))
        for a, agent in self.agents.items():
            self.estimate[a] = agent.estimate
        self._keep_common_neighbors()

    @property
    def own_mean(self) -> Floats:
        return np.array([agent.own_mean for agent in self.agents.values()])

    @property
    def own_count(self) -> Integers:
        return np.array([agent.own_count for agent in self.agents.values()])

    def _keep_common_neighbors(self) -> None:
        """An edge is kept as long as both its agents list each other; agents that keep no list keep all edges."""
        lists = {a: set(agent.neighbors) for a, agent in self.agents.items() if hasattr(agent, "neighbors")}
        if lists:
            own, other = self.neighbors.ends(np.arange(self._graph.n_agents))
            pairs = list(zip(own.tolist(), other.tolist(), strict=True))
            mine, theirs = (np.array([each[k] in lists[each[1 - k]] for each in pairs], np.bool_) for k in (1, 0))
            self.one_sided = int((mine != theirs).sum())
            self.neighbors.cut(~(mine & theirs))
