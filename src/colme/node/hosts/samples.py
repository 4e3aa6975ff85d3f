"""Samples of many agents, from the same sources: lines with the number of an agent and a sample.

    17 21.4
    18 21.9

Two hundred thousand lines a second are read block by block; a block with a line that is wrong, line by line."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colme.node.hosts.graph import MOST_AGENTS
from colme.node.hosts.host import NO_SAMPLES, AgentSamples
from colme.node.io.sources import LONGEST, LineParser, number_in

_PLAIN = np.zeros(256, bool)  # bytes of a block that may be read as a whole
_PLAIN[list(b"0123456789+-.eE \t\n")] = True


class AgentLineParser(LineParser):
    """Agents and samples from bytes: blocks of `AgentSamples`."""

    rule: ClassVar[str] = "is not an agent with a sample: it is skipped, as others will be. Send lines like: 17 21.4"
    chunk: ClassVar[int] = 1 << 20

    def read(self, lines: list[bytes]) -> list[AgentSamples]:
        """The samples in these lines."""
        block = _block(b"\n".join(lines) + b"\n", len(lines)) if lines else None
        if block is not None:
            return [block]
        pairs = [pair for line in lines if (pair := self._pair(line)) is not None]
        if not pairs:
            return []
        agents, values = zip(*pairs, strict=True)
        return [(np.array(agents, np.int64), np.array(values))]

    def _pair(self, line: bytes) -> tuple[int, float] | None:
        words = line.split()
        if not words:
            return None
        if len(line) <= LONGEST and len(words) == 2 and words[0].isdigit() and int(words[0]) <= MOST_AGENTS:
            value = number_in(words[1])
            if value is not None:
                return int(words[0]), value
        self._complain(line.strip())
        return None


def together(blocks: list[AgentSamples]) -> AgentSamples:
    """All blocks as one."""
    if len(blocks) < 2:
        return blocks[0] if blocks else NO_SAMPLES
    agents, values = zip(*blocks, strict=True)
    return np.concatenate(agents), np.concatenate(values)


def _block(text: bytes, n_lines: int) -> AgentSamples | None:
    """The samples in a block of lines each of which is as it should be; None if any is not."""
    letters: NDArray[Any] = np.frombuffer(text, np.uint8)
    if not _PLAIN[letters].all():
        return None
    inside = letters > 32
    begun = np.cumsum(inside & ~np.concatenate([[False], inside[:-1]]))  # words so far
    if not np.array_equal(begun[letters == 10], np.arange(2, 2 * n_lines + 1, 2)):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            numbers = np.fromstring(text, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    if len(numbers) != 2 * n_lines or not np.isfinite(numbers).all():
        return None
    agents, values = numbers[::2], numbers[1::2]
    if agents.min() < 0 or agents.max() > MOST_AGENTS or np.any(agents % 1.0):
        return None
    return agents.astype(np.int64), values.copy()
