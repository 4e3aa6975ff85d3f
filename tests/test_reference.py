"""The public names, as docs/reference/public.md lists them, are there and are explained."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
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


def unexplained(found: Any, text: str) -> list[str]:
    """The parameters of a function, or the fields of a struct that users make, without a word about them."""
    if inspect.isroutine(found):
        prose = re.sub(r"^(>>>|\.\.\.|See also).*$", "", text, flags=re.M)
        parameters = [each for each in inspect.signature(found).parameters if each != "unknown"]
        return [each for each in parameters if not re.search(rf"\b{each}\b", prose)]
    if issubclass(found, Configuration):
        return [each.name for each in msgspec.structs.fields(found) if each.name not in field_docs(found)]
    return []


def lacks(name: str, known: Names) -> Iterator[str]:
    """What the docstring of a public name lacks."""
    found = resolve(name)
    text = inspect.getdoc(found) or ""
    paragraphs = text.split("\n\n")
    if not text or paragraphs[0].startswith((">>>", SEE_ALSO)):
        yield "a description"
    if not doctest.DocTestParser().get_examples(text):  # pytest --doctest-modules runs it, where it is defined
        yield "an example"
    others = [each.strip() for each in paragraphs[-1].removeprefix(SEE_ALSO).split(",")]
    if not paragraphs[-1].startswith(SEE_ALSO) or any(known.link(each) in (None, name) for each in others):
        yield "other public names to see"
    yield from unexplained(found, text)


def test_every_public_name_has_a_description_an_example_parameters_and_what_else_to_see() -> None:
    known = Names.public()
    found = {name: list(lacks(name, known)) for name in NAMES}
    assert {name: lacking for name, lacking in found.items() if lacking} == {}
