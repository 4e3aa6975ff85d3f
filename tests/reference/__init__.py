"""Slow reference implementations, written straight from the formulas and used only to judge the package.

Dense matrices and plain loops; only numpy and the standard library; no code shared with the package. The
section numbers in the docstrings are those of METHODS, the papers are

* colME: Asadi, Bellet, Maillard, Tommasi, TMLR 2022 (arXiv 2208.11530)
* B-colME and C-colME: Galante, Neglia, Leonardi, AAAI 2025 (arXiv 2402.12812)
* CL-colME: N. Stankovic, 2026 (arXiv 2602.06070); with flows: Jesus, Baquero, Almeida, DAIS 2009
* census and partition: our own, from the docstrings of their modules
* guard and difference tests: our own, from their specification, before they were implemented
"""

from .b_colme import b_colme, b_colme_literal
from .c_colme import c_colme
from .census import census
from .cl_colme import cl_colme
from .colme import colme
from .common import Result, fourth_moment_radius, laplace_radius, prune, running_means
from .cuts import cuts
from .flow import flow
from .guard import guarded
from .local_oracle import local, oracle
from .partition import partition

__all__ = [
    "Result",
    "b_colme",
    "b_colme_literal",
    "c_colme",
    "census",
    "cl_colme",
    "colme",
    "cuts",
    "flow",
    "fourth_moment_radius",
    "guarded",
    "laplace_radius",
    "local",
    "oracle",
    "partition",
    "prune",
    "running_means",
]
