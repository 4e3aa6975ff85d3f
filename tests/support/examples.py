"""How many examples Hypothesis tries."""

from __future__ import annotations

import os

from hypothesis import settings


def examples(n: int) -> settings:
    """`n` examples, the same ones every time; with HYPOTHESIS_PROFILE=explore ten times as many new ones."""
    return settings(max_examples=10 * n if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else n)
