"""Recordings: an array of your own samples in place of a scenario."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from colme.errors import SampleError, positive, shorten
from colme.scenario import LARGEST, SMALLEST, class_dtype
from colme.support.arrays import Array, Floats

f64 = np.float64


class Recording:
    """Your own samples: values[t-1, a] is what agent a saw at step t, NaN where it saw nothing.

    means    the true mean of each agent, if known (then errors can be reported)
    classes  the true class of each agent, if known (default: agents of equal means, where means are given)
    sigma    the scale that agents may use: one number or one per agent (methods can also carry it)
    width    length of an interval that holds every sample of an agent (for Hoeffding's bound)
    independent  whether the samples of an agent are known to be independent; if not, methods that need to know how they
             depend on each other learn it (`colme.dependence`)

    >>> import colme
    >>> rng = np.random.default_rng(0)
    >>> recording = Recording(rng.normal([20.0] * 5 + [25.0] * 5, 1.0, (50, 10)), sigma=1.0)
    >>> trace = colme.simulate(colme.CLColME(), recording, degree=4, seed=0)
    >>> trace.final.estimate.round(1)[[0, 9]].tolist()
    [20.0, 25.0]

    See also: simulate, Scenario, CollaborativeMean
    """

    loss = 0.0
    kurtosis = 3.0  # as if Gaussian; the fourth-moment bound takes another one from the method

    def __init__(
        self,
        values: ArrayLike,
        *,
        means: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        sigma: float | ArrayLike | None = None,
        width: float | None = None,
        independent: bool = False,
    ):
        self.values = _as_floats(values)
        if self.values.ndim != 2 or 0 in self.values.shape:
            raise SampleError(
                f"samples have shape {self.values.shape}: they must be (steps, agents) with at least one of each. "
                "Try values[:, None] for one agent, values[None, :] for one step."
            )
        if np.isinf(self.values).any():
            row, agent = (int(k) for k in np.argwhere(np.isinf(self.values))[0])
            raise SampleError(
                f"sample of agent {agent} at step {row + 1} is infinite: samples must be finite, or NaN for "
                "'no sample at this step'. Replace it by NaN."
            )
        there = ~np.isnan(self.values)
        if not there.any():
            raise SampleError("all samples are NaN: there must be at least one number. Check how the array was read.")
        self.n_steps: int | None = len(self.values)
        self.n_agents = self.values.shape[1]
        self.complete = bool(there.all())
        self.width = None if width is None else positive(width, "width", "width=1.0", SampleError)
        self.independent = bool(independent)
        few = max(1, 4096 // self.n_agents + 1)  # rows, enough to find the middle of the data
        self.origin = float(np.median(self.values[:few][there[:few]] if there[:few].any() else self.values[there]))
        if np.isin(self.values[there], (0.0, 1.0)).all():
            self.origin = 0.0  # the census recognizes 0/1 samples
        largest = float(np.nanmax(np.abs(self.values - self.origin)))
        if largest > LARGEST or 0.0 < largest < SMALLEST:
            raise SampleError(
                f"samples lie up to {largest:.1g} from their middle: it must be between {SMALLEST:g} and {LARGEST:g}, "
                "for neighbors hear float32. Try another unit."
            )
        self._truth = None if means is None else self._per_agent(means, "means") - self.origin
        self.class_: Array | None = None
        classes = self._truth if classes is None else classes
        if classes is not None:
            found, class_ = np.unique(self._per_agent(classes, "classes", None), return_inverse=True)
            self.class_ = class_.astype(class_dtype(len(found)))
            if self._truth is not None:
                _check_means(self.class_, self._truth)
        self.sigma: Any = None
        if sigma is not None:
            one = np.ndim(sigma) == 0
            self.sigma = positive(sigma, "sigma", "sigma=2.0", SampleError) if one else self._per_agent(sigma, "sigma")
            if not one and not (self.sigma > 0).all():
                agent = int(np.argmin(self.sigma))
                raise SampleError(f"sigma of agent {agent} is {self.sigma[agent]}: it must be positive. Try sigma=2.0.")

    def _per_agent(self, values: ArrayLike, name: str, dtype: Any = f64) -> Array:
        array = _as_floats(values, name) if dtype is f64 else np.asarray(values)
        if array.shape != (self.n_agents,):
            raise SampleError(
                f"{name} has shape {array.shape}: it must have one entry per agent, ({self.n_agents},). "
                f"Try {name}=None if it is not known."
            )
        if dtype is f64 and not np.isfinite(array).all():
            agent = int(np.argmin(np.isfinite(array)))
            raise SampleError(f"{name} of agent {agent} is {array[agent]}: it must be finite. Try {name}=None.")
        return array

    @property
    def known(self) -> list[Array]:
        """All that is known about the samples, and they themselves: what tells one recording from another."""
        return [np.asarray(np.nan if x is None else x)
                for x in (self.values, self._truth, self.class_, self.sigma, self.width, self.independent)]  # fmt: skip

    def part(self, agents: slice) -> Recording:
        """The samples of some agents, centered as those of all."""
        part = copy.copy(self)
        part.values = self.values[:, agents]
        part.n_agents = part.values.shape[1]
        for name in ("_truth", "class_", "sigma"):
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                setattr(part, name, value[agents])
        return part

    def truth(self, t: int) -> Floats | None:
        return self._truth

    def steady_until(self, t: int) -> float:
        return np.inf

    def fill(self, out: Floats, t0: int, first: int = 0) -> None:
        n_steps, n_agents = out.shape
        np.subtract(self.values[t0 - 1 : t0 - 1 + n_steps, first : first + n_agents], self.origin, out=out)


def _check_means(class_: Array, means: Floats) -> None:
    """The agents of a class have equal means; an oracle that pools others would not be one. Two classes may share a
    mean: they differ in something else."""
    member = np.zeros(class_.max() + 1, np.int64)
    member[class_] = np.arange(len(class_))
    odd = means != means[member[class_]]
    if odd.any():
        a = int(np.argmax(odd))
        raise SampleError(
            f"agents {a} and {member[class_[a]]} are of one class and have different means: a class is agents of equal "
            "means. Leave classes out to derive them from the means."
        )


def _as_floats(values: ArrayLike, name: str = "samples") -> Floats:
    """An array of float64; masked entries are missing ones."""
    try:
        if isinstance(values, np.ma.MaskedArray):
            return np.ma.filled(values.astype(f64), np.nan)
        return np.asarray(values, f64)
    except (TypeError, ValueError):
        raise SampleError(
            f"{name} {shorten(values)} are not numbers in equal rows: give an array of numbers. Try np.asarray(...)."
        ) from None
