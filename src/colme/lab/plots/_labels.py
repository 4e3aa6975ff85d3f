"""Labels beside the lines of a plot instead of a legend. They are placed when the figure is drawn, at every size."""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.transforms import Bbox, IdentityTransform
from numpy.typing import ArrayLike, NDArray

from colme.lab.plots._style import GREY, SOLID, Dashes, ink

WRAP = 24
"""Characters after which a label breaks."""
LEADER, AIR = 15.0, 1.5
"""Points between the frame and an end label, bridged by a piece of the line; points between two labels."""


def wrap(text: str) -> str:
    """Lines of at most WRAP characters, as few as possible and then as equally long as possible."""
    options = [
        textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) for width in range(WRAP, 5, -1)
    ]
    return "\n".join([lines for lines in options if len(lines) == len(options[0])][-1])


def spread(wanted: ArrayLike, heights: ArrayLike, low: float, high: float) -> NDArray[np.float64]:
    """Centers as near as possible (least squares) to the wanted ones, of intervals that neither overlap nor leave
    low..high; if they cannot all fit, they leave it by the same length at both ends.

    Subtracting the room that the intervals below take turns it into isotonic regression: pool adjacent violators."""
    wish, room = np.asarray(wanted, float), np.asarray(heights, float)
    order = np.argsort(wish, kind="stable")
    offset = np.concatenate([[0.0], np.cumsum((room[order][1:] + room[order][:-1]) / 2)])
    blocks: list[tuple[float, int]] = []
    for value in wish[order] - offset:
        mean, size = float(value), 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        blocks.append((mean, size))
    fitted = np.concatenate([np.full(size, mean) for mean, size in blocks])
    bottom, top = low + room[order][0] / 2, high - room[order][-1] / 2 - offset[-1]
    fitted = np.clip(fitted, bottom, top) if bottom <= top else np.full(len(fitted), (bottom + top) / 2)
    centers = np.empty(len(wish))
    centers[order] = fitted + offset
    return centers


@dataclass(frozen=True)
class Label:
    """A text for the point (x, y), in data units, of a line with this look."""

    text: str
    x: float
    y: float
    color: str = GREY
    dashes: Dashes = SOLID
    width: float = 1.0


class _Labels(Artist, ABC):
    """Texts whose positions depend on each other. `parse_math` only for our own texts: in a user's, $ is a dollar."""

    def __init__(self, ax: Axes, labels: Sequence[Label], *, parse_math: bool = False, **text: Any):
        super().__init__()
        self.labels = list(labels)
        self.texts = [
            Text(0, 0, label.text, color=ink(label.color), parse_math=parse_math, **text) for label in self.labels
        ]
        self.leaders: list[Line2D] = []
        ax.add_artist(self)
        self.set_clip_on(False)
        self.set_zorder(5)
        self._adopt(self.texts)

    def _adopt(self, children: Sequence[Artist]) -> None:
        axes: Any = self.axes
        for child in children:
            child.set_figure(axes.get_figure(root=False))
            child.axes = axes
            child.set_transform(IdentityTransform())

    @abstractmethod
    def _place(self, renderer: Any) -> None:
        """Set the position of every text."""

    def _pixels(self, label: Label) -> tuple[float, float]:
        axes: Any = self.axes
        x, y = axes.transData.transform((label.x, label.y))
        box = axes.bbox
        return float(np.clip(x, box.x0, box.x1)), float(np.clip(y, box.y0, box.y1))

    def get_children(self) -> list[Artist]:
        return [*self.leaders, *self.texts]

    def draw(self, renderer: Any) -> None:
        if self.get_visible():
            self._place(renderer)
            for child in self.get_children():
                child.draw(renderer)
        self.stale = False

    def get_window_extent(self, renderer: Any = None) -> Bbox:
        if renderer is None:
            renderer = self.get_figure(root=True)._get_renderer()  # type: ignore[union-attr]
        self._place(renderer)
        return Bbox.union([text.get_window_extent(renderer) for text in self.texts])

    def get_tightbbox(self, renderer: Any = None) -> Bbox:
        return self.get_window_extent(renderer)


class EndLabels(_Labels):
    """Right of the frame, at the height where each line ends, joined to it by a piece of that line."""

    def __init__(self, ax: Axes, labels: Sequence[Label], *, leader: float = LEADER, **text: Any):
        labels = [replace(label, text=wrap(label.text)) for label in labels]
        super().__init__(ax, labels, va="center", ha="left", linespacing=1.05, **text)
        self.leader = leader
        self.leaders = [
            Line2D([], [], color=label.color, linestyle=label.dashes, linewidth=label.width) for label in self.labels
        ]
        self._adopt(self.leaders)

    def _place(self, renderer: Any) -> None:
        self._place_at_ends(renderer, list(range(len(self.labels))))

    def _place_at_ends(self, renderer: Any, numbers: list[int]) -> None:
        if not numbers:
            return
        point = renderer.points_to_pixels(1.0)
        axes: Any = self.axes
        ends = [self._pixels(self.labels[number]) for number in numbers]
        heights = [self.texts[number].get_window_extent(renderer).height + AIR * point for number in numbers]
        # of two that end at the same height, the first one goes on top
        wanted = [y - 1e-6 * rank for rank, (_, y) in enumerate(ends)]
        centers = spread(wanted, heights, axes.bbox.y0, axes.bbox.y1)
        edge = axes.bbox.x1 + self.leader * point
        for number, (x, y), center in zip(numbers, ends, centers, strict=True):
            self.texts[number].set_position((edge + 3 * point, center))
            leader, label = self.leaders[number], self.labels[number]
            leader.set_data([x, edge], [y, center])
            if x < axes.bbox.x1 - point:  # the line ends before the frame: what follows must not look like data
                leader.set_data([x + 5 * point, edge], [y, center])
                leader.set(linewidth=0.5, linestyle=SOLID)
            else:
                leader.set(linewidth=label.width, linestyle=label.dashes)


class BesideLabels(EndLabels):
    """Right of each falling line where there is room, else to the right of the frame."""

    def __init__(self, ax: Axes, labels: Sequence[Label], paths: Sequence[ArrayLike], **text: Any):
        super().__init__(ax, labels, **text)
        self.paths = [np.asarray(path, float) for path in paths]
        """(points, 2) in data units, for each label."""

    def _place(self, renderer: Any) -> None:
        axes: Any = self.axes
        paths = [Path(axes.transData.transform(path)) for path in self.paths]
        placed: list[Bbox] = []
        left_over = []
        for number in range(len(self.labels)):
            spot = self._spot(renderer, number, paths, placed)
            if spot is None:
                left_over.append(number)
                continue
            box, leader = spot
            placed.append(box)
            self.texts[number].set_position((box.x0, (box.y0 + box.y1) / 2))
            self.leaders[number].set_data(leader)
        self._place_at_ends(renderer, left_over)

    def _spot(self, renderer: Any, number: int, paths: list[Path], placed: list[Bbox]) -> tuple[Bbox, Any] | None:
        """The best free box beside the line, with its leader: right is better than left or just above, and halfway up
        is better than at the ends."""
        axes: Any = self.axes
        point, frame = renderer.points_to_pixels(1.0), axes.bbox
        gap, reach = 2 * point, self.leader * point
        width, height = self.texts[number].get_window_extent(renderer).size
        best: tuple[float, Bbox, Any] | None = None
        x, y = np.asarray(paths[number].vertices).T
        for share in np.linspace(0.95, 0.05, 61):
            level = frame.y0 + share * frame.height
            below = np.flatnonzero((y[:-1] > level) & (y[1:] <= level))
            if not len(below):
                continue
            k = below[-1]
            at = x[k] + (x[k + 1] - x[k]) * (y[k] - level) / (y[k] - y[k + 1])
            for price, left, bottom, tip in (
                (0.0, at + reach + gap, level - height / 2, at + reach),
                (0.15, at - reach - gap - width, level - height / 2, at - reach),
                (0.25, at + gap, level + gap, at),
            ):
                box = Bbox.from_bounds(left, bottom, width, height)
                padded = box.padded(AIR * point)
                inside = frame.x0 < box.x0 and box.x1 < frame.x1 and frame.y0 < box.y0 and box.y1 < frame.y1
                if not inside or any(map(padded.overlaps, placed)):
                    continue
                if any(path.intersects_bbox(padded, filled=False) for path in paths):
                    continue
                way = Bbox.from_extents(min(at, tip) + gap, level - 1, max(at, tip) - gap, level + 1)
                crossed = sum(path.intersects_bbox(way, filled=False) for path in paths) if tip != at else 0
                cost = abs(share - 0.55) + price + 0.03 * crossed
                if best is None or cost < best[0]:
                    best = cost, box, ([at, tip], [level, level])
        return None if best is None else best[1:]


class MarkLabels(_Labels):
    """At the top inside the frame, beside vertical lines at x; in rows, so that names of close marks can be read."""

    def __init__(self, ax: Axes, labels: Sequence[Label], **text: Any):
        halo = [withStroke(linewidth=2.5, foreground="white")]
        super().__init__(ax, labels, va="top", ha="left", path_effects=halo, **text)

    def _place(self, renderer: Any) -> None:
        point = renderer.points_to_pixels(1.0)
        axes: Any = self.axes
        marks = [self._pixels(label)[0] for label in self.labels]
        placed: list[Bbox] = []
        for number in np.argsort(marks, kind="stable"):
            text, x = self.texts[number], marks[number]
            size = text.get_window_extent(renderer)
            best: tuple[float, Bbox] | None = None
            tops = sorted({axes.bbox.y1, *(box.y0 - 2 * AIR * point for box in placed)}, reverse=True)
            for row, top in enumerate(tops):
                # right of the mark, left of it, or, where both are too narrow, across it within the frame
                across = min(max(axes.bbox.x0 + 3 * point, x - size.width / 2), axes.bbox.x1 - size.width - 3 * point)
                for left in (x + 3 * point, x - 3 * point - size.width, across):
                    box = Bbox.from_extents(left, top - size.height, left + size.width, top)
                    inside = left >= axes.bbox.x0 and box.x1 <= axes.bbox.x1
                    crossed = sum(box.x0 - point < other < box.x1 + point for other in marks)
                    cost = row + 3.0 * crossed + 100.0 * (not inside) + 1000.0 * any(box.overlaps(b) for b in placed)
                    if best is None or cost < best[0]:
                        best = cost, box
            assert best is not None
            placed.append(best[1])
            text.set_position((best[1].x0, best[1].y1))


def vertical_marks(ax: Axes, marks: dict[str, float], *, parse_math: bool = False) -> None:
    """Draw a thin vertical line at each x, with its name at the top."""
    if not marks:
        return
    for x in marks.values():
        ax.axvline(x, color=GREY, linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
    MarkLabels(ax, [Label(name, x, 1.0, "#444444") for name, x in marks.items()], parse_math=parse_math, fontsize=8)
