"""The public names, as docs/reference/public.md lists them, are there and are explained."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from typing import Any

import msgspec
import pytest

import colme
from colme.cli.fields import field_docs
from colme.support.structs import Configuration
from tools.site.docstrings import SEE_ALSO, Names
from tools.site.public import public_names, resolve

NAMES = public_names()
COMPLETE = ("colme", "colme.lab", "colme.sim", "colme.sklearn", "colme.online")
"""Modules all of whose names are public; the name of each is in the list once, by its shortest way."""


def docstring(name: str) -> str:
    return inspect.getdoc(resolve(name)) or ""


def test_the_list_has_no_name_twice() -> None:
    assert len(set(NAMES)) == len(NAMES) > 0


@pytest.mark.parametrize("module", COMPLETE)
def test_all_names_of_a_module_for_users_are_public(module: str) -> None:
    home = importlib.import_module(module)
    names = getattr(home, "__all__", ["MeanEncoder"])
    kept = {id(resolve(name)) for name in NAMES}
    lacking = {
        name for name in names if not inspect.ismodule(getattr(home, name)) and id(getattr(home, name)) not in kept
    }
    assert lacking == set()


def test_every_error_is_public() -> None:
    errors = {
        each for each in vars(colme.errors).values() if isinstance(each, type) and issubclass(each, colme.ColmeError)
    }
    assert errors <= {resolve(name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_a_description(name: str) -> None:
    first = docstring(name).split("\n\n")[0]
    assert first
    assert not first.startswith((">>>", SEE_ALSO))


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name: str) -> None:
    """pytest --doctest-modules runs it, where it is defined."""
    assert doctest.DocTestParser().get_examples(docstring(name))
    assert inspect.getmodule(resolve(name)).__name__.startswith("colme.")  # type: ignore[union-attr]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_says_what_else_to_see(name: str) -> None:
    last = docstring(name).split("\n\n")[-1]
    assert last.startswith(SEE_ALSO)
    others = [each.strip() for each in last.removeprefix(SEE_ALSO).split(",")]
    known = Names.public()
    assert [each for each in others if known.link(each) in (None, name)] == []


def parameters(found: Any) -> list[str]:
    """Of a function, or the fields of a struct that users make."""
    if isinstance(found, type):
        return [each.name for each in msgspec.structs.fields(found)]
    return [each for each in inspect.signature(found).parameters if each != "unknown"]


@pytest.mark.parametrize(
    "name",
    [each for each in NAMES if inspect.isroutine(resolve(each)) or issubclass(resolve(each), Configuration)],
)
def test_a_public_name_explains_its_parameters(name: str) -> None:
    found = resolve(name)
    if isinstance(found, type):
        told = field_docs(found)
        assert [each for each in parameters(found) if each not in told] == []
    else:
        text = re.sub(r"^(>>>|\.\.\.|See also).*$", "", docstring(name), flags=re.M)
        assert [each for each in parameters(found) if not re.search(rf"\b{each}\b", text)] == []
