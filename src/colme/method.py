"""What a method is.

A `Method` is a frozen configuration. It can run in two ways, from the same equations:

``method.start(world, graph)``  all agents in one array: a `State` whose `step(world)` advances everybody
``method.agent(place)``         one agent: its `step(sample)` is a generator that yields messages and gets answers

`World` is what the engine tells an array; `Place` is what a device knows about where it stands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from colme._core import random
from colme._core.lazy_pruning import ReferenceMeans
from colme._core.structs import Configuration
from colme.errors import ColmeError, MethodError
from colme.graphs import Graph
from colme.moments import Moments
from colme.samples import running_mean

Inbox = dict[Hashable, Any]
"""Who said what."""
Round = Generator[dict[Hashable, Any], Inbox, None]
"""A step of an agent: every `yield outbox` is one exchange of messages and returns the inbox."""

EVERYONE = "everyone"
"""An address that only a simulation can serve: the message reaches every agent, neighbor or not."""


def arrived(seed: int, t: int, n_slots: int, loss: float) -> NDArray[np.bool_]:
    """Which messages of step t arrive if each gets lost with this probability."""
    return np.asarray(random.uniform(random.words(seed, random.LOSS, t, n=n_slots)) >= loss)


@dataclass
class World:
    """Everything the agents of an array share: who they are, and what they have seen up to step t (centered)."""

    class_: NDArray[Any]  # true classes, for judging and for the oracle; zeros if they are not known
    sigma: Any  # known scale: a float, one per agent, or None
    width: float | None  # length of an interval that holds all samples of an agent
    mean: NDArray[np.float64]  # local means; NaN before an agent's first sample
    count: NDArray[np.int32] | None  # samples per agent; None: everybody has t
    classes_known: bool = True
    kurtosis: float = 3.0  # of the samples, as far as it is known
    exchange: type = np.float32  # the type in which neighbors hear estimates
    truth: NDArray[np.float64] | None = None  # true means at step t, for judging; None if they are not known
    tolerance: float = 0.1  # an error beyond it counts
    loss: float = 0.0  # probability that a message does not arrive
    seed: int = 0  # of what gets lost
    t: int = 0
    moments: Moments | None = None  # of the samples, where a method needs them

    def __post_init__(self) -> None:
        self.reference = ReferenceMeans(len(self.mean))

    @property
    def n_agents(self) -> int:
        return len(self.mean)

    def arrived(self, n_slots: int) -> NDArray[np.bool_] | None:
        """Which messages of this step arrive, slot by slot of the graph's rows (from the neighbor in the slot to the
        agent of the row); None: all."""
        return None if self.loss == 0.0 else arrived(self.seed, self.t, n_slots, self.loss)

    @property
    def samples(self) -> int | NDArray[np.int32]:
        """Samples per agent: one number where everybody has as many."""
        return self.t if self.count is None else self.count

    @property
    def counts(self) -> NDArray[np.int32]:
        """Samples of every agent."""
        return np.full(self.n_agents, self.t, np.int32) if self.count is None else self.count

    @property
    def unit(self) -> float:
        """A scale that all agents know: the largest sigma, or 1 where none is known."""
        return 1.0 if self.sigma is None else float(np.max(self.sigma))

    @property
    def gaps(self) -> bool | None:
        """True if some agent may have no sample yet; None, which kernels compile away, if that cannot be."""
        return None if self.count is None else True


@dataclass(frozen=True)
class Place:
    """What one agent knows about where it stands."""

    agent: Any  # a number in simulations, a name on devices
    neighbors: tuple[Hashable, ...]  # in the order in which they are added up
    n_agents: int
    n_edges: int
    auto_step: float  # the step of step="auto", see `colme.spectrum.stable_step`
    sigma: float | None
    width: float | None = None
    kurtosis: float = 3.0
    exchange: type = np.float32
    unit: float = 1.0  # a scale that all agents know, for example the largest sigma
    class_: int | None = None  # the true class, told to nobody but the oracle


class State(Protocol):
    """The array form of a method between two steps."""

    saved: ClassVar[tuple[str, ...]]
    """Names of the attributes that a checkpoint must keep: arrays, numbers, or objects with `saved` of their own."""

    @property
    def estimate(self) -> NDArray[np.float64]:
        """Collaborative estimates; NaN where an agent has none yet."""

    def step(self, world: World) -> None:
        """Advance everybody; `world` already holds the means and counts of step world.t."""

    @property
    def wrong_share(self) -> float:
        """Share of links between classes still believed."""

    @property
    def lost_share(self) -> float:
        """Share of links within a class no longer believed."""

    @property
    def isolated(self) -> int:
        """Agents who believe nobody else."""

    def graph(self) -> Graph:
        """Whom everybody believes now."""

    def groups(self, graph: Graph) -> NDArray[np.int64]:
        """The group that each agent finds itself in, numbered from 0; `graph` is what graph() returned."""


class Marching(Protocol):
    """A state that can make many steps in one go, which is faster where agents are few."""

    def advance(self, world: World, means: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Steps world.t, world.t + 1, ..: as many as there are rows of means; everybody has a sample at each, unless it
        is only one. out[i] gets the metrics of each (`colme.metrics.OF_METHOD`)."""


class Agent(ABC):
    """The per-agent form of a method: own samples in, messages out and in, an estimate."""

    saved: ClassVar[tuple[str, ...]] = ("t", "count", "mean", "estimate")
    """Names of the attributes that a device must keep to go on after a restart."""

    def __init__(self, place: Place):
        self.place = place
        self.t = 0
        self.count = 0
        self.mean = float("nan")
        self.estimate = float("nan")

    def observe(self, sample: float) -> None:
        """A new step begins; NaN means that it brings no sample."""
        self.t += 1
        if sample == sample:
            self.count += 1
            self.mean = running_mean(self.mean, sample, self.count)

    @abstractmethod
    def step(self, sample: float) -> Round:
        """One step. Yields outboxes {agent: message}; each yield returns the inbox of that exchange."""


class Method(Configuration, frozen=True, kw_only=True, tag_field="method"):
    """The parent of every method's configuration."""

    refusal: ClassVar[type[ColmeError]] = MethodError

    label: ClassVar[str] = "?"
    """The name in tables and figures."""
    irrevocable: ClassVar[bool] = True
    """Links once given up are never taken up again."""
    goes_round: ClassVar[bool] = False
    """Asks others in the order of their names, whether or not they are neighbors."""
    bears_loss: ClassVar[bool] = False
    """Can be simulated where messages get lost."""
    conserves: ClassVar[bool] = False
    """Agents exchange mass: where all local means stay put, so does the mean of all estimates."""

    @property
    def needs_moments(self) -> bool:
        """Wants to know how the samples spread (`World.moments`)."""
        return False

    @property
    def counts_in_ones(self) -> bool:
        """Counts in plain numbers, not in sigma: another unit of the samples, but for powers of two, gives estimates
        that differ by more than rounding."""
        return False

    def check(self, n_agents: int, graph: Graph) -> None:
        """Refuse what cannot work for these agents on this graph, before any work starts."""

    def start(self, world: World, graph: Graph) -> State:
        """The array form, before the first step."""
        raise MethodError(f"{type(self).__name__} has no array form: it cannot be simulated. Write start().")

    def agent(self, place: Place) -> Agent:
        """The per-agent form, before the first step."""
        raise MethodError(f"{type(self).__name__} has no per-agent form: no device can run it. Write agent().")
