"""Sentences about files that cannot be read."""

from __future__ import annotations

from colme.errors import DataError, shorten


def empty(name: str) -> DataError:
    return DataError(f"{name} is empty: a table needs columns and rows. Write it again.")


def damaged(name: str, error: Exception) -> DataError:
    return DataError(f"{name} cannot be read; it may be truncated: {reason(error)}. Write it again.")


def reason(error: Exception) -> str:
    """The reason that a library gives, fit for the middle of a sentence."""
    words = getattr(error, "strerror", None) or str(error)
    return shorten(words.splitlines()[0].split(". ")[0].rstrip(".")).strip("'\"")
