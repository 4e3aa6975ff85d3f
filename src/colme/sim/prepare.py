"""Prepare a run: make its samples and its graph, check them, and note what determines them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme._core import random
from colme._core.jit import CHUNK
from colme._core.team import ALONE, Neighborhood, Team
from colme.errors import RunError
from colme.graphs import (
    Graph,
    GraphPart,
    GraphTotals,
    default_degree,
    has_bipartite_component,
    random_regular_graph,
    random_regular_part,
)
from colme.methods import METHODS, Method
from colme.recording import Recording
from colme.samples import ScenarioStream, Stream
from colme.scenario import Scenario
from colme.sim.engine import Run
from colme.sim.recorder import Record, recorded_steps

GraphSource = Graph | Callable[[np.random.Generator], Graph]

EXCHANGE: dict[str, type] = {"mixed": np.float32, "double": np.float64}
"""The type in which neighbors hear estimates, by the name of the precision."""


def prepare_run(
    methods: list[Method],
    source: Scenario | Recording,
    *,
    steps: int,
    seed: int,
    degree: int | None = None,
    graph: GraphSource | None = None,
    tolerance: float = 0.1,
    record: Record = "all",
    precision: str = "mixed",
    checkpoint: Path | None = None,
    checkpoint_every: float = 60.0,
    smoothness: bool = False,
    team: Team = ALONE,
) -> Run:
    """A run that is ready to `step`; the arguments are those of `simulate`, and the team that shares it."""
    if team.size > 1:
        known = source if isinstance(source, Scenario) else _digest(*source.known)
        given = _digest(graph.indptr, graph.indices) if isinstance(graph, Graph) else graph is None
        team.check_same((methods, known, given, steps, seed, degree, tolerance, str(record), precision))
        check_team(methods, source, team, smoothness)
    hood = Neighborhood(source.n_agents, team, _most_classes(source))
    stream: Stream
    if isinstance(source, Scenario):
        stream = ScenarioStream(source, seed, first=hood.first, n=hood.n_own)
    else:
        stream = source if team.size == 1 else source.part(hood.own)
    made: Graph
    if team.size > 1 and graph is None:
        made = random_regular_part(_degree(degree, source.n_agents), _graph_key(seed), hood)
        digest = None
    else:
        whole = first_graph(graph, degree, source.n_agents, seed)
        made = whole if team.size == 1 else graph_part(whole, hood)
        digest = None if graph is None else _digest(whole.indptr, whole.indices)
    for method in methods:
        method.check(source.n_agents, made)
    hood = team.neighborhood(hood, made.indices)
    return Run(
        methods, stream, made, recorded_steps(record, steps), seed=seed, tolerance=tolerance,
        exchange=EXCHANGE[precision],
        configuration=_configuration(methods, source, made.whole.n_edges, digest, seed, tolerance, record, precision)
        | ({"smoothness": True} if smoothness else {}),
        checkpoint=checkpoint, checkpoint_every=checkpoint_every, with_smoothness=smoothness, hood=hood,
    )  # fmt: skip


def check_team(methods: list[Method], source: Scenario | Recording, team: Team, smoothness: bool) -> None:
    """Refuse what a team cannot share."""
    for method in methods:
        if not method.shared:
            able = ", ".join(sorted(each.__name__ for each in METHODS if each.shared))
            raise RunError(
                f"{method.label} cannot be shared by threads or ranks: it needs all agents in one place. Run it "
                f"without them, or try one of {able}."
            )
    most = Neighborhood(source.n_agents, n_classes=_most_classes(source)).n_all_pages
    if team.size > most:
        raise RunError(
            f"{team.size} workers share {source.n_agents} agents: each must have at least {CHUNK} of them, so at most "
            f"{most} can. Ask for fewer threads or ranks."
        )
    if smoothness:
        raise RunError("smoothness=True with threads or ranks: it takes a pass over the whole graph. Leave one out.")


def _most_classes(source: Scenario | Recording) -> int:
    """How many classes there may be."""
    if isinstance(source, Scenario):
        return source.n_agents if source.spread > 0 else len(source.means)
    return 1 if source.class_ is None else int(source.class_.max()) + 1


def graph_part(graph: Graph, hood: Neighborhood) -> GraphPart:
    """The rows of a worker's own agents, of a graph that all workers have."""
    bipartite = has_bipartite_component(graph.indptr, graph.indices, hood.team.local)
    totals = GraphTotals(graph.n_agents, graph.n_edges, graph.max_degree, bipartite)
    indptr = graph.indptr[hood.first : hood.first + hood.n_own + 1]
    return GraphPart(indptr - indptr[0], graph.indices[indptr[0] : indptr[-1]].copy(), totals)


def first_graph(graph: GraphSource | None, degree: int | None, n_agents: int, seed: int) -> Graph:
    """The graph on which all methods begin under this seed."""
    if isinstance(graph, Graph):
        made = graph
    else:
        key = _graph_key(seed)
        if graph is not None:
            made = graph(np.random.default_rng(key))
            if not isinstance(made, Graph):
                raise RunError(
                    f"graph(rng) returned {type(made).__name__}: it must return a colme.Graph. "
                    "Try lambda rng: colme.graphs.gnp_random_graph(1000, 0.01, rng=rng)."
                )
        else:
            made = random_regular_graph(n_agents, _degree(degree, n_agents), rng=key)
    if made.n_agents != n_agents:
        raise RunError(
            f"the graph has {made.n_agents} agents and the samples {n_agents}: they must be the same. "
            "Make the graph with as many agents as the samples have."
        )
    return made


def _graph_key(seed: int) -> int:
    high, low = (int(word) for word in random.words(seed, random.GRAPH, 0, n=2))
    return high << 32 | low


def _degree(degree: int | None, n_agents: int) -> int:
    return default_degree(n_agents) if degree is None else degree


def _configuration(
    methods: list[Method], source: Scenario | Recording, n_edges: int, digest: str | None, seed: int,
    tolerance: float, record: Record, precision: str,
) -> dict[str, Any]:  # fmt: skip
    """What determines the run, in plain types (but not its length: a run can be continued)."""
    from colme import __version__

    known = {
        "version": __version__,
        "methods": methods,
        "source": source if isinstance(source, Scenario) else {"recording": _digest(*source.known)},
        "graph": {"n_edges": n_edges} | ({} if digest is None else {"digest": digest}),
        "seed": seed,
        "tolerance": tolerance,
        "record": record if isinstance(record, str) else np.asarray(record).tolist(),
        "precision": precision,
    }
    return msgspec.json.decode(msgspec.json.encode(known))  # as a file would give it back


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape} {array.dtype};".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]
