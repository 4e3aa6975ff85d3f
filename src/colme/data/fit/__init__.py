"""From samples to estimates: noise, priors, estimators, the choice between them, groups, diagnosis."""

from __future__ import annotations

import msgspec

from colme.errors import missing_extra

try:
    import scipy as scipy
except ImportError:
    raise missing_extra("scipy", "data", "estimating from a table") from None

FLAGS = ("one sample", "zero variance", "faulty", "dominant sample", "autocorrelated", "drifting")
"""What may be unusual about an agent; flag i is bit i of `Result.flags`.

one sample       its variance is estimated from the other agents only
zero variance    all its samples are equal
faulty           its mean is far from the other means, and its variance is unlike the other variances
dominant sample  one sample shifts its mean substantially
autocorrelated   consecutive samples are correlated
drifting         the means of its early and its late samples differ
"""


class Candidate(msgspec.Struct, frozen=True):
    """An estimator's error relative to that of the local means by cross-validation, and its standard error; above 0."""

    name: str
    ratio: float
    se: float
