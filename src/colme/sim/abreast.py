"""Eight seeds of CL-colME side by side on one graph: one pass over the neighbors serves all of them.

Each run gives the bits that it gives alone. `can_run_abreast` says for what this works; everything else runs alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import HAVE_NUMBA
from colme._core.lazy_pruning import Milestone, WatchList
from colme._core.neighbor_table import CUT, ISOLATED, WRONG
from colme._core.simd import ABREAST
from colme.consensus import START, Clock
from colme.graphs import Graph
from colme.methods import CLColME, Method, World
from colme.metrics import LOST_EDGES, NUMBERS, OF_METHOD, OF_RUN, WRONG_EDGES
from colme.recording import Recording
from colme.samples import ScenarioStream
from colme.scenario import Scenario
from colme.sim._abreast import look_at_all_abreast, march_abreast
from colme.sim.engine import TELL_EVERY, Interrupted, Progress
from colme.sim.recorder import Recorder
from colme.sim.sampling import BLOCK, FEW_CLASSES, STRETCH
from colme.sim.trace import Final, Trace
from colme.spectrum import stable_step

CLOCKS = ("global", "harmonic", "constant")
"""Clocks that are one number per run."""
WORTH_A_ROW = 7
"""So many seeds alone cost as much as eight abreast."""


def can_run_abreast(methods: list[Method], source: Scenario | Recording, graph: object, precision: str) -> bool:
    """One CL-colME of known scale without flows and with one restart for all agents, Gaussian samples of one sigma
    without gaps or shifts, one graph."""
    return (
        HAVE_NUMBA
        and isinstance(graph, Graph)
        and precision == "mixed"
        and [type(method) for method in methods] == [CLColME]
        and methods[0].clock in CLOCKS  # type: ignore[attr-defined]
        and methods[0].consensus == "laplacian"  # type: ignore[attr-defined]
        and not methods[0].needs_moments
        and isinstance(source, Scenario)
        and source.distribution == "gaussian"
        and not isinstance(source.sigma, tuple)
        and not np.any(np.asarray(source.skip_rate) > 0)
        and (source.late_share == 0 or source.late_step <= 1)
        and source.shift_step is None
        and len(set(source.means)) <= FEW_CLASSES
        and source.n_agents * ABREAST < 2**32
    )


def in_batches(seeds: list[int], n_jobs: int) -> list[list[int]]:
    """Which seeds run side by side: full rows first, as long as that leaves no core idle."""
    if len(seeds) < ABREAST * n_jobs:
        return [[seed] for seed in seeds]
    rows = [seeds[i : i + ABREAST] for i in range(0, len(seeds), ABREAST)]
    return [batch for row in rows for batch in ([row] if len(row) >= WORTH_A_ROW else [[seed] for seed in row])]


class RunsAbreast:
    """CL-colME on the samples of up to eight seeds. Where there are fewer, the last one runs several times."""

    def __init__(
        self, method: CLColME, scenario: Scenario, graph: Graph, steps: NDArray[np.int64], *, seeds: list[int],
        tolerance: float, configurations: list[dict[str, Any]],
    ):  # fmt: skip
        self.method, self.graph, self.seeds, self.tolerance = method, graph, seeds, tolerance
        self.configurations = configurations
        self.n_steps = int(steps[-1])
        padded = [*seeds, *[seeds[-1]] * (ABREAST - len(seeds))]
        streams = [ScenarioStream(scenario, seed) for seed in padded]
        n, self.origin = graph.n_agents, streams[0].origin
        classes = [stream.class_ for stream in streams]
        self.class_ = np.stack(classes, axis=1).astype(np.uint8).reshape(-1)  # type: ignore[arg-type]
        self.class_dtype = classes[0].dtype  # type: ignore[union-attr]
        n_classes = len(set(scenario.means))
        self.class_truth = np.zeros(n_classes)
        for stream in streams:
            self.class_truth[stream.class_] = stream.truth(1)
        self.class_size = np.stack([np.bincount(c, minlength=n_classes) for c in classes]).astype(float)  # type: ignore[arg-type]
        self.sigma = float(streams[0].sigma)
        keys = np.array([stream.key for stream in streams], np.uint64)
        self._counters = np.repeat(np.arange(16, dtype=np.uint64), ABREAST)
        self._key0, self._key1 = (np.tile(keys[:, i], 16) for i in range(2))

        self.mean, self.estimate = np.full(n * ABREAST, np.nan), np.full(n * ABREAST, np.nan)
        self.heard, self.spare = (np.full(n * ABREAST, np.nan, np.float32) for _ in range(2))
        self.masks = np.full(len(graph.indices), 0xFF, np.uint8)
        degree = np.repeat(graph.degrees, ABREAST).astype(np.uint32)
        self.tally = np.zeros((ABREAST, 4), np.int64)
        ends = graph.edges()
        n_wrong = [int((c[ends[:, 0]] != c[ends[:, 1]]).sum()) for c in classes]  # type: ignore[index]
        self.n_wrong, self.n_right = np.array(n_wrong), graph.n_edges - np.array(n_wrong)
        self.tally[:, WRONG], self.tally[:, ISOLATED] = n_wrong, (graph.degrees == 0).sum()
        self._table = graph.indptr, graph.indices, self.masks, degree, self.tally

        world = World(self.class_[::ABREAST], self.sigma, scenario.width, self.mean[::ABREAST], None)
        world.kurtosis = streams[0].kurtosis
        self.radii = method.radii(world, graph)
        self.step = stable_step(graph) if isinstance(method.step, str) else method.step
        self.clock = Clock(method.clock, 1, method.alpha)
        self._restart = np.full(ABREAST, START, np.int64)
        self.milestone = Milestone(n * ABREAST)
        self.watch = WatchList(n * ABREAST, look_at_all_abreast, share=1.0)
        self.recorders = [Recorder(steps, 1) for _ in seeds]
        self.t = 0  # the steps that are done
        self._drift = inf

    def go(self, tell: Callable[[Progress], None] | None, stop: threading.Event) -> list[list[Trace]]:
        """Run to the end; a list for each seed with its trace."""
        told_at = time.monotonic()
        stretch = max(1, min(STRETCH, BLOCK // self.graph.n_agents))  # so that it can be told, and stopped, soon enough
        out = np.full((stretch + 2, ABREAST, len(OF_METHOD) + len(OF_RUN)), np.nan)
        while self.t < self.n_steps:
            first, last = self.t if self.t == 0 else self.t + 1, min(self.t + stretch, self.n_steps)
            self._advance(first, last, out)
            self._record(first, last, out)
            out[0] = out[last - first + 1]  # what is known of the step after
            now = time.monotonic()
            if tell is not None and (now - told_at > TELL_EVERY or last == self.n_steps):
                for seed in self.seeds:
                    tell(Progress(seed, last, self.n_steps))
                told_at = now
            if stop.is_set() and last < self.n_steps:
                raise Interrupted
        return [[self._trace(k)] for k in range(len(self.seeds))]

    def _advance(self, first: int, last: int, out: NDArray[np.float64]) -> None:
        """Steps `first` to `last`; step 0 is only seeing the first samples."""
        watch, milestone, pruned, t = self.watch, self.milestone, False, first
        radii = self.radii.sigma * self.radii.table.up_to(last)[first : last + 1]
        while True:
            before = max(t, 1)
            t, watch.looks_left, self._drift = march_abreast(
                *self._table, self.class_, self.class_size, self.class_truth, self.sigma, self._counters, self._key0,
                self._key1, self.mean, self.estimate, self.heard, self.spare, milestone.reference, t, first, last,
                pruned, self._drift, radii, watch.listed, watch.ends, watch.threshold, watch.skin, watch.looks_left,
                self.clock.name == "global", self._restart, self.clock.fixed, self.step, self.tolerance, self.n_steps,
                out,
            )  # fmt: skip
            if (t - before) % 2:
                self.heard, self.spare = self.spare, self.heard
            if t > last:
                break
            self.tally[:, CUT] = 0
            watch.look_at_all(self._table, self.mean[None, :], 0, radii.item(t - first), self.class_, milestone, t)
            pruned = True
        self.t = last

    def _record(self, first: int, last: int, out: NDArray[np.float64]) -> None:
        first_row = max(first, 1) - first
        n_steps = last - max(first, 1) + 1
        for k, recorder in enumerate(self.recorders):
            rows = recorder.due(max(first, 1), n_steps)
            if len(rows):
                table = out[first_row : first_row + n_steps, k]
                of_method = table[None, :, : len(OF_METHOD)].copy()
                for column, n in ((WRONG_EDGES, self.n_wrong[k]), (LOST_EDGES, self.n_right[k])):
                    of_method[..., column] = of_method[..., column] / n if n else 0.0
                of_method[..., NUMBERS] = 2.0  # mean and estimate
                recorder.write(rows, of_method, table[:, len(OF_METHOD) :])

    def _trace(self, k: int) -> Trace:
        n = self.graph.n_agents
        kept = (self.masks >> k & 1).astype(bool)
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.graph.indptr]
        graph = Graph(indptr, self.graph.indices[kept], check=False)
        class_ = self.class_[k::ABREAST].astype(self.class_dtype)
        final = Final(
            estimate=self.estimate[k::ABREAST] + self.origin, mean=self.mean[k::ABREAST] + self.origin,
            count=np.full(n, self.t, np.int32), graph=graph, groups=graph.components(), class_=class_,
            truth=self.class_truth[class_] + self.origin,
        )  # fmt: skip
        recorder, configuration = self.recorders[k], self.configurations[k]
        return Trace(
            self.method, self.seeds[k], recorder.steps, **recorder.metrics(0), final=final, configuration=configuration
        )
