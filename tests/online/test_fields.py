"""Every field of a method reaches the rule that learns event by event, or is refused there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import colme
from colme.errors import MethodError
from colme.methods import METHODS, Method

OTHER: dict[str, dict[str, Any]] = {
    "alpha": {"clock": "constant", "alpha": 0.7}, "bound": {"bound": "fourth-moment"}, "clock": {"clock": "own"},
    "consensus": {"consensus": "flow"}, "cut": {"cut": "difference"}, "delta": {"delta": 0.2},
    "estimate_sigma": {"estimate_sigma": True}, "gamma": {"gamma": 0.01}, "guard": {},
    "kurtosis": {"bound": "fourth-moment", "kurtosis": 4.0}, "level": {"level": "agent"}, "refresh": {"refresh": 1.1},
    "restart": {"restart": True}, "sigma": {"sigma": 3.0}, "statistics": {"statistics": ("mean", "deviation")},
    "step": {"step": 0.05}, "width": {"bound": "hoeffding", "width": 2.0},
}  # fmt: skip
"""Other values of each field, with what they need."""
OF_MESSAGES = ("rounds", "fits")
"""In one process nothing is sent: one sum takes the place of all rounds, and one fit is everybody's."""
CASES = [
    (method, field)
    for method in METHODS
    for field in method.__struct_fields__
    if method().online_rule is not None and field not in OF_MESSAGES
]


def known_to_the_rule(method: Method) -> dict[str, Any]:
    """The numbers that its rule works with."""
    rule = colme.CollaborativeMean(method, sigma=1.0)._rule
    plain = (int, float, str, tuple, type(None))
    found = {name: value for name, value in vars(rule).items() if isinstance(value, plain)}
    return found | {"guard": rule.guard is not None}


@pytest.mark.parametrize(("method", "field"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_every_field_reaches_the_online_rule_or_is_refused(method: type[Method], field: str) -> None:
    changes = {"guard": not method().guard} if field == "guard" else OTHER[field]  # type: ignore[attr-defined]
    without = {name: value for name, value in changes.items() if name != field and name in ("bound",)}
    try:
        changed, plain = known_to_the_rule(method(**changes)), known_to_the_rule(method())
        if without and field == "kurtosis":
            plain = known_to_the_rule(method(**without))
    except MethodError:
        return
    with np.testing.assert_raises(AssertionError):
        np.testing.assert_equal(changed, plain)
