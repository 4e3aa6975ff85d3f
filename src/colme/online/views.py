"""What a model knows, by the label of an agent: read-only mappings that are always up to date."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from threading import RLock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from colme._core.columns import Label, as_label
from colme.online.agents import Crowd

T = TypeVar("T")


class AgentView(Mapping[Label, T]):
    """Label to answer. Asked for one agent it looks at that one; `items` and `values` look at all at once."""

    def __init__(self, crowd: Crowd, lock: RLock, answer: Callable[[NDArray[np.int64]], list[T]]):
        self._crowd, self._lock, self._answer = crowd, lock, answer

    def __getitem__(self, agent: Any) -> T:
        with self._lock:
            return self._answer(np.array([self._crowd.slot(as_label(agent))]))[0]

    def __contains__(self, agent: object) -> bool:
        with self._lock:
            return self._crowd.index.get(agent) is not None  # type: ignore[call-overload]

    def __len__(self) -> int:
        return self._crowd.n_agents

    def __iter__(self) -> Iterator[Label]:
        with self._lock:
            return iter(self._crowd.labels_of(self._crowd.present))

    def items(self) -> ItemsView[Label, T]:
        return _Items(self)

    def values(self) -> ValuesView[T]:
        return _Values(self)

    def everything(self) -> list[tuple[Label, T]]:
        """All of it, as of now."""
        with self._lock:
            present = self._crowd.present.copy()
            return list(zip(self._crowd.labels_of(present), self._answer(present), strict=True))

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
