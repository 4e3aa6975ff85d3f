"""The versions that a result was made with (no host names, users or paths), and the BibTeX to cite for it."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata

import colme
from colme.methods import Method

PACKAGES = ("numpy", "numba", "llvmlite", "msgspec", "pyarrow", "xarray", "joblib", "matplotlib", "scipy")

SOFTWARE = """@software{{colme,
  title   = {{colme: collaborative mean estimation}},
  author  = {{{{The colme developers}}}},
  version = {{{version}}},
  year    = {{2026}},
}}"""


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
    used = dict.fromkeys(citation for method in methods for citation in method.citations)
    return "\n\n".join([SOFTWARE.format(version=colme.__version__), *used])
