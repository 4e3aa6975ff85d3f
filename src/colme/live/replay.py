"""A trace as a live view: the run is made again, with the same bits, and shown at some of its steps."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from colme.errors import ColmeError
from colme.graphs import Graph
from colme.live.messages import end, note
from colme.live.simulation import SimulationFeed, frame_steps
from colme.methods import Method
from colme.scenario import Scenario
from colme.sim.prepare import GraphSource, first_graph
from colme.sim.trace import RunArguments, Trace, labels_of

MOST_PANELS = 4
"""Methods that are shown side by side."""
_OF_RUN = ("source", "graph", "seed", "tolerance", "precision")
"""What traces of one run have in common, of their configurations."""


def replay_widget(traces: Sequence[Trace], *, frames: int, height: int) -> Any:
    """A widget that shows the traces of the first seed."""
    from colme.live.widget import LiveWidget  # which needs an extra

    return LiveWidget(replay(traces, frames=frames), height=height)


def write_replay(traces: Sequence[Trace], path: str | os.PathLike[str], *, frames: int) -> Path:
    """Write a page that shows the traces of the first seed."""
    from colme.live.page import write_page

    page: Path = write_page(Path(path), replay(traces, frames=frames))
    return page


def replay(traces: Sequence[Trace], *, frames: int) -> Iterator[bytes]:
    """The messages of the run that made the traces of the first seed. It is prepared now, and made as they are read."""
    shown = [trace for trace in traces if trace.seed == traces[0].seed]
    methods = _methods(shown)
    _check_one_run(shown)
    first = shown[0]
    arguments = arguments_of(first)
    labels = labels_of(methods)
    feed = SimulationFeed(
        methods, arguments.source, frame_steps(int(first.t[-1]), frames), seed=first.seed,
        graph=_graph(arguments, first.seed), degree=arguments.degree if arguments.graph_seed is None else None,
        tolerance=arguments.tolerance, precision=arguments.precision, labels=labels,
        title=f"{', '.join(labels)} on {arguments.source.n_agents:,} agents, seed {first.seed}",
    )  # fmt: skip
    return _messages(feed, shown)


def _messages(feed: SimulationFeed, traces: list[Trace]) -> Iterator[bytes]:
    yield feed.start()
    while not feed.done:
        yield feed.next_frame()
    if not _ended_alike(feed, traces):
        yield note(
            "This run did not end as the trace did: the samples or the graph were changed since, a graph does not "
            "follow from the rng alone, or another version made the trace."
        )
    yield end()


def arguments_of(trace: Trace) -> RunArguments:
    """What a run was made from: as it was told, or from its configuration."""
    if trace._arguments is not None:
        return trace._arguments
    known = trace.configuration
    if not {"source", "graph", "tolerance", "precision"} <= known.keys():
        raise ColmeError(
            "this trace does not say how it was made: a view needs the run. Simulate it, then call live()."
        )
    if "recording" in known["source"]:
        raise ColmeError(
            "this trace was loaded or copied, and its samples, an array, are not in it: a view needs them. Simulate it "
            "again, then call live() on the trace that simulate returns."
        )
    if "digest" in known["graph"]:
        raise ColmeError(
            "this trace was loaded or copied, and its first graph is not in it: a view needs it. Simulate it again "
            "with this graph, then call live() on the trace that simulate returns."
        )
    source = msgspec.convert(known["source"], Scenario)
    degree = 2 * known["graph"]["n_edges"] // source.n_agents
    return RunArguments(source, degree, None, None, known["tolerance"], known["precision"])


def _methods(traces: list[Trace]) -> list[Method]:
    methods = [trace.method for trace in traces if isinstance(trace.method, Method)]
    if len(methods) < len(traces):
        raise ColmeError(
            "a method of the traces is not known here: a view runs it again. Simulate it with its class, then call "
            "live() on the trace that simulate returns."
        )
    if not methods or len(methods) > MOST_PANELS:
        raise ColmeError(
            f"{len(methods)} methods side by side: there must be 1 to {MOST_PANELS}. Choose some of them, as in "
            "Traces(list(traces)[:2]).live()."
        )
    return methods


def _check_one_run(traces: list[Trace]) -> None:
    """Refuse methods that did not see the same samples."""
    first = traces[0]
    for trace in traces[1:]:
        same = all(trace.configuration.get(name) == first.configuration.get(name) for name in _OF_RUN)
        if not same or trace.t[-1] != first.t[-1]:
            raise ColmeError(
                "the traces are of different runs: those side by side must have the same samples, graph and number of "
                "steps. Simulate the methods together, or call live() on each trace."
            )


def _graph(arguments: RunArguments, seed: int) -> GraphSource | None:
    if arguments.graph_seed is None:
        return arguments.graph
    made: Graph = first_graph(arguments.graph, arguments.degree, arguments.source.n_agents, arguments.graph_seed)
    return made


def _ended_alike(feed: SimulationFeed, traces: list[Trace]) -> bool:
    """Whether the final estimates are those of the traces; ranks other than the first have only their own."""
    for state, trace in zip(feed.run.states, traces, strict=True):
        found, known = state.estimate + feed.run.stream.origin, trace.final.estimate
        if len(found) == len(known) and not np.array_equal(found, known, equal_nan=True):
            return False
    return True
