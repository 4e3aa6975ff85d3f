"""The loop: samples in blocks, then for each step observe, advance every method, judge.

All methods of a run see the same samples and begin on the same graph. Python drives time; kernels do the work, without
the GIL, so runs of different seeds share the cores.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme.errors import CheckpointError, shorten
from colme.graphs import Graph
from colme.methods import Method, State, World
from colme.metrics import Judge
from colme.samples import Stream, observe_all, observe_some
from colme.sim.recorder import Recorder
from colme.sim.store import read_arrays, write_arrays
from colme.sim.trace import Final, Trace

CHECKPOINT = "colme checkpoint 1"
TELL_EVERY = 0.1
"""Seconds between two calls of the progress callback."""
BLOCK = 2**14
"""Samples made at a time, a multiple of 64: an eighth of a megabyte, which the cache holds."""


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
        )
        self.states: list[State] = [method.start(self.world, graph) for method in methods]
        self.judge = Judge(class_, tolerance)
        self.recorder = Recorder(steps, len(methods))
        self.n_steps = int(steps[-1])
        self._block = np.empty((max(1, min(self.n_steps, block // n)), min(n, block)))
        self._filled_from = self._filled_to = 0
        self._checkpoint, self._every = checkpoint, checkpoint_every
        if checkpoint is not None and checkpoint.exists():
            self._resume(checkpoint)

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays of the run, without what was recorded."""
        parts = [self.world, self.stream, self.judge, *self.states]
        return self._block.nbytes + _array_bytes(parts, set())

    def go(self, tell: Callable[[Progress], None] | None, stop: threading.Event) -> list[Trace]:
        """Run to the end and return one trace per method."""
        world = self.world
        saved_at = told_at = time.monotonic()
        if tell is not None and world.t > 0:
            tell(Progress(self.seed, world.t, self.n_steps))
        for t in range(world.t + 1, self.n_steps + 1):
            self.step(t)
            now = time.monotonic()
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
        world = self.world
        world.t = t
        self._perceive(t)
        for state in self.states:
            state.step(world)
        if t == self.recorder.next:
            self.recorder.write(world, self.states, self.judge, self.stream.truth(t))

    def _perceive(self, t: int) -> None:
        """Everybody sees its sample: many steps are drawn at once for few agents, few agents at a time for many."""
        n, (rows, width) = self.world.n_agents, self._block.shape
        if width == n:
            if not self._filled_from <= t < self._filled_to:
                self._filled_from, self._filled_to = t, min(t + rows, self.n_steps + 1)
                self.stream.fill(self._block[: self._filled_to - t], t)
            self._observe(t, self._block[t - self._filled_from], self.world.mean, self.world.count)
            return
        for first in range(0, n, width):
            part = slice(first, min(first + width, n))
            self.stream.fill(self._block[:, : part.stop - first], t, first)
            count = None if self.world.count is None else self.world.count[part]
            self._observe(t, self._block[0, : part.stop - first], self.world.mean[part], count)

    @staticmethod
    def _observe(
        t: int, sample: NDArray[np.float64], mean: NDArray[np.float64], count: NDArray[np.int32] | None
    ) -> None:
        if count is None:
            observe_all(mean, sample, t)
        else:
            observe_some(mean, count, sample)

    def save(self) -> None:
        """Write the checkpoint, if there is one."""
        if self._checkpoint is None:
            return
        arrays = {"t": np.array(self.world.t), "mean": self.world.mean}
        if self.world.count is not None:
            arrays["count"] = self.world.count
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
        self.recorder.take_over(arrays)
        for number, state in enumerate(self.states):
            restore(state, f"state{number}", arrays)
        if self.world.t == self.recorder.next:  # it ended here, at a step that only its end made it record
            self.recorder.write(self.world, self.states, self.judge, self.stream.truth(self.world.t))

    def _traces(self) -> list[Trace]:
        world, origin = self.world, self.stream.origin
        count = np.full(world.n_agents, world.t, np.int32) if world.count is None else world.count
        truth = self.stream.truth(world.t)
        traces = []
        for number, (method, state) in enumerate(zip(self.methods, self.states, strict=True)):
            graph = state.graph()
            final = Final(
                estimate=state.estimate + origin, mean=world.mean + origin, count=count, graph=graph,
                groups=state.groups(graph), class_=self.stream.class_, truth=None if truth is None else truth + origin,
            )  # fmt: skip
            metrics = self.recorder.metrics(number)
            traces.append(
                Trace(method, self.seed, self.recorder.steps, **metrics, final=final, configuration=self.configuration)
            )
        return traces


def snapshot(thing: Any, prefix: str) -> dict[str, NDArray[Any]]:
    """The attributes that `thing.saved` names, as arrays; objects with `saved` of their own go down a level."""
    arrays: dict[str, NDArray[Any]] = {}
    for name in thing.saved:
        value = getattr(thing, name)
        if hasattr(value, "saved"):
            arrays |= snapshot(value, f"{prefix}.{name}")
        else:
            arrays[f"{prefix}.{name}"] = np.asarray(value)
    return arrays


def restore(thing: Any, prefix: str, arrays: dict[str, NDArray[Any]]) -> None:
    """Put back what `snapshot` took."""
    for name in thing.saved:
        value = getattr(thing, name)
        if hasattr(value, "saved"):
            restore(value, f"{prefix}.{name}", arrays)
        elif isinstance(value, np.ndarray):
            value[...] = arrays[f"{prefix}.{name}"]
        else:
            setattr(thing, name, arrays[f"{prefix}.{name}"].item())


def _array_bytes(things: list[Any], seen: set[int]) -> int:
    total = 0
    for thing in things:
        if isinstance(thing, np.ndarray):
            owner = thing if thing.base is None else thing.base
            if id(owner) not in seen:
                seen.add(id(owner))
                total += thing.nbytes
        elif type(thing).__module__.startswith("colme") and id(thing) not in seen and hasattr(thing, "__dict__"):
            seen.add(id(thing))
            total += _array_bytes(list(vars(thing).values()), seen)
    return total
