"""What we want to reach, and how a number is told."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.measuring import Measured


@dataclass(frozen=True)
class Goal:
    """A row of the table. Of seconds and bytes less is better, of ratios and shares more."""

    against: str
    floor: float | None = None
    aim: float | None = None
    unit: str = "times"
    checked: bool = True
    """Whether the regression check looks at it: never at seconds, which differ from hour to hour."""

    @property
    def less_is_better(self) -> bool:
        return self.unit in ("s", "B")

    def reaches(self, value: float, goal: float) -> bool:
        return value <= goal if self.less_is_better else value >= goal

    def met(self, value: float) -> str:
        """aim, floor or below; nothing where nothing was asked."""
        if self.aim is not None and self.reaches(value, self.aim):
            return "aim"
        if self.floor is None:
            return "" if self.aim is None else "below"
        return "floor" if self.reaches(value, self.floor) else "below"

    def goal_words(self, value: float | None) -> str:
        """A floor or an aim, with its unit."""
        if value is None:
            return ""
        return (
            f"{100 * value:g} %" if self.unit == "%" else f"{value:g}{'x' if self.unit == 'times' else ' ' + self.unit}"
        )

    def words(self, value: float) -> str:
        """The number with its unit; three digits tell more than is known."""
        if self.unit == "%":
            return f"{100 * value:.0f} %"
        if self.unit == "B":
            return f"{value:.0f} B"
        number = f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
        return f"{number} s" if self.unit == "s" else f"{number}x"

    def range_words(self, measured: Measured) -> str:
        """The quartiles, if it was measured several times."""
        if measured.low == measured.high:
            return ""
        return f"{self.words(measured.low)} .. {self.words(measured.high)}"


GOALS: dict[str, Goal] = {
    "scipy": Goal("SciPy CSR loop, CL-colME", 20, 35),
    "roofline_1e5": Goal("random-gather roofline, averaging, N = 10^5", 0.60, 0.85, "%"),
    "roofline_1e6": Goal("random-gather roofline, averaging, N = 10^6", 0.60, 0.85, "%"),
    "c_over_cl": Goal("C-colME with kept weights, end to end", None, 1.1, checked=False),
    "memory": Goal("memory per agent while running, N = 10^6", 100, 72, "B"),
    "graph": Goal("random regular graph of 10^6 agents", 1.0, 0.25, "s", checked=False),
    "threads": Goal("one thread, by two over 16 realisations (wall clock)", 1.5, 1.9),
    "import_warm": Goal("import and first call, kernels cached", 1.5, 0.7, "s", checked=False),
    "import_cold": Goal("import and first call, everything compiled", 10.0, 4.0, "s", checked=False),
    "b_table": Goal("B-colME as a table per edge in NumPy", 30),
    "b_subtract": Goal("the same, sums instead of lists of others"),
    "naive": Goal("naive loops in numba, CL-colME"),
    "scipy_agent": Goal('SciPy CSR loop, CL-colME, level "agent"'),
    "scipy_gossip": Goal("SciPy CSR loop (global clock), CL-colME with gossip clock"),
    "scipy_c": Goal("SciPy CSR loop, C-colME"),
    "online_dict": Goal("running means in a dict, by learn_many of the census, N = 10^4", 3),
    "online_one": Goal("learn_one in a loop, by learn_many of CL-colME, N = 10^4", 5),
    "estimate_3e3": Goal("mean per agent in pandas, by estimate, 3 * 10^6 rows of 3000 agents", 0.05),
    "estimate_1e5": Goal("the same of 10^5 agents", 0.02),
    "estimate_1e6": Goal("the same of 10^6 agents", 0.01),
    "estimate_seconds": Goal("estimate of 3 * 10^6 rows of 10^6 agents", 15.0, 7.5, "s", checked=False),
    "estimate_memory": Goal("memory per row while estimating, 10^6 agents", 400, 200, "B"),
    "stream": Goal("Polars' group_by (count, mean, variance), file of 2 * 10^7 rows, 10^6 agents (wall clock)", 0.5),
    "stream_text": Goal("the same, labels are text", 0.5),
    "stream_memory": Goal("memory of a process that reads it, per agent", 2000, 1000, "B"),
    "push_polars": Goal("the same group_by, by a Polars lazy frame aggregated for estimate (wall clock)", 0.67),
    "push_duckdb": Goal("the same of DuckDB", 0.67),
    "graph_numpy": Goal("NumPy's shuffle and sort of as many ends, by the graph of 10^6"),
}
"""Rows by key, in the order of the table."""
