"""Figures: functions `plot_*(..., ax=None) -> Axes`, each with a function that returns the table it draws.

Most take an xarray.Dataset over (method, parameters..., seed, t), such as `simulate(...).to_xarray()`. Nothing here
touches pyplot or the user's rcParams. In a notebook, show a figure with `plot_over_time(data).figure`.
"""

from colme.errors import missing_extra

try:
    import matplotlib  # noqa: F401
    import pandas  # noqa: F401
    import xarray  # noqa: F401
except ImportError as _error:
    raise missing_extra(_error.name or "matplotlib", "lab", "plotting") from None

from colme.lab.plots._style import STYLE
from colme.lab.plots.census import explain_census, plot_census
from colme.lab.plots.density import estimate_density, plot_density
from colme.lab.plots.estimates import estimates_table, plot_estimates
from colme.lab.plots.graph import plot_graph, separation
from colme.lab.plots.lines import curves, plot_over_time, plot_parameter
from colme.lab.plots.output import PICTURES, save, write_figure
from colme.lab.plots.spectra import plot_spectrum, plot_stability

__all__ = [
    "PICTURES",
    "STYLE",
    "curves",
    "estimate_density",
    "estimates_table",
    "explain_census",
    "plot_census",
    "plot_density",
    "plot_estimates",
    "plot_graph",
    "plot_over_time",
    "plot_parameter",
    "plot_spectrum",
    "plot_stability",
    "save",
    "separation",
    "write_figure",
]
