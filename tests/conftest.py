"""Settings of the test session.

Hypothesis draws the same examples every time; HYPOTHESIS_PROFILE=explore draws new ones, ten times as many.
"""

from __future__ import annotations

import os
import signal

# A shell starts what runs in the background with Ctrl-C ignored, and so would all processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Before NumPy is imported: small matrices gain nothing from several threads, and the other core has its own tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import settings

from tests.support.browser import browser as browser

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
