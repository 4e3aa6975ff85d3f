"""`plot_density`: the density of all agents' estimates over time, from one cloud to one thin line per class."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from msgspec.structs import replace

from colme.errors import ColmeError, shorten
from colme.lab.plots._style import canvas, step_axis
from colme.lab.rows import number
from colme.methods import Method
from colme.scenario import Scenario
from colme.sim.run import Run
from colme.sim.spec import RunFields, RunSpec
from colme.support.arrays import Floats

TIMES, BINS = 240, 240
"""Steps and values at which a density is kept."""


def estimate_density(method: Method, scenario: Scenario, **fields: Unpack[RunFields]) -> xarray.DataArray:
    """Density of all agents' estimates over (t, value), at steps evenly spaced on a logarithmic axis, around the true
    means; `fields` are those of a run, as in `simulate`.

    Every column integrates to the share of agents within these values; the coordinate `wrong_edges` is the share of
    edges between classes still alive."""
    run = run_of(method, scenario, fields)
    steps = run.n_steps
    means = sorted(set(scenario.all_means))
    room = 0.9 * (means[-1] - means[0]) or float(np.max(scenario.known_scale))  # of a lone class, its noise
    t = np.unique(np.geomspace(1, steps, TIMES).round().astype(int))
    edges = np.linspace(means[0] - room, means[-1] + room, BINS + 1)
    density = np.empty((len(t), BINS))
    wrong = np.empty(len(t))
    state = run.states[0]
    for step in range(1, steps + 1):
        run.step(step)
        k = int(np.searchsorted(t, step))
        if t[k] == step:
            density[k] = shares(state.estimate + run.stream.origin, edges)
            wrong[k] = state.edges.wrong_share
    return xarray.DataArray(
        density,
        dims=("t", "value"),
        coords={"t": t, "value": (edges[1:] + edges[:-1]) / 2, "wrong_edges": ("t", wrong)},
        name="density",
        attrs={"means": sorted(set(scenario.means_at(steps))), "n_agents": scenario.n_agents},
    )


def run_of(method: Method, scenario: Scenario, fields: Any) -> Run:
    """A run that is done step by step. Errors are not measured."""
    spec = RunSpec(method=method, source=scenario, **fields)
    return Run([replace(spec, record=(spec.steps,))])


def shares(estimate: Floats, edges: Floats) -> Floats:
    """Density in each bin. NaN (no estimate yet) counts nowhere.

    A kernel estimate on the grid, with a kernel that typically holds 4 sqrt(n) agents, but at most a twentieth of them,
    so that it does not bridge classes: a cloud is smooth, and agents that agree are a line as thin as a bin."""
    known = np.sort(estimate[~np.isnan(estimate)])
    n, width = len(known), edges[1] - edges[0]
    k = min(int(4 * np.sqrt(n)), n // 20)
    spacing = float(np.median(known[k:] - known[: n - k])) if k else 0.0
    sigma = min(spacing / 4 / width, BINS / 10)  # in bins
    reach = int(4 * sigma) + 1
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / max(sigma, 0.1)) ** 2)
    density: Floats = np.histogram(known, edges)[0] / (max(n, 1) * width)
    return np.convolve(density, kernel / kernel.sum(), mode="same")


def plot_density(density: xarray.DataArray, ax: Axes | None = None) -> Axes:
    """Estimates of all agents over time. Each column is scaled by its maximum, so that the early cloud and the late
    lines are both visible; true means are marked at the right, the time when edges are cut at the top.

    density  what `estimate_density` returns
    ax       the axes to draw on (default: new ones)

    >>> import colme
    >>> from colme import lab
    >>> scenario = colme.Scenario(n_agents=100, means=(0.0, 1.0), sigma=0.5)
    >>> density = lab.plots.estimate_density(colme.CLColME(), scenario, steps=100)
    >>> lab.plots.plot_density(density).get_ylabel()
    'estimates of 100 agents'

    See also: plot_over_time, plot_graph, simulate
    """
    if not isinstance(density, xarray.DataArray) or set(density.dims) != {"t", "value"}:
        raise ColmeError(f"density={shorten(density)}: it must be what estimate_density gives, over (t, value).")
    density = density.transpose("t", "value")
    t, value = density["t"].values, density["value"].values
    peak = density.values.max(axis=1, keepdims=True)
    image = np.sqrt(density.values / np.where(peak > 0, peak, 1))  # the root lets thin clouds be seen
    with canvas(ax, size=(5.2, 3.5)) as ax:
        ax.grid(False)
        times = np.concatenate([[t[0]], np.sqrt(t[1:] * t[:-1].astype(float)), [t[-1]]])
        half = (value[1] - value[0]) / 2
        values = np.append(value - half, value[-1] + half)
        # an image inside the vector file: as rectangles it would be a hundred times larger
        ax.pcolormesh(times, values, image.T, cmap=glow(), vmin=0, vmax=1, shading="flat", rasterized=True)
        step_axis(ax, t[0], t[-1], log=True)
        ax.set_ylim(values[0], values[-1])
        ax.set_ylabel(f"estimates of {density.attrs['n_agents']:,} agents")
        right = ax.secondary_yaxis("right")
        right.set_yticks(density.attrs["means"], [number(mean) for mean in density.attrs["means"]])
        right.set_ylabel("true means")
        _mark_cutting(ax, density)
    return ax


def _mark_cutting(ax: Axes, density: xarray.DataArray) -> None:
    """A bracket above the frame over the time from the first to the last cut between classes."""
    t, wrong = density["t"].values, density["wrong_edges"].values
    begun, done = wrong < 0.99, wrong <= 0.001
    if begun[0] or not begun.any():
        return
    begin, end = t[begun.argmax()], t[done.argmax()] if done.any() else t[-1]
    frame: Any = {"transform": ax.get_xaxis_transform(), "clip_on": False}
    ax.plot([begin, begin, end, end], [1.015, 1.035, 1.035, 1.015], color="#444444", linewidth=0.8, **frame)
    late = np.log(t[-1] / begin) < 0.5 * np.log(t[-1] / t[0])  # words in the middle would stick out at the right
    place = end if late else np.sqrt(begin * float(end))
    ax.text(place, 1.05, "edges between classes are being cut", ha="right" if late else "center", **frame)


def glow() -> LinearSegmentedColormap:
    """A color map from white through matplotlib's magma reversed, with evenly falling lightness."""
    from matplotlib import colormaps

    colors = colormaps["magma_r"](np.linspace(0.02, 0.92, 255))
    fade = np.linspace(1, 0, 24)[:, None]
    colors[:24, :3] = fade + (1 - fade) * colors[:24, :3]
    return LinearSegmentedColormap.from_list("glow", colors, N=256)
