"""Every field of a method changes how the online model learns, or is refused in a sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from colme import CollaborativeMean
from colme.errors import MethodError
from colme.methods import METHODS
from colme.online.kernel import Parameters
from tests.online.test_model import two_classes

OTHER: dict[str, dict[str, Any]] = {
    "delta": {"delta": 0.9}, "gamma": {"gamma": 0.3}, "level": {"level": "agent"}, "sigma": {"sigma": 3.0},
    "bound": {"bound": "fourth-moment"}, "kurtosis": {"bound": "fourth-moment", "kurtosis": 9.0},
    "width": {"bound": "hoeffding", "width": 9.0}, "cut": {"cut": "difference"}, "clock": {"clock": "own"},
    "alpha": {"clock": "constant", "alpha": 0.5}, "step": {"step": 0.01}, "guard": {"guard": True},
    "trusting": {"guard": True, "trusting": True}, "refresh": {"refresh": 3.0}, "restart": {"restart": True},
    "estimate_sigma": {"estimate_sigma": True},
}  # fmt: skip
