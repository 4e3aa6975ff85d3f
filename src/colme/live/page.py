"""One self-contained page with a recording: it works from a folder or as an attachment of a mail, and asks for nothing.

The renderer, its style and the recording are within the page. A Content-Security-Policy allows just these, by their
hashes: whatever else the page may hold, nothing runs and nothing is fetched.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import zlib
from collections.abc import Iterable
from html import escape
from importlib import resources
from pathlib import Path

from colme.live.messages import join
from colme.support.files import PathLike, write_text

_START = """
const recording = document.getElementById("recording").textContent;
mount(document.getElementById("view"), embeddedFeed(recording), { wholePage: true });
"""


@functools.cache
def asset(name: str) -> str:
    """The text of a file of the renderer."""
    return resources.files("colme.live").joinpath(name).read_text(encoding="utf-8")


def compressed(messages: Iterable[bytes]) -> bytes:
    """A recording as it is kept in pages and notebooks."""
    return zlib.compress(join(messages), 9)


def page(messages: Iterable[bytes], *, title: str = "", theme: str = "") -> str:
    """The page as HTML. `theme`: "light" or "dark" (default: as the reader's system)."""
    script, style = asset("live.js") + _START, asset("live.css")
    allowed = f"script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    data = base64.b64encode(compressed(messages)).decode()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title or "colme")}</title>
<style>{style}</style>
</head>
<body class="colme-page">
<main id="view" data-theme="{theme}"><noscript>This page plays a recording: it needs JavaScript.</noscript></main>
<script type="application/octet-stream" id="recording">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def write_page(path: PathLike, messages: Iterable[bytes], *, title: str = "") -> Path:
    """Write the page, whole or not at all."""
    target = Path(path)
    write_text(target, page(messages, title=title))
    return target


def _hash(text: str) -> str:
    """As a policy names an inline script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
