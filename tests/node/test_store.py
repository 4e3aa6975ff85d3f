"""The store of a node: incarnations increase, saves survive a kill, damage is noticed, foreign files are refused."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from colme.errors import CheckpointError
from colme.node.store import BESIDE, VERSION, AgentStore, DamagedStore, SavedAgent, open_store


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


@pytest.mark.parametrize(("urgent", "n_saves"), [(False, 200), (True, 20)])
def test_a_save_survives_a_kill(tmp_path: Path, urgent: bool, n_saves: int) -> None:
    """A process that saves as fast as it can dies by kill -9: what it said it had saved is there."""
    path = tmp_path / "node.db"
    code = (
        "import sys; from colme.node.store import AgentStore\n"
        f"store = AgentStore({str(path)!r}); store.start('a')\n"
        f"for k in range(10**9):\n    store.save_all([('a', k, b'x' * 1000)], {urgent}); print(k, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [int(child.stdout.readline()) for _ in range(n_saves)]
        child.send_signal(signal.SIGKILL)
        said += [int(line) for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    saved = AgentStore(path).start("a")
    assert saved.incarnation == 2 and saved.epoch >= said[-1] and saved.state == b"x" * 1000


def killed(path: Path, to: Path) -> Path:
    """A copy of the store as it is now, as if its process had been killed."""
    to.mkdir()
    for suffix in BESIDE:
        if os.path.exists(f"{path}{suffix}"):
            shutil.copy(f"{path}{suffix}", f"{to / path.name}{suffix}")
    return to / path.name


def test_a_power_cut_leaves_what_was_synced_and_a_kill_everything(tmp_path: Path) -> None:
    """After a power cut only the SQLite file may be left: with what was urgent, or saved after `sync_every`."""
    path, now = tmp_path / "node.db", [0.0]
    store = AgentStore(path, sync_every=60.0, clock=lambda: now[0])
    store.start("a")
    for k, (seconds, urgent, synced) in enumerate(
        [(1.0, False, None), (2.0, True, 1), (3.0, False, 1), (61.9, False, 1), (62.0, False, 4), (63.0, False, 4)]
    ):
        now[0] = seconds
        store.save_all([("a", k, b"%d" % k)], urgent)
        assert store.load("a") == SavedAgent(1, k, b"%d" % k)
        copy = killed(path, tmp_path / f"killed {k}")
        assert AgentStore(copy).start("a").state == b"%d" % k
        alone = tmp_path / f"cut {k}.db"
        shutil.copy(path, alone)
        assert AgentStore(alone).start("a").state == (None if synced is None else b"%d" % synced)
    store.close()
    assert sorted(each.name for each in tmp_path.glob("node.db*")) == ["node.db", "node.db-journal"]
    assert AgentStore(path).load("a") == SavedAgent(1, 5, b"5")


def test_recent_saves_do_not_count_beside_a_restored_copy(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    store = AgentStore(path)
    store.start("a")
    store.save_all([("a", 1, b"yesterday")], True)
    shutil.copy(path, tmp_path / "backup")
    store.save_all([("a", 2, b"today")], True)
    store.save("a", 3, b"and just now")
    copy = killed(path, tmp_path / "killed")
    shutil.copy(tmp_path / "backup", copy)
    assert AgentStore(copy).load("a") == SavedAgent(1, 1, b"yesterday")
    os.unlink(path)  # a deleted store is a new one, whatever lies beside it
    assert AgentStore(path).load("a") is None


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE things (x)")
    base.close()


def newer(path: Path) -> None:
    AgentStore(path).close()
    with sqlite3.connect(path) as base:
        base.execute(f"ALTER TABLE agents_v{VERSION} RENAME TO agents_v{VERSION + 1}")
        base.execute(f"PRAGMA user_version={VERSION + 1}")
    base.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [(foreign, r"node\.db is the file of another program\. Choose another name\."),
     (newer, r"node\.db was written by a newer version \(2\)\. Upgrade colme\."),
     (lambda path: path.write_text("a text, and a long one, " * 100), r"node\.db is not a store \(.*\)\. Choose"),
     (lambda path: path.mkdir(), r"cannot use .*node\.db: .*\. Choose a writable folder")],
)  # fmt: skip
def test_other_files_are_refused_in_a_sentence_and_stay(tmp_path: Path, make: object, words: str) -> None:
    path = tmp_path / "node.db"
    make(path)  # type: ignore[operator]
    before = path.stat()
    with pytest.raises(CheckpointError, match=words):
        open_store(path)
    assert os.listdir(tmp_path) == ["node.db"] and path.stat() == before


def torn(path: Path) -> None:
    store = AgentStore(path)
    store.start("a")
    store.save("a", 1, bytes(20000))
    store.close()
    raw = bytearray(path.read_bytes())
    raw[4096:12288] = random.Random(0).randbytes(8192)
    path.write_bytes(raw)


def wrong_version(path: Path) -> None:
    AgentStore(path).close()
    raw = bytearray(path.read_bytes())
    raw[60] ^= 16  # a flipped bit is not a newer version
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("make", "reason"),
    [(torn, "malformed|pages"), (wrong_version, "head"), (lambda path: path.touch(), "it is empty"),
     (lambda path: path.write_bytes(bytes(8192)), "not a database|head"),
     (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(50)), "not a database|head")],
)  # fmt: skip
def test_a_damaged_store_is_set_aside_and_never_deleted(tmp_path: Path, make: object, reason: str) -> None:
    path = tmp_path / "node.db"
    for number in (1, 2, 3):
        make(path)  # type: ignore[operator]
        raw = path.read_bytes()
        with pytest.raises(DamagedStore, match=rf"node\.db is damaged \(.*({reason}).*\)\. Move it away.* start again"):
            AgentStore(path)
        Path(f"{path}-recent-a").write_bytes(b"beside it")
        store = open_store(path)
        (warning,) = store.warnings
        assert warning.startswith("node.db is damaged (")
        assert warning.endswith(f"): it was set aside as node.db.corrupt-{number}, and a new one begins.")
        assert Path(f"{path}.corrupt-{number}").read_bytes() == raw
        assert Path(f"{path}.corrupt-{number}-recent-a").read_bytes() == b"beside it"
        assert store.start("a", at_least=17) == SavedAgent(17, 0, None)
        store.close()
        assert open_store(path).load("a") == SavedAgent(17, 0, None)
        os.unlink(path)


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory if there is one: every save waits for the disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


ROWS = {"agent": b"state %d " * 500, "introductions": b"%d met", "source": b'{"offset": %d}'}


def write_store(folder: Path, *, killed: bool) -> dict[str, SavedAgent | None]:
    """Write a store `node.db` with four saves, two of them since it was synced, as a stopped or a killed process leaves
    it; return what is in it."""
    original = AgentStore(folder / "original.db")
    for name in ROWS:
        original.start(name)
    for k in range(4):
        original.save_all([(name, k, state.replace(b"%d", b"%d" % k)) for name, state in ROWS.items()])
        if k == 1:
            original.sync()
    found = {name: original.load(name) for name in ROWS}
    if not killed:
        original.close()
    (folder / "whole").mkdir()
    for path in folder.glob("original.db*"):
        shutil.copy(path, folder / "whole" / path.name.replace("original", "node"))
    return found


def damage(folder: Path, rng: random.Random) -> str:
    """Flip a bit in one of the files, larger ones more often, or cut it short, as on a worn-out card; what was done."""
    files = sorted(path for path in folder.iterdir() if path.stat().st_size)
    path = rng.choices(files, [each.stat().st_size for each in files])[0]
    size = path.stat().st_size
    if rng.random() < 0.1:
        size = rng.randrange(size)
        os.truncate(path, size)
        return f"{path.name} truncated to {size}"
    raw, bit = bytearray(path.read_bytes()), rng.randrange(8 * size)
    raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)
    return f"bit {bit % 8} of byte {bit // 8} of {path.name} flipped"


def outcome(folder: Path, whole: dict[str, SavedAgent | None]) -> str:
    """What an agent finds in this store: `same`; with a message, `set aside` or `torn` (an older save); or `different`,
    which must not be."""
    store = open_store(folder / "node.db")
    found = {name: store.load(name) for name in ROWS}
    store.close()
    if any("set aside as node.db.corrupt-1" in each for each in store.warnings):
        return "set aside" if not any(found.values()) else "different"
    if found == whole:
        return "same"
    older = {None if row is None else row.epoch for row in found.values()} in ({1}, {2})
    sentence = "the last save in node.db-recent-a or -b is torn: the agent continues from the one before."
    return "torn" if older and sentence in store.warnings else "different"


def damages(folder: Path, n: int, *, killed: bool) -> Counter[str]:
    """What becomes of n damaged copies of a store: nothing but the same state, or another one with a message."""
    whole, rng = write_store(folder, killed=killed), random.Random(f"{n} {killed}")
    found: Counter[str] = Counter()
    for _ in range(n):
        shutil.rmtree(folder / "damaged", ignore_errors=True)
        shutil.copytree(folder / "whole", folder / "damaged")
        what = damage(folder / "damaged", rng)
        became = outcome(folder / "damaged", whole)
        assert became in ("same", "set aside", "torn"), (what, became)
        found[became] += 1
    return found


@pytest.mark.parametrize("n", [24, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("killed", [False, True])
def test_damage_is_noticed(quick_folder: Path, killed: bool, n: int) -> None:
    found = damages(quick_folder, n, killed=killed)
    print(found)
    assert found["same"] and found["set aside"] and bool(found["torn"]) == killed
