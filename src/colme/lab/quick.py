"""`simulate_flags`: what `colme simulate` runs. The same fields as in an experiment file; nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from colme.lab.experiment import Experiment
from colme.lab.planning import Planned
from colme.metrics import METRICS
from colme.sim import Trace, simulate
from colme.support.tables import Row

DEFAULTS: dict[str, Any] = {
    "methods": ("cl-colme", "local"),
    "scenario": {"n_agents": 1000, "means": [0.0, 1.0], "sigma": 1.0},
}
Found = list[tuple[Planned, list[Trace]]]
"""Every combination of method and parameters, with the traces of its seeds; without traces if it cannot run."""


def flags_experiment(methods: tuple[str, ...], seeds: Any, changes: dict[str, Any]) -> Experiment:
    """The experiment that flags alone describe."""
    scenario = dict(DEFAULTS["scenario"])
    if "bernoulli" in np.atleast_1d(changes.get("distribution", "")):
        del scenario["sigma"]
    table = {"scenario": scenario, "methods": [{"method": each} for each in methods], "seeds": seeds}
    return Experiment.parse(table, changes=changes)


def simulate_flags(
    methods: tuple[str, ...],
    seeds: Any,
    changes: dict[str, Any],
    *,
    jobs: int | None = None,
    threads: int | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> Found:
    """Simulate every combination of the fields, the methods of a combination on the same samples.

    say   is called with a sentence for every reason why combinations of a sweep cannot run; those are skipped
    """
    experiment = flags_experiment(methods, seeds, changes)
    refused = experiment.check()
    for reason in dict.fromkeys(refused.values()):
        say(f"Skipped: {reason}")
    seeds_asked = sorted({each.spec.seed for each in experiment.planned})
    groups: dict[Any, list[Planned]] = {}
    found: Found = []
    for each in experiment.planned:
        if each.name in refused:
            found.append((each, []))
        elif each.spec.seed == seeds_asked[0]:
            groups.setdefault(tuple(each.spec.but("method", "seed").values()), []).append(each)
    for planned in groups.values():
        traces = simulate(
            [each.spec.method for each in planned], seeds=seeds_asked, n_jobs=jobs, threads=threads, progress=progress,
            **planned[0].spec.but("method", "seed"),
        )  # fmt: skip
        found += [(each, list(traces.select(method=each.spec.method))) for each in planned]
    return found


def last_rows(found: Found) -> list[Row]:
    """Medians over the seeds at the last step."""
    return [
        key | {"seeds": len(traces), "t": int(traces[0].t[-1])}
        | {name: float(np.median([getattr(trace, name)[-1] for trace in traces])) for name in METRICS}
        for key, traces in _keyed(found)
        if traces
    ]  # fmt: skip


def trace_rows(found: Found) -> list[Row]:
    """Every recorded step of every seed."""
    return [
        key | {"seed": trace.seed, "t": int(t)} | {name: float(getattr(trace, name)[k]) for name in METRICS}
        for key, traces in _keyed(found)
        for trace in traces
        for k, t in enumerate(trace.t)
    ]


def _keyed(found: Found) -> list[tuple[Row, list[Trace]]]:
    """Method and the parameters that vary (also among combinations that cannot run), with the traces."""
    flat = [each.spec.parameters() for each, _ in found]
    names = dict.fromkeys(name for row in flat for name in row)
    varying = [name for name in names if len({repr(row[name]) for row in flat if name in row}) > 1]
    return [
        ({"method": each.label} | {name: row.get(name) for name in varying}, traces)
        for (each, traces), row in zip(found, flat, strict=True)
    ]
