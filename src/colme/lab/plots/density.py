"""`plot_density`: the density of all agents' estimates over time, from one cloud to one thin line per class."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import NDArray

from colme.errors import ColmeError, shorten, whole
from colme.lab.plots._style import canvas, step_axis
from colme.lab.rows import number
from colme.methods import Method
from colme.scenario import Scenario
from colme.sim.run import Run
from colme.sim.spec import GraphSource, RunSpec


def estimate_density(
    method: Method,
    scenario: Scenario,
    *,
    degree: int | None = None,
    graph: GraphSource | None = None,
    steps: int = 2000,
    seed: int = 0,
    n_times: int = 240,
    n_bins: int = 240,
    window: tuple[float, float] | None = None,
) -> xarray.DataArray:
    """Density of all agents' estimates over (t, value), at steps evenly spaced on a logarithmic axis.

    Every column integrates to the share of agents within `window` (default: around the true means); the coordinate
    `outside` is the rest, and `wrong_edges` the share of edges between classes still alive."""
    whole(steps, "steps", "steps=2000")
    whole(n_times, "n_times", "n_times=240", low=2)
    whole(n_bins, "n_bins", "n_bins=240", low=2)
    means = sorted(set(scenario.all_means))
    low, high = window or _window(means, scenario)
    if not low < high:
        raise ColmeError(f"window={shorten(window)}: it must be (low, high) with low < high. Try window=None.")
    t = np.unique(np.geomspace(1, steps, n_times).round().astype(int))
    edges = np.linspace(low, high, n_bins + 1)
    density = np.empty((len(t), n_bins))
    outside, wrong = np.empty(len(t)), np.empty(len(t))
    spec = RunSpec(
        method=method, source=scenario, steps=steps, seed=seed, degree=degree, graph=graph, record=(steps,)
    )  # fmt: skip
    run = Run([spec])
    state = run.states[0]
    for step in range(1, steps + 1):
        run.step(step)
        k = int(np.searchsorted(t, step))
        if t[k] == step:
            density[k], outside[k] = shares(state.estimate + run.stream.origin, edges)
            wrong[k] = state.edges.wrong_share
    return xarray.DataArray(
        density,
        dims=("t", "value"),
        coords={"t": t, "value": (edges[1:] + edges[:-1]) / 2, "outside": ("t", outside), "wrong_edges": ("t", wrong)},
        name="density",
        attrs={"means": sorted(set(scenario.means_at(steps))), "method": method.label, "n_agents": scenario.n_agents},
    )


def _window(means: list[float], scenario: Scenario) -> tuple[float, float]:
    """The means and as much room around them as lies between them (a lone class: its noise)."""
    room = 0.9 * (means[-1] - means[0]) or float(np.max(scenario.known_scale))
    return means[0] - room, means[-1] + room


def shares(estimate: NDArray[np.float64], edges: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Density in each bin and the share of agents outside all of them. NaN (no estimate yet) counts nowhere.

    A kernel estimate on the grid, with a kernel that typically holds 4 sqrt(n) agents, but at most a twentieth of them,
    so that it does not bridge classes: a cloud is smooth, and agents that agree are a line as thin as a bin."""
    known = np.sort(estimate[~np.isnan(estimate)])
    n, n_bins, width = len(known), len(edges) - 1, edges[1] - edges[0]
    if n == 0:
        return np.zeros(n_bins), 0.0
    k = min(int(4 * np.sqrt(n)), n // 20)
    spacing = float(np.median(known[k:] - known[: n - k])) if k else 0.0
    sigma = min(spacing / 4 / width, n_bins / 10)  # in bins
    pad = int(4 * sigma) + 1
    place = (known - edges[0]) / width - 0.5 + pad
    place = place[(place >= 0) & (place < n_bins + 2 * pad - 1)]
    left = place.astype(int)
    size = n_bins + 2 * pad
    mass: Any = np.bincount(left, 1 - (place - left), size) + np.bincount(left + 1, place - left, size)
    kernel = np.exp(-0.5 * (np.arange(-pad, pad + 1) / max(sigma, 0.1)) ** 2)
    mass = np.convolve(mass, kernel / kernel.sum(), mode="same")[pad : pad + n_bins] / n
    return mass / width, float(1.0 - mass.sum())


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
    if not np.nanmax(peak) > 0:
        raise ColmeError("density is zero everywhere: no estimate is inside the window. Try a wider window.")
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
        ax.set_ylabel(
            f"estimates of {density.attrs['n_agents']:,} agents" if "n_agents" in density.attrs else "estimates"
        )
        right = ax.secondary_yaxis("right")
        right.set_yticks(density.attrs["means"], [number(mean) for mean in density.attrs["means"]])
        right.set_ylabel("true means")
        _mark_cutting(ax, density)
    return ax


def _mark_cutting(ax: Axes, density: xarray.DataArray) -> None:
    """A bracket above the frame over the time from the first to the last cut between classes."""
    if "wrong_edges" not in density.coords:
        return
    t, wrong = density["t"].values, density["wrong_edges"].values
    if not (wrong < 0.99).any() or not wrong[0] > 0.99:
        return
    begin, done = t[np.argmax(wrong < 0.99)], wrong <= 0.001
    end = t[np.argmax(done)] if done.any() else t[-1]
    frame = ax.get_xaxis_transform()
    ax.plot([begin, begin, end, end], [1.015, 1.035, 1.035, 1.015], transform=frame, color="#444444", linewidth=0.8,
            clip_on=False)  # fmt: skip
    words = ax.annotate("edges between classes are being cut", (float(np.sqrt(begin * float(end))), 1.035), (0, 3),
                        xycoords=frame, textcoords="offset points", ha="center", va="bottom", fontsize=8,
                        annotation_clip=False)  # fmt: skip
    if np.log(t[-1] / begin) < 0.5 * np.log(t[-1] / t[0]):  # it would stick out at the right
        words.set(ha="right")
        words.xy = (float(end), 1.035)


def glow() -> LinearSegmentedColormap:
    """A color map from white through matplotlib's magma reversed, with evenly falling lightness."""
    from matplotlib import colormaps

    colors = colormaps["magma_r"](np.linspace(0.02, 0.92, 255))
    fade = np.linspace(1, 0, 24)[:, None]
    colors[:24, :3] = fade + (1 - fade) * colors[:24, :3]
    return LinearSegmentedColormap.from_list("glow", colors, N=256)
