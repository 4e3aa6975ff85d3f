"""Streams of samples drawn from a scenario, and the running mean of an agent's samples. (Own arrays: `recording`.)

A drawn sample is a function of (seed, agent, t) alone, so any block of agents and steps can be made anywhere, in any
order, and has the same bits. NaN means "no sample at this step".

A stream speaks in *centered* units: sample - origin, with an origin in the middle of the data. Every method commutes
with a shift, so nothing changes but the rounding: values near a million that differ by a thousandth keep their digits
when estimates are exchanged as float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colme._core import random
from colme._core.jit import (
    HAVE_NUMBA,
    LANES,
    at,
    bits_to_float,
    equation,
    kernel,
    lanes_like,
    select,
    wide_vectors,
)
from colme._core.random import SKIP, VALUE, VALUE_2, box_muller, circle_point, minus_two_log, philox, uniform
from colme.errors import SampleError, whole
from colme.scenario import DISTRIBUTIONS, Scenario, check_seed
from colme.support.arrays import Array, Floats

f32, f64, i32, u32, u64 = np.float32, np.float64, np.int32, np.uint32, np.uint64

GAUSSIAN, UNIFORM, LAPLACE, STUDENT, BERNOULLI, EXPONENTIAL = range(6)  # in the order of DISTRIBUTIONS
FAR = 1024.0
"""Sigmas between the first mean and the last from which on the origin is the median of the means, not the middle."""


# Unit noise: mean 0, deviation 1, from words. Each runs on scalars in the kernel and on arrays in NumPy.


@equation
def uniform_noise(word: Any) -> Any:
    """Uniform on (-sqrt 3, sqrt 3)."""
    return (uniform(word) - 0.5) * 3.4641016151377544


@equation
def laplace_noise(word: Any, sign_word: Any) -> Any:
    """Two-sided exponential: -ln(u) / sqrt 2 with a random sign."""
    size = f64(minus_two_log(word)) * 0.35355339059327373
    return select((sign_word & u32(1)) != u32(0), -size, size)


@equation
def exponential_noise(word: Any) -> Any:
    """-ln(u) - 1: skewed, with a tail to the right."""
    return f64(minus_two_log(word)) * 0.5 - 1.0


@equation
def student_noise(word0: Any, word1: Any, df: Any) -> Any:
    """Student's t scaled to deviation 1, by Bailey's polar method (Math. Comp. 62, 1994): one sample from two words.

    t = sqrt(df (u^(-2/df) - 1)) cos(angle); the power is exp(-2 ln(u) / df) = 2^k times a Taylor polynomial.
    """
    power = f64(minus_two_log(word0)) * (1.4426950408889634 / df)
    k = i32(power + 0.5)
    x = power - f64(k)
    p = 1.3215486790144305e-06
    p = p * x + 1.5252733804059838e-05
    p = p * x + 0.00015403530393381606
    p = p * x + 0.0013333558146428441
    p = p * x + 0.009618129107628477
    p = p * x + 0.055504108664821576
    p = p * x + 0.2402265069591007
    p = p * x + 0.6931471805599453
    p = p * x + 1.0
    grown = p * f64(bits_to_float(i32((k + i32(127)) << i32(23)))) - 1.0
    cos, _ = circle_point(word1)
    return np.sqrt(select(grown > 0.0, grown, 0.0) * (df - 2.0)) * f64(cos)


@kernel
def _fill_gaussian(out, first, t0, key0, key1, location, scale):
    """out[row] = samples of agents first, first+1, ... at step t0 + row. Apart from the others because it is hot."""
    wide_vectors()
    n = u64(out.shape[1])
    noise = lanes_like(np.empty(0, f32))
    for row in range(out.shape[0]):
        line = out[row]
        for block in range((n + u64(63)) >> u64(6)):
            start = u64(block) << u64(6)
            counter = (u64(first) >> u64(2)) + (u64(block) << u64(4))
            for lane in range(u64(16)):
                w0, w1, w2, w3 = philox(counter + u64(lane), t0 + row, VALUE, 0, key0, key1)
                noise[lane], noise[lane + u64(16)] = box_muller(w0, w1)
                noise[lane + u64(32)], noise[lane + u64(48)] = box_muller(w2, w3)
            for lane in range(min(u64(64), n - start)):
                i = start + u64(lane)
                line[i] = location[i] + at(scale, i) * f64(noise[lane])


@equation
def _noise(kind: int, word: Any, word_2: Any, df: Any) -> Any:
    """Noise of any kind but the Gaussian one; of Bernoulli samples, what is compared with the mean."""
    if kind == UNIFORM:
        return uniform_noise(word)
    if kind == LAPLACE:
        return laplace_noise(word, word_2)
    if kind == STUDENT:
        return student_noise(word, word_2, df)
    if kind == EXPONENTIAL:
        return exponential_noise(word)
    return uniform(word)


@kernel
def _fill_other(out, first, t0, key0, key1, kind, df, location, scale):
    wide_vectors()
    n = u64(out.shape[1])
    noise = lanes_like(location)
    for row in range(out.shape[0]):
        line = out[row]
        for block in range((n + u64(63)) >> u64(6)):
            start = u64(block) << u64(6)
            counter = (u64(first) >> u64(2)) + (u64(block) << u64(4))
            for lane in range(u64(16)):
                w0, w1, w2, w3 = philox(counter + u64(lane), t0 + row, VALUE, 0, key0, key1)
                v0, v1, v2, v3 = philox(counter + u64(lane), t0 + row, VALUE_2, 0, key0, key1)
                noise[lane] = _noise(kind, w0, v0, df)
                noise[lane + u64(16)] = _noise(kind, w1, v1, df)
                noise[lane + u64(32)] = _noise(kind, w2, v2, df)
                noise[lane + u64(48)] = _noise(kind, w3, v3, df)
            for lane in range(min(u64(64), n - start)):
                i = start + u64(lane)
                if kind == BERNOULLI:
                    line[i] = 1.0 if noise[lane] < location[i] else 0.0
                else:
                    line[i] = location[i] + at(scale, i) * noise[lane]


def _fill_numpy(out: Floats, first: int, t0: int, seed: int, kind: int, df: float, location: Any, scale: Any) -> None:
    """The NumPy form of the two kernels: the same bits."""
    n = out.shape[1]
    for row, line in enumerate(out):
        t = t0 + row
        w = random.words_numpy(seed, VALUE, t, first=first, n=-(-n // LANES) * LANES)
        if kind == GAUSSIAN:
            w0, w1, w2, w3 = w.reshape(-1, 4, 16).swapaxes(0, 1)
            noise = np.stack([*box_muller(w0, w1), *box_muller(w2, w3)], axis=1).reshape(-1)
        else:
            v = random.words_numpy(seed, VALUE_2, t, first=first, n=len(w)) if kind in (LAPLACE, STUDENT) else w
            noise = _noise(kind, w, v, df)
        noise = noise[:n].astype(f64)
        line[:] = noise < location if kind == BERNOULLI else location + scale * noise


# What an agent makes of them: its local mean


@equation
def running_mean(mean: Any, sample: Any, n: Any) -> Any:
    """The mean of n samples from that of the n-1 before and the newest: X + (x - X) / n."""
    return sample if n == 1 else mean + (sample - mean) * (1.0 / n)


@kernel
def observe_some(mean, count, sample):
    """Agents whose sample is a number see it; the others wait."""
    for a in range(mean.size):
        if sample[a] == sample[a]:
            count[a] += 1
            mean[a] = running_mean(mean[a], sample[a], count[a])


class ScenarioStream:
    """The samples of a scenario under a seed, of all its agents or of a shard first..first+n-1 of them.

    What a run asks of it, it asks of a `Recording`, too: `n_agents`, `origin`, `class_`; `fill` (samples), `truth` and
    `steady_until`; `complete` (every agent has a sample at every step); what agents know, `sigma` (one number, one per
    agent, or None), `width` and `kurtosis`; and `loss`, the probability that a message gets lost."""

    def __init__(self, scenario: Scenario, seed: int, *, first: int = 0, n: int | None = None):
        if first % LANES:
            raise SampleError(f"first={first}: a shard starts at a multiple of {LANES} agents. Try first=0.")
        shard = slice(first, None if n is None else first + n)
        seed = check_seed(seed)
        population = scenario.populate(seed, first=first, n=n)
        self.scenario, self.seed, self.first = scenario, seed, first
        self.class_: Array | None = population.class_
        self._entry = population.entry
        self._offset = 0.0 if population.offset is None else population.offset
        self.loss = scenario.loss
        self.kurtosis = scenario.kurtosis
        self.n_agents = len(population.class_)
        self._scale: Any = population.sigma
        self.sigma: Any = self._scale if scenario.told_sigma is None else scenario.told_sigma
        self.width = scenario.width
        self.joins = population.joins
        rate = scenario.skip_rate
        self.skip_rate: Any = np.asarray(rate)[shard] if isinstance(rate, tuple) else float(rate)
        self.complete = self.joins is None and not np.any(np.asarray(rate) > 0)
        kind = DISTRIBUTIONS.index(scenario.distribution)
        # 0/1 samples compare with the mean itself, so they stay uncentered.
        low, high = min(scenario.all_means), max(scenario.all_means)
        self.origin = 0.0 if kind == BERNOULLI else (low + high) / 2.0
        if kind != BERNOULLI and high - low > FAR * np.min(scenario.known_scale):
            everyone = population if self.n_agents == scenario.n_agents else scenario.populate(seed)
            if high - low > FAR * np.max(everyone.sigma):
                # float32 around the middle of a wide range would be too coarse for the others
                self.origin = float(np.median(np.asarray(scenario.means)[everyone.entry]))
        self._kind, self.key = kind, random.key_of(seed)
        self._means: tuple[float, ...] = ()  # those that the location was made from
        self._location = np.empty(0)

    def truth(self, t: int) -> Floats:
        """The true mean of every agent at step t, centered."""
        means = self.scenario.means_at(t)
        if means is not self._means:
            self._means = means
            self._location = (np.asarray(means, f64) - self.origin)[self._entry] + self._offset
        return self._location

    def steady_until(self, t: int) -> float:
        """The first step after t at which the truth is another one."""
        shift = self.scenario.shift_step
        return shift if shift is not None and t < shift else np.inf

    def fill(self, out: Floats, t0: int, first: int = 0) -> None:
        """out[k, i] = the sample of agent first + i at step t0 + k (first a multiple of 64)."""
        shift = self.scenario.shift_step
        if shift is not None and t0 < shift < t0 + len(out):
            self.fill(out[: shift - t0], t0, first)
            self.fill(out[shift - t0 :], shift, first)
            return
        part = slice(first, first + out.shape[1])
        location, df = self.truth(t0)[part], float(self.scenario.df)
        scale = self._scale[part] if isinstance(self._scale, np.ndarray) else self._scale
        if HAVE_NUMBA and self._kind == GAUSSIAN:
            _fill_gaussian(out, self.first + first, t0, *self.key, location, scale)
        elif HAVE_NUMBA:
            _fill_other(out, self.first + first, t0, *self.key, self._kind, df, location, scale)
        else:
            _fill_numpy(out, self.first + first, t0, self.seed, self._kind, df, location, scale)
        if not self.complete:
            self._leave_out(out, t0, first)

    def _leave_out(self, out: Floats, t0: int, first: int) -> None:
        """NaN for agents that skip this step or have not joined yet."""
        part = slice(first, first + out.shape[1])
        rate = self.skip_rate[part] if isinstance(self.skip_rate, np.ndarray) else self.skip_rate
        for row, line in enumerate(out):
            if np.any(rate):
                word = random.words(self.seed, SKIP, t0 + row, first=self.first + first, n=len(line))
                line[uniform(word) < rate] = np.nan
            if self.joins is not None:
                line[t0 + row < self.joins[part]] = np.nan


def draw(scenario: Scenario, seed: int, steps: int, *, first: int = 0, n: int | None = None) -> Floats:
    """The samples of a scenario as an array (steps, agents), not centered: row t-1 is step t.

    scenario  a `Scenario`
    seed      decides all samples, as in `simulate`
    steps     number of rows
    first     the first agent that is drawn
    n         how many agents (default: all from `first` on)

    >>> draw(Scenario(n_agents=3, means=(0.0, 10.0), sigma=1.0, assignment="blocks"), seed=0, steps=2).round(1).tolist()
    [[0.4, 10.7, 8.0], [1.3, 10.5, 11.6]]

    See also: Scenario, Recording, simulate
    """
    stream = ScenarioStream(scenario, seed, first=first, n=n)
    out = np.empty((whole(steps, "steps", "steps=100", SampleError), stream.n_agents))
    stream.fill(out, 1)
    return out + stream.origin
