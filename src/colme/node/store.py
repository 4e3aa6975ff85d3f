"""The store of a node: the saved state of each agent, one row per agent in an SQLite file.

It uses a write-ahead log with synchronous=NORMAL: what is saved survives the death of the process. A power cut may lose
the last saves, but never corrupts the file. A save takes some tens of microseconds.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from colme.errors import CheckpointError

APPLICATION = 0x636D6531
"""The application id in the head of the file."""
VERSION = 1
_MOST_INCARNATIONS = 2**32 - 1
_TABLE = """CREATE TABLE agents (name TEXT PRIMARY KEY, incarnation INTEGER NOT NULL, epoch INTEGER NOT NULL,
            state BLOB) WITHOUT ROWID"""


class SavedAgent(NamedTuple):
    """The row of an agent: how often it was started, its ticks when it was saved, and its state (None: never saved)."""

    incarnation: int
    epoch: int
    state: bytes | None


class AgentStore:
    """The agents of one device, in one file."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        with self._refusing():
            new = not self.path.exists()
            self._base = sqlite3.connect(self.path, isolation_level=None, timeout=2.0)
        try:
            with self._refusing():
                self._open(new)
        except BaseException:
            self._base.close()
            raise

    def _open(self, new: bool) -> None:
        if new:
            os.chmod(self.path, 0o600)
        (found,) = self._base.execute("PRAGMA application_id").fetchone()
        (version,) = self._base.execute("PRAGMA user_version").fetchone()
        (tables,) = self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (tables or found) and found != APPLICATION:
            raise CheckpointError(f"{self.path.name} is the file of another program. Choose another name.")
        if version > VERSION:
            raise CheckpointError(f"{self.path.name} was written by a newer version ({version}). Upgrade colme.")
        self._base.execute("PRAGMA journal_mode=WAL")
        self._base.execute("PRAGMA synchronous=NORMAL")
        if not tables:
            with self._transaction():
                self._base.execute(_TABLE)
                self._base.execute(f"PRAGMA application_id={APPLICATION}")
                self._base.execute(f"PRAGMA user_version={VERSION}")
        elif self._base.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("pages do not add up")

    def start(self, name: str, *, at_least: int = 1) -> SavedAgent:
        """Start an agent: increment its incarnation, on the disk before any message is sent, and return what is saved.

        at_least: the lowest incarnation, for an agent that lost its store: others refuse an incarnation that is not
        higher than the last one they heard."""
        with self._refusing(), self._transaction():
            row = self._row(name)
            incarnation = max(at_least, (row.incarnation if row else 0) + 1)
            if incarnation > _MOST_INCARNATIONS:
                raise CheckpointError(
                    f"{name!r} has been started {incarnation} times, which is the limit. Use another name."
                )
            self._base.execute(
                "INSERT INTO agents VALUES (?, ?, 0, NULL) ON CONFLICT (name) DO UPDATE SET incarnation = ?",
                (name, incarnation, incarnation),
            )
        return SavedAgent(incarnation, row.epoch if row else 0, row.state if row else None)

    def save(self, name: str, epoch: int, state: bytes) -> None:
        self.save_all([(name, epoch, state)])

    def save_all(self, agents: Iterable[tuple[str, int, bytes]]) -> None:
        """Save (name, epoch, state) of several agents in one transaction. Each must have been started."""
        rows = [(epoch, state, name) for name, epoch, state in agents]
        with self._refusing(), self._transaction():
            done = self._base.executemany("UPDATE agents SET epoch = ?, state = ? WHERE name = ?", rows).rowcount
            if done != len(rows):
                raise CheckpointError(f"{self.path.name} has no row for an agent that is to be saved. Start it first.")

    def load(self, name: str) -> SavedAgent | None:
        """What is saved of an agent; None if it was never started here."""
        with self._refusing():
            return self._row(name)

    def _row(self, name: str) -> SavedAgent | None:
        row = self._base.execute("SELECT incarnation, epoch, state FROM agents WHERE name = ?", (name,)).fetchone()
        return None if row is None else SavedAgent(*row)

    def close(self) -> None:
        self._base.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """A transaction."""
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise CheckpointError(
                f"cannot use {self.path}: {error}. Choose a writable folder with room, and one store per node."
            ) from None
        except sqlite3.DatabaseError as error:
            raise CheckpointError(
                f"{self.path.name} is corrupt or not a store ({error}). Delete it and start anew."
            ) from None
