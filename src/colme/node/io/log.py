"""Where the messages of a node go: the logger `colme.node`, and the program that runs the node."""

from __future__ import annotations

import logging

from colme.errors import printable
from colme.node.io.sources import Say

LOGGER = logging.getLogger("colme.node")


def logged(level: int, say: Say | None = None) -> Say:
    """Takes a sentence, logs it at this level, and passes it on to `say` if there is one."""

    def both(sentence: str) -> None:
        LOGGER.log(level, "%s", printable(sentence))
        if say is not None:
            say(sentence)

    return both
