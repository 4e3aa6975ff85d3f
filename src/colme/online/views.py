"""Read-only mappings from the label of an agent to what the model knows about it, always up to date."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from threading import RLock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from colme.online.agents import AgentTable
from colme.support.columns import Label, as_label

T = TypeVar("T")


class AgentView(Mapping[Label, T]):
    """A mapping from labels to answers. One agent is looked up alone; `items` and `values` compute all at once."""

    def __init__(self, table: Callable[[], AgentTable], lock: RLock, answer: Callable[[NDArray[np.int64]], list[T]]):
        """`table` returns the agents as of now; `answer` what is asked about the agents in these slots."""
        self._table, self._lock, self._answer = table, lock, answer

    def __getitem__(self, agent: Any) -> T:
        with self._lock:
            return self._answer(np.array([self._table().slot(as_label(agent))]))[0]

    def __contains__(self, agent: object) -> bool:
        with self._lock:
            return self._table().index.get(agent) is not None  # type: ignore[call-overload]

    def __len__(self) -> int:
        return self._table().n_agents

    def __iter__(self) -> Iterator[Label]:
        with self._lock:
            table = self._table()
            return iter(table.labels_of(table.present))

    def items(self) -> ItemsView[Label, T]:
        return _Items(self)

    def values(self) -> ValuesView[T]:
        return _Values(self)

    def everything(self) -> list[tuple[Label, T]]:
        """All items, as of now."""
        with self._lock:
            table = self._table()
            present = table.present.copy()
            return list(zip(table.labels_of(present), self._answer(present), strict=True))

    def __repr__(self) -> str:
        return repr(dict(self.everything()))


class _Items(ItemsView[Label, T]):
    _mapping: AgentView[T]

    def __iter__(self) -> Iterator[tuple[Label, T]]:
        return iter(self._mapping.everything())


class _Values(ValuesView[T]):
    _mapping: AgentView[T]

    def __iter__(self) -> Iterator[T]:
        return (value for _, value in self._mapping.everything())
