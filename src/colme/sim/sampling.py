"""Sampling: draw the samples of all agents, update their local means, and measure the errors of these means.

Few agents sample many steps at once: a stretch of steps is drawn, averaged and measured in one kernel, before the
methods make these steps. Many agents sample one step, in parts that fit the cache. The bits are the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import CHUNK, chunk_like, kernel, lanes_like
from colme._core.squared_errors import NOT_KNOWN, add_squared_errors, add_to_page, clear, error_of, total
from colme.methods import World
from colme.metrics import OF_RUN, Errors
from colme.recording import Recording
from colme.samples import ScenarioStream, observe_some, running_mean

u32, u64 = np.uint32, np.uint64

BLOCK = 2**17
"""Samples made at a time, a multiple of 64: a megabyte. It streams through the second cache, and fewer stretches cost
less than what a smaller one saves."""
PART = 2**13
"""Agents that sample a step at a time where they are too many to sample several."""
STRETCH = 32
"""Steps sampled at once at most."""
FEW_CLASSES = 4
"""Up to here the oracle's sums take one vector pass per class."""


@kernel
def update_means(samples, means, before, t, wanted, truth, tolerance, class_, first, page, errors, totals):
    """means[i] = local means of step t + i, from samples[i] and the means `before`, which may all be the same arrays.

    Where `wanted`, adds to the sums of step t + i, by page of `page` agents (`colme._core.squared_errors`): squared
    errors and counts to errors[k, i], means by class to totals[k, i]. Agents may come in parts, of whole chunks; the
    first one of this part is agent `first` of the block."""
    n, n_classes = u64(means.shape[1]), u64(totals.shape[2])
    own, lanes = chunk_like(means), lanes_like(means)
    for chunk in range((n + u64(CHUNK - 1)) >> u64(10)):
        base = u64(chunk) << u64(10)
        size = min(u64(CHUNK), n - base)
        for i in range(u64(means.shape[0])):
            old = before if i == u64(0) else means[i - u64(1)]
            for k in range(size):
                own[k] = running_mean(old[base + u64(k)], samples[i, base + u64(k)], t + i)
            for k in range(size):
                means[i, base + u64(k)] = own[k]
            if truth.size == 0 or not wanted[i]:
                continue
            many, present = 0, 0
            at_page = (u64(first) + base) // u64(page)
            clear(lanes)
            for block in range((size + u64(63)) >> u64(6)):
                start = u64(block) << u64(6)
                more, there = add_squared_errors(
                    lanes, own, start, truth, base + start, min(u64(64), size - start), tolerance
                )  # fmt: skip
                many, present = many + more, present + there
            add_to_page(errors[:, i], page, u64(first) + base, lanes, many, present)
            for c in range(n_classes if n_classes <= u64(FEW_CLASSES) else u64(0)):
                clear(lanes)
                for block in range((size + u64(63)) >> u64(6)):
                    start = u64(block) << u64(6)
                    for lane in range(min(u64(64), size - start)):
                        mine = class_[base + start + u64(lane)] == u32(c)
                        lanes[lane] += own[start + u64(lane)] if mine else 0.0
                totals[at_page, i, c] += total(lanes)
            if n_classes > u64(FEW_CLASSES):
                for k in range(size):
                    totals[at_page, i, class_[base + u64(k)]] += own[k]


@kernel
def finish_errors(errors, totals, class_truth, class_size, out):
    """out[i] = local mean squared error and error rate, and the oracle's mean squared error, from the sums of all
    pages. All agents have the same number of samples, so the mean of a class is the mean of its means."""
    for i in range(out.shape[0]):
        n = square = 0.0
        for c in range(class_size.size):
            mean = 0.0
            for k in range(totals.shape[0]):
                mean += totals[k, i, c]
            if class_size[c] > 0.0:
                error = mean / class_size[c] - class_truth[c]
                square += class_size[c] * (error * error)
            n += class_size[c]
        out[i, 0], out[i, 1] = error_of(errors[:, i])
        out[i, 2] = square / n


class Sampler:
    """Gives the world its local means, for as many steps at once as pays, and the recorder their errors."""

    def __init__(
        self,
        stream: ScenarioStream | Recording,
        world: World,
        judge: Errors,
        recorded: NDArray[np.int64],
        block: int = BLOCK,
    ):
        n, n_classes, n_steps = world.n_agents, len(judge.class_size), int(recorded[-1])
        self.stream, self.world, self.judge = stream, world, judge
        self._recorded = recorded
        # moments are kept of one step only, and so are the means that other workers see
        ahead = stream.complete and world.moments is None and world.team.size == 1
        self.most = max(1, min(STRETCH, n_steps, block // max(n, 1))) if ahead else 1
        """Steps that are sampled at once."""
        part = max(CHUNK, min(PART, block) // CHUNK * CHUNK)
        self._lines = np.empty((self.most, n if self.most > 1 else min(n, part)))
        self._before = world.mean
        n_pages = world.hood.n_pages
        self._page_errors, self._totals = np.empty((n_pages, self.most, 3)), np.empty((n_pages, self.most, n_classes))
        self._errors = np.full((self.most, len(OF_RUN)), np.nan)
        self._from = self._to = 1  # the steps that have been sampled, the last one excluded

    def sample(self, first: int, last: int) -> int:
        """Sample step `first` for all agents, and perhaps some more steps up to `last`; returns how many."""
        if not self._from <= first < self._to:
            self.world.truth = self.stream.truth(first)
            self._to = int(min(first + self.most, self._recorded[-1] + 1, self.stream.steady_until(first)))
            self._from = first
            if self.world.count is not None:
                self._sample_with_gaps(first)
            elif self.most > 1:
                self._sample_ahead(first, self._to - first)
            else:
                self._sample_in_parts(first)
            self.world.team.wait()  # so that the others see the means
        return min(last + 1, self._to) - first

    def means(self, first: int, n_steps: int) -> NDArray[np.float64]:
        """The means of steps that have been sampled, a row each."""
        if self.most == 1:
            return self.world.mean[None, :]
        return self._lines[first - self._from : first - self._from + n_steps]

    def errors(self, first: int, n_steps: int) -> NDArray[np.float64]:
        """The metrics of the run at these steps, where they are recorded."""
        return self._errors[first - self._from : first - self._from + n_steps]

    def _sample_ahead(self, t: int, n_steps: int) -> None:
        self._before[:] = self.world.mean
        lines, whole = self._lines[:n_steps], slice(None)
        self.stream.fill(lines, t)
        self._begin()
        wanted = self._wanted(t, n_steps)
        self._update_means(lines, lines, self._before, t, wanted, whole)
        self._finish_errors(wanted)

    def _sample_in_parts(self, t: int) -> None:
        mean, wanted = self.world.mean, self._wanted(t, 1)
        self._begin()
        for part, samples in self._parts():
            self.stream.fill(samples, t, part.start)
            self._follow_moments(samples[0], part, t - 1)
            self._update_means(samples, mean[None, part], mean[part], t, wanted, part)
        self._finish_errors(wanted)

    def _sample_with_gaps(self, t: int) -> None:
        world = self.world
        assert world.count is not None
        for part, samples in self._parts():
            self.stream.fill(samples, t, part.start)
            self._follow_moments(samples[0], part, world.count[part])
            observe_some(world.mean[part], world.count[part], samples[0])
        if self._wanted(t, 1)[0]:
            self._measure_with_gaps()

    def _follow_moments(self, samples: NDArray[np.float64], part: slice, count: int | NDArray[np.int32]) -> None:
        """Where a method needs them; means and counts are still those of the step before."""
        if self.world.moments is not None:
            self.world.moments.observe(samples, self.world.mean[part], count, part.start)

    def measure_again(self) -> NDArray[np.float64]:
        """The errors of the present means, at a step that was not to be recorded when it was sampled."""
        world = self.world
        world.truth = self.stream.truth(world.t)
        if world.count is not None:
            self._measure_with_gaps()
        else:
            self._begin()
            for part, samples in self._parts():  # the first sample is the mean
                samples[0] = world.mean[part]
                self._update_means(samples, samples, world.mean[part], 1, np.ones(1, bool), part)
            self._finish_errors(np.ones(1, bool))
        return self._errors[:1]

    def _parts(self) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Parts of the agents, and room for a sample of each."""
        n, width = self.world.n_agents, self._lines.shape[1]
        for start in range(0, n, max(width, 1)):
            part = slice(start, min(start + width, n))
            yield part, self._lines[:1, : part.stop - start]

    def _wanted(self, t: int, n_steps: int) -> NDArray[np.bool_]:
        """Which of the steps t, t + 1, .. are recorded."""
        first, last = self._recorded.searchsorted((t, t + n_steps))
        wanted = np.zeros(n_steps, bool)
        wanted[self._recorded[first:last] - t] = True
        return wanted

    def _begin(self) -> None:
        for sums in (self._page_errors, self._totals):
            sums.fill(0)

    def _update_means(
        self, samples: NDArray[np.float64], means: NDArray[np.float64], before: NDArray[np.float64], t: int,
        wanted: NDArray[np.bool_], part: slice,
    ) -> None:  # fmt: skip
        truth, judge = self.world.truth, self.judge
        update_means(
            samples, means, before, t, wanted, NOT_KNOWN if truth is None else truth[part], judge.tolerance,
            judge.class_[part], part.start or 0, self.world.hood.page, self._page_errors, self._totals,
        )  # fmt: skip

    def _finish_errors(self, wanted: NDArray[np.bool_]) -> None:
        if self.world.truth is not None and wanted.any():
            class_truth, team = self.judge.class_truth(self.world.truth), self.world.team
            errors, totals = team.gather(self._page_errors), team.gather(self._totals)
            finish_errors(errors, totals, class_truth, self.judge.class_size, self._errors)

    def _measure_with_gaps(self) -> None:
        world = self.world
        if world.truth is not None and world.count is not None:
            self.judge.means(world.mean, world.count, world.truth, self._errors[0])
