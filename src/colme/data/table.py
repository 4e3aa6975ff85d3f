"""A table of samples in the form that estimators want: rows grouped by agent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Names(NamedTuple):
    """The columns that were read."""

    agent: str
    value: str
    time: str | None = None
    weight: str | None = None
    label: str | None = None
    covariates: tuple[str, ...] = ()


class Table(NamedTuple):
    """Samples grouped by agent; within an agent in time order, or in the order of the rows without a time."""

    labels: NDArray[Any]
    """One per agent, in order of first appearance."""
    start: NDArray[np.int64]
    """n_agents + 1; samples of agent a are value[start[a]:start[a+1]]."""
    value: NDArray[np.float64]
    """Finite."""
    time: NDArray[np.float64] | None
    """Seconds (or plain numbers) since any origin."""
    weight: NDArray[np.float64] | None
    """> 0; a sample of weight w counts as w samples (variance sigma^2 / w)."""
    label: NDArray[np.int64] | None
    """Known group of each agent, -1 unknown."""
    covariates: NDArray[np.float64] | None
    """(n_agents, n_covariates): agent means of the covariate columns."""
    notes: tuple[str, ...]
    """What reading did, one plain sentence each."""
    names: Names


def read_table(source: Any, **columns: Any) -> Table:
    raise NotImplementedError
