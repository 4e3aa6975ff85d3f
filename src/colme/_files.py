"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from colme.errors import RunError


def write_text(path: Path, text: str) -> None:
    """A text file that is never half-written."""
    write_whole(path, text.encode())


def write_whole(path: Path, content: bytes) -> None:
    """A file that is never half-written: a temporary one beside it, then a rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise RunError(f"cannot write {path}: {error.strerror}. Choose a folder with room that is writable.") from error


def check_writable(path: Path) -> None:
    """Refuse now what `write_whole` would refuse after the work."""
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}. Choose a folder with room that is writable.") from None
