"""`Run`: one run, step by step. Sample a stretch of steps, let every method make them, record the metrics.

All methods of a run get the same samples and begin on the same graph. Python drives time; kernels do the work, without
the GIL, so runs of different seeds share the cores.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from colme._core.jit import CHUNK
from colme._core.team import ALONE, Neighborhood, Team
from colme.dependence import ArrayDependence
from colme.errors import CheckpointError, RunError
from colme.graphs import Graph, GraphPart, GraphTotals, has_bipartite_component, random_regular_part, row_ends
from colme.guard import GuardedState
from colme.methods import METHODS, State, World
from colme.metrics import LEVEL, METRICS, OF_METHOD, OF_RUN, measured
from colme.moments import Moments
from colme.recording import Recording
from colme.samples import ScenarioStream
from colme.scenario import Scenario
from colme.sim.checkpoint import read_checkpoint, together, write_checkpoint
from colme.sim.sampling import Errors, Sampler
from colme.sim.spec import EXCHANGE, RunSpec, as_in_file, digest
from colme.sim.trace import Final, Trace
from colme.support.arrays import Array, Floats, Integers, Mask
from colme.support.files import nothing_missing
from colme.support.saved import from_arrays, splits, to_arrays

TELL_EVERY = 0.1
"""Seconds between two calls of the progress callback."""
ASK_EVERY = 0.1
"""Seconds after which the workers of a team ask each other whether to save or stop."""


@dataclass(frozen=True)
class Progress:
    """What the progress callback gets: run `seed` has done `step` of `steps`."""

    seed: int
    step: int
    steps: int


class Interrupted(Exception):
    """The run was asked to stop; its checkpoint, if it has one, is written."""


class Run:
    """All methods on the samples of one seed, ready for the first step, or for the one after its checkpoint.

    specs   what to run; they differ in their methods only
    team    the workers that share the run"""

    def __init__(
        self, specs: Sequence[RunSpec], *, team: Team = ALONE, checkpoint: Path | None = None,
        checkpoint_every: float = 60.0,
    ):  # fmt: skip
        self.specs, self.spec = list(specs), specs[0]
        spec, source = self.spec, self.spec.source
        steps = spec.recorded
        self.configuration = spec.plain()
        self._methods: list[Any] = as_in_file([each.method for each in specs])
        if team.size > 1:
            team.check_same((self.configuration, self._methods))
            check_team(specs, team)
        hood = Neighborhood(source.n_agents, team, _most_classes(source))
        self.stream: ScenarioStream | Recording
        if isinstance(source, Scenario):
            self.stream = ScenarioStream(source, spec.seed, first=hood.first, n=hood.n_own)
        else:
            self.stream = source if team.size == 1 else source.part(hood.own)
        graph = self._first_graph(hood)
        for each in specs:
            each.method.check(source.n_agents, graph)
            if source.loss > 0:
                each.method.check_loss(source.loss)
        hood = self.hood = hood if team.size == 1 else team.neighborhood(hood, graph.indices)
        stream, n = self.stream, self.stream.n_agents
        class_ = np.zeros(n, np.uint16) if stream.class_ is None else stream.class_
        self.world = World(
            class_=class_, sigma=stream.sigma, width=stream.width, mean=np.full(n, np.nan),
            count=None if stream.complete else np.zeros(n, np.int32), classes_known=stream.class_ is not None,
            kurtosis=stream.kurtosis, exchange=EXCHANGE[spec.precision], tolerance=spec.tolerance, loss=stream.loss,
            seed=spec.seed, moments=Moments(n) if any(each.method.needs_moments for each in specs) else None,
            draw=self._samples_of, errors=Errors(class_, spec.tolerance, hood), hood=hood,
            independent=source.independent or not any(each.method.learns_dependence for each in specs),
        )  # fmt: skip
        self.dependence = None if self.world.independent else ArrayDependence(self.world, graph)
        self.states: list[State] = []
        for method in (each.method for each in specs):
            state = method.start(self.world, graph)
            guarded = getattr(method, "guard", False)
            self.states.append(GuardedState(method, state, self.world, graph) if guarded else state)
        self.recorder = Recorder(steps, len(specs))
        self.n_steps = spec.steps
        self.sampler = Sampler(self.stream, self.world, steps)
        self._tables = np.full((len(specs), self.sampler.most, len(OF_METHOD)), nan)
        self._checkpoint, self._every = checkpoint, checkpoint_every
        # where the first worker sees one: others may see the folder of another machine a little later
        if checkpoint is not None and team.any(team.rank == 0 and checkpoint.exists()):
            self._resume(checkpoint)

    def _first_graph(self, hood: Neighborhood) -> Graph:
        """The graph, or the rows of a worker's own agents."""
        spec, team = self.spec, hood.team
        if team.size > 1 and spec.regular_degree is not None:
            return random_regular_part(spec.regular_degree, spec.graph_key, hood)
        whole = spec.first_graph()
        if "function" in self.configuration["graph"]:
            self.configuration["graph"] = {"digest": digest(whole.indptr, whole.indices)}
        return whole if team.size == 1 else _graph_part(whole, hood)

    def go(self, tell: Callable[[Progress], None] | None, stop: threading.Event, *, final: bool = True) -> list[Trace]:
        """Run to the end and return one trace per method; without `final`, that of a team has no final state."""
        world, team = self.world, self.world.team
        saved_at = told_at = time.monotonic()
        if tell is not None and world.t > 0:
            tell(Progress(self.spec.seed, world.t, self.n_steps))
        started, began, ask_at = saved_at, world.t, world.t + 1
        while world.t < self.n_steps:
            self.advance(world.t + 1, self.n_steps)
            t, now = world.t, time.monotonic()
            if tell is not None and (now - told_at > TELL_EVERY or t == self.n_steps):
                tell(Progress(self.spec.seed, t, self.n_steps))
                told_at = now
            if t < ask_at:
                continue
            due = self._checkpoint is not None and now - saved_at > self._every
            pace = (now - started) / (t - began)
            # workers stop and save at the same step; the first one says when, and when to ask again
            steps = ASK_EVERY / max(pace, 1e-9)
            stops, saves, wait = team.greatest([stop.is_set(), *((due, steps) if team.rank == 0 else (False, 0.0))])
            ask_at = t + 1 if team.size == 1 else t + max(1, int(wait))
            if saves:
                self.save()
                saved_at = now
            if stops and t < self.n_steps:
                self.save()
                raise Interrupted
        if self._checkpoint is not None:
            self.save()
        return self._traces(final=final or team.size == 1)

    def step(self, t: int) -> None:
        """Step t, which must follow the last one."""
        self.advance(t, t)

    def advance(self, first: int, last: int) -> None:
        """Steps `first`, which must follow the last one, to `last`, or as far as samples are ready."""
        world = self.world
        means, recorded, of_run = self.sampler.sample(first, last)
        n_steps = len(means)
        done = 0
        while done < n_steps:
            world.t, world.mean, dependence = first + done, means[done], self.dependence
            rows = slice(
                done, n_steps if dependence is None else min(done + dependence.steps_at_once(world.t), n_steps)
            )
            if dependence is not None:
                dependence.step(world, means[rows])
            for table, state in zip(self._tables, self.states, strict=True):
                world.t, world.mean, world.recorded = first + done, means[done], bool(recorded[rows].any())
                state.advance(world, means[rows], recorded[rows], table[rows])
            done = rows.stop
        world.t, world.mean = first + n_steps - 1, means[-1]
        self.recorder.write(recorded, self._tables[:, :n_steps], of_run)

    def _samples_of(self, t: int) -> Floats:
        """What every agent sees at step t."""
        out = np.empty((1, self.stream.n_agents))
        self.stream.fill(out, t)
        return out[0]

    def save(self) -> None:
        """Write the checkpoint, if there is one."""
        if self._checkpoint is None:
            return
        split = {} if self.dependence is None else splits(self.dependence, "dependence")
        for number, state in enumerate(self.states):
            split |= splits(state, f"state{number}")
        common = {"t": np.array(self.world.t)} | self.recorder.snapshot()
        write_checkpoint(self._checkpoint, self.hood, self._identity(), common, self._own_arrays(), split)

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must have in common with the run: all but its length."""
        known = {key: value for key, value in self.configuration.items() if key not in ("method", "steps")}
        return known | {"methods": self._methods}

    def _own_arrays(self) -> dict[str, Array]:
        """What a checkpoint keeps of the own agents."""
        own: dict[str, Array] = {"mean": self.world.mean}
        if self.world.count is not None:
            own["count"] = self.world.count
        for name, each in (("moments", self.world.moments), ("dependence", self.dependence)):
            if each is not None:
                own |= to_arrays(each, name)
        for number, state in enumerate(self.states):
            own |= to_arrays(state, f"state{number}")
        return own

    def _resume(self, path: Path) -> None:
        arrays = read_checkpoint(path, self.hood, self._identity())
        with together(self.hood), nothing_missing(path):
            self._take_over(path, arrays)

    def _take_over(self, path: Path, arrays: dict[str, Array]) -> None:
        if arrays["t"] > self.n_steps:
            raise CheckpointError(
                f"{path.name} is at step {arrays['t']}, beyond steps={self.n_steps}. Ask for at least that many steps."
            )
        self.world.t = int(arrays["t"])
        self.world.mean[:] = arrays["mean"]
        if self.world.count is not None:
            self.world.count[:] = arrays["count"]
        if self.world.moments is not None:
            from_arrays(self.world.moments, "moments", arrays)
        if self.dependence is not None:
            from_arrays(self.dependence, "dependence", arrays)
            self.dependence.restored()
            self.world.factors = self.dependence.factors(self.world.n_samples)
        self.recorder.take_over(arrays)
        for number, state in enumerate(self.states):
            from_arrays(state, f"state{number}", arrays)
            state.restored()
        if self.world.t in self.recorder.left:  # it ends here, at a step that only its end makes it record
            of_run = self.sampler.measure_again()
            of_method = np.array([[measured(state, self.world)] for state in self.states])
            self.recorder.write(np.ones(1, np.bool_), of_method, of_run)

    def _traces(self, *, final: bool) -> list[Trace]:
        traces = []
        for spec, state, method, table in zip(
            self.specs, self.states, self._methods, self.recorder.of_method, strict=True
        ):  # fmt: skip
            known: Any = self._final(state) if final else None
            columns: Any = dict(zip(METRICS, [*table.T.copy(), *self.recorder.of_run.T.copy()], strict=True))
            columns["isolated"] = columns["isolated"].astype(np.int64)
            configuration = self.configuration | {"method": method}
            trace = Trace(
                spec.method, spec.seed, self.recorder.steps, **columns, final=known, configuration=configuration
            )  # fmt: skip
            object.__setattr__(trace, "_spec", spec)
            traces.append(trace)
        return traces

    def _final(self, state: State) -> Final:
        """The final state of all agents; workers other than the first have only that of their own."""
        world, origin, team = self.world, self.stream.origin, self.world.team
        truth = self.stream.truth(world.t)
        graph = state.last_graph()
        if team.size > 1:
            graph = GraphPart(graph.indptr, graph.indices, GraphTotals(self.hood.n_agents, 0, 0, False))
        groups = state.edges.groups(graph)  # first, for it needs some memory meanwhile
        known = state.posterior and state.posterior.intervals(LEVEL)
        probability, lower, upper = (known[0], known[1] + origin, known[2] + origin) if known else (None,) * 3
        final = Final(
            estimate=state.estimate + origin, mean=world.mean + origin, count=world.counts, graph=graph,
            groups=groups, class_=self.stream.class_, truth=None if truth is None else truth + origin,
            probability=probability, lower=lower, upper=upper,
        )  # fmt: skip
        if team.size == 1:
            return final
        names = [each.name for each in fields(Final) if isinstance(getattr(final, each.name), np.ndarray)]
        collected: dict[str, Any] = {name: team.collect(getattr(final, name)) for name in names}
        degrees, indices = team.collect(graph.degrees), team.collect(self.hood.numbers(graph.indices))
        if degrees is None or indices is None:
            return final
        whole = Graph(row_ends(degrees), indices, check=False)
        if not len(collected["groups"]):
            collected["groups"] = whole.components()
        return replace(final, graph=whole, **collected)


class Recorder:
    """The metrics at the recorded steps: `of_method[m]` those of each method, `of_run` those that all share."""

    def __init__(self, steps: Integers, n_methods: int):
        self.steps = steps
        self.of_method = np.full((n_methods, len(steps), len(OF_METHOD)), np.nan)
        self.of_run = np.full((len(steps), len(OF_RUN)), np.nan)
        self.filled = 0

    @property
    def left(self) -> Integers:
        """The steps that are still to be recorded."""
        return self.steps[self.filled :]

    def write(
        self, recorded: Mask, of_method: Floats, of_run: Floats
    ) -> None:  # fmt: skip
        """From the metrics of the next steps, those that are recorded."""
        start, end = self.filled, self.filled + int(recorded.sum())
        self.of_method[:, start:end], self.of_run[start:end] = of_method[:, recorded], of_run[recorded]
        self.filled = end

    def snapshot(self) -> dict[str, Array]:
        """What a checkpoint keeps."""
        k = self.filled
        return {"steps": self.steps[:k], "of_method": self.of_method[:, :k], "of_run": self.of_run[:k]}

    def take_over(self, arrays: dict[str, Array]) -> None:
        """Continue from a snapshot; steps that this run does not want (an earlier end) are dropped."""
        wanted = np.isin(arrays["steps"], self.steps)
        k = int(wanted.sum())
        self.of_method[:, :k] = arrays["of_method"][:, wanted]
        self.of_run[:k] = arrays["of_run"][wanted]
        self.filled = k


def check_team(specs: Sequence[RunSpec], team: Team) -> None:
    """Refuse what a team cannot share."""
    for method in (each.method for each in specs):
        if not method.shared:
            able = ", ".join(sorted(each.__name__ for each in METHODS if each.shared))
            raise RunError(
                f"{method.label} cannot be shared by threads or ranks: it needs all agents in one place. Run it "
                f"without them, or try one of {able}."
            )
    source = specs[0].source
    most = Neighborhood(source.n_agents, n_classes=_most_classes(source)).n_all_pages
    if team.size > most:
        raise RunError(
            f"{team.size} workers share {source.n_agents} agents: each must have at least {CHUNK} of them, so at most "
            f"{most} can. Ask for fewer threads or ranks."
        )


def _most_classes(source: Scenario | Recording) -> int:
    """How many classes there may be."""
    if isinstance(source, Scenario):
        return source.n_agents if source.spread > 0 else len(source.means)
    return 1 if source.class_ is None else int(source.class_.max()) + 1


def _graph_part(graph: Graph, hood: Neighborhood) -> GraphPart:
    """The rows of a worker's own agents, of a graph that all workers have."""
    bipartite = has_bipartite_component(graph.indptr, graph.indices, hood.team.local)
    totals = GraphTotals(graph.n_agents, graph.n_edges, graph.max_degree, bipartite)
    indptr = graph.indptr[hood.first : hood.first + hood.n_own + 1]
    return GraphPart(indptr - indptr[0], graph.indices[indptr[0] : indptr[-1]].copy(), totals)


@contextlib.contextmanager
def on_interrupt(react: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C calls this function, in the main thread, which alone hears it; mpiexec sends it to all ranks."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: react())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
