"""`Setting` and `Setup`: everything that determines a run. One method, one scenario, one kind of graph, one seed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

import colme
from colme import graphs
from colme.errors import ColmeError, ExperimentError, one_of, positive, shorten, whole
from colme.graphs import DEFAULT_DEGREE, Graph
from colme.lab.experiments.graph_files import digest_of, is_graph_file, read_graph
from colme.methods import Method
from colme.scenario import Scenario, check_seed
from colme.sim.prepare import EXCHANGE, first_graph
from colme.sim.recorder import recorded_steps
from colme.support.structs import Configuration

GRAPHS = ("regular", "gnp", "ring", "small-world", "complete")
MOST_STEPS = 10**9
CHECK_UP_TO = 20_000
"""Number of agents up to which graphs are made before the first run, to refuse early what does not fit them."""


class Setup(Configuration, frozen=True, kw_only=True):
    """How a scenario is run.

    degree      degree of the initial graph (its mean for "gnp"; default 10, or less where there are too few agents)
    graph       "regular" (random), "gnp" (Erdos-Renyi), "ring", "small-world" (Watts-Strogatz), "complete", or a file:
                an edge list (.edges, .txt, .csv), .npz, or what networkx reads (.graphml, .gexf, .gml)
    rewire      share of the edges of a small world that are moved to a random agent
    steps       number of steps of a run
    tolerance   `error_rate` is the share of agents with |estimate - mean| > tolerance
    record      steps to record: "all", "log", every k-th (a number), or a list of steps
    precision   "mixed": neighbors receive float32, all else is float64; "double": float64 throughout
    """

    refusal: ClassVar[type[ColmeError]] = ExperimentError

    degree: int | None = None
    graph: str = "regular"
    rewire: float = 0.1
    steps: int = 1000
    tolerance: float = 0.1
    record: str | int | tuple[int, ...] = "all"
    precision: str = "mixed"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.degree is not None:
            whole(self.degree, "degree", "degree=10", ExperimentError, low=0)
        if not is_graph_file(self.graph):
            one_of(self.graph, GRAPHS, "graph", ExperimentError)
        if not 0 <= self.rewire <= 1:
            raise ExperimentError(f"rewire={self.rewire}: a share is between 0 and 1. Try rewire=0.1.")
        whole(self.steps, "steps", "steps=2000", ExperimentError)
        if self.steps > MOST_STEPS:
            raise ExperimentError(f"steps={shorten(self.steps)}: at most {MOST_STEPS:,} are allowed. Try steps=2000.")
        positive(self.tolerance, "tolerance", "tolerance=0.1", ExperimentError)
        recorded_steps(self.record, self.steps)
        one_of(self.precision, EXCHANGE, "precision", ExperimentError)

    def graph_source(self, n_agents: int) -> Callable[[np.random.Generator], Graph] | None:
        """The `graph` argument of `simulate` for a family of graphs; None for the random regular graph of `degree`."""
        if self.graph == "regular":
            return None
        degree = min(DEFAULT_DEGREE, n_agents - 1) if self.degree is None else self.degree
        makers: dict[str, Callable[[np.random.Generator], Graph]] = {
            "gnp": lambda rng: graphs.gnp_random_graph(n_agents, degree / max(n_agents - 1, 1), rng=rng),
            "ring": lambda rng: graphs.ring_lattice_graph(n_agents, degree),
            "small-world": lambda rng: graphs.watts_strogatz_graph(n_agents, degree, self.rewire, rng=rng),
            "complete": lambda rng: graphs.complete_graph(n_agents),
        }
        return makers[self.graph]


class Setting(Configuration, frozen=True, kw_only=True):
    """Everything that determines a run; two runs with equal settings have equal traces, bit for bit.

    graph_file   the path of the file that setup.graph names, "" if it names none
    """

    refusal: ClassVar[type[ColmeError]] = ExperimentError

    scenario: Scenario
    method: Any
    setup: Setup = Setup()
    seed: int = 0
    graph_file: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.method, Method):
            raise ExperimentError(f"method={self.method!r}: it must be a method. Try colme.CLColME().")
        check_seed(self.seed)

    def options(self) -> dict[str, Any]:
        """The keywords of `simulate` and `prepare_run`, except steps and seed."""
        n_agents = self.scenario.n_agents
        graph: Graph | Callable[[np.random.Generator], Graph] | None
        graph = read_graph(self.graph_file, n_agents) if self.graph_file else self.setup.graph_source(n_agents)
        return {
            "degree": self.setup.degree if graph is None else None,
            "graph": graph,
            "tolerance": self.setup.tolerance,
            "record": self.setup.record,
            "precision": self.setup.precision,
        }

    def parameters(self) -> dict[str, Any]:
        """All fields in one flat dictionary, name -> value. A field of a method whose name a scenario also has (sigma)
        is called method_sigma. A graph file is called by its name without its folder."""
        flat = msgspec.structs.asdict(self.scenario) | msgspec.structs.asdict(self.setup)
        flat["graph"] = Path(self.graph_file).name or self.setup.graph
        for name, value in msgspec.structs.asdict(self.method).items():
            flat[flat_name(name)] = value
        return flat

    def check(self) -> None:
        """Refuse a method that does not tolerate loss, a graph that does not exist and a method that does not fit it,
        the latter two unless making the graph takes long."""
        self.method.check_loss(self.scenario.loss)
        if self.scenario.n_agents <= CHECK_UP_TO or self.graph_file:
            options = self.options()
            graph = first_graph(options["graph"], options["degree"], self.scenario.n_agents, self.seed)
            self.method.check(self.scenario.n_agents, graph)

    def configuration(self) -> dict[str, Any]:
        """The setting in plain types, as it is hashed and stored. A graph file is represented by the hash of its
        contents, so that the identity of a run does not depend on where the file is."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        if path := plain.pop("graph_file"):
            plain["setup"]["graph"] = f"{digest_of(path)}.graph"
        return plain


def flat_name(field: str) -> str:
    """The name of a method's field among all fields."""
    taken = field in Scenario.__struct_fields__ or field in Setup.__struct_fields__
    return f"method_{field}" if taken else field


def name_of(configuration: dict[str, Any]) -> str:
    """The name of a run: the hash of the version of colme and of everything that determines the run."""
    text = msgspec.json.encode({"colme": colme.__version__} | configuration, order="sorted")
    return hashlib.sha256(text).hexdigest()[:16]
