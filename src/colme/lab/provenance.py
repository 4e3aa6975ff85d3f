"""What made a result, without a word about whose machine it was; and whom to cite for it."""

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
STANKOVIC = """@article{stankovic2026clcolme,
  title   = {Consensus Laplacian collaborative mean estimation ({CL-colME})},
  author  = {Stankovic, L.},
  journal = {arXiv:2602.06070},
  year    = {2026},
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
    """colme, Python and the packages that numbers depend on; no host name, no user, no paths."""
    found = {"colme": colme.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found | {"system": platform.system(), "machine": platform.machine()}


def bibliography(methods: Iterable[Method]) -> str:
    """BibTeX of the software and of the papers whose methods were used."""
    used = dict.fromkeys(PAPERS[type(method)] for method in methods if type(method) in PAPERS)
    return "\n\n".join([SOFTWARE.format(version=colme.__version__), *used])
