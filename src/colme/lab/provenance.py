"""The versions that a result was made with (no host names, users or paths), and the BibTeX to cite for it."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata

import colme
from colme.methods import BColME, CColME, CLColME, ColME, Method

PACKAGES = ("numpy", "numba", "llvmlite", "msgspec", "pyarrow", "xarray", "joblib", "matplotlib", "scipy")

SOFTWARE = """@software{{colme,
  title   = {{colme: collaborative mean estimation}},
  author  = {{{{The colme developers}}}},
  version = {{{version}}},
  year    = {{2026}},
}}"""
STANKOVIC = """@inproceedings{stankovic2026clcolme,
  title     = {Computationally Efficient {Laplacian} {CL-colME}},
  author    = {Stankovic, Nikola},
  booktitle = {30th International Conference on Information Technology (IT)},
  address   = {Zabljak},
  month     = feb,
  note      = {24-28 February 2026, arXiv:2602.06070},
  year      = {2026},
}"""
VARIANCE = """@misc{stankovic2025variance,
  title  = {Variance-Aware {ColME}},
  author = {Stankovic, N.},
  note   = {Thesis},
  year   = {2025},
}"""
GALANTE = """@inproceedings{galante2025scalable,
  title     = {Scalable decentralized algorithms for online personalized mean estimation},
  author    = {Galante, F. and Neglia, G. and Leonardi, E.},
  booktitle = {AAAI Conference on Artificial Intelligence},
  note      = {arXiv:2402.12812},
  year      = {2025},
}"""
ASADI = """@article{asadi2022collaborative,
  title   = {Collaborative algorithms for online personalized mean estimation},
  author  = {Asadi, M. and Bellet, A. and Maillard, O.-A. and Tommasi, M.},
  journal = {Transactions on Machine Learning Research},
  note    = {arXiv:2208.11530},
  year    = {2022},
}"""
PAPERS: dict[type[Method], str] = {CLColME: STANKOVIC, CColME: GALANTE, BColME: GALANTE, ColME: ASADI}


def versions() -> dict[str, str]:
    """The versions of colme, Python and the packages that numbers depend on; no host name, no user, no paths."""
    found = {"colme": colme.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found | {"system": platform.system(), "machine": platform.machine()}


def bibliography(methods: Iterable[Method]) -> str:
    """BibTeX of the software and of the papers whose methods were used."""
    used: dict[str, None] = {}
    for method in methods:
        if type(method) in PAPERS:
            used[PAPERS[type(method)]] = None
        if getattr(method, "statistics", ("mean",)) != ("mean",):  # variance-aware intervals
            used[VARIANCE] = None
    return "\n\n".join([SOFTWARE.format(version=colme.__version__), *used])
