"""A notebook as a page: its text, its code, and the outputs that it stores."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

from tools.site.markdown import code


def notebook_page(text: str) -> str:
    """Markdown of a notebook. Formulas stay as they were written: a page without scripts does not set them."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(_formulas(source))
        else:
            parts.append(code(source, "python"))
            parts += [shown for output in cell["outputs"] if (shown := _output(output))]
    return "\n\n".join(parts) + "\n"


def _formulas(source: str) -> str:
    blocks = re.sub(r"\$\$(.+?)\$\$", lambda match: "\n" + code(match[1].strip(), "latex") + "\n", source, flags=re.S)
    return re.sub(r"(?<![\\$])\$([^$\n]+)\$", lambda match: f"`{match[1]}`", blocks)


def _output(output: dict[str, Any]) -> str:
    """What a cell printed or drew: a table as such, a figure, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        image = "".join(data["image/png"]).strip().replace("\n", "")
        return f'<img alt="the figure that this cell draws" src="data:image/png;base64,{image}">'
    if "text/html" in data:
        table = " ".join("".join(data["text/html"]).split())  # on one line: Markdown leaves it alone
        return f'<div class="output">{table}</div>'
    words = "".join(output.get("text", data.get("text/plain", "")))
    return f'<pre class="output">{escape(words, quote=False)}</pre>' if words.strip() else ""
