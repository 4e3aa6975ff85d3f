"""The methods: the papers', one file each, and our own (`colme.census`)."""

from typing import Any

import msgspec

from colme.census.method import Census
from colme.errors import one_of
from colme.method import EVERYONE, Agent, ManySteps, Method, NeighborState, Place, State, World
from colme.methods.b_colme import BColME
from colme.methods.bayes import Bayes
from colme.methods.c_colme import CColME
from colme.methods.cl_colme import CLColME
from colme.methods.colme import ColME
from colme.methods.local import Local
from colme.methods.oracle import Oracle

METHODS: tuple[type[Method], ...] = (Local, Oracle, Bayes, ColME, BColME, CColME, CLColME, Census)
"""Every method: the published ones, our own, and the baselines."""


def method_from(data: Any) -> Method:
    """The method whose plain form, a dictionary with its tag as "method", this is."""
    known = {str(each.__struct_config__.tag): each for each in METHODS}
    tag = data.get("method") if isinstance(data, dict) else None
    one_of(tag, known, "method")
    return msgspec.convert(data, known[str(tag)])


__all__ = [
    "EVERYONE", "METHODS", "Agent", "BColME", "Bayes", "CColME", "CLColME", "Census", "ColME", "Local", "ManySteps",
    "Method", "NeighborState", "Oracle", "Place", "State", "World", "method_from",
]  # fmt: skip
