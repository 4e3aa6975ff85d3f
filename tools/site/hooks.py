"""What mkdocs calls while it builds the site (mkdocs.yml: hooks).

Generated pages are made here and are not in the repository, so they cannot be out of date:

- a page for each section of docs/reference/public.md, with what mkdocstrings says about each name;
- where a page has a line `<!-- generated: NAME -->`, the text of `GENERATED[NAME]`;
- a page for each file outside docs/ that a page links to (`../examples/aircraft.py`, `../CHANGELOG.md`), so that a
  link that works in the repository works in the site.
"""

from __future__ import annotations

import inspect
import posixpath
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # mkdocs loads this file by its path

from tools.site import public, reference
from tools.site.markdown import code, escaped

OUTSIDE = "files"
"""The folder of pages that show files outside docs/."""
API = "reference/api"
CHANGES = "CHANGELOG.md"
"""In the navigation, whether or not a page links to it."""
LANGUAGES = {".py": "python", ".toml": "toml", ".js": "javascript", ".sh": "bash", ".yml": "yaml", ".cff": "yaml",
             ".json": "json", ".css": "css"}  # fmt: skip
_LINK = re.compile(r"(?<!\\)(\]\()([^()\s]+)(\))")
_FENCED = re.compile(r"^([ \t]*)(`{3,}|~{3,}).*?^\1\2[ \t]*$", re.M | re.S)
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
    waiting["index.md"] += f"[changes](../{CHANGES})"
    shown: set[str] = set()
    while waiting:
        uri, text = waiting.popitem()
        for target in sorted(outside(text, uri, root) - shown):
            shown.add(target)
            page = File.generated(config, page_of(target), content=file_page(root, target))
            if target != CHANGES:
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


def with_links(markdown: str, change: Callable[[str], str]) -> str:
    """The text with the targets of its links changed, but for those in blocks of code."""
    parts, end = [], 0
    for block in _FENCED.finditer(markdown):
        parts += [_LINK.sub(lambda m: m[1] + change(m[2]) + m[3], markdown[end : block.start()]), block[0]]
        end = block.end()
    parts.append(_LINK.sub(lambda m: m[1] + change(m[2]) + m[3], markdown[end:]))
    return "".join(parts)


def resolved(target: str, uri: str, root: Path) -> str | None:
    """The path from the root of the repository of what a link in docs/`uri` leads to; None if it is no file's."""
    path, _, _ = target.partition("#")
    if not path or re.match(r"[a-z]+:", target) or target.startswith("/"):
        return None
    found = posixpath.normpath(posixpath.join(_folder_of(uri), path))
    return found if not found.startswith("..") else None


def _folder_of(uri: str) -> str:
    """The folder from whose view the links of a page are written: pages of other files keep the links of these."""
    if uri.startswith(f"{OUTSIDE}/"):
        return posixpath.dirname(uri[len(OUTSIDE) + 1 :])
    return posixpath.dirname(f"docs/{uri}")


def outside(markdown: str, uri: str, root: Path) -> set[str]:
    """The files outside docs/ that a page links to."""
    found: set[str] = set()

    def look(target: str) -> str:
        path = resolved(target, uri, root)
        if path is not None and not path.startswith("docs/") and (root / path).is_file():
            found.add(path)
        return target

    with_links(markdown, look)
    return found


def inside(target: str, uri: str, root: Path) -> str:
    """Where a link leads in the site."""
    path = resolved(target, uri, root)
    if path is None:
        return target
    _, hash_, anchor = target.partition("#")
    if path.startswith("docs/"):
        if not uri.startswith(f"{OUTSIDE}/"):
            return target
        new = path.removeprefix("docs/")
    elif path == "README.md":
        new = "index.md"
    elif (root / path).is_file():
        new = page_of(path)
    else:
        return target  # mkdocs warns
    return posixpath.relpath(new, posixpath.dirname(uri) or ".") + hash_ + anchor


def page_of(path: str) -> str:
    """The page that shows a file."""
    return f"{OUTSIDE}/{path}" if path.endswith(".md") else f"{OUTSIDE}/{path}.md"


def file_page(root: Path, path: str) -> str:
    """A file as a page: Markdown as it is, anything else as code."""
    text = (root / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    return f"# {escaped(path)}\n\n{code(text, LANGUAGES.get(Path(path).suffix, 'text'))}"
