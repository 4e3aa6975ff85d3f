"""The papers, one file each."""

from colme.methods._base import EVERYONE, Agent, Marching, Method, Place, State, World
from colme.methods.b_colme import BColME
from colme.methods.c_colme import CColME
from colme.methods.cl_colme import CLColME
from colme.methods.colme import ColME
from colme.methods.local import Local
from colme.methods.oracle import Oracle

METHODS: tuple[type[Method], ...] = (Local, Oracle, ColME, BColME, CColME, CLColME)
"""Every published method."""

__all__ = [
    "EVERYONE", "METHODS", "Agent", "BColME", "CColME", "CLColME", "ColME", "Local", "Marching", "Method", "Oracle",
    "Place", "State", "World",
]  # fmt: skip
