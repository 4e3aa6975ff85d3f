"""Letters: what agents write to one other agent, who need not be a neighbor, to find neighbors (see `introductions`).

16 bytes, the sender's own intervals, and up to 8 agents; every field is checked, as in `wire`:

    magic 4s, version u8, kind u8, n_intervals u8, n_agents u8, n_near u8, 3 bytes of zero, token u32
    n_intervals x (center f64, radius f64), n_agents x (n u8, n bytes of a name, m u8, m bytes of an endpoint or none)
"""

from __future__ import annotations

import struct

import msgspec

from colme.errors import NodeError, shorten
from colme.methods.intervals import AgentIntervals
from colme.node.messages.wire import MOST_INTERVALS, PAIR, VERSION, WireError, check_beginning, intervals_in
from colme.node.names import Endpoint, check_name

LETTER = b"cmeL"
ASK, NAMES, MEET, YES, NO, BYE = range(1, 7)
"""Kinds of letters: whom do you know; these; be my neighbor; yes; no; I leave."""
MOST_NAMES, MOST_LETTER, LONGEST_ENDPOINT = 8, 640, 128
"""Agents in a letter; its bytes; those of an endpoint."""

_LETTER = struct.Struct("<4sBBBBB3xI")


class Letter(msgspec.Struct, frozen=True):
    """A message to one agent that need not be a neighbor. An answer repeats the token of the question.

    intervals   of the sender: in a question to be neighbors and in its answer
    agents      (name, endpoint; None: nobody can dial it): in a question its sender, in an answer whom it knows,
    near        of whom the first so many are its neighbors
    """

    kind: int
    token: int = 0
    intervals: AgentIntervals = ()
    agents: tuple[tuple[str, str | None], ...] = ()
    near: int = 0


def pack_letter(letter: Letter) -> bytes:
    """The bytes of a letter: of many agents, those that fit."""
    pairs = b"".join(PAIR.pack(*pair) for pair in letter.intervals)
    tail, n_agents = b"", 0
    for name, endpoint in letter.agents[:MOST_NAMES]:
        texts = name.encode(), (endpoint or "").encode()
        more = b"".join(bytes([len(text)]) + text for text in texts)
        if _LETTER.size + len(pairs) + len(tail) + len(more) > MOST_LETTER:
            break
        tail, n_agents = tail + more, n_agents + 1
    near = min(letter.near, n_agents)
    head = (LETTER, VERSION, letter.kind, len(letter.intervals), n_agents, near, letter.token)
    return _LETTER.pack(*head) + pairs + tail


def unpack_letter(raw: bytes) -> Letter:
    """The letter in these bytes, or a WireError."""
    if not _LETTER.size <= len(raw) <= MOST_LETTER:
        raise WireError("size", f"{len(raw)} bytes")
    magic, version, kind, n_intervals, n_agents, near, token = _LETTER.unpack_from(raw)
    check_beginning(magic, LETTER, version)
    if not ASK <= kind <= BYE or n_intervals > MOST_INTERVALS or not near <= n_agents <= MOST_NAMES:
        raise WireError("range", f"kind {kind} with {n_intervals} intervals and {near} of {n_agents} agents")
    at = _LETTER.size + n_intervals * PAIR.size
    if len(raw) < at:
        raise WireError("size", f"{len(raw)} bytes")
    intervals = intervals_in(raw, _LETTER.size, n_intervals)
    agents: list[tuple[str, str | None]] = []
    for _ in range(n_agents):
        name, at = _text(raw, at)
        endpoint, at = _text(raw, at)
        try:
            check_name(name, "name")
            if endpoint:
                Endpoint.parse(endpoint)
        except NodeError:
            raise WireError("value", f"{shorten(name)} at {shorten(endpoint)}") from None
        if len(endpoint) > LONGEST_ENDPOINT:
            raise WireError("value", f"{len(endpoint)} bytes of an endpoint")
        agents.append((name, endpoint or None))
    if len(raw) != at:
        raise WireError("size", f"{len(raw)} bytes")
    return Letter(kind, token, intervals, tuple(agents), near)


def _text(raw: bytes, at: int) -> tuple[str, int]:
    """A text behind its length, and where it ends."""
    end = at + 1 + raw[at] if at < len(raw) else len(raw) + 1
    text = raw[at + 1 : end]
    if end > len(raw) or not text.isascii():
        raise WireError("value", "a text that is none")
    return text.decode(), end
