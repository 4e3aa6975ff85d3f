"""Every field of a method changes what the online model learns, or is refused in a sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from colme import CollaborativeMean
from colme.errors import MethodError
from colme.methods import METHODS, Method
from tests.online.test_model import two_classes

VALUES: dict[str, tuple[dict[str, Any], Any]] = {
    "guard": ({}, None), "cut": ({"sigma": 1.0}, "difference"), "delta": ({}, 0.9), "level": ({}, "agent"),
    "gamma": ({}, 0.5), "sigma": ({}, 3.0), "bound": ({}, "fourth-moment"), "statistics": ({}, ("mean", "deviation")),
    "kurtosis": ({"bound": "fourth-moment"}, 1.5), "width": ({"bound": "hoeffding", "width": 1.0}, 9.0),
    "clock": ({}, "own"), "alpha": ({"clock": "constant", "alpha": 0.9}, 0.5), "step": ({}, 0.01),
    "consensus": ({}, "flow"), "estimate_sigma": ({}, True), "restart": ({}, True), "refresh": ({}, 30.0),
    "rounds": ({}, 5), "fits": ({}, "own"),
}  # fmt: skip
"""For each field: what goes with it, and a value other than its default (None: the opposite)."""
FIELDS = [(method, field) for method in METHODS if method().online_rule for field in msgspec.structs.fields(method)]


def learned(method: Method, sigma: float | None) -> bytes:
    model = CollaborativeMean(method, degree=4, level=0.5, sigma=sigma)
    agent, value = two_classes(40, 1500)
    found = b""
    for samples in (slice(200), slice(200, None)):  # a guard and a wrong sigma matter before much is known
        model.learn_many(agent=agent[samples], value=value[samples])
        columns = model.to_columns()
        found += b"".join(np.asarray(columns[name]).tobytes() for name in ("estimate", "lower", "upper", "group"))
    return found


@pytest.mark.parametrize(("method", "field"), FIELDS, ids=lambda each: getattr(each, "__name__", None) or each.name)
def test_a_field_matters_or_is_refused(method: type[Method], field: Any) -> None:
    given, value = VALUES[field.name]
    sigma = 9.0 if field.name == "estimate_sigma" else None  # which it overrides
    other = method(**given | {field.name: not field.default if value is None else value})
    try:
        found = learned(other, sigma)
    except MethodError as error:
        assert str(error).endswith(".") and ". " in str(error)
        return
    assert found != learned(method(**given), sigma)
