"""Run methods in the adverse worlds and print, per world, how they compare with local means.

    python -m tests.adverse.measure --seeds 5 --method 'Census()' --method "CLColME(level='agent')" four_hubs

All methods see the same samples. Errors are means over agents, then over seeds, before they are divided; +- is the
standard error over the seeds of that quotient. The local error is computed here, and the error of the last step again
from the final estimates: both must be what the trace says.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import colme
from colme.methods import Method

from .worlds import WORLDS, Array, World

FIRST = 3  # errors count from this step on
COVERED = 5  # coverage counts from this step on
LATE = 500  # end targets hold from this step on


@dataclass(frozen=True)
class Row:
    """One method in one world."""

    world: str
    method: Method
    ratio: Array
    """(T,) mean squared error over that of local means."""
    error: Array
    """(T,) its standard error over the seeds (NaN with one seed)."""
    coverage: Array
    """(T,) share of agents whose interval covers the truth, NaN if there are no intervals."""
    target: float | None
    end_target: float | None

    @property
    def worst_step(self) -> int:
        return FIRST + int(np.nanargmax(self.ratio[FIRST - 1 :]))

    @property
    def worst(self) -> float:
        return float(self.ratio[self.worst_step - 1])

    @property
    def met(self) -> bool | None:
        """Whether the targets hold; None if there are none."""
        if self.target is None:
            return None
        late = self.ratio[LATE - 1 :].max() if self.end_target is not None else 0.0
        return self.worst <= self.target and late <= (self.end_target or np.inf)

    def __str__(self) -> str:
        with np.errstate(all="ignore"):
            covered = self.coverage[COVERED - 1 :]
            known = np.isfinite(covered).any()
        intervals = f"{np.nanmean(covered):6.2f} ({np.nanmin(covered):.2f})" if known else "     -       "
        verdict = {True: "ok", False: "MISSED", None: ""}[self.met]
        target = "-" if self.target is None else f"{self.target:g}"
        if self.end_target is not None:
            target += f", {self.end_target:g}"
        return (
            f"{self.world:30} {self.method.label:10} {self.worst:8.3f} +-{self.error[self.worst_step - 1]:6.3f}"
            f" @{self.worst_step:<4d} end {self.ratio[-1]:8.4f}  covers {intervals}  target {target:10} {verdict}"
        )


def local_error(world: World) -> Array:
    """(T,) mean squared error of local means over the agents that have a sample."""
    seen = ~np.isnan(world.samples)
    count = seen.cumsum(axis=0)
    # sums of differences from a first guess: exact enough far from zero
    guess = np.nanmean(world.samples)
    total = np.where(seen, world.samples - guess, 0.0).cumsum(axis=0)
    with np.errstate(all="ignore"):
        mean = total / count
    truth = np.broadcast_to(world.truth, world.samples.shape)
    return np.asarray(np.nanmean((mean - (truth - guess)) ** 2, axis=1))


def check(world: World, trace: colme.Trace, local: Array) -> None:
    """Refuse a trace that was measured against another truth."""
    truth = np.broadcast_to(world.truth, world.samples.shape)[-1]
    last = float(np.nanmean((trace.final.estimate - truth) ** 2))
    scale = float(np.nanmax(np.abs(world.samples))) ** 2 * 1e-15
    if not np.allclose(trace.local_mse, local, rtol=1e-6, atol=scale):
        raise AssertionError("the trace's local error is not the one computed from the samples")
    if not np.isclose(trace.mse[-1], last, rtol=1e-6, atol=scale):
        raise AssertionError("the trace's last error is not that of the final estimates")


def measure(methods: Sequence[Method], names: Sequence[str] = (), seeds: Sequence[int] = (0, 1, 2)) -> Iterator[Row]:
    """A row per world and method. A method that refuses a world (no scale told, lost messages) is named on stderr."""
    for name in names or WORLDS:
        worlds = [WORLDS[name](seed) for seed in seeds]
        for method in methods:
            try:
                yield _measured(name, method, worlds, seeds)
            except colme.ColmeError as refusal:
                print(f"{name:30} {method.label:10} refused: {refusal}", file=sys.stderr, flush=True)


def _measured(name: str, method: Method, worlds: list[World], seeds: Sequence[int]) -> Row:
    local = np.array([local_error(each) for each in worlds])
    mse, coverage = np.empty_like(local), np.empty_like(local)
    for i, (each, seed) in enumerate(zip(worlds, seeds, strict=True)):
        trace = colme.simulate(method, each.recording(), graph=each.graph, seed=seed)
        check(each, trace, local[i])
        mse[i], coverage[i] = trace.mse, trace.coverage
    ratio = mse.sum(axis=0) / local.sum(axis=0)
    error = np.full(ratio.size, np.nan)
    if len(seeds) > 1:
        error = (mse - ratio * local).std(axis=0, ddof=1) / np.sqrt(len(seeds)) / local.mean(axis=0)
    return Row(name, method, ratio, error, coverage.mean(axis=0), worlds[0].target, worlds[0].end_target)


def method_of(text: str) -> Method:
    """The method that a call such as "CLColME(level='agent')" makes."""
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise SystemExit(f"--method is a call with named arguments, such as Census(), not {text!r}")
    made: Method = getattr(colme, call.func.id)(**{str(k.arg): ast.literal_eval(k.value) for k in call.keywords})
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="*", metavar="world", help=f"any of {', '.join(WORLDS)} (default: all)")
    parser.add_argument("--method", action="append", default=[], help="a call, as in Python; may be repeated")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds (default 3)")
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    methods = [method_of(text) for text in options.method or ["Census()", "CLColME()"]]
    for row in measure(methods, options.worlds, range(options.first_seed, options.first_seed + options.seeds)):
        print(row, flush=True)


if __name__ == "__main__":
    main()
