"""`plot_graph`: a graph before and after a run, with the edges that were cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from colme.errors import ColmeError, missing_extra, one_of
from colme.graphs import Graph
from colme.lab.plots._style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, WARNING, canvas
from colme.lab.plots.density import run_of
from colme.lab.rows import number
from colme.methods import Method
from colme.scenario import Scenario
from colme.sim.spec import RunFields
from colme.support.arrays import Array, Floats, Mask

MOST = 300
"""Most agents in a picture of a graph."""
COLORS = (BLUE, ORANGE, GREEN, PURPLE, SKY, BLACK)
MARKERS = "osD^vPX*"


@dataclass(frozen=True, eq=False)
class Separation:
    """A graph at the start and at the end of a run, and where to draw its agents."""

    before: Graph
    after: Graph
    class_: Array
    means: tuple[float, ...]
    """The true mean of each class."""
    positions: Floats
    """(n_agents, 2), the same for both pictures, in -1..1."""
    method: Method
    """If it cuts no edges, `after` lacks those between groups that it finds."""
    steps: int

    def wrong(self, graph: Graph) -> Mask:
        """Which of graph.edges() join two classes."""
        edges = graph.edges()
        return self.class_[edges[:, 0]] != self.class_[edges[:, 1]]


def separation(method: Method, scenario: Scenario, **fields: Unpack[RunFields]) -> Separation:
    """Run a method and keep the graph it began on and the one it ended with; `fields` are those of a run, as in
    `simulate`."""
    if scenario.n_agents > MOST:
        raise ColmeError(
            f"n_agents={scenario.n_agents}: a picture can show at most {MOST} agents. Try Scenario(n_agents=100, ...)."
        )
    run = run_of(method, scenario, fields)
    steps = run.n_steps
    before = run.states[0].edges.graph()
    for t in range(1, steps + 1):
        run.step(t)
    after, class_, truth = run.states[0].edges.graph(), run.world.class_, run.stream.truth(steps)
    assert truth is not None  # a scenario always knows
    means = tuple(float(truth[class_ == c][0] + run.stream.origin) for c in np.unique(class_))
    class_ = np.unique(class_, return_inverse=True)[1]
    place = _positions(before, after, class_)
    return Separation(before, after, class_, means, place, method, steps)


def _positions(before: Graph, after: Graph, class_: Array) -> Floats:
    """A spring layout: strong springs along the edges that remain, so that classes separate; weak ones along those that
    were cut and to the center of the class, so that agents without edges stay near."""
    try:
        import networkx
    except ImportError:
        raise missing_extra("networkx", "graph", "separation()") from None
    n, n_classes = len(class_), int(class_.max()) + 1
    springs = networkx.Graph()
    springs.add_nodes_from(range(n + n_classes))  # one more node in the middle of each class
    alive = after.edges()
    same = class_[alive[:, 0]] == class_[alive[:, 1]]
    pull = 0.3 + 0.25 * float(after.degrees.mean())
    springs.add_edges_from(before.edges().tolist(), weight=0.02)
    springs.add_edges_from(alive[~same].tolist(), weight=0.1)
    springs.add_edges_from(alive[same].tolist(), weight=1.0)
    springs.add_weighted_edges_from((a, n + int(c), pull) for a, c in enumerate(class_))
    angle = 2 * np.pi * np.arange(n_classes) / n_classes + np.pi
    center = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (n_classes > 1)
    jitter = np.random.default_rng(0).normal(0, 0.2, (n, 2))
    start = dict(enumerate(np.concatenate([center[class_] + jitter, center])))
    found = networkx.spring_layout(springs, pos=start, k=1.6 / np.sqrt(n), iterations=200, seed=0)
    place = np.array([found[a] for a in range(n)])
    place -= (place.max(axis=0) + place.min(axis=0)) / 2
    return place / max(np.abs(place).max(), 1e-12)


def _extent(picture: Separation) -> Floats:
    """Width and height of the picture, with room for the markers."""
    extent: Floats = np.ptp(picture.positions, axis=0) + 0.16
    return extent


def panel_height(picture: Separation, panel: float = 3.4) -> float:
    """The height at which the picture, with its title and legend, fills a panel of this width (in inches)."""
    width, height = _extent(picture)
    return float(np.clip(0.87 + (panel - 0.1) * height / width, 1.8, 5.0))


def plot_graph(picture: Separation, when: str = "before", ax: Axes | None = None) -> Axes:
    """Agents by class (color and shape) and the edges of the graph before or after the run; edges between classes in
    a warning color.

    picture  what `separation` returns
    when     "before" or "after" the run
    ax       the axes to draw on (default: new ones)

    >>> import colme
    >>> from colme import lab
    >>> scenario = colme.Scenario(n_agents=30, means=(0.0, 1.0), sigma=0.5)
    >>> picture = lab.plots.separation(colme.CLColME(), scenario, degree=4, steps=100)
    >>> axes = lab.plots.plot_graph(picture, "after")
    >>> len(axes.collections) > 0
    True

    See also: plot_over_time, plot_density, Graph
    """
    one_of(when, ("before", "after"), "when")
    graph = picture.before if when == "before" else picture.after
    edges, wrong, place = graph.edges(), picture.wrong(graph), picture.positions
    n, (width, height) = len(place), _extent(picture)
    with canvas(ax, size=(3.4, panel_height(picture))) as ax:
        ax.grid(False)
        ax.set_axis_off()
        ax.set_aspect("equal")
        ax.set_xlim(-width / 2, width / 2)
        ax.set_ylim(-height / 2, height / 2)
        thin = float(np.clip(250 / max(len(picture.before.edges()), 1), 0.25, 0.9))
        ax.add_collection(LineCollection(list(place[edges[~wrong]]), colors="#8A8A8A", linewidths=thin, alpha=0.7))
        ax.add_collection(LineCollection(list(place[edges[wrong]]), colors=WARNING, linewidths=thin, alpha=0.75))
        for c, mean in enumerate(picture.means):
            x, y = place[picture.class_ == c].T
            ax.scatter(x, y, s=float(np.clip(4000 / n, 9, 42)), marker=MARKERS[c % len(MARKERS)],
                       color=COLORS[c % len(COLORS)], edgecolor="white", linewidth=0.5, zorder=3,
                       label=f"mean {number(mean)}")  # fmt: skip
        kind = "edges" if picture.method.cuts_edges or when == "before" else "edges within a group"
        share = f"{int(wrong.sum())} of {len(edges)} {kind} join different classes"
        moment = "before the first sample" if when == "before" else f"after step {picture.steps:,}"
        ax.set_title(f"{picture.method.label}, {moment}\n", loc="center", parse_math=False)
        ax.annotate(share, (0.5, 1), (0, 7), xycoords="axes fraction", textcoords="offset points", ha="center",
                    color=WARNING if wrong.any() else "#444444")  # fmt: skip
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=min(4, len(picture.means)),
                  handletextpad=0.1, columnspacing=1.2, borderaxespad=0.2)  # fmt: skip
    return ax
