"""A trace as a live view: the run is made again, with the same bits, and shown at some of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from colme.errors import ColmeError
from colme.live.messages import note
from colme.live.simulation import SimulationFeed
from colme.methods import Method
from colme.sim.spec import RunSpec
from colme.sim.trace import Trace, labels_of

MOST_PANELS = 4
"""Methods that are shown side by side."""
OF_EACH = {"method", "version", "record"}
"""What may differ between traces that are shown together, of their configurations."""
CHANGED = (
    "This run did not end as the trace did: the samples or the graph were changed since, a graph does not follow from "
    "the rng alone, or another version made the trace."
)


def replay(traces: Sequence[Trace], *, frames: int) -> Iterator[bytes]:
    """The messages of the run that made the traces of the first seed. It is prepared now, and made as they are read."""
    shown = [trace for trace in traces if trace.seed == traces[0].seed]
    methods = _methods(shown)
    _check_one_run(shown)
    specs = [spec_of(trace, method) for trace, method in zip(shown, methods, strict=True)]
    labels, n_agents = labels_of(methods), specs[0].source.n_agents
    title = f"{', '.join(labels)} on {n_agents:,} agents, seed {specs[0].seed}"
    feed = SimulationFeed(specs, frames, title=title, labels=labels)
    return feed.messages(lambda: _doubts(feed, shown))


def spec_of(trace: Trace, method: Method) -> RunSpec:
    """The run that made a trace: as it was given, or from its configuration."""
    if trace._spec is not None:
        return trace._spec
    known, lacking = trace.configuration, ""
    if not known.keys() >= {"method", "source", "graph", "seed"}:
        lacking = "how it was made"
    elif "recording" in known["source"]:
        lacking = "its samples, an array"
    elif not isinstance(known["graph"], str):
        lacking = "its first graph"
    if lacking:
        raise ColmeError(
            f"this trace was loaded or copied, and does not hold {lacking}: a view needs the whole run. Simulate it "
            "again, then call live() on the trace that simulate returns."
        )
    return RunSpec.from_plain(known, method=method)


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
    known = [{key: each for key, each in trace.configuration.items() if key not in OF_EACH} for trace in traces]
    if any(configuration != known[0] for configuration in known):
        raise ColmeError(
            "the traces are of different runs: those side by side must have the same samples, graph and number of "
            "steps. Simulate the methods together, or call live() on each trace."
        )


def _doubts(feed: SimulationFeed, traces: list[Trace]) -> list[bytes]:
    """A note if the final estimates are not those of the traces; ranks other than the first have only their own."""
    for state, trace in zip(feed.run.states, traces, strict=True):
        found, known = state.estimate + feed.run.stream.origin, trace.final.estimate
        if len(found) == len(known) and not np.array_equal(found, known, equal_nan=True):
            return [note(CHANGED)]
    return []
