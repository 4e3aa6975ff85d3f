"""The feed of a simulation: the start, and a frame at each of some steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from colme.errors import RunError, whole
from colme.graphs import Graph
from colme.live.growing import GroupNumbers
from colme.live.messages import Arrays, bits, end, pack, panel_of, start, to_codes
from colme.methods import State
from colme.metrics import LEVEL, OF_METHOD, OF_RUN
from colme.recording import Recording
from colme.scenario import Scenario
from colme.sim.run import Run
from colme.sim.spec import RunSpec
from colme.support.arrays import Floats, Integers, Mask

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


def frame_steps(n_steps: int, n_frames: int = N_FRAMES) -> Integers:
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
        self.steps: list[int] = frame_steps(first.steps, n_frames).tolist()
        shown = {"graph": self.graph, "degree": None, "record": self.steps}
        self.run = Run([msgspec.structs.replace(spec, **shown) for spec in specs])
        self.title, self.labels = title, list(labels) or [method.label for method in methods]
        self.agents, self.edges = _shown(self.graph)
        self.window = _window(first.source)
        ends = self.agents[self.edges]
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
        arrays: Arrays = {"edges": self.edges.astype(np.uint32).reshape(-1)}
        if len(part) < self.graph.n_agents:
            arrays["agent"] = part.astype(np.uint32)
        if run.stream.class_ is not None:
            arrays["class"] = run.stream.class_[part].astype(np.uint32)
        return start(
            arrays | self._truth(1), title=self.title, unit="step", log=True, last=self.steps[-1],
            n_agents=self.graph.n_agents, window=self.window, panels=panels, **more,
        )  # fmt: skip

    def _truth(self, t: int) -> Arrays:
        truth = self.run.stream.truth(t)
        return {} if truth is None else {"truth": to_codes(truth[self.agents] + self.run.stream.origin)}

    def messages(self, last_words: Callable[[], Iterable[bytes]] = tuple) -> Iterator[bytes]:
        """The start, all frames, the messages that `last_words` then returns, and the end."""
        yield self.start()
        while not self.done:
            yield self.next_frame()
        yield from last_words()
        yield end()

    def next_frame(self) -> bytes:
        """Advance to the next step that is shown, and show it."""
        while not self.advance():
            pass
        return self.frame()

    def advance(self) -> bool:
        """Advance towards the next step that is shown, as far as samples are ready; whether it is reached."""
        target = next(step for step in self.steps if step > self.t)
        self.run.advance(self.t + 1, target)
        return self.t == target

    def frame(self) -> bytes:
        """The numbers of all agents now."""
        run, world, part = self.run, self.run.world, self.agents
        origin, n_bytes = run.stream.origin, 2 if world.n_agents <= FINE_UP_TO else 1
        shared = dict(zip(OF_RUN, run.recorder.of_run[run.recorder.filled - 1].tolist(), strict=True))
        arrays: Arrays = {"mean": to_codes(world.mean[part] + origin, n_bytes=n_bytes)}
        if world.count is not None:
            arrays["count"] = world.count[part].astype(np.uint32)
        if run.stream.steady_until(1) < world.t:  # the true means have changed since the start
            arrays |= self._truth(world.t)
        panels = []
        for k, state in enumerate(run.states):
            metrics = dict(zip(OF_METHOD, run.recorder.of_method[k, run.recorder.filled - 1].tolist(), strict=True))
            panels.append({"metrics": metrics | shared})
            arrays |= {f"{k}/{name}": array for name, array in self._panel(k, state, origin).items()}
        return pack({"kind": "frame", "t": world.t, "panels": panels}, arrays)

    def _panel(self, k: int, state: State, origin: float) -> Arrays:
        part, estimate, graph = self.agents, state.estimate, state.edges.graph()
        arrays: Arrays = {"estimate": to_codes(estimate[part] + origin)}
        arrays["group"] = self._groups[k].renumber(state.edges.groups(graph))[part]
        if len(self.edges) and not state.method.baseline:
            arrays["alive"] = bits(self._alive(graph))
        if state.posterior is not None:
            known = state.posterior.intervals(LEVEL)
            arrays["below"] = to_codes((estimate - known.lower)[part], n_bytes=1)
            arrays["above"] = to_codes((known.upper - estimate)[part], n_bytes=1)
        else:
            arrays["radius"] = to_codes(np.broadcast_to(state.radius, estimate.shape)[part], n_bytes=1)
        if len(part) < self.graph.n_agents:
            arrays["density"] = self._density(estimate + origin)
        return arrays

    def _alive(self, graph: Graph) -> Mask:
        """Which of the edges that are shown a graph has."""
        low = self._low_ends
        neighbors = np.concatenate([graph.neighbors(a) for a in low])
        keys = np.repeat(low, graph.degrees[low]) * graph.n_agents + neighbors
        return np.isin(self._keys, keys, assume_unique=True)

    def _density(self, estimate: Floats) -> NDArray[np.uint32]:
        """The numbers of agents in bins of the window, class after class."""
        class_, n_classes = self._class
        counts = [np.histogram(estimate[class_ == k], N_BINS, self.window)[0] for k in range(n_classes)]
        return np.concatenate(counts).astype(np.uint32)


def _shown(graph: Graph) -> tuple[Integers, Integers]:
    """The agents that are sent, in order, and the edges among them, by their places in that list."""
    everyone, edges = np.arange(graph.n_agents), graph.edges()
    if len(everyone) <= MOST_AGENTS and len(edges) <= MOST_EDGES:
        return everyone, edges
    part = _nearby(graph)
    places = np.full(len(everyone), -1, np.int64)
    places[part] = np.arange(len(part))
    among = edges[(places[edges] >= 0).all(axis=1)][:MOST_EDGES]
    return (everyone, among) if len(everyone) <= MOST_AGENTS else (part, places[among])


def _nearby(graph: Graph) -> Integers:
    """The first agents of a breadth-first search, so that there are edges among them."""
    known = np.zeros(graph.n_agents, bool)
    found: list[int] = []
    for first in range(graph.n_agents):
        queue = [] if known[first] else [first]
        known[first] = True
        for agent in queue:
            if len(found) == PART:
                return np.sort(found)
            found.append(agent)
            near = graph.neighbors(agent)
            new = near[~known[near]]
            known[new] = True
            queue += new.tolist()
    return np.sort(found)


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


def _few_classes(run: Run) -> tuple[Integers, int]:
    class_ = run.stream.class_
    n_classes = 0 if class_ is None else int(class_.max()) + 1
    if class_ is None or n_classes > MOST_CLASSES:
        return np.zeros(run.world.n_agents, np.int64), 1
    return class_.astype(np.int64), n_classes
