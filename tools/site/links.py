"""Links between pages and files of the repository, in Markdown.

A link that works in the repository must work in the site: one to a file outside docs/ leads to a page that shows it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from tools.site.markdown import code, escaped
from tools.site.notebook import notebook_page

OUTSIDE = "files"
"""The folder of pages that show files outside docs/."""
LANGUAGES = {".py": "python", ".toml": "toml", ".js": "javascript", ".sh": "bash", ".yml": "yaml", ".cff": "yaml",
             ".json": "json", ".css": "css"}  # fmt: skip
_LINK = re.compile(r"(?<!\\)(\]\()([^()\s]+)(\))")
_FENCED = re.compile(r"^([ \t]*)(`{3,}|~{3,}).*?^\1\2[ \t]*$", re.M | re.S)


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
    """A file as a page: Markdown as it is, a notebook with its outputs, anything else as code."""
    text = (root / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    if path.endswith(".ipynb"):
        return notebook_page(text)
    return f"# {escaped(path)}\n\n{code(text, LANGUAGES.get(Path(path).suffix, 'text'))}"
