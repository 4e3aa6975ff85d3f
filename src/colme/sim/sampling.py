"""Sampling: draw the samples of all agents, update their local means, and measure the errors of these means.

Few agents sample many steps at once: a stretch of steps is drawn, averaged and measured in one kernel, before the
methods make these steps. Many agents sample one step, in parts that fit the cache. The bits are the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from colme._core.jit import CHUNK, chunk_like, kernel, lanes_like
from colme._core.team import Neighborhood
from colme.methods import World
from colme.metrics import N_SUMS, NOT_KNOWN, OF_RUN, add_errors, all_errors_of, clear, errors_of, sum_errors, total
from colme.recording import Recording
from colme.samples import ScenarioStream, observe_some, running_mean
from colme.support.arrays import Array, Floats, Integers, Mask

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
def update_means(samples, means, before, t, recorded, truth, tolerance, class_, first, page, errors, totals):
    """means[i] = local means of step t + i, from samples[i] and the means `before`, which may all be the same arrays.

    Where `recorded`, adds to the sums of step t + i, by page of `page` agents (`colme.metrics`): squared
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
            if truth.size == 0 or not recorded[i]:
                continue
            at_page = (u64(first) + base) // u64(page)
            add_errors(errors[at_page, i], own, truth, base, size, tolerance)
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
        found = errors_of(errors[:, i])
        out[i, 0], out[i, 1] = found[0], found[1]
        out[i, 2] = square / n


@kernel
def _sum_by_class(mean, count, class_, page, totals):
    """totals[k, :, c] = sum of all samples of class c among the agents of page k, how many they are, and of how many
    agents."""
    totals[:] = 0.0
    for a in range(mean.size):
        if count[a] > 0:
            k, c = a // page, class_[a]
            totals[k, 0, c] += count[a] * mean[a]
            totals[k, 1, c] += count[a]
            totals[k, 2, c] += 1.0


class Errors:
    """What errors are measured against: the classes, their true means, the tolerance."""

    def __init__(self, class_: Array, tolerance: float, hood: Neighborhood | None = None):
        self.hood = Neighborhood(len(class_)) if hood is None else hood
        self.class_, self.tolerance, team = class_, tolerance, self.hood.team
        n_classes = int(team.greatest(class_.max(initial=0))) + 1
        self._member = np.full(n_classes, -1)  # some own agent of each class
        self._member[class_] = np.arange(len(class_))
        self.class_size = team.total(np.bincount(class_, minlength=n_classes)).astype(float)
        self._truth: Floats | None = None
        self._class_truth = np.empty(n_classes)
        self._pages = np.zeros((self.hood.n_pages, N_SUMS))

    def class_truth(self, truth: Floats) -> Floats:
        """The true mean of each class, -inf where it has no agent."""
        if truth is not self._truth:
            own = np.full(len(self._member), -np.inf)
            own[self._member >= 0] = truth[self._member[self._member >= 0]]
            self._truth, self._class_truth = truth, self.hood.team.greatest(own)
        return self._class_truth

    def estimates(self, estimate: Floats, truth: Floats) -> tuple[float, ...]:
        """The metrics in `ERRORS`."""
        sum_errors(estimate, truth, self.tolerance, self.hood.page, self._pages)
        return all_errors_of(self.hood.team.gather(self._pages))

    def means(
        self, mean: Floats, count: NDArray[np.int32], truth: Floats, out: Floats
    ) -> None:  # fmt: skip
        """out[0:3] = the metrics of the run, for agents with different counts: local mean squared error and error rate,
        and the oracle's mean squared error."""
        out[:2] = self.estimates(mean, truth)
        totals = np.empty((self.hood.n_pages, 3, len(self.class_size)))
        _sum_by_class(mean, count, self.class_, self.hood.page, totals)
        total, samples, agents = self.hood.team.gather(totals).sum(axis=0)
        there = agents > 0.0
        error = total[there] / samples[there] - self.class_truth(truth)[there]
        out[2] = (agents[there] * error**2).sum() / agents.sum() if there.any() else np.nan


class Sampler:
    """Gives the world its local means, for as many steps at once as pays, and their errors to be recorded."""

    def __init__(self, stream: ScenarioStream | Recording, world: World, recorded: Integers, block: int = BLOCK):
        n, n_pages, n_classes = world.n_agents, world.hood.n_pages, len(world.errors.class_size)
        self.stream, self.world, self._recorded = stream, world, recorded
        # moments are kept of one step only, and so are the means that other workers see
        ahead = stream.complete and world.moments is None and world.team.size == 1
        self.most = max(1, min(STRETCH, int(recorded[-1]), block // max(n, 1))) if ahead else 1
        """Steps that are sampled at once."""
        part = max(CHUNK, min(PART, block) // CHUNK * CHUNK)
        self._lines = np.empty((self.most, n if self.most > 1 else min(n, part)))
        self._before = world.mean
        self._page_errors, self._totals = (
            np.empty((n_pages, self.most, N_SUMS)),
            np.empty((n_pages, self.most, n_classes)),
        )
        self._metrics = np.full((self.most, len(OF_RUN)), np.nan)
        self._from = self._to = 1  # the steps that have been sampled, the last one excluded

    def sample(self, first: int, last: int) -> tuple[Floats, Mask, Floats]:
        """Sample step `first` for all agents, and perhaps some more steps up to `last`. Returns the means of these
        steps, a row each, which of them are recorded, and the metrics of the run at those."""
        if not self._from <= first < self._to:
            self.world.truth = self.stream.truth(first)
            self._to = int(min(first + self.most, self._recorded[-1] + 1, self.stream.steady_until(first)))
            self._from = first
            if self.most > 1:
                self._sample_ahead(first, self._to - first)
            else:
                self._sample_in_parts(first)
            self.world.team.wait()  # so that the others see the means
        rows = slice(first - self._from, min(last + 1, self._to) - self._from)
        means = self.world.mean[None, :] if self.most == 1 else self._lines[rows]
        return means, self._is_recorded(first, len(means)), self._metrics[rows]

    def _is_recorded(self, first: int, n_steps: int) -> Mask:
        """Which of the steps first, first + 1, .. are recorded."""
        begin, end = self._recorded.searchsorted((first, first + n_steps))
        recorded = np.zeros(n_steps, np.bool_)
        recorded[self._recorded[begin:end] - first] = True
        return recorded

    def measure_again(self) -> Floats:
        """The metrics of the present means, at a step that was not to be recorded when it was sampled."""
        world, recorded = self.world, np.ones(1, np.bool_)
        world.truth = self.stream.truth(world.t)
        if world.count is None:
            for part, samples in self._parts():  # the first sample is the mean
                samples[0] = world.mean[part]
                self._update_means(samples, samples, world.mean[part], 1, recorded, part)
        self._measure(recorded)
        return self._metrics[:1]

    def _sample_ahead(self, t: int, n_steps: int) -> None:
        lines, recorded = self._lines[:n_steps], self._is_recorded(t, n_steps)
        self._before[:] = self.world.mean
        self.stream.fill(lines, t)
        self._update_means(lines, lines, self._before, t, recorded, slice(0, None))
        self._measure(recorded)

    def _sample_in_parts(self, t: int) -> None:
        world, recorded = self.world, self._is_recorded(t, 1)
        for part, samples in self._parts():
            self.stream.fill(samples, t, part.start)
            mean, before = world.mean[part], t - 1 if world.count is None else world.count[part]
            if world.moments is not None:
                world.moments.observe(samples[0], mean, before, part.start)
            if world.count is None:
                self._update_means(samples, mean[None, :], mean, t, recorded, part)
            else:
                observe_some(mean, before, samples[0])
        self._measure(recorded)

    def _parts(self) -> Iterator[tuple[slice, Floats]]:
        """Parts of the agents, and room for a sample of each."""
        n, width = self.world.n_agents, self._lines.shape[1]
        for start in range(0, n, max(width, 1)):
            part = slice(start, min(start + width, n))
            yield part, self._lines[:1, : part.stop - start]

    def _update_means(
        self, samples: Floats, means: Floats, before: Floats, t: int,
        recorded: Mask, part: slice,
    ) -> None:  # fmt: skip
        truth, errors = self.world.truth, self.world.errors
        if part.start == 0:  # a sum over all agents begins
            self._page_errors.fill(0)
            self._totals.fill(0)
        update_means(
            samples, means, before, t, recorded, NOT_KNOWN if truth is None else truth[part], errors.tolerance,
            errors.class_[part], part.start, self.world.hood.page, self._page_errors, self._totals,
        )  # fmt: skip

    def _measure(self, recorded: Mask) -> None:
        world, errors, gather = self.world, self.world.errors, self.world.team.gather
        if world.truth is None or not recorded.any():
            return
        if world.count is not None:
            errors.means(world.mean, world.count, world.truth, self._metrics[0])
        else:
            class_truth = errors.class_truth(world.truth)
            finish_errors(
                gather(self._page_errors), gather(self._totals), class_truth, errors.class_size, self._metrics
            )  # fmt: skip
