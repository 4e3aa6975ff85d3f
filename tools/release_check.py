"""Check a release: build it, look into it, install it in clean environments, run it there.

    make release-check                        everything: each extra, each Python, lowest and newest dependencies
    make release-check ARGUMENTS=--quick      without extras and with `all`, on the first Python that is found
    python tools/release_check.py --extras node,mqtt --pythons 3.13

It writes the sdist, the wheel and its SBOM (CycloneDX) into dist/, and ends with exit code 1 if anything failed.
Pythons are looked for on the path, as python3.11 and so on; one that is not there is skipped and named. Packages come
from where pip is told to get them; what uv needs for that is passed on at run time. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import configparser
import email.parser
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.12", "3.13")
RESOLUTIONS = {"newest": "highest", "lowest": "lowest-direct"}
TOGETHER = {"base": "", "excel": "data,excel", "mqtt": "node,mqtt"}
"""What is installed to test an extra, if not the extra alone: spreadsheets are tables, brokers serve nodes."""
ALL = ("base", "data", "excel", "graph", "lab", "page", "node", "mqtt", "sklearn", "notebook")
"""What `all` is tested with."""
NOT_TESTED = {"all", "examples"}
"""Extras that only collect others."""


class Outcome(NamedTuple):
    """The result of one check."""

    check: str
    passed: bool | None  # None: skipped
    seconds: float
    note: str = ""


class Failed(Exception):
    """A check that failed, with what to show."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check a release in clean environments.")
    parser.add_argument("--quick", action="store_true", help="base and all only, on one Python")
    parser.add_argument("--extras", help="extras to install, with commas (default: each one, and all)")
    parser.add_argument("--pythons", help=f"versions of Python, with commas (default: {','.join(PYTHONS)})")
    parser.add_argument("--only", choices=tuple(RESOLUTIONS), help="only the newest, or only the lowest dependencies")
    asked = parser.parse_args(arguments)
    extras = asked.extras.split(",") if asked.extras else ["base", "all"] if asked.quick else [*extras_to_test(), "all"]
    check = ReleaseCheck()
    check.run("build sdist and wheel", check.build)
    if check.wheel is not None:
        check.run("contents of the wheel", check.contents)
        check.run("the sdist builds the same wheel", check.same_wheel)
        check.run("metadata", check.metadata)
        check.run("twine check --strict", check.twine)
        check.run("check-wheel-contents", check.check_wheel_contents)
        pythons = find_pythons(asked.pythons.split(",") if asked.pythons else PYTHONS, check)
        for version, python in list(pythons.items())[: 1 if asked.quick else None]:
            for extra in extras:
                for resolution in (asked.only,) if asked.only else RESOLUTIONS:
                    name = f"Python {version}, {extra}, {resolution}"
                    check.run(name, partial(check.install_and_run, python, extra, resolution))
        if pythons:
            check.run("SBOM of the wheel with [all]", partial(check.sbom, next(iter(pythons.values()))))
        else:
            check.note(Outcome("a Python to install into", False, 0.0, "none of these is on the path"))
    return check.summary()


def extras_to_test() -> list[str]:
    """base, and the extras of pyproject.toml, each with a smoke test."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return ["base", *(name for name in project["optional-dependencies"] if name not in NOT_TESTED)]


def find_pythons(versions: Sequence[str], check: ReleaseCheck) -> dict[str, str]:
    """The Pythons of these versions on the path; each one that does not start is noted as skipped."""
    found = {}
    for version in versions:
        program = f"python{version}"
        tried = subprocess.run(
            [program, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=False
        ) if shutil.which(program) else None  # fmt: skip
        if tried is not None and tried.returncode == 0:  # launchers of pyenv are on the path, and may start nothing
            found[version] = tried.stdout.strip()
        else:
            check.note(Outcome(f"Python {version}", None, 0.0, "not installed"))
    return found


def package_source() -> dict[str, str]:
    """Where pip gets packages, in the words of uv, which does not read pip's configuration."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    settings: dict[str, str] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        if key.startswith(("global.", "install.", ":env:.")):
            settings[key.rpartition(".")[2]] = value.strip("'\"")
    names = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS",
             "cert": "SSL_CERT_FILE"}  # fmt: skip
    found = {ours: settings[theirs] for theirs, ours in names.items() if theirs in settings}
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **found}  # all sources count, as for pip


class ReleaseCheck:
    """The checks, and what came of them."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.wheel: Path | None = None
        self.sdist: Path | None = None
        # Without the checkout; the user's own site-packages would hide what is missing.
        kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        self.environment = {**kept, "PYTHONNOUSERSITE": "1", "MPLBACKEND": "agg", **package_source()}

    def run(self, name: str, check: Callable[[], str]) -> None:
        """Do one check, and note its outcome."""
        print(f"{name} ...", end=" ", flush=True)
        began = time.monotonic()
        try:
            note = check()
            outcome = Outcome(name, True, time.monotonic() - began, note)
        except (Failed, OSError, subprocess.SubprocessError) as error:
            outcome = Outcome(name, False, time.monotonic() - began, str(error))
        print(f"{'passed' if outcome.passed else 'FAILED'} in {outcome.seconds:.0f} s", outcome.note, flush=True)
        self.outcomes.append(outcome)

    def note(self, outcome: Outcome) -> None:
        print(f"{outcome.check}: {outcome.note}")
        self.outcomes.append(outcome)

    def call(self, *words: str | Path, cwd: Path = ROOT, **environment: str) -> str:
        """What a program prints; Failed with the end of it if it fails."""
        done = subprocess.run(
            [*map(str, words)], cwd=cwd, env=self.environment | environment, capture_output=True, text=True,
            timeout=1800, check=False,
        )  # fmt: skip
        if done.returncode:
            end = "\n".join((done.stdout + done.stderr).strip().splitlines()[-25:])
            raise Failed(f"{Path(str(words[0])).name} {' '.join(map(str, words[1:4]))} ...: exit code "
                         f"{done.returncode}\n{end}")  # fmt: skip
        return done.stdout

    def build(self) -> str:
        """Into an empty dist/: the sdist, and from it the wheel."""
        shutil.rmtree(DIST, ignore_errors=True)
        self.call(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
        (self.wheel,), (self.sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
        return f"{self.wheel.name} {self.wheel.stat().st_size // 1000} kB, sdist {self.sdist.stat().st_size // 1000} kB"

    def contents(self) -> str:
        """The wheel has each file of src/colme and of experiments/ that git knows, and nothing else."""
        assert self.wheel is not None
        listed = self.call("git", "ls-files", "src/colme", "experiments").splitlines()
        with zipfile.ZipFile(self.wheel) as archive:
            names = set(archive.namelist())
        info = next(name for name in names if ".dist-info/" in name).split("/")[0]
        shared = f"{info.removesuffix('.dist-info')}.data/data/share/colme"
        wanted = {name.removeprefix("src/") if name.startswith("src/") else f"{shared}/{name}" for name in listed}
        wanted |= {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
        if names != wanted:
            raise Failed(f"missing: {sorted(wanted - names)[:5]}, not expected: {sorted(names - wanted)[:5]}")
        return f"{len(names)} files"

    def same_wheel(self) -> str:
        """Built from the checkout instead of from the sdist, the wheel has the same files."""
        assert self.wheel is not None
        with tempfile.TemporaryDirectory() as folder:
            self.call(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT)
            (other,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(self.wheel) as one, zipfile.ZipFile(other) as two:
                differing = [name for name in {*one.namelist(), *two.namelist()}
                             if name not in one.namelist() or name not in two.namelist()
                             or one.read(name) != two.read(name)]  # fmt: skip
        if differing:
            raise Failed(f"these differ: {sorted(differing)[:5]}")
        return ""

    def metadata(self) -> str:
        """Name, version, license, classifiers and the command are those of pyproject.toml and the package."""
        assert self.wheel is not None and self.sdist is not None
        with zipfile.ZipFile(self.wheel) as archive:
            info = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            found = email.parser.Parser().parsestr(archive.read(info).decode())
            scripts = configparser.ConfigParser()
            scripts.read_string(archive.read(info.replace("METADATA", "entry_points.txt")).decode())
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        version = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/colme/__init__.py").read_text(), re.M)
        for key, wanted in (
            ("Name", project["name"]), ("Version", version and version[1]), ("Summary", project["description"]),
            ("Requires-Python", project["requires-python"]), ("License-Expression", project["license"]),
        ):  # fmt: skip
            if found[key] != wanted:
                raise Failed(f"{key} is {found[key]!r}, not {wanted!r}")
        if sorted(found.get_all("Classifier", [])) != sorted(project["classifiers"]):
            raise Failed("the classifiers are not those of pyproject.toml")
        if set(found.get_all("Provides-Extra", [])) != set(project["optional-dependencies"]):
            raise Failed("the extras are not those of pyproject.toml")
        if dict(scripts["console_scripts"]) != project["scripts"]:
            raise Failed("the commands are not those of pyproject.toml")
        with tarfile.open(self.sdist) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        stray = sorted(name for name in names if re.match(r"(results|dist|\.venv|build|\.git)(/|$)", name))
        absent = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests/conftest.py"} - names
        if stray or absent:
            raise Failed(f"the sdist lacks {sorted(absent)} and should not have {stray[:5]}")
        return f"{found['Name']} {found['Version']}, {found['License-Expression']}"

    def twine(self) -> str:
        self.call(sys.executable, "-m", "twine", "check", "--strict", *sorted(DIST.glob("colme-*")))
        return ""

    def check_wheel_contents(self) -> str:
        assert self.wheel is not None
        self.call(Path(sys.executable).parent / "check-wheel-contents", self.wheel)
        return ""

    def requirements(self, extras: str) -> list[Requirement]:
        """What the wheel asks for with these extras, those that it names itself (`all`) included."""
        assert self.wheel is not None
        with zipfile.ZipFile(self.wheel) as archive:
            info = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            lines = email.parser.Parser().parsestr(archive.read(info).decode()).get_all("Requires-Dist", [])
        listed = [Requirement(line) for line in lines]
        wanted, found = {"", *filter(None, extras.split(","))}, []
        while True:
            found = [each for each in listed if each.marker is None
                     or any(each.marker.evaluate({"extra": extra}) for extra in wanted)]  # fmt: skip
            more = wanted.union(*(each.extras for each in found if each.name == "colme"))
            if more == wanted:
                return [each for each in found if each.name != "colme"]
            wanted = more

    def install(self, python: str, extra: str, resolution: str, folder: Path) -> tuple[Path, str]:
        """A new environment with the wheel and what it needs: its Python, and which versions are above the lowest
        although that was asked for, because there are no wheels of it for this Python or others need more."""
        uv = Path(sys.executable).parent / "uv"
        self.call(uv, "venv", "--quiet", "--python", python, folder / "venv")
        inside = folder / "venv" / "bin" / "python"
        extras = TOGETHER.get(extra, extra)
        wheel = f"{self.wheel}[{extras}]" if extras else f"{self.wheel}"
        # uv lowers only what it is asked for by name, not what a wheel asks for.
        named = self.requirements(extras) if resolution == "lowest" else []
        plain = sorted({f"{each.name}{each.specifier}" for each in named})
        self.call(uv, "pip", "install", "--quiet", "--python", inside, "--only-binary", ":all:", "--resolution",
                  RESOLUTIONS[resolution], wheel, *plain)  # fmt: skip
        self.call(uv, "pip", "check", "--quiet", "--python", inside)
        versions = dict(
            line.split("==") for line in self.call(uv, "pip", "freeze", "--python", inside).splitlines() if "==" in line
        )
        installed = {canonicalize_name(name): version for name, version in versions.items()}
        above = set()
        for each in named:
            lowest = next(bound.version for bound in each.specifier if bound.operator == ">=")
            version = installed[canonicalize_name(each.name)]
            if Version(version) != Version(lowest):
                above.add(f"{each.name} {version}, not {lowest}")
        return inside, "; ".join(sorted(above))

    def install_and_run(self, python: str, extra: str, resolution: str) -> str:
        """Install the wheel in a clean environment, and run the smoke test from an empty folder."""
        with tempfile.TemporaryDirectory(prefix="colme-") as name:
            folder = Path(name)
            inside, above = self.install(python, extra, resolution, folder)
            (folder / "empty").mkdir()
            parts = ALL if extra == "all" else (extra,)
            shown = self.call(inside, "-I", "-c", "import numba, numpy; print(numba.__version__, numpy.__version__)")
            numba, numpy = shown.split()
            # Kernels are compiled once for each Python, numba and NumPy, not once for each environment.
            cache = Path(tempfile.gettempdir()) / "colme-release-kernels" / f"{Path(python).name}-{numba}-{numpy}"
            self.call(
                inside, "-I", ROOT / "tools" / "smoke.py", *parts, cwd=folder / "empty", COLME_CACHE_DIR=str(cache)
            )
            return "; ".join(filter(None, (f"numba {numba}, numpy {numpy}", above)))

    def sbom(self, python: str) -> str:
        """The wheel with all extras as installed from the newest dependencies, as CycloneDX JSON in dist/."""
        assert self.wheel is not None
        target = DIST / f"{self.wheel.name.split('-py3')[0]}.cdx.json"
        with tempfile.TemporaryDirectory(prefix="colme-") as name:
            inside, _ = self.install(python, "all", "newest", Path(name))
            cyclonedx = Path(sys.executable).parent / "cyclonedx-py"
            self.call(
                cyclonedx, "environment", "--output-reproducible", "--pyproject", ROOT / "pyproject.toml",
                "--mc-type", "library", "--output-format", "JSON", "--output-file", target, inside,
            )  # fmt: skip
        bill = json.loads(target.read_text())
        subject = bill["metadata"]["component"]  # from pyproject.toml, where the version is not a constant
        subject["version"] = self.wheel.name.split("-")[1]
        subject["purl"] = f"pkg:pypi/{subject['name']}@{subject['version']}"
        subject["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(self.wheel.read_bytes()).hexdigest()}]
        target.write_text(json.dumps(bill, indent=2) + "\n")
        return f"{target.name}, {len(bill['components'])} components"

    def summary(self) -> int:
        """Print all outcomes; the exit code."""
        width = max(len(outcome.check) for outcome in self.outcomes)
        print()
        for outcome in self.outcomes:
            word = "skipped" if outcome.passed is None else "passed" if outcome.passed else "FAILED"
            print(
                f"{outcome.check:<{width}}  {word:<7}  {outcome.seconds:5.0f} s  {outcome.note.partition(chr(10))[0]}"
            )
        passed, skipped, failed = (sum(each.passed is kind for each in self.outcomes) for kind in (True, None, False))
        print(f"\n{passed} passed, {skipped} skipped, {failed} failed.")
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
