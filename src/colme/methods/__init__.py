"""The papers, one file each."""

from colme.census.method import Census
from colme.method import EVERYONE, Agent, Marching, Method, Place, State, World
from colme.methods.b_colme import BColME
from colme.methods.bayes import Bayes
from colme.methods.c_colme import CColME
from colme.methods.cl_colme import CLColME
from colme.methods.colme import ColME
from colme.methods.local import Local
from colme.methods.oracle import Oracle

METHODS: tuple[type[Method], ...] = (Local, Oracle, Bayes, ColME, BColME, CColME, CLColME, Census)
"""Every method: the published ones, our own, and what they are measured against."""

__all__ = [
    "EVERYONE", "METHODS", "Agent", "BColME", "Bayes", "CColME", "CLColME", "Census", "ColME", "Local", "Marching",
    "Method", "Oracle", "Place", "State", "World",
]  # fmt: skip
