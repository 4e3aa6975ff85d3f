"""The store of a node: incarnations increase, saves survive a kill, and foreign files are refused."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from colme.errors import CheckpointError
from colme.node.store import APPLICATION, VERSION, AgentStore, SavedAgent


def test_incarnations_rise_and_states_stay(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    for expected in (1, 2, 3):
        store = AgentStore(path)
        assert store.start("a").incarnation == expected
        store.close()
    store = AgentStore(path)
    store.save("a", 7, b"state")
    assert store.load("a") == SavedAgent(3, 7, b"state") and store.load("b") is None
    assert store.start("a") == SavedAgent(4, 7, b"state")
    assert store.start("b") == SavedAgent(1, 0, None)
    assert store.start("b", at_least=50).incarnation == 50 and store.start("b", at_least=9).incarnation == 51
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_many_are_saved_together_or_not_at_all(tmp_path: Path) -> None:
    store = AgentStore(tmp_path / "node.db")
    for name in "ab":
        store.start(name)
    store.save_all([("a", 1, b"1"), ("b", 2, b"2")])
    with pytest.raises(CheckpointError, match=r"has no row for an agent.*Start it first"):
        store.save_all([("a", 3, b"3"), ("c", 4, b"4")])
    assert store.load("a") == SavedAgent(1, 1, b"1") and store.load("b") == SavedAgent(1, 2, b"2")


def test_a_save_survives_a_kill(tmp_path: Path) -> None:
    """A process that saves as fast as it can dies by kill -9: what it said it had saved is there."""
    path = tmp_path / "node.db"
    code = (
        "import sys; from colme.node.store import AgentStore\n"
        f"store = AgentStore({str(path)!r}); store.start('a')\n"
        "for k in range(10**9):\n    store.save('a', k, b'x' * 1000); print(k, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [int(child.stdout.readline()) for _ in range(200)]
        child.send_signal(signal.SIGKILL)
        said += [int(line) for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    saved = AgentStore(path).start("a")
    assert saved.incarnation == 2 and saved.epoch >= said[-1] and saved.state == b"x" * 1000


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE things (x)")
    base.close()


def newer(path: Path) -> None:
    AgentStore(path).close()
    with sqlite3.connect(path) as base:
        base.execute(f"PRAGMA user_version={VERSION + 1}")
    base.close()


def torn(path: Path) -> None:
    store = AgentStore(path)
    store.start("a")
    store.save("a", 1, bytes(20000))
    store.close()
    raw = bytearray(path.read_bytes())
    raw[4096:12288] = os.urandom(8192)
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("make", "words"),
    [(foreign, r"node\.db is the file of another program\. Choose another name\."),
     (newer, r"node\.db was written by a newer version \(2\)\. Upgrade colme\."),
     (torn, r"node\.db is corrupt or not a store \(.*\)\. Delete it and start anew\."),
     (lambda path: path.write_text("a text, and a long one, " * 100), r"node\.db is corrupt or not a store"),
     (lambda path: path.mkdir(), r"cannot use .*node\.db: .*\. Choose a writable folder")],
)  # fmt: skip
def test_other_files_are_refused_in_a_sentence(tmp_path: Path, make: object, words: str) -> None:
    path = tmp_path / "node.db"
    make(path)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=words):
        AgentStore(path).start("a")


def test_the_head_names_us(tmp_path: Path) -> None:
    AgentStore(tmp_path / "node.db").close()
    assert (tmp_path / "node.db").read_bytes()[68:72] == APPLICATION.to_bytes(4, "big") == b"cme1"
