"""Traces: the metrics that a run recorded, and its final state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from colme.errors import ColmeError, missing_extra, whole
from colme.graphs import Graph
from colme.method import Method, named
from colme.methods.registry import METHODS, method_from, plain_form
from colme.metrics import METRICS
from colme.sim.spec import RunSpec
from colme.support.arrays import Array, Floats, Integers
from colme.support.files import PathLike, names_known, nothing_missing, read_arrays, write_arrays
from colme.support.tables import html_fragment, html_table, number

FORMAT = "colme trace 1"
_ALWAYS = ("estimate", "mean", "count", "groups")
"""Arrays of a final state by agent."""
_SOMETIMES = ("truth", "probability", "lower", "upper")
"""Of a final state, where known."""
_SHOWN = tuple(name for rank in (1, 2) for name, metric in METRICS.items() if metric.shown == rank)
"""Metrics in the table of a notebook."""
_MOST_ROWS = 20
"""Methods in the table of a notebook."""


@dataclass(frozen=True, eq=False)
class Final:
    """The final state of a run, agent by agent.

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> final = colme.simulate(colme.CLColME(), scenario, steps=300, seed=0).final
    >>> len(set(final.groups.tolist())), final.graph.n_edges < 500, int(final.count[0])
    (2, True, 300)

    See also: Trace, simulate, Graph
    """

    estimate: Floats
    """Collaborative estimates; NaN where an agent never saw a sample."""
    mean: Floats
    """Local means."""
    count: NDArray[np.int32]
    """Samples seen."""
    graph: Graph
    """The edges that are left: which agents still use each other's data."""
    groups: Integers
    """The group that each agent found itself in."""
    class_: Array | None
    """True classes, where known."""
    truth: Floats | None
    """True means, where known."""
    probability: Floats | None = None
    """That an agent is of its group, where the method says so."""
    lower: Floats | None = None
    """The true mean lies above it with probability 95 %, where the method says so."""
    upper: Floats | None = None
    """The true mean lies below it with probability 95 %."""


@dataclass(frozen=True, repr=False, eq=False)
class Trace:
    """One method, one seed: metrics over the recorded steps (see `colme.metrics.METRICS`) and the final state.

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> trace = colme.simulate(colme.CLColME(), scenario, steps=100, seed=0)
    >>> int(trace.t[-1]), len(trace.mse), trace.final.estimate.shape
    (100, 100, (100,))
    >>> sorted(trace.at(50))[:3]
    ['coverage', 'error_rate', 'isolated']

    See also: simulate, Traces, Final
    """

    method: Method | dict[str, Any]
    seed: int
    t: Integers
    mse: Floats
    error_rate: Floats
    local_mse: Floats
    local_error_rate: Floats
    oracle_mse: Floats
    wrong_edges: Floats
    lost_edges: Floats
    isolated: Integers
    n_groups: Floats
    coverage: Floats
    numbers: Floats
    trust: Floats
    final: Final
    configuration: dict[str, Any] = field(default_factory=dict)
    """What determined the run, in plain types (`RunSpec.plain`)."""
    _spec: ClassVar[RunSpec | None] = None
    """No field: neither a copy nor a file has it, for a graph may be any function. The run sets it."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_spec"}

    def __repr__(self) -> str:
        return f"Trace({self.method!r}, seed={self.seed}, t={self.t[0]}..{self.t[-1]}, mse={self.mse[-1]:.3g})"

    def _repr_html_(self) -> str:
        last, error = int(self.t[-1]), float(self.mse[-1])
        name, n_agents = labels_of([self.method])[0], len(self.final.estimate)
        headline = f"{name} on {n_agents:,} agents, {last:,} steps, seed {self.seed}."
        powers = 10 ** np.arange(len(str(last)))
        found = [self.at(int(step)) for step in (*powers, self.t[0], last) if step >= self.t[0]]
        by_step = {int(each["t"]): {name: each[name] for name in _SHOWN} for each in found}
        rows = [{"t": number(step)} | _shown(by_step[step]) for step in sorted(by_step)]
        said = [_compared(error, float(self.local_mse[-1]), float(self.oracle_mse[-1]))]
        return html_fragment(headline, said, html_table(rows))

    def live(self, *, frames: int = 120, height: int = 640) -> Any:
        """A widget for notebooks that shows the run: estimates, intervals, groups and edges at so many steps, evenly
        spaced on a logarithmic axis.

        A trace holds metrics, not every estimate. So the run is made again, which takes as long as it did and gives the
        same bits. A trace that was loaded, copied or unpickled knows how if its samples come from a scenario and its
        graph is the random regular one.

        height  of the widget, in pixels
        """
        return Traces([self]).live(frames=frames, height=height)

    def write_live(self, path: PathLike, *, frames: int = 120) -> Path:
        """Write what `live` shows as a page of its own, which any browser can open."""
        return Traces([self]).write_live(path, frames=frames)

    def at(self, step: int) -> dict[str, float]:
        """All metrics at the last recorded step that is not after `step`."""
        k = int(np.searchsorted(self.t, whole(step, "step", "step=100"), side="right")) - 1
        if k < 0:
            raise ColmeError(f"nothing was recorded up to step {step}: the first recorded step is {self.t[0]}.")
        return {"t": int(self.t[k])} | {name: float(getattr(self, name)[k]) for name in METRICS}

    def save(self, path: PathLike) -> None:
        """Write to one file (NumPy's .npz, no pickle), atomically."""
        arrays: dict[str, Array] = {"t": self.t} | {name: getattr(self, name) for name in METRICS}
        final = self.final
        arrays |= {name: getattr(final, name) for name in _ALWAYS}
        arrays |= {"indptr": final.graph.indptr, "indices": final.graph.indices}
        sometimes = {"class": final.class_} | {name: getattr(final, name) for name in _SOMETIMES}
        arrays |= {name: array for name, array in sometimes.items() if array is not None}
        method = plain_form(self.method) if isinstance(self.method, Method) else self.method
        head = {"seed": self.seed, "method": method, "configuration": self.configuration}
        write_arrays(path, FORMAT, head, arrays)

    @classmethod
    def load(cls, path: PathLike) -> Trace:
        """Read what `save` wrote."""
        head, arrays = read_arrays(path, FORMAT)
        with nothing_missing(path):
            known: Any = {name: arrays[name] for name in _ALWAYS} | {name: arrays.get(name) for name in _SOMETIMES}
            final = Final(graph=Graph(arrays["indptr"], arrays["indices"]), class_=arrays.get("class"), **known)
            metrics: dict[str, Any] = {name: arrays[name] for name in ("t", "mse")}
            unknown = np.full(len(metrics["t"]), np.nan)  # metrics that the version which wrote the file did not have
            metrics |= {name: arrays.get(name, unknown) for name in METRICS}
            seed, configuration = head["seed"], head["configuration"]
            with names_known(path):
                method = decode_method(head["method"])
        return cls(method=method, seed=seed, final=final, configuration=configuration, **metrics)

    def to_xarray(self) -> Any:
        """The metrics as an xarray.Dataset over t."""
        return Traces([self]).to_xarray().isel(method=0, seed=0)


class Traces(Sequence[Trace]):
    """Several methods and seeds, in the order asked for: all seeds of the first method, then of the next.

    >>> import colme
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> traces = colme.simulate([colme.CLColME(), colme.Local()], scenario, steps=100, seeds=[0, 1])
    >>> [(trace.method.label, trace.seed) for trace in traces]
    [('CL-colME', 0), ('CL-colME', 1), ('local', 0), ('local', 1)]
    >>> traces.to_xarray().mse.dims
    ('method', 'seed', 't')

    See also: simulate, Trace, Final
    """

    def __init__(self, traces: Sequence[Trace]):
        self._traces = list(traces)

    def __len__(self) -> int:
        return len(self._traces)

    def __iter__(self) -> Iterator[Trace]:
        return iter(self._traces)

    @overload
    def __getitem__(self, index: int) -> Trace: ...
    @overload
    def __getitem__(self, index: slice) -> Traces: ...
    def __getitem__(self, index: int | slice) -> Trace | Traces:
        return Traces(self._traces[index]) if isinstance(index, slice) else self._traces[index]

    def __repr__(self) -> str:
        return "Traces([\n" + "".join(f"    {trace!r},\n" for trace in self) + "])"

    def _repr_html_(self) -> str:
        if not self._traces:
            return html_fragment("No traces.")
        methods = _distinct(trace.method for trace in self)
        labels, seeds = labels_of(methods), {trace.seed for trace in self}
        rows = []
        for method, label in zip(methods, labels, strict=True):
            of_it = [trace for trace in self if trace.method == method]
            medians = {name: float(np.median([getattr(trace, name)[-1] for trace in of_it])) for name in _SHOWN}
            steps = {int(trace.t[-1]) for trace in of_it}
            rows.append({"method": label, "seeds": number(len(of_it)), "t": number(max(steps))} | _shown(medians))
        count = f"{len(methods)} method{'s' * (len(methods) > 1)}, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
        more = f" {len(rows) - _MOST_ROWS} more methods are not shown." if len(rows) > _MOST_ROWS else ""
        table = html_table(rows[:_MOST_ROWS], words=("method",))
        return html_fragment(f"{count}.", (), table, f"Medians over the seeds at the last step, t.{more}")

    def live(self, *, frames: int = 120, height: int = 640) -> Any:
        """A widget for notebooks that shows all methods side by side, at most four, under the first seed; see
        `Trace.live`."""
        return named("colme.live.widget:LiveWidget")(self._replayed(frames), height=height)

    def write_live(self, path: PathLike, *, frames: int = 120) -> Path:
        """Write what `live` shows as a page of its own, which any browser can open."""
        page: Path = named("colme.live.page:write_page")(path, self._replayed(frames))
        return page

    def _replayed(self, frames: int) -> Any:
        return named("colme.live.replay:replay")(self, frames=frames)

    def select(self, *, method: Method | None = None, seed: int | None = None) -> Traces:
        """Those of this method, of this seed, or of both."""
        return Traces([
            trace for trace in self
            if (method is None or trace.method == method) and (seed is None or trace.seed == seed)
        ])  # fmt: skip

    def to_xarray(self) -> Any:
        """The metrics as an xarray.Dataset with dimensions method, seed and t.

        xarray's own `sel` has an argument `method`, so select with a dictionary: `.sel({"method": "CL-colME"})`."""
        try:
            import xarray
        except ImportError:
            raise missing_extra("xarray", "lab", "to_xarray()") from None
        if not self._traces or any(not np.array_equal(trace.t, self[0].t) for trace in self):
            raise ColmeError(f"{len(self)} traces with different steps make no dataset: record the same steps in each.")
        methods = _distinct(trace.method for trace in self)
        seeds = sorted({trace.seed for trace in self})
        by_key = {(methods.index(trace.method), trace.seed): trace for trace in self}
        if not len(self) == len(by_key) == len(methods) * len(seeds):
            raise ColmeError(
                f"{len(self)} traces of {len(methods)} methods and {len(seeds)} seeds: some method lacks some seed, or "
                "has it twice. A dataset needs every method with every seed once."
            )
        table = [[by_key[m, seed] for seed in seeds] for m in range(len(methods))]
        data = {
            name: (("method", "seed", "t"), np.array([[getattr(trace, name) for trace in row] for row in table]))
            for name in METRICS
        }
        coordinates = {"method": labels_of(methods), "seed": seeds, "t": self[0].t}
        configuration = json.dumps(self[0].configuration)
        return xarray.Dataset(data, coords=coordinates, attrs={"configuration": configuration})


def _distinct(methods: Iterable[Any]) -> list[Any]:
    """Each method once, in the order in which they come."""
    found: list[Any] = []
    for method in methods:
        if method not in found:
            found.append(method)
    return found


def _shown(metrics: dict[str, float]) -> dict[str, str]:
    """Metrics as cells of a table."""
    return {name.replace("_", " "): number(value) for name, value in metrics.items()}


def _compared(error: float, local: float, oracle: float) -> str:
    """The error at the last step beside that of local means, in a sentence."""
    if np.isnan(error):
        return "The true means are not known, so there are no errors."
    ratio = local / error if error > 0 else np.nan
    how = f", {ratio:.3g} times less than that of local means" if ratio > 1 else ""
    how = f", {1 / ratio:.3g} times that of local means" if ratio < 1 else how
    how = ", that of local means" if ratio == 1 else how
    bound = "" if np.isnan(oracle) else f"; knowing the classes, it would be {number(oracle)}"
    return f"The mean squared error at the end is {number(error)}{how}{bound}."


def labels_of(methods: list[Any]) -> list[str]:
    """Short names where they tell the methods apart, else what you would type."""
    short = [method.label if isinstance(method, Method) else str(method.get("method")) for method in methods]
    return [name if short.count(name) == 1 else repr(method) for name, method in zip(short, methods, strict=True)]


def decode_method(data: dict[str, Any]) -> Method | dict[str, Any]:
    """A method from its plain form; a method that is not one of ours stays plain."""
    known = data.get("method") in {method.__struct_config__.tag for method in METHODS}
    return method_from(data) if known else data
