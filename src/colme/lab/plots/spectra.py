"""Spectra of a graph: eigenvalues of its Laplacian L, of I - bL and of the Metropolis matrix W, and stable steps b."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from colme.errors import GraphError, missing_extra
from colme.graphs import Graph
from colme.lab.plots._style import BLUE, GREY, VERMILION, canvas, legend, vertical_marks
from colme.spectrum import Spectrum, laplacian_matrix, metropolis_matrix
from colme.support.arrays import Floats

MOST = 2000
"""Number of agents up to which all eigenvalues are computed."""
ROUNDS = 400
"""Number of applications of I - bL in a measurement."""


def spectrum_table(graph: Graph) -> pd.DataFrame:
    """All eigenvalues of the Laplacian, ascending: columns k (from 1, as in lambda_2) and eigenvalue."""
    if graph.n_agents > MOST:
        raise GraphError(
            f"{graph.n_agents} agents: all eigenvalues are computed for at most {MOST}. Try a smaller graph of "
            "the same kind, or colme.spectrum.spectrum(graph) for the two ends."
        )
    values = np.linalg.eigvalsh(laplacian_matrix(graph))
    values[: int(graph.components().max()) + 1] = 0.0  # exactly: one per component
    return pd.DataFrame({"k": np.arange(1, len(values) + 1), "eigenvalue": values})


def ends_of(table: pd.DataFrame) -> Spectrum:
    """The extreme eigenvalues of a spectrum table."""
    values = table["eigenvalue"].to_numpy()
    n_components = int((values == 0).sum())
    if n_components == len(values):
        raise GraphError(f"the graph has {len(values)} agents and no edge: there is nothing to agree on. Add edges.")
    return Spectrum(float(values[n_components]), float(values[-1]), n_components)


def kesten_mckay(eigenvalue: Floats, degree: int) -> Floats:
    """Density of the Laplacian's eigenvalues on a large random regular graph (McKay 1981), for lambda = degree - x."""
    x = degree - eigenvalue
    inside = np.maximum(4.0 * (degree - 1) - x * x, 0.0)
    bottom = np.where(inside > 0, degree**2 - x * x, 1.0)
    return degree * np.sqrt(inside) / (2 * np.pi * bottom)


def plot_spectrum(graph: Graph, ax: Axes | None = None) -> Axes:
    """Histogram of the Laplacian's eigenvalues with lambda_2 and lambda_max; on a regular graph also the density that
    a large random one has.

    graph  a `Graph`
    ax     the axes to draw on (default: new ones)

    >>> from colme import lab
    >>> from colme.graphs import random_regular_graph
    >>> lab.plots.plot_spectrum(random_regular_graph(100, 10, rng=0)).get_xlabel()
    'eigenvalue of the Laplacian (100 agents)'

    See also: spectrum, plot_stability
    """
    table = spectrum_table(graph)
    ends = ends_of(table)
    values = table["eigenvalue"].to_numpy()
    degrees = graph.degrees
    with canvas(ax) as ax:
        n_bins = int(np.clip(2 * np.sqrt(len(values)), 10, 80))
        top = ends.largest * 1.0001
        ax.hist(values, bins=list(np.linspace(0, top, n_bins + 1)), density=True, color=BLUE, alpha=0.55)
        if (degrees == degrees[0]).all() and degrees[0] >= 3:
            x = np.linspace(0, 2.0 * float(degrees[0]), 400)
            y = kesten_mckay(x, int(degrees[0]))
            ax.plot(x, y, color=VERMILION, linewidth=1.1, label=f"Kesten-McKay, degree {degrees[0]}")
        name = r"$\lambda_2$" if ends.n_components == 1 else "smallest positive"
        vertical_marks(
            ax, {f"{name} = {ends.gap:.3g}": ends.gap, rf"$\lambda_{{max}}$ = {ends.largest:.3g}": ends.largest}
        )
        ax.set_xlim(0, max(1.06 * ends.largest, 0.1))
        parts = "" if ends.n_components == 1 else f", {ends.n_components} components"
        ax.set_xlabel(f"eigenvalue of the Laplacian ({graph.n_agents:,} agents{parts})")
        ax.set_ylabel("density")
        legend(ax, formulas=True)
    return ax


def averaging_table(graph: Graph, step: float) -> pd.DataFrame:
    """All eigenvalues of the two averaging matrices, ascending: columns k, laplacian (I - bL, of CL-colME with step b)
    and metropolis (W of C-colME: W_ab = 1 / (max(D_a, D_b) + 1) on edges, rows that sum to one)."""
    laplacian = np.sort(1.0 - step * spectrum_table(graph)["eigenvalue"].to_numpy())
    metropolis = np.linalg.eigvalsh(metropolis_matrix(graph))
    return pd.DataFrame({"k": np.arange(1, len(laplacian) + 1), "laplacian": laplacian, "metropolis": metropolis})


def plot_averaging(graph: Graph, step: float, ax: Axes | None = None) -> Axes:
    """Histograms of the eigenvalues of I - bL (CL-colME) and of the Metropolis matrix W (C-colME). An eigenvalue is the
    factor by which one step multiplies the disagreement along its eigenvector; 1 belongs to the consensus itself."""
    table = averaging_table(graph, step)
    n_components = int(graph.components().max()) + 1
    with canvas(ax) as ax:
        low = min(-0.05, 1.05 * float(table.min().min()))
        bins = list(np.linspace(low, 1.0001, int(np.clip(2 * np.sqrt(len(table)), 10, 80)) + 1))
        for column, name, color in (("laplacian", f"CL-colME: $I-bL$ with $b={step:.3g}$", VERMILION),
                                    ("metropolis", "C-colME: $W$", BLUE)):  # fmt: skip
            values = table[column].to_numpy()
            slowest = float(np.abs(values[:-n_components]).max()) if len(values) > n_components else 0.0
            label = f"{name}, slowest factor {slowest:.3g}"
            ax.hist(values, bins=bins, density=True, histtype="stepfilled", color=color, alpha=0.3)
            ax.hist(values, bins=bins, density=True, histtype="step", color=color, linewidth=1.2, label=label)
        ax.set_xlim(low, 1.02)
        ax.set_xlabel(f"eigenvalue ({graph.n_agents:,} agents)")
        ax.set_ylabel("density")
        legend(ax, formulas=True)
    return ax


def stability_table(graph: Graph, steps_b: Sequence[float] | Floats) -> pd.DataFrame:
    """Convergence factor of I - bL for each step b: columns b, theory (max |1 - b lambda| over the eigenvalues that are
    not constant on components) and measured (growth of a random vector in the last of many applications).

    The measured factor rises towards theory from below; see `measure`."""
    b = np.asarray(steps_b, float)
    ends = ends_of(spectrum_table(graph))
    theory = [ends.convergence_rate(float(step)) for step in b]
    return pd.DataFrame({"b": b, "theory": theory, "measured": measure(graph, b)})


def measure(graph: Graph, b: Floats) -> Floats:
    """|M^k x| / |M^(k-1) x| with M = I - bL, k = ROUNDS, and x random and orthogonal to constants on components.

    For a symmetric M these ratios never fall and never exceed the factor f of theory, and the last one is at least
    their geometric mean >= f c^(1/k), where c is the part of x/|x| along the slowest eigenvector, about 1/sqrt(n)."""
    try:
        from scipy.sparse import csr_array
    except ImportError:
        raise missing_extra("scipy", "lab", "stability_table()") from None
    n, laplacian = graph.n_agents, csr_array(laplacian_matrix(graph))
    component = graph.components()
    sizes = np.bincount(component)[:, None]
    member: Any = csr_array((np.ones(n), (component, np.arange(n))), shape=(len(sizes), n))
    x = np.repeat(np.random.default_rng(0).standard_normal((n, 1)), len(b), axis=1)
    growth = np.zeros(len(b))
    for _ in range(ROUNDS):
        x -= ((member @ x) / sizes)[component]  # rounding would bring constants back, and they do not shrink
        length = np.linalg.norm(x, axis=0)
        x /= np.where(length > 0, length, 1.0)
        x -= b * (laplacian @ x)
        growth = np.linalg.norm(x, axis=0)
    return growth


def plot_stability(graph: Graph, steps_b: Sequence[float] | None = None, ax: Axes | None = None) -> Axes:
    """Convergence factor against the step b: theory as a line, measurements as points, on both sides of the limit of
    stability.

    graph    a `Graph`
    steps_b  the steps to measure (default: around the limit)
    ax       the axes to draw on (default: new ones)

    >>> from colme import lab
    >>> from colme.graphs import random_regular_graph
    >>> lab.plots.plot_stability(random_regular_graph(100, 10, rng=0)).get_xlabel()
    'step b'

    See also: spectrum, stable_step, plot_spectrum
    """
    ends = ends_of(spectrum_table(graph))
    edge, fastest = 2.0 / ends.largest, ends.fastest_step
    marks = {"1 / max degree": 1.0 / graph.max_degree, r"fastest: $2/(\lambda_2+\lambda_{max})$": fastest,
             r"unstable beyond $2/\lambda_{max}$": edge}  # fmt: skip
    chosen = np.linspace(0.0, 1.4 * edge, 29)[1:] if steps_b is None else np.asarray(steps_b, float)
    # theory has a corner at the fastest step and is straight elsewhere: with it, the line is exact
    table = stability_table(graph, np.unique(np.concatenate([chosen, [0.0, fastest, edge]])))
    with canvas(ax) as ax:
        ax.axhspan(1.0, 10.0, color="#F4F4F4", linewidth=0, zorder=0)
        ax.axhline(1.0, color=GREY, linewidth=0.8)
        ax.plot(table["b"], table["theory"], color=BLUE, label="theory")
        shown = table[table["b"].isin(chosen)]
        ax.plot(shown["b"], shown["measured"], "o", color=VERMILION, markersize=4, markerfacecolor="white",
                markeredgewidth=1.1, label="measured", zorder=3)  # fmt: skip
        vertical_marks(ax, marks)
        ax.set_xlim(0, float(table["b"].max()))
        ax.set_ylim(0, 1.05 * float(table["theory"].max()))
        ax.annotate("diverges", (0.01, 1.0), (2, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
                    color="#666666")  # fmt: skip
        legend(ax, formulas=True)
        ax.set_xlabel("step b")
        ax.set_ylabel(r"convergence factor max $|1 - b\lambda|$")
    return ax
