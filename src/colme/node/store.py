"""What a device knows, on its disk: one row per agent in an SQLite file.

Write-ahead log with synchronous=NORMAL: what is saved survives the death of the process; a power cut may lose the last
saves, and never tears the file. A save takes some tens of microseconds.
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
"""In the head of the file: it is one of ours."""
VERSION = 1
_MOST_INCARNATIONS = 2**32 - 1
_TABLE = """CREATE TABLE agents (name TEXT PRIMARY KEY, incarnation INTEGER NOT NULL, epoch INTEGER NOT NULL,
            state BLOB) WITHOUT ROWID"""


class Saved(NamedTuple):
    """An agent's row: how often it has been started, its ticks when it was saved, and its state then (None: never)."""

    incarnation: int
    epoch: int
    state: bytes | None


class Store:
    """The agents of one device."""

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
            raise CheckpointError(f"{self.path.name} is the file of another program. Use another name.")
        if version > VERSION:
            raise CheckpointError(f"{self.path.name} is of a newer version ({version}). Upgrade colme.")
        self._base.execute("PRAGMA journal_mode=WAL")
        self._base.execute("PRAGMA synchronous=NORMAL")
        if not tables:
            with self._at_once():
                self._base.execute(_TABLE)
                self._base.execute(f"PRAGMA application_id={APPLICATION}")
                self._base.execute(f"PRAGMA user_version={VERSION}")
        elif self._base.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("pages do not add up")

    def start(self, name: str, *, at_least: int = 1) -> Saved:
        """The agent starts once more: its incarnation rises, on the disk before anybody hears of it.

        at_least: for who lost its store before, so that others do not take it for its former self."""
        with self._refusing(), self._at_once():
            row = self._row(name)
            incarnation = max(at_least, (row.incarnation if row else 0) + 1)
            if incarnation > _MOST_INCARNATIONS:
                raise CheckpointError(f"{name!r} has started {incarnation} times: that is too often. Use another name.")
            self._base.execute(
                "INSERT INTO agents VALUES (?, ?, 0, NULL) ON CONFLICT (name) DO UPDATE SET incarnation = ?",
                (name, incarnation, incarnation),
            )
        return Saved(incarnation, row.epoch if row else 0, row.state if row else None)

    def save(self, name: str, epoch: int, state: bytes) -> None:
        self.save_all([(name, epoch, state)])

    def save_all(self, agents: Iterable[tuple[str, int, bytes]]) -> None:
        """(name, epoch, state) of many, all or none. Each must have been started."""
        rows = [(epoch, state, name) for name, epoch, state in agents]
        with self._refusing(), self._at_once():
            done = self._base.executemany("UPDATE agents SET epoch = ?, state = ? WHERE name = ?", rows).rowcount
            if done != len(rows):
                raise CheckpointError(f"{self.path.name} lacks an agent that is saved. Start it first.")

    def load(self, name: str) -> Saved | None:
        """What is saved of an agent; None if it never started here."""
        with self._refusing():
            return self._row(name)

    def _row(self, name: str) -> Saved | None:
        row = self._base.execute("SELECT incarnation, epoch, state FROM agents WHERE name = ?", (name,)).fetchone()
        return None if row is None else Saved(*row)

    def close(self) -> None:
        self._base.close()

    @contextlib.contextmanager
    def _at_once(self) -> Iterator[None]:
        """A transaction: all or nothing."""
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
                f"cannot use {self.path}: {error}. Choose a folder with room that is writable, and one store each."
            ) from None
        except sqlite3.DatabaseError as error:
            raise CheckpointError(
                f"{self.path.name} is torn or is not a store ({error}). Delete it and start anew."
            ) from None
