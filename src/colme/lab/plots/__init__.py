"""Figures: functions `plot_*(..., ax=None) -> Axes`, each with a function that returns the table it draws.

Most take an xarray.Dataset over (method, parameters..., seed, t), such as `simulate(...).to_xarray()`. Nothing here
touches pyplot or the user's rcParams. In a notebook, show a figure with `plot_over_time(data).figure`.
"""

from colme.errors import missing_extra

try:
    import matplotlib as _matplotlib  # noqa: F401
    import pandas as _pandas  # noqa: F401
    import xarray as _xarray  # noqa: F401
except ImportError as _error:
    raise missing_extra(_error.name or "matplotlib", "lab", "plotting") from None

from colme.lab.plots._style import STYLE, Paper, drawn_for
from colme.lab.plots.census import PARTS, ExplainedCensus, explain_census, plot_census
from colme.lab.plots.density import estimate_density, plot_density
from colme.lab.plots.estimates import estimates_table, plot_estimates
from colme.lab.plots.fleet import fleet_table, plot_fleet
from colme.lab.plots.graph import Separation, plot_graph, separation
from colme.lab.plots.lines import (
    OVER_TIME,
    curves,
    parameter_table,
    plot_over_time,
    plot_parameter,
    plot_scaling,
    plot_time,
    scaling_table,
)
from colme.lab.plots.output import PICTURES, as_image, csv_of, parse_width, save, write_figure
from colme.lab.plots.spectra import (
    averaging_table,
    plot_averaging,
    plot_spectrum,
    plot_stability,
    spectrum_table,
    stability_table,
)  # fmt: skip
from colme.lab.rows import time_table

__all__ = [
    "OVER_TIME",
    "PARTS",
    "PICTURES",
    "STYLE",
    "ExplainedCensus",
    "Paper",
    "Separation",
    "as_image",
    "averaging_table",
    "csv_of",
    "curves",
    "drawn_for",
    "estimate_density",
    "estimates_table",
    "explain_census",
    "fleet_table",
    "parameter_table",
    "parse_width",
    "plot_averaging",
    "plot_census",
    "plot_density",
    "plot_estimates",
    "plot_fleet",
    "plot_graph",
    "plot_over_time",
    "plot_parameter",
    "plot_scaling",
    "plot_spectrum",
    "plot_stability",
    "plot_time",
    "save",
    "scaling_table",
    "separation",
    "spectrum_table",
    "stability_table",
    "time_table",
    "write_figure",
]  # fmt: skip
