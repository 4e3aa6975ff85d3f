"""What mkdocs calls while it builds the site (mkdocs.yml: hooks).

Generated pages are made here and are not in the repository, so they cannot be out of date:

- a page for each section of docs/reference/public.md, with what mkdocstrings says about each name;
- where a page has a line `<!-- generated: NAME -->`, the text of `GENERATED[NAME]`;
- a page for each file outside docs/ that a page links to (`../examples/aircraft.py`, `../CHANGELOG.md`), so that a
  link that works in the repository works in the site.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # mkdocs loads this file by its path

from tools.site import public, reference
from tools.site.links import OUTSIDE, file_page, inside, outside, page_of, with_links
from tools.site.markdown import escaped

API = "reference/api"
IN_NAVIGATION = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Files outside docs/ that have a place in the navigation, whether or not a page links to them."""
GENERATED: dict[str, Callable[[], str]] = {
    "command line": reference.command_line,
    "experiment file": reference.experiment_file,
    "node.toml": reference.node_file,
}


def on_config(config: Any) -> Any:
    """Put the pages of the public names into the navigation, after their list. A folder has no use for a page of a
    server's errors and for a map of addresses."""
    config.theme.static_templates -= {"404.html", "sitemap.xml"}
    pages = [{each.title: f"{API}/{each.page}.md"} for each in public.sections()]
    below = _find(config.nav, "Python")
    assert below is not None
    below[:] = [{"All public names": "reference/public.md"}, *pages]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made here."""
    for section in public.sections():
        files.append(File.generated(config, f"{API}/{section.page}.md", content=api_page(section)))
    root = Path(config.docs_dir).parent
    waiting = {file.src_uri: file.content_string for file in files if file.is_documentation_page()}
    waiting["index.md"] += " ".join(f"[{name}](../{name})" for name in IN_NAVIGATION)
    shown: set[str] = set()
    while waiting:
        uri, text = waiting.popitem()
        for target in sorted(outside(text, uri, root) - shown):
            shown.add(target)
            page = File.generated(config, page_of(target), content=file_page(root, target))
            if target not in IN_NAVIGATION:
                page.inclusion = page.inclusion.NOT_IN_NAV
            files.append(page)
            if target.endswith(".md"):
                waiting[page.src_uri] = page.content_string
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Fill in generated text, and lead links to files outside docs/ to their pages."""
    uri = page.file.src_uri
    page.meta.setdefault("search", {"boost": _boost(uri)})
    if uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]  # three doors side by side
    if uri == "reference/public.md":
        markdown = re.sub(r"^- `([\w.]+)`.*$", lambda match: _listed(match[1]), markdown, flags=re.M)
        for section in public.sections():
            markdown = markdown.replace(f"## {section.title}\n", f"## [{section.title}](api/{section.page}.md)\n")
    for name, make in GENERATED.items():
        markdown = markdown.replace(f"<!-- generated: {name} -->", make())
    root = Path(config.docs_dir).parent
    return with_links(markdown, lambda target: inside(target, uri, root))


def _boost(uri: str) -> float:
    """The weight of a page among the results of a search."""
    if uri.startswith((f"{OUTSIDE}/", "developer/")):
        return 0.3
    return 3.0 if uri.startswith(f"{API}/") or uri == "glossary.md" else 1.0


def api_page(section: public.Section) -> str:
    """The page of a section: each name, by mkdocstrings."""
    parts = [f"# {section.title}\n", with_links(section.about, lambda target: f"../{target}") + "\n"]
    parts += [f"::: {name}\n" for name in section.names]
    return "\n".join(parts)


def _listed(name: str) -> str:
    said = inspect.getdoc(public.resolve(name)) or ""
    first = " ".join(said.split("\n\n")[0].split())
    if isinstance(public.resolve(name), int | float | str | tuple | dict):
        first = ""
    return f"- [`{name}`][{name}]" + (f": {escaped(_sentence(first))}" if first else "")


def _sentence(text: str) -> str:
    """Its first sentence."""
    return re.split(r"(?<=[.:;]) ", text)[0].rstrip(":;.") + "."


def _find(items: Any, title: str) -> list[Any] | None:
    """The entries below a title of the navigation."""
    for item in items if isinstance(items, list) else []:
        for name, below in item.items() if isinstance(item, dict) else ():
            found = below if name == title else _find(below, title)
            if found is not None:
                assert isinstance(found, list)
                return found
    return None
