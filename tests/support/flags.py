"""Every field of a scenario, of the set-up and of a method as a flag of the command line, with a value for it."""

from __future__ import annotations

from typing import Any

import colme
from colme.methods import METHODS
from colme.scenario import Scenario
from colme.sim.spec import Setup, flat_name


def sample_of(name: str) -> str:
    """A value that the field takes and does not have."""
    known = {
        "means": "0,2", "sizes": "10,14", "shift_means": "1,2", "shift_step": "7", "assignment": "blocks",
        "distribution": "uniform", "graph": "ring", "record": "log", "precision": "double", "level": "agent",
        "bound": "fourth-moment", "weights": "soft", "restricted": "false", "clock": "harmonic", "alpha": "0.7",
        "consensus": "flow", "step": "0.05", "degree": "6", "n_agents": "26", "late_step": "5",
        "steps": "21", "queries": "2", "depth": "3", "df": "7", "kurtosis": "4", "method_sigma": "3", "width": "2",
        "sigma": "3", "spread_shape": "uniform", "case": "x", "estimate_sigma": "true", "restart": "true",
        "refresh": "1.1", "rounds": "5", "fits": "own", "statistics": "mean,deviation", "cut": "difference",
        "guard": "true",
    }  # fmt: skip
    return known.get(name, "0.2")


FLAGS: dict[str, tuple[type[Any], str]] = {}
for struct in (Scenario, Setup, *METHODS):
    for field in struct.__struct_fields__:
        flag = flat_name(field) if struct in METHODS else field
        FLAGS.setdefault(flag, (struct, field))
for flag in ("cut", "guard"):  # of colME, the first to have them, they have only one value
    FLAGS[flag] = (colme.CLColME, flag)
NEEDS = {
    "shift_step": {"shift_step": 5, "shift_means": [1.0, 3.0]}, "shift_means": {"shift_step": 5, "shift_means": [1, 3]},
    "alpha": {"clock": "constant", "alpha": 0.5},
}  # fmt: skip
