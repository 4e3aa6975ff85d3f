"""`RunSpec`: what a run is. Two runs of equal specs have equal traces, bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import numpy as np
from msgspec.structs import asdict, force_setattr, replace

from colme import graphs
from colme._core import random
from colme.errors import RunError, one_of, positive, shorten, whole
from colme.graphs import DEFAULT_DEGREE, Graph, default_degree, random_regular_graph
from colme.methods import Method
from colme.recording import Recording
from colme.scenario import Scenario, check_seed
from colme.sim.graph_files import digest_of, find_graph, is_graph_file, read_graph
from colme.support.arrays import Array, Integers
from colme.support.structs import Configuration

GraphSource = Graph | Callable[[np.random.Generator], Graph] | str | Any
"""A graph of colme or networkx, a function of an rng, the name of a family, or a file."""
Record = str | int | Sequence[int]

EXCHANGE: dict[str, type] = {"mixed": np.float32, "double": np.float64}
"""The type in which neighbors hear estimates, by the name of the precision."""
FAMILIES = ("regular", "gnp", "ring", "small-world", "complete")
N_STEPS, MOST_STEPS = 1000, 10**9
"""Steps of a run on a scenario: by default, and at most."""
CHECK_UP_TO = 20_000
"""Number of agents up to which a graph is made before the first run, to refuse early what does not fit it."""


class Setup(Configuration, frozen=True, kw_only=True):
    """How samples are run: the fields of a run that files and flags set by these names.

    degree      degree of the initial graph (its mean for "gnp"; default 10, or less where there are too few agents)
    graph       "regular" (random), "gnp" (Erdos-Renyi), "ring", "small-world" (Watts-Strogatz), "complete", or a file:
                an edge list (.edges, .txt, .csv), .npz, or what networkx reads (.graphml, .gml, .adjlist)
    rewire      share of the edges of a small world that are moved to a random agent
    steps       number of steps of a run (default 1000, or all steps of a recording)
    tolerance   `error_rate` is the share of agents with |estimate - mean| > tolerance
    record      steps to record: "all", "log", every k-th (a number), or a list of steps
    precision   "mixed": neighbors receive float32, all else is float64; "double": float64 throughout
    """

    refusal = RunError

    degree: int | None = None
    graph: str = "regular"
    rewire: float = 0.1
    steps: int | None = None
    tolerance: float = 0.1
    record: str | int | tuple[int, ...] = "all"
    precision: str = "mixed"


class RunSpec(Setup, frozen=True, kw_only=True):
    """One method on samples and a graph, under a seed.

    method      a method
    source      a `Scenario`, a `Recording`, or an array (steps, agents)
    seed        decides samples and graph
    graph       also a graph of colme or networkx, or a function of an rng that makes one
    """

    method: Any
    source: Any
    seed: int = 0
    steps: Any = None  # a number, once it is checked
    graph: Any = "regular"

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method):
            raise RunError(f"method={shorten(self.method)}: it must be a method. Try colme.CLColME().")
        if isinstance(self.source, np.ndarray):
            force_setattr(self, "source", Recording(self.source))
        elif not isinstance(self.source, Scenario | Recording):
            raise RunError(
                f"source={shorten(self.source)}: samples come from a Scenario, a Recording or an array (steps, "
                "agents). Try numpy.asarray(...)."
            )
        check_seed(self.seed)
        self._check_graph()
        longest = self.source.n_steps if isinstance(self.source, Recording) else None
        steps = longest or N_STEPS
        if self.steps is not None:
            steps = whole(self.steps, "steps", "steps=2000", RunError, high=MOST_STEPS)
        if longest is not None and steps > longest:
            raise RunError(f"steps={steps}: the recording has {longest} steps. Ask for at most that many.")
        force_setattr(self, "steps", steps)
        positive(self.tolerance, "tolerance", "tolerance=0.1", RunError)
        _ = self.recorded  # refuses what records nothing
        one_of(self.precision, EXCHANGE, "precision", RunError)
        super().__post_init__()
        if not 0 <= self.rewire <= 1:
            raise RunError(f"rewire={self.rewire}: a share is between 0 and 1. Try rewire=0.1.")

    def _check_graph(self) -> None:
        graph = self.graph
        if self.degree is not None:
            whole(self.degree, "degree", "degree=10", RunError, low=0)
        if graph is None:
            force_setattr(self, "graph", "regular")
        elif isinstance(graph, str):
            if graph not in FAMILIES and is_graph_file(graph):
                force_setattr(self, "graph", find_graph(graph, Path()))
            else:
                one_of(graph, FAMILIES, "graph", RunError)
        elif self.degree is not None:
            raise RunError(
                f"degree={self.degree} and graph={graph!r} are both given: a graph has its degrees. Leave one out."
            )
        elif hasattr(graph, "number_of_nodes"):
            force_setattr(self, "graph", graphs.from_networkx(graph))
        elif not (isinstance(graph, Graph) or callable(graph)):
            raise RunError(
                f"graph={shorten(graph)}: it must be a graph of colme or networkx, a function of an rng that makes "
                f"one, a file, or one of {', '.join(FAMILIES)}. Try colme.graphs.from_edges(edges)."
            )

    def but(self, *names: str) -> dict[str, Any]:
        """All fields but these."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name not in names}

    @property
    def recorded(self) -> Integers:
        """The steps that are recorded."""
        return recorded_steps(self.record, self.steps)

    @property
    def graph_file(self) -> str:
        """The path of the file that the graph comes from, "" if it comes from none."""
        return self.graph if isinstance(self.graph, str) and self.graph not in FAMILIES else ""

    @property
    def regular_degree(self) -> int | None:
        """The degree of the random regular graph; None for any other graph."""
        if not isinstance(self.graph, str) or self.graph != "regular":
            return None
        return default_degree(self.source.n_agents) if self.degree is None else self.degree

    @property
    def graph_key(self) -> int:
        """The seed of the graph."""
        high, low = (int(word) for word in random.words(self.seed, random.GRAPH, 0, n=2))
        return high << 32 | low

    def first_graph(self) -> Graph:
        """The graph on which every method begins under this seed."""
        n, made = self.source.n_agents, self.graph
        if callable(made) and not isinstance(made, Graph):
            made = made(np.random.default_rng(self.graph_key))
        elif self.graph_file:
            made = read_graph(self.graph_file, n)
        elif self.regular_degree is not None:
            made = random_regular_graph(n, self.regular_degree, rng=self.graph_key)
        elif isinstance(made, str):
            degree = min(DEFAULT_DEGREE, n - 1) if self.degree is None else self.degree
            made = _of_family(made, n, degree, self.rewire, np.random.default_rng(self.graph_key))
        if not isinstance(made, Graph):
            raise RunError(
                f"graph(rng) returned {type(made).__name__}: it must return a colme.Graph. "
                "Try lambda rng: colme.graphs.gnp_random_graph(1000, 0.01, rng=rng)."
            )
        if made.n_agents != n:
            raise RunError(
                f"the graph has {made.n_agents} agents and the samples {n}: they must be the same. "
                "Make the graph with as many agents as the samples have."
            )
        return made

    def check(self) -> None:
        """Refuse a method that does not tolerate loss, a graph that does not exist and a method that does not fit it,
        the latter two unless making the graph takes long."""
        self.method.check_loss(self.source.loss)
        if self.source.n_agents <= CHECK_UP_TO or self.graph_file:
            self.method.check(self.source.n_agents, self.first_graph())

    def plain(self) -> dict[str, Any]:
        """What determines the run, in plain types: for checkpoints, run.json, worker processes and traces.

        Samples, graphs and files are represented by the hash of their contents, a function by its name."""
        from colme import __version__

        known = {"version": __version__} | asdict(self)
        if isinstance(self.source, Recording):
            known["source"] = {"recording": digest(*self.source.known)}
        if isinstance(self.graph, Graph):
            known["graph"] = {"digest": digest(self.graph.indptr, self.graph.indices)}
        elif self.graph_file:
            known["graph"] = {"file": digest_of(self.graph_file)}
        elif not isinstance(self.graph, str):
            known["graph"] = {"function": getattr(self.graph, "__qualname__", type(self.graph).__name__)}
        plain: dict[str, Any] = as_in_file(known)
        return plain

    @classmethod
    def from_plain(cls, plain: dict[str, Any], **others: Any) -> RunSpec:
        """The spec of a scenario that `plain` gave, with its method and whatever else is not in it, such as a graph."""
        known = {name: plain[name] for name in cls.__struct_fields__ if name in plain}
        return cls(**known | {"source": msgspec.convert(plain["source"], Scenario)} | others)

    def with_fewer_agents(self, most: int) -> RunSpec:
        """The same run with at most so many agents, classes in the same proportions."""
        scenario = self.source
        if scenario.n_agents <= most:
            return self
        if self.graph_file:
            raise RunError(
                f"{Path(self.graph_file).name} has {scenario.n_agents:,} agents: the figure shows at most {most:,}, "
                "and a graph from a file has no smaller version. Leave the figure out."
            )
        fewer: dict[str, Any] = {"n_agents": most}
        if scenario.sizes is not None:
            fewer |= {"assignment": "random"}  # sizes become proportions
        if isinstance(scenario.sigma, tuple) and len(scenario.sigma) != len(scenario.means):
            fewer["sigma"] = scenario.sigma[:most]
        if isinstance(scenario.skip_rate, tuple):
            fewer["skip_rate"] = scenario.skip_rate[:most]
        few: RunSpec = replace(self, source=replace(scenario, **fewer))
        return few

    def parameters(self) -> dict[str, Any]:
        """All fields in one flat dictionary, name -> value. A field of a method whose name a scenario also has (sigma)
        is called method_sigma. A graph file is called by its name without its folder."""
        flat = asdict(self.source) | {name: getattr(self, name) for name in Setup.__struct_fields__}
        flat["graph"] = Path(self.graph_file).name or self.graph
        return flat | {flat_name(name): value for name, value in asdict(self.method).items()}


def _of_family(name: str, n: int, degree: int, rewire: float, rng: np.random.Generator) -> Graph:
    if name == "gnp":
        return graphs.gnp_random_graph(n, degree / max(n - 1, 1), rng=rng)
    if name == "ring":
        return graphs.ring_lattice_graph(n, degree)
    if name == "small-world":
        return graphs.watts_strogatz_graph(n, degree, rewire, rng=rng)
    return graphs.complete_graph(n)


class RunFields(TypedDict, total=False):
    """The fields of a `RunSpec` that `simulate` takes as keywords, for type checkers."""

    seed: int | None
    degree: int | None
    graph: GraphSource | None
    rewire: float
    steps: int | None
    tolerance: float
    record: Record
    precision: str


def recorded_steps(record: Record, n_steps: int) -> Integers:
    """The steps to record: "all", "log" (about 40 per decade), every k-th, or a list. The last step always is."""
    if isinstance(record, str):
        one_of(record, ("all", "log"), "record", RunError)
        if record == "all":
            return np.arange(1, n_steps + 1)
        # The grid does not depend on n_steps, so a longer run records a superset.
        grid = np.unique(np.floor(10 ** (np.arange(0, 40 * np.log10(n_steps) + 1) / 40)).astype(np.int64))
    elif np.ndim(record) == 0:
        k = whole(record, "record", "record='log'", RunError)
        grid = np.arange(k, n_steps + 1, k)
    else:
        asked = np.asarray(record)
        grid = np.unique(asked)
        if asked.dtype.kind not in "iu" or len(grid) == 0 or grid[0] < 1 or grid[-1] > n_steps:
            raise RunError(
                f"record={shorten(record)}: a list must hold whole steps, none outside 1..{n_steps}. Try record='log'."
            )
    return np.unique(np.append(grid[grid <= n_steps], n_steps))


def as_in_file(value: Any) -> Any:
    """A value in the plain types that a file would give back."""
    return msgspec.json.decode(msgspec.json.encode(value))


def flat_name(field: str) -> str:
    """The name of a method's field among all fields."""
    taken = field in Scenario.__struct_fields__ or field in Setup.__struct_fields__
    return f"method_{field}" if taken else field


def digest(*arrays: Array) -> str:
    """A hash of shapes, types and numbers."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.shape} {array.dtype};".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()[:16]
