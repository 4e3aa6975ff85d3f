"""Timings as runs of an experiment: measured once per size, stored like any other run, reported as ratios."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from colme.lab.experiments.experiment import Experiment
from colme.lab.experiments.planning import PlannedTiming
from colme.lab.runs.store import RunStore
from colme.lab.timing import PARTS, SET_UP, Columns, measure, ratio_summary, ratios
from colme.support.tables import Row


def measure_repeatedly(planned: PlannedTiming, tell: Callable[[int], None]) -> Columns:
    """The columns of `measure` and `repeat`: each repeat has its own seed; none begins beyond the budget."""
    setting, timing = planned.setting, planned.timing
    options, steps, started = setting.options(), setting.setup.steps, time.monotonic()
    tables: list[Columns] = []
    for repeat in range(timing.repeats):
        if tables and time.monotonic() - started > timing.budget:
            break
        table = measure(
            planned.methods, setting.scenario, degree=options["degree"], graph=options["graph"], steps=steps,
            seed=setting.seed + repeat, precision=setting.setup.precision,
            tell=functools.partial(_tell_share, tell, repeat, timing.repeats),
        )  # fmt: skip
        tables.append(table | {"repeat": np.full(len(table["method"]), repeat)})
    return _stack(tables)


def _tell_share(tell: Callable[[int], None], repeat: int, repeats: int, done: int, of: int) -> None:
    tell((repeat * of + done) // repeats)


def _stack(tables: list[Columns]) -> Columns:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def timing_tables(experiment: Experiment, store: RunStore) -> dict[PlannedTiming, list[Columns]]:
    """What was measured, for each size and repeat."""
    found = {}
    for each in experiment.planned:
        if not isinstance(each, PlannedTiming) or not store.is_complete(each.name):
            continue
        table = store.read_trace(each.name)
        columns = {name: np.asarray(table[name].to_pylist()) for name in table.column_names}
        found[each] = [
            {name: values[columns["repeat"] == repeat] for name, values in columns.items()}
            for repeat in np.unique(columns["repeat"])
        ]
    return found


def sweeps_degree(experiment: Experiment) -> bool:
    """Whether the experiment measures times at several degrees."""
    return len({each.setting.setup.degree for each in experiment.planned}) > 1


def ratio_rows(experiment: Experiment, store: RunStore) -> list[Row]:
    """For each size, part and method: its time relative to CL-colME's over whole runs, the quartiles of the ratios of
    all chunks, and nanoseconds per agent and step."""
    rows: list[Row] = []
    for each, repeats in timing_tables(experiment, store).items():
        n_agents = each.setting.scenario.n_agents
        size: Row = {"agents": n_agents} | ({"degree": each.setting.setup.degree} if sweeps_degree(experiment) else {})
        summary = ratio_summary(_renumbered(repeats))
        for i in range(len(summary["method"])):
            if summary["part"][i] == SET_UP:
                continue
            rows.append({
                **size, "part": str(summary["part"][i]), "method": str(summary["method"][i]),
                "ratio": float(summary["ratio"][i]), "low": float(summary["lower_quartile"][i]),
                "median": float(summary["median"][i]), "high": float(summary["upper_quartile"][i]),
                "ns_per_agent_step": 1e9 * float(summary["seconds"][i]) / (n_agents * int(summary["steps"][i])),
                "repeats": len(repeats),
            })  # fmt: skip
    return sorted(rows, key=lambda row: (row["agents"], row.get("degree", 0), PARTS.index(row["part"])))


def ratio_frame(experiment: Experiment, store: RunStore) -> Any:
    """The ratios of all chunks as a pandas.DataFrame: method, n_agents, degree where it is swept, part, ratio (for
    `plot_timing`)."""
    import pandas

    frames = []
    for each, repeats in timing_tables(experiment, store).items():
        frame = pandas.DataFrame(ratios(_renumbered(repeats)))
        size: Row = {"n_agents": each.setting.scenario.n_agents}
        if sweeps_degree(experiment):
            size |= {"degree": each.setting.setup.degree}
        frames.append(frame[frame["part"] != SET_UP].assign(**size))
    return pandas.concat(frames, ignore_index=True)


def _renumbered(repeats: list[Columns]) -> Columns:
    """All repeats as one table, with a distinct number for every chunk."""
    shifted, first = [], 0
    for table in repeats:
        shifted.append(table | {"chunk": table["chunk"] + first})
        first += int(table["chunk"].max()) + 1
    return _stack(shifted)
