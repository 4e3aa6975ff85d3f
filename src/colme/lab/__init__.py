"""Experiments as files, runs that resume, results as datasets, figures and reports.

from colme import lab
data = lab.run("cl_colme")                # or your own TOML file; only missing runs are done
lab.summary(data).mse.sel(quantile=0.5)   # xarray: method, parameters, t
lab.plots.plot_over_time(data)
lab.report("results/cl_colme")
"""

from __future__ import annotations

from typing import Any

from colme.lab.experiment import Experiment
from colme.lab.results import ExperimentSource, load, summary, to_csv, to_frame, to_parquet
from colme.lab.runs.runner import Stopped, run


def report(source: ExperimentSource, *, results: str = "results", output: str | None = None) -> Any:
    """Write an HTML page about an experiment and return its path.

    source   a folder of results, or what `run` takes
    results  the folder in which every experiment has a folder of its own
    output   the file to write (default: report.html beside the runs)

    >>> import tempfile
    >>> from colme import lab
    >>> scenario = {"n_agents": 20, "means": [0.0]}
    >>> table = {"steps": 20, "scenario": scenario, "methods": [{"method": "local"}], "figures": ["mse"]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = lab.run(table, results=folder, jobs=1)
    ...     lab.report(table, results=folder).name
    'report.html'

    See also: run, load
    """
    from pathlib import Path

    from colme.lab.experiment_page import write_report
    from colme.lab.figures import subject_of

    page, _ = write_report(subject_of(source, results), Path(output) if output else None)
    return page


def __getattr__(name: str) -> Any:
    if name == "plots":  # matplotlib is imported when something is drawn
        import importlib

        return importlib.import_module("colme.lab.plots")
    raise AttributeError(f"module 'colme.lab' has no attribute {name!r}")


__all__ = ["Experiment", "Stopped", "load", "plots", "report", "run", "summary", "to_csv", "to_frame", "to_parquet"]
