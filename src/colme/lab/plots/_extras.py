"""Refuses to plot without what plotting needs, in a sentence."""

from colme.errors import missing_extra

for _package in ("matplotlib", "pandas", "xarray"):
    try:
        __import__(_package)
    except ImportError:
        raise missing_extra(_package, "lab", "plotting") from None
