"""Docstrings of this house as Markdown: aligned lines become lists of definitions.

name   description of a parameter,          ->  a list of definitions
       aligned over several lines
>>> doctest                                 ->  a block of code
    four spaces, an equation                ->  a block of code
`CLColME`, and "See also: CLColME, Local"   ->  links to the names that docs/reference/public.md lists
"""

from __future__ import annotations

import inspect
import re

from tools.site.markdown import code, definitions, escaped
from tools.site.public import by_short_name, public_names

SEE_ALSO = "See also:"
_GAP = re.compile(r"^(\S.*?)\s{2,}(?=\S)")
_CODE = re.compile(r"`([A-Za-z_][\w.]*)`")


class Names:
    """What names in docstrings link to."""

    def __init__(self, names: list[str], short: dict[str, str]):
        self._known = {name: name for name in names} | short

    @classmethod
    def public(cls) -> Names:
        return cls(public_names(), by_short_name())

    def link(self, name: str) -> str | None:
        """The full name that this one stands for, or that of its owner: `Trace.save` is explained with `Trace`."""
        if name in self._known:
            return self._known[name]
        return self._known.get(name.rpartition(".")[0])

    def linked(self, text: str, own: str = "") -> str:
        """Escaped text in which names in backticks are links, but for the object's own name."""

        def one(match: re.Match[str]) -> str:
            target = self.link(match[1])
            return match[0] if target is None or target == own else f"[{match[0]}][{target}]"

        return _CODE.sub(one, escaped(text))


def as_markdown(text: str, names: Names, own: str = "", fields: list[tuple[str, str]] | None = None) -> str:
    """A docstring as Markdown. `fields`: (name, description) of a struct, in place of its aligned lines."""
    blocks, done = [], fields is None
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = block.splitlines()
        if lines[0].startswith(">>>"):
            blocks.append(code(block, "pycon"))
        elif lines[0].startswith("    "):
            blocks.append(code(inspect.cleandoc("\n" + block)))
        elif block.startswith(SEE_ALSO):
            blocks.append(_see_also(block, names))
        elif (split := split_aligned(lines)) is not None:
            before, pairs = split
            if before:
                blocks.append(names.linked(" ".join(before), own))
            if fields is None:
                blocks.append(_parameters(pairs, names, own))
            elif not done:
                blocks.append(_parameters(fields, names, own))
                done = True
        else:
            blocks.append(names.linked(" ".join(line.strip() for line in lines), own))
    if not done and fields:
        blocks.insert(1, _parameters(fields, names, own))
    return "\n\n".join(blocks) + "\n"


def split_aligned(lines: list[str]) -> tuple[list[str], list[tuple[str, str]]] | None:
    """(text before, pairs) of a block with lines "name   description"; None if it has none."""
    first = next((i for i, line in enumerate(lines) if _GAP.match(line)), None)
    if first is None:
        return None
    columns = [match.end() for line in lines if (match := _GAP.match(line))]
    column = max(set(columns), key=columns.count)
    while first > 0 and len(lines[first - 1]) < column:  # a name whose description begins below it
        first -= 1
    pairs: list[tuple[str, str]] = []
    for line, below in zip(lines[first:], [*lines[first + 1 :], ""], strict=True):
        if line.startswith(" "):
            if not pairs:
                return None
            name, words = pairs[-1]
            pairs[-1] = (name, f"{words} {line.strip()}".strip())
        elif match := _GAP.match(line):
            pairs.append((match[1], line[match.end() :]))
        elif line[column - 1 : column] == " " and not line[:column].rstrip().endswith(","):
            pairs.append((line[:column].strip(), line[column:]))
        elif below.startswith(" "):
            pairs.append((line, ""))
        else:
            return None
    return lines[:first], pairs


def _parameters(pairs: list[tuple[str, str]], names: Names, own: str) -> str:
    return definitions((f"`{name}`", names.linked(words, own)) for name, words in pairs)


def _see_also(block: str, names: Names) -> str:
    parts = []
    for each in " ".join(block.split())[len(SEE_ALSO) :].strip().rstrip(".").split(","):
        name = each.strip().strip("`")
        target = names.link(name)
        parts.append(f"[`{name}`][{target}]" if target else f"`{name}`")
    return f"**See also:** {', '.join(parts)}"
