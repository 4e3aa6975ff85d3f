"""What a method is: its configuration, and the two forms in which it runs.

A `Method` is a frozen configuration that also says what the method can do. It runs in two ways, from the same
equations:

``method.start(world, graph)``  all agents in one array: a `State` whose `step(world)` advances all of them
``method.agent(place)``         one agent: its `step(sample)` is a generator that yields messages and receives answers

One of the two is enough: without an array form, simulations run one agent object per agent. `World` is what the engine
provides to an array; `Place` is what a device knows about its place in the network.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colme._core import random
from colme._core.edges import Edges, Neighbors, ReferenceMeans
from colme._core.team import Neighborhood, Team
from colme.errors import MethodError
from colme.graphs import Graph
from colme.metrics import measured
from colme.moments import Moments
from colme.noise import INDEPENDENT, Factors
from colme.samples import running_mean
from colme.support.arrays import Array, Floats, Mask
from colme.support.structs import Configuration

Inbox = dict[Hashable, Any]
"""Messages by sender."""
Round = Generator[dict[Hashable, Any], Inbox, None]
"""A step of an agent: every `yield outbox` is one exchange of messages and returns the inbox."""

LOOKS = ("equal", "common", "separate")
"""Which numbers of samples the two ends of an edge compare when they decide whether to cut it.

"equal"     all agents have equally many at every step, and one sigma
"common"    counts differ, but both ends compare the same two, as in a simulation with gaps
"separate"  each end compares its own with the last that it heard, as on devices"""

EVERYONE = "everyone"
"""An address that only a simulation can serve: the message reaches every agent, neighbor or not."""


def arrived(seed: int, t: int, n_slots: int, loss: float, first: int = 0) -> Mask:
    """Which messages of step t arrive, in the slots first, first + 1, .., if each gets lost with this probability."""
    before = first % 64  # words begin at a multiple of 64
    words = random.words(seed, random.LOSS, t, first=first - before, n=before + n_slots)
    return np.asarray(random.uniform(words[before:]) >= loss)


@dataclass
class World:
    """Everything the agents of an array share: who they are, and what they have seen up to step t (centered).

    >>> world = World(class_=np.zeros(3), sigma=1.0, width=None, mean=np.array([1.0, 2.0, 3.0]), count=None, t=4)
    >>> world.n_agents, world.counts.tolist()
    (3, [4, 4, 4])

    See also: State, Place
    """

    class_: Array  # true classes, for metrics and for the oracle; zeros if they are not known
    sigma: Any  # known scale: a float, one per agent, or None
    width: float | None  # length of an interval that holds all samples of an agent
    mean: Floats  # local means; NaN before an agent's first sample
    count: NDArray[np.int32] | None  # samples per agent; None: all have t
    classes_known: bool = True
    kurtosis: float = 3.0  # of the samples, as far as it is known
    exchange: type = np.float32  # the type in which neighbors hear estimates
    truth: Floats | None = None  # true means at step t, for metrics; None if they are not known
    tolerance: float = 0.1  # an error beyond it counts
    recorded: bool = True  # whether the metrics of this step are
    loss: float = 0.0  # probability that a message does not arrive
    seed: int = 0  # of what gets lost
    t: int = 0
    moments: Moments | None = None  # of the samples, where a method needs them
    draw: Callable[[int], Floats] | None = None  # the samples of a step
    errors: Any = None  # what measures errors against the true means (`colme.sim.sampling.Errors`)
    independent: bool = True  # whether the samples of an agent are, or no method asks
    factors: Factors = INDEPENDENT  # of the variances of means at step t, where samples depend on each other
    hood: Neighborhood = None  # type: ignore[assignment]  # where to find numbers of neighbors; None: here are all agents

    def __post_init__(self) -> None:
        if self.hood is None:
            self.hood = Neighborhood(len(self.mean))
        self.team: Team = self.hood.team
        if self.team.size > 1:  # neighbors at other workers must see the means, too
            self._all_means = self.hood.array(np.float64, math.nan)
            self.hood.mine(self._all_means)[:] = self.mean
            self.mean = self.hood.mine(self._all_means)
        self.n_agents = len(self.mean)
        """Own agents: those of this worker, if a team shares the run (`colme._core.team`)."""
        self.reference = ReferenceMeans(self.hood)
        self.unit = 1.0 if self.sigma is None else float(self.team.greatest(np.max(self.sigma, initial=0.0)))
        """A scale that all agents know: the largest sigma, or 1 where none is known."""
        self.looks = "equal" if self.count is None and np.ndim(self.sigma) == 0 else "common"
        """See `LOOKS`."""
        self.gaps = None if self.count is None else True
        """True if some agent may have no sample yet; None, which kernels compile away, if that cannot be."""
        self._first_slot: int | None = None

    @property
    def seen_mean(self) -> Floats:
        """The local means of all visible agents."""
        return self.mean if self.team.size == 1 else self._all_means

    def arrived(self, n_slots: int) -> Mask | None:
        """Which messages of this step arrive, slot by slot of the graph's rows (from the neighbor in the slot to the
        agent of the row); None: all."""
        if self.loss == 0.0:
            return None
        if self._first_slot is None:  # the slots of the workers before; all methods of a run have the same graph
            self._first_slot = int(self.team.gather(np.array([n_slots]))[: self.team.rank].sum())
        return arrived(self.seed, self.t, n_slots, self.loss, self._first_slot)

    @property
    def newest(self) -> Floats:
        """The sample of each agent at step t; NaN where it has none."""
        if self.draw is None:
            raise MethodError("this world has no samples of single steps: it only holds means. Pass draw=... to World.")
        return self.draw(self.t)

    @property
    def n_samples(self) -> int | NDArray[np.int32]:
        """Samples per agent: one number where all agents have equally many."""
        return self.t if self.count is None else self.count

    @property
    def counts(self) -> NDArray[np.int32]:
        """Samples per agent, as an array."""
        return np.full(self.n_agents, self.t, np.int32) if self.count is None else self.count


@dataclass(frozen=True)
class Place:
    """What one agent knows about where it stands.

    >>> place = Place(agent="pi-1", neighbors=("pi-2", "pi-3"), n_agents=3, n_edges=3, auto_step=0.5, sigma=2.0)
    >>> place.neighbors
    ('pi-2', 'pi-3')

    See also: Agent, World
    """

    agent: Any  # a number in simulations, a name on devices
    neighbors: tuple[Hashable, ...]  # in the order in which they are added up
    n_agents: int
    n_edges: int
    auto_step: float  # the step of step="auto", see `colme.consensus.stable_step`
    sigma: float | None
    width: float | None = None
    kurtosis: float = 3.0
    exchange: type = np.float32
    unit: float = 1.0  # a scale that all agents know, for example the largest sigma
    class_: int | None = None  # the true class, for the oracle only
    heard: tuple[float, ...] | None = None  # agents heard of in 1, 2, .. rounds of gossip (`colme.gossip.agents_heard`)
    max_degree: int = 0  # in the graph; 0: that of a regular graph of so many agents and edges
    max_ballots: int = 1  # that a node may cast in a census: its local agents, see `colme.node.gateway`
    looks: str = "separate"  # which counts the two ends of an edge compare, see `LOOKS`
    independent: bool = False  # whether the samples of an agent are known to be independent


class State(ABC):
    """The array form of a method between two steps. A subclass must have `step`; the defaults are those of a method
    whose agents use no neighbors. `NeighborState` adds a graph.

    >>> import colme
    >>> class HalfState(State):
    ...     def step(self, world):
    ...         self.estimate = world.mean / 2
    >>> class Half(Method, frozen=True, kw_only=True, tag="half"):
    ...     label = "half"
    ...     def start(self, world, graph):
    ...         return HalfState(self, world)
    >>> scenario = colme.Scenario(n_agents=10, means=(0.0,))
    >>> trace = colme.simulate(Half(), scenario, steps=5)
    >>> bool((trace.mse < trace.local_mse).all())
    True

    See also: NeighborState, World, Agent, Method
    """

    saved: ClassVar[tuple[str, ...]] = ("estimate",)
    """Names of the attributes that a checkpoint must keep: arrays, numbers, or objects with `saved` of their own."""

    numbers: float = math.nan
    """Numbers sent to each neighbor per step; NaN: not known."""
    trust: float = math.nan
    """The weight of collaborative estimates, on average, where a guard sets it (`colme.guard`)."""

    estimate: Floats
    """Collaborative estimates; NaN where an agent has none yet. The next step may overwrite the array."""

    edges: Edges
    """The edges that are still used, with their metrics and groups (`colme._core.edges`); at first none."""

    def __init__(self, method: Method, world: World):
        self.method, self.world, self.edges = method, world, Edges(world.hood)

    @abstractmethod
    def step(self, world: World) -> None:
        """Advance all agents; `world` already holds the means and counts of step world.t."""

    def advance(self, world: World, means: Floats, recorded: Mask, out: Floats) -> None:
        """Make steps world.t, world.t + 1, .., one for each row of means; out[i] gets the metrics of row i where it is
        recorded (`colme.metrics.OF_METHOD`). A state that makes many steps in one call, which is faster where agents
        are few, does so here. If there are several rows, every agent has a sample at each."""
        first = world.t
        for row, mean in enumerate(means):
            world.t, world.mean, world.recorded = first + row, mean, bool(recorded[row])
            self.step(world)
            if world.recorded:
                out[row] = measured(self, world)

    def restored(self) -> None:  # noqa: B027  # most states have nothing to do
        """Called after a checkpoint was put back: make anew what `saved` leaves out."""

    posterior: Posterior | None = None
    """What the method knows about each true mean beyond its estimate."""
    variance: Any = math.nan
    """The variance that the method claims for each estimate, where it has a posterior."""
    own_weight: Any = 0.0
    """The slope of each estimate in the own mean, where the method knows it."""

    @property
    def own_mean(self) -> Floats:
        """What each agent would report on its own."""
        return self.world.mean

    @property
    def own_count(self) -> Any:
        """Samples behind `own_mean`."""
        return self.world.n_samples

    def last_graph(self) -> Graph:
        """The edges that are left after the last step; the state gives up what only further steps would need."""
        return self.edges.last_graph()

    @property
    def radius(self) -> Any:
        """Half the width of the interval around each agent's own mean, or one number for all, where the method compares
        intervals; NaN where it does not."""
        return math.nan


class NeighborState(State):
    """A state with graph operations in NumPy (`colme._core.edges`): sums over neighbors, cuts, and their metrics.

    >>> import colme
    >>> class AroundState(NeighborState):
    ...     def step(self, world):
    ...         self.estimate = (world.mean + self.neighbors.sum(world.mean)) / (1 + self.neighbors.degree)
    >>> class Around(Method, frozen=True, kw_only=True, tag="around"):
    ...     label = "around"
    ...     def start(self, world, graph):
    ...         return AroundState(self, world, graph)
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0,))
    >>> trace = colme.simulate(Around(), scenario, degree=4, steps=10)
    >>> bool(trace.mse[-1] < trace.local_mse[-1])
    True

    See also: State, IntervalState, World
    """

    saved = (*State.saved, "edges")

    def __init__(self, method: Method, world: World, graph: Graph):
        super().__init__(method, world)
        self.edges = self.neighbors = Neighbors(graph, world.class_)
        self.estimate = np.full(world.n_agents, np.nan)


class Intervals(NamedTuple):
    """Posterior intervals."""

    probability: Floats
    """That the agent belongs to its group."""
    lower: Floats
    upper: Floats
    """The true mean lies between them with the probability that was asked for."""


class Posterior(ABC):
    """The posterior distributions of all true means, as of the current step of a `State`."""

    @abstractmethod
    def intervals(self, level: float) -> Intervals:
        """The intervals that hold the true means with this probability."""

    @abstractmethod
    def cdf(self, value: Floats) -> Floats:
        """The probability that each true mean lies below a value; NaN where it is not known."""

    def held(self, truth: Floats, level: float) -> tuple[Mask, Mask]:
        """Which of the intervals hold their true mean, and which agents have one."""
        below = self.cdf(truth)
        return np.abs(below - 0.5) <= 0.5 * level, below == below


class Agent(ABC):
    """The per-agent form of a method: own samples in, messages out and in, an estimate.

    >>> import colme
    >>> class FirstAgent(Agent):
    ...     def step(self, sample):
    ...         self.observe(sample)
    ...         if self.count == 1:
    ...             self.estimate = self.mean
    ...         yield from ()  # it sends nothing
    >>> class First(Method, frozen=True, kw_only=True, tag="first"):
    ...     label = "first sample"
    ...     def agent(self, place):
    ...         return FirstAgent(place)
    >>> colme.simulate(First(), np.array([[1.0, 5.0], [3.0, 9.0]]), degree=1).final.estimate.tolist()
    [1.0, 5.0]

    See also: Place, Method, State, IntervalAgent, lockstep
    """

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

    @property
    def own_mean(self) -> float:
        """What the agent would report on its own."""
        return self.mean

    @property
    def own_count(self) -> int:
        """Samples behind `own_mean`."""
        return self.count

    variance: float = math.nan
    """The variance that the method claims for its estimate, where it has a posterior."""
    own_weight: Any = 0.0
    """The slope of the estimate in the own mean, where the method knows it."""
    factors: Factors = INDEPENDENT
    """Of the variance of the own mean, where samples depend on each other."""

    @abstractmethod
    def step(self, sample: float) -> Round:
        """One step. Yields outboxes {agent: message}; each yield returns the inbox of that exchange."""


class Method(Configuration, frozen=True, kw_only=True, tag_field="method"):
    """The parent of every method's configuration.

    A subclass says here all that the rest of the package needs to know about it. Nothing elsewhere asks for its type.

    >>> import colme
    >>> colme.CLColME(delta=0.01), colme.CLColME().label, isinstance(colme.CLColME(), Method)
    (CLColME(delta=0.01), 'CL-colME', True)

    See also: Agent, State, IntervalMethod, check_method
    """

    refusal = MethodError

    label: ClassVar[str] = "?"
    """The name in tables and figures."""
    color: ClassVar[str | None] = None
    """In figures; None: any that is free."""
    paper: ClassVar[str | None] = None
    """To be cited where the method is used, in BibTeX."""
    baseline: ClassVar[bool] = False
    """Others are compared with it; it uses no neighbors."""
    irrevocable: ClassVar[bool] = True
    """An edge once given up is never used again."""
    cuts_edges: ClassVar[bool] = True
    """Gives up edges. If not, `State.edges` are those between agents that the method puts into one group."""
    by_name: ClassVar[bool] = False
    """Agents query others in the order of their names, whether or not they are neighbors."""
    shared: ClassVar[bool] = False
    """Its array form can be shared by threads or ranks (`colme._core.team`)."""
    tolerates_loss: ClassVar[bool] = False
    """Can be simulated where messages get lost; an array form then asks `World.arrived` which of them arrive."""

    @property
    def citations(self) -> tuple[str, ...]:
        """The papers behind this configuration, in BibTeX."""
        return () if self.paper is None else (self.paper,)

    @property
    def gossip_rounds(self) -> int | str:
        """Rounds of gossip per average, or "auto", for `colme.gossip.Gossip.of`."""
        return "auto"

    @property
    def conserves(self) -> bool:
        """Agents exchange mass: while all local means stay constant, so does the mean of all estimates."""
        return False

    @property
    def needs_moments(self) -> bool:
        """Uses the second to fourth moments of the samples (`World.moments`)."""
        return False

    @property
    def learns_dependence(self) -> bool:
        """Its agents learn how the samples of an agent depend on each other, unless these are independent."""
        return False

    @property
    def unit_matters(self) -> bool:
        """Counts in plain numbers, not in sigma: another unit of the samples, unless a power of two, gives estimates
        that differ by more than rounding."""
        return False

    @property
    def online_rule(self) -> str | None:
        """What learns event by event for `colme.CollaborativeMean`, as "module:class"; None: it cannot."""
        return None

    @property
    def message_adapter(self) -> str | None:
        """What turns the agents' messages into bytes on a node, as "module:class"; None: it cannot run on a node.

        The default carries any message that is made of numbers, texts, lists and dictionaries."""
        return None if self.by_name or self.baseline else "colme.node.messages.adapters:AnyAdapter"

    def check(self, n_agents: int, graph: Graph) -> None:
        """Refuse what cannot work for these agents on this graph, before any work starts."""

    def check_loss(self, loss: float) -> None:
        """Refuse a network that loses messages if the method does not tolerate it."""
        if loss > 0 and not self.tolerates_loss:
            raise MethodError(
                f"loss={loss:g}: {self.label} is simulated on perfect networks only. "
                "Try loss=0, or a method that tolerates loss: Census()."
            )

    def start(self, world: World, graph: Graph) -> State:
        """The array form, before the first step. The default runs one agent object per agent, in lockstep."""
        from colme.lockstep import LockstepState  # it drives agents, which are defined here

        return LockstepState(self, world, graph)

    def agent(self, place: Place) -> Agent:
        """The per-agent form, before the first step."""
        raise MethodError(f"{type(self).__name__} has no per-agent form. Write agent().")

    def guarded_agent(self, place: Place) -> Agent:
        """What runs in lockstep: the per-agent form, inside a guard if the method has one."""
        return self.agent(place)


def named(what: str) -> Any:
    """The class that "module:class" names."""
    module, _, name = what.partition(":")
    return getattr(importlib.import_module(module), name)
