"""The feed of a simulation: the start, and a frame at each of some steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.errors import RunError, whole
from colme.graphs import Graph
from colme.live.growing import GroupNumbers
from colme.live.messages import Codes, bits, end, pack, panel_of, start, to_codes
from colme.methods import State
from colme.metrics import LEVEL, OF_METHOD, OF_RUN
from colme.recording import Recording
from colme.scenario import Scenario
from colme.sim.run import Run
from colme.sim.spec import RunSpec

N_FRAMES = 120
MOST_AGENTS = 20_000
"""Up to so many agents are all sent; of more agents a part, and the distribution of all."""
PART = 2000
"""Agents that are sent of more than that."""
MOST_EDGES = 100_000
"""Edges that are sent; of more edges those among the first agents of a search through the graph."""
FINE_UP_TO = 2000
"""Up to so many agents, local means have two bytes, not one."""
N_BINS = 480
"""Of the distribution of all agents."""
MOST_CLASSES = 12
"""Classes whose distributions are sent one by one; of more classes, only that of all agents together."""


def frame_steps(n_steps: int, n_frames: int = N_FRAMES) -> NDArray[np.int64]:
    """The steps that are shown: evenly spaced on a logarithmic axis, with the first and the last one."""
    whole(n_frames, "frames", f"frames={N_FRAMES}", RunError, low=2)
    return np.unique(np.geomspace(1, n_steps, n_frames).round().astype(np.int64))


class SimulationFeed:
    """A run that is shown while it advances: all its methods, on the same samples.

    specs     the run of each method
    n_frames  moments that are shown, evenly spaced on a logarithmic axis
    """

    def __init__(
        self, specs: Sequence[RunSpec], n_frames: int = N_FRAMES, *, title: str = "", labels: Sequence[str] = ()
    ):
        first, methods = specs[0], [spec.method for spec in specs]
        self.graph = first.first_graph()
        self.steps: list[int] = frame_steps(first.n_steps, n_frames).tolist()
        shown = {"graph": self.graph, "degree": None, "record": self.steps}
        self.run = Run([msgspec.structs.replace(spec, **shown) for spec in specs])
        self.title, self.labels = title, list(labels) or [method.label for method in methods]
        self.agents, self.edges = _shown(self.graph)
        self.window = _window(first.source)
        ends = self.edges if self.agents is None else self.agents[self.edges]
        self._keys = ends[:, 0] * self.graph.n_agents + ends[:, 1]
        self._low_ends = np.unique(ends[:, 0])
        self._groups = [GroupNumbers() for _ in methods]
        self._class = _few_classes(self.run)

    @property
    def t(self) -> int:
        return self.run.world.t

    @property
    def done(self) -> bool:
        return self.t >= self.steps[-1]

    def start(self, **more: Any) -> bytes:
        """The first message; `more` is added to its head."""
        run, part = self.run, self.agents
        panels = [
            panel_of(spec.method, label, graph=not spec.method.baseline)
            for label, spec in zip(self.labels, run.specs, strict=True)
        ]
        arrays: dict[str, NDArray[Any] | Codes] = {"edges": self.edges.astype(np.uint32).reshape(-1)}
        if part is not None:
            arrays["agent"] = part.astype(np.uint32)
        if run.stream.class_ is not None:
            arrays["class"] = _part(run.stream.class_, part).astype(np.uint32)
        return start(
            arrays | self._truth(1), title=self.title, unit="step", log=True, last=self.steps[-1],
            n_agents=self.graph.n_agents, window=self.window, panels=panels, **more,
        )  # fmt: skip

    def _truth(self, t: int) -> dict[str, NDArray[Any] | Codes]:
        truth = self.run.stream.truth(t)
        return {} if truth is None else {"truth": to_codes(_part(truth, self.agents) + self.run.stream.origin)}

    def messages(self) -> Iterator[bytes]:
        """The start and all frames."""
        yield self.start()
        while not self.done:
            yield self.next_frame()

    def next_frame(self) -> bytes:
        """Advance to the next step that is shown, and show it."""
        run = self.run
        target = next(step for step in self.steps if step > self.t)
        while self.t < target:
            run.advance(self.t + 1, target)
        return self.frame()

    def frame(self) -> bytes:
        """The numbers of all agents now."""
        run, world, part = self.run, self.run.world, self.agents
        origin, n_bytes = run.stream.origin, 2 if world.n_agents <= FINE_UP_TO else 1
        shared = dict(zip(OF_RUN, run.recorder.of_run[run.recorder.filled - 1].tolist(), strict=True))
        arrays: dict[str, NDArray[Any] | Codes] = {"mean": to_codes(_part(world.mean, part) + origin, n_bytes=n_bytes)}
        if world.count is not None:
            arrays["count"] = _part(world.count, part).astype(np.uint32)
        if run.stream.steady_until(1) < world.t:  # the true means have changed since the start
            arrays |= self._truth(world.t)
        panels = []
        for k, state in enumerate(run.states):
            metrics = dict(zip(OF_METHOD, run.recorder.of_method[k, run.recorder.filled - 1].tolist(), strict=True))
            panel, found = self._panel(k, state, origin)
            panels.append(panel | {"metrics": metrics | shared})
            arrays |= {f"{k}/{name}": array for name, array in found.items()}
        return pack({"kind": "frame", "t": world.t, "panels": panels}, arrays)

    def _panel(self, k: int, state: State, origin: float) -> tuple[dict[str, Any], dict[str, NDArray[Any] | Codes]]:
        part, estimate, graph = self.agents, state.estimate, state.edges.graph()
        arrays: dict[str, NDArray[Any] | Codes] = {"estimate": to_codes(_part(estimate, part) + origin)}
        groups = self._groups[k].renumber(state.edges.groups(graph))
        arrays["group"] = _part(groups, part)
        if len(self.edges) and not state.method.baseline:
            arrays["alive"] = bits(self._alive(graph))
        panel: dict[str, Any] = {}
        known, radius = state.posterior(LEVEL), state.radius
        if known is not None:
            panel["level"] = LEVEL
            arrays["below"] = to_codes(_part(estimate - known.lower, part), n_bytes=1)
            arrays["above"] = to_codes(_part(known.upper - estimate, part), n_bytes=1)
        elif np.ndim(radius) == 0:
            panel["radius"] = float(radius)
        else:
            arrays["radius"] = to_codes(_part(radius, part), n_bytes=1)
        if part is not None:
            arrays["density"] = self._density(estimate + origin)
        return panel, arrays

    def _alive(self, graph: Graph) -> NDArray[np.bool_]:
        """Which of the edges that are shown a graph has."""
        low, degrees = self._low_ends, graph.degrees[self._low_ends]
        first = np.repeat(graph.indptr[low] - np.concatenate([[0], np.cumsum(degrees)[:-1]]), degrees)
        neighbors = graph.indices[first + np.arange(degrees.sum())]
        return np.isin(self._keys, np.repeat(low, degrees) * graph.n_agents + neighbors, assume_unique=True)

    def _density(self, estimate: NDArray[np.float64]) -> NDArray[np.uint32]:
        """The numbers of agents in bins of the window, class after class."""
        low, high = self.window
        place = np.full(len(estimate), -1, np.int64)
        known = (estimate >= low) & (estimate < high)
        place[known] = ((estimate[known] - low) * (N_BINS / (high - low))).astype(np.int64)
        class_, n_classes = self._class
        known &= place < N_BINS
        counts = np.bincount(class_[known] * N_BINS + place[known], minlength=n_classes * N_BINS)
        return counts.astype(np.uint32)


def messages_of(feed: SimulationFeed) -> Iterator[bytes]:
    """The whole recording of a run, message by message."""
    yield from feed.messages()
    yield end()


def _part(values: NDArray[Any], part: NDArray[np.int64] | None) -> NDArray[Any]:
    return values if part is None else values[part]


def _shown(graph: Graph) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """The agents that are sent, in order (None: all), and the edges among them, by their places in that list."""
    if graph.n_agents <= MOST_AGENTS:
        return None, graph.edges() if graph.n_edges <= MOST_EDGES else _edges_among(graph, _nearby(graph, PART))
    part = _nearby(graph, PART)
    places = np.full(graph.n_agents, -1, np.int64)
    places[part] = np.arange(len(part))
    return part, places[_edges_among(graph, part)]


def _nearby(graph: Graph, n: int) -> NDArray[np.int64]:
    """The first agents of a breadth-first search, so that there are edges among them."""
    known = np.zeros(graph.n_agents, bool)
    found: list[int] = []
    for first in range(graph.n_agents):
        if known[first]:
            continue
        known[first] = True
        queue = [first]
        for agent in queue:
            found.append(agent)
            if len(found) == n:
                return np.sort(np.array(found))
            near = graph.neighbors(agent)
            new = near[~known[near]]
            known[new] = True
            queue += new.tolist()
    return np.sort(np.array(found))


def _edges_among(graph: Graph, part: NDArray[np.int64]) -> NDArray[np.int64]:
    """The edges between agents of a part, at most `MOST_EDGES` of them."""
    inside = np.zeros(graph.n_agents, bool)
    inside[part] = True
    pairs = [(a, int(b)) for a in part.tolist() for b in graph.neighbors(a) if b > a and inside[b]]
    return np.array(pairs[:MOST_EDGES], np.int64).reshape(-1, 2)


def _window(source: Scenario | Recording) -> tuple[float, float]:
    """The numbers that are shown: true means and as much room around them as lies between them; where they are not
    known, most samples."""
    if isinstance(source, Scenario):
        every = sorted(set(source.all_means))
        low, high = every[0] - 3 * source.spread, every[-1] + 3 * source.spread
        scale = float(np.max(source.known_scale))
    else:
        known = source.values[np.isfinite(source.values)]
        low, high = (float(each) for each in np.quantile(known, (0.02, 0.98))) if len(known) else (0.0, 1.0)
        scale = max(abs(low), 1.0)
    room = 0.9 * (high - low) if high > low else scale
    return low - room, high + room


def _few_classes(run: Run) -> tuple[NDArray[np.int64], int]:
    class_ = run.stream.class_
    n_classes = 0 if class_ is None else int(class_.max()) + 1
    if class_ is None or n_classes > MOST_CLASSES:
        return np.zeros(run.world.n_agents, np.int64), 1
    return class_.astype(np.int64), n_classes
