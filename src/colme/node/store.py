"""The store of a node: the saved state of each agent, one row per agent in an SQLite file, and the newest saves in two
small files beside it.

A save takes one of two ways:

synced   in a transaction of SQLite that is on the disk when it is over (synchronous=FULL): whatever is urgent, and the
         first save after `sync_every` seconds. It survives a power cut
recent   over the older of two files, `NAME-recent-a` and `NAME-recent-b`, without waiting for the disk: all others. It
         survives the death of the process, because the system has it. The system writes changed pages to the disk
         after half a minute or so; as these are always the same, saving every two seconds hardly costs more

A recent save counts only if it follows the rows in the SQLite file (`follows`): not if that was replaced by a copy.
When the store is opened or closed, the newest is moved into the SQLite file.

Every row has a checksum over its name, incarnation, epoch and state, and so has every recent save: CRC-32, because the
enemy is a worn-out card, not a forger, who could as well write a new checksum. It detects every error of up to 32
adjacent bits, and others but for one in 2^32; hashes of `hashlib` would load OpenSSL, 4 MiB. A store that fails any
check is damaged: `open_store` sets it aside and makes a new one. The version stands twice, in SQLite's user_version
and in the name of the table, so that a flipped bit is not taken for a newer version.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from colme.errors import CheckpointError, positive, shorten
from colme.support.files import PathLike

APPLICATION = 0x636D6531
"""The application id in the head of the file."""
VERSION = 1
SYNC_EVERY = 60.0
"""Seconds between two saves that survive a power cut, unless something is urgent."""
BESIDE = ("", "-wal", "-shm", "-journal", "-recent-a", "-recent-b")
"""What is added to the name of a store, for the files that belong to it."""
MOST_INCARNATIONS = 2**32 - 1

_PAGE = 1024  # bytes; pages are written as a whole, and a state has one to four kB
_MAGIC = b"SQLite format 3\0"
_TABLE = """CREATE TABLE agents_v1 (name TEXT PRIMARY KEY, incarnation INTEGER NOT NULL, epoch INTEGER NOT NULL,
            state BLOB, checksum INTEGER NOT NULL) WITHOUT ROWID"""
_TABLE_NAME = re.compile(rb"CREATE TABLE agents_v(\d+) ?\(name TEXT PRIMARY KEY, incarnation")
_SLOT = struct.Struct("<4sBxxxIQII")  # magic, version, follows, number, length, checksum of all that and of what comes
_SLOT_MAGIC = b"cmeN"
_OF_THE_SYSTEM = {  # errors that say nothing about the file; others say that it is damaged
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
}  # fmt: skip


class SavedAgent(NamedTuple):
    """The row of an agent: its incarnation, its ticks when it was saved, and its state (None: never saved)."""

    incarnation: int
    epoch: int
    state: bytes | None

    def checksum(self, name: str) -> int:
        head = struct.pack("<QQ?", self.incarnation, self.epoch, self.state is not None)
        return zlib.crc32(self.state or b"", zlib.crc32(head, zlib.crc32(name.encode() + b"\0")))


class DamagedStore(CheckpointError):
    """A store of ours that fails a check; `reason` says which."""

    def __init__(self, path: Path, reason: str):
        super().__init__(
            f"{path.name} is damaged ({reason}). Move it away, with the files beside it that begin with its name, and "
            "start again: the neighbors accept an agent without its store."
        )
        self.reason = reason


def open_store(path: PathLike, **options: Any) -> AgentStore:
    """The store in this file. A damaged one is set aside, not deleted, and a new one is made: a device in the field has
    nobody who could do it. The store's `warnings` say so."""
    try:
        return AgentStore(path, **options)
    except DamagedStore as error:
        aside = set_aside(Path(path))
        store = AgentStore(path, **options)
        store.warnings.append(
            f"{Path(path).name} is damaged ({error.reason}): it was set aside as {aside.name}, and a new one begins."
        )
        return store


def set_aside(path: Path) -> Path:
    """Rename a store, with the files that belong to it, to the first of NAME.corrupt-1, NAME.corrupt-2, ... that is
    free, and return it."""
    number = 1
    while any(os.path.lexists(f"{path}.corrupt-{number}{suffix}") for suffix in BESIDE):
        number += 1
    for suffix in reversed(BESIDE):  # the store itself last: if this is interrupted, it is still found damaged
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}{suffix}", f"{path}.corrupt-{number}{suffix}")
    return path.with_name(f"{path.name}.corrupt-{number}")


class AgentStore:
    """The agents of one device, in one file.

    sync_every  seconds between two saves that survive a power cut, unless something is urgent
    clock       of these seconds
    warnings    sentences about what was lost, for people
    """

    def __init__(
        self,
        path: PathLike,
        *,
        sync_every: float = SYNC_EVERY,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.path = Path(path)
        self.warnings: list[str] = []
        self._sync_every = positive(sync_every, "sync_every", "sync_every=60.0", CheckpointError)
        self._clock, self._synced = clock, clock()
        self._recent: dict[str, tuple[int, bytes]] = {}  # epoch and state of agents that were saved since the last sync
        self._slots: list[int] = []  # descriptors of the two files of recent saves, once they are open
        self._number = 0  # of the last recent save
        with self._refusing():
            new = not self.path.exists()
            if not new and self.path.is_file() and self.path.stat().st_size == 0:
                raise DamagedStore(self.path, "it is empty")
            self._base = sqlite3.connect(self.path, isolation_level=None, timeout=2.0)
        try:
            with self._refusing():
                if new:
                    self._create()
                else:
                    self._check()
                self._rows = self._checked_rows()
                self._take_recent()
        except BaseException:
            self._base.close()
            raise

    @property
    def due(self) -> bool:
        """Whether the next save will be synced even if it is not urgent."""
        return self._clock() - self._synced >= self._sync_every

    def start(self, name: str, *, at_least: int = 1) -> SavedAgent:
        """Start an agent: give it a higher incarnation than ever, on the disk before any message is sent, and return
        what is saved.

        at_least: the lowest incarnation, see `colme.node.device`"""
        with self._refusing():
            self.sync()
            row = self._row(name)
            incarnation = max(at_least, (row.incarnation if row else 0) + 1)
            if incarnation > MOST_INCARNATIONS:
                raise CheckpointError(
                    f"incarnation {incarnation} of {name!r}: {MOST_INCARNATIONS} is the highest. Use another name."
                )
            row = SavedAgent(incarnation, row.epoch if row else 0, row.state if row else None)
            with self._transaction():
                self._base.execute("INSERT OR REPLACE INTO agents_v1 VALUES (?, ?, ?, ?, ?)", self._columns(name, row))
            self._rows[name] = incarnation, row.checksum(name)
        return row

    def save(self, name: str, epoch: int, state: bytes) -> None:
        self.save_all([(name, epoch, state)])

    def save_all(self, agents: Iterable[tuple[str, int, bytes]], urgent: bool = False) -> None:
        """Save (name, epoch, state) of several agents, all or none. Each must have been started.

        urgent: they must survive a power cut, too"""
        recent = {name: (epoch, state) for name, epoch, state in agents}
        if not recent.keys() <= self._rows.keys():
            raise CheckpointError(f"{self.path.name} has no row for an agent that is to be saved. Start it first.")
        before, self._recent = self._recent, self._recent | recent
        try:
            with self._refusing():
                if urgent or self.due:
                    self.sync()
                else:
                    self._write_recent()
        except BaseException:
            self._recent = before
            raise

    def sync(self) -> None:
        """Move what was saved since the last time into the SQLite file, on the disk when this returns."""
        with self._refusing():
            rows = {
                name: SavedAgent(self._rows[name][0], epoch, state) for name, (epoch, state) in self._recent.items()
            }
            if rows:
                with self._transaction():
                    self._base.executemany(
                        "UPDATE agents_v1 SET incarnation = ?2, epoch = ?3, state = ?4, checksum = ?5 WHERE name = ?1",
                        [self._columns(name, row) for name, row in rows.items()],
                    )
            self._rows |= {name: (row.incarnation, row.checksum(name)) for name, row in rows.items()}
            self._recent, self._synced = {}, self._clock()

    def load(self, name: str) -> SavedAgent | None:
        """What is saved of an agent; None if it was never started here."""
        with self._refusing():
            row = self._row(name)
        if row is not None and name in self._recent:
            return SavedAgent(row.incarnation, *self._recent[name])
        return row

    def close(self) -> None:
        """Sync, and close all files. Recent saves are then part of the SQLite file, and theirs are removed."""
        try:
            self.sync()
            for suffix in ("-recent-a", "-recent-b"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.path}{suffix}")
        finally:
            for descriptor in self._slots:
                os.close(descriptor)
            self._slots = []
            self._base.close()

    # The SQLite file

    def _create(self) -> None:
        os.chmod(self.path, 0o600)
        self._base.execute(f"PRAGMA page_size={_PAGE}")
        self._set_modes()
        with self._transaction():
            self._base.execute(_TABLE)
            self._base.execute(f"PRAGMA application_id={APPLICATION}")
            self._base.execute(f"PRAGMA user_version={VERSION}")

    def _set_modes(self) -> None:
        """No write-ahead log: it would stay beside the file, and be applied to a copy that is put in its place."""
        self._base.execute("PRAGMA journal_mode=TRUNCATE")
        self._base.execute("PRAGMA synchronous=FULL")

    def _check(self) -> None:
        """Refuse a file that is not ours or of a newer version; find damage."""
        ours = _is_ours(self.path)
        try:
            texts = [sql for (sql,) in self._base.execute("SELECT sql FROM sqlite_master") if isinstance(sql, str)]
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if ours or _code(error) in _OF_THE_SYSTEM:
                raise
            raise CheckpointError(f"{self.path.name} is not a store ({error}). Choose another name.") from None
        (found,) = self._base.execute("PRAGMA application_id").fetchone()
        (version,) = self._base.execute("PRAGMA user_version").fetchone()
        known = [match for text in texts if (match := _TABLE_NAME.match(text.encode()))]
        if found != APPLICATION and not known and (texts or found):
            raise CheckpointError(f"{self.path.name} is the file of another program. Choose another name.")
        if version > VERSION and all(int(match[1]) == version for match in known):
            raise CheckpointError(f"{self.path.name} was written by a newer version ({version}). Upgrade colme.")
        if found != APPLICATION or (version, texts) != (VERSION, [_TABLE]):
            raise DamagedStore(self.path, "its head and its table do not agree")
        self._set_modes()
        if self._base.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise DamagedStore(self.path, "its pages do not add up")
        self._check_head()

    def _check_head(self) -> None:
        """Check those parts of the file's head that SQLite believes."""
        raw = self.path.read_bytes()[:100]
        page, n_pages = int.from_bytes(raw[16:18], "big"), int.from_bytes(raw[28:32], "big")
        constant = bytes([1, 1, 0, 64, 32, 32])  # versions of the format, reserved bytes, fractions of payload
        if (page, raw[18:24], page * n_pages) != (_PAGE, constant, self.path.stat().st_size):
            raise DamagedStore(self.path, "its head is wrong")

    def _checked_rows(self) -> dict[str, tuple[int, int]]:
        """Incarnation and checksum of all agents, once every row was found to match its checksum."""
        found = {}
        for name, incarnation, epoch, state, checksum in self._base.execute("SELECT * FROM agents_v1 ORDER BY name"):
            with self._damaged_if_odd():
                if SavedAgent(incarnation, epoch, state).checksum(name) != checksum:
                    raise DamagedStore(self.path, f"the row of {shorten(name)} does not match its checksum")
            found[name] = incarnation, checksum
        return found

    def _row(self, name: str) -> SavedAgent | None:
        row = self._base.execute("SELECT incarnation, epoch, state FROM agents_v1 WHERE name = ?", (name,)).fetchone()
        if row is not None and SavedAgent(*row).checksum(name) != self._rows[name][1]:
            raise DamagedStore(self.path, f"the row of {shorten(name)} has changed")
        return None if row is None else SavedAgent(*row)

    @staticmethod
    def _columns(name: str, row: SavedAgent) -> tuple[str, int, int, bytes | None, int]:
        return name, *row, row.checksum(name)

    # Recent saves

    @property
    def _follows(self) -> int:
        """A checksum of all rows of the SQLite file, by which recent saves know it."""
        return zlib.crc32(b"".join(self._rows[name][1].to_bytes(4, "little") for name in sorted(self._rows)))

    def _write_recent(self) -> None:
        if not self._slots:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            self._slots = [os.open(f"{self.path}-recent-{slot}", flags, 0o600) for slot in "ab"]
        self._number += 1
        rows = msgspec.msgpack.encode([(name, *saved) for name, saved in self._recent.items()])
        head = (_SLOT_MAGIC, VERSION, self._follows, self._number, len(rows))
        raw = _SLOT.pack(*head, _checksum_of_slot(head, rows)) + rows
        done = 0
        while done < len(raw):
            done += os.pwrite(self._slots[self._number % 2], raw[done:], done)

    def _take_recent(self) -> None:
        """Move the newest recent save that follows the rows into the SQLite file. There are some after a crash only."""
        found, torn = {}, False
        for slot in "ab":
            try:
                raw = Path(f"{self.path}-recent-{slot}").read_bytes()
            except FileNotFoundError:
                continue
            if (read := _read_slot(raw)) is None:
                torn |= bool(raw)
            elif read[0] == self._follows:
                found[read[1]] = read[2]
        if found:
            self._recent = {name: (epoch, state) for name, epoch, state in found[max(found)] if name in self._rows}
            self.sync()
        if torn:
            self.warnings.append(
                f"the last save in {self.path.name}-recent-a or -b is torn: the agent continues from the one before."
            )

    # Errors

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """A transaction."""
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._base.execute("COMMIT")
        except BaseException:
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _damaged_if_odd(self) -> Iterator[None]:
        """Values of other types or sizes than were ever saved mean damage."""
        try:
            yield
        except (struct.error, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise DamagedStore(self.path, "a row has odd values") from None

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if _code(error) not in _OF_THE_SYSTEM:
                raise DamagedStore(self.path, str(error)) from None
            reason = str(error)
        except UnicodeDecodeError:
            raise DamagedStore(self.path, "a text in it is not UTF-8") from None
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            return
        raise CheckpointError(
            f"cannot use {self.path}: {reason}. Choose a writable folder with room, and one store per node."
        )


def _code(error: Exception) -> int:
    """SQLite's primary error code; 0 for errors of Python's module, as of text that is not UTF-8."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_ours(path: Path) -> bool:
    """Whether a file that SQLite cannot read looks like the rest of a store: our marks in its head, nothing but zeros,
    or the first bytes of any SQLite file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        raw = file.read(65536)
    marks = raw[68:72] == APPLICATION.to_bytes(4, "big") or _TABLE_NAME.search(raw) is not None
    return marks or not any(raw) or (len(raw) < 512 and raw.startswith(_MAGIC[: len(raw)]))


def _checksum_of_slot(head: tuple[Any, ...], rows: bytes) -> int:
    return zlib.crc32(rows, zlib.crc32(_SLOT.pack(*head, 0)))


def _read_slot(raw: bytes) -> tuple[int, int, list[tuple[str, int, bytes]]] | None:
    """(follows, number, rows) of a recent save; None if it is torn."""
    if len(raw) < _SLOT.size:
        return None
    *head, checksum = _SLOT.unpack_from(raw)
    magic, version, follows, number, length = head
    rows = raw[_SLOT.size : _SLOT.size + length]
    if (magic, version) != (_SLOT_MAGIC, VERSION) or _checksum_of_slot(tuple(head), rows) != checksum:
        return None
    return follows, number, msgspec.msgpack.decode(rows, type=list[tuple[str, int, bytes]])
