"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colme.errors import ColmeError
from colme.support.files import write_arrays, write_text, write_whole


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to the disk, in order: "flush file", "rename", "flush folder"."""
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flushed(handle: int) -> None:
        done.append("flush folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "flush file")
        fsync(handle)

    def renamed(*paths: Any) -> None:
        done.append("rename")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    return done


WRITERS = {
    "bytes": lambda path: write_whole(path, b"new"),
    "text": lambda path: write_text(path, "new"),
    "arrays": lambda path: write_arrays(path, "a form 1", {}, {"x": np.arange(3)}),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_content_is_on_the_disk_before_the_rename_and_the_rename_after_it(
    kind: str, tmp_path: Path, calls: list[str]
) -> None:
    WRITERS[kind](tmp_path / "file")
    assert calls == ["flush file", "rename", "flush folder"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    kind: str, failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(ColmeError, match="No space left"):
        WRITERS[kind](path)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("kind", WRITERS)
def test_temporary_names_cannot_be_guessed_and_links_are_not_followed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, path, used = tmp_path / "victim", tmp_path / "file", []
    victim.write_bytes(b"precious")
    for guess in (".file.tmp", f".file.{os.getpid()}.tmp"):
        (tmp_path / guess).symlink_to(victim)
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: (used.append(str(paths[0])), replace(*paths)))
    for _ in range(3):
        WRITERS[kind](path)
    assert len(set(used)) == 3 and victim.read_bytes() == b"precious"
    monkeypatch.setattr("os.urandom", lambda _: b"guessed")  # even if a name were known
    (tmp_path / f".file.{b'guessed'.hex()}.tmp").symlink_to(victim)
    with pytest.raises(ColmeError, match="File exists"):
        WRITERS[kind](path)
    assert victim.read_bytes() == b"precious"


def test_a_new_file_has_the_permissions_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "plain", b"")
        write_whole(tmp_path / "key", b"", mode=0o600)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "key")] == [0o640, 0o600]


def test_what_killed_processes_left_is_removed_after_an_hour(tmp_path: Path) -> None:
    old, recent, other = (tmp_path / name for name in (".file.0a.tmp", ".file.0b.tmp", ".other.0a.tmp"))
    for path in (old, recent, other):
        path.write_bytes(b"part")
    for path in (old, other):
        os.utime(path, (0, 0))
    write_arrays(tmp_path / "file", "a form 1", {}, {"x": np.arange(3)})
    assert not old.exists() and recent.exists() and other.exists()
