"""Membership messages, in bytes: sent to one agent, which need not be a neighbor, to find neighbors (see
`membership/introductions`).

A head of 16 bytes, the sender's intervals, and up to 8 agents; every field is checked, as in `wire`:

    magic 4s, version u8, kind u8, n_intervals u8, n_agents u8, n_near u8, 3 bytes of zero, token u32
    n_intervals x (center f64, radius f64), n_agents x (n u8, n bytes of a name, m u8, m bytes of an endpoint or none)
"""

from __future__ import annotations

import struct

import msgspec

from colme.errors import NodeError, shorten
from colme.methods.intervals import AgentIntervals
from colme.node.messages.wire import (
    ERRORS,
    MOST_INTERVALS,
    PAIR,
    VERSION,
    WireError,
    check_beginning,
    intervals_code,
    intervals_in,
    pack_intervals,
)  # fmt: skip
from colme.node.names import Endpoint, check_name

MEMBERSHIP = b"cmeL"
FIND_PEERS, PEERS, INVITE, ACCEPT, REJECT, LEAVE, RELEASE, RELEASED, KEEP = range(1, 10)
"""Kinds: which peers do you know; these; be my neighbor; accepted; rejected; I leave; let us no longer be neighbors;
agreed; not agreed."""
MOST_PEERS, MOST_MEMBERSHIP_BYTES, LONGEST_ENDPOINT = 8, 640, 128
"""Agents in a message, bytes of a message, bytes of an endpoint."""

_HEAD = struct.Struct("<4sBBBBB3xI")


class MembershipMessage(msgspec.Struct, frozen=True):
    """A message to one agent, which need not be a neighbor. An answer repeats the token of the request.

    intervals   of the sender, in an invitation and its answer
    agents      (name, endpoint; None: it cannot be dialed): in a request the sender, in an answer peers that it knows,
                in RELEASE neighbors of the sender
    near        how many of them, from the first on, are neighbors of the sender; in RELEASE: its first neighbors, with
                which it was configured, if all of them are there, else 0
    """

    kind: int
    token: int = 0
    intervals: AgentIntervals = ()
    agents: tuple[tuple[str, str | None], ...] = ()
    near: int = 0


def pack_membership(message: MembershipMessage) -> bytes:
    """The bytes of a message. If not all agents fit, the first ones are sent."""
    pairs = pack_intervals(message.intervals)
    tail, n_agents = b"", 0
    for name, endpoint in message.agents[:MOST_PEERS]:
        texts = name.encode(), (endpoint or "").encode()
        more = b"".join(bytes([len(text)]) + text for text in texts)
        if _HEAD.size + len(pairs) + len(tail) + len(more) > MOST_MEMBERSHIP_BYTES:
            break
        tail, n_agents = tail + more, n_agents + 1
    near = min(message.near, n_agents)
    head = (MEMBERSHIP, VERSION, message.kind, intervals_code(message.intervals), n_agents, near, message.token)
    return _HEAD.pack(*head) + pairs + tail


def unpack_membership(raw: bytes) -> MembershipMessage:
    """The message in these bytes; raises WireError if they are none."""
    if not _HEAD.size <= len(raw) <= MOST_MEMBERSHIP_BYTES:
        raise WireError("size", f"{len(raw)} bytes")
    magic, version, kind, code, n_agents, near, token = _HEAD.unpack_from(raw)
    n_intervals = code & ~ERRORS
    check_beginning(magic, MEMBERSHIP, version)
    if not FIND_PEERS <= kind <= KEEP or n_intervals > MOST_INTERVALS or not near <= n_agents <= MOST_PEERS:
        raise WireError("range", f"kind {kind} with {n_intervals} intervals and {near} of {n_agents} agents")
    at = _HEAD.size + n_intervals * PAIR.size
    if len(raw) < at:
        raise WireError("size", f"{len(raw)} bytes")
    intervals = intervals_in(raw, _HEAD.size, code)
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
    return MembershipMessage(kind, token, intervals, tuple(agents), near)


def _text(raw: bytes, at: int) -> tuple[str, int]:
    """A length-prefixed text, and where it ends."""
    end = at + 1 + raw[at] if at < len(raw) else len(raw) + 1
    text = raw[at + 1 : end]
    if end > len(raw) or not text.isascii():
        raise WireError("value", "not a text")
    return text.decode(), end
