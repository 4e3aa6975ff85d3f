"""What we want to reach, and how a number is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.measuring import Measured


@dataclass(frozen=True)
class Goal:
    """A row of the table. Of seconds, nanoseconds and bytes less is better, of ratios, shares and rates more."""

    what: str
    floor: float | None = None
    aim: float | None = None
    unit: str = "times"
    checked: bool = True
    """Whether the regression check looks at it: never at times and rates, which differ from hour to hour."""
    families: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Floor and aim on families of processors where they are others."""

    @property
    def less_is_better(self) -> bool:
        return self.unit in ("s", "ns", "B")

    def reaches(self, value: float, goal: float) -> bool:
        return value <= goal if self.less_is_better else value >= goal

    def goals(self, family: str) -> tuple[float | None, float | None]:
        """Floor and aim on processors of a family."""
        return self.families.get(family, (self.floor, self.aim))

    def met(self, value: float, family: str = "") -> str:
        """aim, floor or below; nothing where nothing was asked."""
        floor, aim = self.goals(family)
        if aim is not None and self.reaches(value, aim):
            return "aim"
        if floor is None:
            return "" if aim is None else "below"
        return "floor" if self.reaches(value, floor) else "below"

    def goal_words(self, family: str | None = None) -> tuple[str, str]:
        """Floor and aim with their units, on processors of a family; None: on all, those of some families by name."""
        if family is not None:
            floor, aim = map(self._plain, self.goals(family))
            return floor, aim
        floors, aims = [self._plain(self.floor)], [self._plain(self.aim)]
        for name, (floor_there, aim_there) in self.families.items():
            floors.append(f"{name} {self._plain(floor_there)}")
            aims.append(f"{name} {self._plain(aim_there)}")
        return ", ".join(floors), ", ".join(aims)

    def _plain(self, value: float | None) -> str:
        """A goal with its unit and no more digits than it has."""
        if value is None:
            return ""
        if self.unit == "%":
            return f"{100 * value:g} %"
        if self.unit == "events/s":
            return f"{value / 1e6:g} M events/s"
        return f"{value:g}{'x' if self.unit == 'times' else ' ' + self.unit}"

    def words(self, value: float) -> str:
        """The number with its unit; three digits tell more than is known."""
        if self.unit == "%":
            return f"{100 * value:.0f} %"
        if self.unit == "B":
            return f"{value:.0f} B"
        if self.unit == "events/s":
            return f"{value / 1e6:.2f} M events/s"
        digits = 3 if value < 0.0995 else 2 if value < 9.995 else 1 if value < 99.95 else 0
        number = f"{value:.{digits}f}"
        return f"{number}x" if self.unit == "times" else f"{number} {self.unit}"

    def range_words(self, measured: Measured) -> str:
        """The quartiles, if it was measured several times."""
        if measured.low == measured.high:
            return ""
        return f"{self.words(measured.low)} .. {self.words(measured.high)}"


GOALS: dict[str, Goal] = {
    "scipy": Goal("SciPy CSR loop, by CL-colME", 20, 35, families={"AMD": (16, 25)}),
    "cpp_cl": Goal("C-ColME of the AAAI-25 C++ program, by CL-colME, N = 10^4", 160, 250, checked=False),
    "cpp_c": Goal("C-ColME of the AAAI-25 C++ program, by C-colME, N = 10^4", checked=False),
    "census": Goal("census, all metrics at every step, per agent and step", 80, 40, "ns", checked=False),
    "census_last": Goal("census, only the last step recorded, per agent and step", 25, 15, "ns", checked=False),
    "census_bare": Goal(
        "census without guard, all metrics at every step, per agent and step", unit="ns", checked=False
    ),
    "census_bare_last": Goal(
        "census without guard, only the last step recorded, per agent and step", 25, 15, "ns", checked=False
    ),
    "census_scipy": Goal("SciPy CSR loop of CL-colME, by the census"),
    "census_large": Goal("census, N = 2 * 10^5, first 40 steps, per agent and step", 700, 300, "ns", checked=False),
    "census_memory": Goal("census, N = 2 * 10^5, first 40 steps, peak memory per agent", 800, 400, "B"),
    "roofline_1e5": Goal("random-gather roofline, averaging, N = 10^5", 0.60, 0.85, "%"),
    "roofline_1e6": Goal("random-gather roofline, averaging, N = 10^6", 0.80, 0.85, "%"),
    "c_over_cl": Goal("C-colME, by CL-colME", None, 1.1, checked=False),
    "memory": Goal("memory per agent while running, N = 10^6", 100, 72, "B"),
    "graph": Goal("random regular graph of 10^6 agents", 1.0, 0.25, "s", checked=False),
    "huge_setup": Goal("graph and set-up of a run of CL-colME, N = 10^7", 12.0, 6.0, "s", checked=False),
    "huge_memory": Goal("CL-colME, N = 10^7, peak memory per agent", 160, 120, "B"),
    "threads": Goal("one thread, by two over 16 realisations (wall clock)", 1.5, 1.9),
    "import_warm": Goal("import and first call of simulate, kernels cached", 1.5, 0.7, "s", checked=False),
    "import_cold": Goal("import and first call of simulate ever, everything compiled", 6.0, 3.0, "s", checked=False),
    "estimate_cold": Goal(
        "first `colme estimate` ever, of a small CSV, everything compiled", 12.0, 6.0, "s", checked=False
    ),
    "b_table": Goal("a table of messages per edge in NumPy, by B-colME", 30),
    "b_subtract": Goal("such a table with sums instead of lists of neighbors, by B-colME"),
    "naive": Goal("naive loops in numba, by CL-colME"),
    "scipy_agent": Goal('SciPy CSR loop, by CL-colME, both at level "agent"'),
    "scipy_gossip": Goal("SciPy CSR loop (global clock), by CL-colME with gossip clock"),
    "scipy_c": Goal("SciPy CSR loop of C-colME, by C-colME"),
    "online_dict": Goal("running means in a dict, by learn_many of the census, N = 10^4", 3),
    "online_dict_cl": Goal("running means in a dict, by learn_many of CL-colME, N = 10^4"),
    "online_dict_one": Goal("running means in a dict, by learn_one of the census in a loop, N = 10^4"),
    "online_rate": Goal("learn_one of the census in a loop, N = 10^4", 0.5e6, 1e6, "events/s", checked=False),
    "online_one": Goal("learn_one in a loop, by learn_many, both of CL-colME, N = 10^4", checked=False),
    "estimate_3e3": Goal("mean per agent in pandas, by estimate, 3 * 10^6 rows of 3000 agents", 0.05),
    "estimate_1e5": Goal("mean per agent in pandas, by estimate, 3 * 10^6 rows of 10^5 agents", 0.02),
    "estimate_1e6": Goal("mean per agent in pandas, by estimate, 3 * 10^6 rows of 10^6 agents", 0.01),
    "estimate_seconds": Goal("estimate of 3 * 10^6 rows of 10^6 agents", 15.0, 7.5, "s", checked=False),
    "estimate_memory": Goal("memory per row while estimating, 10^6 agents", 400, 200, "B"),
    "stream": Goal(
        "Polars' group_by (count, mean, variance), by moments, 2 * 10^7 rows of 10^6 agents (wall clock)", 0.5
    ),
    "stream_text": Goal("Polars' group_by of such a file whose labels are text, by moments (wall clock)", 0.5),
    "stream_memory": Goal("memory of a process that reads such a file, per agent", 2000, 1000, "B"),
    "push_polars": Goal(
        "Polars' group_by of such a file, by its lazy frame aggregated for estimate (wall clock)", 0.67
    ),
    "push_duckdb": Goal("DuckDB's group by of such a file, by its relation aggregated for estimate (wall clock)", 0.67),
    "graph_numpy": Goal("NumPy's shuffle and sort of as many ends, by the graph of 10^6"),
}
"""Rows by key, in the order of the table."""
