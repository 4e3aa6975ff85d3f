"""Files that are written completely or not at all: texts, bytes, and arrays (NumPy's .npz with a JSON head, no pickle).

Each is written to a temporary file in the same folder, flushed to the disk and renamed, and the folder is flushed. A
crash or a power cut leaves the old file or the new one, never a part of it. The names of temporary files are random,
and what exists under them, such as a link to another file, is never opened.

A file names its format and version, such as "colme trace 1". One of a later version is refused with the advice to
upgrade (`check_format`), and so is one of this version that names a method or field which only later ones know
(`names_known`); what lacks something is torn (`nothing_missing`).
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from colme.errors import CheckpointError, Refusal, RunError
from colme.support.arrays import Array

PathLike = str | os.PathLike[str]
_HEAD = "head"
_LEFT_BEHIND = 3600.0  # seconds after which a temporary file is that of a killed process


def write_arrays(path: PathLike, form: str, head: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Write arrays and a head of plain values to one file, atomically."""
    target = Path(path)
    if not target.name or target.is_dir():
        raise CheckpointError(f"cannot write {target}: it is a folder. Name a file in it.")
    text = json.dumps({"format": form} | head)
    _remove_left_behind(target)
    with _replacing(target, CheckpointError) as file:
        np.savez(file, allow_pickle=False, **{_HEAD: np.frombuffer(text.encode(), np.uint8)}, **arrays)


def read_arrays(path: PathLike, form: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """What `write_arrays` wrote, or an error that says what is wrong with the file."""
    name = Path(path).name
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        head = json.loads(arrays.pop(_HEAD).tobytes())
        found = head.pop("format")
    except FileNotFoundError:
        raise CheckpointError(f"there is no file {path}. Check the path.") from None
    except (IsADirectoryError, PermissionError) as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}. Check the path.") from None
    except Exception:  # zip, NumPy and JSON each complain of a torn file in many ways
        raise CheckpointError(
            f"{name} is torn or is not a {form.rsplit(' ', 1)[0]} file. Check the path, or name another file."
        ) from None
    check_format(name, found, form)
    return head, arrays


def check_format(name: str, found: Any, form: str, refusal: Refusal = CheckpointError) -> None:
    """Refuse a file whose format is not `form`, a kind and a version such as "colme trace 1"."""
    kind, _, version = form.rpartition(" ")
    found_kind, _, found_version = str(found).rpartition(" ")
    if found_kind == kind and found_version.isdecimal() and int(found_version) > int(version):
        raise refusal(f"{name} holds {found!r} where {form!r} is the newest known here. Upgrade colme.")
    if found != form:
        raise refusal(f"{name} holds {found!r} where {form!r} is needed. Use another file name.")


@contextlib.contextmanager
def names_known(path: PathLike) -> Iterator[None]:
    """A method, field or value that is refused inside is one of a later version."""
    try:
        yield
    except (ValueError, TypeError) as error:
        said = str(error).rstrip(".").replace("`", "")
        raise CheckpointError(f"{Path(path).name} needs a later version of colme: {said}. Upgrade colme.") from None


@contextlib.contextmanager
def nothing_missing(path: PathLike) -> Iterator[None]:
    """What is missing or has another shape inside makes a file a torn one."""
    try:
        yield
    except CheckpointError:
        raise
    except (KeyError, ValueError, IndexError, TypeError) as error:
        said = f"it has no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise CheckpointError(f"{Path(path).name} is torn: {said}. Delete it and start anew.") from None


def flush(path: Path) -> None:
    """Flush a file or folder to the disk, so that it survives a power cut."""
    with contextlib.suppress(OSError):  # some systems cannot flush a folder
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a text file, atomically."""
    write_whole(path, text.encode())


def write_whole(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write a file, atomically; its folder is made if it is missing.

    mode  permissions of the new file, before the umask"""
    with _not_writable(path, RunError):
        path.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(path, RunError, mode) as file:
        file.write(content)


@contextlib.contextmanager
def _not_writable(path: Path, refusal: Refusal) -> Iterator[None]:
    """What the system refuses inside is one sentence about the path."""
    try:
        yield
    except OSError as error:
        raise refusal(f"cannot write {path}: {error.strerror}. Choose a folder with room that is writable.") from error


@contextlib.contextmanager
def _replacing(target: Path, refusal: Refusal, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A new file that takes the place of the target at the end, or, after an error, is removed."""
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}.tmp")
    with _not_writable(target, refusal):
        try:
            with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
            flush(target.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def _remove_left_behind(target: Path) -> None:
    """Remove temporary files of processes that were killed while they wrote the target: they may be large."""
    with contextlib.suppress(OSError):
        for name in os.listdir(target.parent):
            path = target.parent / name
            ours = name.startswith(f".{target.name}.") and name.endswith(".tmp")
            if ours and time.time() - path.lstat().st_mtime > _LEFT_BEHIND:
                path.unlink()


def check_writable(path: Path) -> None:
    """Refuse now what `write_whole` would refuse after the work."""
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    with _not_writable(path, RunError):
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        if path.exists() and not path.is_file():
            raise OSError(None, "it is a device or a pipe, which a file would replace")
        tempfile.TemporaryFile(dir=folder).close()
