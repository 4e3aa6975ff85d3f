"""Recordings for which no kernel is compiled that scenarios do not need anyway."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import colme


def recording_like_a_scenario(samples: NDArray[np.float64], classes: NDArray[Any], **known: Any) -> colme.Recording:
    """A recording that knows true means and keeps class numbers in 16 bits, as scenarios do.

    The means are those of the classes, one apart; no estimate depends on them."""
    recording = colme.Recording(samples, means=1.0 * classes, classes=classes, **known)
    assert recording.class_ is not None
    recording.class_ = recording.class_.astype(np.uint16)
    return recording
