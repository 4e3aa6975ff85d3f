"""`RunStore`: the folder of an experiment, with one folder per run that is complete or absent.

    results/cl_colme/
        experiment.toml              the experiment as it was run last
        modules/ graphs/             copies of the files that it refers to
        runs/<name>/run.json         what determines the run, versions, times, and the hash of the trace
        runs/<name>/trace.parquet    the metrics, one row per recorded step
        work/<name>/                 an unfinished run: its checkpoint, and how far it is

A run is written in `work`, flushed to the disk and then moved as a whole, so a reader never sees half of one. A run
whose files do not fit together (a disk that filled up, an incomplete copy) counts as damaged and is done again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import colme
from colme.errors import RunError, missing_extra
from colme.sim.run import Interrupted
from colme.support.files import check_writable, flush, write_text
from colme.support.structs import read_toml

PACKAGES = ("numpy", "numba", "llvmlite", "msgspec", "pyarrow", "xarray", "joblib", "matplotlib", "scipy")
"""The packages that numbers depend on."""
FORMAT = "colme run 1"
ASK_EVERY = 0.1
"""Seconds between two attempts to claim a run that another process has."""
FORGOTTEN = 3600.0
"""Seconds after which a file that asks runs to stop is out of date."""


class RunStore:
    """The folder of an experiment."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        self.runs, self.work = self.folder / "runs", self.folder / "work"

    def prepare(self) -> None:
        """Create the folders and check that they are writable, before the first run."""
        for folder in (self.runs, self.work):
            check_writable(folder / "run")
            folder.mkdir(parents=True, exist_ok=True)

    def is_complete(self, name: str) -> bool:
        return self.read_json(name) is not None

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The run.json of a complete run; None if there is no such run or it is damaged."""
        folder = self.runs / name
        try:
            head: dict[str, Any] = json.loads((folder / "run.json").read_bytes())
            digest = hashlib.sha256((folder / "trace.parquet").read_bytes()).hexdigest()
            whole = head["format"] == FORMAT and head["name"] == name and head["trace"] == digest
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return head if whole else None

    def read_trace(self, name: str) -> Any:
        """The trace of a complete run, as a pyarrow.Table."""
        return parquet().read_table(self.runs / name / "trace.parquet")

    def write(self, name: str, head: dict[str, Any], trace: Any) -> None:
        """Store a complete run, all or nothing. If another process has stored it already, that one stays."""
        self.prepare()
        temporary = self.work / name / f"whole-{os.getpid()}"  # if this process is killed, `release` removes it
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            parquet().write_table(trace, temporary / "trace.parquet", compression="zstd")
            digest = hashlib.sha256((temporary / "trace.parquet").read_bytes()).hexdigest()
            whole = {"format": FORMAT, "name": name} | head | {"trace": digest}
            (temporary / "run.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
            for file in (temporary / "trace.parquet", temporary / "run.json", temporary):
                flush(file)
            if not self.is_complete(name):
                self.remove(name)
                temporary.rename(self.runs / name)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise RunError(f"cannot write in {self.folder}: {reason}. Make room and run again.") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def remove(self, name: str) -> None:
        shutil.rmtree(self.runs / name, ignore_errors=True)

    @contextlib.contextmanager
    def claim(self, name: str, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Path]:
        """The working folder of a run, for one process at a time; a second process waits, or stops if it should."""
        folder = self.work / name
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                lock = open(folder / "lock", "wb")  # noqa: SIM115
            except FileNotFoundError:  # the other process has just finished
                continue
            with lock:
                _wait_for(lock.fileno(), should_stop)
                if _is_at(lock.fileno(), folder / "lock"):  # and not in a folder that is gone
                    yield folder
                    return

    def release(self, name: str) -> None:
        """Remove the working folder of a complete run."""
        shutil.rmtree(self.work / name, ignore_errors=True)

    def tidy(self) -> None:
        """Remove what killed processes have left behind: working folders of complete runs, and old files."""
        with contextlib.suppress(OSError):
            for each in self.work.iterdir():
                if each.is_dir() and self.is_complete(each.name):
                    with self.claim(each.name):
                        self.release(each.name)
                elif each.is_file() and time.time() - each.stat().st_mtime > FORGOTTEN:
                    each.unlink()
            self.work.rmdir()  # empty unless something is left to resume

    def steps_done(self) -> dict[str, int]:
        """name -> last reported step, for the unfinished runs."""
        done = {}
        for file in self.work.glob("*/progress"):
            with contextlib.suppress(OSError, ValueError):
                done[file.parent.name] = int(file.read_text())
        return done

    def save_experiment(self, table: dict[str, Any]) -> None:
        path, text = self.folder / "experiment.toml", toml_of(table)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)

    def load_experiment(self) -> dict[str, Any]:
        path = self.folder / "experiment.toml"
        try:
            path.stat()
        except FileNotFoundError:
            raise RunError(f"{self.folder} holds no experiment. Run one first: colme run FILE.toml.") from None
        return read_toml(path, RunError, "Run the experiment again; its runs are kept.")


def toml_of(table: dict[str, Any]) -> str:
    """A table as the text of a TOML file."""
    try:
        import tomli_w
    except ImportError:
        raise missing_extra("tomli-w", "lab", "writing an experiment") from None
    return tomli_w.dumps(table, multiline_strings=True)


def _wait_for(handle: int, should_stop: Callable[[], bool]) -> None:
    """Wait until this process has the lock; the system releases it when a process dies, however it dies."""
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if should_stop():
                raise Interrupted from None
            time.sleep(ASK_EVERY)
        except OSError:  # a file system without locks: two processes may do the same work, to the same bits
            return


def _is_at(handle: int, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(path))
    return False


def parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise missing_extra("pyarrow", "lab", "storing runs") from None
    return pyarrow.parquet


def version_of(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """The versions of colme, Python and the packages that numbers depend on; no host name, no user, no paths."""
    found = {"colme": colme.__version__, "python": platform.python_version()}
    found |= {package: version for package in PACKAGES if (version := version_of(package))}
    return found | {"system": platform.system(), "machine": platform.machine()}
