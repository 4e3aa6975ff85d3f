"""The picture of the demo, drawn from views that nobody had to wait for."""

from __future__ import annotations

import math

import numpy as np

from colme.lab.plots.fleet import fleet_table, plot_fleet
from colme.node.demo import DemoView


def views() -> list[DemoView]:
    """Two agents; the second dies at 2 s and is back at 3 s."""
    seen = []
    for second in range(5):
        event = "all run" if second < 2 else "bob was killed" if second < 3 else "bob comes back"
        reports = [
            {"agent": name, "running": name == "ann" or event != "bob was killed", "truth": truth, "samples": second,
             "mean": None if second == 0 else truth + 1 / second, "estimate": None if second == 0 else truth,
             "neighbors": 1, "cut": 0}
            for name, truth in (("ann", 0.0), ("bob", 3.0))
        ]  # fmt: skip
        seen.append(DemoView(float(second), event, reports, math.nan, math.nan))
    return seen


def test_a_line_for_each_mean_and_estimate_with_a_gap_while_dead() -> None:
    axes = plot_fleet(views())
    lines = [line for line in axes.lines if len(line.get_xdata()) == 4]  # what is before the first second is not drawn
    assert len(lines) == 4
    ann_mean, ann, bob_mean, bob = (np.asarray(line.get_ydata(), float) for line in lines)
    assert np.allclose(ann_mean, [1, 1 / 2, 1 / 3, 1 / 4]) and np.array_equal(ann, np.zeros(4))
    assert np.array_equal(np.isnan(bob), [False, True, False, False]) and bob[-1] == 3.0
    assert np.array_equal(np.isnan(bob_mean), np.isnan(bob))
    marks = [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 2 and line.get_ydata()[1] == 1]
    assert [x for x in marks if x] == [2.0, 3.0]


def test_the_table_holds_what_is_drawn() -> None:
    table = fleet_table(views())
    assert list(table.columns[:4]) == ["seconds", "agent", "running", "truth"] and len(table) == 10
    assert table["event"].iloc[-1] == "bob comes back"
