"""The documentation site: generated pages, links, and a whole build."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from colme.cli import COMMANDS
from colme.methods import METHODS
from colme.scenario import Scenario
from tests.support.browser import chromium, complaints, requests_of, resize, until
from tools.site.check_links import dead_links
from tools.site.docstrings import Names, as_markdown, split_aligned
from tools.site.links import file_page, inside, outside, resolved, with_links
from tools.site.markdown import escaped
from tools.site.public import ROOT, sections
from tools.site.reference import command_line, experiment_file, node_file, tag

NAMES = Names(["colme.Local", "colme.graphs.Graph"], {"Local": "colme.Local", "Graph": "colme.graphs.Graph"})
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def site(folder: Path, **pages: str) -> Path:
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text)
    return folder


def test_links_to_pages_and_anchors_that_are_there_are_alive(tmp_path: Path) -> None:
    elsewhere = '<a href="https://arxiv.org/abs/2602.06070">'
    made = site(tmp_path, a='<a href="b.html#x">b</a> <a href="#top"></a> <p id="top">', b='<p id="x">' + elsewhere)
    assert dead_links(made) == []


DEAD = [
    ('<a href="c.html">', "is not there"),
    ('<img src="c.svg">', "is not there"),
    ('<a href="b.html#y">', "has no such anchor"),
    ('<a href="#y">', "has no such anchor"),
    ('<a href="/b.html">', "begins at the root: it does not work from a folder"),
    ('<a href=".">', "is a folder: only a server would find its page"),
    ('<a href="https://nowhere">', "is not an address"),
    ('<a href="gopher://old.example.org">', "is not an address of the web"),
    ('<script src="https://cdn.example.org/a.js">', "is loaded from elsewhere"),
    ('<link rel="stylesheet" href="//fonts.example.org/a.css">', "is loaded from elsewhere"),
]


def test_dead_links_are_found(tmp_path: Path) -> None:
    for link, trouble in DEAD:
        (found,) = dead_links(site(tmp_path, a=link, b="<p>"))
        assert found.startswith("a.html:1: ") and found.endswith(trouble)


def test_an_anchor_that_is_there_twice_is_found(tmp_path: Path) -> None:
    assert dead_links(site(tmp_path, a='<p id="x"><p id="x">')) == ["a.html: the anchor #x is there twice"]


def test_a_folder_without_pages_is_no_site(tmp_path: Path) -> None:
    assert dead_links(tmp_path) != []


def test_aligned_lines_become_definitions() -> None:
    text = "Sum.\n\nfirst   a number\nsecond, third\n        two more\n        of them\n\nSee also: Local, Graph"
    made = as_markdown(text, NAMES)
    assert "`first`\n:   a number\n" in made
    assert "`second, third`\n:   two more of them\n" in made
    assert "**See also:** [`Local`][colme.Local], [`Graph`][colme.graphs.Graph]" in made


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (
            ["agent       the agent", "time_format how dates are written"],
            ([], [("agent", "the agent"), ("time_format", "how dates are written")]),
        ),
        (["One sentence", "over two lines."], None),
    ],
)
def test_which_lines_are_definitions(lines: list[str], found: object) -> None:
    assert split_aligned(lines) == found


def test_doctests_and_equations_become_code() -> None:
    made = as_markdown("Text.\n\n    y = x\n\n>>> 1 + 1\n2", NAMES)
    assert "```text\ny = x\n```" in made
    assert "```pycon\n>>> 1 + 1\n2\n```" in made


def test_a_name_in_backticks_is_a_link_but_for_the_own_one() -> None:
    assert NAMES.linked("`Local` and `Graph`", own="colme.Local") == "`Local` and [`Graph`][colme.graphs.Graph]"


def test_text_is_shown_as_it_is() -> None:
    assert escaped("x_a * [1] <= `a_b`") == r"x\_a \* \[1\] &lt;= `a_b`"


def test_the_command_line_has_every_command() -> None:
    text = command_line()
    assert [name for name in COMMANDS if f"\n## colme {name}\n" not in text] == []
    assert "### colme node run" in text
    assert "`--n-agents NUMBER`" in text


def test_experiment_files_have_every_field_and_method() -> None:
    text = experiment_file()
    assert [name for name in Scenario.__struct_fields__ if f"\n`{name}`\n:   " not in text] == []
    assert [method for method in METHODS if f"\n### {tag(method)}\n" not in text] == []


def test_node_toml_has_every_table() -> None:
    text = node_file()
    assert re.findall(r"^## `(.*)`$", text, re.M) == [
        "[method]", "[[neighbors]]", "[tls]", "[samples]", "[estimates]", "[join]", "[gateway]", "[limits]",
    ]  # fmt: skip


def test_a_link_to_a_file_outside_leads_to_a_page_that_shows_it() -> None:
    text = "[source](../examples/aircraft.py) and `[no](../link.py)`"
    assert outside(text, "estimate.md", ROOT) == {"examples/aircraft.py"}
    assert inside("../examples/aircraft.py", "estimate.md", ROOT) == "files/examples/aircraft.py.md"
    assert file_page(ROOT, "examples/aircraft.py").startswith("# examples/aircraft.py\n\n```python\n")


def test_a_page_of_a_file_keeps_its_links() -> None:
    assert inside("docs/node.md#cuts", "files/CHANGELOG.md", ROOT) == "../node.md#cuts"
    assert inside("../README.md", "methods.md", ROOT) == "index.md"


def test_links_in_code_stay() -> None:
    text = "[a](b.md)\n\n```\n[a](b.md)\n```\n"
    assert with_links(text, lambda target: "c.md") == "[a](c.md)\n\n```\n[a](b.md)\n```\n"


def test_links_work_in_the_repository() -> None:
    dead = []
    for page in PAGES:
        uri = page.relative_to(ROOT / "docs").as_posix() if page.parent != ROOT else f"files/{page.name}"

        def look(target: str, page: Path = page, uri: str = uri) -> str:
            path = resolved(target, uri, ROOT)
            if path is not None and not (ROOT / path).exists():
                dead.append((page.name, target))
            return target

        with_links(page.read_text(encoding="utf-8"), look)
    assert dead == []


def test_every_figure_is_in_the_gallery() -> None:
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert [
        path.name for path in (ROOT / "docs" / "figures").glob("*.svg") if f"(figures/{path.name})" not in text
    ] == []


def test_sections_are_read_from_the_list() -> None:
    text = "# Names\n\n## A b\n\nAbout it.\n\n- `x.y`\n- `x.z`\n\n## Empty\n\nNothing.\n"
    (found,) = sections(text)
    assert (found.page, found.about, found.names) == ("a_b", "About it.", ("x.y", "x.z"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocstrings", reason="make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_whole_site_has_no_dead_link(built: Path) -> None:
    assert dead_links(built) == []


@pytest.mark.slow
def test_search_works_from_a_folder_and_nothing_is_loaded_from_elsewhere(built: Path, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        resize(browser, 1280)
        browser.get((built / "reference" / "api" / "methods.html").as_uri())
        box = browser.find_element("css selector", "input.md-search__input")
        box.click()
        box.send_keys("separation time")
        found = "return [...document.querySelectorAll('.md-search-result__item h2')].map(each => each.textContent)"
        until(browser, found + ".includes('colme.confidence.separation_time')")
        assert {url.partition(":")[0] for url in requests_of(browser)} <= {"file", "data", "about", "blob"}
        assert complaints(browser) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_window(built: Path, tmp_path: Path, width: int) -> None:
    wide = []
    with chromium(tmp_path) as browser:
        resize(browser, width)
        for page in sorted(each for each in built.rglob("*.html") if each.parent.name != "live"):
            browser.get(page.as_uri())
            if browser.execute_script("return document.documentElement.scrollWidth > innerWidth"):
                wide.append(page.name)
    assert wide == []
