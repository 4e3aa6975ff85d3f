"""The loop: see a stretch of steps, let every method walk it, write down how good it was.

All methods of a run see the same samples and begin on the same graph. Python drives time; kernels do the work, without
the GIL, so runs of different seeds share the cores.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from colme._core.files import read_arrays, write_arrays
from colme.errors import CheckpointError, MethodError, shorten
from colme.graphs import Graph
from colme.methods import Marching, Method, State, World
from colme.metrics import LEVEL, OF_METHOD, Judge
from colme.moments import Moments
from colme.samples import Stream
from colme.sim.recorder import Recorder
from colme.sim.sampling import BLOCK, Perception
from colme.sim.trace import Final, Trace

CHECKPOINT = "colme checkpoint 3"
TELL_EVERY = 0.1
"""Seconds between two calls of the progress callback."""


@dataclass(frozen=True)
class Progress:
    """Told to the progress callback: run `seed` has done `step` of `steps`."""

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
        block: int = BLOCK,
    ):
        n = stream.n_agents
        self.methods, self.stream, self.seed = methods, stream, seed
        self.configuration = configuration
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
        )
        for method in methods:
            if stream.loss > 0 and not method.tolerates_loss:
                raise MethodError(
                    f"{method.label} with loss={stream.loss:g}: it is simulated on perfect networks only. "
                    "Try loss=0, or a method that tolerates loss: Census()."
                )
        self.states: list[State] = [method.start(self.world, graph) for method in methods]
        self.judge = Judge(class_, tolerance)
        self.recorder = Recorder(steps, len(methods))
        self.n_steps = int(steps[-1])
        self.perception = Perception(stream, self.world, self.judge, steps, block)
        self._tables = np.full((len(methods), self.perception.most, len(OF_METHOD)), nan)
        self._checkpoint, self._every = checkpoint, checkpoint_every
        if checkpoint is not None and checkpoint.exists():
            self._resume(checkpoint)

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays of the run, without what was recorded."""
        return _array_bytes([self.world, self.perception, *self.states], set())

    def go(self, tell: Callable[[Progress], None] | None, stop: threading.Event) -> list[Trace]:
        """Run to the end and return one trace per method."""
        world = self.world
        saved_at = told_at = time.monotonic()
        if tell is not None and world.t > 0:
            tell(Progress(self.seed, world.t, self.n_steps))
        while world.t < self.n_steps:
            self.advance(world.t + 1, self.n_steps)
            t, now = world.t, time.monotonic()
            if tell is not None and (now - told_at > TELL_EVERY or t == self.n_steps):
                tell(Progress(self.seed, t, self.n_steps))
                told_at = now
            if self._checkpoint is not None and now - saved_at > self._every:
                self.save()
                saved_at = now
            if stop.is_set() and t < self.n_steps:
                self.save()
                raise Interrupted
        self.save()
        return self._traces()

    def step(self, t: int) -> None:
        """Step t, which must follow the last one."""
        self.advance(t, t)

    def advance(self, first: int, last: int) -> None:
        """Steps `first`, which must follow the last one, to `last`, or as far as was seen."""
        world, seen = self.world, self.perception
        n_steps = seen.see(first, last)
        means, due = seen.means(first, n_steps), self.recorder.due(first, n_steps)
        for table, state in zip(self._tables, self.states, strict=True):
            world.t, world.mean = first, means[0]
            if marches(state):
                cast(Marching, state).advance(world, means, table[:n_steps])
            else:
                self._step_by_step(state, first, means, due, table)
        world.t, world.mean = first + n_steps - 1, means[-1]
        if len(due):
            self.recorder.write(due, self._tables, seen.errors(first, n_steps))

    def _step_by_step(
        self, state: State, first: int, means: NDArray[np.float64], due: NDArray[np.int64], table: NDArray[np.float64]
    ) -> None:
        recorded = set(due.tolist())
        for row, mean in enumerate(means):
            self.world.t, self.world.mean = first + row, mean
            state.step(self.world)
            if row in recorded:
                table[row] = self._judged(state)

    def _judged(self, state: State) -> tuple[float, ...]:
        """The metrics of a method."""
        errors = shares = nan, nan
        if self.world.truth is not None:
            errors = self.judge.estimates(state.estimate, self.world.truth)
        if self.world.classes_known:
            shares = state.wrong_share, state.lost_share
        coverage = nan if self.world.truth is None else state.coverage(self.world.truth, LEVEL)
        return *errors, *shares, state.isolated, state.n_groups, coverage, state.numbers

    def _samples_of(self, t: int) -> NDArray[np.float64]:
        """What every agent sees at step t."""
        out = np.empty((1, self.stream.n_agents))
        self.stream.fill(out, t)
        return out[0]

    def save(self) -> None:
        """Write the checkpoint, if there is one."""
        if self._checkpoint is None:
            return
        arrays = {"t": np.array(self.world.t), "mean": self.world.mean}
        if self.world.count is not None:
            arrays["count"] = self.world.count
        if self.world.moments is not None:
            arrays |= snapshot(self.world.moments, "moments")
        arrays |= self.recorder.snapshot()
        for number, state in enumerate(self.states):
            arrays |= snapshot(state, f"state{number}")
        write_arrays(self._checkpoint, CHECKPOINT, {"configuration": self.configuration}, arrays)

    def _resume(self, path: Path) -> None:
        head, arrays = read_arrays(path, CHECKPOINT)
        theirs, ours = head.get("configuration", {}), self.configuration
        different = [key for key in ours if theirs.get(key) != ours[key]]
        if different:
            key = different[0]
            raise CheckpointError(
                f"{path.name} belongs to another run: its {key} is {shorten(theirs.get(key))}, here it is "
                f"{shorten(ours[key])}. Use another checkpoint or delete it."
            )
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
            restore(self.world.moments, "moments", arrays)
        self.recorder.take_over(arrays)
        for number, state in enumerate(self.states):
            restore(state, f"state{number}", arrays)
        if len(self.recorder.due(self.world.t, 1)):  # it ended here, at a step that only its end made it record
            of_run = self.perception.look_back()
            for table, state in zip(self._tables, self.states, strict=True):
                table[0] = self._judged(state)
            self.recorder.write(np.zeros(1, np.int64), self._tables, of_run)

    def _traces(self) -> list[Trace]:
        world, origin = self.world, self.stream.origin
        count = world.counts
        truth = self.stream.truth(world.t)
        traces = []
        for number, (method, state) in enumerate(zip(self.methods, self.states, strict=True)):
            graph = state.graph()
            final = Final(
                estimate=state.estimate + origin, mean=world.mean + origin, count=count, graph=graph,
                groups=state.groups(graph), class_=self.stream.class_, truth=None if truth is None else truth + origin,
                **_posterior(state, origin),
            )  # fmt: skip
            metrics = self.recorder.metrics(number)
            traces.append(
                Trace(method, self.seed, self.recorder.steps, **metrics, final=final, configuration=self.configuration)
            )
        return traces


def _posterior(state: State, origin: float) -> dict[str, NDArray[np.float64]]:
    """What only methods with posterior intervals know."""
    known = state.posterior(LEVEL)
    if known is None:
        return {}
    return {"probability": known.probability, "lower": known.lower + origin, "upper": known.upper + origin}


def marches(state: State) -> bool:
    """Whether to let it make many steps at once: it can, and nobody has given it another `step` since."""
    for kind in type(state).__mro__:
        if "advance" in vars(kind):
            return "step" not in vars(state)
        if "step" in vars(kind):
            break
    return False


def snapshot(thing: Any, prefix: str) -> dict[str, NDArray[Any]]:
    """The attributes that `thing.saved` names, as arrays; objects with `saved` of their own go down a level."""
    arrays: dict[str, NDArray[Any]] = {}
    for name in thing.saved:
        value = getattr(thing, name)
        if value is None:
            continue
        if hasattr(value, "saved"):
            arrays |= snapshot(value, f"{prefix}.{name}")
        else:
            arrays[f"{prefix}.{name}"] = np.asarray(value)
    return arrays


def restore(thing: Any, prefix: str, arrays: dict[str, NDArray[Any]]) -> None:
    """Put back what `snapshot` took."""
    for name in thing.saved:
        value = getattr(thing, name)
        if value is None:
            continue
        if hasattr(value, "saved"):
            restore(value, f"{prefix}.{name}", arrays)
        elif isinstance(value, np.ndarray):
            kept = arrays[f"{prefix}.{name}"]
            if kept.shape != value.shape:  # some grow and shrink
                setattr(thing, name, kept.astype(value.dtype))
            else:
                value[...] = kept
        else:
            setattr(thing, name, arrays[f"{prefix}.{name}"].item())


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
