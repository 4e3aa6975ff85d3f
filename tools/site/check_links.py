"""Check every link of a built site: files, anchors, images, scripts and frames.

    python -m tools.site.check_links site

Prints what is dead and exits with 1 if there is something. Links to other sites are only checked for their form, and
may only be links: a page that loads anything from elsewhere is refused, because the site must work offline.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LOADED = {("img", "src"), ("script", "src"), ("iframe", "src"), ("link", "href"), ("source", "src"), ("video", "src"),
          ("object", "data"), ("embed", "src")}  # fmt: skip
"""What a browser asks for by itself."""
FOLLOWED = {("a", "href"), ("area", "href"), ("form", "action")}
WITHOUT_FILE = {"mailto", "data", "javascript", "about"}


class Link(NamedTuple):
    """A link of a page."""

    target: str
    loaded: bool
    line: int


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[Link] = []
        self.anchors: set[str] = set()
        self.repeated: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag, name) == ("a", "name"):
                if value in self.anchors and name == "id":
                    self.repeated.add(value)
                self.anchors.add(value)
            elif (tag, name) in LOADED or (tag, name) in FOLLOWED:
                self.links.append(Link(value.strip(), (tag, name) in LOADED, self.getpos()[0]))


def dead_links(site: Path) -> list[str]:
    """A sentence about each link that leads nowhere, and each anchor that a page has twice."""
    site = site.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        return [f"{site.name}: it has no pages"]
    found = []
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        found += [f"{name}: the anchor #{anchor} is there twice" for anchor in sorted(page.repeated)]
        for link in page.links:
            if trouble := _trouble(link, path, pages, site):
                found.append(f"{name}:{link.line}: {link.target!r} {trouble}")
    return found


def _trouble(link: Link, path: Path, pages: dict[Path, Page], site: Path) -> str | None:
    try:
        parts = urlsplit(link.target)
    except ValueError:
        return "is not an address"
    if parts.scheme in WITHOUT_FILE:
        return None
    if parts.scheme or parts.netloc:
        return _elsewhere(link, parts.scheme, parts.netloc)
    if parts.path.startswith("/"):
        return "begins at the root: it does not work from a folder"
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        return "is a folder: only a server would find its page"
    if not target.is_file():
        return "is not there"
    if not target.is_relative_to(site):
        return "is outside the site"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return "has no such anchor"
    return None


def _elsewhere(link: Link, scheme: str, host: str) -> str | None:
    if link.loaded:
        return "is loaded from elsewhere"
    if scheme not in ("http", "https"):
        return "is not an address of the web"
    if "." not in host or any(each.isspace() for each in link.target):
        return "is not an address"
    return None


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m tools.site.check_links FOLDER", file=sys.stderr)
        return 2
    site = Path(arguments[0])
    found = dead_links(site)
    for sentence in found:
        print(sentence)
    print(f"{len(found)} dead links in {len(list(site.rglob('*.html')))} pages.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
