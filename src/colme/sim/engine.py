"""The engine: one run, step by step. Sample a stretch of steps, let every method make them, record the metrics.

All methods of a run get the same samples and begin on the same graph. Python drives time; kernels do the work, without
the GIL, so runs of different seeds share the cores.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._core.team import Neighborhood, Team
from colme.errors import CheckpointError
from colme.graphs import Graph, GraphPart, GraphTotals
from colme.methods import Method, State, World
from colme.metrics import LEVEL, OF_METHOD, measured
from colme.moments import Moments
from colme.samples import Stream
from colme.sim.checkpoint import check_room, read_checkpoint, together, write_checkpoint
from colme.sim.recorder import Recorder
from colme.sim.sampling import BLOCK, Sampler
from colme.sim.trace import Final, RunArguments, Trace
from colme.spectrum import smoothness
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
    """All methods on the samples of one seed."""

    def __init__(
        self,
        methods: list[Method],
        stream: Stream,
        graph: Graph,
        steps: NDArray[np.int64],
        *,
        seed: int,
        tolerance: float,
        exchange: type,
        configuration: dict[str, Any],
        checkpoint: Path | None = None,
        checkpoint_every: float = 60.0,
        with_smoothness: bool = False,
        block: int = BLOCK,
        hood: Neighborhood | None = None,
    ):
        n = stream.n_agents
        hood = self.hood = Neighborhood(n) if hood is None else hood
        self.methods, self.stream, self.seed = methods, stream, seed
        self.configuration = configuration
        self.arguments: RunArguments | None = None  # what its traces tell about how it was made
        class_: NDArray[Any] = np.zeros(n, np.uint16) if stream.class_ is None else stream.class_
        self.world = World(
            class_=class_,
            sigma=stream.sigma,
            width=stream.width,
            mean=np.full(n, np.nan),
            count=None if stream.complete else np.zeros(n, np.int32),
            classes_known=stream.class_ is not None,
            kurtosis=stream.kurtosis,
            exchange=exchange,
            tolerance=tolerance,
            loss=stream.loss,
            seed=seed,
            moments=Moments(n) if any(method.needs_moments for method in methods) else None,
            draw=self._samples_of,
            hood=hood,
        )
        for method in methods:
            method.check_loss(stream.loss)
        self.states: list[State] = [method.guarded_state(self.world, graph) for method in methods]
        self.recorder = Recorder(steps, len(methods), smoothness=with_smoothness)
        self.n_steps = int(steps[-1])
        self.sampler = Sampler(stream, self.world, self.world.errors, steps, block)
        self._tables = np.full((len(methods), self.sampler.most, len(OF_METHOD)), nan)
        self._checkpoint, self._every = checkpoint, checkpoint_every
        if checkpoint is not None and hood.team.size > 1:
            size = int(hood.team.total(sum(array.nbytes for array in self._own_arrays().values())))
            with together(hood):
                check_room(checkpoint, size)
        # where the first worker sees one: others may see the folder of another machine a little later
        if checkpoint is not None and hood.team.any(hood.team.rank == 0 and checkpoint.exists()):
            self._resume(checkpoint)

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays of the run, without what was recorded."""
        return _array_bytes([self.world, self.sampler, *self.states], set())

    def go(self, tell: Callable[[Progress], None] | None, stop: threading.Event, *, final: bool = True) -> list[Trace]:
        """Run to the end and return one trace per method; without `final`, that of a team has no final state."""
        world, team = self.world, self.world.team
        saved_at = told_at = time.monotonic()
        if tell is not None and world.t > 0:
            tell(Progress(self.seed, world.t, self.n_steps))
        started, began, ask_at = saved_at, world.t, world.t + 1
        while world.t < self.n_steps:
            self.advance(world.t + 1, self.n_steps)
            t, now = world.t, time.monotonic()
            if tell is not None and (now - told_at > TELL_EVERY or t == self.n_steps):
                tell(Progress(self.seed, t, self.n_steps))
                told_at = now
            if t < ask_at:
                continue
            due = self._checkpoint is not None and now - saved_at > self._every
            pace = (now - started) / (t - began)
            # workers stop and save at the same step; the first one says when, and when to ask again
            asked = [stop.is_set(), due and team.rank == 0, _steps_in(ASK_EVERY, pace, team)]
            stops, saves, wait = team.greatest(asked)
            ask_at = t + 1 if team.size == 1 else t + max(1, int(wait))
            if saves:
                self.save()
                saved_at = now
            if stops and t < self.n_steps:
                self.save()
                raise Interrupted
        self.save()
        return self._traces(final=final or team.size == 1)

    def step(self, t: int) -> None:
        """Step t, which must follow the last one."""
        self.advance(t, t)

    def advance(self, first: int, last: int) -> None:
        """Steps `first`, which must follow the last one, to `last`, or as far as samples are ready."""
        world, sampler = self.world, self.sampler
        if self.recorder.smoothness is not None:  # it is measured after the last of these steps
            last = min(last, max(first, self.recorder.next_step()))
        n_steps = sampler.sample(first, last)
        means, due = sampler.means(first, n_steps), self.recorder.due(first, n_steps)
        recorded = np.zeros(n_steps, np.bool_)
        recorded[due] = True
        for table, state in zip(self._tables, self.states, strict=True):
            world.t, world.mean, world.recorded = first, means[0], len(due) > 0
            state.advance(world, means, recorded, table[:n_steps])
        world.t, world.mean = first + n_steps - 1, means[-1]
        if len(due):
            self._record(due, sampler.errors(first, n_steps))

    def _record(self, due: NDArray[np.int64], of_run: NDArray[np.float64]) -> None:
        self.recorder.write(due, self._tables, of_run)
        if self.recorder.smoothness is not None:
            self.recorder.write_smoothness([smoothness(state.estimate, state.edges.graph()) for state in self.states])

    def _samples_of(self, t: int) -> NDArray[np.float64]:
        """What every agent sees at step t."""
        out = np.empty((1, self.stream.n_agents))
        self.stream.fill(out, t)
        return out[0]

    def save(self) -> None:
        """Write the checkpoint, if there is one."""
        if self._checkpoint is None:
            return
        split: dict[str, str] = {}
        for number, state in enumerate(self.states):
            split |= splits(state, f"state{number}")
        common = {"t": np.array(self.world.t)} | self.recorder.snapshot()
        write_checkpoint(self._checkpoint, self.hood, self.configuration, common, self._own_arrays(), split)

    def _own_arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint keeps of the own agents."""
        own: dict[str, NDArray[Any]] = {"mean": self.world.mean}
        if self.world.count is not None:
            own["count"] = self.world.count
        if self.world.moments is not None:
            own |= to_arrays(self.world.moments, "moments")
        for number, state in enumerate(self.states):
            own |= to_arrays(state, f"state{number}")
        return own

    def _resume(self, path: Path) -> None:
        arrays = read_checkpoint(path, self.hood, self.configuration)
        with together(self.hood):
            try:
                self._take_over(path, arrays)
            except (KeyError, ValueError) as error:
                if isinstance(error, CheckpointError):
                    raise
                raise CheckpointError(f"{path.name} is torn: {error}. Delete it and start anew.") from None

    def _take_over(self, path: Path, arrays: dict[str, NDArray[Any]]) -> None:
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
        self.recorder.take_over(arrays)
        for number, state in enumerate(self.states):
            from_arrays(state, f"state{number}", arrays)
            state.restored()
        if len(self.recorder.due(self.world.t, 1)):  # it ended here, at a step that only its end made it record
            of_run = self.sampler.measure_again()
            for table, state in zip(self._tables, self.states, strict=True):
                table[0] = measured(state, self.world)
            self._record(np.zeros(1, np.int64), of_run)

    def _traces(self, *, final: bool) -> list[Trace]:
        traces = []
        for number, (method, state) in enumerate(zip(self.methods, self.states, strict=True)):
            known: Any = self._final(state) if final else None
            metrics = self.recorder.metrics(number)
            traces.append(
                Trace(
                    method, self.seed, self.recorder.steps, **metrics, final=known, configuration=self.configuration,
                    arguments=self.arguments,
                )
            )  # fmt: skip
        return traces

    def _final(self, state: State) -> Final:
        """The final state of all agents; workers other than the first have only that of their own."""
        world, origin, team = self.world, self.stream.origin, self.world.team
        truth = self.stream.truth(world.t)
        graph = state.last_graph()
        if team.size > 1:
            graph = GraphPart(graph.indptr, graph.indices, GraphTotals(self.hood.n_agents, 0, 0, False))
        groups = state.edges.groups(graph)  # first, for it needs some memory meanwhile
        final = Final(
            estimate=state.estimate + origin, mean=world.mean + origin, count=world.counts, graph=graph,
            groups=groups, class_=self.stream.class_, truth=None if truth is None else truth + origin,
            **_posterior(state, origin),
        )  # fmt: skip
        if team.size == 1:
            return final
        known = [each.name for each in fields(Final) if isinstance(getattr(final, each.name), np.ndarray)]
        collected: dict[str, Any] = {name: team.collect(getattr(final, name)) for name in known}
        degrees, indices = team.collect(graph.degrees), team.collect(self.hood.numbers(graph.indices))
        if degrees is None or indices is None:
            return final
        whole = Graph(np.concatenate([[0], np.cumsum(degrees)]), indices, check=False)
        if not len(collected["groups"]):
            collected["groups"] = whole.components()
        return replace(final, graph=whole, **collected)


def _steps_in(seconds: float, pace: float, team: Team) -> float:
    """Steps in so many seconds, as the first worker sees it."""
    return seconds / max(pace, 1e-9) if team.rank == 0 else 0.0


def _posterior(state: State, origin: float) -> dict[str, NDArray[np.float64]]:
    """What only methods with posterior intervals know."""
    known = state.posterior(LEVEL)
    if known is None:
        return {}
    return {"probability": known.probability, "lower": known.lower + origin, "upper": known.upper + origin}


def _array_bytes(things: list[Any], seen: set[int]) -> int:
    total = 0
    for thing in things:
        if isinstance(thing, np.ndarray):
            owner = thing if thing.base is None else thing.base
            if id(owner) not in seen:
                seen.add(id(owner))
                total += owner.nbytes
        elif type(thing).__module__.startswith("colme") and id(thing) not in seen and hasattr(thing, "__dict__"):
            seen.add(id(thing))
            total += _array_bytes(list(vars(thing).values()), seen)
    return total
