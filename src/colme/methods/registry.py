"""All methods by name, including those defined in Python files of the user's own.

Experiment files and node.toml list such files under `modules`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from colme.census.method import Census
from colme.errors import ColmeError, Refusal, one_of
from colme.method import Method
from colme.methods.b_colme import BColME
from colme.methods.baselines import Bayes, Local, Oracle
from colme.methods.c_colme import CColME
from colme.methods.cl_colme import CLColME
from colme.methods.colme import ColME
from colme.methods.partition import Partition

METHODS: tuple[type[Method], ...] = (Local, Oracle, Bayes, ColME, BColME, CColME, CLColME, Census, Partition)
"""Every method: the published ones, our own, and the baselines."""


def method_from(data: Any) -> Method:
    """The method whose plain form, a dictionary with its tag as "method", this is."""
    known = {str(each.__struct_config__.tag): each for each in METHODS}
    tag = data.get("method") if isinstance(data, dict) else None
    one_of(tag, known, "method")
    return msgspec.convert(data, known[str(tag)])


def plain_form(method: Method) -> dict[str, Any]:
    """What `method_from` takes: the tag and the fields that differ from their default."""
    return {"method": method.__struct_config__.tag} | msgspec.to_builtins(method.changed)


def methods_by_name(
    modules: Iterable[Path] = (), refusal: Refusal = ColmeError
) -> dict[str, tuple[type[Method], str | None]]:
    """tag -> (method, hash of the file that defines it, or None if it comes with colme)."""
    known: dict[str, tuple[type[Method], str | None]] = {str(m.__struct_config__.tag): (m, None) for m in METHODS}
    for path in modules:
        digest, module = _load(path, refusal)
        found = [
            each
            for each in vars(module).values()
            if isinstance(each, type) and issubclass(each, Method) and each.__module__ == module.__name__
        ]
        if not found:
            raise refusal(f"{path.name} has no method: it must define one. Copy colme/methods/skeleton.py.")
        for method in found:
            tag = method.__struct_config__.tag
            if not isinstance(tag, str):
                raise refusal(
                    f"{path.name}: {method.__name__} has no tag, its name in files. "
                    f"Try class {method.__name__}(..., tag='my-method')."
                )
            if tag in known:
                raise refusal(f"{path.name}: the tag {tag!r} is taken. Give {method.__name__} another tag.")
            known[tag] = (method, digest)
    return known


def _load(path: Path, refusal: Refusal) -> tuple[str, ModuleType]:
    """Import a file under a name made from its contents: equal files are one module, wherever they are."""
    import hashlib  # here, because it loads OpenSSL (4 MiB), and a device has room for better

    try:
        source = path.read_bytes()
    except OSError as error:
        raise refusal(
            f"cannot read module {path}: {error.strerror}. Paths in a file are relative to the file."
        ) from None
    digest = hashlib.sha256(source).hexdigest()[:16]
    name = f"colme_module_{path.stem}_{digest}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise refusal(f"module {path} is not a Python file. Name a file that ends in .py.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise refusal(f"module {path} cannot be imported: {type(error).__name__}: {error}.") from error
    return digest, sys.modules[name]
